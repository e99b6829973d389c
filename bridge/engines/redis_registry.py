"""The registry of brokers in Redis and Valkey.

A sorted set has the time of each broker's newest heartbeat, and a hash has its content. Both keys expire by themselves once no
broker is left. The times are those of the server. The names have one tag, so that a cluster keeps both keys on one node.
"""

from typing import Final

from bridge.central import BROKERS_MAX, KEPT_S, Sighting
from bridge.engines.redis_link import RedisLink, RedisLogin

__all__ = ["RedisRegistry"]

_KEYS: Final = ("{tweetwire}:brokers", "{tweetwire}:heartbeats")

_COMMON: Final = """
local brokers, heartbeats = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
"""

_ANNOUNCE: Final = (
    _COMMON
    + """
local kept = tonumber(ARGV[3])
redis.call('ZADD', brokers, string.format('%.0f', now), ARGV[1])
redis.call('HSET', heartbeats, ARGV[1], ARGV[2])
local gone = redis.call('ZRANGEBYSCORE', brokers, '-inf', string.format('%.0f', now - kept))
local over = redis.call('ZCARD', brokers) - tonumber(ARGV[4])
if over > #gone then gone = redis.call('ZRANGE', brokers, 0, over - 1) end
for _, broker in ipairs(gone) do
  redis.call('ZREM', brokers, broker)
  redis.call('HDEL', heartbeats, broker)
end
redis.call('PEXPIRE', brokers, ARGV[3])
redis.call('PEXPIRE', heartbeats, ARGV[3])
"""
)
"""Store a heartbeat and remove old ones. ARGV: broker, heartbeat, milliseconds to keep, the most brokers."""

_LOOK: Final = (
    _COMMON
    + """
local found = {}
local since = string.format('(%.0f', now - tonumber(ARGV[1]))
local seen = redis.call('ZRANGEBYSCORE', brokers, since, '+inf', 'WITHSCORES')
for at = 1, #seen, 2 do
  local heartbeat = redis.call('HGET', heartbeats, seen[at])
  if heartbeat then found[#found + 1] = {seen[at], now - tonumber(seen[at + 1]), heartbeat} end
end
return found
"""
)
"""Return broker, age in milliseconds and heartbeat of all. ARGV: milliseconds after which a heartbeat is left out."""


class RedisRegistry:
    """Keeps the heartbeats of brokers in a server."""

    def __init__(self, login: RedisLogin, *, kept_s: float = KEPT_S, brokers_max: int = BROKERS_MAX) -> None:
        self._link = RedisLink(login, _KEYS[0])
        self._kept_ms = round(kept_s * 1000)
        self._brokers_max = brokers_max

    async def open(self) -> None:
        """Connect. Raises the errors of `Registry.open`."""
        await self._link.connect()

    async def announce(self, broker: str, heartbeat: bytes) -> None:
        """Replace the heartbeat of a broker."""
        await self._link.run(_ANNOUNCE, _KEYS, broker, heartbeat, self._kept_ms, self._brokers_max)

    async def sightings(self) -> list[Sighting]:
        """Return the newest heartbeat of each broker."""
        found = await self._link.run(_LOOK, _KEYS, self._kept_ms)
        return [
            Sighting(broker.decode(errors="replace"), heartbeat, max(0, age_ms) / 1000)
            for broker, age_ms, heartbeat in found
        ]

    async def aclose(self) -> None:
        """Close the connection."""
        await self._link.aclose()
