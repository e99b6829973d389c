"""Decide which consumer gets each event, and handle failed events."""
