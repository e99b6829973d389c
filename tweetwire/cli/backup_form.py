"""The files of a backup: their names and their form.

::

    <folder>/
      topics/<topic>.lines    the stored events of a topic, in order
      state.lines             the records of the broker's state
      BACKUP                  the manifest: what the other files must hold

Every file consists of lines with a checksum, see `tweetwire.checked_lines`. The manifest is written last, once the other files
are on the disk. So a folder without it is an incomplete backup.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from tweetwire.checked_lines import checked_line, line_body
from tweetwire.files import FILE_MODE, read_file, replace_file, sync_data, why
from tweetwire.protocol.errors import StartError

__all__ = [
    "FORMAT",
    "STATE_FILE",
    "CopiedTopic",
    "Manifest",
    "lines_of",
    "read_manifest",
    "topic_file",
    "write_manifest",
    "writing_lines",
]

FORMAT: Final = 1
MANIFEST_FILE: Final = "BACKUP"
STATE_FILE: Final = "state.lines"
TOPICS_FOLDER: Final = "topics"
_BUFFER_BYTES: Final = 1 << 20


class CopiedTopic(Struct, frozen=True):
    """A topic in a backup.

    Attributes:
        topic: Its name.
        next: The offset that its next event gets.
        events: The number of events in its file.
        bytes: The size of that file.
        missing: The number of events that could not be copied, because they are damaged or were removed during the copy.
    """

    topic: str
    next: int
    events: int
    bytes: int
    missing: int = 0


class Manifest(Struct, frozen=True):
    """The contents of a backup.

    Attributes:
        format: The version of the form of the files.
        release: The release that wrote the backup.
        began_ms: When the state was copied, in milliseconds since 1970 UTC, by the clock of the machine that wrote it.
        records: The number of records of the state.
        topics: The topics whose events were copied.
        left_out: The topics that the user may not read. The backup has neither their events nor their state.
        dropped: The topics that were dropped during the backup.
    """

    format: int
    release: str
    began_ms: int
    records: int
    topics: list[CopiedTopic]
    left_out: list[str] = []
    dropped: list[str] = []

    @property
    def events(self) -> int:
        """The number of events of all topics."""
        return sum(topic.events for topic in self.topics)


class _Form(Struct):
    format: int


def topic_file(folder: Path, topic: str) -> Path:
    """Return the path of a topic's events."""
    return folder / TOPICS_FOLDER / f"{topic}.lines"


@contextmanager
def writing_lines(path: Path) -> Iterator[Callable[[bytes], int]]:
    """Make a file. Yields a function that writes a line and returns its size. At the end, the file is on the disk.

    Raises OSError.
    """
    with open(path, "xb", _BUFFER_BYTES, opener=_for_its_owner) as file:
        yield lambda body: file.write(checked_line(body))
        file.flush()
        sync_data(file.fileno())


def lines_of(path: Path) -> Iterator[bytes | None]:
    """Yield the bodies of a file's lines, None for a damaged line. Raises OSError."""
    with open(path, "rb", _BUFFER_BYTES) as file:
        for line in file:
            yield line_body(line[:-1]) if line.endswith(b"\n") else None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, which completes the backup. Raises OSError."""
    replace_file(folder / MANIFEST_FILE, checked_line(msgspec.json.encode(manifest)), mode=FILE_MODE)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a complete backup. Raises StartError."""
    try:
        data = read_file(folder / MANIFEST_FILE)
    except FileNotFoundError:
        if (folder / TOPICS_FOLDER).is_dir():
            raise StartError(
                f"the backup {folder} is incomplete: it was interrupted before it had written {MANIFEST_FILE}; make a new one"
            ) from None
        raise StartError(f"{folder} is not a backup: it has no file {MANIFEST_FILE}") from None
    except OSError as error:
        raise StartError(f"cannot read the backup {folder}: {why(error)}") from error
    body = line_body(data.removesuffix(b"\n"))
    if body is None:
        raise StartError(f"{folder / MANIFEST_FILE} is damaged, so the backup cannot be checked; use another one")
    form = msgspec.json.decode(body, type=_Form).format
    if form != FORMAT:
        raise StartError(f"the backup {folder} has format {form}, and this release reads {FORMAT}; use a newer release")
    return msgspec.json.decode(body, type=Manifest)


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, FILE_MODE)
