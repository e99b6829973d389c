"""Count the changes of a MongoDB collection by kind, read from Kafka with Spark's own source.

The bridge has written the topic: ``tweetwire bridge --out 'tweets -> kafka://127.0.0.1:9092/tweets'``. Usage:

    python examples/spark_reads_kafka.py 127.0.0.1:9092 tweets OUT JARS

OUT is a folder for the rows and the checkpoint. JARS is a folder with Spark's source for Kafka, spark-sql-kafka-0-10_2.13 and
its dependencies; ``make engines`` fetches it. The program ends once it has read everything, and a second run continues there.
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f


def changes_of(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """Return the changes as rows: the id of the event, its offset at the broker, and the change."""
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        # Without this, Spark would also read the records of transactions that were given up.
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    headers = f.map_from_entries("headers")
    value = f.col("value").cast("string")
    return messages.select(
        headers["ce_id"].cast("string").alias("id"),
        headers["ce_offset"].cast("string").cast("long").alias("offset"),
        f.get_json_object(value, "$.op").alias("op"),
        f.get_json_object(value, "$.document.n").cast("long").alias("n"),
    )


def main(servers: str, topic: str, out: str, jars: str) -> None:
    """Write all rows that have come since the last run, and print how many there are of each kind."""
    spark = (
        SparkSession.builder.appName("changes")
        .master("local[2]")
        .config("spark.jars", ",".join(map(str, Path(jars).glob("*.jar"))))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    query = (
        changes_of(spark, servers, topic)
        .writeStream.format("json")
        .option("path", f"{out}/rows")
        .option("checkpointLocation", f"{out}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.read.json(f"{out}/rows").groupBy("op").count().orderBy("op").show()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
