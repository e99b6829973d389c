"""The claims of a restored folder: their epochs continue far above those that the lost broker may have given.

The broker that was lost may have given epochs after the copy was made. If the restored one gave the same epoch to another
client, both could publish as one producer. So after a restore, each client has to claim again.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from broker.journal.records import ClaimedRecord, Record

__all__ = ["EPOCHS_SKIPPED", "skip_epochs"]

EPOCHS_SKIPPED: Final = 1_000_000
"""More claims of one producer than a broker can have lost."""


def skip_epochs(records: Iterable[Record]) -> list[Record]:
    """Return the records of a state, with the epochs of all claims raised by `EPOCHS_SKIPPED`."""
    return [
        msgspec.structs.replace(one, epoch=one.epoch + EPOCHS_SKIPPED) if isinstance(one, ClaimedRecord) else one
        for one in records
    ]
