"""Download a small file, with the limits of an event stream's reader."""

import httpx

from sse_ingest.sources.decoding import decoded, is_readable
from sse_ingest.sources.transport import client, get

__all__ = ["download"]

TIMEOUT_S = 10.0


def download(url: str, bytes_max: int) -> bytes:
    """Return the file at `url`, following redirects. Blocks.

    Raises:
        httpx.HTTPError, httpx.InvalidURL, OSError: the file cannot be downloaded.
        ValueError: the file is larger than `bytes_max`, or its coding is not supported.
    """
    headers = httpx.Headers({"Accept-Encoding": "identity"})
    body = bytearray()
    with client(httpx.Timeout(TIMEOUT_S)) as http, get(http, url, headers, lambda _: None) as response:
        response.raise_for_status()
        coding = response.headers.get("Content-Encoding", "")
        if not is_readable(coding):
            raise ValueError(f"its Content-Encoding is {coding!r}, and only one of gzip and deflate is read")
        for piece in decoded(response.iter_raw(), coding):
            body += piece
            if len(body) > bytes_max:
                raise ValueError(f"it has more than {bytes_max} bytes")
    return bytes(body)
