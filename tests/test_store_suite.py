"""The suite that proves stores, over every kind of store there is."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import fsspec
import pytest

from skillfs.testing import StoreSuite
from tests.conftest import write

if TYPE_CHECKING:
    from skillfs.testing.suite import Seed
    from tests.servers.s3 import Bucket, S3Server


class TestLocal(StoreSuite):
    """Over a local folder, against another one."""

    place: ClassVar[Path]

    @pytest.fixture(scope="class")
    @classmethod
    def seed(cls, tmp_path_factory: pytest.TempPathFactory) -> Seed:
        def lay(files: Mapping[str, bytes]) -> dict[str, Any]:
            cls.place = write(tmp_path_factory.mktemp("store"), files)
            return {"store": cls.place}

        return lay

    @pytest.fixture
    def change(self) -> Callable[[str, bytes], object]:
        return lambda path, content: write(self.place, {path: content})

    @pytest.fixture
    def remove(self) -> Callable[[str], object]:
        return lambda path: (self.place / path).unlink()


class TestMemory(StoreSuite):
    """Over fsspec's files in memory."""

    hashes_at_scan = False
    has_empty_folders = False
    place: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def seed(cls) -> Iterator[Seed]:
        memory = fsspec.filesystem("memory")
        numbers = count(1)

        def lay(files: Mapping[str, bytes]) -> dict[str, Any]:
            cls.place = f"/suite/{next(numbers)}/skills"
            for path, content in files.items():
                memory.pipe_file(f"{cls.place}/{path}", content)
            return {"store": f"memory:/{cls.place}"}

        yield lay
        memory.rm("/suite", recursive=True)

    @pytest.fixture
    def change(self) -> Callable[[str, bytes], object]:
        return lambda path, content: fsspec.filesystem("memory").pipe_file(f"{self.place}/{path}", content)

    @pytest.fixture
    def remove(self) -> Callable[[str], object]:
        return lambda path: fsspec.filesystem("memory").rm_file(f"{self.place}/{path}")


class TestZip(StoreSuite):
    """Over a folder in a zip archive."""

    hashes_at_scan = False
    is_changeable = False

    @pytest.fixture(scope="class")
    @classmethod
    def seed(cls, tmp_path_factory: pytest.TempPathFactory) -> Seed:
        def lay(files: Mapping[str, bytes]) -> dict[str, Any]:
            archive = tmp_path_factory.mktemp("zip") / "x.zip"
            with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
                for path, content in files.items():
                    packed.writestr(f"skills/{path}", content)
            return {"store": f"zip://skills::file://{archive}"}

        return lay


class TestS3(StoreSuite):
    """Over a prefix of a bucket."""

    hashes_at_scan = False
    has_empty_folders = False
    place: ClassVar[Bucket]

    @pytest.fixture(scope="class")
    @classmethod
    def seed(cls, s3_server: S3Server) -> Iterator[Seed]:
        laid: list[Bucket] = []

        def lay(files: Mapping[str, bytes]) -> dict[str, Any]:
            cls.place = s3_server.new_bucket()
            laid.append(cls.place)
            cls.place.seed(files, "some/prefix/")
            return {"store": f"{cls.place.url}/some/prefix", "target_options": s3_server.target_options}

        yield lay
        for bucket in laid:
            s3_server.drop(bucket)

    @pytest.fixture
    def change(self) -> Callable[[str, bytes], object]:
        return lambda path, content: self.place.put(f"some/prefix/{path}", content)

    @pytest.fixture
    def remove(self) -> Callable[[str], object]:
        return lambda path: self.place.delete(f"some/prefix/{path}")


# -- the suite itself ----------------------------------------------------------------------------------------

FAULTY = """
import pytest
from skillfs.testing import StoreSuite

class Wrong(StoreSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def seed(cls, tmp_path_factory):
        def lay(files):
            folder = tmp_path_factory.mktemp("store")
            for path, content in cls.altered(files).items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
            return {"store": folder}
        return lay

    is_changeable = False

class TestLosesAFile(Wrong):
    @staticmethod
    def altered(files):
        return {path: content for path, content in files.items() if path != "pdf/scripts/run.py"}

class TestChangesAByte(Wrong):
    @staticmethod
    def altered(files):
        return {**files, "pdf/scripts/run.py": b"print('ruN')\\n"}

class TestShowsWhatIsInNoSkill(Wrong):
    @staticmethod
    def altered(files):
        return {**files, "loose/SKILL.md": b"---\\nname: loose\\ndescription: x\\n---\\n"}

class TestClaimsToKnowNoHashes(Wrong):
    altered = staticmethod(dict)
    hashes_at_scan = False
"""


def test_suite_finds_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "test_faulty.py").write_text(FAULTY)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=short", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    failed = {line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith("FAILED")}

    def names(case: str) -> set[str]:
        return {line.rpartition("::")[2].partition("[")[0] for line in failed if f"::{case}::" in line}

    assert names("TestLosesAFile") >= {
        "test_every_form_of_reference",
        "test_content_of_every_file",
        "test_trees",
    }
    assert names("TestChangesAByte") >= {"test_content_of_every_file", "test_bytes_of_every_file"}
    assert names("TestShowsWhatIsInNoSkill") >= {"test_what_is_not_visible_is_not_found", "test_skills"}
    assert names("TestClaimsToKnowNoHashes") == {"test_hashes_without_reading"}
    assert "assert" in done.stdout


def test_without_pytest_the_error_says_what_to_do() -> None:
    code = "import sys; sys.modules['pytest'] = None; import skillfs.testing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.rstrip().splitlines()[-1] == (
        "ImportError: skillfs.testing needs pytest; run: pip install pytest"
    )
