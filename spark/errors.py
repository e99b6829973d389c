"""What the Spark part can fail with, in sentences for the person who runs it."""

__all__ = ["DataLossError", "OptionError", "TooManyRowsError"]


class OptionError(ValueError):
    """An option of ``format("tweetwire")`` is missing or makes no sense."""


class DataLossError(Exception):
    """Events that a query still has to read are no longer in the topic, or the topic is not the one it knew."""

    def __init__(self, topic: str, wanted: int, earliest: int, head: int) -> None:
        gone = "retention has removed them" if wanted < earliest else "the topic was made anew"
        super().__init__(
            f"topic {topic} holds the offsets {earliest} to {head}, and the query goes on at {wanted}: {gone}; "
            "set failOnDataLoss=false to go on with what is there, or start with a new checkpoint"
        )
        self.topic = topic


class TooManyRowsError(Exception):
    """A batch has more rows than a batch's share of sequence numbers."""

    def __init__(self, rows: int, rows_max: int) -> None:
        super().__init__(f"a batch of {rows} rows cannot be published once and for all; the most is {rows_max}")
