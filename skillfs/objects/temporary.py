"""The files of a local folder of objects that are being written, and have not got their names yet."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterable

from skillfs.objects.folder import ObjectInfo
from skillfs.objects.system import sync_filesystem, sync_folder, telling
from skillfs.stores.confine import Opener

__all__ = ["TMP", "Temporary", "sweep"]

TMP = "tmp"
"""Name of the folder of all temporary files."""

MOST_WAITING = 2_048
"""Files that are written before they are brought to the disk and renamed: what a kill can cost."""

MOST_WAITING_BYTES = 64 << 20

FEW = 8
"""Up to so many files or folders are brought to the disk one by one, and the rest of the disk is let be."""

ABANDONED_SECONDS = 86_400
"""Age from which on a temporary folder belongs to nobody, where locks cannot tell."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_is_temporary = re.compile("[0-9a-f]{16}").fullmatch


class Temporary:
    """The files that a writer has not given their names yet, in a folder of its own.

    Args:
        way: Opens below handles.
        tmp: Handle of the folder of all temporary files; used as long as this is.

    Attributes:
        fd: Handle of the folder.
        waiting: Temporary name, and name it is to have, of each file.
        changed: Folders of objects that have got new names.
    """

    def __init__(self, way: Opener, tmp: int) -> None:
        self.fd = -1
        self.waiting: list[tuple[str, str]] = []
        self.changed: set[str] = set()
        self._way = way
        self._tmp = tmp
        self._pid = os.getpid()
        self._count = self._size = 0
        while not self._open():
            pass

    def _open(self) -> bool:
        """Make the folder; false when another sweeps it away before it is locked."""
        self._folder = secrets.token_hex(8)
        os.mkdir(self._folder, 0o700, dir_fd=self._tmp)
        try:
            fd = self._way.folder(self._tmp, self._folder)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        except OSError:
            pass  # where nothing can be locked, nothing is swept either before it is old
        if not os.access(self._folder, os.F_OK, dir_fd=self._tmp):
            os.close(fd)
            return False
        self.fd = fd
        return True

    @property
    def is_full(self) -> bool:
        """Whether enough has been written for it to be worth bringing to the disk."""
        return len(self.waiting) >= MOST_WAITING or self._size >= MOST_WAITING_BYTES

    def write(self, name: str, content: Iterable[bytes]) -> None:
        """Write a file; when that fails nothing of it is left."""
        self._count += 1
        written = str(self._count)
        with telling():
            fd = os.open(written, _NEW, 0o600, dir_fd=self.fd)
        try:
            try:
                for block in content:
                    with telling():
                        left = memoryview(block)
                        while left:
                            left = left[os.write(fd, left) :]
                    self._size += len(block)
            finally:
                os.close(fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(written, dir_fd=self.fd)
            raise
        self.waiting.append((written, name))

    def sync(self) -> None:
        """Bring what waits to the disk."""
        if len(self.waiting) > FEW and sync_filesystem(self.fd):
            return
        for written, _ in self.waiting:
            fd = os.open(written, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def named(self) -> None:
        """Nothing waits any more: all of it has its name."""
        self.waiting.clear()
        self._size = 0

    def settle(self, root: int) -> None:
        """Bring the names that were given to the disk.

        Args:
            root: Handle of the folder of objects.
        """
        if len(self.changed) <= FEW or not sync_filesystem(root):
            for path in sorted(self.changed):
                fd = self._way.folder(root, path)
                try:
                    sync_folder(fd)
                finally:
                    os.close(fd)
        self.changed.clear()

    def close(self) -> None:
        """Leave nothing behind."""
        # In a forked child the files are the parent's still.
        if self._pid == os.getpid():
            with contextlib.suppress(OSError):
                for name in os.listdir(self.fd):
                    os.unlink(name, dir_fd=self.fd)
                os.rmdir(self._folder, dir_fd=self._tmp)
        os.close(self.fd)


def sweep(way: Opener, tmp: int, *, remove: bool = True) -> list[ObjectInfo]:
    """What killed writers have left in the folder of temporary files.

    Args:
        way: Opens below handles.
        tmp: Handle of the folder.
        remove: Whether to take it away.
    """
    found: list[ObjectInfo] = []
    for folder in filter(_is_temporary, os.listdir(tmp)):
        with contextlib.suppress(OSError):
            fd = way.folder(tmp, folder)
            try:
                if not _is_abandoned(fd):
                    continue
                for name in os.listdir(fd):
                    st = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    found.append(ObjectInfo(f"{TMP}/{folder}/{name}", st.st_size, st.st_mtime_ns))
                    if remove:
                        os.unlink(name, dir_fd=fd)
                if remove:
                    os.rmdir(folder, dir_fd=tmp)
            finally:
                os.close(fd)
    return found


def _is_abandoned(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # locks cannot tell here
        return os.fstat(fd).st_mtime < time.time() - ABANDONED_SECONDS
    return True
