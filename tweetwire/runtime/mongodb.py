"""Error messages for a MongoDB that does not answer or refuses a program, the same in all programs.

These functions use only the text and the code of an error, so this module does not import MongoDB's driver.
"""

import os
import re
from typing import Final

__all__ = ["is_refusal", "no_address", "reason_of", "unanswered"]

# The driver appends its timeouts, the state of every server, and the whole reply.
_APPENDED: Final = re.compile(r" \(configured timeouts:[^)]*\)|, Timeout: .*|, full error: .*", re.DOTALL)
# asyncio replaces the system's text by "Connect call failed". A name that is not found has a negative error number.
_SYSTEM_ERROR: Final = re.compile(r"\[Errno (\d+)\] Connect call failed \([^)]*\)")
_NUMBER: Final = re.compile(r"\[Errno -?\d+\] ")
_OTHER_SET: Final = re.compile(r'No replica set members available for replica set name "(.*)"')
_UNAUTHORIZED: Final = 13
_AUTHENTICATION_FAILED: Final = 18
_REASON_MAX: Final = 300


def reason_of(error: Exception) -> str:
    """Return the reason of a driver's error as one line, without timeouts and the state of servers."""
    line = " ".join(_APPENDED.sub("", str(error)).split())
    told = _NUMBER.sub("", _SYSTEM_ERROR.sub(lambda found: os.strerror(int(found[1])), line))
    return told[:_REASON_MAX] or type(error).__name__


def is_refusal(error: Exception) -> bool:
    """Return whether MongoDB refuses the user or the password. Another try would be refused, too."""
    return getattr(error, "code", None) in (_UNAUTHORIZED, _AUTHENTICATION_FAILED)


def no_address(error: Exception, setting: str = "--mongo-url") -> str:
    """Return the message for a `setting` that is not a MongoDB address. It leaves the address out: it may hold a password."""
    return f"{setting} is not a MongoDB address: {reason_of(error)}; write {setting} mongodb://HOST:PORT"


def unanswered(error: Exception, setting: str = "--mongo-url") -> str:
    """Return why the MongoDB at `setting` cannot be used, and what the user can do."""
    reason = reason_of(error)
    other_set = _OTHER_SET.match(reason)
    if other_set is not None:
        return f"the MongoDB at {setting} is not in the replica set {other_set[1]}; correct replicaSet= in {setting}"
    if is_refusal(error):
        return f"MongoDB refuses the user of {setting} ({reason}); correct its name, password, authSource= or rights"
    if getattr(error, "code", None) is not None:
        return f"the MongoDB at {setting} refuses a command: {reason}"
    if reason.startswith("SSL handshake failed"):
        return f"no TLS with the MongoDB at {setting} ({reason}); see tls= in {setting}, and MongoDB's --tlsMode"
    return f"no MongoDB answers at {setting} ({reason}); start one, or correct {setting}"
