"""Keeps one index in step with one store: the only way anything is written to it.

An opening, an old listing, a read that met a new signature and an explicit sync all call `sync` with a scope;
it looks for differences without holding anything up, and only when there are some takes the writer's lock,
looks at those places again, reconciles and commits. A remote store is asked before the lock is taken; what it
said counts only if nothing was taken in meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from weakref import WeakSet

from skillfs.core.digest import Namespace
from skillfs.core.ignore import IgnoreRules
from skillfs.core.model import Place
from skillfs.errors import InvalidArgumentError, SkillFSError, StoreUnavailableError
from skillfs.index.catalog import Catalog
from skillfs.index.database import Database
from skillfs.index.identities import Identities
from skillfs.index.journal import Journal
from skillfs.index.rows import IndexDamage, Row, RowKind
from skillfs.stores.base import FolderHandle, StaleFile, Store, is_unsettled
from skillfs.stores.local import LocalFolder
from skillfs.sync.aliases import marked_from
from skillfs.sync.apply import apply, build
from skillfs.sync.gather import Gathered, find_dirty, gather
from skillfs.sync.learned import LearnedFacts
from skillfs.sync.marks import Marks
from skillfs.sync.reconcile import parent_of, parents_of
from skillfs.sync.scan import Scanner

if TYPE_CHECKING:
    from skillfs.sync.inotify import FolderWatches
    from skillfs.sync.watcher import Watcher

__all__ = ["Engine", "Mark"]

T = TypeVar("T")

_log = logging.getLogger("skillfs")
_MAYBE_DAMAGE = (sqlite3.Error, IndexDamage)
# A sync compares rows with one another all the time: what it trips over may be damage too.
_MAYBE_DAMAGE_IN_SYNC = (*_MAYBE_DAMAGE, LookupError, AssertionError)

CHECK_COST = 10.0
"""A check holds at least this many times its own duration, so that checking never takes most of the time."""

MOST_CHECKED = 10_000
"""How many folders are remembered as checked."""

_TOO_FAST = "the store changes faster than it can be looked at; try again"

MOST_LOOKS = 4
"""How often a listing is taken anew when the store, or this process, changes something meanwhile."""


MOST_WAIT = 5.0
"""Seconds after which a kernel that was asked whether there are further events counts as broken."""


class Mark(NamedTuple):
    """A moment in the life of an index.

    Attributes:
        epoch: How often this process has taken something in.
        revision: That of the index.
    """

    epoch: int
    revision: int


class _Prepared(NamedTuple):
    """What is different in a look at a remote store, and the stamp of the index that it is different from."""

    stamp: int | None
    dirty: set[str]
    scanner: Scanner
    gathered: Gathered | None


class Engine:
    """One store, its index, and what keeps them together: shared by all of a process that name both.

    Args:
        store: The store.
        database: Its index.
        namespace: The store's identity.
        ignore: Names that are left out.
        title: Name of a skill whose folder is the root and whose front matter gives none.

    Attributes:
        checked_at: When the whole store was last looked at, by the monotonic clock.
        learned: What first readings computed and is not committed yet.
        check_error: What the last check in the background failed with; None once one went well.
        watcher: What keeps the index in step by itself while somebody wants that.
        watches: The watches of a local store's folders, while there are any.
    """

    def __init__(
        self, store: Store, database: Database, namespace: Namespace, ignore: IgnoreRules, title: str
    ) -> None:
        self.store = store
        self.database = database
        self.catalog = Catalog(database)
        self.journal = Journal(database)
        self.learned = LearnedFacts(database, with_contents=store.remote)
        self.namespace = namespace
        self.ignore = ignore
        self.title = title
        account = [store.account] if store.account else []
        self._view = json.dumps([str(namespace.uuid), store.url, ignore.extra, store.followed, *account])
        self._is_own = False
        self._own_stamp: int | None = None
        self._lock = threading.RLock()
        self._checking = threading.Lock()
        self.checked_at: float | None = None
        self.check_error: str | None = None
        self._epoch = 0
        self._is_lost = False
        self._checked: dict[str, tuple[float, float]] = {}
        self.watcher: Watcher | None = None
        self.watches: FolderWatches | None = None
        self._listeners: WeakSet[threading.Event] = WeakSet()
        _engines.add(self)

    # -- who is told ---------------------------------------------------------------------------------------

    def tell(self, event: threading.Event) -> None:
        """Set an event whenever the index may have a new revision, for as long as somebody holds it."""
        self._listeners.add(event)

    def announce(self) -> None:
        """Set the events of all who want to be told."""
        for event in list(self._listeners):
            event.set()

    # -- freshness -----------------------------------------------------------------------------------------

    def ensure_fresh(self, path: str, max_age: float) -> None:
        """Check a folder, and all below it, unless that was done recently.

        Args:
            path: Store path.
            max_age: Seconds that a check holds; ten times its own duration if that is longer.
        """
        self._notice_fork()
        if self.watcher is not None and self.watcher.keeps_in_step():
            return
        asked = time.monotonic()
        if self._is_fresh(path, max_age, asked):
            return
        if self.store.remote:
            if max_age > 0:
                self._check_in_background(path)
            else:
                self.sync(path)
            return
        with self._lock:
            # Of many that wait here only the first has to look.
            if not self._is_fresh(path, max_age, asked):
                self.sync(path)

    def _is_fresh(self, path: str, max_age: float, asked: float) -> bool:
        at: str | None = path
        while at is not None:
            checked = self._checked.get(at)
            if checked is not None and asked - checked[0] <= max(max_age, CHECK_COST * checked[1]):
                return True
            at = at.rpartition("/")[0] if at else None
        return False

    def _check_in_background(self, path: str) -> None:
        """Check a remote store without keeping anybody waiting; its failure is told by the log."""

        def check() -> None:
            try:
                self.sync(path)
            except Exception as error:
                self.check_error = error.message if isinstance(error, SkillFSError) else type(error).__name__
                _log.warning("a check of the store failed: %s", self.check_error)
                _log.debug("how it failed:", exc_info=error)
                self._checked[path] = (time.monotonic(), 0.0)
            finally:
                self._checking.release()

        if self._checking.acquire(blocking=False):
            try:
                threading.Thread(target=check, name="skillfs-check", daemon=True).start()
            except BaseException:
                self._checking.release()
                raise

    def sync(
        self,
        path: str = "",
        *,
        on_progress: Callable[[int], None] | None = None,
        look: tuple[Mark, Store] | None = None,
    ) -> None:
        """Bring the index in step with a folder and all below it.

        Args:
            path: Store path; the whole store by default.
            on_progress: Called now and then with the number of folders read, during a first opening.
            look: What a remote store showed just now, to begin with, and the moment before that.

        Raises:
            StoreUnavailableError: The root is not there, or another process holds the index too long.
            InvalidArgumentError: Another filesystem has made the index one of another view of the store.
        """
        self._notice_fork()
        if self.store.remote:
            self._sync_remote(path, on_progress, look)
        elif self.watcher is None or not self.watcher.has_told_all() or not self.take_marks():
            with self._lock:
                started = time.monotonic()
                self._notice_replacement()
                duration = self._recovering(lambda: self._sync(path, self.store, on_progress))
                self._remember_check(path, started, duration)
        self.announce()

    def check(self) -> None:
        """Compare the whole store, whatever a watcher says.

        Raises:
            StoreUnavailableError: As for `sync`.
        """
        self._notice_fork()
        if self.store.remote:
            self._sync_remote("")
        else:
            with self._lock:
                watches = self.watches
                marks = Marks() if watches is None else watches.take()
                started = time.monotonic()
                try:
                    self._notice_replacement()
                    if watches is None:
                        duration = self._recovering(lambda: self._sync("", self.store, None))
                    else:
                        duration = self._recovering(lambda: self._look_at(marks, everywhere=True))
                except BaseException:
                    if watches is not None:
                        watches.put_back(marks)
                    raise
                self._remember_check("", started, duration)
        self.announce()

    def _remember_check(self, path: str, started: float, duration: float) -> None:
        if not path or len(self._checked) >= MOST_CHECKED:
            self._checked.clear()
        self._checked[path] = (started, duration)
        if not path:
            self.checked_at, self.check_error = started, None

    def mark(self) -> Mark:
        """The moment before a look at the store: what is taken in after it is newer than the look."""
        return Mark(self._epoch, self.query(self.journal.revision))

    def _sync_remote(
        self,
        path: str,
        on_progress: Callable[[int], None] | None = None,
        look: tuple[Mark, Store] | None = None,
    ) -> None:
        """As `sync`. Nobody is held up while the store is asked; a look that was overtaken is taken anew."""
        path = self.query(lambda: self._known_folder(path))
        for _ in range(MOST_LOOKS):
            started = time.monotonic()
            if look is not None and not path:
                (mark, store), look = look, None
            else:
                mark = self.mark()
                store = self.store.look((path,))
                if path and not store.exists(Place(0, path)):
                    path = ""
                    store = self.store.look()
            duration = time.monotonic() - started
            with contextlib.suppress(StaleFile):
                prepared = self.query(lambda: self._prepare(path, store))  # noqa: B023  # called at once
                with self._lock:
                    self._notice_replacement()
                    if mark.epoch != self._epoch:
                        continue
                    self._recovering(
                        lambda: self._take_look(path, store, prepared, mark, on_progress)  # noqa: B023  # likewise
                    )
                    self._epoch += 1
                    self._remember_check(path, started, duration)
                    return
            path = self.query(lambda: self._known_folder(path))  # noqa: B023  # likewise
        with self._lock:
            self._notice_replacement()
            self._epoch += 1
            started = time.monotonic()
            self._recovering(self._look_alone)
            self._remember_check("", started, time.monotonic() - started)

    def _prepare(self, path: str, look: Store) -> _Prepared | None:
        """What a look shows to be different from the index; None where there is no index so far.

        Raises:
            StaleFile: The look is overtaken by another folder, file or row.
        """
        if not self._is_built():
            return None
        scope = self._scope(path)
        if path and (scope is None or scope.path != path):
            raise StaleFile
        stamp = self.catalog.stamp()
        try:
            dirty = find_dirty(look, self.catalog, scope)
            scanner = self._scanner(look)
            gathered = gather(look, self.catalog, scanner, dirty) if dirty else None
        except _MAYBE_DAMAGE_IN_SYNC as error:
            if isinstance(error, SkillFSError):
                raise
            if self.catalog.stamp() == stamp:
                raise IndexDamage("rows that do not fit together") from error
            raise StaleFile from error  # rows that changed meanwhile
        return _Prepared(stamp, dirty, scanner, gathered)

    def _take_look(
        self,
        path: str,
        look: Store,
        prepared: _Prepared | None,
        mark: Mark,
        on_progress: Callable[[int], None] | None,
    ) -> None:
        """Commit what was prepared, unless another process has taken something in since the mark."""
        if prepared is None:
            if self._is_built():
                raise StaleFile
            self._build(self.store.look() if path else look, on_progress)
            return
        if prepared.gathered is None:
            return
        with self.database.write() as connection:
            self._is_built()
            if self.journal.revision() != mark.revision:
                raise StaleFile
            scanner, gathered = prepared.scanner, prepared.gathered
            if self.catalog.stamp() != prepared.stamp:
                scanner = self._scanner(look)
                gathered = gather(look, self.catalog, scanner, prepared.dirty)
            identities = Identities(connection, self.namespace, time.time())
            apply(connection, look, self.catalog, scanner, gathered, identities, self.title)

    def _look_alone(self) -> None:
        """Look at a remote store while nobody else can take anything in: what always comes to an end.

        Raises:
            StoreUnavailableError: The store itself changes all the time.
        """
        if not self._is_built():
            self._begin_whole()
            return
        for _ in range(MOST_LOOKS):
            with contextlib.suppress(StaleFile), self.database.write() as connection:
                look = self.store.look()
                scanner = self._scanner(look)
                gathered = gather(look, self.catalog, scanner, find_dirty(look, self.catalog))
                identities = Identities(connection, self.namespace, time.time())
                apply(connection, look, self.catalog, scanner, gathered, identities, self.title)
                return
        raise StoreUnavailableError(_TOO_FAST)

    def _begin_whole(self) -> None:
        """Look at all of the store as if for the first time, or once more."""
        self._epoch += 1
        for _ in range(MOST_LOOKS):
            with contextlib.suppress(StaleFile):
                self._sync("", self.store.look(), None)
                return
        raise StoreUnavailableError(_TOO_FAST)

    def look_again(self, folder: str) -> None:
        """List one folder again, because a reader found it different from what the index says."""
        self._notice_fork()
        if self.store.remote:
            self._sync_remote(folder)
            self.announce()
            return
        with self._lock:
            self._notice_replacement()
            self._recovering(lambda: self._look_again(folder))
        self.announce()

    def written(self, paths: Iterable[str], moves: Mapping[str, str] | None = None) -> None:
        """Take in what was just written to the store through this process.

        Args:
            paths: Files and folders that were written, made or removed; with a folder goes all it holds.
            moves: New path to old path of files and folders that were moved; all that a folder holds moved
                along.
        """
        self._notice_fork()
        with self._lock:
            self._notice_replacement()
            self._epoch += 1
            for left in reversed(range(MOST_LOOKS)):
                # A new SKILL.md of somebody else can be gone again between the look and its reading, and
                # another process can take in what is newer than the look; at the last turn it has to wait.
                alone = self.store.remote and not left
                with contextlib.suppress(StaleFile):
                    self._recovering(lambda: self._take_in(set(paths), moves or {}, alone=alone))  # noqa: B023
                    self.announce()
                    return
            raise StoreUnavailableError(_TOO_FAST)

    def _take_in(self, paths: set[str], moves: Mapping[str, str], *, alone: bool = False) -> None:
        if not self._is_built():
            self._begin_whole()
            return
        told = paths.union(moves, moves.values())
        # A folder itself too: it may have taken the place of one that is known.
        known = {self._known_folder(where) for path in told for where in (path, parent_of(path))}
        if not self.store.remote:
            known |= marked_from(self.catalog, told)
        since = self.journal.revision() if self.store.remote and not alone else None
        while True:
            look = self.store.look(known)
            # Where no folder is empty, one whose last file went away is gone as well.
            gone = {f for f in known if f and not look.exists(Place(0, f))} if self.store.remote else set()
            if not gone:
                break
            known = {parent_of(f) if f in gone else f for f in known}
        # Of what others did there meanwhile, not enough is known.
        again = known if alone else None
        if not self._apply(
            known, look, sure=self.store.remote, told=told, moves=moves, since=since, again=again
        ):
            self._apply_everywhere(known, moves)

    def _known_folder(self, path: str) -> str:
        while path:
            row = self.catalog.by_path(path.split("/"))
            if row is not None and row.kind in (RowKind.FOLDER, RowKind.SKILL):
                return path
            path = parent_of(path)
        return ""

    def _look_again(self, folder: str) -> None:
        if not self._is_built():
            self._build(self.store, None)
        elif not self._apply({folder}, self.store, sure=False):
            self._apply_everywhere({folder})

    def _sync(self, path: str, look: Store, on_progress: Callable[[int], None] | None) -> float:
        """As `sync`; returns the seconds that looking for differences took, 0 where all was read anew."""
        if not self._is_built():
            self._build(self.store.look() if path else look, on_progress)
            return 0.0
        started = time.monotonic()
        dirty = find_dirty(look, self.catalog, self._scope(path))
        duration = time.monotonic() - started
        if dirty and not self._apply(dirty, look, sure=self.store.remote):
            self._apply_everywhere(dirty)
        return duration

    def _scope(self, path: str) -> Row | None:
        """The nearest known folder at or above a path; None for the whole store."""
        while path:
            row = self.catalog.by_path(path.split("/"))
            if row is not None and row.kind in (RowKind.FOLDER, RowKind.SKILL):
                # What lies behind a link is another when the link is: that shows in the whole only.
                return row if row.place == Place(0, path) else None
            path = parent_of(path)
        return None

    def _build(self, look: Store, on_progress: Callable[[int], None] | None) -> None:
        with self.database.write() as connection:
            if self._is_built():
                return  # another process built it while this one waited
            scanner = self._scanner(look)
            if on_progress is not None:
                scanner.on_progress = on_progress
            identities = Identities(connection, self.namespace, time.time())
            build(connection, look, self.catalog, scanner, identities, self.title)
            connection.execute("INSERT OR REPLACE INTO facts.meta VALUES ('view', ?)", (self._view,))
        self._is_own = True

    def _is_built(self) -> bool:
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

    def _require_own(self) -> None:
        """See to it that what has just been read is of this view; asks the index at a new stamp only."""
        stamp = self.catalog.seen.stamp
        if self._is_own and not self.database.in_memory and (stamp is None or stamp != self._own_stamp):
            self._is_built()

    def _apply_everywhere(self, dirty: set[str], moves: Mapping[str, str] | None = None) -> None:
        assert not self.store.remote  # which shows nothing by itself: all would seem to be gone
        self._apply(dirty | find_dirty(self.store, self.catalog), self.store, sure=True, moves=moves)

    def _apply(
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
            self._is_built()
            if since is not None and self.journal.revision() != since:
                raise StaleFile
            if again is not None:
                look = self.store.look(again)
            scanner = self._scanner(look)
            gathered = gather(look, self.catalog, scanner, dirty)
            if not sure and (scanner.vanished or self._may_have_moved(gathered, told)):
                return False
            identities = Identities(connection, self.namespace, time.time())
            apply(connection, look, self.catalog, scanner, gathered, identities, self.title, moves)
        self._unwatch(gathered)
        return True

    # -- what a watcher has marked -------------------------------------------------------------------------

    def _scanner(self, look: Store) -> Scanner:
        scanner = Scanner(look, self.ignore)
        if self.watches is not None:
            scanner.on_folder = self._watch
        return scanner

    def _watch(self, folder: FolderHandle, path: str, beside: Place | None) -> None:
        assert isinstance(folder, LocalFolder)
        if self.watches is not None:
            self.watches.add(folder.fileno(), path, "" if beside is None else f"{beside.root}:{beside.path}")

    def _unwatch(self, gathered: Gathered) -> None:
        if self.watches is not None:
            folders = (p for p, k in gathered.known.items() if k.node.kind <= RowKind.SKILL)
            self.watches.forget(p for p in folders if p not in gathered.seen)

    def take_marks(self) -> bool:
        """Look where the watches have left marks.

        Returns:
            Whether there are watches.

        Raises:
            StoreUnavailableError: As for `sync`; what was marked stays marked.
        """
        with self._lock:
            if (watches := self.watches) is None:
                return False
            self._notice_replacement()
            marks = watches.take()
            try:
                self._recovering(lambda: self._look_at(marks))
            except BaseException:
                watches.put_back(marks)
                raise
        self.announce()
        return True

    def _look_at(self, marks: Marks, *, everywhere: bool = False) -> float:
        """Look where there are marks, or everywhere; returns the seconds that looking took."""
        if not self._is_built():
            self._build(self.store, None)
            return 0.0
        watches, duration = self.watches, 0.0
        for left in reversed(range(MOST_LOOKS)):
            started = time.monotonic()
            dirty = self._marked(marks)
            if everywhere or marks.doubt:
                dirty |= find_dirty(self.store, self.catalog)
            duration = time.monotonic() - started
            if not dirty or self._apply_marked(dirty, marks, watches, sure=not left):
                break
            assert watches is not None
            marks.add(watches.take())
        return duration

    def _marked(self, marks: Marks) -> set[str]:
        """The folders that have to be listed again because of marks."""
        dirty = {self._known_folder(path) for path in marks.folders}
        for path in marks.tops():
            row = self.catalog.by_path(path.split("/") if path else ())
            if row is not None and row.kind in (RowKind.FOLDER, RowKind.SKILL):
                dirty |= find_dirty(self.store, self.catalog, row)
        return dirty | self._dirty_by_other_names()

    def _dirty_by_other_names(self) -> set[str]:
        """Folders of files that were changed through another of their names, which raises no event here."""
        rows = self.catalog.read(
            "SELECT e.parent, e.name, e.signature FROM problem p JOIN entry e ON e.parent=p.folder "
            "AND e.name=p.name WHERE p.code='hard-link' AND e.target IS NULL"
        )
        if not rows:
            return set()
        above = self.catalog.with_paths({parent for parent, _, _ in rows})
        files = (
            (f"{above[parent]}/{name}" if above[parent] else name, signature)
            for parent, name, signature in rows
            if parent in above
        )
        return {parent_of(path) for path in self.store.differing(0, files)}

    def _apply_marked(
        self, dirty: set[str], marks: Marks, watches: FolderWatches | None, *, sure: bool
    ) -> bool:
        """Reconcile these folders, in one transaction, unless nothing is different there.

        Args:
            dirty: Their paths.
            marks: What is known of moves.
            watches: Whose further marks may tell where that is what is gone.
            sure: Whether to go by what was seen, without waiting for further marks.

        Returns:
            False, with nothing done, when something is gone and something came elsewhere meanwhile, so that
            both have to be seen at once.
        """
        look = self.store
        stamp = self.catalog.stamp()
        scanner = self._scanner(look)
        gathered = gather(look, self.catalog, scanner, dirty)
        if _is_same(gathered):
            return True
        with self.database.write() as connection:
            self._is_built()
            if self.catalog.stamp() != stamp:
                scanner = self._scanner(look)
                gathered = gather(look, self.catalog, scanner, dirty)
            is_gone = bool(scanner.vanished) or not gathered.known.keys() <= gathered.seen.keys()
            if is_gone and not sure and watches is not None:
                watches.barrier(MOST_WAIT)
                if watches.arrivals:
                    return False
            identities = Identities(connection, self.namespace, time.time())
            moves = _confirmed(marks.moves, gathered, look)
            apply(connection, look, self.catalog, scanner, gathered, identities, self.title, moves)
        self._unwatch(gathered)
        self._mark_young(gathered)
        return True

    def _mark_young(self, gathered: Gathered) -> None:
        """See to it that what was too young for its signature to vouch for it is looked at once more."""
        young = {parent_of(path) for path, seen in gathered.seen.items() if is_unsettled(seen.state)}
        young.update(path for path, (_, state) in gathered.listed.items() if is_unsettled(state))
        if young and self.watcher is not None:
            most = max((seen.state.size for seen in gathered.seen.values()), default=0)
            self.watcher.look_later(young, most)

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

    def _notice_replacement(self) -> None:
        self.store.check_root()
        if self.database.replaced():
            self.database.reopen()

    def _begin_anew(self) -> None:
        """In a forked child, before it has a second thread: leave the locks to the parent."""
        self._lock = threading.RLock()
        self._checking = threading.Lock()
        self.learned.forget()
        self._checked = {}
        self.watches = None
        self._listeners = WeakSet()
        if self.watcher is not None:
            self.watcher = self.watcher.begun_anew()
        self._is_lost = self.database.in_memory

    def _notice_fork(self) -> None:
        """In a forked child: build anew what was in the memory of the parent."""
        if not self._is_lost:
            return
        with self._lock:
            if self._is_lost:
                self._recovering(self._begin_whole)
                self._is_lost = False

    def _recovering(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except _MAYBE_DAMAGE_IN_SYNC as error:
            if isinstance(error, SkillFSError):
                raise
            return self.database.recovering(lambda: self._rebuilt(work), error)

    def _rebuilt(self, work: Callable[[], T]) -> T:
        self._begin_whole()
        return work()

    def query(self, work: Callable[[], T]) -> T:
        """Ask the index; when it turns out damaged, rebuild it and ask again."""
        self._notice_fork()
        self.catalog.seen.stamp = None
        try:
            found = work()
            self._require_own()
        except _MAYBE_DAMAGE as error:
            with self._lock:
                return self.database.recovering(lambda: self._rebuilt(work), error)
        return found


def _is_same(gathered: Gathered) -> bool:
    """Whether nothing was seen that the index does not hold."""
    return not (gathered.known or gathered.seen or gathered.unreadable) and all(
        (state.signature, state.modified) == (row.signature, row.modified)
        for row, state in gathered.listed.values()
    )


def _confirmed(moves: Mapping[str, str], gathered: Gathered, store: Store) -> dict[str, str]:
    """The moves of which the thing at the new path is the one that was at the old."""
    found = {}
    for new, old in moves.items():
        seen, known = gathered.seen.get(new), gathered.known.get(old)
        if seen is None or known is None:
            continue
        inode = store.inode(known.node.signature)
        if inode and inode == store.inode(seen.state.signature):
            found[new] = old
    return found


_engines: WeakSet[Engine] = WeakSet()


def _go_on_in_child() -> None:
    for engine in list(_engines):
        engine._begin_anew()


os.register_at_fork(after_in_child=_go_on_in_child)
