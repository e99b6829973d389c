"""Attacks by lines: pipelined reports, large reads, ids that no event has, and events that are costly to validate."""

import json
import random
import string
from collections.abc import Iterator
from typing import Final

from tests.hostile.attacks.attack import Attack, flood, say, send_and_wait
from tests.hostile.target import Target

__all__ = ["ATTACKS"]

TOPICS: Final = 2_000
FUZZED: Final = 1_000_000
VERBS: Final = (
    *(
        "hello",
        "pub",
        "sub",
        "unsub",
        "ack",
        "nack",
        "extend",
        "read",
        "last",
        "checkpoint",
        "topics",
        "stats",
        "explain",
    ),
    *(
        "pub2",
        "pubrel",
        "pubrec",
        "pubcomp",
        "chain",
        "dead",
        "redrive",
        "unsettled",
        "backlog",
        "clients",
        "state",
        "retain",
    ),
    *("describe", "schema", "comment", "ping", "help", "publish", "begin", "forget"),
    *("create", "drop", "purge", "seek", "pause", "resume", "discard"),
)
WORDS: Final = (
    *(
        "t",
        "t",
        "u",
        "@1",
        "@99999999999999999999",
        "@-1",
        "as=s",
        "as=s",
        "as=conn-1",
        "from=earliest",
        "limit=0",
        "all",
    ),
    *(
        "limit=99999999999999999999",
        "prefetch=100000",
        "timeout=1e9s",
        "none",
        "latest",
        '{"id":"1","msg":1}',
        "1",
        "=",
        "\t",
    ),
    *(
        '{"id":"1","msg":1e999}',
        '{"id":"1","msg":' + "[" * 200,
        '{"id":"1","priority":256,"msg":0}',
        "\x00",
        "\ud800",
        "é" * 50,
    ),
    *(
        '{"type":"integer"}',
        '"',
        "{}",
        "[]",
        "@1 @2 @3",
        "bytes=16777216",
        "rate=1/s",
        "token=x",
        "quiet",
        "resume",
        "create",
        "to=earliest",
        "to=@1",
        "before=2",
        "if_empty",
    ),
    *(
        '{"id":"2","producer":"p","sequence":1,"msg":1}',
        '{"id":"2","producer":"p","sequence":184467440737095516150,"msg":1}',
    ),
)


def pipelined_reports(target: Target, size: float) -> int:
    """Make many topics, then ask for every report repeatedly on one connection, once reading the answers and once not."""
    send_and_wait(target.port, [f'pub many.{n} {{"id":"1","msg":1}}' for n in range(max(60, int(TOPICS * size)))])
    count = max(1000, int(5000 * size))
    for report in ("stats", "topics", "dead", "clients", "help"):
        for is_read in (False, True):
            flood(target.port, f"{report}\n".encode() * count, is_read=is_read, seconds=max(1.0, 10 * size))
    return 10 * count


def pipelined_reads(target: Target, size: float) -> int:
    """Ask for 16 MiB of events many times on one connection, once reading the answers and once not."""
    line = 'pub large {"id":"1","msg":"' + "x" * 10_000 + '"}'
    for _ in range(max(2, int(16 * size))):
        send_and_wait(target.port, [line] * 100)
    count = max(50, int(800 * size))
    for is_read in (False, True):
        request = b"read large earliest limit=100000 bytes=16777216\n" * count
        flood(target.port, request, is_read=is_read, seconds=max(1.0, 20 * size))
    return 2 * count


def unknown_ids(target: Target, size: float) -> int:
    """Name events by ids that no event has, in a topic with many events."""
    for _ in range(max(10, int(40 * size))):
        send_and_wait(target.port, [f'pub old {{"id":"{n}","msg":1}}' for n in range(10_000)])
    commands = (
        "explain old nobody as=s",
        "chain old nobody",
        "ack old nobody",
        "nack old nobody",
        "redrive old as=s nobody",
    )
    send_and_wait(target.port, ["sub old as=s", *commands * max(8, int(50 * size))])
    say(target.port, "unsub old as=s end")
    return len(commands) * max(8, int(50 * size))


