"""The permissions that commands need. `broker.core.access` decides which user has which permission."""

from enum import Enum

__all__ = ["Permission"]


class Permission(Enum):
    """The right that a command needs. The value is its wording in the documentation."""

    NONE = "nothing, not even a login"
    LOGIN = "a login; shows what the user may see"
    PUBLISH = "`publish`"
    SUBSCRIBE = "`subscribe`"
    USE = "`subscribe`, and a subscription that is new, the user's own or shared with the user"
    OWN = "`subscribe`, and the user's own subscription; with `admin`, any"
    MARK = "`subscribe`, and a mark that is new or the user's own; with `admin`, any"
    LOOK = "`subscribe`; clients, peers and errors only of a subscription that the user may use"
    REDRIVE = "`subscribe` and `admin`"
    MANAGE = "`publish` and `admin`; `*` includes internal topics"
    ADMIN = "`admin`"
