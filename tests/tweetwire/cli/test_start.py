"""A command starts within 150 ms of processor time, so its process imports only what it needs.

The modules are counted, not the time, which depends on the machine.
"""

import subprocess
import sys
from typing import Final

import pytest

from tests.support.processes import BrokerProcess
from tweetwire.cli.catalogue import COMMANDS

_NEVER: Final = {"pydantic", "pydantic_settings", "structlog", "prometheus_client", "importlib.metadata", "broker"}
_ON_DEMAND: Final = {"rich", "prompt_toolkit", "anyio", "asyncio", "crc32c", "ssl"}
_CODE: Final = """
import sys
from tweetwire.__main__ import main
sys.argv = ["tweetwire", *sys.argv[1:]]
status = main()
print(*sys.modules, file=sys.stderr)
sys.exit(status)
"""


def modules_after(*words: str) -> set[str]:
    """Return the modules that the process of a command has imported before it ends."""
    done = subprocess.run([sys.executable, "-c", _CODE, *words], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("words", [["--version"], ["--help"]])
def test_the_version_and_the_list_of_commands_import_no_library(words: list[str]) -> None:
    assert modules_after(*words) & (_NEVER | _ON_DEMAND | {"msgspec", "argparse", "tweetwire.client"}) == set()


@pytest.mark.parametrize("name", [name for name, entry in COMMANDS.items() if not entry.module.startswith("broker.")])
def test_the_help_of_a_command_imports_neither_its_libraries_nor_a_client(name: str) -> None:
    found = modules_after(*name.split(), "--help")
    assert found & (_NEVER | _ON_DEMAND | {"tweetwire.client.blocking"}) == set()


def test_a_command_imports_rich_for_its_tables_and_no_other_library(broker: BrokerProcess) -> None:
    found = modules_after("topics", "--broker", broker.address)
    assert found & (_NEVER | _ON_DEMAND) == {"rich"}
    found = modules_after("topics", "--json", "--broker", broker.address)
    assert found & (_NEVER | _ON_DEMAND) == set()


def test_the_blocking_client_imports_neither_an_event_loop_nor_tls() -> None:
    code = "import sys; from tweetwire import SyncClient; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert set(done.stdout.split()) & (_NEVER | _ON_DEMAND) == set()
