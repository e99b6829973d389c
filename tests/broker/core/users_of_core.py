"""Users of a core without sockets, for tests of permissions."""

import json
from typing import Any, Final

from broker.core import Access, Session
from tests.broker.core.harness import Core

__all__ = ["ALICE", "BOB", "BOSS", "SHARING", "answer", "codes", "connect"]

ALICE: Final = Access("alice", ("*",), ("*",))
BOB: Final = Access("bob", ("*",), ("*",))
BOSS: Final = Access("boss", ("*",), ("*",), is_admin=True)
SHARING: Final = Access("carol", ("*",), ("*",), share=("t/s*",))


def connect(core: Core, access: Access, *lines: str) -> Session:
    session = core.connect()
    core.broker.grant(session, access, core.now_ms)
    core.type(session, f"hello {access.user}", *lines)
    return session


def codes(lines: list[str]) -> list[str]:
    """Return the code of each refusal, and the first character of other replies."""
    return [line.split()[1] if line.startswith("-ERR") else line[0] for line in lines]


def answer(core: Core, session: Session, line: str) -> Any:
    (reply,) = core.type(session, line)
    assert reply.startswith("+OK"), reply
    return json.loads(reply[min(at for at in (reply.find("{"), reply.find("[")) if at >= 0) :])
