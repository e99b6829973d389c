"""Benchmarks of the broker and the pipeline: each figure with its ceiling, measured in the same run."""
