"""Several stores in one: which store a reference means, and what of each store a call may see.

The first component of a path is the name of a mount; everything else is looked for in all of them, in the
order of the table. What a call may not see takes no part in that: to such a call the table is a shorter one.
"""

from __future__ import annotations

import contextlib
import json
import time
import unicodedata
import uuid as uuidlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar

from skillfs.access import Access
from skillfs.core.digest import Namespace, id_of_uuid
from skillfs.core.lock import Lock
from skillfs.core.manifest import digest_text
from skillfs.core.model import Place
from skillfs.core.refs import (
    HashRef,
    IdRef,
    PathRef,
    UuidRef,
    below_mount,
    mount_name_fault,
    parse_path,
    parse_ref,
    printable_path,
    root_above,
)
from skillfs.errors import (
    InvalidArgumentError,
    NotFoundError,
    NotIndexedError,
    SkillFSError,
    StoreUnavailableError,
    not_found,
    quoted,
)
from skillfs.feed import status_of_watch
from skillfs.index.rows import Row, RowKind, Visibility
from skillfs.listing import counts_of
from skillfs.locked import LockedStore, locked_store
from skillfs.looking_back import NEVER, named_store, open_snapshot, place_of
from skillfs.lookup import Asked, Lookup, list_of_bases
from skillfs.objects.store import SnapshotStore
from skillfs.opening import open_engine
from skillfs.reading import Reader
from skillfs.stores.remote import RemoteStore
from skillfs.sync.engine import Engine
from skillfs.sync.still import StillEngine

__all__ = ["Mount", "MountTable", "View", "max_age_of", "naming", "open_mounts", "status_of"]

T = TypeVar("T")

LOCAL_MAX_AGE = 2.0
REMOTE_MAX_AGE = 60.0
"""Seconds that a check of a store holds for listings, where the caller does not say."""

_ARGUMENTS = (
    *("store", "fs", "target_options", "store_id", "ignore", "follow", "index", "max_age"),
    *("at", "objects", "objects_options"),
)


_NO_OBJECTS: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Mount:
    """One store of a filesystem.

    Attributes:
        name: First component of its paths; empty where the store is alone.
        engine: Store and index.
        lookup: Resolves references below it.
        reader: Reads its files.
        max_age: Seconds that a check of it holds for listings.
    """

    name: str
    engine: Engine
    lookup: Lookup
    reader: Reader
    max_age: float

    def path(self, below: str) -> str:
        """The whole path of a store path."""
        return below_mount(self.name, below)

    def ensure_fresh(self, path: str = "") -> None:
        """Check a folder and all below it, unless that was done within `max_age`.

        Raises:
            StoreUnavailableError: The store is not there; naming the mount.
        """
        with naming(self.name):
            self.engine.ensure_fresh(path, self.max_age)

    def knows(self, ref: IdRef | UuidRef) -> bool:
        """Whether the index holds an entry of this identity, as it stands."""
        catalog = self.engine.catalog
        if isinstance(ref, IdRef):
            return self.engine.query(lambda: catalog.by_id(ref.id)) is not None
        return self.engine.query(lambda: catalog.by_uuid(ref.uuid, id_of_uuid(ref.uuid))) is not None


class View(NamedTuple):
    """What a call may see of a mount."""

    mount: Mount
    access: Access


@contextlib.contextmanager
def naming(name: str, kind: type[SkillFSError] = StoreUnavailableError) -> Iterator[None]:
    """Let errors of a kind say which mount they are about, unless they do."""
    try:
        yield
    except kind as error:
        about = f"mount {quoted(name)}: "
        if not name or error.message.startswith(about):
            raise
        raise type(error)(f"{about}{error.message}") from error


def status_of(engine: Engine, access: Access) -> dict[str, Any]:
    """What `SkillFileSystem.status` tells of one store."""
    status = {
        "store": engine.title,
        "store_id": str(engine.namespace.uuid),
        "revision": engine.query(engine.journal.revision),
        "index": ":memory:" if engine.database.path is None else str(engine.database.path),
        **engine.query(lambda: counts_of(engine.catalog, access)),
        **status_of_watch(engine.watcher, whole=not access.restricted),
    }
    if isinstance(engine.store, SnapshotStore):
        status["at"] = digest_text(engine.store.digest)
    elif isinstance(engine.store, RemoteStore):
        checked = engine.checked_at
        status["tells"] = engine.store.tells
        status["checked"] = None if checked is None else round(time.monotonic() - checked, 1)
        status["check_error"] = engine.check_error
    return status


