"""Find the subscription or the offset that a command names."""

import re
from typing import Final

from broker.core.patterns import Pattern
from broker.core.session import Session
from broker.core.topic.subscription import Subscription
from broker.core.topic.topic import Topic
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.positions import Moment, Position

__all__ = ["ANONYMOUS", "check_owner", "find_subscription", "may_have", "not_yours", "start_offset"]

ANONYMOUS: Final = re.compile(r"conn-[0-9]+")
"""The names of subscriptions that end with their connection."""


def find_subscription(session: Session, topic: Topic, name: str) -> Subscription:
    """Return a subscription that a session may name. Raises Refusal ``not_subscribed``.

    An anonymous subscription can be named on its own connection only; for the others it does not exist.
    """
    subscription = topic.subscriptions.get(name)
    if subscription is None or not (subscription.is_durable or session.is_attached_to(topic.name, name)):
        raise Refusal("not_subscribed", f"{topic.name} has no subscription {name}")
    return subscription


def check_owner(session: Session, subscription: Subscription) -> None:
    """Raise Refusal ``forbidden`` if the user may not end or change a subscription."""
    if not session.access.owns(subscription):
        raise not_yours(session, subscription)


def may_have(session: Session, subscription: Subscription) -> bool:
    """Whether a session may be attached to a subscription. An anonymous subscription belongs to its connection."""
    if not session.access.may_read(subscription.topic):
        return False
    return not subscription.is_durable or session.access.may_use(subscription)


def not_yours(session: Session, subscription: Subscription | Pattern) -> Refusal:
    """Return the refusal of a command about a subscription of another user."""
    place = f"{subscription.topic}/{subscription.name}"
    return Refusal(
        "forbidden",
        f"{place} is not a subscription of {session.access.user}; see share in python -m broker.users --help",
    )


def start_offset(topic: Topic, start: Position, now_ms: int) -> int:
    """Return the offset of a position. ``latest`` is the offset after the last visible event."""
    if isinstance(start, Moment):
        return topic.log.offset_at(start.at_ms, topic.dates.of(now_ms))
    if start == "earliest":
        return topic.log.earliest
    return start if isinstance(start, int) else topic.visible
