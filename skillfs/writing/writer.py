"""Writing: the one way in which a store is changed.

All that one call does is one batch, which the index takes in when it ends, however it ends. Nothing that can
be seen is without a skill on the way: a `SKILL.md` comes first and goes last.
"""

from __future__ import annotations

import contextlib
import errno
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from skillfs.core.model import Place
from skillfs.core.refs import PathRef, is_below
from skillfs.errors import (
    InvalidArgumentError,
    IsFileError,
    ReadOnlyError,
    SkillFSError,
    StoreUnavailableError,
    not_found,
    quoted,
)
from skillfs.index.rows import Row, RowKind
from skillfs.lookup import Asked, Lookup
from skillfs.stores.base import WritableStore
from skillfs.stores.local_writing import LocalWriting
from skillfs.sync.reconcile import name_of, parent_of, parents_of
from skillfs.sync.scan import SKILL_MD
from skillfs.writing.pending import Writing, changed_error, failing, failing_between, unmake
from skillfs.writing.placing import Placing, Target, child, exists_error, link_error, path_of
from skillfs.writing.removal import Doomed, Removal, asked_at

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
        """Changes that the index takes in together at the end; after a failure, those that were made.

        Raises:
            StoreUnavailableError: Not all of it could be brought to the disk.
        """
        batch = Batch(self._lookup)
        store = self._lookup.engine.store
        flushing = contextlib.ExitStack()
        if isinstance(store, LocalWriting):
            flushing.enter_context(store.together())
        try:
            yield batch
        except BaseException:
            # Should the index fail as well, its next check sees what was written; this error is the first.
            with contextlib.suppress(Exception):
                batch.take_in()
            with contextlib.suppress(OSError):
                flushing.close()
            raise
        try:
            batch.take_in()
        finally:
            _flush(flushing)


def _flush(flushing: contextlib.ExitStack) -> None:
    try:
        flushing.close()
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise StoreUnavailableError(
            f"what was written may not be on the disk ({why}); look at it, and write it again"
        ) from error


