"""The last hour of both statistics as a picture: ``python -m spark plot``."""
