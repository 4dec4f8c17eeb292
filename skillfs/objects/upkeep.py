"""Removes what no snapshot needs any more, and finds what is damaged or missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from skillfs.core.manifest import ManifestSkill, digest_text
from skillfs.core.manifest_json import parse_part
from skillfs.errors import IntegrityError, NotFoundError
from skillfs.objects.blobs import set_aside_if_bad
from skillfs.objects.folder import (
    BAD,
    BLOBS,
    LABELS,
    MANIFESTS,
    ObjectFolder,
    ObjectInfo,
    blob_name,
    digest_of_name,
    manifest_name,
    name_of_bad,
)
from skillfs.objects.several import each
from skillfs.objects.snapshots import RecordName, SnapshotCatalog, record_of_label

__all__ = ["Finding", "FindingKind", "Removed", "fsck", "gc"]

FindingKind = Literal["missing", "damaged", "unreferenced", "set-aside", "leftover"]


class Removed(NamedTuple):
    """What was removed.

    Attributes:
        objects: How many objects.
        size: Bytes of them, as far as the filesystem says.
    """

    objects: int
    size: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in an object folder that is not as it should be, or that nobody needs.

    Attributes:
        kind: `missing`: a snapshot needs it, and it is not there; `damaged`: it did not match its name, and
            is set aside now; `unreferenced`: no snapshot needs it; `set-aside`: it was set aside before;
            `leftover`: a killed process has left it.
        name: Its name in the folder.
        snapshots: `sha256:…` of the records of the snapshots that need it, the newest first.
    """

    kind: FindingKind
    name: str
    snapshots: tuple[str, ...] = ()

    @property
    def is_fault(self) -> bool:
        """Whether something is wrong, and not only superfluous."""
        return self.kind in ("missing", "damaged")


# -- removing ------------------------------------------------------------------------------------------------


def gc(folder: ObjectFolder) -> Removed:
    """Remove every blob and manifest that no snapshot leads to, and what killed processes have left.

    Holds the folder alone meanwhile. Of what was set aside goes what no snapshot needs, and what is there
    again; what is still missing from a snapshot stays. A record that was set aside may have led to anything:
    until it is removed, nothing else is.

    Args:
        folder: The object folder.

    Raises:
        IntegrityError: A record or manifest is damaged, set aside or missing, so that it cannot be told what
            is needed; nothing was removed.
        StoreUnavailableError: Somebody else is working on the folder, or it does not answer.
    """
    with folder.holding(alone=True):
        catalog = SnapshotCatalog(folder)
        if aside := catalog.set_aside():
            raise IntegrityError(
                f"the record {digest_text(aside[0].digest)} of a snapshot was damaged and is set aside, so "
                "that nobody knows what it needs; nothing was removed: have the record back from a copy, "
                f"or give it up by: skillfs snapshot remove {digest_text(aside[0].digest)}"
            )
        needed: set[str] = set()
        try:
            for name in catalog.names():
                needed.update(_needs(catalog, name, needed))
        except (IntegrityError, NotFoundError) as error:
            raise IntegrityError(
                "a record or manifest is damaged or missing, so that it cannot be told what is needed; "
                "nothing was removed: run skillfs snapshot fsck, and remove the snapshots that it names"
            ) from error
        there = [info for prefix in (BLOBS, MANIFESTS) for info in folder.listed(prefix)]
        unneeded = [info for info in there if info.name not in needed]
        missing = needed.difference(info.name for info in there)
        # All records are sound by now: a label that was set aside names none.
        unneeded += [
            info for info in folder.listed(BAD) if (own := name_of_bad(info.name)) and own not in missing
        ]
        for _ in each(folder, lambda info: folder.remove(info.name), unneeded):
            pass
        unneeded += folder.leftovers(remove=True)
        return Removed(len(unneeded), sum(max(info.size, 0) for info in unneeded))


def _needs(catalog: SnapshotCatalog, name: RecordName, known: set[str]) -> Iterator[str]:
    """Names of the objects that a snapshot needs; what parts need that are known already is left out."""
    record = catalog.record_named(name)
    yield manifest_name(record.manifest)
    top = catalog.top(record)
    new = [part for part, digest in top.parts.items() if manifest_name(digest) not in known]
    yield from (manifest_name(top.parts[part]) for part in new)
    for skill in catalog.parts(top, new):
        yield from (blob_name(file.digest) for file in skill.files)


# -- checking ------------------------------------------------------------------------------------------------


def fsck(folder: ObjectFolder, on_progress: Callable[[int, int], object] | None = None) -> list[Finding]:
    """Read everything that an object folder holds, and see that it is what its name says.

    Holds the folder alone meanwhile. What is damaged is set aside: it is not served any more, and is written
    anew by the next snapshot that comes by the same content.

    Args:
        folder: The object folder.
        on_progress: Called with the number of objects that were read, and that of all.

    Returns:
        What was found, sorted by kind and name; the faults first.

    Raises:
        StoreUnavailableError: Somebody else is working on the folder, or it does not answer.
    """
    with folder.holding(alone=True):
        return _Check(folder, on_progress).run()


