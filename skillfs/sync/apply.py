"""Writes what a scan found into the index: rows, identities, links, visibility and the change log."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from skillfs.core.digest import id_of_uuid, sha256
from skillfs.core.frontmatter import FrontMatter, read_front_matter
from skillfs.core.model import Place
from skillfs.errors import StoreUnavailableError
from skillfs.index.catalog import Catalog
from skillfs.index.identities import Identities
from skillfs.index.journal import ChangeRow, Journal
from skillfs.index.rows import ROOT, NodeRow, RowKind, Visibility, encode_place
from skillfs.index.schema import ENTRY_INDEXES
from skillfs.stores.base import FileState, Store, unsettled
from skillfs.sync.gather import Gathered, Known
from skillfs.sync.reconcile import Plan, State, name_of, parent_of, reconcile
from skillfs.sync.scan import Scanner, ScanProblem, Seen
from skillfs.sync.sight import refresh_sight, refresh_sight_at

__all__ = ["apply", "build"]

_INSERT = "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_BATCH = 4_000

_SkillRow: TypeAlias = tuple[int, str, str, bytes | None]
"""Key, name, front matter, and the SHA-256 of the first bytes of the `SKILL.md`, which these come from."""
_MOST_AROUND = 2_000


def build(
    connection: sqlite3.Connection,
    store: Store,
    catalog: Catalog,
    scanner: Scanner,
    identities: Identities,
    title: str,
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

    Raises:
        StoreUnavailableError: The root went away.
    """
    for table in ("entry", "text", "sha256", "skill", "problem"):
        connection.execute(f"DELETE FROM {table}")
    for index in ("entry_name", "entry_id", "entry_content"):
        connection.execute(f"DROP INDEX IF EXISTS facts.{index}")
    skills: list[_SkillRow] = []
    folders: dict[str, int] = {}

    def rows() -> Iterator[tuple[Any, ...]]:
        key = ROOT - 1
        born = identities.born
        for seen in scanner.with_heads(scanner.walk("", Place(0, ""), None)):
            path, kind, state = seen.path, seen.kind, seen.state
            key += 1
            above, _, name = path.rpartition("/")
            if kind <= RowKind.SKILL:
                folders[path] = key
                size = None
            else:
                size = state.size if state.size >= 0 else None
            uuid = number = None
            if kind != RowKind.LINK:
                uuid, number = born(path)
            if seen.head is not None:
                skills.append(_skill_row(folders[above], above, title, seen.head, state.size))
            yield (
                key, folders[above] if path else 0, name, int(kind), 0 if seen.skill is None else 1,
                number, uuid, state.signature, size, state.modified, seen.content,
                encode_place(seen.lies) if seen.lies else None,
            )  # fmt: skip

    stream = rows()
    while batch := list(islice(stream, _BATCH)):
        connection.executemany(_INSERT, batch)
        connection.executemany("INSERT OR REPLACE INTO skill VALUES (?, ?, ?, ?)", skills)
        skills.clear()
    if "" not in folders:
        raise StoreUnavailableError("the store's root folder went away; try again when it is back")
    connection.execute(
        "INSERT INTO skill SELECT key, iif(key=?, ?, name), ?, NULL FROM entry "
        "WHERE kind=? AND key NOT IN (SELECT key FROM skill)",
        (ROOT, title, _UNREAD, RowKind.SKILL),
    )
    _make_indexes(connection, catalog, identities)
    _insert_problems(connection, scanner.problems, folders)
    refresh_sight(connection, store, catalog, scanner.ignore)
    Journal.begin(connection)


def _make_indexes(connection: sqlite3.Connection, catalog: Catalog, identities: Identities) -> None:
    by_name, by_id, *others = ENTRY_INDEXES
    connection.execute(by_name)
    try:
        connection.execute(by_id)
    except sqlite3.IntegrityError:
        # Two of a million UUIDs share their first 53 bits once in some 20,000 stores; and two paths have one
        # UUID when a crash left only the half of a move on record.
        keys = connection.execute(
            "SELECT key FROM entry WHERE id IN (SELECT id FROM entry GROUP BY id HAVING count(*) > 1)"
        ).fetchall()
        paths = catalog.with_paths([key for (key,) in keys])
        # By path, so that every machine gives the same number to the same entry.
        again = sorted((paths[key], key) for (key,) in keys)
        connection.executemany("UPDATE entry SET id=NULL WHERE key=?", keys)
        connection.execute(by_id)
        for path, key in again:
            uuid, number = _born(connection, identities, path)
            connection.execute("UPDATE entry SET uuid=?, id=? WHERE key=?", (uuid, number, key))
    for statement in others:
        connection.execute(statement)


