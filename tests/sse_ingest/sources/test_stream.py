"""Each event that a server sent completely arrives once, and the reader reconnects after every kind of interruption."""

import contextlib
import gzip
import shutil
import socket
import ssl
import subprocess
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from sse_ingest.serve import _sources
from sse_ingest.settings import IngestSettings
from sse_ingest.sources import SourceRefused, SourceState, StreamLimits, source_of, transport
from sse_ingest.sources.cutter import Cutter
from sse_ingest.sources.decoding import decoded
from sse_ingest.sources.retry_after import retry_after_s
from sse_ingest.sources.stream import EventStream
from tests.support.scripted_http import OK, Peer, ScriptedServer, chunk, response
from tests.support.waiting import until
from tweetwire.protocol.errors import StartError

pytestmark = pytest.mark.timeout(30)
QUICK = StreamLimits(connect_s=2.0, silence_s=5.0, pause_s=0.01, pause_max_s=0.02, event_bytes_max=2000)
FIRST = b"id: 1\ndata: first\n\n"
SECOND = b"id: 2\ndata: second\n\n"


def stream_of(server: ScriptedServer, limits: StreamLimits = QUICK, **named: str) -> EventStream:
    return EventStream(server.url(), SourceState("test"), limits, **named)


def events_of(*steps: Callable[[Peer], None], limits: StreamLimits = QUICK) -> tuple[list[str], list[dict[str, str]]]:
    """Return the texts of the events that arrive until the script ends, and the headers of each request."""
    with ScriptedServer(*steps) as server:
        data = [arrival.event.text for arrival in stream_of(server, limits)]
        return data, [peer.headers for peer in server.peers]


def whole(*events: bytes) -> Callable[[Peer], None]:
    return lambda peer: peer.send(OK, *(chunk(event) for event in events), b"0\r\n\r\n")


def saying(answer: bytes) -> Callable[[Peer], None]:
    return lambda peer: peer.send(answer)


def test_a_server_without_further_events_is_not_asked_again() -> None:
    data, requests = events_of(whole(FIRST, SECOND))
    assert data == ["first", "second"]
    assert len(requests) == 2
    assert requests[0]["accept"] == "text/event-stream"
    assert requests[0]["user-agent"].startswith("tweetwire/")
    assert "last-event-id" not in requests[0]
    assert requests[1]["last-event-id"] == "2"


def reset(peer: Peer) -> None:
    peer.send(OK, chunk(FIRST))
    time.sleep(0.05)  # an RST would discard data that the client has not read yet
    peer.reset()


def truncated(peer: Peer) -> None:
    peer.send(OK, chunk(FIRST), b"40\r\nid: 2\ndata: sec")


def bad_chunk(peer: Peer) -> None:
    peer.send(OK, chunk(FIRST), b"no size\r\n")


def incomplete(peer: Peer) -> None:
    peer.send(OK, chunk(FIRST), chunk(b"id: 2\ndata: half"), b"0\r\n\r\n")


