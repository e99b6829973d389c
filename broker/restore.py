"""The command ``restore``: write a data directory from a backup, or from the object store of ``--tier``."""

import sys
from pathlib import Path
from typing import Annotated

from broker.restore_backup import restore_backup
from tweetwire.cli.backup_form import read_manifest
from tweetwire.cli.flags import Command, Flag, argument
from tweetwire.cli.kinds import FOLDER, NAME, SOURCE
from tweetwire.cli.progress import Progress
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.extras import needs_extra

__all__ = ["Restore"]


class Restore(Command, kw_only=True):
    """Write a broker's data directory from a backup, or from its tier. A broker that starts on it continues there.

    From a tier, the broker that has uploaded to it can upload no more, and refuses publishes once it notices.

    Exit status: 0 if all was restored, 1 if damaged parts were left out, 2 if nothing was written.
    """

    examples = (
        "tweetwire restore backups/2026-11-28",
        "tweetwire restore s3://bucket/prefix /var/lib/tweetwire",
    )

    source: Annotated[
        str, argument(SOURCE, "folder that tweetwire backup has made, or the URL that --tier of the broker had")
    ]
    target: Annotated[Path | None, argument(FOLDER, "data directory to write, instead of --data-dir", name="dir")] = (
        None
    )
    data_dir: Annotated[Path, Flag(FOLDER, "data directory to write, which must be new or empty")] = Path("data/broker")
    chain: Annotated[
        str | None, Flag(NAME, "which broker's data, if several brokers have uploaded to the same URL", is_rare=True)
    ] = None

    def run_command(self) -> int:
        """Restore the data. Returns the exit status. Raises StartError."""
        directory = self.target or self.data_dir
        damage = self._from_tier(directory) if "://" in self.source else self._from_backup(directory)
        for sentence in damage:
            print(f"tweetwire restore: {sentence}", file=sys.stderr, flush=True)
        return int(bool(damage))

    def _from_backup(self, directory: Path) -> list[str]:
        if self.chain is not None:
            raise StartError("--chain is for a URL; a backup holds one broker")
        folder = Path(self.source)
        manifest = read_manifest(folder)
        with Progress("restoring", "restored", "events", total=manifest.events) as progress:
            done = restore_backup(folder, manifest, directory, progress.advance)
            progress.note = _note(done.topics, done.subscriptions, directory)
        return done.damage

    def _from_tier(self, directory: Path) -> list[str]:
        with needs_extra("a tier", "tiers"):
            # The packages of an extra, which a backup does not need
            from broker.tiers.location import open_store  # noqa: PLC0415
            from broker.tiers.restoring import restore_tier  # noqa: PLC0415
        store = open_store(self.source)
        with Progress("restoring", "restored", "events") as progress:
            done = restore_tier(store, self.chain, directory, progress.advance)
            progress.note = _note(done.topics, done.subscriptions, directory)
        return done.damage


def _note(topics: int, subscriptions: int, directory: Path) -> str:
    return f"of {_counted(topics, 'topic')} and {_counted(subscriptions, 'subscription')} to {directory}"


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
