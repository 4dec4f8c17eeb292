"""What can be seen outside skills: links, and the folders on the way to something."""

from __future__ import annotations

import sqlite3

from skillfs.core.model import Place
from skillfs.index.catalog import Catalog
from skillfs.index.rows import ROOT, RowKind, Visibility
from skillfs.stores.base import Store

__all__ = ["refresh_sight"]

_LINK_MESSAGES = {
    "link-escapes": "leads out of the store and is not followed; name the folder it leads to as one to "
    "follow, to serve it",
    "link-dangling": "leads to nothing that is served; mend or remove it",
    "link-loop": "leads back to itself; mend or remove it",
}


def refresh_sight(connection: sqlite3.Connection, store: Store, catalog: Catalog) -> None:
    """Resolve every link anew and mark the folders that lead to something visible.

    Links are few, and where one leads can change with any name in the store, so all are judged together.
    """
    connection.execute("DELETE FROM problem WHERE code LIKE 'link-%'")
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
            faults.append((parent, name, code, severity, _LINK_MESSAGES[code]))
    connection.executemany(
        "UPDATE entry SET target=?, visible=0 WHERE key=?", [(t, k) for k, t in resolved.items()]
    )
    _mark_on_the_way(connection)
    pending = {key: (parent, name) for key, parent, name, _, _ in links if resolved[key] is not None}
    while True:
        # A link can lead to a folder that is seen only because of another link.
        shown = [
            (sight, key)
            for key, (parent, _) in pending.items()
            if (sight := _sight_of_link(catalog, parent, resolved[key] or ""))
        ]
        if not shown:
            break
        connection.executemany("UPDATE entry SET visible=? WHERE key=?", shown)
        for _, key in shown:
            del pending[key]
        _mark_on_the_way(connection)
    for parent, name in pending.values():
        above = catalog.by_key(parent)
        if above is not None and above.skill is not None:
            message = "leads to something that is in no skill, so it is not served; move that into a skill"
            faults.append((parent, name, "link-escapes", "warning", message))
    connection.executemany("INSERT INTO problem VALUES (?, ?, ?, ?, ?)", faults)


def _sight_of_link(catalog: Catalog, parent: int, target: str) -> Visibility:
    """Whether a link is listed: it leads to something visible, and lies in a skill or leads to a folder."""
    row = catalog.by_path(tuple(target.split("/")) if target else ())
    if row is None or row.kind == RowKind.LINK or not row.visible:
        return Visibility.HIDDEN
    above = catalog.by_key(parent)
    assert above is not None
    if above.skill is not None:
        return Visibility.IN_SKILL
    return Visibility.HIDDEN if row.kind == RowKind.FILE else Visibility.ON_THE_WAY


def _mark_on_the_way(connection: sqlite3.Connection) -> None:
    connection.execute(
        f"""
        WITH RECURSIVE up (key) AS (
            SELECT parent FROM entry WHERE kind=1 OR (kind=3 AND visible > 0)
            UNION SELECT e.parent FROM up JOIN entry e ON e.key=up.key
        )
        UPDATE entry SET visible = CASE WHEN key={ROOT} OR key IN up THEN 2 ELSE 0 END
        WHERE kind=0 AND visible != 1
          AND visible != CASE WHEN key={ROOT} OR key IN up THEN 2 ELSE 0 END
        """
    )
