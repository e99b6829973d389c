"""The exactly-once handshakes as one table. For a state and a step, it has the next state and the line to send.

Each direction has a half at the broker and a half at the client. A half writes its new state to its disk before it sends
the line of the table. So either side can crash, or the connection can break, at any point. The side that is still there,
or comes back, repeats its last step, and the other side answers from its state. A step without an entry is refused.

Publishing::   client  pub2 →      broker        Consuming::   broker  event →         client
               client      ← +REC  broker                      broker        ← pubrec  client
               client  pubrel →    broker                      broker  +REL →          client
               client     ← +COMP  broker                      broker       ← pubcomp  client
"""

from enum import Enum
from typing import Final, NamedTuple

__all__ = ["TABLE", "Half", "Move", "State", "Step", "markdown", "move"]


class Half(Enum):
    """One side of a handshake. The value says which program keeps the state, and the key of the state."""

    BROKER_PUBLISHING = "The broker, of a message that is published; by client, topic and id"
    CLIENT_PUBLISHING = "The client, of a message that it publishes; by topic and id"
    BROKER_CONSUMING = "The broker, of an event that it delivers; by client, topic, subscription and offset"
    CLIENT_CONSUMING = "The client, of an event that it was given; by topic, subscription and offset"


class State(Enum):
    """The state of a message at one half."""

    NOTHING = "nothing is known"
    HELD = "held"
    STORING = "on its way to the log"
    STORED = "in the log"
    KEPT = "kept, to be sent"
    RECEIVED = "the broker holds it"
    CONFIRMED = "done, forgotten"
    IN_FLIGHT = "in flight"
    TAKEN = "taken by the client"
    SETTLED = "settled"
    ARRIVED = "arrived"
    OWNED = "the client's, handed over"
    ACKED = "acked by the application"


class Step(Enum):
    """An occurrence that moves a message: a line that arrives, or an answer of the disk or the application."""

    PUBLISH = "the application publishes"
    PUB2 = "`pub2`"
    REC = "`+REC`"
    PUBREL = "`pubrel`"
    WRITTEN = "the log has it"
    NO_EVENT = "`-ERR no_event`"
    NOT_WRITTEN = "the log could not be written"
    COMP = "`+COMP`"
    EVENT = "the event's line"
    PUBREC = "`pubrec`"
    REL = "`+REL`"
    STALE = "`-ERR stale`"
    ACK = "the application acks"
    PUBCOMP = "`pubcomp`"
    OK_COMP = "`+OK comp`"


class Move(NamedTuple):
    """The result of a step. `says` is the line for the other side, or empty for no line."""

    state: State
    says: str = ""


TABLE: Final[dict[Half, dict[tuple[State, Step], Move]]] = {
    Half.CLIENT_PUBLISHING: {
        (State.NOTHING, Step.PUBLISH): Move(State.KEPT, "pub2"),
        (State.KEPT, Step.REC): Move(State.RECEIVED, "pubrel"),
        (State.RECEIVED, Step.REC): Move(State.RECEIVED, "pubrel"),
        (State.RECEIVED, Step.COMP): Move(State.CONFIRMED),
        (State.RECEIVED, Step.NO_EVENT): Move(State.KEPT, "pub2"),
    },
    Half.BROKER_PUBLISHING: {
        (State.NOTHING, Step.PUB2): Move(State.HELD, "+REC"),
        (State.HELD, Step.PUB2): Move(State.HELD, "+REC"),
        (State.HELD, Step.PUBREL): Move(State.STORING, "+COMP"),
        (State.STORING, Step.PUB2): Move(State.STORING, "+REC"),
        (State.STORING, Step.PUBREL): Move(State.STORING, "+COMP"),
        (State.STORING, Step.WRITTEN): Move(State.STORED),
        (State.STORING, Step.NOT_WRITTEN): Move(State.HELD, "-ERR disk"),
        (State.STORED, Step.PUB2): Move(State.STORED, "+REC"),
        (State.STORED, Step.PUBREL): Move(State.STORED, "+COMP"),
    },
    Half.BROKER_CONSUMING: {
        (State.IN_FLIGHT, Step.PUBREC): Move(State.TAKEN, "+REL"),
        (State.TAKEN, Step.PUBREC): Move(State.TAKEN, "+REL"),
        (State.TAKEN, Step.PUBCOMP): Move(State.SETTLED, "+OK comp"),
        (State.SETTLED, Step.PUBREC): Move(State.SETTLED, "+REL"),
        (State.SETTLED, Step.PUBCOMP): Move(State.SETTLED, "+OK comp"),
    },
    Half.CLIENT_CONSUMING: {
        (State.NOTHING, Step.EVENT): Move(State.ARRIVED, "pubrec"),
        (State.ARRIVED, Step.EVENT): Move(State.ARRIVED, "pubrec"),
        (State.ARRIVED, Step.REL): Move(State.OWNED),
        (State.ARRIVED, Step.STALE): Move(State.CONFIRMED),
        (State.OWNED, Step.EVENT): Move(State.OWNED, "pubrec"),
        (State.OWNED, Step.REL): Move(State.OWNED),
        (State.OWNED, Step.STALE): Move(State.OWNED),
        (State.OWNED, Step.ACK): Move(State.ACKED, "pubcomp"),
        (State.ACKED, Step.EVENT): Move(State.ACKED, "pubrec"),
        (State.ACKED, Step.REL): Move(State.ACKED, "pubcomp"),
        (State.ACKED, Step.OK_COMP): Move(State.CONFIRMED),
        (State.ACKED, Step.STALE): Move(State.CONFIRMED),
    },
}


def move(half: Half, state: State, step: Step) -> Move | None:
    """Return the result of a step, or None if the step is refused."""
    return TABLE[half].get((state, step))


def markdown() -> str:
    """Write the table as Markdown for the documentation: for each half, one row for each state and step."""
    parts = []
    for half, moves in TABLE.items():
        rows = [
            f"| {state.value} | {step.value} | {to.state.value} | {f'`{to.says}`' if to.says else ''} |"
            for (state, step), to in moves.items()
        ]
        parts.append(
            "\n".join(
                [f"**{half.value}**", "", "| state | step | next state | says |", "| --- | --- | --- | --- |", *rows]
            )
        )
    return "\n\n".join(parts) + "\n"
