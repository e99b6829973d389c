"""The flags of commands: their values, the environment, and the one error message for a wrong flag."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest

from tweetwire.cli.flag_help import flag_help
from tweetwire.cli.flags import CONNECTION, OUTPUT, Command, Flag, HelpAsked, argument, given_texts, make_command
from tweetwire.cli.kinds import (
    ADDRESS,
    BYTES,
    FILE,
    LINE,
    NAME,
    NUMBER,
    SECONDS,
    SWITCH,
    TOKEN,
    Token,
    choice,
    whole,
)
from tweetwire.protocol.errors import StartError


class Example(Command, kw_only=True):
    """Shows one of each kind.

    A second paragraph.
    """

    examples = ("tweetwire example in.json --as me", "tweetwire example in.json --as me --loop")

    file: Annotated[Path, argument(FILE, "file to read")]
    texts: Annotated[Sequence[str], argument(LINE, "what to say", default="nothing")] = ()
    broker: Annotated[str, Flag(ADDRESS, "address of the broker", group=CONNECTION)] = "127.0.0.1:8000"
    wait: Annotated[float, Flag(SECONDS, "how long", is_rare=True, group=CONNECTION)] = 60.0
    size: Annotated[Sequence[int], Flag(BYTES, "how long a message is")] = ()
    number: Annotated[int, Flag(whole(1, 10), "how many", short="-n")] = 10
    share: Annotated[float, Flag(NUMBER, "how much of it, 100 % of it")] = 0.5
    out: Annotated[Path | None, Flag(FILE, "where to", default="stdout")] = None
    as_: Annotated[str, Flag(NAME, "which one")]
    mode: Annotated[str, Flag(choice("a", "b"), "which way")] = "a"
    loop: Annotated[bool, Flag(SWITCH, "again and again")] = False
    follow: Annotated[bool, Flag(SWITCH, "wait for more")] = True
    token: Annotated[Token | None, Flag(TOKEN, "who asks")] = None
    is_json: Annotated[bool, Flag(SWITCH, "as JSON", name="json", group=OUTPUT)] = False
    yes: Annotated[bool, Flag(SWITCH, "do not ask", has_variable=False)] = False

    def __post_init__(self) -> None:
        if self.loop and self.is_json:
            raise ValueError("--loop and --json exclude each other")


def read(*words: str) -> Example:
    return make_command(Example, given_texts(Example, words))


def test_values_are_read_as_they_are_written() -> None:
    found = read("in.json", "hello", "--as", "me", "you", "--size", "1MiB", "--size", "7", "-n", "3", "--no-follow")
    assert (found.file, found.texts, found.as_, found.size) == (Path("in.json"), ["hello", "you"], "me", [1 << 20, 7])
    assert (found.number, found.follow, found.loop, found.wait, found.token) == (3, False, False, 60.0, None)
    assert read("in.json", "--as=me", "--wait", "500ms", "--mode", "b", "--share", "2").wait == 0.5
    assert read("in.json", "--as", "me").texts == ()
    assert read("-", "--as", "me").file == Path("-")


def test_flags_win_over_the_environment_which_wins_over_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    values: dict[str, tuple[str, Any]] = {
        "WAIT": ("2m", 120.0),
        "SIZE": ('["1KiB","2"]', [1024, 2]),
        "JSON": ("yes", True),
        "FOLLOW": ("0", False),
        "OUT": ("", None),
        "NUMBER": ("4", 5),
    }
    for name, (text, _) in values.items():
        monkeypatch.setenv(f"TWEETWIRE_{name}", text)
    monkeypatch.setenv("TWEETWIRE_YES", "true")
    monkeypatch.setenv("TWEETWIRE_FILE", "other.json")
    found = read("in.json", "--as", "me", "--number", "5")
    fields = {"JSON": "is_json"}
    assert {name: getattr(found, fields.get(name, name.lower())) for name in values} == {
        name: value for name, (_, value) in values.items()
    }
    assert not found.yes, "no variable may answer a question for a person"
    assert found.file == Path("in.json")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["f", "--as", "me", "--wait", "5"], "--wait: '5' is not a duration; write it like 500ms, 5s, 2m or 1h"),
        (["f", "--as", "me", "--size", "5 apples"], "--size: '5 apples' is not a size"),
        (["f", "--as", "me", "--broker", "nowhere:x"], "--broker: 'nowhere:x' is not an address"),
        (["f", "--as", "me", "--number", "0"], "--number: '0' is less than 1"),
        (["f", "--as", "me", "-n", "11"], "--number: '11' is more than 10"),
        (["f", "--as", "me", "--number", "many"], "--number: 'many' is not a whole number"),
        (["f", "--as", "me", "--share", "half"], "--share: 'half' is not a number"),
        (["f", "--as", "me", "--share", "0"], "--share: '0' is not more than 0"),
        (["f", "--as", "me", "--mode", "c"], "--mode: 'c' is not one of a, b"),
        (["f", "--as", "me\nsub x"], "--as: 'me\\nsub x' is not a name; use 1-128 of"),
        (["f", "", "--as", "me"], "TEXTS: must be one line of text"),
        (["f", "--as", "me", "--nmuber", "1"], "unrecognized arguments: --nmuber"),
        (["f", "--as", "me", "--num", "1"], "unrecognized arguments: --num"),
        (["--as", "me"], "the following arguments are required: FILE"),
        (["f"], "--as: is needed"),
        (["f", "--as"], "argument --as: expected one argument; see --help"),
        (["f", "--number", "0", "--mode", "c"], "--number: '0' is less than 1; --as: is needed; --mode: 'c' is not"),
        (["f", "--as", "me", "--loop", "--json"], "--loop and --json exclude each other"),
    ],
)
def test_a_wrong_flag_is_reported_in_one_sentence(words: list[str], sentence: str) -> None:
    with pytest.raises(StartError) as error:
        read(*words)
    assert str(error.value).startswith(sentence)
    assert "\n" not in str(error.value)


def test_a_wrong_list_or_switch_of_the_environment_is_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEETWIRE_SIZE", "1KiB")
    with pytest.raises(StartError, match=r"^TWEETWIRE_SIZE: must be a JSON list of texts$"):
        read("f", "--as", "me")
    monkeypatch.setenv("TWEETWIRE_SIZE", "")
    monkeypatch.setenv("TWEETWIRE_LOOP", "perhaps")
    with pytest.raises(StartError, match=r"^--loop: 'perhaps' is neither true nor false$"):
        read("f", "--as", "me")


def test_a_token_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEETWIRE_TOKEN", "s-secret")
    found = read("f", "--as", "me")
    assert found.token is not None
    assert found.token.plain == "s-secret"
    assert "s-secret" not in repr(found)
    monkeypatch.setenv("TWEETWIRE_TOKEN", "s-secret two")
    with pytest.raises(StartError, match=r"^--token: a token is a word without spaces$"):
        read("f", "--as", "me")


def test_help_shows_each_flag_by_its_kind_with_its_default_and_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = flag_help("example", Example, is_all=True)
    said = " ".join(text.split())
    for line in (
        "usage: tweetwire example FILE [TEXTS …] --as NAME [FLAG …]",
        "Shows one of each kind. A second paragraph.",
        "FILE file to read",
        "TEXTS what to say (default: nothing)",
        "--broker HOST:PORT address of the broker (default: 127.0.0.1:8000)",
        "--wait DURATION how long (default: 1m)",
        "--size BYTES how long a message is (repeatable; default: none)",
        "-n, --number N how many (default: 10)",
        "--share NUMBER how much of it, 100 % of it (default: 0.5)",
        "--out FILE where to (default: stdout)",
        "--as NAME which one (required)",
        "--mode {a,b} which way (default: a)",
        "--loop again and again (default: no)",
        "--follow, --no-follow wait for more (default: yes)",
        "--token TOKEN who asks (default: none)",
        "BYTES is written like 4096, 64KiB, 64MiB or 1GiB. DURATION is written like 500ms, 5s, 2m or 1h.",
        "examples: tweetwire example in.json --as me tweetwire example in.json --as me --loop",
    ):
        assert line in said, f"{line}\n{text}"
    places = [text.index(f"\n{group}:\n") for group in ("this command", "connection", "output", "examples")]
    assert places == sorted(places)
    short = flag_help("example", Example, is_all=False)
    assert "--wait" not in short
    assert "--help-all also shows the rarely used flags" in " ".join(short.split())


@pytest.mark.parametrize(("word", "is_all"), [("-h", False), ("--help", False), ("--help-all", True)])
def test_help_is_given_whatever_else_is_wrong(word: str, is_all: bool) -> None:
    with pytest.raises(HelpAsked) as asked:
        given_texts(Example, ["--number", "0", word])
    assert asked.value.is_all == is_all
