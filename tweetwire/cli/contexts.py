"""The saved brokers of a user: ``contexts.json`` in ``$XDG_CONFIG_HOME/tweetwire``, and their tokens.

The folder has mode 0700 and its files 0600. A token is never in ``contexts.json``: it is in a separate file, or in the
keyring of the system.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct, structs

from tweetwire.files import FILE_MODE, make_folder, read_file, replace_file, why
from tweetwire.protocol.errors import StartError

__all__ = ["Context", "Contexts", "context_texts"]

_OTHERS: Final = 0o077
_SERVICE: Final = "tweetwire"
"""The name under which the keyring keeps the tokens."""


class Context(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A saved broker. The members are the texts of the flags with the same names; "" stands for a missing flag.

    `kept_in` says where its token is: in a file, in the keyring, or "" if it has none.
    """

    broker: str
    name: str = ""
    tls: Literal["", "true"] = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    kept_in: Literal["", "file", "keyring"] = ""


class _Saved(Struct, kw_only=True, forbid_unknown_fields=True):
    current: str = ""
    contexts: dict[str, Context] = {}


class Contexts:
    """The saved brokers in `folder` (None: the user's folder). Each method raises StartError if the files are unusable."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or _config_folder()
        self._path = self._folder / "contexts.json"
        self._saved = self._read()

    @property
    def current(self) -> str:
        """The name of the broker that commands use by default, or ""."""
        return self._saved.current

    @property
    def names(self) -> list[str]:
        """The names of all saved brokers, in order."""
        return sorted(self._saved.contexts)

    def find(self, name: str) -> Context:
        """Return a saved broker. Raises StartError if there is none with this name."""
        try:
            return self._saved.contexts[name]
        except KeyError:
            known = f"there are: {', '.join(self.names)}" if self.names else "save one with: tweetwire context add"
            raise StartError(f"there is no context {name!r}; {known}") from None

    def add(self, name: str, context: Context, token: str | None, *, in_keyring: bool = False) -> None:
        """Save a broker, replacing a saved broker of the same name. `token` is stored in a file or in the keyring."""
        self._remove_token(name)
        if token is not None:
            context = structs.replace(context, kept_in="keyring" if in_keyring else "file")
            if in_keyring:
                _ask_keyring("set_password", name, token)
            else:
                self._write(self._token_path(name), f"{token}\n".encode())
        self._saved.contexts[name] = context
        self._store()

    def use(self, name: str) -> None:
        """Make a saved broker the current one."""
        self.find(name)
        self._saved.current = name
        self._store()

    def remove(self, name: str) -> None:
        """Remove a saved broker and its token."""
        self.find(name)
        self._remove_token(name)
        del self._saved.contexts[name]
        if self.current == name:
            self._saved.current = ""
        self._store()

    def token(self, name: str) -> str | None:
        """Return the token of a saved broker, or None if it has none."""
        context = self.find(name)
        if context.kept_in == "keyring":
            token: str | None = _ask_keyring("get_password", name)
            if token is None:
                raise StartError(
                    f"the keyring has no token of the context {name}; save it again: tweetwire context add"
                )
            return token
        return self._content(self._token_path(name)).decode().strip() if context.kept_in else None

    def _read(self) -> _Saved:
        if not self._path.exists():
            return _Saved()
        try:
            return msgspec.json.decode(self._content(self._path), type=_Saved)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StartError(f"{self._path} is not a file of saved brokers ({error}); correct or remove it") from error

    def _content(self, path: Path) -> bytes:
        """Return the content of a file that only this user can read. Raises StartError for any other file."""
        try:
            is_shared = path.stat().st_mode & _OTHERS
            content = b"" if is_shared else read_file(path)
        except OSError as error:
            raise StartError(f"cannot read {path}: {why(error)}") from error
        if is_shared:
            raise StartError(f"other users of this machine can read {path}; run: chmod 600 {path}")
        return content

    def _store(self) -> None:
        self._write(self._path, msgspec.json.format(msgspec.json.encode(self._saved), indent=2) + b"\n")

    def _write(self, path: Path, content: bytes) -> None:
        try:
            make_folder(self._folder)
            make_folder(path.parent)
            replace_file(path, content, mode=FILE_MODE)
        except OSError as error:
            raise StartError(f"cannot write {path}: {why(error)}") from error

    def _remove_token(self, name: str) -> None:
        place = self._saved.contexts[name].kept_in if name in self._saved.contexts else ""
        if place == "keyring":
            _ask_keyring("delete_password", name)
        elif place:
            self._token_path(name).unlink(missing_ok=True)

    def _token_path(self, name: str) -> Path:
        return self._folder / "tokens" / name


def context_texts(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the flags of a command for its connection, from the context that `given` names or the current one.

    If `given` has a broker's address and no name of a context, it means another broker than the current one. So nothing of the
    current context is used then, in particular not its token.
    """
    name = given.get("context")
    if name is None and "broker" in given:
        return {}
    contexts = Contexts()
    name = name or contexts.current
    if not name:
        return {}
    texts = {field: text for field, text in structs.asdict(contexts.find(name)).items() if text}
    if texts.pop("kept_in", None) and "token" not in given:
        texts["token"] = contexts.token(name)
    return texts


def _config_folder() -> Path:
    # The specification of XDG ignores a relative path.
    given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".config") / "tweetwire"


def _ask_keyring(function: str, *words: str) -> Any:
    """Call a function of the package keyring, which is an extra. Raises StartError."""
    try:
        import keyring  # noqa: PLC0415 — imported here, because few users need it
    except ModuleNotFoundError:
        raise StartError("the keyring needs an extra: pip install 'tweetwire[keyring]'") from None
    try:
        return getattr(keyring, function)(_SERVICE, *words)
    except Exception as error:
        raise StartError(
            f"cannot use the keyring ({error}); leave --keyring out to keep the token in a file"
        ) from error
