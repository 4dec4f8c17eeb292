"""Keeps one index in step with one store: the only way anything is written to it.

An opening, an old listing, a read that met a new signature and an explicit sync all call `sync` with a scope;
it looks for differences without holding anything up, and only when there are some takes the writer's lock,
looks at those places again, reconciles and commits. A remote store is asked before the lock is taken; what it
said counts only if nothing was taken in meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

from skillfs.core.digest import Namespace
from skillfs.core.ignore import IgnoreRules
from skillfs.core.model import Place
from skillfs.errors import SkillFSError, StoreUnavailableError
from skillfs.index.database import Database
from skillfs.index.faults import MAYBE_DAMAGE, MAYBE_DAMAGE_IN_SYNC
from skillfs.stores.base import StaleFile, Store
from skillfs.sync.aliases import marked_from
from skillfs.sync.gather import find_dirty
from skillfs.sync.learned import LearnedFacts
from skillfs.sync.marked import look_at_marks
from skillfs.sync.marks import Marks
from skillfs.sync.reconcile import parent_of
from skillfs.sync.remote_looks import MOST_LOOKS, TOO_FAST, look_alone, prepare, take_look
from skillfs.sync.taking import Taking

if TYPE_CHECKING:
    from skillfs.sync.inotify import FolderWatches

__all__ = ["Engine", "Keeper", "Mark"]

T = TypeVar("T")

_log = logging.getLogger("skillfs")
CHECK_COST = 10.0
"""A check holds at least this many times its own duration, so that checking never takes most of the time."""

MOST_CHECKED = 10_000
"""How many folders are remembered as checked."""


class Keeper(Protocol):
    """What keeps an index in step by itself: a watcher, as its engine sees it."""

    @property
    def is_running(self) -> bool:
        """Whether anybody wants that."""

    def keeps_in_step(self) -> bool:
        """Whether what is listed is as young as watching makes it."""

    def polls_within(self, seconds: float) -> bool:
        """Whether the store is looked at by itself at least as often; less often while it fails."""

    def has_told_all(self) -> bool:
        """Wait until all that happened before this call has left its marks; False where nothing watches."""

    def look_later(self, folders: Iterable[str], size: int) -> None:
        """Look at folders again when a file in them of so many bytes can be trusted to be written."""

    def begun_anew(self) -> Keeper | None:
        """In a forked child: the one to go on with."""

    def status(self) -> dict[str, Any]:
        """How it is kept in step, for `SkillFileSystem.status`."""


class Mark(NamedTuple):
    """A moment in the life of an index.

    Attributes:
        epoch: How often this process has taken something in.
        revision: That of the index.
    """

    epoch: int
    revision: int


class Engine:
    """One store, its index, and what keeps them together: shared by all of a process that name both.

    Args:
        store: The store.
        database: Its index.
        namespace: The store's identity.
        ignore: Names that are left out.
        title: Name of a skill whose folder is the root and whose front matter gives none.

    Attributes:
        taking: The way into the index.
        checked_at: When the whole store was last looked at, by the monotonic clock.
        learned: What first readings computed and is not committed yet.
        check_error: What the last check in the background failed with; None once one went well.
        watcher: What keeps the index in step by itself while somebody wants that.
    """

    def __init__(
        self, store: Store, database: Database, namespace: Namespace, ignore: IgnoreRules, title: str
    ) -> None:
        self.taking = Taking(store, database, namespace, ignore, title)
        self.store = store
        self.database = database
        self.catalog = self.taking.catalog
        self.journal = self.taking.journal
        self.learned = LearnedFacts(database, with_contents=store.remote)
        self.namespace = namespace
        self.ignore = ignore
        self.title = title
        self._lock = threading.RLock()
        self._checking = threading.Lock()
        self.checked_at: float | None = None
        self.check_error: str | None = None
        self._epoch = 0
        self._is_lost = False
        self._checked: dict[str, tuple[float, float]] = {}
        self.watcher: Keeper | None = None
        self._listeners: WeakSet[threading.Event] = WeakSet()
        self._telling = threading.RLock()
        _engines.add(self)

    @property
    def watches(self) -> FolderWatches | None:
        """The watches of a local store's folders, while there are any."""
        return self.taking.watches

    @watches.setter
    def watches(self, watches: FolderWatches | None) -> None:
        self.taking.watches = watches

    # -- who is told ---------------------------------------------------------------------------------------

    def tell(self, event: threading.Event) -> None:
        """Set an event whenever the index may have a new revision, for as long as somebody holds it."""
        with self._telling:
            self._listeners.add(event)

    def announce(self) -> None:
        """Set the events of all who want to be told."""
        with self._telling:
            events = list(self._listeners)
        for event in events:
            event.set()

    # -- freshness -----------------------------------------------------------------------------------------

    def ensure_fresh(self, path: str, max_age: float) -> bool:
        """Check a folder, and all below it, unless that was done recently.

        Args:
            path: Store path.
            max_age: Seconds that a check holds; ten times its own duration if that is longer.

        Returns:
            Whether it was not, so that what was looked up before may be another now.
        """
        self._notice_fork()
        if self.watcher is not None and self.watcher.keeps_in_step():
            return False
        asked = time.monotonic()
        if self._is_fresh(path, max_age, asked):
            return False
        if self.store.remote:
            if max_age == 0:
                self.sync(path)
            elif self.watcher is None or not self.watcher.polls_within(max_age):
                self._check_in_background(path)
            return True
        with self._lock:
            # Of many that wait here only the first has to look.
            if not self._is_fresh(path, max_age, asked):
                self.sync(path)
        return True

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
                watches = self.taking.watches
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

    @property
    def is_checking(self) -> bool:
        """Whether another thread is taking something in, for which who needs a fresh look would wait."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
            return False
        return True

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
        path = self.query(lambda: self.taking.known_folder(path))
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
                prepared = self.query(lambda: prepare(self.taking, path, store))  # noqa: B023  # called at once
                with self._lock:
                    self._notice_replacement()
                    if mark.epoch != self._epoch:
                        continue
                    self._recovering(
                        lambda: take_look(self.taking, path, store, prepared, mark.revision, on_progress)  # noqa: B023  # likewise
                    )
                    self._epoch += 1
                    self._remember_check(path, started, duration)
                    return
            path = self.query(lambda: self.taking.known_folder(path))  # noqa: B023  # likewise
        with self._lock:
            self._notice_replacement()
            self._epoch += 1
            started = time.monotonic()
            self._recovering(self._look_alone)
            self._remember_check("", started, time.monotonic() - started)

    def _look_alone(self) -> None:
        if self.taking.is_built():
            look_alone(self.taking)
        else:
            self._begin_whole()

    def _begin_whole(self) -> None:
        """Look at all of the store as if for the first time, or once more."""
        self._epoch += 1
        for _ in range(MOST_LOOKS):
            with contextlib.suppress(StaleFile):
                self._sync("", self.store.look(), None)
                return
        raise StoreUnavailableError(TOO_FAST)

    def look_again(self, folder: str) -> None:
        """List one folder again, because a reader found it different from what the index says."""
        self._notice_fork()
        if self.store.remote:
            self._sync_remote(folder)
        elif self.watcher is None or not self.watcher.has_told_all() or not self.take_marks(folder):
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
            raise StoreUnavailableError(TOO_FAST)

    def _take_in(self, paths: set[str], moves: Mapping[str, str], *, alone: bool = False) -> None:
        if not self.taking.is_built():
            self._begin_whole()
            return
        told = paths.union(moves, moves.values())
        # A folder itself too: it may have taken the place of one that is known.
        known = {self.taking.known_folder(where) for path in told for where in (path, parent_of(path))}
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
        if not self.taking.take(
            known, look, sure=self.store.remote, told=told, moves=moves, since=since, again=again
        ):
            self.taking.take_everywhere(known, moves)

    def _look_again(self, folder: str) -> None:
        if not self.taking.is_built():
            self.taking.build(self.store, None)
        elif not self.taking.take({folder}, self.store, sure=False):
            self.taking.take_everywhere({folder})

    def _sync(self, path: str, look: Store, on_progress: Callable[[int], None] | None) -> float:
        """As `sync`; returns the seconds that looking for differences took, 0 where all was read anew."""
        if not self.taking.is_built():
            self.taking.build(self.store.look() if path else look, on_progress)
            return 0.0
        self.taking.require_mounted()
        started = time.monotonic()
        dirty = find_dirty(look, self.catalog, self.taking.scope(path))
        duration = time.monotonic() - started
        if dirty and not self.taking.take(dirty, look, sure=self.store.remote):
            self.taking.take_everywhere(dirty)
        return duration

    # -- what a watcher has marked -------------------------------------------------------------------------

    def take_marks(self, folder: str | None = None, *, links: bool = True, seconds: float = 1.0) -> bool:
        """Look where the watches have left marks, and at what can change without leaving any.

        Args:
            folder: A folder to list again in any case.
            links: Whether to look where links lead, too: that takes time for each of them.
            seconds: How long to wait for the end of moves between marked folders.

        Returns:
            Whether there are watches.

        Raises:
            StoreUnavailableError: As for `sync`; what was marked stays marked.
        """
        with self._lock:
            if (watches := self.taking.watches) is None:
                return False
            self._notice_replacement()
            marks = watches.take()
            if folder is not None:
                marks.folders.add(folder)
            try:
                self._recovering(lambda: self._look_at(marks, links=links, seconds=seconds))
            except BaseException:
                watches.put_back(marks)
                raise
        self.announce()
        return True

    def _look_at(
        self, marks: Marks, *, links: bool = False, everywhere: bool = False, seconds: float = 1.0
    ) -> float:
        """Look where there are marks, or everywhere; returns the seconds that looking took."""
        if not self.taking.is_built():
            self.taking.build(self.store, None)
            return 0.0
        self.taking.require_mounted()
        return look_at_marks(
            self.taking, marks, self._look_later, links=links, everywhere=everywhere, seconds=seconds
        )

    def _look_later(self, folders: set[str], size: int) -> None:
        if self.watcher is not None:
            self.watcher.look_later(folders, size)

    # -- damage, forks -------------------------------------------------------------------------------------

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
        self.taking.watches = None
        self._listeners = WeakSet()
        self._telling = threading.RLock()
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
        except MAYBE_DAMAGE_IN_SYNC as error:
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
            self.taking.require_own()
        except MAYBE_DAMAGE as error:
            with self._lock:
                return self.database.recovering(lambda: self._rebuilt(work), error)
        return found


_engines: WeakSet[Engine] = WeakSet()


def _go_on_in_child() -> None:
    for engine in list(_engines):
        engine._begin_anew()


os.register_at_fork(after_in_child=_go_on_in_child)
