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
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
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
    "skill_digests",
]

MOST_PATH_BYTES = 4_096
MOST_COMPONENT_BYTES = 255
MOST_NESTED_CHARACTERS = 256 << 20
"""Characters of paths at most, each file counted with every skill around its own."""

_SKILL_MD = "SKILL.md"
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
                file is told with another skill than the one that encloses it; or a link to a file is called
                `SKILL.md`.
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
            own: set[str] = set()
            for file in skill.files:
                add(top + file.path)
                self._check_nearest(folders, top, file.path, own)
            for path, _ in skill.links:
                add(top + path)
                self._check_nearest(folders, top, path, own)
            for path in skill.folders:
                if top + path in above:
                    raise broken(f"says of {quoted(top + path)} that it is empty, and it is not")
                add(top + path, leaf=False)
        for path, _ in self.links:
            add(path)
        self._check_links(leaves)

    def _check_links(self, leaves: set[str]) -> None:
        """See that no link to a file has the name by which that would make a skill."""
        links = dict(self.links)
        for skill in self.skills:
            links |= {f"{skill.path}/{path}" if skill.path else path: target for path, target in skill.links}
        for path, target in links.items():
            if path.rpartition("/")[2] == _SKILL_MD and target in leaves and target not in links:
                raise broken(f"has a link at {quoted(path)} where a file belongs")

    def check_digests(self) -> None:
        """See that the digest of every skill is that of its files.

        Raises:
            IntegrityError: One is not.
        """
        contents = {
            (f"{skill.path}/{file.path}" if skill.path else file.path): (file.size, file.digest)
            for skill in self.skills
            for file in skill.files
        }
        own = [
            [file[:3] for file in skill.files]
            + [(path, *contents[target]) for path, target in skill.links if target in contents]
            for skill in self.skills
        ]
        try:
            digests = skill_digests([skill.path for skill in self.skills], own)
        except InvalidArgumentError as error:
            raise broken("nests skills too deep in one another") from error
        for skill, digest in zip(self.skills, digests, strict=True):
            if skill.digest != digest:
                raise broken(f"gives {quoted(skill.path)} a digest that is not that of its files")

    @staticmethod
    def _check_nearest(folders: set[str], top: str, below: str, own: set[str]) -> None:
        while (below := below.rpartition("/")[0]) and below not in own:
            own.add(below)
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


def skill_digests(paths: Sequence[str], own: Sequence[Sequence[tuple[str, int, bytes]]]) -> list[bytes]:
    """The digests of skills, each over its own files and those of the skills nested in it.

    Args:
        paths: Store paths of the skills, sorted.
        own: Of each the files of its own, and the links to files, as `skill_digest` takes them.

    Raises:
        InvalidArgumentError: Skills are nested so deep that it would take forever.
    """
    found = []
    characters = 0
    for number, path in enumerate(paths):
        told = list(own[number])
        for nested in _nested(paths, number):
            above = f"{paths[nested][len(path) :].lstrip('/')}/"
            characters += sum(len(above) + len(below) for below, _, _ in own[nested])
            if characters > MOST_NESTED_CHARACTERS:
                raise InvalidArgumentError("skills are nested too deep in one another; move some of them out")
            told += ((above + below, size, digest) for below, size, digest in own[nested])
        found.append(skill_digest(told))
    return found


def _nested(paths: Sequence[str], number: int) -> range:
    """Of sorted paths, which lie below one."""
    path = paths[number]
    if not path:
        return range(number + 1, len(paths))
    # "/" is followed by "0".
    return range(bisect_left(paths, f"{path}/"), bisect_left(paths, f"{path}0"))


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
