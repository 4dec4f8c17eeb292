"""Listings: what a folder holds in one level, or all files below it, as a flat list cut to a page."""

from __future__ import annotations

import base64
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from skillfs.core.drawing import TreeNode
from skillfs.core.globs import compile_globs
from skillfs.core.model import Kind
from skillfs.core.refs import printable_path
from skillfs.core.wire import quote_name
from skillfs.errors import InvalidArgumentError, quoted
from skillfs.listing import in_order
from skillfs.reading import check_count
from skillfs.tools.skills import MOST_RESULTS

if TYPE_CHECKING:
    from skillfs.core.drawing import Tree
    from skillfs.filesystem import SkillFileSystem

__all__ = ["Listing", "listing"]

MOST_NAMED = 5
"""Links to folders that a recursive listing names; it enters none."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a folder holds, cut to a page. `str()` has one line for each entry and a last one for totals.

    Attributes:
        path: Store path of the folder, as it can be passed back.
        entries: The entries of this page, in order; their `children` are not filled in.
        total: Entries that fit the request, on all pages.
        cursor: Pass it to get the next page; None on the last.
        remark: What is to be said beside the entries: how many there are, or why there is none, where they
            end, and what is not entered.
        recursive: Whether files at any depth were asked for, and no folders.
        details: Whether sizes, times and hashes were asked for.
        roots: Spellings of the store's root, for printing paths that can be passed back.
    """

    path: str
    entries: tuple[TreeNode, ...]
    total: int
    cursor: str | None
    remark: str
    recursive: bool
    details: bool
    roots: Sequence[str]

    @property
    def truncated(self) -> bool:
        """Whether more entries follow this page."""
        return self.cursor is not None

    def __str__(self) -> str:
        return "\n".join([*map(self._line, self.entries), f"({self.remark})"])

    def _line(self, node: TreeNode) -> str:
        line = _shown(node.path, self.roots) + ("" if node.kind == Kind.FILE else "/")
        if node.link is not None:
            line += f" -> {_shown(node.link, self.roots)}"
        if self.details and node.size is not None:
            count = "" if node.characters is None else f", {node.characters} characters"
            when = "" if node.modified is None else f", {node.modified:%Y-%m-%d %H:%M}"
            line += f"  ({node.size} bytes{count}{when})"
        return line

    def to_dict(self) -> dict[str, Any]:
        """The listing as values that JSON can hold.

        Links have `link`; with details files have `size`, `characters`, `modified` (ISO 8601), `hash` (MD5).
        """
        return {
            "path": self.path,
            "entries": [self._entry(node) for node in self.entries],
            "total": self.total,
            "returned": len(self.entries),
            "truncated": self.truncated,
            "cursor": self.cursor,
        }

    def _entry(self, node: TreeNode) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "path": printable_path(node.path, self.roots),
            "name": node.name,
            "kind": str(node.kind),
            "uuid": node.uuid,
            "id": node.id,
        }
        if node.link is not None:
            entry["link"] = printable_path(node.link, self.roots)
        if self.details and node.kind == Kind.FILE:
            entry["size"] = node.size
            entry["characters"] = node.characters
            entry["modified"] = None if node.modified is None else node.modified.isoformat()
            entry["hash"] = node.hash
        return entry


def listing(
    fs: SkillFileSystem,
    *,
    directory: object,
    recursive: bool = False,
    hidden: bool = False,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    details: bool = False,
    limit: int = 500,
    cursor: str | None = None,
    base_paths: Sequence[object] | None = None,
) -> Listing:
    """List the files and folders in a folder, or all files at any depth below it; sorted as `skill_tree` is.

    Args:
        fs: The filesystem.
        directory: Any reference to a folder; `"./"` is the root, which lists the folders that lead to skills.
        recursive: Whether files at any depth are listed, and no folders.
        hidden: Whether names inside skills that start with a dot are listed.
        include: Globs that choose files; of one level the folders stay. None, or `*`: all.
        exclude: Globs for files that are left out; they win. With `recursive` what matches a folder leaves
            out all that it holds. No link to a folder is entered, which the remark tells.
        details: With sizes, characters, times and MD5; reads the files of the page not read before.
        limit: Entries on a page, 1 or more.
        cursor: Of an earlier page of the same folder, to go on after it.
        base_paths: As for `SkillFileSystem.get_content`.

    Raises:
        InvalidArgumentError: An argument is malformed.
        NotFoundError: Nothing visible answers to the reference.
        IsFileError: It names a file.
    """
    check_count("limit", limit, 1)
    included = None if "*" in include else list(include) or None
    excluded = list(exclude) or None
    including = compile_globs(included, argument="includeGlob")
    excluding = compile_globs(excluded, argument="excludeGlob")

    def tree(
        after: str | None = None, most: int | None = None, *, detailed: bool = False, globs: bool = recursive
    ) -> Tree:
        return fs.skill_tree(
            directory,
            depth=None if recursive else 1,
            hidden=hidden,
            include=included if globs else None,
            exclude=excluded if globs else None,
            details=detailed,
            limit=most,
            cursor=after,
            base_paths=base_paths,
        )

    def wanted(node: TreeNode) -> bool:
        if recursive:
            return node.kind == Kind.FILE
        if node.kind != Kind.FILE:
            return True
        return (including is None or including(node.name)) and not (excluding and excluding(node.name))

    # One look at all of it, which reads no file: what is told of it is of one moment.
    whole = tree()
    everything = list(_in_order(whole.root))
    nodes = [node for node in everything if wanted(node)]
    start = 0 if cursor is None else bisect_right(nodes, _position(cursor, whole.root), key=_order)
    entries = nodes[start : start + limit]
    following = _cursor(entries[-1], whole.root) if start + limit < len(nodes) else None
    remark = _remark(whole, len(nodes), len(entries), following, start > 0, recursive, limit)
    if recursive:
        if included is not None:  # which leaves out links whose own name does not match
            folders = fs.skill_tree(
                directory, files=False, hidden=hidden, exclude=excluded, limit=None, base_paths=base_paths
            )
            everything = list(_in_order(folders.root))
        remark += _not_entered(everything, fs.roots)
    if details:
        chosen = whole if recursive or (including is None and excluding is None) else tree(globs=True)
        entries = _with_details(entries, chosen, partial(tree, globs=True, detailed=True))
        unread = sum(node.kind == Kind.FILE and node.hash is None for node in entries)
        if unread:
            remark += f"; {_counted(unread, 'file')} of these could not be read for details"
    path = printable_path(whole.root.path, fs.roots)
    return Listing(path, tuple(entries), len(nodes), following, remark, recursive, details, fs.roots)


