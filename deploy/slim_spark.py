"""Remove the parts of an installed PySpark that the jobs never load: Hive, Kubernetes, YARN, Connect, machine learning.

Spark can be built without these parts, so no other part needs them. RocksDB's library is kept for this machine's processor
only; its jar contains it for fourteen. The zip file with a second copy of PySpark is removed, too. Workers then import the
installed copy, which is compiled, and start in a quarter of the time.
"""

import platform
import re
import shutil
import sys
import zipfile
from pathlib import Path

_JARS = re.compile(
    r"(hive-(?!storage-api)|spark-(hive|kubernetes|yarn|connect|mllib|graphx|repl)|kubernetes-|vertx-|derby|datanucleus|"
    r"jdo-api|javax\.jdo|HikariCP|libthrift|libfb303|breeze|spire|cats-kernel|algebra_|lapack|arpack|blas|JTransforms|"
    r"scala-compiler|netty-tcnative-boringssl-static-.*-(osx|windows))"
)
_FOLDERS = (
    "pyspark/examples",
    "pyspark/data",
    "pyspark/jars/connect-repl",
    "pyspark/python/lib",
    "pyarrow/tests",
    "pyarrow/include",
)
_NATIVE = re.compile(r"\.(so|dll|jnilib)$")
_OURS = {"x86_64": "librocksdbjni-linux64.so", "aarch64": "librocksdbjni-linux-aarch64.so"}


def main(environment: str) -> None:
    """Slim the PySpark of the virtual environment in the folder `environment`."""
    (packages,) = Path(environment).glob("lib/python3*/site-packages")
    for folder in _FOLDERS:
        shutil.rmtree(packages / folder)
    for jar in (packages / "pyspark/jars").glob("*.jar"):
        if _JARS.match(jar.name):
            jar.unlink()
    (rocksdb,) = (packages / "pyspark/jars").glob("rocksdbjni-*.jar")
    _keep_one_library(rocksdb, _OURS[platform.machine()])


def _keep_one_library(jar: Path, library: str) -> None:
    slim = jar.with_suffix(".slim")
    with zipfile.ZipFile(jar) as full, zipfile.ZipFile(slim, "w", zipfile.ZIP_DEFLATED) as kept:
        for name in full.namelist():
            if name == library or not _NATIVE.search(name):
                kept.writestr(name, full.read(name))
    slim.replace(jar)


if __name__ == "__main__":
    main(sys.argv[1])
