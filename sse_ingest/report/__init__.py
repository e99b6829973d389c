"""A picture of what is stored: ``python -m sse_ingest report`` writes one HTML file that needs nothing else."""
