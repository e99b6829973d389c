"""Telnet sequences in a client's bytes are removed and answered, and the text stays unchanged."""

import socket
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.processes import BrokerProcess
from tweetwire.protocol.telnet import HELD_BYTES_MAX, Telnet

IAC = b"\xff"
WILL, WONT, DO, DONT = b"\xff\xfb", b"\xff\xfc", b"\xff\xfd", b"\xff\xfe"


def fed(*pieces: bytes) -> tuple[bytes, bytes]:
    telnet = Telnet()
    return b"".join(map(telnet.feed, pieces)), telnet.take_answers()


@pytest.mark.parametrize(
    ("data", "text", "answers"),
    [
        (b"ping\n", b"ping\n", b""),
        (WILL + b"\x1fping\n", b"ping\n", DONT + b"\x1f"),
        (b"pi" + DO + b"\x06ng\n", b"ping\n", WONT + b"\x06"),
        (WONT + b"\x01" + DONT + b"\x03ping\n", b"ping\n", b""),
        (b"p\xff\xf1ing\xff\xf9\n", b"ping\n", b""),
        (b"\xff\xfa\x18\x00xterm\xff\xf0ping\n", b"ping\n", b""),
        (WILL + b"\xffping\n", b"ping\n", DONT + b"\xff"),
    ],
    ids=["none", "offered", "asked-for-inside-a-line", "taken-back", "two-bytes", "subnegotiation", "option-255"],
)
def test_sequences_are_taken_out_and_options_are_refused(data: bytes, text: bytes, answers: bytes) -> None:
    assert fed(data) == (text, answers)


@pytest.mark.parametrize(
    ("data", "left"),
    [
        (b"a\xff\xffb\n", b"a\xffb\n"),
        (b"a\xffb\n", b"a\xffb\n"),
        (WILL + b"\nping\n", WILL + b"\nping\n"),
        (b"\xff\xfa\x18ping\nping\n", b"\xff\xfa\x18ping\nping\n"),
        (b"\xff\xfa" + b"x" * 300 + b"\xff\xf0\n", b"\xff\xfa" + b"x" * 300 + b"\xff\xf0\n"),
    ],
    ids=["doubled", "no-command", "no-option", "no-end", "too-long"],
)
def test_bytes_that_are_not_a_sequence_stay_in_their_line_so_that_it_is_refused(data: bytes, left: bytes) -> None:
    assert fed(data) == (left, b"")


@given(
    data=st.binary() | st.lists(st.sampled_from([0xFF, 0xFA, 0xF0, 0xFB, 0xFD, 0xF1, 0x0A, 0x41])).map(bytes),
    cuts=st.lists(st.integers(0, 40)),
)
def test_text_and_answers_do_not_depend_on_how_the_bytes_arrive(data: bytes, cuts: list[int]) -> None:
    at = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [data[first:last] for first, last in pairwise(at)]
    # Append a line end, so that the parser holds no byte back.
    assert fed(*pieces, b"\n") == fed(data + b"\n")


@given(text=st.text())
def test_text_in_utf8_stays_as_it_is(text: str) -> None:
    assert fed(text.encode()) == (text.encode(), b"")


def test_a_subnegotiation_without_an_end_is_not_kept() -> None:
    telnet = Telnet()
    for _ in range(1000):
        telnet.feed(b"\xff\xfa" + b"x" * 100)
        assert len(telnet._held) <= HELD_BYTES_MAX


def test_a_telnet_client_that_negotiates_gets_answers_and_its_lines_are_carried_out(
    shared_broker: BrokerProcess,
) -> None:
    with socket.create_connection(("127.0.0.1", shared_broker.port), 10) as client, client.makefile("rb") as lines:
        assert lines.readline().startswith(b"+OK tweetwire")
        client.sendall(WILL + b"\x1f")
        assert lines.read(3) == DONT + b"\x1f"
        client.sendall(b"pi\xff")
        client.sendall(b"\xfd")
        client.sendall(b"\x06ng\r\n")
        assert lines.read(3) == WONT + b"\x06"
        assert lines.readline() == b"+PONG\n"
        client.sendall('pub telnet {"id":"1","msg":"žluťoučký ÿ"}\n'.encode() + b'pub telnet {"id":"2","msg":"\xff"}\n')
        assert lines.readline() == b"+OK pub telnet 0 synced\n"
        assert lines.readline() == b"-ERR bad_utf8 the line is not UTF-8\n"
        client.sendall(b"read telnet 0\n")
        assert lines.readline() == b"+OK read telnet 1 next=1\n"
        assert '"msg":"žluťoučký ÿ"' in lines.readline().decode()
