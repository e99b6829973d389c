"""Undo the content coding of a response (RFC 9110, section 8.4.1) piece by piece.

Requests ask for no coding, but some servers compress nevertheless. httpx undoes any number of codings, and decodes a whole
chunk in one piece. So a few hundred bytes could expand to gigabytes. Here one coding is undone, in pieces, and a body that
expands too much is refused.
"""

import zlib
from collections.abc import Iterable, Iterator

import httpx

__all__ = ["PIECE_BYTES_MAX", "decoded", "is_readable"]

PIECE_BYTES_MAX = 1 << 16

RATIO_MAX = 200
"""The most decoded bytes for each encoded byte.

Tweets shrink to a tenth. Heartbeats, which are sent one by one, do not shrink. An attack with zeros shrinks to a thousandth.
"""

RATIO_COUNTS_FROM_BYTES = 1 << 20
_HEAD_BYTES = 2
_CODINGS = frozenset({"gzip", "x-gzip", "deflate"})


def is_readable(content_encoding: str) -> bool:
    """Whether a header `Content-Encoding` names no coding, or a single one that can be undone."""
    codings = _names(content_encoding)
    return not codings or (len(codings) == 1 and codings[0] in _CODINGS)


def decoded(pieces: Iterable[bytes], content_encoding: str) -> Iterator[bytes]:
    """Yield a body's bytes, decoded in pieces of at most 64 KiB if they are encoded, else unchanged.

    Raises:
        httpx.DecodingError: the bytes do not match the header, or expand more than any event stream does.
    """
    if not (codings := _names(content_encoding)):
        yield from pieces
        return
    taken = given = 0
    for piece in _inflated(pieces, codings[0]):
        taken, given = taken + piece[0], given + len(piece[1])
        if given > max(RATIO_COUNTS_FROM_BYTES, RATIO_MAX * taken):
            raise httpx.DecodingError(
                f"{taken} compressed bytes have become more than {given}; no event stream does that"
            )
        yield piece[1]


def _names(content_encoding: str) -> list[str]:
    names = (name.strip().lower() for name in content_encoding.split(","))
    return [name for name in names if name not in ("", "identity")]


def _inflated(pieces: Iterable[bytes], coding: str) -> Iterator[tuple[int, bytes]]:
    """Yield pairs: the number of bytes taken in, and the bytes decoded from them."""
    inflater, rest = None, b""
    for piece in pieces:
        taken, rest = len(piece), rest + piece
        if inflater is None and len(rest) < _HEAD_BYTES:
            continue
        while rest:
            inflater = inflater or zlib.decompressobj(_header(coding, rest))
            try:
                content = inflater.decompress(rest, PIECE_BYTES_MAX)
            except zlib.error as error:
                raise httpx.DecodingError(f"the body is not in its Content-Encoding: {error}") from error
            yield taken, content
            taken, rest = 0, inflater.unconsumed_tail
            if inflater.eof:
                # A gzip body may have several members.
                rest, inflater = inflater.unused_data, None


def _header(coding: str, body: bytes) -> int:
    """Return zlib's number for the header of `body`; some servers omit the header of `deflate`."""
    if coding != "deflate":
        return zlib.MAX_WBITS + 16
    is_zlib = body[0] & 0x0F == zlib.DEFLATED and int.from_bytes(body[:_HEAD_BYTES], "big") % 31 == 0
    return zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS
