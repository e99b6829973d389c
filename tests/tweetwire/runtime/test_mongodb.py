"""The messages about an unusable MongoDB: one sentence for each error of the driver."""

import json
import subprocess
import sys
from typing import NamedTuple

import pytest

from tests.support.paths import ROOT
from tweetwire.runtime.mongodb import reason_of

pytestmark = pytest.mark.stack

NOBODY = "no MongoDB answers at --mongo-url (127.0.0.1:1: Connection refused); start one, or correct --mongo-url"
SERVERS = {
    "nobody": ("mongodb://127.0.0.1:1/?replicaSet=rs0", "ping"),
    "nobody at two": ("mongodb://127.0.0.1:1,127.0.0.1:2/?replicaSet=rs0", "ping"),
    "another set": ("mongodb://{host}/?replicaSet=other", "ping"),
    "no TLS": ("mongodb://{host}/?tls=true&directConnection=true", "ping"),
    "wrong user": ("mongodb://joe:m-secret@{host}/?directConnection=true", "ping"),
    "another refusal": ("mongodb://{host}/?directConnection=true", "nonsense"),
    "no address": ("mongodb://joe:m-secret@x@y", "ping"),
    "no port": ("mongodb://joe:m-secret@h:99999", "ping"),
    "no scheme": ("http://joe:m-secret@h", "ping"),
}
# This runs in a separate process, since the driver's threads may leave a socket open if they are closed during a failure.
ASKING = """
import asyncio, json, sys
from concurrent.futures import ThreadPoolExecutor
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import PyMongoError
from tweetwire.runtime.mongodb import is_refusal, no_address, unanswered

async def ask(url, command):
    async with AsyncMongoClient(url, serverSelectionTimeoutMS=1000) as client:
        await client.admin.command(command)

def ask_blocking(url, command):
    with MongoClient(url, serverSelectionTimeoutMS=1000) as client:
        client.admin.command(command)

def failure(way, words):
    try:
        way(*words)
    except (PyMongoError, ValueError) as error:
        return [unanswered(error), no_address(error), is_refusal(error)]

def both(words):
    return [failure(way, words) for way in (ask_blocking, lambda *words: asyncio.run(ask(*words)))]

servers = json.loads(sys.argv[1])
with ThreadPoolExecutor(len(servers)) as threads:
    print(json.dumps(dict(zip(servers, threads.map(both, servers.values())))))
"""


class Said(NamedTuple):
    """The texts for one error."""

    unanswered: str
    no_address: str
    is_refusal: bool


@pytest.fixture(scope="module")
def said(mongo_url: str) -> dict[str, list[Said]]:
    """Return two texts for each server: for the error of the blocking driver and for that of the async driver."""
    host = mongo_url.partition("//")[2].partition("/")[0]
    servers = {name: (url.format(host=host), command) for name, (url, command) in SERVERS.items()}
    done = subprocess.run(
        [sys.executable, "-c", ASKING, json.dumps(servers)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=ROOT,
    )
    return {name: [Said(*one) for one in both] for name, both in json.loads(done.stdout).items()}


def test_an_absent_server_is_reported_without_the_drivers_settings(said: dict[str, list[Said]]) -> None:
    assert {one.unanswered for one in said["nobody"]} == {NOBODY}
    for one in said["nobody at two"]:
        assert one.unanswered.count(": Connection refused") == 2
        assert one.unanswered.endswith(": Connection refused); start one, or correct --mongo-url")


def test_an_unknown_host_name_is_reported_without_its_error_number() -> None:
    # A resolver may take long for such a name, so this is a copy of the driver's error.
    error = Exception(
        "nowhere:1: [Errno -2] Name or service not known (configured timeouts: a: 1ms, b: 2ms), Timeout: 1s"
    )
    assert reason_of(error) == "nowhere:1: Name or service not known"


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        ("another set", "the MongoDB at --mongo-url is not in the replica set other; correct replicaSet= in"),
        ("no TLS", "no TLS with the MongoDB at --mongo-url (SSL handshake failed: "),
        ("wrong user", "MongoDB refuses the user of --mongo-url (Authentication failed.); correct its name"),
        ("another refusal", "the MongoDB at --mongo-url refuses a command: no such command: 'nonsense'"),
    ],
)
def test_a_server_that_answers_and_cannot_be_used_is_told_apart(
    said: dict[str, list[Said]], server: str, sentence: str
) -> None:
    for one in said[server]:
        assert one.unanswered.startswith(sentence)
        assert "Topology" not in one.unanswered
        assert "m-secret" not in one.unanswered
        assert one.is_refusal == (server == "wrong user")


@pytest.mark.parametrize("server", ["no address", "no port", "no scheme"])
def test_an_invalid_address_is_not_shown(said: dict[str, list[Said]], server: str) -> None:
    for one in said[server]:
        assert one.no_address.startswith("--mongo-url is not a MongoDB address: ")
        assert "m-secret" not in one.no_address
