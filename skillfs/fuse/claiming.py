"""The folder that is to be a mount point: whether it can be one, and that nobody else takes it meanwhile."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Collection, Iterator

from skillfs.errors import (
    InvalidArgumentError,
    IsFileError,
    NotFoundError,
    StoreUnavailableError,
    UnreadableError,
    quoted,
)
from skillfs.fuse.mountpoints import State, mount_point_at, resolved, states_of, unmount

__all__ = ["claimed", "refuse_within"]


@contextlib.contextmanager
def claimed(mountpoint: str | os.PathLike[str], *, force: bool = False) -> Iterator[str]:
    """Check a folder that is to be a mount point, and keep others of skillfs from mounting there meanwhile.

    Args:
        mountpoint: The folder; `~` is expanded and links are followed.
        force: Whether a mount point there whose server is gone, or does not answer, is unmounted first.

    Yields:
        Its path without links.

    Raises:
        InvalidArgumentError: It is no path, not empty, a mount point already, or about to become one.
        NotFoundError: It is not there.
        IsFileError: It is a file.
        UnreadableError: It may not be read.
        StoreUnavailableError: It cannot be unmounted, or cannot be read now.
    """
    path = resolved(mountpoint)
    shown = quoted(os.fspath(mountpoint))
    while (point := mount_point_at(path)) is not None:
        (standing,) = states_of([point])
        if standing.state == State.SERVED:
            raise InvalidArgumentError(f"{shown} is a mount point already; first: skillfs unmount {shown}")
        if not force:
            what = "is gone" if standing.state == State.STALE else "does not answer"
            raise InvalidArgumentError(
                f"{shown} is a mount point already, and its server {what}; "
                "--force (force=True) unmounts it and mounts anew"
            )
        unmount(point, shown, lazily=True)
    folder = _opened(path, shown)
    try:
        # Before it is looked at: whoever had it until now may have mounted there.
        _lock(folder, shown)
        if mount_point_at(path) is not None:
            raise InvalidArgumentError(f"{shown} is a mount point already; first: skillfs unmount {shown}")
        if os.listdir(folder):
            raise InvalidArgumentError(
                f"{shown} is not empty, and what it holds would be hidden; pass an empty folder"
            )
        yield path
    finally:
        os.close(folder)


def _opened(path: str, shown: str) -> int:
    try:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise IsFileError(f"{shown} is a file; pass an empty folder")
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except IsFileError:
        raise
    except FileNotFoundError:
        raise NotFoundError(f"{shown} is not there; make the folder first: mkdir {shown}") from None
    except NotADirectoryError:
        raise IsFileError(f"a file is on the way to {shown}; pass an empty folder") from None
    except PermissionError:
        raise UnreadableError(f"{shown} may not be read by this user; pass a folder of your own") from None
    except OSError as error:
        if error.errno == errno.ENOTCONN:
            raise InvalidArgumentError(
                f"{shown} is a mount point whose server is gone, and none of yours by skillfs; "
                "unmount it: fusermount3 -u MOUNTPOINT"
            ) from None
        raise StoreUnavailableError(
            f"{shown} cannot be opened ({error.strerror}); pass another folder"
        ) from None


def _lock(folder: int, shown: str) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InvalidArgumentError(
            f"{shown} is just becoming a mount point by another process; pass another folder"
        ) from None
    except OSError:
        pass  # a filesystem without locks


def refuse_within(path: str, mountpoint: str | os.PathLike[str], folders: Collection[str]) -> None:
    """Refuse a mount point in a folder that is served: its server would wait for itself.

    Args:
        path: The mount point as `claimed` gives it.
        mountpoint: The same as the caller sent it.
        folders: Absolute paths without links.

    Raises:
        InvalidArgumentError: It is one of the folders, or lies in one.
    """
    for folder in folders:
        if os.path.commonpath((path, folder)) == folder:
            raise InvalidArgumentError(
                f"{quoted(os.fspath(mountpoint))} lies in the store, which would then hold itself; "
                "pass a folder outside"
            )
