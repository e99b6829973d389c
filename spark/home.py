"""A Spark home without PySpark's zipped second copy of itself, and with the archive of Java's classes.

Java puts that copy before the installed one on the path of every Python process that it starts, which then reads it
from the archive and compiles it anew: a second of processor time each, and a query starts seven.

The home that `python -m spark prepare` makes lies with the environment and stays, for Java takes an archive of classes
only where their jars have the paths that they had when it was written. Without that a home is made at each start.
"""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pyspark

__all__ = ["CLASSES", "PREPARED", "keep_classes", "make_prepared_home", "prepared_classes", "use_lean_home"]

PREPARED = Path(sys.prefix, "share", "tweetwire", "spark")
CLASSES = PREPARED / "classes.jsa"

_MADE_FOR = PREPARED / "versions"
_PYSPARK = Path(pyspark.__file__).parent
_PARTS = ("bin", "jars")


def use_lean_home() -> None:
    """Have Spark start from such a home, unless SPARK_HOME names one; one that is not prepared is removed at the end."""
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
    """Make the home that stays, empty of classes; what runs from it already goes on.

    Raises OSError where the environment's folder cannot be written to.
    """
    PREPARED.mkdir(parents=True, exist_ok=True)
    CLASSES.unlink(missing_ok=True)
    if not _is_prepared():
        for part in _PARTS:
            (PREPARED / part).unlink(missing_ok=True)
        _fill(PREPARED)


def keep_classes(written: Path, java: str) -> None:
    """Make `written` the archive of the prepared home, for a version of Java as it tells it. Raises OSError."""
    with written.open("rb") as archive:
        # Java maps the file without looking at what lies behind its first pages, and dies of what is missing there.
        os.fsync(archive.fileno())
    _MADE_FOR.write_text(_versions(java, written.stat().st_size))
    written.rename(CLASSES)


def prepared_classes(java: str) -> Path | None:
    """Give the archive that belongs to the home in use, None where there is none.

    `java` is the version of Java as it tells it; one of another version, or with other jars, would not take the archive.
    Raises ValueError for one that is outdated or not whole.
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
