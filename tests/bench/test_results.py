"""The rows, growths and rounds that the benchmark computes from its measurements."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bench import runner
from bench.__main__ import FAILED, INTERRUPTED, WRONG_SETTING, main
from bench.compare import compare
from bench.page import page
from bench.programs import NotMeasured
from bench.results import Results, read_results
from bench.rounds import Rounds
from bench.row import BenchRow, Growth
from bench.rows import Growing
from bench.settings import BenchSettings


def results_of(*rows: BenchRow, growths: tuple[Growth, ...] = ()) -> Results:
    return Results(
        began=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        seconds=12.0,
        is_complete=True,
        machine={"cores": "2"},
        versions={"redis-server": "7"},
        settings={"events": "1000"},
        rows=list(rows),
        growths=list(growths),
    )


def row(*figures: float, unit: str = "/s", goal: float | None = 100.0, name: str = "B1") -> BenchRow:
    return BenchRow(name=name, what="publish", unit=unit, figures=list(figures), goal=goal)


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (row(90, 110, 100), "met"),
        (row(90, 99, 110), "short"),
        (row(99, unit="ms"), "met"),
        (row(101, unit="ms"), "short"),
        (row(6, unit="% less", goal=5), "short"),
        (row(-1, unit="% less", goal=5), "met"),
        (row(1, goal=None), "measured"),
        (BenchRow(name="B1", what="", reason="no server"), "not measured"),
        (BenchRow(name="B1", what="", reason="it broke", is_failed=True), "failed"),
    ],
)
def test_a_median_is_judged_by_whether_more_or_less_is_better(measured: BenchRow, verdict: str) -> None:
    assert measured.verdict == verdict


def test_a_cost_is_flat_if_the_highest_is_within_a_quarter_of_the_lowest() -> None:
    assert Growth(name="B1", what="", scales=[0.1, 1, 10], costs_us=[4.0, 5.0, 4.5]).verdict == "met"
    assert Growth(name="B1", what="", scales=[0.1, 1, 10], costs_us=[4.0, 5.1, 4.5]).verdict == "short"
    assert Growth(name="B1", what="").verdict == "not measured"


def test_a_round_that_would_end_too_late_does_not_begin_except_the_first() -> None:
    now = 0.0

    def run() -> float:
        nonlocal now
        now += 10
        return now

    assert Rounds(5, 35, lambda _: None, lambda: now)("B1", run) == [10, 20, 30]
    assert len(Rounds(5, 1, lambda _: None, lambda: now)("B1", run)) == 1
    assert len(Rounds(2, 100, lambda _: None, lambda: now)("B1", run)) == 2


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    results = results_of(row(90, 110), growths=(Growth(name="B1", what="", scales=[1], costs_us=[2.5]),))
    results.write(tmp_path / "one.json")
    assert read_results(tmp_path / "one.json") == results
    assert '"verdict": "met"' in (tmp_path / "one.json").read_text()


def test_two_runs_are_compared_row_by_row_and_small_differences_are_chance() -> None:
    old = results_of(row(100), row(10, unit="ms"), row(10, unit="MB"), row(1, name="gone"))
    new = results_of(row(200), row(20, unit="ms"), row(10.5, unit="MB"), row(1, name="new"))
    found = compare(old, new)
    assert [(one.unit, one.ratio, one.is_better) for one in found] == [
        ("/s", 2.0, True),
        ("ms", 2.0, False),
        ("MB", 1.05, None),
    ]


def test_a_page_has_every_row_and_loads_nothing_from_a_server() -> None:
    latencies = [
        BenchRow(name="B6", what=f"confirmed, {at}", unit="ms", figures=[1, 2], goal=3) for at in ("p50", "p99.9")
    ]
    growth = Growth(name="B2", what="deliver", scales=[0.1, 1], costs_us=[2.5, 2.6])
    missing = BenchRow(name="D2", what="", reason="no <browser>")
    html = page(results_of(row(90, 110), row(-3, unit="% less"), *latencies, missing, growths=(growth,)))
    for text in ("confirmed, p99.9", "2.50 at 0.1", "no &lt;browser&gt;", "redis-server"):
        assert text in html
    assert "<script src=" not in html


class TestRun:
    """Complete runs of the benchmark with invented rows."""

    @pytest.fixture
    def folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        monkeypatch.setattr(runner, "GROWTHS", {})
        return tmp_path

    def run(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **rows: Any) -> tuple[int, list[BenchRow]]:
        monkeypatch.setattr(runner, "ROWS", rows)
        status = main(["--results", str(folder)])
        (path,) = folder.glob("*.json")
        assert path.with_suffix(".html").exists()
        return status, read_results(path).rows

    def test_a_row_that_fails_or_cannot_be_measured_does_not_keep_the_others_from_running(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: object) -> list[BenchRow]:
            raise ConnectionError("gone\nand more")

        def is_missing(*_: object) -> list[BenchRow]:
            raise NotMeasured("no browser")

        status, rows = self.run(folder, monkeypatch, B1=fails, D2=is_missing, B2=lambda *_: [row(1, goal=None)])
        assert status == FAILED
        assert [(one.verdict, one.reason) for one in rows] == [
            ("failed", "ConnectionError: gone"),
            ("not measured", "no browser"),
            ("measured", ""),
        ]

    def test_an_interrupt_keeps_the_measured_figures(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def is_interrupted(*_: object) -> list[BenchRow]:
            raise KeyboardInterrupt

        status, rows = self.run(folder, monkeypatch, B1=lambda *_: [row(1)], B2=is_interrupted)
        assert (status, len(rows)) == (INTERRUPTED, 1)

    def test_a_row_that_hangs_fails(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runner, "_HUNG_S", 0.05)

        def hangs(*_: object) -> list[BenchRow]:
            # This row uses up its own time limit. The next row must start with a full one.
            monkeypatch.setattr(runner, "_HUNG_S", 300.0)
            while True:
                pass

        status, rows = self.run(folder, monkeypatch, B1=hangs, B2=lambda *_: [row(1, goal=None)])
        assert status == FAILED
        assert [one.verdict for one in rows] == ["failed", "measured"]

    def test_each_round_has_its_own_time(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runner, "_HUNG_S", 1.0)

        def one_round() -> float:
            time.sleep(0.3)
            return 1.0

        def takes_long(_: BenchSettings, rounds: Rounds) -> list[BenchRow]:
            return [row(*rounds("B1", one_round), goal=None)]

        _, rows = self.run(folder, monkeypatch, B1=takes_long)
        assert [one.verdict for one in rows] == ["measured"]

    def test_no_row_begins_when_the_time_is_up(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runner, "ROWS", {"B1": lambda *_: [row(1)]})
        assert main(["--results", str(folder), "--budget", "0s"]) == 0
        (path,) = folder.glob("*.json")
        assert read_results(path).rows[0].verdict == "not measured"

    def test_cost_is_measured_at_each_scale(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runner, "ROWS", {"B1": lambda *_: [row(1)]})
        monkeypatch.setattr(runner, "GROWTHS", {"B1": Growing("publish", lambda settings: settings.events * 2.0)})
        assert main(["--results", str(folder), "--scale-events", "1000", "--scales", "1", "--scales", "10"]) == 0
        (path,) = folder.glob("*.json")
        (growth,) = read_results(path).growths
        assert (growth.scales, growth.costs_us, growth.verdict) == ([1, 10], [500, 50], "short")


def test_wrong_settings_and_files_are_refused(tmp_path: Path) -> None:
    assert main(["--only", "B99"]) == WRONG_SETTING
    assert main(["--row-time", "5"]) == WRONG_SETTING
    assert main(["compare", str(tmp_path / "none.json"), str(tmp_path / "none.json")]) == WRONG_SETTING
