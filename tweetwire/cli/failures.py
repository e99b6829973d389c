"""``dead``, ``redrive``, ``discard`` and ``explain``: list dead letters, settle them, and explain the state of an event."""

import re
from typing import TYPE_CHECKING, Annotated, Any, Final

from tweetwire.cli.confirm import YesSwitch, confirm
from tweetwire.cli.connection import SubscriptionFilter, SubscriptionFlag, TopicArgument, TopicFlag
from tweetwire.cli.display import print_json, printable, table, terminal
from tweetwire.cli.flags import Flag, argument
from tweetwire.cli.kinds import REF, whole
from tweetwire.cli.report import ReportCommand, answer, subscription_figures
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.wording import failure_text, iso_time, standing_text

if TYPE_CHECKING:
    from rich.console import Console

    from tweetwire.client.blocking import SyncClient

__all__ = ["Dead", "Discard", "Explain", "Redrive", "RefArgument", "RefsArgument"]


WIDE: Final = 110
"""The columns of a terminal in which a dead event fits with all its cells."""
_OFFSET: Final = re.compile(r"@[0-9]+", re.ASCII)

RefArgument = Annotated[str, argument(REF, "id of a recent event, or the offset of any event (@1042)")]
RefsArgument = Annotated[
    list[str],
    argument(REF, "ids or offsets (@1042) of dead events, or all; use the offset if an id has a space or a comma"),
]


class Dead(ReportCommand, kw_only=True):
    """List the dead letters: events that a subscription has given up on."""

    examples = ("tweetwire dead", "tweetwire dead --topic orders --as billing --limit 20")

    topic: TopicFlag = None
    as_: SubscriptionFilter = None
    limit: Annotated[int, Flag(whole(1, 100_000), "largest number of dead letters to list")] = 100

    def ask(self, client: "SyncClient") -> Any:
        """Ask the broker for the dead events."""
        topic = f" topic={self.topic}" if self.topic else ""
        name = f" as={self.as_}" if self.as_ else ""
        return answer(client.command(f"dead{topic}{name} limit={self.limit}"), 2)

    def run_command(self) -> None:
        """List the dead letters, and say how many there are."""
        with self.connect() as client:
            found = self.ask(client)
            total = self._count(client)
        if self.is_json:
            print_json(found)
            return
        console = terminal()
        self.show(found, console)
        if found:
            shown = "" if len(found) >= total else f", the newest {len(found):,} of them above; show more with --limit"
            console.print("1 dead letter" if total == 1 else f"{total:,} dead letters{shown}")

    def show(self, found: Any, console: "Console") -> None:
        """Show a row for each dead event, with its last failure."""
        if not found:
            console.print("there are no dead letters")
            return
        rows = [_dead_row(one, is_narrow=console.width < WIDE) for one in found]
        console.print(table("", list(rows[0]), [list(row.values()) for row in rows], whole=("died", "event", "tries")))

    def _count(self, client: "SyncClient") -> int:
        """Return the number of dead letters, from the figures of the chosen subscriptions."""
        figures = subscription_figures(client.stats(), self.topic)
        return sum(one["dead"] for one in figures if self.as_ in {None, one["subscription"]})


def _dead_row(one: Any, *, is_narrow: bool) -> dict[str, object]:
    """Return the cells of a dead event by column. A narrow terminal has room for the most important ones."""
    last = one["errors"][-1] if one["errors"] else {}
    died = iso_time(one["last_at"]) if one["last_at"] is not None else None
    row: dict[str, object] = {
        "died": died,
        "topic": one["topic"],
        "event": f"@{one['offset']}",
        "subscription": one["subscription"],
        "tries": one["tries"],
        "cause": last.get("cause"),
        "client": last.get("client"),
        "message": failure_text(last),
        "dead letter": f"@{one['dead_letter']}",
    }
    if is_narrow:
        row["event"] = f"{row.pop('topic')} {row['event']}"
        for column in ("cause", "client", "dead letter"):
            del row[column]
    return row


class Redrive(ReportCommand, kw_only=True):
    """Deliver dead events again to the subscription that gave up on them, and to no other."""

    examples = ("tweetwire redrive orders @1042 --as billing", "tweetwire redrive orders all --as billing --rate 50")

    topic: TopicArgument
    refs: RefsArgument
    as_: SubscriptionFlag
    rate: Annotated[int, Flag(whole(1, 1_000_000), "largest number of redeliveries in a second")] = 1000

    def ask(self, client: "SyncClient") -> Any:
        """Redrive the events."""
        reply = client.command(f"redrive {self.topic} as={self.as_} {' '.join(self.refs)} rate={self.rate}/s")
        return {"topic": self.topic, "subscription": self.as_, "redriven": int(reply.split(" ")[3])}

    def show(self, found: Any, console: "Console") -> None:
        """Show the number of redriven events."""
        count = found["redriven"]
        events = "1 event is delivered" if count == 1 else f"{count:,} events are delivered"
        console.print(f"{events} to {self.as_} again")


class Discard(ReportCommand, kw_only=True):
    """Settle dead events without delivering them: they are no longer listed, and cannot be redriven."""

    examples = ("tweetwire discard orders @1042 --as billing", "tweetwire discard orders all --as billing --yes")

    topic: TopicArgument
    refs: RefsArgument
    as_: SubscriptionFlag
    yes: YesSwitch = False

    def ask(self, client: "SyncClient") -> Any:
        """Settle the events."""
        which = "all dead events" if self.refs == ["all"] else f"the dead events {', '.join(self.refs)}"
        confirm(f"Discard {which} of {self.as_} in {self.topic} at {self.broker}?", yes=self.yes)
        refs: list[int | str] = [int(ref[1:]) if _OFFSET.fullmatch(ref) else ref for ref in self.refs]
        try:
            count = client.discard(self.topic, self.as_, "all" if refs == ["all"] else refs)
        except ValueError as error:
            raise StartError(f"REFS: {error}") from error
        return {"topic": self.topic, "subscription": self.as_, "discarded": count}

    def show(self, found: Any, console: "Console") -> None:
        """Show the number of discarded events."""
        count = found["discarded"]
        console.print("1 event was discarded" if count == 1 else f"{count:,} events were discarded")


class Explain(ReportCommand, kw_only=True):
    """Show the state of an event in a subscription, such as why it is not delivered yet."""

    examples = ("tweetwire explain orders o-1 --as billing", "tweetwire explain orders @1042 --as billing --json")

    topic: TopicArgument
    ref: RefArgument
    as_: SubscriptionFlag

    def ask(self, client: "SyncClient") -> Any:
        """Ask the broker for the event's state."""
        return answer(client.command(f"explain {self.topic} {self.ref} as={self.as_}"), 4)

    def show(self, found: Any, console: "Console") -> None:
        """Show the state as a sentence, the failed tries, and the trace of the last one."""
        standing = printable(standing_text(found))
        console.print(f"@{found['offset']} of {self.topic} for {self.as_}: {standing}", soft_wrap=True)
        if found["failed_tries"]:
            console.print(f"failed tries: {found['failed_tries']}; it becomes a dead letter after {found['tries']}")
        if found["errors"]:
            columns = ("at", "cause", "client", "code", "message")
            rows = ((iso_time(one["at"]), *(one.get(name) for name in columns[1:])) for one in found["errors"])
            console.print(table("", columns, rows))
            if trace := found["errors"][-1].get("trace"):
                console.print("trace of the last failed try:")
                console.print("\n".join(f"  {printable(line)}" for line in trace.splitlines()), soft_wrap=True)
