"""The MongoDB of a program or a test: the server in MONGO_URL, or one that is started here."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import ConfigurationError, PyMongoError

from demo.mongod.binary import REMEDY
from demo.mongod.replica_set import ReplicaSet
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.mongodb import unanswered

__all__ = ["mongodb"]


@contextmanager
def mongodb(data_dir: Path, *, port: int = 0) -> Iterator[str]:
    """Yield the URL of a replica set: the server in MONGO_URL, or else a separate member in `data_dir`.

    Raises:
        StartError: neither is available; the text names a remedy.
    """
    url = os.environ.get("MONGO_URL")
    if url:
        _check_replica_set(url)
        yield url
        return
    with ReplicaSet(data_dir, ports=[port]) as replica_set:
        yield replica_set.url


def _check_replica_set(url: str) -> None:
    try:
        with MongoClient[dict[str, Any]](url, serverSelectionTimeoutMS=5000) as client:
            hello = client.admin.command("hello")
    except ConfigurationError as error:
        raise StartError(f"MONGO_URL cannot be used: {error}") from error
    except PyMongoError as error:
        raise StartError(unanswered(error, "MONGO_URL")) from error
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        raise StartError("MONGO_URL names a server without a replica set, and change streams need one; " + REMEDY)
