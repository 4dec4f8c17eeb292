"""Where a store may differ from its index: what events leave behind until somebody looks."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from skillfs.sync.reconcile import name_of, parent_of, parents_of

__all__ = ["Marks"]

MOST_PLACES = 50_000
"""How many places are remembered at which something came or went; beyond, all moves are forgotten."""


@dataclass(slots=True)
class Marks:
    """Places to look at. An event says where, never what happened there.

    Attributes:
        folders: Paths of folders to list again.
        trees: Paths of folders below which everything is to be compared.
        places: What lies where something came or went: the place at which it lay before, or None where that
            is not known. An event names a folder as it is watched, by its path of the last listing, and so do
            places, whatever has become of the folders above since.
        doubt: Why the whole store has to be compared; None where it need not.
        arrivals: Whether something was moved to one of the folders, or may have been to one that is new.
        departures: Whether something was moved away from one of the folders.
        postponed: Since when some of these wait for moves to end, by the monotonic clock; None where none do.
    """

    folders: set[str] = field(default_factory=set)
    trees: set[str] = field(default_factory=set)
    places: dict[str, str | None] = field(default_factory=dict)
    doubt: str | None = None
    arrivals: bool = False
    departures: bool = False
    postponed: float | None = None

    def __bool__(self) -> bool:
        return bool(self.folders or self.trees or self.doubt)

    def moved(self, old: str, new: str) -> None:
        """Remember that the kernel moved something, with all it holds, after everything told before.

        Args:
            old: The place where it lay: the path of the folder that is watched, and its name there.
            new: The place where it lies.
        """
        thing = self.places.get(old, old)
        self.removed(old)
        self._put(thing, new)

    def removed(self, place: str) -> None:
        """Remember that what lay at a place is there no more, and nothing that is known came instead."""
        if len(self.places) >= MOST_PLACES:
            self.places.clear()
        self.places[place] = None

    def _put(self, thing: str | None, place: str) -> None:
        if thing == place:
            self.places.pop(place, None)  # it is back
        else:
            self.places[place] = thing

    @property
    def moves(self) -> dict[str, str]:
        """New path to old path of what was moved, to be confirmed by what lies there.

        What a folder holds is named only where it did not move along.
        """
        now = {thing: place for place, thing in self.places.items() if thing is not None}
        paths: dict[str, str | None] = {"": ""}
        moves = {}
        for thing, place in now.items():
            above = _path_now(parent_of(place), now, self.places, paths)
            if above is not None:
                moves[_join(above, name_of(place))] = thing
        return moves

    def add(self, later: Marks) -> None:
        """Take in the marks of what happened after these."""
        self.folders |= later.folders
        self.trees |= later.trees
        things = [
            (place, None if thing is None else self.places.get(thing, thing))
            for place, thing in later.places.items()
        ]
        for place, thing in things:
            self._put(thing, place)
        self.doubt = self.doubt or later.doubt
        self.arrivals = self.arrivals or later.arrivals
        self.departures = self.departures or later.departures
        since = [at for at in (self.postponed, later.postponed) if at is not None]
        self.postponed = min(since, default=None)

    def tops(self) -> list[str]:
        """The trees that lie in no other."""
        return [path for path in sorted(self.trees) if not _is_in(path, self.trees)]


def _is_in(path: str, trees: Iterable[str]) -> bool:
    return bool(path) and ("" in trees or any(above in trees for above in parents_of(path)))


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _path_now(
    folder: str, now: dict[str, str], taken: Container[str], paths: dict[str, str | None]
) -> str | None:
    """The present path of a watched folder; None where it is not known.

    Args:
        folder: The path by which it is watched.
        now: The places of all things that were moved.
        taken: Places of which it is known that something else lies there, or nothing.
        paths: What has been found so far.
    """
    wanted, chain = folder, []
    while folder not in paths:
        paths[folder] = None  # until it is known; where events are missing, it can seem to lie in itself
        if folder not in now and folder in taken:
            break
        place = now.get(folder, folder)
        chain.append((folder, place))
        folder = parent_of(place)
    for folder, place in reversed(chain):
        above = paths[parent_of(place)]
        paths[folder] = None if above is None else _join(above, name_of(place))
    return paths[wanted]
