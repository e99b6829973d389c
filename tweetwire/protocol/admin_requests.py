"""The lines that administer topics and subscriptions, made from arguments. The invariant is that of `requests`."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from tweetwire.protocol.request_words import REFS_PER_LINE, Start, number, start_word, word
from tweetwire.protocol.words import ref_of

__all__ = [
    "create_line",
    "discard_lines",
    "drop_line",
    "end_line",
    "pause_line",
    "purge_line",
    "resume_line",
    "seek_line",
]

_RETENTION: Final = ("age", "bytes", "settled", "at_most")


def create_line(topic: str, retention: dict[str, str]) -> bytes:
    """Return the line that makes a topic. `retention` has the options of ``retain``."""
    unknown = [name for name in retention if name not in _RETENTION]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not an option of a retention; the options are: {', '.join(_RETENTION)}")
    options = (f" {name}={word(name, value)}" for name, value in retention.items())
    return f"create {word('topic', topic)}{''.join(options)}\n".encode()


def drop_line(topic: str, *, if_empty: bool) -> bytes:
    """Return the line that deletes a topic."""
    return f"drop {word('topic', topic)}{' if_empty' if if_empty else ''}\n".encode()


def purge_line(topic: str, before: Start | None) -> bytes:
    """Return the line that deletes the events of a topic, all of them if `before` is None."""
    option = "" if before is None else f" before={start_word(before, 'before')}"
    return f"purge {word('topic', topic)}{option}\n".encode()


def seek_line(topic: str, name: str, to: Start) -> bytes:
    """Return the line that continues a subscription at another place."""
    return f"seek {_subscription(topic, name)} to={start_word(to, 'to')}\n".encode()


def pause_line(topic: str, name: str) -> bytes:
    """Return the line that pauses a subscription."""
    return f"pause {_subscription(topic, name)}\n".encode()


def resume_line(topic: str, name: str) -> bytes:
    """Return the line that ends the pause of a subscription."""
    return f"resume {_subscription(topic, name)}\n".encode()


def end_line(topic: str, name: str) -> bytes:
    """Return the line that ends a subscription for all its clients."""
    return f"unsub {_subscription(topic, name)} end\n".encode()


def discard_lines(topic: str, name: str, refs: Sequence[int | str] | Literal["all"]) -> list[bytes]:
    """Return the lines that settle dead events, each of up to 512 refs: offsets as integers, ids as text."""
    head = f"discard {_subscription(topic, name)}"
    if isinstance(refs, str):
        if refs != "all":
            raise ValueError(f"refs {refs!r:.80} is neither a list nor 'all'")
        return [f"{head} all\n".encode()]
    words = list(_refs(refs))
    parts = (words[at : at + REFS_PER_LINE] for at in range(0, len(words), REFS_PER_LINE))
    return [f"{head} {' '.join(part)}\n".encode() for part in parts]


def _refs(refs: Iterable[int | str]) -> Iterable[str]:
    for ref in refs:
        if isinstance(ref, int):
            yield f"@{number('offset', ref)}"
        elif word("id", ref) == "all" or isinstance(ref_of(ref), int):
            # The broker would take the id "all" for every dead event, and an id such as "@7" for an offset.
            raise ValueError(f"the id {ref!r:.80} cannot be named in a line; name the event by its offset")
        else:
            yield ref


def _subscription(topic: str, name: str) -> str:
    return f"{word('topic', topic)} as={word('name', name)}"
