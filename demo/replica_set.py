"""``python -m demo.replica_set`` makes one MongoDB a replica set with a user, once it answers; for containers."""

import sys
from typing import Any, Self

import anyio
from pydantic import Field, SecretStr, model_validator
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure, PyMongoError

from tweetwire.protocol.errors import StartError
from tweetwire.runtime.kinds import Seconds
from tweetwire.runtime.mongodb import reason_of
from tweetwire.runtime.program import ProgramSettings, logger, run, settings_config

_UNAUTHORIZED = 13
_LOGIN_FAILED = 18
_ALREADY_INITIATED = 23
_USER_EXISTS = 51003


class ReplicaSetSettings(ProgramSettings):
    """Initiate a replica set of one member and wait for its primary. Then create a user, if there is none yet."""

    model_config = settings_config("python -m demo.replica_set")

    mongo_url: str = Field("mongodb://127.0.0.1:27017", description="address of the member, as reached from here")
    member: str = Field("127.0.0.1:27017", description="HOST:PORT by which clients and other members reach it")
    name: str = Field("rs0", description="the set's name, as given to mongod")
    user: str = Field("", description="user to create, with all rights; needs a mongod that is reached by loopback")
    password: SecretStr = Field(SecretStr(""), description="password of that user; better as an environment variable")
    timeout: Seconds = Field("2m", validate_default=True, description="how long to wait for MongoDB")

    @model_validator(mode="after")
    def _whole_user(self) -> Self:
        if bool(self.user) != bool(self.password.get_secret_value()):
            raise ValueError("--user and --password go together")
        return self


async def serve(settings: ReplicaSetSettings, stop: anyio.Event) -> None:
    """Initiate the set. Raises StartError if MongoDB does not answer or refuses."""
    reason = "no answer"
    with anyio.move_on_after(settings.timeout):
        async with AsyncMongoClient[dict[str, Any]](settings.mongo_url, directConnection=True) as client:
            while not stop.is_set():
                try:
                    if await _has_primary(client, settings):
                        await _ensure_user(client, settings)
                        logger().info("replica set has a primary", name=settings.name, member=settings.member)
                        return
                    reason = "no primary"
                except OperationFailure as error:
                    raise StartError(f"MongoDB refuses to make {settings.name}: {reason_of(error)}") from error
                except PyMongoError as error:
                    reason = reason_of(error)
                await anyio.sleep(0.5)
    if not stop.is_set():
        raise StartError(f"the MongoDB at --mongo-url is not a replica set after {settings.timeout:g} s: {reason}")


async def _has_primary(client: "AsyncMongoClient[dict[str, Any]]", settings: ReplicaSetSettings) -> bool:
    """Initiate the set if that was not done before, and return whether it has a primary."""
    members = [{"_id": 0, "host": settings.member}]
    try:
        await client.admin.command("replSetInitiate", {"_id": settings.name, "members": members})
    except OperationFailure as error:
        # A MongoDB with users refuses this command to anonymous clients; then the set was initiated before the first user.
        if error.code not in {_ALREADY_INITIATED, _UNAUTHORIZED}:
            raise
    return bool((await client.admin.command("hello")).get("isWritablePrimary"))


async def _ensure_user(client: "AsyncMongoClient[dict[str, Any]]", settings: ReplicaSetSettings) -> None:
    """Create the user if there is none yet, and log in as that user."""
    if not settings.user:
        return
    password = settings.password.get_secret_value()
    try:
        await client.admin.command("createUser", settings.user, pwd=password, roles=["root"])
    except OperationFailure as error:
        if error.code not in {_UNAUTHORIZED, _USER_EXISTS}:
            raise
    async with AsyncMongoClient[dict[str, Any]](
        settings.mongo_url, directConnection=True, username=settings.user, password=password, authSource="admin"
    ) as user:
        try:
            await user.admin.command("ping")
        except OperationFailure as error:
            if error.code != _LOGIN_FAILED:
                raise
            raise StartError(
                f"MongoDB has users already and refuses the login of {settings.user}; pass the password that was set at its"
                " first start, or delete its data (docker compose down --volumes)"
            ) from error


if __name__ == "__main__":
    sys.exit(run(ReplicaSetSettings, serve, is_service=False))
