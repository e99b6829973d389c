"""The async client and the blocking client of the broker, and the modules that they share."""
