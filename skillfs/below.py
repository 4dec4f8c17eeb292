"""What a caller sees below a folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from skillfs.access import Access
from skillfs.index.catalog import Catalog
from skillfs.index.rows import NodeRow, Row, RowKind, Visibility

__all__ = ["Shown", "shown_below"]


class Shown(NamedTuple):
    """An entry below a folder.

    Attributes:
        name: Path by which the folder was asked for, with the names that lead on from there.
        entry: The entry; where a link leads to it, what is at its end.
        kind: What it is to this caller: a skill that is out of bounds is a folder.
        skill: UUID of the enclosing skill, 16 bytes; None on the way to skills.
        link: The link that leads to it.
    """

    name: str
    entry: Row | NodeRow
    kind: RowKind
    skill: bytes | None
    link: NodeRow | None = None


def shown_below(
    catalog: Catalog, name: str, row: Row, access: Access, depth: int | None = None
) -> list[Shown]:
    """What can be seen below a folder, sorted by path; what links lead to is not descended into.

    Args:
        catalog: The index.
        name: Path by which the folder was asked for; the names of what is found begin with it.
        row: The folder.
        access: What may be seen.
        depth: Levels; None for all.
    """
    # The row may stand for an outer skill that is out of bounds; what it holds is in that skill all the same.
    skill = (catalog.by_key(row.key) or row).skill if access.restricted else row.skill
    at = {row.key: (name, row.path, None if skill is None else (skill.path, skill.uuid))}
    found: list[Shown] = []
    foreign: list[tuple[str, str, NodeRow]] = []
    leading: set[str] = set()
    for level, node in _nodes_below(catalog, row.key, row.path, access, depth):
        above = at.get(node.parent)
        if above is None:
            continue
        shown = f"{above[0]}/{node.name}" if above[0] else node.name
        path = f"{above[1]}/{node.name}" if above[1] else node.name
        enclosing = above[2]
        if node.kind == RowKind.SKILL and node.uuid is not None:
            enclosing = (path, node.uuid)
        if node.kind in (RowKind.FOLDER, RowKind.SKILL):
            at[node.key] = (shown, path, enclosing)
        if node.visible == Visibility.HIDDEN:
            continue
        if not (access.leads(path) if enclosing is None else access.allows(enclosing[0])):
            if node.kind in (RowKind.FOLDER, RowKind.SKILL):
                foreign.append((shown, path, node))
                # What it leads to shows in what is below it, which is not asked for at the last level.
                if level == depth and access.leads_to_skill(catalog, path, node.key):
                    _add_with_above(path, leading)
            continue
        if node.kind == RowKind.SKILL:
            _add_with_above(path, leading)
        if node.kind == RowKind.LINK:
            target = catalog.by_path(tuple(node.target.split("/")) if node.target else ())
            if target is not None and access.sees(target):
                own = None if target.skill is None else target.skill.uuid
                found.append(Shown(shown, target, target.kind, own, node))
            continue
        found.append(Shown(shown, node, node.kind, None if enclosing is None else enclosing[1]))
    found += [Shown(shown, node, RowKind.FOLDER, None) for shown, path, node in foreign if path in leading]
    found.sort(key=lambda one: one.name.replace("/", "\0"))
    return found


def _nodes_below(
    catalog: Catalog, key: int, path: str, access: Access, depth: int | None, level: int = 1
) -> Iterator[tuple[int | None, NodeRow]]:
    """What lies below a folder and may be in bounds, parents first, each with its level where that is known.

    Of a folder above the bases only the ways to them are looked at.
    """
    names = access.steps(path)
    if names is None:
        nodes = catalog.subtree(key, None if depth is None else depth - level + 1)
        levels = {key: level - 1}
        for node in nodes:
            levels[node.key] = levels[node.parent] + 1
            yield levels[node.key], node
        return
    for name in names:
        child = catalog.child(key, name)
        if child is None:
            continue
        yield level, child
        if child.kind in (RowKind.FOLDER, RowKind.SKILL) and (depth is None or level < depth):
            below = f"{path}/{name}" if path else name
            yield from _nodes_below(catalog, child.key, below, access, depth, level + 1)


def _add_with_above(path: str, paths: set[str]) -> None:
    while path and path not in paths:
        paths.add(path)
        path = path.rpartition("/")[0]
