"""`SkillFileSystem`: the one door to a store of skills."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, ClassVar, NoReturn

from fsspec.implementations.chained import ChainedFileSystem

from skillfs.core.digest import hex_hash, uuid_text
from skillfs.core.model import Changes, Entry, Problem, Skill
from skillfs.core.refs import HashRef, PathRef, parse_path
from skillfs.core.wire import Content, Lines
from skillfs.errors import (
    InvalidArgumentError,
    IsFolderError,
    NotFoundError,
    ReadOnlyError,
    SkillFSError,
    not_found,
    quoted,
)
from skillfs.index.catalog import NodeRow, Row, RowKind, Visibility
from skillfs.listing import all_problems, all_skills, changes_of, entry_of, kind_of, prompt_of, time_of
from skillfs.lookup import Access, Lookup
from skillfs.opening import open_engine
from skillfs.reading import Reader, sequence_of
from skillfs.tree import Tree, TreeRequest, list_tree

__all__ = ["SkillFileSystem"]

LOCAL_MAX_AGE = 2.0
"""Seconds that a check of a local store holds for listings."""


class SkillFileSystem(ChainedFileSystem):
    """A read-only filesystem over the skill folders of a store.

    Wherever a `ref` is taken it may be an integer id, a UUID, a content hash (`sha256:…`, `md5:…`, `xxh3:…`),
    `name:<skill name>`, a `skill://` URL or a path from the store root. The methods that fsspec defines take
    paths only.

    Example:
        >>> fs = SkillFileSystem("sample_skills", index=":memory:")
        >>> fs.get_content("commit-messages/SKILL.md", start=0, length=3).text
        '---'

    Args:
        store: Folder that holds the skill folders, as a path or `file://` URL; `~` is expanded.
        fo: The same, as fsspec passes it for a chained URL.
        target_protocol: Protocol of `fo`; only local ones are supported.
        index: Path of the index file, or `":memory:"`; by default a file in the user's data folder.
        store_id: UUID that names the store, so that its entries have the same identities everywhere; by default
            the one in `.skillfs/store.json` at the root, else one derived from the store's URL.
        base_paths: Folders that every call is confined to; None for no restriction.
        ignore: Name patterns that are left out beside the built-in ones; `!pattern` takes one back.
        follow: Folders outside the store into which links may lead.
        max_age: Seconds that a check holds for listings.

    Raises:
        InvalidArgumentError: An argument is malformed or unknown.
        NotFoundError: The store, or a base path, is not there.
        IsFileError: The store, or a base path, is a file.
        UnreadableError: The store may not be read.
    """

    protocol: ClassVar[str | tuple[str, ...]] = "skill"
    root_marker = ""

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        fo: str | None = None,
        target_protocol: str | None = None,
        index: str | os.PathLike[str] | None = None,
        store_id: str | None = None,
        base_paths: Sequence[object] | None = None,
        ignore: Sequence[str] = (),
        follow: Sequence[str | os.PathLike[str]] = (),
        max_age: float = LOCAL_MAX_AGE,
        **options: Any,
    ) -> None:
        if self._cached:
            return
        fsspec_options = {"skip_instance_cache", "use_listings_cache", "asynchronous", "loop", "batch_size"}
        unknown = sorted(set(options) - fsspec_options)
        if unknown:
            raise InvalidArgumentError(f"SkillFileSystem takes no argument {quoted(unknown[0])}; see its documentation")
        super().__init__(**{k: v for k, v in options.items() if k in fsspec_options})
        where = _which_store(store, fo, target_protocol)
        if isinstance(max_age, bool) or not isinstance(max_age, int | float) or not max_age >= 0:
            raise InvalidArgumentError(f"max_age is {quoted(max_age)}; pass seconds, 0 or more")
        self.max_age = float(max_age)
        self._engine = open_engine(where, index=index, store_id=store_id, ignore=ignore, follow=follow)
        self._engine.ensure_fresh("", self.max_age)
        self._lookup = Lookup(self._engine, base_paths)
        self._reader = Reader(self._lookup)

    # -- reading -------------------------------------------------------------------------------------------

    def get_content(
        self,
        ref: object,
        start: int = 0,
        length: int | None = None,
        *,
        base_paths: Sequence[object] | None = None,
        encoding: str | None = None,
        expect_hash: str | None = None,
    ) -> Content:
        """Read a stretch of a text file.

        Args:
            ref: Any reference.
            start: First character, from 0; at or past the end the reading is empty.
            length: Characters; None for the rest.
            base_paths: Folders, one of which the enclosing skill must be or lie below; None for no restriction.
            encoding: Decode as this instead of what the file shows itself to be.
            expect_hash: MD5 of an earlier page; another version of the file is refused.

        Raises:
            InvalidArgumentError: An argument is malformed.
            NotFoundError: Nothing visible answers to the reference, or a base path is not there.
            IsFolderError: It names a folder.
            NotTextError: The file is not text, or not in that encoding.
            TooLargeError: It would have to be held whole and is over 64 MiB.
            ChangedError: It is not the version of `expect_hash`, or changes faster than it can be read.
            UnreadableError: The system refuses to open it.
        """
        return self._reader.content(ref, start, length, self._lookup.access(base_paths), encoding, expect_hash)

    def get_lines(
        self,
        ref: object,
        offset: int = 1,
        limit: int | None = None,
        *,
        base_paths: Sequence[object] | None = None,
        encoding: str | None = None,
        expect_hash: str | None = None,
    ) -> Lines:
        r"""Read some lines of a text file; they end at `\n` and nothing else.

        Args:
            ref: Any reference.
            offset: First line, from 1; past the last the reading is empty.
            limit: Lines; None for the rest.
            base_paths: As in `get_content`.
            encoding: As in `get_content`.
            expect_hash: As in `get_content`.

        Raises:
            SkillFSError: As in `get_content`.
        """
        return self._reader.lines(ref, offset, limit, self._lookup.access(base_paths), encoding, expect_hash)

    def entry(self, ref: object, *, base_paths: Sequence[object] | None = None) -> Entry:
        """Look an entry up.

        Raises:
            InvalidArgumentError: The reference is malformed.
            NotFoundError: Nothing visible answers to it.
            NotIndexedError: It is a hash that is not known for every file yet.
        """
        return entry_of(self._lookup.entry(ref, self._lookup.access(base_paths)))

    def find_content(self, content_hash: str, *, base_paths: Sequence[object] | None = None) -> list[Entry]:
        """Every file with a content, sorted by path.

        Args:
            content_hash: `sha256:<64 hex>`, `md5:<32 hex>` or `xxh3:<32 hex>`.
            base_paths: As in `get_content`.

        Raises:
            InvalidArgumentError: It is no content hash.
            NotFoundError: No visible file has this content.
            NotIndexedError: None is known to have it, and the hash is not known for every file yet.
        """
        ref = self._lookup.parse(content_hash)
        if not isinstance(ref, HashRef):
            raise InvalidArgumentError(f"{quoted(content_hash)} is no content hash; pass sha256:, md5: or xxh3: and hex digits")
        return [entry_of(row) for row in self._lookup.contents(ref, self._lookup.access(base_paths))]

    # -- listing -------------------------------------------------------------------------------------------

    def skill_tree(
        self,
        ref: object = None,
        *,
        depth: int | None = None,
        files: bool = True,
        hidden: bool = False,
        include: str | list[str] | tuple[str, ...] | None = None,
        exclude: str | list[str] | tuple[str, ...] | None = None,
        details: bool = False,
        limit: int | None = 500,
        cursor: str | None = None,
        base_paths: Sequence[object] | None = None,
    ) -> Tree:
        """List a folder or skill with all below it; without a reference, every skill of the store.

        Args:
            ref: A folder or skill. None lists skills and the folders that lead to them, but not what the skills
                hold, unless `include` asks for files; `"/"` lists the whole store with its files.
            depth: Levels; None for all.
            files: Whether files are listed.
            hidden: Whether names inside skills that start with a dot are listed.
            include: Patterns that choose what is listed; folders that lead to a match are always shown.
            exclude: Patterns for what is left out; they win.
            details: With sizes, characters, times and MD5; reads the files of the page that were not read before.
            limit: Entries on a page; None for all.
            cursor: Of an earlier page, to go on after it.
            base_paths: As in `get_content`.

        Raises:
            InvalidArgumentError: An argument is malformed.
            NotFoundError: Nothing visible answers to the reference.
            IsFileError: It names a file.
        """
        access = self._lookup.access(base_paths)
        row = self._folder("" if ref is None else ref, access, root=ref is None)
        request = TreeRequest(
            depth, files, hidden, include, exclude, details, limit, cursor, ref is None and include is None
        )
        return self._query(
            lambda: list_tree(
                self._engine.catalog, row, access, request, self._engine.title, self._roots, self._details
            )
        )

    def skills(self, *, base_paths: Sequence[object] | None = None) -> list[Skill]:
        """Every skill, sorted by path."""
        access = self._lookup.access(base_paths)
        self._engine.ensure_fresh("", self.max_age)
        return self._query(lambda: all_skills(self._engine.catalog, access))

    def skill(self, ref_or_name: object, *, base_paths: Sequence[object] | None = None) -> Skill:
        """One skill, by its name or by any reference to it or to something in it.

        Raises:
            NotFoundError: No visible skill answers to it.
            InvalidArgumentError: The reference is malformed.
        """
        access = self._lookup.access(base_paths)
        row = None
        if isinstance(ref_or_name, str) and "/" not in ref_or_name and ":" not in ref_or_name:
            self._engine.ensure_fresh("", self.max_age)
            try:
                row = self._lookup.entry(f"name:{ref_or_name}", access)
            except (NotFoundError, InvalidArgumentError):
                row = None
        if row is None:
            row = self._lookup.entry(ref_or_name, access)
        if row.skill is None:
            raise not_found(ref_or_name)
        skill = row.skill
        found = [s for s in self._query(lambda: all_skills(self._engine.catalog, access)) if s.uuid == uuid_text(skill.uuid)]
        if not found:
            raise not_found(ref_or_name)
        return found[0]

    def to_prompt(self, *, base_paths: Sequence[object] | None = None) -> str:
        """The `<available_skills>` block that tells a model which skills there are."""
        return prompt_of(skill for skill in self.skills(base_paths=base_paths) if skill.shadowed_by is None)

    def problems(self, *, base_paths: Sequence[object] | None = None) -> list[Problem]:
        """Everything that is wrong with skills, and what belongs to no skill, sorted by path."""
        access = self._lookup.access(base_paths)
        self._engine.ensure_fresh("", self.max_age)
        return self._query(lambda: all_problems(self._engine.catalog, access))

    # -- freshness -----------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Check the whole store: when this returns, everything written before the call is in the index.

        Raises:
            StoreUnavailableError: The store is not there.
        """
        self._engine.sync()
        self._engine.flush()

    @property
    def revision(self) -> int:
        """A number that grows with every change of the store."""
        return self._query(self._engine.journal.revision)

    def changes(self, since: int, *, base_paths: Sequence[object] | None = None) -> Changes:
        """What changed since a revision.

        Args:
            since: A value of `revision`; 0 asks for everything and is answered with a reset.
            base_paths: As in `get_content`.

        Raises:
            InvalidArgumentError: `since` is no integer of 0 or more.
        """
        if not isinstance(since, int) or isinstance(since, bool) or since < 0:
            raise InvalidArgumentError(f"since must be a revision, an integer of 0 or more, not {quoted(since)}")
        access = self._lookup.access(base_paths)
        self._engine.ensure_fresh("", self.max_age)
        revision, reset, rows = self._query(lambda: self._engine.journal.since(since))
        return Changes(revision, reset, changes_of(rows, access))

    def index_all(self, *, on_progress: Any = None) -> int:
        """Compute everything that is otherwise computed at a file's first reading: text facts, MD5, SHA-256.

        Args:
            on_progress: Called with the number of files done and the number there are.

        Returns:
            How many files could be read.
        """
        from skillfs.indexing import index_all

        self._engine.sync()
        return index_all(self._engine, on_progress)

    def status(self) -> dict[str, Any]:
        """Counts, revision and where the index is kept."""
        return {
            "store": self._engine.title,
            "store_id": str(self._engine.namespace.uuid),
            "revision": self.revision,
            "index": "memory" if self._engine.database.in_memory else "file",
            **self._query(self._engine.catalog.counts),
        }

    # -- fsspec: reading -----------------------------------------------------------------------------------

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """Paths without protocol and outer slashes; a list gives a list."""
        if isinstance(path, list):
            return [cls._strip_protocol(p) for p in path]
        text = os.fspath(path)
        for prefix in ("skill::", "skill://"):
            text = text.removeprefix(prefix)
        return text.strip("/")

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Facts about one entry as fsspec names them, and `id`, `uuid`, `kind`, `hash`, `skill_folder_uuid`."""
        ref = self._path(path)
        row = self._lookup.at(ref, path, self._lookup.access())
        return _info(ref.path, row)

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether a visible entry is at a path."""
        try:
            self.info(path)
        except (NotFoundError, InvalidArgumentError, NotADirectoryError):
            return False
        return True

    def lexists(self, path: str, **kwargs: Any) -> bool:
        """The same as `exists`: a link that leads nowhere is not visible."""
        return self.exists(path)

    def ls(self, path: str = "", detail: bool = True, **kwargs: Any) -> list[Any]:
        """What a folder holds, by name; a file lists itself."""
        access = self._lookup.access()
        ref = self._path(path)
        row = self._lookup.at(ref, path, access)
        if row.kind == RowKind.FILE:
            infos = [_info(ref.path, row)]
        else:
            self._engine.ensure_fresh(row.path, self.max_age)
            row = self._lookup.at(ref, path, access)
            infos = [info for info, _ in self._query(lambda: self._below(ref.path, row, access, 1))]
        return infos if detail else [info["name"] for info in infos]

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **kwargs: Any
    ) -> Any:
        """Every file below a path in one query; links to folders are not descended into."""
        if maxdepth is not None and maxdepth < 1:
            raise InvalidArgumentError("maxdepth must be at least 1")
        access = self._lookup.access()
        ref = self._path(path)
        try:
            row = self._lookup.at(ref, path, access)
        except NotFoundError:
            return {} if detail else []
        if row.kind == RowKind.FILE:
            found = {ref.path: _info(ref.path, row)}
        else:
            self._engine.ensure_fresh(row.path, self.max_age)
            rows = self._query(lambda: self._below(ref.path, row, access, maxdepth))
            found = {info["name"]: info for info, _ in rows if withdirs or info["type"] == "file"}
            if withdirs and ref.path:
                found = {ref.path: _info(ref.path, row), **found}
        return found if detail else list(found)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Bytes of a file; `start` and `end` count as in a slice, negative ones from the end."""
        for name, value in (("start", start), ("end", end)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise InvalidArgumentError(f"{name} must be an integer, not {quoted(value)}")
        return self._reader.bytes(self._reference(path), start, end, self._lookup.access())

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
            raise InvalidArgumentError("paths, starts and ends must have one length; pass one range for each path")
        results: list[Any] = []
        for path, start, end in zip(paths, starts, ends, strict=True):
            try:
                results.append(self.cat_file(path, start, end))
            except SkillFSError as error:
                if on_error == "raise":
                    raise
                results.append(error)
        return results

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> io.BufferedReader:
        if mode != "rb":
            self._refuse(path)
        return io.BufferedReader(self._reader.open(self._reference(path), self._lookup.access()))

    def open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        """Open a file for reading; every other mode is refused."""
        if set(mode) - set("rbt"):
            self._refuse(path)
        return super().open(path, mode, **kwargs)

    def created(self, path: str) -> datetime:
        """When the file's inode last changed, as the local filesystem of fsspec answers too."""
        row = self._lookup.at(self._path(path), path, self._lookup.access())
        return time_of(self._engine.store.created(row.place))

    def modified(self, path: str) -> datetime:
        """When the file was last modified, in UTC."""
        ref = self._path(path)
        return time_of(self._live(ref, path).modified)

    def ukey(self, path: str) -> str:
        """A token that changes when the file's bytes may have changed; from its signature."""
        return self._live(self._path(path), path).signature.hex()

    def checksum(self, path: str) -> int:
        """An integer that is equal for equal bytes: the XXH3-128 of a file."""
        row = self._live(self._path(path), path)
        if row.content is None:
            raise IsFolderError(f"{quoted(path)} names a folder, and only files have a checksum")
        return int.from_bytes(row.content, "big")

    @property
    def fsid(self) -> str:
        """Identity of the store."""
        return f"skill_{self._engine.namespace.uuid}"

    def invalidate_cache(self, path: str | None = None) -> None:
        """Check the store now, whatever its age: the next listing is true."""
        self._engine.sync()

    # -- fsspec: refused -----------------------------------------------------------------------------------

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
        raise NotImplementedError("a skill filesystem signs no URLs; read the file with cat_file()")

    # -- inner ---------------------------------------------------------------------------------------------

    @property
    def _roots(self) -> tuple[str, ...]:
        return self._engine.store.spellings

    def _query(self, work: Any) -> Any:
        return self._engine.query(work)

    def _path(self, path: object) -> PathRef:
        return parse_path(path, self._roots)

    def _reference(self, path: object) -> PathRef:
        return self._path(path)

    def _live(self, ref: PathRef, path: object) -> Row:
        """A row whose signature is that of the file now."""
        access = self._lookup.access()
        row = self._lookup.at(ref, path, access)
        if any(self._engine.store.differing(row.place.root, [(row.place.path, row.signature)])):
            self._engine.look_again(row.path if row.kind != RowKind.FILE else row.path.rpartition("/")[0])
            row = self._lookup.at(ref, path, access)
        return row

    def _folder(self, ref: object, access: Access, *, root: bool) -> Row:
        if root:
            self._engine.ensure_fresh("", self.max_age)
            row = self._query(lambda: self._engine.catalog.by_path(()))
            assert isinstance(row, Row)
            return row
        row = self._lookup.folder(ref, access)
        self._engine.ensure_fresh(row.path, self.max_age)
        return self._lookup.folder(ref, access)

    def _details(self, uuid: str) -> tuple[str | None, int | None]:
        try:
            row = self._lookup.file(uuid, Access())
            md5 = self._reader.md5(row)
            facts = self._reader.facts(row)
        except SkillFSError:
            return None, None
        return md5, facts.characters if facts.encoding is not None else None

    def _below(self, name: str, row: Row, access: Access, depth: int | None) -> Iterator[tuple[dict[str, Any], NodeRow]]:
        return iter(self._infos(name, row, access, depth))

    def _infos(self, name: str, row: Row, access: Access, depth: int | None) -> list[tuple[dict[str, Any], NodeRow]]:
        catalog = self._engine.catalog
        at = {row.key: (name, row.path, row.skill.uuid if row.skill else None, row.skill.path if row.skill else None)}
        found = []
        for node in catalog.subtree(row.key, depth):
            above = at.get(node.parent)
            if above is None:
                continue
            shown = f"{above[0]}/{node.name}" if above[0] else node.name
            path = f"{above[1]}/{node.name}" if above[1] else node.name
            skill, skill_path = above[2], above[3]
            if node.kind == RowKind.SKILL:
                skill, skill_path = node.uuid, path
            if node.kind in (RowKind.FOLDER, RowKind.SKILL):
                at[node.key] = (shown, path, skill, skill_path)
            if node.visible == Visibility.HIDDEN:
                continue
            if access.sets and not (access.allows(skill_path) if skill_path is not None else access.leads(path)):
                continue
            if node.kind == RowKind.LINK:
                target = catalog.by_path(tuple((node.target or "").split("/")) if node.target else ())
                if target is not None and access.sees(target):
                    found.append((_info(shown, target, islink=True), node))
                continue
            found.append((_node_info(shown, node, skill), node))
        found.sort(key=lambda item: item[0]["name"].replace("/", "\0"))
        return found


