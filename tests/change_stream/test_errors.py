"""The meaning of each pymongo error for a change stream."""

from typing import Any

import pytest
from pymongo.errors import AutoReconnect, ConfigurationError, CursorNotFound, OperationFailure, PyMongoError

from change_stream.errors import HistoryLost, OversizeChange, RefusedForNow, WatchInterrupted, WatchRefused, translate


def failure(code: int, *labels: str, code_name: str = "") -> OperationFailure:
    details: dict[str, Any] = {"errmsg": "the reason", "errorLabels": list(labels), "codeName": code_name}
    return OperationFailure("the reason, full error: {…}", code, details)


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (AutoReconnect("connection closed"), WatchInterrupted),
        (CursorNotFound("gone", 43, {}), WatchInterrupted),
        (failure(18), RefusedForNow),
        (failure(13), RefusedForNow),
        (failure(11602, "ResumableChangeStreamError"), WatchInterrupted),
        (failure(2, "ResumableChangeStreamError"), WatchInterrupted),
        (failure(260), HistoryLost),
        (failure(280, "NonResumableChangeStreamError"), HistoryLost),
        (failure(286, "NonResumableChangeStreamError"), HistoryLost),
        (failure(999, "NonResumableChangeStreamError"), HistoryLost),
        (failure(10334, "NonResumableChangeStreamError"), OversizeChange),
        (failure(246), RefusedForNow),
        (failure(8000), RefusedForNow),
        (failure(51272, code_name="Location51272"), WatchRefused),
        (failure(51272, "ResumableChangeStreamError", code_name="Location51272"), WatchInterrupted),
        (failure(40573), WatchRefused),
        (failure(40324), WatchRefused),
        (failure(47, "NonResumableChangeStreamError"), WatchRefused),
        (ConfigurationError("no such option"), WatchRefused),
    ],
)
def test_an_error_has_one_meaning(error: PyMongoError, meaning: type[Exception]) -> None:
    assert type(translate(error)) is meaning


def test_a_person_reads_the_reason_and_not_the_drivers_state() -> None:
    refused = AutoReconnect("127.0.0.1:1: refused (configured timeouts: connectTimeoutMS: 20000.0ms), Timeout: 2.0s")
    assert str(translate(refused)) == "127.0.0.1:1: refused"
    assert str(translate(failure(18))) == "the reason"


def test_the_message_names_the_remedy() -> None:
    assert "--replSet" in str(translate(failure(40573)))
    assert "when_available" in str(translate(failure(47)))


def test_a_capped_collection_cannot_be_copied_however_long_one_waits() -> None:
    text = "Reading from capped collections with readConcern snapshot is not supported"
    assert type(translate(OperationFailure(text, 246, {"errmsg": text}))) is WatchRefused
