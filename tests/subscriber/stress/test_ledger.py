"""The ledger of a subscription finds the lost and the doubled events, and no others."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from subscriber.stress.ledger import Balance, Ledger, Verdict

NOTHING = Balance(next=0, unsettled=0)


def ledger(received: Iterable[int] = (), settled: Iterable[int] = ()) -> Ledger:
    account = Ledger("t", "s")
    account.receive(list(received))
    account.ack(list(settled))
    account.settle(list(settled))
    return account


def test_if_every_event_was_received_and_settled_none_is_lost() -> None:
    assert ledger(range(10), range(10)).judge(NOTHING, Balance(next=10, unsettled=0)) == Verdict(0, 0, 0, 0, [])


def test_an_event_that_arrives_again_before_its_ack_is_a_redelivery() -> None:
    account = ledger(range(3))
    account.receive([1])
    assert (account.redelivered, account.doubled) == (1, 0)


def test_an_event_that_arrives_again_after_its_ack_is_doubled() -> None:
    account = ledger(range(3), range(3))
    account.receive([1])
    account.receive([2])
    assert (account.redelivered, account.doubled) == (0, 2)


def test_a_gap_that_the_broker_regards_as_done_is_lost_and_named() -> None:
    account = ledger([0, 1, 2, 5, 6, 9], [0, 1, 2, 5, 6, 9])
    assert account.judge(NOTHING, Balance(next=10, unsettled=0)) == Verdict(4, 0, 0, 0, [(3, 4), (7, 8)])


def test_the_last_events_are_missed_too() -> None:
    assert ledger([0, 1], [0, 1]).judge(NOTHING, Balance(next=4, unsettled=0)) == Verdict(2, 0, 0, 0, [(2, 3)])


def test_a_pending_event_is_not_lost() -> None:
    high_priority_first = ledger([8, 9], [8, 9])
    assert high_priority_first.judge(NOTHING, Balance(next=10, unsettled=8)) == Verdict(0, 8, 0, 0, [])


def test_an_event_received_and_not_acked_is_neither_lost_nor_pending() -> None:
    assert ledger(range(10), range(4)).judge(NOTHING, Balance(next=10, unsettled=6)) == Verdict(0, 0, 0, 0, [])


def test_an_event_settled_before_the_run_is_not_owed() -> None:
    account = ledger([3, 7, *range(10, 20)], [3, 7, *range(10, 20)])
    opening = Balance(next=10, unsettled=2)
    assert account.judge(opening, Balance(next=20, unsettled=0)) == Verdict(0, 0, 0, 0, [])


def test_an_event_settled_by_an_earlier_run_is_a_surplus_when_it_arrives_again() -> None:
    account = ledger([3, *range(10, 20)], [3, *range(10, 20)])
    opening = Balance(next=10, unsettled=0)
    assert account.judge(opening, Balance(next=20, unsettled=0)) == Verdict(0, 0, 0, 1, [])


def test_an_event_that_the_broker_gave_up_on_is_dead_and_not_lost() -> None:
    never_here = ledger(range(8), range(8))
    assert never_here.judge(NOTHING, Balance(next=10, unsettled=0, dead=2)) == Verdict(0, 0, 2, 0, [])
    never_acked = ledger(range(10), range(8))
    assert never_acked.judge(NOTHING, Balance(next=10, unsettled=0, dead=2)) == Verdict(0, 0, 2, 0, [])


def test_an_ack_without_confirmation_is_never_a_fault() -> None:
    account = ledger(range(10), range(8))
    account.ack([8, 9])
    for unsettled in (0, 1, 2):
        verdict = account.judge(NOTHING, Balance(next=10, unsettled=unsettled))
        assert (verdict.lost, verdict.surplus) == (0, 0)


@given(
    published=st.integers(min_value=0, max_value=60),
    earlier=st.sets(st.integers(min_value=0, max_value=59)),
    lost=st.sets(st.integers(min_value=0, max_value=59)),
    received=st.sets(st.integers(min_value=0, max_value=59)),
    acked=st.sets(st.integers(min_value=0, max_value=59)),
)
def test_the_balance_finds_exactly_what_was_lost(
    published: int, earlier: set[int], lost: set[int], received: set[int], acked: set[int]
) -> None:
    """Some offsets were settled before the run, some arrived, and some are lost: settled although they never arrived."""
    begun = published // 2
    earlier = {offset for offset in earlier if offset < begun}
    lost = {offset for offset in lost if offset < published} - earlier
    received = {offset for offset in received if offset < published} - earlier - lost
    acked &= received
    opening = Balance(next=begun, unsettled=begun - len(earlier))
    closing = Balance(next=published, unsettled=published - len(earlier) - len(lost) - len(acked))
    verdict = ledger(received, acked).judge(opening, closing)
    assert (verdict.lost, verdict.surplus) == (len(lost), 0)
    assert verdict.pending == published - len(earlier) - len(lost) - len(received)
