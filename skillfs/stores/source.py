"""What lies under a remote store: listings and bytes of some filesystem, without any rule about skills.

`FsspecSource` is any filesystem of fsspec. What it can tell about a file decides what skillfs can promise:

| the listing gives | the signature is | so |
|---|---|---|
| an ETag, a checksum, a version or generation | these and the size | every change is noticed |
| times | the newest of them and the size | a change is noticed unless size and time are the same |
| neither | nothing | facts are never kept, and every reading reads the whole file |

The bytes of a file are read first and its state is asked afterwards: where that is the state which the reader
knew before, no other version can have been in between.
"""

from __future__ import annotations

import calendar
import errno
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol

from fsspec import AbstractFileSystem
from fsspec.archive import AbstractArchiveFileSystem
from fsspec.asyn import reset_lock

from skillfs.core.digest import xxh3
from skillfs.errors import UnreadableError
from skillfs.stores.base import FileState, StaleFile, unsettled
from skillfs.stores.patience import Refused, persistently

__all__ = [
    "Found",
    "FsspecSource",
    "Source",
    "Tells",
    "account_of",
    "after_fork",
    "is_not_there",
    "may_not_list",
    "may_not_read",
]

Tells = Literal["version", "time", "nothing"]

_VERSIONS = (
    *("ETag", "etag", "md5Hash", "md5", "Content-MD5", "content_md5", "sha", "sha256", "checksum", "Digest"),
    *("crc32c", "CRC", "generation", "metageneration", "VersionId", "version_id"),
)
_TIMES = (
    "LastModified",
    "last_modified",
    "Last-Modified",
    "updated",
    "mtime",
    "modified",
    "date_time",
    "created",
)

_YOUNG_NS = 2_000_000_000
"""A time that is younger vouches for nothing yet: many filesystems keep whole or even seconds."""


BLOCK = 4 << 20
"""Bytes that are asked for at once where a file is read from one end to the other."""


class Found(NamedTuple):
    """One thing of a listing.

    Attributes:
        key: Below the root, as the filesystem spells it.
        kind: `other` is what is neither file nor folder, such as a link.
        state: Of a file.
    """

    key: str
    kind: Literal["file", "folder", "other"]
    state: FileState


class Source(Protocol):
    """A remote filesystem below a root. Keys are relative to the root and sound paths, but in listings.

    Methods raise `StoreUnavailableError` when the filesystem does not answer, `FileNotFoundError` and
    `PermissionError` where it says so of a key.

    Attributes:
        url: Canonical URL of the root.
        spellings: Everything that may stand for the root in front of a path.
        account: Hash of endpoint and credential; see `Store`.
        title: Last component of the root.
        tells: What its listings tell about a file.
        holds_empty_folders: Whether a folder can be there with nothing in it.
    """

    url: str
    spellings: tuple[str, ...]
    account: str
    title: str
    tells: Tells
    holds_empty_folders: bool

    def find(self, folder: str) -> Iterator[Found]:
        """Everything below a folder, in no order; empty for the root."""

    def get(self, key: str, start: int, end: int, known: FileState) -> bytes:
        """Bytes `start` to `end` of the file that has a state.

        Raises:
            StaleFile: It is another file, or there is none.
        """

    def blocks(self, key: str, known: FileState) -> Iterator[bytes]:
        """All bytes of the file that has a state, in pieces; raises as `get`."""

    def head(self, key: str, length: int) -> tuple[FileState, bytes]:
        """The state of a file and its first bytes, which belong together."""

    def state(self, key: str) -> FileState | None:
        """The state of a file; None when there is none."""

    def settled(self, state: FileState) -> FileState:
        """The state to remember: marked when it is too young to vouch for the file."""

    def put(self, key: str, file: BinaryIO, size: int, *, exclusive: bool) -> None:
        """Write a file; FileExistsError when it was to be created and there is one."""

    def copy(self, source: str, target: str) -> None:
        """Copy a file."""

    def delete(self, key: str) -> None:
        """Remove a file."""

    def make_folder(self, key: str) -> None:
        """Make a folder, where folders can be empty."""

    def remove_folder(self, key: str) -> None:
        """Remove an empty folder, where folders can be empty."""


def account_of(options: Mapping[str, Any]) -> str:
    """A hash of everything that may choose another endpoint or another user."""
    if not options:
        return ""
    text = json.dumps(options, sort_keys=True, default=lambda value: f"{type(value).__qualname__}:{value}")
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def after_fork(fs: AbstractFileSystem, pid: int) -> tuple[AbstractFileSystem, int]:
    """A filesystem that works in this process: its like, when it was made in the one that forked this.

    The event loop of an asynchronous one, and its connections, stayed behind in the parent.
    """
    now = os.getpid()
    if now == pid:
        return fs, pid
    if getattr(fs, "async_impl", False):
        reset_lock()  # another thread of the parent may have held it
        fs = type(fs)(*fs.storage_args, **{**fs.storage_options, "skip_instance_cache": True})
    return fs, now


