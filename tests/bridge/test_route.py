"""Routes in both forms, and one clear sentence for each wrong one."""

import re
from pathlib import Path

import pytest

from bridge.options import Options
from bridge.route import Route, check_routes, parse_in, parse_out, read_routes

OUT = "orders -> redis://host/orders"


def test_a_route_outwards_is_a_topic_an_arrow_and_an_address() -> None:
    route = parse_out(
        "orders -> redis://host:7000/tw.{broker}.orders?begin=latest&linger=5ms&trim=1000&create=no&as=shop"
    )
    assert route == Route(
        direction="out",
        topic="orders",
        scheme="redis",
        hosts=(("host", 7000),),
        stream="tw.{broker}.orders",
        options=Options(begin="latest", linger_s=0.005, trim=1000, create=False, as_="shop"),
    )
    assert route.stream_at("X") == "tw.X.orders"
    assert str(route) == "orders -> redis://host:7000/tw.{broker}.orders"


def test_a_route_inwards_is_an_address_an_arrow_and_a_topic() -> None:
    route = parse_in("rediss://[::1]/pay:in?begin=5-0->payments")
    assert (route.direction, route.topic, route.stream, route.hosts) == ("in", "payments", "pay:in", (("::1", 6379),))
    assert route.options.begin == "5-0"
    assert str(route) == "rediss://[::1]:6379/pay:in -> payments"


@pytest.mark.parametrize(
    ("stream", "name"),
    [("orders", "redis.orders"), ("a:b/c", "redis.a_b_c"), ("{broker}", "redis.broker"), ("x" * 200, None)],
)
def test_a_mark_is_named_after_the_engine_and_the_stream(stream: str, name: str | None) -> None:
    assert parse_out(f"t -> redis://h/{stream}").mark == (name or f"redis.{'x' * 114}")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("orders", "is not a route; write it like 'orders -> redis://127.0.0.1:6379/orders'"),
        ("-> redis://h/s", "is not a route"),
        ("orders ->", "is not a route"),
        ("or ders -> redis://h/s", "or ders"),
        ("orders -> h/s", "is not the address of a central stream; write it like redis://host:6379/stream"),
        ("orders -> kafkax://h/s", "kafkax is not an engine of the bridge; the engines are redis, rediss"),
        ("orders -> redis:///s", "'' is not HOST or HOST:PORT"),
        ("orders -> redis://h:x/s", "'h:x' is not HOST or HOST:PORT"),
        ("orders -> redis://h:99999/s", "is not HOST or HOST:PORT"),
        ("orders -> redis://h", "names no stream; write it like redis://host/stream"),
        ("orders -> redis://h/s#x", "has no part after '#'"),
        ("orders -> redis://a,b/s", "give one host"),
        ("orders -> redis://h/s?begin=now", "begin=now: write earliest, latest or an offset"),
        ("orders -> redis://h/s?begin=", "write earliest, latest or an offset"),
        ("orders -> redis://h/s?on_lost=x", "on_lost=x: write fail or resend or skip"),
        ("orders -> redis://h/s?on_gap=x", "on_gap=x: write report or fail"),
        ("orders -> redis://h/s?value=x", "value=x: write msg or event"),
        ("orders -> redis://h/s?envelope=x", "envelope=x: write cloudevents or plain"),
        ("orders -> redis://h/s?batch=0", "batch=0: write a number from 1 to 10000"),
        ("orders -> redis://h/s?batch=1e3", "write a number"),
        ("orders -> redis://h/s?trim=0", "trim=0"),
        ("orders -> redis://h/s?linger=5", "linger=5"),
        ("orders -> redis://h/s?create=true", "create=true: write yes or no"),
        ("orders -> redis://h/s?as=a b", "as=a b"),
        ("orders -> redis://h/s?subject=a", "'subject' is not an option of this route"),
        ("orders -> nats://h/s?trim=5", "'trim' is not an option of this route; the options are begin, "),
        ("orders -> nats://h/s?subject=a.*", "subject=a.*: write words with dots between them"),
        ("orders -> nats://h/s?subject=a..b", "subject=a..b: write words"),
        ("orders -> nats://h/s?subject=a.{id}", "subject=a.{id}: write words"),
        ("orders -> nats://h/s?subject=$JS.a", "subject=$JS.a: write words"),
        ("orders -> nats://h/s?partitions=5", "'partitions' is not an option of this route"),
        ("orders -> kafka://h/s?partitions=0", "partitions=0: write a number from 1 to 10000"),
        ("orders -> nats://a,,b/s", "'' is not HOST or HOST:PORT"),
        (f"orders -> redis://h/s?as={'x' * 121}", "a name has at most 120 characters"),
        ("orders -> redis://h/s?bath=1", "'bath' is not an option of this route; the options are begin, "),
        ("orders -> redis://h/s?batch=1&batch=2", "the option batch is given twice"),
    ],
)
def test_a_wrong_route_is_reported_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)) as refused:
        parse_out(text)
    assert "\n" not in str(refused.value)


