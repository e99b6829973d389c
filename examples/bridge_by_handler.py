"""Hand events to another system: a handler posts each event to an HTTP endpoint, with the event's id as idempotency key.

The event is acked when the other system answers with success. If it refuses or does not answer, that is a failed try: the
broker delivers the event again after a growing pause.

    ENDPOINT=http://localhost:8081/orders python examples/bridge_by_handler.py --broker localhost:8000
"""

import os
import sys

import httpx

from subscriber import Subscriber
from tweetwire import StoredEvent

ENDPOINT = os.environ.get("ENDPOINT", "http://localhost:8081/orders")

app = Subscriber()
http = httpx.AsyncClient(timeout=5.0)


@app.on(
    "orders", as_="bridge", from_="earliest", prefetch=100, concurrency=10, timeout="10s", tries=10, backoff="200ms"
)
async def forward_order(event: StoredEvent) -> None:
    """Post one event. The other system stores a repeated Idempotency-Key once, so a repeated delivery does no harm."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": f"{event.topic}-{event.offset}"}
    answer = await http.post(ENDPOINT, content=bytes(event.msg), headers=headers)
    answer.raise_for_status()


if __name__ == "__main__":
    sys.exit(app.run())
