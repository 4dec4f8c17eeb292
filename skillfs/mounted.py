"""What a filesystem of several stores answers: from the one mount that is asked for, or from all, merged."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from skillfs.access import Access
from skillfs.core.digest import uuid_text
from skillfs.core.drawing import Tree
from skillfs.core.model import Changes, Entry, Problem, Skill
from skillfs.core.refs import HashRef, PathRef
from skillfs.core.search import SearchResults
from skillfs.core.wire import Content, Lines
from skillfs.errors import (
    InvalidArgumentError,
    IsFolderError,
    NotFoundError,
    NotIndexedError,
    SkillFSError,
    StoreUnavailableError,
    not_found,
    quoted,
)
from skillfs.feed import ChangeFeed, Followed
from skillfs.folding import folded
from skillfs.following import MountedChanges
from skillfs.fsspec_face import Found, FsspecFace, info_of, listed, path_of, state_of, stripped
from skillfs.history.vouching import settle
from skillfs.index.rows import Row
from skillfs.indexing import index_all
from skillfs.listing import (
    all_problems,
    all_skills,
    check_since,
    counts_of,
    entry_of,
    first_of_name,
    in_order,
    problem_order,
    skill_of,
)
from skillfs.lookup import Asked, list_of_bases
from skillfs.mounts import Mount, MountTable, View, naming, not_indexed, status_of
from skillfs.open_file import OpenFile
from skillfs.reading import Reader
from skillfs.stores.base import FileState
from skillfs.sync.watcher import Hold, watch
from skillfs.tree import Branch, KeptListings, TreeRequest, file_details, list_tree
from skillfs.writing.writer import Batch, Writer

__all__ = ["MountedStores"]

T = TypeVar("T")


class MountedStores(FsspecFace):
    """The methods of `SkillFileSystem` over a table of mounts; whoever derives from it calls `_use`."""

    _table: MountTable

    def _use(self, table: MountTable) -> None:
        """Take a table into use."""
        self._table = table
        self._listings = KeptListings()
        self._writers = {m.name: Writer(m.lookup) for m in table.mounts} if self._writable else {}
        self.max_age = max((mount.max_age for mount in table.mounts), default=0.0)
        self._changes = MountedChanges(table)
        self._strip_protocol = partial(  # type: ignore[method-assign]  # on purpose
            stripped, roots=table.prefixes
        )

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
        """See `SkillFileSystem.get_content`."""

        def read(view: View, asked: Asked) -> Content:
            mount, access = view
            found = mount.reader.content(asked, start, length, access, encoding, expect_hash)
            return replace(found, path=mount.path(found.path or ""))

        return self._of_file(ref, base_paths, read)

    def get_lines(
        self,
        ref: object,
        offset: int = 1,
        limit: int | None = None,
        *,
        base_paths: Sequence[object] | None = None,
        encoding: str | None = None,
        expect_hash: str | None = None,
        most_characters: int | None = None,
    ) -> Lines:
        """See `SkillFileSystem.get_lines`."""

        def read(view: View, asked: Asked) -> Lines:
            mount, access = view
            found = mount.reader.lines(asked, offset, limit, access, encoding, expect_hash, most_characters)
            return replace(found, path=mount.path(found.path or ""))

        return self._of_file(ref, base_paths, read)

    def _whole_text(self, ref: object, base_paths: Sequence[object] | None, encoding: str | None) -> Content:
        def read(view: View, asked: Asked) -> Content:
            mount, access = view
            found = mount.reader.content(asked, 0, None, access, encoding, None, held_for="an outline")
            return replace(found, path=mount.path(found.path or ""))

        return self._of_file(ref, base_paths, read)

    def _of_file(
        self, ref: object, base_paths: Sequence[object] | None, read: Callable[[View, Asked], T]
    ) -> T:
        table = self._table.within(base_paths)
        mount, asked = table.ask(ref)
        if mount is not None:
            with naming(mount.name):
                return read(table.view(mount), asked)
        if table.is_root(asked):
            raise _no_file(asked)
        return _first(table, asked, read)

    def entry(self, ref: object, *, base_paths: Sequence[object] | None = None) -> Entry:
        """See `SkillFileSystem.entry`."""
        table = self._table.within(base_paths)
        for each in table.mounts:
            each.engine.learned.flush()  # what a reading has just learned is to be seen
        mount, asked, row = _find(table, ref)
        if mount is None:
            return entry_of(_root_now(table))
        return entry_of(row, link=row.path if asked.linked(row) else None, mount=mount.name)

    def find_content(self, content_hash: str, *, base_paths: Sequence[object] | None = None) -> list[Entry]:
        """See `SkillFileSystem.find_content`."""
        table = self._table.within(base_paths)
        _, asked = table.ask(content_hash)
        if not isinstance(asked.ref, HashRef):
            raise InvalidArgumentError(
                f"{quoted(asked.shown)} is no content hash; pass sha256:, md5: or xxh3: and hex digits"
            )
        entries: list[Entry] = []
        unknown = False
        for mount, access in table.views():
            with naming(mount.name):
                try:
                    rows = mount.lookup.contents(asked, access)
                except NotFoundError:
                    continue
                except NotIndexedError:
                    unknown = True
                    continue
            entries.extend(entry_of(row, mount=mount.name) for row in rows)
        if entries:
            return sorted(entries, key=lambda entry: in_order(entry.path))
        raise not_indexed(asked) if unknown else not_found(asked.shown)

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
        """See `SkillFileSystem.skill_tree`."""
        overview = ref is None and include is None
        request = TreeRequest(depth, files, hidden, include, exclude, details, limit, cursor, overview)
        table = self._table.within(base_paths)
        if ref is not None:
            mount, asked, _ = _find(table, ref)
            if mount is not None:
                view = table.view(mount)
                with naming(mount.name):
                    mount.ensure_fresh(mount.lookup.folder(asked, view.access).path)
                    branch = _branch(view, mount.lookup.folder(asked, view.access))
                    return list_tree([branch], request, mount.name, table.spellings, self._listings)
        branches = [_branch(view, row) for view, row in _top_rows(table)]
        return list_tree(branches, request, "/", table.spellings, self._listings, table.root)

    def skills(self, *, fold: bool = False, base_paths: Sequence[object] | None = None) -> list[Skill]:
        """See `SkillFileSystem.skills`."""
        first: dict[str, str] = {}
        found: list[tuple[View, Skill]] = []
        for view in self._table.within(base_paths).views():
            found += ((view, skill) for skill in _of_all(view, partial(all_skills, first=first)))
        skills = folded(found) if fold else [skill for _, skill in found]
        return sorted(skills, key=lambda skill: in_order(skill.path))

    def skill(self, ref_or_name: object, *, base_paths: Sequence[object] | None = None) -> Skill:
        """See `SkillFileSystem.skill`."""
        table = self._table.within(base_paths)
        found = None
        plain = isinstance(ref_or_name, str) and "/" not in ref_or_name
        if plain and isinstance(table.ask(ref_or_name)[1].ref, PathRef):
            with contextlib.suppress(NotFoundError, InvalidArgumentError):
                found = _find(table, f"name:{ref_or_name}")
        mount, asked, row = found or _find(table, ref_or_name)
        if found is not None:
            asked = asked._replace(sent=ref_or_name)
        if mount is None or row.skill is None:
            raise not_found(asked.shown)
        skill = _skill_of(table, mount, row.skill.key)
        if skill is None:
            raise not_found(asked.shown)
        return skill

    def problems(self, *, base_paths: Sequence[object] | None = None) -> list[Problem]:
        """See `SkillFileSystem.problems`."""
        first: dict[str, str] = {}
        found: list[Problem] = []
        for view in self._table.within(base_paths).views():
            found += _of_all(view, partial(all_problems, first=first))
        return sorted(found, key=problem_order)

    @property
    def roots(self) -> tuple[str, ...]:
        """See `SkillFileSystem.roots`."""
        return self._table.spellings

    # -- search --------------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        base_paths: Sequence[object] | None = None,
        seconds: float | None = None,
    ) -> SearchResults:
        """See `SkillFileSystem.search`."""
        from skillfs.searching import search

        views = self._table.within(base_paths).views()
        settle(views, fresh=True)
        return search(views, query, limit, seconds)

    # -- freshness -----------------------------------------------------------------------------------------

    def sync(self) -> None:
        """See `SkillFileSystem.sync`; a store that is not there keeps no other from being checked."""
        failed = None
        for mount in self._table.mounts:
            try:
                with naming(mount.name):
                    mount.engine.sync()
                    mount.engine.learned.flush()
            except SkillFSError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    @property
    def checking(self) -> bool:
        """See `SkillFileSystem.checking`; of any of the stores."""
        return any(mount.engine.is_checking for mount in self._table.mounts)

    @property
    def revision(self) -> int:
        """See `SkillFileSystem.revision`."""
        return self._changes.revision

    def changes(self, since: int, *, base_paths: Sequence[object] | None = None) -> Changes:
        """See `SkillFileSystem.changes`; the oldest first within each mount."""
        check_since(since)
        table = self._table.within(base_paths)
        for mount in table.mounts:
            mount.ensure_fresh()
        return self._changes.since(since, {view.mount.name: view.access for view in table.views()})

    def _feed(
        self,
        callback: Callable[[Changes], object] | None,
        since: int | None,
        base_paths: Sequence[object] | None,
    ) -> ChangeFeed:
        """See `SkillFileSystem.watch`: one `Changes` for all that the mounts came to since the last."""
        bases = None if base_paths is None else list_of_bases(base_paths)
        self._table.within(bases)  # which refuses what is no base, or out of bounds itself
        inner = self._table if bases is None else self._table.confined(bases)
        pull, accesses = self._changes.following(inner)
        start = self.revision if since is None else since
        stores = [
            Followed(mount.name, mount.engine, hold, not accesses[mount.name].restricted)
            for mount, hold in zip(inner.mounts, _held(inner), strict=True)
        ]
        return ChangeFeed(pull, start, stores, callback)

    def _hold_all(self) -> list[Hold]:
        return _held(self._table)

    def index_all(self, *, on_progress: Callable[[int, int], None] | None = None) -> int:
        """See `SkillFileSystem.index_all`."""
        self.sync()
        views = self._table.views()
        totals = [_counts(view)["files"] for view in views]
        done = 0
        for number, (mount, access) in enumerate(views):

            def report(some: int, total: int) -> None:
                assert on_progress is not None
                totals[number] = total  # noqa: B023  # called before the next turn
                on_progress(before + some, sum(totals))  # noqa: B023

            before = sum(totals[:number])
            with naming(mount.name):
                done += index_all(mount.engine, access, None if on_progress is None else report)
        return done

    def status(self) -> dict[str, Any]:
        """See `SkillFileSystem.status`; with the same of every mount under `mounts`."""
        mounts = []
        totals = dict.fromkeys(("skills", "folders", "files", "bytes"), 0)
        for view in self._table.views():
            status = status_of(view.mount.engine, view.access)
            for name in totals:
                totals[name] += status[name]
            mounts.append({"name": view.mount.name, **status})
        return {"revision": self.revision, **totals, "mounts": mounts}

    # -- ways to the stores --------------------------------------------------------------------------------

    def _seen_by(self, base_paths: Sequence[object] | None) -> list[View]:
        return self._table.within(base_paths).views()

    def _asked_of(self, ref: object, base_paths: Sequence[object] | None) -> tuple[View, Asked]:
        table = self._table.within(base_paths)
        mount, asked, _ = _find(table, ref)
        if mount is None:
            raise InvalidArgumentError("the root holds the mounts and is no skill; pass the folder of one")
        return table.view(mount), asked

    def _located(self, path: object) -> tuple[Mount, Asked]:
        """The mount that a path leads into, and the path below it.

        Raises:
            InvalidArgumentError: The path is malformed, or names the root, where there are only mounts.
            NotFoundError: Its first component is no mount.
        """
        mount, asked = self._table.ask_path(path)
        if mount is not None:
            return mount, asked
        if self._table.is_root(asked):
            raise InvalidArgumentError("the root holds nothing but the mounts; pass a path below one of them")
        raise self._table.missing(asked)

    def _writer(self, path: object) -> tuple[Writer, Asked]:
        mount, asked = self._located(path)
        return self._writers[mount.name], asked

    def _at(self, path: object, *, hint: bool = True) -> Found:
        mount, asked = self._table.ask_path(path)
        if mount is None:
            if not self._table.is_root(asked):
                raise self._table.missing(asked, hint=hint)
            return Found("", _root_now(self._table), False)
        with naming(mount.name):
            row = mount.lookup.entry(asked, self._table.view(mount).access, hint=hint)
        return Found(path_of(asked), row, asked.linked(row))

    def _listed(
        self, path: object, depth: int | None, *, whole: bool = False
    ) -> tuple[Found, list[dict[str, Any]] | None]:
        mount, asked = self._table.ask_path(path)
        if mount is not None:
            return _listed_in(self._table.view(mount), asked, depth, whole=whole)
        if not self._table.is_root(asked):
            raise self._table.missing(asked, hint=not whole)
        infos = []
        for view in sorted(self._table.views(), key=lambda view: view.mount.name):
            mount = view.mount
            below: list[dict[str, Any]] | None = None
            if depth == 1:
                with naming(mount.name):
                    row = mount.lookup.entry(_top(mount), view.access)
                found = Found(mount.name, row, False)
            else:
                inner = None if depth is None else depth - 1
                found, below = _listed_in(view, _top(mount), inner, whole=whole)
            infos += [info_of(*found), *(below or ())]
        return Found("", _root_now(self._table), False), infos

    def _reading(self, path: object) -> tuple[Reader, Asked, Access]:
        mount, asked = self._table.ask_path(path)
        if mount is not None:
            return mount.reader, asked, self._table.view(mount).access
        raise _no_file(asked) if self._table.is_root(asked) else self._table.missing(asked)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """See `FsspecFace.cat_file`."""
        with self._naming(path):
            return super().cat_file(path, start, end, **kwargs)

    def _open(self, path: str, mode: str = "rb", *args: Any, **kwargs: Any) -> Any:
        with self._naming(path) as mount:
            if mode != "rb":
                return super()._open(path, mode, *args, **kwargs)
            file: OpenFile = super()._open(path, mode, **kwargs)
            assert mount is not None
            file.path = file.raw.path = mount.path(file.path)  # type: ignore[attr-defined]  # a StoreFile
            return file

    @contextlib.contextmanager
    def _naming(self, path: object) -> Iterator[Mount | None]:
        mount, _ = self._table.ask_path(path)
        with naming("" if mount is None else mount.name):
            yield mount

    @contextlib.contextmanager
    def _batches(self) -> Iterator[Callable[[object], tuple[Batch, Asked]]]:
        names: set[str] = set()
        try:
            with super()._batches() as batch_for:

                def batch_of(path: object) -> tuple[Batch, Asked]:
                    names.add(self._located(path)[0].name)
                    return batch_for(path)

                yield batch_of
        except StoreUnavailableError:
            # Of several it cannot be told which one is not there.
            with naming(names.pop() if len(names) == 1 else ""):
                raise

    def _is_remote(self) -> bool:
        return any(mount.engine.store.remote for mount in self._table.mounts)

    def _state(self, path: object) -> FileState:
        mount, asked = self._table.ask_path(path)
        if mount is not None:
            with naming(mount.name):
                row = mount.lookup.entry(asked, self._table.view(mount).access)
                return state_of(mount.engine, row, asked)
        if not self._table.is_root(asked):
            raise self._table.missing(asked)
        row = _root_now(self._table)
        return FileState(row.signature, 0, row.modified, row.modified)

    @property
    def fsid(self) -> str:
        """Identity of the stores and of the names they are mounted under."""
        return f"skill_{uuid_text(self._table.root.uuid or b'')}"

    def invalidate_cache(self, path: str | None = None) -> None:
        """Check all stores now, whatever their age: the next listing is true."""
        self.sync()


# -- one entry ---------------------------------------------------------------------------------------------


def _find(table: MountTable, ref: object) -> tuple[Mount | None, Asked, Row]:
    """What a reference names: the mount it is in, the reference below it, the row; no mount for the root."""
    mount, asked = table.ask(ref)
    if mount is not None:
        with naming(mount.name):
            return mount, asked, mount.lookup.entry(asked, table.view(mount).access)
    if table.is_root(asked):
        return None, asked, table.root

    def look_up(view: View, asked: Asked) -> tuple[Mount, Asked, Row]:
        return view.mount, asked, view.mount.lookup.entry(asked, view.access)

    return _first(table, asked, look_up)


def _first(table: MountTable, asked: Asked, work: Callable[[View, Asked], T]) -> T:
    if isinstance(asked.ref, PathRef):
        raise table.missing(asked)
    return table.first(asked, work)


def _no_file(asked: Asked) -> IsFolderError:
    return IsFolderError(f"{quoted(asked.shown)} names a folder; list its tree, and read a file in it")


def _skill_of(table: MountTable, mount: Mount, key: int) -> Skill | None:
    views = table.views()
    place = next(number for number, view in enumerate(views) if view.mount is mount)
    settle(views[: place + 1])

    engine, access = mount.engine, views[place].access
    named = engine.query(lambda: engine.catalog.skill_row(key))
    winner = None if named is None else _winner(views[:place], named[0])
    locked = mount.lookup.locked
    return engine.query(lambda: skill_of(engine.catalog, key, access, mount.name, winner, locked))


def _winner(views: Sequence[View], name: str) -> str | None:
    """Whole path of the skill that a name stands for in some mounts."""
    for mount, access in views:
        catalog, locked = mount.engine.catalog, mount.lookup.locked
        path = mount.engine.query(lambda: first_of_name(catalog, name, access, locked))  # noqa: B023  # at once
        if path is not None:
            return mount.path(path)
    return None


# -- all mounts --------------------------------------------------------------------------------------------


def _of_all(view: View, work: Callable[..., T]) -> T:
    """Ask the index of a mount, after a check of all of it where the last one is too old."""
    mount, access = view
    mount.ensure_fresh()
    with naming(mount.name):
        settle([view])
        return mount.engine.query(
            lambda: work(mount.engine.catalog, access, mount.name, locked=mount.lookup.locked)
        )


def _counts(view: View) -> dict[str, int]:
    engine, access = view.mount.engine, view.access
    return engine.query(lambda: counts_of(engine.catalog, access))


def _top(mount: Mount) -> Asked:
    return Asked(PathRef(()), mount.name, mount.name)


def _top_rows(table: MountTable) -> list[tuple[View, Row]]:
    """The root of every mount, all of which was checked."""
    found = []
    for view in table.views():
        mount, access = view
        mount.ensure_fresh()
        with naming(mount.name):
            found.append((view, mount.lookup.entry(_top(mount), access)))
    return found


def _root_now(table: MountTable) -> Row:
    """The row of the root, as young as the youngest of its mounts."""
    signature = hashlib.sha256()
    modified = 0
    for mount in table.mounts:
        engine = mount.engine
        row = engine.query(lambda: engine.catalog.by_path(()))  # noqa: B023  # called at once
        if row is not None:
            own = row.signature.removesuffix(b"?")  # a mark that it was taken early, and goes away
            signature.update(mount.name.encode() + b"\0" + own + b"\0")
            modified = max(modified, row.modified)
    return table.root._replace(signature=signature.digest(), modified=modified)


def _listed_in(
    view: View, asked: Asked, depth: int | None, *, whole: bool
) -> tuple[Found, list[dict[str, Any]] | None]:
    mount, access = view
    with naming(mount.name):
        return listed(mount.engine, mount.lookup, asked, access, mount.max_age, depth, whole=whole)


def _branch(view: View, row: Row) -> Branch:
    mount, access = view
    details = partial(file_details, mount.reader, mount.lookup)
    settle([view])
    locked = mount.lookup.locked
    return Branch(mount.engine.catalog, mount.engine.query, row, access, details, mount.name, locked)


def _held(table: MountTable) -> list[Hold]:
    return [watch(mount.engine, mount.max_age) for mount in table.mounts]
