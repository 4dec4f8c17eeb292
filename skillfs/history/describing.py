"""Manifests of what a store shows now, and of what a call may see of a manifest."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import TypeAlias

from skillfs.access import Access
from skillfs.core.manifest import Manifest, ManifestFile, ManifestSkill, skill_digest
from skillfs.history.present import Present

__all__ = ["described", "within"]

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
            zip(found.skills, _digests([skill.path for skill in found.skills], own), strict=True)
        )
    ]
    return Manifest(tuple(skills), tuple((link.path, link.target) for link in found.links))


def _digests(paths: list[str], own: list[list[_Told]]) -> list[bytes]:
    """Digests of skills, from their sorted paths and what each holds by itself."""
    found = []
    for number, path in enumerate(paths):
        told = own[number]
        for nested in _nested(paths, number):
            above = f"{paths[nested][len(path) :].lstrip('/')}/"
            told = [*told, *((above + below, size, digest) for below, size, digest in own[nested])]
        found.append(skill_digest(told))
    return found


def _nested(paths: list[str], number: int) -> range:
    """Of sorted paths, which lie below one."""
    path = paths[number]
    if not path:
        return range(number + 1, len(paths))
    # "/" is followed by "0".
    return range(bisect_left(paths, f"{path}/"), bisect_left(paths, f"{path}0"))


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
            zip(seen, _digests([skill.path for skill in seen], own), strict=True)
        )
    ]
    outside = tuple(
        link for link in manifest.links if link[1] in there and access.allows(link[0].rpartition("/")[0])
    )
    return Manifest(tuple(skills), outside)
