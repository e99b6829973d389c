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

__all__ = ["CLASSES", "PREPARED", "make_prepared_home", "prepared_classes", "use_lean_home"]

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


def make_prepared_home(java: str) -> None:
    """Make the home that stays, empty of classes, for a version of Java as it tells it.

    Raises OSError where the environment's folder cannot be written to.
    """
    shutil.rmtree(PREPARED, ignore_errors=True)
    PREPARED.mkdir(parents=True)
    _fill(PREPARED)
    _MADE_FOR.write_text(_versions(java))


def prepared_classes(java: str) -> Path | None:
    """Give the archive that belongs to the home in use, None where there is none. Raises ValueError for an outdated one.

    `java` is the version of Java as it tells it; one of another version, or with other jars, would not take the archive.
    """
    if os.environ.get("SPARK_HOME") != str(PREPARED) or not CLASSES.is_file():
        return None
    if not _MADE_FOR.is_file() or _MADE_FOR.read_text() != _versions(java):
        raise ValueError(f"{CLASSES} was made for another Java or PySpark")
    return CLASSES


def _is_prepared() -> bool:
    return all((PREPARED / part).resolve() == (_PYSPARK / part).resolve() for part in _PARTS)


def _versions(java: str) -> str:
    return f"pyspark {pyspark.__version__}\n{java}\n"


def _fill(home: Path) -> None:
    for part in _PARTS:
        (home / part).symlink_to(_PYSPARK / part)
