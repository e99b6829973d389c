"""Add totals to the events of windows: each event carries the sums of all windows of its topic up to its own window.

The events of a query arrive in the order of their windows, and each window begins no earlier than the previous one ends. So
`until` in the newest totals of the topic shows which windows they include. When an interrupted commit runs again, it finds the
totals that it has stored. It does not count their windows again, and gives the other windows the same sums as before. Windows
that are already stored are duplicates for the broker. The sums are kept in the topic only.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from spark.connector.link import chunks_back
from tweetwire import Event, SyncClient
from tweetwire.statistics import TWEETS_STATS, USERS_STATS, WINDOWS, Totals, TweetsTotals, UsersTotals

__all__ = ["TOTALS", "newest_totals", "with_totals"]

_Totals = TweetsTotals | UsersTotals

TOTALS: dict[str, type[_Totals]] = {TWEETS_STATS: TweetsTotals, USERS_STATS: UsersTotals}
"""The type of the totals, by the name of the statistic."""


def with_totals(events: Iterable[Event], statistic: str, base: Totals | None) -> list[Event]:
    """Add the member `totals` to the windows `events`, in order, continuing the totals `base`.

    A window that begins before the end of the totals is not added: it is included in them, or belongs to an older query.

    Args:
        events: windows in order; `msg` is the encoded message.
        statistic: the name of the statistic.
        base: the newest totals in the topic, None if there are none.

    Raises:
        msgspec.ValidationError: a message is not a window of `statistic`.
    """
    totals, summed = base, []
    for event in events:
        one = msgspec.json.decode(event.msg, type=WINDOWS[statistic]).as_totals()
        if totals is None:
            totals = one
        elif one.since >= totals.until:
            totals += one
        message = msgspec.json.decode(event.msg, type=dict[str, Raw]) | {"totals": totals}
        summed.append(replace(event, msg=Raw(msgspec.json.encode(message))))
    return summed


def newest_totals(client: SyncClient, topic: str, statistic: str, producer: str | None = None) -> Totals | None:
    """Return the totals that were stored last, by `producer` if it is given; None if the topic holds none."""
    for _, chunks in chunks_back(client, topic):
        newest = None
        for lines in chunks:
            newest = _last_of(lines, TOTALS[statistic], producer) or newest
        if newest is not None:
            return newest
    return None


class _Message(Struct):
    totals: Raw


class _Line(Struct):
    msg: Raw
    producer: str | None = None


def _totals_of(line: bytes, kind: type[Totals], producer: str | None) -> Totals | None:
    event = msgspec.json.decode(line, type=_Line)
    if producer is not None and event.producer != producer:
        return None
    try:
        return msgspec.json.decode(msgspec.json.decode(event.msg, type=_Message).totals, type=kind)
    except msgspec.ValidationError:
        return None


def _last_of(lines: Sequence[bytes], kind: type[Totals], producer: str | None) -> Totals | None:
    found = (_totals_of(line, kind, producer) for line in reversed(lines))
    return next((one for one in found if one is not None), None)
