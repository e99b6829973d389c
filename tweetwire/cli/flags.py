"""Read the flags of a command from the words of a command line and from the environment.

A command is a class whose fields are its settings::

    class Greet(Command, kw_only=True):
        \"""Greet somebody.\"""

        examples = ("tweetwire greet ann", "tweetwire greet ann --times 3")

        person: Annotated[str, argument(NAME, "who is greeted")]
        times: Annotated[int, Flag(whole(1, 100), "how often")] = 1

The field ``times`` is the flag ``--times`` and the environment variable ``TWEETWIRE_TIMES``; an argument has no variable. A
field without a default is required, a field of type bool is a switch, and a sequence can be given several times.

This module imports neither pydantic nor rich, because each command has to start within 150 ms of processor time.
"""

import os
from argparse import SUPPRESS, Action, ArgumentParser, HelpFormatter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, Literal, NamedTuple, NoReturn, TypeVar, get_origin

import msgspec
from msgspec import Struct, structs

from tweetwire.cli.kinds import Kind, written
from tweetwire.protocol.errors import StartError

__all__ = [
    "COMMAND",
    "CONNECTION",
    "OUTPUT",
    "TLS",
    "Command",
    "Flag",
    "Group",
    "HelpAsked",
    "Setting",
    "argument",
    "given_texts",
    "make_command",
    "settings_of",
]

Group = Literal["this command", "connection", "TLS", "output"]
COMMAND: Final = "this command"
CONNECTION: Final = "connection"
TLS: Final = "TLS"
OUTPUT: Final = "output"

Texts = Mapping[str, str | list[str]]
"""The texts of settings by their field, before they are read."""

_PREFIX: Final = "TWEETWIRE_"


class Flag(NamedTuple):
    """The declaration of a setting, in the annotation of its field.

    Attributes:
        kind: The kind of its value, or of each value of a list.
        help: The effect of the setting, without the default.
        name: The name of the flag, if it is not that of the field.
        short: A second name of one letter, such as ``-n``.
        group: The group in ``--help``.
        default: The default in words, if the value itself does not show it.
        is_rare: Whether only ``--help-all`` shows it.
        is_argument: Whether it is a word without a flag.
        has_variable: Whether an environment variable can set it.
    """

    kind: Kind
    help: str
    name: str = ""
    short: str = ""
    group: Group = COMMAND
    default: str = ""
    is_rare: bool = False
    is_argument: bool = False
    has_variable: bool = True


def argument(kind: Kind, text: str, *, name: str = "", default: str = "") -> Flag:
    """Return the declaration of a word without a flag. `text` says what it is."""
    return Flag(kind, text, name=name, default=default, is_argument=True, has_variable=False)


class Command(Struct, kw_only=True):
    """A command of the command line. Its docstring is the first part of its ``--help``."""

    examples: ClassVar[tuple[str, ...]] = ()
    """Lines that a user could type, for ``--help``."""

    def run_command(self) -> int | None:
        """Run the command. Returns the exit status; None is 0. Raises BrokerError, StartError."""
        raise NotImplementedError


C = TypeVar("C", bound=Command)


class Setting(NamedTuple):
    """A setting of a command: its declaration and the field that holds its value."""

    field: str
    flag: Flag
    default: Any
    is_required: bool
    is_list: bool
    is_switch: bool

    @property
    def name(self) -> str:
        """The name of the flag without its dashes."""
        return self.flag.name or self.field.strip("_").replace("_", "-")

    @property
    def shown(self) -> str:
        """The setting in a sentence: its flag, or the name of an argument in capital letters."""
        return self.name.upper() if self.flag.is_argument else f"--{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable, or "" if there is none."""
        return f"{_PREFIX}{self.name.upper().replace('-', '_')}" if self.flag.has_variable else ""

    @property
    def default_text(self) -> str:
        """The default as a user would write it."""
        if self.flag.default:
            return self.flag.default
        return written(self.default) if self.default in (None, ()) else self.flag.kind.write(self.default)


