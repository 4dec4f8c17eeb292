"""What the system says of a folder of objects, and what is asked of it to have things on the disk."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

from skillfs.errors import (
    IntegrityError,
    SkillFSError,
    StoreUnavailableError,
    UnreadableError,
    no_handle_left,
)

__all__ = ["OTHER_KIND", "sync_filesystem", "sync_folder", "telling", "told"]

OTHER_KIND = frozenset((errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY))
"""Codes of errors that say that something else lies at the place of an object."""


@contextlib.contextmanager
def telling() -> Iterator[None]:
    """Errors of the system come out as what they mean; that there is no such file passes through."""
    try:
        yield
    except SkillFSError:
        raise
    except FileNotFoundError as error:
        error.filename = error.filename2 = None
        raise
    except OSError as error:
        raise told(error) from error


def told(error: OSError) -> SkillFSError:
    """What an error of the system means for an object folder, without any path of the machine."""
    if isinstance(error, SkillFSError):
        return error
    if (full := no_handle_left(error)) is not None:
        return full
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreUnavailableError(
            "the object folder is full; free some space, or remove snapshots and run: skillfs snapshot gc"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return UnreadableError(
            "this user may not read or write the object folder; mend its permissions, or name another"
        )
    if error.errno == errno.EROFS:
        return StoreUnavailableError(
            "the object folder lies on a filesystem that cannot be written to; name another"
        )
    if error.errno in OTHER_KIND:
        return IntegrityError(
            "a link or a folder lies in the object folder where an object or folder of it belongs; remove it"
        )
    return StoreUnavailableError(
        f"the object folder cannot be read or written now ({error.strerror}); try again"
    )


@cache
def _syncfs() -> Any:
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


def sync_filesystem(fd: int) -> bool:
    """Bring all of the filesystem that a file lies in to the disk; False where that cannot be asked for."""
    if (call := _syncfs()) is None:
        return False
    if call(fd):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return True


def sync_folder(fd: int) -> None:
    """Bring the names in a folder to the disk."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a filesystem that keeps no such promise for folders
            raise