def without_length(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", FIRST)


@pytest.mark.parametrize("ending", [whole(FIRST), reset, truncated, bad_chunk, incomplete, without_length])
def test_a_connection_lost_after_an_event_continues_after_it(ending: Callable[[Peer], None]) -> None:
    data, requests = events_of(ending, whole(SECOND))
    assert data == ["first", "second"]
    assert [request.get("last-event-id") for request in requests] == [None, "1", "2"]


@pytest.mark.parametrize(
    "status", ["500 Oops", "502 Bad Gateway", "503 Busy", "504 Late", "429 Too Many", "408 Timeout"]
)
def test_a_server_in_trouble_is_asked_again(status: str) -> None:
    data, requests = events_of(lambda peer: peer.send(response(status)), whole(FIRST))
    assert data == ["first"]
    assert len(requests) == 3


def test_a_reader_waits_for_a_server_that_is_not_running_yet() -> None:
    with ScriptedServer(whole(FIRST)) as server:
        port = server.port
    stream = EventStream(f"http://127.0.0.1:{port}/", state := SourceState("test"), QUICK)
    reader = threading.Thread(target=lambda: list(stream))
    reader.start()
    deadline = time.monotonic() + 5
    while state.state != "waiting" and time.monotonic() < deadline:
        time.sleep(0.005)
    assert "refused" in state.reason.lower()
    stream.close()
    reader.join(5)
    assert not reader.is_alive()


def test_a_silent_connection_counts_as_lost_and_one_with_comments_does_not() -> None:
    def talking(peer: Peer) -> None:
        peer.send(OK, chunk(FIRST))
        for _ in range(5):
            time.sleep(0.5)
            peer.send(chunk(b":thump\n"))
        peer.send(chunk(SECOND))
        peer.hang()

    limits = StreamLimits(silence_s=2.0, pause_s=0.01, pause_max_s=0.02)
    with ScriptedServer(talking) as server:
        began = time.monotonic()
        stream = stream_of(server, limits)
        arrivals = iter(stream)
        assert [next(arrivals).event.text for _ in range(2)] == ["first", "second"]
        assert time.monotonic() - began > 2.4
        # The scripted server serves one connection at a time, so end this one after the client has noticed the silence.
        threading.Timer(3.0, server._released.set).start()
        assert list(arrivals) == []
        assert [peer.headers.get("last-event-id") for peer in server.peers] == [None, "2"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (response("404 Not Found"), "HTTP 404"),
        (response("401 Unauthorized"), "HTTP 401"),
        (response("200 OK", "Content-Type: text/html", body=b"data: no\n\n"), "is not an event stream"),
        (response("200 OK", body=b"data: no\n\n"), "'missing'"),
        (response("302 Found", "Location: /stream"), "is not a valid address or redirect"),
    ],
)
def test_a_response_that_is_not_an_event_stream_needs_a_person(answer: bytes, reason: str) -> None:
    steps = [lambda peer: peer.send(answer)] * 30
    with pytest.raises(SourceRefused, match=reason):
        events_of(*steps)


@pytest.mark.parametrize("first", [FIRST, b"data: first\n\n"])
def test_a_source_that_was_read_before_is_asked_again_after_any_other_answer(first: bytes) -> None:
    answers = [
        response("404 Not Found"),
        response("200 OK", "Content-Type: text/html", body=b"back soon"),
        response("403 Forbidden"),
        response("404 Not Found"),
    ]
    data, requests = events_of(whole(first), *map(saying, answers), whole(SECOND))
    assert data == ["first", "second"]
    assert {request.get("last-event-id") for request in requests[1:6]} == {"1" if first == FIRST else None}


def test_an_id_that_is_not_found_repeatedly_is_given_up() -> None:
    missing = [lambda peer: peer.send(response("404 Not Found"))] * 3
    data, requests = events_of(whole(FIRST), *missing, whole(SECOND))
    assert data == ["first", "second"]
    assert [request.get("last-event-id") for request in requests] == [None, "1", "1", "1", None, "2"]


@pytest.mark.parametrize("head", [b"HTTP/1.1 103 Early Hints\r\n\r\n", b"HTTP/1.1 200 OK\r\nno header\r\n\r\n"])
def test_a_request_whose_answer_cannot_be_read_is_repeated(head: bytes) -> None:
    data, requests = events_of(lambda peer: peer.send(head), whole(FIRST))
    assert (data, len(requests)) == (["first"], 3)


def test_a_token_that_no_header_may_have_is_not_shown() -> None:
    state = SourceState("test")
    with ScriptedServer() as server:
        stream = EventStream(server.url(), state, QUICK, token="secret\nline")
        feed = threading.Thread(target=list, args=(stream,))
        feed.start()
        try:
            until(lambda: "Authorization" in state.reason, describe=lambda: state)
        finally:
            stream.close()
            feed.join()
    assert "secret" not in state.reason


@pytest.mark.parametrize("token", ["secret\nline", "secret\x00", "secrét"])
def test_a_token_that_cannot_be_sent_is_refused_at_the_start(token: str) -> None:
    with pytest.raises(StartError, match="--mastodon-token") as refused:
        source_of("mastodon:stream.example", QUICK, token=token)
    assert "secr" not in str(refused.value)


