"""Make a backup of a running broker through its protocol.

The copy is consistent, because of the order of its steps:

1. The broker copies its state, all of one moment.
2. The ends of all topics are noted. They include everything that the state knows, such as dead letters, and every event that a
   consumer published before an ack of the state.
3. The events before these ends are copied, while others are published.

A crash at the moment of step 1 could have left the same state. So no event is lost, and events that were acked later are
delivered again.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from tweetwire.cli.backup_form import (
    FORMAT,
    STATE_FILE,
    CopiedTopic,
    Manifest,
    topic_file,
    write_manifest,
    writing_lines,
)
from tweetwire.cli.log_pages import line_offset, log_pages
from tweetwire.cli.report import answer
from tweetwire.files import make_folder, sync_directory
from tweetwire.protocol.errors import Refusal
from tweetwire.version import VERSION

if TYPE_CHECKING:
    from tweetwire.client.blocking import SyncClient
    from tweetwire.protocol.replies import TopicInfo

__all__ = ["BrokerCopy"]

Advance = Callable[[int], None]
"""Called with the number of events of each page that was copied."""

_STATE_WORDS: Final = 2
_GONE: Final = -1
_DROPPED: Final = frozenset({"unknown_topic", "busy"})
"""The refusals of a read of a topic that was dropped, or is being dropped."""


class BrokerCopy:
    """A backup in progress. The constructor copies the state and notes the ends of the topics.

    The constructor and `finish` raise OSError and BrokerError; the backup is then incomplete.
    """

    def __init__(self, client: "SyncClient", folder: Path) -> None:
        self._client = client
        self._folder = folder
        self._began_ms = time.time_ns() // 1_000_000
        self._left_out: set[str] = set()
        # Make this folder first: its name shows that the folder is an incomplete backup.
        make_folder(folder / "topics")
        self._records = self._copy_state()
        self._ends = [topic for topic in client.topics() if topic.topic not in self._left_out]
        # These checksums show later whether a topic was dropped and made again.
        self._lasts = {end.topic: self._last(end) for end in self._ends}

    @property
    def total(self) -> int:
        """The number of events to copy, including damaged ones."""
        return sum(topic.next - topic.earliest for topic in self._ends)

    def finish(self, advance: Advance) -> Manifest:
        """Copy the events, and complete the backup."""
        topics: list[CopiedTopic] = []
        dropped: list[str] = []
        for end in self._ends:
            try:
                topics.append(self._copy_topic(end, advance))
            except Refusal as refusal:
                topic_file(self._folder, end.topic).unlink(missing_ok=True)
                if refusal.code in _DROPPED:
                    dropped.append(end.topic)
                elif refusal.code == "forbidden":
                    self._left_out.add(end.topic)
                else:
                    raise
        sync_directory(self._folder / "topics")
        manifest = Manifest(FORMAT, VERSION, self._began_ms, self._records, topics, sorted(self._left_out), dropped)
        write_manifest(self._folder, manifest)
        return manifest

    def _copy_state(self) -> int:
        """Copy the state in parts, and return the number of its records. Memory holds one part and its incomplete last line."""
        records = 0
        rest = ""
        start: int | None = 0
        with writing_lines(self._folder / STATE_FILE) as write:
            while start is not None:
                part = answer(self._client.command(f"state from={start}"), _STATE_WORDS)
                *lines, rest = (rest + part["records"]).split("\n")
                for line in lines:
                    write(line.encode())
                records += len(lines)
                self._left_out.update(part["left_out"])
                start = part["next"]
        return records

    def _copy_topic(self, end: "TopicInfo", advance: Advance) -> CopiedTopic:
        size = events = 0
        with writing_lines(topic_file(self._folder, end.topic)) as write:
            for lines in log_pages(self._client, end.topic, end.earliest, end.next):
                size += sum(map(write, lines))
                events += len(lines)
                advance(len(lines))
        noted, now = self._lasts[end.topic], self._last(end)
        if _GONE in {noted, now} or (None not in {noted, now} and noted != now):
            raise Refusal("unknown_topic", f"{end.topic} was dropped and made again while it was copied")
        return CopiedTopic(end.topic, end.next, events, size, end.next - end.earliest - events)

    def _last(self, end: "TopicInfo") -> int | None:
        """Return the checksum of the last event before the end, None if there is none, or `_GONE` if the log is shorter."""
        if end.next == 0:
            return None
        try:
            lines, after = self._client.read_lines(end.topic, end.next - 1, limit=1)
        except Refusal as refusal:
            if refusal.code in _DROPPED | {"forbidden"}:
                return None
            raise
        if after < end.next:
            return _GONE
        return crc32c(lines[0]) if lines and line_offset(lines[0]) == end.next - 1 else None
