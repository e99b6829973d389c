"""What a person is told of a MongoDB that does not answer or does not let a program in, in the words of all programs.

Only the text and the code of an error are looked at, so that nothing here needs MongoDB's driver.
"""

import os
import re
from typing import Final

__all__ = ["is_refusal", "no_address", "reason_of", "unanswered"]

# The driver appends its timeouts, the state of every server, and the whole reply.
_APPENDED: Final = re.compile(r" \(configured timeouts:[^)]*\)|, Timeout: .*|, full error: .*", re.DOTALL)
# asyncio has words of its own for what the system says; names that are not found have negative numbers.
_SYSTEM_ERROR: Final = re.compile(r"\[Errno (\d+)\] Connect call failed \([^)]*\)")
_NUMBER: Final = re.compile(r"\[Errno -?\d+\] ")
_OTHER_SET: Final = re.compile(r'No replica set members available for replica set name "(.*)"')
_UNAUTHORIZED: Final = 13
_AUTHENTICATION_FAILED: Final = 18
_REASON_MAX: Final = 300


def reason_of(error: Exception) -> str:
    """Return what is wrong in one line, without the driver's settings and the state of its servers."""
    line = " ".join(_APPENDED.sub("", str(error)).split())
    told = _NUMBER.sub("", _SYSTEM_ERROR.sub(lambda found: os.strerror(int(found[1])), line))
    return told[:_REASON_MAX] or type(error).__name__


def is_refusal(error: Exception) -> bool:
    """Whether MongoDB does not take the user or the password, which trying again does not change."""
    return getattr(error, "code", None) in (_UNAUTHORIZED, _AUTHENTICATION_FAILED)


def no_address(error: Exception, setting: str = "--mongo-url") -> str:
    """Say that `setting` is no address. The address itself is not shown: it may hold a password."""
    return f"that is no MongoDB address: {reason_of(error)}; write {setting} mongodb://HOST:PORT"


def unanswered(error: Exception, setting: str = "--mongo-url") -> str:
    """Say why the MongoDB at `setting` cannot be used, and what to do."""
    reason = reason_of(error)
    other_set = _OTHER_SET.match(reason)
    if other_set is not None:
        return (
            f"the MongoDB at {setting} is no member of the replica set {other_set[1]}; correct replicaSet= in {setting}"
        )
    if is_refusal(error):
        return f"MongoDB refuses the user of {setting} ({reason}); correct its name, password, authSource= or rights"
    if getattr(error, "code", None) is not None:
        return f"the MongoDB at {setting} answers, and refuses: {reason}"
    if reason.startswith("SSL handshake failed"):
        return f"no TLS with the MongoDB at {setting} ({reason}); see tls= in {setting}, and MongoDB's --tlsMode"
    return f"no MongoDB answers at {setting} ({reason}); start one, or correct {setting}"