def test_a_token_is_taken_without_the_end_of_its_line() -> None:
    with ScriptedServer() as server:
        settings = IngestSettings(
            _cli_parse_args=[], source=[f"mastodon:{server.url('')}"], mastodon_token=SecretStr("s3cret\n")
        )
        (source,) = _sources(settings)
        assert list(source.open_feed(SourceState("test"), "")) == []
        assert server.peers[0].headers["authorization"] == "bearer s3cret"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_token_goes_to_the_first_host_only(host: str) -> None:
    with ScriptedServer(whole(FIRST)) as streaming:
        elsewhere = f"Location: http://{host}:{streaming.port}/stream"
        with ScriptedServer(*[lambda peer: peer.send(response("301 Moved", elsewhere))] * 2) as instance:
            assert len(list(stream_of(instance, token="s3cret"))) == 1
        assert [peer.headers.get("authorization") for peer in streaming.peers] == [None, None]
        assert [peer.headers["authorization"] for peer in instance.peers] == ["bearer s3cret"] * 2


def test_a_token_goes_to_another_path_of_the_first_host() -> None:
    with ScriptedServer(saying(response("301 Moved", "Location: /elsewhere")), whole(FIRST)) as server:
        assert len(list(stream_of(server, token="s3cret"))) == 1
        assert [peer.headers["authorization"] for peer in server.peers] == ["bearer s3cret"] * 3


def test_no_token_goes_to_another_host_over_tls_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = certified(tmp_path, monkeypatch)
    with ScriptedServer(whole(FIRST), tls=context) as streaming:
        elsewhere = f"Location: {streaming.url(scheme='https')}"
        with ScriptedServer(*[lambda peer: peer.send(response("307 Moved", elsewhere))] * 2) as instance:
            assert len(list(stream_of(instance, token="s3cret"))) == 1
        assert [peer.headers.get("authorization") for peer in streaming.peers] == [None, None]


def test_an_instance_with_another_streaming_host_is_reported_with_the_right_address() -> None:
    with ScriptedServer(saying(response("401 Unauthorized"))) as streaming:
        elsewhere = f"Location: {streaming.url()}"
        with ScriptedServer(saying(response("301 Moved", elsewhere))) as instance:
            source = source_of(f"mastodon:{instance.url('')}", QUICK, token="s3cret")
            with pytest.raises(SourceRefused, match=f"use --source mastodon:{streaming.url('')}"):
                list(source.open_feed(SourceState("mastodon"), ""))


def test_an_instance_that_wants_a_token_is_reported_with_the_flag() -> None:
    with ScriptedServer(lambda peer: peer.send(response("401 Unauthorized"))) as server:
        source = source_of(f"mastodon:{server.url('')}", QUICK)
        with pytest.raises(SourceRefused, match="HTTP 401 Unauthorized; it requires a valid token: --mastodon-token"):
            list(source.open_feed(SourceState("mastodon"), ""))


def test_a_redirect_is_followed_and_the_content_type_may_have_parameters() -> None:
    def elsewhere(peer: Peer) -> None:
        assert peer.path == "/elsewhere"
        peer.send(
            OK.replace(b"event-stream", b"event-stream; charset=latin-1"), chunk("data: ö\n\n".encode()), b"0\r\n\r\n"
        )

    data, _ = events_of(lambda peer: peer.send(response("307 Moved", "Location: /elsewhere")), elsewhere)
    assert data == ["ö"]


def test_a_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with ScriptedServer(whole(FIRST)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url(""))
        stream = EventStream("http://stream.example/tweets", SourceState("test"), QUICK)
        assert [arrival.event.text for arrival in stream] == ["first"]
        assert proxy.peers[0].path == "http://stream.example/tweets"


@pytest.mark.parametrize(("proxies", "is_direct"), [({"no": "*"}, True), ({}, True), ({"http": "http://p"}, False)])
def test_only_a_proxy_takes_the_slow_way(
    proxies: dict[str, str], is_direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "getproxies", lambda: proxies)
    with (
        ScriptedServer() as server,
        transport.client(httpx.Timeout(2.0)) as http,
        transport.get(http, server.url(), httpx.Headers(), lambda _: None) as answer,
    ):
        # Only a response of httpcore has the stream among its extensions.
        assert ("network_stream" not in answer.extensions) == is_direct


def test_a_character_split_over_chunks_is_whole() -> None:
    body = "data: a😀b\n\n".encode()
    data, _ = events_of(lambda peer: peer.send(OK, *(chunk(bytes([byte])) for byte in body), b"0\r\n\r\n"))
    assert data == ["a😀b"]


