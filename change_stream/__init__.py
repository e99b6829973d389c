"""MongoDB's changes as broker events: every change once, in order, whatever dies on the way."""

__all__: list[str] = []
