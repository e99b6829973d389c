"""The stack of docker-compose.yml under a separate name, with its own ports and volumes, so that it touches no other stack."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from demo.ports import Port, claim
from tests.support.paths import ROOT
from tests.support.waiting import until

__all__ = ["ROOT", "ComposeStack", "compose_command", "why_no_engine"]

_PORTS = (
    "TWEETWIRE_DASHBOARD_PORT",
    "TWEETWIRE_BROKER_PORT",
    "TWEETWIRE_BROKER_METRICS_PORT",
    "TWEETWIRE_CHANGE_STREAM_METRICS_PORT",
    "TWEETWIRE_MONGO_PORT",
    "TWEETWIRE_SPARK_UI_PORT",
    "TWEETWIRE_SSE_INGEST_METRICS_PORT",
    "TWEETWIRE_SSE_INGEST_PORT",
    "TWEETWIRE_SSE_INGEST_SIMULATOR_PORT",
    "TWEETWIRE_SUBSCRIBER_METRICS_PORT",
)


def compose_command() -> list[str] | None:
    """Return the command of the installed Compose, None without one. Version 2 is preferred to 1.29."""
    if shutil.which("docker") and _succeeds("docker", "compose", "version"):
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


def why_no_engine() -> str | None:
    """Return the reason why this machine cannot start a stack, None if it can."""
    if not shutil.which("docker"):
        return "there is no docker command"
    if not _succeeds("docker", "info"):
        return "no Docker engine answers (docker info)"
    return None if compose_command() else "there is neither docker compose nor docker-compose"


class ComposeStack:
    """One project of Compose. The end of the block removes it and its volumes.

    `settings` are the environment variables of docker-compose.yml. After the block, `log_dir` has the logs of the
    containers.
    """

    def __init__(self, project: str, log_dir: Path, **settings: str) -> None:
        command = compose_command()
        assert command is not None
        self._compose = [*command, "--project-name", project, "--file", str(ROOT / "docker-compose.yml")]
        ports = claim([Port(0, name, name) for name in _PORTS])
        self.ports = dict(zip(_PORTS, ports, strict=True))
        # Leave out the caller's variables for our programs and for Compose, which are meant for another stack.
        theirs = {name: value for name, value in os.environ.items() if not name.startswith(("TWEETWIRE_", "COMPOSE_"))}
        self._env = {**theirs, **{name: str(port) for name, port in self.ports.items()}, **settings}
        self._log_dir = log_dir

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        (self._log_dir / "compose.log").write_text(self("logs", "--no-color"))
        self("down", "--volumes", "--timeout", "5")

    def __call__(self, *arguments: str, within_s: float = 300.0) -> str:
        """Run a command of Compose and return its output."""
        done = subprocess.run(
            [*self._compose, *arguments],
            capture_output=True,
            text=True,
            env=self._env,
            cwd=ROOT,
            timeout=within_s,
            check=False,
        )
        assert done.returncode == 0, f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @property
    def broker_address(self) -> str:
        return f"127.0.0.1:{self.ports['TWEETWIRE_BROKER_PORT']}"

    @property
    def mongo_url(self) -> str:
        # The replica set names its member by its host name among the containers, so connect to it directly from here.
        return f"mongodb://tweetwire:tweetwire@127.0.0.1:{self.ports['TWEETWIRE_MONGO_PORT']}/?directConnection=true"

    def inspect(self, service: str) -> dict[str, Any]:
        """Return the engine's description of a service's container."""
        (container,) = self("ps", "--all", "--quiet", service).split()
        out = subprocess.run(["docker", "inspect", container], capture_output=True, text=True, check=True).stdout
        found: dict[str, Any] = json.loads(out)[0]
        return found

    def restarts(self, service: str) -> int:
        """Return how often the engine has restarted a service's container by its restart policy."""
        return int(self.inspect(service)["RestartCount"])

    def crash(self, service: str) -> None:
        """Kill a service's program as the system would, and wait until its restart policy has started it again."""
        before = self.inspect(service)
        # The shell that runs `kill` is killed, too, so its exit status says nothing.
        subprocess.run(["docker", "exec", before["Id"], "bash", "-c", "kill -9 -1"], capture_output=True, check=False)
        goal = int(before["RestartCount"]) + 1
        self.until(lambda: self.restarts(service) == goal, 60, lambda: self.inspect(service)["State"])

    def wait_healthy(self, *services: str, within_s: float = 180.0) -> None:
        """Wait until the health checks of `services` pass."""
        self.until(lambda: all(self._is_healthy(service) for service in services), within_s, self._health)

    def until(self, condition: Callable[[], bool], within_s: float, say: Callable[[], object]) -> None:
        """Wait until a condition holds. It is checked only twice a second, since queries to containers are slow."""
        until(condition, within_s, say, pause_s=0.5)

    def logged(self, service: str) -> str:
        """Return the log of a service's current container."""
        container = self.inspect(service)["Id"]
        done = subprocess.run(
            ["docker", "logs", container], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
        )
        return done.stdout.decode()

    def _is_healthy(self, service: str) -> bool:
        return str(self.inspect(service)["State"]["Health"]["Status"]) == "healthy"

    def _health(self) -> str:
        return self("ps", "--all") + self("logs", "--no-color", "--tail", "5")


def _succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
