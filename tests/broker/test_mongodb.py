"""What is said of a MongoDB that cannot be used: the driver's own errors, and one sentence for each."""

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import PyMongoError

from broker.mongodb import is_refusal, no_address, unanswered

pytestmark = pytest.mark.anyio

NOBODY = "no MongoDB answers at --mongo-url (127.0.0.1:1: Connection refused); start one, or correct --mongo-url"


def failure(url: str, command: str = "ping") -> Exception:
    with pytest.raises((PyMongoError, ValueError)) as raised, MongoClient(url, serverSelectionTimeoutMS=500) as client:  # type: ignore[var-annotated]
        client.admin.command(command)
    return raised.value


@pytest.fixture
def host(mongo_url: str) -> str:
    return mongo_url.partition("//")[2].partition("/")[0]


async def test_nobody_at_the_address_is_said_without_the_drivers_settings() -> None:
    assert unanswered(failure("mongodb://127.0.0.1:1/?replicaSet=rs0")) == NOBODY
    assert "(nobody.invalid:27017: Name or service not known)" in unanswered(failure("mongodb://nobody.invalid"))
    two = unanswered(failure("mongodb://127.0.0.1:1,127.0.0.1:2/?replicaSet=rs0"), "MONGO_URL")
    assert two.count(": Connection refused") == 2
    assert two.endswith(": Connection refused); start one, or correct MONGO_URL")
    async with AsyncMongoClient("mongodb://127.0.0.1:1", serverSelectionTimeoutMS=500) as client:  # type: ignore[var-annotated]
        with pytest.raises(PyMongoError) as raised:
            await client.admin.command("ping")
    assert unanswered(raised.value) == NOBODY


@pytest.mark.stack
def test_another_replica_set_is_named(host: str) -> None:
    assert unanswered(failure(f"mongodb://{host}/?replicaSet=other")) == (
        "the MongoDB at --mongo-url is no member of the replica set other; correct replicaSet= in --mongo-url"
    )


@pytest.mark.stack
def test_a_wrong_user_is_told_so_and_its_password_is_not(host: str) -> None:
    error = failure(f"mongodb://joe:m-secret@{host}/?directConnection=true")
    assert is_refusal(error)
    sentence = unanswered(error)
    assert sentence.startswith("MongoDB refuses the user of --mongo-url (Authentication failed.); correct its name")
    assert "m-secret" not in sentence


@pytest.mark.stack
def test_what_a_server_refuses_for_another_reason_is_told(host: str) -> None:
    sentence = unanswered(failure(f"mongodb://{host}/?directConnection=true", "nonsense"))
    assert sentence == "the MongoDB at --mongo-url answers, and refuses: no such command: 'nonsense'"


@pytest.mark.stack
def test_a_server_without_tls_is_told_apart(host: str) -> None:
    sentence = unanswered(failure(f"mongodb://{host}/?tls=true&directConnection=true"))
    assert sentence.startswith("no TLS with the MongoDB at --mongo-url (SSL handshake failed: ")
    assert "Topology" not in sentence


@pytest.mark.parametrize(
    "url", ["mongodb://joe:m-secret@x@y", "mongodb://joe:m-secret@h:99999", "http://joe:m-secret@h"]
)
def test_what_is_no_address_is_not_shown(url: str) -> None:
    sentence = no_address(failure(url))
    assert sentence.startswith("that is no MongoDB address: ")
    assert "m-secret" not in sentence
