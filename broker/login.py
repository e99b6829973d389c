"""Where a program's broker is, and who the program is there."""

from typing import Any

from msgspec import Struct

from broker.errors import Refusal

__all__ = ["Login"]


class Login(Struct, frozen=True):
    """The broker's address, and where that broker has users, one of them and its token, which is in no text of this.

    Raises ValueError for a user without a token, and for what cannot be a token.
    """

    address: str
    user: str | None = None
    token: str | None = None

    def __post_init__(self) -> None:
        """See that both are there or none, and that the token is one word of the line that it becomes part of."""
        if (self.user is None) != (self.token is None):
            raise ValueError("a broker's user and that user's token go together; only one of the two is given")
        if self.token is not None and not (self.token.isprintable() and self.token.split() == [self.token]):
            raise ValueError("a token is a word without spaces")

    def __repr__(self) -> str:
        """Show everything but the token."""
        return f"Login(address={self.address!r}, user={self.user!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Show the same to rich, which would else see all members."""
        return [("address", self.address), ("user", self.user)]

    def name(self, own: str) -> str:
        """Give the name that a program which calls itself `own` has there."""
        return self.user or own

    def reason(self, refusal: Refusal) -> str:
        """Say why the broker refuses this one, and what to do about it."""
        if refusal.code == "forbidden":
            return f"{refusal}; what {self.user} may do is in the file of the broker's --users"
        if refusal.code != "unauthenticated":
            return str(refusal)
        # The broker's own words are for who types a line.
        why = "it has users; set" if self.user is None else "no such name and token; see"
        return f"unauthenticated {why} --broker-user and --broker-token"
