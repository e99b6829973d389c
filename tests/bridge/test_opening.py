"""Each row of the opening table, and what the note of a mark adds to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.central import Found
from bridge.opening import Local, MarkNote, Plan, Policy, Refused, decide

NAME = "orders -> redis://host/orders"
BROKER = "A" * 22


def note(position: int | None, through: int | None = None, *, centre: str = "c1", begin: int = 0) -> MarkNote:
    through = through if through is not None else begin - 1 if position is None else position
    return MarkNote(BROKER, BROKER, centre, position, begin, through)


def decided(
    position: int | None,
    mark: int,
    earliest: int,
    end: int,
    policy: Policy | None = None,
    *,
    noted: MarkNote | None = None,
    centre: str = "c1",
    is_replaced: bool = False,
) -> Plan | Refused:
    local = Local(BROKER, mark, noted, earliest, end)
    return decide(Found(position, centre, is_replaced), local, policy or Policy(), NAME)


def refusal(found: Plan | Refused) -> str:
    assert isinstance(found, Refused)
    return found.why


@pytest.mark.parametrize(
    ("policy", "start"),
    [
        (Policy(), 10),
        (Policy(begin="latest"), 50),
        (Policy(begin=20), 20),
        (Policy(begin=3), 10),
        (Policy(begin=50), 50),
    ],
)
def test_a_new_route_begins_where_the_user_says(policy: Policy, start: int) -> None:
    assert decided(None, 0, 10, 50, policy) == Plan(start, start, is_new=True)


def test_a_begin_after_the_end_of_the_topic_is_refused() -> None:
    assert "begin=51 is after the end of the topic, which is 50" in refusal(decided(None, 0, 10, 50, Policy(begin=51)))


def test_a_route_that_sent_nothing_before_a_crash_keeps_its_beginning() -> None:
    noted = note(None, begin=30)
    assert decided(None, 30, 0, 50, Policy(begin="latest"), noted=noted) == Plan(30, 30, is_new=True)


def test_a_route_that_has_left_everything_out_continues_after_it() -> None:
    assert decided(None, 40, 0, 50, noted=note(None, 39)) == Plan(40, 0, is_new=True)


def test_a_stream_that_has_removed_all_our_messages_by_its_limits_has_lost_nothing() -> None:
    local = Local(BROKER, 30, note(29), 0, 50)
    assert decide(Found(None, "c1", has_expired=True), local, Policy(), NAME) == Plan(30, 0, is_new=True)
    other = decide(Found(None, "c2", has_expired=True), local, Policy(), NAME)
    assert "although the events before 30 were in it" in refusal(other)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_deleted_stream_ends_the_route_unless_the_user_chooses(is_replaced: bool) -> None:
    position = 29 if is_replaced else None
    found = decided(position, 30, 5, 50, noted=note(29), centre="c2", is_replaced=is_replaced)
    text = refusal(found)
    assert "although the events before 30 were in it" in text
    assert "on_lost=resend" in text
    assert "on_lost=skip" in text


def test_a_deleted_stream_gets_all_events_again_with_resend() -> None:
    found = decided(None, 30, 5, 50, Policy(on_lost="resend"), noted=note(29), centre="c2")
    assert found == Plan(5, 0, resent=(5, 29), forgets=True, lost="the stream no longer has our position")


def test_a_deleted_stream_gets_only_the_later_events_with_skip() -> None:
    found = decided(29, 30, 5, 50, Policy(on_lost="skip"), noted=note(29), centre="c2", is_replaced=True)
    assert found == Plan(30, 30, forgets=True, lost="the stream was deleted or made again")


def test_a_position_in_another_stream_than_before_is_a_loss() -> None:
    assert "another one than before" in refusal(decided(29, 30, 0, 50, noted=note(29), centre="c2"))


@pytest.mark.parametrize("position", [50, 51, 10_000])
def test_a_position_that_the_topic_never_had_is_refused(position: int) -> None:
    text = refusal(decided(position, 30, 0, 50, noted=note(29)))
    assert f"the engine has our event {position}, and the topic ends before 50" in text
    assert "--new-identity" in text


def test_a_mark_of_another_broker_is_refused() -> None:
    other = MarkNote("B" * 22, "B" * 22, "c1", 29, 0, 29)
    assert "the mark was set for the broker BBBB" in refusal(decided(29, 30, 0, 50, noted=other))


def test_a_message_suggests_a_new_identity_only_if_the_position_is_not_ours() -> None:
    policy = Policy(takes_new_identity=True)
    found = decided(50, 30, 0, 50, policy, noted=note(29))
    assert isinstance(found, Refused)
    assert found.needs_identity
    assert decided(29, 30, 0, 50, policy, noted=note(29)) == Plan(30, 0)


def test_events_that_retention_removed_before_they_were_sent_are_a_gap() -> None:
    assert decided(19, 20, 25, 50, noted=note(19)) == Plan(25, 0, gap=(20, 24))


def test_a_gap_ends_the_route_if_the_user_wants() -> None:
    text = refusal(decided(19, 20, 25, 50, Policy(on_gap="fail"), noted=note(19)))
    assert "retention removed the events 20 to 24 before they were sent" in text


def test_events_that_the_engine_has_lost_are_sent_again() -> None:
    assert decided(9, 30, 0, 50, noted=note(29)) == Plan(10, 0, resent=(10, 29))


def test_lost_events_that_retention_has_removed_since_are_a_gap_too() -> None:
    assert decided(9, 30, 15, 50, noted=note(29)) == Plan(15, 0, gap=(10, 14), resent=(15, 29))


@pytest.mark.parametrize(("position", "mark"), [(29, 30), (35, 30), (49, 30), (49, 50)])
def test_a_normal_opening_continues_after_the_position(position: int, mark: int) -> None:
    assert decided(position, mark, 0, 50, noted=note(mark - 1)) == Plan(position + 1, 0)


def test_events_that_were_left_out_are_not_taken_for_lost_ones() -> None:
    assert decided(9, 30, 0, 50, noted=note(9, 29)) == Plan(30, 0)


def test_a_newer_position_makes_the_note_void() -> None:
    assert decided(35, 30, 0, 50, noted=note(9, 29)) == Plan(36, 0)


def test_an_older_position_makes_the_note_void_too() -> None:
    assert decided(5, 30, 0, 50, noted=note(9, 29)) == Plan(6, 0, resent=(6, 29))


@pytest.mark.parametrize("policy", [Policy(), Policy(on_lost="resend"), Policy(on_lost="skip")])
@pytest.mark.parametrize(("position", "end"), [(9, 50), (60, 50)])
def test_a_topic_that_was_made_again_is_refused_even_if_it_is_longer(policy: Policy, position: int, end: int) -> None:
    found = Found(position, "c1", log="old")
    local = Local(BROKER, 0, None, 0, end, "new")
    assert "was dropped and made again" in refusal(decide(found, local, policy, NAME))
    again = decide(found, local, Policy(takes_new_identity=True), NAME)
    assert isinstance(again, Refused)
    assert again.needs_identity


def test_a_note_of_another_log_is_refused_although_nothing_was_sent() -> None:
    noted = MarkNote(BROKER, BROKER, "c1", None, 0, -1, "old")
    assert "made again" in refusal(decide(Found(None, "c1"), Local(BROKER, 0, noted, 0, 5, "new"), Policy(), NAME))


@pytest.mark.parametrize(("known", "shown"), [("", "new"), ("old", ""), ("same", "same")])
def test_a_position_of_an_earlier_release_and_an_older_broker_are_accepted(known: str, shown: str) -> None:
    noted = MarkNote(BROKER, BROKER, "c1", 9, 0, 9, known)
    found = decide(Found(9, "c1", log=known), Local(BROKER, 10, noted, 0, 50, shown), Policy(), NAME)
    assert found == Plan(10, 0)


def test_a_note_of_an_earlier_release_is_read() -> None:
    text = note(9, 29).text().replace(',"log":""', "")
    assert "log" not in text
    assert MarkNote.parse(text) == note(9, 29)


def test_a_note_survives_its_way_through_the_broker() -> None:
    noted = note(9, 29)
    assert MarkNote.parse(noted.text()) == noted
    assert " " not in noted.text()
    for text in (None, "", "x", "[]", '{"broker":1}'):
        assert MarkNote.parse(text) is None


@given(
    position=st.none() | st.integers(0, 60),
    mark=st.integers(0, 50),
    earliest=st.integers(0, 50),
    on_lost=st.sampled_from(["resend", "skip"]),
    noted=st.none() | st.builds(note, st.none() | st.integers(0, 49), st.integers(0, 49)),
    is_replaced=st.booleans(),
)
def test_no_event_after_the_position_is_passed_over_without_a_word(
    position: int | None, mark: int, earliest: int, on_lost: str, noted: MarkNote | None, is_replaced: bool
) -> None:
    """Every event of the log after the position is sent, unless the mark says that it is done."""
    policy = Policy(on_lost=on_lost)  # type: ignore[arg-type]
    plan = decided(position, mark, earliest, 50, policy, noted=noted, is_replaced=is_replaced)
    if isinstance(plan, Refused):
        assert position is not None
        assert position >= 50
        return
    assert earliest <= plan.start <= 50
    has_position = position is not None and not is_replaced
    if plan.start > earliest and not plan.lost:
        passed = position if position is not None and has_position else -1
        through = -1 if noted is None else max(noted.through, noted.begin - 1)
        assert plan.start - 1 <= max(passed, through)
    if plan.gap is not None:
        assert plan.gap[1] == earliest - 1 == plan.start - 1