def _born(connection: sqlite3.Connection, identities: Identities, path: str) -> tuple[bytes, int]:
    """The identity of an entry that appears at a path, with a number that is free."""
    uuid, number = identities.born(path)
    taken = "SELECT uuid FROM entry WHERE id=?"
    while (found := connection.execute(taken, (number,)).fetchone()) is not None:
        if found[0] == uuid:
            # The record that this entry had moved away was lost: the path gives birth to the next.
            identities.left(path)
            uuid, number = identities.born(path)
        else:
            number += 1
    if number != id_of_uuid(uuid):
        identities.numbered(path, uuid, number)
    return uuid, number


def apply(
    connection: sqlite3.Connection,
    store: Store,
    catalog: Catalog,
    scanner: Scanner,
    gathered: Gathered,
    identities: Identities,
    title: str,
    moves: Mapping[str, str] | None = None,
) -> bool:
    """Bring the index in step with what was gathered, in the transaction of the connection.

    Args:
        connection: Inside a transaction.
        store: The store.
        catalog: Of the same index.
        scanner: What gathered.
        gathered: Both sides of the difference.
        identities: Of the same transaction.
        title: Name of a skill whose folder is the root.
        moves: New path to old path of what is known to have been moved.

    Returns:
        Whether anything changed that a reader can see.
    """
    return _Applying(connection, store, catalog, scanner, gathered, identities, title, moves).run()


