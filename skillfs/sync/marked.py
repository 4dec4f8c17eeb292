"""Looks where the watches of a store have left marks, and takes in what is different there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from skillfs.index.rows import RowKind, encode_place
from skillfs.stores.base import Store, is_unsettled
from skillfs.sync.gather import Gathered, find_dirty, gather, link_differs
from skillfs.sync.marks import Marks
from skillfs.sync.reconcile import parent_of
from skillfs.sync.scan import Scanner
from skillfs.sync.taking import Taking

__all__ = ["MOST_WAIT", "look_at_marks"]

MOST_LOOKS = 4
"""How often marked folders are looked at anew when things are moved between them meanwhile."""

MOST_WAIT = 5.0
"""Seconds after which a kernel that was asked whether there are further events counts as broken."""


def look_at_marks(
    taking: Taking,
    marks: Marks,
    on_young: Callable[[set[str], int], None],
    *,
    links: bool = False,
    everywhere: bool = False,
) -> float:
    """Look where there are marks, or everywhere, and at files that can change without leaving any.

    Args:
        taking: Store and index, which is built.
        marks: The marks; those that came meanwhile and were looked at too are added.
        on_young: Called with folders to look at again when a file of so many bytes can be trusted to be
            written.
        links: Whether to look where links lead, too, which may change outside the store.
        everywhere: Whether the whole store is compared.

    Returns:
        The seconds that looking took.
    """
    return _Look(taking, marks, on_young).run(links=links, everywhere=everywhere)


class _Look:
    def __init__(self, taking: Taking, marks: Marks, on_young: Callable[[set[str], int], None]) -> None:
        self._taking = taking
        self._store = taking.store
        self._catalog = taking.catalog
        self._marks = marks
        self._on_young = on_young

    def run(self, *, links: bool, everywhere: bool) -> float:
        marks, watches, duration = self._marks, self._taking.watches, 0.0
        for left in reversed(range(MOST_LOOKS)):
            started = time.monotonic()
            dirty = self._marked()
            if links:
                dirty |= self._dirty_by_links()
            if everywhere or marks.doubt:
                dirty |= find_dirty(self._store, self._catalog) | self._taking.unwatched()
            duration = time.monotonic() - started
            if not dirty or self._take(dirty, sure=not left or watches is None):
                break
            assert watches is not None
            marks.add(watches.take())
        return duration

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
        for parent, name, kind, target in self._catalog.read(
            "SELECT parent, name, kind, target FROM entry WHERE kind=3 OR target IS NOT NULL"
        ):
            above = self._catalog.by_key(parent)
            if above is None or above.path in dirty:
                continue
            place = above.place.child(name)
            if kind == RowKind.LINK:
                differs = link_differs(self._store, place, target)
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
            False, with nothing done, when something is gone and something came elsewhere meanwhile, so that
            both have to be seen at once.
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
            return True
        with taking.database.write() as connection:
            taking.is_built()
            if self._catalog.stamp() != stamp:
                scanner = taking.scanner(self._store)
                gathered = gather(self._store, self._catalog, scanner, dirty)
            is_gone = bool(scanner.vanished) or not gathered.known.keys() <= gathered.seen.keys()
            if is_gone and not sure and watches is not None:
                watches.barrier(MOST_WAIT)
                if watches.arrivals:
                    return False
            moves = _confirmed(self._marks.moves, gathered, self._store)
            taking.commit(connection, self._store, scanner, gathered, moves)
        taking.unwatch(gathered)
        self._tell_young(gathered)
        return True

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


def _confirmed(moves: Mapping[str, str], gathered: Gathered, store: Store) -> dict[str, str]:
    """The moves of which the thing at the new path is the one that was at the old."""
    found = {}
    for new, old in moves.items():
        seen, known = gathered.seen.get(new), gathered.known.get(old)
        if seen is None or known is None or _stays(new, gathered):
            continue
        inode = store.inode(known.node.signature)
        if inode and inode == store.inode(seen.state.signature):
            found[new] = old
    return found
