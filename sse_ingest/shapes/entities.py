"""Find the hashtags, mentions and addresses of a text by the rules of twitter-text (Twitter's own specification).

https://github.com/twitter/twitter-text and its conformance cases define the characters of tags and names, and the characters
that may precede and follow them. All patterns are possessive or stop at the next candidate, so the time is linear in the
length of the text. The top-level domains are those of the public suffix list.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files

import regex
from msgspec import Struct

__all__ = ["CHARACTERS_SEARCHED", "Entities", "entities_of", "hashtags_of"]

CHARACTERS_SEARCHED = 5000
"""How many characters of a text are searched. A tweet has at most 280 characters, or 4,000 in paid accounts."""

_LATIN = (
    r"\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0253\u0254\u0256\u0257\u0259\u025b\u0263\u0268\u026f\u0272\u0289\u028b"
    r"\u02bb\u0300-\u036f\u1e00-\u1eff"
)
_CYRILLIC = r"\u0400-\u04ff"
_NO_TEXT = r"\ufffe\ufeff\uffff"

# A tag may contain digits and the joiners of many scripts, but it must also contain a letter.
_TAG_JOINERS = r"_\u200c\u200d\ua67e\u05be\u05f3\u05f4\uff5e\u301c\u309b\u309c\u30a0\u30fb\u3003\u0f0b\u0f0c\u00b7"
_TAG_LETTER = r"[\p{L}\p{M}]"
_TAG_CHARACTERS = rf"\p{{L}}\p{{M}}\p{{Nd}}{_TAG_JOINERS}"
_HASHTAG = regex.compile(
    rf"(?:(?<![&{_TAG_CHARACTERS}])|(?<=[\ufe0e\ufe0f]))[#＃](?![\ufe0f\u20e3])"
    rf"((?:(?!{_TAG_LETTER})[{_TAG_CHARACTERS}])*+{_TAG_LETTER}[{_TAG_CHARACTERS}]*+)(?![#＃]|://)"
)
_MENTION = regex.compile(
    r"(?:(?<![a-z0-9_!#$%&*@＠])|(?<=(?:^|[^a-z0-9_+~.-])RT:?))"
    rf"[@＠]++([a-z0-9_]{{1,20}}+)(/[a-z][a-z0-9_-]{{0,24}}+)?+(?![@＠{_LATIN}]|://)",
    regex.IGNORECASE | regex.ASCII,
)

_DOMAIN_CHARACTERS = rf"a-z0-9{_LATIN}"
_URL_START = regex.compile(
    rf"(?<![a-z0-9@＠$#＃{_NO_TEXT}])(?:(https?://)|(?<![-_./{_LATIN}])(?=[{_DOMAIN_CHARACTERS}]))", regex.IGNORECASE
)
_DOMAIN = regex.compile(rf"[{_DOMAIN_CHARACTERS}._-]++", regex.IGNORECASE)
_NOT_IN_DOMAINS = r"\x00-,/:-@\[-^`{-\x7f\p{Z}\p{C}\u2000-\u206f"
_UNICODE_DOMAIN = regex.compile(rf"[^{_NOT_IN_DOMAINS}]++")
_UNICODE_TLD = regex.compile(rf"(?<=\.)[^{_NOT_IN_DOMAINS}._-]{{1,24}}+")
_LABEL = regex.compile(r"[^._-](?:[^.]*[^._-])?")
_LAST_LABEL = regex.compile(r"[^._-](?:[^._]*[^._-])?")
_PUNYCODE = regex.compile(r"xn--[-0-9a-z]+", regex.IGNORECASE)
_TLD_CHARACTERS_MAX = 24
_IS_NO_TLD = regex.compile(r"[a-z0-9@+-]", regex.IGNORECASE)
_PORT = regex.compile(r":[0-9]++")
_PATH_CHARACTERS = rf"a-z0-9!*';:=+,.$/%#\[\]\-\u2013_~|&@{_LATIN}{_CYRILLIC}"
_PATH_PART = regex.compile(rf"[{_PATH_CHARACTERS}]", regex.IGNORECASE)
_PATH_END = regex.compile(rf"[a-z0-9=_#/\-+{_LATIN}{_CYRILLIC}]", regex.IGNORECASE)
_PARENTHESES = regex.compile(
    rf"\([{_PATH_CHARACTERS}]*+(?:\([{_PATH_CHARACTERS}]++\)[{_PATH_CHARACTERS}]*+)?+\)", regex.IGNORECASE
)
_QUERY = regex.compile(r"\?[a-z0-9!?*'();:&=+$/%#\[\]\-_.,~|@]*(?<=[a-z0-9\-_&=#/])", regex.IGNORECASE)
_SHORTENED = regex.compile(r"https?://t\.co/([a-z0-9]+)", regex.IGNORECASE)
_SHORTENED_MAX = 40
_LABEL_CHARACTERS_MAX = 63


class Entities(Struct):
    """The hashtags, mentions and addresses of a text, each once, in the order of the text."""

    hashtags: list[str]
    mentions: list[str]
    urls: list[str]


def entities_of(text: str) -> Entities:
    """Find hashtags and names, both without their sign, and addresses. Only the beginning of a long `text` is searched."""
    text = text[:CHARACTERS_SEARCHED]
    spans = list(_addresses(text))
    mentions = (
        [found[1] for found in _MENTION.finditer(text) if found[2] is None] if "@" in text or "＠" in text else []
    )
    urls = [text[start:end] for start, end in spans]
    return Entities(_once(_hashtags(text, spans)), _once(mentions), _once(urls))


def hashtags_of(text: str) -> list[str]:
    """Find the hashtags of `text`."""
    text = text[:CHARACTERS_SEARCHED]
    return _once(_hashtags(text, _addresses(text)))


def _once(items: list[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _hashtags(text: str, addresses: Iterable[tuple[int, int]]) -> list[str]:
    if "#" not in text and "＃" not in text:
        return []
    spans = list(addresses)
    return [
        found[1] for found in _HASHTAG.finditer(text) if not any(start <= found.start() < end for start, end in spans)
    ]


def _addresses(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each address, with or without ``http://``, in order."""
    if "." not in text:
        return
    place = 0
    while found := _URL_START.search(text, place):
        start, place = found.start(), found.end()
        pattern = _UNICODE_DOMAIN if found[1] else _DOMAIN
        if (run := pattern.match(text, place)) is None:
            continue
        tld = _UNICODE_TLD.match(text, run.end())
        if (domain := _domain_end(text, place, (tld or run).end())) < 0:
            place = place if found[1] else run.end()
            continue
        end = _address_end(text, start, domain)
        place = max(end, domain)
        if end > 0:
            yield start, end


