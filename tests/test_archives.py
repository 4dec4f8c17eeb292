"""The suite that proves stores, over archives, and what else archives hold."""

from __future__ import annotations

import io
import os
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from skillfs import SkillFileSystem
from skillfs.errors import ChangedError, NotFoundError, ReadOnlyError, StoreUnavailableError
from skillfs.testing import StoreSuite
from tests.conftest import skill_md
from tests.servers.web import WebServer

if TYPE_CHECKING:
    from skillfs.testing.suite import Seed
    from tests.servers.s3 import Bucket, S3Server


class OverAnArchive(StoreSuite):
    """What is packed anew with every change."""

    hashes_at_scan = False
    has_empty_folders = False
    files: ClassVar[dict[str, bytes]]

    @classmethod
    def pack(cls) -> None:
        raise NotImplementedError

    @pytest.fixture
    def change(self) -> Callable[[str, bytes], object]:
        def change(path: str, content: bytes) -> None:
            self.files[path] = content
            self.pack()

        return change

    @pytest.fixture
    def remove(self) -> Callable[[str], object]:
        def remove(path: str) -> None:
            del self.files[path]
            self.pack()

        return remove


def zipped(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
        for path, content in files.items():
            packed.writestr(path, content)
    return made.getvalue()


def tarred(files: Mapping[str, bytes], mode: str = "w:gz") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as packed:  # type: ignore[call-overload]
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
    return made.getvalue()


class TestZipThatChanges(OverAnArchive):
    """Over a local zip archive that is written anew in place."""

    archive: ClassVar[Path]

    @pytest.fixture(scope="class")
    @classmethod
    def seed(cls, tmp_path_factory: pytest.TempPathFactory) -> Seed:
        def lay(files: Mapping[str, bytes]) -> dict[str, Any]:
            cls.archive = tmp_path_factory.mktemp("zip") / "x y.zip"
            cls.files = dict(files)
            cls.pack()
            return {"store": f"zip://::{cls.archive}"}

        return lay

    @classmethod
    def pack(cls) -> None:
        cls.archive.write_bytes(zipped(cls.files))


class TestTarGz(OverAnArchive):
    """Over a compressed tar archive that is replaced, packed as `tar -C folder .` does."""

    archive: ClassVar[Path]

    @pytest.fixture(scope="class")
    @classmethod
    def seed(cls, tmp_path_factory: pytest.TempPathFactory) -> Seed:
        def lay(files: Mapping[str, bytes]) -> dict[str, Any]:
            cls.archive = tmp_path_factory.mktemp("tar") / "x.tgz"
            cls.files = dict(files)
            cls.pack()
            return {"store": f"tar://::file://{cls.archive}"}

        return lay

    @classmethod
    def pack(cls) -> None:
        new = cls.archive.with_suffix(".new")
        new.write_bytes(tarred({f"./{path}": content for path, content in cls.files.items()}))
        new.rename(cls.archive)


class TestZipOnS3(OverAnArchive):
    """Over a folder of a zip archive in a bucket."""

    bucket: ClassVar[Bucket]

    @pytest.fixture(scope="class")
    @classmethod
    def seed(cls, s3_server: S3Server) -> Iterator[Seed]:
        laid = []

        def lay(files: Mapping[str, bytes]) -> dict[str, Any]:
            cls.bucket = s3_server.new_bucket()
            laid.append(cls.bucket)
            cls.files = dict(files)
            cls.pack()
            return {
                "store": f"zip://in/skills::{cls.bucket.url}/x.zip",
                "target_options": {"s3": s3_server.target_options},
            }

        yield lay
        for bucket in laid:
            s3_server.drop(bucket)

    @classmethod
    def pack(cls) -> None:
        cls.bucket.put("x.zip", zipped({f"in/skills/{path}": c for path, c in cls.files.items()}))


class TestZipOnTheWeb(OverAnArchive):
    """Over a zip archive on a web server."""

    place: ClassVar[Path]

    @pytest.fixture(scope="class")
    @classmethod
    def seed(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seed]:
        server = WebServer(tmp_path_factory.mktemp("web"))
        numbers = count(1)

        def lay(files: Mapping[str, bytes]) -> dict[str, Any]:
            number = next(numbers)
            cls.place = server.folder / f"{number}.zip"
            cls.files = dict(files)
            cls.pack()
            return {"store": f"zip://::{server.url}/{number}.zip"}

        yield lay
        server.close()

    @classmethod
    def pack(cls) -> None:
        cls.place.write_bytes(zipped(cls.files))


# -- what archives hold --------------------------------------------------------------------------------------

FILES = {"a/SKILL.md": skill_md("a").encode(), "a/one.md": b"one\n", "b/SKILL.md": skill_md("b").encode()}


@pytest.fixture(autouse=True)
def no_patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.cls is None:
        monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 0.5)


