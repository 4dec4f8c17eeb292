"""A folder on a local disk as a store.

Every open, and every look at a single file or folder that is going to be told about, goes through `confine`:
by root handle and components, never through a link; so does every change. The comparisons of a check of many
use a plain `lstat`, which costs half. It follows a link in the middle of a path, so a folder that was moved
out of the store and replaced by a link to it passes as unchanged until the folder that holds the link is
compared.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from urllib.parse import quote

from skillfs.core.digest import xxh3, xxh3_of_blocks
from skillfs.core.model import Place
from skillfs.errors import (
    InvalidArgumentError,
    IsFileError,
    NotFoundError,
    StoreUnavailableError,
    UnreadableError,
    no_handle_left,
    quoted,
)
from skillfs.stores.base import FileState, FolderHandle, Handle, Listed, unsettled
from skillfs.stores.confine import open_root, opener
from skillfs.stores.local_writing import LocalWriting
from skillfs.stores.mount_table import filesystem_type, is_bare

__all__ = ["LocalStore"]

if os.name != "posix":
    raise ImportError("skillfs opens files by POSIX handles and does not run on Windows; run it in WSL")

BLOCK = 1 << 20
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_pack_numbers = struct.Struct("<QQ?qqq").pack
_EXECUTABLE_AT, _CHANGED_AT = 16, 33
"""Where a signature tells whether the owner may execute the file; where that changes, a time does too."""

# Where every file is an interface of the kernel: sizes are zero, reads have effects.
_PSEUDO = frozenset(
    (
        *("proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs"),
        *("devpts", "configfs", "bpf", "pstore", "efivarfs", "mqueue"),
    )
)

_FINE_GRANULE_NS = 20_000_000
_COARSE_GRANULE_NS = 2_000_000_000
_SLOW_WRITE_NS = 40
"""Nanoseconds that a byte may take to be written: 25 MB/s."""

NOT_MOUNTED = (
    "the store's root folder is empty, and what was mounted there is not any more; it counts as away, not as "
    "empty: mount it again, or put a file into it if it is meant to be empty"
)

MOST_HASHED = 8 << 30
"""Bytes up to which a file is read when the store is scanned; a sparse file can claim to have any number."""


class LocalStore(LocalWriting):
    """Skill folders below a local folder.

    Args:
        path: The root. `~` is expanded; a link is followed once, here.
        follow: Folders outside the root into which links may lead.

    Raises:
        InvalidArgumentError: The path is empty, or lies on a pseudo filesystem such as /proc.
        NotFoundError: There is no such folder.
        IsFileError: It is a file.
        UnreadableError: It may not be read.

    Attributes:
        reopened: How often the root was found to be another folder than before.
    """

    account = ""
    remote = False
    writable = True

    def __init__(self, path: str | os.PathLike[str], follow: Sequence[str | os.PathLike[str]] = ()) -> None:
        self._fds: list[int] = []
        self._retired: list[int] = []
        self.reopened = 0
        given = os.fspath(path)
        self._opener = opener()
        self._paths = [_real_root(given, "store"), *(_real_root(os.fspath(f), "follow") for f in follow)]
        self._open_roots()
        root = self._paths[0]
        self.url = "file://" + quote(root)
        absolute = os.path.abspath(os.path.expanduser(given))
        spellings = (root, self.url, "file://" + root, "local://" + root, absolute, "file://" + absolute)
        self.spellings = tuple(dict.fromkeys(spellings))

    @property
    def root(self) -> str:
        """The real path of the root folder."""
        return self._paths[0]

    @property
    def title(self) -> str:
        """Name of the root folder."""
        return os.path.basename(self.root) or "/"

    @property
    def followed(self) -> tuple[str, ...]:
        """The real paths of the folders that links may lead into."""
        return tuple(self._paths[1:])

    def look(self, paths: Collection[str] = ("",)) -> LocalStore:
        """See `Store.look`."""
        return self

    def open(self, place: Place, known: FileState | None = None) -> LocalHandle:
        """See `Store.open`."""
        return LocalHandle(self._opener.file(self._fds[place.root], place.path))

    def folder(self, place: Place) -> LocalFolder:
        """See `Store.folder`.

        Raises:
            OSError: EXDEV when it lies on another device and no folder in `follow` says that this is meant.
        """
        fd = self._opener.folder(self._fds[place.root], place.path)
        try:
            folder = LocalFolder(fd)
            if folder.device not in self._devices and not self._is_followed(place):
                raise OSError(errno.EXDEV, "another device is mounted there")
        except BaseException:
            os.close(fd)
            raise
        return folder

    def differing(self, root: int, known: Iterable[tuple[str, bytes]]) -> Iterator[str]:
        """See `Store.differing`."""
        fd = self._fds[root]
        stat_, signature_of = os.stat, _signature
        for path, signature in known:
            try:
                st = stat_(path or ".", dir_fd=fd, follow_symlinks=False)
            except OSError:
                yield path
                continue
            if signature_of(st) != signature:
                yield path

    def state(self, place: Place) -> FileState | None:
        """See `Store.state`."""
        st = self._stat(place)
        return None if st is None else _state(st)

    def in_step(self, place: Place, signature: bytes) -> bool:
        """See `Store.in_step`."""
        st = self._stat(place)
        if st is None:
            return False
        return _signature(st) == signature

    def _stat(self, place: Place) -> os.stat_result | None:
        try:
            return self._opener.stat(self._fds[place.root], place.path)
        except OSError as error:
            if (full := no_handle_left(error)) is not None:
                raise full from error
            return None

    def is_regular(self, place: Place) -> bool | None:
        """Whether a regular file lies at a place; None when it is a link."""
        try:
            mode = os.stat(place.path, dir_fd=self._fds[place.root], follow_symlinks=False).st_mode
        except OSError:
            return False
        return None if stat.S_ISLNK(mode) else stat.S_ISREG(mode)

    def exists(self, place: Place) -> bool:
        """Whether anything lies at a place, links not followed."""
        return os.access(place.path or ".", os.F_OK, dir_fd=self._fds[place.root], follow_symlinks=False)

    def inode(self, signature: bytes) -> bytes:
        """See `Store.inode`: device and inode."""
        return signature[:16]

    def executable(self, signature: bytes) -> bool | None:
        """See `Store.executable`."""
        return bool(signature[_EXECUTABLE_AT]) if len(signature) > _EXECUTABLE_AT else None

    def changed(self, signature: bytes) -> int | None:
        """See `Store.changed`: the time of the inode."""
        if len(signature) < _CHANGED_AT + 8:
            return None
        return int.from_bytes(signature[_CHANGED_AT : _CHANGED_AT + 8], "little", signed=True)

    def resolve(self, place: Place) -> Place | str:
        """See `Store.resolve`."""
        try:
            real = os.path.realpath(os.path.join(self._paths[place.root], place.path), strict=True)
        except OSError as error:
            return "link-loop" if error.errno == errno.ELOOP else "link-dangling"
        found = _below(real, self._paths)
        if found == "link-escapes":
            # A root can have been replaced by a link since it was named.
            found = _below(real, [os.path.realpath(root) for root in self._paths])
        return found

    def check_root(self) -> None:
        """See `Store.check_root`: a root that was replaced is opened anew.

        Raises:
            StoreUnavailableError: It is not there, or there is nothing but the folder that it was mounted on.
        """
        try:
            found = [_device_and_inode(os.stat(path)) for path in self._paths]
        except OSError as error:
            raise StoreUnavailableError(
                "the store's root folder is not there; it counts as away, not as empty: "
                "try again when it is back"
            ) from error
        if found == [known for _, known in self._roots]:
            return
        for fd, (path, known), now in zip(self._fds, self._roots, found, strict=True):
            if now != known and is_bare(path, fd):
                raise StoreUnavailableError(NOT_MOUNTED)
        # Another thread may be reading through the old handles, and a closed number may become any other
        # file's.
        before = self._fds
        self._open_roots()
        self._retired.extend(before)
        self.reopened += 1

    def is_bare(self, signature: bytes) -> bool:
        """Whether the root is empty, and lies on another device than when it had a signature.

        Then it is what something was mounted on, in all likelihood.
        """
        (_, (device, _)) = self._roots[0]
        if int.from_bytes(signature[:8], "little") == device:
            return False
        with self.folder(Place(0, "")) as folder:
            return not any(folder.entries())

    def is_rooted(self) -> bool:
        """See `Store.is_rooted`: one `stat` for each root, 1.5 µs."""
        stat_ = os.stat
        try:
            for path, known in self._roots:
                st = stat_(path)
                # The open handle keeps the number of a folder that was removed from being given out again.
                if (st.st_dev, st.st_ino) != known:
                    return False
        except OSError:
            return False
        return True

    def _open_roots(self) -> None:
        fds: list[int] = []
        roots: list[tuple[str, tuple[int, int]]] = []
        for path in self._paths:
            try:
                fds.append(open_root(path))
                roots.append((path, _device_and_inode(os.fstat(fds[-1]))))
            except OSError as error:
                self._retired.extend(fds)
                if (full := no_handle_left(error)) is not None:
                    raise full from error
                if isinstance(error, PermissionError):
                    raise UnreadableError("the store's root folder may not be read by this user") from error
                raise StoreUnavailableError("the store's root folder cannot be opened; try again") from error
        self._fds = fds
        self._roots = roots
        self._devices = {device for _, (device, _) in roots}

    def _is_followed(self, place: Place) -> bool:
        inside = os.path.join(self._paths[place.root], place.path)
        return any(inside == f or inside.startswith(f.rstrip("/") + "/") for f in self._paths[1:])

    def __del__(self) -> None:
        for fd in (*self._fds, *self._retired):
            with contextlib.suppress(OSError):
                os.close(fd)


class LocalHandle:
    """An open regular file; see `Handle`."""

    __slots__ = ("_fd", "_opened", "state")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._opened = time.time_ns()
        st = os.fstat(fd)
        self.state = _state(st)

    def read(self, offset: int, length: int) -> bytes:
        """See `Handle.read`."""
        data = os.pread(self._fd, length, offset)
        if len(data) == length or not data:
            return data
        parts = [data]
        got = len(data)
        while got < length and (data := os.pread(self._fd, length - got, offset + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def blocks(self) -> Iterator[bytes]:
        """See `Handle.blocks`."""
        offset = 0
        while data := os.pread(self._fd, BLOCK, offset):
            yield data
            offset += len(data)

    def unchanged(self) -> bool:
        """See `Handle.unchanged`."""
        st = os.fstat(self._fd)
        return self.state.signature == _state(st).signature

    def settled(self) -> FileState:
        """The state to remember: marked when the file was opened too soon after its last modification."""
        return _settle(self.state, self._opened)

    def close(self) -> None:
        """See `Handle.close`."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> LocalHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class LocalFolder:
    """An open folder; see `FolderHandle`."""

    __slots__ = ("_fd", "device", "state")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        now = time.time_ns()
        st = os.fstat(fd)
        self.device = st.st_dev
        self.state = _settle(_state(st), now)

    def __enter__(self) -> LocalFolder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def fileno(self) -> int:
        """The file descriptor."""
        return self._fd

    def entries(self) -> Listed:
        """See `FolderHandle.entries`."""
        folders: list[str] = []
        files: list[str] = []
        links: list[str] = []
        special: list[str] = []
        undecodable: list[bytes] = []
        with os.scandir(self._fd) as listing:
            for item in listing:
                name = item.name
                if not name.isascii() and not _is_utf8(name):
                    undecodable.append(os.fsencode(name))
                elif item.is_file(follow_symlinks=False):
                    files.append(name)
                elif item.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif item.is_symlink():
                    links.append(name)
                else:
                    special.append(name)
        return Listed(folders, files, links, special, undecodable)

    def stat(self, name: str) -> tuple[FileState, int]:
        """See `FolderHandle.stat`."""
        now = time.time_ns()
        st = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        return _settle(_state(st), now), st.st_nlink

    def hash(self, name: str, *, head: int = 0) -> tuple[FileState, bytes, bytes, int]:
        """See `FolderHandle.hash`.

        Raises:
            OSError: It cannot be opened or read, or is no regular file (ENOENT).
        """
        fd = os.open(name, _FILE, dir_fd=self._fd)
        try:
            st = os.fstat(fd)
            if not stat.S_ISREG(st.st_mode):
                raise FileNotFoundError(errno.ENOENT, "not a regular file")
            if st.st_size > MOST_HASHED:
                raise OSError(errno.EFBIG, "has over 8 GiB")
            # The signature is of before the reading: should the file change meanwhile, the next check sees.
            now = time.time_ns()
            size = st.st_size
            if size < BLOCK:
                data = os.pread(fd, size + 1, 0)
                content = xxh3(data)
            else:
                data = os.pread(fd, head, 0)
                content = xxh3_of_blocks(_blocks(fd))
            return _settle(_state(st), now), content, data[:head], st.st_nlink
        finally:
            os.close(fd)


