"""``mark``, ``unmark``, ``marks`` and ``confirm`` against a real broker."""

import pytest

from tests.support.commands import Cli
from tests.support.processes import BrokerProcess
from tweetwire import Event, SyncClient


@pytest.fixture
def cli(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(broker, capsys)


def test_marks_are_moved_listed_and_forgotten(broker: BrokerProcess, cli: Cli) -> None:
    with SyncClient(broker.address) as client:
        client.publish_many("marked", [Event(id=str(n), msg=n) for n in range(10)])
    assert cli("marks", "marked") == "marked has no marks\n"
    assert cli("mark", "marked", "@8", "--as", "central", "--except", "@2,5", "--checkpoint", "7/1") == (
        "central of marked is at @8\n"
    )
    assert cli("mark", "marked", "3", "--as", "central") == "central of marked is at @8\n"
    (mark,) = cli.json("marks", "marked")
    assert (mark["offset"], mark["lag"], mark["excepted"], mark["checkpoint"]) == (8, 2, [2, 5], "7/1")
    assert "central" in cli("marks", "marked")
    cli("mark", "marked", "@11", "--as", "central", status=2)
    assert "ends before @10" in cli.errors
    cli("unmark", "marked", "--as", "central", status=2)
    assert "--yes" in cli.errors
    assert cli("unmark", "marked", "--as", "central", "--yes") == "forgot central of marked\n"
    assert cli.json("marks", "marked") == []


def test_the_marks_that_publishers_wait_for_are_set_and_shown(broker: BrokerProcess, cli: Cli) -> None:
    cli("create", "waited")
    assert cli("confirm", "waited") == "waited: publishers wait for no mark\n"
    assert cli("confirm", "waited", "--after", "b,a", "--within", "2s") == (
        "waited: publishers wait up to 2 s for a and b\n"
    )
    assert cli.json("confirm", "waited") == {"topic": "waited", "after": ["a", "b"], "within_s": 2.0}
    assert cli("confirm", "waited", "--after", "none") == "waited: publishers wait for no mark\n"


@pytest.mark.parametrize(
    "words", [("mark", "t", "x", "--as", "m"), ("mark", "t", "@1"), ("confirm", "t", "--after", "a/b")]
)
def test_a_wrong_word_is_refused_before_anything_is_sent(cli: Cli, words: tuple[str, ...]) -> None:
    cli(*words, status=2)
