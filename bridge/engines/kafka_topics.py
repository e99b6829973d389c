"""Look at a topic of Kafka, and make one for a route. A topic that exists is never changed."""

import re
import time
from collections.abc import Mapping
from typing import Any, Final

import anyio
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec
from msgspec import Struct

from bridge.central import EngineUnreachable, NotThereYet
from bridge.engines.kafka_link import KafkaLink, error_of
from tweetwire.protocol.errors import StartError

__all__ = ["TopicState", "end_of", "find_topic", "message_bytes_max", "provide_topic", "start_of"]

_NAME: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_DEFAULT: Final = -1
"""Lets the server choose a number."""
_PAUSE_S: Final = 0.05
_MESSAGE_BYTES: Final = 1_000_000
_SETTLING: Final = frozenset(
    {
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)
"""Answers of a partition that was just made, or has just got another leader."""
_NOT_FOUND: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})


class TopicState(Struct, frozen=True):
    """The state of a topic.

    Attributes:
        name: Its name.
        centre: Its identity, which has the id that Kafka gave it when it was made.
        partitions: The number of its partitions.
        replicas: The least number of replicas of a partition.
    """

    name: str
    centre: str
    partitions: int
    replicas: int


async def find_topic(link: KafkaLink, name: str) -> TopicState | None:
    """Return the state of a topic, None if it does not exist. Raises EngineUnreachable, or StartError for a bad name."""
    if not _NAME.fullmatch(name):
        raise StartError(f"{name!r} cannot name a topic of Kafka: a name has letters, digits, '.', '_' and '-'")
    try:
        found: Any = await link.ask(
            lambda admin, timeout_s: admin.describe_topics(TopicCollection([name]), request_timeout=timeout_s)
        )
    except KafkaException as error:
        if error_of(error).code() in _NOT_FOUND:
            return None
        raise link.failure(error) from error
    replicas = min((len(one.replicas) for one in found.partitions), default=0)
    # Kafka's own programs write an id in this alphabet.
    centre = f"kafka.{found.topic_id}".translate(str.maketrans("+/", "-_"))
    return TopicState(name, centre, len(found.partitions), replicas)


async def provide_topic(
    link: KafkaLink,
    name: str,
    *,
    partitions: int = 0,
    replicas: int = 0,
    create: bool = True,
    config: Mapping[str, str] | None = None,
) -> TopicState:
    """Return a topic, and make it if the route may.

    Args:
        partitions: The number of partitions of a new topic; 0 for the server's default.
        replicas: The least number of replicas; 0 for any.
        create: Whether to make the topic if it does not exist.
        config: The settings of a new topic that are not the server's defaults.

    Raises:
        NotThereYet: There is no such topic, and the route may not make it.
        EngineUnreachable: The cluster does not answer, or refuses for now.
        StartError: The topic has too few replicas, or its name is wrong.
    """
    found = await find_topic(link, name)
    if found is None:
        if not create:
            raise NotThereYet(f"there is no topic {name}")
        await _make(link, NewTopic(name, partitions or _DEFAULT, replicas or _DEFAULT, config=dict(config or {})))
        found = await _appeared(link, name)
    if found.replicas < replicas:
        raise StartError(
            f"the topic {name} has {found.replicas} replicas, and the route needs {replicas}; "
            "give it more with kafka-reassign-partitions, or give a smaller number with replicas="
        )
    return found


async def _appeared(link: KafkaLink, name: str) -> TopicState:
    """Return a topic that was just made. The server shows it a little later."""
    with anyio.move_on_after(link.login.timeout_s):
        while True:
            found = await find_topic(link, name)
            if found is not None:
                return found
            await anyio.sleep(_PAUSE_S)
    raise EngineUnreachable(f"the topic {name} was made, and the server does not show it yet")


async def message_bytes_max(link: KafkaLink, name: str) -> int:
    """Return the most bytes that a topic takes as one batch of messages."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    try:
        found: Any = await link.ask(
            lambda admin, timeout_s: admin.describe_configs([resource], request_timeout=timeout_s)
        )
        return int(found["max.message.bytes"].value)
    except (KafkaException, KeyError, ValueError):
        # The user may write, and may not read the settings. The server's own default is a little more than this.
        return _MESSAGE_BYTES


async def end_of(link: KafkaLink, name: str, partition: int, *, is_stable: bool) -> int:
    """Return the offset that follows the last record of a partition. Raises EngineUnreachable.

    Args:
        is_stable: Whether only those records count that readers see: an open transaction hides itself and what follows it.
    """
    level = IsolationLevel.READ_COMMITTED if is_stable else IsolationLevel.READ_UNCOMMITTED
    return await _offset_of(
        link,
        TopicPartition(name, partition),
        OffsetSpec.latest(),  # type: ignore[no-untyped-call]
        level,
    )


async def start_of(link: KafkaLink, name: str, partition: int) -> int:
    """Return the first offset that a partition still has. Raises EngineUnreachable."""
    return await _offset_of(
        link,
        TopicPartition(name, partition),
        OffsetSpec.earliest(),  # type: ignore[no-untyped-call]
        IsolationLevel.READ_UNCOMMITTED,
    )


async def _offset_of(link: KafkaLink, place: TopicPartition, spec: OffsetSpec, level: IsolationLevel) -> int:
    deadline = time.monotonic() + link.login.timeout_s
    while True:
        try:
            found: Any = await link.ask(
                lambda admin, timeout_s: admin.list_offsets(
                    {place: spec}, isolation_level=level, request_timeout=timeout_s
                )
            )
        except KafkaException as error:
            if error_of(error).code() not in _SETTLING or time.monotonic() > deadline:
                raise link.failure(error) from error
            await anyio.sleep(_PAUSE_S)
        else:
            return int(found.offset)


async def _make(link: KafkaLink, topic: NewTopic) -> None:
    try:
        await link.ask(
            lambda admin, timeout_s: admin.create_topics(
                [topic], operation_timeout=timeout_s, request_timeout=timeout_s
            )
        )
    except KafkaException as error:
        if error_of(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise link.failure(error) from error
