"""Run one of the commands. It ends with status 0, or with one sentence and status 2."""

import os
import signal
import sys
from collections.abc import Sequence

from tweetwire.cli.catalogue import load_command
from tweetwire.cli.connection import CommandConnection
from tweetwire.cli.contexts import context_texts
from tweetwire.cli.flags import HelpAsked, given_texts, make_command
from tweetwire.files import why
from tweetwire.protocol.errors import BrokerError, Refusal, StartError, TlsFailed
from tweetwire.runtime.extras import needs_extra

__all__ = ["run_command_line"]


def run_command_line(name: str, words: Sequence[str]) -> int:
    """Run the command `name` with the words after it. Returns the exit status."""
    status: int | None = 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with needs_extra(name, "broker"):
        command = load_command(name)
    try:
        given = given_texts(command, words)
        saved = context_texts(given) if issubclass(command, CommandConnection) else {}
        status = make_command(command, {**saved, **given}).run_command()
        sys.stdout.flush()
    except HelpAsked as asked:
        from tweetwire.cli.flag_help import flag_help  # noqa: PLC0415 — only --help needs it

        sys.stdout.write(flag_help(name, command, is_all=asked.is_all))
    except Refusal as refusal:
        remedy = "; see --name and TWEETWIRE_TOKEN" if refusal.code == "unauthenticated" else ""
        return _refuse(name, f"the broker refuses ({refusal.code}): {refusal.text}{remedy}")
    except TlsFailed as error:
        return _refuse(name, error.with_remedy("--"))
    except (StartError, BrokerError) as error:
        return _refuse(name, str(error))
    except BrokenPipeError:
        # The reader of the output, such as `head`, has ended. Python flushes stdout at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        # The output accepts no more data: its disk is full, or its terminal was closed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _refuse(name, f"cannot write the output: {why(error)}")
    except KeyboardInterrupt:
        return 130
    return status or 0


def _refuse(command: str, sentence: str) -> int:
    print(f"tweetwire {command}: {sentence}", file=sys.stderr, flush=True)
    return 2
