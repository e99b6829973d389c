"""Which commands there are, and how one of them ends: status 0, or one sentence and status 2."""

import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from broker.cli.chain import Chain
from broker.cli.connection import Connection
from broker.cli.documents import Comment, Describe, Schema
from broker.cli.export import Export
from broker.cli.failures import Dead, Explain, Redrive
from broker.cli.fsck import Fsck
from broker.cli.mock import Mock
from broker.cli.overview import Stats, Subscriptions, Topics
from broker.cli.shell import Shell
from broker.cli.tail import Tail
from broker.errors import BrokerError, Refusal, StartError, TlsFailed
from broker.flags import read_flags

__all__ = ["TYPES", "carry_out"]

TYPES: Final[dict[str, type[Connection | Fsck]]] = {
    "topics": Topics,
    "subscriptions": Subscriptions,
    "tail": Tail,
    "dead": Dead,
    "redrive": Redrive,
    "explain": Explain,
    "chain": Chain,
    "stats": Stats,
    "describe": Describe,
    "schema": Schema,
    "comment": Comment,
    "mock": Mock,
    "export": Export,
    "shell": Shell,
    "fsck": Fsck,
}


def carry_out(argv: Sequence[str]) -> int:
    """Carry out the command that `argv` begins with, one of `TYPES`. Returns the exit status."""
    name, *words = argv
    status = 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        command = read_flags(TYPES[name], words)
        if isinstance(command, Fsck):
            status = command.carry_out()
        else:
            command.carry_out()
        sys.stdout.flush()
    except Refusal as refusal:
        remedy = "; see --name and TWEETWIRE_TOKEN" if refusal.code == "unauthenticated" else ""
        return _refuse(name, f"the broker refuses ({refusal.code}): {refusal.text}{remedy}")
    except TlsFailed as error:
        return _refuse(name, error.with_remedy("--"))
    except (StartError, BrokerError) as error:
        return _refuse(name, str(error))
    except BrokenPipeError:
        # Whoever read the output has seen enough; what is left in the buffer must not fail once more at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    return status


def _refuse(command: str, sentence: str) -> int:
    print(f"python -m broker {command}: {sentence}", file=sys.stderr, flush=True)
    return 2
