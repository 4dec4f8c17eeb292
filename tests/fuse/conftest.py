"""A folder to mount at, and stores that are mounted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import skill_md, write
from tests.fuse.mounted import Shown, local_shown, s3_shown
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


@pytest.fixture(scope="module", params=["local", "s3"])
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A store that no test changes."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "local":
        with local_shown(folder) as made:
            yield made
    else:
        with s3_shown(folder, request.getfixturevalue("s3_server")) as made:
            yield made
