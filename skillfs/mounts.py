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
from skillfs.core.manifest import digest_text
from skillfs.core.model import Place
from skillfs.core.refs import (
    HashRef,
    IdRef,
    PathRef,
    UuidRef,
    below_mount,
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
from skillfs.locked import LockedStore
from skillfs.lookup import Asked, Lookup, list_of_bases
from skillfs.objects.store import SnapshotStore
from skillfs.reading import Reader
from skillfs.stores.remote import RemoteStore
from skillfs.sync.engine import Engine

__all__ = ["Mount", "MountTable", "View", "mount_of", "naming", "status_of"]

T = TypeVar("T")


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

    def ensure_fresh(self, path: str = "") -> bool:
        """Check a folder and all below it, unless that was done within `max_age`; see `Engine.ensure_fresh`.

        Raises:
            StoreUnavailableError: The store is not there; naming the mount.
        """
        with naming(self.name):
            return self.engine.ensure_fresh(path, self.max_age)

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


def mount_of(
    name: str,
    engine: Engine,
    base_paths: Sequence[object] | None,
    max_age: float,
    locked: LockedStore | None,
) -> Mount:
    """A store as a mount; `base_paths` confine it for good, and `locked` is what is read of it alone."""
    lookup = Lookup(engine, base_paths, max_age, name, locked)
    return Mount(name, engine, lookup, Reader(lookup), max_age)


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
            else mount_of(mount.name, mount.engine, inner[mount.name], mount.max_age, mount.lookup.locked)
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
