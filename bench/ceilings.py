"""What the machine gives at the best: the ceilings that figures are compared with."""

import os
import tempfile
import time

__all__ = ["synced_bytes_per_second"]

_WRITE_BYTES = 1 << 20


def synced_bytes_per_second(total: int) -> float:
    """Bytes a second of plain 1 MiB writes, each followed by fdatasync, on the disk that the broker uses too."""
    block = os.urandom(_WRITE_BYTES)
    rounds = max(8, total // _WRITE_BYTES)
    with tempfile.TemporaryFile(prefix="tweetwire-bench-", dir=".") as file:
        began = time.perf_counter()
        for _ in range(rounds):
            os.write(file.fileno(), block)
            os.fdatasync(file.fileno())
        return rounds * _WRITE_BYTES / (time.perf_counter() - began)
