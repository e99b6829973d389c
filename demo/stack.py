"""The programs of the stack as data: the name of each, its command line, and the programs it needs."""

import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from msgspec import Struct

from demo.mongod import Member, ReplicaSet
from demo.mongod.member import MONGOD_READY
from demo.ports import Port, claim
from demo.programs import Program
from demo.settings import DemoSettings
from tweetwire.protocol.errors import StartError

__all__ = ["SUBSCRIPTION", "TOPICS", "Addresses", "has_dashboard", "programs_of", "replica_set_of", "resolve"]

TOPICS = ("tweets", "users", "tweets_stats", "users_stats", "logger_stats")
SUBSCRIPTION = "demo"
"""The durable subscription of the demo's subscriber; it outlives a run, so the next run continues after it."""

_HOST = "127.0.0.1"
_PRIMARY_WITHIN_S = 30.0
_PAUSE_S = 0.05


class Addresses(Struct, frozen=True, kw_only=True):
    """The addresses of all programs. The ports were free when they were claimed, and no two are equal."""

    mongo_url: str
    broker: int
    broker_metrics: int
    ingest: int
    ingest_metrics: int
    simulator: int
    change_stream_metrics: int
    subscriber_metrics: int
    spark: int
    dashboard: int

    @property
    def broker_address(self) -> str:
        return f"{_HOST}:{self.broker}"


def resolve(settings: DemoSettings, mongo_url: str) -> Addresses:
    """Claim the ports of all programs that will run. Raises StartError with the ports that are in use."""
    wanted = {
        "broker": Port(settings.broker_port, "the broker", "--broker-port"),
        "broker_metrics": Port(settings.broker_metrics_port, "the broker's metrics", "--broker-metrics-port"),
        "ingest": Port(settings.ingest_port, "the ingester", "--ingest-port"),
        "ingest_metrics": Port(settings.ingest_metrics_port, "the ingester's metrics", "--ingest-metrics-port"),
        "simulator": Port(settings.simulator_port, "the tweet simulator", "--simulator-port"),
        "change_stream_metrics": Port(
            settings.change_stream_metrics_port, "the change stream's metrics", "--change-stream-metrics-port"
        ),
        "subscriber_metrics": Port(
            settings.subscriber_metrics_port, "the subscriber's metrics", "--subscriber-metrics-port"
        ),
        "spark": Port(settings.spark_port, "Spark's own page", "--spark-port"),
        "dashboard": Port(settings.dashboard_port, "the dashboard", "--dashboard-port"),
    }
    if settings.source:
        wanted["simulator"] = Port(0, "the tweet simulator", "--simulator-port")
    if not settings.spark:
        wanted["spark"] = Port(0, "Spark's own page", "--spark-port")
    if not has_dashboard(settings):
        wanted["dashboard"] = Port(0, "the dashboard", "--dashboard-port")
    if settings.free_ports:
        wanted = {name: Port(0, port.user, port.flag) for name, port in wanted.items()}
    return Addresses(mongo_url=mongo_url, **dict(zip(wanted, claim(list(wanted.values())), strict=True)))


def has_dashboard(settings: DemoSettings) -> bool:
    """Return whether there will be a dashboard: it is wanted, and NiceGUI is installed."""
    return settings.dashboard and find_spec("nicegui") is not None


def replica_set_of(settings: DemoSettings) -> ReplicaSet:
    """Describe the embedded MongoDB in the data directory without starting it. Raises StartError if its port is in use."""
    if settings.mongo_port:
        claim([Port(settings.mongo_port, "MongoDB", "--mongo-port")])
    return ReplicaSet(settings.data_dir / "mongodb", ports=[settings.mongo_port])


def programs_of(
    settings: DemoSettings, at: Addresses, replica_set: ReplicaSet | None, *, on_broker: Callable[[], None]
) -> list[Program]:
    """Return the programs to run, in the order of their needs.

    Args:
        settings: the demo's settings.
        at: the addresses of all programs.
        replica_set: the embedded MongoDB, None if another MongoDB is used.
        on_broker: called in a thread whenever the broker has started, before the programs that need it start.
    """
    mongo = [] if replica_set is None else [_mongodb(replica_set)]
    simulator = [] if settings.source else [_simulator(settings, at)]
    spark = [_spark(settings, at)] if settings.spark else []
    dashboard = [_dashboard(at)] if has_dashboard(settings) else []
    return [
        *mongo,
        _broker(settings, at, on_broker),
        *dashboard,
        *spark,
        _change_stream(settings, at, replica_set),
        _subscriber(at),
        *simulator,
        _ingest(settings, at),
    ]


