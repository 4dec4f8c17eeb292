"""The folders that a flat listing tells of, as a tree in memory."""

from __future__ import annotations

import errno
import re
from typing import NamedTuple, TypeAlias, Union

from skillfs.core.digest import xxh3
from skillfs.core.refs import MAX_COMPONENT_BYTES, MAX_REF_BYTES, component_fault
from skillfs.errors import quoted
from skillfs.stores.base import FileState, Listed, UnfitKey
from skillfs.stores.source import Found

__all__ = ["FolderTree", "Link", "Node", "TreeFolder"]

MOST_UNFIT = 50
"""How many keys that are left out are told of each folder."""


class Link(NamedTuple):
    """A link: the path that it leads to."""

    target: str


Node: TypeAlias = dict[str, Union["Node", FileState, Link]]
"""A folder: what it holds, by name."""

_UNFIT = r"\x00-\x1f\x7f-\x9f\ud800-\udfff/"
_SOUND = re.compile(rf"(?!\.\.?(?:/|\Z))[^{_UNFIT}]+(?:/(?!\.\.?(?:/|\Z))[^{_UNFIT}]+)*").fullmatch


class FolderTree:
    """What a listing has shown, by folder."""

    def __init__(self) -> None:
        self._root: Node = {}
        self._left_out: list[tuple[str, str, str]] = []
        self._last: tuple[str, Node] = ("", self._root)
        self.special: dict[str, list[str]] = {}
        self.unfit: dict[str, list[UnfitKey]] = {}

    def add(self, found: Found) -> None:
        """Take one thing of a listing in."""
        key = found.key
        if not key:
            return  # a marker of the root itself
        if not _is_sound(key):
            if found.kind == "folder":
                return  # what lies below tells
            if key.endswith("/") and _is_sound(key[:-1]):
                self._left_out.append((key[:-1], "directory-marker", "marks a folder and holds nothing"))
            else:
                shown = quoted(key)
                message = (
                    f"the key {shown} cannot be the path of a file and is left out; copy it to one that can"
                )
                self._left_out.append((key, "unfit-key", message))
            return
        above, _, name = key.rpartition("/")
        last, node = self._last
        if above != last:
            node = self._grown(above)
            self._last = (above, node)
        there = node.get(name)
        if found.kind == "folder":
            if isinstance(there, FileState):
                self._leave_out_file(key)
            if not isinstance(there, dict):
                node[name] = {}
        elif isinstance(there, dict):
            self._leave_out_file(key)
        elif found.kind == "other":
            self.special.setdefault(above, []).append(name)
        else:
            node[name] = found.state

    def _grown(self, path: str) -> Node:
        node = self._root
        at = 0
        for name in path.split("/") if path else ():
            at += len(name) + 1
            child = node.get(name)
            if not isinstance(child, dict):
                if child is not None:
                    self._leave_out_file(path[: at - 1])
                child = node[name] = {}
            node = child
        return node

    def _leave_out_file(self, key: str) -> None:
        message = (
            "is the key of a file and of a folder at once, and the file is left out; move it to another key"
        )
        self._left_out.append((key, "file-and-folder", message))

    def finish(self) -> None:
        """Tell what was left out with the nearest folder that is there."""
        for key, code, message in self._left_out:
            node, parts = self._root, key.split("/")
            depth = 0
            while depth < len(parts) - 1 and isinstance(child := node.get(parts[depth]), dict):
                node, depth = child, depth + 1
            folder = "/".join(parts[:depth])
            told = self.unfit.setdefault(folder, [])
            name = parts[-1] if code != "unfit-key" and depth == len(parts) - 1 else ""
            if len(told) < MOST_UNFIT:
                told.append(UnfitKey(code, name, message))
        self._left_out.clear()

    def put(self, path: str, node: FileState | Link | None) -> None:
        """Have a file or link, or a folder where it is None, lie at a path of which that is known to fit."""
        above, _, name = path.rpartition("/")
        last, folder = self._last
        if above != last:
            folder = self._grown(above)
            self._last = (above, folder)
        if node is not None:
            folder[name] = node
        elif path:
            folder.setdefault(name, {})

    def at(self, path: str) -> Node | FileState | Link | None:
        """What lies at a path."""
        node: Node | FileState | Link | None = self._root
        for name in path.split("/") if path else ():
            if not isinstance(node, dict):
                return None
            node = node.get(name)
        return node

    def state(self, path: str) -> FileState | None:
        """The state of what lies at a path; None when nothing does."""
        node = self.at(path)
        if isinstance(node, dict):
            return self.folder_state(path, node)
        if isinstance(node, Link):
            return FileState(xxh3(node.target.encode()), 0, 0)
        return node

    def folder_state(self, path: str, node: Node) -> FileState:
        """The state of a folder: another when a name comes or goes."""
        names = sorted(f"{name}{_mark(child)}" for name, child in node.items())
        told = (self.unfit.get(path), self.special.get(path))
        signature = xxh3("\0".join([*names, *(repr(t) for t in told if t)]).encode())
        return FileState(signature.hex().encode(), 0, 0)  # of a folder no time is known


class TreeFolder:
    """A folder as a listing has shown it; see `FolderHandle`."""

    def __init__(self, tree: FolderTree, path: str, node: Node) -> None:
        self._tree = tree
        self._path = path
        self._node = node
        self.state = tree.folder_state(path, node)

    def entries(self) -> Listed:
        """See `FolderHandle.entries`."""
        folders: list[str] = []
        files: list[str] = []
        links: list[str] = []
        for name, child in self._node.items():
            (folders if isinstance(child, dict) else links if isinstance(child, Link) else files).append(name)
        special = self._tree.special.get(self._path, [])
        return Listed(folders, files, links, special, [], self._tree.unfit.get(self._path, ()))

    def stat(self, name: str) -> tuple[FileState, int]:
        """See `FolderHandle.stat`."""
        child = self._node.get(name)
        if not isinstance(child, FileState):
            raise FileNotFoundError(errno.ENOENT, "there is no such file")
        return child, 1

    def hash(self, name: str, *, head: int = 0) -> tuple[FileState, bytes, bytes, int]:
        """Not here: a file that nobody asked for is not read."""
        raise NotImplementedError


def _is_sound(key: str) -> bool:
    if _SOUND(key) is None:
        return False
    if len(key) * 4 <= MAX_COMPONENT_BYTES:
        return True
    return len(key.encode()) <= MAX_REF_BYTES and not any(map(component_fault, key.split("/")))


def _mark(child: Node | FileState | Link) -> str:
    return "/" if isinstance(child, dict) else "@" if isinstance(child, Link) else ""
