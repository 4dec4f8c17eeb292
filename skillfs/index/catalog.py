"""Typed questions to the index about entries.

Rows are kept by (parent, name): a moved folder is one row, and a path of six levels still costs one query.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

from skillfs.core.model import Place
from skillfs.index.database import Database

__all__ = [
    "ROOT",
    "Catalog",
    "NodeRow",
    "Row",
    "RowKind",
    "SkillFolder",
    "TextRow",
    "Visibility",
    "decode_place",
    "encode_place",
]

ROOT = 1
"""Key of the root folder's row."""


class RowKind(IntEnum):
    """What a row stands for."""

    FOLDER = 0
    SKILL = 1
    FILE = 2
    LINK = 3


class Visibility(IntEnum):
    """Whether an entry can be seen, and why."""

    HIDDEN = 0
    IN_SKILL = 1
    ON_THE_WAY = 2


class SkillFolder(NamedTuple):
    """The enclosing skill of an entry."""

    key: int
    uuid: bytes
    path: str


class TextRow(NamedTuple):
    """What is known about the text of a file, but for its grid."""

    md5: bytes | None
    encoding: str | None
    characters: int
    lines: int
    reason: str | None
    reason_at: int | None


class Row(NamedTuple):
    """An entry with its surroundings.

    Attributes:
        key: Row key.
        kind: What it is.
        visible: Whether and why it can be seen.
        id: Integer id; None for links, which have no identity of their own.
        uuid: 16 bytes; None for links.
        signature: State of the store when the facts were taken.
        size: Bytes; None for folders.
        modified: Nanoseconds since the epoch.
        content: XXH3-128; None for folders and what could not be read.
        target: Of a link, the store path it leads to; None when it leads nowhere.
        text: Facts about the text where the file has been read before.
        path: Store path.
        skill: Enclosing skill; of a skill, itself.
        place: Where it lies in the store.
    """

    key: int
    kind: RowKind
    visible: Visibility
    id: int | None
    uuid: bytes | None
    signature: bytes
    size: int | None
    modified: int
    content: bytes | None
    target: str | None
    text: TextRow | None
    path: str
    skill: SkillFolder | None
    place: Place

    @property
    def name(self) -> str:
        """Last component of the path."""
        return self.path.rpartition("/")[2]


class NodeRow(NamedTuple):
    """An entry of a listed subtree."""

    key: int
    parent: int
    name: str
    kind: RowKind
    visible: Visibility
    id: int | None
    uuid: bytes | None
    signature: bytes
    size: int | None
    modified: int
    content: bytes | None
    target: str | None


_NODE = (
    "e.key, e.parent, e.name, e.kind, e.visible, e.id, e.uuid, e.signature, "
    "e.size, e.modified, e.content, e.target"
)
_FINAL = (
    "e{n}.key, e{n}.kind, e{n}.visible, e{n}.id, e{n}.uuid, e{n}.signature, e{n}.size, e{n}.modified, "
    "e{n}.content, e{n}.target, t.key, t.md5, t.encoding, t.characters, t.lines, t.reason, t.reason_at"
)
_FINAL_COLUMNS = 17
_MOST_JOINED = 40


@lru_cache(maxsize=64)
def _path_query(depth: int) -> str:
    levels = "".join(f", e{n}.key, e{n}.kind, e{n}.uuid, e{n}.target" for n in range(depth))
    joins = " ".join(
        f"CROSS JOIN entry e{n} ON e{n}.parent=e{n - 1}.key AND e{n}.name=?" for n in range(1, depth + 1)
    )
    final = _FINAL.format(n=depth)
    return (
        f"SELECT {final}{levels} FROM entry e0 {joins} LEFT JOIN text t ON t.key=e{depth}.key "
        f"WHERE e0.key={ROOT}"
    )


# One question for a row and everything above it: two would cost half as much again, and could disagree.
_UP_QUERY = f"""
WITH RECURSIVE up (n, key, parent, name, kind, uuid, target) AS (
    SELECT 0, key, parent, name, kind, uuid, target FROM entry WHERE {{where}}
    UNION ALL
    SELECT n + 1, e.key, e.parent, e.name, e.kind, e.uuid, e.target FROM up JOIN entry e ON e.key = up.parent
)
SELECT {_FINAL.format(n=0)}, up.key, up.name, up.kind, up.uuid, up.target FROM up
LEFT JOIN entry e0 ON up.n = 0 AND e0.key = up.key
LEFT JOIN text t ON t.key = e0.key
ORDER BY up.n DESC
"""
_BY_KEY = _UP_QUERY.format(where="key = ?")
_BY_ID = _UP_QUERY.format(where="id = ?")
# Ids run on from a taken number without a gap that could be long, so a few steps always suffice.
_BY_UUID = _UP_QUERY.format(where="id BETWEEN ?1 AND ?1 + 64 AND uuid = ?2")


