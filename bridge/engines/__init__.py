"""The central engines: each module has a Destination and an Origin, see `bridge.central`."""
