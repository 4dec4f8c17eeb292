"""Takes snapshots: looks at a store, stores what is not stored yet, looks again, and writes down what it saw.

A snapshot is of a state that was there: the store shows the same before the first and after the last of its
files is read, else what became different is looked at again. What is known by its SHA-256, and stored, is not
read. Blobs come first, then the parts of the manifest, its top, the record, and the label: whatever ends it
before that leaves no record, and blobs that the next one finds.
"""

from __future__ import annotations

import uuid as uuidlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from skillfs.core.digest import sha256, uuid_text
from skillfs.core.manifest import (
    Manifest,
    ManifestTop,
    SnapshotRecord,
    check_label,
    part_name,
)
from skillfs.core.manifest_json import parse_top, written
from skillfs.core.model import Place
from skillfs.core.refs import printable_path
from skillfs.digests import Hasher
from skillfs.errors import (
    ChangedError,
    IntegrityError,
    IsFolderError,
    NotFoundError,
)
from skillfs.history.contents import Taken, Wanted, bare, read_whole, together
from skillfs.history.describing import check_locked, described
from skillfs.history.present import Present, present
from skillfs.index.rows import NodeRow, Row
from skillfs.mounts import View
from skillfs.objects.folder import BAD, BLOBS
from skillfs.objects.snapshots import SnapshotCatalog
from skillfs.stores.base import Handle

__all__ = ["create_snapshot"]

ATTEMPTS = 6
"""How often a store is looked at again that is another after its files were read."""


