"""The statistics: pure functions from tweets to windows."""
