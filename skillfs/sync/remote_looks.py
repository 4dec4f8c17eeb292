"""Takes a look at a remote store into its index: what needs care because the look is older than the taking.

A look is prepared without holding anybody up, and counts only if nothing was taken in meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from skillfs.errors import SkillFSError, StoreUnavailableError
from skillfs.index.faults import MAYBE_DAMAGE_IN_SYNC
from skillfs.index.rows import IndexDamage
from skillfs.stores.base import StaleFile, Store
from skillfs.sync.gather import Gathered, find_dirty, gather
from skillfs.sync.scan import Scanner
from skillfs.sync.taking import Taking

__all__ = ["MOST_LOOKS", "TOO_FAST", "Prepared", "look_alone", "prepare", "take_look"]

MOST_LOOKS = 4
"""How often a listing is taken anew when the store, or this process, changes something meanwhile."""

TOO_FAST = "the store changes faster than it can be looked at; try again"


class Prepared(NamedTuple):
    """What is different in a look at a remote store, and the stamp of the index that it is different from."""

    stamp: int | None
    dirty: set[str]
    scanner: Scanner
    gathered: Gathered | None


def prepare(taking: Taking, path: str, look: Store) -> Prepared | None:
    """What a look at a folder shows to be different from the index; None where there is no index so far.

    Raises:
        StaleFile: The look is overtaken by another folder, file or row.
    """
    if not taking.is_built():
        return None
    scope = taking.scope(path)
    if path and (scope is None or scope.path != path):
        raise StaleFile
    stamp = taking.catalog.stamp()
    try:
        dirty = find_dirty(look, taking.catalog, scope)
        scanner = taking.scanner(look)
        gathered = gather(look, taking.catalog, scanner, dirty) if dirty else None
    except MAYBE_DAMAGE_IN_SYNC as error:
        if isinstance(error, SkillFSError):
            raise
        if taking.catalog.stamp() == stamp:
            raise IndexDamage("rows that do not fit together") from error
        raise StaleFile from error  # rows that changed meanwhile
    return Prepared(stamp, dirty, scanner, gathered)


def take_look(
    taking: Taking,
    path: str,
    look: Store,
    prepared: Prepared | None,
    revision: int,
    on_progress: Callable[[int], None] | None,
) -> None:
    """Commit what was prepared, unless another process has taken something in since a revision."""
    if prepared is None:
        if taking.is_built():
            raise StaleFile
        taking.build(taking.store.look() if path else look, on_progress)
        return
    if prepared.gathered is None:
        return
    with taking.database.write() as connection:
        taking.is_built()
        if taking.journal.revision() != revision:
            raise StaleFile
        scanner, gathered = prepared.scanner, prepared.gathered
        if taking.catalog.stamp() != prepared.stamp:
            scanner = taking.scanner(look)
            gathered = gather(look, taking.catalog, scanner, prepared.dirty)
        taking.commit(connection, look, scanner, gathered)


def look_alone(taking: Taking) -> None:
    """Look at a remote store while nobody else can take anything in: what always comes to an end.

    Raises:
        StoreUnavailableError: The store itself changes all the time.
    """
    for _ in range(MOST_LOOKS):
        with contextlib.suppress(StaleFile), taking.database.write() as connection:
            look = taking.store.look()
            scanner = taking.scanner(look)
            gathered = gather(look, taking.catalog, scanner, find_dirty(look, taking.catalog))
            taking.commit(connection, look, scanner, gathered)
            return
    raise StoreUnavailableError(TOO_FAST)