def opened(store: str, **options: Any) -> SkillFileSystem:
    return SkillFileSystem(
        store, **{"index": ":memory:", "skip_instance_cache": True, "max_age": 3600, **options}
    )


@pytest.mark.parametrize("held", [True, False])
def test_requests(tmp_path: Path, held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not held:
        monkeypatch.setattr("skillfs.stores.containers.HELD", 0)
        monkeypatch.setattr("skillfs.stores.containers.AHEAD", 4096)
    (tmp_path / "x.zip").write_bytes(zipped({**FILES, "a/big.bin": os.urandom(500_000)}))
    os.utime(tmp_path / "x.zip", (1_780_000_000, 1_780_000_000))
    server = WebServer(tmp_path)
    try:
        fs = opened(f"zip://::{server.url}/x.zip")
        assert fs._engine.store.tells == "version"  # type: ignore[attr-defined]
        if held:
            assert server.counts["file"] == 1
        fs.index_all()
        server.forget()
        fs.sync()
        assert server.counts == {"HEAD": 1}
        server.forget()
        assert fs.cat_file("a/one.md") == b"one\n"
        assert server.counts["HEAD"] == 1
        assert server.counts.get("file", 0) <= (0 if held else 1)
        server.forget()
        assert len(fs.cat_file("a/big.bin", 0, 1000)) == 1000
        assert server.sent < 20_000
    finally:
        server.close()


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_an_archive_that_is_replaced_all_the_time(
    tmp_path: Path, pack: Callable[[Mapping[str, bytes]], bytes]
) -> None:
    """What is read is one version of one member, whole, though the archive is written in place."""
    path = tmp_path / "x"
    versions = [
        pack({**FILES, f"a/{n}": bytes([n]) * (n * 1000), "a/one.md": bytes([65 + n]) * 9_000})
        for n in range(8)
    ]
    path.write_bytes(versions[0])
    fs = opened(f"{'zip' if pack is zipped else 'tar'}://::{path}")
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            path.write_bytes(versions[number % 8])
            ended.wait(0.03)

    thread = threading.Thread(target=write)
    thread.start()
    seen = set()
    end = time.monotonic() + 10
    try:
        while len(seen) < 4 and time.monotonic() < end:
            try:
                content = fs.cat_file("a/one.md")
            except (StoreUnavailableError, ChangedError):
                continue
            assert len(content) == 9_000
            assert len(set(content)) == 1
            seen.add(content[:1])
    finally:
        ended.set()
        thread.join()
    assert len(seen) >= 4


def test_members_that_are_still_the_same_are_not_modified(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(zipped(FILES))
    fs = opened(f"zip://::{path}")
    before = fs.revision
    path.write_bytes(zipped(dict(reversed(FILES.items()))))
    fs.sync()
    assert fs.revision == before
    path.write_bytes(zipped({**FILES, "a/one.md": b"eno\n"}))
    fs.sync()
    assert [(c.kind, c.path) for c in fs.changes(before).items] == [("modified", "a/one.md")]


def test_large_archives_are_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillfs.stores.archives.MOST_DIGESTED", 100)
    path = tmp_path / "x.zip"
    path.write_bytes(zipped(FILES))
    fs = opened(f"zip://::{path}")
    before = fs.revision
    assert fs.cat_file("a/one.md") == b"one\n"
    path.write_bytes(zipped({**FILES, "a/one.md": b"eno\n"}))
    assert fs.cat_file("a/one.md") == b"eno\n"
    fs.sync()
    assert ("modified", "a/one.md") in [(c.kind, c.path) for c in fs.changes(before).items]


def test_an_archive_that_goes_away_is_away(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(zipped({f"in/{p}": c for p, c in FILES.items()}))
    fs = opened(f"zip://in::{path}")
    path.rename(tmp_path / "elsewhere")
    for work in (fs.sync, lambda: fs.cat_file("a/one.md")):
        with pytest.raises(StoreUnavailableError, match="away") as caught:
            work()
        assert str(tmp_path) not in str(caught.value)
    path.write_bytes(zipped({"other/a/SKILL.md": b""}))
    with pytest.raises(StoreUnavailableError, match="away"):
        fs.sync()
    path.write_bytes(zipped(FILES)[:-30])
    with pytest.raises(StoreUnavailableError, match="damaged"):
        fs.sync()
    assert fs.find("") == sorted(FILES)
    (tmp_path / "elsewhere").rename(path)
    fs.sync()
    assert fs.cat_file("a/one.md") == b"one\n"


def test_links_in_archives_lead_nowhere(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as packed:
        for name, content in {**{f"in/{p}": c for p, c in FILES.items()}, "secret.md": b"secret"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
        for name, kind, to in (
            ("in/a/soft.md", tarfile.SYMTYPE, "../../secret.md"),
            ("in/a/hard.md", tarfile.LNKTYPE, "in/a/one.md"),
            ("in/a/pipe", tarfile.FIFOTYPE, ""),
            ("in/a/device", tarfile.CHRTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, to
            packed.addfile(member)
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as zipped_:
        for name, content in FILES.items():
            zipped_.writestr(f"in/{name}", content)
        link = zipfile.ZipInfo("in/a/soft.md")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        zipped_.writestr(link, "../../secret.md")
    tar, packed_ = opened(f"tar://in::{tmp_path}/x.tar"), opened(f"zip://in::{tmp_path}/x.zip")
    assert tar.find("") == sorted([*FILES, "a/hard.md"])
    assert tar.cat_file("a/hard.md") == b"one\n"
    assert packed_.find("") == sorted(FILES)
    for fs in (tar, packed_):
        with pytest.raises(NotFoundError):
            fs.cat_file("a/soft.md")
        assert ("special-file", "a/soft.md") in [(p.code, p.path) for p in fs.problems()]


def test_members_that_cannot_be_read(tmp_path: Path) -> None:
    made = bytearray(zipped({**FILES, "a/bad.md": b"x" * 100}))
    at = made.index(b"a/bad.md") + len("a/bad.md")
    made[at + 1] ^= 0xFF
    (tmp_path / "x.zip").write_bytes(made)
    fs = opened(f"zip://::{tmp_path}/x.zip")
    with pytest.raises(StoreUnavailableError, match="damaged"):
        fs.cat_file("a/bad.md")
    assert fs.cat_file("a/one.md") == b"one\n"
    encrypted = bytearray(zipped(FILES))
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = encrypted.rindex(b"a/one.md", 0, encrypted.rindex(b"b/SKILL.md"))
        at = encrypted.index(b"a/one.md") if signature == b"PK\x03\x04" else at
        encrypted[encrypted.rindex(signature, 0, at) + flags] |= 1
    (tmp_path / "x.zip").write_bytes(encrypted)
    fs.sync()
    with pytest.raises(StoreUnavailableError, match="encrypted"):
        fs.cat_file("a/one.md")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("name", ["x.tar", "x", "x.zip"])
def test_tar_archives_by_any_name(tmp_path: Path, mode: str, name: str) -> None:
    (tmp_path / name).write_bytes(tarred(FILES, mode))
    assert opened(f"tar://::{tmp_path}/{name}").find("") == sorted(FILES)


def test_keys_that_are_no_paths(tmp_path: Path) -> None:
    odd = {"/abs/x": b"", "a/../x": b"", "a//x": b"", "a/x\ny": b"", "c:\\x": b"", "./a/two.md": b"two"}
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as packed:
        for path, content in {**FILES, **odd}.items():
            packed.writestr(path, content)
    fs = opened(f"zip://::{tmp_path}/x.zip")
    assert fs.find("") == sorted([*FILES, "a/two.md"])
    assert "unfit-key" in {p.code for p in fs.problems()}


def test_threads_and_forks_read_side_by_side(tmp_path: Path) -> None:
    """A tar archive is one file with one position."""
    files = {**FILES, **{f"a/{n}.md": f"{n}\n".encode() * 5_000 for n in range(20)}}
    (tmp_path / "x.tar").write_bytes(tarred(files, "w"))
    fs = opened(f"tar://::{tmp_path}/x.tar")
    wrong: list[int] = []

    def read() -> None:
        wrong.extend(n for n in range(20) if fs.cat_file(f"a/{n}.md") != files[f"a/{n}.md"])

    pid = os.fork()
    if pid == 0:
        try:
            for _ in range(3):
                read()
        finally:
            os._exit(len(wrong))
    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert os.waitpid(pid, 0)[1] == 0


def test_archives_are_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(zipped(FILES))
    with pytest.raises(ReadOnlyError, match="this kind"):
        opened(f"zip://::{tmp_path}/x.zip", writable=True)
