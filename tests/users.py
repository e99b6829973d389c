"""Users of a broker, for tests."""

import argon2

__all__ = ["entry"]


def entry(name: str, token: str, rights: str = "", *, publish: str = '["*"]', subscribe: str = '["*"]') -> str:
    """A user as the broker's file has it, with a hash that is quick to check."""
    hashed = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(token)
    return f'[[users]]\nname = "{name}"\ntoken = "{hashed}"\npublish = {publish}\nsubscribe = {subscribe}\n{rights}\n'
