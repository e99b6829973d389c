"""``context``: save brokers under names, and choose the broker that commands use."""

import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated

from msgspec import structs

from tweetwire.cli.connection import ConnectionFlags, JsonSwitch
from tweetwire.cli.contexts import Context, Contexts
from tweetwire.cli.display import print_json, table, terminal
from tweetwire.cli.flags import CONNECTION, Command, Flag, argument
from tweetwire.cli.kinds import NAME, SWITCH, TOKEN
from tweetwire.protocol.errors import StartError

__all__ = ["ContextAdd", "ContextList", "ContextRemove", "ContextUse"]

_NewName = Annotated[str, argument(NAME, "name of the context", name="context")]
_SavedName = Annotated[str, argument(NAME._replace(completes="context"), "name of the context", name="context")]


class ContextAdd(ConnectionFlags, kw_only=True):
    """Save a broker under a name, with its user, token and TLS files. A context with this name is replaced."""

    examples = (
        "tweetwire context add prod --broker broker.example:8000 --name ann --token-stdin --tls",
        "tweetwire context add test --broker localhost:8001",
    )

    saved: _NewName
    token_stdin: Annotated[
        bool, Flag(SWITCH, "read the token from stdin; a terminal asks for it", group=CONNECTION, has_variable=False)
    ] = False
    keyring: Annotated[
        bool, Flag(SWITCH, "keep the token in the system's keyring instead of a file that only you can read")
    ] = False

    def run_command(self) -> None:
        """Save the context."""
        self.tls_context()
        context = Context(
            broker=self.broker,
            name=self.name if self.name != ConnectionFlags().name else "",
            tls="true" if self.tls else "",
            tls_ca=_whole(self.tls_ca),
            tls_cert=_whole(self.tls_cert),
            tls_key=_whole(self.tls_key),
        )
        Contexts().add(self.saved, context, self._given_token(), in_keyring=self.keyring)
        print(f"saved {self.saved} ({self.broker}); use it with: tweetwire context use {self.saved}")

    def _given_token(self) -> str | None:
        if not self.token_stdin:
            return self.plain_token
        text = getpass("token: ") if sys.stdin.isatty() else sys.stdin.readline()
        try:
            plain: str = TOKEN.read(text.strip()).plain
        except ValueError as error:
            raise StartError(f"--token-stdin: {error}") from error
        return plain


class ContextUse(Command, kw_only=True):
    """Choose the saved broker that commands use without --broker and --context."""

    examples = ("tweetwire context use prod", "tweetwire context use demo")

    saved: _SavedName

    def run_command(self) -> None:
        """Make the saved broker the current one."""
        contexts = Contexts()
        contexts.use(self.saved)
        print(f"commands now use {self.saved} ({contexts.find(self.saved).broker})")


class ContextRemove(Command, kw_only=True):
    """Remove a saved broker and its token."""

    examples = ("tweetwire context remove test", "tweetwire context remove prod")

    saved: _SavedName

    def run_command(self) -> None:
        """Remove the saved broker."""
        Contexts().remove(self.saved)
        print(f"removed {self.saved}")


class ContextList(Command, kw_only=True):
    """List the saved brokers. Tokens are not shown."""

    examples = ("tweetwire context list", "tweetwire context list --json")

    is_json: JsonSwitch = False

    def run_command(self) -> None:
        """Show a row for each saved broker."""
        contexts = Contexts()
        found = [
            {"context": name, "is_current": name == contexts.current, **structs.asdict(contexts.find(name))}
            for name in contexts.names
        ]
        if self.is_json:
            print_json(found)
        elif found:
            columns = ("context", "current", "broker", "user", "TLS", "token")
            rows = [
                (
                    *(one["context"], one["is_current"], one["broker"], one["name"]),
                    *(any(one[file] for file in ("tls", "tls_ca", "tls_cert", "tls_key")), one["kept_in"] or "none"),
                )
                for one in found
            ]
            terminal().print(table("", columns, rows))
        else:
            print("there are no contexts; save one with: tweetwire context add")


def _whole(path: Path | None) -> str:
    """Return the absolute path of a file: later commands may start in other folders."""
    return "" if path is None else str(path.resolve())
