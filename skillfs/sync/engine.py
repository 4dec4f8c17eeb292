"""Keeps one index in step with one store: the only way anything is written to it.

An opening, an old listing, a read that met a new signature and an explicit sync all call `sync` with a scope; it
looks for differences without holding anything up, and only when there are some takes the writer's lock, looks at
those places again, reconciles and commits.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from skillfs.core.digest import Namespace
from skillfs.core.ignore import IgnoreRules
from skillfs.core.text import TextFacts
from skillfs.index.catalog import Catalog, Row, RowKind
from skillfs.index.database import Database
from skillfs.index.identities import Identities
from skillfs.index.journal import Journal
from skillfs.stores.base import Store
from skillfs.sync.apply import apply, build
from skillfs.sync.gather import find_dirty, gather
from skillfs.sync.scan import Scanner

__all__ = ["Engine"]

T = TypeVar("T")

MOST_ROUNDS = 4
"""How often a check that found the store moving under it looks again before it leaves the rest to the next."""

MOST_PENDING_FACTS = 64
MOST_PENDING_SECONDS = 1.0


class Engine:
    """One store, its index, and what keeps them together. Shared by all filesystems of a process that name both.

    Args:
        store: The store.
        database: Its index.
        namespace: The store's identity.
        ignore: Names that are left out.
        title: Name of a skill whose folder is the root and whose front matter gives none.
    """

    def __init__(
        self, store: Store, database: Database, namespace: Namespace, ignore: IgnoreRules, title: str
    ) -> None:
        self.store = store
        self.database = database
        self.catalog = Catalog(database)
        self.journal = Journal(database)
        self.namespace = namespace
        self.ignore = ignore
        self.title = title
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._checked: dict[str, tuple[float, float]] = {}
        self._pending: dict[int, tuple[bytes, bytes, TextFacts]] = {}
        self._pending_since = 0.0

    # -- freshness -----------------------------------------------------------------------------------------

    def ensure_fresh(self, path: str, max_age: float) -> None:
        """Check a folder, and all below it, unless that was done recently.

        Args:
            path: Store path.
            max_age: Seconds that a check holds; ten times its own duration if that is longer.
        """
        now = time.monotonic()
        at: str | None = path
        while at is not None:
            checked = self._checked.get(at)
            if checked is not None and now - checked[0] <= max(max_age, 10 * checked[1]):
                return
            at = at.rpartition("/")[0] if at else None
        self.sync(path)

    def sync(self, path: str = "", *, on_progress: Callable[[int], None] | None = None) -> None:
        """Bring the index in step with a folder and all below it.

        Args:
            path: Store path; the whole store by default.
            on_progress: Called now and then with the number of entries read, during a first opening.

        Raises:
            StoreUnavailableError: The root is not there, or another process holds the index too long.
        """
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._lock = threading.RLock()
        with self._lock:
            started = time.monotonic()
            self.store.check_root()
            if self.database.replaced():
                self.database.reopen()
            self._recovering(lambda: self._sync(path, on_progress))
            duration = time.monotonic() - started
            if not path:
                self._checked.clear()
            self._checked[path] = (started, duration)

    def _sync(self, path: str, on_progress: Callable[[int], None] | None) -> None:
        if self.journal.revision() == 0:
            self._build(on_progress)
            return
        for _ in range(MOST_ROUNDS):
            scope = self.catalog.by_path(tuple(path.split("/"))) if path else None
            if path and (scope is None or scope.kind not in (RowKind.FOLDER, RowKind.SKILL)):
                path = path.rpartition("/")[0]
                continue
            dirty = find_dirty(self.store, self.catalog, scope)
            if not dirty:
                return
            structural = self._apply(dirty)
            if structural and path:
                # Something came or went: only the whole store tells whether it moved.
                path = ""

    def look_again(self, folder: str) -> None:
        """List one folder again, because a reader found it different from what the index says."""
        with self._lock:
            if self._recovering(lambda: self._apply({folder})):
                self.sync()

    def _build(self, on_progress: Callable[[int], None] | None) -> None:
        with self.database.write() as connection:
            if self.journal.revision() != 0:
                return  # another process built it while this one waited
            scanner = Scanner(self.store, self.ignore)
            if on_progress is not None:
                scanner.on_progress = on_progress
            identities = Identities(connection, self.namespace, time.time())
            build(connection, self.store, self.catalog, scanner, identities, self.title)

    def _apply(self, dirty: set[str]) -> bool:
        """Reconcile these folders; True when something came or went that may have moved from or to elsewhere."""
        with self.database.write() as connection:
            scanner = Scanner(self.store, self.ignore)
            gathered = gather(self.store, self.catalog, scanner, dirty)
            identities = Identities(connection, self.namespace, time.time())
            apply(connection, self.store, self.catalog, scanner, gathered, identities, self.title)
            return gathered.known.keys() != gathered.seen.keys()

    def _recovering(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except sqlite3.DatabaseError as error:
            return self.database.recovering(lambda: self._rebuilt(work), error)

    def _rebuilt(self, work: Callable[[], T]) -> T:
        self._sync("", None)
        return work()

    def query(self, work: Callable[[], T]) -> T:
        """Ask the index; when it turns out damaged, rebuild it and ask again."""
        try:
            return work()
        except sqlite3.DatabaseError as error:
            with self._lock:
                return self.database.recovering(lambda: self._rebuilt(work), error)

    # -- facts ---------------------------------------------------------------------------------------------

    def text_facts(self, row: Row) -> tuple[bytes, TextFacts] | None:
        """MD5 and text facts of a row that were computed here and are not committed yet."""
        pending = self._pending.get(row.key)
        return (pending[1], pending[2]) if pending is not None and pending[0] == row.signature else None

    def keep_text_facts(self, row: Row, md5: bytes, facts: TextFacts) -> None:
        """Remember what a first reading computed; committed together with others, never holding up a reader."""
        self._pending[row.key] = (row.signature, md5, facts)
        now = time.monotonic()
        if len(self._pending) == 1:
            self._pending_since = now
        if len(self._pending) >= MOST_PENDING_FACTS or now - self._pending_since > MOST_PENDING_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Commit remembered facts unless another writer is busy; then they stay remembered."""
        if not self._pending:
            return
        some = dict(self._pending)
        rows = [
            (key, md5, f.encoding, f.characters, f.lines, f.reason, f.reason_at,
             None if f.grid is None else f.grid.pack(), key, signature)
            for key, (signature, md5, f) in some.items()
        ]  # fmt: skip
        sql = (
            "INSERT OR REPLACE INTO text SELECT ?, ?, ?, ?, ?, ?, ?, ? "
            "WHERE EXISTS (SELECT 1 FROM entry WHERE key=? AND signature=?)"
        )
        if self.database.try_write([(sql, rows)]):
            for key, value in some.items():
                if self._pending.get(key) is value:
                    del self._pending[key]
        elif len(self._pending) > 50 * MOST_PENDING_FACTS:
            self._pending.clear()  # facts are a cache: computed again at the next reading

    def keep_sha256(self, row: Row, digest: bytes) -> None:
        """Remember a SHA-256 for the signature it was computed from."""
        sql = "INSERT OR REPLACE INTO sha256 SELECT ?, ? WHERE EXISTS (SELECT 1 FROM entry WHERE key=? AND signature=?)"
        self.database.try_write([(sql, [(row.key, digest, row.key, row.signature)])])
