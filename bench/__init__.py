"""Benchmarks of the broker: figures beside their ceiling, measured in the same run."""
