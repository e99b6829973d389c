"""The names under which a user's program and shell find the package's parts."""

import subprocess
import sys
import warnings

import pytest

import broker
import tweetwire
from tests.support.processes import BrokerProcess


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False, timeout=60)


def test_names_that_moved_from_the_broker_are_found_there_with_a_warning() -> None:
    with pytest.warns(FutureWarning, match="from tweetwire import Client"):
        from broker import Client
    assert Client is tweetwire.Client
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        assert all(getattr(broker, name) is getattr(tweetwire, name) for name in broker._MOVED)


def test_every_name_of_the_library_is_found_under_its_old_name() -> None:
    # The names that the library has got since the move.
    new_names = frozenset({"MarkInfo", "NoReply", "PromiseNotKept"})
    assert frozenset(tweetwire.__all__) - new_names == broker._MOVED


def test_a_name_that_was_never_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Kafka'"):
        _ = broker.Kafka


def test_the_old_name_of_the_dashboard_starts_it_and_names_the_new_one() -> None:
    done = run("broker.dashboard", "--help")
    assert done.returncode == 0
    assert "write: python -m dashboard" in done.stderr
    assert "usage: python -m dashboard" in done.stdout


def test_one_command_starts_every_program_and_command(broker: BrokerProcess) -> None:
    assert run("tweetwire", "topics", "--broker", broker.address).returncode == 0
    assert "usage: python -m broker " in run("tweetwire", "broker", "--help").stdout
    listed = run("tweetwire", "--help").stdout
    assert "change-stream" in listed
    assert "redrive" in listed
    assert "check the folder of a stopped broker" in listed
    assert "python -m broker.users NAME" in run("tweetwire", "users", "--help").stdout


@pytest.mark.parametrize(
    ("module", "missing", "sentence"),
    [
        ("broker", "jsonschema_rs", "the broker needs jsonschema_rs: pip install 'tweetwire[broker]'"),
        ("change_stream", "pymongo", "the change stream needs pymongo: pip install 'tweetwire[change-stream]'"),
        ("sse_ingest", "httpx", "the ingester needs httpx: pip install 'tweetwire[ingest]'"),
        ("spark", "pyspark", "Spark needs pyspark: pip install 'tweetwire[spark]'"),
    ],
)
def test_a_program_whose_extra_is_missing_ends_with_one_sentence_and_status_2(
    module: str, missing: str, sentence: str
) -> None:
    code = f"import runpy, sys; sys.modules[{missing!r}] = None; runpy.run_module({module!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{sentence}\n")


def test_a_word_that_names_nothing_is_reported_in_one_sentence_with_status_2() -> None:
    done = run("tweetwire", "kafka")
    assert (done.returncode, done.stderr) == (2, "tweetwire: there is no 'kafka'; see tweetwire --help\n")


def test_a_client_needs_neither_the_server_nor_the_programs() -> None:
    code = (
        "import sys, tweetwire; found = {name.partition('.')[0] for name in sys.modules};"
        "print(sorted(found & {'broker', 'dashboard', 'spark', 'pydantic', 'structlog', 'rich', 'argon2', 'jsonschema_rs'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
