"""The pages. Each visitor gets a separate copy of a page."""

from dashboard.pages.routes import register

__all__ = ["register"]
