"""The broker's command line for people: ``python -m broker COMMAND``."""

from broker.cli.program import COMMANDS, main

__all__ = ["COMMANDS", "main"]
