"""The lines of marks, made from arguments. The invariant is that of `requests`."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from tweetwire.protocol.confirmation import NO_MARK
from tweetwire.protocol.request_words import REFS_PER_LINE, duration, encoded, number, word
from tweetwire.protocol.verbs.marking import CHECKPOINT_BYTES_MAX

__all__ = ["After", "confirm_line", "confirmation_options", "mark_lines", "marks_line", "unmark_line"]


After: TypeAlias = str | Sequence[str]
"""The names of marks, or one name. No names mean no mark."""


def confirmation_options(after: After | None, within_s: float | None, qos: int = 1) -> str:
    """Return the options that say which marks a confirmation waits for, with a space at the end, or "" for none.

    Raises ValueError with `qos` 2, since the steps of a handshake have no options.
    """
    if qos == 2 and not (after is None and within_s is None):
        raise ValueError("after and within_s need qos=1; with qos=2, the topic says what its confirmations wait for")
    options = ""
    if after is not None:
        names = [after] if isinstance(after, str) else list(after)
        if any("," in word("after", name) for name in names):
            raise ValueError(f"after {after!r:.80} has a comma in a name; pass several names as a list")
        options = f"after={','.join(names) or NO_MARK} "
    return options if within_s is None else f"{options}within={duration('within_s', within_s)} "


def confirm_line(topic: str, after: After | None, within_s: float | None) -> bytes:
    """Return the line that sets which marks the confirmations of a topic wait for, or asks for the setting."""
    return f"confirm {word('topic', topic)} {confirmation_options(after, within_s)}\n".encode()


def mark_lines(
    topic: str,
    name: str,
    offset: int,
    excepted: Iterable[int] = (),
    checkpoint: str | None = None,
    *,
    log: str | None = None,
) -> list[bytes]:
    """Return the lines that move a mark to `offset`, unless the topic's log has another id than `log`.

    Usually this is one line. With more than `REFS_PER_LINE` exceptions, the earlier lines move the mark over a part of them.
    """
    head = f"mark {word('topic', topic)} as={word('name', name)}"
    if log is not None:
        head += f" log={word('log', log)}"
    offsets = sorted(set(_checked(offset, excepted)))
    parts = [offsets[at : at + REFS_PER_LINE] for at in range(0, len(offsets), REFS_PER_LINE)] or [[]]
    # The checkpoint belongs to the last offset.
    lines = [_line(head, part[-1] + 1, part) for part in parts[:-1]]
    kept = "" if checkpoint is None else f" checkpoint={_checkpoint(checkpoint)}"
    return [*lines, _line(f"{head}{kept}", offset, parts[-1])]


def unmark_line(topic: str, name: str) -> bytes:
    """Return the line that forgets a mark."""
    return f"unmark {word('topic', topic)} as={word('name', name)}\n".encode()


def marks_line(topic: str) -> bytes:
    """Return the line that asks for the marks of a topic."""
    return f"marks {word('topic', topic)}\n".encode()


def _line(head: str, offset: int, excepted: Iterable[int]) -> bytes:
    refs = "".join(f" @{one}" for one in excepted)
    return encoded(f"{head} @{number('offset', offset)}{' except' if refs else ''}{refs}\n")


def _checked(offset: int, excepted: Iterable[int]) -> Iterable[int]:
    for one in excepted:
        if int(number("excepted", one)) >= offset:
            raise ValueError(f"the exception {one} is not below the mark's offset {offset}")
        yield one


def _checkpoint(text: str) -> str:
    if len(word("checkpoint", text).encode()) > CHECKPOINT_BYTES_MAX:
        raise ValueError(f"checkpoint {text[:40]!r}… has more than {CHECKPOINT_BYTES_MAX} bytes")
    return text
