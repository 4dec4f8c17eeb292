"""What follows on a revision, for whoever is told of changes as they come: of one store or of several."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from skillfs.access import Access
from skillfs.core.model import Changes
from skillfs.index.revisions import Revisions, Vector
from skillfs.listing import changes_of
from skillfs.lookup import Lookup, list_of_bases
from skillfs.mounts import MountTable
from skillfs.opening import data_folder
from skillfs.sync.engine import Engine

__all__ = ["MountedChanges", "Pull", "access_from_now", "steps_of"]

MOST_STEPS = 256
"""How many revisions are read from the index at once."""

Pull: TypeAlias = Callable[[int], tuple[int, list[Changes]]]
"""Gives what follows on a revision: the revision it leads to, and its changes."""


# -- what may be seen --------------------------------------------------------------------------------------


def access_from_now(
    lookup: Lookup, base_paths: Sequence[object] | None, max_age: float
) -> Callable[[], Access]:
    """What a caller may see whenever it asks: a base given as a path stays that path, others may move.

    Args:
        lookup: Resolves references, within what the filesystem is confined to.
        base_paths: Folders that the call is confined to; None for no further restriction.
        max_age: Seconds that a check of the store holds.

    Raises:
        InvalidArgumentError: `base_paths` is malformed.
        NotFoundError: A base is not there.
        IsFileError: A base is a file.
    """
    if base_paths is None:
        return lookup.access
    bases = list_of_bases(base_paths)
    lookup.access(bases)  # which refuses what is no base, or out of bounds itself
    inner = Lookup(lookup.engine, bases, max_age, locked=lookup.locked)
    return lambda: _both(lookup.access(), inner.access())


def _both(one: Access, other: Access) -> Access:
    return one.within(other.tops) if other.restricted else one


def _is_same(one: Access, other: Access) -> bool:
    return one is other or (one.restricted == other.restricted and sorted(one.tops) == sorted(other.tops))


# -- one store ---------------------------------------------------------------------------------------------


def steps_of(engine: Engine, accesses: Callable[[], Access]) -> Pull:
    """The next changes after a revision, one for each further revision.

    Args:
        engine: Store and index.
        accesses: What the caller may see now. Who may see only some skills is not told of revisions in which
            nothing happened to these, and takes everything as new when these become others.
    """
    journal = engine.journal
    access = accesses()

    def pull(after: int) -> tuple[int, list[Changes]]:
        nonlocal access
        # First, as to say what may be seen can take a look at the store, which is announced.
        if (now := engine.query(journal.revision)) == after:
            return after, []
        before, access = access, accesses()
        if not _is_same(before, access):
            return now, [Changes(now, True, ())]
        now, reset, steps = engine.query(lambda: journal.steps(after, MOST_STEPS))
        if reset:
            return now, [Changes(now, True, ())]
        each = ((number, changes_of(rows, access)) for number, rows in enumerate(steps, after + 1))
        found = [Changes(number, False, items) for number, items in each if items or not access.restricted]
        return after + len(steps), found

    return pull


# -- several stores ----------------------------------------------------------------------------------------


class MountedChanges:
    """The revisions of several stores as one, and what changed since one of them.

    Args:
        table: The mounts.
    """

    def __init__(self, table: MountTable) -> None:
        self._mounts = table.mounts
        self._revisions = _revisions_of(table)

    @property
    def revision(self) -> int:
        """The number of what the mounts have come to."""
        return self._revisions.number(self._vector)

    def _vector(self) -> Vector:
        return tuple(mount.engine.query(mount.engine.journal.revision) for mount in self._mounts)

    def since(self, since: int, accesses: Mapping[str, Access]) -> Changes:
        """What changed since a revision, the oldest first within each mount.

        Args:
            since: The revision.
            accesses: What the caller may see of each mount that it may see at all, by name.
        """
        before = self._revisions.vector(since)
        found: list[Any] = []
        reset = before is None

        def read() -> Vector:
            nonlocal reset
            now = []
            for mount, known in zip(self._mounts, before or self._vector(), strict=True):
                engine = mount.engine
                revision, unknown, rows = engine.query(lambda: engine.journal.since(known))  # noqa: B023
                now.append(revision)
                if mount.name in accesses:
                    reset = reset or unknown
                    found.extend(changes_of(rows, accesses[mount.name], mount.name))
            return tuple(now)

        revision = self._revisions.number(read)
        return Changes(revision, reset, () if reset else tuple(found))

    def following(self, inner: MountTable) -> tuple[Pull, dict[str, Access]]:
        """All changes after a revision as one, and what may be seen of which mount.

        Args:
            inner: The mounts that the caller may see, each confined as it is for this caller.
        """
        own = {mount.name: mount for mount in self._mounts}

        def accesses_now() -> dict[str, Access]:
            return {
                mount.name: _both(own[mount.name].lookup.access(), mount.lookup.access())
                for mount in inner.mounts
            }

        accesses = accesses_now()
        restricted = any(access.restricted for access in accesses.values()) or len(accesses) < len(own)

        def pull(after: int) -> tuple[int, list[Changes]]:
            nonlocal accesses
            if (now := self.revision) == after:
                return after, []
            before, accesses = accesses, accesses_now()
            if not all(_is_same(before[name], access) for name, access in accesses.items()):
                return now, [Changes(now, True, ())]
            found = self.since(after, accesses)
            return found.revision, [found] if found.items or found.reset or not restricted else []

        return pull, accesses


_revisions: WeakValueDictionary[tuple[object, ...], Revisions] = WeakValueDictionary()
_revisions_lock = threading.Lock()


def _go_on_in_child() -> None:
    """Another thread of the parent may have held the lock, and will not let it go here."""
    global _revisions_lock
    _revisions_lock = threading.Lock()


os.register_at_fork(after_in_child=_go_on_in_child)


def _revisions_of(table: MountTable) -> Revisions:
    """The numbers for these mounts, which all filesystems of a process that have the same ones share."""
    mounts = table.mounts
    identity = [[m.name, str(m.engine.namespace.uuid), str(m.engine.database.path)] for m in mounts]
    path = None
    if not all(mount.engine.database.in_memory for mount in mounts):
        digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
        path = data_folder() / "indexes" / f"{digest[:32]}.mounts.sqlite"
    key = (os.getpid(), path, *((mount.name, mount.engine) for mount in mounts))
    with _revisions_lock:
        found = _revisions.get(key)
        if found is None:
            found = _revisions[key] = Revisions(path)
        return found
