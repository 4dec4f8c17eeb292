"""Any filesystem of fsspec as a source.

What its listings tell about a file, see `attributes`, decides what skillfs can promise. The bytes of a file
are read first and its state is asked afterwards: where that is the state which the reader knew before, no
other version can have been in between.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from asyncio import gather
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem, sync
from fsspec.implementations.memory import MemoryFileSystem

from skillfs.core.refs import MAX_REF_BYTES
from skillfs.errors import SkillFSError, StoreUnavailableError
from skillfs.stores.attributes import Kind, Tells, kind_of, least, state_of
from skillfs.stores.base import FileState, StaleFile, unsettled
from skillfs.stores.patience import persistently
from skillfs.stores.source import (
    BLOCK,
    YOUNG_NS,
    Found,
    LengthError,
    account_of,
    after_fork,
    may_not_list,
    no_such_root,
    reason_of,
    remade,
    root_is_away,
    root_is_file,
)

__all__ = ["FsspecSource"]

AT_ONCE = 16
"""How many folders of an asynchronous filesystem are listed at a time."""

_NO_STATE = FileState(b"", 0, 0)


class FsspecSource:
    """Any filesystem of fsspec as a source; see `Source`.

    Args:
        fs: The filesystem.
        root: The root as that filesystem spells paths.
        url: Canonical URL of the root.
        options: What it was made with.
        own: Whether it was made here, so that it may be made anew.
        writable: Whether it is of a kind that can be written to.
    """

    def __init__(
        self,
        fs: AbstractFileSystem,
        root: str,
        url: str,
        options: Mapping[str, Any],
        *,
        own: bool,
        writable: bool = True,
    ) -> None:
        self._target = (fs, os.getpid())
        # Of what is not asynchronous fsspec itself makes one instance for each thread: a connection of FTP,
        # say, takes one command at a time.
        self._lock = threading.RLock()
        self._top = root.strip("/")
        self._root = root.rstrip("/") or str(fs.root_marker)
        self._own = own
        self.writable = writable
        self.url = url
        self.spellings: tuple[str, ...] = (url,)
        self.account = account_of(options)
        self.title = self._top.rpartition("/")[2] or "/"
        self.tells: Tells = "version"
        self.holds_empty_folders = True

    # -- listing -------------------------------------------------------------------------------------------

    def find(self, folder: str) -> Iterator[Found]:
        """See `Source.find`.

        Raises:
            StoreUnavailableError: A folder could not be listed, or the root is not there.
            UnreadableError: The credentials do not allow it.
        """
        path = self._path(folder)
        found = elsewhere = False
        try:
            for name, info in self._all(path):
                key = self._key(name)
                if not key:
                    elsewhere = elsewhere or key is None
                    continue
                found = True
                kind = kind_of(info)
                if kind == "folder":
                    key = key.rstrip("/")
                yield Found(key, kind, self._seen(info) if kind == "file" else _NO_STATE)
        except PermissionError as error:
            if isinstance(error, SkillFSError):
                raise
            raise may_not_list() from error
        except FileNotFoundError:
            pass
        if found:
            return
        if elsewhere:
            raise StoreUnavailableError(
                "the store's filesystem lists only what does not lie below the root; "
                "name the root as that filesystem spells it"
            )
        if not folder and self._top and self._kind() is None:
            raise root_is_away()

    def _all(self, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Name and facts of everything below a path, all names as the filesystem spells them."""
        fs = self._fs
        if isinstance(fs, AsyncFileSystem):
            is_flat = type(fs)._find is not AsyncFileSystem._find
        else:
            is_flat = type(fs).find is not AbstractFileSystem.find
        if not is_flat:
            return self._walk(path)
        fs.invalidate_cache()
        listed: Mapping[str, Mapping[str, Any]] = persistently(
            lambda left: self._call("find", path, withdirs=True, detail=True, left=left), reason_of
        )
        return iter(listed.items())

    def _walk(self, top: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Level by level; the walk of fsspec itself passes over every folder that it fails to list."""
        level = [top]
        while level:
            below = []
            for at in range(0, len(level), AT_ONCE):
                paths = level[at : at + AT_ONCE]
                listings = persistently(lambda left: self._listings(paths, left), reason_of)  # noqa: B023
                for path, listing in zip(paths, listings, strict=True):
                    for info in listing:
                        name = info["name"]
                        if name.strip("/") == path.strip("/"):
                            continue  # itself
                        yield name, info
                        inside = name.lstrip("/").startswith(f"{path.strip('/')}/".lstrip("/"))
                        # The second: where a folder holds itself, names get longer without end.
                        if kind_of(info) == "folder" and inside and len(name) < MAX_REF_BYTES:
                            below.append(name.rstrip("/"))
            level = below

    def _listings(self, paths: Sequence[str], left: float) -> list[Sequence[Mapping[str, Any]]]:
        """A listing of each folder; none of one that is gone."""
        fs = self._fs
        fs.invalidate_cache()
        if isinstance(fs, AsyncFileSystem):

            async def all_of_them() -> list[Any]:
                return await gather(*(fs._ls(path, detail=True) for path in paths), return_exceptions=True)

            listed = sync(fs.loop, all_of_them, timeout=left)
        else:
            listed = []
            for path in paths:
                try:
                    listed.append(self._call("ls", path, detail=True, left=left))
                except FileNotFoundError as error:
                    listed.append(error)
        for answer in listed:
            if isinstance(answer, BaseException) and not isinstance(answer, FileNotFoundError):
                raise answer
        return [() if isinstance(answer, BaseException) else answer for answer in listed]

    def _key(self, name: str) -> str | None:
        """The key of a name; empty for the root, None of what does not lie below it."""
        name = name.removeprefix("/")  # some put one in front of every path, others of none
        if not self._top:
            return name
        if name.startswith(f"{self._top}/"):
            return name[len(self._top) + 1 :]
        return "" if name == self._top else None

    def check_root(self) -> None:
        """See `RootedSource.check_root`."""
        if not self._top:
            return
        try:
            kind = self._kind()
        except SkillFSError:
            return
        if kind is None:
            raise no_such_root()
        if kind == "file":
            raise root_is_file()

    def _kind(self) -> Kind | None:
        try:
            return kind_of(self._info(self._root))
        except FileNotFoundError:
            return None
        except PermissionError:
            return "folder"  # perhaps; a listing says more

    # -- reading -------------------------------------------------------------------------------------------

    def get(self, key: str, start: int, end: int, known: FileState) -> bytes:
        """See `Source.get`."""
        path = self._path(key)

        def read(left: float) -> bytes:
            whole = start == 0 and (known.size < 0 or end >= known.size)
            limits = {} if whole else {"start": start, "end": end}
            try:
                data: bytes = self._call("cat_file", path, left=left, **limits)
                now = self._state(self._asked(path, left))
            except FileNotFoundError:
                raise StaleFile from None
            if now.signature != known.signature:
                raise StaleFile
            if known.size < 0:
                return data[:end] if whole else data[: end - start]
            if len(data) == known.size and not whole:
                data = data[start:end]  # a server that knows no ranges sends everything
            if len(data) != min(end, known.size) - start:
                raise LengthError
            return data

        return persistently(read, reason_of)

    def blocks(self, key: str, known: FileState) -> Iterator[bytes]:
        """See `Source.blocks`."""
        if known.size < 0 or not known.signature:
            # Nothing would tell whether two pieces are of the same version.
            yield self.get(key, 0, known.size if known.size >= 0 else 1 << 62, known)
            return
        for offset in range(0, known.size, BLOCK):
            yield self.get(key, offset, offset + BLOCK, known)

    def head(self, key: str, length: int) -> tuple[FileState, bytes]:
        """See `Source.head`."""
        path = self._path(key)

        def read(left: float) -> tuple[FileState, bytes]:
            before = self._state(self._asked(path, left))
            whole = before.size <= length
            limits = {} if whole else {"start": 0, "end": length}
            data: bytes = self._call("cat_file", path, left=left, **limits)
            after = self._state(self._asked(path, left))
            if before.signature != after.signature or (0 <= before.size != len(data) and whole):
                raise LengthError
            if not whole and len(data) < length:
                raise LengthError
            if before.size < 0:
                after = after._replace(size=len(data))
            return self.settled(after), data[:length]

        return persistently(read, reason_of)

    def state(self, key: str) -> FileState | None:
        """See `Source.state`."""
        try:
            info = self._info(self._path(key))
        except FileNotFoundError:
            return None
        return self._state(info) if kind_of(info) == "file" else None

    def settled(self, state: FileState) -> FileState:
        """See `Source.settled`."""
        if not state.signature:
            return unsettled(state)
        if not state.signature.startswith(b"t"):
            return state
        return unsettled(state) if time.time_ns() - state.modified < YOUNG_NS else state

    def _state(self, info: Mapping[str, Any]) -> FileState:
        state, tells = state_of(info)
        self.tells = least(self.tells, tells)
        return state

    def _seen(self, info: Mapping[str, Any]) -> FileState:
        return self.settled(self._state(self._completed(info)))

    def _completed(self, info: Mapping[str, Any]) -> Mapping[str, Any]:
        # Of a file in memory that is written in place, only this says so.
        if isinstance(self._fs, MemoryFileSystem) and (file := self._fs.store.get(info.get("name"))):
            return {**info, "modified": file.modified}
        return info

    def _info(self, path: str) -> Mapping[str, Any]:
        return persistently(lambda left: self._asked(path, left), reason_of)

    def _asked(self, path: str, left: float) -> Mapping[str, Any]:
        # An instance that was handed in may keep listings, and answer from them what was true long ago.
        self._fs.invalidate_cache()
        info: Mapping[str, Any] = self._call("info", path, left=left)
        return self._completed(info)

    def _call(self, method: str, *args: Any, left: float, **options: Any) -> Any:
        """Call a method of the filesystem, for at most so many seconds where it can be broken off."""
        fs = self._fs
        if isinstance(fs, AsyncFileSystem) and hasattr(fs, f"_{method}"):
            return sync(fs.loop, getattr(fs, f"_{method}"), *args, timeout=left, **options)
        with self._lock:
            return getattr(fs, method)(*args, **options)

    # -- writing -------------------------------------------------------------------------------------------

    def put(self, key: str, file: BinaryIO, size: int, *, exclusive: bool) -> None:
        """See `Source.put`: in one piece, which most filesystems replace at once."""
        path = self._path(key)

        def write(left: float) -> None:
            file.seek(0)
            if exclusive and self._call("exists", path, left=left):
                raise FileExistsError(errno.EEXIST, "there is a file already")
            self._call("pipe_file", path, file.read(), left=left)

        persistently(write, reason_of)

    def copy(self, source: str, target: str) -> None:
        """See `Source.copy`."""
        self._change("cp_file", self._path(source), self._path(target))

    def delete(self, key: str) -> None:
        """See `Source.delete`."""
        self._change("rm_file", self._path(key))

    def make_folder(self, key: str) -> None:
        """See `Source.make_folder`."""
        self._change("mkdir", self._path(key))

    def remove_folder(self, key: str) -> None:
        """See `Source.remove_folder`."""
        self._change("rmdir", self._path(key))

    def _change(self, method: str, *paths: str) -> None:
        persistently(lambda left: self._call(method, *paths, left=left), reason_of)

    # -- the filesystem ------------------------------------------------------------------------------------

    @property
    def _fs(self) -> AbstractFileSystem:
        fs, pid = self._target
        if pid != os.getpid():
            self._lock = threading.RLock()  # another thread of the parent may have held it
            if self._own and not fs.async_impl:
                fs = remade(fs)  # parent and child would take turns on one connection
            self._target = after_fork(fs, pid)
        return self._target[0]

    def _path(self, key: str) -> str:
        if not key:
            return self._root
        return f"{self._root}/{key}" if self._top else f"{self._root}{key}"
