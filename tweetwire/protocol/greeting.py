"""The line with which a broker greets a connection.

Its beginning up to ``type help`` never changes. Additions follow it, and a client may ignore them.
"""

__all__ = ["greeting_line", "identity_of"]


def greeting_line(version: str, identity: str) -> str:
    """Return the greeting. `identity` is that of the data folder, or empty."""
    return f"+OK tweetwire broker {version}, type help{f', identity={identity}' if identity else ''}"


def identity_of(greeting: bytes) -> str | None:
    """Return the identity in a greeting, or None if it has none."""
    words = greeting.partition(b", identity=")[2].split()
    return words[0].decode("ascii", "replace") if words else None
