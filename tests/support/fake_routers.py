"""Several fake routers (mongos) of one sharded cluster: each knows only the cursors that it opened.

A real router needs config servers and shards, which a test machine seldom has. The fakes speak MongoDB's wire protocol and
answer the commands of a change stream; everything else of a cluster is left out.
"""

import itertools
import socketserver
import struct
import threading
from typing import Any

import bson
from bson import Timestamp

__all__ = ["FakeRouters"]

OP_MSG = 2013
CURSOR_NOT_FOUND = 43


class FakeRouters:
    """`count` routers, as a context manager. Each `getMore` returns one change, until `changes` have come."""

    def __init__(self, count: int, changes: int) -> None:
        self.changes = changes
        self.broken = 0
        self.served: set[int] = set()
        self._cursors: dict[int, tuple[int, int]] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._servers = [_Router(self, number) for number in range(count)]

    def __enter__(self) -> "FakeRouters":
        for server in self._servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    @property
    def url(self) -> str:
        """The address of all routers."""
        return f"mongodb://{','.join(f'127.0.0.1:{server.server_address[1]}' for server in self._servers)}/"

    def answer(self, router: int, command: dict[str, Any]) -> dict[str, Any]:
        """Return the reply of a router to a command."""
        with self._lock:
            match next(iter(command)):
                case "aggregate":
                    return self._open(router, command)
                case "getMore":
                    return self._more(router, command["getMore"])
                case _:
                    return {"ok": 1, "msg": "isdbgrid", "maxWireVersion": 21, "minWireVersion": 0, **_LIMITS}

    def _open(self, router: int, command: dict[str, Any]) -> dict[str, Any]:
        start = command["pipeline"][0]["$changeStream"].get("startAfter", _token(0))["_data"]
        number = next(self._numbers)
        self._cursors[number] = (router, int(start[10:18], 16))
        self.served.add(router)
        cursor = {"id": bson.Int64(number), "ns": "db.tweets", "firstBatch": []}
        return {"ok": 1, "cursor": {**cursor, "postBatchResumeToken": {"_data": start}}}

    def _more(self, router: int, number: int) -> dict[str, Any]:
        owner, at = self._cursors.get(number, (None, 0))
        if owner != router:
            self.broken += 1
            return {"ok": 0, "code": CURSOR_NOT_FOUND, "codeName": "CursorNotFound", "errmsg": "cursor id not found"}
        batch = []
        if at < self.changes:
            at += 1
            batch = [{"_id": _token(at), "documentKey": {"_id": at}}]
        self._cursors[number] = (router, at)
        cursor = {"id": bson.Int64(number), "ns": "db.tweets", "nextBatch": batch}
        return {"ok": 1, "cursor": {**cursor, "postBatchResumeToken": _token(at)}}


_LIMITS = {"maxBsonObjectSize": 1 << 24, "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000}
_LIMITS |= {"logicalSessionTimeoutMinutes": 30}


def _token(number: int) -> dict[str, str]:
    return {"_data": f"82{Timestamp(1000, number).time:08X}{number:08X}"}


class _Router(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

    def __init__(self, routers: FakeRouters, number: int) -> None:
        self.routers = routers
        self.number = number
        super().__init__(("127.0.0.1", 0), _Connection)


class _Connection(socketserver.StreamRequestHandler):
    server: _Router

    def handle(self) -> None:
        """Answer commands until the client leaves."""
        while len(head := self.rfile.read(16)) == 16:
            size, request, _, kind = struct.unpack("<iiii", head)
            body = self.rfile.read(size - 16)
            command = bson.decode(body[5:] if kind == OP_MSG else body[body.index(b"\0", 4) + 9 :])
            reply = bson.encode(self.server.routers.answer(self.server.number, command))
            # A client's first hello may still be an OP_QUERY, whose answer is an OP_REPLY.
            data, answer = (
                (b"\0\0\0\0\0" + reply, OP_MSG) if kind == OP_MSG else (struct.pack("<iqii", 8, 0, 0, 1) + reply, 1)
            )
            self.wfile.write(struct.pack("<iiii", len(data) + 16, 0, request, answer) + data)
