"""Replace values of which consumers may know only a part, or only whether two of them are the same."""

import hashlib
from collections.abc import Callable
from typing import Any, Final, Literal, get_args

import msgspec

from change_stream.extended_json import plain

__all__ = ["Mask", "MaskName", "mask_named"]

MaskName = Literal["sha256", "null", "last4"]
Mask = Callable[[Any], Any]

_SHOWN: Final = 4
_encode = msgspec.json.Encoder(enc_hook=plain, order="sorted").encode


def mask_named(name: str) -> Mask:
    """Return a mask. It replaces each element of an array. Raises ValueError."""
    if name not in get_args(MaskName):
        raise ValueError(f"{name!r} is not a mask; write sha256, null or last4")
    return _MASKS[name]


def _each(mask: Mask) -> Mask:
    def masked(value: Any) -> Any:
        return [masked(one) for one in value] if isinstance(value, list) else mask(value)

    return masked


def _sha256(value: Any) -> str | None:
    """Return the digest of a text's UTF-8 bytes, or of the JSON of any other value. An absent value stays null."""
    if value is None:
        return None
    return hashlib.sha256(value.encode() if type(value) is str else _encode(value)).hexdigest()


def _last4(value: Any) -> str | None:
    """Return the last four characters after stars, and only stars for a value that is not longer."""
    if value is None or isinstance(value, dict):
        return None
    text = value if type(value) is str else _encode(value).decode().strip('"')
    return f"****{text[-_SHOWN:]}" if len(text) > _SHOWN else "****"


_MASKS: Final[dict[str, Mask]] = {"sha256": _each(_sha256), "null": lambda _: None, "last4": _each(_last4)}
