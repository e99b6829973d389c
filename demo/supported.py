"""``python -m demo.supported TARGET``: end ``make TARGET`` with one sentence on a machine without any MongoDB.

It runs before anything is installed, so it uses the standard library only. An embedded MongoDB exists for Linux on x86-64.
Elsewhere the user starts one, or uses Docker.
"""

import os
import platform
import shutil
import sys

__all__ = ["advice", "main"]


def advice(target: str, system: str, machine: str, *, has_mongodb: bool) -> "str | None":
    """Return the sentence that says what to do instead of ``make TARGET``, None if it can run here.

    Args:
        target: ``demo`` or ``test``.
        system: as `platform.system` names it, such as ``Linux`` or ``Darwin``.
        machine: as `platform.machine` names it, such as ``x86_64`` or ``arm64``.
        has_mongodb: whether MONGO_URL names a MongoDB, or there is a mongod on the PATH.
    """
    if has_mongodb or (system == "Linux" and machine in ("x86_64", "AMD64")):
        return None
    name = "macOS" if system == "Darwin" else system
    docker = "docker compose up" if target == "demo" else "make compose-test"
    return (
        f"make {target}: there is no embedded MongoDB for {name} on {machine}; start a replica set and name it in "
        f"MONGO_URL, or use Docker: {docker}"
    )


def main(target: str) -> int:
    """Print the sentence for this machine, if there is one. Returns the exit status: 2 with a sentence, else 0."""
    has_mongodb = bool(os.environ.get("MONGO_URL") or shutil.which("mongod"))
    sentence = advice(target, platform.system(), platform.machine(), has_mongodb=has_mongodb)
    if sentence is None:
        return 0
    print(sentence, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