def _domain_end(text: str, start: int, end: int) -> int:
    """Return the end of the longest domain within `start` … `end`, -1 if there is none."""
    found, place, name = -1, start, ""
    for number, label in enumerate(text[start:end].split(".")):
        if number and _LAST_LABEL.fullmatch(name) and (length := _tld_length(text, place, label)):
            found = place + length
        if not _is_label(label):
            break
        name = label
        place += len(label) + 1
    return found


def _is_label(label: str) -> bool:
    """Whether a domain may contain this label. A label that is not ASCII is sent as Punycode, whose length is limited."""
    if not _LABEL.fullmatch(label) or len(label) > _LABEL_CHARACTERS_MAX:
        return False
    if label.isascii():
        return True
    return not label.startswith("xn--") and len(label.encode("punycode")) + 4 <= _LABEL_CHARACTERS_MAX


def _tld_length(text: str, place: int, label: str) -> int:
    """Return the length of the longest top-level domain at the start of `label`, which begins at `place` of `text`."""
    if found := _PUNYCODE.match(label):
        return int(found.end())
    for length in range(min(len(label), _TLD_CHARACTERS_MAX), 1, -1):
        if label[:length].lower() in _tlds() and not _IS_NO_TLD.match(text, place + length):
            return length
    return 0


@cache
def _tlds() -> frozenset[str]:
    """Return the top-level domains, in Unicode: the last labels of the rules in the public suffix list."""
    rules = files("publicsuffixlist").joinpath("public_suffix_list.dat").read_text("utf-8")
    of_registries = rules.partition("===END ICANN DOMAINS===")[0]
    lines = (line.split(maxsplit=1)[0] for line in of_registries.splitlines() if line and not line.startswith("//"))
    return frozenset(rule.rpartition(".")[2].lower() for rule in lines)


def _address_end(text: str, start: int, domain_end: int) -> int:
    """Return the end of an address whose domain ends at `domain_end`; -1 if it is not an address."""
    if shortened := _SHORTENED.match(text, start):
        if len(shortened[1]) > _SHORTENED_MAX:
            return -1
        end = shortened.end()
    else:
        end = domain_end
        if port := _PORT.match(text, end):
            end = port.end()
        if text.startswith("/", end):
            end = _path_end(text, end + 1)
    query = _QUERY.match(text, end)
    return int(query.end()) if query else end


def _path_end(text: str, place: int) -> int:
    """Return the end of a path that begins at `place`, without trailing punctuation, with balanced parentheses."""
    end = place
    while place < len(text):
        if group := _PARENTHESES.match(text, place):
            place = end = group.end()
        elif _PATH_PART.match(text, place):
            place += 1
            if _PATH_END.match(text, place - 1):
                end = place
        else:
            break
    return end
