"""The same statistics over the whole of MongoDB: ``python -m spark backfill``."""
