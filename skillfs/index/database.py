"""The two SQLite files of an index, and the connections to them.

`identity` holds what cannot be computed again: which entry is where although it was born elsewhere, and what
was removed when. It is written through to the disk at each commit. `facts` holds everything else: rows about
signatures that a scan rebuilds. One transaction covers both; SQLite commits attached files one after the
other, `identity` first, so a crash between the two leaves facts that the next check compares and mends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import stat
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

from skillfs.errors import InvalidArgumentError, no_handle_left
from skillfs.index.connections import (
    MOST_FORK_SECONDS,
    ClosingConnection,
    Connection,
    forget_connections,
    inside_sqlite,
    kept,
    make_room,
)
from skillfs.index.faults import (
    is_busy,
    is_damage,
    is_damaged,
    is_unwritable,
    may_pass,
    reason,
    unavailable,
)
from skillfs.index.schema import (
    APPLICATION_ID,
    FACTS_SCHEMA,
    FACTS_VERSION,
    IDENTITY_SCHEMA,
    IDENTITY_VERSION,
)

__all__ = ["Database", "IndexWarning"]

T = TypeVar("T")

_HEADER = 100  # bytes, at the start of every SQLite file
BUSY_SECONDS = 120.0
"""How long a writer waits for another process: a first opening of a large store holds the lock throughout."""


class IndexWarning(UserWarning):
    """The index is not kept where it should be; the message says why and what follows."""


_databases: WeakSet[Database] = WeakSet()
# Two threads may fork at once: what is held for one must not be let go for the other.
_fork_lock = threading.Lock()
_held_for_fork: list[threading.RLock] = []


def _hold_for_fork() -> None:
    """Before a fork: SQLite keeps locks in memory too, where a copied one is never released.

    A first opening of a large store may write for minutes: then the fork goes on all the same.
    """
    _fork_lock.acquire()
    deadline = time.monotonic() + MOST_FORK_SECONDS
    for database in list(_databases):
        lock = database._lock
        if lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            _held_for_fork.append(lock)
    inside_sqlite.before_fork(deadline)


def _go_on_in_parent() -> None:
    inside_sqlite.after_fork_in_parent()
    while _held_for_fork:
        _held_for_fork.pop().release()
    _fork_lock.release()


def _go_on_in_child() -> None:
    forget_connections()
    for database in list(_databases):
        database._begin_anew()
    inside_sqlite.after_fork_in_child()
    _held_for_fork.clear()
    _fork_lock.release()


os.register_at_fork(before=_hold_for_fork, after_in_parent=_go_on_in_parent, after_in_child=_go_on_in_child)


class _Kept(threading.local):
    """What one thread keeps."""

    held: Connection | None = None


class Database:
    """One index: a pair of files, or memory.

    Args:
        path: The facts file; the identity file lies beside it. None keeps both in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._generation = 0
        self._shared: Connection | None = None
        self._kept = _Kept()
        self._files: tuple[int, ...] = ()
        _databases.add(self)
        if path is not None:
            self._prepare_folder(path)
        self._open_first()

    @property
    def identity_path(self) -> Path | None:
        """The file of primary data."""
        return None if self.path is None else self.path.with_name(self.path.name + ".identity")

    @property
    def in_memory(self) -> bool:
        """Whether nothing is kept on disk."""
        return self.path is None

    # -- connections ---------------------------------------------------------------------------------------

    def connection(self) -> sqlite3.Connection:
        """The calling thread's connection; in memory, the one that all threads share."""
        held = self._kept.held
        if held is not None and held.generation == self._generation:
            return held.connection
        return self._own_connection()

    def _own_connection(self) -> sqlite3.Connection:
        with self._lock:
            if self.path is None:
                if self._shared is None:
                    self._shared = Connection(self._connect(), self._generation)
                    self._create(self._shared.connection)
                held = self._shared
            else:
                make_room()
                held = Connection(self._connect(), self._generation)
                kept(held)
            self._kept.held = held
            return held.connection

    def _begin_anew(self) -> None:
        """In a forked child, before it has a second thread: leave locks and connections to the parent."""
        self._lock = threading.RLock()
        self._generation += 1
        self._shared = None

    def read(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        """Run one query and return its rows."""
        if self.path is None:
            with self._lock:
                return self.connection().execute(sql, parameters).fetchall()
        connection = self.connection()  # before it is inside: a fork holds what a new one is made under
        with inside_sqlite:
            return connection.execute(sql, parameters).fetchall()

    @contextlib.contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction over both files; waits for other writers, rolls back on error.

        Nothing is committed when no row was written: readers keep what they hold in memory.
        """
        with self._lock:
            connection = self.connection()
            try:
                # A deferred BEGIN fails at its first write after another's commit, whatever the timeout.
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if is_busy(error):
                    raise unavailable(error, "the index", BUSY_SECONDS) from error
                raise
            before = connection.total_changes
            try:
                yield connection
                if connection.total_changes == before:
                    connection.execute("ROLLBACK")
                    return
                # What readers keep in memory about folders is good for one stamp.
                connection.execute("UPDATE facts.meta SET value = value + 1 WHERE name = 'stamp'")
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let several reads of this thread see the same state of the index."""
        if self.path is None:
            with self._lock:
                yield
            return
        connection = self.connection()
        with inside_sqlite:
            if connection.in_transaction:
                yield
                return
            connection.execute("BEGIN")
            try:
                yield
            finally:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("COMMIT")

    def try_write(self, statements: list[tuple[str, list[tuple[Any, ...]]]]) -> bool:
        """Run statements in one transaction unless another writer is busy now; never waits, never fails.

        Returns:
            Whether they were committed.
        """
        lock = self._lock
        if not lock.acquire(blocking=False):
            return False
        try:
            try:
                connection = self.connection()
                if connection.in_transaction:
                    return False
                connection.execute("PRAGMA busy_timeout=0")
            except sqlite3.Error:
                return False
            try:
                connection.execute("BEGIN IMMEDIATE")
                for sql, rows in statements:
                    connection.executemany(sql, rows)
                connection.execute("COMMIT")
            except sqlite3.Error:
                # Busy, most likely; and damage is for the next check to mend, not for a reader.
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                return False
            finally:
                connection.execute(f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}")
            return True
        finally:
            lock.release()

    def close(self) -> None:
        """Close this thread's connection and let the others be opened anew."""
        with self._lock:
            self._generation += 1
            for held in (self._kept.held, self._shared):
                if held is not None:
                    held.close()
            self._kept.held = self._shared = None

    # -- opening, repair -----------------------------------------------------------------------------------

    def replaced(self) -> bool:
        """Whether another process has put other files in place of the ones that are open here."""
        return self.path is not None and self._files != self._inodes()

    def reopen(self) -> None:
        """Leave files that were replaced and open those that are there now."""
        self.close()
        if self.path is not None:
            self._prepare_folder(self.path)  # it may have gone with the files
        self._open_first()

    def recovering(self, work: Callable[[], T], error: Exception) -> T:
        """Make the index usable again, empty where need be, and do the work that ran into an error.

        Damaged files are set aside and begun anew. Where files may not be written any more, or their disk is
        full, the index goes on in memory. Anything else may pass, as too many open files do.

        Args:
            work: Fills the index and does what failed.
            error: What it failed with.

        Raises:
            StoreUnavailableError: SQLite failed for another reason.
            Exception: It was no error of SQLite, and nothing is damaged: it is raised again.
        """
        with self._lock:
            damaged = is_damage(error)
            if not damaged and is_unwritable(error) and self.path is not None:
                self._fall_back(reason(error))
            elif damaged or (not isinstance(error, sqlite3.Error) and is_damaged(self.path)):
                with self._alone():
                    replaced = self.replaced()
                    self.close()
                    if not replaced:
                        self._set_aside(identity=is_damaged(self.identity_path), facts=True)
                    self._open()
            elif isinstance(error, sqlite3.Error):
                raise unavailable(error, "the index", BUSY_SECONDS) from error
            else:
                raise error
        try:
            return work()
        except sqlite3.Error as again:
            raise unavailable(again, "the index", BUSY_SECONDS) from again

    def _open_first(self) -> None:
        with self._alone():
            self._open()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes from creating or setting aside the same files at the same time."""
        fd = -1
        if self.path is not None:
            try:
                fd = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(fd, fcntl.LOCK_EX)
            except OSError as error:
                # Else it is a file system without locks, or one that may only be read.
                if (full := no_handle_left(error)) is not None:
                    raise full from error
        try:
            yield
        finally:
            if fd >= 0:
                os.close(fd)

    def _open(self) -> None:
        """Open, creating or replacing what is missing, foreign or of another schema."""
        identity, facts = _is_cut_short(self.identity_path), _is_cut_short(self.path)
        if identity or facts:
            self._set_aside(identity=identity, facts=facts)
        self._touch()
        try:
            self._create(self.connection())
        except sqlite3.DatabaseError as error:
            if self.path is None:
                raise
            if is_damage(error):
                self.close()
                identity = is_damaged(self.identity_path)
                self._set_aside(identity=identity, facts=not identity or is_damaged(self.path))
                self._touch()
                self._create(self.connection())
            elif isinstance(error, sqlite3.OperationalError):
                if may_pass(error):
                    raise unavailable(error, "the index", BUSY_SECONDS) from error
                self._fall_back(reason(error))
            else:
                raise
        files = (self.path, self.identity_path)
        if any(file is not None and not os.access(file, os.W_OK) for file in files):
            self._fall_back("it may only be read")
        self._files = self._inodes()

    def _touch(self) -> None:
        """Create the files for this user alone: those that SQLite makes beside them are like them."""
        # One that is there is not opened: closing it would end the locks that other threads have on it.
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        for file in (self.path, self.identity_path):
            if file is not None:
                with contextlib.suppress(OSError):  # opening them says what is wrong
                    os.close(os.open(file, flags, 0o600))

    def _prepare_folder(self, path: Path) -> None:
        try:
            if stat.S_ISDIR(path.stat().st_mode):
                raise InvalidArgumentError("index takes the path of a file, and this is a folder; add a name")
        except OSError:
            pass  # whatever is wrong with it, making its folder or opening it says so
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            self._fall_back(error.strerror or type(error).__name__)

    def _fall_back(self, why: str) -> None:
        warnings.warn(
            f"the index cannot be kept on disk ({why}); it lives in memory and is built again at each start. "
            "Give it the path of an index file that can be written.",
            IndexWarning,
            stacklevel=4,
        )
        self.close()
        self.path = None
        self.connection()

    def _connect(self) -> sqlite3.Connection:
        memory = self.path is None
        connection = sqlite3.connect(
            ":memory:" if memory else str(self.identity_path),
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=ClosingConnection,
        )
        try:
            connection.execute("ATTACH DATABASE ? AS facts", (":memory:" if memory else str(self.path),))
            if not memory:
                connection.execute("PRAGMA main.journal_mode=WAL")
                connection.execute("PRAGMA facts.journal_mode=WAL")
                connection.execute("PRAGMA main.synchronous=FULL")
                connection.execute("PRAGMA facts.synchronous=NORMAL")
                # No mmap_size: a file that is cut short under a mapping ends the process (SIGBUS), and all
                # that mapping it gains is 0.5 µs of the 11 that a look-up takes.
            connection.execute("PRAGMA facts.cache_size=-8000")
            connection.execute("PRAGMA temp_store=MEMORY")
        except BaseException:
            connection.close()
            raise
        return connection

    def _create(self, connection: sqlite3.Connection) -> None:
        wanted = (("main", IDENTITY_VERSION, IDENTITY_SCHEMA), ("facts", FACTS_VERSION, FACTS_SCHEMA))
        if all(_stamp(connection, schema) == (APPLICATION_ID, version) for schema, version, _ in wanted):
            return
        for schema, version, _ in wanted:
            stamp = _stamp(connection, schema)
            empty = not connection.execute(f"SELECT 1 FROM {schema}.sqlite_master LIMIT 1").fetchone()
            if stamp == (APPLICATION_ID, version) or (empty and stamp[0] in (0, APPLICATION_ID)):
                continue
            if self.path is None:
                raise sqlite3.DatabaseError("malformed index in memory")
            self.close()
            if schema == "facts" and stamp[0] == APPLICATION_ID:
                self._remove_facts()  # of another version of skillfs, and nothing in them is lost
            else:
                self._set_aside(identity=schema == "main", facts=schema == "facts")
            self._touch()
            self._create(self.connection())
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            for schema, version, script in wanted:
                if _stamp(connection, schema) != (APPLICATION_ID, version):
                    for statement in script.split(";"):
                        if statement.strip():
                            connection.execute(statement)
                    connection.execute(f"PRAGMA {schema}.application_id={APPLICATION_ID}")
                    connection.execute(f"PRAGMA {schema}.user_version={version}")
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _remove_facts(self) -> None:
        assert self.path is not None
        for name in (self.path.name, f"{self.path.name}-wal", f"{self.path.name}-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path.with_name(name))

    def _set_aside(self, *, identity: bool, facts: bool) -> None:
        if self.path is None or self.identity_path is None:
            return
        suffix = f".damaged-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}"
        for file in ([self.path] if facts else []) + ([self.identity_path] if identity else []):
            with contextlib.suppress(FileNotFoundError):
                os.replace(file, file.with_name(file.name + suffix))
            for extra in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(file.with_name(file.name + extra))
            warnings.warn(
                f"the index file {file.name} was damaged or not an index of skillfs; "
                f"it is kept as {file.name + suffix} and a new one is built",
                IndexWarning,
                stacklevel=4,
            )

    def _inodes(self) -> tuple[int, ...]:
        if self.path is None or self.identity_path is None:
            return ()
        try:
            return (os.stat(self.path).st_ino, os.stat(self.identity_path).st_ino)
        except OSError:
            return (0,)


def _stamp(connection: sqlite3.Connection, schema: str) -> tuple[int, int]:
    application = connection.execute(f"PRAGMA {schema}.application_id").fetchone()[0]
    return application, connection.execute(f"PRAGMA {schema}.user_version").fetchone()[0]


def _is_cut_short(path: Path | None) -> bool:
    """Whether a file that is in use, for its log lies beside it, has lost even its header.

    Opening it would wait until whoever uses it is done.
    """
    if path is None:
        return False
    try:
        # In this order: a file gets its header before its log.
        return path.with_name(path.name + "-wal").exists() and path.stat().st_size < _HEADER
    except OSError:
        return False
