"""Flags become settings, and what is wrong with one is a sentence."""

from pathlib import Path
from typing import Any

import pytest
from bson.timestamp import Timestamp
from pydantic import ValidationError
from pydantic_settings import CliApp

from change_stream.settings import Settings


def settings(*flags: str) -> Settings:
    return CliApp.run(Settings, cli_args=list(flags))


def test_tweets_and_users_go_to_topics_of_their_names() -> None:
    default = settings()
    assert default.topics() == {"tweets": "tweets", "users": "users"}
    assert (default.key_of("tweets"), default.key_of("users")) == ("user.id_str", None)
    assert default.followers_of("users") == "followers_count"
    assert default.producer_of("tweets") == "cdc.rtp_sse_db.tweets"


def test_maps_replace_the_default() -> None:
    assert settings("--map", "a=b", "--map", "c=d").topics() == {"a": "b", "c": "d"}


def test_the_json_flag_has_a_short_name() -> None:
    assert settings("--json", "canonical").json_mode == settings("--json-mode", "canonical").json_mode == "canonical"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--map", "tweets"), "is not COLLECTION=VALUE"),
        (("--map", "tweets=a b"), "is no topic's name"),
        (("--map", "tweets=.hidden"), "is no topic's name"),
        (("--map", "a=b", "--map", "a=c"), "a collection is named twice"),
        (("--map", "täglich=t"), "is no producer's name"),
        (("--database", "a" * 128), "is no producer's name"),
        (("--rename", "tweets=text"), "is not COLLECTION=PATH:NAME"),
        (("--rename", "tweets=text:a.b"), "is not COLLECTION=PATH:NAME"),
        (("--start-at", "yesterday"), "is no time"),
        (("--pipeline", "tweets=/no/such/file"), "cannot read /no/such/file"),
        (("--heartbeat", "5"), "is no duration"),
    ],
)
def test_what_is_wrong_is_a_sentence(flags: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        settings(*flags)


@pytest.mark.parametrize("text", ["nonsense", "{}", "[1]", '[{"$match": {}, "$unset": "a"}]'])
def test_a_pipeline_is_an_array_of_stages(tmp_path: Path, text: str) -> None:
    stages = tmp_path / "stages.json"
    stages.write_text(text)
    with pytest.raises(ValidationError, match=r"is no JSON|array of stages"):
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
def test_images_are_asked_for_where_the_server_has_them(
    flags: tuple[str, ...], has_pre_images: bool, stage: dict[str, str]
) -> None:
    assert settings(*flags).stage(has_pre_images=has_pre_images) == stage
