"""``dead``, ``redrive`` and ``explain``: what was not delivered, why, and how to have it delivered after all."""

from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field
from pydantic_settings import CliPositionalArg
from rich.console import Console

from broker.cli.connection import command_config
from broker.cli.display import printable, table, time_text
from broker.cli.report import Report, answer
from broker.program import Name
from broker.sync_client import SyncClient

__all__ = ["Dead", "Explain", "Redrive"]


def _ref(text: str) -> str:
    if not text or text.split() != [text]:
        raise ValueError("an id with spaces can only be meant by its offset: @1042")
    return text


Ref = Annotated[str, AfterValidator(_ref)]


class Dead(Report):
    """List the dead letters: events that a subscription has given up on."""

    model_config = command_config("dead")

    topic: Name | None = Field(None, description="only those of this topic (default: all)")
    as_: Name | None = Field(None, alias="as", description="only those of this subscription (default: all)")
    limit: int = Field(100, ge=1, le=100_000, description="most that are listed (events)")

    def ask(self, client: SyncClient) -> Any:
        """Ask for the dead events."""
        topic = f" topic={self.topic}" if self.topic else ""
        name = f" as={self.as_}" if self.as_ else ""
        return answer(client.command(f"dead{topic}{name} limit={self.limit}"), 2)

    def show(self, found: Any, console: Console) -> None:
        """Show a row for each, with the last failure's words."""
        columns = ("topic", "event", "subscription", "tries", "died", "cause", "client", "message", "dead letter")
        rows = []
        for one in found:
            last = one["errors"][-1] if one["errors"] else {}
            words = [str(last[name]) for name in ("code", "message") if last.get(name) is not None]
            died = time_text(one["last_at"]) if one["last_at"] is not None else None
            rows.append(
                (
                    *(one["topic"], f"@{one['offset']}", one["subscription"], one["tries"], died),
                    *(last.get("cause"), last.get("client"), " ".join(words), f"@{one['dead_letter']}"),
                )
            )
        console.print(table("", columns, rows) if rows else "there are no dead letters")


class Redrive(Report):
    """Give dead events again, to the one subscription that gave up on them."""

    model_config = command_config("redrive")

    topic: CliPositionalArg[Name] = Field(description="topic of the events")
    refs: CliPositionalArg[list[Ref]] = Field(
        description="ids of dead events or their offsets (@1042), or all; an id with a space or a comma by its offset"
    )
    as_: Name = Field(alias="as", description="the subscription")
    rate: int = Field(1000, ge=1, le=1_000_000, description="most that are given again (events a second)")

    def ask(self, client: SyncClient) -> Any:
        """Have the events given again."""
        reply = client.command(f"redrive {self.topic} as={self.as_} {' '.join(self.refs)} rate={self.rate}/s")
        return {"topic": self.topic, "subscription": self.as_, "redriven": int(reply.split(" ")[3])}

    def show(self, found: Any, console: Console) -> None:
        """Say how many."""
        count = found["redriven"]
        events = "1 event goes" if count == 1 else f"{count:,} events go"
        console.print(f"{events} to {self.as_} again")


class Explain(Report):
    """Tell why an event has not been delivered to a subscription, or what became of it."""

    model_config = command_config("explain")

    topic: CliPositionalArg[Name] = Field(description="topic of the event")
    ref: CliPositionalArg[Ref] = Field(description="id of a recent event, or the offset of any (@1042)")
    as_: Name = Field(alias="as", description="the subscription")

    def ask(self, client: SyncClient) -> Any:
        """Ask where the event stands."""
        return answer(client.command(f"explain {self.topic} {self.ref} as={self.as_}"), 4)

    def show(self, found: Any, console: Console) -> None:
        """Say it in a sentence, and list the failed tries."""
        told = _STATES[found["state"]](found)
        console.print(f"@{found['offset']} of {self.topic} {printable(told)} ({self.as_})", soft_wrap=True)
        if found["failed_tries"]:
            console.print(f"failed tries: {found['failed_tries']}; a dead letter after {found['tries']}")
        if found["errors"]:
            columns = ("at", "cause", "client", "code", "message", "trace")
            rows = ((time_text(one["at"]), *(one.get(name) for name in columns[1:])) for one in found["errors"])
            console.print(table("", columns, rows))


_STATES: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "settled": lambda _: "has been settled",
    "behind_retention": lambda found: f"was removed by retention; the log begins at @{found['earliest']}",
    "before_start": lambda _: "is older than the subscription, which began behind it",
    "in_flight": lambda found: f"is in flight with {found['client']} ({found['peer']})",
    "waiting": lambda found: f"waits behind {found['behind']} others: {found['because']}",
    "delayed": lambda found: f"waits until {time_text(found['until'])}, its pause after a failed try",
    "dead": lambda found: (
        "is dead" + ("" if found["dead_letter"] is None else f": dead_letters @{found['dead_letter']}")
    ),
}
