"""The rules of plain English that a pattern can check: idioms, the length of a sentence, a docstring's first line."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.english.passages import Passage

__all__ = ["WORDS_MAX", "faults_of"]

WORDS_MAX = 30
"""The most words of a sentence.

The limit for writers is 25. The check allows some more, since a few longer sentences are clear.
"""

_START = r"(?:^|(?<=[.!?;:] )|(?<=\())"
_AFTER = r"\b(?:of|to|by|for|from|with|without|than|except|beside|behind|before|after|above|until|into)"
_IS_A_QUESTION = r"[^.!;]*\?"
_ENDS = r"(?=$|[.,;:)]| (?:and|or|that|which|so|for|in|on|at|as|to|with|where|when|while|rather)\b)"


class _Idiom(NamedTuple):
    pattern: re.Pattern[str]
    advice: str


def _idiom(pattern: str, advice: str) -> _Idiom:
    return _Idiom(re.compile(pattern, re.IGNORECASE), advice)


_BEGIN = "begin with the actor or the thing"
_IDIOMS = [
    _idiom(r"\bneed not\b", "write 'does not have to', or say what happens"),
    _idiom(r"\b(?:again and again|now and then|for ever)\b", "write 'repeatedly', 'sometimes' or 'forever'"),
    _idiom(r"\bthe (?:latter|former)\b", "name the thing again"),
    _idiom(r"\bgo(?:es)? on\b", "write 'continue'"),
    _idiom(r"\bones?'s\b", "name the owner"),
    _idiom(r"\bmade-up\b", "write 'invented'"),
    _idiom(r"\braises as\b", "write 'raises the errors of …'"),
    _idiom(rf"{_START}(?:whom?|whose|what)\b(?!{_IS_A_QUESTION})", _BEGIN),
    _idiom(r"^(?:whoever|whatever)\b", _BEGIN),
    _idiom(rf"{_AFTER} (?:whom?|what)\b(?!{_IS_A_QUESTION})", "name the person, the program or the thing"),
    _idiom(rf"{_START}ones? (?:that|who|whose|which)\b", "name the thing instead of 'one'"),
    _idiom(r"\b(?:somebody|nobody|anybody|someone|no one)\b", "name the client, the user or the program"),
    _idiom(r"\banew\b", "write 'again'"),
    _idiom(
        r"\bbehind (?:it|them|that|this|these|those|each other|one another|which|(?:the|a|an|every|each) (?:\w+ )?"
        r"(?:event|change|position|token|last|first|one|offset|line|record|batch|write|reply|sequence|mark)s?)\b",
        "write 'after'",
    ),
    _idiom(r"\b(?:told|tells)\b(?! apart\b)", "write 'logged', 'reported', 'returned' or 'shows'"),
    _idiom(rf"\bof (?:its|their|one's) own\b{_ENDS}", "write 'separate' or 'its own …'"),
    _idiom(r"\bso (?:many|much)\b", "write 'this many', 'at most n' or the number"),
    _idiom(r"\b(?:does|do|did|will|would) not do(?=$|[.,;:)]| for\b)", "write 'is unusable'"),
    _idiom(r"\b(?:comes|came) to\b(?! (?:an|the|its|their) end\b)", "write 'results in', 'reaches' or 'is'"),
    _idiom(r"\b(?:for|in) want of\b", "write 'without' or 'because there is no'"),
    _idiom(r"\bsave (?:that|for|where|when|in)\b", "write 'except'"),
    _idiom(r"\bbef(?:alls?|ell)\b", "write 'happens to'"),
    _idiom(r"(?<!there )\b(?:is|are|was|were) (?-i:none)\b(?! of\b)", "write 'is not a …'"),
    _idiom(
        r"(?<!there )\b(?:is|are|was|were) no (?!(?:longer|more|less|later|older|newer|earlier|sooner)\b)",
        "write 'is not a …'",
    ),
    _idiom(r"\ball the same(?=$|[.,;:)]| (?:and|but|if|until|when)\b)", "write 'still'"),
    _idiom(r"\bfor good\b(?! reasons?\b)", "write 'forever' or 'finally'"),
    _idiom(r"\b(?:all but|nothing but|last but one)\b", "write 'all except', 'only' or 'second-last'"),
    _idiom(
        r"\b(?:is|are|was|were|be|been) (?:asked|looked|waited) for\b", "name the program that asks, looks or waits"
    ),
    _idiom(r"\b(?:shall|ought to)\b", "write 'must', 'has to' or 'should'"),
    _idiom(
        r"\b(?:albeit|amid|hence|henceforth|thereby|whereby|whilst|wholly)\b|\bin vain\b",
        "use a common word: 'so', 'by this', 'during', 'completely', 'without success'",
    ),
    _idiom(r"\balike(?=$|[.,;:)]| \()", "write 'both', 'in the same way' or 'the same …'"),
    _idiom(r"(?<!message )(?<!text )(?<!CODE )\b(?:is|are) one sentence\b", "write 'is reported in one sentence'"),
    _idiom(r"\b(?:lest|wherein|thereof|whence|thence|therein)\b", "use a word of today"),
    _idiom(
        r"\b(?:not|never) (?:\w+ )?(?:nobody|nothing|nowhere)\b|\bnot without\b",
        "say it without a double negative",
    ),
]

_SENTENCE_END = re.compile(r"(?<=[.!?:])[)\"']*\s+(?=[\"'(]*[A-Z0-9])")
_FIRST = re.compile(r"[\"'(*]*[A-Z0-9…]")
_LAST = re.compile(r".*[.!?:][)\"'*]*", re.DOTALL)
_WORDS_OF_A_SENTENCE = 2


def faults_of(passage: Passage) -> Iterator[str]:
    """Return the faults of a passage, each with advice."""
    if passage.kind == "summary":
        yield from _summary_faults(passage.text)
        return
    for idiom in _IDIOMS:
        if idiom.advice == _BEGIN and passage.kind == "heading":
            continue  # a heading may be a question without its mark: "What a change needs"
        if found := idiom.pattern.search(passage.text):
            yield f"'{found.group().strip()}': {idiom.advice}"
    if passage.kind in ("docstring", "comment", "page"):
        for sentence in _SENTENCE_END.split(passage.text):
            words = sum(1 for word in sentence.split() if any(map(str.isalnum, word)))
            if words > WORDS_MAX:
                yield f"a sentence of {words} words ('{' '.join(sentence.split()[:4])} …'): split it"


_SECOND_RESULT = re.compile(r"; (?:returns?|gives?|yields?)\b")
_IS_FORMULA = re.compile(r" [→⇄] ")


def _summary_faults(text: str) -> Iterator[str]:
    if found := _SECOND_RESULT.search(text):
        yield f"'{found.group()}': begin a new sentence"
    if _IS_FORMULA.search(text):
        yield "a formula in place of a sentence: write it with a verb"
    if not _FIRST.match(text) or not _LAST.fullmatch(text) or len(text.split()) < _WORDS_OF_A_SENTENCE:
        yield f"the docstring's first line ('{text[:40]}') is no sentence: begin with a capital, end with a full stop"
