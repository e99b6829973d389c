"""Only one publisher at a time may publish to a topic. The others stand by, and take over when it ends.

The broker decides: a claim gives the leader an epoch, and events with an older epoch are refused. So two publishers can never
mix their events, even if one of them is suspended for an hour between two events. A claim is accepted only while no other
connection holds the producer, so a publisher that starts second waits.
"""

from collections.abc import Callable

import anyio

from change_stream.position_store import until_done
from tweetwire import Client, Refusal
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.program import logger

__all__ = ["FENCED", "Leadership"]

FENCED = "fenced"
"""The code of the broker's refusals if another client has claimed the producer."""

# A standby takes over this long after the end of the leader's connection, at most.
_PAUSE_S = 0.5


class Leadership:
    """The claim of this process on `producer` of `topic`.

    `epoch` is that of the claim, None while another publisher leads. `on_standby` is called whenever this publisher learns
    that it must wait.
    """

    def __init__(self, client: Client, topic: str, producer: str, on_standby: Callable[[], None]) -> None:
        self.epoch: int | None = None
        self.takeovers = 0
        self._client = client
        self._topic = topic
        self._producer = producer
        self._on_standby = on_standby
        self._is_standby = False
        self._connects = 0

    @property
    def is_leading(self) -> bool:
        """Whether this process may publish, as far as it knows."""
        return self.epoch is not None

    async def gain(self) -> int:
        """Wait until this publisher leads, and return its epoch.

        Then the topic has stored or refused every event that was published before.

        Raises Refusal for any other reason than another leader, and StartError if the broker is too old.
        """
        while True:
            try:
                await self._claim()
            except Refusal as refusal:
                if refusal.code == "unknown_command":
                    raise StartError(
                        "the broker is older than this program and knows no claims; update it"
                    ) from refusal
                if refusal.code != FENCED:
                    raise
                self.lose(refusal)
                await anyio.sleep(_PAUSE_S)
                continue
            assert self.epoch is not None  # noqa: S101 — the claim has set it
            return self.epoch

    async def hold(self) -> None:
        """Hold the claim on a new connection, too. Raises Refusal ``fenced`` if another publisher has claimed it."""
        if self._connects != self._client.connects:
            await self._claim()

    def lose(self, refusal: Refusal) -> None:
        """Note that another publisher leads."""
        if not self._is_standby:
            reason = refusal.text
            logger().warning("another publisher leads, standing by", topic=self._topic, reason=reason)
            self._is_standby = True
        self.epoch = None
        self._on_standby()

    async def _claim(self) -> None:
        connects, epoch = self._client.connects, self.epoch
        claim = self._client.claim
        if epoch is None:
            self.epoch = await until_done(lambda: claim(self._topic, self._producer, only_free=True))
        else:
            await until_done(lambda: claim(self._topic, self._producer, epoch=epoch))
        self._connects = connects
        if self._is_standby:
            self._is_standby = False
            self.takeovers += 1
            logger().warning("took over from another publisher", topic=self._topic, epoch=self.epoch)
