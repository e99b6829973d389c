"""Ports are claimed before anything starts."""

import socket
from collections.abc import Iterator

import pytest

from demo.ports import Port, claim
from tweetwire.protocol.errors import StartError


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_free_ports_are_all_different() -> None:
    numbers = claim([Port(0, f"program {n}", f"--port-{n}") for n in range(20)])
    assert len(set(numbers)) == 20
    assert 0 not in numbers


def test_a_wanted_port_is_kept_and_free_again() -> None:
    (number,) = claim([Port(0, "the broker", "--broker-port")])
    assert claim([Port(number, "the broker", "--broker-port")]) == [number]
    with socket.create_server(("127.0.0.1", number)):
        pass


def test_a_taken_port_is_named_with_its_user_and_its_flag(taken: int) -> None:
    expected = f"port {taken} for the broker is in use, choose another with --broker-port "
    with pytest.raises(StartError, match=expected):
        claim([Port(taken, "the broker", "--broker-port")])


def test_all_taken_ports_are_reported_in_one_sentence(taken: int) -> None:
    with pytest.raises(StartError, match=r"for the broker .*; port .* for its metrics"):
        claim([Port(taken, "the broker", "--broker-port"), Port(taken, "its metrics", "--broker-metrics-port")])


def test_two_programs_with_the_same_port_are_refused() -> None:
    (number,) = claim([Port(0, "a", "--a")])
    with pytest.raises(StartError, match="for b is in use"):
        claim([Port(number, "a", "--a"), Port(number, "b", "--b")])
