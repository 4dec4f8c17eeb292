"""A snapshot as a store: its manifest is the listing, its files are verified blobs."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from functools import cached_property

from skillfs.core.manifest import Manifest, SnapshotRecord, digest_text
from skillfs.core.model import Place
from skillfs.errors import IntegrityError
from skillfs.objects.blobs import Blobs
from skillfs.objects.snapshots import SnapshotCatalog
from skillfs.stores.base import FileState, Handle, KeyRefusedError
from skillfs.stores.folder_tree import FolderTree, Link
from skillfs.stores.remote import RemoteStore
from skillfs.stores.source import Tells

__all__ = ["SnapshotStore", "signature_of"]

_DIGEST = 32
_EXECUTABLE = b"x"
_PLAIN = b"-"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def signature_of(digest: bytes, *, executable: bool) -> bytes:
    """The signature of a file of a snapshot: its SHA-256, and whether its owner may execute it."""
    return digest + (_EXECUTABLE if executable else _PLAIN)


class SnapshotStore(RemoteStore):
    """The skill folders that a snapshot holds; see `Store`. Nothing in it ever changes.

    The manifest is not read before something is listed, and a blob not before somebody reads it: who has an
    index of the snapshot needs neither.

    Args:
        catalog: The snapshots of an object folder.
        digest: Digest (32 bytes) of the snapshot's record.
        record: The record.
        title: Name of a skill whose folder is the root.
    """

    def __init__(self, catalog: SnapshotCatalog, digest: bytes, record: SnapshotRecord, title: str) -> None:
        self.catalog = catalog
        self.digest = digest
        self.record = record
        self.url = f"snapshot:{digest_text(digest)}"
        self.spellings = (self.url,)
        self.account = ""
        self.holds_empty_folders = True
        self.writable = False
        self._title = title
        self._blobs = catalog.blobs
        self._modified = (record.created - _EPOCH) // (record.created.resolution) * 1_000

    @property
    def title(self) -> str:
        """Name of the root."""
        return self._title

    @property
    def tells(self) -> Tells:
        """A manifest tells the very content."""
        return "version"

    @cached_property
    def manifest(self) -> Manifest:
        """What the snapshot holds.

        Raises:
            IntegrityError: It is damaged.
            StoreUnavailableError: The object folder cannot be read now.
        """
        return self.catalog.manifest(self.record)

    @cached_property
    def _tree(self) -> FolderTree:  # type: ignore[override]  # made when it is asked for
        tree = FolderTree()
        links: list[tuple[str, str]] = list(self.manifest.links)
        for skill in self.manifest.skills:
            top = f"{skill.path}/" if skill.path else ""
            for path, size, digest, executable in skill.files:
                signature = signature_of(digest, executable=executable)
                tree.put(top + path, FileState(signature, size, self._modified))
            for path in skill.folders:
                tree.put(top + path, None)
            links.extend((top + path, target) for path, target in skill.links)
        for path, target in links:
            tree.put(path, Link(target))
        return tree

    def look(self, paths: Collection[str] = ("",)) -> SnapshotStore:
        """See `Store.look`: it always shows all of itself."""
        return self

    def executable(self, signature: bytes) -> bool | None:
        """See `Store.executable`."""
        return signature[_DIGEST : _DIGEST + 1] == _EXECUTABLE

    def changed(self, signature: bytes) -> int | None:
        """See `Store.changed`: nothing changes in a snapshot."""
        return None

    def open(self, place: Place, known: FileState | None = None) -> Handle:  # type: ignore[override]
        """See `Store.open`.

        Raises:
            KeyRefusedError: Its blob is missing or damaged, and no state was given: a scan goes on then.
        """
        state = known
        if state is None or state.size < 0 or len(state.signature) != _DIGEST + 1:
            state = self.state(place)
            if state is None or len(state.signature) != _DIGEST + 1:
                raise FileNotFoundError(errno.ENOENT, "there is no such file")
        handle = _BlobHandle(self._blobs, state)
        if known is None:
            try:
                handle.read(0, 1)
            except IntegrityError as error:
                raise KeyRefusedError(
                    "its content in the object folder is missing or damaged; run: skillfs snapshot fsck"
                ) from error
        return handle


class _BlobHandle:
    """A file of a snapshot; see `Handle`. Its blob is opened at the first reading."""

    def __init__(self, blobs: Blobs, state: FileState) -> None:
        self.state = state
        self._blobs = blobs
        self._opened: Handle | None = None

    def _handle(self) -> Handle:
        if self._opened is None:
            self._opened = self._blobs.open(self.state.signature[:_DIGEST], self.state.size)
        return self._opened

    def read(self, offset: int, length: int) -> bytes:
        """See `Handle.read`."""
        return self._handle().read(offset, length)

    def blocks(self) -> Iterator[bytes]:
        """See `Handle.blocks`."""
        return self._handle().blocks()

    def unchanged(self) -> bool:
        """See `Handle.unchanged`: what goes by its content never changes."""
        return True

    def settled(self) -> FileState:
        """See `Handle.settled`."""
        return self.state

    def close(self) -> None:
        """See `Handle.close`."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def __enter__(self) -> _BlobHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_HANDLE: type[Handle] = _BlobHandle
