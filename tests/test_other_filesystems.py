"""The suite that proves stores, over filesystems that are neither local, nor in memory, nor S3."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.ftp import FTPFileSystem
from fsspec.implementations.github import GithubFileSystem

from skillfs import SkillFileSystem
from skillfs.errors import NotFoundError, SkillFSError, StoreUnavailableError
from skillfs.testing import StoreSuite
from tests.conftest import skill_md, write
from tests.servers.folders import OverAFolder, earlier
from tests.servers.web import GithubServer, ftp_server

if TYPE_CHECKING:
    from skillfs.testing.suite import Seed


class TestFtp(OverAFolder):
    """Over FTP."""

    @pytest.fixture(scope="class")
    @classmethod
    def seed(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seed]:
        pytest.importorskip("pyftpdlib")
        top = tmp_path_factory.mktemp("ftp")
        numbers = count(1)
        with ftp_server(top, "someone", "s3cret") as (host, port):

            def lay(files: Mapping[str, bytes]) -> dict[str, Any]:
                name = f"{next(numbers)} [a]*?#%20"
                cls.place = earlier(write(top / name, files))
                return {
                    "store": f"ftp://someone@{host}:{port}/{name}/",
                    "target_options": {"password": "s3cret"},
                }

            yield lay


class TestGithub(StoreSuite):
    """Over a folder of a branch of a repository."""

    hashes_at_scan = False
    has_empty_folders = False
    server: ClassVar[GithubServer]

    @pytest.fixture(scope="class")
    @classmethod
    def seed(cls) -> Iterator[Seed]:
        cls.server = GithubServer()
        with pytest.MonkeyPatch.context() as patch:
            for name, template in cls.server.templates.items():
                patch.setattr(GithubFileSystem, name, template)

            def lay(files: Mapping[str, bytes]) -> dict[str, Any]:
                cls.server.files = {f"skills/{path}": content for path, content in files.items()}
                return {"store": "github://team:kit@main/skills"}

            yield lay
        cls.server.close()

    @pytest.fixture
    def change(self) -> Callable[[str, bytes], object]:
        def change(path: str, content: bytes) -> None:
            self.server.files[f"skills/{path}"] = content

        return change

    @pytest.fixture
    def remove(self) -> Callable[[str], object]:
        return lambda path: self.server.files.pop(f"skills/{path}")


class Objects(AsyncFileSystem):  # type: ignore[misc]
    """A store of objects such as gcsfs shows: flat, and with generations."""

    protocol = "objects"

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(**options)
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.calls: list[str] = []

    def lay(self, path: str, content: bytes) -> None:
        self.objects[path] = content, self.objects.get(path, (b"", 0))[1] + 1

    def _about(self, path: str) -> dict[str, Any]:
        content, generation = self.objects[path]
        return {
            "name": path,
            "type": "file",
            "size": len(content),
            "etag": f"C{generation}",
            "generation": str(generation),
            "md5Hash": "x",
            "updated": "2026-01-02T03:04:05.678Z",
        }

    async def _find(self, path: str, withdirs: bool = False, detail: bool = False, **options: Any) -> Any:
        self.calls.append("find")
        prefix = f"{path}/" if path else ""
        return {name: self._about(name) for name in self.objects if name.startswith(prefix)}

    async def _info(self, path: str, **options: Any) -> dict[str, Any]:
        self.calls.append("info")
        if path in self.objects:
            return self._about(path)
        if any(name.startswith(f"{path}/") for name in self.objects):
            return {"name": path, "type": "directory", "size": 0}
        raise FileNotFoundError(path)

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: Any
    ) -> bytes:
        self.calls.append("cat_file")
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path][0][start:end]


class TestObjects(StoreSuite):
    """Over an instance of an asynchronous filesystem of objects with generations."""

    hashes_at_scan = False
    has_empty_folders = False
    fs: ClassVar[Objects]

    @pytest.fixture(scope="class")
    @classmethod
    def seed(cls) -> Seed:
        numbers = count(1)

        def lay(files: Mapping[str, bytes]) -> dict[str, Any]:
            # For fsspec, instances that were made with the same arguments are one.
            cls.fs = Objects(f"number {next(numbers)}")
            for path, content in files.items():
                cls.fs.lay(f"bucket/some/{path}", content)
            return {"fs": cls.fs, "store": "bucket/some/"}

        return lay

    @pytest.fixture
    def change(self) -> Callable[[str, bytes], object]:
        return lambda path, content: self.fs.lay(f"bucket/some/{path}", content)

    @pytest.fixture
    def remove(self) -> Callable[[str], object]:
        return lambda path: self.fs.objects.pop(f"bucket/some/{path}")


class TestFolderInMemory(StoreSuite):
    """Over an instance that shows a folder of another, with times that vouch for what they are of."""

    hashes_at_scan = False
    has_empty_folders = False
    place: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def seed(cls) -> Iterator[Seed]:
        memory = fsspec.filesystem("memory")
        numbers = count(1)

        def lay(files: Mapping[str, bytes]) -> dict[str, Any]:
            cls.place = f"/folders/{next(numbers)}/a [b]*?#%20"
            for path, content in files.items():
                memory.pipe_file(f"{cls.place}/{path}", content)
                memory.store[f"{cls.place}/{path}"].modified = datetime(2026, 1, 1, tzinfo=UTC)
            return {"fs": DirFileSystem(cls.place.rpartition("/")[0], memory), "store": "a [b]*?#%20"}

        yield lay
        memory.rm("/folders", recursive=True)

    @pytest.fixture
    def change(self) -> Callable[[str, bytes], object]:
        return lambda path, content: fsspec.filesystem("memory").pipe_file(f"{self.place}/{path}", content)

    @pytest.fixture
    def remove(self) -> Callable[[str], object]:
        return lambda path: fsspec.filesystem("memory").rm_file(f"{self.place}/{path}")


# -- what is special to each ---------------------------------------------------------------------------------

FILES = {"a/SKILL.md": skill_md("a").encode(), "a/one.md": b"one\n", "a/deep/er/two.md": b"two\n"}


def opened(store: str, **options: Any) -> SkillFileSystem:
    return SkillFileSystem(
        store, **{"index": ":memory:", "skip_instance_cache": True, "max_age": 3600, **options}
    )


def test_github(monkeypatch: pytest.MonkeyPatch) -> None:
    server = GithubServer()
    try:
        for name, template in server.templates.items():
            monkeypatch.setattr(GithubFileSystem, name, template)
        server.files = {**FILES, "a/%41.md": b"percent", "a/A.md": b"letter", "a/big.bin": b"x" * (2 << 20)}
        server.links = {"a/link.md": "../../etc/passwd"}
        fs = opened("github://team:kit@main")
        assert fs._engine.store.tells == "version"  # type: ignore[attr-defined]
        assert fs._engine.store.url == "github://team:kit@main"
        assert fs.cat_file("a/%41.md") == b"percent"
        assert fs.cat_file("a/big.bin") == b"x" * (2 << 20)
        assert [(p.code, p.path) for p in fs.problems()] == [("special-file", "a/link.md")]
        fs.index_all()
        server.asked.clear()
        fs.get_content("a/one.md")
        assert len(server.asked) == 3  # the file, and the folders on the way to it
        with pytest.raises(SkillFSError) as caught:
            opened("github://team:none@main")
        assert caught.value.code == "not_found"
        given = GithubFileSystem("team", "kit", sha="main", skip_instance_cache=True)
        assert SkillFileSystem("a", fs=given, index=":memory:", skip_instance_cache=True).skills()
    finally:
        server.close()


def test_ftp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyftpdlib")
    monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 0.5)
    place = earlier(write(tmp_path / "skills", {**FILES, "a/big.bin": b"0123456789" * 200_000}))
    with ftp_server(tmp_path, "someone", "s3cret") as (host, port):
        url = f"ftp://{host}:{port}/skills"
        fs = opened(url)
        assert fs._engine.store.tells == "time"  # type: ignore[attr-defined]
        assert fs.cat_file("a/big.bin", 1_000_003, 1_000_007) == b"3456"
        assert fs.cat_file("a/one.md") == b"one\n"
        fs.index_all()
        # A connection that has ended is made anew.
        fs._engine.store._source._fs.ftp.sock.close()  # type: ignore[attr-defined]
        assert fs.cat_file("a/one.md") == b"one\n"
        assert fs.get_content("a/deep/er/two.md").text == "two\n"
        (place / "a/one.md").unlink()
        with pytest.raises(NotFoundError):
            fs.cat_file("a/one.md")
        given = FTPFileSystem(host, port)
        again = SkillFileSystem("/skills", fs=given, index=":memory:", skip_instance_cache=True)
        assert again._engine is fs._engine
        for store, options, code in (
            (f"ftp://{host}:{port}/none", {}, "not_found"),
            (f"ftp://{host}:{port}/skills/a/SKILL.md", {}, "is_file"),
            (url, {"target_options": {"username": "someone", "password": "wr0ng"}}, "unreadable"),
        ):
            with pytest.raises(SkillFSError) as caught:
                opened(store, **options)
            assert caught.value.code == code
            assert host not in str(caught.value)
            assert "wr0ng" not in str(caught.value)
    with pytest.raises(StoreUnavailableError):
        fs.sync()
    assert "a/deep/er/two.md" in fs.find("")


def test_objects_are_asked_for_as_little_as_can_be() -> None:
    fs = Objects("requests")
    for path, content in FILES.items():
        fs.lay(f"b/{path}", content)
    store = SkillFileSystem("b", fs=fs, index=":memory:", skip_instance_cache=True, max_age=3600)
    assert fs.calls == ["info", "find", "info", "cat_file", "info"]
    store.index_all()
    fs.calls.clear()
    store.sync()
    assert fs.calls == ["find"]
    fs.calls.clear()
    store.get_content("a/one.md")
    assert fs.calls == ["cat_file", "info"]
    fs.lay("b/a/one.md", b"one\n")
    before = store.revision
    store.sync()
    assert store.get_content("a/one.md").text == "one\n"
    assert store.revision >= before
