"""Show the broker to the other brokers of a central engine, and show them to it.

Every few seconds, the broker's heartbeat goes to the engine, and the newest heartbeats of all brokers go to the broker's topic
`cluster_view`. The topic holds all that is known, so the dashboard needs nothing from this program. A broker that does not
answer has no heartbeat, and others see that it is silent. A failure ends no route.
"""

import secrets
import time
from typing import Final

import anyio
import msgspec
from msgspec import structs

from bridge.central import EngineUnreachable, Registry, Sighting
from bridge.heartbeat import heartbeat_of
from tweetwire import BrokerError, Client, Event
from tweetwire.cluster import CLUSTER_VIEW, BrokerSeen, CentreView, bounded_view, read_heartbeat, standing_of
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.program import logger

__all__ = ["Presence"]

_VIEW_BYTES_MAX: Final = 256 << 10
_encode = msgspec.json.Encoder().encode


class Presence:
    """The presence of one broker at one engine.

    Attributes:
        centre: The address of the engine.
        announced: The heartbeats that the engine has taken.
        failures: The turns in which the engine or the broker failed.
        brokers: The brokers that were seen last.
        silent: Those of them that are silent.
    """

    def __init__(self, centre: str, registry: Registry, client: Client, address: str, every_s: float) -> None:
        self.centre = centre
        self.announced = 0
        self.failures = 0
        self.brokers = 0
        self.silent = 0
        self._registry = registry
        self._client = client
        self._address = address
        self._every_s = every_s
        self._is_open = False
        self._reasons: set[str] = set()
        self._seen: list[BrokerSeen] = []
        self._unreadable = 0
        # When the engine last answered, by this machine's monotonic clock
        self._asked_at: float | None = None

    async def run(self) -> None:
        """Send heartbeats and publish views until cancelled. The end is announced to the others."""
        try:
            while True:
                await self._turn()
                await anyio.sleep(self._every_s)
        finally:
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(1):
                    await self._leave()
                with anyio.move_on_after(1):
                    await self._registry.aclose()

    async def _turn(self) -> None:
        trouble = ""
        try:
            await self._exchange()
        except (EngineUnreachable, StartError) as error:
            trouble = str(error) or type(error).__name__
            self._is_open = False
            self._note_failure(trouble)
        except (BrokerError, TimeoutError) as error:
            self._note_failure(str(error) or type(error).__name__)
            return
        try:
            await self._publish(trouble)
        except (BrokerError, TimeoutError) as error:
            self._note_failure(f"{CLUSTER_VIEW}: {error}")
            return
        if not trouble:
            self._reasons.clear()

    async def _exchange(self) -> None:
        """Leave a heartbeat, and read those of all brokers."""
        with anyio.fail_after(self._every_s):
            stats = await self._client.stats()
        if not self._is_open:
            await self._registry.open()
            self._is_open = True
        heartbeat = heartbeat_of(stats, self._address, time.time_ns() // 1_000_000, self._every_s)
        await self._registry.announce(heartbeat.broker, _encode(heartbeat))
        self.announced += 1
        self._note_sightings(await self._registry.sightings())

    def _note_sightings(self, sightings: list[Sighting]) -> None:
        read = [(read_heartbeat(one.heartbeat), one) for one in sightings]
        seen = [BrokerSeen(found, one.age_s) for found, one in read if found is not None and found.broker == one.broker]
        self._seen = sorted(seen, key=lambda one: (one.heartbeat.address, one.heartbeat.broker))
        self._unreadable = len(read) - len(seen)
        self._asked_at = anyio.current_time()
        self.brokers = len(seen)
        self.silent = sum(standing_of(one.heartbeat, one.age_s) == "silent" for one in seen)

    async def _publish(self, trouble: str) -> None:
        """Publish what is known of the brokers. Without an answer of the engine, the last known heartbeats grow older."""
        since_s = None if self._asked_at is None else anyio.current_time() - self._asked_at
        view = CentreView(
            centre=self.centre,
            trouble=trouble,
            asked_s=since_s if trouble else 0.0,
            brokers=[structs.replace(one, age_s=one.age_s + (since_s or 0.0)) for one in self._seen],
            unreadable=self._unreadable,
        )
        event = Event(id=secrets.token_hex(8), key=self.centre, msg=bounded_view(view, _VIEW_BYTES_MAX))
        with anyio.fail_after(self._every_s):
            await self._client.publish(CLUSTER_VIEW, event)

    async def _leave(self) -> None:
        """Announce that no heartbeat will follow."""
        try:
            stats = await self._client.stats()
            last = heartbeat_of(stats, self._address, time.time_ns() // 1_000_000, self._every_s, is_last=True)
            await self._registry.announce(last.broker, _encode(last))
        except (EngineUnreachable, StartError, BrokerError):
            # The others will see that this broker is silent.
            return

    def _note_failure(self, reason: str) -> None:
        """Count a failure. Each reason is logged as a warning once per outage."""
        self.failures += 1
        log = logger().debug if reason in self._reasons else logger().warning
        log("heartbeat failed, retrying", centre=self.centre, reason=reason)
        self._reasons.add(reason)
