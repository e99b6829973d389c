"""The modules of a package import each other in one direction: no module reaches itself through its imports.

An import counts at any place: at the top, in a function, under `TYPE_CHECKING`. A circle that only a type checker
sees is a circle for a reader, too.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = (
    *(
        "tweetwire",
        "broker",
        "bridge",
        "dashboard",
        "change_stream",
        "sse_ingest",
        "subscriber",
        "spark",
        "demo",
        "bench",
    ),
    *("deploy", "docs", "examples"),
)
LINES_MAX: Final = 300

Graph = Mapping[str, set[str]]


def module_name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path, name: str, modules: set[str]) -> Iterator[str]:
    """Yield the modules, among `modules`, that the file of module `name` imports.

    `from package import thing` means the module `package.thing` if it exists, else `package`.
    """
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join((*above, *([node.module] if node.module else [])))
            for alias in node.names:
                full = f"{base}.{alias.name}"
                if full in modules:
                    yield full
                elif base in modules:
                    yield base


def import_graph(root: Path, package: str) -> Graph:
    """Return which modules of a package each of its modules imports."""
    files = {module_name(path, root): path for path in root.joinpath(*package.split(".")).rglob("*.py")}
    return {name: set(imported(path, name, set(files))) - {name} for name, path in files.items()}


def circles(graph: Graph) -> list[list[str]]:
    """Return the sets of modules that reach each other, each in order: the strongly connected parts (Tarjan 1972)."""
    found: list[list[str]] = []
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        path.append(module)
        for other in sorted(graph[module]):
            if other not in number:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in path:
                lowest[module] = min(lowest[module], number[other])
        if lowest[module] == number[module]:
            at = path.index(module)
            part = path[at:]
            del path[at:]
            if len(part) > 1:
                found.append(sorted(part))

    for module in graph:
        if module not in number:
            visit(module)
    return sorted(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_reaches_itself_through_its_imports(package: str) -> None:
    assert circles(import_graph(ROOT, package)) == []


def test_every_folder_with_modules_is_checked() -> None:
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"} <= set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_module_has_at_most_300_lines(package: str) -> None:
    lines = {str(path): len(path.read_text().splitlines()) for path in (ROOT / package).rglob("*.py")}
    assert lines
    assert {path: count for path, count in lines.items() if count > LINES_MAX} == {}


def test_an_import_counts_wherever_it_is(tmp_path: Path) -> None:
    package = tmp_path / "sample"
    package.mkdir()
    (package / "__init__.py").write_text("from sample.first import A\n")
    (package / "first.py").write_text("from sample import second\n")
    (package / "second.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sample.third import C\n"
    )
    (package / "third.py").write_text("def f():\n    from .first import A\n")
    (package / "apart.py").write_text("from .first import A\n")
    assert circles(import_graph(tmp_path, "sample")) == [["sample.first", "sample.second", "sample.third"]]
