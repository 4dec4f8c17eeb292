"""Files and folders that are written beside the place that they are to have, under a temporary name.

Whoever writes one holds a lock on it. One that nobody holds is what a killed process has left: it goes when
the next one is written for the same place. Where nothing can be locked, nothing of that is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator

__all__ = ["file_beside", "folder_beside"]

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def folder_beside(path: str) -> Iterator[str]:
    """A new, empty folder in that of a path, which is removed in the end, if it is still there.

    Raises:
        OSError: It cannot be made.
    """
    _sweep(path)
    while True:
        temporary = _temporary(path)
        os.mkdir(temporary)
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(temporary, _READ | os.O_DIRECTORY)
            if _hold(fd, temporary):
                break
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(fd)


@contextlib.contextmanager
def file_beside(path: str) -> Iterator[tuple[int, str]]:
    """A new, empty file in the folder of a path, and its handle; it is removed in the end, if it is there.

    Raises:
        OSError: It cannot be made.
    """
    _sweep(path)
    while True:
        temporary = _temporary(path)
        fd = os.open(temporary, _NEW, 0o666)
        if _hold(fd, temporary):
            break
    try:
        yield fd, temporary
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        os.close(fd)


def _temporary(path: str) -> str:
    above, name = os.path.split(path)
    return os.path.join(above, f".{name[:50]}.{secrets.token_hex(8)}~")


def _hold(fd: int, temporary: str) -> bool:
    """Lock what was just made; false, and it is closed, where another has swept it away before."""
    with contextlib.suppress(OSError):  # where nothing can be locked, nothing is swept either
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
    if os.path.lexists(temporary):
        return True
    os.close(fd)
    return False


def _sweep(path: str) -> None:
    """Remove what killed processes have left of what was to have a path."""
    above, name = os.path.split(path)
    is_temporary = re.compile(re.escape(f".{name[:50]}.") + "[0-9a-f]{16}~").fullmatch
    with contextlib.suppress(OSError):
        for left in filter(is_temporary, os.listdir(above)):
            with contextlib.suppress(OSError):
                _remove(os.path.join(above, left))


def _remove(left: str) -> None:
    fd = os.open(left, _READ)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            shutil.rmtree(left, ignore_errors=True)
        elif stat.S_ISREG(mode):
            os.unlink(left)
    finally:
        os.close(fd)
