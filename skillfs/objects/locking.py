"""How those who work on one local folder of objects keep out of each other's way: by locks on two files.

Whoever is at work has locked the file `lock`, with others or alone. Whoever wants to do so holds `turn` in
the same way until it has: while somebody waits to be alone nobody else begins, so that it gets its turn.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from typing import NoReturn

from skillfs.errors import StoreUnavailableError
from skillfs.objects.system import telling, told

__all__ = ["locked", "refuse_busy"]

WAIT_SECONDS = 5.0

_LOCK, _TURN = "lock", "turn"


@contextlib.contextmanager
def locked(root: int, *, alone: bool, wait: bool) -> Iterator[None]:
    """Hold the lock of a folder; see `ObjectFolder.holding`. It ends with the process.

    Args:
        root: Handle of the folder.
        alone: Whether nobody else may hold it.
        wait: Whether to wait for others.
    """
    kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    until = time.monotonic() + (WAIT_SECONDS if wait else 0)
    with contextlib.ExitStack() as stack:
        with _locked(root, _TURN, kind, until):
            stack.enter_context(_locked(root, _LOCK, kind, until))
        yield


@contextlib.contextmanager
def _locked(root: int, name: str, kind: int, until: float) -> Iterator[None]:
    with telling():
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=root)
    pid = os.getpid()
    _held.add(fd)
    try:
        _lock(fd, kind, until)
        yield
    finally:
        # In a forked child it was closed already, and the number may be another file's.
        if pid == os.getpid():
            _held.discard(fd)
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was just forked may not have let go yet
            os.close(fd)


def _lock(fd: int, kind: int, until: float) -> None:
    pause = 0.005
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() + pause > until:
                refuse_busy(alone=kind == fcntl.LOCK_EX)
        except OSError as error:
            raise told(error) from error
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


def refuse_busy(*, alone: bool) -> NoReturn:
    """Refuse to work on an object folder while others do.

    Args:
        alone: Whether nobody else may be at work.
    """
    if alone:
        raise StoreUnavailableError(
            "snapshots are being taken, or objects removed, in the object folder; try again when that is "
            "done (in a remote folder who was killed at work counts for an hour)"
        )
    raise StoreUnavailableError(
        "snapshots or objects are being removed from the object folder; try again when that is done"
    )


_held: set[int] = set()
"""Locks on folders: a forked child would hold them on when its parent has let go."""


def _let_go() -> None:
    for fd in _held:
        with contextlib.suppress(OSError):
            os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)
