"""The check of plain English finds idioms in every kind of prose, and accepts plain sentences and code."""

from pathlib import Path

import pytest

from tests.english.__main__ import main
from tests.english.passages import Passage, passages_of
from tests.english.rules import WORDS_MAX, faults_of

SOURCE = '''"""What the module is."""

# Told by the broker. A second
# line belongs to the same paragraph.
limit = 3  # noqa: E501 — nobody reads this
"""So many lines."""


def test_who_is_gone_is_waited_for() -> None:
    """Do it.

    - one
    - two, which is
      long

        code = "told"

    Args:
        path: A file.
            Or a folder.
    """
    raise ValueError(f"cannot read {limit} lines: it is made anew")
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    return path


def faults(text: str, kind: str = "comment") -> list[str]:
    return list(faults_of(Passage(1, kind, text)))  # type: ignore[arg-type]


def test_every_place_of_prose_in_a_python_file_is_a_passage(file: Path) -> None:
    assert [(passage.line, passage.kind, passage.text) for passage in passages_of(file)] == [
        (1, "docstring", "What the module is."),
        (1, "summary", "What the module is."),
        (3, "comment", "Told by the broker. A second line belongs to the same paragraph."),
        (5, "comment", "nobody reads this"),
        (6, "docstring", "So many lines."),
        (6, "summary", "So many lines."),
        (9, "name", "who is gone is waited for"),
        (10, "docstring", "Do it."),
        (10, "summary", "Do it."),
        (12, "docstring", "one"),
        (13, "docstring", "two, which is long"),
        (18, "docstring", "Args:"),
        (19, "docstring", "path: A file. Or a folder."),
        (22, "message", "cannot read CODE lines: it is made anew"),
    ]


def test_a_page_is_read_without_its_code(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Head\n\nA line\nand `told` more.\n\n```\ntold\n```\n\n| a | b |\n| --- | --- |\n| c | d |\n\n    told\n"
    )
    assert [passage.text for passage in passages_of(page)] == ["Head", "A line and CODE more.", "a", "b", "c", "d"]


def test_a_heading_may_begin_like_a_question() -> None:
    assert faults("What a change needs", kind="heading") == []
    assert faults("What nobody needs", kind="heading")


def test_an_address_does_not_hide_the_end_of_a_sentence(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("See [it](https://example.org/a.html). Then go on, see https://example.org.\n")
    assert [passage.text for passage in passages_of(page)] == ["See [it](CODE). Then go on, see CODE."]


def test_a_passage_with_an_allow_mark_is_not_checked(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('# This is told.  plain-english: allow\nx = "nobody came today"  # plain-english: allow\n')
    assert passages_of(module) == []


@pytest.mark.parametrize(
    "text",
    [
        "Who is gone is waited for.",
        "Whose token is checked next.",
        "Read it. What is left stays.",
        "A list of what was sent.",
        "One that fails is logged.",
        "A port that nobody uses.",
        "The list is made anew.",
        "The position behind the last event.",
        "Reads what lies behind it.",
        "The user is told why.",
        "A process of its own.",
        "So many lines at most.",
        "A file that does not do.",
        "The sum comes to three.",
        "Fails for want of memory.",
        "The same, save that it is slower.",
        "A change that befalls the collection.",
        "Raises StartError where the URL is none.",
        "A broker that does not let nobody in.",
        "The order need not be the same.",
        "It retries again and again.",
        "The latter may be negative.",
        "The connection goes on.",
        "It waits for the other one's reply.",
        "Return made-up names.",
        "Raises as `ask`.",
        "A payload that is no object.",
        "The event is stored all the same, and delivered.",
        "The name is lost for good.",
        "Return all but the last.",
        "Nothing but the code is shown.",
        "A slow command is waited for.",
        "The program shall end.",
        "Copies the folder wholly.",
        "The broker retries in vain.",
        "Flags and documents alike: both count.",
        "A wrong setting is one sentence.",
    ],
)
def test_an_idiom_is_a_fault(text: str) -> None:
    assert faults(text)


@pytest.mark.parametrize(
    "text",
    [
        "What does the broker do?",
        "Report what is wrong.",
        "A user who may publish.",
        "Return None where there is none.",
        "None of them is in flight.",
        "It puts off the certificate of its own authority.",
        "A consumer far behind its plan, behind a proxy.",
        "The stream comes to its end.",
        "This tells apart two documents.",
        "A file that is not there changes nothing.",
        "Save the file.",
        "It is one that works.",
        "There is no topic, and it is no longer needed.",
        "The state is no newer than the lines.",
        "All the same words.",
        "For good reasons.",
        "The message is one sentence.",
        "It waits for the broker, and looked at it.",
    ],
)
def test_plain_sentences_pass(text: str) -> None:
    assert faults(text) == []


def test_a_sentence_ends_at_a_stop_and_has_a_limit() -> None:
    longest = "A " + "word " * (WORDS_MAX - 2) + "more"
    assert faults(f"{longest}. {longest}: {longest}.") == []
    assert [fault[:22] for fault in faults(f"Begin. And {longest}.")] == ["a sentence of 31 words"]
    assert faults(f"and {longest}", kind="message") == []


@pytest.mark.parametrize(("line", "is_sentence"), [("Return it.", True), ("`kind` of it.", False), ("returns it.", False),
                                                   ("Return it", False), ("Add.", False),
                                                   ("Take it; return it.", False), ("Lines → commands.", False)])  # fmt: skip
def test_a_docstring_begins_with_a_sentence(line: str, is_sentence: bool) -> None:
    summary = Passage(1, "summary", line.replace("`kind`", "kind"))
    assert bool(list(faults_of(summary))) is not is_sentence


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a.py").write_text("# It is told.\n")
    (tmp_path / "new.py").write_text("# It is logged.\n")
    (tmp_path / "pyproject.toml").write_text('[tool.plain_english]\nnot_yet = ["old"]\nexempt = []\n')
    return tmp_path


def run(*paths: str) -> int:
    return main(*paths)


def test_a_folder_that_is_not_yet_rewritten_passes(repository: Path) -> None:
    assert run() == 0


def test_a_file_with_an_idiom_is_named_with_its_line(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "new.py").write_text("x = 1\n# It is told.\n")
    assert run() == 1
    assert capsys.readouterr().out.startswith("new.py:2: comment: 'told': write ")


def test_a_folder_named_by_hand_is_checked_although_it_is_listed(repository: Path) -> None:
    assert run("old") == 1


def test_a_listed_folder_that_has_become_clean_is_a_fault(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "old" / "a.py").write_text("# It is logged.\n")
    assert run() == 1
    assert "old has become clean" in capsys.readouterr().out
