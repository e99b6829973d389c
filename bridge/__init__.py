"""Carry topics to and from a central engine, each event once. Start it with ``python -m bridge``."""