def shared_ids(target: Target, size: float) -> int:
    """Ask for the chain of many events that all have the same id and the same parent."""
    count = max(100, int(1000 * size))
    send_and_wait(target.port, ['pub same {"id":"a","parent":"a","msg":1}'] * count)
    asked = max(3, int(30 * size))
    send_and_wait(target.port, ["chain same a limit=1000"] * asked)
    return asked


def costly_schemas(target: Target, size: float) -> int:
    """Set schemas that are costly to check, and publish events that hit their worst case."""
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(25)} | {
        "d25": {"type": "integer"}
    }
    deep: dict[str, object] = {"type": "integer"}
    for _ in range(100):
        deep = {"items": deep, "properties": {"a": deep}}
    schemas = (
        ({"type": "string", "pattern": "^(a+)+$"}, '"' + "a" * 100_000 + '!"'),
        ({"type": "string", "pattern": "^(?=a)(a|a)*\\1$"}, '"' + "a" * 30_000 + '!"'),
        ({"$ref": "#/$defs/d0", "$defs": doubling}, "1"),
        ({"uniqueItems": True}, "[" + ",".join(f"[{n}]" for n in range(20_000)) + "]"),
        ({"multipleOf": 1e-300}, "1" + "0" * 400),
        ({"type": "integer"}, "1e400"),
    )
    for number, (schema, message) in enumerate(schemas):
        topic = f"schema.{number}"
        publishes = [f'pub {topic} {{"id":"{n}","msg":{message}}}' for n in range(max(2, int(20 * size)))]
        send_and_wait(target.port, [f"schema {topic} {json.dumps(schema)}", *publishes])
    return len(schemas)


def names_without_end(target: Target, size: float) -> int:
    """Make as many producers, checkpoints, comments and subscriptions as possible."""
    count = max(200, int(20_000 * size))
    value = "c" * 1000
    lines = [
        *(f"checkpoint names p{n} {value}" for n in range(count)),
        *(f'pub names {{"id":"1","producer":"q{n}","sequence":1,"msg":1}}' for n in range(count)),
        *(f"comment names {value} {n}" for n in range(count // 10)),
        *(f"sub names as=s{n}" for n in range(count // 10)),
        *(f"unsub names as=s{n} end" for n in range(count // 10)),
    ]
    send_and_wait(target.port, lines)
    return len(lines)


def fuzzed_lines(target: Target, size: float) -> int:
    """Send lines of the protocol's words in a random order, and random bytes."""
    dice, count = random.Random(20), max(5000, int(FUZZED * size))
    for first in range(0, count, 5000):
        text = "".join(f"{line}\n" for line in _lines(dice, min(5000, count - first)))
        flood(target.port, text.encode("utf-8", "surrogatepass"), is_read=True, seconds=60)
    return count


def _lines(dice: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        words = [dice.choice(VERBS), *dice.choices(WORDS, k=dice.randrange(5))]
        if dice.random() < 0.1:
            words.append("".join(dice.choices(string.printable.replace("\n", ""), k=dice.randrange(60))))
        yield dice.choice((" ", " ", " ", "  ", "\t")).join(words)


ATTACKS: Final = (
    Attack("pipelined reports", "open", pipelined_reports, "commands"),
    Attack("pipelined reads of 16 MiB", "open", pipelined_reads, "commands"),
    Attack("ids that no event has", "open", unknown_ids, "commands"),
    Attack("chains of one id", "open", shared_ids, "commands"),
    Attack("costly schemas", "open", costly_schemas, "schemas"),
    Attack("names without end", "open", names_without_end, "commands"),
    Attack("fuzzed lines", "open", fuzzed_lines, "lines"),
)
