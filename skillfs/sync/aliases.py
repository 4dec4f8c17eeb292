"""Skills that depend on a file which lies elsewhere: their `SKILL.md` is a link."""

from __future__ import annotations

from collections.abc import Collection

from skillfs.core.model import Place
from skillfs.index.catalog import Catalog
from skillfs.index.rows import RowKind, decode_place
from skillfs.sync.reconcile import parents_of
from skillfs.sync.scan import SKILL_MD

__all__ = ["linked_markers", "marked_from"]


def marked_from(catalog: Catalog, paths: Collection[str]) -> set[str]:
    """The skills whose `SKILL.md` is a link to a file at one of these paths, or below it.

    Args:
        catalog: What was known before.
        paths: Store paths at which something was changed.
    """
    changed = frozenset(paths)
    # What was not there before is no file that a link led to; to ask for the links takes long.
    if all(catalog.by_path(path.split("/") if path else ()) is None for path in changed):
        return set()
    return {skill for skill, place in linked_markers(catalog) if _is_at(place, changed)}


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
