"""A Spark job that you write yourself: the revenue of each customer, computed from a topic and published to another.

It reads the events that the topic has now (`trigger(availableNow=True)`) and ends. The next run continues from the checkpoint.
Without the trigger, it would run forever.

    python examples/spark_totals.py --checkpoint /tmp/revenue
"""

import argparse

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark.apps.session import build_session

MSG = "customer string, total double"


def revenue_by_customer(orders: DataFrame) -> DataFrame:
    """Return one row for each customer of `orders`, as an event.

    The `id` is the customer; the `msg` has the members `customer`, `revenue` and `orders`.
    """
    totals = orders.groupBy("customer").agg(f.sum("total").alias("revenue"), f.count("*").alias("orders"))
    return totals.select(
        f.col("customer").alias("id"), f.to_json(f.struct("customer", "revenue", "orders")).alias("msg")
    )


def main(broker: str, checkpoint: str) -> None:
    """Read `orders`, and write the new totals to `revenue` after each micro-batch."""
    # In a session that you build yourself, `spark.connector.source.register(session)` makes the format known.
    session = build_session("local[2]", app="revenue")
    events = session.readStream.format("tweetwire").option("broker", broker).option("topic", "orders").load()
    orders = events.select(f.from_json("msg", MSG).alias("order")).select("order.*").where("customer is not null")
    query = (
        revenue_by_customer(orders)
        .writeStream.format("tweetwire")
        .option("broker", broker)
        .option("topic", "revenue")
        # The producer numbers the rows, so a micro-batch that Spark repeats is stored once.
        .option("producer", "spark-totals")
        .option("checkpointLocation", checkpoint)
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    session.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", default="localhost:8000", help="host:port (default: %(default)s)")
    parser.add_argument("--checkpoint", required=True, help="folder of the query's checkpoint")
    arguments = parser.parse_args()
    main(arguments.broker, arguments.checkpoint)
