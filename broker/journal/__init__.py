"""The durable state of the broker, except for the events: its records (`records`) and the files that hold them."""

from broker.journal.check import cut_torn_end, damaged_lines, is_whole_snapshot
from broker.journal.journal import Journal, Restored

__all__ = ["Journal", "Restored", "cut_torn_end", "damaged_lines", "is_whole_snapshot"]