@dataclass
class _Check:
    folder: ObjectFolder
    on_progress: Callable[[int, int], object] | None
    found: list[Finding] = field(default_factory=list)
    wrong: dict[str, FindingKind] = field(default_factory=dict)
    sound: set[bytes] = field(default_factory=set)
    done: int = 0
    total: int = 0

    def run(self) -> list[Finding]:
        folder, catalog = self.folder, SnapshotCatalog(self.folder)
        self.found += [Finding("set-aside", info.name) for info in folder.listed(BAD)]
        self.found += [Finding("leftover", info.name) for info in folder.leftovers()]
        records, labels = catalog.names(), list(folder.listed(LABELS))
        manifests, blobs = list(folder.listed(MANIFESTS)), list(folder.listed(BLOBS))
        self.total = len(records) + len(labels) + len(manifests) + len(blobs)
        self._check_records(catalog, records)
        self._check_labels(labels)
        self._check_content(manifests)
        self._check_content(blobs)
        there = {info.name: info.size for info in (*manifests, *blobs)}
        self._check_needed(catalog, there)
        order = ("missing", "damaged", "unreferenced", "set-aside", "leftover")
        return sorted(self.found, key=lambda finding: (order.index(finding.kind), finding.name))

    def _check_records(self, catalog: SnapshotCatalog, records: Sequence[RecordName]) -> None:
        for name in records:
            try:
                catalog.record_named(name)
            except (IntegrityError, NotFoundError):
                self._set_aside(name.name)
            self._told(1)

    def _check_labels(self, labels: Sequence[ObjectInfo]) -> None:
        for info in labels:
            try:
                record = record_of_label(self.folder.get(info.name))
            except IntegrityError:
                record = None
            if record is None or not self.folder.has(record.name):
                self._set_aside(info.name)
            self._told(1)

    def _set_aside(self, name: str) -> None:
        self.folder.set_aside(name)
        self.found.append(Finding("damaged", name))

    def _check_content(self, objects: Sequence[ObjectInfo]) -> None:
        """See that blobs or manifests match the SHA-256 that is their name."""

        def is_bad(info: ObjectInfo) -> bool:
            return set_aside_if_bad(self.folder, info.name, digest_of_name(info.name))

        for info, bad in each(self.folder, is_bad, objects):
            if bad:
                self.wrong[info.name] = "damaged"
            self._told(1)

    def _check_needed(self, catalog: SnapshotCatalog, there: dict[str, int]) -> None:
        """Find what snapshots need and is not there, and what is there and needed by none."""
        needed: set[str] = set()
        needing: dict[str, list[str]] = {}
        for name in catalog.names():
            seen: set[str] = set()
            for object_name, size in self._needs(catalog, name):
                needed.add(object_name)
                if object_name not in there:
                    self.wrong.setdefault(object_name, "missing")
                elif size is not None and there[object_name] not in (-1, size):
                    self.wrong.setdefault(object_name, "damaged")  # no file has this SHA-256 and that size
                if object_name in self.wrong and object_name not in seen:
                    seen.add(object_name)
                    needing.setdefault(object_name, []).append(digest_text(name.digest))
        self.found += [Finding(kind, name, tuple(needing.get(name, ()))) for name, kind in self.wrong.items()]
        unneeded = (name for name in there if name not in needed and name not in self.wrong)
        self.found += [Finding("unreferenced", name) for name in unneeded]

    def _needs(self, catalog: SnapshotCatalog, name: RecordName) -> Iterator[tuple[str, int | None]]:
        """Names of the objects that a snapshot needs, as far as can be told, and sizes of blobs."""
        record = catalog.record_named(name)
        yield manifest_name(record.manifest), None
        try:
            top = catalog.top(record)
        except IntegrityError:
            self.wrong.setdefault(manifest_name(record.manifest), "damaged")
            yield manifest_name(record.manifest), None
            return
        for part, digest in sorted(top.parts.items()):
            yield manifest_name(digest), None
            if digest in self.sound:
                continue
            try:
                skills = self._skills(catalog, digest, part)
            except IntegrityError:
                self.wrong.setdefault(manifest_name(digest), "damaged")
                yield manifest_name(digest), None
                continue
            files = [file for skill in skills for file in skill.files]
            yield from ((blob_name(file.digest), file.size) for file in files)
            # Snapshots share most of their parts: one in which nothing is wrong is not read again.
            if not any(blob_name(file.digest) in self.wrong for file in files):
                self.sound.add(digest)

    def _skills(self, catalog: SnapshotCatalog, digest: bytes, part: str) -> tuple[ManifestSkill, ...]:
        if self.wrong.get(manifest_name(digest)) is not None or not self.folder.has(manifest_name(digest)):
            return ()
        return parse_part(catalog.blobs.get_manifest(digest), part)

    def _told(self, count: int) -> None:
        self.done += count
        if self.on_progress is not None:
            self.on_progress(self.done, self.total)
