"""Skills that are the same: one in many places is told once.

Two are the same when they hold the same files, byte for byte, at the same paths below them. What can tell two
skills apart is asked in the order of what it costs: what their `SKILL.md` says, the paths and sizes of their
files, the hashes that are known anyway, and in the end the SHA-256 of every file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar
from uuid import UUID

from skillfs.core.digest import id_of_uuid, sha256, uuid_text, xxh3_of_blocks
from skillfs.core.model import Skill
from skillfs.errors import SkillFSError
from skillfs.index.rows import NodeRow, Row, RowKind, Visibility
from skillfs.mounts import Mount, View
from skillfs.stores.base import Handle

__all__ = ["folded"]

T = TypeVar("T")

_KEEP = (
    "INSERT OR REPLACE INTO sha256 SELECT ?, ? WHERE EXISTS "
    "(SELECT 1 FROM entry WHERE key=? AND signature=? AND content IS ?)"
)


class _File(NamedTuple):
    """A file of a skill, or a link in it that leads to a folder.

    Attributes:
        path: Path below the skill.
        size: Bytes; None of a folder.
        target: Of a link to a folder, where it leads: below the skill, or in the whole of a store.
        entry: Its row; of a link to a file that of the file.
    """

    path: str
    size: int | None
    target: str
    entry: NodeRow | Row


class _Candidate(NamedTuple):
    view: View
    skill: Skill
    files: list[_File]


def folded(found: Iterable[tuple[View, Skill]]) -> list[Skill]:
    """Skills without those that are the same as one before them, which tells their places.

    Args:
        found: The skills, and what may be seen where each of them lies; in the order of precedence.

    Returns:
        The first of each, in this order.
    """
    ordered = list(found)
    places = {id(skill): [skill.path] for _, skill in ordered}
    hasher = _Hasher()
    for alike in _grouped(ordered, lambda pair: _says(pair[1])):
        candidates = [_Candidate(view, skill, _files(view, skill)) for view, skill in alike]
        for same_shape in _grouped(candidates, _shape):
            for same in _grouped(_without_known_differences(same_shape), hasher.digest):
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


def _files(view: View, skill: Skill) -> list[_File]:
    """All that can be seen below a skill, sorted by path."""
    return view.mount.engine.query(lambda: _files_now(view, skill))


def _files_now(view: View, skill: Skill) -> list[_File]:
    (mount, access), catalog = view, view.mount.engine.catalog
    uuid = UUID(skill.uuid).bytes
    top = catalog.by_uuid(uuid, id_of_uuid(uuid))
    if top is None:
        return []
    folders = {top.key: ""}
    files = []
    for node in catalog.subtree(top.key):
        above = folders.get(node.parent)
        if above is None:
            continue
        path = above + node.name
        if node.kind in (RowKind.FOLDER, RowKind.SKILL):
            folders[node.key] = path + "/"
        elif node.visible == Visibility.HIDDEN:
            continue
        elif node.kind == RowKind.FILE:
            files.append(_File(path, node.size or 0, "", node))
        elif node.target is not None:
            target = catalog.by_path(node.target.split("/") if node.target else ())
            if target is None or not access.sees(target):
                continue
            if target.kind == RowKind.FILE:
                files.append(_File(path, target.size or 0, "", target))
            else:
                files.append(_File(path, None, _target(mount, top.path, target.path), target))
    return sorted(files, key=lambda file: file.path)


def _target(mount: Mount, skill: str, target: str) -> str:
    inside = f"{skill}/" if skill else ""
    return "./" + target.removeprefix(inside) if target.startswith(inside) else "/" + mount.path(target)


class _Hasher:
    """Gives the SHA-256 of files; what it has to compute is kept in the indexes."""

    def __init__(self) -> None:
        self._computed: dict[Mount, list[tuple[object, ...]]] = {}

    def digest(self, candidate: _Candidate) -> Hashable | None:
        """The digests of all files of a skill; None where one cannot be read, or the skill is gone."""
        digests = []
        for file in candidate.files:
            if file.size is None:
                continue
            digest = self._known(candidate.view, file) or self._compute(candidate.view, file)
            if digest is None:
                return None
            digests.append(digest)
        return tuple(digests) or None

    def _known(self, view: View, file: _File) -> bytes | None:
        engine = view.mount.engine
        return engine.query(lambda: engine.catalog.sha256(file.entry.key))

    def _compute(self, view: View, file: _File) -> bytes | None:
        def read(row: Row, handle: Handle) -> bytes:
            hasher = sha256()

            def blocks() -> Iterable[bytes]:
                for block in handle.blocks():
                    hasher.update(block)
                    yield block

            content, digest = xxh3_of_blocks(blocks()), hasher.digest()
            # A row whose signature vouches for nothing yet is of these bytes where its hash says so.
            settled = row.signature == handle.state.signature or content == row.content
            if settled and row.content in (None, content):
                kept = (row.key, digest, row.key, row.signature, row.content)
                self._computed.setdefault(view.mount, []).append(kept)
            return digest

        mount = view.mount
        try:
            asked = mount.lookup.ask(uuid_text(file.entry.uuid or b""))
            return mount.reader.with_handle(asked, view.access, read)
        except SkillFSError:
            return None

    def keep(self) -> None:
        """Commit what was computed, unless another writer is busy."""
        for mount, rows in self._computed.items():
            mount.engine.database.try_write([(_KEEP, rows)])
