"""A third SQLite file beside the two of an index, for the words of texts: made at the first search.

All in it can be made again, so whatever is wrong with the file, it is thrown away.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from skillfs.errors import StoreUnavailableError
from skillfs.index.connections import ClosingConnection, Connection, inside_sqlite, kept, make_room
from skillfs.index.faults import is_busy, is_damage, is_unwritable, may_pass, unavailable
from skillfs.index.words import SEARCH_SCHEMA, SEARCH_VIEW, SearchFile

__all__ = ["SearchIndex"]

T = TypeVar("T")

BUSY_SECONDS = 60.0
"""How long one process waits for another that takes something in: that takes a second or two."""

APPLICATION_ID = 0x534B4658  # "SKFX"
VERSION = 1
"""Raised with every change of the tables, or of how texts are taken apart."""

_MOST_TURNS = 4


class _Kept(threading.local):
    """What one thread keeps: its connection, what asks through it, and the inode of the file it is to."""

    held: Connection | None = None
    inode = 0
    file: SearchFile | None = None


class SearchIndex:
    """The file, with a connection for each thread that asks.

    Args:
        path: The file; None keeps all in memory.

    Attributes:
        tried: By the monotonic clock, when what could not be read was last to be tried again.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.tried = -math.inf
        self._generation = 0
        self._begin_anew()

    def _begin_anew(self) -> None:
        """At first, and in a forked child: leave locks and connections to the parent."""
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._building = threading.Lock()
        self._shared: tuple[Connection, SearchFile] | None = None
        self._kept = _Kept()
        self._generation += 1

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            self._begin_anew()

    @property
    def path(self) -> Path | None:
        """Where it lies; None in memory."""
        return self._path

    def run(self, work: Callable[[SearchFile], T]) -> T:
        """Do something with the file; anew, and empty, where it turns out to be damaged or another's.

        Raises:
            StoreUnavailableError: The file cannot be used now.
        """
        self._notice_fork()
        for turn in range(_MOST_TURNS):
            try:
                if self._path is not None:
                    return work(self._file(self._path).about_all())
                with self._lock:
                    if self._shared is None:
                        held = Connection(_connected(None), self._generation)
                        self._shared = held, SearchFile(held.connection)
                    return work(self._shared[1].about_all())
            except sqlite3.Error as error:
                self._recover(error, is_last=turn == _MOST_TURNS - 1)
        raise AssertionError

    @contextlib.contextmanager
    def moment(self) -> Iterator[None]:
        """Have all that this thread runs within answered as of one moment; none of it may write.

        Raises:
            StoreUnavailableError: The file cannot be used now.
        """
        self._notice_fork()
        with self._lock if self._path is None else contextlib.nullcontext():
            files: list[SearchFile] = []

            def begin(file: SearchFile) -> None:
                file.begin()
                files.append(file)

            self.run(begin)
            try:
                yield
            finally:
                for file in files:
                    file.end()

    def _file(self, path: Path) -> SearchFile:
        kept_here = self._kept
        held, file = kept_here.held, kept_here.file
        if (
            held is None
            or file is None
            or held.generation != self._generation
            or kept_here.inode != _inode(path)
        ):
            make_room()
            _make(path)
            kept_here.inode = _inode(path)
            kept_here.held = held = Connection(_connected(path), self._generation)
            kept_here.file = file = SearchFile(held.connection)
            kept(held)
        return file

    def _recover(self, error: sqlite3.Error, *, is_last: bool) -> None:
        if str(error).startswith("no such module"):
            raise StoreUnavailableError(
                "the SQLite of this Python has no FTS5, which search needs; use another build of Python"
            ) from error
        is_lost = isinstance(error, _AnotherVersion) or is_damage(error)
        is_shut = is_unwritable(error) or _code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
        if self._path is None or is_last or not (is_lost or (is_shut and not may_pass(error))):
            raise unavailable(error, "the index of words", BUSY_SECONDS) from error
        if not is_lost:
            self._path = None  # it may not be written, or its disk is full
            return
        if self._kept.held is not None:
            self._kept.held.close()
        if self._kept.inode != _inode(self._path):
            return  # another has begun anew already
        for name in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                os.unlink(f"{self._path}{name}")

    @contextlib.contextmanager
    def building(self, deadline: float | None) -> Iterator[bool]:
        """Keep others, also of other processes, from reading the same texts at the same time.

        Args:
            deadline: By the monotonic clock, how long to wait for them; None for as long as it takes.

        Yields:
            Whether it was this one's turn.
        """
        self._notice_fork()
        building = self._building
        left = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
        if not building.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
            yield False
            return
        try:
            with _turn_of_processes(self._path, deadline) as is_turn:
                yield is_turn
        finally:
            building.release()


class _AnotherVersion(sqlite3.DatabaseError):
    """The file is another program's, or of another version."""


@contextlib.contextmanager
def _turn_of_processes(path: Path | None, deadline: float | None) -> Iterator[bool]:
    """A lock of the operating system, which ends with the process."""
    fd = -1
    if path is not None:
        with contextlib.suppress(OSError):  # where there are no locks, two may do the same
            fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while fd >= 0:
            try:
                # No child has it by a fork, unlike the other kind.
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if deadline is not None and time.monotonic() >= deadline:
                    yield False
                    return
                time.sleep(0.02)
            except OSError:
                break
        yield True
    finally:
        if fd >= 0:
            os.close(fd)


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _inode(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def _make(path: Path) -> None:
    """Make the file for this user alone where there is none: what SQLite makes beside it is like it."""
    with contextlib.suppress(OSError):  # opening it says what is wrong
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # One that is there is not opened: closing it would end the locks that other threads have on it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _connected(path: Path | None) -> sqlite3.Connection:
    with inside_sqlite:
        connection = sqlite3.connect(
            ":memory:" if path is None else str(path),
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            factory=ClosingConnection,
        )
        try:
            connection.execute("PRAGMA temp_store=MEMORY")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA cache_size=-8000")
            _create(connection)
            for statement in SEARCH_VIEW.split(";"):
                connection.execute(statement)
        except BaseException:
            connection.close()
            raise
    return connection


def _create(connection: sqlite3.Connection) -> None:
    """Make the tables of a new file.

    Raises:
        _AnotherVersion: It is no new file, nor one of these.
    """
    if _stamp(connection) == (APPLICATION_ID, VERSION):
        return
    for left in reversed(range(_MOST_TURNS)):
        try:
            # While another process does the same, this fails at once.
            connection.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError as error:
            if not is_busy(error) or not left:
                raise
            time.sleep(0.1)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _stamp(connection) != (APPLICATION_ID, VERSION):
            if connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise _AnotherVersion
            for statement in SEARCH_SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _stamp(connection: sqlite3.Connection) -> tuple[int, int]:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    return application, connection.execute("PRAGMA user_version").fetchone()[0]
