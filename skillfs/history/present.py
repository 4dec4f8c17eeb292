"""What a store shows now, as the index has it: skills with their files, links and empty folders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from skillfs.core.digest import sha256
from skillfs.core.model import Place
from skillfs.digests import Hasher, SkillFile
from skillfs.errors import ChangedError, IsFolderError, NotFoundError
from skillfs.index.rows import ROOT, NodeRow, RowKind, Visibility
from skillfs.mounts import View

__all__ = ["Present", "PresentFile", "PresentLink", "PresentSkill", "digests_of", "present"]

_KNOWN = (
    "SELECT e.key, e.size, s.digest FROM sha256 s JOIN entry e ON e.key=s.key "
    "WHERE e.size IS NOT NULL AND s.key IN (SELECT value FROM json_each(?))"
)

ATTEMPTS = 3
"""How often a store is looked at anew when files that are to be read go away."""


class PresentFile(NamedTuple):
    """A file of a skill.

    Attributes:
        path: Path below the skill folder.
        node: Its row.
        executable: Whether the owner may execute it; None where the store does not know.
    """

    path: str
    node: NodeRow
    executable: bool | None


class PresentLink(NamedTuple):
    """A link.

    Attributes:
        path: Path below the skill folder; outside of skills the store path.
        target: Store path that it leads to.
        file: The row of that, where it is a file.
    """

    path: str
    target: str
    file: NodeRow | None


@dataclass(slots=True)
class PresentSkill:
    """A skill and what it holds, but for what the skills nested in it hold.

    Attributes:
        path: Store path.
        node: Row of the folder; None where that is the root.
        uuid: UUID of the folder, 16 bytes.
        files: Sorted by path.
        links: Sorted by path.
        folders: Paths below the skill folder of those in which nothing can be seen, sorted.
    """

    path: str
    node: NodeRow | None
    uuid: bytes
    files: list[PresentFile] = field(default_factory=list)
    links: list[PresentLink] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    def below(self, path: str) -> str:
        """The store path of a path below the skill folder."""
        return f"{self.path}/{path}" if self.path else path


@dataclass(slots=True)
class Present:
    """All that a call may see of a store.

    Attributes:
        view: Where it lies, and what may be seen there.
        skills: Sorted by path.
        links: Links outside of skills, sorted.
        uuids: Store path and UUID (16 bytes) of every file and folder, in no order.
        stamp: Of the state of the index that all of this is.
    """

    view: View
    skills: list[PresentSkill]
    links: list[PresentLink]
    uuids: dict[str, bytes]
    stamp: int | None

    def nested(self, skill: PresentSkill) -> Iterator[PresentSkill]:
        """A skill and those that lie in it, by path."""
        top = f"{skill.path}/" if skill.path else ""
        for other in self.skills:
            if other is skill or other.path.startswith(top):
                yield other


def present(view: View) -> Present:
    """All that can be seen of a store, after a check where the last one is too old.

    Args:
        view: Where it lies, and what may be seen there.
    """
    view.mount.ensure_fresh()
    return view.mount.engine.query(lambda: _present_now(view))


def _present_now(view: View) -> Present:
    engine, access = view.mount.engine, view.access
    catalog, store = engine.catalog, engine.store
    with catalog.database.snapshot():
        root = catalog.by_path(())
        nodes = catalog.subtree(ROOT)
        stamp = catalog.stamp()
    assert root is not None
    paths: dict[int, str] = {ROOT: ""}
    enclosing: dict[int, PresentSkill | None] = {ROOT: None}
    skills: list[PresentSkill] = []
    uuids: dict[str, bytes] = {"": root.uuid or b""}
    if root.kind == RowKind.SKILL and access.allows(""):
        skills.append(PresentSkill("", None, root.uuid or b""))
        enclosing[ROOT] = skills[0]
    by_path: dict[str, NodeRow] = {}
    links: list[tuple[str, NodeRow, PresentSkill | None]] = []
    folders: list[tuple[str, PresentSkill]] = []
    holding: set[int] = set()
    executable = store.executable
    for node in nodes:
        above = paths.get(node.parent)
        if above is None:
            continue
        path = f"{above}/{node.name}" if above else node.name
        skill = enclosing[node.parent]
        if node.kind == RowKind.FILE:
            if skill is None or node.visible == Visibility.HIDDEN:
                continue
            holding.add(node.parent)
            by_path[path] = node
            uuids[path] = node.uuid or b""
            skill.files.append(PresentFile(_below(path, skill), node, executable(node.signature)))
        elif node.kind == RowKind.LINK:
            if node.visible != Visibility.HIDDEN and node.target is not None:
                links.append((path, node, skill))
        else:
            paths[node.key] = path
            if node.kind == RowKind.SKILL:
                skill = PresentSkill(path, node, node.uuid or b"") if access.allows(path) else None
                if skill is not None:
                    skills.append(skill)
            enclosing[node.key] = skill
            by_path[path] = node
            if skill is not None or (node.visible and access.leads(path)):
                uuids[path] = node.uuid or b""
            if skill is not None:
                holding.add(node.parent)
                if node.kind == RowKind.FOLDER:
                    folders.append((path, skill))
    outside: list[PresentLink] = []
    for path, node, skill in links:
        assert node.target is not None
        target = by_path.get(node.target)
        if node.target and target is None:
            continue
        if node.target in uuids:
            file = target if target is not None and target.kind == RowKind.FILE else None
            if skill is not None:
                holding.add(node.parent)
                skill.links.append(PresentLink(_below(path, skill), node.target, file))
            elif access.allows(path.rpartition("/")[0]) or not access.restricted:
                outside.append(PresentLink(path, node.target, file))
    for path, skill in folders:
        if by_path[path].key not in holding:
            skill.folders.append(_below(path, skill))
    for skill in skills:
        skill.files.sort(key=lambda file: file.path)
        skill.links.sort(key=lambda link: link.path)
        skill.folders.sort()
    return Present(
        view,
        sorted(skills, key=lambda skill: skill.path),
        sorted(outside, key=lambda one: one.path),
        uuids,
        stamp,
    )


def _below(path: str, skill: PresentSkill) -> str:
    return path[len(skill.path) + 1 :] if skill.path else path


def digests_of(found: Present, nodes: list[NodeRow], *, reread: bool = False) -> dict[int, tuple[int, bytes]]:
    """Size in bytes and SHA-256 of files, by the keys of their rows; what is not known is read, and kept.

    Args:
        found: Where the files lie.
        nodes: Their rows.
        reread: Whether to read what is known, too.

    Raises:
        ChangedError: A file is gone, or changes faster than it can be read: look at the store anew.
        UnreadableError: A file may not be read.
        StoreUnavailableError: The store does not answer.
    """
    view = found.view
    catalog, engine = view.mount.engine.catalog, view.mount.engine
    keys = json.dumps([] if reread else [node.key for node in nodes])
    # Size and digest of one version: the file may be another by now than when it was listed.
    known = engine.query(lambda: catalog.read(_KNOWN, (keys,)))
    digests = {key: (size, digest) for key, size, digest in known}
    missing = [node for node in nodes if node.key not in digests]
    hasher = Hasher()
    if not engine.store.remote:
        digests.update(_at_their_places(found, missing, hasher))
        missing = [node for node in missing if node.key not in digests]

    def compute(node: NodeRow) -> tuple[int, bytes]:
        return hasher.compute(view, SkillFile("", node.size, "", node))

    try:
        computed = view.mount.reader.many(compute, missing)
    except (NotFoundError, IsFolderError) as error:
        raise ChangedError(
            "files of the store go away while they are read; try again when it is at rest"
        ) from error
    finally:
        hasher.keep()
    digests.update((node.key, one) for node, one in zip(missing, computed, strict=True))
    return digests


def _at_their_places(
    found: Present, nodes: list[NodeRow], hasher: Hasher
) -> Iterator[tuple[int, tuple[int, bytes]]]:
    """Size and SHA-256 of those files of a local store that lie, as they were seen, where their paths say.

    To look each one up takes three times as long.
    """
    mount = found.view.mount
    wanted = {node.key for node in nodes if node.target is None and not node.signature.endswith(b"?")}
    for skill in found.skills if wanted else ():
        for path, node, _ in skill.files:
            if node.key not in wanted:
                continue
            try:
                with mount.engine.store.open(Place(0, skill.below(path))) as handle:
                    if handle.state.signature != node.signature:
                        continue
                    hashed, size = sha256(), 0
                    for block in handle.blocks():
                        hashed.update(block)
                        size += len(block)
                    if size != node.size or not handle.unchanged():
                        continue
            except OSError:  # by which what is looked up says more
                continue
            hasher.remember(mount, node, hashed.digest())
            yield node.key, (size, hashed.digest())
