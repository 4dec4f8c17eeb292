"""Who is who: the primary data of an index.

An entry that still lies where it was born first needs no record: its UUID follows from its path. Recorded are
the exceptions: what was moved, what a path gave birth to before, and what was removed when. A store that goes
by another identity for a while has records of its own: those of the first wait, and nothing deletes them.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from skillfs.core.digest import Namespace, id_of_uuid

__all__ = ["REMEMBERED_SECONDS", "Identities"]

REMEMBERED_SECONDS = 7 * 86_400.0
"""How long a removed entry may come back at its path as itself."""


class _Record(NamedTuple):
    uuid: bytes | None
    id: int | None
    births: int
    removed: float | None


class Identities:
    """Gives and keeps identities inside one write transaction.

    Args:
        connection: A connection inside a transaction.
        namespace: The store's.
        now: Seconds since the epoch.
    """

    def __init__(self, connection: sqlite3.Connection, namespace: Namespace, now: float) -> None:
        self._connection = connection
        self._namespace = namespace
        self._now = now
        self._owner = namespace.uuid.bytes
        some = connection.execute("SELECT 1 FROM identity WHERE namespace=? LIMIT 1", (self._owner,))
        self._empty = some.fetchone() is None

    def born(self, path: str) -> tuple[bytes, int]:
        """The UUID and the id of the entry that appears at a path."""
        record = None if self._empty else self._get(path)
        if record is None:
            uuid = self._namespace.uuid_of(path)
            return uuid, id_of_uuid(uuid)
        age = 0.0 if record.removed is None else self._now - record.removed
        if record.uuid is not None and age <= REMEMBERED_SECONDS:
            self._put(path, record._replace(removed=None))
            return record.uuid, record.id if record.id is not None else id_of_uuid(record.uuid)
        births = record.births + 1
        uuid = self._namespace.uuid_of(path, births)
        self._put(path, _Record(uuid, None, births, None))
        return uuid, id_of_uuid(uuid)

    def numbered(self, path: str, uuid: bytes, number: int) -> None:
        """Record that an entry has another id than its UUID says, because that one was taken."""
        record = self._get(path) or _Record(uuid, None, 1, None)
        self._put(path, record._replace(uuid=uuid, id=number))

    def left(self, path: str) -> None:
        """Record that the entry at a path has moved away."""
        record = self._get(path) or _Record(None, None, 1, None)
        self._put(path, record._replace(uuid=None, id=None, removed=None))

    def arrived(self, path: str, uuid: bytes, number: int) -> None:
        """Record that an entry born elsewhere lies at a path now. To be called after all that `left`."""
        record = self._get(path) or _Record(None, None, 0, None)
        own = None if number == id_of_uuid(uuid) else number
        births = record.births
        if births == 0 and uuid == self._namespace.uuid_of(path):
            births = 1
        self._put(path, _Record(uuid, own, births, None))

    def removed(self, path: str, uuid: bytes, number: int) -> None:
        """Record that the entry at a path is gone, and when."""
        record = self._get(path) or _Record(None, None, 1, None)
        own = None if number == id_of_uuid(uuid) else number
        self._put(path, record._replace(uuid=uuid, id=own, removed=self._now))

    def _get(self, path: str) -> _Record | None:
        row = self._connection.execute(
            "SELECT uuid, id, births, removed FROM identity WHERE namespace=? AND path=?", (self._owner, path)
        ).fetchone()
        return None if row is None else _Record(*row)

    def _put(self, path: str, record: _Record) -> None:
        self._empty = False
        self._connection.execute(
            "INSERT OR REPLACE INTO identity VALUES (?, ?, ?, ?, ?, ?)", (self._owner, path, *record)
        )
