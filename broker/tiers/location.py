"""The URL of a tier: which store it names, and how the store is opened. Credentials come from the environment alone."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, LocalStore, ObjectStore, S3Store

from broker.tiers.store import Store
from tweetwire.files import make_folder
from tweetwire.protocol.errors import StartError

__all__ = ["open_store"]

REQUEST_S: Final = 120
"""The longest time of a request, in seconds. It must suffice for the upload of a segment."""
CONNECT_S: Final = 5
RETRY_S: Final = 20
ENDPOINTS: Final = (
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_ENDPOINT",
)
"""The variables that name the address of a store."""


def open_store(url: str) -> Store:
    """Return the store that a URL names, without asking it. Raises StartError with one sentence."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        # The URL is not shown, since it may hold credentials.
        raise StartError(f"--tier is not a URL: {error}; write s3://bucket/prefix") from None
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise StartError(
            "--tier must not hold credentials or options, since other users of the machine see them;"
            " set the variables of the store, for example AWS_ACCESS_KEY_ID"
        )
    try:
        return Store(_open(url, parts.scheme, parts.netloc, parts.path.strip("/")), url.rstrip("/"))
    except (BaseError, ValueError, OSError) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise StartError(f"cannot use --tier {url}: {reason}") from error


def _open(url: str, scheme: str, host: str, path: str) -> ObjectStore:
    network: dict[str, Any] = {
        "client_options": {
            "timeout": timedelta(seconds=REQUEST_S),
            "connect_timeout": timedelta(seconds=CONNECT_S),
            # A store in the same network often has no certificate, and its address says so.
            "allow_http": any(os.environ.get(name, "").startswith("http://") for name in ENDPOINTS),
        },
        "retry_config": {"max_retries": 2, "retry_timeout": timedelta(seconds=RETRY_S)},
    }
    if scheme == "file":
        if host or not path:
            raise ValueError("write a folder as file:///folder")
        # Made here, so that only this user can read the events, as in the data folder.
        make_folder(Path("/") / path)
        return LocalStore(Path("/") / path)
    if scheme not in {"s3", "gs", "az"}:
        raise ValueError("the URL must begin with s3://, gs://, az:// or file:///")
    if not host:
        raise ValueError(f"the name of the bucket is missing; write {scheme}://bucket/prefix")
    prefix = path or None
    if scheme == "s3":
        return S3Store(host, prefix=prefix, checksum_algorithm="SHA256", **network)
    if scheme == "gs":
        return GCSStore(host, prefix=prefix, **network)
    return AzureStore(host, prefix=prefix, **network)
