"""The pages, each built anew for whoever opens it."""

from broker.dashboard.pages.routes import register

__all__ = ["register"]