class FsspecSource:
    """Any filesystem of fsspec as a source; see `Source`.

    Args:
        fs: The filesystem.
        root: The root as that filesystem spells paths.
        url: Canonical URL of the root.
        options: What it was made with.
        own: Whether it was made here, so that it may be made anew.
    """

    def __init__(
        self, fs: AbstractFileSystem, root: str, url: str, options: Mapping[str, Any], *, own: bool
    ) -> None:
        self._target = (fs, os.getpid())
        self._root = root.rstrip("/")
        self._own = own
        self.url = url
        self.spellings: tuple[str, ...] = (url,)
        self.account = account_of(options)
        self.title = self._root.rpartition("/")[2] or "/"
        self.tells: Tells = "version"
        self.holds_empty_folders = True
        self._container = _Container(fs) if isinstance(fs, AbstractArchiveFileSystem) and own else None
        self._salt = b"" if self._container is None else self._container.state()

    def find(self, folder: str) -> Iterator[Found]:
        """See `Source.find`."""
        if self._container is not None:
            # An archive is read once, when it is opened: it has to be opened anew to be seen anew.
            fs, self._salt = persistently(lambda _: self._opened_anew(), _reason)
            self._target = (fs, os.getpid())
        path = self._path(folder)
        try:
            listed = persistently(lambda _: self._listed(path), _reason)
        except PermissionError as error:
            raise may_not_list() from error
        top = f"{self._root}/"
        for name, info in listed.items():
            if not name.startswith(top):
                continue  # the root itself, or what the filesystem calls by another name
            kind = info.get("type")
            found = "file" if kind == "file" else "folder" if kind == "directory" else "other"
            state = self.settled(self._state(info)) if found == "file" else FileState(b"", 0, 0)
            yield Found(name[len(top) :], found, state)  # type: ignore[arg-type]  # one of the three

    def _opened_anew(self) -> tuple[AbstractFileSystem, bytes]:
        assert self._container is not None
        salt = self._container.state()
        if salt and salt == self._salt:
            return self._fs, salt
        options = {**self._fs.storage_options, "skip_instance_cache": True}
        return type(self._fs)(*self._fs.storage_args, **options), salt

    def _listed(self, path: str) -> dict[str, dict[str, Any]]:
        self._fs.invalidate_cache()
        found: dict[str, dict[str, Any]] = self._fs.find(path, withdirs=True, detail=True)
        return found

    def get(self, key: str, start: int, end: int, known: FileState) -> bytes:
        """See `Source.get`."""
        path = self._path(key)

        def read(_: float) -> bytes:
            whole = start == 0 and end >= known.size
            try:
                data: bytes = self._fs.cat_file(path) if whole else self._fs.cat_file(path, start, end)
                now = self._state(self._fs.info(path))
            except FileNotFoundError:
                raise StaleFile from None
            if now.signature != known.signature:
                raise StaleFile
            if len(data) == known.size and not whole:
                data = data[start:end]  # a server that knows no ranges sends everything
            if known.size >= 0 and len(data) != min(end, known.size) - start:
                raise OSError("a body of another length than was announced")
            return data

        return persistently(read, _reason)

    def blocks(self, key: str, known: FileState) -> Iterator[bytes]:
        """See `Source.blocks`."""
        if known.size < 0:
            yield self.get(key, 0, 1 << 62, known)
        for offset in range(0, known.size, BLOCK):
            yield self.get(key, offset, offset + BLOCK, known)

    def head(self, key: str, length: int) -> tuple[FileState, bytes]:
        """See `Source.head`."""
        path = self._path(key)

        def read(_: float) -> tuple[FileState, bytes]:
            before = self._state(self._fs.info(path))
            whole = before.size <= length
            data: bytes = self._fs.cat_file(path) if whole else self._fs.cat_file(path, 0, length)
            after = self._state(self._fs.info(path))
            if before.signature != after.signature or (0 <= before.size != len(data) and whole):
                raise OSError("changed while it was read")
            if before.size < 0:
                after = after._replace(size=len(data))
            return self.settled(after), data[:length]

        return persistently(read, _reason)

    def state(self, key: str) -> FileState | None:
        """See `Source.state`."""
        try:
            info = persistently(lambda _: self._fs.info(self._path(key)), _reason)
        except FileNotFoundError:
            return None
        return self._state(info) if info.get("type") == "file" else None

    def settled(self, state: FileState) -> FileState:
        """See `Source.settled`."""
        if not state.signature:
            return unsettled(state)
        if not state.signature.startswith(b"t"):
            return state
        return unsettled(state) if time.time_ns() - state.modified < _YOUNG_NS else state

    def _state(self, info: Mapping[str, Any]) -> FileState:
        size = info.get("size")
        size = size if isinstance(size, int) else -1
        times = [t for key in _TIMES if (t := _nanoseconds(info.get(key))) is not None]
        modified = times[0] if times else 0
        versions = [(key, str(info[key])) for key in _VERSIONS if info.get(key) not in (None, "")]
        if versions:
            return FileState(b"v" + _digest((size, versions, self._salt)), size, modified)
        self.tells = "time" if times else "nothing"
        if times:
            return FileState(b"t" + _digest((size, times, self._salt)), size, modified)
        return FileState(b"", size, 0)

    def put(self, key: str, file: BinaryIO, size: int, *, exclusive: bool) -> None:
        """See `Source.put`: in one piece, which most filesystems replace at once."""
        path = self._path(key)

        def write(_: float) -> None:
            file.seek(0)
            if exclusive and self._fs.exists(path):
                raise FileExistsError(path)
            self._fs.pipe_file(path, file.read())

        persistently(write, _reason)

    def copy(self, source: str, target: str) -> None:
        """See `Source.copy`."""
        persistently(lambda _: self._fs.cp_file(self._path(source), self._path(target)), _reason)

    def delete(self, key: str) -> None:
        """See `Source.delete`."""
        persistently(lambda _: self._fs.rm_file(self._path(key)), _reason)

    def make_folder(self, key: str) -> None:
        """See `Source.make_folder`."""
        persistently(lambda _: self._fs.mkdir(self._path(key)), _reason)

    def remove_folder(self, key: str) -> None:
        """See `Source.remove_folder`."""
        persistently(lambda _: self._fs.rmdir(self._path(key)), _reason)

    @property
    def _fs(self) -> AbstractFileSystem:
        self._target = after_fork(*self._target)
        return self._target[0]

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root


