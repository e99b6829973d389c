"""Pack this project for a cluster's executors, which have Python and the libraries but not this project."""

import zipfile
from pathlib import Path

import spark
import tweetwire

__all__ = ["write_archive"]


def write_archive(path: Path) -> Path:
    """Write the modules of `spark` and `tweetwire` to a zip file for the executors' path. Return `path`."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in (tweetwire, spark):
            root = Path(str(package.__file__)).parent
            for module in sorted(root.rglob("*.py")):
                archive.write(module, Path(root.name) / module.relative_to(root))
    return path
