"""Archives, such as zip and tar, as a source.

An archive is a file of another source, or a local one. It is read once when it is opened, so with every
listing and every reading its file is asked for its state, and opened anew when that is another. What is read
of it is read under the condition that it still is the version whose table of contents is known.

Members are known by their path without a leading `./`. Links and devices are no files: what a link of an
archive leads to would be served without anybody having looked where it lies.
"""

from __future__ import annotations

import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple, TypeVar

from fsspec import AbstractFileSystem
from fsspec.archive import AbstractArchiveFileSystem
from fsspec.implementations.tar import TarFileSystem

from skillfs.core.digest import xxh3_of_blocks
from skillfs.errors import NotFoundError, SkillFSError
from skillfs.stores.attributes import Kind, Tells, digest_of, kind_of, state_of
from skillfs.stores.base import FileState, StaleFile, unsettled
from skillfs.stores.containers import Container, Version
from skillfs.stores.patience import Refused, persistently
from skillfs.stores.source import (
    BLOCK,
    Found,
    LengthError,
    account_of,
    no_such_root,
    reason_of,
    root_is_away,
    root_is_file,
)

__all__ = ["ArchiveSource"]

SPOOLED = 8 << 20

MOST_DIGESTED = 64 << 20
"""Bytes, unpacked, up to which every member is read when an archive is opened, which takes 0.3 s.

Else nothing tells which members of an archive that was replaced are still the same, and all count as
modified: times in archives are often all one, and 32 bits of CRC are no digest.
"""

_DIGEST = "skillfs digest"

_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}

T = TypeVar("T")


class _OpenArchive(NamedTuple):
    """An archive whose table of contents was read.

    Attributes:
        file: What it is read from.
        fs: The filesystem over it.
        version: Of its file; None where it is none that could be asked.
        members: By path: name in the archive, kind, and facts.
    """

    file: BinaryIO | None
    fs: AbstractFileSystem
    version: Version | None
    members: Mapping[str, tuple[str, Kind, Mapping[str, Any]]]


