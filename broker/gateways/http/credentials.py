"""Find out which user sends a request: ``Authorization: Basic`` or ``Authorization: Bearer <user>:<token>``."""

import binascii
from base64 import b64decode
from typing import Final, NamedTuple

from broker.core import EVERYTHING, Access
from broker.logins import Logins
from tweetwire.protocol import check_name
from tweetwire.protocol.errors import Refusal

__all__ = ["Credentials", "Visitor", "identify", "read_credentials"]

ANONYMOUS: Final = "http"
HEADER_CHARACTERS_MAX: Final = 1_000


class Credentials(NamedTuple):
    """The name and the token of a user."""

    user: str
    token: str


class Visitor(NamedTuple):
    """The user that sends a request, and what it may do. Without users, the name is `ANONYMOUS`."""

    name: str
    access: Access


def read_credentials(header: str) -> Credentials:
    """Read the header ``Authorization``. Raises Refusal ``unauthenticated``."""
    scheme, _, value = header.partition(" ")
    value = value.strip()
    if len(header) > HEADER_CHARACTERS_MAX:
        raise Refusal("unauthenticated", "the header Authorization is too long")
    if scheme.lower() == "basic":
        try:
            value = b64decode(value, validate=True).decode()
        except (binascii.Error, ValueError):
            raise Refusal("unauthenticated", "the header Authorization: Basic is not base64 of user:token") from None
    elif scheme.lower() != "bearer":
        raise Refusal("unauthenticated", "send Authorization: Bearer <user>:<token>, or Basic with user and token")
    user, colon, token = value.partition(":")
    if not (user and colon and token):
        raise Refusal("unauthenticated", "the header Authorization has no <user>:<token>")
    try:
        return Credentials(check_name(user), token)
    except Refusal:
        raise Refusal("unauthenticated", "no such name and token") from None


async def identify(logins: Logins, header: str | None, address: str) -> Visitor:
    """Return the visitor of a request from `address`. Raises Refusal ``unauthenticated`` or ``busy``."""
    if logins.users is None:
        return Visitor(ANONYMOUS, EVERYTHING)
    if header is None:
        raise Refusal("unauthenticated", "send Authorization: Bearer <user>:<token>, or Basic with user and token")
    user, token = read_credentials(header)
    access = await logins.identify(user, token, address)
    if access is None:
        raise Refusal("unauthenticated", "no such name and token")
    return Visitor(user, access)
