"""The command ``restore``: write a data directory from a backup."""

import sys
from pathlib import Path
from typing import Annotated

from broker.restore_backup import restore_backup
from tweetwire.cli.backup_form import read_manifest
from tweetwire.cli.flags import Command, Flag, argument
from tweetwire.cli.kinds import FOLDER
from tweetwire.cli.progress import Progress

__all__ = ["Restore"]


class Restore(Command, kw_only=True):
    """Write a broker's data directory from a backup. A broker that starts on it continues where the backup was made.

    Exit status: 0 if all was restored, 1 if damaged parts of the backup were left out, 2 if nothing was written.
    """

    examples = (
        "tweetwire restore backups/2026-11-28",
        "tweetwire restore /mnt/backup/today --data-dir /var/lib/tweetwire",
    )

    folder: Annotated[Path, argument(FOLDER, "folder that tweetwire backup has made", name="dir")]
    data_dir: Annotated[Path, Flag(FOLDER, "data directory to write, which must be new or empty")] = Path("data/broker")

    def run_command(self) -> int:
        """Restore the backup. Returns the exit status. Raises StartError."""
        manifest = read_manifest(self.folder)
        with Progress("restoring", "restored", "events", total=manifest.events) as progress:
            done = restore_backup(self.folder, manifest, self.data_dir, progress.advance)
            topics, subscriptions = _counted(done.topics, "topic"), _counted(done.subscriptions, "subscription")
            progress.note = f"of {topics} and {subscriptions} to {self.data_dir}"
        for sentence in done.damage:
            print(f"tweetwire restore: {sentence}", file=sys.stderr, flush=True)
        return int(bool(done.damage))


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
