"""The home that Spark starts from, and the archive of Java's classes in it."""

import os
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from spark.apps import home, session

PYSPARK = Path(pyspark.__file__).parent
JAVA = 'openjdk version "17.0.17"'


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the environment's folder by another one, and unset SPARK_HOME."""
    folder = tmp_path / "share" / "spark"
    monkeypatch.setattr(home, "PREPARED", folder)
    monkeypatch.setattr(home, "CLASSES", folder / "classes.jsa")
    monkeypatch.setattr(home, "_MADE_FOR", folder / "versions")
    monkeypatch.setenv("SPARK_HOME", "")
    monkeypatch.delenv("SPARK_HOME")
    return folder


def write_classes() -> None:
    written = home.PREPARED / "written"
    written.write_bytes(b"classes")
    home.keep_classes(written, JAVA)


def test_without_a_prepared_home_one_is_made_for_this_start(prepared: Path) -> None:
    home.use_lean_home()
    used = Path(os.environ["SPARK_HOME"])
    assert used != prepared
    assert sorted(path.name for path in used.iterdir()) == ["bin", "jars"]
    assert (used / "jars").resolve() == (PYSPARK / "jars").resolve()
    assert home.prepared_classes(JAVA) is None


def test_a_prepared_home_is_used_with_its_classes_once_they_are_there(prepared: Path) -> None:
    home.make_prepared_home()
    home.use_lean_home()
    assert os.environ["SPARK_HOME"] == str(prepared)
    assert home.prepared_classes(JAVA) is None
    write_classes()
    assert home.prepared_classes(JAVA) == home.CLASSES


def test_the_classes_of_another_java_are_not_used(prepared: Path) -> None:
    home.make_prepared_home()
    write_classes()
    home.use_lean_home()
    with pytest.raises(ValueError, match="another Java"):
        home.prepared_classes('openjdk version "21.0.1"')


def test_an_incomplete_archive_of_classes_is_not_used(prepared: Path) -> None:
    home.make_prepared_home()
    write_classes()
    home.use_lean_home()
    home.CLASSES.write_bytes(b"class")
    with pytest.raises(ValueError, match="not whole"):
        home.prepared_classes(JAVA)


def test_a_home_of_another_pyspark_is_not_used(prepared: Path, tmp_path: Path) -> None:
    home.make_prepared_home()
    write_classes()
    (prepared / "jars").unlink()
    (prepared / "jars").symlink_to(tmp_path)
    home.use_lean_home()
    assert os.environ["SPARK_HOME"] != str(prepared)
    assert home.prepared_classes(JAVA) is None


def test_a_persons_own_home_is_used_as_it_is(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.make_prepared_home()
    write_classes()
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    home.use_lean_home()
    assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert home.prepared_classes(JAVA) is None


def test_preparing_again_forgets_the_old_classes(prepared: Path) -> None:
    home.make_prepared_home()
    write_classes()
    home.make_prepared_home()
    assert not home.CLASSES.exists()


def test_preparing_again_keeps_the_jars_for_programs_that_run_from_the_home(prepared: Path) -> None:
    home.make_prepared_home()
    before = (prepared / "jars").lstat()
    home.make_prepared_home()
    assert (prepared / "jars").lstat() == before


@pytest.mark.skipif(not home.CLASSES.is_file(), reason="make install has made no archive of Java's classes")
def test_java_takes_the_archive(spark_session: SparkSession) -> None:
    gateway = spark_session.sparkContext._gateway
    assert gateway is not None
    pid = gateway.jvm.java.lang.ProcessHandle.current().pid()
    assert str(home.CLASSES.resolve()) in Path(f"/proc/{pid}/maps").read_text()


def test_the_settings_of_javas_log_are_where_a_session_looks_for_them() -> None:
    assert Path(session._LOG.partition("file:")[2]).is_file()
