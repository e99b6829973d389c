"""``python -m broker.dashboard``: serves the pages until SIGINT or SIGTERM."""

import sys

import anyio

from broker.dashboard.settings import DashboardSettings
from broker.errors import StartError
from broker.program import run

__all__ = ["serve"]


async def serve(settings: DashboardSettings, stop: anyio.Event) -> None:
    """Serve until `stop`. Raises StartError, also where NiceGUI is not there."""
    try:
        from broker.dashboard.serve import serve as serve_pages  # noqa: PLC0415 — needs what only the extra brings
    except ModuleNotFoundError as error:
        raise StartError(f"the dashboard needs {error.name}: pip install 'tweetwire[dashboard]'") from error
    await serve_pages(settings, stop)


if __name__ == "__main__":
    sys.exit(run(DashboardSettings, serve))
