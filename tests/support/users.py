"""Users of a broker, for tests."""

import argon2

__all__ = ["entry"]


def entry(name: str, token: str, rights: str = "", *, publish: str = '["*"]', subscribe: str = '["*"]') -> str:
    """Return the entry of a user in the broker's file, with a hash that is quick to check."""
    hashed = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(token)
    return f'[[users]]\nname = "{name}"\ntoken = "{hashed}"\npublish = {publish}\nsubscribe = {subscribe}\n{rights}\n'