def create_snapshot(
    view: View,
    catalog: SnapshotCatalog,
    label: str | None,
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[bytes, SnapshotRecord]:
    """Take a snapshot of a store, or of what of it may be seen.

    Args:
        view: The store, and what may be seen there.
        catalog: The snapshots of the object folder in which it is to be kept.
        label: A name for it; None for none.
        on_progress: Called now and then with the number of files done and the number there are.

    Returns:
        Digest of the record, and the record: those of the newest snapshot of the store, where nothing has
        changed since.

    Raises:
        InvalidArgumentError: The label is none.
        AlreadyExistsError: It is that of another snapshot.
        ChangedError: The store changes faster than it can be read.
        UnreadableError: A file may not be read.
        StoreUnavailableError: The store or the object folder does not answer, or that is full.
        IntegrityError: The store is read by a lock, and a file is not as that names it.
    """
    if label is not None:
        check_label(label)
    with catalog.folder.holding(alone=False):
        creation = _Creation(view, catalog, on_progress)
        if label is not None:
            catalog.check_free(label, None if creation.newest is None else creation.newest[0])
        return creation.recorded(creation.settled(), label)


class _Creation:
    def __init__(
        self, view: View, catalog: SnapshotCatalog, on_progress: Callable[[int, int], None] | None
    ) -> None:
        self._view = view
        self._engine = view.mount.engine
        self._locked = view.mount.lookup.locked
        self._catalog = catalog
        self._blobs = catalog.blobs
        self._report = on_progress
        self.newest = catalog.newest_of(self._engine.namespace.uuid)
        self._parts = self._parts_of_newest()
        # Whoever writes into it meanwhile writes the same.
        self._is_empty = not catalog.folder.has_any(BLOBS)
        self._there: set[bytes] = set()
        self._read: dict[tuple[int, bytes], tuple[int, bytes]] = {}
        self._changed = False
        self._done = self._total = 0

    def _parts_of_newest(self) -> frozenset[bytes]:
        """The parts of the newest manifest whose blobs need not be asked for.

        In a local folder all are: to list it costs little, and what was lost is written anew. Elsewhere what
        the newest snapshot needs is taken to be there, unless something was found damaged.
        """
        folder = self._catalog.folder
        if self.newest is None or not folder.remote or folder.has_any(BAD):
            return frozenset()
        try:
            top: ManifestTop = self._catalog.top(self.newest[1])
        except IntegrityError:
            return frozenset()
        return frozenset(top.parts.values())

    # -- what is there -------------------------------------------------------------------------------------

    def settled(self) -> _Description:
        """A state that the store was in, of which all blobs are there."""
        found = present(self._view)
        for _ in range(ATTEMPTS):
            description = self._stored(found)
            # What was looked at just now, and not read since, need not be looked at again.
            if self._read or self._view.mount.max_age > 0:
                self._engine.sync()
            stamp = self._engine.query(self._engine.catalog.stamp)
            if description is not None and stamp is not None and stamp == found.stamp:
                return description
            again = present(self._view)
            if description is not None and _is_same(found, again):
                return description
            found = again
        raise ChangedError(
            "the store changes faster than a snapshot of it can be taken; try again when it is at rest"
        )

    def _stored(self, found: Present) -> _Description | None:
        """What was found, once all its contents are stored; None where files changed meanwhile."""
        # What links lead to is a file of some skill as well.
        keys = [file.node.key for skill in found.skills for file in skill.files]
        known = self._engine.query(lambda: self._engine.catalog.sha256s(keys))
        digests: dict[int, tuple[int, bytes]] = {}
        unknown: list[Wanted] = []
        for skill in found.skills:
            for below, node, _ in skill.files:
                read = self._read.get((node.key, bare(node))) if self._read else None
                if read is None and node.size is not None and node.key in known:
                    read = node.size, known[node.key]
                if read is None:
                    unknown.append(Wanted(node, skill.below(below)))
                else:
                    digests[node.key] = read
        self._changed = False
        self._total = len(keys)
        digests.update(self._store(unknown))
        if self._changed:
            return None
        manifest = described(found, digests)
        manifest.check()  # or nobody could read it
        if self._locked is not None:
            check_locked(manifest, self._locked)
        text, parts = written(manifest)
        top = parse_top(text)
        if self.newest is not None and self.newest[1].manifest == sha256(text).digest():
            self._parts = frozenset()  # who takes it once more may want what is missing to come back
        missing = self._missing(found, manifest, top)
        again = self._store(missing)
        if self._changed or any(digests[key] != one for key, one in again.items()):
            return None  # what the index knew of a file was of an earlier one
        return _Description(found, manifest, top, text, parts)

    def _missing(self, found: Present, manifest: Manifest, top: ManifestTop) -> list[Wanted]:
        """A file of each content that is not stored."""
        changed = {name for name, digest in top.parts.items() if digest not in self._parts}
        needed = {
            file.digest: file.size
            for skill in manifest.skills
            if part_name(skill.path) in changed
            for file in skill.files
            if file.digest not in self._there
        }
        if not needed:
            return []
        self._there |= self._has_all(needed)
        needed = {digest: size for digest, size in needed.items() if digest not in self._there}
        missing: dict[bytes, Wanted] = {}
        if needed:
            for skill, told in zip(found.skills, manifest.skills, strict=True):
                for file, one in zip(skill.files, told.files, strict=True):
                    if one.digest in needed:
                        missing.setdefault(one.digest, Wanted(file.node, skill.below(file.path)))
        return list(missing.values())

    # -- reading and storing -------------------------------------------------------------------------------

    def _store(self, wanted: list[Wanted]) -> dict[int, tuple[int, bytes]]:
        """Read files, each once, and store what is not stored; size and SHA-256 by the keys of their rows."""
        found: dict[int, tuple[int, bytes]] = {}
        if not wanted:
            return found
        self._done = self._total - len(wanted)
        put: set[bytes] = set()

        def contents() -> Iterator[tuple[bytes, Iterable[bytes]]]:
            for some in together(wanted):
                taken = self._take(some)
                try:
                    for one in taken:
                        found[one.node.key] = self._read[one.node.key, bare(one.node)] = one.size, one.digest
                    self._there |= self._has_all(
                        {
                            one.digest: one.size
                            for one in taken
                            if one.digest not in self._there and one.digest not in put
                        }
                    )
                    for one in taken:
                        if one.digest not in self._there and one.digest not in put:
                            put.add(one.digest)
                            yield one.digest, one.blocks()
                finally:
                    for one in taken:
                        one.close()
                self._done += len(some)
                if self._report is not None:
                    self._report(self._done, self._total)

        self._blobs.put_all(contents())
        self._there |= put
        return found

    def _has_all(self, asked: dict[bytes, int]) -> set[bytes]:
        return self._blobs.has_all(asked) if asked and not self._is_empty else set()

    def _take(self, some: list[Wanted]) -> list[Taken]:
        """Read some files; what is gone, or another than it was, is left out."""
        hasher = Hasher()
        if self._engine.store.remote:
            read = self._view.mount.reader.many(lambda one: self._take_looked_up(one, hasher), some)
        else:
            read = [self._take_at_place(one, hasher) or self._take_looked_up(one, hasher) for one in some]
        hasher.keep()
        taken = [one for one in read if one is not None]
        if len(taken) < len(some):
            self._changed = True
        return taken

    def _take_at_place(self, one: Wanted, hasher: Hasher) -> Taken | None:
        """Read a file of a local store where its path says; None where that is not just what was seen.

        To look each one up takes as long again as all the rest.
        """
        node = one.node
        if node.target is not None or node.size is None or node.signature.endswith(b"?"):
            return None
        try:
            with self._engine.store.open(Place(0, one.path)) as handle:
                if handle.state.signature != node.signature:
                    return None
                taken = read_whole(node, handle)
                if handle.unchanged() and taken.size == node.size:
                    hasher.remember(self._view.mount, node, taken.digest)
                    return taken
                taken.close()
        except OSError:  # by which what is looked up says more
            pass
        return None

    def _take_looked_up(self, one: Wanted, hasher: Hasher) -> Taken | None:
        """Read a file as everybody does; None where it is gone, or not what was seen."""
        node = one.node
        kept: list[Taken] = []

        def read(row: Row, handle: Handle) -> Taken | None:
            while kept:
                kept.pop().close()
            if bare(node) != handle.state.signature.removesuffix(b"?"):
                return None
            taken = read_whole(node, handle)
            kept.append(taken)
            if node.content is not None and node.content != taken.content:
                return None
            settled = row.signature == handle.state.signature or row.content == taken.content
            if settled and row.content in (None, taken.content):
                hasher.remember(self._view.mount, row, taken.digest)
            return taken

        mount = self._view.mount
        # By what stays when it moves; errors name it by its path.
        asked = mount.lookup.ask(uuid_text(node.uuid or b""))._replace(sent=printable_path(one.path))
        try:
            return mount.reader.with_handle(asked, self._view.access, read, enforced=False)
        except (NotFoundError, IsFolderError, ChangedError):
            return None

    # -- writing down --------------------------------------------------------------------------------------

    def recorded(self, description: _Description, label: str | None) -> tuple[bytes, SnapshotRecord]:
        """Write manifest, record and label, in this order; what is there already is not written again."""
        manifest = sha256(description.text).digest()
        namespace = self._engine.namespace
        identities = tuple(
            (path, uuidlib.UUID(bytes=uuid))
            for path, uuid in sorted(description.found.uuids.items())
            if path and uuid and uuid != namespace.uuid_of(path)
        )
        newest = self.newest
        self._blobs.put_manifests({**description.parts, manifest: description.text})
        if newest is not None and (newest[1].manifest, newest[1].identities) == (manifest, identities):
            record = newest[1]
        else:
            created = datetime.now(UTC)
            if newest is not None:
                created = max(created, newest[1].created + timedelta(microseconds=1))
            record = SnapshotRecord(
                manifest,
                () if newest is None else (newest[0],),
                created,
                namespace.uuid,
                identities,
                description.top.skills,
                description.top.files,
                description.top.size,
            )
        return self._catalog.add(record, label), record


class _Description(NamedTuple):
    """A state of a store: as the index has it, as a manifest, and as the text of that."""

    found: Present
    manifest: Manifest
    top: ManifestTop
    text: bytes
    parts: dict[bytes, bytes]


def _is_same(one: Present, other: Present) -> bool:
    """Whether a store showed the same twice."""
    return one.uuids == other.uuids and _shown(one) == _shown(other)


def _shown(found: Present) -> list[object]:
    def file(node: NodeRow) -> object:
        return node.key, bare(node), node.size, node.content

    return [
        *(
            (
                skill.path,
                [(f.path, f.executable, file(f.node)) for f in skill.files],
                [(link.path, link.target, link.file and file(link.file)) for link in skill.links],
                skill.folders,
            )
            for skill in found.skills
        ),
        [(link.path, link.target) for link in found.links],
    ]
