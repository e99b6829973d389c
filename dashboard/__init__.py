"""The dashboard, a separate program that knows only the broker's protocol: `python -m dashboard`."""
