"""A remote filesystem as a store.

A look is one flat listing, from which a tree in memory is made: what a check compares with the index, and
what it takes new names from. Between looks the index is all that is known. Files are read when a caller asks
for them, each reading under the condition that the file is still the one that was known.
"""

from __future__ import annotations

import errno
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TypeAlias, Union, cast

from skillfs.core.digest import xxh3
from skillfs.core.frontmatter import HEAD_LIMIT
from skillfs.core.model import Place
from skillfs.core.refs import MAX_COMPONENT_BYTES, MAX_REF_BYTES, component_fault, is_below
from skillfs.errors import quoted
from skillfs.stores.base import (
    FileState,
    FolderHandle,
    Handle,
    Listed,
    StaleFile,
    UnfitKey,
    WritableStore,
)
from skillfs.stores.source import Found, Source, Tells, WritableSource

__all__ = ["RemoteStore"]

START = HEAD_LIMIT
"""Bytes that are read of a file of which nothing is known: nearly every `SKILL.md` is no longer."""

KEPT = 1 << 20
"""Bytes up to which the start of a file that was read is kept while it is open."""

MOST_UNFIT = 50
"""How many keys that are left out are told of each folder."""

SPOOLED = 8 << 20
"""Bytes of a file being written that are held in memory; more go to a temporary file."""

_Node: TypeAlias = dict[str, Union["_Node", FileState]]

_UNFIT = r"\x00-\x1f\x7f-\x9f\ud800-\udfff/"
_SOUND = re.compile(rf"(?!\.\.?(?:/|\Z))[^{_UNFIT}]+(?:/(?!\.\.?(?:/|\Z))[^{_UNFIT}]+)*").fullmatch


class RemoteStore:
    """Skill folders below the root of a source; see `Store`.

    Args:
        source: The filesystem.
    """

    remote = True

    def __init__(self, source: Source, tree: _Tree | None = None) -> None:
        self._source = source
        self._tree = tree or _Tree()
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
        tree = _Tree()
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
        return nullcontext(_RemoteFolder(self._tree, place.path, node))

    def state(self, place: Place) -> FileState | None:
        """See `Store.state`."""
        node = self._tree.at(place.path)
        return self._tree.folder_state(place.path, node) if isinstance(node, dict) else node

    def in_step(self, place: Place, signature: bytes) -> bool:
        """See `Store.in_step`."""
        state = self.state(place)
        return state is not None and state.signature == signature

    def is_regular(self, place: Place) -> bool | None:
        """See `Store.is_regular`."""
        return isinstance(self._tree.at(place.path), FileState)

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

    def resolve(self, place: Place) -> Place | str:
        """See `Store.resolve`: there are no links."""
        return place if self.exists(place) else "link-dangling"

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
        if self._start is not None and end <= len(self._start):
            return self._start[offset:end]
        if self._start and offset < len(self._start):
            return self._start[offset:] + self._source.get(self._key, len(self._start), end, self.state)
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