def encode_place(place: Place) -> str:
    """A place as the `target` column of a folder or file that lies elsewhere than its path says."""
    return f"{place.root}:{place.path}"


def decode_place(target: str) -> Place:
    """The place that `encode_place` wrote."""
    root, _, path = target.partition(":")
    return Place(int(root), path)


class Catalog:
    """Reads entries.

    Args:
        database: The index.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.read = database.read

    # -- one entry -----------------------------------------------------------------------------------------

    def by_path(self, parts: Sequence[str]) -> Row | None:
        """The row at exactly this path; None when there is none, or when the way leads through a link."""
        depth = len(parts)
        if depth > _MOST_JOINED:
            return self._by_long_path(parts)
        rows = self.read(_path_query(depth), tuple(parts))
        if not rows:
            return None
        row = rows[0]
        path = "/".join(parts)
        skill = place = None
        kind = row[1]
        if kind == RowKind.SKILL:
            skill = SkillFolder(row[0], row[4], path)
        if kind != RowKind.LINK and row[9] is not None:
            place = decode_place(row[9])
        for level in range(depth - 1, -1, -1):
            at = _FINAL_COLUMNS + 4 * level
            if skill is None and row[at + 1] == RowKind.SKILL:
                skill = SkillFolder(row[at], row[at + 2], "/".join(parts[:level]))
            if place is None and row[at + 3] is not None:
                above = decode_place(row[at + 3])
                below = "/".join(parts[level:])
                place = Place(above.root, f"{above.path}/{below}" if above.path else below)
        return _row(row, path, skill, place or Place(0, path))

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
        return _from_chain(self.read(_BY_KEY, (key,)))

    def by_id(self, number: int) -> Row | None:
        """The entry with this integer id."""
        return _from_chain(self.read(_BY_ID, (number,))) if 0 <= number < 1 << 63 else None

    def by_uuid(self, uuid: bytes, number: int) -> Row | None:
        """The entry with this UUID.

        Args:
            uuid: 16 bytes.
            number: The id that follows from it; entries whose number was taken have one of the next.
        """
        return _from_chain(self.read(_BY_UUID, (number, uuid)))

    def by_content(self, algorithm: str, digest: bytes) -> list[int]:
        """Keys of the files with this content."""
        sql = {
            "xxh3": "SELECT key FROM entry WHERE content=?",
            "md5": "SELECT key FROM text WHERE md5=?",
            "sha256": "SELECT key FROM sha256 WHERE digest=?",
        }[algorithm]
        return [key for (key,) in self.read(sql, (digest,))]

    def hashed(self, algorithm: str) -> tuple[int, int]:
        """For how many of the files that can be read a hash is known, and how many there are."""
        known = {
            "xxh3": "SELECT count(*) FROM entry WHERE kind=2 AND content IS NOT NULL",
            "md5": "SELECT count(*) FROM text WHERE md5 IS NOT NULL",
            "sha256": "SELECT count(*) FROM sha256",
        }[algorithm]
        # What cannot be read has no hash at all, and none to wait for.
        total = "SELECT count(*) FROM entry WHERE kind=2 AND content IS NOT NULL"
        return self.read(known)[0][0], self.read(total)[0][0]

    def deepest(self, parts: Sequence[str]) -> tuple[Row, int]:
        """The last row on the way to a path, and how many components lead to it."""
        for depth in range(len(parts), 0, -1):
            row = self.by_path(parts[:depth])
            if row is not None:
                return row, depth
        root = self.by_path(())
        assert root is not None
        return root, 0

    def equal_under_nfc(self, parent: int, name: str) -> list[str]:
        """Names in a folder that are the same under Unicode normalisation form C."""
        wanted = unicodedata.normalize("NFC", name)
        return [
            found
            for (found,) in self.read("SELECT name FROM entry WHERE parent=?", (parent,))
            if not found.isascii() and unicodedata.normalize("NFC", found) == wanted
        ]

    # -- many entries --------------------------------------------------------------------------------------

    def children(self, key: int) -> list[NodeRow]:
        """What a folder holds, hidden entries included, unsorted."""
        return [_node(r) for r in self.read(f"SELECT {_NODE} FROM entry e WHERE e.parent=?", (key,))]

    def subtree(self, key: int, depth: int | None = None) -> list[NodeRow]:
        """Everything below a folder, parents before children, but not the folder itself."""
        limit = -1 if depth is None else depth
        rows = self.read(
            "WITH RECURSIVE down (key, n) AS (SELECT key, 1 FROM entry WHERE parent=?1 UNION ALL "
            "SELECT c.key, n + 1 FROM down CROSS JOIN entry c ON c.parent=down.key WHERE ?2 < 0 OR n < ?2) "
            f"SELECT {_NODE} FROM down CROSS JOIN entry e ON e.key=down.key",
            (key, limit),
        )
        return [_node(r) for r in rows]

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
        seed = keys if isinstance(keys, str) else "VALUES " + ",".join(f"({k})" for k in keys)
        if seed == "VALUES ":
            return {}
        rows = self.read(
            f"WITH RECURSIVE up (key) AS ({seed} UNION SELECT e.parent FROM up JOIN entry e ON e.key=up.key) "
            "SELECT e.key, e.parent, e.name FROM up JOIN entry e ON e.key=up.key"
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

    def text_rows(self, keys: Sequence[int]) -> dict[int, tuple[bytes | None, str | None, int]]:
        """MD5, encoding and characters of files that have been read, for a listing with details."""
        found: dict[int, tuple[bytes | None, str | None, int]] = {}
        for start in range(0, len(keys), 500):
            some = ",".join(map(str, keys[start : start + 500]))
            for key, md5, encoding, characters in self.read(
                f"SELECT key, md5, encoding, characters FROM text WHERE key IN ({some})"
            ):
                found[key] = (md5, encoding, characters)
        return found

    def grid(self, key: int) -> bytes | None:
        """The packed grid of a large text."""
        rows = self.read("SELECT grid FROM text WHERE key=?", (key,))
        return rows[0][0] if rows else None

    def sha256(self, key: int) -> bytes | None:
        """The SHA-256 of a file where it is known."""
        rows = self.read("SELECT digest FROM sha256 WHERE key=?", (key,))
        return rows[0][0] if rows else None

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
        if skills is None:
            among = "entry e WHERE"
        else:
            seed = ",".join(f"({key})" for key in skills) or "(NULL)"
            among = (
                f"(WITH RECURSIVE down (key) AS (VALUES {seed} UNION ALL SELECT c.key FROM down "
                "CROSS JOIN entry c ON c.parent=down.key) SELECT key FROM down) d "
                "CROSS JOIN entry e ON e.key=d.key WHERE"
            )
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

    def links(self) -> list[tuple[int, int, str, Visibility, str | None]]:
        """Key, parent, name, visibility and target of every link."""
        return self.read("SELECT key, parent, name, visible, target FROM entry WHERE kind = 3")


def paths_of(nodes: dict[int, tuple[int, str]]) -> dict[int, str]:
    """Paths of nodes given as key to (parent, name); the root is the node with key `ROOT`."""
    paths: dict[int, str] = {ROOT: ""}
    for key in nodes:
        pending = []
        at = key
        while at not in paths:
            pending.append(at)
            at = nodes[at][0]
        for at in reversed(pending):
            parent, name = nodes[at]
            above = paths[parent]
            paths[at] = f"{above}/{name}" if above else name
    return paths


_KINDS = tuple(RowKind)
_VISIBILITIES = tuple(Visibility)


def _row(row: tuple[Any, ...], path: str, skill: SkillFolder | None, place: Place) -> Row:
    text = None if row[10] is None else TextRow(row[11], row[12], row[13], row[14], row[15], row[16])
    return Row(
        row[0], _KINDS[row[1]], _VISIBILITIES[row[2]], row[3], row[4], row[5], row[6], row[7], row[8], row[9],
        text, path, skill, place,
    )  # fmt: skip


def _from_chain(chain: list[Any]) -> Row | None:
    """The last row of a chain that begins at the root."""
    if not chain or chain[0][_FINAL_COLUMNS] != ROOT:
        return None
    names: list[str] = []
    skill: SkillFolder | None = None
    place = Place(0, "")
    for row in chain:
        key, name, kind, uuid, target = row[_FINAL_COLUMNS:]
        if key != ROOT:
            names.append(name)
            place = place.child(name)
        if kind == RowKind.SKILL:
            skill = SkillFolder(key, uuid, "/".join(names))
        if target is not None and kind != RowKind.LINK:
            place = decode_place(target)
    return _row(chain[-1], "/".join(names), skill, place)


def _node(r: tuple[Any, ...]) -> NodeRow:
    return NodeRow(r[0], r[1], r[2], _KINDS[r[3]], _VISIBILITIES[r[4]], *r[5:])
