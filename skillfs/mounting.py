"""Opens stores and snapshots, alone or under the names of a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from skillfs.core.lock import Lock
from skillfs.core.refs import mount_name_fault
from skillfs.errors import InvalidArgumentError, SkillFSError, quoted
from skillfs.locked import locked_store
from skillfs.looking_back import NEVER, ObjectsPlace, named_store, open_snapshot, place_of
from skillfs.mounts import Mount, mount_of, naming
from skillfs.opening import open_engine
from skillfs.stores.base import Store
from skillfs.sync.engine import Engine, Mark
from skillfs.sync.still import StillEngine

__all__ = ["Opened", "max_age_of", "open_mounts", "open_one"]

LOCAL_MAX_AGE = 2.0
REMOTE_MAX_AGE = 60.0
"""Seconds that a check of a store holds for listings, where the caller does not say."""

_ARGUMENTS = (
    *("store", "fs", "target_options", "store_id", "ignore", "follow", "index", "max_age"),
    *("at", "objects", "objects_options"),
)


_NO_OBJECTS: Mapping[str, Any] = {}


class Opened(NamedTuple):
    """A store, or a snapshot of one.

    Attributes:
        engine: Store and index.
        look: Of a remote store what it showed just now, which its first `sync` is to begin with.
        place: Where a snapshot is kept; None for a store.
    """

    engine: Engine
    look: tuple[Mark, Store] | None
    place: ObjectsPlace | None


def open_one(
    store: object,
    *,
    fo: object = None,
    target_protocol: str | None = None,
    fs: object = None,
    target_options: Mapping[str, object] | None = None,
    index: str | os.PathLike[str] | None,
    store_id: str | None,
    ignore: Sequence[str],
    follow: Sequence[str | os.PathLike[str]],
    at: object = None,
    objects: str | os.PathLike[str] | None = None,
    objects_options: Mapping[str, Any] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Opened:
    """Open a store, or a snapshot of one; the arguments are those of `SkillFileSystem`.

    Raises:
        SkillFSError: An argument is malformed, or it cannot be opened.
    """
    where = named_store(store, fs, at=at, objects=objects, fo=fo, target_protocol=target_protocol)
    target: dict[str, Any] = {"fs": fs, "target_options": target_options}
    if at is None:
        engine, look = open_engine(
            where, **target, index=index, store_id=store_id, ignore=ignore, follow=follow
        )
        return Opened(engine, look, None)
    place = place_of(where, **target, index=index, objects=objects, objects_options=objects_options)
    still = open_snapshot(at, place, index=index, store_id=store_id, ignore=ignore, on_progress=on_progress)
    return Opened(still, None, place)


def max_age_of(engine: Engine, given: object) -> float:
    """How long a check holds: as given, or as fits the store; for ever where nothing changes.

    Raises:
        InvalidArgumentError: What was given is no number of seconds.
    """
    if given is not None and (
        isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < 1e300
    ):
        raise InvalidArgumentError(f"max_age is {quoted(given)}; pass seconds, 0 or more")
    if isinstance(engine, StillEngine):
        return NEVER
    if given is None:
        return REMOTE_MAX_AGE if engine.store.remote else LOCAL_MAX_AGE
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
            options = {"ignore": ignore, "follow": follow, **objects, **own}
            options.setdefault("index", ":memory:" if in_memory else None)
            options.setdefault("store_id", None)
            own_age = options.pop("max_age", max_age)
            engine, look, _ = open_one(options.pop("store", None), **options)
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
        mounts.append(mount_of(name, engine, None, age, locked))
    return mounts


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
