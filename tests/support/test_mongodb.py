"""The search for a Docker engine leaves no connection open, whatever the answer."""

import gc
import socket
import warnings
from pathlib import Path

import pytest

from tests.support import mongodb


def test_an_engine_whose_socket_refuses_has_no_image_and_leaves_no_socket_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(tmp_path / "docker.sock"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'docker.sock'}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert not mongodb._has_image()
        gc.collect()
    assert caught == []


@pytest.mark.parametrize("engine", ["tcp://127.0.0.1:1", "unix://", "nonsense"])
def test_an_engine_that_cannot_be_asked_has_no_image(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine)
    assert not mongodb._has_image()