class _View(NamedTuple):
    """What a reader can see of an entry."""

    path: str
    kind: RowKind
    content: bytes | None
    skill: bytes | None
    skill_path: str | None
    version: bytes = b""


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
        moves: Mapping[str, str] | None,
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
        self._moves = moves
        self._uuids: dict[str, bytes] = {}
        self._folder_keys = {path: row.key for path, (row, _) in gathered.listed.items()}
        self._unreadable = gathered.unreadable
        self._problem_folders = {row.key for row, _ in gathered.listed.values()}
        self._problem_folders.update(row.key for row in gathered.unreadable)
        self._may_show_others = True
        self._around: set[str] | None = None

    def run(self) -> bool:
        plan = self._reconcile()
        self._may_show_others = self._shows_others()
        self._around = self._folders_around() if self._may_show_others else None
        links = self._links()
        before = self._view_before()
        self._remove(plan)
        self._place(plan)
        self._place_links()
        for row, state in self._listed.values():
            if (state.signature, state.modified) != (row.signature, row.modified):
                self._sql(
                    "UPDATE entry SET signature=?, modified=? WHERE key=?",
                    (state.signature, state.modified, row.key),
                )
        for row in self._unreadable:
            # What keeps it from being listed may lie above it: look again, whatever its signature says.
            again = unsettled(FileState(row.signature, 0, 0)).signature
            if again != row.signature:
                self._sql("UPDATE entry SET signature=? WHERE key=?", (again, row.key))
        self._replace_problems()
        if self._around is not None:
            refresh_sight_at(self._connection, self._catalog, self._around)
        elif self._may_show_others:
            refresh_sight(self._connection, self._store, self._catalog, self._scanner.ignore)
        changes = _differences(before, self._view_after())
        # A link has no entry of its own, and a change is told by the entry's UUID, so a link that comes, goes
        # or turns is no item; but listings show it, and their reader is told by a revision without items.
        if changes or links != self._links():
            Journal.append(self._connection, changes)
            return True
        return False

    def _shows_others(self) -> bool:
        """Whether links may lead elsewhere now, or other folders be on the way to something.

        They cannot where nothing but files, and folders inside skills, came, went or changed, and there is no
        link.
        """
        for side in (
            ((k.node.kind, k.skill) for k in self._known.values()),
            ((s.kind, s.skill) for s in self._seen.values()),
        ):
            for kind, skill in side:
                if kind in (RowKind.SKILL, RowKind.LINK) or (kind == RowKind.FOLDER and skill is None):
                    return True
        if self._known.keys() == self._seen.keys():
            return False
        return self._sql("SELECT 1 FROM entry WHERE kind=3 LIMIT 1").fetchone() is not None

    def _folders_around(self) -> set[str] | None:
        """The folders that may be on the way to something now, or no more; None where that may be any.

        Without links these are the ones in which something happened, and those above.
        """
        both = (
            *((path, k.node.kind) for path, k in self._known.items()),
            *((path, s.kind) for path, s in self._seen.items()),
        )
        if any(kind == RowKind.LINK for _, kind in both) or self._catalog.has_links():
            return None
        around = {""}
        for path, kind in both:
            if kind == RowKind.FILE:
                path = parent_of(path)
            while path not in around:
                around.add(path)
                if len(around) > _MOST_AROUND:
                    return None  # to ask for all of them together takes less
                path = parent_of(path)
        return around

    def _links(self) -> set[tuple[int, str, Visibility, str | None]]:
        """The links that can be seen."""
        if not self._may_show_others:
            return set()
        links = self._catalog.links()
        return {(parent, name, visible, target) for _, parent, name, visible, target in links if visible}

    def _reconcile(self) -> Plan:
        # Two keys of a remote store may well hold the same bytes: what moved there is told, never guessed.
        remote, inode = self._store.remote, self._store.inode

        def states(items: Iterable[tuple[str, RowKind, bytes, bytes | None]]) -> dict[str, State]:
            return {
                path: State(kind <= RowKind.SKILL, inode(signature), None if remote else content)
                for path, kind, signature, content in items
                if kind != RowKind.LINK
            }

        return reconcile(
            states((p, k.node.kind, k.node.signature, k.node.content) for p, k in self._known.items()),
            states((p, s.kind, s.state.signature, s.content) for p, s in self._seen.items()),
            _Held(self._connection, self._known),
            self._moves,
        )

    # -- rows ----------------------------------------------------------------------------------------------

    def _remove(self, plan: Plan) -> None:
        for path in plan.removed:
            node = self._known[path].node
            self._delete(node.key)
            if node.uuid is not None and node.id is not None:
                self._identities.removed(path, node.uuid, node.id)
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
        for old in plan.moved.values():
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
                self._update(path, seen, self._known[path].node, moved=False)
            elif path in plan.moved:
                self._update(path, seen, self._known[plan.moved[path]].node, moved=True)
            else:
                self._insert(path, seen)

    def _insert(self, path: str, seen: Seen) -> None:
        uuid, number = _born(self._connection, self._identities, path)
        cursor = self._sql(
            "INSERT INTO entry (parent, name, kind, visible, id, uuid, signature, size, modified, content, "
            "target) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (self._key_of(parent_of(path)) if path else 0, name_of(path), seen.kind,
             int(seen.skill is not None), number, uuid, *self._columns(seen)),
        )  # fmt: skip
        assert cursor.lastrowid is not None
        self._after(path, seen, cursor.lastrowid, uuid)

    def _update(self, path: str, seen: Seen, node: NodeRow, *, moved: bool) -> None:
        assert node.uuid is not None
        if moved:
            parent = self._key_of(parent_of(path))
            self._sql("UPDATE entry SET parent=?, name=? WHERE key=?", (parent, name_of(path), node.key))
        if seen.skill is not None:
            visible = Visibility.IN_SKILL
        elif node.visible == Visibility.ON_THE_WAY and seen.kind == RowKind.FOLDER:
            visible = Visibility.ON_THE_WAY  # until all folders are marked anew
        else:
            visible = Visibility.HIDDEN
        columns = (seen.kind, visible, *self._columns(seen))
        was = (node.kind, node.visible, node.signature, node.size, node.modified, node.content, node.target)
        if columns != was:
            self._sql(
                "UPDATE entry SET kind=?, visible=?, signature=?, size=?, modified=?, content=?, target=? "
                "WHERE key=?",
                (*columns, node.key),
            )
        if seen.content != node.content or self._is_another(seen.state.signature, node.signature):
            self._sql("DELETE FROM text WHERE key=?", (node.key,))
            self._sql("DELETE FROM sha256 WHERE key=?", (node.key,))
        if node.kind == RowKind.SKILL and seen.kind != RowKind.SKILL:
            self._sql("DELETE FROM skill WHERE key=?", (node.key,))
        self._after(path, seen, node.key, node.uuid)

    def _is_another(self, signature: bytes, known: bytes) -> bool:
        """Whether a signature no longer vouches for what was computed of the file that had the known one.

        An equal XXH3 does not: two contents can be made that share it.
        """
        if self._store.remote:
            return signature != known
        return signature.removesuffix(b"?") != known.removesuffix(b"?")

    def _columns(self, seen: Seen) -> tuple[Any, ...]:
        size = None if seen.kind <= RowKind.SKILL or seen.state.size < 0 else seen.state.size
        target = encode_place(seen.lies) if seen.lies else None
        return seen.state.signature, size, seen.state.modified, seen.content, target

    def _after(self, path: str, seen: Seen, key: int, uuid: bytes) -> None:
        self._uuids[path] = uuid
        if seen.kind <= RowKind.SKILL:
            self._folder_keys[path] = key
            self._problem_folders.add(key)
        if seen.kind == RowKind.SKILL:
            # Before its SKILL.md, which may not be readable: that makes it no less a skill.
            self._sql(
                "INSERT INTO skill VALUES (?, ?, ?, NULL) ON CONFLICT (key) DO UPDATE SET name=excluded.name "
                "WHERE front_matter=excluded.front_matter AND name!=excluded.name",
                (key, name_of(path) or self._title, _UNREAD),
            )
        if seen.head is not None:
            above = parent_of(path)
            row = _skill_row(self._key_of(above), above, self._title, seen.head, seen.state.size)
            if self._sql("SELECT * FROM skill WHERE key=?", row[:1]).fetchone() != row:
                self._sql("INSERT OR REPLACE INTO skill VALUES (?, ?, ?, ?)", row)

    def _place_links(self) -> None:
        for path, seen in self._seen.items():
            if seen.kind != RowKind.LINK:
                continue
            known = self._known.get(path)
            if known is not None and known.node.kind == RowKind.LINK:
                columns = (seen.state.signature, seen.state.modified)
                if columns != (known.node.signature, known.node.modified):
                    self._sql(
                        "UPDATE entry SET signature=?, modified=? WHERE key=?", (*columns, known.node.key)
                    )
            else:
                self._sql(
                    "INSERT INTO entry (parent, name, kind, visible, signature, size, modified) "
                    "VALUES (?, ?, 3, 0, ?, ?, ?)",
                    (self._key_of(parent_of(path)), name_of(path), *seen.state[:3]),
                )

    def _key_of(self, folder: str) -> int:
        key = self._folder_keys.get(folder)
        if key is None:
            row = self._catalog.by_path(tuple(folder.split("/")) if folder else ())
            assert row is not None
            key = self._folder_keys[folder] = row.key
        return key

    # -- what can be seen ----------------------------------------------------------------------------------

    def _view_before(self) -> dict[bytes, _View]:
        skills: dict[str, bytes | None] = {}
        view = self._on_the_way()
        for known in self._known.values():
            node, skill = known.node, known.skill
            if not node.visible or node.uuid is None:
                continue
            if skill is not None and skill not in skills:
                own = self._known.get(skill)
                skills[skill] = own.node.uuid if own is not None else self._uuid_at(skill)
            view[node.uuid] = _View(
                known.path, node.kind, node.content, None if skill is None else skills[skill], skill,
                self._version(node.kind, node.signature),
            )  # fmt: skip
        return view

    def _view_after(self) -> dict[bytes, _View]:
        skills: dict[str, bytes | None] = {}
        view = self._on_the_way()
        for path, uuid in self._uuids.items():
            seen = self._seen[path]
            if seen.skill is None:
                continue
            if seen.skill not in skills:
                skills[seen.skill] = self._uuids.get(seen.skill) or self._uuid_at(seen.skill)
            version = self._version(seen.kind, seen.state.signature)
            view[uuid] = _View(path, seen.kind, seen.content, skills[seen.skill], seen.skill, version)
        return view

    def _version(self, kind: RowKind, signature: bytes) -> bytes:
        """What tells two versions of a file apart whose content may not be known: its signature."""
        return signature.removesuffix(b"?") if self._store.remote and kind == RowKind.FILE else b""

    def _on_the_way(self) -> dict[bytes, _View]:
        """Folders outside skills that can be seen."""
        if not self._may_show_others:
            return {}  # they are the same before and after
        if self._around is not None:
            found = (self._catalog.by_path(path.split("/") if path else ()) for path in self._around)
            return {
                row.uuid: _View(row.path, RowKind.FOLDER, None, None, None)
                for row in found
                if row is not None
                and row.uuid is not None
                and row.kind == RowKind.FOLDER
                and row.visible == Visibility.ON_THE_WAY
            }
        # Constants, not parameters: only then SQLite knows that the partial index serves.
        rows = self._sql("SELECT key, uuid FROM entry WHERE visible=2 AND kind=0").fetchall()
        paths = self._catalog.with_paths([key for key, _ in rows])
        return {uuid: _View(paths[key], RowKind.FOLDER, None, None, None) for key, uuid in rows}

    def _uuid_at(self, path: str) -> bytes | None:
        row = self._catalog.by_path(tuple(path.split("/")) if path else ())
        return None if row is None else row.uuid

    # -- problems ------------------------------------------------------------------------------------------

    def _replace_problems(self) -> None:
        keys = {problem.folder: self._key_of(problem.folder) for problem in self._scanner.problems}
        now = {(keys[problem.folder], *problem[1:]) for problem in self._scanner.problems}
        known: set[tuple[Any, ...]] = set()
        for key in self._problem_folders:
            known.update(self._sql("SELECT * FROM problem WHERE folder=? AND code NOT LIKE 'link-%'", (key,)))
        # A mount point is found by itself, not in the listing of the folder that holds it; and so is its end.
        for problem in self._sql("SELECT * FROM problem WHERE code='mount-point'").fetchall():
            above = self._catalog.by_key(problem[0])
            path = None if above is None else f"{above.path}/{problem[1]}".lstrip("/")
            if path in self._listed or path in self._known or path in self._seen:
                known.add(problem)
        here = "folder=? AND name=? AND code=? AND severity=? AND message=?"
        self._connection.executemany(f"DELETE FROM problem WHERE {here}", sorted(known - now))
        self._connection.executemany("INSERT INTO problem VALUES (?, ?, ?, ?, ?)", sorted(now - known))