# -- opening -----------------------------------------------------------------------------------------------


def max_age_of(engine: Engine | None, given: object) -> float:
    """How long a check holds: as given, or as fits the store; for ever where nothing changes.

    Raises:
        InvalidArgumentError: What was given is no number of seconds.
    """
    if isinstance(engine, StillEngine):
        return NEVER
    if given is None:
        return REMOTE_MAX_AGE if engine is None or engine.store.remote else LOCAL_MAX_AGE
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < 1e300:
        raise InvalidArgumentError(f"max_age is {quoted(given)}; pass seconds, 0 or more")
    return float(given)


def open_mounts(
    table: Mapping[Any, object],
    *,
    in_memory: bool,
    ignore: Sequence[str],
    follow: Sequence[Any],
    max_age: float | None,
    on_progress: Callable[[int], None] | None,
    objects: Mapping[str, Any] = _NO_OBJECTS,
    lock: Lock | None = None,
) -> list[Mount]:
    """Open the stores of a table, in its order, and bring their indexes up to date.

    Args:
        table: Name to store, or to a mapping of the arguments that belong to one store.
        in_memory: Whether indexes are kept in memory, where a store does not say otherwise.
        ignore: For all stores that do not say otherwise.
        follow: Likewise.
        max_age: Likewise.
        on_progress: Called with the number of folders read, of all stores together.
        objects: Where the snapshots of those lie that are mounted as they were, unless they say.
        lock: What is read of them all, and nothing else; None without one.

    Raises:
        InvalidArgumentError: A name is none, there is no store, or two are one.
        SkillFSError: A store cannot be opened; naming its mount.
    """
    if not table:
        raise InvalidArgumentError("the mapping of stores is empty; pass at least one name with its store")
    mounts: list[Mount] = []
    read = 0
    for name, value in table.items():
        _check_name(name)
        with naming(name, SkillFSError):
            own = _arguments(value)
            options = {"ignore": ignore, "follow": follow, **own}
            options.setdefault("index", ":memory:" if in_memory else None)
            options.setdefault("store_id", None)
            store = options.pop("store", None)
            own_age = options.pop("max_age", max_age)
            kept = {key: options.pop(key, objects.get(key)) for key in ("objects", "objects_options")}
            at = options.pop("at", None)
            where = named_store(store, options.get("fs"), at=at, objects=kept["objects"])
            look = None
            if at is None:
                engine, look = open_engine(where, **options)
            else:
                place = place_of(
                    where,
                    fs=options.get("fs"),
                    target_options=options.get("target_options"),
                    index=options["index"],
                    **kept,
                )
                opened = {key: options[key] for key in ("index", "store_id", "ignore")}
                engine = open_snapshot(at, place, **opened)
            _check_new(name, engine, mounts)
            most = 0

            def report(count: int) -> None:
                nonlocal most
                most = max(most, count)
                assert on_progress is not None
                on_progress(read + count)  # noqa: B023  # called before the next turn

            engine.sync(on_progress=None if on_progress is None else report, look=look)
            read += most
            age = max_age_of(engine, own_age)
        locked = None if lock is None else locked_store(lock, str(name))
        mounts.append(_mount(name, engine, None, age, locked))
    return mounts


def _mount(
    name: str,
    engine: Engine,
    base_paths: Sequence[object] | None,
    max_age: float,
    locked: LockedStore | None,
) -> Mount:
    lookup = Lookup(engine, base_paths, max_age, name, locked)
    return Mount(name, engine, lookup, Reader(lookup), max_age)


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"the name of a mount is a string, not {quoted(name)}")
    if (fault := mount_name_fault(name)) is not None:
        raise InvalidArgumentError(f"the mount name {quoted(name)} {fault}; choose another")


