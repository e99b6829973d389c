"""``python -m tests.english [PATH…]``: find idioms and sentences that a reader has to read twice.

It is in `tests`, like the other programs that examine the repository (`tests.faults`, `tests.hostile`), because users of the
library do not need it. Without paths, it checks every file of the repository except those in `not_yet` of pyproject.toml. That
list names folders that are not rewritten yet. It only shrinks: a listed folder that has become clean is a fault.
"""

import os
import sys
import tomllib
from collections import Counter
from pathlib import Path

from tests.english.passages import passages_of
from tests.english.rules import faults_of

_FILES = (
    "*.py",
    "*.md",
    "Makefile",
    "Dockerfile",
    "*.yml",
    "*.yaml",
    "*.toml",
    "*.service",
    "*.conf",
    ".ci/run",
    "deploy/install",
)
_NOT_OURS = {".git", ".venv", "venv", "data", "node_modules", "build", "dist", "site", "__pycache__"}


def main(*paths: str) -> int:
    """Print the faults of `paths`, or of every file that should be clean. Return 1 if there is a fault, else 0."""
    settings = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["plain_english"]
    not_yet: list[str] = [] if paths else settings["not_yet"]
    listed = dict.fromkeys(not_yet, 0)
    faults: Counter[str] = Counter()
    for file in _files(paths, settings["exempt"]):
        unclean = next((folder for folder in not_yet if _is_within(file, folder)), None)
        for passage in passages_of(Path(file)):
            for fault in faults_of(passage):
                faults[unclean or ""] += 1
                if unclean is None:
                    print(f"{file}:{passage.line}: {passage.kind}: {fault}")
    finished = [folder for folder in listed if not faults[folder]]
    for folder in finished:
        print(f"pyproject.toml: {folder} has become clean; remove it from tool.plain_english.not_yet")
    return int(bool(faults[""] or finished))


def _files(paths: tuple[str, ...], exempt: list[str]) -> list[str]:
    files = [file for path in paths or (".",) for file in _below(Path(path))]
    return [
        str(file)
        for file in sorted(set(files))
        if any(file.match(pattern) for pattern in _FILES)
        and not any(_is_within(str(file), folder) for folder in exempt)
    ]


def _below(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    files: list[Path] = []
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if name not in _NOT_OURS]
        files += [Path(folder, name) for name in names]
    return files


def _is_within(file: str, folder: str) -> bool:
    return file == folder or file.startswith(f"{folder}/")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