def _which_store(store: Any, fo: str | None, target_protocol: str | None) -> str:
    if store is None:
        store = fo
    elif fo is not None and os.fspath(fo) != os.fspath(store):
        raise InvalidArgumentError("store and fo name two stores; pass one of them")
    if store is None:
        raise InvalidArgumentError("which store? pass the folder that holds the skill folders")
    if not isinstance(store, str | os.PathLike):
        raise InvalidArgumentError(f"store must be a folder's path, not {quoted(store)}")
    if target_protocol not in (None, "file", "local"):
        raise InvalidArgumentError(f"stores over {quoted(target_protocol)} are not supported; only local folders are")
    text = os.fspath(store)
    if not isinstance(text, str):
        raise InvalidArgumentError("store must be a folder's path as text, not bytes")
    return text


def _info(name: str, row: Row, *, islink: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "size": 0 if row.size is None else row.size,
        "type": "file" if row.kind == RowKind.FILE else "directory",
        "mtime": row.modified / 1e9,
        "id": row.id,
        "uuid": uuid_text(row.uuid or b""),
        "kind": str(kind_of(row.kind)),
        "hash": hex_hash(row.content),
        "skill_folder_uuid": None if row.skill is None else uuid_text(row.skill.uuid),
        "islink": islink or name != row.path,
    }


def _node_info(name: str, node: NodeRow, skill: bytes | None) -> dict[str, Any]:
    return {
        "name": name,
        "size": 0 if node.size is None else node.size,
        "type": "file" if node.kind == RowKind.FILE else "directory",
        "mtime": node.modified / 1e9,
        "id": node.id,
        "uuid": uuid_text(node.uuid or b""),
        "kind": str(kind_of(node.kind)),
        "hash": hex_hash(node.content),
        "skill_folder_uuid": None if skill is None else uuid_text(skill),
        "islink": False,
    }


