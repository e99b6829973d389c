"""What a client can ask for: one struct a command."""

from typing import Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from broker.events import IncomingEvent

__all__ = [
    "Ack",
    "Checkpoint",
    "Command",
    "Hello",
    "Help",
    "Last",
    "Ping",
    "Position",
    "Publish",
    "Quit",
    "Read",
    "Stats",
    "Subscribe",
    "SubscriptionPolicy",
    "Topics",
    "Unsubscribe",
]

Position: TypeAlias = int | Literal["earliest", "latest"]


class Publish(Struct, gc=False):
    """One or more ``pub <topic> <event>`` lines behind each other."""

    topic: str
    events: list[IncomingEvent]


class Hello(Struct):
    """``hello <name> [token=…] [quiet] [resume]``"""

    name: str
    is_quiet: bool = False


class SubscriptionPolicy(Struct, frozen=True):
    """What a ``sub`` line says about the subscription itself; UNSET keeps what it has."""

    start: Position | UnsetType = UNSET


class Subscribe(Struct):
    """``sub <topic> [as=…] [prefetch=…] …``; `name` is None for a subscription that ends with its connection."""

    topic: str
    name: str | None
    prefetch: int
    policy: SubscriptionPolicy
    may_create: bool


class Unsubscribe(Struct):
    """``unsub <topic> [as=…]``"""

    topic: str
    name: str | None


class Ack(Struct, gc=False):
    """``ack <topic> <ref>…``: `offsets` where all refs are such, else `refs`, of which text means an id."""

    topic: str
    offsets: list[int] | None
    refs: list[int | str]


class Read(Struct):
    """``read <topic> <offset>|earliest|latest [limit=…] [bytes=…]``"""

    topic: str
    start: Position
    limit: int
    bytes_max: int


class Last(Struct):
    """``last <topic> <producer>``"""

    topic: str
    producer: str


class Checkpoint(Struct):
    """``checkpoint <topic> <producer> <string>``"""

    topic: str
    producer: str
    value: str


class Topics(Struct):
    """``topics``"""


class Stats(Struct):
    """``stats``"""


class Help(Struct):
    """``help [<verb>]``"""

    verb: str | None


class Ping(Struct):
    """``ping``"""


class Quit(Struct):
    """``quit``"""


Command: TypeAlias = (
    Publish | Hello | Subscribe | Unsubscribe | Ack | Read | Last | Checkpoint | Topics | Stats | Help | Ping | Quit
)
