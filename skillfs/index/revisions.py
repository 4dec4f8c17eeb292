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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from skillfs.index.database import BUSY_SECONDS, _inside_sqlite

__all__ = ["Revisions", "Vector"]

KEPT_REVISIONS = 10_000
"""How many are kept; who asks from an older one has to read everything anew."""

Vector: TypeAlias = tuple[int, ...]
"""Revisions of the indexes, in the order of the mounts."""

_SCHEMA = "CREATE TABLE IF NOT EXISTS revision (number INTEGER PRIMARY KEY, vector TEXT NOT NULL) STRICT"


class Revisions:
    """Numbers for what several indexes have come to.

    Args:
        path: The file; None keeps them in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._kept: dict[int, Vector] = {}
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def vector(self, number: int) -> Vector | None:
        """What a number stands for; None when that is not known, or not any more."""
        if not 0 <= number < 1 << 63:
            return None
        with self._open() as file:
            if file is None:
                return self._kept.get(number)
            return _vector(file.run("SELECT vector FROM revision WHERE number=?", number))

    def number(self, read: Callable[[], Vector]) -> int:
        """The number of what the indexes have come to.

        Args:
            read: Gives their revisions. It is called while nobody else gives numbers, so that of two numbers
                the greater never stands for what came before the other.
        """
        with self._open() as file:
            vector = read()
            newest = self._newest(file)
            if newest is not None and newest[1] == vector:
                return newest[0]
            # The time, so that a table begun anew never counts through the numbers of the one before.
            following = int(time.time() * 1000) if newest is None else newest[0] + 1
            if file is None:
                self._kept[following] = vector
                self._kept.pop(following - KEPT_REVISIONS, None)
            else:
                file.run("INSERT INTO revision VALUES (?, ?)", following, json.dumps(vector))
                file.run("DELETE FROM revision WHERE number <= ?", following - KEPT_REVISIONS)
            return following

    def _newest(self, file: _File | None) -> tuple[int, Vector | None] | None:
        if file is None:
            return next(reversed(self._kept.items()), None)
        rows = file.run("SELECT vector, number FROM revision ORDER BY number DESC LIMIT 1")
        return (rows[0][1], _vector(rows)) if rows else None

    @contextlib.contextmanager
    def _open(self) -> Iterator[_File | None]:
        """The file, in a transaction that keeps others out; None where the numbers are in memory."""
        with self._guard(), contextlib.ExitStack() as opened:
            file = self._begin(opened)
            yield file
            if file is not None:
                file.run("COMMIT")

    def _begin(self, opened: contextlib.ExitStack) -> _File | None:
        for last in (False, True):
            if self._path is None:
                break
            try:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                file = opened.enter_context(_File(self._path))
                file.run("BEGIN IMMEDIATE")
                file.run(_SCHEMA)
                file.run("SELECT number, vector FROM revision LIMIT 1")
            except (sqlite3.OperationalError, OSError):
                self._path = None  # it may not be written: numbers of before are not known any more
            except sqlite3.DatabaseError:
                with contextlib.suppress(OSError):
                    self._path.unlink()  # damaged, or no database: likewise
                self._path = None if last else self._path
            else:
                return file
        return None

    def _guard(self) -> threading.RLock:
        if self._pid != os.getpid():
            # Another thread of the parent may have held the lock, and will not let it go here.
            self._pid = os.getpid()
            self._lock = threading.RLock()
        return self._lock


class _File:
    """A connection for one use, which costs 0.2 ms: none is there to cross a fork.

    No thread is inside SQLite between two statements: a fork waits for those that are.
    """

    def __init__(self, path: Path) -> None:
        with _inside_sqlite:
            self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)

    def run(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        with _inside_sqlite:
            return self._connection.execute(sql, parameters).fetchall()

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        with _inside_sqlite:
            self._connection.close()


def _vector(rows: list[tuple[Any, ...]]) -> Vector | None:
    return tuple(json.loads(rows[0][0])) if rows else None
