"""The table of all commands and programs.

It names the module of each command instead of importing it, so that a command imports only what it needs. For the same reason,
it can contain ``fsck``, whose code belongs to the broker.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tweetwire.cli.flags import Command

__all__ = ["COMMANDS", "FILES", "GROUPS", "PROGRAMS", "Entry", "Program", "load_command", "nearest"]

EVERYDAY: Final = "everyday"
TOPICS: Final = "topics"
SUBSCRIPTIONS: Final = "subscriptions"
FAILURES: Final = "failures"
ADMINISTRATION: Final = "administration"
FILES: Final = "files"
GROUPS: Final = (EVERYDAY, TOPICS, SUBSCRIPTIONS, FAILURES, ADMINISTRATION, FILES)
"""The groups of commands, in the order of ``--help``."""


class Entry(NamedTuple):
    """A command: its group, one line that says what it does, its module, and the name of its class there."""

    group: str
    summary: str
    module: str
    class_name: str


class Program(NamedTuple):
    """A program: the module that ``python -m`` starts, and one line that says what it is."""

    module: str
    summary: str


COMMANDS: Final[dict[str, Entry]] = {
    "pub": Entry(EVERYDAY, "publish one event, or one for each line of stdin", "pub", "Pub"),
    "sub": Entry(EVERYDAY, "consume a topic, with acks", "sub", "Sub"),
    "request": Entry(EVERYDAY, "publish an event, and wait for the reply to it", "request", "Request"),
    "tail": Entry(EVERYDAY, "show a topic's events as they are stored", "tail", "Tail"),
    "read": Entry(EVERYDAY, "show the events from a place on, and end", "read", "Read"),
    "top": Entry(EVERYDAY, "watch rates, consumers and lags", "top", "Top"),
    "shell": Entry(EVERYDAY, "type commands of the protocol, with completion and colours", "shell", "Shell"),
    "topics": Entry(TOPICS, "list the topics", "overview", "Topics"),
    "create": Entry(TOPICS, "make a topic", "topic_changes", "Create"),
    "retain": Entry(TOPICS, "set how long the events of a topic stay", "topic_changes", "Retain"),
    "purge": Entry(TOPICS, "delete the events of a topic, or those before a place", "topic_changes", "Purge"),
    "drop": Entry(TOPICS, "delete a topic", "topic_changes", "Drop"),
    "describe": Entry(TOPICS, "set or show the description of a topic", "documents", "Describe"),
    "schema": Entry(TOPICS, "set, show or remove the schema of a topic's events", "documents", "Schema"),
    "comment": Entry(TOPICS, "add a comment to a topic", "documents", "Comment"),
    "marks": Entry(TOPICS, "list how far other systems have a topic", "marks", "Marks"),
    "mark": Entry(TOPICS, "report that another system has the events below an offset", "marks", "Mark"),
    "unmark": Entry(TOPICS, "forget a mark", "marks", "Unmark"),
    "confirm": Entry(TOPICS, "set which marks a publisher waits for", "marks", "Confirm"),
    "mock": Entry(TOPICS, "make sample events that match a topic's schema", "mock", "Mock"),
    "subscriptions": Entry(SUBSCRIPTIONS, "list the subscriptions", "overview", "Subscriptions"),
    "backlog": Entry(SUBSCRIPTIONS, "show what a subscription still has to deliver", "overview", "Backlog"),
    "seek": Entry(SUBSCRIPTIONS, "continue a subscription at another place", "subscription_changes", "Seek"),
    "pause": Entry(SUBSCRIPTIONS, "deliver no more events to a subscription", "subscription_changes", "Pause"),
    "resume": Entry(SUBSCRIPTIONS, "deliver events to a paused subscription again", "subscription_changes", "Resume"),
    "unsub": Entry(SUBSCRIPTIONS, "end a subscription", "subscription_changes", "Unsub"),
    "dead": Entry(FAILURES, "list the dead letters", "failures", "Dead"),
    "explain": Entry(FAILURES, "say why an event is not delivered yet", "failures", "Explain"),
    "chain": Entry(FAILURES, "show the causes and the consequences of an event", "chain", "Chain"),
    "redrive": Entry(FAILURES, "deliver dead events again", "failures", "Redrive"),
    "discard": Entry(FAILURES, "settle dead events without delivering them", "failures", "Discard"),
    "clients": Entry(ADMINISTRATION, "list the connections of clients", "overview", "Clients"),
    "cluster": Entry(ADMINISTRATION, "show the brokers that share a central engine", "cluster", "Cluster"),
    "stats": Entry(ADMINISTRATION, "show all figures of the broker", "overview", "Stats"),
    "forget": Entry(ADMINISTRATION, "remove a topic's record of a producer", "producers", "Forget"),
    "context add": Entry(ADMINISTRATION, "save a broker under a name", "context", "ContextAdd"),
    "context use": Entry(ADMINISTRATION, "choose the saved broker that commands use", "context", "ContextUse"),
    "context list": Entry(ADMINISTRATION, "list the saved brokers", "context", "ContextList"),
    "context remove": Entry(ADMINISTRATION, "remove a saved broker", "context", "ContextRemove"),
    "completion": Entry(
        ADMINISTRATION, "print the script that completes words in a shell", "completion_scripts", "CompletionScript"
    ),
    "export": Entry(FILES, "write the events of a topic, or unsettled events", "export", "Export"),
    "backup": Entry(FILES, "copy a running broker to a folder", "backup", "Backup"),
    "restore": Entry(FILES, "write the folder of a broker from a backup or a tier", "broker.restore", "Restore"),
    "tiers": Entry(FILES, "list, check or tidy the object store of a broker", "broker.tiers_command", "Tiers"),
    "fsck": Entry(FILES, "check the folder of a stopped broker", "broker.fsck", "Fsck"),
}
"""The commands in the order of ``--help``. A module without a dot is in this package."""

PROGRAMS: Final[dict[str, Program]] = {
    "broker": Program("broker", "the message broker"),
    "users": Program("broker.users", "makes an entry for the users file of the broker"),
    "bridge": Program("bridge", "topics to and from a central engine; compares them"),
    "dashboard": Program("dashboard", "the web dashboard of a broker"),
    "ingest": Program("sse_ingest", "Server-Sent Events to MongoDB"),
    "simulator": Program("sse_ingest.simulator", "a server that sends invented tweets"),
    "change-stream": Program("change_stream", "MongoDB's changes to a broker"),
    "subscriber": Program("subscriber", "the stress run; its history"),
    "spark": Program("spark", "the statistics' jobs, the backfill, the console, the plot"),
    "demo": Program("demo", "everything at once"),
}


def load_command(name: str) -> "type[Command]":
    """Import the module of a command, and return its class. Raises ModuleNotFoundError if a package is not installed."""
    entry = COMMANDS[name]
    module = entry.module if "." in entry.module else f"{__package__}.{entry.module}"
    command: type[Command] = getattr(import_module(module), entry.class_name)
    return command


def nearest(word: str) -> str | None:
    """Return the command or program whose name is most similar to `word`, or None if none is similar."""
    from difflib import get_close_matches  # noqa: PLC0415 — imported here, because only a wrong word needs it

    return next(iter(get_close_matches(word, [*COMMANDS, *PROGRAMS], n=1, cutoff=0.5)), None)
