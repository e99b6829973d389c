"""``sub``: consume a topic, with acks.

An event is acked only after it was written to stdout. So if the reader of the output did not get an event, the event is
delivered again.
"""

import os
import select
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

from tweetwire.cli.connection import CommandConnection, TopicsArgument
from tweetwire.cli.display import event_line, event_writer
from tweetwire.cli.flags import OUTPUT, Flag
from tweetwire.cli.interruption import Interruption, noting_signals
from tweetwire.cli.kinds import NAME, SWITCH, choice, whole
from tweetwire.cli.places import PLACE
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.events import StoredEvent
from tweetwire.protocol.policy import Ordered

if TYPE_CHECKING:
    from tweetwire.client.blocking import SyncSubscription

__all__ = ["Sub"]

Ack = Literal["auto", "prompt", "none"]

POLL_S: Final = 0.2
EXTEND_S: Final = 1.0
PREFETCH: Final = 200
PROMPT: Final = "ack, nack [REASON], skip or quit? "


class Sub(CommandConnection, kw_only=True):
    """Consume a topic, or all topics of a pattern, with acks.

    The broker delivers each event to one of the subscription's consumers, until it is acked. With --as NAME the
    subscription stays when this command ends, and continues from there the next time. Without a name it ends.
    """

    examples = ("tweetwire sub orders --as billing --ack prompt", "tweetwire sub 'orders.*' --as billing --json")

    topic: TopicsArgument
    as_: Annotated[
        str | None,
        Flag(
            NAME._replace(completes="subscription"),
            "the subscription",
            default="a new one, which ends with the command",
        ),
    ] = None
    ack: Annotated[
        Ack,
        Flag(
            choice("auto", "prompt", "none"),
            "when to ack: after the event was written; as you answer; never, so that the events are given back at the end",
        ),
    ] = "auto"
    prefetch: Annotated[
        int | None,
        Flag(whole(1, 100_000), "largest number of events in flight", default=f"{PREFETCH}, or 1 with --ack prompt"),
    ] = None
    from_: Annotated[
        int | str | None, Flag(PLACE, "where a new subscription starts", name="from", default="latest")
    ] = None
    ordered: Annotated[
        Ordered | None,
        Flag(
            choice("none", "key"),
            "with key, the events of one key go to one consumer at a time, in order",
            default="as the subscription is, or none",
        ),
    ] = None
    count: Annotated[int | None, Flag(whole(1), "end after this many events", default="no limit")] = None
    is_json: Annotated[bool, Flag(SWITCH, "write each event as a line of JSON", name="json", group=OUTPUT)] = False

    def run_command(self) -> None:
        """Consume until the count or a signal. Raises BrokerError, StartError."""
        with self.connect() as client, noting_signals() as interruption:
            subscription = client.subscribe(
                self.topic,
                as_=self.as_,
                prefetch=self._most_in_flight,
                from_="latest" if self.from_ is None else self.from_,
                ordered=self.ordered,
            )
            if self.ack == "prompt":
                self._prompt(subscription, interruption)
            else:
                self._consume(subscription, interruption)

    @property
    def _most_in_flight(self) -> int:
        prefetch = self.prefetch or (1 if self.ack == "prompt" else PREFETCH)
        # Do not take more events than the count: this command would not use them, and other consumers could not get them.
        return prefetch if self.count is None else min(prefetch, self.count)

    def _consume(self, subscription: "SyncSubscription", interruption: Interruption) -> None:
        show = _shower(is_json=self.is_json, names_topic=subscription.is_pattern)
        left = self.count
        while left != 0 and not interruption.is_asked:
            events = subscription.take(within_s=POLL_S)[:left]
            show(events)
            if self.ack == "auto" and events:
                subscription.ack(events)
            left = None if left is None else left - len(events)

    def _prompt(self, subscription: "SyncSubscription", interruption: Interruption) -> None:
        show = _shower(is_json=self.is_json, names_topic=subscription.is_pattern)
        answers = _Answers(subscription, interruption)
        left = self.count
        while left != 0 and not interruption.is_asked:
            for event in subscription.take(within_s=POLL_S)[:left]:
                show([event])
                if not answers.settle(event):
                    return
                left = None if left is None else left - 1


class _Answers:
    """Asks the user about events. While it waits for an answer, the events stay in flight here."""

    def __init__(self, subscription: "SyncSubscription", interruption: Interruption) -> None:
        self._subscription = subscription
        self._interruption = interruption
        self._typed = b""
        self._has_ended = False

    def settle(self, event: StoredEvent) -> bool:
        """Ask until an answer is valid, and carry it out. Returns False if the user wants to end."""
        while True:
            print(PROMPT, end="", file=sys.stderr, flush=True)
            answer = self._answer(event)
            word, _, reason = (answer or "quit").strip().partition(" ")
            if word in {"a", "ack"}:
                self._subscription.ack([event])
            elif word in {"n", "nack"}:
                self._subscription.nack(event, reason.strip() or None)
            elif word in {"q", "quit"}:
                return False
            elif word not in {"s", "skip"}:
                continue
            return True

    def _answer(self, event: StoredEvent) -> str | None:
        """Wait for a line, and return it, None at the end of the input or after a signal."""
        waited_s = 0.0
        while b"\n" not in self._typed and not self._has_ended:
            if self._interruption.is_asked:
                return None
            if select.select([sys.stdin], [], [], POLL_S)[0]:
                data = os.read(sys.stdin.fileno(), 1 << 16)
                self._typed += data
                self._has_ended = not data
                continue
            waited_s += POLL_S
            if waited_s >= EXTEND_S:
                waited_s = 0.0
                self._keep(event)
        line, _, self._typed = self._typed.partition(b"\n")
        return None if self._has_ended and not line else line.decode(errors="replace")

    def _keep(self, event: StoredEvent) -> None:
        """Restart the event's ack timer. Otherwise the event would be delivered to another consumer while the user reads."""
        try:
            self._subscription.extend([event])
        except Refusal as refusal:
            if refusal.code != "stale":
                raise


def _shower(*, is_json: bool, names_topic: bool) -> Callable[[Sequence[StoredEvent]], None]:
    """Return a function that writes events and flushes stdout."""
    write = event_writer(is_json=is_json, names_topic=names_topic)

    def show(events: Sequence[StoredEvent]) -> None:
        for event in events:
            write(event_line(event))
        if events:
            sys.stdout.flush()

    return show
