"""What the kernel is shown of a filesystem: nodes with the attributes that `stat` tells, and open files.

Paths are the kernel's: `/` and names, taken as they are and never as references. Links in them were followed
by the kernel itself.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

from skillfs.access import Access
from skillfs.below import Shown, shown_below
from skillfs.core.digest import id_of_uuid, uuid_text
from skillfs.core.refs import PathRef
from skillfs.digests import digest_of_file
from skillfs.errors import IsFileError, IsFolderError, NotFoundError
from skillfs.fuse.foreseen import SECONDS, Foreseen
from skillfs.index.rows import NodeRow, Row, RowKind
from skillfs.listing import counts_of
from skillfs.lookup import Asked
from skillfs.mounts import Mount, View, naming
from skillfs.objects.store import SnapshotStore
from skillfs.open_file import StoreFile

__all__ = ["KernelView", "Listing", "Node", "NodeKind", "Totals"]

_ROOT_NUMBER = 1

_MOST_AT_ONCE = 1000
"""Entries of a skill up to which all of its folders are listed at once; large ones hold a few hundred."""


class NodeKind(IntEnum):
    """What a node is to the kernel."""

    FOLDER = 0
    FILE = 1
    LINK = 2


class Node(NamedTuple):
    """A file, folder or link as the kernel knows it.

    Attributes:
        number: Its inode number: the entry's integer id; of a link one that follows from its path.
        kind: What it is.
        size: Bytes; of a link those of its target.
        modified: Nanoseconds since the epoch; 0 where the store does not say.
        changed: The same, of the last change of any kind.
        executable: Whether the owner may execute it.
        target: Of a link, where it leads, from the folder it lies in.
        version: Of a file; equal where the bytes are.
    """

    number: int
    kind: NodeKind
    size: int
    modified: int
    changed: int
    executable: bool = False
    target: str = ""
    version: bytes = b""


class Listing(NamedTuple):
    """What a folder holds.

    Attributes:
        own: The folder.
        above: The folder that it lies in; of the root itself.
        nodes: Names with what they name, sorted.
    """

    own: Node
    above: Node
    nodes: list[tuple[str, Node]]


class Totals(NamedTuple):
    """What there is in all."""

    files: int
    bytes: int


class KernelView:
    """What the kernel is shown of one store, or of several below the names they are mounted under.

    Args:
        mounts: The stores; one of an empty name is shown by itself.
        root: Tells the row of the root of several stores.
    """

    def __init__(self, mounts: Sequence[Mount], root: Callable[[], Row]) -> None:
        self._mounts = {mount.name: mount for mount in mounts}
        self._alone = self._mounts.get("")
        self._root = root
        self._foreseen: Foreseen[Listing] = Foreseen()

    @property
    def is_still(self) -> bool:
        """Whether nothing of it ever changes: all of it is snapshots."""
        return all(isinstance(mount.engine.store, SnapshotStore) for mount in self._mounts.values())

    def flush(self) -> None:
        """Keep what readings have learned."""
        for mount in self._mounts.values():
            mount.engine.learned.flush()

    # -- nodes ---------------------------------------------------------------------------------------------

    def node(self, path: str) -> Node:
        """What lies at a path, a link itself.

        Raises:
            NotFoundError: Nothing visible lies there.
            StoreUnavailableError: The store is not there.
        """
        mount, asked = self._asked(path)
        if mount is None:
            row = self._root()
            return Node(row.id or _ROOT_NUMBER, NodeKind.FOLDER, 0, row.modified, row.modified)
        access = mount.lookup.access()
        with naming(mount.name):
            try:
                row, link = mount.lookup.at(asked, access)
            except NotFoundError:
                if not _looked_below(mount, asked):
                    raise
                row, link = mount.lookup.at(asked, access)
        if link is None:
            return _node(mount, row, row.kind)
        return _link(mount, _path_of(asked), link)

    def listing(self, path: str) -> Listing:
        """What a folder holds, sorted by name; true as of the last check, as listings are.

        Raises:
            NotFoundError: Nothing visible lies there.
            IsFileError: It is no folder.
            StoreUnavailableError: The store is not there.
        """
        mount, asked = self._asked(path)
        if mount is None:
            # As it is known: a store that is not there takes none of the others with it.
            mounts = sorted(self._mounts.items())
            root = self.node(path)
            return Listing(root, root, [(name, _node(m, _top(m), RowKind.FOLDER)) for name, m in mounts])
        if (listing := self._foreseen.take(path)) is not None:
            return listing
        engine, access, at = mount.engine, mount.lookup.access(), _path_of(asked)
        moment = self._foreseen.moment()
        with naming(mount.name):
            mount.ensure_fresh(at)
            row = mount.lookup.listed(asked, access) or self._folder(mount, asked, access)

        foreseeing = row.kind == RowKind.SKILL and not access.restricted and mount.max_age >= SECONDS

        def look() -> tuple[bool, list[Shown], Row | None]:
            deep = foreseeing and engine.catalog.is_small(row.key, _MOST_AT_ONCE)
            found = shown_below(engine.catalog, "", row, access, None if deep else 1)
            return deep, found, engine.catalog.by_path(at.split("/")[:-1]) if at else None

        deep, found, parent = engine.query(look)
        own = _node(mount, row, row.kind)
        if parent is not None:
            above = _node(mount, parent, parent.kind)
        else:
            above = own if mount.name == "" else self.node("/")
        listings = _by_folder(mount, at, found, own, above)
        listing = listings.pop("")
        if deep:
            prefix = path.rstrip("/")
            self._foreseen.add(moment, {f"{prefix}/{below}": one for below, one in listings.items()})
        return listing

    def _folder(self, mount: Mount, asked: Asked, access: Access) -> Row:
        row, link = mount.lookup.at(asked, access)
        if link is not None or row.kind == RowKind.FILE:
            raise IsFileError("a file or a link is no folder; list the one that it is in")
        return row

    def totals(self) -> Totals:
        """How many files can be seen, and their bytes."""
        files = size = 0
        for mount in self._mounts.values():
            engine, access = mount.engine, mount.lookup.access()
            counts = engine.query(lambda: counts_of(engine.catalog, access))  # noqa: B023  # called at once
            files, size = files + counts["files"], size + counts["bytes"]
        return Totals(files, size)

    # -- files ---------------------------------------------------------------------------------------------

    def open(self, path: str) -> tuple[StoreFile, Node, bool]:
        """Open a file.

        Returns:
            One version of it, its attributes, and whether `node` tells its size: a store need not list that.

        Raises:
            NotFoundError: Nothing visible lies there.
            IsFolderError: It is a folder.
            UnreadableError: The system refuses to open it.
            StoreUnavailableError: The store failed to read it.
            ChangedError: It changes faster than it can be opened.
            IntegrityError: A lock does not name it, or not so.
        """
        mount, asked = self._asked(path)
        if mount is None:
            raise IsFolderError("this is a folder; read a file in it")
        access = mount.lookup.access()
        with naming(mount.name):
            row, file = mount.reader.open_raw(asked, access)
        # Of the version that is open, which need not be that of the row.
        state, sized = file.state, row.size is not None
        row = row._replace(signature=state.signature, size=state.size, modified=state.modified)
        return file, _node(mount, row, RowKind.FILE), sized

    # -- facts ---------------------------------------------------------------------------------------------

    def facts(self, path: str) -> list[str]:
        """The names of the facts that can be told of an entry: `uuid`, `skill`, and of a file its hashes.

        Of a remote store only hashes that are known: whoever copies all of them is not to read every file. Of
        a link none: the kernel asks for those of what it leads to.
        """
        mount, row, is_link = self._entry(path)
        if row.uuid is None or is_link:
            return []
        names = ["uuid"] if row.skill is None else ["uuid", "skill"]
        if mount is None or row.kind != RowKind.FILE:
            return names
        if not mount.engine.store.remote:
            return [*names, "md5", "sha256"]
        engine = mount.engine
        md5 = (row.text is not None and row.text.md5 is not None) or engine.learned.of(row) is not None
        known = [
            *(["md5"] if md5 else []),
            *(["sha256"] if engine.query(lambda: engine.catalog.sha256(row.key)) is not None else []),
        ]
        return [*names, *known]

    def fact(self, path: str, name: str) -> str | None:
        """A fact about an entry, computed where it is not known; None where there is no such fact.

        Raises:
            SkillFSError: As `open`, for a hash that a reading has to tell.
        """
        mount, row, _ = self._entry(path)
        if name == "uuid":
            return uuid_text(row.uuid) if row.uuid is not None else None
        if name == "skill":
            return None if row.skill is None else uuid_text(row.skill.uuid)
        if mount is None or row.kind != RowKind.FILE or name not in ("md5", "sha256"):
            return None
        _, asked = self._asked(path)
        access = mount.lookup.access()
        with naming(mount.name):
            if name == "md5":
                return mount.reader.details(asked, access)[1]
            return digest_of_file(View(mount, access), asked).hex()

    def _entry(self, path: str) -> tuple[Mount | None, Row, bool]:
        mount, asked = self._asked(path)
        if mount is None:
            return None, self._root(), False
        with naming(mount.name):
            row, link = mount.lookup.at(asked, mount.lookup.access())
        return mount, row, link is not None

    # -- paths ---------------------------------------------------------------------------------------------

    def _asked(self, path: str) -> tuple[Mount | None, Asked]:
        """The mount that a path leads into, None for the root of several, and the path below it.

        Raises:
            FileNotFoundError: There is no such mount, or no name of a store can be written so.
        """
        if not path.isascii():
            try:
                path.encode()
            except UnicodeEncodeError:  # a name that is not UTF-8 comes with surrogates: no index holds it
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None
        parts = tuple(path[1:].split("/")) if path != "/" else ()
        mount, name = self._alone, ""
        if mount is None:
            if not parts:
                return None, Asked(PathRef(()), path)
            name, *below = parts
            mount, parts = self._mounts.get(name), tuple(below)
            if mount is None:
                raise NotFoundError("there is no such mount; list the root")
        return mount, Asked(PathRef(parts), path, name)


def _top(mount: Mount) -> Row:
    engine = mount.engine
    row = engine.query(lambda: engine.catalog.by_path(()))
    assert row is not None
    return row


def _by_folder(mount: Mount, at: str, found: list[Shown], own: Node, above: Node) -> dict[str, Listing]:
    """What was found below a folder, parents first, as the listings of that folder and of those below it."""
    listings = {"": Listing(own, above, [])}
    for one in found:
        folder, _, name = one.name.rpartition("/")
        if one.link is None:
            node = _node(mount, one.entry, one.kind)
        else:
            node = _link(mount, posixpath.join(at, one.name), one.link)
        within = listings[folder]
        within.nodes.append((name, node))
        if node.kind == NodeKind.FOLDER:
            listings[one.name] = Listing(node, within.own, [])
    return listings


def _looked_below(mount: Mount, asked: Asked) -> bool:
    """Check a folder that holds no skill as far as is known, unless that was done within `max_age`.

    The kernel asks for each folder on the way to a file, and of one whose skills are new and further down
    nothing else tells that it is to be seen by now.
    """
    engine, path = mount.engine, _path_of(asked)
    row = engine.query(lambda: engine.catalog.by_path(path.split("/")) if path else None)
    return row is not None and row.kind == RowKind.FOLDER and mount.ensure_fresh(path)


def _path_of(asked: Asked) -> str:
    assert isinstance(asked.ref, PathRef)
    return asked.ref.path


def _node(mount: Mount, entry: Row | NodeRow, kind: RowKind) -> Node:
    store = mount.engine.store
    number = entry.id or _ROOT_NUMBER
    changed = store.changed(entry.signature) or entry.modified
    if kind != RowKind.FILE:
        return Node(number, NodeKind.FOLDER, 0, entry.modified, changed)
    executable = store.executable(entry.signature) is True
    version = entry.signature.removesuffix(b"?")
    return Node(number, NodeKind.FILE, entry.size or 0, entry.modified, changed, executable, "", version)


def _link(mount: Mount, path: str, link: Row | NodeRow) -> Node:
    """A link of the store, written as one from the folder it lies in."""
    target = posixpath.relpath(f"/{link.target or ''}", f"/{posixpath.dirname(path)}")
    number = id_of_uuid(mount.engine.namespace.uuid_of(path + "\0link"))
    changed = mount.engine.store.changed(link.signature) or link.modified
    size = len(target.encode())
    return Node(number, NodeKind.LINK, size, link.modified, changed, target=target)
