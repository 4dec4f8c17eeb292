"""Trees: what a folder holds, as a drawing and as nested data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from skillfs.core.model import Kind
from skillfs.core.refs import printable_path
from skillfs.core.wire import quote_name

__all__ = ["MOST_LEVELS", "Tree", "TreeNode", "one_line"]

DESCRIPTION_WIDTH = 72
"""Characters of a description that a drawing shows."""

LONGEST_DESCRIPTION = 1_024
"""Characters of a description that nested data holds; the specification allows no more."""

MOST_LEVELS = 100
"""How deep nested data and drawings go. JSON writers recurse: Python's gives up at some 500 levels of objects
in lists, that of pydantic at 127. What lies deeper is listed side by side at the last level."""


@dataclass(slots=True)
class TreeNode:
    """One entry of a tree.

    Attributes:
        uuid: UUID of the entry; of a link, of what it points to.
        id: Integer id, likewise.
        name: Name; the store's title for the root.
        path: Store path.
        kind: Skill, folder or file.
        children: What it holds, sorted by code point. At level `MOST_LEVELS`, everything that lies below it.
        description: Of a skill.
        link: Of a link, the store path it points to.
        continued: True for a folder that is on an earlier page, and repeated to show where this one goes on.
        size: Bytes of a file, with details.
        characters: Characters of a text, with details.
        modified: With details.
        hash: MD5 of a file, lower-case hex, with details; None where it cannot be read.
    """

    uuid: str
    id: int
    name: str
    path: str
    kind: Kind
    children: list[TreeNode]
    description: str | None = None
    link: str | None = None
    continued: bool = False
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
        filtered: Whether patterns, kinds or hiding left something out.
        roots: Spellings of the store's root, for printing paths that can be passed back.
        details: Whether sizes, times and hashes were asked for.
        overview: Whether only skills were asked for.
    """

    root: TreeNode
    total: int
    returned: int
    cursor: str | None
    filtered: bool
    roots: Sequence[str]
    details: bool
    overview: bool

    @property
    def truncated(self) -> bool:
        """Whether more entries follow this page."""
        return self.cursor is not None

    def __str__(self) -> str:
        lines = [self._label(self.root, printable_path(self.root.path, self.roots).rstrip("/"))]
        stack = [(child, self.root, "", at == 0) for at, child in enumerate(reversed(self.root.children))]
        while stack:
            node, above, indent, last = stack.pop()
            below = node.path[len(above.path) + 1 :] if above.path else node.path
            lines.append(f"{indent}{'└── ' if last else '├── '}{self._label(node, below)}")
            indent += "    " if last else "│   "
            stack.extend((child, node, indent, at == 0) for at, child in enumerate(reversed(node.children)))
        lines.extend(self._remarks())
        return "\n".join(lines)

    def _remarks(self) -> Iterator[str]:
        if self.cursor is not None:
            cut = f"{self.returned} of {self.total} entries"
            yield f'({cut}; ask for more at once, or go on with cursor "{self.cursor}")'
        elif self.returned:
            return
        elif self.total:
            yield f"(no more entries; there are {self.total} in all)"
        elif self.filtered:
            yield "(nothing matches)"
        elif not self.overview:
            yield "(empty)"
        elif self.root.kind != Kind.SKILL:
            yield "(no skills)"

    def _label(self, node: TreeNode, below: str) -> str:
        label = _shown(below) + ("" if node.kind == Kind.FILE else "/")
        if node.link is not None:
            label += f" -> {_shown(printable_path(node.link, self.roots))}"
        if node.kind == Kind.SKILL:
            label += f"  [skill {node.uuid}]"
            if node.description and not node.continued:
                label += f"  {one_line(node.description)}"
        if node.continued:
            label += "  (continued)"
        if self.details and node.kind == Kind.FILE:
            count = "" if node.characters is None else f", {node.characters} characters"
            when = "" if node.modified is None else f", {node.modified:%Y-%m-%d %H:%M}"
            label += f"  ({node.size} bytes{count}{when})"
        return label

    def to_dict(self) -> dict[str, Any]:
        """The tree as nested values that JSON can hold.

        The root's own fields (`uuid`, `id`, `name`, `path`, `kind`, `children`, of a skill `description`)
        with `total`, `returned`, `truncated` and `cursor`. Links have `link`, folders repeated from an
        earlier page `continued`; with details there are `size`, `characters`, `modified` (ISO 8601), `hash`
        (MD5).
        """
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
            result["description"] = one_line(node.description, LONGEST_DESCRIPTION)
        if node.link is not None:
            result["link"] = printable_path(node.link, self.roots)
        if node.continued:
            result["continued"] = True
        if self.details:
            result["size"] = node.size
            result["characters"] = node.characters
            result["modified"] = None if node.modified is None else node.modified.isoformat()
            result["hash"] = node.hash
        if node.kind != Kind.FILE:
            # No deeper than MOST_LEVELS: that is how a page was grown.
            result["children"] = [self._dict(child) for child in node.children]
        return result


def one_line(text: str, width: int = DESCRIPTION_WIDTH) -> str:
    """A text on one line, cut, with everything escaped that could move a cursor or hide a character."""
    flat = " ".join(text[: 4 * width].split())
    cut = flat if len(flat) <= width and len(text) <= 4 * width else flat[: width - 1].rstrip() + "…"
    return cut if cut.isprintable() else quote_name(cut)


def _shown(path: str) -> str:
    """A name as a drawing shows it; one that could pass for more than a name is quoted."""
    shown = quote_name(path)
    if not shown.startswith('"') and ("  " in path or " -> " in path):
        shown = '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return shown
