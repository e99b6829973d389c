"""The subjects of a route to JetStream, made of a template such as ``tw.{broker}.{topic}.{key}``.

A message of the route has the key of its event in its subject, so that consumers can choose by key. All messages of one topic
of one broker match one filter, and no other message does. Our position is the newest message of that filter.
"""

from hashlib import blake2b
from typing import Final
from urllib.parse import quote

__all__ = ["DEFAULT_SUBJECT", "Subjects", "covers"]

DEFAULT_SUBJECT: Final = "tw.{broker}.{topic}.{key}"

_BROKER, _TOPIC, _KEY = "{broker}", "{topic}", "{key}"
_NO_KEY: Final = "_"
_TOKEN_MAX: Final = 200
_KEYS_MAX: Final = 10_000


class Subjects:
    """The subjects of one topic of one broker.

    Attributes:
        filter: Matches the subjects of all messages of the route. It has wildcards only for the key.
        shared: Matches the subjects of the same topic of all brokers.
    """

    def __init__(self, template: str, identity: str, topic: str) -> None:
        template = template.replace(_TOPIC, _token(topic))
        own = template.replace(_BROKER, identity)
        self.filter = _pattern(own, _KEY)
        self.shared = _pattern(template, _KEY, _BROKER)
        self._before, found, self._after = own.partition(_KEY)
        self._has_key = bool(found)
        self._known: dict[str | None, str] = {}

    def of(self, key: str | None) -> str:
        """Return the subject of an event with a key."""
        if not self._has_key:
            return self._before
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KEYS_MAX:
                self._known.clear()
            found = f"{self._before}{_token(key)}{self._after}"
            self._known[key] = found
        return found


def covers(pattern: str, subject: str) -> bool:
    """Whether `pattern` matches `subject`. If `subject` is a pattern too: whether `pattern` matches all of its subjects."""
    wanted = subject.split(".")
    for place, word in enumerate(pattern.split(".")):
        if word == ">":
            return place < len(wanted)
        if place >= len(wanted) or wanted[place] == ">" or word not in {"*", wanted[place]}:
            return False
    return pattern.count(".") == subject.count(".")


def _pattern(template: str, *places: str) -> str:
    """Return a filter in which the tokens that hold one of `places` are wildcards."""
    tokens = ["*" if any(place in token for place in places) else token for token in template.split(".")]
    if template.endswith(f".{_KEY}"):
        tokens[-1] = ">"
    return ".".join(tokens)


def _token(text: str | None) -> str:
    """Return a text as one token of a subject. A long one becomes its digest, since servers limit the length of a subject."""
    if not text:
        return _NO_KEY
    token = quote(text, safe="").replace(".", "%2E")
    return token if len(token) <= _TOKEN_MAX else f"~{blake2b(text.encode(), digest_size=16).hexdigest()}"
