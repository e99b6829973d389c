"""What ``help`` answers: one line a command."""

from typing import Final

from broker.errors import Refusal

__all__ = ["help_text"]

_HELP: Final = {
    "hello": "hello <name> [token=<token>] [quiet] [resume] - names this client; quiet drops the +OK replies to ack and nack;"
    " resume attaches it again to what it was attached to when it left",
    "pub": 'pub <topic> <event> - publishes, e.g. pub tweets {"id":"1","priority":3,"msg":"tweet 1"}',
    "sub": "sub <topic> [as=<subscription>] [prefetch=1] [from=latest|earliest|<offset>|<time>] [timeout=30s] [tries=5]"
    " [strikes=nack,timeout,disconnect] [backoff=0s] [max_wait=60s] [qos=1] [create] - delivers the topic's events to this"
    " connection; with as= the subscription outlives it, and several connections share it",
    "unsub": "unsub <topic> [as=<subscription>] - ends a subscription and forgets what it had pending",
    "ack": "ack <topic> <ref>... - settles events; a ref is an id, or an offset written @1042",
    "nack": 'nack <topic> <ref> [<error>] - gives an event back; the error is "text" or {"message":,"code":,"trace":}',
    "extend": "extend <topic> <ref>... - starts the ack timer of events in flight anew",
    "read": "read <topic> <offset>|earliest|latest|<time> [limit=1000] [bytes=1048576] - reads the log, without state",
    "last": "last <topic> <producer> - the producer's last offset, sequence and checkpoint, or null",
    "checkpoint": "checkpoint <topic> <producer> <string> - moves a producer's checkpoint without an event",
    "pub2": "pub2 <topic> <event> - has an event held for exactly-once publishing; answers +REC, pubrel releases it",
    "pubrel": "pubrel <topic> <id> - stores a held event; answers +COMP with its offset, however often it is asked",
    "pubrec": "pubrec <topic> <ref> - says that this client has an event of a qos=2 subscription on its disk; answers +REL",
    "pubcomp": "pubcomp <topic> <ref> - ends the handshake of an event that this client has taken by pubrec",
    "describe": "describe <topic> [<text>] - says what a topic is for; without a text, shows all that documents it, as JSON",
    "schema": "schema <topic> [<json schema>|none] - sets the JSON Schema (draft 2020-12) that every later event's msg must"
    " meet; without one, shows it",
    "comment": "comment <topic> <text> - adds a remark to a topic",
    "retain": "retain <topic> [age=7d|none] [bytes=10GiB|none] [settled=yes|no] [at_most=20GiB|none] - says how long events"
    " stay; what a durable subscription has not settled stays up to at_most",
    "topics": "topics - what there is, as JSON",
    "stats": "stats - every figure of the broker, as JSON",
    "explain": "explain <topic> <ref> as=<subscription> - why this event has not been delivered, as JSON",
    "chain": "chain <topic> <ref> [limit=1000] - the tree of what caused what that an event is part of, as JSON",
    "dead": "dead [topic=<topic>] [as=<subscription>] [limit=100] - the dead letters, as JSON",
    "redrive": "redrive <topic> as=<subscription> <ref>...|all [rate=1000/s] - gives dead events to it again",
    "unsettled": "unsettled <topic> as=<subscription> [from=<offset>] [limit=10000] - which events wait or are in flight,"
    " as JSON: runs of offsets, and where to ask on",
    "backlog": "backlog <topic> as=<subscription> - what it still has before it by priority, the oldest of it, and who has how"
    " much in flight, as JSON",
    "clients": "clients [limit=1000] - who is connected, as JSON; for administrators",
    "ping": "ping - answers +PONG",
    "help": "help [<command>] - lists the commands, or explains one",
    "quit": "quit - closes this connection",
}
_LONG_NAMES: Final = {
    "publish": "pub",
    "subscribe": "sub",
    "unsubscribe": "unsub",
    "acknowledge": "ack",
    "reject": "nack",
}


def help_text(verb: str | None) -> str:
    """Return the one line for `verb`, or the list of the commands. Raises Refusal for a verb that there is not."""
    if verb is None:
        return f"commands: {' '.join(_HELP)}; type help <command>"
    text = _HELP.get(_LONG_NAMES.get(verb, verb))
    if text is None:
        raise Refusal("unknown_command", f"{verb[:40]}; type help")
    return f"help {text}"
