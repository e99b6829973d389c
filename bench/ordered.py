"""Measure seven consumers that share a subscription, ordered by key and not, on plain sockets.

Run ``python -m bench.ordered [events]``. All events are stored first, and then consumed and acked.
"""

import random
import re
import selectors
import sys
import time
from contextlib import ExitStack, closing
from typing import Final

from bench.broker_process import broker_process
from bench.settings import BenchSettings
from bench.wire import connect, publish_all, receive

__all__ = ["KEYS", "ordered_share", "settled_per_second"]

CONSUMERS: Final = 7
PREFETCH: Final = 1000
KEYS: Final = 1000
BUSIEST_SHARE: Final = 0.05
CHUNK: Final = 1000

_OFFSET: Final = re.compile(rb'"offset":([0-9]+)')


def ordered_share(settings: BenchSettings) -> tuple[float, float]:
    """Return the events a second of an unordered and of an ordered subscription."""
    return settled_per_second(settings, "none"), settled_per_second(settings, "key")


def settled_per_second(settings: BenchSettings, ordered: str) -> float:
    """Return the events a second from the first delivery until all are acked. All are stored before."""
    events = max(CONSUMERS, settings.events // 5)
    with broker_process("--topic", "bench") as (port, _), ExitStack() as stack:
        with closing(connect(port)) as publisher:
            publish_all(publisher, _chunks(events, settings.size), events)
        consumers = [stack.enter_context(closing(connect(port))) for _ in range(CONSUMERS)]
        selector = stack.enter_context(selectors.DefaultSelector())
        tails = dict.fromkeys(consumers, b"")
        for number, consumer in enumerate(consumers):
            consumer.sendall(b"hello reader-%d quiet\n" % number)
            selector.register(consumer, selectors.EVENT_READ, consumer)
        began = time.perf_counter()
        for consumer in consumers:
            line = f"sub bench as=readers from=earliest prefetch={PREFETCH} ordered={ordered}\n"
            consumer.sendall(line.encode())
        left = events
        while left:
            for key, _ in selector.select(10):
                consumer = key.data
                *lines, tails[consumer] = (tails[consumer] + receive(consumer, 1 << 20)).split(b"\n")
                offsets = [found[1] for line in lines if line.startswith(b"{") and (found := _OFFSET.search(line))]
                if offsets:
                    left -= len(offsets)
                    consumer.sendall(b"ack bench @%b\n" % b" @".join(offsets))
        with closing(connect(port)) as last:
            last.sendall(b"ping\n")
            receive(last, 4096)
        return events / (time.perf_counter() - began)


def _chunks(events: int, size: int) -> list[bytes]:
    """Return ``pub`` lines with random keys. The busiest key has `BUSIEST_SHARE` of the events; the others share the rest."""
    rng = random.Random(7)
    text = b"x" * max(1, size - 130)
    keys = [0 if rng.random() < BUSIEST_SHARE else rng.randrange(1, KEYS) for _ in range(events)]
    lines = [b'pub bench {"id":"event-%d","msg":"%b","key":"k%d"}\n' % (n, text, key) for n, key in enumerate(keys)]
    return [b"".join(lines[at : at + CHUNK]) for at in range(0, events, CHUNK)]


if __name__ == "__main__":
    _settings = BenchSettings(events=5 * int(sys.argv[1] if len(sys.argv) > 1 else 200_000))
    for _ in range(3):
        unordered, by_key = ordered_share(_settings)
        print(f"unordered {unordered:,.0f}/s, ordered {by_key:,.0f}/s: {100 * by_key / unordered:.0f} %")
