"""Make and leave the subscriptions of an async client, and clean up if that is cancelled."""

from contextlib import suppress

import anyio

from tweetwire.client.aio.link import AsyncLink
from tweetwire.client.aio.subscription import Subscription
from tweetwire.client.engine.commands import LeaveCommand, SubscribeCommand
from tweetwire.protocol.errors import BrokerError

__all__ = ["AsyncSubscribing"]


class AsyncSubscribing:
    """Makes and leaves the subscriptions that the client's engine knows."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link
        self._table = link.engine.subscriptions
        self._leaving: dict[str, LeaveCommand] = {}

    async def wait_until_left(self, topic: str) -> None:
        """Wait until a subscription to `topic` that is being left has ended, if there is one."""
        leaving = self._leaving.pop(topic, None)
        if leaving is not None:
            with suppress(BrokerError):
                await self._link.outcome(leaving)

    async def open(self, subscription: Subscription) -> None:
        """Subscribe. After an error or a cancellation, the client can subscribe to the topic again.

        Raises BrokerError, and ValueError if the client already has a subscription to the topic.
        """
        self._table.add(subscription)
        command: SubscribeCommand | None = None
        try:
            await subscription.prepare()
            command = self._link.send(SubscribeCommand(subscription.subscribe_line(), subscription))
            await self._link.outcome(command)
        except BaseException:
            self._table.remove(subscription)
            if command is not None and command.error is None:
                # The broker has made the subscription, or will. Leave it before any other command is sent.
                command.abandon()
                self._link.tell(self._table.abandon(subscription))
            raise

    async def leave(self, subscription: Subscription, *, end: bool) -> None:
        """Unsubscribe, even if this call is cancelled. Raises Refusal.

        A second equal call waits for the reply to the first one.
        """
        command = self._leaving.get(subscription.topic)
        if command is None or command.is_done or command.line != subscription.leave_line(end=end):
            command = self._link.send(self._table.leave_command(subscription, end=end))
            self._leaving[subscription.topic] = command
        await self._link.outcome(command)

    async def finish(self) -> None:
        """Wait until no subscription has anything left to send to the broker."""
        async with anyio.create_task_group() as tasks:
            for subscription in self._table:
                assert isinstance(subscription, Subscription)  # noqa: S101 — an async client adds only async subscriptions
                tasks.start_soon(subscription.finish)
