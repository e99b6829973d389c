"""A tweet server that speaks the rtp-server's wire byte for byte: ``python -m sse_ingest.simulator``."""
