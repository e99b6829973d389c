"""Clients of the gateway connect and disconnect, within the limits of the system."""

import os
from errno import EMFILE
from pathlib import Path

import anyio
import pytest
from structlog import wrap_logger
from structlog.stdlib import BoundLogger
from structlog.testing import LogCapture

from broker.gateways import EventSource, EventSourceOptions
from broker.gateways.event_source import attendance
from demo.ports import free_port
from tests.broker.gateways.event_source.filling import FillingDisk, serving

pytestmark = pytest.mark.anyio


async def test_without_descriptors_clients_are_closed_and_one_warning_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dup(_: int) -> int:
        raise OSError(EMFILE, os.strerror(EMFILE))

    logs = LogCapture()
    monkeypatch.setattr(attendance, "logger", wrap_logger(None, processors=[logs], wrapper_class=BoundLogger))
    monkeypatch.setattr(os, "dup", dup)
    ports = free_port(), free_port()
    options = EventSourceOptions("127.0.0.1", *ports, 100_000, 100, 60.0, has_inboxes=False, goes_on=False)
    async with serving(tmp_path / "broker", FillingDisk()) as server, EventSource(server, options).open():
        with anyio.fail_after(100):
            for id_ in (b"1\n", b"2\n"):
                async with await anyio.connect_tcp("127.0.0.1", ports[1]) as client:
                    await client.send(id_)
                    with pytest.raises(anyio.EndOfStream):
                        await client.receive()
    assert [(log["log_level"], log["client"]) for log in logs.entries] == [("warning", "1")]
