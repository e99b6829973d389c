"""The users file: a TOML file of names, token hashes and patterns of topics. `HELP` describes it.

The file holds only the argon2 hash of a token, and no log holds the token. A hash sets the cost of its check, so a file
with a hash above `HASH_LIMITS` is refused.
"""

import sys
import tomllib
from base64 import b64decode, b64encode
from collections import Counter
from getpass import getpass
from pathlib import Path
from typing import Final

import argon2
import msgspec
from msgspec import Struct

from broker.core import Access
from tweetwire.protocol import check_name
from tweetwire.protocol.errors import Refusal, StartError

__all__ = ["HASH_LIMITS", "UsersFile"]

HASH_LIMITS: Final = {"memory_cost": 64 << 10, "time_cost": 10, "parallelism": 8}
"""The maximum cost of checking one token: KiB of memory, rounds and lanes.

`broker.logins` checks two tokens at a time, so both checks together use at most twice this memory.
"""
HASH_LEAST: Final = {"memory_cost": 8, "time_cost": 1, "parallelism": 1, "salt_len": 8, "hash_len": 4}
"""The smallest costs that argon2 accepts. It also needs 8 KiB of memory for each lane."""
_LIMITS_TEXT: Final = "64 MiB (m=65536), 10 rounds (t=10) and 8 lanes (p=8)"
_REMEDY: Final = "create one with: python -m broker.users"

HELP: Final = """\
usage: python -m broker.users NAME

Ask for a token and print the entry of user NAME for the file that python -m broker --users reads (TOML):

  [[users]]
  name = "orders"                    # sent in: hello orders token=...
  token = "$argon2id$v=19$..."       # the hash of the token; the token itself is not stored
  publish = ["orders", "orders.*"]   # patterns of the topics to publish to
  subscribe = ["orders.*"]           # patterns of the topics to subscribe to and to read
  share = ["orders/billing"]         # other users' subscriptions that this user may use, <topic>/<subscription>
  admin = false                      # may redrive, list the clients, set schemas and retention, use all subscriptions

In a pattern, * stands for any characters, ? for one, [ab] for a or b. A missing list is empty; admin is false by default.

Internal topics (dead_letters, rejected_lines, audit, handler_history, rejected_changes, cluster_view) are read only with a
pattern that names them, that is, one that does not begin with a wildcard. handler_history, rejected_changes, logger_stats and
cluster_view are published to only with such a pattern. dead_letters, rejected_lines and audit are written by the broker alone.

A durable subscription belongs to the user that created it. share lets another user attach to it, and see its clients and
errors; only the owner and administrators may end it. That user's subscribe patterns must also match the topic.
"""


class _User(Struct, forbid_unknown_fields=True):
    name: str
    token: str
    publish: list[str] = []
    subscribe: list[str] = []
    share: list[str] = []
    admin: bool = False


class _File(Struct, forbid_unknown_fields=True):
    users: list[_User]


class UsersFile:
    """The users of a file, which is read only at construction. Raises StartError if the file is unusable."""

    def __init__(self, path: Path) -> None:
        try:
            users = msgspec.convert(tomllib.loads(path.read_text()), _File).users
            self._users = {check_name(user.name): user for user in users}
            for user in users:
                _check_shares(user)
        except OSError as error:
            raise StartError(f"cannot read the users of {path}: {error.strerror}") from error
        except Refusal as refusal:
            raise StartError(f"{path}: {refusal.text}") from refusal
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError, RecursionError) as error:
            raise StartError(f"{path} is not a users file: {error}; see python -m broker.users --help") from error
        _check_names(path, users)
        costs = [_cost(path, user) for user in users]
        # An unknown name costs as much as the costliest user, so that the time of a check does not reveal which names exist.
        costliest = max(
            costs, key=lambda cost: cost.memory_cost * cost.time_cost, default=argon2.profiles.RFC_9106_LOW_MEMORY
        )
        try:
            self._hasher = argon2.PasswordHasher.from_parameters(costliest)
            self._unknown = self._hasher.hash("unknown")
        except argon2.exceptions.Argon2Error as error:
            raise StartError(f"{path}: a token's hash cannot be checked: {error}; {_REMEDY} NAME") from error

    def knows(self, name: str) -> bool:
        """Return whether there is a user with this name."""
        return name in self._users

    def access_of(self, name: str) -> Access | None:
        """Return the access of the user with this name, None if there is no such user."""
        user = self._users.get(name)
        return None if user is None else _access(user)

    def identify(self, name: str, token: str) -> Access | None:
        """Return the access of a user, None if name and token do not match.

        Takes about 50 ms on purpose. Raises argon2.exceptions.VerificationError if the token cannot be checked.
        """
        user = self._users.get(name)
        try:
            self._hasher.verify(user.token if user else self._unknown, token)
        except argon2.exceptions.VerifyMismatchError:
            return None
        return _access(user) if user else None


