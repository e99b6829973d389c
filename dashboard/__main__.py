"""``python -m dashboard`` serves the pages until SIGINT or SIGTERM."""

import socket
import sys

import anyio

from dashboard.settings import DashboardSettings
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.program import port_taken, run

__all__ = ["serve"]


async def serve(settings: DashboardSettings, stop: anyio.Event) -> None:
    """Serve until `stop`. Raises StartError if the port is taken or NiceGUI is not installed."""
    # Take the port first, because the libraries of the pages take seconds to load.
    with _listen(settings) as listener:
        try:
            from dashboard.serve import serve as serve_pages  # noqa: PLC0415 — needs the libraries of the extra `dashboard`
        except ModuleNotFoundError as error:
            raise StartError(f"the dashboard needs {error.name}: pip install 'tweetwire[dashboard]'") from error
        await serve_pages(settings, listener, stop)


def _listen(settings: DashboardSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        both = settings.host == "::"
        return socket.create_server((settings.host, settings.port), family=family, backlog=256, dualstack_ipv6=both)
    except OSError as error:
        raise port_taken(error, settings.host, settings.port, "--port") from error


if __name__ == "__main__":
    sys.exit(run(DashboardSettings, serve))
