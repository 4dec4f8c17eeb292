"""Sees to it that a filesystem with a lock knows which skills it may tell of."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from skillfs.access import Access
from skillfs.core.digest import sha256, uuid_text
from skillfs.core.frontmatter import HEAD_LIMIT
from skillfs.core.refs import printable_path
from skillfs.errors import IntegrityError, SkillFSError, StoreUnavailableError, quoted
from skillfs.index.rows import Row
from skillfs.locked import LockedStore, MainFile
from skillfs.mounts import View
from skillfs.stores.base import Handle, KeyRefusedError

__all__ = ["require_named", "settle"]


def settle(views: Sequence[View], *, fresh: bool = False) -> None:
    """Read every large `SKILL.md` that may be as a lock names it, where that is not known.

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

    def read(row: Row, handle: Handle) -> None:
        head, whole = b"", sha256()
        for block in handle.blocks():
            head += block[: HEAD_LIMIT - len(head)]
            whole.update(block)
        locked.remember(row.key, row.signature, sha256(head).digest(), whole.digest())

    def compute(main: MainFile) -> None:
        try:
            # Nothing is handed out, so that it makes no difference who may see it.
            mount.reader.with_handle(mount.lookup.ask(uuid_text(main.uuid)), Access(), read, enforced=False)
        except SkillFSError as error:
            if isinstance(error, StoreUnavailableError) and not isinstance(error, KeyRefusedError):
                raise

    with contextlib.suppress(StoreUnavailableError):
        mount.reader.many(compute, unknown)


def require_named(locked: LockedStore, path: str, digest: bytes) -> None:
    """See that the text of a file that was kept may be told.

    Args:
        locked: What a lock names of its store.
        path: Store path at which it lay.
        digest: SHA-256, 32 bytes.

    Raises:
        IntegrityError: The lock does not name this content for this path.
    """
    file = locked.files.get(path)
    if file is None or file.digest != digest:
        raise IntegrityError(
            f"{quoted(printable_path(path))} was not as the lock names it, so its text is not told; open the "
            "store without the lock to review it"
        )