def _access(user: _User) -> Access:
    return Access(user.name, tuple(user.publish), tuple(user.subscribe), user.admin, tuple(user.share))


def _check_shares(user: _User) -> None:
    for pattern in user.share:
        if not all(part and part == part.strip() for part in pattern.split("/")) or pattern.count("/") != 1:
            raise Refusal("bad_arguments", f"share of {user.name}: {pattern!r} is not <topic>/<subscription>")


def _check_names(path: Path, users: list[_User]) -> None:
    """Check that no name occurs twice. Raises StartError."""
    twice = [name for name, count in Counter(user.name for user in users).items() if count > 1]
    if twice:
        raise StartError(f"{path}: the user {twice[0]} is defined more than once; keep one entry")


def _cost(path: Path, user: _User) -> argon2.Parameters:
    """Return the cost of checking a user's token. Raises StartError if the hash is invalid or costs too much."""
    try:
        cost = argon2.extract_parameters(user.token)
        for part in user.token.split("$")[-2:]:
            padding = "=" * (-len(part) % 4)
            # Python ignores bits beyond the last whole byte, argon2 does not.
            if b64encode(b64decode(part + padding, validate=True)).decode() != part + padding:
                raise ValueError("bits beyond the last byte")
    except (argon2.exceptions.InvalidHash, ValueError) as error:
        raise StartError(f"{path}: the token of {user.name} is not an argon2 hash; {_REMEDY} {user.name}") from error
    if (
        any(getattr(cost, name) < least for name, least in HASH_LEAST.items())
        or cost.memory_cost < 8 * cost.parallelism
    ):
        raise StartError(f"{path}: argon2 cannot check the hash of {user.name}; {_REMEDY} {user.name}")
    if any(getattr(cost, name) > most for name, most in HASH_LIMITS.items()):
        raise StartError(
            f"{path}: the hash of {user.name} asks for m={cost.memory_cost}, t={cost.time_cost}, p={cost.parallelism},"
            f" more than {_LIMITS_TEXT}; {_REMEDY} {user.name}"
        )
    return cost


def main() -> int:
    """Ask for a token and print the entry of a user. Returns the exit status."""
    if sys.argv[1:] in (["--help"], ["-h"]):
        print(HELP, end="")
        return 0
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print("usage: python -m broker.users NAME   (see --help)", file=sys.stderr)
        return 2
    try:
        name = check_name(sys.argv[1])
    except Refusal as refusal:
        print(f"python -m broker.users: {refusal.text}", file=sys.stderr)
        return 2
    try:
        token = getpass("token: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    except (EOFError, KeyboardInterrupt):
        print("\npython -m broker.users: no token was given", file=sys.stderr)
        return 2
    if not token or " " in token:
        print("python -m broker.users: a token is a word without spaces", file=sys.stderr)
        return 2
    entry = f'[[users]]\nname = "{name}"\ntoken = "{argon2.PasswordHasher().hash(token)}"\n'
    print(f'{entry}publish = ["*"]\nsubscribe = ["*"]\nshare = []\nadmin = false')
    return 0


if __name__ == "__main__":
    sys.exit(main())