class HelpAsked(Exception):
    """The words ask for the help of a command; with `is_all`, for its rarely used flags too."""

    def __init__(self, *, is_all: bool) -> None:
        super().__init__()
        self.is_all = is_all


def settings_of(command: type[Command]) -> list[Setting]:
    """Return the settings of a command, those of its base classes first."""
    return list(_settings(command))


def given_texts(command: type[Command], words: Sequence[str]) -> dict[str, str | list[str]]:
    """Return the texts of the settings that the words or else the environment give, by field.

    An empty environment variable counts as not given, because Compose passes an unset variable that way.

    Raises:
        StartError: The words do not fit the command; the message is one sentence.
        HelpAsked: The words ask for help.
    """
    settings = settings_of(command)
    # Without a width, argparse imports shutil and four compressors to ask for the terminal's width.
    formatter = partial(HelpFormatter, width=80)
    parser = _Parser(add_help=False, allow_abbrev=False, usage="", argument_default=SUPPRESS, formatter_class=formatter)
    parser.add_argument("-h", "--help", action=_Help, nargs=0)
    parser.add_argument("--help-all", action=_Help, nargs=0)
    for setting in settings:
        _add(parser, setting)
    found = vars(parser.parse_intermixed_args(list(words)))
    for setting in settings:
        text = os.environ.get(setting.variable, "") if setting.variable else ""
        if text and setting.field not in found:
            found[setting.field] = _list_of(setting, text) if setting.is_list else text
    return found


def make_command(command: type[C], texts: Texts) -> C:
    """Return the command whose settings have these texts. Raises StartError with one sentence that names each fault."""
    values: dict[str, Any] = {}
    faults = []
    for setting in settings_of(command):
        text = texts.get(setting.field)
        if text is None:
            faults += [f"{setting.shown}: is needed"] if setting.is_required else []
            continue
        try:
            read = setting.flag.kind.read
            values[setting.field] = read(text) if isinstance(text, str) else [read(one) for one in text]
        except ValueError as error:
            faults.append(f"{setting.shown}: {error}")
    if faults:
        raise StartError("; ".join(faults))
    try:
        return command(**values)
    except ValueError as error:
        raise StartError(str(error)) from error


def _settings(command: type[Command]) -> Iterator[Setting]:
    for field in structs.fields(command):
        kind = field.type.__origin__
        (flag,) = field.type.__metadata__
        is_list = get_origin(kind) in {list, Sequence}
        yield Setting(field.name, flag, field.default, field.required, is_list, kind is bool)


def _add(parser: ArgumentParser, setting: Setting) -> None:
    if setting.flag.is_argument:
        nargs = ("+" if setting.is_required else "*") if setting.is_list else None if setting.is_required else "?"
        # With a default, argparse does not require the words of a list.
        parser.add_argument(setting.field, metavar=setting.shown, nargs=nargs, default=SUPPRESS)
        return
    names = [*filter(None, [setting.flag.short]), f"--{setting.name}"]
    if setting.is_switch:
        parser.add_argument(*names, dest=setting.field, action="store_const", const="true")
        parser.add_argument(f"--no-{setting.name}", dest=setting.field, action="store_const", const="false")
    else:
        parser.add_argument(*names, dest=setting.field, action="append" if setting.is_list else "store")


def _list_of(setting: Setting, text: str) -> list[str]:
    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.MsgspecError:
        raise StartError(f"{setting.variable}: must be a JSON list of texts") from None


class _Parser(ArgumentParser):
    """A parser that reports a fault as one sentence instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise StartError(f"{message}; see --help")


class _Help(Action):
    def __call__(
        self, _parser: ArgumentParser, _namespace: object, _values: object, option_string: str | None = None
    ) -> None:
        raise HelpAsked(is_all=option_string == "--help-all")
