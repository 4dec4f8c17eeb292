"""What fsspec expects of a filesystem: its methods over store paths, and the refusal of all that would write.

The methods take paths only: no ids, nothing is decoded. What fsspec derives from them (`walk`, `glob`, `du`,
`get`, `cat`, …) is left to it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, NoReturn

from fsspec.implementations.chained import ChainedFileSystem

from skillfs.access import Access
from skillfs.core.digest import hex_hash, uuid_text
from skillfs.core.refs import PathRef
from skillfs.errors import (
    InvalidArgumentError,
    IsFileError,
    IsFolderError,
    NotFoundError,
    ReadOnlyError,
    SkillFSError,
    UnreadableError,
    not_found,
    quoted,
)
from skillfs.index.catalog import Catalog
from skillfs.index.rows import NodeRow, Row, RowKind, Visibility
from skillfs.listing import kind_of, time_of
from skillfs.lookup import Asked, Lookup
from skillfs.reading import OpenFile, Reader, check_count, sequence_of
from skillfs.stores.base import FileState
from skillfs.sync.engine import Engine

__all__ = ["FsspecFace"]


class FsspecFace(ChainedFileSystem):  # type: ignore[misc]  # fsspec is not typed
    """A read-only filesystem of fsspec. Whoever derives from it sets the attributes.

    Attributes:
        max_age: Seconds that a check holds for listings.
    """

    protocol: ClassVar[str | tuple[str, ...]] = "skill"
    root_marker = ""
    # The cache goes by the arguments as they are written: a relative store would for ever be the one below
    # the first working folder. What costs, the index, is shared by all that name the same one in any way.
    cachable = False

    max_age: float
    _engine: Engine
    _lookup: Lookup
    _reader: Reader

    # -- paths ---------------------------------------------------------------------------------------------

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """Paths without protocol, leading and last slash; a list gives a list. Nothing is decoded."""
        return _stripped(path, ())

    def _strip_roots(self) -> None:
        """Let this instance cut its roots from paths too.

        The path that a chained URL hands over is the store's own, and would be taken for one below the root.
        """
        roots = self._engine.store.spellings
        self._strip_protocol = partial(_stripped, roots=roots)  # type: ignore[method-assign]  # on purpose

    # -- listing -------------------------------------------------------------------------------------------

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Facts about one entry as fsspec names them, and `id`, `uuid`, `kind`, `hash`, `skill_folder_uuid`.

        Raises:
            InvalidArgumentError: The path is malformed.
            NotFoundError: Nothing visible is there.
            IsFileError: The path ends in a slash and names a file.
        """
        asked = self._lookup.ask_path(path)
        row = self._lookup.entry(asked, self._lookup.access())
        return _info_of(_name(asked), row, islink=asked.linked(row))

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether a visible entry is at a path."""
        return self._type(path) is not None

    def lexists(self, path: str, **kwargs: Any) -> bool:
        """The same as `exists`: a link that leads nowhere is not visible."""
        return self.exists(path)

    def isdir(self, path: str) -> bool:
        """Whether a visible folder is at a path."""
        return self._type(path) == "directory"

    def isfile(self, path: str) -> bool:
        """Whether a visible file is at a path."""
        return self._type(path) == "file"

    def _type(self, path: str) -> str | None:
        try:
            asked = self._lookup.ask_path(path)
            row = self._lookup.entry(asked, self._lookup.access(), hint=False)
        except (NotFoundError, InvalidArgumentError, IsFileError):
            return None
        return _type_of(row.kind)

    def ls(self, path: str = "", detail: bool = True, **kwargs: Any) -> list[Any]:
        """What a folder holds, by name; a file lists itself."""
        access = self._lookup.access()
        asked = self._lookup.ask_path(path)
        row = self._lookup.entry(asked, access)
        if row.kind == RowKind.FILE:
            infos = [_info_of(_name(asked), row, islink=asked.linked(row))]
        else:
            self._engine.ensure_fresh(row.path, self.max_age)
            row = self._lookup.entry(asked, access)
            infos = self._engine.query(
                lambda: _infos_below(self._engine.catalog, _name(asked), row, access, 1)
            )
        return infos if detail else [info["name"] for info in infos]

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Every file below a path in one query; links to folders are not descended into."""
        if maxdepth is not None:
            check_count("maxdepth", maxdepth, 1)
        access = self._lookup.access()
        asked = self._lookup.ask_path(path)
        name = _name(asked)
        try:
            row = self._lookup.entry(asked, access, hint=False)
        except NotFoundError:
            return {} if detail else []
        if row.kind == RowKind.FILE:
            found = {name: _info_of(name, row, islink=asked.linked(row))}
        else:
            self._engine.ensure_fresh(row.path, self.max_age)
            infos = self._engine.query(
                lambda: _infos_below(self._engine.catalog, name, row, access, maxdepth)
            )
            found = {info["name"]: info for info in infos if withdirs or info["type"] == "file"}
            if withdirs and name:
                found = {name: _info_of(name, row, islink=asked.linked(row)), **found}
        return found if detail else list(found)

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: str | Callable[[OSError], object] = "omit",
        detail: bool = False,
        **kwargs: Any,
    ) -> Iterator[tuple[str, Any, Any]]:
        """Folders with the names of the folders and files in them; links to folders are not descended into.

        Everything is found in one query, before the first folder is yielded. With `topdown` a caller may take
        names out of the folders that are yielded, and these are not descended into.

        Args:
            path: The folder to begin with.
            maxdepth: Levels; None for all.
            topdown: Whether a folder comes before what is in it.
            on_error: What to do when it cannot be listed: `omit` yields nothing, `raise` raises, and a
                function is called with the error.
            detail: Whether folders and files are mappings of name to info instead of lists of names.
            **kwargs: Ignored.
        """
        if maxdepth is not None:
            check_count("maxdepth", maxdepth, 1)
        path = self._strip_protocol(path)
        try:
            asked = self._lookup.ask_path(path)
            kind = self._lookup.entry(asked, self._lookup.access(), hint=on_error != "omit").kind
            found = self.find(path, maxdepth, withdirs=True, detail=True)
        except OSError as error:
            if on_error == "raise":
                raise
            if callable(on_error):
                on_error(error)
            return
        name = _name(asked)
        own = found.pop(name, None)
        if kind == RowKind.FILE:
            yield name, {} if detail else [], {"": own} if detail else [""]
            return
        below: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {name: ({}, {})}
        for at, info in found.items():
            above, _, last = at.rpartition("/")
            is_folder = info["type"] == "directory"
            below[above][0 if is_folder else 1][last] = info
            if is_folder and not info["islink"]:
                below[at] = ({}, {})
        yield from _walked(below, name, maxdepth, topdown, detail)

    # -- reading -------------------------------------------------------------------------------------------

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Bytes of a file; `start` and `end` count as in a slice, negative ones from the end."""
        for name, value in (("start", start), ("end", end)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise InvalidArgumentError(f"{name} must be an integer, not {quoted(value)}")
        return self._reader.bytes(self._lookup.ask_path(path), start, end, self._lookup.access())

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Byte ranges of several files; errors are returned in place unless `on_error="raise"`."""
        sequence_of(paths, "paths")
        if not isinstance(starts, list | tuple):
            starts = [starts] * len(paths)
        if not isinstance(ends, list | tuple):
            ends = [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise InvalidArgumentError(
                "paths, starts and ends must have one length; pass one range for each path"
            )
        results: list[Any] = []
        for path, start, end in zip(paths, starts, ends, strict=True):
            try:
                results.append(self.cat_file(path, start, end))
            except SkillFSError as error:
                if on_error == "raise":
                    raise
                results.append(error)
        return results

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> OpenFile:
        if mode != "rb":
            self._refuse(path)
        return self._reader.open(self._lookup.ask_path(path), self._lookup.access())

    def open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        """Open a file for reading; every other mode is refused.

        What is read belongs to one version of the file; when it changes, reading raises `ChangedError`.
        """
        if not isinstance(mode, str) or set(mode) - set("rbt"):
            self._refuse(path)
        return super().open(path, mode, **kwargs)

    def created(self, path: str) -> datetime:
        """When the entry's inode last changed, in UTC: what the local filesystem of fsspec answers too."""
        return time_of(self._state(path).changed)

    def modified(self, path: str) -> datetime:
        """When the entry was last modified, in UTC."""
        return time_of(self._state(path).modified)

    def ukey(self, path: str) -> str:
        """A token that changes when the file's bytes may have changed; from its signature."""
        return self._state(path).signature.hex()

    def checksum(self, path: str) -> int:
        """An integer that is equal for equal bytes: the XXH3-128 of a file.

        Raises:
            IsFolderError: The path names a folder.
            UnreadableError: The file has never been readable.
        """
        asked = self._lookup.ask_path(path)
        row = self._lookup.entry(asked, self._lookup.access())
        if row.kind != RowKind.FILE:
            raise IsFolderError(f"{quoted(asked.shown)} names a folder, and only files have a checksum")
        if row.content is None:
            raise UnreadableError(f"{quoted(asked.shown)} may not be read by this user; mend its permissions")
        return int.from_bytes(row.content, "big")

    def _state(self, path: str) -> FileState:
        asked = self._lookup.ask_path(path)
        state = self._engine.store.state(self._lookup.entry(asked, self._lookup.access()).place)
        if state is None:
            raise not_found(asked.shown)
        return state

    @property
    def fsid(self) -> str:
        """Identity of the store."""
        return f"skill_{self._engine.namespace.uuid}"

    def invalidate_cache(self, path: str | None = None) -> None:
        """Check the store now, whatever its age: the next listing is true."""
        self._engine.sync()

    # -- refused -------------------------------------------------------------------------------------------

    def _refuse(self, path: object = None, *args: Any, **kwargs: Any) -> NoReturn:
        raise ReadOnlyError("this filesystem is read-only; change the files in the store itself")

    mkdir = makedirs = mkdirs = makedir = rmdir = _refuse
    rm = rm_file = _rm = delete = _refuse
    mv = move = rename = copy = cp = cp_file = _refuse
    put = put_file = upload = pipe = pipe_file = touch = write_text = write_bytes = _refuse
    start_transaction = end_transaction = _refuse

    @property
    def transaction(self) -> NoReturn:
        """Refused: there is nothing to write."""
        self._refuse()

    @transaction.setter
    def transaction(self, value: object) -> None:
        self._refuse()

    def sign(self, path: str, expiration: int = 100, **kwargs: Any) -> str:
        """Not offered: a signed URL would be a way around base paths."""
        raise NotImplementedError("a skill filesystem signs no URLs; read the file through it")


def _walked(
    below: dict[str, tuple[dict[str, Any], dict[str, Any]]],
    top: str,
    maxdepth: int | None,
    topdown: bool,
    detail: bool,
) -> Iterator[tuple[str, Any, Any]]:
    """What `walk` yields, from the folders and files that each folder holds.

    Without recursion: a store may be deeper than the stack.
    """
    stack: list[tuple[str, int, tuple[str, Any, Any] | None]] = [(top, 1, None)]
    while stack:
        at, level, done = stack.pop()
        if done is not None:
            yield done
            continue
        folders, files = below[at]
        item = (at, folders, files) if detail else (at, list(folders), list(files))
        if topdown:
            yield item
        else:
            stack.append((at, level, item))
        if maxdepth is None or level < maxdepth:
            paths = [f"{at}/{name}" if at else name for name in item[1]]
            stack.extend((path, level + 1, None) for path in reversed(paths) if path in below)


def _name(asked: Asked) -> str:
    """A path as fsspec writes it: as it was asked for, so that links keep their names."""
    assert isinstance(asked.ref, PathRef)
    return asked.ref.path


def _stripped(path: Any, roots: Sequence[str]) -> Any:
    if isinstance(path, list):
        return [_stripped(p, roots) for p in path]
    text = os.fspath(path).removeprefix("skill://")
    for root in sorted(roots, key=len, reverse=True):
        if text == root or text.startswith(root.rstrip("/") + "/"):
            text = text[len(root) :]
            break
    else:
        if text == "." or text.startswith("./"):
            text = text[1:]
    # One slash at each end: a doubled one is a mistake that is refused where the path is used.
    return text.removeprefix("/").removesuffix("/")


def _info_of(name: str, row: Row, *, islink: bool) -> dict[str, Any]:
    """One entry.

    Args:
        name: Path by which it was asked for.
        row: What is there.
        islink: Whether a link led to it.
    """
    skill = None if row.skill is None else row.skill.uuid
    return _info(name, row, row.kind, skill, islink=islink)


def _type_of(kind: RowKind) -> str:
    return "file" if kind == RowKind.FILE else "directory"


def _infos_below(
    catalog: Catalog, name: str, row: Row, access: Access, depth: int | None = None
) -> list[dict[str, Any]]:
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
    found: list[dict[str, Any]] = []
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
                found.append(_info_of(shown, target, islink=True))
            continue
        found.append(_info(shown, node, node.kind, None if enclosing is None else enclosing[1]))
    found += [_info(shown, node, RowKind.FOLDER, None) for shown, path, node in foreign if path in leading]
    found.sort(key=lambda info: info["name"].replace("/", "\0"))
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


def _info(
    name: str, entry: Row | NodeRow, kind: RowKind, skill: bytes | None, *, islink: bool = False
) -> dict[str, Any]:
    return {
        "name": name,
        "size": 0 if entry.size is None else entry.size,
        "type": _type_of(kind),
        "mtime": entry.modified / 1e9,
        "id": entry.id,
        "uuid": uuid_text(entry.uuid or b""),
        "kind": str(kind_of(kind)),
        "hash": hex_hash(entry.content),
        "skill_folder_uuid": None if skill is None else uuid_text(skill),
        "islink": islink,
    }


def _add_with_above(path: str, paths: set[str]) -> None:
    while path and path not in paths:
        paths.add(path)
        path = path.rpartition("/")[0]
