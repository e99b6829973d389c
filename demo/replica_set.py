"""``python -m demo.replica_set``: makes one MongoDB a replica set, once it answers; for containers, where nobody types."""

import sys

import anyio
from pydantic import Field
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure, PyMongoError

from broker.errors import StartError
from broker.mongodb import reason_of
from broker.program import ProgramSettings, logger, run, settings_config
from broker.units import Seconds

_ALREADY_INITIATED = 23


class ReplicaSetSettings(ProgramSettings):
    """Initiates a replica set of one member and waits until it has a primary. Does nothing where it has one already."""

    model_config = settings_config("python -m demo.replica_set")

    mongo_url: str = Field("mongodb://127.0.0.1:27017", description="the member, as reached from here")
    member: str = Field("127.0.0.1:27017", description="HOST:PORT by which clients and other members reach it")
    name: str = Field("rs0", description="the set's name, as mongod was started with")
    timeout: Seconds = Field("2m", validate_default=True, description="how long to wait for MongoDB")


async def serve(settings: ReplicaSetSettings, stop: anyio.Event) -> None:
    """Initiate the set. Raises StartError where MongoDB does not answer or refuses."""
    reason = "no answer"
    with anyio.move_on_after(settings.timeout):
        async with AsyncMongoClient[dict[str, object]](settings.mongo_url, directConnection=True) as client:
            while not stop.is_set():
                try:
                    await _initiate(client, settings)
                    if (await client.admin.command("hello")).get("isWritablePrimary"):
                        logger().info("the replica set has a primary", name=settings.name, member=settings.member)
                        return
                    reason = "no primary"
                except OperationFailure as error:
                    raise StartError(f"MongoDB refuses to make {settings.name}: {reason_of(error)}") from error
                except PyMongoError as error:
                    reason = reason_of(error)
                await anyio.sleep(0.5)
    if not stop.is_set():
        raise StartError(f"the MongoDB at --mongo-url is no replica set after {settings.timeout:g} s: {reason}")


async def _initiate(client: "AsyncMongoClient[dict[str, object]]", settings: ReplicaSetSettings) -> None:
    try:
        await client.admin.command(
            "replSetInitiate", {"_id": settings.name, "members": [{"_id": 0, "host": settings.member}]}
        )
    except OperationFailure as error:
        if error.code != _ALREADY_INITIATED:
            raise


if __name__ == "__main__":
    sys.exit(run(ReplicaSetSettings, serve))