class _Tree:
    """What a listing has shown, by folder."""

    def __init__(self) -> None:
        self._root: _Node = {}
        self._left_out: list[tuple[str, str, str]] = []
        self._last: tuple[str, _Node] = ("", self._root)
        self.special: dict[str, list[str]] = {}
        self.unfit: dict[str, list[UnfitKey]] = {}

    def add(self, found: Found) -> None:
        """Take one thing of a listing in."""
        key = found.key
        if not key:
            return  # a marker of the root itself
        if not _is_sound(key):
            if found.kind == "folder":
                return  # what lies below tells
            if key.endswith("/") and _is_sound(key[:-1]):
                self._left_out.append((key[:-1], "directory-marker", "marks a folder and holds nothing"))
            else:
                shown = quoted(key)
                message = (
                    f"the key {shown} cannot be the path of a file and is left out; copy it to one that can"
                )
                self._left_out.append((key, "unfit-key", message))
            return
        above, _, name = key.rpartition("/")
        last, node = self._last
        if above != last:
            node = self._grown(above)
            self._last = (above, node)
        there = node.get(name)
        if found.kind == "folder":
            if isinstance(there, FileState):
                self._leave_out_file(key)
            if not isinstance(there, dict):
                node[name] = {}
        elif isinstance(there, dict):
            self._leave_out_file(key)
        elif found.kind == "other":
            self.special.setdefault(above, []).append(name)
        else:
            node[name] = found.state

    def _grown(self, path: str) -> _Node:
        node = self._root
        at = 0
        for name in path.split("/") if path else ():
            at += len(name) + 1
            child = node.get(name)
            if not isinstance(child, dict):
                if child is not None:
                    self._leave_out_file(path[: at - 1])
                child = node[name] = {}
            node = child
        return node

    def _leave_out_file(self, key: str) -> None:
        message = (
            "is the key of a file and of a folder at once, and the file is left out; move it to another key"
        )
        self._left_out.append((key, "file-and-folder", message))

    def finish(self) -> None:
        """Tell what was left out with the nearest folder that is there."""
        for key, code, message in self._left_out:
            node, parts = self._root, key.split("/")
            depth = 0
            while depth < len(parts) - 1 and isinstance(child := node.get(parts[depth]), dict):
                node, depth = child, depth + 1
            folder = "/".join(parts[:depth])
            told = self.unfit.setdefault(folder, [])
            name = parts[-1] if code != "unfit-key" and depth == len(parts) - 1 else ""
            if len(told) < MOST_UNFIT:
                told.append(UnfitKey(code, name, message))
        self._left_out.clear()

    def at(self, path: str) -> _Node | FileState | None:
        """What lies at a path."""
        node: _Node | FileState | None = self._root
        for name in path.split("/") if path else ():
            if not isinstance(node, dict):
                return None
            node = node.get(name)
        return node

    def folder_state(self, path: str, node: _Node) -> FileState:
        """The state of a folder: another when a name comes or goes."""
        names = sorted(f"{name}/" if isinstance(child, dict) else name for name, child in node.items())
        told = (self.unfit.get(path), self.special.get(path))
        signature = xxh3("\0".join([*names, *(repr(t) for t in told if t)]).encode())
        return FileState(signature.hex().encode(), 0, 0)  # of a folder no time is known


class _RemoteFolder:
    """A folder as a listing has shown it; see `FolderHandle`."""

    def __init__(self, tree: _Tree, path: str, node: _Node) -> None:
        self._tree = tree
        self._path = path
        self._node = node
        self.state = tree.folder_state(path, node)

    def entries(self) -> Listed:
        """See `FolderHandle.entries`."""
        folders: list[str] = []
        files: list[str] = []
        for name, child in self._node.items():
            (folders if isinstance(child, dict) else files).append(name)
        special = self._tree.special.get(self._path, [])
        return Listed(folders, files, [], special, [], self._tree.unfit.get(self._path, ()))

    def stat(self, name: str) -> tuple[FileState, int]:
        """See `FolderHandle.stat`."""
        child = self._node.get(name)
        if not isinstance(child, FileState):
            raise FileNotFoundError(errno.ENOENT, "there is no such file")
        return child, 1

    def hash(self, name: str, *, head: int = 0) -> tuple[FileState, bytes, bytes, int]:
        """Not here: a file that nobody asked for is not read."""
        raise NotImplementedError


def _is_sound(key: str) -> bool:
    if _SOUND(key) is None:
        return False
    if len(key) * 4 <= MAX_COMPONENT_BYTES:
        return True
    return len(key.encode()) <= MAX_REF_BYTES and not any(map(component_fault, key.split("/")))


def _bare(state: FileState) -> FileState:
    return state._replace(signature=state.signature.removesuffix(b"?"))


_STORE: type[WritableStore] = RemoteStore
_HANDLE: type[Handle] = RemoteHandle
