"""A broker with users: Spark logs in, its token appears in no output, and a refused program ends with a message."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.pretty import pretty_repr

from spark.__main__ import run_jobs
from spark.apps.driver_thread import DriverThread
from spark.apps.settings import SparkSettings
from spark.connector.errors import OptionError
from spark.connector.link import see_broker
from spark.connector.options import ReadOptions, WriteOptions, broker_options
from tests.spark import samples
from tests.support.processes import BrokerProcess
from tests.support.users import entry
from tweetwire import Event, SyncClient
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.login import Login

T = TypeVar("T")

TOKEN = "t0ken-0f-spark"

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]


@pytest.fixture
def users(tmp_path: Path) -> Path:
    file = tmp_path / "users.toml"
    file.write_text(entry("spark", TOKEN) + entry("guest", "g", subscribe='["users"]'))
    return file


@pytest.fixture
def guarded(tmp_path: Path, users: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "guarded", "--users", users) as broker:
        yield broker


def login(broker: BrokerProcess) -> Login:
    return Login(broker.address, "spark", TOKEN)


def publish(broker: BrokerProcess, topic: str, events: list[Event]) -> None:
    with SyncClient(broker.address, name="spark", token=TOKEN) as client:
        client.publish_many(topic, events)


def count(broker: BrokerProcess, topic: str) -> int:
    with SyncClient(broker.address, name="spark", token=TOKEN) as client:
        return len(client.read(topic, 0).events)


def copied(rows: DataFrame, broker: BrokerProcess, topic: str, checkpoint: Path) -> StreamingQuery:
    options = {**broker_options(login(broker)), "topic": topic, "checkpointLocation": str(checkpoint)}
    return rows.writeStream.format("tweetwire").options(**options).trigger(availableNow=True).start()


def shown(session: SparkSession) -> str:
    """Return the text of all queries on Spark's own page: their plans, as text and as nodes."""
    store = session._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    texts = []
    for number in range(executions.size()):
        execution = executions.apply(number)
        nodes = store.planGraph(execution.executionId()).allNodes()
        texts += [str(execution.physicalPlanDescription()), str(execution.details())]
        texts += [str(nodes.apply(place).desc()) for place in range(nodes.size())]
    return "\n".join(texts)


def test_batches_and_streams_log_in_and_the_token_is_shown_nowhere(
    spark_session: SparkSession, guarded: BrokerProcess, tmp_path: Path
) -> None:
    publish(guarded, "tweets", [Event(id=str(n), msg=n) for n in range(20)])
    options = {**broker_options(login(guarded)), "topic": "tweets"}
    static = spark_session.read.format("tweetwire").options(**options).load().select("id", "msg")
    static.write.format("tweetwire").mode("append").options(**{**options, "topic": "static"}).save()
    live = spark_session.readStream.format("tweetwire").options(**options).load()
    query = copied(live.select("id", "msg"), guarded, "live", tmp_path / "checkpoint")
    query.awaitTermination()
    assert (count(guarded, "static"), count(guarded, "live")) == (20, 20)
    failing = copied(live.selectExpr("id", "string(raise_error(id)) msg"), guarded, "live", tmp_path / "other")
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION") as failure:
        failing.awaitTermination()
    plans = [static._jdf.queryExecution().toString(), query._jsq.explainInternal(True)]
    for text in (*plans, shown(spark_session), str(failure.value), repr(query.recentProgress)):
        assert "tweetwire" in text or "source" in text, "there is nothing to find"
        assert TOKEN not in text
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or TOKEN.encode() not in file.read_bytes(), file


class ThisThread(DriverThread):
    """The thread that made the tests' session. Only in this thread Spark finds the registered source."""

    async def run(self, function: Callable[[], T]) -> T:
        return function()


@pytest.mark.anyio
async def test_a_running_job_that_is_refused_by_a_broker_with_other_users_ends(
    spark_session: SparkSession, guarded: BrokerProcess, users: Path, tmp_path: Path
) -> None:
    publish(guarded, "tweets", [Event(id=str(n), msg=one) for n, one in enumerate(samples.changes(60))])
    given = ["--broker", guarded.address, "--broker-user", "spark", "--broker-token", TOKEN]
    settings = SparkSettings(
        _cli_parse_args=["tweets-stats", *given, "--checkpoint", str(tmp_path / "checkpoint"), "--idle", "1s"]
    )
    with pytest.raises(BaseExceptionGroup) as ended, ThisThread() as thread, anyio.fail_after(200):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_jobs, settings, anyio.Event(), spark_session, thread)
            while not spark_session.streams.active:
                await anyio.sleep(0.1)
            await anyio.Path(users).write_text(entry("spark", "another"))
            await anyio.to_thread.run_sync(guarded.kill)
            await anyio.to_thread.run_sync(guarded.start)
    sentence = ended.value
    while isinstance(sentence, BaseExceptionGroup):
        (sentence,) = sentence.exceptions
    assert isinstance(sentence, StartError)
    assert "refuses: unauthenticated no such name and token; see --broker-user and --broker-token" in str(sentence)


@pytest.mark.parametrize(
    ("who", "topics", "sentence"),
    [
        ((None, None), [], "unauthenticated .*; set --broker-user and --broker-token"),
        (("spark", "wrong"), [], "unauthenticated .*; see --broker-user and --broker-token"),
        (("guest", "g"), ["users", "tweets"], "forbidden guest needs a subscribe pattern for tweets; .* --users"),
    ],
)
def test_a_refused_login_ends_the_start_with_a_reason(
    guarded: BrokerProcess, who: tuple[str | None, str | None], topics: list[str], sentence: str
) -> None:
    with pytest.raises(StartError, match=sentence) as error:
        see_broker(Login(guarded.address, *who), topics)
    assert "wrong" not in str(error.value)


def test_a_user_who_may_read_is_accepted_whether_or_not_the_topics_exist(guarded: BrokerProcess) -> None:
    publish(guarded, "tweets", [Event(id="1", msg=1)])
    see_broker(login(guarded), ["tweets", "later"])
    see_broker(Login(guarded.address, "guest", "g"), ["users"])


@pytest.mark.parametrize("kind", [ReadOptions, WriteOptions])
def test_a_token_is_in_no_text_of_the_options(kind: type[ReadOptions] | type[WriteOptions]) -> None:
    options = kind.parse({"broker": "b", "topic": "t", "user": "u", "token": TOKEN})
    assert options.broker.token == TOKEN
    assert "user='u'" in repr(options)
    assert "user='u'" in pretty_repr(options)
    assert TOKEN not in f"{options!r} {options} {pretty_repr(options)}"


@pytest.mark.parametrize("half", [{"user": "u"}, {"token": TOKEN}, {"user": "u", "token": "two words"}])
def test_half_a_login_is_refused_without_the_token_in_the_sentence(half: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="user, token: ") as refused:
        ReadOptions.parse({"broker": "b", "topic": "t", **half})
    assert half.get("token", TOKEN) not in str(refused.value)
