"""From a caller's reference to an entry that this caller may see.

Everything that may not be seen ends in the same `not_found`, whether it is missing, outside every skill or outside
the base paths. A look-up by path is checked against the store at the moment of the call: one `lstat` where index and
store agree, and a fresh look at one folder where they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from skillfs.core.digest import id_of_uuid
from skillfs.core.model import Place
from skillfs.core.refs import HashRef, IdRef, NameRef, PathRef, Ref, UuidRef, parse_ref
from skillfs.errors import (
    InvalidArgumentError,
    IsFileError,
    IsFolderError,
    NotFoundError,
    NotIndexedError,
    SkillFSError,
    not_found,
    quoted,
)
from skillfs.index.catalog import Catalog, Row, RowKind, Visibility
from skillfs.sync.engine import Engine
from skillfs.sync.scan import SKILL_MD

__all__ = ["Access", "Lookup"]

MOST_BASES = 10_000
_MOST_ALIASES = 40


def covers(base: str, path: str) -> bool:
    """Whether a path is a base folder or lies below it."""
    return not base or path == base or path.startswith(base + "/")


@dataclass(frozen=True, slots=True)
class Access:
    """What a call may see: the skills that lie at or below one folder of every set.

    Attributes:
        sets: Each a set of folder paths; none at all means everything.
    """

    sets: tuple[tuple[str, ...], ...] = ()

    def allows(self, skill_path: str) -> bool:
        """Whether a skill folder, and so what it encloses, can be seen."""
        return all(any(covers(base, skill_path) for base in bases) for bases in self.sets)

    def leads(self, folder: str) -> bool:
        """Whether a folder outside every skill can be on the way to a skill that is allowed."""
        regions = [folder]
        for bases in self.sets:
            regions = [
                base if covers(region, base) else region
                for region in regions
                for base in bases
                if covers(region, base) or covers(base, region)
            ]
        return bool(regions)

    def sees(self, row: Row) -> bool:
        """Whether an entry can be seen."""
        if not row.visible:
            return False
        if not self.sets:
            return True
        return self.allows(row.skill.path) if row.skill is not None else self.leads(row.path)


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
            refs = self._parse_bases(base_paths)
            self._resolve_bases(refs, base_paths, Access())
            self._bases = refs

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
            own = Access()
        else:
            own = Access((tuple(p for ref in self._bases if (p := self._base_now(ref)) is not None),))
        if base_paths is None:
            return own
        bases = self._resolve_bases(self._parse_bases(base_paths), base_paths, own)
        return Access((*own.sets, bases))

    def _parse_bases(self, base_paths: Sequence[object]) -> tuple[Ref, ...]:
        if isinstance(base_paths, str | bytes) or not isinstance(base_paths, Iterable):
            raise InvalidArgumentError(f"base_paths takes a list of folders, not {quoted(base_paths)}")
        bases = list(base_paths)
        if len(bases) > MOST_BASES:
            raise InvalidArgumentError(f"base_paths holds {len(bases)} folders; pass at most {MOST_BASES}")
        return tuple(self.parse(base) for base in bases)

    def _resolve_bases(self, refs: tuple[Ref, ...], given: Iterable[object], access: Access) -> tuple[str, ...]:
        paths = []
        for ref, value in zip(refs, given, strict=True):
            row = self._see(ref, value, access)
            if row.kind == RowKind.FILE:
                raise IsFileError(f"the base path {quoted(value)} names a file; pass the folder of a skill, or above")
            if self._holds_skills(row):
                paths.append(row.path)
        return tuple(paths)

    def _base_now(self, ref: Ref) -> str | None:
        """A base of the filesystem: one given as a path stays that path, another follows the folder it names."""
        try:
            row = self._find(ref)
        except SkillFSError:
            return None
        return row.path if row is not None and row.visible and self._holds_skills(row) else None

    def _holds_skills(self, row: Row) -> bool:
        # A folder inside a skill is no base for that skill; it can only be one for skills nested below it.
        if row.kind == RowKind.SKILL or row.visible == Visibility.ON_THE_WAY:
            return True
        return any(node.kind == RowKind.SKILL for node in self.catalog.subtree(row.key))

    # -- one entry -----------------------------------------------------------------------------------------

    def parse(self, value: object) -> Ref:
        """Parse a reference in the spellings of this store."""
        return parse_ref(value, self.engine.store.spellings)

    def entry(self, value: object, access: Access) -> Row:
        """The entry a reference names, as it is now.

        Raises:
            InvalidArgumentError: The reference is malformed.
            NotFoundError: Nothing visible answers to it.
            NotIndexedError: It is a hash that is not known for every file.
        """
        return self._see(self.parse(value), value, access)

    def file(self, value: object, access: Access) -> Row:
        """Like `entry`, for reading: that the file is still there is left to whoever opens it.

        Raises:
            IsFolderError: It names a folder.
        """
        row = self._see(self.parse(value), value, access, opened=True)
        if row.kind != RowKind.FILE:
            raise IsFolderError(f"{quoted(value)} names a folder; list it with skill_tree() and read a file in it")
        return row

    def folder(self, value: object, access: Access) -> Row:
        """Like `entry`, for listing.

        Raises:
            IsFileError: It names a file.
        """
        row = self._see(self.parse(value), value, access)
        if row.kind == RowKind.FILE:
            raise IsFileError(f"{quoted(value)} names a file; read it with get_content(), or list the folder it is in")
        return row

    def at(self, ref: PathRef, value: object, access: Access) -> Row:
        """The entry at a path that has been parsed already."""
        return self._see(ref, value, access)

    def contents(self, ref: HashRef, access: Access) -> list[Row]:
        """Every visible file with a content, sorted by path.

        Raises:
            NotIndexedError: None is known, and not every file's hash is.
        """
        keys = self._query(lambda: self.catalog.by_content(ref.algorithm, ref.digest))
        rows = [row for key in keys if (row := self.catalog.by_key(key)) is not None and access.sees(row)]
        if not rows:
            self._require_hashes(ref, access)
        return sorted(rows, key=lambda row: row.path)

    def _see(self, ref: Ref, value: object, access: Access, *, opened: bool = False) -> Row:
        row = self._find(ref, access, opened=opened)
        if row is None or not access.sees(row):
            raise not_found(ref.path or "/" if isinstance(ref, PathRef) else value)
        if isinstance(ref, PathRef) and ref.folder and row.kind == RowKind.FILE:
            raise IsFileError(f"{quoted(value)} ends in a slash and names a file; leave the slash away")
        return row

    def _find(self, ref: Ref, access: Access | None = None, *, opened: bool = False) -> Row | None:
        if isinstance(ref, PathRef):
            return self._by_path(ref.parts, access, opened)
        for _ in range(3):
            row = self._query(lambda: self._indexed(ref, access))
            if row is None:
                return None
            stale = self._stale(row, opened)
            if stale is None:
                return row
            self.engine.look_again(stale)
        return None

    def _indexed(self, ref: Ref, access: Access | None) -> Row | None:
        catalog = self.catalog
        if isinstance(ref, IdRef):
            return catalog.by_id(ref.id)
        if isinstance(ref, UuidRef):
            return catalog.by_uuid(ref.uuid, id_of_uuid(ref.uuid))
        if isinstance(ref, HashRef):
            return self.contents(ref, access or Access())[0]
        assert isinstance(ref, NameRef)
        rows = [row for key in catalog.skill_keys(ref.name) if (row := catalog.by_key(key)) is not None]
        seen = [row for row in rows if access is None or access.sees(row)]
        return min(seen, key=lambda row: row.path, default=None)

    def _require_hashes(self, ref: HashRef, access: Access) -> None:
        known, total = self.catalog.hashed(ref.algorithm)
        if known < total and access.sets:
            raise NotIndexedError(f"{ref.algorithm} is not known for every file yet; run: skillfs index --full")
        if known < total:
            raise NotIndexedError(f"{ref.algorithm} is known for {known} of {total} files only; run: skillfs index --full")
        raise NotFoundError(f"no visible file has the content {ref.algorithm}:{ref.digest.hex()}")

    # -- by path -------------------------------------------------------------------------------------------

    def _by_path(self, parts: Sequence[str], access: Access | None, opened: bool) -> Row | None:
        looked: set[str] = set()
        for _ in range(_MOST_ALIASES):
            row = self._query(lambda parts=parts: self.catalog.by_path(parts))  # type: ignore[misc]
            if row is None:
                above, depth = self._query(lambda parts=parts: self.catalog.deepest(parts))  # type: ignore[misc]
                if above.kind == RowKind.LINK:
                    target = self._follow(above, access)
                    if target is None:
                        return None
                    parts = (*target, *parts[depth:])
                    continue
                spelled = self._spelled(above, parts, depth)
                if spelled is not None:
                    parts = spelled
                    continue
                if above.path in looked or above.kind == RowKind.FILE or not self._differs(above):
                    return None
                looked.add(above.path)
                self.engine.look_again(above.path)
                continue
            if row.kind == RowKind.LINK:
                target = self._follow(row, access)
                if target is None:
                    return None
                parts = target
                continue
            stale = self._stale(row, opened)
            if stale is None:
                return row
            if stale in looked:
                return None
            looked.add(stale)
            self.engine.look_again(stale)
        return None

    def _follow(self, link: Row, access: Access | None) -> tuple[str, ...] | None:
        """The path a link leads to, if the link is where the index says and may be seen."""
        place = self.engine.store.resolve(link.place)
        if not isinstance(place, Place) or place.root != 0 or not link.visible or place.path != link.target:
            if self._differs(link):
                self.engine.look_again(link.path.rpartition("/")[0])
                fresh = self.catalog.by_key(link.key)
                if fresh is not None and fresh.visible and fresh.target is not None and fresh.target != link.target:
                    return self._follow(fresh, access)
            return None
        if access is not None and link.skill is not None and not access.allows(link.skill.path):
            return None
        return tuple(place.path.split("/")) if place.path else ()

    def _spelled(self, above: Row, parts: Sequence[str], depth: int) -> tuple[str, ...] | None:
        """The path with its first unknown name as the store spells it, when one name is equal under NFC."""
        name = parts[depth]
        if name.isascii():
            return None
        same = self.catalog.equal_under_nfc(above.key, name)
        if len(same) > 1:
            raise InvalidArgumentError(
                f"the name {quoted(name)} is ambiguous: {len(same)} entries are equal to it under Unicode NFC; use a uuid"
            )
        return (*parts[:depth], same[0], *parts[depth + 1 :]) if same else None

    def _differs(self, row: Row) -> bool:
        return any(True for _ in self.engine.store.differing(row.place.root, [(row.place.path, row.signature)]))

    def _stale(self, row: Row, opened: bool) -> str | None:
        """The folder to look at again, when what is on the disk contradicts a row; None when it does not.

        A file's own bytes are not the question here: reading compares its signature.
        """
        store = self.engine.store
        if row.kind == RowKind.FILE:
            if not opened and store.is_regular(row.place) is not True:
                return row.path.rpartition("/")[0]
        elif store.is_regular(row.place) is not False or not store.exists(row.place):
            return row.path.rpartition("/")[0] if row.path else None
        if row.skill is None:
            return row.path if row.kind != RowKind.FILE and store.exists(row.place.child(SKILL_MD)) else None
        return self._stale_skill(row)

    def _stale_skill(self, row: Row) -> str | None:
        """Whether the enclosing skill is still the nearest folder with a `SKILL.md`."""
        assert row.skill is not None
        store = self.engine.store
        folder = row.path.rpartition("/")[0] if row.kind == RowKind.FILE else row.path
        place = Place(row.place.root, row.place.path.rpartition("/")[0]) if row.kind == RowKind.FILE else row.place
        if row.path == row.skill.path or folder == row.skill.path:
            regular = True if row.name == SKILL_MD and row.kind == RowKind.FILE else store.is_regular(place.child(SKILL_MD))
            return folder if regular is False else None
        while folder != row.skill.path:
            if store.exists(place.child(SKILL_MD)):
                return folder
            if not place.path:
                return None  # behind a link into a followed folder: the way up is another there
            folder = folder.rpartition("/")[0]
            place = Place(place.root, place.path.rpartition("/")[0])
        return folder if store.is_regular(place.child(SKILL_MD)) is False else None

    def _query(self, work: Callable[[], Row]) -> Row:
        return self.engine.query(work)
