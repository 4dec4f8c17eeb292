"""Where something may be written.

Everything lies in a skill that the caller may see, or makes a skill. What the caller may not see is the same
`not_found` that reading gives, whatever lies there. Nothing is written through a link, and nothing under a
name that is left out of skills, which could not be read back.
"""

from __future__ import annotations

import errno
from typing import Literal, NamedTuple, TypeAlias, cast

from skillfs.core.model import Place
from skillfs.core.refs import PathRef, is_below
from skillfs.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    IsFileError,
    IsFolderError,
    NotFoundError,
    SkillFSError,
    not_found,
    quoted,
)
from skillfs.index.rows import Row, RowKind
from skillfs.lookup import Asked, Lookup
from skillfs.stores.base import Listed, Store, WritableStore
from skillfs.sync.reconcile import parents_of
from skillfs.sync.scan import SKILL_MD, is_left_out

__all__ = [
    "Folder",
    "Lies",
    "Placing",
    "Target",
    "child",
    "exists_error",
    "link_error",
    "path_of",
]

Lies: TypeAlias = Literal["nothing", "file", "folder", "link", "other"]
"""What lies at a path."""


class Folder(NamedTuple):
    """A folder that something is to be written in, as a caller meets it.

    Attributes:
        path: Store path, as the store spells it.
        skill: Path of the enclosing skill, if the caller may see that.
        exists: Whether it is there.
        visible: Whether the caller can see it.
        key: Key of its row, where it can be seen.
        foreign: Whether it lies in a skill that is out of bounds.
        blocked: Whether something that is no folder lies there or on the way, out of the caller's sight.
    """

    path: str
    skill: str | None
    exists: bool
    visible: bool
    key: int | None
    foreign: bool
    blocked: bool = False


class Target(NamedTuple):
    """Where something is to be written.

    Attributes:
        path: Store path.
        folder: The folder that holds it.
        lies: What lies there now.
    """

    path: str
    folder: Folder
    lies: Lies


