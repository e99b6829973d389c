"""Silent connections do not prevent other connections."""

import pytest

from tweetwire.protocol.errors import Refusal
from tweetwire.runtime.admission import PER_ADDRESS, STRANGERS_MAX, Admission, AdmissionLimits, AdmissionPlace, Closing

HERE = "127.0.0.1"


class Arrivals:
    """Records arriving connections and the ones that were closed."""

    def __init__(self, connections: int, per_address: int | None = None) -> None:
        self.admission = Admission(AdmissionLimits(connections, 10.0, per_address))
        self.closed: list[tuple[int, Closing]] = []
        self.places: list[AdmissionPlace] = []

    def come(self, now_s: float = 0.0, host: str = HERE) -> int:
        number = len(self.places)
        self.places.append(self.admission.admit(host, now_s, lambda why: self.closed.append((number, why))))
        return number


def test_a_new_connection_takes_the_place_of_the_silent_one_that_came_first() -> None:
    arrivals = Arrivals(connections=10)
    for _ in range(8):
        arrivals.come()
    assert not arrivals.closed
    arrivals.come()
    assert arrivals.closed == [(0, Closing.CROWDED_OUT)]
    arrivals.places[1].keep()
    arrivals.come()
    arrivals.come()
    assert arrivals.closed[1:] == [(2, Closing.CROWDED_OUT)]


def test_ten_thousand_silent_connections_leave_room_for_one_that_logs_in() -> None:
    arrivals = Arrivals(connections=1000)
    for _ in range(10_000):
        arrivals.come()
    honest = arrivals.come()
    arrivals.places[honest].keep()
    for _ in range(10_000):
        arrivals.come()
    assert honest not in [number for number, _ in arrivals.closed]
    assert arrivals.admission.strangers == 800


def test_the_oldest_stranger_of_the_address_with_the_most_strangers_is_closed() -> None:
    arrivals = Arrivals(connections=10)
    first = arrivals.come(host="10.0.0.1")
    for _ in range(20):
        arrivals.come(host="10.0.0.2")
    assert [number for number, _ in arrivals.closed] == list(range(first + 1, first + 14))


def test_the_number_of_strangers_is_limited_however_many_connections_are_allowed() -> None:
    arrivals = Arrivals(connections=100_000)
    for _ in range(STRANGERS_MAX + 5):
        arrivals.come()
    assert arrivals.admission.strangers == STRANGERS_MAX
    assert [number for number, _ in arrivals.closed] == list(range(5))


def test_a_connection_is_refused_only_if_all_others_are_known() -> None:
    arrivals = Arrivals(connections=3)
    for _ in range(3):
        arrivals.places[arrivals.come()].keep()
    with pytest.raises(Refusal, match="too_many 3 connections are open"):
        arrivals.come()
    arrivals.places[0].leave()
    arrivals.come()
    assert not arrivals.closed


def test_a_silent_connection_is_closed_when_its_time_is_over() -> None:
    arrivals = Arrivals(connections=10)
    arrivals.come(now_s=0.0)
    known = arrivals.places[arrivals.come(now_s=1.0)]
    known.keep()
    arrivals.come(now_s=5.0)
    arrivals.admission.close_silent(9.9)
    assert not arrivals.closed
    arrivals.admission.close_silent(14.9)
    assert arrivals.closed == [(0, Closing.SILENT)]
    arrivals.admission.close_silent(15.0)
    assert arrivals.closed[1:] == [(2, Closing.SILENT)]


def test_a_login_that_is_being_checked_renews_the_time_but_not_forever() -> None:
    arrivals = Arrivals(connections=10)
    place = arrivals.places[arrivals.come(now_s=0.0)]
    for now_s in (8.0, 16.0, 24.0, 32.0):
        place.renew(now_s)
        arrivals.admission.close_silent(now_s)
    assert not arrivals.closed
    arrivals.admission.close_silent(34.0)
    assert arrivals.closed == [(0, Closing.SILENT)]


def test_one_address_beyond_this_machine_has_a_share_and_ipv6_counts_by_network() -> None:
    arrivals = Arrivals(connections=10_000)
    for _ in range(PER_ADDRESS):
        for host in ("10.0.0.1", HERE, "::1"):
            arrivals.places[arrivals.come(host=host)].keep()
    with pytest.raises(Refusal, match=r"too_many 1000 connections from 10\.0\.0\.1 are open"):
        arrivals.come(host="10.0.0.1")
    with pytest.raises(Refusal, match=r"too_many 1000 connections from 10\.0\.0\.1 are open"):
        arrivals.come(host="::ffff:10.0.0.1")
    arrivals.come(host=HERE)
    arrivals.come(host="::1")
    for number in range(PER_ADDRESS):
        arrivals.come(host=f"2001:db8::{number:x}")
    with pytest.raises(Refusal, match="too_many"):
        arrivals.come(host="2001:db8::ffff")
    arrivals.come(host="2001:db8:0:1::1")
    arrivals.places[0].leave()
    arrivals.come(host="10.0.0.1")


def test_a_limit_that_is_given_holds_for_this_machine_too() -> None:
    arrivals = Arrivals(connections=10, per_address=2)
    arrivals.come()
    arrivals.come()
    with pytest.raises(Refusal, match=r"too_many 2 connections from 127\.0\.0\.1 are open"):
        arrivals.come()
