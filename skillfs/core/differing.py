"""What leads from one state of a store to another, told by content.

What is at a path before and after is the same thing there, changed or not. What went from a path can have
come to another: within one store by its identity, which is how the store itself told moves; between two
stores skills and files whose content went once and came once. What lies in a skill that moved moved with it.
"""

from __future__ import annotations

import uuid as uuidlib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from skillfs.core.digest import Namespace, uuid_text
from skillfs.core.manifest import ManifestSkill, digest_text
from skillfs.core.model import ChangeKind, Difference, Kind

__all__ = ["Identities", "State", "differences", "differing_parts"]

K = TypeVar("K", bound=Hashable)


class Identities:
    """Gives the UUIDs of the entries of a state.

    Args:
        store_id: Identity of the store.
        known: UUIDs (16 bytes) by store path; those of other paths follow from the path.
    """

    def __init__(self, store_id: uuidlib.UUID, known: Mapping[str, bytes]) -> None:
        self.store_id = store_id
        self._known = known
        self._namespace = Namespace(store_id)

    def of(self, path: str) -> bytes:
        """The UUID of the entry at a path, 16 bytes."""
        return self._known.get(path) or self._namespace.uuid_of(path)


@dataclass(frozen=True, slots=True)
class State:
    """A state of a store, or as much of it as may differ from another.

    Attributes:
        skills: By store path.
        links: Links outside of skills: store path and the store path that it leads to.
        identities: Of its entries.
        modes: Whether it is known which files may be executed.
    """

    skills: Mapping[str, ManifestSkill]
    links: Iterable[tuple[str, str]]
    identities: Identities
    modes: bool = True


class _Place(NamedTuple):
    """Where something is; a folder and a file are never the same thing."""

    path: str
    folder: bool


class _Thing(NamedTuple):
    """A skill, a file, a link, or a folder with nothing in it.

    Attributes:
        entry: Which of these; a link counts as a file.
        skill: Path of the enclosing skill, of a skill its own; None for a link outside of skills.
        digest: Of a file or skill.
        size: Of a file.
        executable: Of a file; None where that is not known.
        link: Store path that a link leads to.
        holds: Of a skill, all of it.
    """

    entry: Kind
    skill: str | None
    digest: bytes | None = None
    size: int | None = None
    executable: bool | None = None
    link: str | None = None
    holds: ManifestSkill | None = None


