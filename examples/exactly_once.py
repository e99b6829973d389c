"""Move amounts into a ledger exactly once, however often this program is killed and started again.

With `qos=2` each event is transferred in a handshake. Both sides store its steps on their disk: the broker in its log, and this
client in its spool folder. A program that is started again continues where the killed one stopped.

    python examples/exactly_once.py --spool /tmp/ledger-spool --payments 100
"""

import argparse
import sqlite3
from pathlib import Path

from tweetwire import Event, SyncClient

QUIET_S = 2.0


def main(broker: str, spool: Path, payments: int) -> None:
    """Publish the payments once, consume them once, and print the ledger's balance."""
    spool.mkdir(parents=True, exist_ok=True)
    ledger = sqlite3.connect(spool / "ledger.db")
    ledger.execute("create table if not exists entries (id text primary key, amount integer, attempt integer)")
    with SyncClient(broker, name="ledger", spool=spool / "client") as client:
        for number in range(payments):
            # The id makes a payment unique: publishing it again in the next run stores nothing.
            client.publish(
                "payments", Event(id=f"payment-{number}", producer="till", sequence=number, msg={"amount": 1})
            )
        subscription = client.subscribe("payments", as_="ledger", from_="earliest", prefetch=50, qos=2)
        while batch := subscription.take(within_s=QUIET_S):
            with ledger:
                for payment in batch:
                    # If this program was killed with an event, the broker delivers that event once more, with a higher
                    # `attempt`.
                    row = (payment.id, payment.decode()["amount"], payment.attempt)
                    ledger.execute("insert or ignore into entries values (?, ?, ?)", row)
            subscription.ack(batch)
    count, balance = ledger.execute("select count(*), sum(amount) from entries").fetchone()
    ledger.close()
    print(f"{count} entries, balance {balance}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", default="localhost:8000", help="host:port (default: %(default)s)")
    parser.add_argument("--spool", type=Path, required=True, help="folder for the ledger and the client's spool")
    parser.add_argument("--payments", type=int, default=100, help="how many payments to publish (default: %(default)s)")
    arguments = parser.parse_args()
    main(arguments.broker, arguments.spool, arguments.payments)
