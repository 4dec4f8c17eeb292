"""The snapshots of a store, as `SkillFileSystem.snapshots`: listing, restoring, exporting, removing them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skillfs.access import Access
from skillfs.core.digest import sha256
from skillfs.core.frontmatter import HEAD_LIMIT, read_front_matter
from skillfs.core.manifest import Manifest, SnapshotRecord, digest_text
from skillfs.core.manifest_json import written
from skillfs.core.model import Snapshot
from skillfs.core.refs import PathRef, Ref, component_fault, parse_ref
from skillfs.errors import (
    IntegrityError,
    InvalidArgumentError,
    IsFileError,
    NotFoundError,
    SkillFSError,
    not_found,
    quoted,
)
from skillfs.history.describing import check_locked, within
from skillfs.history.exporting import Exported, export, rerooted
from skillfs.history.locking import read_lock
from skillfs.history.restoring import new_folder, write_folder
from skillfs.index.rows import Row, RowKind
from skillfs.locked import LockedStore, locked_store
from skillfs.looking_back import (
    NEVER,
    ObjectsPlace,
    forget_indexes,
    open_catalog,
    open_snapshot,
    place_of,
    ref_text,
)
from skillfs.lookup import Asked, Lookup, list_of_bases
from skillfs.objects.snapshots import LATEST, SnapshotCatalog
from skillfs.opening import store_namespace

if TYPE_CHECKING:
    from skillfs.objects.upkeep import Finding, Removed

__all__ = ["Snapshots", "find_snapshots", "snapshot_of"]

_NAME = "skill"
"""Name of the folder of a skill that was the root of its store, where it has none of its own that fits."""

Report = Callable[[int, int], None]


class Snapshots:
    """The snapshots in the object folder of a store, all of them: of other stores as well where it is shared.

    To a filesystem that is confined to some folders a snapshot is what it holds in these, and there are only
    those that hold something in them; what bears on all of them, `remove`, `gc` and `fsck`, is refused to it.
    A base that was given as a path stays that path; one given as id, UUID or name is where that lay then.

    Snapshots are named by a label; by `sha256:…` of the manifest or of the record, all of it or at least 8
    digits; as `latest`, which is the newest of the store; or by the `Snapshot` itself.

    Args:
        place: Where they are kept.
        store_id: UUID of the store that `latest` is about; None for all.
        bases: The folders that the filesystem is confined to; None for no restriction.
        roots: How the root of the store may be spelled in front of a path.

    Attributes:
        locked: What a lock names of the store: nothing else is restored or exported; None without one.
    """

    locked: LockedStore | None = None

    def __init__(
        self,
        place: ObjectsPlace,
        store_id: Any,
        bases: Sequence[object] | None,
        roots: Sequence[str],
    ) -> None:
        self._place = place
        self._store_id = store_id
        self._bases = None if bases is None else tuple(parse_ref(base, roots) for base in bases)
        self._roots = roots
        self._kept: SnapshotCatalog | None = None

    # -- looking -------------------------------------------------------------------------------------------

    def list(self) -> list[Snapshot]:
        """All snapshots, the newest first.

        Raises:
            IntegrityError: One of them is damaged; `fsck` tells which.
            StoreUnavailableError: The object folder cannot be read now.
        """
        try:
            catalog = self.catalog()
        except NotFoundError:
            return []
        labels = catalog.labels()
        found = (self._seen(digest, record, labels) for digest, record in catalog.records())
        return [snapshot for snapshot in found if snapshot is not None]

    def get(self, ref: object) -> Snapshot:
        """One snapshot.

        Raises:
            InvalidArgumentError: What names it is malformed, or the beginning of several digests.
            NotFoundError: No snapshot answers to it.
            IntegrityError: It is damaged.
            StoreUnavailableError: The object folder cannot be read now.
        """
        return self._found(ref)[1]

    def manifest(self, ref: object) -> Manifest:
        """What a snapshot holds: skills, files with sizes and SHA-256, links, empty folders.

        Raises:
            SkillFSError: As for `get`.
        """
        digest, _ = self._found(ref)
        return self._manifest(self.catalog().record(digest))

    def catalog(self, *, create: bool = False) -> SnapshotCatalog:
        """What lies in the object folder.

        Args:
            create: Whether to make the folder when it is not there.

        Raises:
            NotFoundError: There is none.
        """
        if self._kept is None:
            self._kept = open_catalog(self._place, create=create)
        return self._kept

    def _found(self, ref: object) -> tuple[bytes, Snapshot]:
        text = ref_text(ref)
        try:
            catalog = self.catalog()
        except NotFoundError:
            raise _unknown(text) from None
        if self._bases is not None and text == LATEST:
            # The newest that shows anything here.
            for one in self.list():
                if self._store_id is None or one.store_id == str(self._store_id):
                    return bytes.fromhex(one.record[7:]), one
            raise _unknown(text)
        digest, record = catalog.resolve(text, self._store_id)
        snapshot = self._seen(digest, record, catalog.labels())
        if snapshot is None:
            raise _unknown(text)
        return digest, snapshot

    def _seen(self, digest: bytes, record: SnapshotRecord, labels: Mapping[str, bytes]) -> Snapshot | None:
        """A snapshot as this filesystem may see it; None where it holds nothing of that."""
        if self._bases is None:
            return snapshot_of(digest, record, labels)
        manifest = self._manifest(record)
        if not manifest.skills:
            return None
        top, _ = written(manifest)
        files = [file for skill in manifest.skills for file in skill.files]
        record = SnapshotRecord(
            sha256(top).digest(),
            record.parents,
            record.created,
            record.store_id,
            (),
            len(manifest.skills),
            len(files),
            sum(file.size for file in files),
        )
        return snapshot_of(digest, record, labels)

    def _manifest(self, record: SnapshotRecord) -> Manifest:
        return within(self.catalog().manifest(record), self._access(record))

    def find(self, ref: object, base_paths: Sequence[object] | None = None) -> tuple[SnapshotRecord, Access]:
        """The record of a snapshot, and what of that a call may see, by path.

        Args:
            ref: The snapshot.
            base_paths: Folders that the call is confined to, within what the filesystem is confined to.

        Raises:
            SkillFSError: As for `get`; or a base is malformed.
        """
        digest, _ = self._found(ref)
        record = self.catalog().record(digest)
        access = self._access(record)
        if base_paths is None:
            return record, access
        bases = [parse_ref(base, self._roots) for base in list_of_bases(base_paths)]
        return record, access.within(self._access_to(bases, record).bases or ())

    def _access(self, record: SnapshotRecord) -> Access:
        return Access() if self._bases is None else self._access_to(self._bases, record)

    def _access_to(self, bases: Sequence[Ref], record: SnapshotRecord) -> Access:
        if all(isinstance(base, PathRef) for base in bases):
            return Access(base.path for base in bases if isinstance(base, PathRef))
        lookup = self._lookup(record)
        paths = []
        for base in bases:
            if isinstance(base, PathRef):
                paths.append(base.path)
                continue
            try:
                row = lookup.entry(Asked(base, ""), Access(), hint=False)
            except (NotFoundError, InvalidArgumentError):
                continue
            if row.kind != RowKind.FILE:
                paths.append(row.path)
        return Access(paths)

    def _lookup(self, record: SnapshotRecord) -> Lookup:
        """Finds things in a snapshot."""
        digest = next(d for d, found in self.catalog().records() if found == record)
        engine = open_snapshot(digest_text(digest), self._place, index=None, store_id=None, ignore=())
        return Lookup(engine, None, NEVER)

    # -- having it back ------------------------------------------------------------------------------------

    def restore(
        self, ref: object, folder: str | os.PathLike[str], *, on_progress: Report | None = None
    ) -> Snapshot:
        """Write a snapshot into a folder: files with their executable bits, links, empty folders.

        Every byte is verified on the way. The folder is there when all of it is on the disk, or not at all.

        Args:
            ref: The snapshot.
            folder: Path of a folder that does not exist, or is empty.
            on_progress: Called now and then with the number of files done and the number there are.

        Raises:
            AlreadyExistsError: The folder holds something.
            NotFoundError: No snapshot answers, or the folder's own folder is not there.
            IsFileError: The folder is a file.
            InvalidArgumentError: The filesystem takes two of the names for one, or does not take one.
            IntegrityError: Something of the snapshot is damaged or missing, or is not as the lock of the
                filesystem names it.
            UnreadableError: This user may not write there.
            StoreUnavailableError: The disk is full, or the object folder cannot be read now.
        """
        digest, snapshot = self._found(ref)
        catalog = self.catalog()
        manifest = self._manifest(catalog.record(digest))
        if self.locked is not None:
            check_locked(manifest, self.locked)
        with new_folder(folder) as temporary:
            write_folder(catalog.blobs, manifest, temporary, on_progress)
        return snapshot

    def export(
        self,
        ref: object,
        target: str | os.PathLike[str],
        *,
        skill: object = None,
        target_options: Mapping[str, Any] | None = None,
        on_progress: Report | None = None,
    ) -> Exported:
        """Write a snapshot, or one skill of it, for others, with a `skills.lock` beside the skills.

        Args:
            ref: The snapshot.
            target: A folder that does not exist, or is empty; a file `*.zip` that does not exist; or the URL
                of a store that holds nothing where something is to be written. The same content is the same
                zip, byte for byte. Where links cannot be, a link to a file is that file, and one to a folder
                is left out.
            skill: A reference to a skill: its folder alone, with skills nested in it, under its own name. A
                skill that was the root of its store gets a folder in any case.
            target_options: For the filesystem of a URL, as fsspec takes them.
            on_progress: As in `restore`.

        Returns:
            What was written, and what was left out.

        Raises:
            SkillFSError: As for `restore`; or the reference names no skill of the snapshot.
        """
        digest, _ = self._found(ref)
        catalog = self.catalog()
        record = catalog.record(digest)
        manifest = self._manifest(record)
        path = None if skill is None else self._skill(manifest, record, skill)
        if path is None and any(not one.path for one in manifest.skills):
            path = ""
        if path is not None:
            name = path.rpartition("/")[2] or self._own_name(catalog, manifest)
        if self.locked is not None:
            check_locked(manifest, self.locked, path or "")
        if path is not None:
            manifest = rerooted(manifest, path, name)
        return export(catalog.blobs, manifest, target, dict(target_options or {}), on_progress)

    def _skill(self, manifest: Manifest, record: SnapshotRecord, ref: object) -> str:
        """The path of a skill of a manifest."""
        paths = {one.path for one in manifest.skills}
        parsed = parse_ref(ref, self._roots)
        if isinstance(parsed, PathRef) and parsed.path in paths:
            return parsed.path
        row: Row = self._lookup(record).entry(Asked(parsed, ref), self._access(record), hint=False)
        if row.kind == RowKind.FILE:
            raise IsFileError(f"{quoted(ref)} names a file; name the folder of a skill")
        if row.kind != RowKind.SKILL:
            raise InvalidArgumentError(f"{quoted(ref)} names a folder that is no skill; name one that is")
        if row.path not in paths:
            raise not_found(ref)
        return row.path

    @staticmethod
    def _own_name(catalog: SnapshotCatalog, manifest: Manifest) -> str:
        """What a skill whose folder is the root calls itself."""
        root = next(one for one in manifest.skills if not one.path)
        file = next(file for file in root.files if file.path == "SKILL.md")
        with catalog.blobs.open(file.digest, file.size) as handle:
            head = handle.read(0, HEAD_LIMIT)
        name = read_front_matter(head, _NAME, complete=file.size <= len(head)).name
        return _NAME if not name or component_fault(name) is not None else name

    # -- keeping house -------------------------------------------------------------------------------------

    def remove(self, ref: object) -> Snapshot | None:
        """Remove a snapshot with its labels; what only it needs is removed by `gc`.

        A record that is damaged, which `fsck` sets aside, is given up by its own digest; until then `gc`
        removes nothing.

        Returns:
            What was removed; None for a damaged record.

        Raises:
            InvalidArgumentError: This filesystem is confined to some folders.
            StoreUnavailableError: Somebody is taking a snapshot.
            SkillFSError: As for `get`.
        """
        self._refuse_confined("removes a snapshot")
        snapshot: Snapshot | None = None
        try:
            digest, snapshot = self._found(ref)
        except (NotFoundError, IntegrityError):
            try:
                damaged = self.catalog().damaged(ref_text(ref))
            except NotFoundError:
                damaged = None
            if damaged is None:
                raise
            digest = damaged
        self.catalog().remove(digest)
        forget_indexes(digest)
        return snapshot

    def remove_label(self, label: str) -> None:
        """Take a label from the snapshot that has it; the snapshot stays, and the label is free.

        Raises:
            InvalidArgumentError: It is none, or this filesystem is confined to some folders.
            NotFoundError: No snapshot has it.
            StoreUnavailableError: Somebody is taking a snapshot.
        """
        self._refuse_confined("removes a label")
        self.catalog().remove_label(label)

    def gc(self) -> Removed:
        """Remove everything from the object folder that no snapshot needs.

        Of what was set aside goes what no snapshot needs, and what is there again.

        Returns:
            How many objects, and how many bytes.

        Raises:
            InvalidArgumentError: This filesystem is confined to some folders.
            IntegrityError: A snapshot is damaged, or its record is set aside, so that it cannot be told what
                it needs; nothing was removed.
            StoreUnavailableError: Somebody is taking a snapshot.
        """
        from skillfs.objects.upkeep import Removed, gc

        self._refuse_confined("removes what no snapshot needs")
        try:
            catalog = self.catalog()
        except NotFoundError:
            return Removed(0, 0)
        return gc(catalog.folder)

    def fsck(self, *, on_progress: Report | None = None) -> Sequence[Finding]:
        """Read and check everything in the object folder; what is damaged is set aside.

        Args:
            on_progress: Called now and then with the number of objects done and the number there are.

        Returns:
            What is wrong; empty when all is well.

        Raises:
            InvalidArgumentError: This filesystem is confined to some folders.
            StoreUnavailableError: The object folder cannot be read now.
        """
        from skillfs.objects.upkeep import fsck

        self._refuse_confined("checks all snapshots")
        try:
            catalog = self.catalog()
        except NotFoundError:
            return []
        return fsck(catalog.folder, on_progress)

    def _refuse_confined(self, what: str) -> None:
        if self._bases is not None:
            raise InvalidArgumentError(
                f"this {what}, also of what this filesystem may not see; open one without base_paths"
            )


def find_snapshots(
    store: object,
    *,
    index: str | os.PathLike[str] | None = None,
    objects: str | os.PathLike[str] | None = None,
    objects_options: Mapping[str, Any] | None = None,
    base_paths: Sequence[object] | None = None,
    lock: str | os.PathLike[str] | None = None,
) -> Snapshots:
    """The snapshots of a store that need not be read for that, nor be there any more.

    Args:
        store: As `SkillFileSystem` takes it; None where the object folder is named, and that suffices.
        index: Likewise.
        objects: Likewise.
        objects_options: Likewise.
        base_paths: Likewise.
        lock: Likewise.

    Raises:
        SkillFSError: The store cannot be opened, or an argument is malformed.
    """
    place = place_of(store, index=index, objects=objects, objects_options=objects_options)
    store_id = None if place.store is None else store_namespace(place.store, None)
    roots = () if place.store is None else place.store.spellings
    found = Snapshots(place, store_id, base_paths, roots)
    if lock is not None:
        found.locked = locked_store(read_lock(lock))
    return found


def snapshot_of(digest: bytes, record: SnapshotRecord, labels: Mapping[str, bytes]) -> Snapshot:
    """A snapshot as callers get it.

    Args:
        digest: Digest of its record, 32 bytes.
        record: The record.
        labels: All labels, each with the digest of the record it names.
    """
    return Snapshot(
        digest_text(record.manifest),
        digest_text(digest),
        record.created,
        tuple(sorted(label for label, named in labels.items() if named == digest)),
        tuple(map(digest_text, record.parents)),
        str(record.store_id),
        record.skills,
        record.files,
        record.size,
    )


def _unknown(text: str) -> SkillFSError:
    return NotFoundError(f"no snapshot answers to {quoted(text)}; list them with: skillfs snapshot list")
