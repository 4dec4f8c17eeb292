"""The package is typed and lint-free, with the rules that pyproject.toml states."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


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
