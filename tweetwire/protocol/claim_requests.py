"""The lines and options of claims, made from arguments. The invariant is that of `requests`."""

from tweetwire.protocol.request_words import number, word

__all__ = ["claim_line", "epoch_option", "producer_word"]


def claim_line(topic: str, producer: str, *, only_free: bool, epoch: int | None) -> bytes:
    """Return the line that claims a producer. Raises ValueError if `only_free` and `epoch` are both given."""
    if only_free and epoch is not None:
        raise ValueError("only_free makes a new claim, and epoch continues one; give one of them")
    how = " free" if only_free else "" if epoch is None else f" epoch={_checked(epoch)}"
    return f"claim {word('topic', topic)} {word('producer', producer)}{how}\n".encode()


def epoch_option(epoch: int | None, qos: int = 1) -> str:
    """Return the option of a ``pub`` line with a space at its end, or "" for None. Raises ValueError with `qos` 2."""
    if epoch is not None and qos != 1:
        raise ValueError("epoch needs qos=1; with qos=2, the handshake itself stores each event once")
    return "" if epoch is None else f"epoch={_checked(epoch)} "


def producer_word(producer: str, epoch: int | None) -> str:
    """Return the word for a producer, with the epoch of its claim."""
    name = word("producer", producer)
    return name if epoch is None else f"{name}@{_checked(epoch)}"


def _checked(epoch: int) -> str:
    text = number("epoch", epoch)
    if epoch < 1:
        raise ValueError(f"epoch {epoch} is not the epoch of a claim; Client.claim returns one")
    return text
