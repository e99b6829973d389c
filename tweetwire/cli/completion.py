"""Complete a half-typed line with words from the broker's ``help`` and the names of its topics and subscriptions."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tweetwire.protocol.errors import BrokerError, Refusal

if TYPE_CHECKING:
    from tweetwire.client.blocking import SyncClient

__all__ = ["Candidates", "Completion"]

Candidates = Callable[[list[str], str], list[str]]
"""Returns the completions of the last word of a line, from the words before it and the part already typed."""

_OPTION: Final = re.compile(r"(?<![\w=|,])([a-z_]+)=")
_FLAG: Final = re.compile(r"\[([a-z_]+)\]")


class Completion:
    """Finds completions through `client`.

    `client` has a separate connection, so that its replies are not mixed with those to the typed commands.
    """

    def __init__(self, client: "SyncClient") -> None:
        self._client = client
        self._verbs = client.command("help").partition("commands: ")[2].partition(";")[0].split()
        self._usages: dict[str, str] = {}

    def candidates(self, words: list[str], begun: str) -> list[str]:
        """Return the completions of `begun` after `words`. A complete word ends with a space, an option with ``=``."""
        try:
            options = self._options(words, begun)
        except BrokerError:
            return []
        return [
            option if option.endswith("=") else f"{option} " for option in sorted(options) if option.startswith(begun)
        ]

    def _options(self, words: list[str], begun: str) -> list[str]:
        if not words:
            return self._verbs
        usage = self._usage(words[0].lower())
        place = usage.split()[len(words) : len(words) + 1]
        if place == ["[<command>]"]:
            return self._verbs
        if len(words) == 1 and place and place[0] in {"<topic>", "<topic>|<pattern>"}:
            return list(self._topics())
        if begun.startswith("as="):
            return [f"as={name}" for name in self._subscriptions(words[1:2])]
        if begun.startswith("topic="):
            return [f"topic={name}" for name in self._topics()]
        given = {word.partition("=")[0] for word in words}
        return [
            *(f"{name}=" for name in _OPTION.findall(usage) if name not in given),
            *(name for name in _FLAG.findall(usage) if name not in given),
        ]

    def _usage(self, verb: str) -> str:
        """Return the part of a verb's help that shows its syntax, or "" if there is no such verb."""
        if verb not in self._usages:
            try:
                text = self._client.command(f"help {verb}")
            except Refusal:
                return ""
            self._usages[verb] = text.removeprefix("+OK help ").partition(" - ")[0]
        return self._usages[verb]

    def _subscriptions(self, topic: list[str]) -> set[str]:
        """Return the names of the durable subscriptions of a topic, or of all topics if `topic` names no existing topic."""
        topics = self._topics()
        chosen = [topics[name] for name in topic if name in topics] or topics.values()
        return {name for report in chosen for name, one in report["subscriptions"].items() if one["durable"]}

    def _topics(self) -> dict[str, Any]:
        topics: dict[str, Any] = self._client.stats()["topics"]
        return topics
