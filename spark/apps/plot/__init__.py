"""A picture of the last hour of both statistics: ``python -m spark plot``."""