def _in_order(root: TreeNode) -> Iterator[TreeNode]:
    """All below a folder, each before what it holds."""
    stack = list(reversed(root.children))
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def _order(node: TreeNode) -> str:
    return in_order(node.path)


def _with_details(entries: list[TreeNode], tree: Tree, page_of: Callable[..., Tree]) -> list[TreeNode]:
    """Entries with the details of their files.

    Args:
        entries: The entries.
        tree: What they were taken from.
        page_of: The same with details, behind a cursor and up to a number of entries.
    """
    wanted = {node.path for node in entries if node.kind == Kind.FILE}
    found = [at for at, node in enumerate(_in_order(tree.root)) if node.path in wanted]
    if not found:
        return entries
    # No file is read but those between the first and the last.
    before = page_of(None, found[0], detailed=False).cursor if found[0] else None
    page = page_of(before, found[-1] - found[0] + 1)
    known = {node.path: node for node in _in_order(page.root)}
    return [known.get(node.path, node) for node in entries]


def _cursor(last: TreeNode, folder: TreeNode) -> str:
    # Below the folder, so that it holds when the folder is moved before it is used.
    position = last.path[len(folder.path) + 1 if folder.path else 0 :].encode()
    return base64.urlsafe_b64encode(_check(position, folder) + position).decode().rstrip("=")


def _position(cursor: str, folder: TreeNode) -> str:
    """The place in the order of entries behind which a page starts.

    Raises:
        InvalidArgumentError: It is no cursor, or one of another folder.
    """
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        path = data[4:].decode()
    except ValueError:
        data, path = b"", ""
    if not path or data[:4] != _check(data[4:], folder):
        raise InvalidArgumentError(
            f"cursor {quoted(cursor)} is none of this folder's; pass one unchanged, with the folder it is of"
        )
    return in_order(f"{folder.path}/{path}" if folder.path else path)


def _check(position: bytes, folder: TreeNode) -> bytes:
    """What tells a cursor from other text, and from one of another folder; no secret."""
    return zlib.crc32(position, zlib.crc32(folder.uuid.encode())).to_bytes(4, "big")


def _remark(
    whole: Tree,
    total: int,
    returned: int,
    following: str | None,
    continued: bool,
    recursive: bool,
    limit: int,
) -> str:
    noun = "file" if recursive else "entry"
    if following is not None:
        more = "raise maxResults, or go on" if limit < MOST_RESULTS else "go on"
        return f'{returned} of {_counted(total, noun)}; {more} with cursor "{following}"'
    if returned:
        return f"the last {returned} of {_counted(total, noun)}" if continued else _counted(total, noun)
    if total:
        return f"no more {noun if recursive else 'entrie'}s; there are {total} in all"
    if whole.filtered or (whole.total and not recursive):
        return "nothing matches"
    return "no files, only folders" if whole.total else "empty"


def _counted(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}s" if noun == "file" else f"{number} entries"


def _not_entered(nodes: Sequence[TreeNode], roots: Sequence[str]) -> str:
    """What a remark says of links to folders: what lies behind them is not listed by their paths."""
    links = [_shown(node.path, roots) for node in nodes if node.link is not None and node.kind != Kind.FILE]
    if not links:
        return ""
    named = ", ".join(f"{link}/" for link in links[:MOST_NAMED])
    rest = f" and {len(links) - MOST_NAMED} more" if len(links) > MOST_NAMED else ""
    return f"; links to folders are not entered, list them by themselves: {named}{rest}"


def _shown(path: str, roots: Sequence[str]) -> str:
    """A path as a line shows it; one that could pass for more than a path is quoted."""
    text = printable_path(path, roots)
    shown = quote_name(text)
    if not shown.startswith('"') and ("  " in text or " -> " in text or text.startswith("(")):
        shown = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return shown