class Placing:
    """Finds and checks places, and remembers what has been made at them meanwhile.

    What a call itself has done is not in the index before its end, and is known from here.

    Args:
        lookup: Finds what is there.

    Attributes:
        access: What the caller may see.
    """

    def __init__(self, lookup: Lookup) -> None:
        self.access = lookup.access()
        self._lookup = lookup
        self._engine = lookup.engine
        self._catalog = lookup.catalog
        self._store = cast(WritableStore, lookup.engine.store)
        self._folders: dict[tuple[str, ...], Folder] = {}
        self._made: set[str] = set()
        self._skills: set[str] = set()
        self._clear: set[str] = set()

    # -- what is to be written -----------------------------------------------------------------------------

    def file(self, asked: Asked) -> Target:
        """Where a file is to be written.

        Raises:
            InvalidArgumentError: Its name is left out, it would lie in no skill, or a link is in the way.
            IsFolderError: A folder lies there.
            NotFoundError: It is out of the caller's sight.
        """
        parts = path_of(asked).parts
        if not parts or path_of(asked).folder:
            raise IsFolderError(f"{quoted(asked.shown)} names a folder; write to a file in it")
        self._check_names(asked, is_folder=False)
        folder = self.folder(_at(asked, parts[:-1]))
        if self.enclosing(folder) is None:
            if parts[-1] != SKILL_MD or not self._may_be_skill(folder.path, folder.foreign and folder.exists):
                raise self._outside(asked, folder)
            if folder.blocked or not self._is_clear(folder.path):
                raise self._not_new(asked)
        elif folder.blocked:
            raise self._not_new(asked)
        self._check_new_folders(asked, len(parts) - 1)
        path = child(folder.path, self._spelled(folder, parts[-1]))
        lies = self.lies(path) if folder.exists else "nothing"
        if lies == "folder":
            raise IsFolderError(f"{quoted(asked.shown)} names a folder; write to a file in it")
        if lies == "link":
            raise link_error(asked)
        if lies == "other":
            raise InvalidArgumentError(
                f"what lies at {quoted(asked.shown)} is neither a file nor a folder; choose another name"
            )
        return Target(path, folder, lies)

    def promise(self, asked: Asked) -> None:
        """Count the folder of a `SKILL.md` that is going to be written as a skill; raises as `file` does."""
        self._skills.add(self.file(asked).folder.path)

    def expect(self, asked: Asked) -> None:
        """The same for one of which this was checked before."""
        self._skills.add(self.folder(_at(asked, path_of(asked).parts[:-1])).path)

    def new_folder(self, asked: Asked) -> Folder:
        """A folder that is to be made, or is there.

        Raises:
            AlreadyExistsError: A file lies there.
            InvalidArgumentError: A name is left out, it would lie in no skill, or a link is in the way.
            NotFoundError: It is out of the caller's sight.
        """
        self._check_names(asked, is_folder=True)
        try:
            folder = self.folder(asked)
        except IsFileError:
            self.folder(_at(asked, path_of(asked).parts[:-1]))  # unless the file is on the way there
            raise exists_error(asked) from None
        # Folders on the way to a skill that is going to be written are made with it.
        leads = any(is_below(skill, folder.path) for skill in self._skills)
        if not folder.visible and self.enclosing(folder) is None and not leads:
            raise self._outside(asked, folder)
        if folder.blocked:
            raise self._not_new(asked)
        self._check_new_folders(asked, len(path_of(asked).parts))
        return folder

    def moved_folder(self, asked: Asked, is_skill: bool) -> Target:
        """Where a folder is to be moved to; raises as `new_folder` does.

        Args:
            asked: The path.
            is_skill: Whether it brings its own `SKILL.md`.
        """
        parts = path_of(asked).parts
        self._check_names(asked, is_folder=True)
        folder = self.folder(_at(asked, parts[:-1]))
        path = child(folder.path, self._spelled(folder, parts[-1]))
        is_outside = self.enclosing(folder) is None
        if is_outside and not (is_skill and self._may_be_skill(path, foreign=False)):
            raise self._outside(asked, folder)
        lies = self.lies(path) if folder.exists else "nothing"
        if self.row(asked) is None:
            # An empty folder that nobody sees, as it may be left of a skill that was removed, gives way.
            if folder.blocked or (
                is_outside and not (lies in ("nothing", "folder") and self._is_empty(path))
            ):
                raise self._not_new(asked)
            lies = "nothing" if lies == "folder" else lies
        self._check_new_folders(asked, len(parts), is_new=True)
        return Target(path, folder, lies)

    # -- what is there -------------------------------------------------------------------------------------

    def row(self, asked: Asked) -> Row | None:
        """What the caller can see at a path; None when that is nothing."""
        try:
            return self._lookup.entry(_at(asked, path_of(asked).parts), self.access, hint=False)
        except NotFoundError:
            return None

    def own(self, asked: Asked) -> Row:
        """An entry that is itself a skill or in one.

        Raises:
            NotFoundError: Nothing that the caller can see is there.
            InvalidArgumentError: It is the root, only leads to skills, or a link is in the way.
        """
        row = self._lookup.entry(asked, self.access)
        if self.is_linked(asked, row):
            raise link_error(asked)
        if not row.path:
            raise InvalidArgumentError("the root of a store stays as it is; name what is in it")
        if row.skill is None:
            raise InvalidArgumentError(
                f"{quoted(asked.shown)} is no skill and only leads to some; name the skills themselves"
            )
        return row

    def link(self, asked: Asked) -> tuple[str, str] | None:
        """A link that can be seen in a skill: its path, and that of the skill; None when there is none.

        Raises:
            NotFoundError: Nothing that the caller can see is there.
        """
        ref = path_of(asked)
        self._lookup.entry(asked, self.access)
        if not ref.parts or ref.folder:
            return None
        folder = self.folder(_at(asked, ref.parts[:-1]))
        path = child(folder.path, ref.parts[-1])
        return (path, folder.skill) if folder.skill is not None and self.lies(path) == "link" else None

    def is_linked(self, asked: Asked, row: Row) -> bool:
        """Whether a row lies elsewhere than the path says that was asked for."""
        return asked.linked(row) or row.place != Place(0, row.path)

    def lies(self, path: str) -> Lies:
        """What lies at a path, be it visible or not; of a remote store, as far as is known."""
        if path in self._made:
            return "folder"
        place = Place(0, path)
        if self._store.remote:
            row = self._engine.query(lambda: self._catalog.by_path(path.split("/") if path else ()))
            if row is None:
                return "nothing"
            return "file" if row.kind == RowKind.FILE else "folder"
        regular = self._store.is_regular(place)
        if regular is not False:
            return "link" if regular is None else "file"
        if not self._store.exists(place):
            return "nothing"
        try:
            with self._store.folder(place):
                return "folder"
        except OSError as error:
            return "other" if error.errno == errno.ENOTDIR else "folder"

    def folder(self, asked: Asked) -> Folder:
        """What is known of a folder that something is to be written in.

        Raises:
            IsFileError: A file lies there, or on the way.
            InvalidArgumentError: A link or something else does.
        """
        parts = path_of(asked).parts
        found = self._folders.get(parts)
        if found is None:
            found = self._folders[parts] = self._find_folder(_at(asked, parts))
        if not found.exists and found.path in self._made:
            return found._replace(exists=True, visible=True)
        return found

    def _find_folder(self, asked: Asked) -> Folder:
        parts = path_of(asked).parts
        above = self.folder(_at(asked, parts[:-1])) if parts else None
        row = None
        if above is None:
            row = self._lookup.entry(asked, self.access)
        elif above.exists and above.path not in self._made:
            row = self.row(asked)
        if row is not None:
            if self.is_linked(asked, row):
                raise link_error(asked)
            if row.kind == RowKind.FILE:
                raise IsFileError(f"{quoted(asked.shown)} names a file, and nothing can lie in it")
            skill = None if row.skill is None else row.skill.path
            key = row.key
            # What only leads to skills for this caller may be a folder of a skill that is out of bounds.
            real = self._engine.query(lambda: self._catalog.by_key(key)) if skill is None else None
            return Folder(row.path, skill, True, True, key, real is not None and real.skill is not None)
        assert above is not None
        path = child(above.path, self._spelled(above, parts[-1]))
        lies = self.lies(path) if above.exists else "nothing"
        blocked = lies not in ("nothing", "folder")
        if blocked and above.skill is not None:
            if lies == "link":
                raise link_error(asked)
            raise InvalidArgumentError(f"{quoted(asked.shown)} is no folder; choose another path")
        return Folder(
            path, above.skill, lies == "folder", False, None, above.foreign, blocked or above.blocked
        )

    # -- what was done -------------------------------------------------------------------------------------

    def made(self, folders: list[str]) -> None:
        """Remember folders that were made."""
        self._made.update(folders)

    def wrote(self, path: str) -> None:
        """Remember a file that was written."""
        above, _, name = path.rpartition("/")
        if name == SKILL_MD:
            self._skills.add(above)

    def removed(self, path: str) -> None:
        """Remember that something is gone from a path, with all that lay below it."""
        self._folders.clear()
        self._made = {folder for folder in self._made if not is_below(folder, path)}
        self._skills = {skill for skill in self._skills if not is_below(skill, path)}
        self._clear.clear()

    # -- rules ---------------------------------------------------------------------------------------------

    def _check_names(self, asked: Asked, *, is_folder: bool) -> None:
        ignore = self._engine.ignore
        *above, name = path_of(asked).parts or ("",)
        for folder in [*above, name] if is_folder else above:
            if ignore.ignores_folder(folder):
                raise _left_out(asked, folder)
        reason = None if is_folder else ignore.reason(name)
        if reason is not None:
            raise _left_out(asked, name, secret=reason == "secret")

    def _check_new_folders(self, asked: Asked, depth: int, *, is_new: bool = False) -> None:
        """See to it that no folder is made that is called as the file which makes a skill is."""
        parts = path_of(asked).parts[:depth]
        for number, name in enumerate(parts, 1):
            if name == SKILL_MD and (
                (is_new and number == depth) or not self.folder(_at(asked, parts[:number])).exists
            ):
                raise InvalidArgumentError(
                    f"{quoted(asked.shown)} would make a folder named SKILL.md, which only a file may be; "
                    "choose another name"
                )

    def enclosing(self, folder: Folder) -> str | None:
        """Path of the skill that encloses a folder, be it written already or be it going to be."""
        if folder.skill is not None and not self._skills:
            return folder.skill
        above = (folder.path, *parents_of(folder.path), "")
        own = next((path for path in above if path in self._skills), None)
        return max((p for p in (own, folder.skill) if p is not None), key=len, default=None)

    def _is_clear(self, path: str) -> bool:
        """Whether a folder in no skill holds nothing that is out of sight now and would not be in a skill.

        Who makes a skill may not get to see, and to remove, what lay there before.
        """
        if path in self._clear:
            return True
        store = self._store.look((path,))
        pending = [path] if store.exists(Place(0, path)) else []
        while pending:
            at = pending.pop()
            listed = self._listed(store, at)
            if listed is None:
                return False
            if self._is_marked(store, at, listed):
                continue  # all of it can be seen
            names = (*listed.files, *listed.links, *listed.special)
            if listed.undecodable or any(self._engine.ignore.reason(name) is None for name in names):
                return False
            folders = [name for name in listed.folders if not self._engine.ignore.ignores_folder(name)]
            if not folders and at != path:
                return False  # leads to no skill, so that nobody sees it
            pending += (child(at, name) for name in folders)
        self._clear.add(path)
        return True

    def _is_empty(self, path: str) -> bool:
        """Whether nothing at all lies below a path."""
        store = self._store.look((path,))
        if not store.exists(Place(0, path)):
            return True
        listed = self._listed(store, path)
        return listed is not None and not any(listed)

    def _listed(self, store: Store, path: str) -> Listed | None:
        try:
            with store.folder(Place(0, path)) as handle:
                return handle.entries()
        except OSError:
            return None

    def _is_marked(self, store: Store, folder: str, listed: Listed) -> bool:
        if SKILL_MD in listed.files:
            return True
        if SKILL_MD not in listed.links:
            return False
        target = store.resolve(Place(0, folder).child(SKILL_MD))
        return (
            isinstance(target, Place)
            and not is_left_out(store, self._engine.ignore, target)
            and store.is_regular(target) is True
        )

    def _may_be_skill(self, path: str, foreign: bool) -> bool:
        # A folder of an outer skill that is out of bounds would bring what it holds into bounds with it.
        return self.access.allows(path) and not foreign

    def _outside(self, asked: Asked, folder: Folder) -> SkillFSError:
        """The error for what would lie in no skill; where none can be made, the one that reading has."""
        if self._may_be_skill(folder.path, folder.foreign):
            return InvalidArgumentError(
                f"{quoted(asked.shown)} would lie in no skill; write the SKILL.md of its folder first, "
                "or choose a path in a skill"
            )
        self._lookup.entry(asked, self.access)
        return not_found(asked.shown)

    def _not_new(self, asked: Asked) -> SkillFSError:
        """The error for a skill where something lies that the caller does not see."""
        if self.access.restricted:
            self._lookup.entry(asked, self.access)
            return not_found(asked.shown)
        return InvalidArgumentError(f"no skill can be made at {quoted(asked.shown)}; choose a new folder")

    def _spelled(self, folder: Folder, name: str) -> str:
        """A name as the store spells it: a look-up takes those that are equal under NFC for one."""
        key = folder.key
        if name.isascii() or key is None or self.lies(child(folder.path, name)) != "nothing":
            return name
        names = self._engine.query(lambda: self._catalog.equal_under_nfc(key, name))
        if len(names) > 1:
            raise InvalidArgumentError(
                f"the name {quoted(name)} is ambiguous: {len(names)} entries are equal to it under NFC; "
                "write it as a listing does"
            )
        return names[0] if names else name


