"""A folder to mount at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import skill_md, write
from tests.fuse.mounting import cleaned


@pytest.fixture
def mountpoint(tmp_path: Path) -> Iterator[Path]:
    """An empty folder beside the store."""
    folder = tmp_path / "point"
    folder.mkdir()
    with cleaned(tmp_path):
        yield folder


@pytest.fixture
def skills(root: Path) -> Path:
    """A store with one skill."""
    return write(root, {"pdf/SKILL.md": skill_md("pdf"), "pdf/a.txt": "first"})
