"""Make a Spark home without the zip file of PySpark, and with an archive of Java's classes.

The zip file is a second copy of PySpark. Java puts it first on the path of every Python process that it starts, so each process
compiles it again. That takes a second of processor time for each process, and a query starts seven.

`python -m spark prepare` makes a permanent home in the Python environment. It must be permanent because Java accepts an archive
of classes only if their jars still have the same paths. Without a permanent home, each start makes a temporary one.
"""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pyspark

from tweetwire.files import put_in_place

__all__ = ["CLASSES", "PREPARED", "keep_classes", "make_prepared_home", "prepared_classes", "use_lean_home"]

PREPARED = Path(sys.prefix, "share", "tweetwire", "spark")
CLASSES = PREPARED / "classes.jsa"

_MADE_FOR = PREPARED / "versions"
_PYSPARK = Path(pyspark.__file__).parent
_PARTS = ("bin", "jars")


def use_lean_home() -> None:
    """Let Spark start from such a home, unless SPARK_HOME is set. A temporary home is removed at the end."""
    if "SPARK_HOME" in os.environ:
        return
    if _is_prepared():
        home = PREPARED
    else:
        home = Path(tempfile.mkdtemp(prefix="tweetwire-spark-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        _fill(home)
    os.environ["SPARK_HOME"] = str(home)


def make_prepared_home() -> None:
    """Make the permanent home, without an archive of classes; programs that run from it are not disturbed.

    Raises:
        OSError: the environment's folder cannot be written.
    """
    PREPARED.mkdir(parents=True, exist_ok=True)
    CLASSES.unlink(missing_ok=True)
    if not _is_prepared():
        for part in _PARTS:
            (PREPARED / part).unlink(missing_ok=True)
        _fill(PREPARED)


def keep_classes(written: Path, java: str) -> None:
    """Make `written` the archive of the permanent home, for the Java with the version text `java`. Raises OSError."""
    _MADE_FOR.write_text(_versions(java, written.stat().st_size))
    with written.open("rb") as archive:
        # Java maps the file without checking more than its first pages, and crashes if a later page is missing.
        put_in_place(archive.fileno(), written, CLASSES)


def prepared_classes(java: str) -> Path | None:
    """Return the archive of the home in use, None if there is none.

    Args:
        java: the version text of Java; a Java of another version, or with other jars, rejects the archive.

    Raises:
        ValueError: the archive is outdated or incomplete.
    """
    if os.environ.get("SPARK_HOME") != str(PREPARED) or not CLASSES.is_file():
        return None
    if not _MADE_FOR.is_file() or _MADE_FOR.read_text() != _versions(java, CLASSES.stat().st_size):
        raise ValueError(f"{CLASSES} was made for another Java or PySpark, or is not whole")
    return CLASSES


def _is_prepared() -> bool:
    return all((PREPARED / part).resolve() == (_PYSPARK / part).resolve() for part in _PARTS)


def _versions(java: str, size: int) -> str:
    return f"pyspark {pyspark.__version__}\n{java}\n{size} bytes\n"


def _fill(home: Path) -> None:
    for part in _PARTS:
        (home / part).symlink_to(_PYSPARK / part)
