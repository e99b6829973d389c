"""Commands that ask the broker one thing and show the answer."""

from typing import Any

import msgspec
from pydantic import Field
from rich.console import Console

from broker.cli.connection import Connection
from broker.cli.display import print_json, terminal
from broker.sync_client import SyncClient

__all__ = ["Report", "answer"]


class Report(Connection):
    """Shows `ask`'s answer: as JSON for programs, else through `show`."""

    is_json: bool = Field(False, alias="json", description="write one line of JSON instead of tables")

    def carry_out(self) -> None:
        """Ask, and show the answer."""
        with self.connect() as client:
            found = self.ask(client)
        if self.is_json:
            print_json(found)
        else:
            self.show(found, terminal())

    def ask(self, client: SyncClient) -> Any:
        """Return the answer, of what JSON can hold. Raises Refusal."""
        raise NotImplementedError

    def show(self, found: Any, console: Console) -> None:
        """Show the answer to a person."""
        raise NotImplementedError


def answer(reply: str, words: int) -> Any:
    """Decode the JSON behind the first `words` words of a reply."""
    return msgspec.json.decode(reply.split(" ", words)[words])
