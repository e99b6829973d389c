"""Checking tokens: the cost of many logins at once, and the time that a correct login among them waits."""

import socket
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from argon2 import PasswordHasher

from broker.core import Access
from broker.logins import HELD_BYTES_MAX, THREADS, Logins
from broker.users import UsersFile
from tests.support.processes import BrokerProcess
from tests.support.users import entry
from tests.support.waiting import until_async
from tweetwire import Client, Refusal, SyncClient
from tweetwire.client.engine import pauses
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.listening import accept_forever, listen

pytestmark = pytest.mark.anyio

HERE = "127.0.0.1"


class Scripted:
    """Users whose correct tokens are in `right`. Each check of a token waits until the event `go` is set."""

    def __init__(self) -> None:
        self.checked: list[tuple[str, str]] = []
        self.running = 0
        self.most_running = 0
        self.go = threading.Event()
        self.go.set()
        self._lock = threading.Lock()

    def knows(self, name: str) -> bool:
        return name.startswith("user")

    def access_of(self, name: str) -> Access | None:
        return Access(name) if self.knows(name) else None

    def identify(self, name: str, token: str) -> Access | None:
        with self._lock:
            self.checked.append((name, token))
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        assert self.go.wait(30)
        with self._lock:
            self.running -= 1
        return Access(name) if token == "right" and self.knows(name) else None


@asynccontextmanager
async def checking(logins: Logins) -> AsyncIterator[None]:
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(logins.run)
            yield
            tasks.cancel_scope.cancel()


async def test_a_right_token_is_checked_once_until_the_users_change() -> None:
    users = Scripted()
    logins = Logins(users)
    async with checking(logins):
        for _ in range(3):
            assert await logins.identify("user", "right", HERE) == Access("user")
        assert users.checked == [("user", "right")]
        assert await logins.identify("user", "wrong", HERE) is None
        assert await logins.identify("nobody", "right", HERE) is None
        logins.users = other = Scripted()
        assert await logins.identify("user", "right", HERE) == Access("user")
        assert other.checked == [("user", "right")]


async def test_a_check_that_ends_after_the_users_changed_is_made_again_with_the_new_ones() -> None:
    old, new = Scripted(), Scripted()
    old.go.clear()
    new.knows = lambda name: False  # type: ignore[method-assign]
    logins = Logins(old)
    results: list[Access | None] = []

    async def log_in() -> None:
        results.append(await logins.identify("user", "right", HERE))

    async with checking(logins), anyio.create_task_group() as tasks:
        tasks.start_soon(log_in)
        await until_async(lambda: old.running)
        logins.users = new
        old.go.set()
    assert results == [None]


async def test_few_tokens_are_checked_at_a_time_and_equal_logins_share_one_check() -> None:
    users = Scripted()
    users.go.clear()
    logins = Logins(users)
    results: list[Access | None] = []

    async def log_in(name: str, token: str) -> None:
        results.append(await logins.identify(name, token, HERE))

    async with checking(logins):
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(log_in, f"user{number}", "wrong")
            for _ in range(200):
                tasks.start_soon(log_in, "user", "right")
            await until_async(lambda: users.running == THREADS)
            users.go.set()
        assert users.most_running == THREADS
        assert users.checked.count(("user", "right")) == 1
        assert results.count(Access("user")) == 200


async def test_a_login_without_room_in_the_queue_is_busy_at_once() -> None:
    users = Scripted()
    users.go.clear()
    logins = Logins(users)
    ends: list[str] = []

    async def log_in(token: str) -> None:
        try:
            await logins.identify("user", token, HERE)
        except Refusal as refusal:
            ends.append(refusal.code)
        else:
            ends.append("checked")

    async with checking(logins):
        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(log_in, f"wrong {number}")
            await until_async(lambda: len(ends) >= 30)
            assert set(ends) == {"busy"}
            users.go.set()
            tasks.cancel_scope.cancel()
        with pytest.raises(Refusal, match="busy"):
            await logins.identify("user", "right", HERE, HELD_BYTES_MAX + 1)


