"""Read settings from the command line, with the same form of ``--help`` and of errors for every program.

In ``--help``, the word for a value is the `Metavar` of its kind, or is made from its type and its flag's name. The default is
shown in the form in which users write it. So a description names neither a unit nor the default.
"""

import argparse
import inspect
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args, get_origin

from pydantic import AliasChoices, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, CliApp, CliPositionalArg, CliSettingsSource, SettingsError

from tweetwire.protocol.errors import StartError
from tweetwire.runtime.kinds import Metavar

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = ["read_flags"]

S = TypeVar("S", bound=BaseSettings)

# The words for values, for flags whose names are not nouns.
_NOUNS: Final = {"AS": "NAME", "FROM": "OFFSET", "TO": "TOPIC", "SET": "FILE"}
# Our words for each type of error that pydantic reports.
_WORDS: Final = {
    "missing": "is needed",
    "int_parsing": "{given!r} is not a whole number",
    "float_parsing": "{given!r} is not a number",
    "bool_parsing": "{given!r} is neither true nor false",
    "literal_error": "{given!r} is not one of {expected}",
    "string_pattern_mismatch": "{given!r} does not have the form {pattern}",
    "greater_than_equal": "{given!r} is less than {ge}",
    "greater_than": "{given!r} is not more than {gt}",
    "less_than_equal": "{given!r} is more than {le}",
    "less_than": "{given!r} is not less than {lt}",
}
# The mark of a positional setting, one without a flag. pydantic-settings has no public name for it.
_POSITIONAL: Final = get_args(CliPositionalArg[str])[1:]


def read_flags(settings_type: type[S], words: Sequence[str]) -> S:
    """Read settings from the words of a command line and from the environment.

    Raises:
        StartError: A setting is wrong; the message is one sentence that names it.
        SystemExit: The words ask for ``--help``.
    """
    fields = {flag: field for name, field in settings_type.model_fields.items() for flag in _flags(name, field)}

    def add(parser: argparse.ArgumentParser, *names: str, **options: Any) -> None:
        field = fields.get(names[0].lstrip("-").replace("_", "-"))
        if field is not None:
            if "metavar" in options and not _is_positional(field):
                options["metavar"] = _metavar(names[0], field).word
            options["help"] = _help(field).replace("%", "%%")
        parser.add_argument(*names, **options)

    try:
        source: CliSettingsSource[Any] = CliSettingsSource(
            settings_type, cli_exit_on_error=False, add_argument_method=add
        )
        _tell_about(settings_type, source.root_parser)
        return CliApp.run(settings_type, cli_args=list(words), cli_settings_source=source)
    except SettingsError as error:
        raise StartError(f"{str(error).removeprefix('error parsing CLI: ')}; see --help") from error
    except ValidationError as error:
        raise StartError(_sentence(error, fields)) from error


def _tell_about(settings_type: type[BaseSettings], parser: argparse.ArgumentParser) -> None:
    width = shutil.get_terminal_size().columns - 2
    paragraphs = inspect.cleandoc(parser.description or "").split("\n\n")
    parser.description = "\n\n".join(textwrap.fill(" ".join(one.split()), width) for one in paragraphs)
    parser.epilog = textwrap.fill(" ".join(_notes(settings_type)), width)


def _notes(settings_type: type[BaseSettings]) -> Iterator[str]:
    """Return the notes below the flags: how values are written, and how the environment names a setting."""
    flags = {_flags(name, field)[0]: field for name, field in settings_type.model_fields.items()}
    kinds = {_metavar(flag, field) for flag, field in flags.items()}
    for kind in sorted((kind for kind in kinds if kind.examples), key=lambda kind: kind.word):
        yield f"{kind.word} is written like {kind.examples}."
    example = next((flag for flag, field in flags.items() if not _is_positional(field)), None)
    if example is not None:
        variable = f"{settings_type.model_config.get('env_prefix', '')}{example.replace('-', '_').upper()}"
        yield f"Each setting is also an environment variable: --{example} is {variable} (several values: a JSON list)."


def _metavar(flag: str, field: FieldInfo) -> Metavar:
    known = next((mark for mark in _marks(field) if isinstance(mark, Metavar)), None)
    if known is not None:
        return known
    kind, name = _value_type(field), flag.rpartition("-")[2].upper()
    if get_origin(kind) is Literal:
        return Metavar(f"{{{','.join(map(str, get_args(kind)))}}}")
    if kind is int and name != "PORT":
        return Metavar("N")
    if kind is float:
        return Metavar("NUMBER")
    return Metavar("FILE" if kind is Path else _NOUNS.get(name, name))


def _marks(field: FieldInfo) -> Iterator[Any]:
    """Return the metadata of a field's annotation, also from inside lists and unions."""
    yield from field.metadata
    unseen = [field.annotation]
    while unseen:
        annotation = unseen.pop()
        yield from getattr(annotation, "__metadata__", ())
        if get_origin(annotation) is not Literal:
            unseen += get_args(annotation)


def _value_type(field: FieldInfo) -> Any:
    """Return the type of one value of a field: ``T`` if the annotation is ``list[T]`` or ``T | None``."""
    kind: Any = field.annotation
    while get_origin(kind) is not Literal and (parts := get_args(kind)):
        kind = next(part for part in parts if part is not type(None))
    return kind


def _help(field: FieldInfo) -> str:
    text = field.description or ""
    notes = ["repeatable"] if get_origin(field.annotation) is list and not _is_positional(field) else []
    if field.is_required():
        notes += [] if _is_positional(field) else ["required"]
    elif "(default: " not in text:
        notes.append(f"default: {_written(field.default)}")
    return f"{text} ({'; '.join(notes)})" if notes else text


def _written(default: object) -> str:
    """Return a default as a user would write it."""
    if isinstance(default, SecretStr):
        return _written(default.get_secret_value() and "a secret")
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, float):
        return f"{default:.15g}"
    if isinstance(default, list | tuple):
        return ", ".join(map(_written, default)) or "none"
    return "none" if default in (None, "") else str(default)


def _sentence(error: ValidationError, fields: dict[str, FieldInfo]) -> str:
    """Return one sentence that names each wrong setting and its fault."""
    return "; ".join(f"{_shown(fault['loc'], fields)}{_said(fault)}" for fault in error.errors(include_url=False))


def _said(fault: "ErrorDetails") -> str:
    """Return what is wrong with a value, in our words for it or else in the library's."""
    words = _WORDS.get(fault["type"])
    if words is None:
        return fault["msg"].removeprefix("Value error, ")
    bounds = {
        name: f"{bound:.15g}" if isinstance(bound, float) else bound for name, bound in fault.get("ctx", {}).items()
    }
    return words.format(given=fault["input"], **bounds)


def _shown(place: Iterable[int | str], fields: dict[str, FieldInfo]) -> str:
    flag = next((str(part).strip("_").replace("_", "-") for part in place), None)
    if flag is None:
        return ""
    return f"{flag.upper() if flag in fields and _is_positional(fields[flag]) else f'--{flag}'}: "


def _flags(name: str, field: FieldInfo) -> list[str]:
    alias = field.validation_alias
    names = (
        [one for one in alias.choices if isinstance(one, str)] if isinstance(alias, AliasChoices) else [alias or name]
    )
    return [str(one).replace("_", "-") for one in names]


def _is_positional(field: FieldInfo) -> bool:
    return any(mark in _POSITIONAL for mark in field.metadata)
