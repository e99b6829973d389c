"""The addresses of a running demo, for other programs: a file of environment variables, and the context ``demo``.

``set -a; . data/demo/addresses.env`` makes each of our programs find the demo's broker and MongoDB without a flag.
"""

import shlex
from typing import Final

from change_stream.status import StatusSettings
from demo.settings import DemoSettings
from demo.stack import Addresses, has_dashboard
from spark.apps.backfill.settings import BackfillSettings
from spark.apps.console import ConsoleSettings
from sse_ingest.report.settings import ReportSettings
from tweetwire.cli.contexts import Context, Contexts
from tweetwire.files import FILE_MODE, replace_file
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.program import ProgramSettings, logger

__all__ = ["CONTEXT", "FILE_NAME", "address_variables", "publish_addresses"]

CONTEXT: Final = "demo"
FILE_NAME: Final = "addresses.env"

_CLIENTS: Final[tuple[type[ProgramSettings], ...]] = (
    StatusSettings,
    BackfillSettings,
    ConsoleSettings,
    ReportSettings,
)
"""The settings of the programs that a user may start beside the demo."""


def publish_addresses(settings: DemoSettings, at: Addresses) -> None:
    """Write the addresses to the data folder, and save the broker as a context. Raises OSError.

    Contexts that cannot be saved are logged and do not stop the demo.
    """
    lines = [f"{name}={shlex.quote(value)}\n" for name, value in address_variables(settings, at).items()]
    if has_dashboard(settings):
        lines.append(f"# The dashboard: http://127.0.0.1:{at.dashboard}\n")
    replace_file(settings.data_dir / FILE_NAME, "".join(lines).encode(), mode=FILE_MODE)
    try:
        Contexts().add(CONTEXT, Context(broker=at.broker_address), None)
    except StartError as error:
        logger().warning("cannot save the context of the demo", reason=str(error))


def address_variables(settings: DemoSettings, at: Addresses) -> dict[str, str]:
    """Return the environment variables that name the demo's broker, MongoDB and database to our programs."""
    values = {"broker": at.broker_address, "mongo_url": at.mongo_url, "database": settings.database}
    found = {"TWEETWIRE_BROKER": at.broker_address}
    for program in _CLIENTS:
        prefix = program.model_config.get("env_prefix", "")
        found |= {f"{prefix}{name.upper()}": value for name, value in values.items() if name in program.model_fields}
    return found