async def test_a_check_that_fails_is_busy_and_the_next_one_is_made() -> None:
    users = Scripted()
    logins = Logins(users)
    check = users.identify
    users.identify = lambda name, token: 1 / 0  # type: ignore[assignment, method-assign, return-value]
    async with checking(logins):
        for _ in range(2 * THREADS):
            with pytest.raises(Refusal, match="busy"):
                await logins.identify("user", "right", HERE)
        users.identify = check  # type: ignore[method-assign]
        assert await logins.identify("user", "right", HERE) == Access("user")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (entry("a", "x") + entry("b", "x") + entry("a", "y"), "the user a is defined more than once"),
        (
            '[[users]]\nname = "a"\ntoken = "$argon2id$v=19$m=1048576,t=3,p=4$MTIzNDU2Nzg$MTIzNDU2Nzg5MDEyMzQ1Ng"\n',
            "the hash of a asks for m=1048576, t=3, p=4, more than 64 MiB",
        ),
        (
            '[[users]]\nname = "a"\ntoken = "$argon2id$v=19$m=1024,t=4000,p=1$MTIzNDU2Nzg$MTIzNDU2Nzg5MDEyMzQ1Ng"\n',
            "t=4000",
        ),
        ('[[users]]\nname = "a"\ntoken = "$argon2id$v=19$m=1024,t=1,p=1$MTIz!$?"\n', "not an argon2 hash"),
    ],
)
def test_users_that_are_defined_twice_or_have_a_costly_hash_are_refused_in_one_sentence(
    tmp_path: Path, text: str, sentence: str
) -> None:
    path = tmp_path / "users.toml"
    path.write_text(text)
    with pytest.raises(StartError) as error:
        UsersFile(path)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


async def test_a_client_that_is_refused_as_busy_tries_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's server answers the first login with ``busy``, like a broker under attack."""
    monkeypatch.setattr(pauses, "MAX_S", 0.01)
    greeting, busy, welcome = b"+OK tweetwire broker 1\n", b"-ERR busy many logins\n", b"+OK hello user\n"
    logins = 0

    async def handle(stream: Any) -> None:
        nonlocal logins
        await stream.send(greeting)
        while True:
            for line in (await stream.receive()).splitlines():
                if line.startswith(b"hello"):
                    logins += 1
                    await stream.send(busy if logins == 1 else welcome)
                elif line:
                    await stream.send(b"+PONG\n")

    with anyio.fail_after(60):
        async with (
            await listen("127.0.0.1", 0, "--port") as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(accept_forever, listener, handle, tasks)
            address = f"127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
            async with Client(address, name="user", token="right") as client:
                await client.ping()
            assert logins == 2
            logins = 0
            await anyio.to_thread.run_sync(lambda: SyncClient(address, name="user", token="right").close())
            assert logins == 2
            tasks.cancel_scope.cancel()


def test_sixty_wrong_logins_at_once_cost_little_memory_and_a_right_one_gets_in(tmp_path: Path) -> None:
    """The hash is as expensive as `python -m broker.users` makes it, and each connection tries different tokens."""
    users = tmp_path / "users.toml"
    users.write_text(f'[[users]]\nname = "boss"\ntoken = "{PasswordHasher().hash("right")}"\nsubscribe = ["*"]\n')
    with BrokerProcess(tmp_path / "b", "--users", str(users)) as broker, ExitStack() as stack:
        for number in range(60):
            wrong = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 30))
            wrong.sendall(b"".join(b"hello boss token=wrong%d\n" % (60 * turn + number) for turn in range(2)))
        with SyncClient(broker.address, name="boss", token="right", timeout_s=60.0) as client:
            client.ping()
        with SyncClient(broker.address, name="boss", token="right") as client:
            client.ping()
        assert most_resident_bytes(broker.pid) < 300 << 20


def most_resident_bytes(pid: int) -> int:
    return 1024 * int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0])
