"""The type of the command handlers.

A handler does not wait. It leaves exactly one reply, or one job or reading that makes the reply, or raises Refusal.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from broker.core.session import Session
from tweetwire.protocol.verbs.verb import Command

__all__ = ["Handler", "Handlers"]

Handler: TypeAlias = Callable[[Session, Any, int], None]
"""A handler takes the session, the command, and the time in milliseconds."""

Handlers: TypeAlias = Mapping[type[Command], Handler]
