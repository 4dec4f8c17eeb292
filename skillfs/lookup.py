"""From a caller's reference to an entry that this caller may see.

Everything that may not be seen ends in the same `not_found`, whether it is missing, outside every skill or
outside the base paths. A look-up is checked against the store at the moment of the call: a few `lstat` where
index and store agree, and a fresh look at one folder where they do not.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import NamedTuple, TypeVar

from skillfs.access import Access
from skillfs.core.digest import id_of_uuid
from skillfs.core.model import Place
from skillfs.core.refs import (
    HashRef,
    IdRef,
    NameRef,
    PathRef,
    Ref,
    UuidRef,
    below_mount,
    below_root,
    parse_path,
    parse_ref,
    printable_path,
)
from skillfs.errors import (
    InvalidArgumentError,
    IsFileError,
    IsFolderError,
    NotIndexedError,
    SkillFSError,
    not_found,
    quoted,
)
from skillfs.index.catalog import Catalog
from skillfs.index.rows import Row, RowKind, Visibility
from skillfs.locked import LockedStore, names_of_skills
from skillfs.sync.engine import Engine
from skillfs.sync.reconcile import parents_of
from skillfs.sync.scan import SKILL_MD, is_left_out

__all__ = ["Access", "Asked", "Lookup", "list_of_bases"]

T = TypeVar("T")

MOST_BASES = 10_000
MOST_NEIGHBOURS = 250
"""Names before a wrong one, and after it, among which a near miss is looked for."""

# What Unicode normalisation makes of one single other character: the Greek question mark and varia, and the
# sign of the kelvin. A name in ASCII without any of these is equal to no other.
_FROM_OTHERS = frozenset(";`K")

_MOST_STEPS = 40
"""Most links, other spellings and fresh looks on the way to one entry: a loop of links ends here."""


class Asked(NamedTuple):
    """A reference, parsed, with what the caller sent; a path is one below a mount, which may be named."""

    ref: Ref
    sent: object
    mount: str = ""

    @property
    def shown(self) -> object:
        """What an error echoes; of a path what lies below the root, which no message gives away."""
        if not isinstance(self.ref, PathRef):
            return self.sent
        return printable_path(below_mount(self.mount, self.ref.path))

    def shown_without(self, roots: Sequence[str]) -> object:
        """The same of what is not there; behind `skill://` or without its slash it may begin with a root."""
        if not isinstance(self.ref, PathRef):
            return self.sent
        return printable_path(below_mount(self.mount, below_root(self.ref.path, roots)))

    def linked(self, row: Row) -> bool:
        """Whether a link led from the path that was asked for to a row; another spelling of it is none."""
        if not isinstance(self.ref, PathRef) or (path := self.ref.path) == row.path:
            return False
        return unicodedata.normalize("NFC", path) != unicodedata.normalize("NFC", row.path)


_EVERYTHING = Access()


def list_of_bases(base_paths: object) -> list[object]:
    """The folders that `base_paths` names, not looked at yet.

    Raises:
        InvalidArgumentError: It is no list, or too long a one.
    """
    if isinstance(base_paths, str | bytes | Mapping) or not isinstance(base_paths, Iterable):
        given = "one string" if isinstance(base_paths, str) else quoted(base_paths)
        raise InvalidArgumentError(f"base_paths takes a list of folders, not {given}")
    bases = list(islice(base_paths, MOST_BASES + 1))
    if len(bases) > MOST_BASES:
        raise InvalidArgumentError(
            f"base_paths holds over {MOST_BASES:,} folders; pass folders further up instead"
        )
    return bases


class Lookup:
    """Resolves references against one engine.

    Args:
        engine: Store and index.
        base_paths: Folders that every call is confined to; None for no restriction.
        max_age: Seconds that a check of the store holds where names and contents are searched.
        mount: Name of the mount, which messages put before paths; empty where the store is alone.
        locked: What a lock names of the store; None without one.

    Raises:
        InvalidArgumentError: `base_paths` is malformed.
        NotFoundError: A base is not there.
        IsFileError: A base is a file.
    """

    def __init__(
        self,
        engine: Engine,
        base_paths: Sequence[object] | None,
        max_age: float,
        mount: str = "",
        locked: LockedStore | None = None,
    ) -> None:
        self.engine = engine
        self.locked = locked
        self._mount = mount
        self._max_age = max_age
        self._is_rooted = engine.store.is_rooted
        self._bases: tuple[Ref, ...] | None = None
        self._own: tuple[int | None, Access] | None = None
        if base_paths is not None:
            asked = self._parse_bases(base_paths)
            self._resolve_bases(asked, _EVERYTHING)
            self._bases = tuple(base.ref for base in asked)

    @property
    def catalog(self) -> Catalog:
        """The rows of the index."""
        return self.engine.catalog

    # -- base paths ----------------------------------------------------------------------------------------

    def access(self, base_paths: Sequence[object] | None = None) -> Access:
        """What a call with these base paths may see, within what the filesystem itself is confined to.

        Raises:
            InvalidArgumentError: `base_paths` is no list, or an item is malformed.
            NotFoundError: A base is not there.
            IsFileError: A base is a file.
        """
        own = _EVERYTHING if self._bases is None else self._own_access(self._bases)
        if base_paths is None:
            return own
        return own.within(self._resolve_bases(self._parse_bases(base_paths), own))

    def _own_access(self, bases: tuple[Ref, ...]) -> Access:
        """What the filesystem is confined to: kept while nothing is written, as hundreds of bases cost."""
        stamp = self.engine.query(self.catalog.stamp)
        kept = self._own
        if kept is not None and stamp is not None and kept[0] == stamp:
            return kept[1]
        paths = [self._base_now(ref) for ref in bases]
        access = Access(path for path in paths if path is not None)
        # What is not there yet, or is reached through a link, can become another with nothing written.
        if all(isinstance(ref, PathRef) and ref.path == path for ref, path in zip(bases, paths, strict=True)):
            self._own = (stamp, access)
        return access

    def _parse_bases(self, base_paths: object) -> list[Asked]:
        return [self.ask(base) for base in list_of_bases(base_paths)]

    def _resolve_bases(self, bases: list[Asked], access: Access) -> tuple[str, ...]:
        paths = []
        for asked in bases:
            row = self._see(asked, access)
            if asked.linked(row):
                raise InvalidArgumentError(
                    f"the base path {quoted(asked.shown)} leads through a link; pass the folder itself"
                )
            if row.kind == RowKind.FILE:
                raise IsFileError(
                    f"the base path {quoted(asked.shown)} names a file; pass a skill's folder, or one above"
                )
            if self._holds_skills(row):
                paths.append(row.path)
        return tuple(paths)

    def _base_now(self, ref: Ref) -> str | None:
        """A base of the filesystem: one given as a path stays that path, others follow what they name."""
        try:
            row = self._see(Asked(ref, ""), _EVERYTHING, hint=False)
        except SkillFSError:
            # Nothing is there to be seen, but what went away from there is still to be told as removed.
            return ref.path if isinstance(ref, PathRef) else None
        if isinstance(ref, PathRef) and Asked(ref, "").linked(row):
            return ref.path  # a link took its place: the base stays that path, whatever it leads to
        return row.path if row.kind != RowKind.FILE and self._holds_skills(row) else None

    def _holds_skills(self, row: Row) -> bool:
        # A folder inside a skill is no base for that skill; it can only be one for skills nested below it.
        if row.kind == RowKind.SKILL or row.visible == Visibility.ON_THE_WAY:
            return True
        return self.engine.query(lambda: self.catalog.holds_skill(row.key))

    # -- one entry -----------------------------------------------------------------------------------------

    def ask(self, value: object) -> Asked:
        """Parse a reference of any form.

        Raises:
            InvalidArgumentError: It is malformed.
            NotFoundError: It is a URL that is not this store's.
        """
        return Asked(parse_ref(value, self.engine.store.spellings), value, self._mount)

    def ask_path(self, path: object) -> Asked:
        """Parse a path as the methods of fsspec take it.

        Raises:
            InvalidArgumentError: It is malformed.
            NotFoundError: It is a URL that is not this store's.
        """
        return Asked(parse_path(path, self.engine.store.spellings), path, self._mount)

    def entry(self, asked: Asked, access: Access, *, hint: bool = True) -> Row:
        """The entry a reference names, as it is now.

        Args:
            asked: The reference.
            access: What the caller may see.
            hint: Whether an error names a near miss: looking for one costs more than all the rest.

        Raises:
            NotFoundError: Nothing visible answers to it.
            NotIndexedError: It is a hash that is not known for every file.
        """
        return self._see(asked, access, hint=hint)

    def at(self, asked: Asked, access: Access) -> tuple[Row, Row | None]:
        """Like `entry`, of what lies at a path itself: a link is not taken for what it leads to.

        Returns:
            The entry, and the link where one lies at the path: then the entry is what is at its end.

        Raises:
            NotFoundError: Nothing visible lies there.
        """
        row = self._see(asked, access, hint=False)
        if isinstance(asked.ref, PathRef) and asked.linked(row):
            parts = asked.ref.parts
            link = self.engine.query(lambda: self.catalog.by_path(parts))
            if link is not None and link.kind == RowKind.LINK:
                if not access.sees(row):
                    raise not_found(asked.shown)
                return row, link
        return row, None

    def listed(self, asked: Asked, access: Access) -> Row | None:
        """The folder at a path as the last check has found it.

        Like what it lists it is not looked at again. None where it is not known as a folder that can be seen:
        then `at` tells what is there.
        """
        self._check_root()
        ref = asked.ref
        assert isinstance(ref, PathRef)
        row = self.engine.query(lambda: self.catalog.by_path(ref.parts))
        if row is None or row.kind not in (RowKind.FOLDER, RowKind.SKILL) or not access.sees(row):
            return None
        return row

    def file(self, asked: Asked, access: Access) -> Row:
        """Like `entry`, for reading: that the file is still there is left to whoever opens it.

        Raises:
            IsFolderError: It names a folder.
        """
        row = self._see(asked, access, opened=True)
        if row.kind != RowKind.FILE:
            raise IsFolderError(f"{quoted(asked.shown)} names a folder; {self._file_instead(row, access)}")
        return row

    def _file_instead(self, row: Row, access: Access) -> str:
        """What to read where a folder was named."""
        # One on the way to what is allowed is a folder like any other to who may not see more.
        if row.kind != RowKind.SKILL or not access.allows(row.path):
            return "list its tree, and read a file in it"
        path = below_mount(self._mount, f"{row.path}/{SKILL_MD}" if row.path else SKILL_MD)
        return f"read {quoted(printable_path(path))}, or list its tree"

    def folder(self, asked: Asked, access: Access) -> Row:
        """Like `entry`, for listing.

        Raises:
            IsFileError: It names a file.
        """
        row = self._see(asked, access)
        if row.kind == RowKind.FILE:
            raise IsFileError(f"{quoted(asked.shown)} names a file; read it, or list the folder it is in")
        return row

    def contents(self, asked: Asked, access: Access) -> list[Row]:
        """Every visible file with a content, sorted by path.

        Raises:
            InvalidArgumentError: The reference is no content hash.
            NotFoundError: No visible file has it.
            NotIndexedError: None is known, and not every file's hash is.
        """
        ref = asked.ref
        if not isinstance(ref, HashRef):
            raise InvalidArgumentError(
                f"{quoted(asked.shown)} is no content hash; pass sha256:, md5: or xxh3: and hex digits"
            )
        self._check_root()
        self._freshen_for(ref)
        rows = self.engine.query(lambda: list(self._with_content(ref, access)))
        if not rows:
            self._require_hashes(ref, access)
            raise not_found(asked.shown)
        return rows

    def _with_content(self, ref: HashRef, access: Access) -> Iterator[Row]:
        """The files with a content, in order; a row costs, and one content can have thousands of files."""
        keys = self.catalog.by_content(ref.algorithm, ref.digest)
        if len(keys) == 1:
            row = self.catalog.by_key(keys[0])
            if row is not None and access.sees(row):
                yield row
            return
        paths = self.catalog.with_paths(keys)
        # A file whose skill is in bounds lies in bounds itself: that much its path alone says.
        some = [(path.replace("/", "\0"), key) for key in keys if (path := paths.get(key)) is not None]
        for order, key in sorted(some):
            if access.allows(order.replace("\0", "/")):
                row = self.catalog.by_key(key)
                if row is not None and access.sees(row):
                    yield row

    def _require_hashes(self, ref: HashRef, access: Access) -> None:
        remote = self.engine.store.remote
        if ref.algorithm == "xxh3" and not remote:
            return  # known of every file that can be read
        known, total = self.engine.query(
            lambda: self.catalog.hashed(
                ref.algorithm, self._tops(access) if access.restricted else None, lazy=remote
            )
        )
        if known >= total:
            return
        # How many files there are is not for one who may see only some of them.
        files = "every file" if access.restricted else f"all files, only for {known} of {total}"
        raise NotIndexedError(f"{ref.algorithm} is not known for {files} yet; run: skillfs index --full")

    def _tops(self, access: Access) -> list[int]:
        """Keys of folders, none below another, that together hold all that is in bounds and nothing else."""
        keys = []
        for base in access.tops:
            row = self.catalog.by_path(base.split("/") if base else ())
            if row is None:
                continue
            if row.kind == RowKind.SKILL or row.skill is None:
                keys.append(row.key)
                continue
            inside: set[int] = set()
            for node in self.catalog.subtree(row.key):
                if node.parent in inside:
                    inside.add(node.key)
                elif node.kind == RowKind.SKILL:
                    inside.add(node.key)
                    keys.append(node.key)
        return keys

    def _check_root(self) -> None:
        # All places are told by handles of the roots, which go on leading into a root that was replaced.
        if not self._is_rooted():
            self.engine.sync()

    def _freshen_for(self, ref: Ref) -> None:
        """Before a search: no single place of the store can say whether it has something new to be found."""
        if isinstance(ref, HashRef):
            self.engine.learned.flush()  # a hash that a reading has just printed can be asked for at once
        if isinstance(ref, HashRef | NameRef):
            self.engine.ensure_fresh("", self._max_age)

    def _see(self, asked: Asked, access: Access, *, opened: bool = False, hint: bool = True) -> Row:
        ref = asked.ref
        self._check_root()
        if isinstance(ref, PathRef):
            row = self._by_path(ref.parts, access, opened)
        else:
            row = self._by_identity(asked, access, opened)
        if row is not None and not access.sees(row):
            row = self._leading(row, access) if isinstance(ref, PathRef) else None
        if row is None:
            near = self._near(ref, access) if hint and isinstance(ref, PathRef) else None
            raise not_found(asked.shown_without(self.engine.store.spellings), near)
        if row.kind == RowKind.FILE and isinstance(ref, PathRef) and ref.folder:
            raise IsFileError(
                f"{quoted(asked.shown)} is written as a folder and names a file; drop the last slash"
            )
        return row

    def _near(self, ref: PathRef, access: Access) -> str | None:
        """A path close to one that leads nowhere.

        It follows from what the caller may see and nothing else: what is there and out of sight must leave no
        more of a trace than what is not there.
        """
        return self.engine.query(lambda: self._nearest_seen(ref.parts, access))

    def _nearest_seen(self, parts: tuple[str, ...], access: Access) -> str | None:
        above = self.catalog.by_path(())
        assert above is not None
        depth = 0
        while True:
            if depth == len(parts):
                return None
            row = self.catalog.by_path(parts[: depth + 1])
            if row is None or not self._is_seen(row, access):
                break
            above, depth = row, depth + 1
        if above.kind not in (RowKind.FOLDER, RowKind.SKILL):
            return None
        name = parts[depth]
        names = access.steps(above.path)
        if names is None:
            # Where some of what a folder holds is out of sight it may take no place among the neighbours.
            most = MOST_NEIGHBOURS if access.sees(above) else -1
            names = self.catalog.neighbours(above.key, name, most)
        same_stem = [found for found in names if found.rpartition(".")[0] == name]
        for found in (*same_stem, *get_close_matches(name, names, len(names) or 1, 0.8)):
            row = self.catalog.by_path((*parts[:depth], found))
            if row is not None and row.kind != RowKind.LINK and self._is_seen(row, access):
                return printable_path(below_mount(self._mount, row.path))
        return None

    def _is_seen(self, row: Row, access: Access) -> bool:
        """Whether a listing shows a row to the caller, be it as a folder on the way."""
        if row.kind == RowKind.LINK:
            if row.target is None or not self._may_follow(row, access):
                return False
            target = self.catalog.by_path(row.target.split("/") if row.target else ())
            return target is not None and target.kind != RowKind.LINK and self._is_seen(target, access)
        return access.sees(row) or self._leading(row, access) is not None

    def _leading(self, row: Row, access: Access) -> Row | None:
        """A folder of a skill that is out of bounds, as what it is here: on the way to a skill within."""
        if not row.visible or row.kind not in (RowKind.FOLDER, RowKind.SKILL):
            return None
        if row.path and not self.engine.query(lambda: access.leads_to_skill(self.catalog, row.path, row.key)):
            return None
        return row._replace(kind=RowKind.FOLDER, visible=Visibility.ON_THE_WAY, skill=None)

    def _by_identity(self, asked: Asked, access: Access | None, opened: bool) -> Row | None:
        looked: set[str] = set()
        self._freshen_for(asked.ref)
        searched = isinstance(asked.ref, HashRef | NameRef)
        for _ in range(_MOST_STEPS):
            row = self.engine.query(lambda: self._indexed(asked, access))
            if row is None and not searched:
                # An id from another process, or of what has moved: where it is now, no single place says.
                searched = True
                self.engine.ensure_fresh("", self._max_age)
                continue
            if row is None:
                return None
            stale = self._stale(row, opened, looked)
            if stale is None:
                return row
            looked.add(stale)
            self.engine.look_again(stale)
        return None

    def _indexed(self, asked: Asked, access: Access | None) -> Row | None:
        catalog, ref = self.catalog, asked.ref
        if isinstance(ref, UuidRef):
            return catalog.by_uuid(ref.uuid, id_of_uuid(ref.uuid))
        if isinstance(ref, IdRef):
            return catalog.by_id(ref.id)
        if isinstance(ref, HashRef):
            copies = self._with_content(ref, access or _EVERYTHING)
            found = next(copies, None)
            if found is None:
                self._require_hashes(ref, access or _EVERYTHING)
            elif self.locked is not None and not self._may_be_read(found, ref):
                # Of several the first that may be read.
                found = next((row for row in copies if self._may_be_read(row, ref)), found)
            return found
        assert isinstance(ref, NameRef)
        keys = names_of_skills(catalog, ref.name, self.locked)
        rows = [row for key in keys if (row := catalog.by_key(key)) is not None]
        seen = [row for row in rows if access is None or access.sees(row)]
        return min(seen, key=lambda row: row.path.replace("/", "\0"), default=None)

    def _may_be_read(self, row: Row, ref: HashRef) -> bool:
        """Whether the lock names a file, and as far as that can be told, with this content."""
        file = None if self.locked is None else self.locked.files.get(row.path)
        return file is not None and (ref.algorithm != "sha256" or file.digest == ref.digest)

    # -- by path -------------------------------------------------------------------------------------------

    def _by_path(self, parts: tuple[str, ...], access: Access | None, opened: bool) -> Row | None:
        looked: set[str] = set()
        if self.engine.store.remote:
            # Who only ever reads by path is to see what is new in the end, too.
            self.engine.ensure_fresh("" if self._max_age else "/".join(parts[:-1]), self._max_age)
        for _ in range(_MOST_STEPS):
            now = parts
            row, depth = self.engine.query(lambda: self._nearest(now))  # noqa: B023  # called at once
            if row.kind == RowKind.LINK:
                target = self._target(row)
                # The link must be there itself: resolving it follows whatever stands in its way.
                there = self.engine.store.state(row.place) is not None
                if there and target == row.target is not None and self._may_follow(row, access):
                    assert target is not None
                    parts = (*(target.split("/") if target else ()), *parts[depth:])
                    continue
                above = row.path.rpartition("/")[0]
                if above in looked or (target == row.target and not self._differs(row)):
                    return None
                looked.add(above)
                self.engine.look_again(above)
                continue
            whole = depth == len(parts)
            stale = self._stale(row, opened and whole, looked)
            if stale is not None:
                looked.add(stale)
                self.engine.look_again(stale)
            elif whole:
                return row
            else:
                spelled = self._spelled(row, parts, depth, access)
                if spelled is None:
                    return None
                parts = spelled
        return None

    def _nearest(self, parts: tuple[str, ...]) -> tuple[Row, int]:
        row = self.catalog.by_path(parts)
        return (row, len(parts)) if row is not None else self.catalog.deepest(parts)

    def _target(self, link: Row) -> str | None:
        """The store path that a link leads to now; None when it leads outside, nowhere or in a circle."""
        store = self.engine.store
        place = store.resolve(link.place)
        if not isinstance(place, Place) or place.root != 0 or is_left_out(store, self.engine.ignore, place):
            return None
        return place.path

    def _may_follow(self, link: Row, access: Access | None) -> bool:
        if not link.visible:
            return False
        return access is None or link.skill is None or access.allows(link.skill.path)

    def _spelled(
        self, above: Row, parts: tuple[str, ...], depth: int, access: Access | None
    ) -> tuple[str, ...] | None:
        """The path with its first unknown name as the store spells it, when one name is equal under NFC."""
        name = parts[depth]
        if name.isascii() and _FROM_OTHERS.isdisjoint(name):
            return None

        def equal() -> list[tuple[str, ...]]:
            names = self.catalog.equal_under_nfc(above.key, name)
            ways = [(*parts[:depth], same) for same in names]
            return [
                way
                for way in ways
                if (row := self.catalog.by_path(way)) and (access or _EVERYTHING).sees(row)
            ]

        ways = self.engine.query(equal)
        if len(ways) > 1:
            raise InvalidArgumentError(
                f"the name {quoted(name)} is ambiguous: {len(ways)} entries are equal to it under NFC; "
                "pass the id or UUID of the one you mean, from a listing"
            )
        return (*ways[0], *parts[depth + 1 :]) if ways else None

    # -- index against store -------------------------------------------------------------------------------

    def _differs(self, row: Row) -> bool:
        return not self.engine.store.in_step(row.place, row.signature)

    def _stale(self, row: Row, opened: bool, looked: Container[str]) -> str | None:
        """The folder to look at again, when what is on the disk contradicts a row; None when it does not.

        Args:
            row: The row.
            opened: It is a file that is going to be opened: its signature is compared then.
            looked: Folders that were looked at already. What still contradicts the row goes on changing, or
                may not be looked at, and the row is the latest that is known.
        """
        if self.engine.store.remote:
            return None  # what can be seen, and in which skill, is as of the last listing
        if row.place.path != row.path or row.place.root:
            folder = self._turned_link(row)
            if folder is not None and folder not in looked:
                return folder
        folder = self._stale_skill(row)
        if folder is not None and folder not in looked:
            return folder
        if not (opened and row.kind == RowKind.FILE) and self._differs(row):
            gone = row.kind == RowKind.FILE or self.engine.store.state(row.place) is None
            folder = row.path.rpartition("/")[0] if gone else row.path
            if folder not in looked:
                return folder
        return None

    def _turned_link(self, row: Row) -> str | None:
        """Of what lies behind a link: the folder of that link, when it is gone or leads elsewhere now."""
        store = self.engine.store
        if store.resolve(Place(0, row.path)) == row.place:
            return None
        for path in (*reversed(parents_of(row.path)), row.path):
            if store.is_regular(Place(0, path)) is not False or store.state(Place(0, path)) is None:
                return path.rpartition("/")[0]
        return row.path.rpartition("/")[0]

    def _stale_skill(self, row: Row) -> str | None:
        """Whether the enclosing skill is still the nearest folder at or above with a `SKILL.md`."""
        exists = self.engine.store.exists
        skill = None if row.skill is None else row.skill.path
        folder, place = row.path, row.place
        if row.kind == RowKind.FILE:
            if row.skill is not None and row.name == SKILL_MD:
                return None  # it says so itself, as soon as it is opened or compared
            folder, place = folder.rpartition("/")[0], Place(place.root, place.path.rpartition("/")[0])
        while folder != skill:
            if exists(place.child(SKILL_MD)) and self._makes_skill(place):
                return folder
            if not place.path or not folder:
                return None  # the top, or behind a link into a followed folder: the way up is another there
            folder, place = folder.rpartition("/")[0], Place(place.root, place.path.rpartition("/")[0])
        return None if skill is None or self._makes_skill(place) else folder

    def _makes_skill(self, folder: Place) -> bool:
        """Whether a folder holds a `SKILL.md` that counts."""
        store = self.engine.store
        regular = store.is_regular(folder.child(SKILL_MD))
        if regular is None:
            target = store.resolve(folder.child(SKILL_MD))
            if not isinstance(target, Place) or is_left_out(store, self.engine.ignore, target):
                return False
            return store.is_regular(target) is True
        return regular
