"""What a connection may do. Decided by names and patterns alone; who somebody is, is found out elsewhere."""

from fnmatch import fnmatchcase

from msgspec import Struct

from broker.errors import Refusal
from broker.protocol import commands

__all__ = ["EVERYTHING", "NOTHING", "Access"]

_OPEN = (commands.Hello, commands.Help, commands.Ping, commands.Quit)
_PUBLISHING = (
    commands.Publish,
    commands.Pub2,
    commands.Pubrel,
    commands.Checkpoint,
    commands.Describe,
    commands.SetSchema,
    commands.Comment,
    commands.Retain,
)
_ADMINISTERING = (commands.Redrive, commands.Clients, commands.SetSchema, commands.Retain)


class Access(Struct, frozen=True):
    """Patterns (``tweets``, ``stats.*``, ``*``) of the topics that may be published to and subscribed to or read.

    An administrator may redrive on the topics that it may subscribe to, and set the schemas and the retention of those it
    may publish to.
    `user` is None for somebody who has not said a valid ``hello``.
    """

    user: str | None
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    is_admin: bool = False

    def check(self, command: commands.Command) -> None:
        """Raise Refusal ``unauthenticated`` or ``forbidden`` if the command may not be carried out."""
        if isinstance(command, _OPEN):
            return
        if self.user is None:
            raise Refusal("unauthenticated", "say hello <name> token=<token> first")
        topic = getattr(command, "topic", None)
        patterns = self.publish if isinstance(command, _PUBLISHING) else self.subscribe
        if topic is not None and not any(fnmatchcase(topic, pattern) for pattern in patterns):
            raise Refusal("forbidden", f"{self.user} may not do that on {topic}")
        if isinstance(command, _ADMINISTERING) and not self.is_admin:
            raise Refusal("forbidden", f"{self.user} does not administer")

    def may_read(self, topic: str) -> bool:
        """Whether the events of a topic may be shown."""
        return any(fnmatchcase(topic, pattern) for pattern in self.subscribe)

    def may_see(self, topic: str) -> bool:
        """Whether reports may tell of a topic."""
        return any(fnmatchcase(topic, pattern) for pattern in (*self.publish, *self.subscribe))


EVERYTHING = Access("anybody", ("*",), ("*",), is_admin=True)
NOTHING = Access(None)
