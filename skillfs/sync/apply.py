"""Writes what a scan found into the index: rows, identities, links, visibility and the change log."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from skillfs.core.digest import id_of_uuid
from skillfs.core.frontmatter import FrontMatter, read_front_matter
from skillfs.core.model import Place
from skillfs.index.catalog import ROOT, Catalog, RowKind, Visibility, encode_place
from skillfs.index.database import ENTRY_INDEXES
from skillfs.index.identities import Identities
from skillfs.index.journal import ChangeRow, Journal
from skillfs.stores.base import Store
from skillfs.sync.gather import Gathered, Known
from skillfs.sync.reconcile import Plan, State, name_of, parent_of, reconcile
from skillfs.sync.scan import ScanProblem, Scanner, Seen

__all__ = ["apply", "build"]

_INSERT = "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_BATCH = 4_000


def build(
    connection: sqlite3.Connection, store: Store, catalog: Catalog, scanner: Scanner, identities: Identities, title: str
) -> None:
    """Fill an empty index with one walk, row by row, so that memory does not grow with the number of files.

    With nothing known there is nothing to reconcile: every entry is added.

    Args:
        connection: Inside a transaction.
        store: The store.
        catalog: Of the same index.
        scanner: A fresh one.
        identities: Of the same transaction.
        title: Name of a skill whose folder is the root.
    """
    for table in ("entry", "text", "sha256", "skill", "problem"):
        connection.execute(f"DELETE FROM {table}")
    for index in ("entry_name", "entry_id", "entry_content"):
        connection.execute(f"DROP INDEX IF EXISTS facts.{index}")
    skills: list[tuple[int, str, str]] = []
    folders: dict[str, int] = {}

    def rows() -> Iterator[tuple[Any, ...]]:
        key = ROOT - 1
        born = identities.born
        for seen in scanner.walk("", Place(0, ""), None):
            path, kind, state = seen.path, seen.kind, seen.state
            key += 1
            above, _, name = path.rpartition("/")
            if kind <= RowKind.SKILL:
                folders[path] = key
                size = None
            else:
                size = state.size
            uuid = number = None
            if kind != RowKind.LINK:
                uuid, number = born(path)
            if seen.head is not None:
                skills.append(_skill_row(folders[above], above, title, seen.head, state.size))
            yield (
                key, folders[above] if path else 0, name, int(kind), 0 if seen.skill is None else 1, number, uuid,
                state.signature, size, state.modified, seen.content, encode_place(seen.lies) if seen.lies else None,
            )  # fmt: skip

    stream = rows()
    while batch := list(islice(stream, _BATCH)):
        connection.executemany(_INSERT, batch)
        connection.executemany("INSERT OR REPLACE INTO skill VALUES (?, ?, ?)", skills)
        skills.clear()
    _make_indexes(connection)
    _insert_problems(connection, scanner.problems, folders)
    _refresh_sight(connection, store, catalog)
    Journal.begin(connection)


def _make_indexes(connection: sqlite3.Connection) -> None:
    for statement in ENTRY_INDEXES:
        try:
            connection.execute(statement)
        except sqlite3.IntegrityError:
            # Two of a million UUIDs share their first 53 bits once in some 20,000 stores.
            taken = connection.execute(
                "SELECT key, id FROM entry WHERE id IS NOT NULL AND key NOT IN (SELECT min(key) FROM entry GROUP BY id)"
            ).fetchall()
            for key, number in taken:
                while connection.execute("SELECT 1 FROM entry WHERE id=?", (number,)).fetchone():
                    number += 1
                connection.execute("UPDATE entry SET id=? WHERE key=?", (number, key))
            connection.execute(statement)


def apply(
    connection: sqlite3.Connection,
    store: Store,
    catalog: Catalog,
    scanner: Scanner,
    gathered: Gathered,
    identities: Identities,
    title: str,
) -> bool:
    """Bring the index in step with what was gathered, in the transaction of the connection.

    Returns:
        Whether anything changed that a reader can see.
    """
    return _Applying(connection, store, catalog, scanner, gathered, identities, title).run()


class _Held:
    """The contents of entries that a difference leaves alone."""

    def __init__(self, connection: sqlite3.Connection, known: Mapping[str, Known]) -> None:
        self._connection = connection
        self._keys = {k.node.key for k in known.values()}

    def __contains__(self, content: object) -> bool:
        rows = self._connection.execute("SELECT key FROM entry WHERE content=?", (content,))
        return any(key not in self._keys for (key,) in rows)


class _Applying:
    def __init__(
        self,
        connection: sqlite3.Connection,
        store: Store,
        catalog: Catalog,
        scanner: Scanner,
        gathered: Gathered,
        identities: Identities,
        title: str,
    ) -> None:
        self._sql = connection.execute
        self._connection = connection
        self._store = store
        self._catalog = catalog
        self._scanner = scanner
        self._known = gathered.known
        self._seen = gathered.seen
        self._listed = gathered.listed
        self._identities = identities
        self._title = title
        self._changes: list[ChangeRow] = []
        self._folder_keys = {path: row.key for path, (row, _) in gathered.listed.items()}
        self._skill_uuids: dict[str | None, bytes | None] = {None: None}
        self._problem_folders: set[int] = {row.key for row, _ in gathered.listed.values()}

    def run(self) -> bool:
        plan = self._reconcile()
        sight_before = self._on_the_way()
        self._remove(plan)
        self._place(plan)
        self._place_links()
        for row, state in self._listed.values():
            self._sql("UPDATE entry SET signature=?, modified=? WHERE key=?", (state.signature, state.modified, row.key))
        self._replace_problems()
        _refresh_sight(self._connection, self._store, self._catalog)
        self._note_sight(sight_before)
        if not self._changes:
            return False
        Journal.append(self._connection, self._changes)
        return True

    def _reconcile(self) -> Plan:
        inode = self._store.inode

        def states(items: Iterable[tuple[str, RowKind, bytes, bytes | None]]) -> dict[str, State]:
            return {
                path: State(kind <= RowKind.SKILL, inode(signature), content)
                for path, kind, signature, content in items
                if kind != RowKind.LINK
            }

        return reconcile(
            states((p, k.node.kind, k.node.signature, k.node.content) for p, k in self._known.items()),
            states((p, s.kind, s.state.signature, s.content) for p, s in self._seen.items()),
            _Held(self._connection, self._known),
        )

    # -- rows ----------------------------------------------------------------------------------------------

    def _remove(self, plan: Plan) -> None:
        for path in plan.removed:
            known = self._known[path]
            node = known.node
            self._delete(node.key)
            if node.uuid is not None and node.id is not None:
                self._identities.removed(path, node.uuid, node.id)
            if node.visible:
                self._change("removed", node.uuid, path, old=known)
        for path, known in self._known.items():
            if known.node.kind == RowKind.LINK:
                seen = self._seen.get(path)
                if seen is None or seen.kind != RowKind.LINK:
                    self._delete(known.node.key)

    def _delete(self, key: int) -> None:
        self._sql("DELETE FROM entry WHERE key=?", (key,))
        for table in ("text", "sha256", "skill"):
            self._sql(f"DELETE FROM {table} WHERE key=?", (key,))
        self._sql("DELETE FROM problem WHERE folder=?", (key,))

    def _place(self, plan: Plan) -> None:
        # Names first become free, then are taken, so that any permutation of names goes through.
        for new, old in plan.moved.items():
            node = self._known[old].node
            self._sql("UPDATE entry SET parent=? WHERE key=?", (-node.key, node.key))
            self._identities.left(old)
        for new, old in plan.moved.items():
            node = self._known[old].node
            assert node.uuid is not None
            assert node.id is not None
            self._identities.arrived(new, node.uuid, node.id)
        kept = set(plan.kept)
        # A path sorts before everything below it, so a folder has its key before what it holds needs it.
        for path in sorted(p for p, s in self._seen.items() if s.kind != RowKind.LINK):
            seen = self._seen[path]
            if path in kept:
                self._update(path, seen, self._known[path], moved=False)
            elif path in plan.moved:
                self._update(path, seen, self._known[plan.moved[path]], moved=True)
            else:
                self._insert(path, seen)

    def _insert(self, path: str, seen: Seen) -> None:
        uuid, number = self._identities.born(path)
        while (found := self._sql("SELECT uuid FROM entry WHERE id=?", (number,)).fetchone()) is not None:
            if found[0] == uuid:
                # The record of another path's birth was lost: this one has to be the next.
                self._identities.left(path)
                uuid, number = self._identities.born(path)
            else:
                number += 1
        if number != id_of_uuid(uuid):
            self._identities.numbered(path, uuid, number)
        cursor = self._sql(
            "INSERT INTO entry (parent, name, kind, visible, id, uuid, signature, size, modified, content, target) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (self._key_of(parent_of(path)) if path else 0, name_of(path), seen.kind, int(seen.skill is not None),
             number, uuid, *self._columns(seen)),
        )  # fmt: skip
        assert cursor.lastrowid is not None
        self._after(path, seen, cursor.lastrowid, uuid)
        if seen.skill is not None:
            self._change("added", uuid, path, new=seen)

    def _update(self, path: str, seen: Seen, known: Known, *, moved: bool) -> None:
        node = known.node
        parent = (self._key_of(parent_of(path)) if path else 0) if moved else node.parent
        visible = Visibility.IN_SKILL if seen.skill is not None else Visibility.HIDDEN
        if visible == Visibility.HIDDEN and node.visible == Visibility.ON_THE_WAY and not moved:
            visible = node.visible
        self._sql(
            "UPDATE entry SET parent=?, name=?, kind=?, visible=?, signature=?, size=?, modified=?, content=?, target=? "
            "WHERE key=?",
            (parent if path else 0, name_of(path), seen.kind, visible, *self._columns(seen), node.key),
        )
        if seen.content != node.content:
            self._sql("DELETE FROM text WHERE key=?", (node.key,))
            self._sql("DELETE FROM sha256 WHERE key=?", (node.key,))
        if node.kind == RowKind.SKILL and seen.kind != RowKind.SKILL:
            self._sql("DELETE FROM skill WHERE key=?", (node.key,))
        self._after(path, seen, node.key, node.uuid)
        was, now = node.visible == Visibility.IN_SKILL, seen.skill is not None
        if now and not was and not (node.visible and not moved):
            self._change("added", node.uuid, path, new=seen)
        elif was and not now:
            self._change("removed", node.uuid, known.path, old=known)
        elif now and moved:
            self._change("moved", node.uuid, path, new=seen, old=known)
        elif now and (
            seen.content != node.content or seen.kind != node.kind or self._skill_uuid(seen.skill) != self._old_skill(known)
        ):
            self._change("modified", node.uuid, path, new=seen, old=known)

    def _columns(self, seen: Seen) -> tuple[Any, ...]:
        size = None if seen.kind <= RowKind.SKILL else seen.state.size
        target = encode_place(seen.lies) if seen.lies else None
        return seen.state.signature, size, seen.state.modified, seen.content, target

    def _after(self, path: str, seen: Seen, key: int, uuid: bytes | None) -> None:
        if seen.kind <= RowKind.SKILL:
            self._folder_keys[path] = key
            self._problem_folders.add(key)
            if seen.kind == RowKind.SKILL:
                self._skill_uuids[path] = uuid
        if seen.head is not None:
            above = parent_of(path)
            self._sql(
                "INSERT OR REPLACE INTO skill VALUES (?, ?, ?)",
                _skill_row(self._key_of(above), above, self._title, seen.head, seen.state.size),
            )

    def _place_links(self) -> None:
        for path, seen in self._seen.items():
            if seen.kind != RowKind.LINK:
                continue
            known = self._known.get(path)
            if known is not None and known.node.kind == RowKind.LINK:
                self._sql("UPDATE entry SET signature=?, modified=? WHERE key=?",
                          (seen.state.signature, seen.state.modified, known.node.key))  # fmt: skip
            else:
                self._sql(
                    "INSERT INTO entry (parent, name, kind, visible, signature, size, modified) VALUES (?, ?, 3, 0, ?, ?, ?)",
                    (self._key_of(parent_of(path)), name_of(path), seen.state.signature, seen.state.size, seen.state.modified),
                )

    def _key_of(self, folder: str) -> int:
        key = self._folder_keys.get(folder)
        if key is None:
            row = self._catalog.by_path(tuple(folder.split("/")) if folder else ())
            assert row is not None
            key = self._folder_keys[folder] = row.key
        return key

    # -- changes -------------------------------------------------------------------------------------------

    def _skill_uuid(self, path: str | None) -> bytes | None:
        if path not in self._skill_uuids:
            assert path is not None
            row = self._catalog.by_path(tuple(path.split("/")) if path else ())
            self._skill_uuids[path] = row.uuid if row is not None else None
        return self._skill_uuids[path]

    def _old_skill(self, known: Known) -> bytes | None:
        if known.skill is None:
            return None
        old = self._known.get(known.skill)
        return old.node.uuid if old is not None else self._skill_uuid(known.skill)

    def _change(
        self, kind: str, uuid: bytes | None, path: str, *, new: Seen | None = None, old: Known | None = None
    ) -> None:
        assert uuid is not None
        skill = self._skill_uuid(new.skill) if new is not None else self._old_skill(old) if old is not None else None
        self._changes.append(
            ChangeRow(
                kind, uuid, path,
                old_path=old.path if old is not None and kind == "moved" else None,
                skill=skill,
                skill_path=new.skill if new is not None else None,
                old_skill_path=old.skill if old is not None else None,
                content=new.content if new is not None else None,
                old_content=old.node.content if old is not None else None,
            )
        )  # fmt: skip

    def _on_the_way(self) -> dict[int, tuple[bytes, str]]:
        """Folders outside skills that can be seen: key to UUID and path."""
        rows = self._sql("SELECT key, uuid FROM entry WHERE visible=2 AND kind=0").fetchall()
        paths = self._catalog.with_paths([key for key, _ in rows])
        return {key: (uuid, paths[key]) for key, uuid in rows}

    def _note_sight(self, before: dict[int, tuple[bytes, str]]) -> None:
        after = self._on_the_way()
        told = {change.uuid for change in self._changes if change.kind != "removed"}
        gone = {change.uuid for change in self._changes if change.kind == "removed"}
        for key, (uuid, path) in after.items():
            old = before.get(key)
            if uuid in told:
                continue
            if old is None:
                if uuid in gone:
                    self._changes = [c for c in self._changes if c.uuid != uuid]
                    self._changes.append(ChangeRow("modified", uuid, path))
                else:
                    self._changes.append(ChangeRow("added", uuid, path))
            elif old[1] != path:
                self._changes.append(ChangeRow("moved", uuid, path, old_path=old[1]))
        for key, (uuid, path) in before.items():
            if key not in after and uuid not in gone:
                if uuid in told:
                    self._changes = [
                        c._replace(kind="modified") if c.uuid == uuid and c.kind == "added" else c for c in self._changes
                    ]
                else:
                    self._changes.append(ChangeRow("removed", uuid, path))

    # -- problems ------------------------------------------------------------------------------------------

    def _replace_problems(self) -> None:
        for key in self._problem_folders:
            self._sql("DELETE FROM problem WHERE folder=? AND code NOT LIKE 'link-%'", (key,))
        keys = {problem.folder: self._key_of(problem.folder) for problem in self._scanner.problems}
        _insert_problems(self._connection, self._scanner.problems, keys)


def _insert_problems(connection: sqlite3.Connection, problems: list[ScanProblem], keys: Mapping[str, int]) -> None:
    connection.executemany(
        "INSERT INTO problem VALUES (?, ?, ?, ?, ?)",
        [(keys[p.folder], p.name, p.code, p.severity, p.message) for p in problems if p.folder in keys],
    )


def _skill_row(key: int, path: str, title: str, head: bytes, size: int) -> tuple[int, str, str]:
    folder = name_of(path) or title
    front = read_front_matter(head, folder, complete=size <= len(head))
    return key, front.name or folder, json.dumps(_front_matter_dict(front), ensure_ascii=False)


def _front_matter_dict(front: FrontMatter) -> dict[str, Any]:
    return {
        "description": front.description,
        "license": front.license,
        "compatibility": front.compatibility,
        "metadata": dict(front.metadata),
        "allowed_tools": list(front.allowed_tools),
        "values": dict(front.values),
        "faults": [[f.code, f.severity, f.message, f.line] for f in front.faults],
    }


_LINK_MESSAGES = {
    "link-escapes": "leads out of the store and is not followed; name the folder it leads to in follow= to serve it",
    "link-dangling": "leads to nothing that is served; mend or remove it",
    "link-loop": "leads back to itself; mend or remove it",
}


def _refresh_sight(connection: sqlite3.Connection, store: Store, catalog: Catalog) -> None:
    """Resolve every link anew and mark the folders that lead to something visible.

    Links are few, and where one leads can change with any name in the store, so all are judged together.
    """
    connection.execute("DELETE FROM problem WHERE code LIKE 'link-%'")
    links = catalog.links()
    paths = catalog.with_paths([key for key, *_ in links]) if links else {}
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
    connection.executemany("UPDATE entry SET target=?, visible=0 WHERE key=?", [(t, k) for k, t in resolved.items()])
    _mark_on_the_way(connection)
    pending = {key: (parent, name) for key, parent, name, _, _ in links if resolved[key] is not None}
    while True:
        shown = [key for key in pending if _link_shows(catalog, pending[key][0], resolved[key] or "")]
        if not shown:
            break
        for key in shown:
            connection.execute("UPDATE entry SET visible=1 WHERE key=?", (key,))
            del pending[key]
        _mark_on_the_way(connection)
    for key, (parent, name) in pending.items():
        above = catalog.by_key(parent)
        if above is not None and above.skill is not None:
            message = "leads to something that is in no skill, so it is not served; move that into a skill"
            faults.append((parent, name, "link-escapes", "warning", message))
        assert paths[key] is not None
    connection.executemany("INSERT INTO problem VALUES (?, ?, ?, ?, ?)", faults)


def _link_shows(catalog: Catalog, parent: int, target: str) -> bool:
    """Whether a link is to be listed: it leads to something visible, and lies in a skill or leads to a folder."""
    row = catalog.by_path(tuple(target.split("/")) if target else ())
    if row is None or row.kind == RowKind.LINK or not row.visible:
        return False
    above = catalog.by_key(parent)
    assert above is not None
    return above.skill is not None or row.kind != RowKind.FILE


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