def path_of(asked: Asked) -> PathRef:
    """The path that was asked for."""
    assert isinstance(asked.ref, PathRef)
    return asked.ref


def child(folder: str, name: str) -> str:
    """The path of a name in a folder."""
    return f"{folder}/{name}" if folder else name


def exists_error(asked: Asked) -> AlreadyExistsError:
    """The error for what is to be new and is not."""
    shown = quoted(asked.shown)
    return AlreadyExistsError(f"{shown} is there already; remove it first, or choose another path")


def link_error(asked: Asked) -> InvalidArgumentError:
    """The error for what is a link, or lies behind one."""
    return InvalidArgumentError(
        f"{quoted(asked.shown)} is a link or leads through one; write to what it points to"
    )


def _at(asked: Asked, parts: tuple[str, ...]) -> Asked:
    """Another path below the same mount; an error echoes that path."""
    return Asked(PathRef(parts), asked.sent, asked.mount)


def _left_out(asked: Asked, name: str, *, secret: bool = False) -> InvalidArgumentError:
    why = "looks like that of a secret and" if secret else "is one that"
    return InvalidArgumentError(
        f"{quoted(asked.shown)} cannot be written: the name {quoted(name)} {why} is left out of skills, "
        "and could not be read back; choose another, and leave it out of a folder that is written whole"
    )
