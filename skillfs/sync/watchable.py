"""Which stores can be watched, and what keeps the others from it."""

from __future__ import annotations

import errno
import os
import sys

from skillfs.errors import InvalidArgumentError, StoreUnavailableError, quoted
from skillfs.stores.local import LocalStore
from skillfs.stores.mount_table import filesystem_type

__all__ = ["is_to_be_polled", "why_not_watched", "why_refused"]

POLL_VARIABLE = "SKILLFS_WATCH"
"""Environment variable: `poll` has stores looked at now and then instead of watched."""

# Where other machines change files without this kernel's knowing.
_NETWORK = (
    *("nfs", "cifs", "smb", "9p", "fuse", "afs", "ceph", "gluster", "lustre", "ocfs2", "gfs2", "virtiofs"),
    *("vboxsf", "vmhgfs", "prl_fs", "drvfs", "osxfs", "fakeowner", "davfs", "afpfs"),
    *("beegfs", "gpfs", "orangefs", "pvfs", "coda", "ncp"),
)


def is_to_be_polled() -> bool:
    """Whether the environment asks for no watching at all.

    Raises:
        InvalidArgumentError: It says something that is not understood.
    """
    found = os.environ.get(POLL_VARIABLE, "")
    if found not in ("", "auto", "poll"):
        raise InvalidArgumentError(f'{POLL_VARIABLE} is {quoted(found)}; set it to "poll" or "auto"')
    return found == "poll"


def why_not_watched(store: object) -> str | None:
    """Why a store cannot be watched; None when it can.

    Raises:
        StoreUnavailableError: Its root folder is not there.
        InvalidArgumentError: The environment says something that is not understood.
    """
    if not isinstance(store, LocalStore):
        return "only folders of this machine can be watched"
    if is_to_be_polled():
        return f"{POLL_VARIABLE} says so"
    if not sys.platform.startswith("linux"):
        return "watching needs inotify, which this system does not have"
    for folder in (store.root, *store.followed):
        try:
            kind = filesystem_type(folder) or ""
        except OSError as error:
            message = "the store's root folder is not there; try again when it is back"
            raise StoreUnavailableError(message) from error
        if kind.startswith(_NETWORK):
            return f"on {kind} other machines may change files unnoticed"
    return None


def why_refused(error: OSError) -> str:
    """What the kernel means by an error with which it refused to watch."""
    if error.errno == errno.ENOSPC:
        return "this user may not watch more folders; raise fs.inotify.max_user_watches"
    if error.errno == errno.EMFILE:
        return (
            "this user may not watch more stores, or this process not open more files; raise "
            "fs.inotify.max_user_instances, or ulimit -n"
        )
    return f"folders cannot be watched ({error.strerror or type(error).__name__})"
