"""The values that travel between layers and to callers.

Where several stores are mounted, the store paths in what callers get begin with the name of the mount.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple

__all__ = [
    "Change",
    "ChangeKind",
    "Changes",
    "Difference",
    "Differences",
    "Entry",
    "FileDigest",
    "Kind",
    "Place",
    "Problem",
    "Severity",
    "Skill",
    "Snapshot",
]

Severity = Literal["error", "warning", "info"]
ChangeKind = Literal["added", "modified", "moved", "removed"]


class Place(NamedTuple):
    """Where something lies in a store.

    Attributes:
        root: 0 for the store's root, n for the n-th folder that `follow` names.
        path: Path below that root; empty for the root itself.
    """

    root: int
    path: str

    def child(self, name: str) -> Place:
        """The place of a name inside this folder."""
        return Place(self.root, f"{self.path}/{name}" if self.path else name)


class Kind(StrEnum):
    """What an entry is."""

    SKILL = "skill"
    FOLDER = "folder"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a skill, or with the store around it. Data, never an exception.

    Attributes:
        code: Stable name of the fault, such as `frontmatter-missing`.
        severity: `error` for what breaks use, `warning` for what should be mended, `info` for the harmless.
        message: What is wrong and how to mend it.
        path: Store path of the file or folder it is about.
        line: Line in that file, counted from 1, where that makes sense.
        skill_folder_uuid: UUID of the skill it belongs to; None for what belongs to no skill.
    """

    code: str
    severity: Severity
    message: str
    path: str = ""
    line: int | None = None
    skill_folder_uuid: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A visible file or folder.

    Attributes:
        id: Integer id, the first 53 bits of the UUID unless that number was taken.
        uuid: UUID in canonical lower-case form.
        path: Store path, without a leading slash; empty for the root.
        name: Last component of the path.
        kind: Skill folder, other folder, or file.
        size: Size in bytes; None for folders.
        characters: Size in characters where it is known already and the file is text.
        modified: Time of the last modification, aware, in UTC.
        md5: MD5 of the bytes, lower-case hex, where it is known already.
        hash: `xxh3:` and the XXH3-128 of the bytes where it is known; None for folders.
        skill_folder_uuid: UUID of the enclosing skill folder (a skill's own for a skill); None above skills.
        skill_path: Store path of that skill folder.
        link: Store path that this entry points to, when it is a link; id, uuid and kind are the target's.
    """

    id: int
    uuid: str
    path: str
    name: str
    kind: Kind
    size: int | None
    modified: datetime
    characters: int | None = None
    md5: str | None = None
    hash: str | None = None
    skill_folder_uuid: str | None = None
    skill_path: str | None = None
    link: str | None = None


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill folder and what its `SKILL.md` says about it.

    Attributes:
        id: Integer id of the folder.
        uuid: UUID of the folder.
        path: Store path of the folder; empty when the store root is itself a skill.
        name: Name from the front matter, or the folder's name when there is none to use.
        description: Description from the front matter, or the first paragraph of the text.
        license: As in the front matter.
        compatibility: As in the front matter.
        metadata: String to string, as in the front matter.
        allowed_tools: The space-separated `allowed-tools`, split.
        front_matter: Every key of the front matter, scalars as strings.
        problems: What is wrong with it.
        shadowed_by: Path of the skill that answers to this name instead, if one does.
        places: Paths of all skills that this one stands for, its own first; more than its own only where
            skills of the same content are folded.
    """

    id: int
    uuid: str
    path: str
    name: str
    description: str
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    allowed_tools: tuple[str, ...] = ()
    front_matter: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    shadowed_by: str | None = None
    places: tuple[str, ...] = ()

    @property
    def location(self) -> str:
        """Store path of the `SKILL.md`."""
        return f"{self.path}/SKILL.md" if self.path else "SKILL.md"


@dataclass(frozen=True, slots=True)
class FileDigest:
    """A file of a skill and what its bytes are.

    Attributes:
        path: Path below the skill folder.
        size: Bytes.
        digest: `sha256:` and the SHA-256 of the bytes in lower-case hex.
        uuid: UUID of the file; of a link that of what it points to.
    """

    path: str
    size: int
    digest: str
    uuid: str


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one visible entry.

    Attributes:
        kind: `added`, `modified` (other bytes, or another enclosing skill), `moved` or `removed`.
        uuid: The entry.
        path: Where it is now, or was last when removed.
        old_path: Where it was before, when moved.
        skill_folder_uuid: The enclosing skill now, or last.
        hash: `xxh3:…` now; None for folders and when removed.
        old_hash: `xxh3:…` before; None for folders and when added.
    """

    kind: ChangeKind
    uuid: str
    path: str
    old_path: str | None = None
    skill_folder_uuid: str | None = None
    hash: str | None = None
    old_hash: str | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed since a revision.

    Attributes:
        revision: The revision these changes lead to.
        reset: True when the revision asked from is older than what is kept: read everything anew.
        items: The changes, oldest first; empty on a reset.
    """

    revision: int
    reset: bool
    items: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a store held at a moment.

    Attributes:
        digest: `sha256:…` of the manifest: the same for the same content, wherever it lies and whenever it
            was taken.
        record: `sha256:…` of the record, which tells when, of which store and after which snapshots.
        created: Aware, in UTC.
        labels: Names that were given to it, sorted.
        parents: Records of the snapshots that came before it.
        store_id: UUID of the store.
        skills: How many skills it holds.
        files: How many files.
        size: Bytes of all files.
    """

    digest: str
    record: str
    created: datetime
    labels: tuple[str, ...]
    parents: tuple[str, ...]
    store_id: str
    skills: int
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class Difference(Change):
    """One difference between two states of a store, told by content.

    `hash` and `old_hash` are SHA-256: of a file `sha256:…` of its bytes, of a skill its digest; of links and
    folders None. A file is `modified` also where only `executable` differs, a link where it leads elsewhere.

    Attributes:
        entry: What it is about; a link counts as a file.
        size: Bytes now; None for what is no file.
        old_size: Bytes before.
        executable: Whether the owner may execute the file now; None for what is no file.
        old_executable: Likewise before.
        link: Store path that the link leads to now; None for what is no link.
        old_link: Likewise before.
    """

    entry: Kind = Kind.FILE
    size: int | None = None
    old_size: int | None = None
    executable: bool | None = None
    old_executable: bool | None = None
    link: str | None = None
    old_link: str | None = None


@dataclass(frozen=True, slots=True)
class Differences(Changes):
    """What leads from one state of a store to another.

    `items` are files, links and folders with nothing in them, by path: applied to the one state they give the
    other. `revision` is that of the store where the second state is the present one, else 0.

    Attributes:
        skills: The skills that came, went, moved, or hold something else, by path.
    """

    skills: tuple[Difference, ...] = ()
