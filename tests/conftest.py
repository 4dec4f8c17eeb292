"""What the tests share: a data folder of their own, and a way to lay out a store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skillfs import SkillFileSystem

if TYPE_CHECKING:
    from tests.servers.faults import FaultyS3
    from tests.servers.s3 import Bucket, S3Server


def skill_md(name: str = "a", description: str = "Something to do.", body: str = "# Title\n") -> str:
    """The text of a flawless `SKILL.md`."""
    return f"---\nname: {name}\ndescription: {description}\n---\n{body}"


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files, given as path to content, below a folder; returns the folder."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


@pytest.fixture(autouse=True)
def checks_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`max_age` alone decides, however slow the machine is at the moment."""
    monkeypatch.setattr("skillfs.sync.engine.CHECK_COST", 0.0)


@pytest.fixture(autouse=True)
def data_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the index of whoever runs it."""
    home = tmp_path_factory.mktemp("data")
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    return home


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that another user can reach; there is another user only for root."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty folder for a store, with room for what lies outside beside it."""
    folder = tmp_path / "store"
    folder.mkdir()
    return folder


@pytest.fixture
def open_fs(root: Path) -> Callable[..., SkillFileSystem]:
    """Opens the store at `root` with an index in memory."""

    def opened(**options: object) -> SkillFileSystem:
        return SkillFileSystem(root, **{"index": ":memory:", "skip_instance_cache": True, **options})

    return opened


# Servers are imported where they are used: most tests need not wait for moto.


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 on the loopback interface."""
    from tests.servers.s3 import S3Server

    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def bucket(s3_server: S3Server) -> Iterator[Bucket]:
    """An empty bucket that keeps every version of an object."""
    bucket = s3_server.new_bucket()
    yield bucket
    s3_server.drop(bucket)


@pytest.fixture
def faulty(s3_server: S3Server) -> Iterator[FaultyS3]:
    """A way to the S3 on which things go wrong as the test says."""
    from tests.servers.faults import FaultyS3

    way = FaultyS3(s3_server)
    yield way
    way.close()
    assert not way.errors, way.errors
