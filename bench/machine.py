"""Describe the machine and the versions of a run, so that readers can judge its figures."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.peers import PEERS

__all__ = ["machine_facts", "peer_versions"]

_CLIENTS = ("redis", "nats-py", "aio-pika", "paho-mqtt", "pymongo", "pyspark")


def machine_facts() -> dict[str, str]:
    """Return the processor, cores, memory, kernel, Python, and the machine's load before the run."""
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.1f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load at the start": f"{os.getloadavg()[0]:.1f}",
    }


def peer_versions() -> dict[str, str]:
    """Return the versions of the peers' servers, from Debian's packages, and of the Python clients."""
    return {peer.program: _package_version(peer.program) for peer in PEERS} | {
        name: _distribution_version(name) for name in _CLIENTS
    }


def _processor() -> str:
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return models[0].partition(":")[2].strip() if models else platform.machine()


def _package_version(package: str) -> str:
    if shutil.which("dpkg-query") is None:
        return "unknown"
    asked = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Version}", package], capture_output=True, text=True, check=False
    )
    return asked.stdout or "not installed"


def _distribution_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
