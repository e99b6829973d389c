"""The library for services that handle events."""
