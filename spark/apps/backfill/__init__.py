"""Compute the live statistics for all documents in MongoDB: ``python -m spark backfill``."""
