"""Handles that give out only what matches a SHA-256."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillfs.errors import IntegrityError
from skillfs.objects import verified
from skillfs.objects.verified import VerifiedHandle
from skillfs.stores.base import FileState
from tests.objects.harness import digest_of

BLOCK = 8


class File:
    """A file that can change at any time; it counts the bytes that are read."""

    def __init__(self, data: bytes, size: int | None = None) -> None:
        self.data = data
        self.state = FileState(b"s", len(data) if size is None else size, 0)
        self.reads = 0
        self.closed = False

    def read(self, offset: int, length: int) -> bytes:
        data = self.data[offset : offset + length]
        self.reads += len(data)
        return data

    def blocks(self) -> Iterator[bytes]:
        for at in range(0, len(self.data), 5):  # not as the digests are
            yield self.read(at, 5)

    def unchanged(self) -> bool:
        return True

    def settled(self) -> FileState:
        return self.state

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few bytes are large ones."""
    monkeypatch.setattr(verified, "BLOCK", BLOCK)
    monkeypatch.setattr(verified, "MOST_HELD", 2 * BLOCK)
    monkeypatch.setattr(verified, "MOST_KNOWN", 8 * 32)
    monkeypatch.setattr(verified, "_known", verified._Known())


def opened(file: File, data: bytes, size: int | None = None) -> VerifiedHandle:
    return VerifiedHandle(file, digest_of(data), len(data) if size is None else size)


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=6)


def test_any_range_of_any_file_is_what_is_there() -> None:
    @given(data=st.binary(max_size=60), spans=spans, told=st.booleans())
    def check(data: bytes, spans: list[tuple[int, int]], told: bool) -> None:
        with opened(File(data, None if told else -1), data) as handle:
            for offset, length in spans:
                assert handle.read(offset, length) == data[offset : offset + length]
            assert b"".join(handle.blocks()) == data

    check()


def test_nothing_is_given_out_of_bytes_that_are_others() -> None:
    @given(
        data=st.binary(min_size=1, max_size=60),
        at=st.integers(0, 59),
        offset=st.integers(0, 59),
        length=st.integers(1, 60),
        whole=st.booleans(),
        late=st.booleans(),
    )
    def check(data: bytes, at: int, offset: int, length: int, whole: bool, late: bool) -> None:
        verified._known = verified._Known()
        at, offset = at % len(data), offset % len(data)
        changed = bytearray(data)
        changed[at] ^= 0x10
        file = File(data if late else bytes(changed))
        handle = opened(file, data)
        if late:
            handle.read(0, 1)  # it has been seen to match, and then it changes
            file.data = bytes(changed)
        got = b""
        try:
            if whole:
                for block in handle.blocks():
                    got += block
                assert got == data
            else:
                assert handle.read(offset, length) == data[offset : offset + length]
        except IntegrityError:
            assert data.startswith(got)
        else:
            # From memory, or of blocks that are still as they were.
            assert late
        if not late:
            with pytest.raises(IntegrityError):
                handle.read(0, 1)

    check()


@pytest.mark.parametrize("length", [0, 5, 16, 17, 40])
@pytest.mark.parametrize("change", [-1, 1, 8])
@pytest.mark.parametrize("told", [True, False])
def test_another_size_is_no_match(length: int, change: int, told: bool) -> None:
    data = bytes(range(length))
    other = data[:change] if change < 0 else data + bytes(change)
    if other == data:
        return
    for read in (lambda handle: handle.read(0, 100), lambda handle: b"".join(handle.blocks())):
        with pytest.raises(IntegrityError):
            read(opened(File(other, None if told else -1), data))
    # A digest that belongs to bytes of another length is as wrong.
    with pytest.raises(IntegrityError):
        opened(File(other, None if told else -1), other, size=len(data)).read(0, 100)


def test_a_range_of_a_large_file_costs_its_blocks() -> None:
    data = bytes(range(60))
    opened(File(data), data).read(0, 1)
    file = File(data)
    handle = opened(file, data)
    assert handle.read(20, 3) == data[20:23]
    assert file.reads == BLOCK
    assert handle.read(21, 3) == data[21:24]  # of the block that was read last
    assert file.reads == BLOCK
    assert handle.read(23, 2) == data[23:25]
    assert file.reads == 3 * BLOCK


