"""The order in which logins are checked: a burst of wrong logins does not delay other clients for long."""

from broker.login_queue import (
    ADDRESS_DELAY_MAX_S,
    GROUP_MAX,
    NAME_DELAY_MAX_S,
    NAME_FREE_FAILURES,
    QUEUE_MAX,
    LoginGroup,
    LoginQueue,
)

HERE = "127.0.0.1"


def test_groups_take_turns_and_within_a_group_the_newest_goes_first() -> None:
    queue: LoginQueue[str] = LoginQueue()
    for login in ("wrong 1", "wrong 2", "wrong 3"):
        queue.add(LoginGroup(HERE, None), login)
    queue.add(LoginGroup(HERE, "boss"), "boss")
    queue.add(LoginGroup("10.0.0.1", None), "elsewhere")
    assert [queue.take(0.0) for _ in range(6)] == ["wrong 3", "boss", "elsewhere", "wrong 2", "wrong 1", None]
    assert queue.pause_s(0.0) is None


def test_a_full_group_and_a_full_queue_give_up_the_oldest_of_the_longest_group() -> None:
    queue: LoginQueue[str] = LoginQueue()
    group = LoginGroup(HERE, "boss")
    assert [queue.add(group, str(number)) for number in range(GROUP_MAX + 2)] == [None] * GROUP_MAX + ["0", "1"]
    for number in range(QUEUE_MAX - GROUP_MAX):
        assert queue.add(LoginGroup(f"10.0.{number // 256}.{number % 256}", None), "other") is None
    assert queue.add(LoginGroup("10.9.9.9", None), "one more") == "2"
    assert len(queue) == QUEUE_MAX


def test_a_login_that_no_longer_waits_is_not_checked() -> None:
    queue: LoginQueue[str] = LoginQueue()
    group = LoginGroup(HERE, "boss")
    queue.add(group, "gone")
    assert queue.discard(group, "gone")
    assert not queue.discard(group, "gone")
    assert queue.take(0.0) is None


def test_after_a_few_failures_the_next_check_for_a_name_waits_for_a_growing_delay() -> None:
    queue: LoginQueue[str] = LoginQueue()
    group = LoginGroup(HERE, "boss")
    delays: list[float] = []
    for _ in range(NAME_FREE_FAILURES + 7):
        queue.note_failure(group, 100.0)
        queue.add(group, "login")
        pause_s = queue.pause_s(100.0)
        assert pause_s is not None
        delays.append(pause_s)
        assert queue.take(100.0 + pause_s) == "login"
    assert delays[:NAME_FREE_FAILURES] == [0.0] * NAME_FREE_FAILURES
    growing = delays[NAME_FREE_FAILURES:]
    assert growing == sorted(growing)
    assert 0.0 < growing[0] < growing[1] < growing[-1]
    assert abs(delays[-1] - NAME_DELAY_MAX_S) < 1e-9


def test_the_delay_for_a_name_holds_up_no_other_name_and_ends_with_a_right_login() -> None:
    queue: LoginQueue[str] = LoginQueue()
    boss, reader = LoginGroup(HERE, "boss"), LoginGroup(HERE, "reader")
    for _ in range(50):
        queue.note_failure(boss, 100.0)
    queue.add(boss, "boss")
    queue.add(reader, "reader")
    assert queue.take(100.0) == "reader"
    assert queue.take(100.0) is None
    queue.note_success(boss)
    assert queue.take(100.0) == "boss"


def test_a_remote_address_that_fails_often_waits_longer_whatever_names_it_sends() -> None:
    queue: LoginQueue[str] = LoginQueue()
    for number in range(50):
        queue.note_failure(LoginGroup("10.0.0.1", f"user {number}"), 100.0)
        queue.note_failure(LoginGroup(HERE, f"other {number}"), 100.0)
    queue.add(LoginGroup("10.0.0.1", "reader"), "far")
    assert queue.take(100.0) is None
    assert abs((queue.pause_s(100.0) or 0.0) - ADDRESS_DELAY_MAX_S) < 1e-9
    queue.add(LoginGroup("10.0.0.2", "reader"), "another machine")
    queue.add(LoginGroup(HERE, "reader"), "this machine")
    assert [queue.take(100.0) for _ in range(2)] == ["another machine", "this machine"]


def test_old_failures_and_those_of_too_many_names_are_forgotten() -> None:
    queue: LoginQueue[str] = LoginQueue()
    boss = LoginGroup(HERE, "boss")
    for _ in range(50):
        queue.note_failure(boss, 100.0)
    queue.note_failure(boss, 300.0)
    queue.add(boss, "boss")
    assert queue.take(300.0) == "boss"
    for _ in range(50):
        queue.note_failure(boss, 300.0)
    for number in range(10_000):
        queue.note_failure(LoginGroup(HERE, str(number)), 300.0)
    queue.add(boss, "boss")
    assert queue.take(300.0) == "boss"
