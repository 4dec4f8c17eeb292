"""libfuse 3, by mfusepy: loading it, and what it takes to serve it well from Python."""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import shutil
import stat
import threading
from ctypes.util import find_library
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from skillfs.errors import InvalidArgumentError, StoreUnavailableError
from skillfs.fuse.view import Node, NodeKind

if TYPE_CHECKING:
    from skillfs.fuse.operations import Operations

__all__ = ["check_library", "errno_of", "run"]

DEVICE = "/dev/fuse"
FUSERMOUNT = "fusermount3"

_FILL_DIR_PLUS = 2  # `FUSE_FILL_DIR_PLUS` of libfuse's fuse.h
_READDIR_PLUS = 1  # `FUSE_READDIR_PLUS`

_THREADS = 10
"""Requests that are answered at once; what Python does of them takes turns, waiting for a store does not."""

_log = logging.getLogger("skillfs.fuse")

_MODES = {
    NodeKind.FOLDER: stat.S_IFDIR | 0o555,
    NodeKind.FILE: stat.S_IFREG | 0o444,
    NodeKind.LINK: stat.S_IFLNK | 0o777,
}
_EXECUTABLE = 0o111


def check_library() -> None:
    """Make sure that this machine can serve a mount point.

    Raises:
        StoreUnavailableError: mfusepy, libfuse 3, its `fusermount3` or the kernel's device is missing; naming
            what to install.
    """
    if find_spec("mfusepy") is None:
        raise StoreUnavailableError(
            "a mount point needs the mfusepy package; install it: pip install 'fsspec-skillfs[fuse]'"
        )
    if find_library("fuse3") is None or shutil.which(FUSERMOUNT) is None:
        raise StoreUnavailableError(
            "a mount point needs libfuse 3 and fusermount3; install them, on Debian: apt-get install fuse3"
        )
    if not os.path.exists(DEVICE):
        raise StoreUnavailableError(
            f"a mount point needs {DEVICE}, which the kernel does not offer here; load the module: "
            f"modprobe fuse, or in a container pass --device {DEVICE} --cap-add SYS_ADMIN"
        )
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        raise StoreUnavailableError(f"this user may not open {DEVICE}; let it be readable and writable")


def run(operations: Operations, mountpoint: str, *, allow_other: bool = False) -> None:
    """Mount, and answer the kernel until the mount point is unmounted.

    Signals are left to the caller: libfuse takes only those that nobody handles.

    Args:
        operations: What answers.
        mountpoint: An empty folder.
        allow_other: Whether users other than this one may look in.

    Raises:
        StoreUnavailableError: See `check_library`; or the kernel refuses to mount.
    """
    check_library()
    # mfusepy takes libfuse 2 where it finds that first.
    os.environ.setdefault("FUSE_LIBRARY_NAME", "fuse3")
    import mfusepy

    invalidate = mfusepy._libfuse.fuse_invalidate_path
    invalidate.argtypes = [ctypes.c_void_p, ctypes.c_char_p]

    class Session(mfusepy.FUSE):  # type: ignore[misc]  # mfusepy tells no types
        """libfuse with attributes in listings, and errors of skillfs told as their numbers."""

        def _wrapper(self, function: Any, *arguments: Any, **options: Any) -> int:
            _keep_thread()
            try:
                return function(*arguments, **options) or 0
            except BaseException as error:
                # Nothing may pass into libfuse, which would end the process.
                return -errno_of(error)

        def getattr_fuse_3(self, path: bytes, buffer: Any, info: Any) -> int:
            ctypes.memset(buffer, 0, ctypes.sizeof(mfusepy.c_stat))
            handle = info.contents.fh if info else None
            node = self.operations.getattr(path.decode("utf-8", "surrogateescape"), handle)
            _fill(buffer.contents, node)
            return 0

        def readdir_fuse_3(
            self, path: bytes, buffer: Any, filler: Any, offset: int, info: Any, flags: int
        ) -> int:
            # mfusepy tells the kernel names alone, and each `stat` of a listing is a call of its own then.
            # With attributes libfuse wants offsets, by which the kernel goes on where its buffer was full.
            state = mfusepy.c_stat()
            plus = _FILL_DIR_PLUS if flags & _READDIR_PLUS else 0
            for number, name, node, known in self.operations.listed(info.contents.fh, offset):
                _fill(state, node)
                if filler(buffer, name, state, number, plus if known else 0):
                    break
            return 0

    def ask_again(path: str) -> None:
        # What the kernel does not know it need not forget: that it fails then does not matter.
        context = mfusepy._libfuse.fuse_get_context().contents
        invalidate(context.fuse, path.encode("utf-8", "surrogateescape"))

    operations.ask_again = ask_again
    try:
        Session(
            operations,
            mountpoint,
            raw_fi=True,
            foreground=True,
            ro=True,
            # Modes are for the kernel to check; else it takes it that everyone may execute everything.
            default_permissions=True,
            fsname="skillfs",
            subtype="skillfs",
            allow_other=allow_other,
            max_threads=_THREADS,
            max_idle_threads=_THREADS,
        )
    except RuntimeError as error:
        raise StoreUnavailableError(
            "the kernel refused to mount there; libfuse told why on standard error: mend that and try again"
        ) from error


def errno_of(error: BaseException) -> int:
    """The number by which the kernel tells an error; what should not happen is logged."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    if isinstance(error, InvalidArgumentError):
        return errno.ENOENT  # no name that can be looked up
    _log.error("a request of the kernel failed", exc_info=error)
    return errno.EIO


def _fill(state: Any, node: Node) -> None:
    """Write a node into a `struct stat`, of which everything else is zero or of another node."""
    mode = _MODES[node.kind]
    state.st_mode = mode | _EXECUTABLE if node.executable else mode
    state.st_ino = node.number
    # One for folders too: how many they hold is not told by it.
    state.st_nlink = 1
    state.st_uid = _UID
    state.st_gid = _GID
    state.st_size = node.size
    state.st_blocks = (node.size + 511) // 512
    seconds, nanoseconds = divmod(node.modified, 1_000_000_000)
    state.st_mtimespec.tv_sec = state.st_atimespec.tv_sec = seconds
    state.st_mtimespec.tv_nsec = state.st_atimespec.tv_nsec = nanoseconds
    state.st_ctimespec.tv_sec, state.st_ctimespec.tv_nsec = divmod(node.changed, 1_000_000_000)


_UID, _GID = os.getuid(), os.getgid()

_kept: set[int] = set()


def _keep_thread() -> None:
    """Let what Python keeps for a thread of libfuse outlive the call.

    To Python such a thread begins anew with each call, with all that is kept for a thread: the connections to
    the index would be opened again each time. libfuse ends none of its threads before the last request.
    """
    ident = threading.get_ident()
    if ident not in _kept:
        _kept.add(ident)
        ctypes.pythonapi.PyGILState_Ensure()
