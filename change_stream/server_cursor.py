"""A cursor of MongoDB that gives whole batches as BSON and stays on the server that opened it.

pymongo sends each `getMore` to the server that has the cursor. That matters with several routers (mongos), each of which knows
only its own cursors, and with a read preference. But pymongo's cursor gives one document for each await, which would halve the
rate of one core. So this module, and no other one, uses private members of that cursor.
"""

from collections.abc import Mapping
from typing import Any

from bson.raw_bson import RawBSONDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.command_cursor import AsyncCommandCursor
from pymongo.asynchronous.database import AsyncDatabase

from change_stream.extended_json import RAW_CODEC

__all__ = ["ServerCursor"]


class ServerCursor:
    """The cursor of one command, in one session."""

    def __init__(self, cursor: AsyncCommandCursor[RawBSONDocument]) -> None:
        self._cursor = cursor

    @classmethod
    async def open(
        cls,
        database: AsyncDatabase[dict[str, Any]],
        command: dict[str, Any],
        session: AsyncClientSession,
        *,
        await_ms: int | None = None,
    ) -> "ServerCursor":
        """Send a command whose reply has a cursor, to a server that the database's read preference allows.

        Args:
            database: the database.
            command: the command.
            session: the session of the cursor. The caller ends it after `close`.
            await_ms: how long MongoDB waits for the first document of a later batch, in milliseconds.

        Raises PyMongoError.
        """
        # The cursor takes the codec of its later batches from the database.
        raw = database.with_options(codec_options=RAW_CODEC)
        return cls(
            await raw.cursor_command(
                command,
                read_preference=database.read_preference,
                codec_options=RAW_CODEC,
                session=session,
                max_await_time_ms=await_ms,
            )
        )

    @property
    def cursor_id(self) -> int:
        """The server's number of this cursor, 0 after its last batch."""
        return self._cursor.cursor_id or 0

    @property
    def is_open(self) -> bool:
        """Whether the server has further batches."""
        return self.cursor_id != 0

    @property
    def resume_token(self) -> Mapping[str, Any] | None:
        """The position after the last batch of a change stream."""
        return self._cursor._postbatchresumetoken

    async def next_batch(self, batch_size: int) -> list[RawBSONDocument]:
        """Return the documents of the first reply if it had some, else those of the next reply. Raises PyMongoError."""
        # The public method makes 2 of 1, for servers that treat 1 in a special way.
        self._cursor._batch_size = batch_size
        documents: list[RawBSONDocument] = []
        await self._cursor._next_batch(documents)
        return documents

    async def close(self) -> None:
        """Close the cursor on its server. Raises PyMongoError."""
        await self._cursor.close()
