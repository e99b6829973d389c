"""NATS with TLS, users and rights."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.central import EngineRefused, EngineUnreachable
from bridge.engines.jetstream import JetStreamDestination
from bridge.engines.jetstream_link import NatsLogin
from tests.bridge.records import record
from tests.support.certificates import make_certificates
from tests.support.nats_servers import NatsServer

pytestmark = pytest.mark.anyio

READS = {"publish": ["$JS.API.STREAM.INFO.>", "$JS.API.STREAM.MSG.GET.>"]}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure_server(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    users = [{"user": "me", "password": "right"}, {"user": "reader", "password": "right", "permissions": READS}]
    tls = {"cert_file": str(certificates / "server.pem"), "key_file": str(certificates / "server.key")}
    with NatsServer(tmp_path_factory.mktemp("nats"), tls=tls, authorization={"users": users}) as server:
        yield server


async def append(login: NatsLogin) -> None:
    one = JetStreamDestination(login, "ORDERS", "orders")
    try:
        found = await one.open("A" * 22)
        await one.append([record(0 if found.position is None else found.position + 1)])
    finally:
        await one.aclose()


def login_at(server: NatsServer, authority: Path, user: str = "me", password: str = "right") -> NatsLogin:
    return NatsLogin(
        (("127.0.0.1", server.port),), user=user, password=password, is_tls=True, tls_ca=authority, timeout_s=20
    )


async def test_a_user_writes_over_tls_and_a_reader_is_refused(secure_server: NatsServer, certificates: Path) -> None:
    await append(login_at(secure_server, certificates / "ca.pem"))
    with pytest.raises(EngineRefused, match="permissions violation for publish to"):
        await append(login_at(secure_server, certificates / "ca.pem", "reader"))


async def test_a_wrong_password_and_a_wrong_authority_can_be_tried_again(
    secure_server: NatsServer, certificates: Path
) -> None:
    with pytest.raises(EngineUnreachable, match="Authorization Violation"):
        await append(login_at(secure_server, certificates / "ca.pem", password="wrong"))
    with pytest.raises(EngineUnreachable, match="certificate verify failed"):
        await append(login_at(secure_server, certificates / "other.pem"))
