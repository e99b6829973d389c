"""The user's stages are refused if they remove or change a member of a change that the program needs."""

import json
from pathlib import Path
from typing import Any

import pytest

from change_stream.stages import NEEDED, read_query, read_stages

HARMLESS: list[Any] = [
    {"$match": {"operationType": "insert"}},
    {"$unset": "fullDocument.secret"},
    {"$unset": ["fullDocument.a", "updateDescription"]},
    {"$set": {"fullDocument.n": 1}},
    {"$addFields": {"nsx": 1}},
    {"$project": {"fullDocument.secret": 0}},
    {"$project": dict.fromkeys(NEEDED, 1) | {"fullDocument": 1}},
    {
        "$project": {
            "clusterTime": True,
            "operationType": 1,
            "documentKey": 1.0,
            "ns.coll": 1,
            "fullDocument": {"$literal": 1},
        }
    },
    {"$replaceWith": "$$ROOT"},
    {"$replaceRoot": {"newRoot": {"$mergeObjects": ["$$ROOT", {"fullDocument": None}]}}},
    {"$redact": "$$KEEP"},
]
HARMFUL: list[tuple[Any, str]] = [
    *(({"$unset": member}, member) for member in NEEDED),
    *(({"$project": {member: 0}}, member) for member in NEEDED),
    *(({"$set": {member: "x"}}, member) for member in NEEDED),
    ({"$unset": ["a", "documentKey._id"]}, "documentKey"),
    ({"$addFields": {"ns.coll": "other"}}, "ns"),
    ({"$project": {"fullDocument": 1}}, "clusterTime"),
    ({"$project": dict.fromkeys(NEEDED, 1) | {"_id": 0}}, "_id"),
    ({"$project": dict.fromkeys(NEEDED, 1) | {"ns": "$fullDocument.ns"}}, "ns"),
    ({"$replaceWith": "$fullDocument"}, "_id"),
    ({"$replaceRoot": {"newRoot": {"_id": "$_id"}}}, "_id"),
    ({"$replaceWith": {"$mergeObjects": ["$$ROOT", {"operationType": "insert"}]}}, "operationType"),
    ({"$replaceWith": {"$mergeObjects": ["$$ROOT", "$fullDocument"]}}, "_id"),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "stages.json"


@pytest.mark.parametrize("stage", HARMLESS)
def test_other_stages_are_taken(file: Path, stage: Any) -> None:
    file.write_text(json.dumps([stage]))
    assert read_stages(file) == [stage]


@pytest.mark.parametrize(("stage", "member"), HARMFUL)
def test_a_stage_that_removes_or_changes_a_needed_member_is_refused_with_its_name(
    file: Path, stage: Any, member: str
) -> None:
    file.write_text(json.dumps([{"$match": {}}, stage]))
    with pytest.raises(ValueError, match=rf"the stage \{next(iter(stage))} removes or changes {member}, which"):
        read_stages(file)


@pytest.mark.parametrize("text", ["[]", "1", "nonsense"])
def test_a_query_is_an_object(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(ValueError, match=r"is not a query|is not JSON"):
        read_query(file)
