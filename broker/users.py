"""Who may connect: a TOML file of names, token hashes and patterns.

::

    [[users]]
    name = "orders"
    token = "$argon2id$v=19$…"        # python -m broker.users orders
    publish = ["orders", "orders.*"]
    subscribe = ["*"]
    admin = false

A token stands in the file as its argon2 hash only, and in no log.
"""

import sys
import tomllib
from getpass import getpass
from pathlib import Path

import argon2
import msgspec
from msgspec import Struct

from broker.core import Access
from broker.errors import Refusal, StartError
from broker.protocol import check_name

__all__ = ["UsersFile"]


class _User(Struct, forbid_unknown_fields=True):
    name: str
    token: str
    publish: list[str] = []
    subscribe: list[str] = []
    admin: bool = False


class _File(Struct, forbid_unknown_fields=True):
    users: list[_User]


class UsersFile:
    """The users of a file, read once. Raises StartError where it cannot be used."""

    def __init__(self, path: Path) -> None:
        try:
            file = msgspec.convert(tomllib.loads(path.read_text()), _File)
            self._users = {check_name(user.name): user for user in file.users}
            for user in file.users:
                argon2.extract_parameters(user.token)
        except OSError as error:
            raise StartError(f"cannot read the users of {path}: {error.strerror}") from error
        except Refusal as refusal:
            raise StartError(f"{path}: {refusal.text}") from refusal
        except argon2.exceptions.InvalidHash as error:
            raise StartError(
                f"{path}: a token is no argon2 hash; make one with: python -m broker.users NAME"
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
            raise StartError(f"{path} is no file of users: {error}") from error
        self._hasher = argon2.PasswordHasher()
        # Somebody unknown takes as long to refuse as somebody with a wrong token.
        self._nobody = self._hasher.hash("nobody")

    def identify(self, name: str, token: str) -> Access | None:
        """Return what somebody may do, None where name and token do not fit. Takes some 50 ms, on purpose."""
        user = self._users.get(name)
        try:
            self._hasher.verify(user.token if user else self._nobody, token)
        except argon2.exceptions.VerificationError:
            return None
        return Access(user.name, tuple(user.publish), tuple(user.subscribe), user.admin) if user else None


def main() -> int:
    """Ask for a token and print the entry of a user."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print("usage: python -m broker.users NAME   (asks for a token and prints the user's entry)", file=sys.stderr)
        return 2
    try:
        name = check_name(sys.argv[1])
    except Refusal as refusal:
        print(f"python -m broker.users: {refusal.text}", file=sys.stderr)
        return 2
    token = getpass("token: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not token or " " in token:
        print("python -m broker.users: a token is a word without spaces", file=sys.stderr)
        return 2
    entry = f'[[users]]\nname = "{name}"\ntoken = "{argon2.PasswordHasher().hash(token)}"\n'
    print(f'{entry}publish = ["*"]\nsubscribe = ["*"]\nadmin = false')
    return 0


if __name__ == "__main__":
    sys.exit(main())
