"""The tier: sealed segments in an object store, from which a broker can be restored.

The broker uploads and never depends on the store: it serves from its folder while the store is away.
"""