class _Container:
    """The file that an archive is, in the filesystem that holds it."""

    def __init__(self, fs: AbstractFileSystem) -> None:
        import fsspec

        options = fs.storage_options
        self._path = options.get("fo") or (fs.storage_args[0] if fs.storage_args else None)
        protocol = options.get("target_protocol") or "file"
        self._fs = fsspec.filesystem(
            protocol,
            **{
                **(options.get("target_options") or {}),
                "use_listings_cache": False,
                "skip_instance_cache": True,
            },
        )

    def state(self) -> bytes:
        """What changes when the archive does; empty where that cannot be told."""
        if not isinstance(self._path, str):
            return b""
        info = self._fs.info(self._path)
        known = [(key, str(info[key])) for key in (*_VERSIONS, *_TIMES, "ino", "size") if key in info]
        return _digest(known)


def _digest(value: object) -> bytes:
    """In hex, because of the bytes themselves one in 256 ends like a state that is not settled."""
    return xxh3(repr(value).encode()).hex().encode()


def _nanoseconds(value: object) -> int | None:
    """A time in any of the forms in which filesystems give one."""
    try:
        if isinstance(value, datetime):
            aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return int(aware.timestamp() * 1_000_000) * 1_000
        if isinstance(value, tuple) and len(value) == 6:
            return calendar.timegm((*value, 0, 0, 0)) * 1_000_000_000
        if isinstance(value, str):
            return _nanoseconds(datetime.fromisoformat(value))
        if isinstance(value, int | float) and not isinstance(value, bool):
            return int(value * 1_000_000) * 1_000
    except (ValueError, OverflowError, OSError, TypeError):
        pass
    return None


def may_not_list() -> UnreadableError:
    """The error of a store that the credentials do not open."""
    return UnreadableError(
        "the store may not be listed with these credentials; pass others, or have listing allowed"
    )


def may_not_read() -> PermissionError:
    """The error of a key that the credentials do not open."""
    return PermissionError(errno.EACCES, "the credentials do not allow it")


def is_not_there() -> FileNotFoundError:
    """The error of a key at which there is nothing."""
    return FileNotFoundError(errno.ENOENT, "there is no such file")


def _reason(error: Exception) -> str:
    """What went wrong, in words, without anything that the error says of endpoint or credentials."""
    if isinstance(error, PermissionError):
        raise may_not_read() from error
    if isinstance(error, FileNotFoundError):
        raise is_not_there() from error
    if isinstance(error, FileExistsError | IsADirectoryError | NotADirectoryError):
        raise error
    status = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        raise may_not_read() from error
    if status == 404:
        raise is_not_there() from error
    if isinstance(status, int):
        return f"HTTP status {status}"
    if isinstance(error, TypeError | ValueError | AttributeError | KeyError | NotImplementedError):
        raise Refused(f"{type(error).__name__} in the filesystem below") from error
    return type(error).__name__
