"""Access: the names and patterns that decide what a user may do. `broker.logins` finds out which user a connection has.

A pattern *names* a topic if it matches and does not begin with a wildcard (``*``, ``?`` or ``[``). Internal topics need
a pattern that names them, so that ``*`` does not include them; MQTT has the same rule for topics that begin with ``$``.
"""

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, Protocol

from msgspec import Struct

from broker.core.internal_topics import CONFIDENTIAL_TOPICS, INTERNAL_TOPICS, PROGRAM_TOPICS
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.verbs.verb import Command

__all__ = ["EVERYTHING", "NOTHING", "Access"]

_WILDCARDS: Final = ("*", "?", "[")


_SUBSCRIBING: Final = frozenset(
    {
        *(Permission.SUBSCRIBE, Permission.USE, Permission.OWN, Permission.MARK),
        *(Permission.LOOK, Permission.REDRIVE),
    }
)
_ADMINISTERING: Final = frozenset({Permission.REDRIVE, Permission.MANAGE, Permission.ADMIN})


class Owned(Protocol):
    """A subscription to a topic or to a pattern, with the attributes that permissions look at."""

    @property
    def topic(self) -> str:
        """The topic or the pattern."""
        ...

    @property
    def name(self) -> str:
        """The name of the subscription."""
        ...

    @property
    def owners(self) -> tuple[str, ...]:
        """The users that own it. Empty if it was made without users."""
        ...


class Access(Struct, frozen=True):
    """One user's patterns, such as ``stats.*``: of topics to publish to, and of topics to subscribe to or read.

    `share` has patterns ``<topic>/<subscription>`` of other users' subscriptions that this user may use, too. `user` is None
    for a connection that has not logged in.
    """

    user: str | None
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    is_admin: bool = False
    share: tuple[str, ...] = ()

    def check(self, permission: Permission, command: Command) -> None:
        """Raise Refusal ``unauthenticated`` or ``forbidden`` if the user may not run a command that needs `permission`."""
        if permission is Permission.NONE:
            return
        if self.user is None:
            raise Refusal("unauthenticated", "say hello <name> token=<token> first")
        topic = getattr(command, "topic", None)
        if topic is not None and not self._may(permission, topic):
            raise Refusal("forbidden", f"{self.user} needs {_pattern(permission, topic)}")
        if permission in _ADMINISTERING and not self.is_admin:
            raise Refusal("forbidden", f"that is for administrators, and {self.user} is not one")

    def may_publish(self, topic: str) -> bool:
        """Whether events may be published to a topic."""
        return _is_matched(topic, self.publish, must_name=topic in INTERNAL_TOPICS)

    def may_read(self, topic: str) -> bool:
        """Whether the events of a topic may be shown."""
        return _is_matched(topic, self.subscribe, must_name=topic in CONFIDENTIAL_TOPICS)

    def may_see(self, topic: str) -> bool:
        """Whether reports may show a topic: its figures and its documentation, not its events."""
        return _is_matched(topic, (*self.publish, *self.subscribe), must_name=False)

    def may_use(self, subscription: Owned) -> bool:
        """Whether the user may attach to a subscription of a topic that it may read, and see its clients and errors."""
        if self.owns(subscription):
            return True
        place = (subscription.topic, subscription.name)
        return any(_is_place_matched(place, pattern) for pattern in self.share)

    def owns(self, subscription: Owned) -> bool:
        """Whether the user may end or change a subscription: its own, one without an owner, or any for an administrator."""
        return self.is_admin or not subscription.owners or self.user in subscription.owners

    def _may(self, permission: Permission, topic: str) -> bool:
        if permission is Permission.PUBLISH:
            return self.may_publish(topic)
        if permission in _SUBSCRIBING:
            return self.may_read(topic)
        if permission is Permission.MANAGE:
            return _is_matched(topic, self.publish, must_name=False)
        return permission is Permission.ADMIN or self.may_see(topic)


def _pattern(permission: Permission, topic: str) -> str:
    """Return the pattern that a user would need, for the text of a refusal."""
    if permission in {Permission.PUBLISH, Permission.MANAGE}:
        kind, must_name = "a publish", permission is Permission.PUBLISH and topic in INTERNAL_TOPICS
    elif permission in _SUBSCRIBING:
        kind, must_name = "a subscribe", topic in CONFIDENTIAL_TOPICS
    else:
        return f"a pattern for {topic}"
    return f"{kind} pattern that names {topic}; * does not" if must_name else f"{kind} pattern for {topic}"


# Each command checks a topic, mostly one of a few. The size is limited, since clients may invent names.
@lru_cache(maxsize=16_384)
def _is_matched(topic: str, patterns: tuple[str, ...], *, must_name: bool) -> bool:
    return any(
        fnmatchcase(topic, pattern) for pattern in patterns if not (must_name and pattern.startswith(_WILDCARDS))
    )


def _is_place_matched(place: tuple[str, str], pattern: str) -> bool:
    return all(fnmatchcase(name, part) for name, part in zip(place, pattern.split("/"), strict=True))


EVERYTHING = Access("anybody", ("*", *sorted(PROGRAM_TOPICS)), ("*", *sorted(CONFIDENTIAL_TOPICS)), is_admin=True)
"""The access of every client of a broker without users. It includes internal topics, so the patterns name them."""
NOTHING = Access(None)
