"""The output of one of Spark's Python processes at its end."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("error", "is_shown"), [("BrokenPipeError", False), ("EOFError", False), ("ValueError", True)])
def test_only_the_end_of_java_prints_no_traceback(error: str, is_shown: bool) -> None:
    code = f"from spark.connector.worker_process import keep_imports; keep_imports(); raise {error}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert ("Traceback" in done.stderr) is is_shown
