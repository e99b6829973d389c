"""The dashboard: `python -m broker.dashboard`, a program of its own that knows the protocol only."""
