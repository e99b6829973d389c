"""The verb ``claim``: one client at a time publishes as a producer."""

from typing import ClassVar, Final

from tweetwire.protocol.fencing import epoch_of
from tweetwire.protocol.names import check_name
from tweetwire.protocol.options import Options
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.verbs.verb import Command, Verb
from tweetwire.protocol.words import WrongUsage, words_of

__all__ = ["CLAIMING_VERBS", "Claim"]


class Claim(Command):
    """``claim <topic> <producer> [free|epoch=<n>]``: publish as a producer from this connection.

    If `only_free`, the claim is refused while another connection holds the producer. If `epoch` is given, the connection
    continues that claim, which an earlier connection of the client made.
    """

    permission: ClassVar = Permission.PUBLISH
    topic: str
    producer: str
    only_free: bool = False
    epoch: int | None = None


def _claim(rest: bytes) -> Claim:
    topic, producer, *words = words_of(rest, 2)
    options = Options(words)
    only_free, epoch = options.flag("free"), options.text("epoch")
    options.end()
    if only_free and epoch is not None:
        raise WrongUsage
    return Claim(check_name(topic), check_name(producer), only_free, None if epoch is None else epoch_of(epoch))


CLAIMING_VERBS: Final = (
    Verb(
        name="claim",
        parse=_claim,
        commands=(Claim,),
        usage="claim <topic> <producer> [free|epoch=<n>]",
        summary="gives a producer a new epoch; from then on, its events need this epoch: pub <topic> epoch=<n> <event>; with"
        " free, only if no other connection holds the producer; with epoch, continues that claim on this connection",
    ),
)
