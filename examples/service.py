"""A service with a handler: it checks orders, and publishes an invoice for each one that is valid.

If the handler returns, the order is acked. If it raises, the broker keeps the error and delivers the order again; after
three tries the order is a dead letter (`tweetwire dead` shows it, `tweetwire redrive` delivers it again).

    python examples/service.py --broker localhost:8000
"""

import sys

from msgspec import Struct

from subscriber import Subscriber
from tweetwire import Event, StoredEvent


class Order(Struct):
    """The `msg` of an order."""

    customer: str
    total: float


app = Subscriber()


@app.on(
    "orders", as_="invoicing", from_="earliest", prefetch=100, concurrency=10, timeout="5s", tries=3, backoff="100ms"
)
async def write_invoice(event: StoredEvent) -> None:
    """Publish the invoice of one order."""
    order = event.decode(Order)
    if order.total <= 0:
        raise ValueError(
            f"the order {event.id} of {order.customer} has a total of {order.total:g}; it must be positive"
        )
    # The invoice's `parent` is the order: `tweetwire chain invoices ID` draws both.
    await app.publish("invoices", Event(id=f"invoice-{event.id}", msg={"customer": order.customer, "due": order.total}))
    print(f"invoice for {order.customer}: {order.total:g}", flush=True)


if __name__ == "__main__":
    sys.exit(app.run())