class Batch:
    """The changes of one call. Every method raises `SkillFSError`, and nothing else.

    Args:
        lookup: Finds what is there.

    Attributes:
        engine: Store and index.
        store: The store.
        placing: Where something may be written.
        removal: What may be removed.
        made: Folders that were made so far, those above first.
    """

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self.engine = lookup.engine
        self.store = cast(WritableStore, lookup.engine.store)
        self.placing = Placing(lookup)
        self.removal = Removal(lookup, self.placing)
        self.made: list[str] = []
        self._changed: set[str] = set()
        self._moves: dict[str, str] = {}

    def take_in(self) -> None:
        """Let the index know what was done."""
        changed, moves = self._changed, self._moves
        self._changed, self._moves = set(), {}
        if changed or moves:
            self.engine.written(changed, moves)

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
                self.placing.promise(asked)
        targets: dict[str, Asked] = {}
        for asked in files:
            target = self.placing.file(asked)
            if target.lies == "file" and exclusive:
                raise exists_error(asked)
            targets[target.path] = asked
        made = {self.placing.new_folder(asked).path: asked for asked in folders}
        _check_together(targets, made)

    def expect(self, many: Iterable[Asked]) -> None:
        """Count on `SKILL.md` files that were planned before and are going to be written."""
        for asked in many:
            self.placing.expect(asked)

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
        target = self.placing.file(asked)
        if exclusive and target.lies == "file":
            raise exists_error(asked)
        with failing(asked), self._making(target.folder.path) as made:
            sink = self.store.create(Place(0, target.path), exclusive=exclusive)
            try:
                writing = Writing(
                    *(self.store, asked, target.path, sink, made),
                    skill=None if is_marker(asked) else self.placing.enclosing(target.folder),
                    folder=self._name_of_folder(target.folder.path),
                )
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

    def commit(self, writing: Writing, *, late: bool = False) -> None:
        """Make what was written the file at its place; a failure leaves nothing of it.

        Args:
            writing: What was written.
            late: Whether it was begun in an earlier batch.

        Raises:
            AlreadyExistsError: It was to be new, and by now a file lies there.
            ChangedError: It was to be added to, and by now another file lies there; or its place is gone, or
                is in no skill any more.
        """
        # What is known of a remote store says nothing about what this batch has done so far.
        if (late or not self.store.remote) and not self._has_its_place(writing):
            self._give_up(writing)
            raise changed_error(writing.asked)
        made = writing.commit()
        self._made(made)
        self._changed.add(writing.path)
        self.placing.wrote(writing.path)

    def _name_of_folder(self, path: str) -> bytes:
        """What names a folder itself, wherever it is moved; empty where nothing does."""
        state = None if self.store.remote else self.store.state(Place(0, path))
        return b"" if state is None else self.store.inode(state.signature)

    def _has_its_place(self, writing: Writing) -> bool:
        """Whether a file would still lie where it was to lie, and in a skill."""
        if self._name_of_folder(parent_of(writing.path)) != writing.folder:
            return False
        skill = writing.skill
        if not self.store.remote and (
            skill is None or self.store.is_regular(Place(0, child(skill, SKILL_MD))) is not False
        ):
            return True  # which is quick to see, and nearly always so
        try:
            return Placing(self._lookup).file(writing.asked).path == writing.path
        except SkillFSError:
            return False

    def _give_up(self, writing: Writing) -> None:
        """Leave nothing of a file whose place is gone, nor what is left of its skill for its sake."""
        writing.discard()
        at = parent_of(writing.path)
        while at and self.placing.row(asked_at(at, writing.asked.mount)) is None:
            try:
                self.store.remove_folder(Place(0, at))
                self._changed.add(at)
            except FileNotFoundError:
                pass
            except OSError:
                return
            at = parent_of(at)

    def touch(self, asked: Asked, *, truncate: bool) -> None:
        """Make an empty file, or one that is there empty, or (without `truncate`) as if modified just now."""
        target = self.placing.file(asked)
        if truncate or target.lies == "nothing":
            self.write(asked, b"")
            return
        with failing(asked):
            self.store.touch(Place(0, target.path))
        self._changed.add(target.path)

    def copy(self, source: Asked, asked: Asked) -> None:
        """Copy one file to a new entry; of a folder, make one.

        Raises:
            NotFoundError: Nothing that the caller can see is at the source; else as for `begin`.
        """
        row = self._lookup.entry(source, self.placing.access)
        if row.kind != RowKind.FILE:
            self.make_folder(asked, exist_ok=True)
            return
        target = self.placing.file(asked)
        place = Place(0, target.path)
        if row.place == place:
            raise InvalidArgumentError(f"{quoted(source.shown)} and {quoted(asked.shown)} are the same file")
        if row.place.root == 0:
            between = failing_between(source, row.path, asked, reading=True)
            with between, self._making(target.folder.path) as made:
                self.store.copy(row.place, place)
            self._made(made)
            self._changed.add(target.path)
            self.placing.wrote(target.path)
            return
        writing = self.begin(asked)
        try:
            with failing(source, reading=True):
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
        folder = self.placing.new_folder(asked)
        if folder.visible:
            if not exist_ok:
                raise exists_error(asked)
            return
        if not parents:
            above = Asked(PathRef(path_of(asked).parts[:-1]), asked.sent, asked.mount)
            if not self.placing.folder(above).exists:
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
        row = self.placing.own(asked)
        if row.kind == RowKind.FILE:
            raise IsFileError(f"{quoted(asked.shown)} names a file; remove it as one")
        with failing(asked):
            self.store.remove_folder(row.place)
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
        doomed: dict[str, Doomed] = {}
        for asked in many:
            self.removal.doom(asked, recursive, doomed)
        if not doomed:
            return
        mount = many[0].mount
        self.removal.check_left(doomed, mount)
        files = [path for path, item in doomed.items() if not item.folder]
        skills = {path: doomed[path].skill for path in files}
        order = {path: (-_depth(own), own, name_of(path) == SKILL_MD) for path, own in skills.items()}
        try:
            for path in sorted(files, key=order.__getitem__):
                with failing(asked_at(path, mount)):
                    try:
                        self.store.remove(Place(0, path))
                    except FileNotFoundError:
                        if not recursive:
                            raise
                self._changed.add(path)
            for path in sorted((p for p, item in doomed.items() if item.folder), key=_depth, reverse=True):
                self._changed.add(path)
                if self.store.holds_empty_folders:
                    self._remove_if_empty(path, mount)
        finally:
            for path in doomed:
                self.placing.removed(path)

    def _remove_if_empty(self, path: str, mount: str) -> None:
        with failing(asked_at(path, mount)):
            try:
                self.store.remove_folder(Place(0, path))
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in _NOT_EMPTY:
                    raise

    # -- moving --------------------------------------------------------------------------------------------

    def move(self, source: Asked, asked: Asked) -> None:
        """Give a file, or a folder with all it holds, another path; it keeps its identity.

        Onto a folder it goes into that folder, and a file onto a file replaces it.

        Raises:
            AlreadyExistsError: A folder is moved onto a file, or something of its name is in the folder that
                it is moved into.
            InvalidArgumentError: It would be in no skill, in itself, or behind a link.
        """
        if self.placing.link(source) is not None:
            raise link_error(source)
        row = self.placing.own(source)
        assert row.skill is not None
        is_file = row.kind == RowKind.FILE
        asked, target, is_new = self.destination(row, asked)
        if target.path == row.path:
            return
        if not is_file and is_below(target.path, row.path):
            raise InvalidArgumentError(f"{quoted(source.shown)} cannot be moved into itself")
        if not is_new:
            raise exists_error(asked)
        if is_file:
            self.removal.check_left({row.path: Doomed(False, row.skill.path)}, source.mount, target)
        else:
            self.removal.check_links(row.path, target.path, source)
        between = failing_between(source, row.path, asked, reading=False)
        with between, self._making(target.folder.path) as made:
            self.store.move(row.place, Place(0, target.path))
        self._moved(row.path, target.path)
        self._made(made)

    def destination(self, row: Row, asked: Asked, *, elsewhere: bool = False) -> tuple[Asked, Target, bool]:
        """Where a move leads: into the folder that is there, or to the very path.

        Args:
            row: What is to be moved.
            asked: Where to.
            elsewhere: Whether it comes from another store.

        Returns:
            The path, what lies there, and whether it may be moved there as far as that goes.
        """
        ref = path_of(asked)
        there = self.placing.row(asked)
        into = False
        if there is None or elsewhere or there.place != row.place:
            is_folder = there is not None and there.kind != RowKind.FILE
            into = is_folder or (ref.folder and row.kind == RowKind.FILE)
        asked = asked._replace(ref=PathRef((*ref.parts, name_of(row.path)) if into else ref.parts))
        if row.kind == RowKind.FILE:
            target = self.placing.file(asked)
        else:
            target = self.placing.moved_folder(asked, row.kind == RowKind.SKILL)
        may_replace = row.kind == RowKind.FILE and not into
        return asked, target, target.lies == "nothing" or may_replace

    def _moved(self, old: str, new: str) -> None:
        # Moves are told to the index as from where it last saw things.
        origin = next((was + old[len(p) :] for p, was in self._moves.items() if is_below(old, p)), old)
        kept = {p: was for p, was in self._moves.items() if not is_below(p, new)}
        along = {p: was for p, was in kept.items() if is_below(p, old)}
        self._moves = {p: was for p, was in kept.items() if p not in along}
        self._moves[new] = origin
        self._moves.update({new + p[len(old) :]: was for p, was in along.items() if p != old})
        self._changed.update((old, new))
        self.placing.removed(old)
        self.placing.wrote(new)

    # -- inner ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _making(self, path: str) -> Iterator[list[str]]:
        """Make a folder and those above it that are missing; they go again when what follows fails."""
        missing = []
        while path and self.store.holds_empty_folders and self.placing.lies(path) != "folder":
            missing.append(path)
            path = parent_of(path)
        made: list[str] = []
        try:
            for folder in reversed(missing):
                with contextlib.suppress(FileExistsError):  # made by another, just now
                    self.store.make_folder(Place(0, folder))
                    made.append(folder)
            yield made
        except BaseException:
            unmake(self.store, made)
            raise

    def changed(self, paths: Iterable[str]) -> None:
        """Note store paths at which something was changed by other means."""
        for path in paths:
            self._changed.add(path)
            self.placing.removed(path)

    def _made(self, folders: list[str]) -> None:
        self.made.extend(folders)
        self._changed.update(folders)
        self.placing.made(folders)

    def _gone(self, path: str) -> None:
        self._changed.add(path)
        self.placing.removed(path)


def is_marker(asked: Asked) -> bool:
    """Whether a path is that of a file that makes its folder a skill."""
    return path_of(asked).parts[-1:] == (SKILL_MD,)


def _check_together(files: Mapping[str, Asked], folders: Mapping[str, Asked]) -> None:
    """See to it that what is written together can lie beside one another.

    Args:
        files: Store paths, with what the caller calls them.
        folders: The same of folders.
    """
    spelled: dict[str, str] = {}
    for path, asked in (*files.items(), *folders.items()):
        above = parents_of(path)
        if path in folders and path in files:
            above.append(path)
        for folder in above:
            if folder in files:
                shown = quoted(files[folder].shown)
                raise InvalidArgumentError(
                    f"{shown} would be a file, and {quoted(asked.shown)} needs a folder there; rename one"
                )
        if path.isascii():
            continue
        for name in (path, *above):
            if spelled.setdefault(unicodedata.normalize("NFC", name), name) != name:
                raise InvalidArgumentError(
                    f"{quoted(asked.shown)} is equal to another path of this call under NFC; rename one"
                )


def _depth(path: str) -> int:
    return path.count("/") + 1 if path else 0
