"""``export`` of a topic's events on a real broker: each form, its bounds, and a file that cannot be written."""

import csv
import io
import json
import os
import resource
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from tests.support.commands import Tweetwire
from tweetwire import Event, SyncClient
from tweetwire.cli import event_files
from tweetwire.cli.event_files import COLUMNS, event_writer

HOSTILE = 'a,"b"\n☂\x00'


def publish(client: SyncClient, topic: str) -> list[dict[str, Any]]:
    events = [
        Event(id="plain", msg={"n": 1}),
        Event(
            id=HOSTILE, msg=[HOSTILE, 1e300, None], key=HOSTILE, parent="plain", headers={"a": HOSTILE}, priority=255
        ),
        *(Event(id=f"e{n}", msg=n) for n in range(100)),
    ]
    client.publish_many(topic, events)
    return [json.loads(line) for line in client.read_lines(topic, 0)[0]]


def as_row(event: dict[str, Any]) -> dict[str, Any]:
    """Return a stored event as a row: its headers and message as values, its time as a time."""
    when = datetime.fromtimestamp(event["timestamp"] / 1000, UTC)
    return {name: event.get(name) for name in COLUMNS} | {"timestamp": when}


def test_parquet_has_the_events_as_rows(
    tweetwire: Tweetwire, shared_client: SyncClient, topic: str, tmp_path: Path
) -> None:
    stored = publish(shared_client, topic)
    out = tmp_path / "events.parquet"
    out.write_text("an older export")
    done = tweetwire("export", topic, "--format", "parquet", "--out", out)
    assert done.errors.startswith(f"exported 102 events of {topic} to {out} in ")
    table = parquet.read_table(out)
    assert table.column_names == list(COLUMNS)
    assert str(table.schema.field("timestamp").type) == "timestamp[ms, tz=UTC]"
    rows = table.to_pylist()
    for row in rows:
        row["msg"] = json.loads(row["msg"])
        row["headers"] = row["headers"] and json.loads(row["headers"])
    assert rows == [as_row(event) for event in stored]
    assert list(tmp_path.iterdir()) == [out]


def test_csv_has_the_events_as_rows(
    tweetwire: Tweetwire, shared_client: SyncClient, topic: str, tmp_path: Path
) -> None:
    stored = publish(shared_client, topic)
    tweetwire("export", topic, "--format", "csv", "--out", tmp_path / "events.csv")
    with (tmp_path / "events.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows[0].keys() == set(COLUMNS)
    for row, event in zip(rows, stored, strict=True):
        expected = as_row(event)
        assert datetime.fromisoformat(row["timestamp"]) == expected["timestamp"]
        assert json.loads(row["msg"]) == expected["msg"]
        assert (json.loads(row["headers"]) if row["headers"] else None) == expected["headers"]
        for name in ("topic", "offset", "id", "priority", "key", "parent"):
            assert row[name] == ("" if expected[name] is None else str(expected[name]))


def test_json_lines_are_the_default_and_go_to_stdout(
    tweetwire: Tweetwire, shared_client: SyncClient, topic: str
) -> None:
    publish(shared_client, topic)
    stored, _ = shared_client.read_lines(topic, 0)
    assert tweetwire("export", topic).out.encode() == b"\n".join(stored) + b"\n"
    assert tweetwire("export", topic, "--from", "@5", "--until", "@9").out.encode().splitlines() == stored[5:9]
    assert tweetwire("export", topic, "--from", "2999-01-01").out == ""
    assert tweetwire("export", topic, "--from", "@9", "--until", "@5").out == ""


def test_an_empty_topic_is_an_empty_table(
    tweetwire: Tweetwire, shared_client: SyncClient, topic: str, tmp_path: Path
) -> None:
    publish(shared_client, topic)
    tweetwire("export", topic, "--from", "latest", "--format", "parquet", "--out", tmp_path / "none.parquet")
    table = parquet.read_table(tmp_path / "none.parquet")
    assert (table.num_rows, table.column_names) == (0, list(COLUMNS))


def test_a_row_group_ends_after_its_number_of_events_or_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "GROUP_EVENTS", 40)
    monkeypatch.setattr(event_files, "GROUP_BYTES", 5000)
    lines = [b'{"topic":"t","offset":%d,"timestamp":1,"id":"a","priority":0,"msg":1}' % n for n in range(100)]
    lines += [b'{"topic":"t","offset":100,"timestamp":1,"id":"a","priority":0,"msg":"%b"}' % (b"x" * 5000)]
    lines += lines[:5]
    file = io.BytesIO()
    writer = event_writer("parquet", file)
    for at in range(0, len(lines), 7):
        writer.write(lines[at : at + 7])
    writer.close()
    found = parquet.ParquetFile(file)
    assert [found.metadata.row_group(n).num_rows for n in range(found.num_row_groups)] == [40, 40, 21, 5]


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_a_full_disk_leaves_the_older_file(
    tweetwire: Tweetwire, shared_client: SyncClient, tmp_path: Path, form: str
) -> None:
    topic = f"large-{form}"
    shared_client.publish_many(topic, (Event(id=str(n), msg=os.urandom(500).hex()) for n in range(500)))
    out = tmp_path / "events"
    out.write_text("an older export")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        done = tweetwire("export", topic, "--format", form, "--out", out, status=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.errors == f"tweetwire export: cannot write {out}: File too large; choose another: --out\n"
    assert out.read_text() == "an older export"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("t", "--format", "parquet"), "Parquet is not text; name a file with --out"),
        (("--format", "csv"), "--format needs a TOPIC before it"),
        (("--from", "1h"), "--from needs a TOPIC before it"),
        (("--until", "1h"), "--until needs a TOPIC before it"),
        (("t", "--as", "s"), "--as is for unsettled events, without a TOPIC"),
        (("t", "--topic", "t"), "--topic is for unsettled events, without a TOPIC"),
        (("t", "--format", "xml"), "--format: 'xml' is not one of json, csv, parquet"),
        (("absent",), "the broker refuses (unknown_topic)"),
        (("absent", "--out", "/absent/file"), "the broker refuses (unknown_topic)"),
    ],
)
def test_misuse_is_reported_in_one_sentence(tweetwire: Tweetwire, words: tuple[str, ...], sentence: str) -> None:
    done = tweetwire("export", *words, status=2)
    assert sentence in done.errors
    assert done.errors.count("\n") == 1


def test_a_missing_pyarrow_is_named_with_its_extra(
    tweetwire: Tweetwire, shared_client: SyncClient, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(shared_client, topic)
    # With None in the place of a module, Python raises ModuleNotFoundError for it.
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyarrow'] = None\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', os.getcwd())}")
    out = tmp_path / "events.parquet"
    done = tweetwire("export", topic, "--format", "parquet", "--out", out, status=2)
    assert done.errors == "--format parquet needs pyarrow: pip install 'tweetwire[spark]'\n"
    assert not out.exists()
