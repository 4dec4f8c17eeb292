"""Imports go down the storeys: never up, and never to another part of the same storey."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "skillfs"

STOREYS = [
    {"errors"},
    {"core"},
    {"stores", "index"},
    {"sync", "access", "locked", "objects"},
    {"opening", "lookup", "open_file", "feed"},
    {"reading", "listing", "wordindex", "looking_back", "below"},
    {"mounts", "writing"},
    {"digests", "mounting"},
    {"tree", "indexing", "folding", "following", "fsspec_writing", "searching"},
    {"fsspec_face", "history", "freshness", "fuse"},
    {"mounted"},
    {"filesystem"},
    {"tools"},
    {"faces", "testing", "upath", "agentskills"},
    {"__main__"},
]
"""From the ground up. What shares a storey does not know each other."""


def storey(part: str) -> int:
    return next(number for number, parts in enumerate(STOREYS) if part in parts)


def imports_of(module: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("skillfs."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.ImportFrom) and node.module == "skillfs":
            found.add("filesystem")
        elif isinstance(node, ast.Import):
            found.update(a.name.split(".")[1] for a in node.names if a.name.startswith("skillfs."))
    return found


MODULES = sorted(
    p.relative_to(PACKAGE).as_posix() for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py"
)


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down(module: str) -> None:
    own = module.removesuffix(".py").split("/")[0]
    for imported in imports_of(PACKAGE / module) - {own}:
        assert storey(imported) < storey(own), f"{module} imports {imported}, which does not lie below it"


def test_core_does_no_input_or_output() -> None:
    forbidden = {"io", "pathlib", "sqlite3", "socket", "subprocess", "time", "threading", "tempfile"}
    for module in (PACKAGE / "core").glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            assert not forbidden & {n.split(".")[0] for n in names}, module
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
                assert node.attr in {"PathLike", "fspath"}, module
