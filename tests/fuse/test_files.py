"""The files that the kernel has open: of stores as they are, on this machine and on S3."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skillfs import SkillFileSystem
from skillfs.core.refs import PathRef
from skillfs.errors import (
    ChangedError,
    IntegrityError,
    InvalidArgumentError,
    StoreUnavailableError,
    UnreadableError,
)
from skillfs.fuse.files import OpenFiles
from skillfs.lookup import Asked
from skillfs.open_file import StoreFile
from skillfs.stores import patience
from skillfs.stores.base import FileState
from tests.conftest import skill_md, write
from tests.fuse.test_readahead import in_threads, join, until
from tests.servers.faults import ACCESS_DENIED, INTERNAL_ERROR, FaultyS3, Hook
from tests.servers.s3 import Bucket, Request

Opener = Callable[..., SkillFileSystem]

KIB = 1 << 10
MIB = 1 << 20
PIECE = 128 * KIB
SECONDS = 20
DATA = random.Random(1).randbytes(3 * MIB + 1_000)


def opened(fs: SkillFileSystem, path: str) -> StoreFile:
    mount = fs._seen_by(None)[0].mount
    asked = Asked(PathRef(tuple(path.split("/"))), path)
    return mount.reader.open_raw(asked, mount.lookup.access())[1]


@pytest.fixture
def files() -> Iterator[OpenFiles]:
    table = OpenFiles()
    yield table
    table.close_all()


@pytest.fixture
def local(root: Path, open_fs: Opener) -> SkillFileSystem:
    write(root, {"a/SKILL.md": skill_md(), "a/large.bin": DATA, "a/small.txt": "small\n", "a/empty": ""})
    return open_fs()


# -- files of this machine -----------------------------------------------------------------------------------


def test_numbers_and_bytes(local: SkillFileSystem, files: OpenFiles) -> None:
    large, small, empty = (
        files.add(opened(local, f"a/{name}")) for name in ("large.bin", "small.txt", "empty")
    )
    assert len({large, small, empty}) == len(files) == 3
    assert 0 not in (large, small, empty)
    assert files.get(small).path == "a/small.txt"
    assert files.read(small, 0, 4096) == b"small\n"
    assert files.read(small, 2, 3) == b"all"
    assert files.read(small, 6, 4096) == files.read(small, 999, 10) == files.read(empty, 0, 10) == b""
    assert files.read(large, 3 * MIB, 4096) == DATA[3 * MIB :]
    files.remove(small)
    files.remove(small)
    for use in (lambda: files.read(small, 0, 1), lambda: files.get(small)):
        with pytest.raises(OSError, match="descriptor") as caught:
            use()
        assert caught.value.errno == errno.EBADF
    assert files.add(opened(local, "a/small.txt")) not in (large, small, empty)


def test_what_is_closed_is_closed(local: SkillFileSystem) -> None:
    files = OpenFiles()
    numbers = [files.add(opened(local, "a/large.bin")) for _ in range(3)]
    taken = [files.get(number) for number in numbers]
    files.remove(numbers[0])
    assert [file.closed for file in taken] == [True, False, False]
    files.close_all()
    assert all(file.closed for file in taken)
    assert len(files) == 0


def test_a_file_is_closed_after_its_last_reader(files: OpenFiles) -> None:
    handle = SlowHandle()
    number = files.add(StoreFile(handle, "a/t"))
    threads, results = in_threads(*[lambda: files.read(number, 0, 4)] * 2)
    for _ in range(2):
        assert handle.came.acquire(timeout=SECONDS)
    files.remove(number)
    assert not handle.closed
    handle.open.set()
    join(threads)
    assert results == [b"data", b"data"]
    assert handle.closed


class SlowHandle:
    """A file whose readings wait to be let through."""

    def __init__(self) -> None:
        self.state = FileState(b"s", 4, 0)
        self.came = threading.Semaphore(0)
        self.open = threading.Event()
        self.closed = False

    def read(self, offset: int, length: int) -> bytes:
        self.came.release()
        assert self.open.wait(SECONDS)
        return b"data"[offset : offset + length]

    def blocks(self) -> Iterator[bytes]:
        yield b"data"

    def unchanged(self) -> bool:
        return not self.closed

    def settled(self) -> FileState:
        return self.state

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> SlowHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_by_many(read: Callable[[int, int], bytes], data: bytes, threads: int = 4) -> None:
    """Several threads read a file: some from one end to the other, some anywhere."""

    def work(number: int) -> int:
        numbers = random.Random(number)
        if number % 2:
            spans = [(at, PIECE) for at in range(0, len(data), PIECE)]
        else:
            spans = [(numbers.randrange(len(data)), numbers.randrange(100_000)) for _ in range(10)]
        for offset, length in spans:
            assert read(offset, length) == data[offset : offset + length]
        return number

    begun, results = in_threads(*[lambda n=n: work(n) for n in range(threads)])  # type: ignore[misc]
    join(begun)
    assert results == list(range(threads))


def test_several_threads_read_one_file(local: SkillFileSystem, files: OpenFiles) -> None:
    number = files.add(opened(local, "a/large.bin"))
    read_by_many(lambda offset, length: files.read(number, offset, length), DATA)


def test_reading_at_a_place_leaves_the_position(local: SkillFileSystem) -> None:
    with opened(local, "a/large.bin") as file:
        assert file.read(10) == DATA[:10]
        assert file.read_at(1_000, 10) == DATA[1_000:1_010]
        assert file.tell() == 10
        assert file.read_at(len(DATA) - 3, 100) == DATA[-3:]
        assert file.read_at(len(DATA) + 3, 100) == file.read_at(5, 0) == b""
        assert (file.state.size, file.requested) == (len(DATA), False)
        for offset, length in ((-1, 5), (5, -1)):
            with pytest.raises(InvalidArgumentError, match="negative"):
                file.read_at(offset, length)
    with pytest.raises(ValueError, match="closed"):
        file.read_at(0, 1)


def test_a_version_that_is_gone(root: Path, local: SkillFileSystem, files: OpenFiles) -> None:
    number = files.add(opened(local, "a/small.txt"))
    assert files.read(number, 0, 10) == b"small\n"
    (root / "a/small.txt").write_text("other\n")
    with pytest.raises(ChangedError) as caught:
        files.read(number, 0, 10)
    assert caught.value.errno == errno.ESTALE
    assert files.read(files.add(opened(local, "a/small.txt")), 0, 10) == b"other\n"


# -- files on S3 ---------------------------------------------------------------------------------------------


@pytest.fixture
def remote(bucket: Bucket, faulty: FaultyS3) -> SkillFileSystem:
    bucket.seed(
        {"library/a/SKILL.md": skill_md(), "library/a/large.bin": DATA, "library/a/small.bin": DATA[:PIECE]}
    )
    return at(bucket, faulty)


def at(bucket: Bucket, faulty: FaultyS3, **options: Any) -> SkillFileSystem:
    url = f"{bucket.url}/library"
    return SkillFileSystem(url, index=":memory:", target_options=faulty.target_options, **options)


def ranges(requests: list[Request]) -> list[tuple[int, int]]:
    """Offset and length of each GET, in the order of their offsets."""
    spans = [
        r.range.removeprefix("bytes=").split("-")
        for r in requests
        if r.operation == "GetObject" and r.range is not None
    ]
    return sorted((int(first), int(last) + 1 - int(first)) for first, last in spans)


def test_requests_of_files_on_s3(remote: SkillFileSystem, faulty: FaultyS3, files: OpenFiles) -> None:
    with faulty.recorded() as requests:
        small = files.add(opened(remote, "a/small.bin"))
        assert files.read(small, 0, 4096) + files.read(small, 4096, PIECE) == DATA[:PIECE]
    assert requests.counts == {"GetObject": 1}

    with faulty.recorded() as requests:
        large = files.add(opened(remote, "a/large.bin"))
        assert files.read(large, 0, PIECE) == DATA[:PIECE]
        assert files.read(large, MIB + 5_000, 100) == DATA[MIB + 5_000 : MIB + 5_100]
    assert ranges(requests) == [(0, PIECE), (MIB + 4_096, 4_096)]

    large = files.add(opened(remote, "a/large.bin"))
    with faulty.recorded() as requests:
        found = [files.read(large, offset, PIECE) for offset in range(0, len(DATA), PIECE)]
    assert b"".join(found) == DATA
    blocks = [(o // (256 * KIB), -(-(o + n) // (256 * KIB))) for o, n in ranges(requests)]
    assert blocks == [(0, 2), (2, 4), (4, 8), (8, 13)]


def test_requests_of_one_file_run_side_by_side(
    remote: SkillFileSystem, faulty: FaultyS3, files: OpenFiles
) -> None:
    number = files.add(opened(remote, "a/large.bin"))
    barrier = threading.Barrier(4)  # broken, and so reported, where they come one after the other
    faulty.add(Hook(lambda _: barrier.wait(SECONDS)), "GetObject", key="*large*", times=4)
    spans = [(offset, 50) for offset in range(MIB, 3 * MIB, 512 * KIB)]
    threads, results = in_threads(*[lambda s=s: files.read(number, *s) for s in spans])  # type: ignore[misc]
    join(threads)
    assert results == [DATA[offset : offset + 50] for offset, _ in spans]
    assert not faulty.errors


def test_several_threads_read_one_file_on_s3(remote: SkillFileSystem, files: OpenFiles) -> None:
    number = files.add(opened(remote, "a/large.bin"))
    read_by_many(lambda offset, length: files.read(number, offset, length), DATA)


def test_a_store_that_goes_away_comes_back(
    remote: SkillFileSystem, faulty: FaultyS3, files: OpenFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "DEADLINE", 0.3)
    number = files.add(opened(remote, "a/large.bin"))
    faulty.add(INTERNAL_ERROR, "GetObject", key="*large*")
    assert files.read(number, 0, PIECE // 2) == DATA[: PIECE // 2]
    # With this a window is asked for in the background, which fails; what was read before is still there.
    assert files.read(number, PIECE // 2, PIECE // 2) == DATA[PIECE // 2 : PIECE]
    assert files.read(number, 5, 50) == DATA[5:55]
    with pytest.raises(StoreUnavailableError) as caught:
        files.read(number, PIECE, PIECE)
    assert caught.value.errno == errno.EIO
    faulty.rules.clear()
    found = [files.read(number, offset, PIECE) for offset in range(PIECE, len(DATA), PIECE)]
    assert b"".join(found) == DATA[PIECE:]


def test_an_object_that_was_replaced(remote: SkillFileSystem, bucket: Bucket, files: OpenFiles) -> None:
    number = files.add(opened(remote, "a/large.bin"))
    assert files.read(number, 2 * MIB, 10) == DATA[2 * MIB : 2 * MIB + 10]
    bucket.put("library/a/large.bin", DATA[::-1])
    for offset in (2 * MIB, 0):  # the second would be answered from memory
        with pytest.raises(ChangedError):
            files.read(number, offset, 10)
    assert files.read(files.add(opened(remote, "a/large.bin")), 2 * MIB, 10) == DATA[::-1][2 * MIB :][:10]


def test_opening_fails_where_reading_would(
    remote: SkillFileSystem, faulty: FaultyS3, files: OpenFiles
) -> None:
    faulty.add(ACCESS_DENIED, "GetObject", key="*large*")
    with pytest.raises(UnreadableError):
        opened(remote, "a/large.bin")


def test_a_locked_file_on_s3(bucket: Bucket, faulty: FaultyS3, remote: SkillFileSystem) -> None:
    lock = remote.lock()
    files = OpenFiles()
    number = files.add(opened(at(bucket, faulty, lock=lock), "a/large.bin"))
    read_by_many(lambda offset, length: files.read(number, offset, length), DATA)
    files.close_all()
    bucket.put("library/a/large.bin", DATA[: 2 * MIB] + b"x" + DATA[2 * MIB + 1 :])
    with pytest.raises(IntegrityError):
        opened(at(bucket, faulty, lock=lock), "a/large.bin")


def workers() -> int:
    return sum(thread.name == "skillfs-worker" for thread in threading.enumerate())


def test_only_files_of_remote_stores_are_read_ahead(local: SkillFileSystem, files: OpenFiles) -> None:
    before = workers()
    number = files.add(opened(local, "a/large.bin"))
    for offset in range(0, len(DATA), PIECE):
        files.read(number, offset, PIECE)
    assert workers() <= before


def test_nothing_is_held_of_a_closed_file(remote: SkillFileSystem, files: OpenFiles) -> None:
    number = files.add(opened(remote, "a/large.bin"))
    for offset in range(0, MIB, PIECE):
        files.read(number, offset, PIECE)
    assert files._room.held > 0
    files.remove(number)
    until(lambda: files._room.held == 0)


def test_the_threads_end_with_the_table(remote: SkillFileSystem) -> None:
    before = workers()
    files = OpenFiles()
    number = files.add(opened(remote, "a/large.bin"))
    for offset in range(0, MIB, PIECE):
        files.read(number, offset, PIECE)
    assert workers() > before
    files.close_all()
    until(lambda: workers() <= before)
