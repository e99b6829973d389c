"""A checkpoint folder belongs to one program at a time."""

from pathlib import Path

import pytest

from spark.apps.checkpoint import claimed
from tweetwire.protocol.errors import StartError


def test_a_checkpoint_belongs_to_one_program_until_that_ends(tmp_path: Path) -> None:
    one, other = tmp_path / "spark" / "tweets-stats", tmp_path / "spark" / "users-stats"
    with claimed([one]):
        with pytest.raises(StartError, match=r"another python -m spark uses .*/tweets-stats; .*--checkpoint"):
            claimed([other, one]).__enter__()
        with claimed([other]):
            pass
    with claimed([one, other]):
        pass


def test_a_folder_that_cannot_be_made_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match=r"cannot use .*/file as checkpoint: .*--checkpoint"):
        claimed([tmp_path / "file" / "tweets-stats"]).__enter__()
