"""The errors of the tier: the store is away, refuses requests or is unsuitable, or another broker has taken over."""

__all__ = ["Fenced", "ObjectDamaged", "StoreAway", "StoreUnusable", "TierError"]


class TierError(Exception):
    """A failure of the tier. The text is one sentence."""


class StoreAway(TierError):
    """The store did not answer, or failed. The same request may succeed later."""


class StoreUnusable(TierError):
    """The store answered, and refuses requests or does not keep the promises that the fence needs."""


class ObjectDamaged(TierError):
    """An object is missing, or does not hold the bytes that the manifest names."""


class Fenced(TierError):
    """Another broker has continued the chain of manifests, so this one must not upload any more."""
