"""From a caller's reference to an entry that this caller may see.

Everything that may not be seen ends in the same `not_found`, whether it is missing, outside every skill or
outside the base paths. A look-up is checked against the store at the moment of the call: a few `lstat` where
index and store agree, and a fresh look at one folder where they do not.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import NamedTuple, TypeVar

from skillfs.core.digest import id_of_uuid
from skillfs.core.model import Place
from skillfs.core.refs import (
    HashRef,
    IdRef,
    NameRef,
    PathRef,
    Ref,
    UuidRef,
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
from skillfs.sync.engine import Engine
from skillfs.sync.scan import SKILL_MD

__all__ = ["Access", "Asked", "Lookup"]

T = TypeVar("T")

MOST_BASES = 10_000
MOST_NEIGHBOURS = 500
"""Names among which a near miss is looked for."""

_MOST_STEPS = 40
"""Most links, other spellings and fresh looks on the way to one entry: a loop of links ends here."""


class Asked(NamedTuple):
    """A reference, parsed, with what the caller sent."""

    ref: Ref
    sent: object

    @property
    def shown(self) -> object:
        """What an error echoes; of a path what lies below the root, which no message gives away."""
        return printable_path(self.ref.path) if isinstance(self.ref, PathRef) else self.sent


def _upwards(path: str) -> Iterator[str]:
    """A path and all above it, the root last."""
    yield path
    while path:
        path = path.rpartition("/")[0]
        yield path


class Access:
    """What a call may see: the skills that lie at or below one of some folders.

    Args:
        bases: Paths of the folders; None for no restriction.
    """

    __slots__ = ("_above", "_bases")

    def __init__(self, bases: Iterable[str] | None = None) -> None:
        self._bases = None if bases is None else frozenset(bases)
        # A call may name thousands of folders, and a listing asks for each of its rows: no loop over either.
        self._above = frozenset(above for base in self._bases or () for above in _upwards(base))

    @property
    def restricted(self) -> bool:
        """Whether anything may be out of bounds."""
        return self._bases is not None

    def allows(self, skill_path: str) -> bool:
        """Whether a skill folder, and so what it encloses, can be seen."""
        bases = self._bases
        return bases is None or any(path in bases for path in _upwards(skill_path))

    def leads(self, folder: str) -> bool:
        """Whether a folder outside every skill can be on the way to a skill that is allowed."""
        return self._bases is None or folder in self._above or self.allows(folder)

    def sees(self, row: Row) -> bool:
        """Whether an entry can be seen."""
        if not row.path and row.skill is None:
            return True  # the root says nothing about what is below it
        if not row.visible:
            return False
        return self.allows(row.skill.path) if row.skill is not None else self.leads(row.path)

    def within(self, bases: Iterable[str]) -> Access:
        """What lies at or below one of these folders as well."""
        other = Access(bases)
        if self._bases is None:
            return other
        assert other._bases is not None
        return Access([*filter(other.allows, self._bases), *filter(self.allows, other._bases)])


_EVERYTHING = Access()


class Lookup:
    """Resolves references against one engine.

    Args:
        engine: Store and index.
        base_paths: Folders that every call is confined to; None for no restriction.

    Raises:
        InvalidArgumentError: `base_paths` is malformed.
        NotFoundError: A base is not there.
        IsFileError: A base is a file.
    """

    def __init__(self, engine: Engine, base_paths: Sequence[object] | None = None) -> None:
        self.engine = engine
        self._bases: tuple[Ref, ...] | None = None
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
        if self._bases is None:
            own = _EVERYTHING
        else:
            own = Access(p for ref in self._bases if (p := self._base_now(ref)) is not None)
        if base_paths is None:
            return own
        return own.within(self._resolve_bases(self._parse_bases(base_paths), own))

    def _parse_bases(self, base_paths: object) -> list[Asked]:
        if isinstance(base_paths, str | bytes | Mapping) or not isinstance(base_paths, Iterable):
            given = "one string" if isinstance(base_paths, str) else quoted(base_paths)
            raise InvalidArgumentError(f"base_paths takes a list of folders, not {given}")
        bases = list(islice(base_paths, MOST_BASES + 1))
        if len(bases) > MOST_BASES:
            raise InvalidArgumentError(
                f"base_paths holds over {MOST_BASES:,} folders; pass folders further up instead"
            )
        return [self.ask(base) for base in bases]

    def _resolve_bases(self, bases: list[Asked], access: Access) -> tuple[str, ...]:
        paths = []
        for asked in bases:
            row = self._see(asked, access)
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
            row = self._see(Asked(ref, ""), _EVERYTHING)
        except SkillFSError:
            # Nothing is there to be seen, but what went away from there is still to be told as removed.
            return ref.path if isinstance(ref, PathRef) else None
        return row.path if row.kind != RowKind.FILE and self._holds_skills(row) else None

    def _holds_skills(self, row: Row) -> bool:
        # A folder inside a skill is no base for that skill; it can only be one for skills nested below it.
        if row.kind == RowKind.SKILL or row.visible == Visibility.ON_THE_WAY:
            return True
        nodes = self.engine.query(lambda: self.catalog.subtree(row.key))
        return any(node.kind == RowKind.SKILL for node in nodes)

    # -- one entry -----------------------------------------------------------------------------------------

    def ask(self, value: object) -> Asked:
        """Parse a reference of any form.

        Raises:
            InvalidArgumentError: It is malformed.
            NotFoundError: It is a URL that is not this store's.
        """
        return Asked(parse_ref(value, self.engine.store.spellings), value)

    def ask_path(self, path: object) -> Asked:
        """Parse a path as the methods of fsspec take it.

        Raises:
            InvalidArgumentError: It is malformed.
            NotFoundError: It is a URL that is not this store's.
        """
        return Asked(parse_path(path, self.engine.store.spellings), path)

    def entry(self, asked: Asked, access: Access) -> Row:
        """The entry a reference names, as it is now.

        Raises:
            NotFoundError: Nothing visible answers to it.
            NotIndexedError: It is a hash that is not known for every file.
        """
        return self._see(asked, access)

    def file(self, asked: Asked, access: Access) -> Row:
        """Like `entry`, for reading: that the file is still there is left to whoever opens it.

        Raises:
            IsFolderError: It names a folder.
        """
        row = self._see(asked, access, opened=True)
        if row.kind != RowKind.FILE:
            raise IsFolderError(f"{quoted(asked.shown)} names a folder; list its tree, and read a file in it")
        return row

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
        self.engine.flush()  # a hash that a reading has just printed can be asked for at once
        rows = self.engine.query(lambda: self._with_content(ref, access))
        if not rows:
            self._require_hashes(ref, access)
            raise not_found(asked.shown)
        return rows

    def _with_content(self, ref: HashRef, access: Access) -> list[Row]:
        keys = self.catalog.by_content(ref.algorithm, ref.digest)
        rows = [row for key in keys if (row := self.catalog.by_key(key)) is not None and access.sees(row)]
        return sorted(rows, key=lambda row: row.path.replace("/", "\0"))

    def _require_hashes(self, ref: HashRef, access: Access) -> None:
        known, total = self.engine.query(lambda: self.catalog.hashed(ref.algorithm))
        if known >= total:
            return
        # How many files there are is not for one who may see only some of them.
        files = "every file" if access.restricted else f"all files, only for {known} of {total}"
        raise NotIndexedError(f"{ref.algorithm} is not known for {files} yet; run: skillfs index --full")

    def _see(self, asked: Asked, access: Access, *, opened: bool = False) -> Row:
        ref = asked.ref
        if isinstance(ref, PathRef):
            row = self._by_path(ref.parts, access, opened)
        else:
            row = self._by_identity(asked, access, opened)
        if row is not None and not access.sees(row):
            row = self._leading(row, access) if isinstance(ref, PathRef) else None
        if row is None:
            raise not_found(asked.shown, self._near(ref, access) if isinstance(ref, PathRef) else None)
        if row.kind == RowKind.FILE and isinstance(ref, PathRef) and ref.folder:
            raise IsFileError(
                f"{quoted(asked.shown)} is written as a folder and names a file; drop the last slash"
            )
        return row

    def _near(self, ref: PathRef, access: Access) -> str | None:
        """A path close to one that leads nowhere; chosen among what the caller may see and nothing else."""
        above, depth = self.engine.query(lambda: self._nearest(ref.parts))
        if depth == len(ref.parts) or not above.visible or above.kind not in (RowKind.FOLDER, RowKind.SKILL):
            return None
        paths = {}
        for node in self.engine.query(lambda: self.catalog.children(above.key))[:MOST_NEIGHBOURS]:
            path = f"{above.path}/{node.name}" if above.path else node.name
            skill = path if node.kind == RowKind.SKILL else above.skill.path if above.skill else None
            seen = access.allows(skill) if skill is not None else access.leads(path)
            if node.visible and node.kind != RowKind.LINK and seen:
                paths[node.name] = path
        name = ref.parts[depth]
        close = next((found for found in paths if found.rpartition(".")[0] == name), None)
        if close is None:
            close = next(iter(get_close_matches(name, paths, 1, 0.8)), None)
        return None if close is None else printable_path(paths[close])

    def _leading(self, row: Row, access: Access) -> Row | None:
        """A folder of a skill that is out of bounds, as what it is here: on the way to a skill within."""
        if not row.visible or row.kind not in (RowKind.FOLDER, RowKind.SKILL):
            return None
        if row.path:
            paths = {row.key: row.path}
            for node in self.engine.query(lambda: self.catalog.subtree(row.key)):
                if node.kind in (RowKind.FOLDER, RowKind.SKILL):
                    path = paths[node.key] = f"{paths[node.parent]}/{node.name}"
                    if node.kind == RowKind.SKILL and access.allows(path):
                        break
            else:
                return None
        return row._replace(kind=RowKind.FOLDER, visible=Visibility.ON_THE_WAY, skill=None)

    def _by_identity(self, asked: Asked, access: Access | None, opened: bool) -> Row | None:
        looked: set[str] = set()
        for _ in range(_MOST_STEPS):
            row = self.engine.query(lambda: self._indexed(asked, access))
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
            return self.contents(asked, access or _EVERYTHING)[0]
        assert isinstance(ref, NameRef)
        rows = [row for key in catalog.skill_keys(ref.name) if (row := catalog.by_key(key)) is not None]
        seen = [row for row in rows if access is None or access.sees(row)]
        return min(seen, key=lambda row: row.path.replace("/", "\0"), default=None)

    # -- by path -------------------------------------------------------------------------------------------

    def _by_path(self, parts: tuple[str, ...], access: Access | None, opened: bool) -> Row | None:
        looked: set[str] = set()
        for _ in range(_MOST_STEPS):
            now = parts
            row, depth = self.engine.query(lambda: self._nearest(now))  # noqa: B023  # called at once
            if row.kind == RowKind.LINK:
                target = self._target(row)
                if target == row.target and target is not None and self._may_follow(row, access):
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
        place = self.engine.store.resolve(link.place)
        return place.path if isinstance(place, Place) and place.root == 0 else None

    def _may_follow(self, link: Row, access: Access | None) -> bool:
        if not link.visible:
            return False
        return access is None or link.skill is None or access.allows(link.skill.path)

    def _spelled(
        self, above: Row, parts: tuple[str, ...], depth: int, access: Access | None
    ) -> tuple[str, ...] | None:
        """The path with its first unknown name as the store spells it, when one name is equal under NFC."""
        name = parts[depth]
        if name.isascii():
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
        return any(
            True for _ in self.engine.store.differing(row.place.root, [(row.place.path, row.signature)])
        )

    def _stale(self, row: Row, opened: bool, looked: Container[str]) -> str | None:
        """The folder to look at again, when what is on the disk contradicts a row; None when it does not.

        Args:
            row: The row.
            opened: It is a file that is going to be opened: its signature is compared then.
            looked: Folders that were looked at already. What still contradicts the row goes on changing, or
                may not be looked at, and the row is the latest that is known.
        """
        folder = self._stale_skill(row)
        if folder is not None and folder not in looked:
            return folder
        if not (opened and row.kind == RowKind.FILE) and self._differs(row):
            gone = row.kind == RowKind.FILE or self.engine.store.state(row.place) is None
            folder = row.path.rpartition("/")[0] if gone else row.path
            if folder not in looked:
                return folder
        return None

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
            return isinstance(target, Place) and store.is_regular(target) is True
        return regular
