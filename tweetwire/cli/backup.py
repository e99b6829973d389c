"""``backup``: a consistent copy of a running broker, made through its protocol."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tweetwire.cli.connection import CommandConnection
from tweetwire.cli.flags import argument
from tweetwire.cli.kinds import FOLDER
from tweetwire.cli.progress import Progress
from tweetwire.files import make_folder, why
from tweetwire.protocol.errors import BrokerError, StartError

if TYPE_CHECKING:
    from tweetwire.cli.backup_form import Manifest

__all__ = ["Backup"]


class Backup(CommandConnection, kw_only=True):
    """Copy a running broker to a new folder: its events, subscriptions, producers, documents and retention.

    Exit status: 0 if all was copied, 1 if topics were left out because the user may not read them, 2 if there is no backup.
    """

    examples = (
        "tweetwire backup backups/2026-11-28",
        "tweetwire backup /mnt/backup/today --broker mq.example:8000 --name admin",
    )

    folder: Annotated[
        Path, argument(FOLDER, "folder for the backup, which is made; tweetwire restore reads it", name="dir")
    ]

    def run_command(self) -> int:
        """Make the backup. Returns the exit status. Raises BrokerError, StartError."""
        # imported here, because --help does not need the checksums that it imports
        from tweetwire.cli.backup_copy import BrokerCopy  # noqa: PLC0415

        with self.connect() as client:
            try:
                make_folder(self.folder)
                if any(self.folder.iterdir()):
                    raise StartError(f"{self.folder} is not empty; choose a new folder")
                copy = BrokerCopy(client, self.folder)
                with Progress("copying", "copied", "events", total=copy.total) as progress:
                    manifest = copy.finish(progress.advance)
                    progress.note = f"of {len(manifest.topics):,} topics to {self.folder}"
            except OSError as error:
                raise StartError(f"cannot write {self.folder}: {why(error)}; {self._remedy}") from error
            except BrokerError:
                print(f"tweetwire backup: {self._remedy}", file=sys.stderr, flush=True)
                raise
            except (KeyboardInterrupt, SystemExit):
                # SIGTERM usually ends a command with status 0, but a script must not believe that there is a backup.
                raise StartError(f"interrupted; {self._remedy}") from None
        return _report(manifest)

    @property
    def _remedy(self) -> str:
        return f"the backup in {self.folder} is incomplete, remove it"


def _report(manifest: "Manifest") -> int:
    """Print the topics and events that are not in the backup. Returns the exit status."""
    for topic in manifest.topics:
        if topic.missing:
            print(
                f"{topic.topic}: {topic.missing:,} events are damaged or were removed during the backup",
                file=sys.stderr,
                flush=True,
            )
    if manifest.dropped:
        print(f"dropped during the backup: {', '.join(manifest.dropped)}", file=sys.stderr, flush=True)
    if manifest.left_out:
        print(
            f"left out, since this user may not read them: {', '.join(manifest.left_out)}", file=sys.stderr, flush=True
        )
    return int(bool(manifest.left_out))
