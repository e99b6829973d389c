"""On a machine without an embedded MongoDB, `make demo` and `make test` print what to do."""

import os
import subprocess
from pathlib import Path

import pytest

from demo.supported import advice

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("system", "machine"), [("Darwin", "arm64"), ("Darwin", "x86_64"), ("Linux", "aarch64")])
def test_without_an_embedded_mongodb_the_sentence_names_mongo_url_and_docker(system: str, machine: str) -> None:
    sentence = advice("demo", system, machine, has_mongodb=False)
    assert sentence is not None
    assert "MONGO_URL" in sentence
    assert "docker compose up" in sentence
    assert machine in sentence
    assert "\n" not in sentence


def test_a_mongodb_of_the_user_is_enough_anywhere() -> None:
    assert advice("test", "Darwin", "arm64", has_mongodb=True) is None


def test_linux_on_x86_64_needs_nothing() -> None:
    assert advice("demo", "Linux", "x86_64", has_mongodb=False) is None


@pytest.mark.parametrize("target", ["demo", "test"])
def test_make_ends_with_the_sentence_before_it_installs_or_imports_anything(tmp_path: Path, target: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        'import platform\nplatform.system = lambda: "Darwin"\nplatform.machine = lambda: "arm64"\n'
    )
    # The suite itself runs below make, whose variables change what another make prints.
    outer = ("MONGO_URL", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    done = subprocess.run(
        ["make", "--no-print-directory", target, f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    first, *rest = done.stderr.splitlines()
    assert first == advice(target, "Darwin", "arm64", has_mongodb=False)
    assert all(line.startswith("make: ***") for line in rest)
    assert not (tmp_path / "venv").exists()
