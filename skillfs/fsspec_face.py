"""What fsspec expects of a filesystem: its methods over store paths; those that write are in `FsspecWriting`.

The methods take paths only: no ids, nothing is decoded. What fsspec derives from them (`walk`, `glob`, `du`,
`get`, `cat`, …) is left to it. All go through five ways to the store, which are others where several stores
are mounted: `_at`, `_listed`, `_reading`, `_is_remote`, `_state`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, NamedTuple

from fsspec.implementations.chained import ChainedFileSystem

from skillfs.access import Access
from skillfs.below import shown_below
from skillfs.core.digest import hex_hash, uuid_text
from skillfs.core.refs import PathRef, below_mount, printable_path
from skillfs.errors import (
    InvalidArgumentError,
    IsFileError,
    IsFolderError,
    NotFoundError,
    SkillFSError,
    UnreadableError,
    not_found,
    quoted,
)
from skillfs.fsspec_writing import FsspecWriting
from skillfs.index.catalog import Catalog
from skillfs.index.rows import NodeRow, Row, RowKind
from skillfs.listing import kind_of, time_of
from skillfs.lookup import Asked, Lookup
from skillfs.reading import Reader, check_count, sequence_of
from skillfs.stores.base import FileState
from skillfs.stores.workers import Workers
from skillfs.sync.engine import Engine

__all__ = ["Found", "FsspecFace", "info_of", "listed", "path_of", "state_of", "stripped"]


class Found(NamedTuple):
    """What is at a path.

    Attributes:
        name: The path as it was asked for.
        row: The entry.
        islink: Whether a link led to it.
    """

    name: str
    row: Row
    islink: bool


class FsspecFace(FsspecWriting, ChainedFileSystem):  # type: ignore[misc]  # fsspec is not typed
    """A filesystem of fsspec. Whoever derives from it sets the attributes.

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
        found = stripped(path, {})
        # Where a URL names no path, fsspec hands over that of the next in the chain: the store's own.
        return "." if found == "" else found

    def _strip_roots(self) -> None:
        """Let this instance cut its roots from paths too.

        The path that a chained URL hands over is the store's own, and would be taken for one below the root.
        """
        roots = dict.fromkeys(self._engine.store.spellings, "")
        self._strip_protocol = partial(stripped, roots=roots)  # type: ignore[method-assign]  # on purpose

    # -- ways to the store ---------------------------------------------------------------------------------

    def _at(self, path: object, *, hint: bool = True) -> Found:
        """What is at a path; see `Lookup.entry`."""
        asked = self._lookup.ask_path(path)
        row = self._lookup.entry(asked, self._lookup.access(), hint=hint)
        return Found(path_of(asked), row, asked.linked(row))

    def _listed(
        self, path: object, depth: int | None, *, whole: bool = False
    ) -> tuple[Found, list[dict[str, Any]] | None]:
        """What is at a path, and of a folder what is below it; None for a file.

        Args:
            path: The path.
            depth: Levels; None for all.
            whole: Whether nothing is what a folder holds that is gone by now, and errors name no near miss.
        """
        asked, access = self._lookup.ask_path(path), self._lookup.access()
        return listed(self._engine, self._lookup, asked, access, self.max_age, depth, whole=whole)

    def _reading(self, path: object) -> tuple[Reader, Asked, Access]:
        """What reads the file at a path."""
        return self._reader, self._lookup.ask_path(path), self._lookup.access()

    def _is_remote(self) -> bool:
        """Whether a reading may be a request that others can be made beside."""
        return self._engine.store.remote

    def _state(self, path: object) -> FileState:
        """What the store says of a path now."""
        asked = self._lookup.ask_path(path)
        return state_of(self._engine, self._lookup.entry(asked, self._lookup.access()), asked)

    # -- listing -------------------------------------------------------------------------------------------

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Facts about one entry as fsspec names them, and `id`, `uuid`, `kind`, `hash`, `skill_folder_uuid`.

        Raises:
            InvalidArgumentError: The path is malformed.
            NotFoundError: Nothing visible is there.
            IsFileError: The path ends in a slash and names a file.
        """
        return info_of(*self._at(path))

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
            return _type_of(self._at(path, hint=False).row.kind)
        except (NotFoundError, InvalidArgumentError, IsFileError):
            return None

    def ls(self, path: str = "", detail: bool = True, **kwargs: Any) -> list[Any]:
        """What a folder holds, by name; a file lists itself."""
        found, infos = self._listed(path, 1)
        if infos is None:
            infos = [info_of(*found)]
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
        try:
            top, infos = self._listed(path, maxdepth, whole=True)
        except NotFoundError:
            return {} if detail else []
        if infos is None:
            found = {top.name: info_of(*top)}
        else:
            found = {info["name"]: info for info in infos if withdirs or info["type"] == "file"}
            if withdirs and top.name:
                found = {top.name: info_of(*top), **found}
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
            name, row, _ = self._at(path, hint=on_error != "omit")
            found = self.find(path, maxdepth, withdirs=True, detail=True)
        except OSError as error:
            if on_error == "raise":
                raise
            if callable(on_error):
                on_error(error)
            return
        own = found.pop(name, None)
        if row.kind == RowKind.FILE:
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
        reader, asked, access = self._reading(path)
        return reader.bytes(asked, start, end, access)

    def head(self, path: str, size: int = 1024) -> bytes:
        """The first bytes of a file, and no others are asked for."""
        return self.cat_file(path, 0, max(0, size))

    def tail(self, path: str, size: int = 1024) -> bytes:
        """The last bytes of a file, and no others are asked for."""
        return self.cat_file(path, -size) if size > 0 else b""

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Byte ranges of several files; errors are returned in place unless `on_error="raise"`.

        Those of a remote store are read several at a time.
        """
        sequence_of(paths, "paths")
        if not isinstance(starts, list | tuple):
            starts = [starts] * len(paths)
        if not isinstance(ends, list | tuple):
            ends = [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise InvalidArgumentError(
                "paths, starts and ends must have one length; pass one range for each path"
            )

        def read(part: tuple[str, int | None, int | None]) -> bytes | SkillFSError:
            try:
                return self.cat_file(*part)
            except SkillFSError as error:
                if on_error == "raise":
                    raise
                return error

        parts = list(zip(paths, starts, ends, strict=True))
        if not self._is_remote():
            return [read(part) for part in parts]
        with Workers() as workers:
            return workers.map(read, parts)

    def _open(self, path: str, mode: str = "rb", *args: Any, **kwargs: Any) -> Any:
        if mode != "rb":
            return super()._open(path, mode, *args, **kwargs)
        reader, asked, access = self._reading(path)
        return reader.open(asked, access)

    def created(self, path: str) -> datetime:
        """When the entry's inode last changed, in UTC: what the local filesystem of fsspec answers too.

        Of a remote store, when it was modified.
        """
        state = self._state(path)
        return time_of(state.changed or state.modified)

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
            StoreUnavailableError: It has to be read, and the store does not answer.
        """
        name, row, _ = self._at(path)
        if row.kind != RowKind.FILE:
            raise IsFolderError(
                f"{quoted(printable_path(name))} names a folder, and only files have a checksum"
            )
        reader, asked, access = self._reading(path)
        if reader.is_locked or (row.content is None and self._is_remote()):
            return reader.checksum(asked, access)
        if row.content is None:
            raise UnreadableError(
                f"{quoted(printable_path(name))} may not be read by this user; mend its permissions"
            )
        return int.from_bytes(row.content, "big")

    @property
    def fsid(self) -> str:
        """Identity of the store."""
        return f"skill_{self._engine.namespace.uuid}"

    def invalidate_cache(self, path: str | None = None) -> None:
        """Check the store now, whatever its age: the next listing is true."""
        self._engine.sync()

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


def path_of(asked: Asked) -> str:
    """A path as fsspec writes it: as it was asked for, so that links keep their names."""
    assert isinstance(asked.ref, PathRef)
    return below_mount(asked.mount, asked.ref.path)


def listed(
    engine: Engine,
    lookup: Lookup,
    asked: Asked,
    access: Access,
    max_age: float,
    depth: int | None,
    *,
    whole: bool,
) -> tuple[Found, list[dict[str, Any]] | None]:
    """See `FsspecFace._listed`."""
    row = lookup.entry(asked, access, hint=not whole)
    if row.kind != RowKind.FILE:
        engine.ensure_fresh(row.path, max_age)
        if not whole:
            row = lookup.entry(asked, access)
    name = path_of(asked)
    found = Found(name, row, asked.linked(row))
    if row.kind == RowKind.FILE:
        return found, None
    return found, engine.query(lambda: _infos_below(engine.catalog, name, row, access, depth))


def state_of(engine: Engine, row: Row, asked: Asked) -> FileState:
    """What the store says of an entry now.

    Raises:
        NotFoundError: It is gone.
    """
    if engine.store.remote:
        return FileState(row.signature, row.size or 0, row.modified)  # as of the last listing
    state = engine.store.state(row.place)
    if state is None:
        raise not_found(asked.shown)
    return state


def stripped(path: Any, roots: Mapping[str, str]) -> Any:
    """A path without what may stand before it.

    Args:
        path: A string, an `os.PathLike`, or a list of these.
        roots: How roots may be spelled, each with what takes its place: the name of a mount, or nothing.
    """
    if isinstance(path, list):
        return [stripped(p, roots) for p in path]
    text = os.fspath(path).removeprefix("skill://")
    for root in sorted(roots, key=len, reverse=True):
        if text == root or text.startswith(root.rstrip("/") + "/"):
            below = text[len(root) :]
            text = roots[root] + ("/" if root.endswith("/") and below else "") + below
            break
    else:
        if text == "." or text.startswith("./"):
            text = text[1:]
    # One slash at each end: a doubled one is a mistake that is refused where the path is used.
    return text.removeprefix("/").removesuffix("/")


def info_of(name: str, row: Row, islink: bool) -> dict[str, Any]:
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
    """The infos of what `shown_below` finds."""
    return [
        _info(found.name, found.entry, found.kind, found.skill, islink=found.link is not None)
        for found in shown_below(catalog, name, row, access, depth)
    ]


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
