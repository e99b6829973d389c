"""What Python processes that Spark has started are spared.

Such a process serves task after task, and PySpark has it collect all garbage after each. That goes over whatever PySpark,
Arrow and this package have imported: 60 to 100 ms of processor time a task, several times a micro-batch.
"""

import gc
from functools import cache

__all__ = ["keep_imports"]


@cache
def keep_imports() -> None:
    """Leave what is loaded by now out of all later collections; once a process is enough."""
    gc.freeze()
