"""What a client can ask for: one struct a command."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from broker.events import IncomingEvent

__all__ = [
    "Ack",
    "Backlog",
    "Chain",
    "Checkpoint",
    "Clients",
    "Command",
    "Comment",
    "Dead",
    "Describe",
    "Documentation",
    "Explain",
    "Extend",
    "Hello",
    "Help",
    "Last",
    "Moment",
    "Nack",
    "Ping",
    "Position",
    "Pub2",
    "Pubcomp",
    "Publish",
    "Pubrec",
    "Pubrel",
    "Quit",
    "Read",
    "Redrive",
    "Retain",
    "Schema",
    "SetSchema",
    "Stats",
    "Subscribe",
    "Topics",
    "Unsettled",
    "Unsubscribe",
]


class Moment(Struct, frozen=True):
    """A time to begin at, in milliseconds since 1970 UTC."""

    at_ms: int


Position: TypeAlias = int | Literal["earliest", "latest"] | Moment


class Publish(Struct, gc=False):
    """One or more ``pub <topic> <event>`` lines behind each other."""

    topic: str
    events: list[IncomingEvent]


class Pub2(Struct):
    """``pub2 <topic> <event>``"""

    topic: str
    event: IncomingEvent


class Pubrel(Struct):
    """``pubrel <topic> <id>``"""

    topic: str
    id: str


class Pubrec(Struct):
    """``pubrec <topic> <ref>``; `word` is the ref as it stands."""

    topic: str
    ref: int | str
    word: str


class Pubcomp(Struct):
    """``pubcomp <topic> <ref>``; `word` is the ref as it stands."""

    topic: str
    ref: int | str
    word: str


class Hello(Struct):
    """``hello <name> [token=…] [quiet] [resume]``"""

    name: str
    is_quiet: bool = False
    is_resuming: bool = False
    token: str | None = None

    def __repr__(self) -> str:
        """Never show the token."""
        return f"Hello({self.name!r})"


class Subscribe(Struct):
    """``sub <topic> [as=…] [prefetch=…] …``; `name` is None for a subscription that ends with its connection.

    `start` counts when it is new; `change` holds the members of its `Policy` that are given.
    """

    topic: str
    name: str | None
    prefetch: int
    start: Position
    change: dict[str, Any]
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


class Nack(Struct):
    """``nack <topic> <ref> [<error>]``: the error is the consumer's own words."""

    topic: str
    ref: int | str
    message: str | None = None
    code: str | int | None = None
    trace: str | None = None


class Extend(Struct):
    """``extend <topic> <ref>…``"""

    topic: str
    refs: list[int | str]


class Explain(Struct):
    """``explain <topic> <ref> as=<subscription>``"""

    topic: str
    ref: int | str
    name: str


class Chain(Struct):
    """``chain <topic> <ref> [limit=…]``"""

    topic: str
    ref: int | str
    limit: int


class Dead(Struct):
    """``dead [topic=…] [as=…] [limit=…]``"""

    topic: str | None
    name: str | None
    limit: int


class Redrive(Struct):
    """``redrive <topic> as=<subscription> <ref>…|all [rate=<n>/s]``; `refs` is None for all, `rate` events a second."""

    topic: str
    name: str
    refs: list[int | str] | None
    rate: int


class Unsettled(Struct):
    """``unsettled <topic> as=<subscription> [from=<offset>] [limit=…]``"""

    topic: str
    name: str
    start: int
    limit: int


class Backlog(Struct):
    """``backlog <topic> as=<subscription>``"""

    topic: str
    name: str


class Clients(Struct):
    """``clients [limit=…]``"""

    limit: int


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


class Describe(Struct):
    """``describe <topic> <text>``"""

    topic: str
    text: str


class Documentation(Struct):
    """``describe <topic>``"""

    topic: str


class SetSchema(Struct):
    """``schema <topic> <json schema>|none``; `schema` is None for none."""

    topic: str
    schema: str | None


class Schema(Struct):
    """``schema <topic>``"""

    topic: str


class Comment(Struct):
    """``comment <topic> <text>``"""

    topic: str
    text: str


class Retain(Struct):
    """``retain <topic> [age=…] [bytes=…] [settled=…] [at_most=…]``; `change` holds the members of its `Retention` given."""

    topic: str
    change: dict[str, Any]


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
    Publish
    | Pub2
    | Pubrel
    | Pubrec
    | Pubcomp
    | Hello
    | Subscribe
    | Unsubscribe
    | Ack
    | Nack
    | Extend
    | Explain
    | Chain
    | Dead
    | Redrive
    | Unsettled
    | Backlog
    | Clients
    | Read
    | Last
    | Checkpoint
    | Describe
    | Documentation
    | SetSchema
    | Schema
    | Comment
    | Retain
    | Topics
    | Stats
    | Help
    | Ping
    | Quit
)
