"""Manifests of what a store shows now, and of what a call may see of a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from skillfs.access import Access
from skillfs.core.manifest import Manifest, ManifestFile, ManifestSkill, skill_digests
from skillfs.core.refs import is_below, printable_path
from skillfs.errors import IntegrityError, quoted
from skillfs.history.present import Present
from skillfs.locked import LockedStore

__all__ = ["check_locked", "described", "within"]

_Told: TypeAlias = tuple[str, int, bytes]
"""Path below a skill, size in bytes and SHA-256 of a file."""


def described(found: Present, digests: Mapping[int, tuple[int, bytes]]) -> Manifest:
    """The manifest of what a store shows.

    Args:
        found: What it shows.
        digests: Size in bytes and SHA-256 of its files, by the keys of their rows.
    """
    files: list[tuple[ManifestFile, ...]] = []
    own: list[list[_Told]] = []
    for skill in found.skills:
        listed = tuple(
            ManifestFile(file.path, *digests[file.node.key], bool(file.executable)) for file in skill.files
        )
        told = [(file.path, file.size, file.digest) for file in listed]
        told.extend((link.path, *digests[link.file.key]) for link in skill.links if link.file is not None)
        files.append(listed)
        own.append(told)
    skills = [
        ManifestSkill(
            skill.path,
            digest,
            files[number],
            tuple((link.path, link.target) for link in skill.links),
            tuple(skill.folders),
        )
        for number, (skill, digest) in enumerate(
            zip(found.skills, skill_digests([skill.path for skill in found.skills], own), strict=True)
        )
    ]
    return Manifest(tuple(skills), tuple((link.path, link.target) for link in found.links))


def within(manifest: Manifest, access: Access) -> Manifest:
    """What of a manifest a call may see.

    Links that lead to what it may not see are left out. The digest of a skill is computed anew from what is
    left of it.

    Args:
        manifest: All of it.
        access: What the call may see, by path.
    """
    if not access.restricted:
        return manifest
    seen = [skill for skill in manifest.skills if access.allows(skill.path)]
    contents: dict[str, tuple[int, bytes]] = {}
    there = {""}
    for skill in seen:
        top = f"{skill.path}/" if skill.path else ""
        for path, size, digest, _ in skill.files:
            contents[top + path] = size, digest
        for path in (
            skill.path,
            *(top + path for path, *_ in skill.files),
            *(top + p for p in skill.folders),
        ):
            while path not in there:
                there.add(path)
                path = path.rpartition("/")[0]
    links = [tuple(link for link in skill.links if link[1] in there) for skill in seen]
    own = [
        [(path, size, digest) for path, size, digest, _ in skill.files]
        + [(path, *contents[target]) for path, target in links[number] if target in contents]
        for number, skill in enumerate(seen)
    ]
    skills = [
        ManifestSkill(skill.path, digest, skill.files, links[number], skill.folders)
        for number, (skill, digest) in enumerate(
            zip(seen, skill_digests([skill.path for skill in seen], own), strict=True)
        )
    ]
    outside = tuple(
        link for link in manifest.links if link[1] in there and access.allows(link[0].rpartition("/")[0])
    )
    return Manifest(tuple(skills), outside)


def check_locked(manifest: Manifest, locked: LockedStore, below: str = "") -> None:
    """See that a manifest tells nothing but files as a lock names them.

    A link to a file has that file's content; where the lock does not name the link, it goes by the file.

    Args:
        manifest: The manifest.
        locked: What the lock names of its store.
        below: Path of the folder that it is about; empty for all.

    Raises:
        IntegrityError: A file is another, or not named; the message names the first.
    """
    files = {
        (f"{skill.path}/{file.path}" if skill.path else file.path): file
        for skill in manifest.skills
        for file in skill.files
    }
    told = {path: (path, file) for path, file in files.items()}
    for skill in manifest.skills:
        for path, target in skill.links:
            if target in files:
                told[f"{skill.path}/{path}" if skill.path else path] = target, files[target]
    for path, (target, file) in sorted(told.items()):
        if not is_below(path, below):
            continue
        shown = quoted(printable_path(path))
        named = locked.files.get(path) or locked.files.get(target)
        if named is None:
            raise IntegrityError(
                f"the lock does not name {shown}, so it is neither kept nor written; review the skill, and "
                "lock it with: skillfs lock"
            )
        if (named.size, named.digest) != (file.size, file.digest):
            raise IntegrityError(
                f"{shown} is not as the lock names it, so it is neither kept nor written; restore it, or "
                "review it and lock it anew with: skillfs lock"
            )
