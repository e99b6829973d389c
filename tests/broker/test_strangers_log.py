"""A client without a login can cause only a limited number of log lines."""

import pytest
from structlog.testing import capture_logs

from broker import strangers_log
from broker.strangers_log import LINES_MAX, WINDOW_S, StrangersLog


def test_each_kind_of_event_is_logged_a_few_times_and_then_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(strangers_log, "monotonic", lambda: now_s)
    log = StrangersLog()
    with capture_logs() as logs:
        for number in range(LINES_MAX + 5):
            log.warning("refused a hello", failed=number)
        log.warning("TLS handshake failed")
        now_s += WINDOW_S
        log.warning("refused a hello", failed=1000)
    assert [one["failed"] for one in logs if "failed" in one] == [*range(LINES_MAX), 1000]
    assert logs[-1]["left_out_before"] == 5
    assert len(logs) == LINES_MAX + 2
