"""The two SQLite files of an index, and the connections to them.

`identity` holds what cannot be computed again: which entry is where although it was born elsewhere, and what was
removed when. It is written through to the disk at each commit. `facts` holds everything else: rows about
signatures that a scan rebuilds. One transaction covers both; SQLite commits attached files one after the other,
`identity` first, so a crash between the two leaves facts that the next check compares and mends.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from skillfs.errors import InvalidArgumentError, StoreUnavailableError

__all__ = ["Database", "IndexWarning"]

T = TypeVar("T")

APPLICATION_ID = 0x534B4653  # "SKFS"
IDENTITY_VERSION = 1
FACTS_VERSION = 1
BUSY_SECONDS = 120.0
"""How long a writer waits for another process: a first opening of a large store holds the lock for its length."""

IDENTITY_SCHEMA = """
CREATE TABLE identity (
    path TEXT PRIMARY KEY,
    uuid BLOB,
    id INTEGER,
    births INTEGER NOT NULL,
    removed REAL
) STRICT, WITHOUT ROWID;
CREATE TABLE identity_meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
"""

FACTS_SCHEMA = """
CREATE TABLE facts.meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
CREATE TABLE facts.entry (
    key INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    name TEXT NOT NULL,
    kind INTEGER NOT NULL,
    visible INTEGER NOT NULL,
    id INTEGER,
    uuid BLOB,
    signature BLOB NOT NULL,
    size INTEGER,
    modified INTEGER NOT NULL,
    content BLOB,
    target TEXT
) STRICT;
CREATE TABLE facts.text (
    key INTEGER PRIMARY KEY,
    md5 BLOB,
    encoding TEXT,
    characters INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    reason TEXT,
    reason_at INTEGER,
    grid BLOB
) STRICT;
CREATE TABLE facts.sha256 (key INTEGER PRIMARY KEY, digest BLOB NOT NULL) STRICT;
CREATE TABLE facts.skill (
    key INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    front_matter TEXT NOT NULL
) STRICT;
CREATE TABLE facts.problem (
    folder INTEGER NOT NULL,
    name TEXT NOT NULL,
    code TEXT NOT NULL,
    severity TEXT NOT NULL,
    message TEXT NOT NULL
) STRICT;
CREATE TABLE facts.change (
    revision INTEGER NOT NULL,
    kind TEXT NOT NULL,
    uuid BLOB NOT NULL,
    path TEXT NOT NULL,
    old_path TEXT,
    skill BLOB,
    skill_path TEXT,
    old_skill_path TEXT,
    content BLOB,
    old_content BLOB
) STRICT;
CREATE INDEX facts.change_revision ON change (revision);
CREATE INDEX facts.skill_name ON skill (name);
CREATE INDEX facts.problem_folder ON problem (folder);
CREATE INDEX facts.text_md5 ON text (md5);
CREATE INDEX facts.sha256_digest ON sha256 (digest);
"""

ENTRY_INDEXES = (
    "CREATE UNIQUE INDEX IF NOT EXISTS facts.entry_name ON entry (parent, name)",
    "CREATE UNIQUE INDEX IF NOT EXISTS facts.entry_id ON entry (id) WHERE id IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS facts.entry_content ON entry (content) WHERE content IS NOT NULL",
)
"""Made after the rows of a first opening: inserting into them row by row costs half as much again."""


class IndexWarning(UserWarning):
    """The index is not kept where it should be; the message says why and what follows."""


class _Kept(threading.local):
    """The connection of one thread; closed with it."""

    connection: sqlite3.Connection | None = None
    owner: tuple[int, int] = (0, 0)

    def __del__(self) -> None:
        if self.connection is not None and self.owner[0] == os.getpid():
            with contextlib.suppress(sqlite3.Error):
                self.connection.close()


class Database:
    """One index: a pair of files, or memory.

    Args:
        path: The facts file; the identity file lies beside it. None keeps both in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._generation = 0
        self._shared: sqlite3.Connection | None = None
        self._kept = _Kept()
        self._pid = os.getpid()
        self._files: tuple[int, ...] = ()
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
        if self._pid != os.getpid():
            self._forked()
        if self.path is None:
            if self._shared is None:
                self._shared = self._connect()
                self._create(self._shared)
            return self._shared
        kept = self._kept
        owner = (self._pid, self._generation)
        if kept.connection is None or kept.owner != owner:
            kept.connection = self._connect()
            kept.owner = owner
        return kept.connection

    def read(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        """Run one query and return its rows."""
        if self.path is None:
            with self._lock:
                return self.connection().execute(sql, parameters).fetchall()
        return self.connection().execute(sql, parameters).fetchall()

    @contextlib.contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction over both files; waits for other writers, commits at the end, rolls back on error."""
        with self._lock:
            connection = self.connection()
            try:
                # A deferred BEGIN fails at its first write after another's commit, whatever the timeout.
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if _is_busy(error):
                    raise StoreUnavailableError(
                        f"another process has been writing the index for over {BUSY_SECONDS:.0f} s; try again"
                    ) from error
                raise
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold this process's own lock over several reads of an index in memory."""
        if self.path is None:
            with self._lock:
                yield
        else:
            yield

    def try_write(self, statements: list[tuple[str, list[tuple[Any, ...]]]]) -> bool:
        """Run statements in one transaction unless another writer is busy now; never waits.

        Returns:
            Whether they were committed.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            connection = self.connection()
            if connection.in_transaction:
                return False
            connection.execute("PRAGMA busy_timeout=0")
            try:
                connection.execute("BEGIN IMMEDIATE")
                for sql, rows in statements:
                    connection.executemany(sql, rows)
                connection.execute("COMMIT")
            except sqlite3.OperationalError as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if _is_busy(error) or "readonly" in str(error):
                    return False
                raise
            finally:
                connection.execute(f"PRAGMA busy_timeout={int(BUSY_SECONDS * 1000)}")
            return True
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close this thread's connection and let the others be opened anew."""
        with self._lock:
            self._generation += 1
            for connection in (self._kept.connection, self._shared):
                if connection is not None:
                    with contextlib.suppress(sqlite3.Error):
                        connection.close()
            self._kept.connection = self._shared = None

    # -- opening, repair -----------------------------------------------------------------------------------

    def replaced(self) -> bool:
        """Whether another process has put other files in place of the ones that are open here."""
        return self.path is not None and self._files != self._inodes()

    def reopen(self) -> None:
        """Leave files that were replaced and open those that are there now."""
        self.close()
        self._open_first()

    def recovering(self, work: Callable[[], T], error: sqlite3.DatabaseError) -> T:
        """Set damaged files aside, start anew, and do the work again that ran into the damage.

        Raises:
            sqlite3.DatabaseError: The error was no damage: it is raised again.
        """
        if not _is_damage(error):
            raise error
        with self._lock:
            self.close()
            if self.path is None or not self.replaced():
                self._set_aside(identity=_damaged(self.identity_path), facts=True)
            self._open_first()
        return work()

    def _open_first(self) -> None:
        """Open, creating or replacing what is missing, foreign or of another schema."""
        try:
            connection = self.connection()
            self._create(connection)
        except sqlite3.DatabaseError as error:
            if self.path is None:
                raise
            if _is_damage(error):
                self.close()
                self._set_aside(identity=_damaged(self.identity_path), facts=_damaged(self.path))
                self._create(self.connection())
            elif isinstance(error, sqlite3.OperationalError):
                self._fall_back(str(error))
            else:
                raise
        self._files = self._inodes()

    def _prepare_folder(self, path: Path) -> None:
        if path.is_dir():
            raise InvalidArgumentError("index takes the path of a file, and this is a folder; add a file name")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            self._fall_back(error.strerror or type(error).__name__)

    def _fall_back(self, why: str) -> None:
        warnings.warn(
            f"the index cannot be kept on disk ({why}); it lives in memory and is built again at each start. "
            "Pass index= a path that can be written.",
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
        )
        try:
            connection.execute("ATTACH DATABASE ? AS facts", (":memory:" if memory else str(self.path),))
            if not memory:
                connection.execute("PRAGMA main.journal_mode=WAL")
                connection.execute("PRAGMA facts.journal_mode=WAL")
                connection.execute("PRAGMA main.synchronous=FULL")
                connection.execute("PRAGMA facts.synchronous=NORMAL")
                connection.execute("PRAGMA facts.mmap_size=268435456")
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
            self._set_aside(identity=schema == "main", facts=schema == "facts")
            return self._create(self.connection())
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
        if self.path is not None:
            for file in (self.path, self.identity_path):
                with contextlib.suppress(OSError):
                    os.chmod(file, 0o600)  # type: ignore[arg-type]  # both are set when path is
        return None

    def _set_aside(self, *, identity: bool, facts: bool) -> None:
        if self.path is None or self.identity_path is None:
            self._shared = None
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

    def _forked(self) -> None:
        # An SQLite handle must not be used, nor closed, on the other side of a fork; it is left to leak.
        _leaked.append((self._kept.connection, self._shared))
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._kept = _Kept()
        self._shared = None


_leaked: list[Any] = []


def _stamp(connection: sqlite3.Connection, schema: str) -> tuple[int, int]:
    application = connection.execute(f"PRAGMA {schema}.application_id").fetchone()[0]
    return application, connection.execute(f"PRAGMA {schema}.user_version").fetchone()[0]


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return (
        code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        or "no such table" in str(error)
        or "no such column" in str(error)
    )


def _damaged(path: Path | None) -> bool:
    """Whether a file is there and not a sound SQLite file."""
    if path is None or not path.exists():
        return False
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5.0)
        with contextlib.closing(connection):
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok")
    except sqlite3.OperationalError as error:
        return not _is_busy(error)
    except sqlite3.DatabaseError:
        return True
