"""A service reads its files again on SIGHUP."""

import pytest
import structlog

from tweetwire.protocol.errors import StartError
from tweetwire.runtime import signals


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (StartError("no"), "cannot reload, the files read before stay in use"),
        (KeyError("bug"), "a bug stopped a reload, files not yet reloaded stay in use"),
    ],
)
def test_a_reload_that_fails_is_logged_and_the_service_continues(error: Exception, event: str) -> None:
    def fail() -> None:
        raise error

    with structlog.testing.capture_logs() as logged, signals.reloading(fail):
        signals._reload()
    assert [line["event"] for line in logged] == [event]
    assert logged[0].get("exc_info", False) is isinstance(error, KeyError)
