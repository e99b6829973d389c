"""A reader that is stopped and started continues after its last accepted event, also if the queue was full."""

from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest

from sse_ingest.account import SourceAccount
from sse_ingest.handover import RawEvent
from sse_ingest.inbox import Inbox
from sse_ingest.reader import SourceReader
from sse_ingest.sources import Arrival, Source, SourceState

pytestmark = pytest.mark.anyio
LAST = 20


class Numbers:
    """The feed of a source whose events are numbers. Each number is also the event's id."""

    def __init__(self, state: SourceState, last_id: str) -> None:
        self._first = int(last_id or 0) + 1
        self._is_closed = False

    def __iter__(self) -> Iterator[Arrival]:
        for number in range(self._first, LAST + 1):
            if self._is_closed:
                return
            yield Arrival(RawEvent(str(number).encode()), str(number))

    def close(self) -> None:
        self._is_closed = True


async def test_a_restart_during_a_stop_misses_nothing_and_the_position_moves_on() -> None:
    account, inbox = SourceAccount(), Inbox(1)
    reader = SourceReader(Source("numbers", "twitter", "", Numbers), inbox, account)
    taken: list[int] = []
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            reader.start()
            while account.read < 2:
                await anyio.sleep(0.001)  # until the reader waits for room with an event that it has read
            before = reader._thread
            assert before is not None
            tasks.start_soon(reader.stop)
            await anyio.lowlevel.checkpoint()
            reader.start()
            while before.is_alive():
                await anyio.sleep(0.001)
            while not (reader.done.is_set() and len(inbox) == 0):
                for event in await inbox.take_events(1):
                    taken.append(int(event.data))
                    account.progress.expect(event.number, 0)
    assert sorted(set(taken)) == list(range(1, LAST + 1))
    assert account.read == len(taken)
    assert account.progress.position == str(LAST)
    assert not account.progress._order
