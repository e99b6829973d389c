"""Routes as users write them: ``topic -> redis://host/stream?option=value``, or tables of a TOML file."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct, structs

from bridge.options import NAME_MAX, Direction, Options, read_options
from tweetwire.protocol import check_name
from tweetwire.protocol.errors import Refusal

__all__ = ["ENGINES", "Engine", "Route", "check_routes", "parse_in", "parse_out", "read_routes"]


class Engine(NamedTuple):
    """An engine: its name in marks and producers, its default port, and whether an address may name several nodes."""

    name: str
    port: int
    has_nodes: bool = False

    @property
    def variables(self) -> str:
        """The beginning of the environment variables that hold the engine's user and password."""
        return f"TWEETWIRE_BRIDGE_{self.name.upper()}"


ENGINES: Final = {
    "redis": Engine("redis", 6379),
    "rediss": Engine("redis", 6379),
    "nats": Engine("nats", 4222, has_nodes=True),
    "tls": Engine("nats", 4222, has_nodes=True),
    "kafka": Engine("kafka", 9092, has_nodes=True),
    "kafka+ssl": Engine("kafka", 9092, has_nodes=True),
}
"""The engine of each scheme of a central address."""

_ARROW: Final = "->"
_OUT_EXAMPLE: Final = "orders -> redis://127.0.0.1:6379/orders"
_IN_EXAMPLE: Final = "redis://127.0.0.1:6379/payments -> payments"
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")


class Route(Struct, frozen=True, kw_only=True):
    """One configured route.

    Attributes:
        direction: Whether events leave the broker or come in.
        topic: The topic of the broker.
        scheme: The scheme of the address, a key of `ENGINES`.
        hosts: Host and port of the engine, or of each of its nodes.
        stream: The name of the central stream. It may hold ``{broker}`` and ``{topic}``.
        options: The options of the route.
    """

    direction: Direction
    topic: str
    scheme: str
    hosts: tuple[tuple[str, int], ...]
    stream: str
    options: Options = Options()

    @property
    def mark(self) -> str:
        """The name of the route at the broker: of its mark, or of its producer."""
        if self.options.as_:
            return self.options.as_
        name = "_".join(filter(None, _NO_NAME.split(self.stream)))
        return f"{ENGINES[self.scheme].name}.{name}"[:NAME_MAX]

    @property
    def centre(self) -> str:
        """The address of the engine."""
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        return f"{self.scheme}://{hosts}"

    @property
    def address(self) -> str:
        """The central address without options."""
        return f"{self.centre}/{self.stream}"

    def __str__(self) -> str:
        """Return the route as a user writes it, without options."""
        ends = (self.topic, self.address) if self.direction == "out" else (self.address, self.topic)
        return f" {_ARROW} ".join(ends)

    def of_partition(self, partition: int, *, is_new: bool) -> "Route":
        """Return the route of one partition of a central topic, with its own producer at the broker.

        Args:
            partition: The number of the partition.
            is_new: Whether the whole route is new. A partition that was added later is read from its first entry.
        """
        options = structs.replace(self.options, as_=f"{self.mark}.{partition}")
        return structs.replace(self, options=options if is_new else structs.replace(options, begin="earliest"))

    def stream_at(self, identity: str) -> str:
        """Return the name of the stream for a broker."""
        return self.stream.replace("{broker}", identity).replace("{topic}", self.topic)


def parse_out(text: str) -> Route:
    """Return the route ``TOPIC -> ADDRESS``. Raises ValueError with one sentence."""
    topic, address = _ends(text, _OUT_EXAMPLE)
    return _route("out", topic, address, text)


def parse_in(text: str) -> Route:
    """Return the route ``ADDRESS -> TOPIC``. Raises ValueError with one sentence."""
    address, topic = _ends(text, _IN_EXAMPLE)
    return _route("in", topic, address, text)


