"""What depends on what a path holds without lying there: links, by where they lead."""

from __future__ import annotations

from collections.abc import Collection

from skillfs.core.model import Place
from skillfs.index.catalog import Catalog
from skillfs.index.rows import RowKind, decode_place
from skillfs.stores.base import Store
from skillfs.sync.reconcile import parents_of
from skillfs.sync.scan import SKILL_MD

__all__ = ["linked_markers", "links_into"]


def links_into(store: Store, catalog: Catalog, paths: Collection[str]) -> set[str]:
    """The folders with a link that leads to one of these paths or below it, or led nowhere so far.

    Args:
        store: The store.
        catalog: Its links, as they were.
        paths: Store paths at which something was changed.
    """
    rows = catalog.read(
        f"SELECT parent, name, target FROM entry WHERE kind={int(RowKind.LINK)}"  # there is an index for it
    )
    changed = frozenset(paths)
    above = catalog.with_paths({parent for parent, _, _ in rows})
    found = set()
    # What was not there before is no file that a SKILL.md led to; to ask for those takes long.
    if any(catalog.by_path(path.split("/") if path else ()) is not None for path in changed):
        found = {folder for folder, place in linked_markers(catalog) if _is_at(place, changed)}
    for parent, name, target in rows:
        folder = above.get(parent)
        if folder is None or folder in found:
            continue
        if target is None:
            if isinstance(store.resolve(Place(0, folder).child(name)), Place):
                found.add(folder)
        elif _is_at(Place(0, target), changed):
            found.add(folder)
    return found


def linked_markers(catalog: Catalog) -> list[tuple[str, Place]]:
    """The skills whose `SKILL.md` is a link: the path of each, and where the file lies."""
    rows = catalog.read(
        "SELECT s.key, e.target FROM entry s CROSS JOIN entry e ON e.parent=s.key AND e.name=? "
        f"WHERE s.kind={int(RowKind.SKILL)} AND e.kind={int(RowKind.FILE)} AND e.target IS NOT NULL",
        (SKILL_MD,),
    )
    paths = catalog.with_paths(key for key, _ in rows)
    return [(paths[key], decode_place(target)) for key, target in rows if key in paths]


def _is_at(place: Place, changed: frozenset[str]) -> bool:
    path = place.path
    return place.root == 0 and (path in changed or any(above in changed for above in parents_of(path)))
