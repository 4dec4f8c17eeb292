"""Skills that are the same: one in many places is told once.

Two are the same when they hold the same files, byte for byte, at the same paths below them. What can tell two
skills apart is asked in the order of what it costs: what their `SKILL.md` says, the paths and sizes of their
files, the hashes that are known anyway, and in the end the SHA-256 of every file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar
from uuid import UUID

from skillfs.core.model import Skill
from skillfs.digests import Hasher, SkillFile, files_below
from skillfs.errors import SkillFSError
from skillfs.mounts import View

__all__ = ["folded"]

T = TypeVar("T")


class _Candidate(NamedTuple):
    view: View
    skill: Skill
    files: list[SkillFile]


def folded(found: Iterable[tuple[View, Skill]]) -> list[Skill]:
    """Skills without those that are the same as one before them, which tells their places.

    Args:
        found: The skills, and what may be seen where each of them lies; in the order of precedence.

    Returns:
        The first of each, in this order.
    """
    ordered = list(found)
    places = {id(skill): [skill.path] for _, skill in ordered}
    hasher = Hasher()
    for alike in _grouped(ordered, lambda pair: _says(pair[1])):
        candidates = [_Candidate(view, skill, _files(view, skill)) for view, skill in alike]
        for same_shape in _grouped(candidates, _shape):
            for same in _grouped(_without_known_differences(same_shape), partial(_digests, hasher)):
                first, *others = same
                places[id(first.skill)] += [other.skill.path for other in others]
                for other in others:
                    del places[id(other.skill)]
    hasher.keep()
    return [replace(s, places=tuple(places[id(s)])) for _, s in ordered if id(s) in places]


def _grouped(values: Iterable[T], key: Callable[[T], Hashable | None]) -> list[list[T]]:
    """Those that share a key with another, in their order; None is like no other."""
    groups: dict[Hashable, list[T]] = {}
    for value in values:
        if (found := key(value)) is not None:
            groups.setdefault(found, []).append(value)
    return [group for group in groups.values() if len(group) > 1]


def _says(skill: Skill) -> Hashable:
    return skill.description, json.dumps(skill.front_matter, sort_keys=True)


def _shape(candidate: _Candidate) -> Hashable:
    return tuple((file.path, file.size, file.target) for file in candidate.files)


def _without_known_differences(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """Those that may be the same as another by the hashes that are known: all, where one is not known."""
    contents = [tuple(f.entry.content for f in c.files if f.size is not None) for c in candidates]
    if any(content is None for some in contents for content in some):
        return list(candidates)
    return [c for c, own in zip(candidates, contents, strict=True) if contents.count(own) > 1]


def _files(view: View, skill: Skill) -> list[SkillFile]:
    """All that can be seen below a skill, sorted by path."""
    uuid = UUID(skill.uuid).bytes
    return files_below(view, uuid) or []


def _digests(hasher: Hasher, candidate: _Candidate) -> Hashable | None:
    """The digests of all files of a skill; None where one cannot be read, or the skill is gone."""
    digests = []
    for file in candidate.files:
        if file.size is None:
            continue
        try:
            digests.append(hasher.digest(candidate.view, file))
        except SkillFSError:
            return None
    return tuple(digests) or None
