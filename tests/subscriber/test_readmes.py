"""Run the programs of the two READMEs unchanged: that of the main README publishes, and the handler prints the event."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.subscriber.handlers.test_app import WITHIN_S, dead_letters, until_settled
from tests.support.paths import ROOT
from tests.support.processes import BrokerProcess
from tweetwire import Client


def program(readme: str, broker: BrokerProcess, heading: str = "") -> str:
    """Return the first program after a heading of a README, changed to the address of the test's broker."""
    text = (ROOT / readme).read_text()
    found = re.search(r"```python\n(.*?)```", text[text.index(heading) :], re.DOTALL)
    assert found is not None
    assert "localhost:8000" in found[1]
    return found[1].replace("localhost:8000", broker.address)


def start(code: str, tmp_path: Path) -> "subprocess.Popen[str]":
    file = tmp_path / "program.py"
    file.write_text(code)
    command = [sys.executable, str(file)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def test_the_main_readme_publishes_and_the_handlers_ten_lines_print_it(broker: BrokerProcess, tmp_path: Path) -> None:
    with start(program("README.md", broker, "## From Python"), tmp_path) as publisher:
        assert publisher.stdout is not None
        assert publisher.stdout.readline() == "0 o-1 {'total': 12.5}\n"
        publisher.kill()
    with start(program("subscriber/README.md", broker), tmp_path) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == "an order of 12.5\n"
        anyio.run(until_settled, broker, 1)
        service.send_signal(signal.SIGTERM)
        service.communicate(timeout=WITHIN_S)
    assert service.returncode == 0
    assert anyio.run(dead_letters, broker, 0) == []


@pytest.mark.anyio
async def test_the_lines_that_the_readmes_show_are_accepted(broker: BrokerProcess) -> None:
    typed = [
        line.strip()
        for readme in ("README.md", "subscriber/README.md")
        for line in re.findall(r"pub orders \{.*?\}(?=`|\n)", (ROOT / readme).read_text())
    ]
    assert len(typed) >= 2
    async with await anyio.connect_tcp("127.0.0.1", broker.port) as telnet:
        await telnet.send("\r\n".join([*typed, ""]).encode())
        async with Client(broker.address) as client:
            while {topic.topic: topic.next for topic in await client.topics()}.get("orders", 0) < len(typed):
                pass
