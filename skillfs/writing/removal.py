"""What goes when something is removed, and whether what is left can stay as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from skillfs.core.model import Place
from skillfs.core.refs import PathRef, is_below
from skillfs.errors import InvalidArgumentError, IsFolderError, quoted
from skillfs.index.rows import NodeRow, Row, RowKind
from skillfs.lookup import Asked, Lookup
from skillfs.sync.aliases import linked_markers
from skillfs.sync.reconcile import name_of, parent_of, parents_of
from skillfs.sync.scan import SKILL_MD
from skillfs.writing.placing import Placing, Target, child

__all__ = ["Doomed", "Removal", "asked_at", "is_folder"]


class Doomed(NamedTuple):
    """Something that is to be removed: whether it is a folder, and the path of its skill."""

    folder: bool
    skill: str


class Removal:
    """Works out what a removal takes along.

    Args:
        lookup: Finds what is there.
        placing: What the call has done so far.
    """

    def __init__(self, lookup: Lookup, placing: Placing) -> None:
        self._engine = lookup.engine
        self._store = lookup.engine.store
        self._placing = placing

    def doom(self, asked: Asked, recursive: bool, doomed: dict[str, Doomed]) -> None:
        """Note something that is to be removed, and all that can be seen below it.

        Args:
            asked: Its path.
            recursive: Whether it may be a folder.
            doomed: Takes what is going to be removed.

        Raises:
            IsFolderError: It is a folder, and may be none.
            InvalidArgumentError: It is neither a skill nor in one.
        """
        link = self._placing.link(asked)
        if link is not None:
            doomed[link[0]] = Doomed(False, link[1])
            return
        row = self._placing.own(asked)
        assert row.skill is not None
        if row.kind == RowKind.FILE:
            doomed[row.path] = Doomed(False, row.skill.path)
            return
        if not recursive:
            raise IsFolderError(f"{quoted(asked.shown)} names a folder; pass recursive=True to remove it all")
        # What is there now is to go, not what was there at the last check.
        self._engine.sync(row.path)
        row = self._placing.own(asked)
        assert row.skill is not None
        doomed[row.path] = Doomed(True, row.skill.path)
        for path, node, skill in self.below(row):
            if node.visible or node.kind == RowKind.LINK:
                doomed[path] = Doomed(is_folder(node), skill)

    def below(self, row: Row) -> list[tuple[str, NodeRow, str]]:
        """What lies below a folder itself, not behind links: path and enclosing skill, parents first."""
        assert row.skill is not None
        at = {row.key: (row.path, row.skill.path)}
        found = []
        for node in self._engine.query(lambda: self._engine.catalog.subtree(row.key)):
            if node.parent not in at:
                continue
            above, skill = at[node.parent]
            path = child(above, node.name)
            if is_folder(node):
                skill = path if node.kind == RowKind.SKILL else skill
                at[node.key] = (path, skill)
            found.append((path, node, skill))
        return found

    def check_left(self, doomed: Mapping[str, Doomed], mount: str, arriving: Target | None = None) -> None:
        """See to it that nothing that can be seen loses its skill and stays.

        A `SKILL.md` that is a link is lost with the file that it leads to.

        Args:
            doomed: What is going to be removed, or moved away.
            mount: Name of the mount.
            arriving: Where a file is going to arrive meanwhile.
        """
        losing = {parent_of(path) for path in doomed if name_of(path) == SKILL_MD}
        for skill, place in self._linked_markers():
            if place.root == 0 and place.path in doomed:
                losing.add(skill)
        for skill in losing:
            if self._has_outer(skill, losing):
                continue
            row = self._placing.row(asked_at(skill, mount))
            if row is None or row.skill is None:
                continue
            below = [item for item in self.below(row) if item[1].visible]
            kept = {path for path, node, _ in below if node.kind == RowKind.SKILL and path not in losing}
            leaves = {path for path, _, own in below if own in losing and path not in doomed}
            if arriving is not None and name_of(arriving.path) == SKILL_MD:
                made = parent_of(arriving.path)
                kept.add(made)
                leaves = {path for path in leaves if not is_below(path, made)}
            elif arriving is not None and arriving.folder.skill in losing:
                leaves.add(arriving.path)
            # A folder on the way to a skill can be seen outside skills too.
            if leaves.difference(above for path in kept for above in parents_of(path)):
                shown = quoted(asked_at(child(skill, SKILL_MD), mount).shown)
                raise InvalidArgumentError(
                    f"without {shown} the rest of its folder would be in no skill; "
                    "remove or move the whole folder instead, recursively"
                )

    def check_links(self, old: str, new: str, source: Asked) -> None:
        """See to it that no `SKILL.md` that is a link leads nowhere when a folder is moved."""
        for skill, place in self._linked_markers():
            leads_in, lies_in = place.root == 0 and is_below(place.path, old), is_below(skill, old)
            if (leads_in and not lies_in) or (lies_in and not leads_in and parent_of(old) != parent_of(new)):
                shown = quoted(asked_at(child(skill, SKILL_MD), source.mount).shown)
                raise InvalidArgumentError(
                    f"{shown} is a link, and would lead nowhere when {quoted(source.shown)} is moved; "
                    "put a file in its place first"
                )

    def _linked_markers(self) -> list[tuple[str, Place]]:
        if self._store.remote:
            return []
        return self._engine.query(lambda: linked_markers(self._engine.catalog))

    def _has_outer(self, skill: str, losing: set[str]) -> bool:
        """Whether an outer skill, which the caller can see and which stays, takes over what a skill holds."""
        outer: str | None = skill
        while outer is not None and outer in losing:
            outer = self._placing.folder(asked_at(parent_of(outer), "")).skill if outer else None
        return outer is not None


def asked_at(path: str, mount: str) -> Asked:
    """A store path as if a caller had sent it."""
    return Asked(PathRef(tuple(path.split("/")) if path else ()), path, mount)


def is_folder(node: NodeRow) -> bool:
    """Whether a node is a folder itself, and no link to one."""
    return node.kind in (RowKind.FOLDER, RowKind.SKILL) and node.target is None
