"""The package as a file that travels to a cluster's executors, which have Python and its libraries but not this project."""

import zipfile
from pathlib import Path

import broker
import spark

__all__ = ["write_archive"]


def write_archive(path: Path) -> Path:
    """Write the modules of `spark` and of the broker's client, to be put on the executors' path, and return `path`."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in (broker, spark):
            root = Path(str(package.__file__)).parent
            for module in sorted(root.rglob("*.py")):
                archive.write(module, Path(root.name) / module.relative_to(root))
    return path
