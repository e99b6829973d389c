"""Kafka in KRaft mode as a process, from the jars that `make engines` fetches. It takes seconds to start."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from bench.engine_files import find_engine_folder
from demo.ports import Port, claim
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.launching import ProgramProcess

__all__ = ["KAFKA_VERSION", "KafkaProcess", "find_jars"]

KAFKA_VERSION: Final = "4.4.0"
_CLUSTER: Final = "tweetwire-tests-000000"
_JAVA: Final = ("-Xmx512m", "-XX:+UseSerialGC")
_START_S: Final = 120.0


def find_jars(name: str) -> Path | None:
    """Return the folder of jars that `make engines` has fetched under a name, None without it or without Java."""
    return find_engine_folder(name) if shutil.which("java") else None


class KafkaProcess(ProgramProcess):
    """One server, which is broker and controller. It keeps its ports and data over a kill.

    Args:
        folder: The folder of its data, settings and log.
        jars: The folder of its jars.
        settings: More of its settings, with ``_`` in place of a dot.

    Attributes:
        data: The folder of its data.
        servers: Its address.
    """

    def __init__(self, folder: Path, jars: Path, **settings: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.port, controller = claim([Port(0, "kafka", ""), Port(0, "kafka", "")])
        self.hosts = (("127.0.0.1", self.port),)
        self.servers = f"127.0.0.1:{self.port}"
        self.data = folder / "data"
        self._java = ("java", *_JAVA, "-cp", f"{jars}/*")
        self._config = folder / "server.properties"
        found = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.servers},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.servers}",
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
        self._config.write_text("".join(f"{name}={value}\n" for name, value in found.items()))
        argv = [*self._java, "kafka.Kafka", str(self._config)]
        super().__init__(argv, folder / "log", find_address=self._answers, start_within_s=_START_S)

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)

    def launch(self) -> None:
        """Start the process without waiting until it serves. The first start makes the data folder."""
        if not self.data.exists():
            self._format()
        super().launch()

    def _format(self) -> None:
        words = ("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._config))
        done = subprocess.run([*self._java, *words], check=False, capture_output=True, text=True, timeout=_START_S)
        if done.returncode:
            raise StartError(f"Kafka could not format its folder:\n{done.stdout}{done.stderr}")

    def _answers(self) -> str | None:
        try:
            found = AdminClient({"bootstrap.servers": self.servers, "log_level": 0}).list_topics(timeout=1)
        except KafkaException:
            return None
        return self.servers if found.brokers else None
