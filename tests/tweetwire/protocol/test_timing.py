"""The due time and the expiry of events: options, members, their limits, and how stored lines are read."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweetwire.protocol import parse_lines
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.timing import AHEAD_MAX_MS, TimedEvent, fix_times, times_of
from tweetwire.protocol.verbs.publishing import Publish

NOW = 1_795_818_162_340
DAY = 86_400_000


def read(line: str) -> TimedEvent | Refusal:
    """Parse a ``pub`` line, and fix the times of its event as if it arrived now."""
    (command,) = parse_lines([line.encode()], 1 << 20)
    if isinstance(command, Refusal):
        return command
    assert isinstance(command, Publish)
    assert command.is_timed
    (event,) = command.events
    assert isinstance(event, TimedEvent)
    fix_times(event, NOW)
    return event


@pytest.mark.parametrize(
    ("options", "members", "due", "expires"),
    [
        ("delay=5m", '"delay":"5m"', NOW + 300_000, None),
        ("expires=10m", '"expires":"10m"', None, NOW + 600_000),
        ("delay=1.5s expires=2s", '"delay":"1.5s","expires":"2s"', NOW + 1500, NOW + 2000),
        ("at=2026-11-28T12:00:00Z", '"due":"2026-11-28T12:00:00Z"', 1_795_867_200_000, None),
        ("at=2026-11-28T12:00:00+01:00", '"due":1795863600000', 1_795_863_600_000, None),
        ("expires=2026-11-28T12:00:00", '"expires":1795867200000', None, 1_795_867_200_000),
        ("delay=0s", '"delay":"0s"', NOW, None),
        ("DELAY=365d", '"delay":"365d"', NOW + 365 * DAY, None),
        ("at=1970-01-02", '"due":86400000', DAY, None),
    ],
)
def test_options_and_members_mean_the_same(options: str, members: str, due: int | None, expires: int | None) -> None:
    expected = tuple(msgspec.UNSET if one is None else one for one in (due, expires))
    for line in (f'pub t {options} {{"id":"1","msg":1}}', f'pub t {{"id":"1","msg":1,{members}}}'):
        event = read(line)
        assert isinstance(event, TimedEvent), event
        assert (event.due, event.expires, event.delay) == (*expected, msgspec.UNSET)
        # `place` fills in the first members; the times are the last ones of the line.
        assert times_of(msgspec.json.encode(event) + b"\n") == (due, expires)


@pytest.mark.parametrize(
    "options",
    [
        *(
            "delay=-1",
            "delay=-1s",
            "delay=5",
            "delay=1e99",
            "delay=366d",
            "delay=99999999999999999999d",
            "delay=",
            "delay",
        ),
        *("delay=nan", "delay=∞", "delay=5m delay=6m", "delay=5m at=2026-11-28", "delay=5mm", "delay=5m,6m"),
        *("at=garbage", "at=", "at=2026-13-01", "at=9999-12-31T23:59:59Z", "at=12345678901234567890", "at=0001-01-01"),
        *("expires=0", "expires=0s", "expires=-1s", "expires=366d", "expires=never", "expires=9m delay=9m"),
        *("expires=1m delay=5m", "at=2026-11-29 expires=2026-11-28", "expires=1969-01-01", "delays=5m", "x=1"),
    ],
)
def test_wrong_options_are_refused(options: str) -> None:
    try:
        refusal = read(f'pub t {options} {{"id":"1","msg":1}}')
    except Refusal as refused:
        refusal = refused
    assert isinstance(refusal, Refusal)
    assert refusal.code in {"bad_arguments", "bad_event", "bad_json"}
    assert "\n" not in refusal.text


@pytest.mark.parametrize(
    "members",
    [
        *('"due":-1', '"due":0', '"due":1e99', '"due":1e12', '"due":1.5', '"due":true', '"due":null', '"due":[]'),
        *('"due":99999999999999999999', '"due":"x"', '"due":"5m"', '"delay":5', '"delay":"-5m"', '"delay":null'),
        *('"delay":"5m","due":5', '"expires":0', '"expires":"0s"', '"expires":{}', '"expires":-5', '"due":5,"due":6'),
        *('"delay":"5m","expires":"5m"', '"delay":"5m","expires":5', '"due":"2027-12-01"', '"delayed":"5m"'),
    ],
)
def test_wrong_members_are_refused_as_bad_events(members: str) -> None:
    try:
        refusal = read(f'pub t {{"id":"1","msg":1,{members}}}')
    except Refusal as refused:
        refusal = refused
    assert isinstance(refusal, Refusal)
    assert refusal.code == "bad_event"


def test_options_and_members_together_are_refused() -> None:
    refusal = read('pub t delay=5m {"id":"1","msg":1,"expires":"10m"}')
    assert isinstance(refusal, Refusal)
    assert refusal.code == "bad_arguments"


def test_a_run_of_lines_may_mix_events_with_and_without_times() -> None:
    lines = [
        b'pub t {"id":"1","msg":1}',
        b'pub t delay=5m {"id":"2","msg":1}',
        b'pub t {"id":"3","msg":1,"expires":"5m"}',
        b'pub t delay=x {"id":"4","msg":1}',
        b'pub t {"id":"5","msg":1}',
    ]
    *found, last = parse_lines(lines, 1 << 20)
    refusal = found.pop()
    assert isinstance(refusal, Refusal)
    assert (refusal.topic, refusal.line) == ("t", b'{"id":"4","msg":1}')
    taken = [command for command in (*found, last) if isinstance(command, Publish)]
    assert [(event.id, command.is_timed) for command in taken for event in command.events] == [
        ("1", False),
        ("2", True),
        ("3", True),
        ("5", False),
    ]


def test_neighbours_without_and_with_times_are_one_command() -> None:
    lines = [b'pub t {"id":"1","msg":1}', b'pub t {"id":"2","msg":1,"delay":"5m"}', b'pub t {"id":"3","msg":1}']
    (command,) = parse_lines(lines, 1 << 20)
    assert isinstance(command, Publish)
    assert command.is_timed
    assert [event.id for event in command.events] == ["1", "2", "3"]


@given(
    msg=st.sampled_from(
        ['{"due":5}', '{"a":1,"expires":5}', '",\\"expires\\":5}"', "5", "[5]", '{"a":{"due":1,"expires":5}}', '"}"']
    ),
    due=st.none() | st.integers(1, NOW + AHEAD_MAX_MS),
    expires=st.none() | st.integers(1, NOW + AHEAD_MAX_MS),
)
def test_only_the_members_of_the_event_itself_are_its_times(msg: str, due: int | None, expires: int | None) -> None:
    times = {"due": due, "expires": expires}
    members = "".join(f',"{name}":{value}' for name, value in times.items() if value is not None)
    line = f'{{"topic":"t","offset":0,"timestamp":1,"id":"1","priority":0,"msg":{msg}{members}}}\n'
    assert times_of(line.encode()) == (due, expires)
