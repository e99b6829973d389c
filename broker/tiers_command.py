"""The command ``tiers``: list, check or tidy the object store of a broker. It needs no running broker."""

import sys
import time
from typing import Annotated, cast

from tweetwire.cli.connection import JsonSwitch
from tweetwire.cli.display import print_json, table, terminal
from tweetwire.cli.flags import Command, Flag
from tweetwire.cli.kinds import NAME, SWITCH, URL, choice
from tweetwire.protocol.errors import StartError
from tweetwire.protocol.units import format_bytes
from tweetwire.runtime.extras import needs_extra

with needs_extra("tweetwire tiers", "tiers"):
    from broker.tiers.chain import find_chain, read_newest
    from broker.tiers.contents import Format, check_objects, find_orphans, paths_of
    from broker.tiers.errors import TierError
    from broker.tiers.location import open_store
    from broker.tiers.manifest import Manifest
    from broker.tiers.store import Store

__all__ = ["Tiers"]


class Tiers(Command, kw_only=True):
    """List, check or tidy the object store that a broker's --tier names. Without a further flag, list its topics.

    Exit status: 0 if all is well, 1 if --check finds a damaged or missing object, 2 if the store cannot be read.
    """

    examples = (
        "tweetwire tiers --tier s3://bucket/prefix --list orders --format duckdb",
        "tweetwire tiers --tier s3://bucket/prefix --collect",
    )

    tier: Annotated[str, Flag(URL, "URL of the store, as in the broker's --tier")]
    chain: Annotated[
        str | None, Flag(NAME, "which broker's data, if several brokers have uploaded to the same URL")
    ] = None
    list_: Annotated[str | None, Flag(NAME, "topic whose paths are printed, in the order of its events")] = None
    format: Annotated[
        str, Flag(choice("spark", "duckdb"), "how --list prints them: a path in each line, or a list for SQL")
    ] = "spark"
    check: Annotated[bool, Flag(SWITCH, "read every object that the newest manifest names, and compare it")] = False
    collect: Annotated[
        bool, Flag(SWITCH, "delete objects that are older than a day and that no manifest names any more")
    ] = False
    is_json: JsonSwitch = False

    def run_command(self) -> int:
        """Carry out the command. Returns the exit status. Raises StartError."""
        store = open_store(self.tier)
        try:
            chain = self.chain or find_chain(store)
            manifest = read_newest(store, chain)
            if manifest is None:
                raise StartError(f"there is no manifest of {chain} at {store.shown}")
            if self.list_ is not None:
                self._list(store, chain, manifest, self.list_)
                return 0
            if self.check:
                return self._check(store, chain, manifest)
            if self.collect:
                self._collect(store, chain, manifest)
                return 0
        except TierError as error:
            raise StartError(f"--tier: {error}") from error
        self._show(chain, manifest)
        return 0

    def _list(self, store: Store, chain: str, manifest: Manifest, topic: str) -> None:
        if topic not in manifest.topics:
            raise StartError(f"there is no topic {topic} at {store.shown}; it has {', '.join(sorted(manifest.topics))}")
        paths = paths_of(store, chain, manifest, topic, cast(Format, self.format))
        if self.is_json:
            print_json(paths)
        elif self.format == "duckdb":
            print("[" + ", ".join("'" + path.replace("'", "''") + "'" for path in paths) + "]")
        else:
            sys.stdout.writelines(f"{path}\n" for path in paths)

    def _check(self, store: Store, chain: str, manifest: Manifest) -> int:
        found = list(check_objects(store, chain, manifest))
        wrong = [one for one in found if one.fault]
        if self.is_json:
            print_json([one._asdict() for one in found])
        else:
            console = terminal()
            if wrong:
                columns = ("object", "holds", "size", "fault")
                rows = [(one.name, one.holds, format_bytes(one.bytes), one.fault) for one in wrong]
                console.print(table("", columns, rows))
            size = format_bytes(sum(one.bytes for one in found))
            events = sum(one.events for one in found)
            console.print(f"{len(wrong)} of {len(found)} objects have faults; they hold {events:,} events ({size})")
        return int(bool(wrong))

    def _collect(self, store: Store, chain: str, manifest: Manifest) -> None:
        orphans = list(find_orphans(store, chain, manifest, time.time_ns() // 1_000_000))
        store.delete([one.name for one in orphans])
        size = format_bytes(sum(one.size for one in orphans))
        print(f"deleted {len(orphans):,} objects that no manifest names ({size})", file=sys.stderr, flush=True)

    def _show(self, chain: str, manifest: Manifest) -> None:
        rows = [
            (
                name,
                topic.segments[0].first if topic.segments else topic.next,
                topic.next,
                sum(one.bytes for one in topic.segments),
                sum(one.stored + one.index_bytes for one in topic.segments),
                len(topic.segments),
            )
            for name, topic in sorted(manifest.topics.items())
        ]
        columns = ("topic", "earliest", "next", "bytes", "stored", "segments")
        if self.is_json:
            print_json([dict(zip(columns, row, strict=True)) for row in rows])
            return
        shown = [(*row[:3], format_bytes(row[3]), format_bytes(row[4]), row[5]) for row in rows]
        console = terminal()
        console.print(table("", columns, shown))
        console.print(f"chain {chain}, manifest {manifest.number}", soft_wrap=True)
