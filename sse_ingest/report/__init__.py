"""The report: ``python -m sse_ingest report`` writes a self-contained HTML file about the stored tweets."""
