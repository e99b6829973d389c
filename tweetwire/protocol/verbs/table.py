"""The table of all verbs."""

from typing import Final

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.verbs.claiming import CLAIMING_VERBS
from tweetwire.protocol.verbs.documenting import DOCUMENTING_VERBS
from tweetwire.protocol.verbs.exactly_once import EXACTLY_ONCE_VERBS
from tweetwire.protocol.verbs.marking import MARKING_VERBS
from tweetwire.protocol.verbs.publishing import PUBLISHING_VERBS
from tweetwire.protocol.verbs.reading import READING_VERBS
from tweetwire.protocol.verbs.reporting import REPORTING_VERBS
from tweetwire.protocol.verbs.requesting import REQUESTING_VERBS
from tweetwire.protocol.verbs.session import SESSION_VERBS
from tweetwire.protocol.verbs.settling import SETTLING_VERBS
from tweetwire.protocol.verbs.state import STATE_VERBS
from tweetwire.protocol.verbs.steering import STEERING_VERBS
from tweetwire.protocol.verbs.subscribing import SUBSCRIBING_VERBS
from tweetwire.protocol.verbs.topics import TOPICS_VERBS
from tweetwire.protocol.verbs.verb import Verb

__all__ = ["VERBS", "VERBS_BY_WORD", "find_verb", "help_text"]

VERBS: Final[tuple[Verb, ...]] = (
    *SESSION_VERBS,
    *PUBLISHING_VERBS,
    *CLAIMING_VERBS,
    *REQUESTING_VERBS,
    *SUBSCRIBING_VERBS,
    *SETTLING_VERBS,
    *EXACTLY_ONCE_VERBS,
    *STEERING_VERBS,
    *READING_VERBS,
    *MARKING_VERBS,
    *REPORTING_VERBS,
    *DOCUMENTING_VERBS,
    *TOPICS_VERBS,
    *STATE_VERBS,
)
"""Every verb, in the order in which ``help`` lists them."""

VERBS_BY_WORD: Final[dict[str, Verb]] = {word: verb for verb in VERBS for word in (verb.name, verb.long_name) if word}
"""Every verb under its short and its long name."""


def find_verb(word: str) -> Verb:
    """Return the verb with this name, which is in lower case. Raises Refusal ``unknown_command``."""
    verb = VERBS_BY_WORD.get(word)
    if verb is None:
        raise Refusal("unknown_command", f"{word[:40]}; type help")
    return verb


def help_text(word: str | None) -> str:
    """Return the text that explains a verb, or for None the list of all verbs. Raises Refusal ``unknown_command``."""
    if word is None:
        return f"commands: {' '.join(verb.name for verb in VERBS)}; type help <command>"
    verb = find_verb(word)
    return f"help {verb.usage} - {verb.summary}"
