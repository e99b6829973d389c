"""``export``: the unsettled events of subscriptions as JSON, or the events of a topic as JSON lines, CSV or Parquet."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

from tweetwire.cli.connection import CommandConnection, SubscriptionFilter, TopicFlag
from tweetwire.cli.event_files import EventFormat, event_writer
from tweetwire.cli.flags import OUTPUT, Flag, argument
from tweetwire.cli.kinds import FILE, NAME, choice
from tweetwire.cli.log_pages import log_end, log_pages, offset_of
from tweetwire.cli.places import PLACE
from tweetwire.cli.progress import Progress
from tweetwire.cli.unsettled import chosen_subscriptions, write_unsettled
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.output import output_file

if TYPE_CHECKING:
    from tweetwire.client.blocking import SyncClient

__all__ = ["Export"]


class Export(CommandConnection, kw_only=True):
    """Write the events of a TOPIC to a file; without TOPIC, the unsettled events of each subscription.

    The unsettled events (waiting, delayed or in flight) are one JSON document: {subscription: {topic: [{timestamp, priority,
    msg, id}]}}, in order of offsets. The events of a TOPIC are lines of JSON, CSV, or Parquet, in order of offsets.
    """

    examples = (
        "tweetwire export orders --from yesterday --format parquet --out orders.parquet",
        "tweetwire export --as billing --out unsettled.json",
    )

    events_of: Annotated[
        str | None,
        argument(
            NAME._replace(completes="topic"), "write all events of this topic", name="topic", default="unsettled events"
        ),
    ] = None
    from_: Annotated[int | str | None, Flag(PLACE, "first event of TOPIC", name="from", default="earliest")] = None
    until: Annotated[int | str | None, Flag(PLACE, "end before this place of TOPIC", default="latest")] = None
    topic: TopicFlag = None
    as_: SubscriptionFilter = None
    format: Annotated[
        EventFormat | None,
        Flag(choice("json", "csv", "parquet"), "form of the events of TOPIC", group=OUTPUT, default="json"),
    ] = None
    out: Annotated[
        Path | None,
        Flag(FILE, "file to write; it is replaced once all is written", group=OUTPUT, default="stdout"),
    ] = None

    def run_command(self) -> None:
        """Export the events. Raises BrokerError, StartError."""
        if self.events_of is None:
            self._check_unused("needs a TOPIC before it", self.from_, self.until, self.format)
            with self.connect() as client:
                self._export_unsettled(client)
            return
        self._check_unused("is for unsettled events, without a TOPIC", None, None, None, self.topic, self.as_)
        if self.format == "parquet" and self.out is None:
            raise StartError("Parquet is not text; name a file with --out")
        with self.connect() as client:
            self._export_topic(client, self.events_of)

    def _check_unused(self, why: str, *values: object) -> None:
        flags = ("--from", "--until", "--format", "--topic", "--as")
        for flag, value in zip(flags, values, strict=False):
            if value is not None:
                raise StartError(f"{flag} {why}")

    def _export_unsettled(self, client: "SyncClient") -> None:
        chosen = chosen_subscriptions(client, self.topic, self.as_)
        with Progress("exporting", "exported", "unsettled events", has_bar=self._has_bar) as progress:
            with self._file() as file:
                write_unsettled(client, chosen, file, progress.advance)
            progress.note = self._place

    def _export_topic(self, client: "SyncClient", topic: str) -> None:
        end = log_end(client, topic)
        if self.until is not None:
            end = min(end, offset_of(client, topic, self.until))
        start = offset_of(client, topic, "earliest" if self.from_ is None else self.from_)
        with Progress("exporting", "exported", "events", total=max(0, end - start), has_bar=self._has_bar) as progress:
            with self._file() as file:
                writer = event_writer(self.format or "json", file)
                for lines in log_pages(client, topic, start, end):
                    writer.write(lines)
                    progress.advance(len(lines))
                writer.close()
            progress.note = f"of {topic} {self._place}"

    @property
    def _has_bar(self) -> bool:
        return self.out is not None or not sys.stdout.isatty()

    @property
    def _place(self) -> str:
        return "to stdout" if self.out is None else f"to {self.out}"

    @contextmanager
    def _file(self) -> "Iterator[IO[bytes]]":
        """Yield stdout, or a file that replaces `out` when the block ends without an error. Raises StartError."""
        if self.out is None:
            yield sys.stdout.buffer
            return
        with output_file(self.out, "--out") as new, open(new, "wb", closefd=False) as file:
            yield file
