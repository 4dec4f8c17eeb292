"""What the system says of what is mounted where."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["filesystem_type", "is_bare"]

_TABLE = Path("/proc/self/mountinfo")


def filesystem_type(path: str) -> str | None:
    """The type of the filesystem that a path lies on, such as `ext4`; None where the system does not say.

    Raises:
        OSError: There is no such path.
    """
    st = os.stat(path)
    device = f"{os.major(st.st_dev)}:{os.minor(st.st_dev)}"
    with contextlib.suppress(OSError):
        for line in _TABLE.read_text(errors="replace").splitlines():
            fields, _, rest = line.partition(" - ")
            if fields.split()[2] == device:
                return rest.split()[0]
    return None


def is_bare(path: str, before: int) -> bool:
    """Whether a folder is the empty one that something was mounted on, rather than one that was made anew.

    Args:
        path: Its path.
        before: Handle of the folder that was there before, which is another one.
    """
    try:
        if os.stat(path).st_dev == os.fstat(before).st_dev and _is_mounted(before):
            return False
        if os.listdir(path):
            return False
    except OSError:
        return False  # which is for the next opening to say
    try:
        return bool(_names(before))  # what was empty before may well be empty now
    except FileNotFoundError:
        return False  # it was removed
    except OSError:
        return True


def _names(folder: int) -> list[str]:
    anew = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.listdir(anew)
    finally:
        os.close(anew)


def _is_mounted(handle: int) -> bool:
    """Whether the mount in which something was opened is still there; True where the system does not say."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/self/fdinfo/{handle}").read_text().splitlines():
            name, _, number = line.partition(":")
            if name == "mnt_id":
                mounts = _TABLE.read_text(errors="replace").splitlines()
                return any(mount.split(" ", 1)[0] == number.strip() for mount in mounts)
    return True
