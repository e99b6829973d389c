"""The stack of docker-compose.yml under a name, on ports and with volumes of its own, so that nobody else's is touched."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from demo.ports import Port, claim

__all__ = ["ROOT", "ComposeStack", "compose_command", "why_no_engine"]

ROOT = Path(__file__).parents[2]
_PORTS = (
    "TWEETWIRE_BROKER_DASHBOARD_PORT",
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
    """Return the Compose there is, v2 before 1.29; None where there is neither."""
    if shutil.which("docker") and _succeeds("docker", "compose", "version"):
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


def why_no_engine() -> str | None:
    """Return why no stack can be started here, None where one can."""
    if not shutil.which("docker"):
        return "there is no docker command"
    if not _succeeds("docker", "info"):
        return "no Docker engine answers (docker info)"
    return None if compose_command() else "there is neither docker compose nor docker-compose"


class ComposeStack:
    """One project of Compose; leaving the block takes it down with its volumes.

    `settings` are environment variables as docker-compose.yml has them. What the containers log is in `log_dir` when
    the block has ended.
    """

    def __init__(self, project: str, log_dir: Path, **settings: str) -> None:
        command = compose_command()
        assert command is not None
        self._compose = [*command, "--project-name", project, "--file", str(ROOT / "docker-compose.yml")]
        ports = claim([Port(0, name, name) for name in _PORTS])
        self.ports = dict(zip(_PORTS, ports, strict=True))
        # Not the caller's own settings of programs or of Compose, which are meant for another stack.
        theirs = {name: value for name, value in os.environ.items() if not name.startswith(("TWEETWIRE_", "COMPOSE_"))}
        self._env = {**theirs, **{name: str(port) for name, port in self.ports.items()}, **settings}
        self._log_dir = log_dir

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        (self._log_dir / "compose.log").write_text(self("logs", "--no-color"))
        self("down", "--volumes", "--timeout", "5")

    def __call__(self, *arguments: str, within_s: float = 300.0) -> str:
        """Run a command of Compose; returns what it prints."""
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
        # The set names its member as the containers know it, so from here it is spoken to directly.
        return f"mongodb://127.0.0.1:{self.ports['TWEETWIRE_MONGO_PORT']}/?directConnection=true"

    def inspect(self, service: str) -> dict[str, Any]:
        """Give what the engine knows of a service's container."""
        (container,) = self("ps", "--all", "--quiet", service).split()
        out = subprocess.run(["docker", "inspect", container], capture_output=True, text=True, check=True).stdout
        found: dict[str, Any] = json.loads(out)[0]
        return found

    def restarts(self, service: str) -> int:
        """Return how often the engine has started a service's container again by itself."""
        return int(self.inspect(service)["RestartCount"])

    def crash(self, service: str) -> None:
        """Kill a service's program as the system would, and wait until its restart policy has started it again."""
        before = self.inspect(service)
        # The shell that kills is killed with all the others of the container, before it could tell of success.
        subprocess.run(["docker", "exec", before["Id"], "bash", "-c", "kill -9 -1"], capture_output=True, check=False)
        goal = int(before["RestartCount"]) + 1
        self.until(lambda: self.restarts(service) == goal, 60, lambda: self.inspect(service)["State"])

    def wait_healthy(self, *services: str, within_s: float = 180.0) -> None:
        """Wait until the health checks of `services` pass."""
        self.until(lambda: all(self._is_healthy(service) for service in services), within_s, self._health)

    def until(self, condition: Callable[[], bool], within_s: float, say: Callable[[], object]) -> None:
        """Wait for something to be so."""
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, f"not within {within_s:g} s: {say()}"
            time.sleep(0.5)

    def logged(self, service: str) -> str:
        """Give what a service's present container has written."""
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
