"""Find and check the Java for Spark. The program does this itself because Spark's error would be a traceback."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from tweetwire.protocol.errors import StartError

__all__ = ["JAVA_MIN", "check_java", "parse_version"]

JAVA_MIN = 17
_REMEDY = "install Java 17 or 21 (Debian: apt install openjdk-17-jre-headless) or set JAVA_HOME to one"


def check_java() -> str:
    """Return the version text of the Java that Spark will start. Raises StartError if none can be used."""
    java = _java()
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartError(f"{java} does not start ({error}); {_REMEDY}") from error
    text = answer.stderr + answer.stdout
    version = parse_version(text)
    if answer.returncode or version is None:
        raise StartError(f"{java} -version prints no version; {_REMEDY}")
    if version < JAVA_MIN:
        raise StartError(f"Spark needs Java {JAVA_MIN} or 21, and {java} is Java {version}; {_REMEDY}")
    # Java also prints options that it takes from the environment; these are not part of its version.
    return "\n".join(line for line in text.strip().splitlines() if not line.startswith("Picked up "))


def parse_version(text: str) -> int | None:
    """Read the major version from the output of ``java -version``; 8 for ``1.8``."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise StartError(f"JAVA_HOME is {home}, which has no bin/java; {_REMEDY}")
        return str(java)
    found = shutil.which("java")
    if found is None:
        raise StartError(f"Spark needs Java, but there is none on the PATH; {_REMEDY}")
    return found