def _below(real: str, roots: Sequence[str]) -> Place | str:
    """The place of a real path below the first root that holds it."""
    for number, root in enumerate(roots):
        if real == root:
            return Place(number, "")
        if real.startswith(root if root == "/" else root + "/"):
            below = real[len(root) :].lstrip("/")
            return Place(number, below) if _is_utf8(below) else "link-dangling"
    return "link-escapes"


def _device_and_inode(st: os.stat_result) -> tuple[int, int]:
    return st.st_dev, st.st_ino


def _signature(st: os.stat_result) -> bytes:
    executable = st.st_mode & stat.S_IXUSR != 0
    return _pack_numbers(st.st_dev, st.st_ino, executable, st.st_size, st.st_mtime_ns, st.st_ctime_ns)


def _state(st: os.stat_result) -> FileState:
    return FileState(_signature(st), st.st_size, st.st_mtime_ns, st.st_ctime_ns)


def _settle(state: FileState, now: int) -> FileState:
    """Mark a state that was taken too soon after the last modification.

    Args:
        state: As the system says it.
        now: A time before the first byte was read, so that a write after it leaves a trace in the state.
    """
    # The kernel stamps with a coarse clock: within one tick a second write leaves no trace in the signature.
    # A stamp of whole milliseconds is taken for one of a filesystem that keeps no finer ones.
    granule = _FINE_GRANULE_NS if state.changed % 1_000_000 else _COARSE_GRANULE_NS
    # A file is stamped when a write begins, and one write can take as long as its bytes do.
    granule += state.size * _SLOW_WRITE_NS
    return unsettled(state) if now - state.changed < granule else state


