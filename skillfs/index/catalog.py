"""Typed questions to the index about entries.

Rows are kept by (parent, name): a moved folder is one row, and a path of six levels still costs one query.
"""

from __future__ import annotations

import json
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from skillfs.core.model import Place
from skillfs.index.database import Database
from skillfs.index.rows import (
    ROOT,
    NodeRow,
    Row,
    RowKind,
    SkillFolder,
    TextRow,
    Visibility,
    decode_place,
    paths_of,
)

__all__ = ["Catalog"]

_NODE = (
    "e.key, e.parent, e.name, e.kind, e.visible, e.id, e.uuid, e.signature, "
    "e.size, e.modified, e.content, e.target"
)
_FINAL = (
    "e{n}.key, e{n}.kind, e{n}.visible, e{n}.id, e{n}.uuid, e{n}.signature, e{n}.size, e{n}.modified, "
    "e{n}.content, e{n}.target, t.key, t.md5, t.encoding, t.characters, t.lines, t.reason, t.reason_at"
)
_FINAL_COLUMNS = 17
_STAMP = "(SELECT value FROM facts.meta WHERE name='stamp')"
_MOST_JOINED = 40
MOST_FOLDERS = 20_000
"""Folders that are kept in memory for look-ups of what they hold."""


@lru_cache(maxsize=64)
def _path_query(depth: int) -> str:
    levels = "".join(f", e{n}.key, e{n}.kind, e{n}.uuid, e{n}.target" for n in range(depth))
    joins = " ".join(
        f"CROSS JOIN entry e{n} ON e{n}.parent=e{n - 1}.key AND e{n}.name=?" for n in range(1, depth + 1)
    )
    final = _FINAL.format(n=depth)
    return (
        f"SELECT {final}{levels}, {_STAMP} FROM entry e0 {joins} LEFT JOIN text t ON t.key=e{depth}.key "
        f"WHERE e0.key={ROOT}"
    )


# One question for a row and everything above it: two would cost half as much again, and could disagree.
_UP_QUERY = f"""
WITH RECURSIVE up (n, key, parent, name, kind, uuid, target) AS (
    SELECT 0, key, parent, name, kind, uuid, target FROM entry WHERE {{where}}
    UNION ALL
    SELECT n + 1, e.key, e.parent, e.name, e.kind, e.uuid, e.target FROM up JOIN entry e ON e.key = up.parent
)
SELECT {_FINAL.format(n=0)}, up.key, up.name, up.kind, up.uuid, up.target, {_STAMP} FROM up
LEFT JOIN entry e0 ON up.n = 0 AND e0.key = up.key
LEFT JOIN text t ON t.key = e0.key
ORDER BY up.n DESC
"""
# For an entry whose folder is known already; a row of its folder for each level costs 2 µs.
_IN_FOLDER = (
    f"SELECT {_FINAL.format(n=0)}, e0.parent, e0.name, {_STAMP} FROM entry e0 "
    "LEFT JOIN text t ON t.key = e0.key WHERE {where}"
)
_CHILD = _IN_FOLDER.format(where="e0.parent = ? AND e0.name = ?")
_ONE_BY_KEY = _IN_FOLDER.format(where="e0.key = ?")
_ONE_BY_ID = _IN_FOLDER.format(where="e0.id = ?")
# Ids run on from a taken number without a gap that could be long, so a few steps always suffice.
_ONE_BY_UUID = _IN_FOLDER.format(where="e0.id BETWEEN ? AND ? + 64 AND e0.uuid = ?")
_BY_KEY = _UP_QUERY.format(where="key = ?")
_COUNT_TO = """
WITH RECURSIVE down (key) AS (
    SELECT key FROM entry WHERE parent = ?
    UNION ALL
    SELECT c.key FROM down CROSS JOIN entry c ON c.parent = down.key
    LIMIT ?
)
SELECT count(*) FROM down
"""

_HOLDS_SKILL = """
WITH RECURSIVE down (key, kind) AS (
    SELECT key, kind FROM entry WHERE parent = ? AND kind < 2
    UNION ALL
    SELECT c.key, c.kind FROM down CROSS JOIN entry c ON c.parent = down.key AND c.kind < 2
)
SELECT 1 FROM down WHERE kind = 1 LIMIT 1
"""


