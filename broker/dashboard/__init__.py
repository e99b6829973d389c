"""The dashboard has moved to `dashboard`. This package starts it under its old name for one more release."""