def test_comments_are_not_events_and_an_id_without_data_counts() -> None:
    data, requests = events_of(whole(b":)\n\n:thump\n\n", b"id: 9\n\n", FIRST.replace(b"id: 1\n", b"")))
    assert data == ["first"]
    assert requests[1]["last-event-id"] == "9"


def test_an_event_above_the_limit_is_reported_cut_and_not_requested_again() -> None:
    large = b"id: 5\ndata: " + b"x" * 100_000 + b"\n\n"
    with ScriptedServer(lambda peer: peer.send(OK, chunk(FIRST), chunk(large)), whole(SECOND)) as server:
        events = [arrival.event for arrival in stream_of(server)]
        ids = [peer.headers.get("last-event-id") for peer in server.peers]
    assert [event.fault is None for event in events] == [True, False, True]
    assert "larger than 2000 bytes" in str(events[1].fault)
    assert len(events[1].data) <= 4096
    assert ids == [None, "5", "2"]


def test_ids_of_any_characters_are_sent_back_unchanged() -> None:
    wanted = '[{"topic":"x","timestamp":1}] ö😀'
    with ScriptedServer(whole(f"id: {wanted}\ndata: a\n\n".encode())) as server:
        assert len(list(stream_of(server))) == 1
        assert server.peers[1].headers["last-event-id"] == wanted


@pytest.mark.parametrize(("event", "gaps"), [(FIRST, 0), (b"data: no id\n\n", 1)])
def test_lost_events_are_counted(event: bytes, gaps: int) -> None:
    with ScriptedServer(whole(event), whole(event)) as server:
        state = SourceState("test")
        assert len(list(EventStream(server.url(), state, QUICK))) == 2
    assert (state.connections, state.gaps) == (2, gaps)


def test_an_id_that_the_server_has_forgotten_is_one_gap() -> None:
    forgotten = [whole(FIRST), lambda peer: peer.send(response("410 Gone")), whole(SECOND)]
    with ScriptedServer(*forgotten) as server:
        state = SourceState("test")
        assert len(list(EventStream(server.url(), state, QUICK))) == 2
        assert [peer.headers.get("last-event-id") for peer in server.peers] == [None, "1", None, "2"]
    assert (state.connections, state.gaps) == (2, 1)


def test_a_stream_is_opened_after_an_id_and_with_a_token() -> None:
    with ScriptedServer() as server:
        assert list(stream_of(server, last_id="7", token="s3cret")) == []
        assert server.peers[0].headers["last-event-id"] == "7"
        assert server.peers[0].headers["authorization"] == "bearer s3cret"


def test_closing_ends_a_read_that_waits() -> None:
    def send_and_hang(peer: Peer) -> None:
        peer.send(OK, chunk(FIRST))
        peer.hang()

    with ScriptedServer(send_and_hang) as server:
        stream = stream_of(server, StreamLimits(silence_s=60))
        arrivals = iter(stream)
        assert next(arrivals).event.text == "first"
        threading.Timer(0.1, stream.close).start()
        began = time.monotonic()
        assert list(arrivals) == []
        assert time.monotonic() - began < 5


