"""A disk that a test can make full, for a server in this process."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from errno import ENOSPC
from pathlib import Path
from typing import Any

import msgspec

from broker.connection import Limits
from broker.server import Server
from tests.faults.shim import WRITING, Call, Shim

__all__ = ["FillingDisk", "serving", "stored_messages"]


class FillingDisk:
    """While `is_full`, refuses writes to paths that contain `where`; `refused` counts these writes."""

    def __init__(self, where: str = "") -> None:
        self.is_full = False
        self.refused = 0
        self._where = where

    def __call__(self, call: Call) -> None:
        if self.is_full and call.kind in {*WRITING, "mkdir"} and self._where in str(call.path):
            self.refused += 1
            raise OSError(ENOSPC, os.strerror(ENOSPC))


@asynccontextmanager
async def serving(folder: Path, disk: FillingDisk, *topics: str) -> AsyncIterator[Server]:
    """Serve a folder on a `FillingDisk`."""
    with Shim(folder, disk):
        server = Server(folder, "synced", limits=Limits(1 << 20, 4 << 20, 60.0))
        async with server.open(["dead_letters", *topics]):
            yield server


def stored_messages(server: Server, topic: str) -> list[Any]:
    """Return the messages of a topic that the disk has."""
    log = server.broker.topics[topic].log
    lines, _, _ = log.read(log.earliest, log.next, 1 << 30)
    return [msgspec.json.decode(line)["msg"] for line in lines]
