"""The one table of the gateway's paths. It routes requests, and the OpenAPI document is made from it."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from broker.gateways.http.answers import Answer, HttpError
from broker.gateways.http.call import Call

__all__ = ["Action", "Parameter", "Route", "Routes"]

Action = Callable[[Call], Awaitable[Answer | None]]
"""Serves one request. It returns None if it has sent the answer itself."""

_PARAMETER = re.compile(r"\{(\w+)\}")


class Parameter(NamedTuple):
    """A parameter of a query or a header, for the document."""

    name: str
    text: str
    place: str = "query"


class Route(NamedTuple):
    """A method and path with its action. `accepts` and `produces` are content types."""

    method: str
    path: str
    summary: str
    action: Action
    produces: str = "application/json"
    accepts: tuple[str, ...] | None = None
    parameters: tuple[Parameter, ...] = ()
    # Whether the path shows the same to everybody, without credentials
    is_public: bool = False


class Routes:
    """Finds the route of a request."""

    def __init__(self, table: tuple[Route, ...]) -> None:
        self.table: Final = table
        self._by_path: dict[str, tuple[re.Pattern[str], dict[str, Route]]] = {}
        for route in table:
            pattern = re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", route.path.replace(".", r"\.")))
            self._by_path.setdefault(route.path, (pattern, {}))[1][route.method] = route

    def find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """Return the route of a request, and the parameters in its path. Raises HttpError 404 or 405."""
        for pattern, methods in self._by_path.values():
            found = pattern.fullmatch(path)
            if found is None:
                continue
            route = methods.get(method)
            if route is None:
                allowed = ", ".join(methods)
                raise HttpError(405, "method_not_allowed", f"this path has {allowed}", (("allow", allowed),))
            return route, found.groupdict()
        raise HttpError(404, "not_found", f"there is no path {path[:80]!r}; see /openapi.json")
