"""Open the blocking client's spool and handshakes.

Their modules import anyio and crc32c, which take longer than all others, so they are loaded only for a client with a spool.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from tweetwire.client.blocking.link import BlockingLink

if TYPE_CHECKING:
    from tweetwire.client.blocking.handshakes import SyncOncePublishing
    from tweetwire.client.exactly_once import Spool

__all__ = ["once_publishing", "open_spool"]


def open_spool(folder: Path, name: str) -> "Spool":
    """Open the file of a client's handshakes. Raises SpoolTaken, SpoolUnusable."""
    from tweetwire.client.exactly_once import Spool  # noqa: PLC0415

    return Spool(folder, name)


def once_publishing(link: BlockingLink, spool: "Spool") -> "SyncOncePublishing":
    """Return the publishing half of the handshakes."""
    from tweetwire.client.blocking.handshakes import BlockingHandshakes, SyncOncePublishing  # noqa: PLC0415

    return SyncOncePublishing(BlockingHandshakes(link, spool))