def _differences(before: Mapping[bytes, _View], after: Mapping[bytes, _View]) -> list[ChangeRow]:
    """The changes that lead from one view to the other: removals first, then the rest by path."""
    changes = []
    for uuid, old in sorted(before.items(), key=lambda item: item[1].path):
        if uuid not in after:
            changes.append(
                ChangeRow(
                    "removed", uuid, old.path,
                    old_skill=old.skill, old_skill_path=old.skill_path, old_content=old.content,
                )
            )  # fmt: skip
    for uuid, new in sorted(after.items(), key=lambda item: item[1].path):
        was = before.get(uuid)
        if was == new:
            continue
        kind = "added" if was is None else "modified" if was.path == new.path else "moved"
        changes.append(
            ChangeRow(
                kind, uuid, new.path,
                old_path=was.path if was is not None and kind == "moved" else None,
                skill=new.skill, skill_path=new.skill_path,
                old_skill=was.skill if was is not None else None,
                old_skill_path=was.skill_path if was is not None else None,
                content=new.content, old_content=was.content if was is not None else None,
            )
        )  # fmt: skip
    return changes


def _insert_problems(
    connection: sqlite3.Connection, problems: list[ScanProblem], keys: Mapping[str, int]
) -> None:
    connection.executemany(
        "INSERT INTO problem VALUES (?, ?, ?, ?, ?)",
        [(keys[p.folder], *p[1:]) for p in dict.fromkeys(problems) if p.folder in keys],
    )


def _skill_row(key: int, path: str, title: str, head: bytes, size: int) -> _SkillRow:
    folder = name_of(path) or title
    front = read_front_matter(head, folder, complete=size <= len(head))
    if size and not head:
        front = replace(front, faults=())  # it could not be read: that is a problem of its own
    digest = None if size and not head else sha256(head).digest()
    return key, front.name or folder, json.dumps(_front_matter_dict(front), ensure_ascii=False), digest


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


_UNREAD = json.dumps(_front_matter_dict(FrontMatter(None, "")))
"""What is known of a skill whose `SKILL.md` could not be read yet."""
