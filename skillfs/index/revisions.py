"""One revision for several indexes: which revision of each of them a number stands for.

The numbers are in a small SQLite file beside the indexes, so that every process that opens the same mounts
counts on where another stopped. A row is added when a mount has moved on since the newest row. Without
indexes on disk there is nothing that a number could be compared with later, and they are kept in memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

from skillfs.index.connections import ClosingConnection, inside_sqlite
from skillfs.index.faults import is_damage, is_unwritable, may_pass, unavailable

__all__ = ["Revisions", "Vector"]

T = TypeVar("T")

BUSY_SECONDS = 5.0
"""How long one process waits for another to give a number."""

KEPT_REVISIONS = 10_000
"""How many are kept; who asks from an older one has to read everything anew."""

Vector: TypeAlias = tuple[int, ...]
"""Revisions of the indexes, in the order of the mounts."""

_SCHEMA = "CREATE TABLE IF NOT EXISTS revision (number INTEGER PRIMARY KEY, vector TEXT NOT NULL) STRICT"


class Revisions:
    """Numbers for what several indexes have come to.

    Where the file may not be written, or its disk is full, they go on in memory: those that the file holds
    stay known, and the new ones are none that another process gives.

    Args:
        path: The file; None keeps them in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._kept: dict[int, Vector] = {}
        self._first = 0
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def vector(self, number: int) -> Vector | None:
        """What a number stands for; None when that is not known, or not any more.

        Raises:
            StoreUnavailableError: The file cannot be used now.
        """
        if not 0 <= number < 1 << 63:
            return None

        def look_up(file: _File | None) -> Vector | None:
            if file is None:
                return self._kept.get(number)
            return _vector(file.run("SELECT vector FROM revision WHERE number=?", number))

        return self._alone(look_up)

    def number(self, read: Callable[[], Vector]) -> int:
        """The number of what the indexes have come to.

        Args:
            read: Gives their revisions. It is called while nobody else gives numbers, so that of two numbers
                the greater never stands for what came before the other.

        Raises:
            StoreUnavailableError: The file cannot be used now, or an index cannot. No number was given.
        """
        found: list[Vector] = []

        def give(file: _File | None) -> int:
            newest = self._newest(file)
            if not found:
                found.append(read())  # which raises no error of SQLite's
            vector = found[0]
            if newest is not None and newest[1] == vector:
                return newest[0]
            # The time, so that a table begun anew never counts through the numbers of the one before.
            following = _now() if newest is None else max(newest[0] + 1, self._first)
            if file is None:
                self._kept[following] = vector
                while len(self._kept) > KEPT_REVISIONS:
                    del self._kept[next(iter(self._kept))]
            else:
                file.run("INSERT INTO revision VALUES (?, ?)", following, json.dumps(vector))
                file.run("DELETE FROM revision WHERE number <= ?", following - KEPT_REVISIONS)
            return following

        return self._alone(give)

    def _newest(self, file: _File | None) -> tuple[int, Vector | None] | None:
        if file is None:
            return next(reversed(self._kept.items()), None)
        rows = file.run("SELECT vector, number FROM revision ORDER BY number DESC LIMIT 1")
        return (rows[0][1], _vector(rows)) if rows else None

    def _alone(self, work: Callable[[_File | None], T]) -> T:
        """Do something with the file while others are kept out; with None where the numbers are in memory."""
        with self._guard():
            for last in (False, True):
                if self._path is None:
                    break
                try:
                    self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                except OSError:
                    self._go_on_in_memory()
                    break
                try:
                    with _File(self._path) as file:
                        found = work(file)
                        file.run("COMMIT")
                        return found
                except sqlite3.Error as error:
                    self._recover(error, last=last)
            return work(None)

    def _recover(self, error: sqlite3.Error, *, last: bool) -> None:
        assert self._path is not None
        if is_damage(error) and not last:
            with contextlib.suppress(OSError):
                self._path.unlink()  # numbers of before are not known any more
        elif may_pass(error) or not (is_damage(error) or is_unwritable(error) or _is_shut(error)):
            raise unavailable(error, "the revisions of these mounts", BUSY_SECONDS) from error
        else:
            self._go_on_in_memory()

    def _go_on_in_memory(self) -> None:
        assert self._path is not None
        with contextlib.suppress(sqlite3.Error, ValueError), _File(self._path, "ro") as file:
            for number, vector in file.run("SELECT number, vector FROM revision ORDER BY number"):
                self._kept[number] = tuple(json.loads(vector))
        self._path = None
        # Far from those that other processes go on to give.
        self._first = max(_now(), max(self._kept, default=0) + KEPT_REVISIONS)

    def _guard(self) -> threading.RLock:
        if self._pid != os.getpid():
            # Another thread of the parent may have held the lock, and will not let it go here.
            self._pid = os.getpid()
            self._lock = threading.RLock()
        return self._lock


class _File:
    """A connection for one transaction, which costs 0.2 ms: none is there to cross a fork.

    No thread is inside SQLite between two statements: a fork waits for those that are.

    Args:
        path: The file, which is made where there is none.
        mode: `ro` to read what is there, without keeping anybody out.
    """

    def __init__(self, path: Path, mode: str = "rwc") -> None:
        uri = f"file:{quote(str(path))}?mode={mode}"
        with inside_sqlite:
            self._connection = sqlite3.connect(
                uri, timeout=BUSY_SECONDS, isolation_level=None, uri=True, factory=ClosingConnection
            )
        if mode != "ro":
            try:
                self.run("BEGIN IMMEDIATE")
                self.run(_SCHEMA)
            except BaseException:
                self.__exit__()
                raise

    def run(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        with inside_sqlite:
            return self._connection.execute(sql, parameters).fetchall()

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        with inside_sqlite:
            self._connection.close()


def _is_shut(error: sqlite3.Error) -> bool:
    """Whether the file may not be opened, or nothing made beside it."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


def _now() -> int:
    return int(time.time() * 1000)


def _vector(rows: list[tuple[Any, ...]]) -> Vector | None:
    return tuple(json.loads(rows[0][0])) if rows else None
