"""Test at a start whether a store lets only one of several creators of a name win. The fence depends on this.

Some stores that speak S3 accept the condition and ignore it, or check it and then write. With such a store two brokers could
both believe that they own a chain, so it is refused.
"""

import secrets
from threading import Thread
from typing import Final

from broker.tiers.errors import StoreAway, StoreUnusable
from broker.tiers.object_names import probe_object
from broker.tiers.store import Store

__all__ = ["probe_store"]

CREATORS: Final = 8
TRIES: Final = 3


def probe_store(store: Store, chain: str) -> None:
    """Have eight threads create one object at the same time. Raises StoreUnusable if several win, StoreAway if none does."""
    for _ in range(TRIES):
        if _has_winner(store, probe_object(chain, secrets.token_hex(11))):
            return
    # The reply to a winner may be lost, and the repetition of the request then finds its own object.
    raise StoreAway(f"{store.shown} refused all writers that created an object")


def _has_winner(store: Store, name: str) -> bool:
    try:
        won = _race(store, name)
        # A store may refuse all of several requests at the same time. Then the next one alone must succeed.
        won.append(store.create(name, b"%d" % CREATORS))
        if sum(won) > 1:
            raise StoreUnusable(
                f"{store.shown} let {sum(won)} of {len(won)} writers create the same object, so it cannot keep two brokers"
                " apart; use a store with conditional writes (If-None-Match)"
            )
        if any(won) and store.get(name) != b"%d" % won.index(True):
            raise StoreUnusable(f"{store.shown} does not return what was written to it last; use another store")
        return any(won)
    finally:
        store.delete([name])


def _race(store: Store, name: str) -> list[bool]:
    """Return for each of the threads whether it has created the object. Raises the error of one of them."""
    won = [False] * CREATORS
    errors: list[Exception] = []

    def create(number: int) -> None:
        try:
            won[number] = store.create(name, b"%d" % number)
        except Exception as error:  # noqa: BLE001 - raised again in the thread that waits
            errors.append(error)

    # Daemons, because the end of the process would wait for the threads of a pool, and a store that hangs takes minutes.
    threads = [Thread(target=create, args=(number,), name="tier", daemon=True) for number in range(CREATORS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return won