class ArchiveSource:
    """A folder in an archive; see `Source`.

    Args:
        kind: The class of fsspec for archives of this kind.
        options: For that class.
        container: The archive's file; None when `ready` is all there is.
        root: The folder in the archive.
        ready: A filesystem over an archive whose file nobody can ask.
    """

    def __init__(
        self,
        kind: type[AbstractArchiveFileSystem],
        options: Mapping[str, Any],
        container: Container | None,
        root: str,
        ready: AbstractFileSystem | None = None,
    ) -> None:
        self._kind = kind
        self._options = dict(options)
        self._container = container
        self._ready = ready
        self._open: _OpenArchive | None = None
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._top = "/".join(part for part in root.split("/") if part and part != ".")
        protocol = kind.protocol if isinstance(kind.protocol, str) else kind.protocol[0]
        self.url = f"{protocol}://{self._top}"
        own = {**options, "in": container.account} if container and container.account else options
        if container is not None:
            self.url += f"::{container.url}"
        self.spellings: tuple[str, ...] = (self.url,)
        self.account = account_of(own)
        self.title = self._top.rpartition("/")[2] or (container.url.rpartition("/")[2] if container else "/")
        self.tells: Tells = "version"
        self.holds_empty_folders = True
        self.writable = False

    def find(self, folder: str) -> Iterator[Found]:
        """See `Source.find`."""
        top = f"{self._path(folder)}/" if self._path(folder) else ""
        archive = self._now(lambda archive: archive)
        found = False
        for path, (_, kind, info) in archive.members.items():
            if path.startswith(top):
                found = True
                state = self._state(info, archive.version) if kind == "file" else _NO_STATE
                key = path[len(self._top) + 1 :] if self._top else path
                yield Found(key, kind, self.settled(state) if kind == "file" else state)
        if not found and not folder and self._top and self._top not in archive.members:
            raise root_is_away()

    def check_root(self) -> None:
        """See `RootedSource.check_root`."""
        archive = self._now(lambda archive: archive, no_such_archive)
        _, kind, _ = archive.members.get(self._top, ("", None, {}))
        if kind == "file":
            raise root_is_file()
        if self._top and kind is None and not any(p.startswith(f"{self._top}/") for p in archive.members):
            raise no_such_root()

    def get(self, key: str, start: int, end: int, known: FileState) -> bytes:
        """See `Source.get`."""
        end = min(end, known.size)

        def read(archive: _OpenArchive) -> bytes:
            with self._member(archive, key, known) as file:
                if start:
                    file.seek(start)
                data: bytes = file.read(end - start)
            if len(data) != end - start:
                raise LengthError
            return data

        return self._now(read)

    def blocks(self, key: str, known: FileState) -> Iterator[bytes]:
        """See `Source.blocks`: unpacked once, because to unpack from the middle is to begin at the start."""

        def unpack(archive: _OpenArchive) -> None:
            spool.seek(0)
            with self._member(archive, key, known) as file:
                while block := file.read(BLOCK):
                    spool.write(block)
            if spool.tell() != known.size:
                raise LengthError

        with tempfile.SpooledTemporaryFile(SPOOLED) as spool:
            self._now(unpack)
            spool.seek(0)
            left = known.size
            while left > 0:
                block = spool.read(min(BLOCK, left))
                left -= len(block)
                yield block

    def head(self, key: str, length: int) -> tuple[FileState, bytes]:
        """See `Source.head`."""

        def read(archive: _OpenArchive) -> tuple[FileState, bytes]:
            name, kind, info = archive.members.get(self._path(key), ("", "other", {}))
            if kind != "file":
                raise FileNotFoundError
            state = self._state(info, archive.version)
            with archive.fs.open(name, "rb") as file:
                data: bytes = file.read(min(length, state.size))
            if len(data) != min(length, state.size):
                raise LengthError
            return state, data

        state, data = self._now(read)
        return self.settled(state), data

    def state(self, key: str) -> FileState | None:
        """See `Source.state`."""

        def state(archive: _OpenArchive) -> FileState | None:
            _, kind, info = archive.members.get(self._path(key), ("", "other", {}))
            return self._state(info, archive.version) if kind == "file" else None

        return self._now(state)

    def settled(self, state: FileState) -> FileState:
        """See `Source.settled`: a member that is known by no digest is as sure as its archive."""
        archive = self._open
        if state.signature.startswith(b"c") or archive is None or archive.version is None:
            return state
        return state if archive.version.sure else unsettled(state)

    def _member(self, archive: _OpenArchive, key: str, known: FileState) -> Any:
        name, kind, info = archive.members.get(self._path(key), ("", "other", {}))
        if kind != "file" or self._state(info, archive.version).signature != known.signature:
            raise StaleFile
        return archive.fs.open(name, "rb")

    def _state(self, info: Mapping[str, Any], version: Version | None) -> FileState:
        state, _ = state_of(info)
        if content := info.get(_DIGEST):
            return state._replace(signature=b"c" + digest_of((state.size, content)))
        mark = b"" if version is None else version.mark
        return state._replace(signature=b"v" + digest_of((state.size, state.signature, mark)))

    def _path(self, key: str) -> str:
        return "/".join(filter(None, (self._top, key)))

    # -- the archive ---------------------------------------------------------------------------------------

    def _now(self, work: Callable[[_OpenArchive], T], gone: Callable[[], SkillFSError] = root_is_away) -> T:
        """Do something with the archive as it is now; what comes of it is of one version.

        Args:
            work: Called once or several times.
            gone: The error when the archive is not there.

        Raises:
            StoreUnavailableError: It is damaged, or changes all the time, or its store does not answer.
            StaleFile: `work` says so, of the version that is there now.
        """
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._lock = threading.RLock()  # another thread of the parent may have held it
            self._let_go()  # parent and child would take turns on one file

        def attempt(_: float) -> T:
            with self._lock:
                archive = self._archive()
                failure: Exception | None = None
                try:
                    done = work(archive)
                except Exception as error:
                    failure = error
                if self._container is not None and archive.version is not None:
                    try:
                        now = self._container.version()
                    except (FileNotFoundError, NotADirectoryError):
                        raise _GoneError from None
                    if now.mark != archive.version.mark:
                        self._let_go()
                        raise _ReplacedError
                if failure is not None:
                    raise failure
                return done

        try:
            return persistently(attempt, _reason)
        except _GoneError:
            raise gone() from None

    def _archive(self) -> _OpenArchive:
        """The archive as it was when it was read, which is long ago only where its file is still the same."""
        if self._open is not None and self._open.version is not None and not self._open.version.sure:
            self._let_go()
        if self._open is None:
            self._open = self._opened()
        return self._open

    def _let_go(self) -> None:
        archive, self._open = self._open, None
        if archive is not None and archive.file is not None:
            archive.file.close()

    def __del__(self) -> None:
        self._let_go()

    def _opened(self) -> _OpenArchive:
        if self._container is None:
            assert self._ready is not None
            return _OpenArchive(None, self._ready, None, _members(self._ready))
        try:
            file, version = self._container.open()
        except (FileNotFoundError, NotADirectoryError):
            raise _GoneError from None
        except StaleFile:
            raise _ReplacedError from None
        try:
            options = {"compression": _compression(file), **self._options} if self._is_tar else self._options
            fs = self._kind(fo=file, **options, skip_instance_cache=True)
            return _OpenArchive(file, fs, version, _members(fs))
        except StaleFile:
            file.close()
            raise _ReplacedError from None
        except BaseException:
            file.close()
            raise

    @property
    def _is_tar(self) -> bool:
        return issubclass(self._kind, TarFileSystem)


