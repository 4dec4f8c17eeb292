"""Takes what a look at a store has shown into its index, one transaction at a time.

Nothing here decides when to look, waits for anybody or mends an index: that is the engine's.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from skillfs.core.digest import Namespace
from skillfs.core.ignore import IgnoreRules
from skillfs.core.model import Place
from skillfs.errors import InvalidArgumentError, StoreUnavailableError, no_handle_left
from skillfs.index.catalog import Catalog
from skillfs.index.database import Database
from skillfs.index.identities import Identities
from skillfs.index.journal import Journal
from skillfs.index.rows import Row, RowKind
from skillfs.stores.base import FolderHandle, StaleFile, Store
from skillfs.stores.local import NOT_MOUNTED, LocalFolder, LocalStore
from skillfs.sync.apply import apply, build
from skillfs.sync.gather import Gathered, find_dirty, gather
from skillfs.sync.reconcile import parent_of, parents_of
from skillfs.sync.scan import Scanner

if TYPE_CHECKING:
    from skillfs.sync.inotify import FolderWatches

__all__ = ["Taking"]


class Taking:
    """What is known of one store, and how more comes into it.

    Args:
        store: The store.
        database: Its index.
        namespace: The store's identity.
        ignore: Names that are left out.
        title: Name of a skill whose folder is the root and whose front matter gives none.

    Attributes:
        watches: The watches of a local store's folders, while there are any.
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
        self.watches: FolderWatches | None = None
        # Watched from a listing on that is not taken in: what the index holds of them may be older than that.
        self._ahead: set[str] = set()
        account = [store.account] if store.account else []
        self._view = json.dumps([str(namespace.uuid), store.url, ignore.extra, store.followed, *account])
        self._is_own = False
        self._own_stamp: int | None = None

    def is_built(self) -> bool:
        """Whether the index holds this store, seen in this way: what another ignores may be served here.

        An engine that opens an index of another view makes it its own. One that had it already does not take
        it back: two of them would build it anew in turns, each under the hands of the other.

        Raises:
            InvalidArgumentError: Another has taken the index over.
        """
        rows = self.database.read("SELECT name, value FROM facts.meta WHERE name IN ('stamp', 'view')")
        found = dict(rows)
        if "view" not in found:
            return False
        if found["view"] == self._view:
            self._is_own = True
            self._own_stamp = found.get("stamp")
            return True
        if self._is_own:
            raise InvalidArgumentError(
                "another filesystem keeps this index with another ignore, follow, store_id, endpoint or "
                "credential; give each its own index"
            )
        return False

    def require_mounted(self) -> None:
        """See to it that what is to be compared is there, rather than the folder that it was mounted on.

        Raises:
            StoreUnavailableError: The root is empty, and lies on another device than what is known of it.
        """
        root = self.catalog.by_path(())
        if root is None or not isinstance(self.store, LocalStore) or not self.store.is_bare(root.signature):
            return
        if self.catalog.children(root.key):
            raise StoreUnavailableError(NOT_MOUNTED)

    def require_own(self) -> None:
        """See to it that what has just been read is of this view; asks the index at a new stamp only."""
        stamp = self.catalog.seen.stamp
        if self._is_own and not self.database.in_memory and (stamp is None or stamp != self._own_stamp):
            self.is_built()

    def build(self, look: Store, on_progress: Callable[[int], None] | None) -> None:
        """Fill an empty index with all that a look shows."""
        with self.database.write() as connection:
            if self.is_built():
                return  # another process built it while this one waited
            scanner = self.scanner(look)
            if on_progress is not None:
                scanner.on_progress = on_progress
            identities = Identities(connection, self.namespace, time.time())
            build(connection, look, self.catalog, scanner, identities, self.title)
            connection.execute("INSERT OR REPLACE INTO facts.meta VALUES ('view', ?)", (self._view,))
        self._is_own = True
        self._ahead.clear()

    def known_folder(self, path: str) -> str:
        """The nearest folder at or above a path that the index holds."""
        while path:
            row = self.catalog.by_path(path.split("/"))
            if row is not None and row.kind in (RowKind.FOLDER, RowKind.SKILL):
                return path
            path = parent_of(path)
        return ""

    def scope(self, path: str) -> Row | None:
        """The nearest known folder at or above a path; None for the whole store."""
        while path:
            row = self.catalog.by_path(path.split("/"))
            if row is not None and row.kind in (RowKind.FOLDER, RowKind.SKILL):
                # What lies behind a link is another when the link is: that shows in the whole only.
                return row if row.place == Place(0, path) else None
            path = parent_of(path)
        return None

    def scanner(self, look: Store) -> Scanner:
        """Something to scan a look with, which has what it lists watched where anything is."""
        scanner = Scanner(look, self.ignore)
        if self.watches is not None:
            scanner.on_folder = self._watch
            scanner.is_watched = self._is_watched
        return scanner

    def _watch(self, folder: FolderHandle, path: str, beside: Place | None = None) -> None:
        assert isinstance(folder, LocalFolder)
        if self.watches is not None:
            name = "" if beside is None else f"{beside.root}:{beside.path}"
            self.watches.add(folder.fileno(), self.store.inode(folder.state.signature), path, name)
            if beside is None:
                self._ahead.add(path)

    def _is_watched(self, path: str, signature: bytes) -> bool:
        if self.watches is None:
            return True
        return path not in self._ahead and self.watches.holds(path, self.store.inode(signature))

    def watch_all(self) -> None:
        """Watch every folder that the index holds; what it does not hold is watched when it is listed.

        The whole store is to be compared afterwards.
        """
        for path, place, _ in self.catalog.folder_places():
            self._watch_at(place, path)
        for path, place in self.catalog.linked_files():
            above = Place(place.root, parent_of(place.path))
            self._watch_at(above, path, above)
        self._ahead.clear()

    def unwatched(self) -> set[str]:
        """Paths of the folders that the index holds and this process does not watch, where it watches any.

        Another process may have taken them in while this one missed the events.
        """
        if self.watches is None:
            return set()
        known = self.catalog.folder_places()
        return {path for path, _, signature in known if not self._is_watched(path, signature)}

    def _watch_at(self, place: Place, path: str, beside: Place | None = None) -> None:
        # Gone, or not to be listed: the check that follows says which.
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(self.store.folder(place))
            except OSError as error:
                if (full := no_handle_left(error)) is not None:
                    raise full from error
                return
            self._watch(folder, path, beside)

    def taken_in(self, gathered: Gathered) -> None:
        """Now that the index holds what was gathered: stop watching folders that are gone."""
        if self.watches is None:
            return
        gone = {
            p for p, k in gathered.known.items() if k.node.kind <= RowKind.SKILL and p not in gathered.seen
        }
        self.watches.forget(gone)
        self._ahead.difference_update(gathered.listed, gathered.seen, gone)
        self._ahead.difference_update(row.path for row in gathered.unreadable)

    def commit(
        self,
        connection: sqlite3.Connection,
        look: Store,
        scanner: Scanner,
        gathered: Gathered,
        moves: Mapping[str, str] | None = None,
    ) -> None:
        """Bring the index in step with what was gathered, inside a transaction.

        Args:
            connection: That of the transaction.
            look: What was looked at.
            scanner: What gathered.
            gathered: Both sides of the difference.
            moves: New path to old path of what is known to have been moved.
        """
        identities = Identities(connection, self.namespace, time.time())
        apply(connection, look, self.catalog, scanner, gathered, identities, self.title, moves)

    def take_everywhere(self, dirty: set[str], moves: Mapping[str, str] | None = None) -> None:
        """Reconcile these folders and all others in which something is different."""
        assert not self.store.remote  # which shows nothing by itself: all would seem to be gone
        self.take(dirty | find_dirty(self.store, self.catalog), self.store, sure=True, moves=moves)

    def take(
        self,
        dirty: set[str],
        look: Store,
        *,
        sure: bool,
        told: Collection[str] = (),
        moves: Mapping[str, str] | None = None,
        since: int | None = None,
        again: Collection[str] | None = None,
    ) -> bool:
        """Reconcile these folders, in one transaction.

        Args:
            dirty: Their paths.
            look: What the store shows of them.
            sure: Whether the whole store was looked at again after something had been missed or met anew.
            told: Paths at and below which it is known what happened, so that nothing there makes unsure.
            moves: New path to old path of what is known to have been moved.
            since: The revision of the index before the look, where another one makes the look worthless.
            again: Folders to look at once more, now that nobody else can take anything in.

        Returns:
            False, with nothing done, when something left one of them or may have come from another, and that
            is not sure: only all differences together tell a move from a removal and a birth, and what is
            moved during a look at the store may be seen in both places or in none.
        """
        with self.database.write() as connection:
            self.is_built()
            if since is not None and self.journal.revision() != since:
                raise StaleFile
            if again is not None:
                look = self.store.look(again)
            scanner = self.scanner(look)
            gathered = gather(look, self.catalog, scanner, dirty)
            if not sure and (scanner.vanished or self._may_have_moved(gathered, told)):
                return False
            self.commit(connection, look, scanner, gathered, moves)
        self.taken_in(gathered)
        return True

    def _may_have_moved(self, gathered: Gathered, told: Collection[str]) -> bool:
        def untold(paths: set[str]) -> set[str]:
            return {p for p in paths if p not in told and not any(above in told for above in parents_of(p))}

        # Links have no identity that a move could carry along.
        known = {p for p, k in gathered.known.items() if k.node.kind != RowKind.LINK}
        seen = {p: s for p, s in gathered.seen.items() if s.kind != RowKind.LINK}
        if untold(known - seen.keys()):
            return True
        with_files = {
            above for path, s in seen.items() if s.kind == RowKind.FILE for above in parents_of(path)
        }
        for path in untold(seen.keys() - known):
            _, kind, state, content, *_ = seen[path]
            if content is not None:
                if self._may_be_moved(content, state.signature):
                    return True
            elif path not in with_files and (kind == RowKind.FILE or self._was_folder(state.signature)):
                return True
        return False

    def _was_folder(self, signature: bytes) -> bool:
        """Whether a folder without files, which nothing but its inode tells from others, is known already."""
        inode = self.store.inode(signature)
        known = self.catalog.read("SELECT signature FROM entry WHERE kind < 2")
        return not inode or any(self.store.inode(other) == inode for (other,) in known)

    def _may_be_moved(self, content: bytes, signature: bytes) -> bool:
        """Whether a file at a new path may have come from another, rather than be a copy of what stayed.

        What is still there keeps its entry. What is not may have moved if it had the same inode, or if nobody
        else that stayed has the content.
        """
        inode = self.store.inode
        some_stay = None
        for key, known in self.catalog.read("SELECT key, signature FROM entry WHERE content=?", (content,)):
            like = inode(known) == inode(signature)
            if some_stay and not like:
                continue
            row = self.catalog.by_key(key)
            stays = row is not None and self.store.is_regular(row.place) is True
            if like and not stays:
                return True
            some_stay = some_stay or stays
        return some_stay is False
