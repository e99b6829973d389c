"""The broker as a Spark source and sink."""
