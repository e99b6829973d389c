"""Publish three orders, and read them back through a subscription that acknowledges them.

Run it twice: the subscription `billing` is durable, so the second run prints only the orders of the second run.

    python examples/publish_subscribe.py --broker localhost:8000
"""

import argparse
import uuid

import anyio

from tweetwire import Client, Event


async def main(broker: str) -> None:
    """Publish three events, then consume until all three came back."""
    async with Client(broker, name="publish_subscribe") as client:
        subscription = await client.subscribe("orders", as_="billing", from_="earliest", prefetch=10, create=True)
        ours = set()
        for total in (12.5, 99.0, 3.2):
            order = Event(id=f"order-{uuid.uuid4()}", msg={"customer": "ada", "total": total})
            # Returns when the broker has the event on its disk.
            receipt = await client.publish("orders", order)
            ours.add(receipt.first)
        async for batch in subscription:
            for event in batch:
                print(f"offset {event.offset}: {event.decode()['total']}")
            # If this program crashed before this line, the broker would deliver the batch again.
            await subscription.ack(batch)
            ours -= {event.offset for event in batch}
            if not ours:
                break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", default="localhost:8000", help="host:port (default: %(default)s)")
    anyio.run(main, parser.parse_args().broker)
