"""Where a store may differ from its index: what events leave behind until somebody looks."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from skillfs.sync.reconcile import name_of, parent_of, parents_of

__all__ = ["Marks"]

MOST_PLACES = 50_000
"""How many places are remembered at which something came or went; beyond, all moves are forgotten."""

MOST_STOPS = 16
"""How many places are remembered that one thing came through."""


@dataclass(slots=True)
class Marks:
    """Places to look at. An event says where, never what happened there.

    Attributes:
        folders: Paths of folders to list again.
        trees: Paths of folders below which everything is to be compared.
        places: How what lies where something came or went got there: the places at which it lay before, the
            first first, or None where nothing is known of it. An event names a folder as it is watched, by
            its path of the last listing, and so do places, whatever has become of the folders above since.
        doubt: Why the whole store has to be compared; None where it need not.
        arrivals: Whether something was moved to one of the folders, or may have been to one that is new.
        departures: Whether something was moved away from one of the folders.
        postponed: Since when some of these wait for moves to end, by the monotonic clock; None where none do.
    """

    folders: set[str] = field(default_factory=set)
    trees: set[str] = field(default_factory=set)
    places: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
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
        way = self.places.get(old, ())
        self.removed(old)
        self.places[new] = _joined(way, (old,))

    def removed(self, place: str) -> None:
        """Remember that what lay at a place is there no more, and nothing that is known came instead."""
        if len(self.places) >= MOST_PLACES:
            self.places.clear()
        self.places[place] = None

    @property
    def moves(self) -> dict[str, str]:
        """New path to old path of what was moved, to be confirmed by what lies there.

        What a folder holds is named only where it did not move along; what is back is named, too.
        """
        return {new: way[0] for new, way in self.ways.items()}

    @property
    def ways(self) -> dict[str, tuple[str, ...]]:
        """New path to the old paths of what was moved, the oldest first.

        Whoever looked last has seen it at any of these: a look is later than the marks which lead to it.
        """
        now = {way[0]: place for place, way in self.places.items() if way is not None}
        paths: dict[str, str | None] = {"": ""}
        ways = {}
        for place, way in self.places.items():
            above = None if way is None else _path_now(parent_of(place), now, self.places, paths)
            if way is not None and above is not None:
                ways[_join(above, name_of(place))] = way
        return ways

    def add(self, later: Marks) -> None:
        """Take in the marks of what happened after these."""
        self.folders |= later.folders
        self.trees |= later.trees
        self.places |= {
            place: None if way is None else _joined(self.places.get(way[0], ()), way)
            for place, way in later.places.items()
        }
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


def _joined(way: tuple[str, ...] | None, further: tuple[str, ...]) -> tuple[str, ...] | None:
    """The way of something through these places, and then through those; None if nothing is known of it."""
    if way is None or len(way) >= MOST_STOPS:
        return way
    return (*way, *(place for place in further if place not in way))


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
