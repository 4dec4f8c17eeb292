"""What can be seen outside skills: links, and the folders on the way to something."""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Iterable

from skillfs.core.ignore import IgnoreRules
from skillfs.core.model import Place
from skillfs.index.catalog import Catalog
from skillfs.index.rows import ROOT, RowKind, Visibility
from skillfs.stores.base import Store
from skillfs.sync.scan import is_left_out

__all__ = ["refresh_sight", "refresh_sight_at"]

_LINK_MESSAGES = {
    "link-escapes": "leads out of the store and is not followed; name the folder it leads to as one to "
    "follow, to serve it",
    "link-dangling": "leads to nothing that is served; mend or remove it",
    "link-loop": "leads back to itself; mend or remove it",
}


def refresh_sight(
    connection: sqlite3.Connection, store: Store, catalog: Catalog, ignore: IgnoreRules
) -> None:
    """Resolve every link anew and mark the folders that lead to something visible.

    Links are few, and where one leads can change with any name in the store, so all are judged together. Only
    what is different is written: a check that finds nothing new leaves the index as it is.
    """
    links = catalog.links()
    resolved: dict[int, str | None] = {}
    faults: list[tuple[int, str, str, str, str]] = []
    for key, parent, name, _, _ in links:
        above = catalog.by_key(parent)
        assert above is not None
        place = store.resolve(above.place.child(name))
        severity = "info" if above.skill is None else "warning"
        if isinstance(place, Place) and place.root == 0:
            resolved[key] = place.path
        else:
            resolved[key] = None
            code = place if isinstance(place, str) else "link-loop"
            if isinstance(place, Place) and is_left_out(store, ignore, place):
                code = "link-dangling"
            faults.append((parent, name, code, severity, _LINK_MESSAGES[code]))
    leading = {ROOT, *(key for (key,) in connection.execute(_ABOVE_SKILLS))}
    sight = dict.fromkeys(resolved, Visibility.HIDDEN)
    pending = {key: (parent, name) for key, parent, name, _, _ in links if resolved[key] is not None}
    while True:
        # A link can lead to a folder that is seen only because of another link.
        shown = {
            key: seen
            for key, (parent, _) in pending.items()
            if (seen := _sight_of_link(catalog, parent, resolved[key] or "", leading))
        }
        if not shown:
            break
        sight.update(shown)
        for key in shown:
            parent, _ = pending.pop(key)
            leading.update(key for (key,) in connection.execute(_UP, (parent,)))
    for key, (parent, name) in pending.items():
        above = catalog.by_key(parent)
        if above is None or above.skill is None:
            continue
        if is_left_out(store, ignore, Place(0, resolved[key] or "")):
            faults.append((parent, name, "link-dangling", "warning", _LINK_MESSAGES["link-dangling"]))
        else:
            message = "leads to something that is in no skill, so it is not served; move that into a skill"
            faults.append((parent, name, "link-escapes", "warning", message))
    connection.executemany(
        "UPDATE entry SET target=?, visible=? WHERE key=?",
        [(resolved[k], sight[k], k) for k, _, _, v, t in links if (t, v) != (resolved[k], sight[k])],
    )
    _mark_on_the_way(connection, leading)
    known = connection.execute(
        "SELECT folder, name, code, severity, message FROM problem WHERE code LIKE 'link-%'"
    ).fetchall()
    if sorted(known) != sorted(faults):
        connection.execute("DELETE FROM problem WHERE code LIKE 'link-%'")
        connection.executemany("INSERT INTO problem VALUES (?, ?, ?, ?, ?)", faults)


def refresh_sight_at(connection: sqlite3.Connection, catalog: Catalog, folders: Iterable[str]) -> None:
    """Mark those of some folders that lead to something visible, in a store without links.

    Args:
        connection: Inside a transaction.
        catalog: Of the same index.
        folders: Paths of all folders in which, or below which, something came, went or changed its kind.
    """
    for path in sorted(folders, key=lambda path: path.count("/") + bool(path), reverse=True):
        row = catalog.by_path(path.split("/") if path else ())
        if row is None or row.kind != RowKind.FOLDER or row.visible == Visibility.IN_SKILL:
            continue
        # From the deepest up: what is below has been marked before.
        leads = not path or connection.execute(_LEADS, (row.key,)).fetchone() is not None
        now = Visibility.ON_THE_WAY if leads else Visibility.HIDDEN
        if row.visible != now:
            connection.execute("UPDATE entry SET visible=? WHERE key=?", (now, row.key))


def _sight_of_link(catalog: Catalog, parent: int, target: str, leading: Container[int]) -> Visibility:
    """Whether a link is listed: it leads to something visible, and lies in a skill or leads to a folder."""
    row = catalog.by_path(tuple(target.split("/")) if target else ())
    if row is None or row.kind == RowKind.LINK:
        return Visibility.HIDDEN
    if row.visible != Visibility.IN_SKILL and row.key not in leading:
        return Visibility.HIDDEN
    above = catalog.by_key(parent)
    assert above is not None
    if above.skill is not None:
        return Visibility.IN_SKILL
    return Visibility.HIDDEN if row.kind == RowKind.FILE else Visibility.ON_THE_WAY


def _mark_on_the_way(connection: sqlite3.Connection, leading: set[int]) -> None:
    # Constants, not parameters: only then SQLite knows that the partial index serves.
    now = {key for (key,) in connection.execute("SELECT key FROM entry WHERE visible=2 AND kind=0")}
    connection.executemany(
        "UPDATE entry SET visible=0 WHERE key=?", [(key,) for key in sorted(now - leading)]
    )
    connection.executemany(
        "UPDATE entry SET visible=2 WHERE key=? AND kind=0 AND visible=0",
        [(key,) for key in sorted(leading - now)],
    )


_LEADS = "SELECT 1 FROM entry WHERE parent=? AND (kind=1 OR (kind=0 AND visible=2)) LIMIT 1"
_UP = (
    "WITH RECURSIVE up (key) AS (VALUES (?) UNION "
    "SELECT e.parent FROM up CROSS JOIN entry e ON e.key=up.key) SELECT key FROM up"
)
_ABOVE_SKILLS = (
    "WITH RECURSIVE up (key) AS (SELECT parent FROM entry WHERE kind=1 UNION "
    "SELECT e.parent FROM up CROSS JOIN entry e ON e.key=up.key) SELECT key FROM up"
)