class _FolderRow(NamedTuple):
    """A folder as far as what it holds depends on it."""

    key: int
    path: str
    skill: SkillFolder | None
    place: Place

    @classmethod
    def above(cls, row: tuple[Any, ...], parts: Sequence[str]) -> _FolderRow:
        """The folder that holds the entry of a row with its levels."""
        depth = len(parts) - 1
        skill, place = _surroundings(row, parts, depth)
        return cls(row[_FINAL_COLUMNS + 4 * depth], "/".join(parts[:depth]), skill, place)

    @classmethod
    def last(cls, chain: list[Any]) -> _FolderRow:
        """The last folder of a chain that begins at the root."""
        return cls(chain[-1][_FINAL_COLUMNS], *_along(chain))


class _Folders:
    """Folders that were looked up, good while the index bears one stamp: every writer gives it another."""

    __slots__ = ("by_key", "by_path", "stamp")

    def __init__(self, stamp: int | None) -> None:
        self.stamp = stamp
        self.by_key: dict[int, _FolderRow] = {}
        self.by_path: dict[str, _FolderRow] = {}


class _Seen(threading.local):
    """The stamp that came with the last answer to a thread; None when none did."""

    stamp: int | None = None


class Catalog:
    """Reads entries.

    Args:
        database: The index.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.seen = _Seen()
        self._folders = _Folders(None)

    def read(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        """Run one query and return its rows."""
        self.seen.stamp = None
        return self.database.read(sql, parameters)

    # -- one entry -----------------------------------------------------------------------------------------

    def by_path(self, parts: Sequence[str]) -> Row | None:
        """The row at exactly this path; None when there is none, or when the way leads through a link."""
        depth = len(parts)
        if depth > _MOST_JOINED:
            return self._by_long_path(parts)
        folder = self._folders.by_path.get("/".join(parts[:-1])) if depth else None
        if folder is not None and not self.database.connection().in_transaction:
            found = self.read(_CHILD, (folder.key, parts[-1]))
            if found and found[0][-1] == self._folders.stamp:
                self.seen.stamp = found[0][-1]
                return _in_folder(found[0], folder)
        rows = self.read(_path_query(depth), tuple(parts))
        if not rows:
            return None
        self.seen.stamp = rows[0][-1]
        row = _from_levels(rows[0], parts)
        if depth:
            self._remember(rows[0][-1], _FolderRow.above(rows[0], parts))
        return row

    def _by_long_path(self, parts: Sequence[str]) -> Row | None:
        key = ROOT
        for name in parts:
            found = self.read("SELECT key FROM entry WHERE parent=? AND name=?", (key, name))
            if not found:
                return None
            key = found[0][0]
        return self.by_key(key)

    def by_key(self, key: int) -> Row | None:
        """The row with this key."""
        return self._one(_ONE_BY_KEY, (key,))

    def by_id(self, number: int) -> Row | None:
        """The entry with this integer id."""
        return self._one(_ONE_BY_ID, (number,)) if 0 <= number < 1 << 63 else None

    def by_uuid(self, uuid: bytes, number: int) -> Row | None:
        """The entry with this UUID.

        Args:
            uuid: 16 bytes.
            number: The id that follows from it; entries whose number was taken have one of the next.
        """
        return self._one(_ONE_BY_UUID, (number, number, uuid))

    def _one(self, query: str, parameters: tuple[Any, ...]) -> Row | None:
        found = self.read(query, parameters)
        if not found:
            return None
        row = found[0]
        folders = self._folders
        folder = folders.by_key.get(row[_FINAL_COLUMNS])
        if folder is not None and row[-1] == folders.stamp and not self.database.connection().in_transaction:
            self.seen.stamp = row[-1]
            return _in_folder(row, folder)
        chain = self.read(_BY_KEY, (row[0],))
        whole = _from_chain(chain)
        if whole is None or whole.uuid != row[4]:
            return None  # between the two questions a writer gave the key to another entry
        if len(chain) > 1:
            self._remember(chain[-1][-1], _FolderRow.last(chain[:-1]))
        return whole

    def _remember(self, stamp: int | None, folder: _FolderRow) -> None:
        """Keep a folder for look-ups of what it holds, as long as nothing is written."""
        if stamp is None or self.database.connection().in_transaction:
            return
        folders = self._folders
        if folders.stamp != stamp or len(folders.by_key) >= MOST_FOLDERS:
            folders = self._folders = _Folders(stamp)
        folders.by_key[folder.key] = folder
        folders.by_path[folder.path] = folder

    def stamp(self) -> int | None:
        """What is another after every transaction that wrote; None before the first."""
        rows = self.read(f"SELECT {_STAMP}")
        return rows[0][0]  # type: ignore[no-any-return]  # a row of SQLite

    def by_content(self, algorithm: str, digest: bytes) -> list[int]:
        """Keys of the files with this content."""
        sql = {
            "xxh3": "SELECT key FROM entry WHERE content=?",
            "md5": "SELECT key FROM text WHERE md5=?",
            "sha256": "SELECT key FROM sha256 WHERE digest=?",
        }[algorithm]
        return [key for (key,) in self.read(sql, (digest,))]

    def hashed(
        self, algorithm: str, skills: Sequence[int] | None = None, *, lazy: bool = False
    ) -> tuple[int, int]:
        """For how many of the files that can be read a hash is known, and how many there are.

        Args:
            algorithm: `md5`, `sha256` or `xxh3`.
            skills: Keys of folders, none below another, to count only what they hold.
            lazy: Whether files are read when they are asked for, and not all when the store is scanned.
        """
        table = {
            "md5": "text WHERE md5 IS NOT NULL",
            "sha256": "sha256 WHERE true",
            "xxh3": "entry WHERE content IS NOT NULL",
        }[algorithm]
        # Where all are read at a scan, what has no content cannot be read: it has no hash to wait for.
        counted = "e.kind=2 AND e.visible=1" if lazy else "e.content IS NOT NULL"
        if skills is None:
            known = f"SELECT count(*) FROM {table}"
            total = f"SELECT count(*) FROM entry e WHERE {counted}"
            return self.read(known)[0][0], self.read(total)[0][0]
        known, total = self.read(
            f"SELECT count((SELECT 1 FROM {table} AND key=e.key)), count(*) FROM {_below(skills)} {counted}"
        )[0]
        return known, total

    def deepest(self, parts: Sequence[str]) -> tuple[Row, int]:
        """The last row on the way to a path, and how many components lead to it."""
        if parts:
            above = self.by_path(parts[:-1])
            if above is not None:
                whole = self.by_path(parts)
                return (above, len(parts) - 1) if whole is None else (whole, len(parts))
        key, depth = ROOT, 0
        for name in parts:
            found = self.read("SELECT key FROM entry WHERE parent=? AND name=?", (key, name))
            if not found:
                break
            key, depth = found[0][0], depth + 1
        for known in range(depth, 0, -1):
            row = self.by_path(parts[:known])
            if row is not None:  # unless a writer took it away between two questions
                return row, known
        root = self.by_path(())
        assert root is not None
        return root, 0

    def equal_under_nfc(self, parent: int, name: str) -> list[str]:
        """Names in a folder that are the same under Unicode normalisation form C."""
        wanted = unicodedata.normalize("NFC", name)
        return [
            found
            for (found,) in self.read("SELECT name FROM entry WHERE parent=?", (parent,))
            if (found if found.isascii() else unicodedata.normalize("NFC", found)) == wanted
        ]

    def neighbours(self, parent: int, name: str, most: int) -> list[str]:
        """Visible names in a folder around one that it does not hold, sorted; links are left out.

        Args:
            parent: Key of the folder.
            name: The name.
            most: How many names before it, and how many after; -1 for all.
        """
        sql = "SELECT name FROM entry WHERE parent=? AND name {} ? AND visible > 0 AND kind < 3 ORDER BY name"
        before = self.read(f"{sql.format('<')} DESC LIMIT ?", (parent, name, most))
        after = self.read(f"{sql.format('>')} LIMIT ?", (parent, name, most))
        return [found for (found,) in (*reversed(before), *after)]

    # -- many entries --------------------------------------------------------------------------------------

    def child(self, key: int, name: str) -> NodeRow | None:
        """One entry of a folder."""
        rows = self.read(f"SELECT {_NODE} FROM entry e WHERE e.parent=? AND e.name=?", (key, name))
        return _node(rows[0]) if rows else None

    def children(self, key: int) -> list[NodeRow]:
        """What a folder holds, hidden entries included, unsorted."""
        return [_node(r) for r in self.read(f"SELECT {_NODE} FROM entry e WHERE e.parent=?", (key,))]

    def subtree(self, key: int, depth: int | None = None) -> list[NodeRow]:
        """Everything below a folder, parents before children, but not the folder itself."""
        limit = -1 if depth is None else min(depth, 1 << 31)
        rows: list[Any] = self.read(
            "WITH RECURSIVE down (key, n) AS (SELECT key, 1 FROM entry WHERE parent=? UNION ALL "
            "SELECT c.key, n + 1 FROM down CROSS JOIN entry c ON c.parent=down.key WHERE ? < 0 OR n < ?) "
            f"SELECT {_NODE} FROM down CROSS JOIN entry e ON e.key=down.key",
            (key, limit, limit),
        )
        for number, row in enumerate(rows):  # in its place, so that they are not held twice
            rows[number] = _node(row)
        return rows

    def is_small(self, key: int, most: int) -> bool:
        """Whether a folder holds at most so many entries, at all depths; costs no more for a large one."""
        return bool(self.read(_COUNT_TO, (key, most + 1))[0][0] <= most)

    def holds_skill(self, key: int) -> bool:
        """Whether there is a skill below a folder, at any depth; the folder itself does not count."""
        return self.read(_HOLDS_SKILL, (key,)) != []

    def overview(self) -> list[NodeRow]:
        """Skills, links to folders outside skills, and the folders that lead to either; parents first."""
        rows = self.read(
            "WITH RECURSIVE up (key) AS ("
            "SELECT key FROM entry WHERE kind=1 UNION SELECT key FROM entry WHERE kind=3 AND visible=2 "
            "UNION SELECT e.parent FROM up JOIN entry e ON e.key=up.key) "
            f"SELECT {_NODE} FROM up JOIN entry e ON e.key=up.key"
        )
        nodes = {row[0]: _node(row) for row in rows}
        paths = paths_of({key: (node.parent, node.name) for key, node in nodes.items()})
        return sorted((n for n in nodes.values() if n.key != ROOT), key=lambda n: paths[n.key].count("/"))

    def with_paths(self, keys: Iterable[int] | str) -> dict[int, str]:
        """Paths of many entries at once, and of the folders above them.

        Args:
            keys: The keys, or a query that selects them.
        """
        if isinstance(keys, str):
            seed: str = keys
            parameters: tuple[str, ...] = ()
        elif known := list(keys):
            # As one value: a statement that names each of them has a limit of 500.
            seed, parameters = "SELECT value FROM json_each(?)", (json.dumps(known),)
        else:
            return {}
        rows = self.read(
            f"WITH RECURSIVE up (key) AS ({seed} UNION SELECT e.parent FROM up JOIN entry e ON e.key=up.key) "
            "SELECT e.key, e.parent, e.name FROM up JOIN entry e ON e.key=up.key",
            parameters,
        )
        return paths_of({key: (parent, name) for key, parent, name in rows})

    def skill_rows(self) -> list[tuple[int, int, bytes, str, str]]:
        """Key, id, UUID, name and front matter (JSON) of every skill, in no order."""
        return self.read(
            "SELECT s.key, e.id, e.uuid, s.name, s.front_matter FROM skill s JOIN entry e ON e.key=s.key"
        )

    def skill_keys(self, name: str) -> list[int]:
        """Keys of the skills of this name."""
        return [key for (key,) in self.read("SELECT key FROM skill WHERE name=?", (name,))]

    def skill_row(self, key: int) -> tuple[str, str] | None:
        """Name and front matter (JSON) of one skill."""
        rows = self.read("SELECT name, front_matter FROM skill WHERE key=?", (key,))
        return rows[0] if rows else None

    def front_matters(self, keys: Sequence[int]) -> dict[int, str]:
        """Front matter (JSON) of skills by key."""
        found: dict[int, str] = {}
        for start in range(0, len(keys), 500):
            some = ",".join(map(str, keys[start : start + 500]))
            found.update(self.read(f"SELECT key, front_matter FROM skill WHERE key IN ({some})"))
        return found

    def grid(self, key: int) -> bytes | None:
        """The packed grid of a large text."""
        rows = self.read("SELECT grid FROM text WHERE key=?", (key,))
        return rows[0][0] if rows else None

    def sha256(self, key: int) -> bytes | None:
        """The SHA-256 of a file where it is known."""
        rows = self.read("SELECT digest FROM sha256 WHERE key=?", (key,))
        return rows[0][0] if rows else None

    def sha256s(self, keys: Sequence[int]) -> dict[int, bytes]:
        """The SHA-256 of some files, by key, of those of which it is known."""
        sql = "SELECT key, digest FROM sha256 WHERE key IN (SELECT value FROM json_each(?))"
        return dict(self.read(sql, (json.dumps(list(keys)),)))

    def problems(self, skill: int | None = None) -> list[tuple[int, str, str, str, str]]:
        """Folder key, name in it, code, severity and message of what is wrong with names and links.

        Args:
            skill: Key of a skill, for what concerns it alone and no skill nested in it; None for everything.
        """
        if skill is None:
            return self.read("SELECT folder, name, code, severity, message FROM problem")
        return self.read(
            "WITH RECURSIVE down (key) AS (VALUES (?) UNION ALL SELECT e.key FROM down CROSS JOIN entry e "
            "ON e.parent=down.key WHERE e.kind=0) "
            "SELECT folder, name, code, severity, message FROM down CROSS JOIN problem ON folder=down.key",
            (skill,),
        )

    def counts(self, skills: Sequence[int] | None = None) -> dict[str, int]:
        """How many skills, visible folders and files, and bytes there are.

        Args:
            skills: Keys of skills, none below another, to count only these and what they hold.
        """
        among = "entry e WHERE" if skills is None else _below(skills)
        rows = self.read(
            f"SELECT e.kind, count(*), coalesce(sum(e.size), 0) FROM {among} "
            "e.visible > 0 AND e.kind < 3 GROUP BY e.kind"
        )
        by_kind = {kind: (count, size) for kind, count, size in rows}
        return {
            "skills": by_kind.get(1, (0, 0))[0],
            "folders": by_kind.get(0, (0, 0))[0],
            "files": by_kind.get(2, (0, 0))[0],
            "bytes": by_kind.get(2, (0, 0))[1],
        }

    # -- streams for a check -------------------------------------------------------------------------------

    def folders(self) -> Iterator[tuple[int, int, str, RowKind, bytes, str | None]]:
        """Key, parent, name, kind, signature and target of every folder."""
        connection = self.database.connection()
        return iter(
            connection.execute("SELECT key, parent, name, kind, signature, target FROM entry WHERE kind < 2")
        )

    def files(self) -> Iterator[tuple[int, str, bytes, str | None]]:
        """Parent, name, signature and target of every file."""
        connection = self.database.connection()
        return iter(connection.execute("SELECT parent, name, signature, target FROM entry WHERE kind = 2"))

    def folder_places(self) -> Iterator[tuple[str, Place, bytes]]:
        """Path, place and signature of every folder, in no order."""
        rows = list(self.folders())
        paths = paths_of({key: (parent, name) for key, parent, name, *_ in rows})
        linked = {key: decode_place(target) for key, _, _, _, _, target in rows if target is not None}
        if not linked:
            for key, _, _, _, signature, _ in rows:
                yield paths[key], Place(0, paths[key]), signature
            return
        places = {ROOT: Place(0, ""), **linked}
        for key, parent, name, _, signature, _ in sorted(rows, key=lambda row: paths[row[0]].split("/")):
            if key not in places:
                places[key] = places[parent].child(name)
            yield paths[key], places[key], signature

    def linked_files(self) -> list[tuple[str, Place]]:
        """Files that lie elsewhere than their path says: the folder that shows them, and their place."""
        rows = self.read("SELECT parent, target FROM entry WHERE kind=2 AND target IS NOT NULL")
        paths = self.with_paths({parent for parent, _ in rows})
        return [(paths[parent], decode_place(target)) for parent, target in rows if parent in paths]

    def has_links(self) -> bool:
        """Whether there is any link that is no file or folder of a followed folder."""
        return self.read("SELECT 1 FROM entry WHERE kind=3 LIMIT 1") != []

    def link_faults(self) -> dict[tuple[int, str], str]:
        """Problem codes of links that lead to nothing in the store, by the key of the folder and the name."""
        codes = "'link-dangling', 'link-escapes', 'link-loop'"
        rows = self.read(f"SELECT folder, name, code FROM problem WHERE code IN ({codes})")
        return {(folder, name): code for folder, name, code in rows}

    def links(self) -> list[tuple[int, int, str, Visibility, str | None]]:
        """Key, parent, name, visibility and target of every link."""
        return self.read("SELECT key, parent, name, visible, target FROM entry WHERE kind = 3")


def _below(skills: Sequence[int]) -> str:
    """What to select from, up to the first condition: some skills as `e`, and all that they hold."""
    # As one value: a statement that names each of them has a limit of 500.
    seed = f"SELECT value FROM json_each('{json.dumps(list(skills))}')"
    return (
        f"(WITH RECURSIVE down (key) AS ({seed} UNION ALL SELECT c.key FROM down "
        "CROSS JOIN entry c ON c.parent=down.key) SELECT key FROM down) d "
        "CROSS JOIN entry e ON e.key=d.key WHERE"
    )


_KINDS = tuple(RowKind)
_VISIBILITIES = tuple(Visibility)


def _row(row: tuple[Any, ...], path: str, skill: SkillFolder | None, place: Place) -> Row:
    text = None if row[10] is None else TextRow(row[11], row[12], row[13], row[14], row[15], row[16])
    return Row(
        row[0], _KINDS[row[1]], _VISIBILITIES[row[2]], row[3], row[4], row[5], row[6], row[7], row[8], row[9],
        text, path, skill, place,
    )  # fmt: skip


def _in_folder(row: tuple[Any, ...], folder: _FolderRow) -> Row:
    name = row[_FINAL_COLUMNS + 1]
    path = f"{folder.path}/{name}" if folder.path else name
    skill, place = folder.skill, folder.place.child(name)
    if row[1] == RowKind.SKILL:
        skill = SkillFolder(row[0], row[4], path)
    if row[9] is not None and row[1] != RowKind.LINK:
        place = decode_place(row[9])
    return _row(row, path, skill, place)


def _from_levels(row: tuple[Any, ...], parts: Sequence[str]) -> Row:
    depth = len(parts)
    path = "/".join(parts)
    skill, place = _surroundings(row, parts, depth - 1)
    if depth:
        place = place.child(parts[-1])
    if row[1] == RowKind.SKILL:
        skill = SkillFolder(row[0], row[4], path)
    if row[9] is not None and row[1] != RowKind.LINK:
        place = decode_place(row[9])
    return _row(row, path, skill, place)


def _surroundings(row: tuple[Any, ...], parts: Sequence[str], depth: int) -> tuple[SkillFolder | None, Place]:
    """Skill and place of the folder at a level of a row with its levels."""
    skill = place = None
    for level in range(depth, -1, -1):
        key, kind, uuid, target = row[_FINAL_COLUMNS + 4 * level : _FINAL_COLUMNS + 4 * level + 4]
        if skill is None and kind == RowKind.SKILL:
            skill = SkillFolder(key, uuid, "/".join(parts[:level]))
        if place is None and target is not None:
            above = decode_place(target)
            place = Place(above.root, "/".join(filter(None, (above.path, *parts[level:depth]))))
    return skill, place or Place(0, "/".join(parts[:depth]))


def _from_chain(chain: list[Any]) -> Row | None:
    """The last row of a chain that begins at the root."""
    if not chain or chain[0][_FINAL_COLUMNS] != ROOT:
        return None
    return _row(chain[-1], *_along(chain))


def _along(chain: list[Any]) -> tuple[str, SkillFolder | None, Place]:
    """Path, skill and place of the last row of a chain."""
    names: list[str] = []
    skill: SkillFolder | None = None
    place = Place(0, "")
    for row in chain:
        key, name, kind, uuid, target = row[_FINAL_COLUMNS : _FINAL_COLUMNS + 5]
        if key != ROOT:
            names.append(name)
            place = place.child(name)
        if kind == RowKind.SKILL:
            skill = SkillFolder(key, uuid, "/".join(names))
        if target is not None and kind != RowKind.LINK:
            place = decode_place(target)
    return "/".join(names), skill, place


def _node(r: tuple[Any, ...]) -> NodeRow:
    return NodeRow(r[0], r[1], r[2], _KINDS[r[3]], _VISIBILITIES[r[4]], *r[5:])
