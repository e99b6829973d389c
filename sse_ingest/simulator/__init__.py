"""A tweet server that speaks the rtp-server's protocol byte for byte: ``python -m sse_ingest.simulator``."""
