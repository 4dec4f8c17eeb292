"""Lists what a folder holds: what of it a request asks for, page by page, as a tree."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from skillfs.access import Access
from skillfs.core.digest import uuid_text
from skillfs.core.drawing import MOST_LEVELS, Tree, TreeNode
from skillfs.core.globs import Glob, compile_globs
from skillfs.core.model import Kind
from skillfs.core.refs import below_mount
from skillfs.errors import InvalidArgumentError, SkillFSError, quoted
from skillfs.index.catalog import Catalog
from skillfs.index.rows import NodeRow, Row, RowKind, Visibility
from skillfs.listing import kind_of, time_of
from skillfs.locked import LockedStore
from skillfs.lookup import Lookup
from skillfs.reading import Reader, check_count

__all__ = ["Branch", "FileDetails", "KeptListings", "TreeRequest", "file_details", "list_tree"]

LEAST_KEPT = 200
MOST_KEPT = 50_000
"""Entries of listings that are kept: shorter ones cost little, longer ones some 20 MB and more."""


class FileDetails(NamedTuple):
    """What a listing with details says of a file; all from one opening of it.

    Attributes:
        size: Bytes.
        modified: Nanoseconds since the epoch.
        md5: Lower-case hex; None where the file cannot be read.
        characters: None where it is no text.
    """

    size: int | None
    modified: int
    md5: str | None
    characters: int | None


class TreeRequest(NamedTuple):
    """What of a folder is listed; see `SkillFileSystem.skill_tree`.

    Attributes:
        overview: List skills, and the folders that lead to them, but nothing that they hold.
    """

    depth: int | None = None
    files: bool = True
    hidden: bool = False
    include: str | list[str] | tuple[str, ...] | None = None
    exclude: str | list[str] | tuple[str, ...] | None = None
    details: bool = False
    limit: int | None = 500
    cursor: str | None = None
    overview: bool = False


class Branch(NamedTuple):
    """A folder of one store that is listed, alone or below the root of several.

    Attributes:
        catalog: The index.
        query: Asks the index.
        row: The folder.
        access: What the caller may see.
        details_of: Gives the details of files by UUID, but of those that cannot be read; asked for the files
            of the page only.
        mount: Name of the mount.
        locked: What a lock names of the store; None without one.
    """

    catalog: Catalog
    query: Callable[[Callable[[], Any]], Any]
    row: Row
    access: Access
    details_of: Callable[[list[str]], dict[str, FileDetails]]
    mount: str = ""
    locked: LockedStore | None = None


class _Item(NamedTuple):
    """An entry below the listed folder.

    Attributes:
        order: Path below the listed folder with NUL for `/`, so that it sorts by component.
        path: Whole path.
        node: Its row.
        target: What it points to, of a link.
        dotted: Whether a name on the way to it, from the skill or the listed folder down, starts with a dot.
        foreign: Whether it is shown only because it leads to something: a folder in a skill that is not
            allowed, or on the way to it.
        branch: What it was found in.
    """

    order: str
    path: str
    node: NodeRow
    target: Row | None
    dotted: bool
    foreign: bool
    branch: Branch

    @property
    def entry(self) -> Row | NodeRow:
        return self.node if self.target is None else self.target

    @property
    def is_folder(self) -> bool:
        return self.entry.kind != RowKind.FILE


class _Listing(NamedTuple):
    """What a request asks for, on all pages, in order; and whether it leaves anything out."""

    items: list[_Item]
    filtered: bool


class KeptListings:
    """The large listings of whole stores that were asked for last, so that a page costs its own length.

    Each is good while the indexes that it was made from bear the same stamps, which every writer changes.
    """

    def __init__(self) -> None:
        # Replaced as a whole and never changed, so that no lock is needed, which a fork could copy held.
        self._kept: dict[Hashable, _Listing] = {}

    def get(self, key: Hashable) -> _Listing | None:
        """A listing that is kept."""
        return self._kept.get(key)

    def keep(self, key: Hashable, listing: _Listing) -> None:
        """Keep one, in place of those that were asked for first."""
        if not LEAST_KEPT <= len(listing.items) <= MOST_KEPT:
            return
        kept = {**self._kept, key: listing}
        while sum(len(each.items) for each in kept.values()) > MOST_KEPT:
            del kept[next(iter(kept))]
        self._kept = kept


def list_tree(
    branches: Sequence[Branch],
    request: TreeRequest,
    title: str,
    roots: Sequence[str],
    kept: KeptListings,
    top: Row | None = None,
) -> Tree:
    """List a folder.

    Args:
        branches: The folder; or, of the root of several stores, their roots.
        request: What of it is listed.
        title: Name of the root.
        roots: Spellings of the stores' roots.
        kept: Listings of earlier requests.
        top: The root of several stores, when that is what is listed.

    Raises:
        InvalidArgumentError: An argument of the request is malformed.
    """
    if request.depth is not None:
        check_count("depth", request.depth, 1)
    if request.limit is not None:
        check_count("limit", request.limit, 1)
    include = compile_globs(request.include, argument="include")
    exclude = compile_globs(request.exclude, argument="exclude")
    row = branches[0].row if top is None else top
    after = _decode_cursor(request.cursor, row)
    if top is None and row.path:
        listing = _listing(branches, request, top, include, exclude)
    else:  # of a whole store, or of several
        key = _key(branches, request, top)
        found = kept.get(key)
        listing = found or _listing(branches, request, top, include, exclude)
        if found is None and key == _key(branches, request, top):
            kept.keep(key, listing)
    if top is None:
        (branch,) = branches
        root = branch.query(lambda: _root_node(branch, title))
    else:
        assert top.uuid is not None
        assert top.id is not None
        root = TreeNode(uuid_text(top.uuid), top.id, title, "", Kind.FOLDER, [])
    items = listing.items
    start = 0 if after is None else bisect_right(items, after, key=_order)
    stop = len(items) if request.limit is None else min(len(items), start + request.limit)
    page = items[start:stop]
    cursor = _encode_cursor(page[-1].order, row) if page and stop < len(items) else None
    _grow(root, items, page, request.details)
    return Tree(
        root, len(items), len(page), cursor, listing.filtered, tuple(roots), request.details, request.overview
    )


def _key(branches: Sequence[Branch], request: TreeRequest, top: Row | None) -> Hashable:
    """What a listing follows from, whatever page of it is asked for; equal to nothing without a stamp."""
    include, exclude = (
        value if value is None or isinstance(value, str) else tuple(value)
        for value in (request.include, request.exclude)
    )
    whole = request._replace(include=include, exclude=exclude, limit=None, cursor=None, details=False)
    stamps = [branch.query(branch.catalog.stamp) for branch in branches]
    made_of = [
        (
            branch.mount,
            object() if stamp is None else stamp,
            branch.row.key,
            branch.row.path,
            branch.access.bases,
        )
        for branch, stamp in zip(branches, stamps, strict=True)
    ]
    return tuple(made_of), whole, top is None


def _listing(
    branches: Sequence[Branch],
    request: TreeRequest,
    top: Row | None,
    include: Glob | None,
    exclude: Glob | None,
) -> _Listing:
    if top is None:
        (branch,) = branches
        items = branch.query(lambda: _visible(branch, request))
    else:
        items = [item for branch in branches for item in _mounted(branch, request)]
    items.sort(key=_order)
    wanted = _wanted(items, request, include, exclude)
    return _Listing(wanted, len(wanted) < len(items) or include is not None or exclude is not None)


def file_details(reader: Reader, lookup: Lookup, uuids: list[str]) -> dict[str, FileDetails]:
    """Details of files that a listing shows, by UUID, but of those that cannot be read."""

    def details(uuid: str) -> FileDetails | None:
        try:
            state, md5, text = reader.details(lookup.ask(uuid), Access())
        except SkillFSError:
            return None
        return FileDetails(
            state.size, state.modified, md5, None if text.encoding is None else text.characters
        )

    found = reader.many(details, uuids)
    return {uuid: known for uuid, known in zip(uuids, found, strict=True) if known is not None}


def _order(item: _Item) -> str:
    return item.order


def _mounted(branch: Branch, request: TreeRequest) -> list[_Item]:
    """A mount as an entry of the root of all, and what the caller may see of it."""
    found: list[_Item] = []
    if request.depth is None:
        found = branch.query(lambda: _visible(branch, request))
    elif request.depth > 1 or request.overview:
        inner = request._replace(depth=request.depth - 1) if request.depth > 1 else request
        found = branch.query(lambda: _visible(branch, inner))
    row, name = branch.row, branch.mount
    if request.overview and not found and row.kind != RowKind.SKILL:
        return []  # it leads to no skill
    if request.depth == 1:
        found = []
    node = NodeRow(
        row.key, 0, name, row.kind, row.visible, row.id, row.uuid, row.signature, row.size, row.modified,
        row.content, None,
    )  # fmt: skip
    below = [item._replace(order=f"{name}\0{item.order}") for item in found]
    return [_Item(name, name, node, None, False, False, branch), *below]


def _visible(branch: Branch, request: TreeRequest) -> list[_Item]:
    """What the caller may see below the folder, hidden names included, in no order."""
    catalog, _, row, access, _, mount, _ = branch
    # The row may stand for an outer skill that is out of bounds; what it holds is in that skill all the same.
    own = (catalog.by_key(row.key) or row).skill if access.restricted else row.skill
    free = not access.restricted or (own is not None and access.allows(own.path))
    # What leads to something allowed can only be told with all that lies below.
    depth = request.depth if free else None
    nodes = catalog.overview() if request.overview else catalog.subtree(row.key, depth)
    base = len(row.path) + 1 if row.path else 0
    lead = f"{mount}/" if mount else ""
    items = []
    allowed: dict[str | None, bool] = {}
    at: dict[int, tuple[str, str | None, bool]] = {
        row.key: (row.path + "/" if row.path else "", None if own is None else own.path, False)
    }
    for node in nodes:
        above = at.get(node.parent)
        if above is None:
            continue
        prefix, skill, dotted = above
        path = prefix + node.name
        kind = node.kind
        if kind == RowKind.SKILL:
            skill, dotted = path, False
        elif skill is not None and not dotted:
            dotted = node.name.startswith(".")
        if kind <= RowKind.SKILL:
            at[node.key] = (path + "/", skill, dotted)
        if node.visible == Visibility.HIDDEN:
            continue
        foreign = False
        if not free:
            where = skill if skill is not None or kind <= RowKind.SKILL else path
            if where not in allowed:
                allowed[where] = where is not None and access.allows(where)
            foreign = not allowed[where]
            if foreign and kind > RowKind.SKILL:
                continue
        target = None
        if kind == RowKind.LINK:
            assert node.target is not None
            target = catalog.by_path(tuple(node.target.split("/")) if node.target else ())
            if target is None or not access.sees(target):
                continue
        order = path[base:].replace("/", "\0")
        items.append(_Item(order, lead + path, node, target, dotted, foreign, branch))
    if not free:
        items = _leading(items)
        if request.depth is not None:
            depth = request.depth
    if depth is not None and (request.overview or not free):
        items = [item for item in items if item.order.count("\0") < depth]
    return items


def _leading(items: list[_Item]) -> list[_Item]:
    """Without the folders that lead to nothing that is allowed."""
    needed: set[str] = set()
    for item in items:
        if not item.foreign:
            _add_with_above(item.order, needed)
    return [item for item in items if item.order in needed]


def _add_with_above(order: str, orders: set[str]) -> None:
    while order and order not in orders:
        orders.add(order)
        order = order.rpartition("\0")[0]


def _wanted(
    items: list[_Item], request: TreeRequest, include: Glob | None, exclude: Glob | None
) -> list[_Item]:
    """Of sorted items those that the request asks for, with the folders that lead to them."""
    if request.files and request.hidden and include is None and exclude is None:
        return items
    leads: set[str] = set()
    if not request.hidden:
        for item in items:
            if item.node.kind == RowKind.SKILL or (item.dotted and _leads_on(item, request)):
                _add_with_above(item.order, leads)
    chosen: list[_Item] = []
    matching: set[str] = set()
    shut = "\0"  # what starts with it lies in a folder that was left out; no order starts so
    for item in items:
        order = item.order
        if order.startswith(shut):
            continue
        is_folder = item.is_folder
        if item.dotted and not request.hidden and order not in leads:
            continue
        path = order.replace("\0", "/")
        if exclude is not None and exclude(path, is_folder):
            shut = order + "\0"
            continue
        if not request.files and not is_folder:
            continue
        chosen.append(item)
        if include is not None and include(path, is_folder):
            _add_with_above(order, matching)
    return chosen if include is None else [item for item in chosen if item.order in matching]


def _leads_on(item: _Item, request: TreeRequest) -> bool:
    """Whether a folder below which the depth cuts leads to a skill."""
    if item.node.kind != RowKind.FOLDER or item.order.count("\0") + 1 != request.depth:
        return False
    catalog, query = item.branch.catalog, item.branch.query
    return any(node.kind == RowKind.SKILL for node in query(lambda: catalog.subtree(item.node.key)))


def _root_node(branch: Branch, title: str) -> TreeNode:
    row = branch.row
    assert row.uuid is not None
    assert row.id is not None
    path = below_mount(branch.mount, row.path)
    node = TreeNode(uuid_text(row.uuid), row.id, row.name or title, path, kind_of(row.kind), [])
    if row.kind == RowKind.SKILL:
        if branch.access.allows(row.path):
            node.description = _descriptions(branch, [row.key]).get(row.key, "")
        else:
            node.kind = Kind.FOLDER
    return node


def _descriptions(branch: Branch, keys: Sequence[int]) -> dict[int, str]:
    """Descriptions of skills by key, of those that a lock vouches for where there is one."""
    catalog, locked = branch.catalog, branch.locked
    with catalog.database.snapshot():
        fronts = catalog.front_matters(keys)
        vouched = fronts.keys() if locked is None else locked.vouched(catalog, keys)
    return {key: str(json.loads(front)["description"]) for key, front in fronts.items() if key in vouched}


def _described(items: Iterable[_Item]) -> dict[tuple[str, int], str]:
    """Descriptions of the skills among some entries, by mount and key."""
    skills: dict[str, tuple[Branch, list[int]]] = {}
    for item in items:
        entry = item.entry
        if entry.kind == RowKind.SKILL and not item.foreign:
            skills.setdefault(item.branch.mount, (item.branch, []))[1].append(entry.key)
    found: dict[tuple[str, int], str] = {}
    for mount, (branch, keys) in skills.items():
        described = branch.query(lambda: _descriptions(branch, keys))  # noqa: B023  # called at once
        found.update(((mount, key), text) for key, text in described.items())
    return found


def _detailed(items: Iterable[_Item]) -> dict[str, FileDetails]:
    """Details of the files among some entries."""
    files: dict[str, tuple[Branch, list[str]]] = {}
    for item in items:
        if item.entry.kind == RowKind.FILE:
            uuid = uuid_text(item.entry.uuid or b"")
            files.setdefault(item.branch.mount, (item.branch, []))[1].append(uuid)
    found: dict[str, FileDetails] = {}
    for branch, uuids in files.values():
        found.update(branch.details_of(list(dict.fromkeys(uuids))))
    return found


def _grow(root: TreeNode, items: list[_Item], page: list[_Item], details: bool) -> None:
    """Hang a page's entries under the root, and first the folders of earlier pages that they lie in."""
    under = {"": root}
    shown = page
    if page:
        above: set[str] = set()
        _add_with_above(page[0].order.rpartition("\0")[0], above)
        places = [bisect_left(items, order, key=_order) for order in sorted(above)]
        shown = [items[place] for place in places if items[place].order in above] + page
    descriptions = _described(shown)
    known = _detailed(shown) if details else None
    for number, item in enumerate(shown):
        node = _node(item, descriptions, known)
        node.continued = number < len(shown) - len(page)
        holder = under[item.order.rpartition("\0")[0]]
        holder.children.append(node)
        if item.node.kind <= RowKind.SKILL:
            under[item.order] = node if item.order.count("\0") < MOST_LEVELS - 1 else holder


