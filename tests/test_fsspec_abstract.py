"""The suites that fsspec ships for filesystems, in one skill folder.

Of a read-only filesystem only those about reading hold; the scenarios are laid out behind its back. Of a
writable one all do, over every kind of store of `BACKENDS`, and the scenarios are written through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

from skillfs import ReadOnlyError, SkillFileSystem
from tests.conftest import skill_md, write
from tests.writable import open_writable

Join = Callable[..., str]


class SkillFixtures(AbstractFixtures):
    @pytest.fixture
    def backing(self, tmp_path: Path) -> Path:
        return write(tmp_path / "backing", {"skill/SKILL.md": skill_md("skill")}) / "skill"

    @pytest.fixture
    def fs(self, backing: Path) -> SkillFileSystem:
        return SkillFileSystem(backing.parent, index=":memory:", skip_instance_cache=True, max_age=0)

    @pytest.fixture
    def fs_path(self) -> str:
        return "skill"

    @pytest.fixture
    def fs_join(self) -> Join:
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def local_path(self, tmp_path: Path) -> str:
        path = tmp_path / "local"
        path.mkdir()
        return str(path)

    @pytest.fixture
    def seeded(self, backing: Path, fs_path: str, fs_join: Join) -> Callable[[Callable[..., str]], str]:
        def seed(scenario: Callable[..., str]) -> str:
            scenario(LocalFileSystem(auto_mkdir=True), fs_join, str(backing))
            return fs_join(fs_path, "source")

        return seed

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self, seeded: Callable[..., str]) -> str:
        return seeded(self._bulk_operations_scenario_0)

    @pytest.fixture
    def fs_glob_edge_cases_files(self, seeded: Callable[..., str]) -> str:
        return seeded(self._glob_edge_cases_files)

    @pytest.fixture
    def fs_dir_and_file_with_same_name_prefix(self, seeded: Callable[..., str]) -> str:
        return seeded(self._dir_and_file_with_same_name_prefix)

    @pytest.fixture
    def fs_10_files_with_hashed_names(self, seeded: Callable[..., str]) -> str:
        return seeded(self._10_files_with_hashed_names)

    @pytest.fixture
    def fs_target(self, fs_join: Join, fs_path: str) -> Iterator[str]:
        return fs_join(fs_path, "target")


class Seeding(SkillFileSystem):
    """Reads as ever; what a test makes with it goes straight to the local disk."""

    def mkdir(self, path: str, *args: object, **kwargs: object) -> None:
        (Path(self._engine.store.root) / path).mkdir()

    def touch(self, path: str, *args: object, **kwargs: object) -> None:
        (Path(self._engine.store.root) / path).touch()


class TestGet(SkillFixtures, AbstractGetTests):
    def test_get_directory_recursive(
        self,
        backing: Path,
        fs_join: Join,
        fs_path: str,
        local_fs: object,
        local_join: object,
        local_target: str,
    ) -> None:
        """Of all of them only this one makes its files in its own body."""
        fs = Seeding(backing.parent, index=":memory:", skip_instance_cache=True, max_age=0)
        super().test_get_directory_recursive(fs, fs_join, fs_path, local_fs, local_join, local_target)


class TestOpen(SkillFixtures, AbstractOpenTests):
    def test_open_exclusive(self, fs: SkillFileSystem, fs_target: str) -> None:
        """The suite's only test creates a file; here both modes of creating one are refused."""
        for mode in ("wb", "xb"):
            with pytest.raises(ReadOnlyError):
                fs.open(fs_target, mode)
        assert not fs.exists(fs_target)


def _local(request: pytest.FixtureRequest) -> dict[str, Any]:
    backing: Path = request.getfixturevalue("tmp_path") / "backing"
    return {"store": write(backing, {"skill/SKILL.md": skill_md("skill")})}


def _memory(request: pytest.FixtureRequest) -> dict[str, Any]:
    fs, root = MemoryFileSystem(), f"/{uuid4().hex}"
    fs.pipe_file(f"{root}/skill/SKILL.md", skill_md("skill").encode())
    request.addfinalizer(lambda: fs.rm(root, recursive=True))
    return {"store": f"memory:/{root}"}


def _s3(request: pytest.FixtureRequest) -> dict[str, Any]:
    bucket = request.getfixturevalue("bucket")
    bucket.seed({"library/skill/SKILL.md": skill_md("skill")})
    return {"store": f"{bucket.url}/library", "target_options": bucket.server.target_options}


BACKENDS: dict[str, Callable[[pytest.FixtureRequest], dict[str, Any]]] = {
    "local": _local,
    "memory": _memory,
    "s3": _s3,
}
"""Kinds of stores: each makes one that holds one skill, named `skill`, and returns what opens it."""


class WritableFixtures(AbstractFixtures):
    @pytest.fixture(params=[*BACKENDS])
    def fs(self, request: pytest.FixtureRequest) -> SkillFileSystem:
        return open_writable(**BACKENDS[request.param](request))

    @pytest.fixture
    def fs_path(self) -> str:
        return "skill"

    @pytest.fixture
    def fs_join(self) -> Join:
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def local_path(self, tmp_path: Path) -> str:
        path = tmp_path / "local"
        path.mkdir()
        return str(path)

    @pytest.fixture
    def supports_empty_directories(self, fs: SkillFileSystem) -> bool:
        held: bool = fs._engine.store.holds_empty_folders  # type: ignore[attr-defined]  # of a writable store
        return held


class TestWritableGet(WritableFixtures, AbstractGetTests):
    pass


class TestWritablePut(WritableFixtures, AbstractPutTests):
    pass


class TestWritableCopy(WritableFixtures, AbstractCopyTests):
    pass


class TestWritableOpen(WritableFixtures, AbstractOpenTests):
    pass


class TestWritablePipe(WritableFixtures, AbstractPipeTests):
    pass
