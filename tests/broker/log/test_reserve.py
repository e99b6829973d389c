"""The disk space that is reserved for acks."""

import os
from pathlib import Path

import pytest

from broker.log.reserve import Reserve


def test_a_system_without_posix_fallocate_keeps_the_same_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    reserve = Reserve(tmp_path / "RESERVE", (1 << 20) + 1)
    reserve.take()
    assert reserve.is_held
    assert (tmp_path / "RESERVE").stat().st_size == (1 << 20) + 1
