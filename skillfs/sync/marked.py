"""Looks where the watches of a store have left marks, and takes in what is different there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from skillfs.index.rows import RowKind, encode_place
from skillfs.stores.base import Store, is_unsettled
from skillfs.sync.gather import Gathered, find_dirty, gather, link_differs
from skillfs.sync.marks import Marks
from skillfs.sync.motion import in_motion
from skillfs.sync.reconcile import parent_of
from skillfs.sync.scan import Scanner
from skillfs.sync.taking import Taking

if TYPE_CHECKING:
    from skillfs.sync.inotify import FolderWatches

__all__ = ["MOST_WAIT", "look_at_marks"]

MOST_LOOKS = 4
"""How often marked folders are looked at anew when things are moved between them meanwhile."""

MOST_POSTPONED = 5.0
"""Seconds for which folders between which things are moved all the time are waited for."""

MOST_WAIT = 5.0
"""Seconds after which a kernel that was asked whether there are further events counts as broken."""


def look_at_marks(
    taking: Taking,
    marks: Marks,
    on_young: Callable[[set[str], int], None],
    *,
    links: bool = False,
    everywhere: bool = False,
    seconds: float = 0.0,
) -> float:
    """Look where there are marks, or everywhere, and at files that can change without leaving any.

    Args:
        taking: Store and index, which is built.
        marks: The marks; those that came meanwhile and were looked at too are added. Where things are moved
            all the time, marks are put back for the next look.
        on_young: Called with folders to look at again when a file of so many bytes can be trusted to be
            written.
        links: Whether to look where links lead, too, which may change outside the store.
        everywhere: Whether the whole store is compared.
        seconds: How long to wait until nothing is moved any more.

    Returns:
        The seconds that looking took.
    """
    return _Look(taking, marks, on_young).run(links=links, everywhere=everywhere, seconds=seconds)


class _Look:
    def __init__(self, taking: Taking, marks: Marks, on_young: Callable[[set[str], int], None]) -> None:
        self._taking = taking
        self._store = taking.store
        self._catalog = taking.catalog
        self._marks = marks
        self._on_young = on_young

    def run(self, *, links: bool, everywhere: bool, seconds: float) -> float:
        marks, watches = self._marks, self._taking.watches
        until = time.monotonic() + seconds
        turn = 0
        while True:
            turn += 1
            started = time.monotonic()
            dirty = self._marked()
            if links:
                dirty |= self._dirty_by_links()
            if everywhere or marks.doubt:
                dirty |= find_dirty(self._store, self._catalog) | self._taking.unwatched()
            now = time.monotonic()
            is_overdue = marks.postponed is not None and now - marks.postponed > MOST_POSTPONED
            if not dirty or self._take(dirty, sure=watches is None or is_overdue):
                return now - started
            assert watches is not None
            if turn >= MOST_LOOKS and time.monotonic() >= until:
                self._take_what_rests(dirty, watches)
                return now - started
            marks.add(watches.take())

    def _take_what_rests(self, dirty: set[str], watches: FolderWatches) -> None:
        """Reconcile the folders between which nothing is moved now, and leave the others to the next look."""
        marks, later = self._marks, watches.take()
        motion = in_motion(marks.moves, later.moves)
        postponed = time.monotonic() if marks.postponed is None else marks.postponed
        if self._take({path for path in dirty if path not in motion}, sure=False):
            rest = Marks(
                folders={path for path in dirty | marks.folders if path in motion},
                trees={path for path in marks.trees if path in motion},
                places={place: way for place, way in marks.places.items() if place in motion},
            )
        else:
            rest = marks  # something else was moved meanwhile
            rest.folders |= dirty
        if rest.folders or rest.trees:
            rest.arrivals = rest.departures = True
            rest.postponed = postponed
            rest.add(later)
            later = rest
        watches.put_back(later)

    def _marked(self) -> set[str]:
        """The folders that have to be listed again."""
        dirty = {self._taking.known_folder(path) for path in self._marks.folders}
        for path in self._marks.tops():
            row = self._catalog.by_path(path.split("/") if path else ())
            if row is not None and row.kind in (RowKind.FOLDER, RowKind.SKILL):
                dirty |= find_dirty(self._store, self._catalog, row)
        return dirty | self._dirty_by_other_names()

    def _dirty_by_other_names(self) -> set[str]:
        """Folders of files that were changed through another of their names, which raises no event here."""
        rows = self._catalog.read(
            "SELECT e.parent, e.name, e.signature FROM problem p JOIN entry e ON e.parent=p.folder "
            "AND e.name=p.name WHERE p.code='hard-link' AND e.target IS NULL"
        )
        if not rows:
            return set()
        above = self._catalog.with_paths({parent for parent, _, _ in rows})
        files = (
            (f"{above[parent]}/{name}" if above[parent] else name, signature)
            for parent, name, signature in rows
            if parent in above
        )
        return {parent_of(path) for path in self._store.differing(0, files)}

    def _dirty_by_links(self) -> set[str]:
        """Folders of links that lead elsewhere than they did."""
        dirty: set[str] = set()
        # Two queries, as each has an index of its own.
        rows = self._catalog.read("SELECT parent, name, kind, target FROM entry WHERE kind=3")
        rows += self._catalog.read(
            "SELECT parent, name, kind, target FROM entry WHERE target IS NOT NULL AND kind!=3"
        )
        faults = self._catalog.link_faults() if rows else {}
        for parent, name, kind, target in rows:
            above = self._catalog.by_key(parent)
            if above is None or above.path in dirty:
                continue
            place = above.place.child(name)
            if kind == RowKind.LINK:
                differs = link_differs(self._store, place, target, faults.get((parent, name)))
            else:
                resolved = self._store.resolve(place)
                differs = isinstance(resolved, str) or encode_place(resolved) != target
            if differs:
                dirty.add(above.path)
        return dirty

    def _take(self, dirty: set[str], *, sure: bool) -> bool:
        """Reconcile these folders, in one transaction, unless nothing is different there.

        Args:
            dirty: Their paths.
            sure: Whether to go by what was seen, without waiting for further marks.

        Returns:
            False, with nothing done, when something may have been seen only where it left, or only where it
            came to, because it was moved during the look.
        """
        taking, watches = self._taking, self._taking.watches
        stamp = self._catalog.stamp()
        scanner = taking.scanner(self._store)
        gathered = gather(self._store, self._catalog, scanner, dirty)
        if others := self._with_other_names(scanner, gathered) - dirty:
            dirty = dirty | others
            scanner = taking.scanner(self._store)
            gathered = gather(self._store, self._catalog, scanner, dirty)
        if _is_same(gathered):
            taking.taken_in(gathered)
            self._tell_young(gathered)  # what this process wrote itself was taken in without that
            return True
        with taking.database.write() as connection:
            taking.is_built()
            if self._catalog.stamp() != stamp:
                scanner = taking.scanner(self._store)
                gathered = gather(self._store, self._catalog, scanner, dirty)
            if not sure and watches is not None and self._is_split(scanner, gathered, watches):
                return False
            moves = _confirmed(self._marks, gathered, self._store)
            taking.commit(connection, self._store, scanner, gathered, moves)
        taking.taken_in(gathered)
        self._tell_young(gathered)
        return True

    def _is_split(self, scanner: Scanner, gathered: Gathered, watches: FolderWatches) -> bool:
        known, seen = gathered.known.keys(), gathered.seen.keys()
        is_gone, is_new = bool(scanner.vanished) or not known <= seen, not seen <= known
        if is_gone or is_new:
            watches.barrier(MOST_WAIT)
        return (is_gone and watches.arrivals) or (is_new and watches.departures)

    def _with_other_names(self, scanner: Scanner, gathered: Gathered) -> set[str]:
        """Folders of files that were given another name: only the folder of the new one says so."""
        inode = self._store.inode
        linked = {
            inode(seen.state.signature)
            for problem in scanner.problems
            if problem.code == "hard-link"
            and (seen := gathered.seen.get(f"{problem.folder}/{problem.name}".lstrip("/"))) is not None
        }
        if not linked:
            return set()
        rows = self._catalog.read("SELECT parent, signature FROM entry WHERE kind=2 AND target IS NULL")
        parents = {parent for parent, signature in rows if inode(signature) in linked}
        above = self._catalog.with_paths(parents)
        return {above[parent] for parent in parents if parent in above}

    def _tell_young(self, gathered: Gathered) -> None:
        """Have looked at once more what was too young for its signature to vouch for it."""
        young = {
            path if seen.kind <= RowKind.SKILL else parent_of(path)
            for path, seen in gathered.seen.items()
            if is_unsettled(seen.state)
        }
        young.update(path for path, (_, state) in gathered.listed.items() if is_unsettled(state))
        if young:
            self._on_young(young, max((seen.state.size for seen in gathered.seen.values()), default=0))


def _is_same(gathered: Gathered) -> bool:
    """Whether nothing was seen that the index does not hold."""
    return not (gathered.known or gathered.seen or gathered.unreadable) and all(
        (state.signature, state.modified) == (row.signature, row.modified)
        for row, state in gathered.listed.values()
    )


def _stays(path: str, gathered: Gathered) -> bool:
    """Whether a file or a folder lies where one was known, which is then the same entry."""
    seen, known = gathered.seen.get(path), gathered.known.get(path)
    if seen is None or known is None:
        return False
    return (seen.kind <= RowKind.SKILL) == (known.node.kind <= RowKind.SKILL)


def _confirmed(marks: Marks, gathered: Gathered, store: Store) -> dict[str, str]:
    """The moves of which the thing at the new path is one that was known at an old one."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for new, way in marks.ways.items():
        seen = gathered.seen.get(new)
        if seen is None or _stays(new, gathered):
            continue
        inode = store.inode(seen.state.signature)
        for old in way:
            known = gathered.known.get(old)
            if inode and old not in taken and known and store.inode(known.node.signature) == inode:
                found[new] = old
                taken.add(old)
                break
    return found
