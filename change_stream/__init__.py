"""Publishes MongoDB's changes as broker events: each change once and in order, whichever process is killed."""

__all__: list[str] = []