def test_a_check_reads_all_whatever_is_known() -> None:
    data = bytes(range(60))
    opened(File(data), data).read(0, 1)
    file = File(data)
    opened(file, data).check()
    assert file.reads == len(data)
    file.data = data[:-1] + b"x"
    handle = opened(file, data)
    assert handle.read(0, 1) == data[:1]  # of a block that is as it was
    with pytest.raises(IntegrityError):
        handle.check()
    with pytest.raises(IntegrityError):
        handle.read(0, 1)
    opened(File(b"a"), b"a").check()
    with pytest.raises(IntegrityError):
        opened(File(b"a"), b"b").check()


def test_digests_of_blocks_take_so_much_memory_and_no_more() -> None:
    files = [bytes([n]) * (2 * BLOCK + 1) for n in range(4)]  # three blocks each, and eight may be known
    for data in files:
        opened(File(data), data).read(0, 1)
    assert verified._known._size <= verified.MOST_KNOWN
    file = File(files[-1])
    opened(file, files[-1]).read(0, 1)
    assert file.reads == BLOCK
    file = File(files[0])
    opened(file, files[0]).read(0, 1)
    assert file.reads == len(files[0]) + BLOCK


@pytest.mark.parametrize("length", [5, 40])
def test_damage_is_told_once_and_stays(length: int) -> None:
    told: list[int] = []
    file = File(bytes(length))
    handle = VerifiedHandle(file, digest_of(b"x" * length), length, lambda: told.append(1))
    for _ in range(2):
        with pytest.raises(IntegrityError):
            handle.read(0, 1)
        with pytest.raises(IntegrityError):
            next(handle.blocks())
    assert told == [1]
    handle.close()
    assert file.closed


def test_whoever_is_told_can_say_more() -> None:
    def refuse() -> None:
        raise IntegrityError("of this and that")

    with pytest.raises(IntegrityError, match="this and that"):
        VerifiedHandle(File(b"a"), digest_of(b"b"), 1, refuse).read(0, 1)


def test_it_passes_on_what_is_of_the_file() -> None:
    file = File(b"a")
    with opened(file, b"a") as handle:
        assert (handle.state, handle.settled(), handle.unchanged()) == (file.state, file.state, True)
    assert file.closed


# -- threads -------------------------------------------------------------------------------------------------


class SlowFile(File):
    """A file that is hashed while others come to read it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.hashing = threading.Event()
        self.go_on = threading.Event()
        self.whole = 0

    def blocks(self) -> Iterator[bytes]:
        self.whole += 1
        self.hashing.set()
        assert self.go_on.wait(20)
        yield from super().blocks()


def test_of_several_threads_one_hashes_the_whole() -> None:
    data = bytes(range(60))
    file = SlowFile(data)
    with opened(file, data) as handle, ThreadPoolExecutor(4) as threads:
        found = [threads.submit(handle.read, at, 20) for at in (0, 5, 30, 40)]
        assert file.hashing.wait(20)
        file.go_on.set()
        assert [f.result(20) for f in found] == [data[at : at + 20] for at in (0, 5, 30, 40)]
    assert file.whole == 1


def test_several_threads_have_the_bytes_or_an_error() -> None:
    data = bytes(range(256))
    file, told = File(data), list[int]()
    handle = VerifiedHandle(file, digest_of(data), len(data), lambda: told.append(1))

    def read(number: int) -> int:
        numbers, refused = random.Random(number), 0
        for count in range(400):
            offset, length = numbers.randrange(256), numbers.randrange(2 * BLOCK)
            try:
                assert handle.read(offset, length) == data[offset : offset + length]
            except IntegrityError:
                refused += 1
            if number == 0 and count == 200:
                file.data = data[::-1]
        return refused

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            refused = list(threads.map(read, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert refused[0] > 100
    assert told == [1]
