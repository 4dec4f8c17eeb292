"""A remote filesystem as a store.

A look is one flat listing, from which a tree in memory is made: what a check compares with the index, and
what it takes new names from. Between looks the index is all that is known. Files are read when a caller asks
for them, each reading under the condition that the file is still the one that was known.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import cast

from skillfs.core.frontmatter import HEAD_LIMIT
from skillfs.core.model import Place
from skillfs.core.refs import is_below
from skillfs.stores.base import FileState, FolderHandle, Handle, StaleFile, WritableStore
from skillfs.stores.folder_tree import FolderTree, Link, TreeFolder
from skillfs.stores.source import Source, Tells, WritableSource

__all__ = ["RemoteStore"]

START = HEAD_LIMIT
"""Bytes that are read of a file of which nothing is known: nearly every `SKILL.md` is no longer."""

KEPT = 1 << 20
"""Bytes up to which the start of a file that was read is kept while it is open."""

SPOOLED = 8 << 20
"""Bytes of a file being written that are held in memory; more go to a temporary file."""


class RemoteStore:
    """Skill folders below the root of a source; see `Store`.

    Args:
        source: The filesystem.
    """

    remote = True

    def __init__(self, source: Source, tree: FolderTree | None = None) -> None:
        self._source = source
        self._tree = tree or FolderTree()
        self.url = source.url
        self.spellings = source.spellings
        self.account = source.account
        self.holds_empty_folders = source.holds_empty_folders
        self.writable = source.writable

    @property
    def title(self) -> str:
        """Name of the root."""
        return self._source.title

    @property
    def tells(self) -> Tells:
        """What listings tell about a file; see `Source`."""
        return self._source.tells

    @property
    def followed(self) -> tuple[str, ...]:
        """None: there are no links."""
        return ()

    def look(self, paths: Collection[str] = ("",)) -> RemoteStore:
        """See `Store.look`: one listing for each folder that lies in no other of them."""
        tree = FolderTree()
        tops = [p for p in sorted(set(paths)) if not any(is_below(p, top) for top in paths if top != p)]
        for top in tops:
            for found in self._source.find(top):
                tree.add(found)
        tree.finish()
        return RemoteStore(self._source, tree)

    # -- reading -------------------------------------------------------------------------------------------

    def open(self, place: Place, known: FileState | None = None) -> RemoteHandle:
        """See `Store.open`; without a known state the start of the file is read to learn it."""
        if known is None:
            state, start = self._source.head(place.path, START)
            return RemoteHandle(self._source, place.path, _bare(state), start)
        if known.size < 0 or known.signature.endswith(b"?"):
            state_now = self._source.state(place.path)
            if state_now is None:
                raise FileNotFoundError(errno.ENOENT, "there is no such file")
            known = state_now
        return RemoteHandle(self._source, place.path, known)

    # -- what the last look has shown ----------------------------------------------------------------------

    def folder(self, place: Place) -> AbstractContextManager[FolderHandle]:
        """See `Store.folder`."""
        node = self._tree.at(place.path)
        if not isinstance(node, dict):
            raise FileNotFoundError(errno.ENOENT, "there is no such folder")
        return nullcontext(TreeFolder(self._tree, place.path, node))

    def state(self, place: Place) -> FileState | None:
        """See `Store.state`."""
        return self._tree.state(place.path)

    def in_step(self, place: Place, signature: bytes) -> bool:
        """See `Store.in_step`."""
        state = self.state(place)
        return state is not None and state.signature == signature

    def is_regular(self, place: Place) -> bool | None:
        """See `Store.is_regular`."""
        node = self._tree.at(place.path)
        return None if isinstance(node, Link) else isinstance(node, FileState)

    def exists(self, place: Place) -> bool:
        """See `Store.exists`."""
        return self._tree.at(place.path) is not None

    def differing(self, root: int, known: Iterable[tuple[str, bytes]]) -> Iterator[str]:
        """See `Store.differing`."""
        for path, signature in known:
            if not self.in_step(Place(root, path), signature):
                yield path

    def inode(self, signature: bytes) -> bytes:
        """See `Store.inode`: there is none."""
        return b""

    def executable(self, signature: bytes) -> bool | None:
        """See `Store.executable`: no listing tells."""
        return None

    def changed(self, signature: bytes) -> int | None:
        """See `Store.changed`: no listing tells."""
        return None

    def resolve(self, place: Place) -> Place | str:
        """See `Store.resolve`; a link leads to what is none."""
        node = self._tree.at(place.path)
        if isinstance(node, Link):
            place, node = Place(0, node.target), self._tree.at(node.target)
        if node is None:
            return "link-dangling"
        return "link-loop" if isinstance(node, Link) else place

    def is_rooted(self) -> bool:
        """See `Store.is_rooted`."""
        return True

    def check_root(self) -> None:
        """See `Store.check_root`: the next listing says whether the root is there."""

    # -- writing -------------------------------------------------------------------------------------------

    @property
    def _target(self) -> WritableSource:
        return cast(WritableSource, self._source)  # nobody writes to a store that is not `writable`

    def create(self, place: Place, *, exclusive: bool = False) -> RemoteSink:
        """See `WritableStore.create`."""
        return RemoteSink(self._target, place.path, exclusive)

    def touch(self, place: Place) -> None:
        """See `WritableStore.touch`: the file is written once more, as it is."""
        handle = self.open(place)
        sink = self.create(place)
        try:
            for block in handle.blocks():
                sink.write(block)
        except StaleFile:
            sink.discard()
            raise FileNotFoundError(errno.ENOENT, "there is no such file any more") from None
        sink.commit()

    def remove(self, place: Place) -> None:
        """See `WritableStore.remove`."""
        self._target.delete(place.path)

    def make_folder(self, place: Place) -> None:
        """See `WritableStore.make_folder`."""
        if self.holds_empty_folders:
            self._target.make_folder(place.path)

    def remove_folder(self, place: Place) -> None:
        """See `WritableStore.remove_folder`."""
        if any(found.key != place.path for found in self._source.find(place.path)):
            raise OSError(errno.ENOTEMPTY, "the folder is not empty")
        if self.holds_empty_folders:
            self._target.remove_folder(place.path)

    def move(self, source: Place, target: Place) -> None:
        """See `WritableStore.move`: copied, then removed; a `SKILL.md` comes first and goes last."""
        found = [item for item in self._source.find(source.path) if item.key != source.path]
        if not found:
            self._target.copy(source.path, target.path)
            self._target.delete(source.path)
            return
        files = [item.key for item in found if item.kind == "file"]
        folders = [source.path, *(item.key for item in found if item.kind == "folder")]
        files.sort(key=lambda key: (key.rpartition("/")[2] != "SKILL.md", key))

        def moved(key: str) -> str:
            return target.path + key[len(source.path) :]

        if self.holds_empty_folders:
            for key in sorted(folders):
                self._target.make_folder(moved(key))
        for key in files:
            self._target.copy(key, moved(key))
        for key in reversed(files):
            self._target.delete(key)
        if self.holds_empty_folders:
            for key in sorted(folders, reverse=True):
                # One that was there only because of what it held went with that.
                with suppress(FileNotFoundError):
                    self._target.remove_folder(key)

    def copy(self, source: Place, target: Place) -> None:
        """See `WritableStore.copy`."""
        self._target.copy(source.path, target.path)


class RemoteHandle:
    """A file that is known; see `Handle`. Nothing is asked for before the first reading.

    Args:
        source: Where it lies.
        key: Its key.
        state: What it is known to be; a reading that meets another file raises `StaleFile`.
        start: Its first bytes, where they were read already.
    """

    def __init__(self, source: Source, key: str, state: FileState, start: bytes | None = None) -> None:
        self._source = source
        self._key = key
        self._start = start
        self._met = start is not None
        self.state = state

    def read(self, offset: int, length: int) -> bytes:
        """See `Handle.read`."""
        size = self.state.size
        end = offset + length if size < 0 else min(offset + length, size)
        if end < offset or (end == offset and size != 0):
            return b""
        known = self._start  # once: another thread may set it meanwhile
        if known is not None and end <= len(known):
            return known[offset:end]
        if known and offset < len(known):
            return known[offset:] + self._source.get(self._key, len(known), end, self.state)
        data = self._source.get(self._key, offset, end, self.state)
        self._met = True
        if offset == 0 and len(data) <= KEPT:
            self._start = data
        return data

    def blocks(self) -> Iterator[bytes]:
        """See `Handle.blocks`."""
        for block in self._source.blocks(self._key, self.state):
            self._met = True
            yield block

    def unchanged(self) -> bool:
        """See `Handle.unchanged`: every reading has made sure of that; where there was none, one does.

        Raises:
            StaleFile: It is another file, or there is none.
        """
        if not self._met:
            self._source.get(self._key, 0, min(1, self.state.size), self.state)
            self._met = True
        return True

    def settled(self) -> FileState:
        """See `Handle.settled`."""
        return self._source.settled(self.state)

    def close(self) -> None:
        """See `Handle.close`."""

    def __enter__(self) -> RemoteHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteSink:
    """A file that is being written; see `Sink`. It is sent when it is whole."""

    def __init__(self, source: WritableSource, key: str, exclusive: bool) -> None:
        self._source = source
        self._key = key
        self._exclusive = exclusive
        self._file = tempfile.SpooledTemporaryFile(SPOOLED)  # noqa: SIM115  # closed by commit or discard

    def write(self, data: bytes) -> None:
        """See `Sink.write`."""
        self._file.write(data)

    def commit(self) -> None:
        """See `Sink.commit`."""
        try:
            size = self._file.tell()
            self._file.seek(0)
            self._source.put(self._key, self._file, size, exclusive=self._exclusive)  # type: ignore[arg-type]
        finally:
            self._file.close()

    def discard(self) -> None:
        """See `Sink.discard`."""
        self._file.close()


def _bare(state: FileState) -> FileState:
    return state._replace(signature=state.signature.removesuffix(b"?"))


_STORE: type[WritableStore] = RemoteStore
_HANDLE: type[Handle] = RemoteHandle
