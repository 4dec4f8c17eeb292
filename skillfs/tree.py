"""Trees: what a folder holds, as a drawing and as nested data."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from skillfs.core.digest import uuid_text
from skillfs.core.globs import Glob, compile_globs
from skillfs.core.model import Kind
from skillfs.core.refs import printable_path
from skillfs.core.wire import quote_name
from skillfs.errors import InvalidArgumentError, quoted
from skillfs.index.catalog import Catalog, NodeRow, Row, RowKind, Visibility
from skillfs.listing import kind_of, time_of
from skillfs.lookup import Access
from skillfs.reading import check_count

__all__ = ["Tree", "TreeNode", "TreeRequest", "list_tree", "one_line"]

DESCRIPTION_WIDTH = 120
"""Characters of a description that a drawing shows."""


@dataclass(slots=True)
class TreeNode:
    """One entry of a tree.

    Attributes:
        uuid: UUID of the entry; of a link, of what it points to.
        id: Integer id, likewise.
        name: Name; the store's title for the root.
        path: Store path.
        kind: Skill, folder or file.
        children: What it holds, sorted by code point.
        description: Of a skill.
        link: Of a link, the store path it points to.
        counted: False for a folder that is only repeated to show where a later page goes on.
        size: Bytes, with details.
        characters: Characters of a text, with details.
        modified: With details.
        hash: MD5 of a file, lower-case hex, with details.
    """

    uuid: str
    id: int
    name: str
    path: str
    kind: Kind
    children: list[TreeNode]
    description: str | None = None
    link: str | None = None
    counted: bool = True
    size: int | None = None
    characters: int | None = None
    modified: datetime | None = None
    hash: str | None = None


@dataclass(frozen=True, slots=True)
class Tree:
    """A listing, cut to a page. `str()` draws it.

    Attributes:
        root: What was listed.
        total: Entries below it that fit the request, on all pages.
        returned: Entries on this page.
        cursor: Pass it to get the next page; None on the last.
        filtered: Whether patterns, depth or hiding left something out.
        roots: Spellings of the store's root, for printing paths that can be passed back.
        details: Whether sizes, times and hashes were asked for.
    """

    root: TreeNode
    total: int
    returned: int
    cursor: str | None
    filtered: bool
    roots: Sequence[str]
    details: bool

    @property
    def truncated(self) -> bool:
        """Whether more entries follow this page."""
        return self.cursor is not None

    def __str__(self) -> str:
        lines = [self._label(self.root)]
        self._draw(self.root, "", lines)
        if not self.returned:
            lines.append("(nothing matches)" if self.filtered else "(empty)")
        if self.cursor is not None:
            lines.append(f'({self.returned} of {self.total} entries; go on with cursor "{self.cursor}")')
        return "\n".join(lines)

    def _draw(self, node: TreeNode, indent: str, lines: list[str]) -> None:
        stack = [(child, indent, at == 0) for at, child in enumerate(reversed(node.children))]
        while stack:
            child, indent, last = stack.pop()
            lines.append(f"{indent}{'└── ' if last else '├── '}{self._label(child)}")
            deeper = indent + ("    " if last else "│   ")
            stack.extend((c, deeper, at == 0) for at, c in enumerate(reversed(child.children)))

    def _label(self, node: TreeNode) -> str:
        name = quote_name(node.name) + ("" if node.kind == Kind.FILE else "/")
        if node.link is not None:
            name += f" -> {quote_name(printable_path(node.link, self.roots))}"
        if node.kind == Kind.SKILL:
            name += f"  [skill {node.uuid}]"
            if node.description:
                name += f"  {one_line(node.description)}"
        if not node.counted:
            name += "  (continued)"
        if self.details and node.kind == Kind.FILE:
            count = "" if node.characters is None else f", {node.characters} characters"
            when = "" if node.modified is None else f", {node.modified:%Y-%m-%d %H:%M}"
            name += f"  ({node.size} bytes{count}{when})"
        return name

    def to_dict(self) -> dict[str, Any]:
        """The tree as nested values that JSON can hold."""
        return {
            **self._dict(self.root),
            "total": self.total,
            "returned": self.returned,
            "truncated": self.truncated,
            "cursor": self.cursor,
        }

    def _dict(self, node: TreeNode) -> dict[str, Any]:
        result: dict[str, Any] = {
            "uuid": node.uuid,
            "id": node.id,
            "name": node.name,
            "path": printable_path(node.path, self.roots),
            "kind": str(node.kind),
        }
        if node.description is not None:
            result["description"] = node.description
        if node.link is not None:
            result["link"] = printable_path(node.link, self.roots)
        if self.details:
            result["size"] = node.size
            result["characters"] = node.characters
            result["modified"] = None if node.modified is None else node.modified.isoformat()
            result["hash"] = node.hash
        if node.kind != Kind.FILE:
            result["children"] = [self._dict(child) for child in node.children]
        return result


class TreeRequest(NamedTuple):
    """What of a folder is listed; see `SkillFileSystem.skill_tree`."""

    depth: int | None = None
    files: bool = True
    hidden: bool = False
    include: str | list[str] | tuple[str, ...] | None = None
    exclude: str | list[str] | tuple[str, ...] | None = None
    details: bool = False
    limit: int | None = 500
    cursor: str | None = None
    overview: bool = False


class _Item(NamedTuple):
    order: str
    path: str
    node: NodeRow
    target: Row | None


def one_line(text: str, width: int = DESCRIPTION_WIDTH) -> str:
    """A text on one line, cut, with everything escaped that could move a cursor or hide a character."""
    flat = " ".join(text[: 4 * width].split())
    cut = flat if len(flat) <= width and len(text) <= 4 * width else flat[: width - 1].rstrip() + "…"
    return cut if cut.isprintable() else quote_name(cut)


def list_tree(
    catalog: Catalog,
    row: Row,
    access: Access,
    request: TreeRequest,
    title: str,
    roots: Sequence[str],
    details_of: Callable[[str], tuple[str, int | None]],
) -> Tree:
    """List a folder.

    Args:
        catalog: The index.
        row: The folder.
        access: What the caller may see.
        request: What of it is listed.
        title: Name of the root.
        roots: Spellings of the store's root.
        details_of: Gives MD5 and characters of a file by UUID; asked for the files of the page only.

    Raises:
        InvalidArgumentError: An argument of the request is malformed.
    """
    if request.depth is not None:
        check_count("depth", request.depth, 1)
    if request.limit is not None:
        check_count("limit", request.limit, 1)
    include = compile_globs(request.include, argument="include")
    exclude = compile_globs(request.exclude, argument="exclude")
    after = _decode_cursor(request.cursor)
    nodes = catalog.overview() if request.overview else catalog.subtree(row.key, request.depth)
    items = _visible(catalog, row, nodes, access)
    if request.overview and request.depth is not None:
        items = [item for item in items if item.path.count("/") < request.depth]
    before = len(items)
    items = _wanted(row, items, request, include, exclude)
    items.sort()
    start = 0
    if after is not None:
        start = next((at for at, item in enumerate(items) if item.order > after), len(items))
    stop = len(items) if request.limit is None else min(len(items), start + request.limit)
    page = items[start:stop]
    cursor = _encode_cursor(page[-1].order) if stop < len(items) and page else None
    root = _root_node(catalog, row, title)
    _grow(catalog, row, root, items, start, page, request, details_of)
    filtered = len(items) < before or include is not None or exclude is not None
    return Tree(root, len(items), len(page), cursor, filtered, tuple(roots), request.details)


def _visible(catalog: Catalog, row: Row, nodes: list[NodeRow], access: Access) -> list[_Item]:
    items = []
    at: dict[int, tuple[str, str | None]] = {row.key: (row.path, None if row.skill is None else row.skill.path)}
    for node in nodes:
        above = at.get(node.parent)
        if above is None:
            continue
        path = f"{above[0]}/{node.name}" if above[0] else node.name
        skill = path if node.kind == RowKind.SKILL else above[1]
        if node.kind in (RowKind.FOLDER, RowKind.SKILL):
            at[node.key] = (path, skill)
        if node.visible == Visibility.HIDDEN:
            continue
        if access.sets and not (access.allows(skill) if skill is not None else access.leads(path)):
            continue
        target = None
        if node.kind == RowKind.LINK:
            assert node.target is not None
            target = catalog.by_path(tuple(node.target.split("/")) if node.target else ())
            if target is None or not access.sees(target):
                continue
        items.append(_Item(path.replace("/", "\0"), path, node, target))
    if access.sets:
        items = _leading(items)
    return items


def _leading(items: list[_Item]) -> list[_Item]:
    """Without the folders on the way to nothing that is left."""
    needed = set()
    for item in items:
        if item.node.visible == Visibility.IN_SKILL:
            path = item.path
            while path and path not in needed:
                needed.add(path)
                path = path.rpartition("/")[0]
    return [item for item in items if item.path in needed]


def _wanted(
    row: Row, items: list[_Item], request: TreeRequest, include: Glob | None, exclude: Glob | None
) -> list[_Item]:
    base = len(row.path) + 1 if row.path else 0
    skills = [item.path for item in items if item.node.kind == RowKind.SKILL]
    if request.files and request.hidden and include is None and exclude is None:
        return items
    leads = {path for skill in skills for path in _above(skill)} | set(skills)
    chosen: list[_Item] = []
    shut: set[str] = set()
    for item in sorted(items):
        path = item.path
        is_folder = (item.target.kind if item.target is not None else item.node.kind) != RowKind.FILE
        if any(above in shut for above in _above(path)):
            continue
        in_skill = item.node.visible == Visibility.IN_SKILL
        if not request.hidden and in_skill and item.node.name.startswith(".") and path not in leads:
            shut.add(path)
            continue
        if exclude is not None and exclude(path[base:], is_folder):
            shut.add(path)
            continue
        if not request.files and not is_folder:
            continue
        chosen.append(item)
    if include is None:
        return chosen
    matching = {
        item.path
        for item in chosen
        if include(item.path[base:], (item.target.kind if item.target is not None else item.node.kind) != RowKind.FILE)
    }
    needed = matching | {above for path in matching for above in _above(path)}
    return [item for item in chosen if item.path in needed]


def _above(path: str) -> list[str]:
    found = []
    while (path := path.rpartition("/")[0]) != "":
        found.append(path)
    return found


def _root_node(catalog: Catalog, row: Row, title: str) -> TreeNode:
    assert row.uuid is not None
    assert row.id is not None
    node = TreeNode(uuid_text(row.uuid), row.id, row.name or title, row.path, kind_of(row.kind), [])
    if row.kind == RowKind.SKILL:
        node.description = _description(catalog, row.key)
    return node


def _description(catalog: Catalog, key: int) -> str:
    stored = catalog.skill_row(key)
    return str(json.loads(stored[1])["description"]) if stored is not None else ""


def _grow(
    catalog: Catalog,
    row: Row,
    root: TreeNode,
    items: list[_Item],
    start: int,
    page: list[_Item],
    request: TreeRequest,
    details_of: Callable[[str], tuple[str, int | None]],
) -> None:
    nodes = {row.path: root}
    if start and page:
        earlier = {item.path: item for item in items[:start]}
        for path in reversed(_above(page[0].path)):
            if path in earlier and path not in nodes:
                node = _node(catalog, earlier[path], request, details_of)
                node.counted = False
                nodes[path] = node
                nodes[path.rpartition("/")[0]].children.append(node)
    for item in page:
        node = _node(catalog, item, request, details_of)
        nodes[item.path] = node
        nodes[item.path.rpartition("/")[0]].children.append(node)


def _node(
    catalog: Catalog, item: _Item, request: TreeRequest, details_of: Callable[[str], tuple[str, int | None]]
) -> TreeNode:
    row = item.target
    source: Row | NodeRow = item.node if row is None else row
    assert source.uuid is not None
    assert source.id is not None
    node = TreeNode(
        uuid_text(source.uuid),
        source.id,
        item.node.name,
        item.path,
        kind_of(source.kind),
        [],
        link=None if row is None else row.path,
    )
    if source.kind == RowKind.SKILL:
        node.description = _description(catalog, source.key)
    if request.details:
        node.modified = time_of(source.modified)
        if source.kind == RowKind.FILE:
            node.size = source.size
            node.hash, node.characters = details_of(node.uuid)
    return node


def _encode_cursor(order: str) -> str:
    return base64.urlsafe_b64encode(order.encode()).decode().rstrip("=")


def _decode_cursor(cursor: str | None) -> str | None:
    if cursor is None:
        return None
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (TypeError, ValueError, binascii.Error, AttributeError):
        raise InvalidArgumentError(f"cursor {quoted(cursor)} is none; pass the one that a tree gave, unchanged") from None
