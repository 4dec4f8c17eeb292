"""Manifests: what skills hold, as text that is the same wherever the same content lies.

A manifest says of every skill which files it holds: path, size in bytes, SHA-256, and whether the owner may
execute them; which links, and which folders with nothing in them. It knows nothing of where or when: the same
content has the same manifest on a disk, in an archive and in a bucket.

It is written as canonical JSON (ASCII, sorted keys, no blanks) in a top and up to 256 parts. The first byte
of the SHA-256 of a skill's path says in which part it is told; the top names each part by its digest. So two
manifests differ in as many parts as skills differ, and the others need not be read.

The digest of a skill is the content revision that `agentskills-core` computes: the SHA-256 of JSON of the
sorted list of `[path below the skill folder, size in bytes, "sha256:<hex>"]`, one for each file, those of
nested skills and what links to files lead to included.
"""

from __future__ import annotations

import json
import re
import uuid as uuidlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from skillfs.core.digest import sha256
from skillfs.errors import IntegrityError, InvalidArgumentError, quoted

__all__ = [
    "Manifest",
    "ManifestFile",
    "ManifestSkill",
    "ManifestTop",
    "SnapshotRecord",
    "broken",
    "check_label",
    "digest_text",
    "parse_digest",
    "part_name",
    "path_fault",
    "skill_digest",
]

MOST_PATH_BYTES = 4_096
MOST_COMPONENT_BYTES = 255
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})").fullmatch
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}").fullmatch


# -- values --------------------------------------------------------------------------------------------------


class ManifestFile(NamedTuple):
    """A file of a skill.

    Attributes:
        path: Path below the skill folder.
        size: Bytes.
        digest: SHA-256, 32 bytes.
        executable: Whether its owner may execute it; False where a store does not know.
    """

    path: str
    size: int
    digest: bytes
    executable: bool


@dataclass(frozen=True, slots=True)
class ManifestSkill:
    """A skill folder and what it holds, but for what the skills nested in it hold.

    Attributes:
        path: Store path; empty where the root is a skill.
        digest: Digest of the skill, 32 bytes; see `skill_digest`.
        files: Sorted by path.
        links: Path below the skill folder and the store path that the link leads to, sorted.
        folders: Paths below the skill folder of those that hold nothing, sorted.
    """

    path: str
    digest: bytes
    files: tuple[ManifestFile, ...]
    links: tuple[tuple[str, str], ...] = ()
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ManifestTop:
    """The top of a manifest.

    Attributes:
        parts: Digest (32 bytes) of each part by its name; see `part_name`.
        skills: How many there are.
        files: How many, links not counted.
        size: Bytes of all files.
        links: Links outside of skills: store path and the store path that it leads to, sorted.
    """

    parts: Mapping[str, bytes]
    skills: int
    files: int
    size: int
    links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """All of a manifest.

    Attributes:
        skills: Sorted by path.
        links: Links outside of skills: store path and the store path that it leads to, sorted.
    """

    skills: tuple[ManifestSkill, ...]
    links: tuple[tuple[str, str], ...] = ()

    def check(self) -> None:
        """See that all of it can lie in one tree of folders.

        Raises:
            IntegrityError: A path is there twice, or is a file or link and leads to something at once; or a
                file is told with another skill than the one that encloses it.
        """
        leaves: set[str] = set()
        above: set[str] = set()

        def add(path: str, *, leaf: bool = True) -> None:
            if path in leaves or (leaf and path in above):
                raise broken(f"names {quoted(path)} twice")
            (leaves if leaf else above).add(path)
            while path := path.rpartition("/")[0]:
                if path in leaves:
                    raise broken(f"has something below {quoted(path)}, which is no folder")
                if path in above:
                    break
                above.add(path)

        folders = {skill.path for skill in self.skills}
        for skill in self.skills:
            top = f"{skill.path}/" if skill.path else ""
            for file in skill.files:
                add(top + file.path)
                self._check_nearest(folders, skill.path, file.path)
            for path, _ in skill.links:
                add(top + path)
                self._check_nearest(folders, skill.path, path)
            for path in skill.folders:
                if top + path in above:
                    raise broken(f"says of {quoted(top + path)} that it is empty, and it is not")
                add(top + path, leaf=False)
        for path, _ in self.links:
            add(path)

    @staticmethod
    def _check_nearest(folders: set[str], skill: str, below: str) -> None:
        top = f"{skill}/" if skill else ""
        while below := below.rpartition("/")[0]:
            if top + below in folders:
                raise broken(f"tells what {quoted(top + below)} holds with another skill")


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """Who came to a manifest, from where, and when.

    Attributes:
        manifest: Digest of the manifest's top, 32 bytes.
        parents: Digests (32 bytes) of the records that came before.
        created: Aware, in UTC, to the microsecond.
        store_id: Identity of the store.
        identities: UUIDs of the entries whose UUID does not follow from the path they have: store path and
            UUID, sorted by path.
        skills: How many the manifest has.
        files: Likewise.
        size: Bytes of all files.
    """

    manifest: bytes
    parents: tuple[bytes, ...]
    created: datetime
    store_id: uuidlib.UUID
    identities: tuple[tuple[str, uuidlib.UUID], ...]
    skills: int
    files: int
    size: int


