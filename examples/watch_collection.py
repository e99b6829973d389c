"""Print every change of a MongoDB collection, the changes of one document in their order.

Start the publisher first; it needs a replica set (one member is enough):

    python -m change_stream --mongo-url mongodb://localhost:27017 --database shop --map stock=stock
    python examples/watch_collection.py --topic stock
"""

import argparse

import anyio

from tweetwire import Client


async def main(broker: str, topic: str, count: int | None) -> None:
    """Print changes until `count` of them came, or forever."""
    async with Client(broker, name="watch_collection") as client:
        changes = await client.subscribe(topic, as_="watcher", from_="earliest", prefetch=100, ordered="key")
        seen = 0
        async for batch in changes:
            for event in batch:
                change = event.decode()
                print(change["op"], change.get("document_key", ""), change.get("changed", ""), flush=True)
            await changes.ack(batch)
            seen += len(batch)
            if count is not None and seen >= count:
                break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", default="localhost:8000", help="host:port (default: %(default)s)")
    parser.add_argument("--topic", default="stock", help="topic of the collection (default: %(default)s)")
    parser.add_argument("--count", type=int, help="end after this many changes (default: never)")
    arguments = parser.parse_args()
    anyio.run(main, arguments.broker, arguments.topic, arguments.count)
