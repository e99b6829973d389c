"""Every code of the protocol has an HTTP status."""

from typing import get_args

import pytest

from broker.gateways.http.answers import STATUSES, error_of
from tweetwire.protocol.errors import RETRYABLE, Code, Refusal


def test_the_table_has_every_code_and_no_other() -> None:
    assert set(STATUSES) == set(get_args(Code))


@pytest.mark.parametrize("code", sorted(RETRYABLE))
def test_a_refusal_that_may_pass_says_when_to_try_again(code: str) -> None:
    assert ("retry-after", "1") in error_of(Refusal(code, "text")).headers