_NO_STATE = FileState(b"", 0, 0)


def no_such_archive() -> NotFoundError:
    """The error of a store that is opened in an archive that is not there."""
    return NotFoundError("the archive that the store is to lie in is not there; name one that is")


class _ReplacedError(Exception):
    """An archive is another than when it was opened. Never reaches a caller."""


class _GoneError(OSError):
    """An archive is not there. Never reaches a caller."""


def _members(fs: AbstractFileSystem) -> dict[str, tuple[str, Kind, Mapping[str, Any]]]:
    """The table of contents: fsspec's own listings of an archive go through all of it for each folder."""
    fs._get_dirs()
    special = set()
    if isinstance(fs, TarFileSystem):
        # Of a link fsspec says that it is a file, and reads what it leads to.
        special = {m.name for m in fs.tar.getmembers() if not (m.isreg() or m.isdir() or m.islnk())}
    digests = sum(info.get("size") or 0 for info in fs.dir_cache.values()) <= MOST_DIGESTED
    members: dict[str, tuple[str, Kind, Mapping[str, Any]]] = {}
    for name, info in fs.dir_cache.items():
        path = name.removeprefix("./").rstrip("/")
        if not path or path == ".":
            continue
        kind = "other" if name in special or _is_special(info) else kind_of(info)
        if digests and kind == "file":
            info = {**info, _DIGEST: _digest_in(fs, name)}
        members[path] = (name, kind, info)
    return members


def _digest_in(fs: AbstractFileSystem, name: str) -> bytes | None:
    try:
        with fs.open(name, "rb") as file:
            return xxh3_of_blocks(iter(lambda: file.read(BLOCK), b""))
    except StaleFile:
        raise
    except Exception:
        return None  # whoever reads it is told


def _is_special(info: Mapping[str, Any]) -> bool:
    """Whether the attributes that zip keeps for Unix are of a link or device."""
    mode = (info.get("external_attr") or 0) >> 16
    return info.get("create_system") == 3 and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR)


def _compression(file: BinaryIO) -> str | None:
    """What a tar archive is packed with, by its first bytes: names end in `.tgz`, `.tar.gz` or anything."""
    start = file.read(6)
    file.seek(0)
    return next((name for magic, name in _MAGIC.items() if start.startswith(magic)), None)


_FAULTS = frozenset(
    (
        *("BadZipFile", "LargeZipFile", "ReadError", "CompressionError", "HeaderError", "EOFHeaderError"),
        *("TruncatedHeaderError", "InvalidHeaderError", "ArchiveError", "BadGzipFile", "LZMAError"),
        *("EOFError", "error"),
    )
)


def _reason(error: Exception) -> str:
    if isinstance(error, _GoneError | Refused):
        raise error
    if isinstance(error, _ReplacedError):
        return "it changes while it is read"
    if type(error) in (RuntimeError, NotImplementedError):
        raise Refused("the archive is encrypted, or packed in a way that is not known here") from error
    if type(error).__name__ in _FAULTS or isinstance(error, LengthError | UnicodeError):
        raise Refused("the archive is damaged, or no archive of this kind") from error
    return reason_of(error)
