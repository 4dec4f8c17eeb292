"""The engine of a store that never changes: looked at once, and whenever its index is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from skillfs.core.digest import Namespace
from skillfs.core.ignore import IgnoreRules
from skillfs.index.database import Database
from skillfs.stores.base import Store
from skillfs.sync.engine import Engine, Mark
from skillfs.sync.taking import Taking

__all__ = ["StillEngine"]

DIGEST = 32
"""Bytes at the start of a signature that are the SHA-256 of the file."""

_SEED = "INSERT OR REPLACE INTO identity VALUES (?, ?, ?, NULL, 1, NULL)"
_FILL = (
    f"INSERT OR IGNORE INTO sha256 SELECT key, substr(signature, 1, {DIGEST}) FROM entry "
    f"WHERE kind=2 AND length(signature) > {DIGEST}"
)
_UNSETTLED = "SELECT 1 FROM problem WHERE code='unreadable' LIMIT 1"
_COUNTS = "SELECT (SELECT count(*) FROM sha256), (SELECT count(*) FROM entry WHERE kind=2)"


class _StillTaking(Taking):
    """Fills an index with the identities that the store brings along, and with what its signatures tell."""

    identities: tuple[tuple[str, bytes], ...] = ()

    def build(self, look: Store, on_progress: Callable[[int], None] | None) -> None:
        """See `Taking.build`."""
        owner = self.namespace.uuid.bytes
        with self.database.write() as connection:
            if not self.is_built():
                connection.execute("DELETE FROM identity WHERE namespace=?", (owner,))
                rows = [(owner, path, uuid) for path, uuid in self.identities]
                connection.executemany(_SEED, rows)
        super().build(look, on_progress)
        self.fill()

    def fill(self) -> None:
        """Have the index know the SHA-256 of every file, as their signatures tell it."""
        known, files = self.catalog.read(_COUNTS)[0]
        if known < files:
            with self.database.write() as connection:
                connection.execute(_FILL)


class StillEngine(Engine):
    """An engine of a store in which nothing ever changes, and whose signatures begin with the SHA-256.

    Args:
        store: The store.
        database: Its index.
        namespace: The identity of the store that it is a state of.
        ignore: Names that are left out.
        title: Name of a skill whose folder is the root and whose front matter gives none.
        identities: Path and UUID (16 bytes) of the entries whose UUID does not follow from their path.
    """

    taking: _StillTaking

    def __init__(
        self,
        store: Store,
        database: Database,
        namespace: Namespace,
        ignore: IgnoreRules,
        title: str,
        identities: Iterable[tuple[str, bytes]],
    ) -> None:
        super().__init__(store, database, namespace, ignore, title)
        self.taking = _StillTaking(store, database, namespace, ignore, title)
        self.taking.identities = tuple(identities)
        self.catalog = self.taking.catalog
        self.journal = self.taking.journal

    def ensure_fresh(self, path: str, max_age: float) -> bool:
        """See `Engine.ensure_fresh`: it always is."""
        self._notice_fork()
        return False

    def sync(
        self,
        path: str = "",
        *,
        on_progress: Callable[[int], None] | None = None,
        look: tuple[Mark, Store] | None = None,
    ) -> None:
        """See `Engine.sync`: what is in the index is not looked at again, unless it could not be read."""
        if self.query(self._is_whole):
            return
        super().sync(path, on_progress=on_progress, look=look)
        self.query(self.taking.fill)

    def check(self) -> None:
        """See `Engine.check`."""
        self.sync()

    def _is_whole(self) -> bool:
        if not self.taking.is_built() or self.catalog.read(_UNSETTLED):
            return False
        known, files = self.catalog.read(_COUNTS)[0]
        return bool(known == files)
