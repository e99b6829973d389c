"""The verbs of the protocol: commands, parsing, usage, help and permissions. Each family of verbs is one module.

To add a verb, write its command and its parsing function in the module of its family, and add it to the family's tuple.
To add a family, write a module and add its tuple to `table`.
"""

from tweetwire.protocol.verbs.table import VERBS, find_verb, help_text
from tweetwire.protocol.verbs.verb import Command, Verb

__all__ = ["VERBS", "Command", "Verb", "find_verb", "help_text"]
