"""Settings for the Python processes that Spark starts: shorter garbage collections, and no traceback at their end.

Such a process runs task after task, and PySpark collects all garbage after each task. A collection visits all objects that
PySpark, Arrow and this package have imported. That takes 60 to 100 ms of processor time for each task, and a micro-batch has
several tasks.
"""

import gc
import sys
from functools import cache
from types import TracebackType

__all__ = ["keep_imports"]


@cache
def keep_imports() -> None:
    """Exclude all objects loaded so far from later collections; one call per process is enough.

    From then on, the process also ends without a traceback if Java ended before it, for example during a shutdown. Otherwise
    PySpark's runner would fail when it reports its own end to Java.
    """
    gc.freeze()
    sys.excepthook = _show_unless_java_ended


def _show_unless_java_ended(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if not issubclass(kind, EOFError | ConnectionError):
        sys.__excepthook__(kind, error, traceback)
