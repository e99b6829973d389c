"""A Spark home without PySpark's zipped second copy of itself.

Java puts that copy before the installed one on the path of every Python process that it starts, which then reads it
from the archive and compiles it anew: a second of processor time each, and a query starts seven.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import pyspark

__all__ = ["use_lean_home"]

_PARTS = ("bin", "jars")


def use_lean_home() -> None:
    """Have Spark start from such a home, unless SPARK_HOME names one; it is removed when the program ends."""
    if "SPARK_HOME" in os.environ:
        return
    home = Path(tempfile.mkdtemp(prefix="tweetwire-spark-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for part in _PARTS:
        (home / part).symlink_to(Path(pyspark.__file__).parent / part)
    os.environ["SPARK_HOME"] = str(home)
