"""The descriptions of the demo's programs: the flags of each, and the programs that it waits for."""

from pathlib import Path

import pytest

from demo.programs import Program
from demo.settings import DemoSettings
from demo.stack import TOPICS, Addresses, programs_of, replica_set_of, resolve

AT = Addresses(
    mongo_url="mongodb://127.0.0.1:7/?replicaSet=rs0",
    broker=1,
    broker_metrics=2,
    ingest=3,
    ingest_metrics=4,
    simulator=5,
    change_stream_metrics=6,
    subscriber_metrics=7,
    spark=8,
    dashboard=9,
)


def settings(tmp_path: Path, **options: object) -> DemoSettings:
    return DemoSettings(_cli_parse_args=False, data_dir=tmp_path, **options)  # type: ignore[arg-type]


def programs(given: DemoSettings, *, is_embedded: bool = True) -> dict[str, Program]:
    replica_set = replica_set_of(given) if is_embedded else None
    return {program.name: program for program in programs_of(given, AT, replica_set, on_broker=lambda: None)}


def flags(program: Program, name: str) -> list[str]:
    return [value for flag, value in zip(program.argv, program.argv[1:], strict=False) if flag == name]


def test_all_programs_are_there_and_need_only_each_other(tmp_path: Path) -> None:
    all_programs = programs(settings(tmp_path))
    assert set(all_programs) == {
        *("mongodb", "broker", "dashboard", "spark", "change_stream", "subscriber", "simulator", "sse_ingest"),
    }
    assert {need for program in all_programs.values() for need in program.needs} <= set(all_programs)


def test_nothing_is_inserted_before_the_change_stream_watches(tmp_path: Path) -> None:
    assert "change_stream" in programs(settings(tmp_path))["sse_ingest"].needs


def test_the_topics_exist_from_the_start(tmp_path: Path) -> None:
    assert flags(programs(settings(tmp_path))["broker"], "--topic") == list(TOPICS)


def test_the_simulator_gives_way_to_a_source_that_may_end(tmp_path: Path) -> None:
    all_programs = programs(settings(tmp_path, source="replay:tweets.jsonl", rate=50))
    assert "simulator" not in all_programs
    ingest = all_programs["sse_ingest"]
    assert flags(ingest, "--source") == ["replay:tweets.jsonl"]
    assert flags(ingest, "--replay-rate") == ["50.0"]
    assert ingest.may_end
    assert "--until-end" in ingest.argv


def test_spark_can_be_left_out(tmp_path: Path) -> None:
    assert "spark" not in programs(settings(tmp_path, spark=False))


def test_the_dashboard_looks_at_the_demos_broker_and_can_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dashboard = programs(settings(tmp_path))["dashboard"]
    assert flags(dashboard, "--broker") == [AT.broker_address]
    assert flags(dashboard, "--port") == ["9"]
    assert "dashboard" not in programs(settings(tmp_path, dashboard=False))
    monkeypatch.setattr("demo.stack.find_spec", lambda name: None)
    assert "dashboard" not in programs(settings(tmp_path))


def test_a_mongodb_that_the_user_names_is_not_started(tmp_path: Path) -> None:
    all_programs = programs(settings(tmp_path), is_embedded=False)
    assert "mongodb" not in all_programs
    assert flags(all_programs["change_stream"], "--mongo-url") == [AT.mongo_url]
    assert flags(all_programs["change_stream"], "--snapshot") == ["initial"]
    assert flags(programs(settings(tmp_path))["change_stream"], "--snapshot") == ["never"]


def test_everything_lives_in_the_data_directory(tmp_path: Path) -> None:
    all_programs = programs(settings(tmp_path))
    for name, flag in (("mongodb", "--dbpath"), ("broker", "--data-dir"), ("spark", "--checkpoint")):
        (folder,) = flags(all_programs[name], flag)
        assert Path(folder).is_relative_to(tmp_path)


def test_the_ports_of_programs_that_do_not_run_are_not_claimed(tmp_path: Path, taken_port: int) -> None:
    given = settings(
        tmp_path,
        free_ports=False,
        source="wikimedia",
        spark=False,
        simulator_port=taken_port,
        spark_port=taken_port,
        dashboard=False,
        dashboard_port=taken_port,
        **dict.fromkeys(("broker_port", "broker_metrics_port", "ingest_port", "ingest_metrics_port"), 0),
        **dict.fromkeys(("change_stream_metrics_port", "subscriber_metrics_port"), 0),
    )
    at = resolve(given, "mongodb://nowhere")
    ports = [at.broker, at.broker_metrics, at.ingest, at.ingest_metrics, at.change_stream_metrics]
    assert len({*ports, taken_port}) == 6


@pytest.fixture
def taken_port() -> object:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]
