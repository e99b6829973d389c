"""Kafka in KRaft mode as a real process, which keeps its ports and data over a kill. It takes seconds to start."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from demo.ports import Port, claim
from tests.support.nats_servers import ENGINES
from tests.support.processes import START_S
from tweetwire.runtime.launching import ProgramProcess

__all__ = ["KafkaServer", "find_kafka", "read_messages"]

VERSION: Final = "4.4.0"
_CLUSTER: Final = "tweetwire-tests-000000"
_QUIET: Final = {"log_level": 0}
_JAVA: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def find_kafka() -> str:
    """Return the class path of the server. Without it, the test is skipped, or fails where the engines are required."""
    folder = ENGINES / f"kafka-{VERSION}"
    if not folder.is_dir() or shutil.which("java") is None:
        sentence = f"there is no Kafka {VERSION}; `make engines` installs it (needs Maven and Java 17)"
        if os.environ.get("TWEETWIRE_TEST_ENGINES") == "needed" or os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    return f"{folder}/*"


class KafkaServer(ProgramProcess):
    """One server, which is broker and controller. `settings` are more of its settings, with ``_`` in place of a dot."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.port, controller = claim([Port(0, "kafka", ""), Port(0, "kafka", "")])
        self.hosts = (("127.0.0.1", self.port),)
        self.data = folder / "data"
        self._class_path = find_kafka()
        listeners = f"PLAINTEXT://127.0.0.1:{self.port}"
        found = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.data,
            # One server has one replica of everything, also of the topics that it makes for itself.
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "log.segment.delete.delay.ms": 100,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self._config = folder / "server.properties"
        self._config.write_text("".join(f"{name}={value}\n" for name, value in found.items()))
        argv = ["java", *_JAVA, "-cp", self._class_path, "kafka.Kafka", str(self._config)]
        super().__init__(argv, folder / "log", find_address=self._answers, start_within_s=START_S)

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)

    @property
    def servers(self) -> str:
        """The address of the server."""
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        """Start the process without waiting until it serves. The first start makes the data folder."""
        if not (self.data).exists():
            self._format()
        super().launch()

    def admin(self) -> AdminClient:
        """Return a plain client for administration."""
        return AdminClient({"bootstrap.servers": self.servers, **_QUIET})

    def producer(self, **settings: Any) -> Producer:
        """Return a plain producer, for the messages of a test itself."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer({"bootstrap.servers": self.servers, **_QUIET, **config})

    def url(self, topic: str) -> str:
        """Return the address of a topic for a route."""
        return f"kafka://{self.servers}/{topic}"

    def _format(self) -> None:
        words = ("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._config))
        done = subprocess.run(
            ["java", *_JAVA, "-cp", self._class_path, *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=START_S,
        )
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)

    def _answers(self) -> str | None:
        try:
            found = self.admin().list_topics(timeout=1)
        except KafkaException:
            return None
        return self.servers if found.brokers else None


def read_messages(servers: str, topic: str) -> list[Message]:
    """Return all committed messages of a topic, partition by partition, read by a plain consumer and nothing of the bridge.

    A transaction that was confirmed may be hidden for a moment, so this waits until no open transaction hides anything.
    """
    config = {"bootstrap.servers": servers, "group.id": "independent", "enable.auto.commit": False, **_QUIET}
    plain = Consumer({**config, "isolation.level": "read_uncommitted"})
    reader = Consumer(
        {
            **config,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        partitions = plain.list_topics(topic, timeout=20).topics[topic].partitions
        places = [TopicPartition(topic, one, 0) for one in sorted(partitions)]
        ends = [plain.get_watermark_offsets(place, timeout=20)[1] for place in places]
        return [
            message for place, end in zip(places, ends, strict=True) for message in _read_partition(reader, place, end)
        ]
    finally:
        plain.close()
        reader.close()


def _read_partition(reader: Consumer, place: TopicPartition, end: int) -> list[Message]:
    reader.assign([place])
    found: list[Message] = []
    while True:
        message = reader.poll(20)
        assert message is not None, f"no end of {place} after {len(found)} messages; is a transaction open?"
        if message.error() is None:
            found.append(message)
        elif (message.offset() or 0) >= end:
            return found
