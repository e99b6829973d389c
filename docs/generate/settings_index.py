"""The index of all settings, made from the settings classes of the programs and commands."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final, get_origin

from pydantic import AliasChoices
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from tweetwire.cli.catalogue import COMMANDS, load_command
from tweetwire.cli.connection import CommandConnection
from tweetwire.cli.flags import Setting, settings_of
from tweetwire.runtime.program import ClientSettings, ProgramSettings

__all__ = ["PROGRAMS", "settings_markdown", "variables"]

PROGRAMS: Final = (
    ("broker.settings", "BrokerSettings"),
    ("bridge.settings", "BridgeSettings"),
    ("bridge.verify", "VerifySettings"),
    ("dashboard.settings", "DashboardSettings"),
    ("sse_ingest.settings", "IngestSettings"),
    ("sse_ingest.simulator.settings", "SimulatorSettings"),
    ("sse_ingest.report.settings", "ReportSettings"),
    ("change_stream.settings", "ChangeStreamSettings"),
    ("change_stream.status", "StatusSettings"),
    ("spark.apps.settings", "SparkSettings"),
    ("spark.apps.backfill.settings", "BackfillSettings"),
    ("spark.apps.console", "ConsoleSettings"),
    ("spark.apps.plot.settings", "PlotSettings"),
    ("spark.apps.prepare", "PrepareSettings"),
    ("subscriber.stress.settings", "SubscriberSettings"),
    ("subscriber.stress.publishing", "PublishSettings"),
    ("subscriber.handlers.history", "HistorySettings"),
    ("subscriber.handlers.app", "ServiceSettings"),
    ("demo.settings", "DemoSettings"),
    ("demo.replica_set", "ReplicaSetSettings"),
)
"""The module and the class of each program's settings, in the order of the page."""
_HEAD: Final = "| flag | environment variable | default | meaning |\n| --- | --- | --- | --- |"


def settings_markdown() -> str:
    """Return the generated part of the page: a section for the common settings, and one for each program."""
    return "\n\n".join(_sections())


def variables() -> set[str]:
    """Return the name of every environment variable that is a setting of a program or of a command."""
    of_programs = {_variable(settings, name) for settings in _classes() for name in settings.model_fields}
    return of_programs | {one.variable for name in COMMANDS for one in settings_of(load_command(name))}


def _sections() -> Iterator[str]:
    yield "## Settings of every program\n\nA program's prefix stands in the place of `<PROGRAM>`."
    yield _table(ProgramSettings, set(), "TWEETWIRE_<PROGRAM>_")
    yield "## Settings of every program that is a client of the broker"
    yield _table(ClientSettings, set(ProgramSettings.model_fields), "TWEETWIRE_<PROGRAM>_")
    for settings in _classes():
        program = str(settings.model_config.get("cli_prog_name"))
        common = ClientSettings if issubclass(settings, ClientSettings) else ProgramSettings
        same = {name for name, field in common.model_fields.items() if _is_same(field, settings.model_fields[name])}
        yield f"## {program}\n\n{(settings.__doc__ or '').strip().splitlines()[0]}"
        if rows := _table(settings, same, str(settings.model_config.get("env_prefix"))):
            yield rows
    shared = settings_of(CommandConnection)
    yield f"## Commands of tweetwire\n\nEach command that talks to a broker has these settings:\n\n{_rows(shared)}"
    for name in COMMANDS:
        command = load_command(name)
        title = f"### tweetwire {name}\n\n{(command.__doc__ or '').strip().splitlines()[0]}"
        own = [one for one in settings_of(command) if one not in shared and not one.flag.is_argument]
        yield f"{title}\n\n{_rows(own)}".strip()


def _rows(settings: list[Setting]) -> str:
    """Return the table of the settings of a command, or "" if there are none."""
    rows = [
        f"| `--{one.name}` | {f'`{one.variable}`' if one.variable else '–'} "
        f"| {'required' if one.is_required else _cell(one.default_text)} | {_cell(one.flag.help)} |"
        for one in settings
    ]
    return "\n".join([_HEAD, *rows]) if rows else ""


def _classes() -> Iterator[type[BaseSettings]]:
    for module, name in PROGRAMS:
        settings: type[BaseSettings] = getattr(import_module(module), name)
        yield settings


def _table(settings: type[BaseSettings], left_out: set[str], prefix: str) -> str:
    rows = [
        f"| `--{_flag(name, field)}` | `{prefix}{_flag(name, field).upper().replace('-', '_')}` "
        f"| {_default(field)} | {_cell(field.description or '')} |"
        for name, field in settings.model_fields.items()
        if name not in left_out
    ]
    return "\n".join([_HEAD, *rows]) if rows else ""


def _variable(settings: type[BaseSettings], name: str) -> str:
    flag = _flag(name, settings.model_fields[name])
    return f"{settings.model_config.get('env_prefix')}{flag.upper().replace('-', '_')}"


def _is_same(field: FieldInfo, other: FieldInfo) -> bool:
    return field.description == other.description and field.default == other.default


def _flag(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    first = alias.choices[0] if isinstance(alias, AliasChoices) else alias
    return str(first or name).strip("_").replace("_", "-")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default: Any = field.default
    # The description says the default, such as the number of cores of this machine.
    if default is None or "the default is" in (field.description or "") or default in ("", []):
        return "–"
    if isinstance(default, bool):
        return "yes" if default else "no"
    if get_origin(field.annotation) is list:
        return ", ".join(f"`{one}`" for one in default)
    return f"`{_cell(str(default))}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
