"""The clients of the broker, and the modules that both share."""
