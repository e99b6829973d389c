"""The number of workers follows the load between its bounds."""

from hypothesis import given
from hypothesis import strategies as st

from sse_ingest.scaling import workers_wanted


def wanted(
    arrival_per_s: float, queued: int = 0, *, workers: int = 1, ms: float = 1.0, least: int = 1, most: int = 8
) -> int:
    return workers_wanted(
        arrival_per_s=arrival_per_s, queued=queued, seconds_per_event=ms / 1000, workers=workers, least=least, most=most
    )


def test_no_load_needs_the_least_and_any_load_no_more_than_the_most() -> None:
    assert wanted(0) == 1
    assert wanted(1e9) == 8


def test_a_worker_is_kept_busy_but_not_full() -> None:
    assert wanted(600) == 1
    assert wanted(800) == 2
    assert wanted(2000) == 3


def test_a_queue_counts_as_work_to_be_done_soon() -> None:
    assert wanted(600, queued=2000) == 3


def test_a_pool_shrinks_by_one_at_a_time_and_grows_at_once() -> None:
    assert wanted(0, workers=8) == 7
    assert wanted(5000, workers=1) == 8


@given(
    st.floats(0, 1e6),
    st.integers(0, 10**6),
    st.floats(0, 1),
    st.tuples(st.integers(1, 64), st.integers(1, 8), st.integers(8, 64)),
)
def test_the_number_of_workers_stays_between_its_bounds_and_never_falls_with_more_load(
    arrival: float, queued: int, seconds: float, sizes: tuple[int, int, int]
) -> None:
    workers, least, most = sizes

    def of(arrival: float, queued: int) -> int:
        return wanted(arrival, queued, workers=workers, ms=seconds * 1000, least=least, most=most)

    assert least <= of(arrival, queued) <= most
    assert of(arrival * 2, queued) >= of(arrival, queued)
    assert of(arrival, queued * 2) >= of(arrival, queued)
