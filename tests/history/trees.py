"""Small stores with everything that a snapshot has to keep, and what is on a disk in a form to compare."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

__all__ = ["Tree", "lay", "on_disk", "trees"]

Tree = dict[str, tuple[Any, ...]]
"""Path to `("file", bytes, executable)`, `("link", path that it leads to)` or `("folder",)`."""

NAMES = ("a", "B", "b", "c d", "é", "e\u0301", "日本", "x\ny", "\x1b[0m", "#%?*", "z" * 100, "SKILL.md")
CONTENTS = (b"", b"x", b"same\n", b"same\n", b"---\nname: a\ndescription: d\n---\n", bytes(range(256)))

_paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)
_nodes = st.one_of(
    st.tuples(st.just("file"), st.sampled_from(CONTENTS), st.booleans()),
    st.tuples(st.just("file"), st.binary(max_size=20), st.booleans()),
    st.tuples(st.just("link"), _paths),
    st.tuples(st.just("folder")),
)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """A tree in which something is a skill as a rule."""
    found: Tree = {}
    for path in draw(st.lists(_paths, max_size=4)):
        found[f"{path}/SKILL.md"] = ("file", draw(st.sampled_from(CONTENTS)), False)
    found.update(draw(st.dictionaries(_paths, _nodes, max_size=12)))
    if draw(st.booleans()):
        found["SKILL.md"] = ("file", b"the root", False)
    return {path: node for path, node in found.items() if node[0] == "file" or not path.endswith("SKILL.md")}


def lay(root: Path, tree: Mapping[str, tuple[Any, ...]]) -> Path:
    """Make a tree in a folder, but for what has no place in it beside the rest."""
    root.mkdir(parents=True, exist_ok=True)
    for path, (kind, *values) in sorted(tree.items()):
        place = root / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if kind == "folder":
                place.mkdir(exist_ok=True)
            elif kind == "link":
                place.symlink_to(os.path.relpath(root / values[0], place.parent))
            elif not os.path.lexists(place):
                place.write_bytes(values[0])
                place.chmod(0o755 if values[1] else 0o644)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTDIR, errno.ELOOP):
                raise
    return root


def on_disk(root: Path) -> dict[str, tuple[Any, ...]]:
    """Everything below a folder, links not followed, as `Tree` has it; a link by where it leads."""
    found: dict[str, tuple[Any, ...]] = {}
    top = os.path.realpath(root)
    for above, folders, files in os.walk(root):
        for name in (*folders, *files):
            place = os.path.join(above, name)
            path = os.path.relpath(place, root)
            mode = os.lstat(place).st_mode
            if stat.S_ISLNK(mode):
                found[path] = ("link", os.path.relpath(os.path.realpath(place), top))
            elif stat.S_ISDIR(mode):
                found[path] = ("folder",)
            else:
                found[path] = ("file", Path(place).read_bytes(), bool(mode & stat.S_IXUSR))
    return found
