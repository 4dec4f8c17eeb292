"""Sees to it that a filesystem with a lock knows which skills it may tell of."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from skillfs.access import Access
from skillfs.core.digest import uuid_text
from skillfs.digests import Hasher
from skillfs.errors import SkillFSError, StoreUnavailableError
from skillfs.index.rows import Row
from skillfs.locked import LockedStore, MainFile
from skillfs.mounts import View
from skillfs.stores.base import Handle, KeyRefusedError

__all__ = ["settle"]


def settle(views: Sequence[View], *, fresh: bool = False) -> None:
    """Compute the SHA-256 of every `SKILL.md` that may be as a lock names it, where it is not known.

    What cannot be read now stays unknown, and counts as something else than what is locked.

    Args:
        views: The stores; of one without a lock nothing is computed.
        fresh: Whether they are checked first, where the last check is too old.
    """
    for view in views:
        locked = view.mount.lookup.locked
        if locked is not None:
            if fresh:
                view.mount.ensure_fresh()
            _settle(view, locked)


def _settle(view: View, locked: LockedStore) -> None:
    mount = view.mount
    engine, catalog = mount.engine, mount.engine.catalog
    stamp = engine.query(catalog.stamp)
    if stamp is not None and stamp == locked.settled:
        return
    unknown = engine.query(lambda: locked.unknown(catalog))
    if not unknown:
        locked.settled = stamp
        return
    hasher = Hasher()

    def read(row: Row, handle: Handle) -> None:
        _, digest = hasher.read(mount, row, handle)
        if row.signature == handle.state.signature:
            locked.remember(row.key, row.signature, digest)

    def compute(main: MainFile) -> None:
        try:
            # Nothing is handed out, so that it makes no difference who may see it.
            mount.reader.with_handle(mount.lookup.ask(uuid_text(main.uuid)), Access(), read, enforced=False)
        except SkillFSError as error:
            if isinstance(error, StoreUnavailableError) and not isinstance(error, KeyRefusedError):
                raise

    with contextlib.suppress(StoreUnavailableError):
        mount.reader.many(compute, unknown)
    hasher.keep()
