"""Expressions over one event, for ``--where``: ``msg.user.id == 7 and not (key in ["a", "b"])``.

An expression is parsed once into nested functions and then applied to each decoded event. It can see only the event. Its
time is bounded: there are no calls, no arithmetic, no repetition and no regular expressions.

A part has one of three results: true, false, or unknown if the event lacks a member. As in SQL, ``unknown or true`` is
true, ``not unknown`` is unknown, and an event whose result is unknown does not match.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from msgspec import UNSET

from tweetwire.cli.comparisons import COMPARISONS
from tweetwire.cli.members import EVENT_MEMBERS, member_of
from tweetwire.protocol.errors import StartError

__all__ = ["Where", "read_member", "read_where"]

TEXT_MAX: Final = 4096
DEPTH_MAX: Final = 50

Where = Callable[[Mapping[str, Any]], bool]
"""Returns whether a decoded event matches."""

_Value = Callable[[Mapping[str, Any]], Any]
"""Returns a value of the event, or UNSET for a missing member or an unknown result."""

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w$]))
    | (?P<name>[^\W\d][\w$-]*|\$[\w$-]*)
    | (?P<sign>==|!=|<=|>=|[<>~()\[\],.])
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
_LITERALS: Final[Mapping[str, Any]] = {"true": True, "false": False, "null": None}
_KEYWORDS: Final = frozenset({"and", "or", "not", "in", "contains", "exists", *_LITERALS})


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def read_where(text: str, flag: str = "--where") -> Where:
    """Read an expression, the value of `flag`. Raises StartError with one sentence that shows the place of a mistake."""
    value = _Parser(text, flag).whole()
    return lambda event: bool(_truth(value(event)))


def read_member(text: str, flag: str) -> Callable[[Mapping[str, Any]], Any]:
    """Read the path of a member, which is a part of the value of `flag`. Raises StartError.

    Returns a function from a decoded event to the value, UNSET if the event has none.
    """
    return _Parser(text, flag).whole_path()


class _Parser:
    """Parses an expression by recursive descent, one method for each level of precedence."""

    def __init__(self, text: str, flag: str) -> None:
        if len(text) > TEXT_MAX:
            raise StartError(f"{flag} has {len(text)} characters; it can have {TEXT_MAX}")
        self._text = text
        self._flag = flag
        self._tokens = self._split()
        self._next = next(self._tokens)
        self._depth = 0

    def whole(self) -> _Value:
        """Parse the whole text."""
        value = self._any_of()
        if self._next.kind != "end":
            self._fail("and, or, or the end")
        return value

    def whole_path(self) -> _Value:
        """Parse the whole text as the path of a member."""
        value = self._path(self._take_root())
        if self._next.kind != "end":
            self._fail("a dot, [ or the end")
        return value

    def _split(self) -> Iterator[_Token]:
        at = 0
        while True:
            found = _TOKEN.match(self._text, at)
            if found is None or found.lastgroup is None:
                rest = self._text[at:].lstrip()
                place = len(self._text) - len(rest)
                remedy = "; write ==" if rest.startswith("=") else ""
                raise StartError(
                    f"{self._flag}: {rest[:20]!r} at character {place + 1} is not part of an expression{remedy}"
                )
            at = found.end()
            yield _Token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup))

    def _take(self) -> _Token:
        token = self._next
        if token.kind != "end":
            self._next = next(self._tokens)
        return token

    def _takes(self, *texts: str) -> str:
        """Take the next token if it is one of `texts`, and return it, else ""."""
        return self._take().text if self._next.kind in {"name", "sign"} and self._next.text in texts else ""

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            self._fail(text)

    def _fail(self, expected: str) -> NoReturn:
        found = f"{self._next.text[:20]!r}" if self._next.kind != "end" else "the end"
        raise StartError(f"{self._flag}: {expected} is expected at character {self._next.at + 1}, and {found} is there")

    def _any_of(self) -> _Value:
        parts = [self._all_of()]
        while self._takes("or"):
            parts.append(self._all_of())
        return parts[0] if len(parts) == 1 else lambda event: _joined(parts, event, decisive=True)

    def _all_of(self) -> _Value:
        parts = [self._negated()]
        while self._takes("and"):
            parts.append(self._negated())
        return parts[0] if len(parts) == 1 else lambda event: _joined(parts, event, decisive=False)

    def _negated(self) -> _Value:
        is_negated = False
        is_used = False
        while self._takes("not"):
            is_negated, is_used = not is_negated, True
        value = self._compared()
        return (lambda event: _negation(value(event), is_negated=is_negated)) if is_used else value

    def _compared(self) -> _Value:
        if self._takes("exists"):
            path = self._path(self._take_root())
            return lambda event: path(event) is not UNSET
        left = self._operand()
        sign = self._takes(*COMPARISONS, "not")
        is_negated = sign == "not"
        if is_negated:
            self._expect("in")
            sign = "in"
        if not sign:
            return left
        right = self._operand()
        compare = COMPARISONS[sign]

        def compared(event: Mapping[str, Any]) -> Any:
            values = left(event), right(event)
            return UNSET if any(one is UNSET for one in values) else compare(*values) is not is_negated

        return compared

    def _operand(self) -> _Value:
        token = self._next
        if self._takes("("):
            value = self._nested(self._any_of)
            self._expect(")")
            return value
        if self._takes("["):
            return self._nested(self._list)
        if token.kind == "string":
            return _constant(_unquoted(self._take().text))
        if token.kind == "number":
            return _constant(_number(self._take().text))
        if token.kind == "name" and token.text in _LITERALS:
            return _constant(_LITERALS[self._take().text])
        return self._path(self._take_root())

    def _nested(self, parse: Callable[[], _Value]) -> _Value:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise StartError(f"{self._flag} has more than {DEPTH_MAX} parentheses inside each other")
        value = parse()
        self._depth -= 1
        return value

    def _list(self) -> _Value:
        values: list[_Value] = []
        while not self._takes("]"):
            if values:
                self._expect(",")
            values.append(self._operand())

        def made(event: Mapping[str, Any]) -> Any:
            found = [value(event) for value in values]
            return [one for one in found if one is not UNSET]

        return made

    def _take_root(self) -> str:
        token = self._next
        if token.kind != "name" or token.text in _KEYWORDS:
            self._fail("a member or a value")
        if token.text not in EVENT_MEMBERS:
            raise StartError(
                f"{self._flag}: an event has no member {token.text[:40]!r}; it has {', '.join(EVENT_MEMBERS)},"
                f" and text must be in quotes"
            )
        return self._take().text

    def _path(self, root: str) -> _Value:
        steps: list[str | int] = [root]
        while sign := self._takes(".", "["):
            steps.append(self._step(in_brackets=sign == "["))
        return lambda event: member_of(event, steps)

    def _step(self, *, in_brackets: bool) -> str | int:
        token = self._next
        step: str | int
        if token.kind == "string":
            step = _unquoted(self._take().text)
        elif in_brackets and token.kind == "number" and token.text.removeprefix("-").isdecimal():
            step = int(self._take().text)
        elif not in_brackets and token.kind == "name":
            step = self._take().text
        else:
            self._fail("an index or a name in quotes" if in_brackets else "the name of a member")
        if in_brackets:
            self._expect("]")
        return step


def _constant(value: Any) -> _Value:
    return lambda _: value


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1], flags=re.DOTALL)


def _number(text: str) -> int | float:
    return int(text) if text.removeprefix("-").isdecimal() else float(text)


def _truth(value: Any) -> Any:
    return UNSET if value is UNSET else bool(value)


def _negation(value: Any, *, is_negated: bool) -> Any:
    return UNSET if value is UNSET else bool(value) is not is_negated


def _joined(parts: list[_Value], event: Mapping[str, Any], *, decisive: bool) -> Any:
    """Return `decisive` if a part has this result, else unknown if a part is unknown."""
    result: Any = not decisive
    for part in parts:
        truth = _truth(part(event))
        if truth is decisive:
            return decisive
        if truth is UNSET:
            result = UNSET
    return result
