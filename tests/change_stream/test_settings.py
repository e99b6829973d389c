"""Flags become settings, and a wrong flag is reported in one sentence."""

from pathlib import Path
from typing import Any

import pytest
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic_settings import CliApp

from change_stream.pairs import producer_name
from change_stream.settings import ChangeStreamSettings
from tweetwire.protocol import check_name


def settings(*flags: str) -> ChangeStreamSettings:
    return CliApp.run(ChangeStreamSettings, cli_args=list(flags))


def test_tweets_and_users_go_to_topics_of_their_names() -> None:
    default = settings()
    assert default.topics() == {"tweets": "tweets", "users": "users"}
    assert (default.key_of("tweets"), default.key_of("users")) == ("user.id_str", None)
    assert default.followers_of("users") == "followers_count"
    assert default.producer_of("tweets") == "cdc.rtp_sse_db.tweets"


def test_maps_replace_the_default() -> None:
    assert settings("--map", "a=b", "--map", "c=d").topics() == {"a": "b", "c": "d"}


@pytest.mark.parametrize(
    ("pair", "collection", "producer"),
    [
        ("my coll=topic", "my coll", "cdc.rtp_sse_db.my_coll.7b36cb259b4e"),
        ("täglich=topic", "täglich", "cdc.rtp_sse_db.t_glich.d131562c6bf7"),
        ("a=b=topic", "a=b", "cdc.rtp_sse_db.a_b.ada2c0e24900"),
        ("a.b-c_d=topic", "a.b-c_d", "cdc.rtp_sse_db.a.b-c_d"),
    ],
)
def test_a_collection_of_any_name_has_a_producers_name(pair: str, collection: str, producer: str) -> None:
    found = settings("--map", pair)
    assert found.topics() == {collection: "topic"}
    assert found.producer_of(collection) == producer


@given(st.text(min_size=1, max_size=255), st.text(min_size=1, max_size=255))
def test_producers_names_are_the_brokers_and_differ(one: str, other: str) -> None:
    names = [producer_name("db", one), producer_name("db", other)]
    assert [check_name(name) for name in names] == names
    assert (names[0] == names[1]) == (one == other)


def test_the_json_flag_has_a_short_name() -> None:
    assert settings("--json", "canonical").json_mode == settings("--json-mode", "canonical").json_mode == "canonical"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--map", "tweets"), "is not COLLECTION=VALUE"),
        (("--map", "tweets=a b"), "is not a topic name"),
        (("--map", "tweets=.hidden"), "is not a topic name"),
        (("--map", "a=b", "--map", "a=c"), "the collection a is named twice"),
        (("--database", "a" * 64), "is not a database name"),
        (("--database", "a b"), "is not a database name"),
        (("--exclude", "tweets=_id"), "the _id is the event's id"),
        (("--exclude", "tweets=_id.part"), "the _id is the event's id"),
        (("--exclude", "tweet=secret"), "--map has no collection tweet"),
        (("--rename", "tweets=a:c", "--rename", "tweets=b:c"), "two members are renamed to c"),
        (("--key", "tweets=user.id_str", "--exclude", "tweets=user"), "--key tweets=user.id_str is left out"),
        (("--key", "tweets=user.id_str", "--include", "tweets=text"), "--key tweets=user.id_str is left out"),
        (("--rename", "tweets=text"), "is not COLLECTION=PATH:NAME"),
        (("--rename", "tweets=text:a.b"), "is not COLLECTION=PATH:NAME"),
        (("--start-at", "yesterday"), "is not a time"),
        (("--pipeline", "tweets=/no/such/file"), "cannot read /no/such/file"),
        (("--heartbeat", "5"), "is not a duration"),
    ],
)
def test_a_wrong_setting_is_reported_in_one_sentence(flags: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        settings(*flags)


@pytest.mark.parametrize("text", ["nonsense", "{}", "[1]", '[{"$match": {}, "$unset": "a"}]'])
def test_a_pipeline_is_an_array_of_stages(tmp_path: Path, text: str) -> None:
    stages = tmp_path / "stages.json"
    stages.write_text(text)
    with pytest.raises(ValidationError, match=r"is not JSON|array of stages"):
        settings("--pipeline", f"tweets={stages}")


def test_a_pipeline_is_extended_json(tmp_path: Path) -> None:
    stages = tmp_path / "stages.json"
    stages.write_text('[{"$match": {"clusterTime": {"$gt": {"$timestamp": {"t": 5, "i": 1}}}}}]')
    expected: list[dict[str, Any]] = [{"$match": {"clusterTime": {"$gt": Timestamp(5, 1)}}}]
    assert settings("--pipeline", f"tweets={stages}").pipeline_of("tweets") == expected


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("oldest", "oldest"),
        ("2026-11-27T20:00:00Z", Timestamp(1795809600, 0)),
        ("2026-11-27T20:00:00", Timestamp(1795809600, 0)),
    ],
)
def test_a_start_is_a_time(text: str, time: Any) -> None:
    assert settings("--start-at", text).start_time() == time


@pytest.mark.parametrize(
    ("flags", "has_pre_images", "stage"),
    [
        ((), True, {"fullDocument": "updateLookup", "fullDocumentBeforeChange": "whenAvailable"}),
        ((), False, {"fullDocument": "updateLookup"}),
        (("--full-document", "off", "--before", "off"), True, {}),
        (("--before", "required"), False, {"fullDocument": "updateLookup", "fullDocumentBeforeChange": "required"}),
    ],
)
def test_the_source_asks_for_images_if_the_server_has_them(
    flags: tuple[str, ...], has_pre_images: bool, stage: dict[str, str]
) -> None:
    assert settings(*flags).stage(has_pre_images=has_pre_images) == stage


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--key", "tweet=a"), "--key tweet=a: --map has no collection tweet"),
        (("--followers", "tweet=a"), "--followers tweet=a: --map has no collection tweet"),
        (("--mask", "tweet=a:null"), "--mask tweet=a:null: --map has no collection tweet"),
        (("--mask", "tweets=_id:null"), "cannot be left out or masked"),
        (("--mask", "tweets=a"), "is not COLLECTION=PATH:HOW"),
        (("--mask", "tweets=a:md5"), "'md5' is not a mask; write sha256, null or last4"),
        (("--snapshot-filter", "tweets=/no/such/file"), "cannot read /no/such/file"),
    ],
)
def test_a_member_flag_is_checked_at_the_start(flags: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        settings(*flags)


@pytest.mark.parametrize("flag", ["--pipeline", "--snapshot-filter"])
def test_a_file_is_for_a_mapped_collection(tmp_path: Path, flag: str) -> None:
    file = tmp_path / "file.json"
    file.write_text("[]" if flag == "--pipeline" else "{}")
    with pytest.raises(ValidationError, match=f"{flag} tweet=.*: --map has no collection tweet"):
        settings(flag, f"tweet={file}")