def differing_parts(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> tuple[set[str], set[str]]:
    """The names of the parts of two manifests that are not in both.

    Args:
        before: Digest of each part by its name.
        after: Likewise.
    """
    return (
        {name for name, digest in before.items() if after.get(name) != digest},
        {name for name, digest in after.items() if before.get(name) != digest},
    )


def differences(before: State, after: State) -> tuple[tuple[Difference, ...], tuple[Difference, ...]]:
    """What leads from one state to another: files, links and empty folders; and skills. Both by path.

    To apply the first of them, all that is gone or has moved away is taken away, and then what came is put
    where it is told. Where a file took the place of a folder, or the other way round, one is removed and the
    other added.

    Args:
        before: Of skills that are the same in both states, none or all can be left out.
        after: Likewise.
    """
    modes = before.modes and after.modes
    old = {path: _without_modes(skill, modes) for path, skill in before.skills.items()}
    new = {path: _without_modes(skill, modes) for path, skill in after.skills.items()}
    same = {path for path, skill in old.items() if new.get(path) == skill}
    for path in same:
        del old[path], new[path]
    moved = _moved_skills(old, new, before.identities, after.identities)
    things = _things(old, before.links, modes), _things(new, after.links, modes)
    of_things = _moved_things(*things, moved, before.identities, after.identities)
    of_skills = {_Place(path, True): _Place(source, True) for path, source in moved.items()}
    return (
        _told(*things, of_things, before.identities, after.identities),
        _told(_skills(old), _skills(new), of_skills, before.identities, after.identities),
    )


def _told(
    old: Mapping[_Place, _Thing],
    new: Mapping[_Place, _Thing],
    moved: Mapping[_Place, _Place],
    before: Identities,
    after: Identities,
) -> tuple[Difference, ...]:
    """What is not the same, by path."""
    found = []
    for place, now in new.items():
        source = place if place in old else moved.get(place)
        was = None if source is None else old[source]
        if source == place and was == now:
            continue
        kind: ChangeKind = "added" if was is None else "modified" if source == place else "moved"
        found.append(
            Difference(
                kind,
                _uuid(after, place, now),
                place.path,
                None if source is None or kind != "moved" else source.path,
                None if now.skill is None else uuid_text(after.of(now.skill)),
                _hash(now),
                _hash(was),
                now.entry,
                now.size,
                None if was is None else was.size,
                now.executable,
                None if was is None else was.executable,
                now.link,
                None if was is None else was.link,
            )
        )
    for place in old.keys() - new.keys() - set(moved.values()):
        was = old[place]
        found.append(
            Difference(
                "removed",
                _uuid(before, place, was),
                place.path,
                skill_folder_uuid=None if was.skill is None else uuid_text(before.of(was.skill)),
                old_hash=_hash(was),
                entry=was.entry,
                old_size=was.size,
                old_executable=was.executable,
                old_link=was.link,
            )
        )
    return tuple(sorted(found, key=lambda one: (one.path.replace("/", "\0"), one.kind != "removed")))


def _uuid(identities: Identities, place: _Place, thing: _Thing) -> str:
    """The UUID of something; of a link that of what it leads to."""
    return uuid_text(identities.of(place.path if thing.link is None else thing.link))


def _hash(thing: _Thing | None) -> str | None:
    return None if thing is None or thing.digest is None else digest_text(thing.digest)


# -- skills --------------------------------------------------------------------------------------------------


def _moved_skills(
    old: Mapping[str, ManifestSkill],
    new: Mapping[str, ManifestSkill],
    before: Identities,
    after: Identities,
) -> dict[str, str]:
    """Where skills that moved came from, by where they are."""
    gone, came = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    moved: dict[str, str] = {}
    if before.store_id == after.store_id:
        from_uuid = {before.of(path): path for path in gone}
        for path in came:
            if (source := from_uuid.pop(after.of(path), None)) is not None:
                moved[path] = source
    else:
        moved = _alone(
            ((path, old[path].digest) for path in gone), ((path, new[path].digest) for path in came)
        )
    left = set(gone) - set(moved.values())
    for path in came:
        # Nested in one that moved: enclosing skills come first.
        source = None if path in moved else _along(path, _enclosing(path, moved), moved)
        if source in left:
            moved[path] = source
            left.discard(source)
    return moved


def _alone(gone: Iterable[tuple[K, bytes]], came: Iterable[tuple[K, bytes]]) -> dict[K, K]:
    """Which of what went came where, by contents that went once and came once."""
    sources, targets = _once(gone), _once(came)
    return {
        target: source
        for content, target in targets.items()
        if target is not None and (source := sources.get(content)) is not None
    }


def _once(found: Iterable[tuple[K, bytes]]) -> dict[bytes, K | None]:
    contents: dict[bytes, K | None] = {}
    for key, content in found:
        contents[content] = None if content in contents else key
    return contents


def _enclosing(path: str, moved: Mapping[str, str]) -> str | None:
    """The nearest skill above a path that moved."""
    while path:
        path = path.rpartition("/")[0]
        if path in moved:
            return path
    return None


def _along(path: str, skill: str | None, moved: Mapping[str, str]) -> str | None:
    """Where a path was if it came along with a skill that moved."""
    if skill is None or skill not in moved:
        return None
    below = path[len(skill) :].lstrip("/")
    source = moved[skill]
    return f"{source}/{below}" if source else below


def _skills(skills: Mapping[str, ManifestSkill]) -> dict[_Place, _Thing]:
    return {
        _Place(path, True): _Thing(Kind.SKILL, path, skill.digest, holds=skill)
        for path, skill in skills.items()
    }


def _without_modes(skill: ManifestSkill, modes: bool) -> ManifestSkill:
    if modes or not any(file.executable for file in skill.files):
        return skill
    return replace(skill, files=tuple(file._replace(executable=False) for file in skill.files))


# -- files, links, folders -----------------------------------------------------------------------------------


def _things(
    skills: Mapping[str, ManifestSkill], links: Iterable[tuple[str, str]], modes: bool
) -> dict[_Place, _Thing]:
    found = {_Place(path, False): _Thing(Kind.FILE, None, link=target) for path, target in links}
    for path, skill in skills.items():
        top = f"{path}/" if path else ""
        for file in skill.files:
            executable = file.executable if modes else None
            found[_Place(top + file.path, False)] = _Thing(
                Kind.FILE, path, file.digest, file.size, executable
            )
        for below, target in skill.links:
            found[_Place(top + below, False)] = _Thing(Kind.FILE, path, link=target)
        for below in skill.folders:
            found[_Place(top + below, True)] = _Thing(Kind.FOLDER, path)
    return found


def _moved_things(
    old: Mapping[_Place, _Thing],
    new: Mapping[_Place, _Thing],
    skills: Mapping[str, str],
    before: Identities,
    after: Identities,
) -> dict[_Place, _Place]:
    """Where what moved came from, by where it is.

    Args:
        old: What was there.
        new: What is there.
        skills: Where skills that moved came from, by where they are.
        before: Identities of what was there.
        after: Likewise of what is there.
    """
    gone, came = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    moved: dict[_Place, _Place] = {}
    if before.store_id == after.store_id:
        # A link has no identity of its own.
        identified = {(before.of(p.path), p.folder): p for p in gone if old[p].link is None}
        for place in came:
            if new[place].link is None:
                known = identified.pop((after.of(place.path), place.folder), None)
                if known is not None:
                    moved[place] = known
    left = set(gone) - set(moved.values())
    for place in came:
        path = _along(place.path, new[place].skill, skills)
        if place in moved or path is None:
            continue
        source = _Place(path, place.folder)
        if source in left:
            moved[place] = source
            left.discard(source)
    if before.store_id != after.store_id:
        moved |= _alone(
            ((place, digest) for place in gone if place in left and (digest := _telling(old[place]))),
            ((place, digest) for place in came if place not in moved and (digest := _telling(new[place]))),
        )
    return moved


def _telling(thing: _Thing) -> bytes | None:
    """The content of a file that can be the only one of its kind: of empty ones none is."""
    return thing.digest if thing.size else None
