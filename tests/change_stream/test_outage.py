"""The log of a change stream during an outage of MongoDB."""

import pytest
from structlog.testing import capture_logs

from change_stream.errors import RefusedForNow, WatchInterrupted
from change_stream.outage import Outage
from tweetwire.backoff import Backoff


@pytest.mark.anyio
async def test_a_mongodb_that_answers_and_refuses_is_not_said_to_be_away() -> None:
    outage = Outage("tweets", Backoff(first_s=0.001))
    with capture_logs() as logs:
        for reason in (WatchInterrupted("connection refused"), RefusedForNow("not authorized"), RefusedForNow("again")):
            await outage.pause(reason)
    assert [log["event"] for log in logs] == [
        "MongoDB unreachable, retrying",
        "MongoDB refused, retrying",
        "MongoDB refused, retrying",
    ]
