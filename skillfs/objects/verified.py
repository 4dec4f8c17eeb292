"""A file that is open, of which only bytes are given out that match a SHA-256.

No signature and no time of modification is believed: what is returned is what was hashed. A small file is
read whole, hashed, and served from memory. Of a large one the first reading hashes the whole, and every block
of it by itself; those digests are kept for as long as there is room, so that later a range costs the blocks
that it touches.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

from skillfs.core.digest import sha256
from skillfs.errors import IntegrityError
from skillfs.stores.base import FileState, Handle

__all__ = ["VerifiedHandle"]

BLOCK = 256 << 10
"""Bytes that are checked at once: what a range of a large file costs at least."""

MOST_HELD = 1 << 20
"""Bytes up to which a file is held in memory while it is open."""

MOST_KNOWN = 16 << 20
"""Bytes of digests of blocks that a process keeps: those of 128 GiB of files."""

_DIGEST = 32


class _Known:
    """Digests of the blocks of large files, by SHA-256 and size of the whole; the longest unused go first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._digests: OrderedDict[tuple[bytes, int], bytes] = OrderedDict()
        self._size = 0

    def get(self, digest: bytes, size: int) -> bytes | None:
        with self._lock:
            found = self._digests.get((digest, size))
            if found is not None:
                self._digests.move_to_end((digest, size))
            return found

    def keep(self, digest: bytes, size: int, digests: bytes) -> None:
        with self._lock:
            if (digest, size) in self._digests or len(digests) > MOST_KNOWN:
                return
            self._digests[digest, size] = digests
            self._size += len(digests)
            while self._size > MOST_KNOWN:
                _, dropped = self._digests.popitem(last=False)
                self._size -= len(dropped)


_known = _Known()


def _make_anew() -> None:
    """Another thread of the parent may have held the lock."""
    global _known
    _known = _Known()


os.register_at_fork(after_in_child=_make_anew)


class VerifiedHandle:
    """A file that is checked against its SHA-256 while it is read; see `Handle`. Several threads may read it.

    Readings raise `IntegrityError` when the bytes are not those of the digest, and from then on always.

    Args:
        handle: The file; closed with this.
        digest: SHA-256 that it must have, 32 bytes.
        size: Bytes that it must have.
        on_damage: Called once, when the bytes turn out not to match. What it raises is raised in place of the
            usual error.
    """

    def __init__(
        self, handle: Handle, digest: bytes, size: int, on_damage: Callable[[], object] | None = None
    ) -> None:
        self._handle = handle
        self._digest = digest
        self._size = size
        self._on_damage = on_damage
        self._damaged = False
        # Around whatever changes the rest. Of threads that begin to read, one hashes the whole.
        self._lock = threading.RLock()
        self._data: bytes | None = None
        self._digests: bytes | None = None
        self._last = (-1, b"")

    @property
    def digest(self) -> bytes:
        """SHA-256 that all that is read matches, 32 bytes."""
        return self._digest

    @property
    def state(self) -> FileState:
        """See `Handle`: as it was opened."""
        return self._handle.state

    @state.setter
    def state(self, state: FileState) -> None:
        self._handle.state = state

    def read(self, offset: int, length: int) -> bytes:
        """See `Handle.read`.

        Raises:
            IntegrityError: The bytes do not match the SHA-256.
        """
        held, digests = self._verify()
        end = min(offset + length, self._size)
        if offset >= end:
            return b""
        if held is not None:
            return held[offset:end]
        first, last = offset // BLOCK, (end - 1) // BLOCK
        start = first * BLOCK
        number, data = self._last
        if not first == last == number:
            data = self._handle.read(start, min((last + 1) * BLOCK, self._size) - start)
            for number in range(first, last + 1):
                block = memoryview(data)[number * BLOCK - start : (number + 1) * BLOCK - start]
                self._check(digests, number, block)
            if first == last:
                self._last = (first, data)
        return data[offset - start : end - start]

    def blocks(self) -> Iterator[bytes]:
        """See `Handle.blocks`: nothing comes before the whole was seen to match, now or earlier.

        Raises:
            IntegrityError: The bytes do not match the SHA-256.
        """
        held, digests = self._verify()
        if held is not None:
            if held:
                yield held
            return
        at = 0
        for number, block in enumerate(_in_blocks(self._handle.blocks())):
            at += len(block)
            if at > self._size:
                self._refuse()
            self._check(digests, number, block)
            yield block
        if at != self._size:
            self._refuse()

    def check(self) -> None:
        """See that the whole matches now: of a large file every byte is read, whatever was seen before.

        Raises:
            IntegrityError: The bytes do not match the SHA-256.
        """
        with self._lock:
            if not self._damaged and self._size > MOST_HELD:
                self._learn()
            self._verify()

    def unchanged(self) -> bool:
        """See `Handle.unchanged`."""
        return self._handle.unchanged()

    def settled(self) -> FileState:
        """See `Handle.settled`."""
        return self._handle.settled()

    def close(self) -> None:
        """See `Handle.close`."""
        self._handle.close()

    def __enter__(self) -> VerifiedHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _verify(self) -> tuple[bytes | None, bytes]:
        """All bytes, where they are held in memory; else None, and the digests of all blocks."""
        with self._lock:
            if self._damaged:
                self._refuse()
            if self._data is None and self._digests is None:
                told = self._handle.state.size
                if told >= 0 and told != self._size:
                    self._refuse()
                if self._size <= MOST_HELD:
                    data = self._handle.read(0, self._size + 1)
                    if len(data) != self._size or sha256(data).digest() != self._digest:
                        self._refuse()
                    self._data = data
                else:
                    self._digests = _known.get(self._digest, self._size)
                    if self._digests is None:
                        self._learn()
            return self._data, self._digests or b""

    def _learn(self) -> None:
        self._digests = self._hashed()
        _known.keep(self._digest, self._size, self._digests)

    def _hashed(self) -> bytes:
        whole, digests, size = sha256(), bytearray(), 0
        for block in _in_blocks(self._handle.blocks()):
            size += len(block)
            if size > self._size:
                self._refuse()
            whole.update(block)
            digests += sha256(block).digest()
        if size != self._size or whole.digest() != self._digest:
            self._refuse()
        return bytes(digests)

    def _check(self, digests: bytes, number: int, block: bytes | memoryview) -> None:
        at = number * _DIGEST
        if sha256(block).digest() != digests[at : at + _DIGEST]:  # type: ignore[arg-type]  # any buffer
            self._refuse()

    def _refuse(self) -> NoReturn:
        with self._lock:
            first, self._damaged = not self._damaged, True
            self._data = self._digests = None
            self._last = (-1, b"")
        if first and self._on_damage is not None:
            self._on_damage()
        raise IntegrityError(
            "the bytes do not match the SHA-256 that vouches for them, and are not given out; "
            "restore them from where they came from"
        )


def _in_blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, in blocks of the size that is checked at once."""
    held = bytearray()
    for piece in pieces:
        held += piece
        at = 0
        while len(held) - at >= BLOCK:
            yield bytes(held[at : at + BLOCK])
            at += BLOCK
        del held[:at]
    if held:
        yield bytes(held)


_HANDLE: type[Handle] = VerifiedHandle
