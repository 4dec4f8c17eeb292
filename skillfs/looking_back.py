"""Finds the snapshots of a store, and opens one of them in place of the store."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from skillfs.core.digest import Namespace
from skillfs.core.ignore import IgnoreRules
from skillfs.core.model import Snapshot
from skillfs.errors import InvalidArgumentError, NotFoundError, quoted
from skillfs.index.database import Database
from skillfs.objects.local import check_outside
from skillfs.objects.opening import open_objects
from skillfs.objects.snapshots import LATEST, SnapshotCatalog
from skillfs.objects.store import SnapshotStore
from skillfs.opening import (
    default_index,
    index_file,
    is_url,
    open_store,
    private_folder,
    shared_engine,
    store_argument,
    store_namespace,
)
from skillfs.stores.local import LocalStore
from skillfs.stores.remote import RemoteStore
from skillfs.stores.source import account_of
from skillfs.sync.still import StillEngine

__all__ = [
    "NEVER",
    "ObjectsPlace",
    "forget_indexes",
    "named_store",
    "open_catalog",
    "open_snapshot",
    "place_of",
    "ref_text",
]

NEVER = 1e9
"""Seconds that a check of a snapshot holds: longer than any process lives, and still what a lock can wait."""

_TITLE = "skill"


class ObjectsPlace(NamedTuple):
    """Where the snapshots of a store are kept.

    Attributes:
        where: Path of the object folder, or URL.
        options: For the filesystem of a URL.
        store: The store; None where there is none any more.
    """

    where: str | os.PathLike[str]
    options: Mapping[str, Any] | None
    store: LocalStore | RemoteStore | None


def named_store(
    store: object,
    fs: object,
    *,
    at: object,
    objects: object,
    fo: object = None,
    target_protocol: str | None = None,
) -> object:
    """The store that arguments name; None where `fs` is one by itself, or the objects of a snapshot suffice.

    Raises:
        InvalidArgumentError: None names it, or two name different ones.
    """
    if store is fo is None and (fs is not None or (at is not None and objects is not None)):
        return None
    return store_argument(store, fo, target_protocol)


def place_of(
    store: object,
    *,
    fs: object = None,
    target_options: Mapping[str, object] | None = None,
    index: str | os.PathLike[str] | None,
    objects: str | os.PathLike[str] | None,
    objects_options: Mapping[str, Any] | None,
) -> ObjectsPlace:
    """Where the snapshots of a store are kept: as named, else beside its index.

    Args:
        store: The store, open or as `open_store` takes it. A local folder may be gone: what is kept of it is
            what it can be had back from. None where the object folder is named, and that suffices.
        fs: As for `open_store`.
        target_options: As for `open_store`.
        index: Path of the store's index file, or `":memory:"`; None for the usual one.
        objects: Path or URL of the object folder; None for the usual one.
        objects_options: For the filesystem of that URL.

    Raises:
        SkillFSError: The store cannot be opened, or an argument is malformed.
    """
    opened: LocalStore | RemoteStore | None = None
    url = ""
    if isinstance(store, LocalStore | RemoteStore):
        opened = store
    elif store is not None or fs is not None:
        try:
            opened = open_store(store, fs=fs, target_options=target_options)
        except NotFoundError:
            text = os.fspath(store) if isinstance(store, str | os.PathLike) else ""
            if fs is not None or not text or (isinstance(store, str) and is_url(text)):
                raise
            url = "file://" + quote(os.path.realpath(os.path.expanduser(text.removeprefix("file://"))))
    if objects is not None:
        return ObjectsPlace(objects, objects_options, opened)
    if objects_options:
        raise InvalidArgumentError("objects_options go with the URL of an object folder; pass it as objects")
    path = None if index is None else index_file(index)
    if path is None:
        url = url if opened is None else opened.url
        if url.startswith("memory:"):
            # It ends with the process, as the store does.
            name = hashlib.sha256(url.encode()).hexdigest()[:32]
            return ObjectsPlace(f"memory://skillfs-objects-{name}", None, opened)
        if not url:
            raise InvalidArgumentError("which snapshots? name a store, or the object folder they are kept in")
        path = default_index(url, "" if opened is None else opened.account)
    return ObjectsPlace(Path(f"{path}.objects"), None, opened)


def open_catalog(place: ObjectsPlace, *, create: bool) -> SnapshotCatalog:
    """The snapshots that are kept at a place.

    Args:
        place: The place.
        create: Whether to make the object folder when it is not there.

    Raises:
        NotFoundError: There is none, and it is not to be made.
        SkillFSError: It cannot be opened.
    """
    local = isinstance(place.store, LocalStore)
    if local and not (isinstance(place.where, str) and is_url(place.where)):
        assert isinstance(place.store, LocalStore)
        check_outside(place.store.root, _plain(place.where))
    return SnapshotCatalog(open_objects(place.where, place.options, create=create))


def _plain(where: str | os.PathLike[str]) -> str:
    text = os.fspath(where)
    return text.partition("://")[2] if "://" in text and isinstance(where, str) else text


def ref_text(ref: object) -> str:
    """What names a snapshot, as text: a label, a digest, `latest`; or a `Snapshot` itself.

    Raises:
        InvalidArgumentError: It is none of these.
    """
    if isinstance(ref, Snapshot):
        return ref.record
    if not isinstance(ref, str):
        raise InvalidArgumentError(f"{quoted(ref)} names no snapshot; pass a label, a digest, or latest")
    return ref


def open_snapshot(
    at: object,
    place: ObjectsPlace,
    *,
    index: str | os.PathLike[str] | None,
    store_id: str | None,
    ignore: Sequence[str],
    on_progress: Callable[[int], None] | None = None,
) -> StillEngine:
    """The engine of a snapshot, its index filled: the one that is open in this process, or a new one.

    Args:
        at: Label, digest, or `latest`: of the store, where there is one.
        place: Where it is kept.
        index: `":memory:"` for an index in memory; whatever else the store has, a snapshot has its own.
        store_id: Identity of the store that `latest` is about; None for its own.
        ignore: Patterns for what is left out; nothing that the snapshot holds is by itself.
        on_progress: Called with the number of folders read, now and then.

    Raises:
        NotFoundError: No snapshot answers to it.
        IntegrityError: The snapshot is damaged.
        SkillFSError: It cannot be opened.
    """
    text = ref_text(at)
    rules = IgnoreRules(("!*", *IgnoreRules(ignore).extra))
    try:
        catalog = open_catalog(place, create=False)
    except NotFoundError as error:
        raise NotFoundError(
            f"no snapshot answers to {quoted(text)}, as there is no object folder for this store: take a "
            "snapshot, or name the folder with --objects if the store was moved, or its index"
        ) from error
    owner = None
    if text == LATEST and place.store is not None:
        owner = store_namespace(place.store, store_id)
    digest, record = catalog.resolve(text, owner)
    title = _TITLE if place.store is None else place.store.title
    path = None
    if index != ":memory:" and not catalog.folder.url.startswith("memory:"):
        rest = hashlib.sha256(json.dumps([rules.extra, title]).encode()).hexdigest()[:8]
        path = private_folder() / f"{_index_name(digest)}{rest}.sqlite"

    def make() -> StillEngine:
        store = SnapshotStore(catalog, digest, record, title)
        identities = [(path, uuid.bytes) for path, uuid in record.identities]
        return StillEngine(store, Database(path), Namespace(record.store_id), rules, title, identities)

    key = (
        "snapshot",
        digest,
        catalog.folder.url,
        account_of(place.options or {}),
        str(path),
        rules.extra,
        title,
    )
    engine = shared_engine(key, make)
    engine.sync(on_progress=on_progress)
    return engine


def _index_name(record: bytes) -> str:
    return f"snapshot-{record.hex()[:32]}-"


def forget_indexes(record: bytes) -> None:
    """Remove the indexes of a snapshot that is gone.

    Args:
        record: Digest of its record, 32 bytes.
    """
    with contextlib.suppress(OSError):
        for path in list(private_folder().glob(f"{_index_name(record)}*")):
            path.unlink(missing_ok=True)
