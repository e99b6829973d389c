"""Test at a start whether a store lets only one of several creators of a name win. The fence depends on this.

Some stores that speak S3 accept the condition and ignore it, or check it and then write. With such a store two brokers could
both believe that they own a chain, so it is refused.
"""

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from broker.tiers.errors import StoreUnusable
from broker.tiers.object_names import probe_object
from broker.tiers.store import Store

__all__ = ["probe_store"]

CREATORS: Final = 8


def probe_store(store: Store, chain: str) -> None:
    """Have eight threads create one object at the same time. Raises StoreUnusable if not exactly one wins, StoreAway."""
    name = probe_object(chain, secrets.token_hex(11))
    try:
        with ThreadPoolExecutor(CREATORS) as threads:
            won = list(threads.map(lambda number: store.create(name, b"%d" % number), range(CREATORS)))
        # A store may refuse all of several requests at the same time. Then the next one alone must succeed.
        won.append(store.create(name, b"%d" % CREATORS))
        if sum(won) != 1:
            raise StoreUnusable(
                f"{store.shown} let {sum(won)} of {len(won)} writers create the same object, so it cannot keep two brokers"
                " apart; use a store with conditional writes (If-None-Match)"
            )
        held = store.get(name)
        if held != b"%d" % won.index(True):
            raise StoreUnusable(f"{store.shown} does not return what was written to it last; use another store")
    finally:
        store.delete([name])