def test_an_option_of_the_other_direction_is_refused() -> None:
    with pytest.raises(ValueError, match="'trim' is not an option of this route"):
        parse_in("redis://h/s?trim=5 -> t")


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="TWEETWIRE_BRIDGE_REDIS_PASSWORD") as refused:
        parse_out("orders -> redis://me:secret@h/s")
    assert "secret" not in str(refused.value)


def test_an_address_of_nats_names_servers_and_subjects() -> None:
    route = parse_out("tweets -> nats://a,b:1,[::1]/TWEETS?subject=tw.{broker}.tweets.{key}&replicas=3")
    assert route.hosts == (("a", 4222), ("b", 1), ("::1", 4222))
    assert (route.mark, route.options.subject, route.options.replicas) == ("nats.TWEETS", "tw.{broker}.tweets.{key}", 3)
    assert str(route) == "tweets -> nats://a:4222,b:1,[::1]:4222/TWEETS"
    with pytest.raises(ValueError, match="TWEETWIRE_BRIDGE_NATS_PASSWORD"):
        parse_out("tweets -> tls://me:secret@h/TWEETS")


def test_an_address_of_kafka_names_servers_and_partitions() -> None:
    route = parse_out("tweets -> kafka://a,b:1/tweets?partitions=6&replicas=3")
    assert route.hosts == (("a", 9092), ("b", 1))
    assert (route.mark, route.options.partitions, route.options.replicas) == ("kafka.tweets", 6, 3)
    assert (route.options.batch, route.options.batch_bytes) == (10_000, 4 << 20)
    assert parse_out("tweets -> kafka://a/tweets?batch=5").options.batch == 5
    assert parse_out("tweets -> kafka+ssl://a/tweets").scheme == "kafka+ssl"
    with pytest.raises(ValueError, match="TWEETWIRE_BRIDGE_KAFKA_PASSWORD"):
        parse_out("tweets -> kafka+ssl://me:secret@h/tweets")


def test_each_partition_has_a_name_and_one_that_was_added_later_begins_at_its_start() -> None:
    route = parse_in("kafka://a/tweets?begin=latest -> tweets")
    assert route.of_partition(3, is_new=True).mark == "kafka.tweets.3"
    assert route.of_partition(3, is_new=True).options.begin == "latest"
    assert route.of_partition(3, is_new=False).options.begin == "earliest"
    assert route.of_partition(3, is_new=False).mark == "kafka.tweets.3"


def test_routes_of_a_file_have_the_same_options(tmp_path: Path) -> None:
    file = tmp_path / "routes.toml"
    file.write_text(
        '[[out]]\ntopic = "orders"\nto = "redis://host/orders"\nbatch = 5\ncreate = false\nlinger = "5ms"\n'
        '[[in]]\nfrom = "redis://host/payments?value=event"\ntopic = "payments"\n'
    )
    assert read_routes(file) == [
        parse_out("orders -> redis://host/orders?batch=5&create=no&linger=5ms"),
        parse_in("redis://host/payments?value=event -> payments"),
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[out]", "is not TOML"),
        ("[[up]]\n", "'up' is not a kind of route; write [[out]] or [[in]]"),
        ("out = 1\n", "out is not a list of tables; write [[out]]"),
        ("out = [1]\n", "out is not a list of tables; write [[out]]"),
        ('[[out]]\ntopic = "a"\n', "a table [[out]] has no to"),
        ('[[in]]\nfrom = "redis://h/s"\n', "a table [[in]] has no topic"),
        ('[[out]]\ntopic = "a"\nto = "redis://h/s"\nbatch = 0\n', "batch=0: write a number from 1 to 10000"),
        ('[[out]]\ntopic = "a"\nto = "redis://h/s?batch=2"\nbatch = 3\n', "the option batch is given twice"),
    ],
)
def test_a_wrong_file_is_reported_in_one_sentence_with_its_name(text: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "routes.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=re.escape(sentence)) as refused:
        read_routes(file)
    assert str(file) in str(refused.value)


def test_a_missing_file_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read .*: No such file"):
        read_routes(tmp_path / "none.toml")


def test_two_routes_with_one_mark_are_refused() -> None:
    other = "orders -> redis://other/orders"
    with pytest.raises(ValueError, match=r"are both named redis\.orders; name one of them with \?as=NAME"):
        check_routes([parse_out(OUT), parse_out(other)])
    check_routes([parse_out(OUT), parse_out(f"{other}?as=second"), parse_in("redis://host/orders -> orders")])