def read_routes(path: Path) -> list[Route]:
    """Return the routes of a TOML file with tables ``[[out]]`` and ``[[in]]``. Raises ValueError with one sentence."""
    try:
        tables = tomllib.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    for name in tables:
        if name not in get_args(Direction):
            raise ValueError(f"{path}: {name!r} is not a kind of route; write [[out]] or [[in]]")
    return [
        _of_table(direction, table, path)
        for direction in get_args(Direction)
        for table in _tables(tables, direction, path)
    ]


def check_routes(routes: Sequence[Route]) -> None:
    """Refuse two routes that would share a mark or a producer. Raises ValueError."""
    seen: dict[tuple[str, str, str], Route] = {}
    for route in routes:
        other = seen.setdefault((route.direction, route.topic, route.mark), route)
        if other is not route:
            raise ValueError(f"{other} and {route} are both named {route.mark}; name one of them with ?as=NAME")


def _ends(text: str, example: str) -> tuple[str, str]:
    left, arrow, right = text.partition(_ARROW)
    if not arrow or not left.strip() or not right.strip():
        raise ValueError(f"{text!r} is not a route; write it like {example!r}")
    return left.strip(), right.strip()


def _route(direction: Direction, topic: str, address: str, text: str, extra: Mapping[str, str] | None = None) -> Route:
    try:
        check_name(topic)
    except Refusal as refusal:
        raise ValueError(f"{text!r}: {refusal.text}") from refusal
    scheme, colon, rest = address.partition("://")
    if not colon:
        raise ValueError(f"{address!r} is not the address of a central stream; write it like redis://host:6379/stream")
    if scheme not in ENGINES:
        raise ValueError(f"{address!r}: {scheme} is not an engine of the bridge; the engines are {', '.join(ENGINES)}")
    # A name in braces is part of the path; urlsplit takes it as it is.
    parts = urlsplit(f"//{rest}")
    if "@" in parts.netloc:
        raise ValueError(
            f"{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}: an address cannot have a user and a password; set "
            f"{ENGINES[scheme].variables}_USER and {ENGINES[scheme].variables}_PASSWORD"
        )
    if parts.fragment:
        raise ValueError(f"{address!r}: an address has no part after '#'")
    stream = parts.path.removeprefix("/")
    if not stream:
        raise ValueError(f"{address!r} names no stream; write it like {scheme}://host/stream")
    words = parse_qsl(parts.query, keep_blank_values=True) + list((extra or {}).items())
    return Route(
        direction=direction,
        topic=topic,
        scheme=scheme,
        hosts=_hosts(parts.netloc, scheme, address),
        stream=stream,
        options=read_options(direction, ENGINES[scheme].name, words, address),
    )


def _hosts(netloc: str, scheme: str, address: str) -> tuple[tuple[str, int], ...]:
    hosts: list[tuple[str, int]] = []
    for part in netloc.split(","):
        try:
            split = urlsplit(f"//{part}")
            host, port = split.hostname, ENGINES[scheme].port if split.port is None else split.port
        except ValueError:
            raise ValueError(f"{address!r}: {part!r} is not HOST or HOST:PORT") from None
        if not host or not port:
            raise ValueError(f"{address!r}: {part!r} is not HOST or HOST:PORT")
        hosts.append((host, port))
    if len(hosts) > 1 and not ENGINES[scheme].has_nodes:
        raise ValueError(f"{address!r}: give one host; the bridge does not choose among nodes of {scheme}")
    return tuple(hosts)


def _tables(tables: Mapping[str, Any], direction: Direction, path: Path) -> list[dict[str, Any]]:
    found = tables.get(direction, [])
    if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
        raise ValueError(f"{path}: {direction} is not a list of tables; write [[{direction}]]")
    return found


def _of_table(direction: Direction, table: dict[str, Any], path: Path) -> Route:
    end = "to" if direction == "out" else "from"
    texts = {name: _text(value) for name, value in table.items()}
    for name in ("topic", end):
        if not texts.get(name):
            raise ValueError(f"{path}: a table [[{direction}]] has no {name}")
    topic, address = texts.pop("topic"), texts.pop(end)
    try:
        return _route(direction, topic, address, topic, texts)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
