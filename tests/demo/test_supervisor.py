"""The supervisor with real processes: small Python programs that serve, die, refuse to start, or ignore SIGTERM."""

import os
import signal
import sys
import textwrap
from pathlib import Path

import anyio
import pytest

from demo.child import Child
from demo.programs import Program, ProgramState, is_explained
from demo.supervisor import supervised
from tests.support.waiting import until_async
from tweetwire.protocol.errors import StartError

pytestmark = pytest.mark.anyio

SERVES = """
    import signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print('{"event": "thing ready on 127.0.0.1:1234", "level": "info"}', flush=True)
    time.sleep(60)
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def program(name: str, code: str, *arguments: str, **options: object) -> Program:
    return Program(name=name, argv=(sys.executable, "-c", textwrap.dedent(code), *arguments), **options)  # type: ignore[arg-type]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


async def test_a_program_is_ready_by_its_log_and_ends_in_order(tmp_path: Path) -> None:
    async with supervised([program("thing", SERVES)], tmp_path) as supervisor:
        with anyio.fail_after(60):
            await supervisor.wait_ready()
        assert supervisor["thing"].address == "127.0.0.1:1234"
    assert supervisor["thing"].state is ProgramState.STOPPED
    assert supervisor["thing"].restarts == 0


async def test_a_program_starts_only_when_the_programs_that_it_needs_are_ready(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    slow = program(
        "slow",
        """
        import pathlib, sys, time
        while not pathlib.Path(sys.argv[1]).exists():
            time.sleep(0.01)
        print("slow ready on here", flush=True)
        time.sleep(60)
        """,
        str(gate),
    )
    async with supervised([program("thing", SERVES, needs=("slow",)), slow], tmp_path) as supervisor:
        await until_async(lambda: supervisor["slow"].state is ProgramState.STARTING)
        assert supervisor["thing"].state is ProgramState.WAITING
        gate.touch()
        with anyio.fail_after(60):
            await supervisor.wait_ready()
        assert supervisor["thing"].ready_at >= supervisor["slow"].ready_at


async def test_a_killed_program_is_started_again_and_its_death_explained(tmp_path: Path) -> None:
    async with supervised([program("thing", SERVES)], tmp_path) as supervisor:
        with anyio.fail_after(60):
            await supervisor.wait_ready()
        child = supervisor["thing"]
        first = child.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until_async(lambda: child.restarts == 1 and child.is_ready)
        assert child.pid not in (None, first)
        assert [(death.reason, death.is_explained) for death in child.deaths] == [("was killed by SIGKILL", True)]


async def test_a_crash_is_a_restart_without_an_explanation(tmp_path: Path) -> None:
    crashes_once = program(
        "thing",
        """
        import pathlib, sys, time
        print("thing ready on here", flush=True)
        mark = pathlib.Path(sys.argv[1])
        if not mark.exists():
            mark.touch()
            print("  | KeyError: 'cheese'\\n  +----------------", file=sys.stderr, flush=True)
            raise SystemExit(1)
        time.sleep(60)
        """,
        str(tmp_path / "mark"),
    )
    async with supervised([crashes_once], tmp_path) as supervisor:
        child = supervisor["thing"]
        await until_async(lambda: child.restarts == 1 and child.is_ready)
        assert child.deaths[0].reason == "ended with status 1: KeyError: 'cheese'"
        assert not child.deaths[0].is_explained


async def test_a_program_that_cannot_start_logs_the_reason_and_ends_the_others(tmp_path: Path) -> None:
    refuses = program(
        "late", 'import sys; print("port 8000 is in use", file=sys.stderr); sys.exit(2)', needs=("thing",)
    )
    pids: list[int] = []

    async def run() -> None:
        async with supervised([program("thing", SERVES), refuses], tmp_path) as supervisor:
            await supervisor["thing"].became_ready.wait()
            pids.append(supervisor["thing"].pid or 0)
            await anyio.sleep_forever()

    with pytest.raises(StartError, match=r"late ended with status 2: port 8000 is in use; see its log: .*late\.log"):
        await run()
    assert not is_alive(pids[0])


async def test_a_program_that_may_end_is_not_started_again(tmp_path: Path) -> None:
    done = program("once", 'print("once ready on here")', may_end=True)
    async with supervised([done], tmp_path) as supervisor:
        await until_async(lambda: supervisor["once"].state is ProgramState.ENDED)
        assert supervisor["once"].restarts == 0


async def test_a_program_that_does_not_end_in_time_is_killed_with_its_children(tmp_path: Path) -> None:
    stubborn = program(
        "stubborn",
        """
        import signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print(f"stubborn ready on {grandchild.pid}", flush=True)
        time.sleep(60)
        """,
        stop_within_s=0.2,
    )
    async with supervised([stubborn], tmp_path) as supervisor:
        with anyio.fail_after(60):
            await supervisor.wait_ready()
        child: Child = supervisor["stubborn"]
        grandchild = int(child.address)
        await supervisor.stop("stubborn")
    await until_async(lambda: not is_alive(grandchild))


async def test_a_program_is_prepared_before_it_counts_as_ready(tmp_path: Path) -> None:
    prepared: list[str] = []
    thing = program("thing", SERVES, prepare=lambda: prepared.append("yes"))
    async with supervised([thing], tmp_path) as supervisor:
        with anyio.fail_after(60):
            await supervisor.wait_ready()
        assert prepared == ["yes"]


async def test_children_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    code = """
        import sys, anyio
        from pathlib import Path
        from demo.programs import Program
        from demo.supervisor import supervised
        async def main():
            thing = Program(name="thing", argv=(sys.executable, "-c", sys.argv[1]))
            async with supervised([thing], Path(sys.argv[2])) as supervisor:
                await supervisor.wait_ready()
                print(supervisor["thing"].pid, flush=True)
                await anyio.sleep_forever()
        anyio.run(main)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), textwrap.dedent(SERVES), str(tmp_path)]
    async with await anyio.open_process(command) as parent:
        assert parent.stdout is not None
        pid = int(await parent.stdout.receive())
        assert is_alive(pid)
        parent.kill()
    await until_async(lambda: not is_alive(pid))


@pytest.mark.parametrize(
    ("status", "is_need_away", "explained"),
    [
        (-signal.SIGKILL, False, True),
        (2, True, True),
        (2, False, False),
        (1, True, False),
        (-signal.SIGSEGV, True, False),
    ],
)
def test_a_death_is_explained_by_a_signal_from_outside_or_a_missing_server(
    status: int, is_need_away: bool, explained: bool
) -> None:
    assert is_explained(status, is_need_away) is explained