def _blocks(fd: int) -> Iterator[bytes]:
    offset = 0
    while data := os.pread(fd, BLOCK, offset):
        yield data
        offset += len(data)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _real_root(given: str, argument: str) -> str:
    if sys.getfilesystemencoding().replace("-", "").lower() != "utf8":
        raise InvalidArgumentError("file names are not UTF-8 in this process; set PYTHONUTF8=1")
    if not given or "\0" in given:
        raise InvalidArgumentError(f"{argument} is {quoted(given)}; name a folder")
    if "://" in given:
        scheme, _, rest = given.partition("://")
        if scheme not in ("file", "local"):
            raise InvalidArgumentError(
                f"{argument} {quoted(given)} is not a local folder, and no other stores are supported so far"
            )
        given = rest
    try:
        path = os.path.realpath(os.path.expanduser(given))
    except OSError as error:
        # Only a relative path asks for the working folder.
        raise NotFoundError(
            f"the {argument} folder {quoted(given)} is relative, and the working folder is not there any "
            "more; change to another, or pass an absolute path"
        ) from error
    try:
        st = os.stat(path)
    except PermissionError as error:
        message = f"the {argument} folder {quoted(given)} may not be read by this user"
        raise UnreadableError(message) from error
    except OSError as error:
        message = f"the {argument} folder {quoted(given)} does not exist; create it or name another"
        raise NotFoundError(message) from error
    if not stat.S_ISDIR(st.st_mode):
        raise IsFileError(f"{argument} {quoted(given)} is a file; name the folder that holds skill folders")
    if filesystem_type(path) in _PSEUDO:
        raise InvalidArgumentError(f"{argument} {quoted(given)} lies on a pseudo filesystem of the kernel")
    if not _is_utf8(path):
        raise InvalidArgumentError(f"the path of the {argument} folder is not valid UTF-8; rename it")
    return path


# `LocalStore` is checked against the protocol where it is used; these two lines check the handles.
_HANDLE: type[Handle] = LocalHandle
_FOLDER: type[FolderHandle] = LocalFolder