# -- digests, labels, paths ----------------------------------------------------------------------------------


def skill_digest(files: Iterable[tuple[str, int, bytes]]) -> bytes:
    """The digest of a skill, 32 bytes.

    Args:
        files: Path below the skill folder, size in bytes and SHA-256 (32 bytes) of every file, in any order.
    """
    listed = [[path, size, digest_text(digest)] for path, size, digest in sorted(files)]
    text = json.dumps(listed, separators=(",", ":"), ensure_ascii=True)
    return sha256(text.encode("ascii")).digest()


def digest_text(digest: bytes) -> str:
    """A SHA-256 as `sha256:<64 hex>`."""
    return f"sha256:{digest.hex()}"


def parse_digest(text: object) -> bytes:
    """The 32 bytes of `sha256:<64 lower-case hex>`.

    Raises:
        IntegrityError: It is none.
    """
    match = _DIGEST(text) if isinstance(text, str) else None
    if match is None:
        raise broken(f"holds {quoted(text)} where a SHA-256 belongs")
    return bytes.fromhex(match[1])


def check_label(label: object) -> str:
    """A label of a snapshot: 1 to 100 of the letters, digits and `._+-` of ASCII, a letter or digit first.

    Raises:
        InvalidArgumentError: It is none.
    """
    if not isinstance(label, str) or not _LABEL(label):
        raise InvalidArgumentError(
            f"the label {quoted(label)} is none; use 1 to 100 letters, digits, dots, underscores, plus signs "
            "and hyphens, and begin with a letter or digit"
        )
    return label


def path_fault(path: object) -> str | None:
    """What keeps a text from being a path below a folder, or None when it is one.

    Control characters are allowed: names of files may hold them.
    """
    if not isinstance(path, str) or not path:
        return "is no text, or empty"
    try:
        if len(path.encode()) > MOST_PATH_BYTES:
            return f"has over {MOST_PATH_BYTES} bytes"
    except UnicodeEncodeError:
        return "is no valid Unicode"
    for name in path.split("/"):
        if name in ("", ".", ".."):
            return "has an empty component, or one of dots"
        if "\0" in name or len(name.encode()) > MOST_COMPONENT_BYTES:
            return "has a component with a NUL, or of over 255 bytes"
    return None


def part_name(path: str) -> str:
    """The part of a manifest in which the skill of a store path is told: two hex digits."""
    return sha256(path.encode()).hexdigest()[:2]


def broken(what: str) -> IntegrityError:
    """The error of a manifest or record that is not as it was made."""
    return IntegrityError(f"the manifest {what}; it is damaged, or made by something else")