def _mongodb(replica_set: ReplicaSet) -> Program:
    member = replica_set.members[0]
    return Program(
        name="mongodb",
        argv=tuple(member.argv),
        log=member.log_path,
        ready=MONGOD_READY,
        address=member.address,
        prepare=lambda: _make_primary(replica_set, member),
    )


def _broker(settings: DemoSettings, at: Addresses, on_broker: Callable[[], None]) -> Program:
    topics = [argument for topic in TOPICS for argument in ("--topic", topic)]
    return _ours(
        "broker",
        *("broker", "--port", at.broker, "--data-dir", settings.data_dir / "broker"),
        *("--metrics-port", at.broker_metrics, *topics),
        prepare=on_broker,
    )


def _simulator(settings: DemoSettings, at: Addresses) -> Program:
    # There is no seed, so that each start sends new tweets. Tweets with the same ids would change nothing in MongoDB. With
    # --live, a reconnecting reader continues where the stream is.
    return _ours("simulator", "sse_ingest.simulator", "--port", at.simulator, "--rate", settings.rate, "--live")


def _ingest(settings: DemoSettings, at: Addresses) -> Program:
    source = settings.source or f"http://{_HOST}:{at.simulator}/tweets/1"
    return _ours(
        "sse_ingest",
        *("sse_ingest", "--source", source, "--mongo-url", at.mongo_url, "--database", settings.database),
        *("--broker", at.broker_address, "--port", at.ingest, "--metrics-port", at.ingest_metrics),
        *("--replay-rate", settings.rate, "--hashtags-file", settings.data_dir / "hashtag_stats.json"),
        "--until-end" if settings.source else "--autostart",
        # A new change stream sees later changes only, so it must be ready before the first tweet is written.
        needs=("mongodb", "broker", "simulator", "change_stream"),
        may_end=True,
    )


def _change_stream(settings: DemoSettings, at: Addresses, replica_set: ReplicaSet | None) -> Program:
    return _ours(
        "change_stream",
        *("change_stream", "--mongo-url", at.mongo_url, "--database", settings.database),
        *("--map", "tweets=tweets", "--map", "users=users", "--broker", at.broker_address),
        # A MongoDB of the user may already hold documents, which the topics must have, too. The embedded one is empty at first.
        *("--snapshot", "initial" if replica_set is None else "never"),
        *("--metrics-port", at.change_stream_metrics),
        needs=("mongodb", "broker"),
    )


def _subscriber(at: Addresses) -> Program:
    return _ours(
        "subscriber",
        *("subscriber", "--broker", at.broker_address, "--topic", "tweets", "--topic", "users"),
        *("--as", SUBSCRIPTION, "--from", "earliest", "--report", "json", "--metrics-port", at.subscriber_metrics),
        needs=("broker",),
    )


def _spark(settings: DemoSettings, at: Addresses) -> Program:
    return _ours(
        "spark",
        *("spark", "all", "--broker", at.broker_address, "--from", "earliest", "--master", "local[2]"),
        *("--checkpoint", settings.data_dir / "spark", "--window", f"{settings.window:g}s"),
        *("--ui-port", at.spark),
        needs=("broker",),
        stop_within_s=40.0,
    )


def _dashboard(at: Addresses) -> Program:
    return _ours("dashboard", *("dashboard", "--broker", at.broker_address, "--port", at.dashboard), needs=("broker",))


def _ours(name: str, *arguments: object, **options: Any) -> Program:
    return Program(name=name, argv=(sys.executable, "-m", *map(str, arguments)), **options)


def _make_primary(replica_set: ReplicaSet, member: Member) -> None:
    """Initiate the set and wait until its member accepts writes."""
    deadline = time.monotonic() + _PRIMARY_WITHIN_S
    replica_set.configure()
    while not member.is_primary():
        if time.monotonic() > deadline:
            raise StartError(f"MongoDB has no primary after {_PRIMARY_WITHIN_S:g} s; its log: {member.log_path}")
        time.sleep(_PAUSE_S)