def _arguments(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {"store": value}
    unknown = sorted(str(key) for key in value if key not in _ARGUMENTS)
    if unknown:
        raise InvalidArgumentError(
            f"a store takes no argument {quoted(unknown[0])}; pass some of {', '.join(_ARGUMENTS)}"
        )
    return dict(value)


def _check_new(name: str, engine: Engine, mounts: Sequence[Mount]) -> None:
    path = engine.database.path
    for other in mounts:
        # A store may well stand beside what it was: of an entry that is in both the first mount has it.
        still = isinstance(engine, StillEngine) or isinstance(other.engine, StillEngine)
        if other.engine.namespace.uuid == engine.namespace.uuid and not still:
            raise InvalidArgumentError(
                f"it has the identity of mount {quoted(other.name)}, {engine.namespace.uuid}; "
                "mount a store once, or give a copy its own store_id"
            )
        if path is not None and other.engine.database.path == path:
            raise InvalidArgumentError(
                f"it would share its index with mount {quoted(other.name)}; give each its own index"
            )


# -- the table ---------------------------------------------------------------------------------------------


class MountTable:
    """Mounts in their order, which decides who comes first.

    Args:
        mounts: What can be seen at all.
        root: The row that stands for the root; by default one that follows from the mounts.
        accesses: What one call may see of each by name; by default what the mount's own look-up lets see.
    """

    def __init__(
        self,
        mounts: Sequence[Mount],
        root: Row | None = None,
        accesses: Mapping[str, Access] | None = None,
    ) -> None:
        self.mounts = tuple(mounts)
        self._accesses = accesses
        self.root = root or _root_of(self.mounts)
        self._named = {mount.name: mount for mount in self.mounts}
        self._rooted: dict[str, Mount] = {}
        for mount in self.mounts:
            for spelling in mount.engine.store.spellings:
                self._rooted.setdefault(spelling, mount)
        self.spellings = tuple(self._rooted)

    @property
    def prefixes(self) -> dict[str, str]:
        """Spellings of the stores' roots, each with the name of its mount."""
        return {spelling: mount.name for spelling, mount in self._rooted.items()}

    def confined(self, base_paths: object) -> MountTable:
        """For good: the mounts in which a base lies, each confined to its own.

        Raises:
            InvalidArgumentError: `base_paths` is malformed.
            NotFoundError: A base is not there.
            IsFileError: A base is a file.
        """
        inner = self._below(base_paths)
        mounts = [
            mount if inner[mount.name] is None
            else _mount(mount.name, mount.engine, inner[mount.name], mount.max_age, mount.lookup.locked)
            for mount in self.mounts if mount.name in inner
        ]  # fmt: skip
        return MountTable(mounts, self.root)

    def within(self, base_paths: Sequence[object] | None) -> MountTable:
        """For one call: the same; every base is looked up at once, whatever the call is about.

        Raises:
            SkillFSError: As for `confined`.
        """
        if base_paths is None:
            return self
        mounts = [(self._named[name], bases) for name, bases in self._below(base_paths).items()]
        accesses = {mount.name: mount.lookup.access(bases) for mount, bases in mounts}
        return MountTable([mount for mount, _ in mounts], self.root, accesses)

    def _below(self, base_paths: object) -> dict[str, list[object] | None]:
        """The bases by mount, as its own look-up takes them; None for all of a mount."""
        inner: dict[str, list[object] | None] = {}
        for base in list_of_bases(base_paths):
            mount, asked = self.ask(base)
            ref = asked.ref
            if isinstance(ref, PathRef) and mount is None:
                if ref.parts:
                    raise self.missing(asked)
                inner.update(dict.fromkeys(self._named))
            elif isinstance(ref, PathRef) and mount is not None:
                if not ref.parts:
                    inner[mount.name] = None
                    continue
                path = printable_path(ref.path, mount.engine.store.spellings) + "/" * ref.folder
                _add(inner, mount.name, path)
            elif self.is_root(asked):
                inner.update(dict.fromkeys(self._named))
            else:
                _add(inner, self.first(asked, _name_of_holder), base)
        # In the table's order, whatever order they were given in.
        return {name: inner[name] for name in self._named if name in inner}

    def view(self, mount: Mount) -> View:
        """What may be seen of a mount now."""
        accesses = self._accesses
        return View(mount, mount.lookup.access() if accesses is None else accesses[mount.name])

    def views(self) -> list[View]:
        """What may be seen of each mount now."""
        return [self.view(mount) for mount in self.mounts]

    # -- references ----------------------------------------------------------------------------------------

    def ask(self, value: object) -> tuple[Mount | None, Asked]:
        """Parse a reference of any form.

        Returns:
            The mount that a path leads into, and the path below it; else None, and the whole reference.

        Raises:
            InvalidArgumentError: It is malformed.
            NotFoundError: It is a URL that is none of these stores'.
        """
        return self._split(value, parse_ref)

    def ask_path(self, path: object) -> tuple[Mount | None, Asked]:
        """The same for a path as the methods of fsspec take it."""
        return self._split(path, parse_path)

    def _split(
        self, value: object, parse: Callable[[object, Sequence[str]], Any]
    ) -> tuple[Mount | None, Asked]:
        root = root_above(value, self.spellings) if isinstance(value, str) else None
        if root is not None:
            mount = self._rooted[root]
            return mount, Asked(parse(value, (root,)), value, mount.name)
        ref = parse(value, self.spellings)
        if not isinstance(ref, PathRef) or not ref.parts:
            return None, Asked(ref, value)
        name, *below = ref.parts
        found = self._mount_named(name)
        if found is None:
            return None, Asked(ref, value)
        # The name stays as it was sent: what an error echoes may not depend on what there is.
        return found, Asked(PathRef(tuple(below), ref.folder and bool(below)), value, name)

    def _mount_named(self, name: str) -> Mount | None:
        if name in self._named:
            return self._named[name]
        wanted = unicodedata.normalize("NFC", name)
        found = [mount for mount in self.mounts if unicodedata.normalize("NFC", mount.name) == wanted]
        if len(found) > 1:
            raise InvalidArgumentError(
                f"the name {quoted(name)} is ambiguous: {len(found)} mounts are equal to it under NFC; "
                "write it as the list of the root does"
            )
        return found[0] if found else None

    def is_root(self, asked: Asked) -> bool:
        """Whether a reference that leads into no mount names the root of all."""
        ref = asked.ref
        if isinstance(ref, PathRef):
            return not ref.parts and not asked.mount
        if isinstance(ref, UuidRef):
            return ref.uuid == self.root.uuid
        return isinstance(ref, IdRef) and ref.id == self.root.id

    def missing(self, asked: Asked, *, hint: bool = True) -> NotFoundError:
        """The error for a path whose first component is no mount."""
        near = None
        if hint and isinstance(asked.ref, PathRef) and asked.ref.parts:
            near = next(iter(get_close_matches(asked.ref.parts[0], list(self._named), 1, 0.8)), None)
        return not_found(asked.shown_without(self.spellings), near)

    def first(self, asked: Asked, work: Callable[[View, Asked], T]) -> T:
        """Do something with what a reference that is no path names, in the first mount that has it.

        Args:
            asked: The reference.
            work: Looks it up in one mount, and raises `NotFoundError` where it is not.

        Raises:
            NotFoundError: No mount has it.
            NotIndexedError: None is known to have it, and in one the hash is not known for every file.
        """
        ref = asked.ref
        views = self.views()
        identity = isinstance(ref, IdRef | UuidRef)
        if isinstance(ref, IdRef | UuidRef):
            # To miss it in one store takes a check of all of that store: first where it is known to be.
            views.sort(key=lambda view: not view.mount.knows(ref))
        unknown = unavailable = None
        for view in views:
            try:
                with naming(view.mount.name):
                    return work(view, asked)
            except NotFoundError:
                continue
            except NotIndexedError as error:
                unknown = error
            except StoreUnavailableError as error:
                if not identity:
                    raise  # who comes first cannot be told
                unavailable = error
        if unavailable is not None:
            raise unavailable
        raise not_found(asked.shown) if unknown is None else not_indexed(asked)


def _name_of_holder(view: View, asked: Asked) -> str:
    view.mount.lookup.entry(asked, view.access, hint=False)
    return view.mount.name


def not_indexed(asked: Asked) -> NotIndexedError:
    """The error for a hash that is not known of all files of all mounts."""
    assert isinstance(asked.ref, HashRef)
    return NotIndexedError(
        f"{asked.ref.algorithm} is not known for every file yet; run: skillfs index --full"
    )


def _add(inner: dict[str, list[object] | None], name: str, base: object) -> None:
    own = inner.setdefault(name, [])
    if own is not None:  # else all of the mount is named already
        own.append(base)


def _root_of(mounts: Sequence[Mount]) -> Row:
    """A row for the root of several stores, whose identity follows from theirs."""
    identity = json.dumps([[mount.name, str(mount.engine.namespace.uuid)] for mount in mounts])
    uuid = Namespace(uuidlib.uuid5(uuidlib.NAMESPACE_URL, f"skill:{identity}")).uuid_of("")
    return Row(
        0, RowKind.FOLDER, Visibility.ON_THE_WAY, id_of_uuid(uuid), uuid, b"", None, 0, None, None, None, "",
        None, Place(0, ""),
    )  # fmt: skip
