"""Small snapshots for tests of object folders, and what must hold of every folder at any time."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count

from skillfs.core.digest import sha256
from skillfs.core.manifest import Manifest, ManifestFile, ManifestSkill, SnapshotRecord, skill_digest
from skillfs.core.manifest_json import written
from skillfs.objects.folder import ObjectFolder
from skillfs.objects.snapshots import SnapshotCatalog

STORE = uuid.UUID(int=1)
START = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def digest_of(data: bytes) -> bytes:
    return sha256(data).digest()


def manifest_of(texts: Iterable[bytes]) -> Manifest:
    """A manifest of a skill for each text, which is its `SKILL.md`."""
    skills = []
    for number, text in enumerate(sorted(set(texts))):
        file = ManifestFile("SKILL.md", len(text), digest_of(text), False)
        skills.append(ManifestSkill(f"s{number:04}", skill_digest([file[:3]]), (file,)))
    return Manifest(tuple(skills))


def record_of(manifest: Manifest, top: bytes, at: int = 0, store: uuid.UUID = STORE) -> SnapshotRecord:
    """A record of a manifest, so many microseconds after the first moment."""
    files = [file for skill in manifest.skills for file in skill.files]
    size = sum(file.size for file in files)
    time = START + timedelta(microseconds=at)
    return SnapshotRecord(digest_of(top), (), time, store, (), len(manifest.skills), len(files), size)


def take(
    catalog: SnapshotCatalog,
    texts: Sequence[bytes],
    label: str | None = None,
    at: int = 0,
    store: uuid.UUID = STORE,
) -> bytes:
    """Write a snapshot as it is written: blobs, parts, top, record, label. Returns the record's digest."""
    contents = {digest_of(text): text for text in texts}
    with catalog.folder.holding(alone=False):
        there = catalog.blobs.has_all({digest: len(text) for digest, text in contents.items()})
        catalog.blobs.put_all((d, [text]) for d, text in contents.items() if d not in there)
        manifest = manifest_of(texts)
        top, parts = written(manifest)
        catalog.blobs.put_manifests(parts)
        catalog.blobs.put_manifests({digest_of(top): top})
        return catalog.add(record_of(manifest, top, at, store), label)


def texts_of(catalog: SnapshotCatalog, record: SnapshotRecord) -> list[bytes]:
    """The contents of all files of a snapshot, each verified."""
    found = []
    for skill in catalog.manifest(record).skills:
        for file in skill.files:
            with catalog.blobs.open(file.digest, file.size) as handle:
                found.append(handle.read(0, file.size))
    return found


def check_whole(folder: ObjectFolder) -> dict[str, list[bytes]]:
    """See that every record and label leads to what is there and right; returns the texts by label."""
    catalog = SnapshotCatalog(folder)
    texts = {digest: texts_of(catalog, record) for digest, record in catalog.records()}
    labels = catalog.labels()
    assert [info.name for info in folder.listed("labels/")] == [f"labels/{label}" for label in labels]
    assert all(catalog.resolve(label)[0] == digest for label, digest in labels.items())
    return {label: texts[digest] for label, digest in labels.items()}


numbers = count(1)
