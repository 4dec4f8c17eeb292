"""Connections to SQLite files: how many a process keeps, and how they get along with forks."""

from __future__ import annotations

import contextlib
import os
import resource
import sqlite3
import threading
import time
from collections import deque
from typing import Any
from weakref import ref

__all__ = [
    "FILES",
    "MOST_CONNECTIONS",
    "MOST_FORK_SECONDS",
    "ClosingConnection",
    "Connection",
    "forget_connections",
    "inside_sqlite",
    "kept",
    "make_room",
]

MOST_FORK_SECONDS = 10.0
"""How long a fork waits for readers and writers before it takes the risk."""

MOST_CONNECTIONS = 512
"""How many connections to files a process keeps, unless it has more threads."""

_SHARE = 8
"""A thread keeps this part of them at most: what it holds it holds as long as it lives, in use or not. And of
a file that one thread has open SQLite closes no handle that another has done with."""

FILES = 6
"""Files that a connection may hold: the pair, and beside each a log and its map."""


class _InsideSQLite:
    """Marks threads that are inside SQLite, so that no fork copies its locks while one of them holds any.

    A copied lock is never released: the child would hang in its first call. Writers hold the lock of their
    database and are waited for by that.
    """

    def __init__(self) -> None:
        # The garbage collector may close a connection of this thread wherever it likes, also in here.
        self._door = threading.RLock()
        self._lock = threading.RLock()
        self._count = 0
        self._thread = _Depth()

    def __enter__(self) -> None:
        thread = self._thread
        if thread.depth == 0:
            with self._door, self._lock:
                self._count += 1
        thread.depth += 1

    def __exit__(self, *_: object) -> None:
        thread = self._thread
        thread.depth -= 1
        if thread.depth == 0:
            with self._lock:
                self._count -= 1

    def before_fork(self, deadline: float) -> None:
        """Let nobody in, and wait until nobody else is inside, but no longer than until then."""
        own = 1 if self._thread.depth else 0
        self._door.acquire()
        while True:
            self._lock.acquire()
            if self._count == own or time.monotonic() > deadline:
                return
            self._lock.release()
            time.sleep(0.0002)

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._lock.release()
        self._door.release()

    def after_fork_in_child(self) -> None:
        """Begin anew: the threads that were inside are not here."""
        self._count = 1 if self._thread.depth else 0
        self.after_fork_in_parent()


class _Depth(threading.local):
    """How often a thread has entered without leaving."""

    depth = 0


inside_sqlite = _InsideSQLite()


class ClosingConnection(sqlite3.Connection):
    """A connection that closes itself when nobody refers to it any more, but in no other process.

    From Python 3.13 on one that is collected unclosed warns, and among objects that refer to each other the
    garbage collector may come to it before it comes to who would have closed it.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._pid = os.getpid()
        super().__init__(*arguments, **options)

    def __del__(self) -> None:
        if self._pid != os.getpid():
            _leaked.append(self)
        else:
            with inside_sqlite, contextlib.suppress(sqlite3.Error):
                self.close()


_leaked: list[sqlite3.Connection] = []
_on_disk: set[int] = set()  # the connections to files; a set, as its operations need no lock


class Connection:
    """A connection that is closed with the thread it belongs to, but never on the other side of a fork."""

    __slots__ = ("__weakref__", "connection", "generation", "pid")

    def __init__(self, connection: sqlite3.Connection, generation: int) -> None:
        self.connection = connection
        self.generation = generation
        self.pid = os.getpid()

    def close(self) -> None:
        """Close it, or leave it alone where it is the parent's."""
        self.generation = -1
        _on_disk.discard(id(self))
        if self.pid != os.getpid():
            _leaked.append(self.connection)
        else:
            with inside_sqlite, contextlib.suppress(sqlite3.Error):
                self.connection.close()

    def __del__(self) -> None:
        self.close()


class _Own(threading.local):
    """The connections to files that a thread has, the oldest first."""

    def __init__(self) -> None:
        self.connections: deque[ref[Connection]] = deque()


_own = _Own()


def make_room() -> None:
    """Close idle connections of this thread, the oldest first, while it or the process keeps too many.

    Those of other threads may be in use.
    """
    most = MOST_CONNECTIONS
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY:
        # The rest is for the roots of the stores, for what SQLite has not closed yet, and for the program.
        most = min(most, limit // 3 // FILES)
    own = _own.connections
    for _ in range(len(own)):
        if len(own) < most // _SHARE and len(_on_disk) < most:
            return
        held = own.popleft()()
        if held is None or held.generation < 0:
            continue
        if held.connection.in_transaction:
            own.append(ref(held))
        else:
            held.close()


def kept(held: Connection) -> None:
    """Count a connection of this thread to files."""
    _on_disk.add(id(held))
    _own.connections.append(ref(held))


def forget_connections() -> None:
    """In a forked child: those of the parent do not count."""
    _on_disk.clear()
