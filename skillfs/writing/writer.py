"""Writing: the one way in which a store is changed.

All that one call does is one batch, which the index takes in when it ends, however it ends. Nothing that can
be seen is without a skill on the way: a `SKILL.md` comes first and goes last.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from skillfs.core.model import Place
from skillfs.core.refs import PathRef
from skillfs.errors import (
    InvalidArgumentError,
    IsFileError,
    IsFolderError,
    ReadOnlyError,
    not_found,
    quoted,
)
from skillfs.index.rows import NodeRow, Row, RowKind
from skillfs.lookup import Asked, Lookup
from skillfs.stores.base import WritableStore
from skillfs.sync.reconcile import name_of, parent_of, parents_of
from skillfs.sync.scan import SKILL_MD
from skillfs.writing.pending import Writing, failing, unmake
from skillfs.writing.placing import Placing, Target, child, exists_error, is_below, link_error, path_of

__all__ = ["Batch", "Writer", "is_marker"]

_NOT_EMPTY = frozenset((errno.ENOTEMPTY, errno.EEXIST))


class Writer:
    """Writes to one store, within what its look-up is confined to.

    Args:
        lookup: Finds what is there.

    Raises:
        ReadOnlyError: The store is of a kind that cannot be written to.
    """

    def __init__(self, lookup: Lookup) -> None:
        if not lookup.engine.store.writable:
            raise ReadOnlyError("this kind of store cannot be written to; open it without writable=True")
        self._lookup = lookup

    @contextlib.contextmanager
    def batch(self) -> Iterator[Batch]:
        """Changes that the index takes in together at the end; after a failure, those that were made."""
        batch = Batch(self._lookup)
        try:
            yield batch
        except BaseException:
            # Should the index fail as well, its next check sees what was written; this error is the first.
            with contextlib.suppress(Exception):
                batch.take_in()
            raise
        batch.take_in()


class _Doomed(NamedTuple):
    """Something that is to be removed: whether it is a folder, and the path of its skill."""

    folder: bool
    skill: str


class Batch:
    """The changes of one call. Every method raises `SkillFSError`, and nothing else.

    Args:
        lookup: Finds what is there.
    """

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._engine = lookup.engine
        self._store = cast(WritableStore, lookup.engine.store)
        self._placing = Placing(lookup)
        self._changed: set[str] = set()
        self._moves: dict[str, str] = {}

    def take_in(self) -> None:
        """Let the index know what was done."""
        changed, moves = self._changed, self._moves
        self._changed, self._moves = set(), {}
        if changed or moves:
            self._engine.written(changed, moves)

    def plan(self, files: Sequence[Asked], folders: Sequence[Asked] = (), *, exclusive: bool = False) -> None:
        """Check, before anything is written, that all of these can be.

        Args:
            files: Paths of files; a `SKILL.md` among them makes a skill for the others.
            folders: Paths of folders that are to be made.
            exclusive: Whether files that are there already are an error.

        Raises:
            SkillFSError: As for `begin` and `make_folder`.
        """
        for asked in files:
            if is_marker(asked):
                self._placing.promise(asked)
        for asked in files:
            if self._placing.file(asked).lies == "file" and exclusive:
                raise exists_error(asked)
        for asked in folders:
            self._placing.new_folder(asked)

    # -- files ---------------------------------------------------------------------------------------------

    def begin(self, asked: Asked, *, exclusive: bool = False, append: bool = False) -> Writing:
        """Begin to write a file, which is to replace the one that lies there.

        Folders that are missing on the way are made.

        Args:
            asked: Its path.
            exclusive: Whether a file that lies there is an error.
            append: Whether to begin with the bytes of the file that lies there.

        Raises:
            AlreadyExistsError: It is to be new and is not.
            IsFolderError: A folder lies there.
            InvalidArgumentError: It would lie in no skill, behind a link, or under a name that is left out.
            NotFoundError: It is out of the caller's sight.
        """
        target = self._placing.file(asked)
        if exclusive and target.lies == "file":
            raise exists_error(asked)
        with failing(asked), self._making(target.folder.path) as made:
            sink = self._store.create(Place(0, target.path), exclusive=exclusive)
            writing = Writing(self._store, asked, target.path, sink, made)
            try:
                if append and target.lies == "file":
                    writing.take_over(Place(0, target.path), keep_watch=True)
            except BaseException:
                sink.discard()
                raise
        return writing

    def write(self, asked: Asked, data: bytes, *, exclusive: bool = False) -> None:
        """Write a file whole; see `begin`."""
        writing = self.begin(asked, exclusive=exclusive)
        try:
            writing.write(data)
            self.commit(writing)
        finally:
            writing.discard()

    def commit(self, writing: Writing) -> None:
        """Make what was written the file at its place; a failure leaves nothing of it.

        Raises:
            AlreadyExistsError: It was to be new, and by now a file lies there.
            ChangedError: It was to be added to, and by now another file lies there.
        """
        made = writing.commit()
        self._made(made)
        self._changed.add(writing.path)
        self._placing.wrote(writing.path)

    def touch(self, asked: Asked, *, truncate: bool) -> None:
        """Make an empty file, or one that is there empty, or (without `truncate`) as if modified just now."""
        target = self._placing.file(asked)
        if truncate or target.lies == "nothing":
            self.write(asked, b"")
            return
        with failing(asked):
            self._store.touch(Place(0, target.path))
        self._changed.add(target.path)

    def copy(self, source: Asked, asked: Asked) -> None:
        """Copy one file to a new entry; of a folder, make one.

        Raises:
            NotFoundError: Nothing that the caller can see is at the source; else as for `begin`.
        """
        row = self._lookup.entry(source, self._placing.access)
        if row.kind != RowKind.FILE:
            self.make_folder(asked, exist_ok=True)
            return
        target = self._placing.file(asked)
        place = Place(0, target.path)
        if row.place == place:
            raise InvalidArgumentError(f"{quoted(source.shown)} and {quoted(asked.shown)} are the same file")
        if row.place.root == 0:
            with failing(source), self._making(target.folder.path) as made:
                self._store.copy(row.place, place)
            self._made(made)
            self._changed.add(target.path)
            self._placing.wrote(target.path)
            return
        writing = self.begin(asked)
        try:
            with failing(source):
                writing.take_over(row.place)
            self.commit(writing)
        finally:
            writing.discard()

    # -- folders -------------------------------------------------------------------------------------------

    def make_folder(self, asked: Asked, *, parents: bool = True, exist_ok: bool = False) -> None:
        """Make a folder inside a skill.

        Args:
            asked: Its path.
            parents: Whether folders that are missing on the way are made.
            exist_ok: Whether a folder that is there is no error.

        Raises:
            AlreadyExistsError: Something lies there.
            NotFoundError: The folder above it is missing, or it is out of the caller's sight.
        """
        folder = self._placing.new_folder(asked)
        if folder.visible:
            if not exist_ok:
                raise exists_error(asked)
            return
        if not parents:
            above = Asked(PathRef(path_of(asked).parts[:-1]), asked.sent, asked.mount)
            if not self._placing.folder(above).exists:
                raise not_found(above.shown)
        with failing(asked), self._making(folder.path) as made:
            pass
        self._made(made)

    def remove_folder(self, asked: Asked) -> None:
        """Remove an empty folder.

        Raises:
            IsFileError: It is a file.
            InvalidArgumentError: It is not empty, a link, or in no skill.
        """
        row = self._placing.own(asked)
        if row.kind == RowKind.FILE:
            raise IsFileError(f"{quoted(asked.shown)} names a file; remove it as one")
        with failing(asked):
            self._store.remove_folder(row.place)
        self._gone(row.path)

    # -- removing ------------------------------------------------------------------------------------------

    def remove(self, many: Sequence[Asked], *, recursive: bool) -> None:
        """Remove files and links, and folders with all that can be seen in them.

        What is left out by its name stays, with the folders that hold it. Everything is checked before
        anything is removed.

        Args:
            many: Their paths.
            recursive: Whether folders are removed.

        Raises:
            IsFolderError: One is a folder, and that is not asked for.
            InvalidArgumentError: One is neither a skill nor in one, or something would be in no skill then.
        """
        doomed: dict[str, _Doomed] = {}
        for asked in many:
            self._doom(asked, recursive, doomed)
        if not doomed:
            return
        mount = many[0].mount
        self._check_left(doomed, mount)
        files = [path for path, item in doomed.items() if not item.folder]
        skills = {path: doomed[path].skill for path in files}
        order = {path: (-_depth(own), own, name_of(path) == SKILL_MD) for path, own in skills.items()}
        try:
            for path in sorted(files, key=order.__getitem__):
                with failing(_asked(path, mount)):
                    try:
                        self._store.remove(Place(0, path))
                    except FileNotFoundError:
                        if not recursive:
                            raise
                self._changed.add(path)
            for path in sorted((p for p, item in doomed.items() if item.folder), key=_depth, reverse=True):
                self._changed.add(path)
                if self._store.holds_empty_folders:
                    self._remove_if_empty(path, mount)
        finally:
            for path in doomed:
                self._placing.removed(path)

    def _remove_if_empty(self, path: str, mount: str) -> None:
        with failing(_asked(path, mount)):
            try:
                self._store.remove_folder(Place(0, path))
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in _NOT_EMPTY:
                    raise

    def _doom(self, asked: Asked, recursive: bool, doomed: dict[str, _Doomed]) -> None:
        link = self._placing.link(asked)
        if link is not None:
            doomed[link[0]] = _Doomed(False, link[1])
            return
        row = self._placing.own(asked)
        assert row.skill is not None
        if row.kind == RowKind.FILE:
            doomed[row.path] = _Doomed(False, row.skill.path)
            return
        if not recursive:
            raise IsFolderError(f"{quoted(asked.shown)} names a folder; pass recursive=True to remove it all")
        # What is there now is to go, not what was there at the last check.
        self._engine.sync(row.path)
        row = self._placing.own(asked)
        assert row.skill is not None
        doomed[row.path] = _Doomed(True, row.skill.path)
        for path, node, skill in self._below(row):
            if node.visible or node.kind == RowKind.LINK:
                doomed[path] = _Doomed(_is_folder(node), skill)

    def _below(self, row: Row) -> list[tuple[str, NodeRow, str]]:
        """What lies below a folder itself, not behind links: path and enclosing skill, parents first."""
        assert row.skill is not None
        at = {row.key: (row.path, row.skill.path)}
        found = []
        for node in self._engine.query(lambda: self._engine.catalog.subtree(row.key)):
            if node.parent not in at:
                continue
            above, skill = at[node.parent]
            path = child(above, node.name)
            if _is_folder(node):
                skill = path if node.kind == RowKind.SKILL else skill
                at[node.key] = (path, skill)
            found.append((path, node, skill))
        return found

    def _check_left(self, doomed: Mapping[str, _Doomed], mount: str, arriving: Target | None = None) -> None:
        """See to it that nothing that can be seen loses its skill and stays.

        Args:
            doomed: What is going to be removed, or moved away.
            mount: Name of the mount.
            arriving: Where a file is going to arrive meanwhile.
        """
        losing = {parent_of(path) for path in doomed if name_of(path) == SKILL_MD}
        for skill in losing:
            if self._has_outer(skill, losing):
                continue
            row = self._placing.row(_asked(skill, mount))
            if row is None or row.skill is None:
                continue
            below = [item for item in self._below(row) if item[1].visible]
            kept = {path for path, node, _ in below if node.kind == RowKind.SKILL and path not in losing}
            leaves = {path for path, _, own in below if own in losing and path not in doomed}
            if arriving is not None and name_of(arriving.path) == SKILL_MD:
                made = parent_of(arriving.path)
                kept.add(made)
                leaves = {path for path in leaves if not is_below(path, made)}
            elif arriving is not None and arriving.folder.skill in losing:
                leaves.add(arriving.path)
            # A folder on the way to a skill can be seen outside skills too.
            if leaves.difference(above for path in kept for above in parents_of(path)):
                shown = quoted(_asked(child(skill, SKILL_MD), mount).shown)
                raise InvalidArgumentError(
                    f"without {shown} the rest of its folder would be in no skill; "
                    "remove or move the whole folder instead, recursively"
                )

    def _has_outer(self, skill: str, losing: set[str]) -> bool:
        """Whether an outer skill, which the caller can see and which stays, takes over what a skill holds."""
        outer: str | None = skill
        while outer is not None and outer in losing:
            outer = self._placing.folder(_asked(parent_of(outer), "")).skill if outer else None
        return outer is not None

    # -- moving --------------------------------------------------------------------------------------------

    def move(self, source: Asked, asked: Asked) -> None:
        """Give a file, or a folder with all it holds, another path; it keeps its identity.

        Onto a folder it goes into that folder, and a file onto a file replaces it.

        Raises:
            AlreadyExistsError: A folder is moved onto a file, or something of its name is in the folder that
                it is moved into.
            InvalidArgumentError: It would be in no skill, in itself, or behind a link.
        """
        if self._placing.link(source) is not None:
            raise link_error(source)
        row = self._placing.own(source)
        assert row.skill is not None
        is_file = row.kind == RowKind.FILE
        asked, into = self._destination(row, asked)
        if is_file:
            target = self._placing.file(asked)
        else:
            target = self._placing.moved_folder(asked, row.kind == RowKind.SKILL)
        if target.path == row.path:
            return
        if not is_file and is_below(target.path, row.path):
            raise InvalidArgumentError(f"{quoted(source.shown)} cannot be moved into itself")
        if target.lies != "nothing" and (into or not is_file):
            raise exists_error(asked)
        if is_file:
            self._check_left({row.path: _Doomed(False, row.skill.path)}, source.mount, target)
        place = Place(0, target.path)
        if not is_file and self._placing.lies(target.path) == "folder":
            with failing(asked):
                self._store.remove_folder(place)  # an empty one that nobody sees, or it is refused
        with failing(source), self._making(target.folder.path) as made:
            self._store.move(row.place, place)
        self._moved(row.path, target.path)
        self._made(made)

    def _destination(self, row: Row, asked: Asked) -> tuple[Asked, bool]:
        """Where a move leads: into the folder that is there, or to the very path."""
        ref = path_of(asked)
        there = self._placing.row(asked)
        if there is not None and there.place == row.place:
            return asked._replace(ref=PathRef(ref.parts)), False
        is_folder = there is not None and there.kind != RowKind.FILE
        into = is_folder or (ref.folder and row.kind == RowKind.FILE)
        parts = (*ref.parts, name_of(row.path)) if into else ref.parts
        return asked._replace(ref=PathRef(parts)), into

    def _moved(self, old: str, new: str) -> None:
        # Moves are told to the index as from where it last saw things.
        origin = next((was + old[len(p) :] for p, was in self._moves.items() if is_below(old, p)), old)
        kept = {p: was for p, was in self._moves.items() if not is_below(p, new)}
        along = {p: was for p, was in kept.items() if is_below(p, old)}
        self._moves = {p: was for p, was in kept.items() if p not in along}
        self._moves[new] = origin
        self._moves.update({new + p[len(old) :]: was for p, was in along.items() if p != old})
        self._changed.update((old, new))
        self._placing.removed(old)
        self._placing.wrote(new)

    # -- inner ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _making(self, path: str) -> Iterator[list[str]]:
        """Make a folder and those above it that are missing; they go again when what follows fails."""
        missing = []
        while path and self._store.holds_empty_folders and self._placing.lies(path) != "folder":
            missing.append(path)
            path = parent_of(path)
        made: list[str] = []
        try:
            for folder in reversed(missing):
                with contextlib.suppress(FileExistsError):  # made by another, just now
                    self._store.make_folder(Place(0, folder))
                    made.append(folder)
            yield made
        except BaseException:
            unmake(self._store, made)
            raise

    def _made(self, folders: list[str]) -> None:
        self._changed.update(folders)
        self._placing.made(folders)

    def _gone(self, path: str) -> None:
        self._changed.add(path)
        self._placing.removed(path)


def is_marker(asked: Asked) -> bool:
    """Whether a path is that of a file that makes its folder a skill."""
    return path_of(asked).parts[-1:] == (SKILL_MD,)


def _asked(path: str, mount: str) -> Asked:
    return Asked(PathRef(tuple(path.split("/")) if path else ()), path, mount)


def _is_folder(node: NodeRow) -> bool:
    """Whether a node is a folder itself, and no link to one."""
    return node.kind in (RowKind.FOLDER, RowKind.SKILL) and node.target is None


def _depth(path: str) -> int:
    return path.count("/") + 1 if path else 0
