"""Open what lies below a folder and nothing else, whatever links say and whoever renames meanwhile.

Names are made, changed and removed in the same way: in a folder that was opened so, by its handle.

A path that was checked and is then opened by name can lead elsewhere by the time it is opened. So nothing is
checked by name here: every opening starts at a handle of the root and follows no link at all, neither in the
middle of the path nor at its end. Links that may be followed are resolved before, by the index, into the path
of their target.

Two methods give the same answers. `openat2` is one system call that the kernel itself confines (Linux 5.6 and
later); `walk` opens component after component, each relative to the handle of the one before. The environment
variable `SKILLFS_OPEN` forces one of them.

What is *not* prevented: a file that is a hard link to one outside, a mount below the root, and a folder that
is moved out of the root in the middle of a walk: what lies below it is still found. The kernel's own
confinement notices that.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Literal, NoReturn, TypeVar

from skillfs.errors import InvalidArgumentError, quoted

__all__ = ["Method", "Opener", "open_root", "opener"]

Method = Literal["openat2", "walk"]
T = TypeVar("T")

# Absent on macOS, where the walk asks for reading instead, and needs that permission on each folder.
_O_PATH: int = getattr(os, "O_PATH", os.O_RDONLY)

# O_NONBLOCK: a FIFO without a writer would hold the reader for ever. O_NOCTTY: a terminal must not become
# the process's own.
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP = _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HANDLE = _O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC

# The kernel's, in bytes, with the closing NUL. The walk keeps to it so that both methods agree.
_PATH_MAX = 4096
_UNNAMEABLE = frozenset((b"", b".", b".."))
_NO_DRIVER = frozenset((errno.ENXIO, errno.ENODEV))  # a socket, or a device that nothing drives

# From linux/openat2.h.
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08

# The kernel says EAGAIN after a race, which passes, but also for a leased file, which may last.
_ATTEMPTS = 16


def open_root(path: str) -> int:
    """Open the folder below which everything is to be confined.

    The path itself is trusted: links in it, and at its end, are followed.

    Returns:
        A file descriptor, not inherited by other programs. The caller closes it.

    Raises:
        OSError: As the system says it; a file gives ENOTDIR.
    """
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


class Opener(ABC):
    """Opens paths below the handle of a root. Holds no state; one serves every thread and every root.

    Paths are store paths: components joined by `/`, the root itself being the empty string. A path with a
    leading, trailing or doubled slash, a `.` or `..`, a NUL or an unpaired surrogate names nothing: ENOENT.

    Every method raises the `OSError` of the system, carrying the store path and no host path: ELOOP where a
    component is a link, ENOTDIR where one is no folder, ENOENT, EACCES, ENAMETOOLONG for a component over 255
    bytes or a path over 4,095, EAGAIN for a file on which another process holds a lease, EXDEV (by `openat2`
    alone) for what was moved out of the root during the call.

    Attributes:
        method: Name of the way it goes.
    """

    __slots__ = ()

    method: Method

    def file(self, root_fd: int, path: str) -> int:
        """Open a regular file for reading.

        Opening a FIFO wakes a writer that waits for a reader, who is gone at once. Where the kind of a file
        is not known, ask `stat` before: it touches nothing.

        Args:
            root_fd: What `open_root` returned.
            path: Store path of the file.

        Returns:
            A file descriptor at byte 0, not inherited by other programs. The caller closes it.

        Raises:
            IsADirectoryError: It is a folder.
            FileNotFoundError: It is missing, or a FIFO, a socket or a device.
            OSError: See the class.
        """
        try:
            fd = self._open(root_fd, path, _FILE)
        except OSError as error:
            if error.errno in _NO_DRIVER:
                _refuse(errno.ENOENT, path)
            raise
        try:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                _refuse(errno.EISDIR if stat.S_ISDIR(mode) else errno.ENOENT, path)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def folder(self, root_fd: int, path: str) -> int:
        """Open a folder for listing; its position is its own, also for the root.

        Args:
            root_fd: What `open_root` returned.
            path: Store path of the folder; empty for the root.

        Returns:
            A file descriptor, not inherited by other programs. The caller closes it.

        Raises:
            NotADirectoryError: It is a file of any kind.
            OSError: See the class.
        """
        return self._open(root_fd, path, _FOLDER)

    @contextmanager
    def holding(self, root_fd: int, path: str) -> Iterator[tuple[int, bytes]]:
        """Open the folder that holds a name, for calls that make, change or remove what bears the name.

        What the name is, and whether it is there, is not looked at. A call that takes both never leaves the
        folder, as long as it does not follow a link that bears the name.

        Args:
            root_fd: What `open_root` returned.
            path: Store path; the root has no name that could be changed.

        Yields:
            A file descriptor of the folder, closed afterwards, and the last component, for `dir_fd`.

        Raises:
            OSError: EBUSY for the root; else see the class.
        """
        raw = _encoded(path)
        if not path:
            _refuse(errno.EBUSY, path)
        if len(raw) >= _PATH_MAX:
            _refuse(errno.ENAMETOOLONG, path)
        above, _, _ = path.rpartition("/")
        fd = self.folder(root_fd, above)
        try:
            yield fd, raw.rpartition(b"/")[2]
        finally:
            os.close(fd)

    @abstractmethod
    def stat(self, root_fd: int, path: str) -> os.stat_result:
        """Look at a file or folder without opening it; a link at the end of the path is looked at itself.

        Needs no permission on the file, only to search the folders that lead to it.

        Args:
            root_fd: What `open_root` returned.
            path: Store path; empty for the root.

        Raises:
            OSError: See the class.
        """

    @abstractmethod
    def _open(self, root_fd: int, path: str, flags: int) -> int:
        """Open `path` below `root_fd`; `flags` is `_FILE`, `_FOLDER` or `_HANDLE`."""


def opener(method: str | None = None) -> Opener:
    """Choose the way to open.

    Args:
        method: `openat2` or `walk`. Without it the environment variable `SKILLFS_OPEN` decides, and without
            that `openat2` is taken where the kernel has it and a container's rules let it pass, else `walk`.

    Raises:
        InvalidArgumentError: The name is unknown, or `openat2` was named and is not to be had.
    """
    chosen = method or os.environ.get("SKILLFS_OPEN") or None
    if chosen not in (None, "openat2", "walk"):
        raise InvalidArgumentError(
            f"{quoted(chosen)} is no way to open files; set SKILLFS_OPEN to openat2 or walk, or unset it"
        )
    if chosen != "walk":
        confined = _openat2()
        if confined is not None:
            return confined
        if chosen == "openat2":
            raise InvalidArgumentError("openat2 is not to be had here; set SKILLFS_OPEN to walk, or unset it")
    return _WALK


class _Openat2(Opener):
    """One system call, confined by the kernel."""

    __slots__ = ("_how", "_number", "_size", "_syscall")

    method = "openat2"

    def __init__(self) -> None:
        self._syscall = ctypes.CDLL(None, use_errno=True)["syscall"]
        self._syscall.restype = ctypes.c_long
        # syscall() is variadic, and ready-made arguments of the right width cost 2.9 µs a call where a
        # declaration (argtypes) costs 3.2. They are only ever read, by the kernel too: threads share them.
        self._number = ctypes.c_long(437)  # the same on every architecture but alpha and the MIPS family
        resolve = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
        # struct open_how of linux/openat2.h: flags, mode, resolve.
        self._how = {flags: (ctypes.c_uint64 * 3)(flags, 0, resolve) for flags in (_FILE, _HANDLE)}
        # With O_NOFOLLOW the kernel takes a link at the end for itself and says ENOTDIR, without it ELOOP.
        self._how[_FOLDER] = (ctypes.c_uint64 * 3)(_FOLDER & ~os.O_NOFOLLOW, 0, resolve)
        self._size = ctypes.c_size_t(24)

    def stat(self, root_fd: int, path: str) -> os.stat_result:
        fd = self._open(root_fd, path, _HANDLE)
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def _open(self, root_fd: int, path: str, flags: int) -> int:
        raw = _encoded(path)
        how = self._how[flags]
        attempts = _ATTEMPTS
        while True:
            fd: int = self._syscall(self._number, root_fd, raw, how, self._size)
            if fd >= 0:
                return fd
            code = ctypes.get_errno()
            if code == errno.EAGAIN and attempts > 1:
                attempts -= 1
            elif code != errno.EINTR:
                _refuse(code, path)


class _Walk(Opener):
    """A handle for each component, opened relative to the one before."""

    __slots__ = ()

    method = "walk"

    def stat(self, root_fd: int, path: str) -> os.stat_result:
        return self._reach(root_fd, path, lambda name, at: os.stat(name, dir_fd=at, follow_symlinks=False))

    def _open(self, root_fd: int, path: str, flags: int) -> int:
        return self._reach(root_fd, path, lambda name, at: os.open(name, flags, dir_fd=at))

    def _reach(self, root_fd: int, path: str, act: Callable[[bytes, int], T]) -> T:
        """Call `act` with the last component and the handle of the folder that holds it."""
        raw = _encoded(path)
        if len(raw) >= _PATH_MAX:
            _refuse(errno.ENAMETOOLONG, path)
        *folders, last = raw.split(b"/")
        at, name = root_fd, last
        try:
            for name in folders:
                below = os.open(name, _STEP, dir_fd=at)
                # In this order nothing is closed twice: by then the number may be another thread's.
                left, at = at, below
                if left != root_fd:
                    os.close(left)
            name = last
            return act(name, at)
        except OSError as error:
            if error.errno == errno.ENOTDIR and _is_link(name, at):
                # openat2 says ELOOP for a link where a folder is wanted, and so does this.
                _refuse(errno.ELOOP, path)
            error.filename = path
            raise
        finally:
            if at != root_fd:
                os.close(at)


_WALK = _Walk()


@cache
def _openat2() -> _Openat2 | None:
    """The confined system call, if one try shows that it works here.

    Old kernels answer ENOSYS, old container profiles EPERM; after any other failure, too, the walk is right.
    """
    if sys.platform != "linux":
        return None
    try:
        found = _Openat2()
        root = os.open("/", _STEP)
        try:
            os.close(found._open(root, "", _HANDLE))
        finally:
            os.close(root)
    except (OSError, AttributeError):
        return None
    return found


def _encoded(path: str) -> bytes:
    """The bytes of a store path, `.` for the root; refuses what can be no store path.

    Always UTF-8: `os.open` with a string would go by the locale. A NUL would end the path early inside the
    kernel.
    """
    try:
        raw = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        _refuse(errno.ENOENT, path)
    if not raw:
        return b"."
    if b"\0" in raw or not _UNNAMEABLE.isdisjoint(raw.split(b"/")):
        _refuse(errno.ENOENT, path)
    return raw


def _is_link(name: bytes, at: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _refuse(code: int, path: str) -> NoReturn:
    raise OSError(code, os.strerror(code), path) from None
