"""A service whose handler of orders fails until the test mends it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from anyio.from_thread import start_blocking_portal

from subscriber import Subscriber

__all__ = ["Billing", "billing_of"]


class Billing:
    """A handler of orders that fails until the test mends it."""

    def __init__(self, broker: str) -> None:
        self.is_mended = threading.Event()
        self._app = Subscriber(broker, name="billing")
        self._app.on("orders", as_="billing", from_="earliest", tries=2, backoff="0s")(self._take)

    async def serve(self) -> None:
        """Serve until cancelled."""
        await self._app.serve(anyio.Event(), drain_s=0.1)

    def _take(self, order: dict[str, object]) -> None:
        if not self.is_mended.is_set():
            raise LookupError(f"no such customer: {order['customer']}")


@contextmanager
def billing_of(broker: str) -> Iterator[Billing]:
    """Serve in a thread while the block runs."""
    billing = Billing(broker)
    with start_blocking_portal() as portal:
        served = portal.start_task_soon(billing.serve)
        yield billing
        served.cancel()