class Pauses:
    """Replaces the pauses between connections: records their lengths and does not wait."""

    def __init__(self, stream: EventStream) -> None:
        self.seconds: list[float] = []
        self._stopped = stream._stopped
        stream._stopped = self  # type: ignore[assignment]

    def wait(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return False

    def is_set(self) -> bool:
        return self._stopped.is_set()


def pauses_of(*steps: Callable[[Peer], None]) -> list[float]:
    with ScriptedServer(*steps) as server:
        stream = stream_of(server, StreamLimits(pause_s=1.0, pause_max_s=30.0))
        pauses = Pauses(stream)
        assert list(stream) is not None
        return pauses.seconds


def test_pauses_grow_with_jitter_and_start_over_after_an_event() -> None:
    bad = [lambda peer: peer.send(response("502 Bad Gateway"))] * 4
    pauses = pauses_of(*bad, whole(FIRST), *bad[:2])
    for pause, most in zip(pauses, [1, 2, 4, 8, 1, 2, 4], strict=True):
        assert most / 2 <= pause <= most


def test_retry_after_and_retry_are_honoured() -> None:
    (first, second) = pauses_of(
        lambda peer: peer.send(response("429 Too Many Requests", "Retry-After: 90")),
        whole(b"retry: 20000\n\n"),
    )
    assert 90 <= first <= 108
    assert 20 <= second <= 24


@pytest.mark.parametrize(("retry", "least"), [(b"0", 0.5), (b"9" * 400, 300), (b"9" * 5000, 300)])
def test_a_server_that_asks_for_no_pause_or_for_an_endless_one_gets_ours(retry: bytes, least: float) -> None:
    (pause,) = pauses_of(whole(b"retry: " + retry + b"\n\n"))
    assert least <= pause <= 1.2 * max(least, 1.0)


@pytest.mark.parametrize(
    "odd",
    [
        response("302 Found", "Location: http://a..b/"),
        response("302 Found", "Location: http://xn--/"),
        response("503 Busy", "Retry-After: Mon, 99999999999 Jan 2020 00:00:00 GMT"),
        response("503 Busy").replace(b"Connection", b"Set-Cookie: city=Z\xfcrich\r\nConnection"),
        response("413 Too Large"),
        response("431 Headers Too Large"),
    ],
)
def test_no_answer_of_a_server_ends_a_stream_that_was_read_before(odd: bytes) -> None:
    data, _ = events_of(whole(FIRST), saying(odd), whole(SECOND))
    assert data == ["first", "second"]


def test_an_invalid_address_is_refused_with_a_reason() -> None:
    with pytest.raises(SourceRefused, match="is not a valid address or redirect"):
        list(EventStream("http://a..b/", SourceState("test"), QUICK))


def test_names_and_ids_without_an_end_are_not_kept() -> None:
    long = b"x" * 100_000
    with ScriptedServer(
        whole(b"id: 1\nevent: " + long + b"\ndata: a\n\n", b"id: " + long + b"\ndata: b\n\n")
    ) as server:
        stream = stream_of(server, QUICK)
        first, second = list(stream)
    assert len(first.event.type) <= 400
    assert (first.last_id, second.last_id) == ("1", "1")


def test_a_server_that_is_read_for_the_first_time_has_left_no_gap() -> None:
    with ScriptedServer(lambda peer: peer.send(response("503 Busy")), whole(b"data: a\n\n")) as server:
        state = SourceState("test")
        assert len(list(EventStream(server.url(), state, QUICK))) == 1
    assert (state.connections, state.gaps) == (1, 0)


def test_messages_about_a_source_have_no_secret_of_its_address() -> None:
    with ScriptedServer(lambda peer: peer.send(response("404 Not Found"))) as server:
        address = f"http://user:secret@127.0.0.1:{server.port}/stream?token=secret"
        source = source_of(address, QUICK)
        with pytest.raises(SourceRefused, match=r"/stream answers HTTP 404") as refused:
            list(source.open_feed(SourceState(source.name), ""))
    assert "secret" not in str(refused.value)


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after_s("120", 0) == 120
    assert retry_after_s("Thu, 01 Jan 1970 00:02:00 GMT", 60) == 60
    assert retry_after_s("Thu, 01 Jan 1970 00:02:00 GMT", 500) == 0
    assert retry_after_s("9" * 5000, 0) == float("inf")
    assert [retry_after_s(header, 0) for header in (None, "", "soon", "-5", "²")] == [None] * 5


def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """Return the TLS context of a server whose certificate is trusted; skip the test if none can be made."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here to make a certificate")
    certificate = tmp_path / "certificate.pem"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    make = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject)
    subprocess.run([*make, "-keyout", certificate, "-out", tmp_path / "public.pem"], check=True, capture_output=True)
    with certificate.open("ab") as file:
        file.write((tmp_path / "public.pem").read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "public.pem"))
    return context


def test_tls_that_ends_without_a_goodbye_is_a_lost_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = certified(tmp_path, monkeypatch)
    with ScriptedServer(lambda peer: peer.send(OK, chunk(FIRST)), whole(SECOND), tls=context) as server:
        stream = EventStream(server.url(scheme="https"), SourceState("test"), QUICK)
        assert [arrival.event.text for arrival in stream] == ["first", "second"]
        assert server.peers[1].headers["last-event-id"] == "1"


def endless(piece: bytes) -> Callable[[Peer], None]:
    def send(peer: Peer) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer.send(piece)
                # Without a pause, the server and the reader pass Python's lock to each other, and other threads starve.
                time.sleep(0.001)

    return send


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("proxied", [False, True])
def test_endless_interim_responses_count_as_a_lost_connection(proxied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = StreamLimits(silence_s=2.0, pause_s=0.01, pause_max_s=0.02)
    with ScriptedServer(endless(CONTINUE), whole(FIRST)) as server:
        if proxied:
            trust_proxy(server, monkeypatch)
        data = [arrival.event.text for arrival in stream_of(server, limits)]
    assert (data, len(server.peers)) == (["first"], 3)


@pytest.mark.parametrize("proxied", [False, True])
@pytest.mark.parametrize("piece", [CONTINUE, b"x", b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n"])
def test_closing_ends_a_connection_whose_answer_does_not_begin(
    piece: bytes, proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer(*[endless(piece)] * 100) as server:
        if proxied:
            trust_proxy(server, monkeypatch)
        stream = stream_of(server, StreamLimits(pause_s=0.01, pause_max_s=0.02))
        reader = threading.Thread(target=drain, args=(stream,), daemon=True)
        reader.start()
        until(lambda: server.peers)
        stream.close()
        reader.join(5)
        assert not reader.is_alive()


def drain(stream: EventStream) -> None:
    with contextlib.suppress(SourceRefused):
        list(stream)


def trust_proxy(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", server.url(""))


def compressed(body: bytes, *, times: int = 1, coding: str = "gzip") -> Callable[[Peer], None]:
    for _ in range(times):
        body = gzip.compress(body) if coding == "gzip" else zlib.compress(body)
    header = ", ".join([coding] * times)
    return saying(response("200 OK", "Content-Type: text/event-stream", f"Content-Encoding: {header}", body=body))


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_server_that_compresses_though_it_is_not_asked_to_is_read(coding: str) -> None:
    data, requests = events_of(compressed(FIRST + SECOND, coding=coding))
    assert data == ["first", "second"]
    assert requests[0]["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "head", ["Content-Encoding: gzip, gzip", "Content-Encoding: br", "Content-Encoding: gzip, identity, br"]
)
def test_codings_that_cannot_be_undone_safely_are_refused(head: str) -> None:
    answer = response("200 OK", "Content-Type: text/event-stream", head, body=gzip.compress(FIRST))
    with pytest.raises(SourceRefused, match="its Content-Encoding is"):
        events_of(saying(answer))


@pytest.mark.parametrize("answer", ["200 OK", "302 Found"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_compressed_body_that_expands_too_far_takes_no_memory(answer: str, times: int) -> None:
    body = b"\0" * (64 << 20)
    for _ in range(times):
        body = gzip.compress(body)
    coding = ", ".join(["gzip"] * times)
    grows = response(answer, "Location: /", "Content-Type: text/event-stream", f"Content-Encoding: {coding}", body=body)
    tracemalloc.start()
    try:
        with contextlib.suppress(SourceRefused):
            assert events_of(saying(grows), whole(FIRST))[0] == ["first"]
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(1, 7), st.sampled_from([31, 15, -15]))
def test_a_compressed_body_is_the_same_however_it_is_cut(parts: list[bytes], size: int, wbits: int) -> None:
    members = []
    for part in parts if wbits == 31 else [b"".join(parts)]:
        compressor = zlib.compressobj(wbits=wbits)
        members.append(compressor.compress(part) + compressor.flush())
    body = b"".join(members)
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    assert b"".join(decoded(pieces, "gzip" if wbits == 31 else "deflate")) == b"".join(parts)


def test_an_invalid_compressed_body_is_a_lost_connection() -> None:
    broken = response("200 OK", "Content-Type: text/event-stream", "Content-Encoding: gzip", body=b"data: a\n\n")
    assert events_of(saying(broken), whole(FIRST))[0] == ["first"]


def test_bytes_that_arrived_before_the_cut_are_not_read_any_more() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
        with ours, theirs:
            cutter = Cutter()
            cutter.hold(ours)
            theirs.sendall(b"x" * 50_000)
            assert ours.recv(1) == b"x"
            cutter.cut()
            assert ours.recv(1) == b""
            cutter.release()
            cutter.cut()
