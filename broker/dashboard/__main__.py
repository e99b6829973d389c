"""``python -m broker.dashboard``: serves the pages until SIGINT or SIGTERM."""

import socket
import sys

import anyio

from broker.dashboard.settings import DashboardSettings
from broker.errors import StartError
from broker.program import port_taken, run

__all__ = ["serve"]


async def serve(settings: DashboardSettings, stop: anyio.Event) -> None:
    """Serve until `stop`. Raises StartError where the port is taken, and where NiceGUI is not there."""
    # First the port: what the pages are made with takes seconds to load.
    with _listen(settings) as listener:
        try:
            from broker.dashboard.serve import serve as serve_pages  # noqa: PLC0415 — needs what only the extra brings
        except ModuleNotFoundError as error:
            raise StartError(f"the dashboard needs {error.name}: pip install 'tweetwire[dashboard]'") from error
        await serve_pages(settings, listener, stop)


def _listen(settings: DashboardSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=256)
    except OSError as error:
        raise port_taken(error, settings.host, settings.port, "--port") from error


if __name__ == "__main__":
    sys.exit(run(DashboardSettings, serve))
