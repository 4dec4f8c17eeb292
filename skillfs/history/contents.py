"""The contents of the files that a manifest tells, each read once and held until it is stored."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, NamedTuple

from skillfs.core.digest import sha256, xxh3, xxh3_of_blocks
from skillfs.index.rows import NodeRow
from skillfs.stores.base import Handle

__all__ = ["Taken", "Wanted", "bare", "read_whole", "together"]

HELD = 1 << 20
"""Bytes of a file up to which it is held in memory until it is stored; more go to a temporary file."""

MOST_TOGETHER = 1_000
"""Files that are read before it is asked which of them are stored already."""

MOST_HELD = 16 << 20
"""Bytes of files that are held at a time."""

BLOCK = 1 << 20


class Wanted(NamedTuple):
    """A file to be read: its row and its store path."""

    node: NodeRow
    path: str


class Taken(NamedTuple):
    """A file that was read.

    Attributes:
        node: Its row.
        size: Bytes.
        digest: SHA-256.
        data: What it holds, or None where that is in `file`.
        file: A temporary file that holds it.
        content: XXH3-128.
    """

    node: NodeRow
    size: int
    digest: bytes
    data: bytes | None
    file: IO[bytes] | None
    content: bytes

    def blocks(self) -> Iterator[bytes]:
        """What it holds."""
        if self.data is not None:
            yield self.data
            return
        assert self.file is not None
        self.file.seek(0)
        while block := self.file.read(BLOCK):
            yield block

    def close(self) -> None:
        """Let go of the temporary file."""
        if self.file is not None:
            self.file.close()


def together(wanted: list[Wanted]) -> Iterator[list[Wanted]]:
    """Files in their order, as many at a time as may be held."""
    some: list[Wanted] = []
    held = 0
    for one in wanted:
        size = min(HELD if one.node.size is None else one.node.size, HELD)
        if some and (len(some) == MOST_TOGETHER or held + size > MOST_HELD):
            yield some
            some, held = [], 0
        some.append(one)
        held += size
    if some:
        yield some


def read_whole(node: NodeRow, handle: Handle) -> Taken:
    """Read an open file whole, once."""
    if 0 <= handle.state.size <= HELD:
        data = handle.read(0, handle.state.size)
        return Taken(node, len(data), sha256(data).digest(), data, None, xxh3(data))
    hasher = sha256()
    file = tempfile.TemporaryFile()  # noqa: SIM115  # closed by whoever stores it
    size = 0

    def blocks() -> Iterator[bytes]:
        nonlocal size
        for block in handle.blocks():
            hasher.update(block)
            file.write(block)
            size += len(block)
            yield block

    try:
        content = xxh3_of_blocks(blocks())
    except BaseException:
        file.close()
        raise
    return Taken(node, size, hasher.digest(), None, file, content)


def bare(node: NodeRow) -> bytes:
    """The signature of a row without the mark that it was taken early, which goes away."""
    return node.signature.removesuffix(b"?")
