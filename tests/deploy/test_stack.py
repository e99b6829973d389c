"""``make compose-test``: build the images, start the stack, kill it, take it down and start it again. No event is lost."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from demo.check import CheckRow
from demo.subscriber_log import SubscriberLog
from tests.deploy.evidence import look
from tests.deploy.stack import ComposeStack, why_no_engine
from tweetwire import SyncClient

IS_ASKED_FOR = os.environ.get("TWEETWIRE_COMPOSE_TEST") == "1"
NO_ENGINE = why_no_engine() if IS_ASKED_FOR else None
pytestmark = [
    pytest.mark.stack,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not IS_ASKED_FOR, reason="builds images, so it is for make compose-test"),
    pytest.mark.skipif(NO_ENGINE is not None, reason=f"{NO_ENGINE}"),
]

IMAGES = ("tweetwire/services", "tweetwire/spark")
PROGRAMS = ("mongodb", "message_broker", "sse_api", "sse_ingest", "change_stream", "subscriber", "dashboard", "spark")
SURVIVORS = ("sse_api", "sse_ingest", "change_stream", "subscriber", "dashboard", "spark")
WINDOW_S = 5
BUILD_WITHIN_S = 1800.0
EVENTS_WITHIN_S = 180.0
WINDOW_WITHIN_S = 600.0
SETTLED_WITHIN_S = 600.0


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[ComposeStack]:
    settings = {
        "TWEETWIRE_SSE_INGEST_SIMULATOR_RATE": "50",
        "TWEETWIRE_SPARK_WINDOW": f"{WINDOW_S}s",
    }
    with ComposeStack(f"tweetwire-test-{os.getpid()}", tmp_path, **settings) as stack:
        yield stack


def say(text: str) -> None:
    """Print the progress of the test; pytest shows it with -s."""
    sys.stderr.write(f"\n{text}")


def first_event(address: str) -> bytes:
    """Send commands to the port as a person would, and return the first event of the topic tweets."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + EVENTS_WITHIN_S
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(b"sub tweets from=earliest\n")
            with connection.makefile("rb") as lines:
                for line in lines:
                    if line.startswith(b"{"):
                        return line
        time.sleep(0.1)
    raise AssertionError(f"no event within {EVENTS_WITHIN_S:g} s")


def next_offset(stack: ComposeStack, topic: str = "tweets") -> int:
    with SyncClient(stack.broker_address, name="compose-test") as client:
        return int(client.stats()["topics"][topic]["next"])


def wait_for_more(stack: ComposeStack, events: int = 200) -> int:
    """Wait until the topic tweets has `events` more events. Return its next offset."""
    goal = next_offset(stack) + events
    stack.until(lambda: next_offset(stack) >= goal, EVENTS_WITHIN_S, lambda: f"{next_offset(stack)} of {goal} events")
    return next_offset(stack)


def wait_for_statistics(stack: ComposeStack) -> None:
    goal = next_offset(stack, "tweets_stats") + 1
    stack.until(
        lambda: next_offset(stack, "tweets_stats") >= goal, WINDOW_WITHIN_S, lambda: stack.logged("spark")[-4000:]
    )


def rows(stack: ComposeStack, reports: SubscriberLog | None = None) -> list[CheckRow]:
    return anyio.run(look, stack.broker_address, stack.mongo_url, WINDOW_S * 1000, reports)


def stop_subscriber(stack: ComposeStack, path: Path) -> None:
    """End the subscriber in order and keep its reports."""
    stack("stop", "subscriber")
    with path.open("a") as log:
        log.write(stack.logged("subscriber"))


def size_mb(image: str) -> int:
    command = ["docker", "image", "inspect", "--format", "{{.Size}}", image]
    return round(int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) / 1e6)


def test_nothing_is_lost_when_containers_are_killed_and_the_stack_continues_where_it_was(
    stack: ComposeStack, tmp_path: Path
) -> None:
    path = tmp_path / "subscriber.log"
    reports = SubscriberLog(path)
    stack("build", within_s=BUILD_WITHIN_S)
    say("images: " + ", ".join(f"{image} {size_mb(image)} MB" for image in IMAGES))

    began = time.monotonic()
    stack("up", "--detach")
    event = first_event(stack.broker_address)
    say(f"first event {time.monotonic() - began:.1f} s after `up`: {event[:100].decode()}…")
    stack.wait_healthy(*PROGRAMS)
    wait_for_statistics(stack)
    say(f"all healthy and a first window {time.monotonic() - began:.1f} s after `up`")

    for service in ("message_broker", "mongodb"):
        stack.crash(service)
    stack.wait_healthy(*PROGRAMS)
    say(f"broker and MongoDB crashed and came back by themselves; {wait_for_more(stack)} events")

    stack("kill", "message_broker", "mongodb")
    stack("up", "--detach")
    stack.wait_healthy(*PROGRAMS)
    before = wait_for_more(stack)
    say(f"their containers were killed and started again; {before} events")
    assert {service: stack.restarts(service) for service in SURVIVORS} == dict.fromkeys(SURVIVORS, 0)

    stop_subscriber(stack, path)
    stack("down")
    stack("up", "--detach")
    stack.wait_healthy(*PROGRAMS)
    after = wait_for_more(stack)
    assert after >= before + 200
    say(f"taken down and up again; {after} events")

    stack("stop", "sse_ingest", "sse_api")
    stack.until(lambda: not any(row.to_come for row in rows(stack)), SETTLED_WITHIN_S, lambda: rows(stack))
    stop_subscriber(stack, path)
    reports.read()
    found = rows(stack, reports)
    say("\n".join(f"{row.what}: {row.found} of {row.wanted}" for row in found) + "\n")
    assert [row for row in found if not row.is_right] == []
