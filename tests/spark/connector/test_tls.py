"""A broker with TLS: Spark's batches and streams use TLS, too, and a program with unsuitable settings ends with a message."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.connector.errors import OptionError
from spark.connector.link import SparkLink, see_broker
from spark.connector.options import ReadOptions, WriteOptions, broker_options
from tests.support.certificates import files_of
from tests.support.processes import BrokerProcess
from tweetwire import Event
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.login import Login
from tweetwire.runtime.tls import TlsFiles

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("secure") / "broker", *files_of(certificates, "server")) as broker:
        yield broker


@pytest.fixture
def login(secure: BrokerProcess, certificates: Path) -> Login:
    return Login(
        secure.address, tls=TlsFiles(*(certificates / name for name in ("ca.pem", "client.pem", "client.key")))
    )


def test_batches_and_streams_go_over_tls(spark_session: SparkSession, login: Login, tmp_path: Path) -> None:
    with login.sync_client("test") as client:
        client.publish_many("tweets", [Event(id=str(n), msg=n) for n in range(20)])
        reader = {**broker_options(login), "topic": "tweets", "ranges": "2"}
        static = spark_session.read.format("tweetwire").options(**reader).load().select("id", "msg")
        static.write.format("tweetwire").mode("append").options(**{**reader, "topic": "static"}).save()
        live = spark_session.readStream.format("tweetwire").options(**reader).load().select("id", "msg")
        writer = {**reader, "topic": "live", "checkpointLocation": str(tmp_path / "checkpoint")}
        query = live.writeStream.format("tweetwire").options(**writer).trigger(availableNow=True).start()
        query.awaitTermination()
        assert [len(client.read(topic, 0).events) for topic in ("static", "live")] == [20, 20]


def test_a_broker_that_does_not_agree_on_tls_is_reported_at_once_with_the_flag_to_see(
    secure: BrokerProcess, certificates: Path
) -> None:
    for tls, flag in ((None, "--broker-tls"), (TlsFiles(certificates / "other.pem"), "--broker-tls-ca")):
        with pytest.raises(StartError) as error:
            see_broker(Login(secure.address, tls=tls), within_s=3600)
        assert str(error.value).endswith(f"; see {flag}")


@pytest.mark.parametrize("kind", [ReadOptions, WriteOptions])
def test_options_name_the_same_files_wherever_they_are_read(
    kind: type[ReadOptions] | type[WriteOptions], monkeypatch: pytest.MonkeyPatch, certificates: Path, tmp_path: Path
) -> None:
    monkeypatch.chdir(certificates)
    options = broker_options(Login("b", tls=TlsFiles(Path("ca.pem"), Path("client.pem"))))
    monkeypatch.chdir(tmp_path)
    tls = kind.parse({**options, "topic": "t"}).broker.tls
    assert tls == TlsFiles(certificates / "ca.pem", certificates / "client.pem")
    assert kind.parse({"broker": "b", "topic": "t", "tls": "true"}).broker.tls == TlsFiles()
    assert kind.parse({"broker": "b", "topic": "t", "tlsCa": "", "tls": ""}).broker.tls is None
    with pytest.raises(OptionError, match="tls=yes: write true or false"):
        kind.parse({"broker": "b", "topic": "t", "tls": "yes"})


def test_a_file_that_an_executor_does_not_have_is_reported_at_once(secure: BrokerProcess) -> None:
    with (
        SparkLink(Login(secure.address, tls=TlsFiles(Path("/none/ca.pem"))), retry_s=3600) as link,
        pytest.raises(OptionError, match=r"tlsCa: cannot read /none/ca\.pem: .*; each executor needs it, too"),
    ):
        link.heads(["tweets"])
