"""The HTTP gateway, with Server-Sent Events and WebSockets: every language with an HTTP client can use the broker."""

from broker.gateways.http.gateway import HttpGateway
from broker.gateways.http.options import HttpOptions

__all__ = ["HttpGateway", "HttpOptions"]
