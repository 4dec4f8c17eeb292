"""Versions of a skill: what callers are told about skills that are copies of each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["SkillVersions", "Version", "VersionKind"]

VersionKind = Literal["word for word", "edited", "own version"]


@dataclass(frozen=True, slots=True)
class Version:
    """Another skill, as a version of one.

    Attributes:
        kind: `word for word` where the `SKILL.md` of both is the same, byte for byte; `edited` where either
            holds enough of the other; `own version` where they have but the name in common.
        path: Store path of the other skill.
        uuid: UUID of its folder.
        name: Its name.
        held: Share of the phrases of this one's `SKILL.md` that the other holds, 0 to 1; None for an own
            version.
        holds: Share of the other's phrases that this one holds; None likewise.
        same_files: Of a copy word for word, whether all files of both skills are the same; else None.
    """

    kind: VersionKind
    path: str
    uuid: str
    name: str
    held: float | None = None
    holds: float | None = None
    same_files: bool | None = None


@dataclass(frozen=True, slots=True)
class SkillVersions:
    """A skill and its versions elsewhere.

    Attributes:
        path: Store path of the skill.
        uuid: UUID of its folder.
        name: Its name.
        total: How many versions there are.
        versions: Those that are told: first those word for word, of these first the ones with the same files;
            then the edited ones, with the most phrases in common first; then its own versions. What is alike
            in that is sorted by path.
    """

    path: str
    uuid: str
    name: str
    total: int
    versions: tuple[Version, ...]
