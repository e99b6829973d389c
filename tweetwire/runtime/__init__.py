"""The parts that all programs share: settings and flags, logs, signals, TLS, listening, metrics."""
