"""Look at a stream of JetStream, and make one for a route.

A stream that a bridge has made has a mark in its metadata. Only such a stream is changed when a route needs more of it: another
subject, or more replicas. A stream that a person has made is never changed; the refusal says which setting it lacks.
"""

import base64
import re
from typing import Any, Final

from msgspec import Struct

from bridge.central import EngineUnreachable, NotThereYet
from bridge.engines.jetstream_link import ApiError, JetStreamLink
from bridge.engines.jetstream_messages import position_in
from bridge.engines.jetstream_subjects import covers
from tweetwire.protocol.errors import StartError

__all__ = ["MADE_BY", "Newest", "StreamState", "find_stream", "newest_of", "provide_stream"]

_NAME: Final = re.compile(r"[^\s.*>/\\]{1,255}")
_NOT_FOUND: Final = 10059
_NO_MESSAGE: Final = 10037
_HOPELESS: Final = {
    10052: "has a setting that the server refuses",
    10065: "would take subjects of another stream; give the route other ones with subject=",
    10074: "cannot have more than one replica, because the server is not part of a cluster; give replicas=1",
}
MADE_BY: Final = ("made-by", "tweetwire-bridge")


class StreamState(Struct, frozen=True):
    """The state of a stream.

    Attributes:
        name: Its name.
        centre: Its identity, which has the time at which it was made.
        config: Its settings.
        first: The sequence of its first message that is left.
        last: The sequence of its newest message, which may have been removed since; 0 if there was never one.
    """

    name: str
    centre: str
    config: dict[str, Any]
    first: int
    last: int

    @property
    def subjects(self) -> list[str]:
        """The subjects that the stream takes."""
        return self.config.get("subjects") or []

    @property
    def is_ours(self) -> bool:
        """Whether a bridge has made the stream."""
        key, value = MADE_BY
        return bool((self.config.get("metadata") or {}).get(key) == value)


class Newest(Struct, frozen=True):
    """The newest message of a filter: its sequence, and its position, "" if no bridge wrote it."""

    sequence: int
    position: str


async def find_stream(link: JetStreamLink, name: str) -> StreamState | None:
    """Return the state of a stream, None if it does not exist. Raises EngineUnreachable, or StartError for a bad name."""
    if not _NAME.fullmatch(name):
        raise StartError(
            f"{name!r} cannot name a stream of JetStream: a name has no dot, *, >, slash, backslash or space"
        )
    try:
        return _state(name, await link.api(f"STREAM.INFO.{name}"))
    except ApiError as error:
        if error.number == _NOT_FOUND:
            return None
        raise


async def provide_stream(
    link: JetStreamLink, name: str, filter_: str, subject: str, *, replicas: int, create: bool
) -> StreamState:
    """Return a stream that takes the messages of a route, and make or change it if the route may.

    Args:
        filter_: Matches the messages of the route.
        subject: The subject to add to the stream where it does not take them yet.
        replicas: The least number of replicas; 0 for any.
        create: Whether to make the stream if it does not exist.

    Raises:
        NotThereYet: There is no such stream, and the route may not make it.
        EngineUnreachable: The server does not answer, or refuses for now.
        StartError: The stream cannot take the messages.
    """
    found = await find_stream(link, name)
    if found is None:
        if not create:
            raise NotThereYet(f"there is no stream {name}")
        config = {
            "name": name,
            "subjects": [subject],
            "storage": "file",
            "retention": "limits",
            "discard": "old",
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_msg_size": -1,
            "num_replicas": max(1, replicas),
            "allow_atomic": True,
            "allow_direct": True,
            "metadata": dict([MADE_BY]),
        }
        found = await _configure(link, "CREATE", config)
    lacks = _lacks(found, filter_, replicas)
    if lacks and found.is_ours and create and found.config.get("allow_atomic"):
        subjects = found.subjects if _takes(found, filter_) else [*found.subjects, subject]
        number = max(replicas, int(found.config.get("num_replicas") or 1))
        found = await _configure(link, "UPDATE", {**found.config, "subjects": subjects, "num_replicas": number})
        lacks = _lacks(found, filter_, replicas)
    if lacks:
        raise StartError(f"the stream {name} {lacks}")
    return found


async def newest_of(link: JetStreamLink, name: str, filter_: str) -> Newest | None:
    """Return the newest message of a filter, None if there is none. Raises EngineUnreachable."""
    try:
        message = (await link.api(f"STREAM.MSG.GET.{name}", {"last_by_subj": filter_}))["message"]
    except ApiError as error:
        if error.number == _NO_MESSAGE:
            return None
        if error.number == _NOT_FOUND:
            raise EngineUnreachable(f"the stream {name} was deleted") from error
        raise
    return Newest(int(message["seq"]), position_in(base64.b64decode(message.get("hdrs") or b"")))


async def _configure(link: JetStreamLink, verb: str, config: dict[str, Any]) -> StreamState:
    name = config["name"]
    try:
        return _state(name, await link.api(f"STREAM.{verb}.{name}", config))
    except ApiError as error:
        if error.number in _HOPELESS:
            raise StartError(f"the stream {name} {_HOPELESS[error.number]} ({error})") from error
        raise


def _state(name: str, info: Any) -> StreamState:
    state = info["state"]
    centre = f"nats.{name}.{info['created']}"
    return StreamState(name, centre, info["config"], int(state["first_seq"]), int(state["last_seq"]))


def _takes(found: StreamState, filter_: str) -> bool:
    return any(covers(subject, filter_) for subject in found.subjects)


def _lacks(found: StreamState, filter_: str, replicas: int) -> str:
    """Return what a stream lacks for a route, "" if it lacks nothing."""
    if not found.config.get("allow_atomic"):
        return "takes no atomic batches; allow them with `nats stream edit --allow-batch` (nats-server 2.12 or later)"
    if not _takes(found, filter_):
        return f"takes no messages with the subject {filter_}; add it to its subjects, or give the route others with subject="
    if replicas > int(found.config.get("num_replicas") or 1):
        return f"has fewer than {replicas} replicas; give it more with `nats stream edit --replicas {replicas}`"
    return ""
