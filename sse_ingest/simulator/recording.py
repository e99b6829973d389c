"""Recorded tweets for the simulator, instead of invented ones."""

from pathlib import Path

import msgspec

from tweetwire.protocol.errors import StartError

__all__ = ["Recording"]

_Line = dict[str, msgspec.Raw]
_decode = msgspec.json.Decoder(_Line).decode


class Recording:
    """The tweets of a file of JSON Lines, bare or in the server's envelope, as unchanged bytes."""

    def __init__(self, path: Path) -> None:
        try:
            lines = [line.strip() for line in path.read_bytes().splitlines() if line.strip()]
        except OSError as error:
            raise StartError(f"cannot replay {path}: {error.strerror}") from error
        if not lines:
            raise StartError(f"cannot replay {path}: it is empty")
        self._tweets = [_bare(line) for line in lines]

    def __len__(self) -> int:
        return len(self._tweets)

    def tweet(self, number: int) -> bytes:
        """Return tweet `number`; after the last tweet, the first one follows."""
        return self._tweets[number % len(self._tweets)]


def _bare(line: bytes) -> bytes:
    try:
        return bytes(_decode(_decode(line)["message"])["tweet"])
    except (msgspec.DecodeError, KeyError):
        return line
