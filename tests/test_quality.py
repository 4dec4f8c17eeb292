"""The package is typed and lint-free, with the rules that pyproject.toml states."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|WHERE|BETWEEN)\b")


@pytest.mark.parametrize(
    "arguments",
    [["mypy"], ["ruff", "check", "skillfs", "tests"], ["ruff", "format", "--check", "skillfs", "tests"]],
    ids=["mypy", "ruff", "format"],
)
def test_checker_is_content(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_statements_number_no_parameters() -> None:
    """With values in a sequence `?1` is deprecated from Python 3.12 on, and an error from 3.14 on."""
    for module in (ROOT / "skillfs").rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _SQL.search(node.value):
                assert not re.search(r"\?\d", node.value), (module.name, node.lineno)
