"""Replay a topic into a notebook: all its stored events become a DuckDB table that SQL can query.

A replay reads the log by offset. It needs no subscription and does not affect consumers.

    pip install duckdb
    python examples/replay_to_duckdb.py --topic orders --sql "select count(*), sum((msg->>'total')::double) from events"
"""

import argparse
import json
from collections.abc import Iterator

import duckdb

from tweetwire import StoredEvent, SyncClient


def replay(client: SyncClient, topic: str) -> Iterator[StoredEvent]:
    """Yield every event that `topic` holds now, the oldest first."""
    offset: int | str = "earliest"
    while (page := client.read(topic, offset)).events:
        yield from page.events
        offset = page.next


def main(broker: str, topic: str, sql: str) -> None:
    """Fill the table `events` and print what `sql` returns."""
    database = duckdb.connect()
    database.execute("create table events (place bigint, id varchar, stored timestamp, key varchar, msg json)")
    with SyncClient(broker, name="replay") as client:
        rows = [
            (event.offset, event.id, event.timestamp, event.key or None, json.dumps(event.decode()))
            for event in replay(client, topic)
        ]
    if rows:
        database.executemany("insert into events values (?, ?, make_timestamp(? * 1000), ?, ?)", rows)
    print(database.sql(sql))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", default="localhost:8000", help="host:port (default: %(default)s)")
    parser.add_argument("--topic", default="orders", help="topic to replay (default: %(default)s)")
    parser.add_argument(
        "--sql", default="select * from events limit 10", help="query over `events` (default: %(default)s)"
    )
    arguments = parser.parse_args()
    main(arguments.broker, arguments.topic, arguments.sql)
