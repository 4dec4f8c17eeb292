"""The rows of an index as values."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from skillfs.core.model import Place

__all__ = [
    "ROOT",
    "IndexDamage",
    "NodeRow",
    "Row",
    "RowKind",
    "SkillFolder",
    "TextRow",
    "Visibility",
    "decode_place",
    "encode_place",
    "paths_of",
]

ROOT = 1
"""Key of the root folder's row."""


class IndexDamage(Exception):
    """Rows do not fit together: damage that SQLite has not noticed. Never reaches a caller."""


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


def encode_place(place: Place) -> str:
    """A place as the `target` column of a folder or file that lies elsewhere than its path says."""
    return f"{place.root}:{place.path}"


def decode_place(target: str) -> Place:
    """The place that `encode_place` wrote."""
    root, _, path = target.partition(":")
    try:
        return Place(int(root), path)
    except ValueError as error:
        raise IndexDamage("a target that is no place") from error


def paths_of(nodes: dict[int, tuple[int, str]]) -> dict[int, str]:
    """Paths of nodes given as key to (parent, name); the root is the node with key `ROOT`."""
    paths: dict[int, str] = {ROOT: ""}
    for key in nodes:
        pending = []
        at = key
        while at not in paths:
            pending.append(at)
            if at not in nodes or len(pending) > len(nodes):
                raise IndexDamage("an entry that is not below the root")
            at = nodes[at][0]
        for at in reversed(pending):
            parent, name = nodes[at]
            above = paths[parent]
            paths[at] = f"{above}/{name}" if above else name
    return paths