def _node(
    item: _Item, descriptions: dict[tuple[str, int], str], details: dict[str, FileDetails] | None
) -> TreeNode:
    row, source = item.target, item.entry
    assert source.uuid is not None
    assert source.id is not None
    node = TreeNode(
        uuid_text(source.uuid),
        source.id,
        item.node.name,
        item.path,
        Kind.FOLDER if item.foreign else kind_of(source.kind),
        [],
        link=None if row is None else below_mount(item.branch.mount, row.path),
    )
    if node.kind == Kind.SKILL:
        node.description = descriptions.get((item.branch.mount, source.key), "")
    if details is not None:
        node.modified = time_of(source.modified)
        if node.kind == Kind.FILE:
            found = details.get(node.uuid)
            node.size = source.size
            if found is not None:
                node.size, node.hash, node.characters = found.size, found.md5, found.characters
                node.modified = time_of(found.modified)
    return node


def _encode_cursor(order: str, row: Row) -> str:
    position = order.encode()
    return base64.urlsafe_b64encode(_check(position, row) + position).decode().rstrip("=")


def _decode_cursor(cursor: str | None, row: Row) -> str | None:
    """The position behind which a page starts.

    Raises:
        InvalidArgumentError: It is no cursor, or one of another folder.
    """
    if cursor is None:
        return None
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        order = data[4:].decode()
    except (TypeError, ValueError, binascii.Error):
        data, order = b"", ""
    if not order or data[:4] != _check(data[4:], row):
        raise InvalidArgumentError(
            f"cursor {quoted(cursor)} is none of this folder's; pass one unchanged, with the folder it is of"
        )
    return order


def _check(position: bytes, row: Row) -> bytes:
    """What tells a cursor from other text, and from one of another folder; no secret."""
    return zlib.crc32(position, zlib.crc32(row.uuid or b"")).to_bytes(4, "big")
