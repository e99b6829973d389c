"""Carry a central topic of several partitions to a topic.

Each partition has its own order, and so its own task, place and producer: those of the route, followed by ``.<partition>``. Two
bridges on one route see the entries of a partition in the same order, so each entry is stored once.
"""

from typing import Final

import anyio
from anyio.abc import TaskGroup

from bridge.central import EngineUnreachable, Partitions
from bridge.inward import Inward
from bridge.route import Route
from bridge.standing import Standing
from tweetwire import BrokerError, Client, Refusal

__all__ = ["InwardPartitions"]

_LOOK_EVERY_S: Final = 30.0
"""How often the route looks whether the topic has got more partitions."""


class InwardPartitions:
    """Carries the entries of all partitions of a route inwards until stopped."""

    def __init__(self, route: Route, client: Client, partitions: Partitions) -> None:
        self.route = route
        self.standing = Standing(str(route), route.topic)
        self._client = client
        self._partitions = partitions
        self._carried: list[Inward] = []
        self._is_stopping = False
        self._looking = anyio.CancelScope()

    def stop(self) -> None:
        """End `run` as soon as all published events are confirmed."""
        self._is_stopping = True
        self._looking.cancel()
        for carried in self._carried:
            carried.stop()

    async def run(self) -> None:
        """Carry entries until stopped. Raises StartError if a person has to change something."""
        try:
            async with anyio.create_task_group() as tasks:
                with anyio.CancelScope() as self._looking:
                    while not self._is_stopping:
                        await self._look(tasks)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                await self._partitions.aclose()

    async def _look(self, tasks: TaskGroup) -> None:
        """Start a task for each new partition, and wait until it is time to look again."""
        try:
            count = await self._partitions.count()
            is_new = not self._carried and await self._is_new(count)
        except (EngineUnreachable, BrokerError) as error:
            await self.standing.pause(error)
            return
        self.standing.opened()
        for partition in range(len(self._carried), count):
            route = self.route.of_partition(partition, is_new=is_new)
            carried = Inward(route, self._client, self._partitions.origin(partition), self.standing)
            self._carried.append(carried)
            tasks.start_soon(carried.run)
        await anyio.sleep(_LOOK_EVERY_S)

    async def _is_new(self, count: int) -> bool:
        """Whether the broker has no place of any partition."""
        for partition in range(count):
            mark = self.route.of_partition(partition, is_new=True).mark
            try:
                known = [await self._client.last(self.route.topic, name) for name in (mark, f"{mark}.seen")]
            except Refusal as refusal:
                if refusal.is_retryable:
                    raise
                # There is no such topic yet, or the tasks meet the same refusal and report it.
                return True
            if any(known):
                return False
        return True
