"""The snapshots that an object folder holds: records, their labels, and the manifests they lead to.

A record is found by its time and its digest, which are its name; a label is a small object that holds such a
name. What is damaged is never passed over in silence: where it could be what was asked for, it is an error.
"""

from __future__ import annotations

import contextlib
import re
import uuid as uuidlib
from collections.abc import Iterable, Iterator
from datetime import UTC
from typing import NamedTuple

from skillfs.core.digest import sha256
from skillfs.core.manifest import (
    Manifest,
    ManifestSkill,
    ManifestTop,
    SnapshotRecord,
    broken,
    check_label,
    digest_text,
)
from skillfs.core.manifest_json import parse_part, parse_record, parse_top, render_record
from skillfs.errors import AlreadyExistsError, IntegrityError, InvalidArgumentError, NotFoundError, quoted
from skillfs.objects.blobs import Blobs
from skillfs.objects.folder import (
    BAD,
    LABELS,
    SNAPSHOTS,
    ObjectFolder,
    bad_name,
    digest_of_name,
    is_name,
    name_of_bad,
)

__all__ = ["LATEST", "RecordName", "SnapshotCatalog", "record_name", "record_of_label"]

LATEST = "latest"
"""The newest snapshot; no label can be this."""

FEWEST_DIGITS = 8
AHEAD = 32
"""How many records are read at once where that costs requests."""

_DIGEST = re.compile(r"sha256:([0-9a-f]{8,64})", re.IGNORECASE).fullmatch


class RecordName(NamedTuple):
    """A record as its name tells of it.

    Attributes:
        name: Name of the object.
        digest: SHA-256 of the record, 32 bytes.
    """

    name: str
    digest: bytes


def record_name(record: SnapshotRecord, digest: bytes) -> str:
    """Name of the object that a record is."""
    return f"{SNAPSHOTS}{record.created.astimezone(UTC):%Y%m%dT%H%M%S%fZ}-{digest.hex()}"


class SnapshotCatalog:
    """The snapshots of an object folder.

    Methods raise `StoreUnavailableError` when the folder cannot be read or written now, and `IntegrityError`
    when what they need is damaged or missing.

    Args:
        folder: The folder.

    Attributes:
        folder: The folder.
        blobs: Contents and manifests in it.
    """

    def __init__(self, folder: ObjectFolder) -> None:
        self.folder = folder
        self.blobs = Blobs(folder)
        self._read: dict[str, SnapshotRecord] = {}

    # -- finding -------------------------------------------------------------------------------------------

    def names(self) -> list[RecordName]:
        """All records by their names, the newest first; none of them is read."""
        listed = [info.name for info in self.folder.listed(SNAPSHOTS)]
        return [RecordName(name, digest_of_name(name)) for name in reversed(listed)]

    def records(self) -> Iterator[tuple[bytes, SnapshotRecord]]:
        """Digest and record of every snapshot, the newest first; each is read when it is its turn.

        One that is removed meanwhile is left out.
        """
        for name in self._ahead(self.names()):
            if (record := self._if_there(name)) is not None:
                yield name.digest, record

    def _if_there(self, name: RecordName) -> SnapshotRecord | None:
        """The record of a name that was listed; None where it was removed meanwhile."""
        try:
            return self.record_named(name)
        except NotFoundError as error:
            if name not in self.names():
                return None
            raise IntegrityError(
                f"the record {digest_text(name.digest)} of a snapshot is no file; run: skillfs snapshot fsck"
            ) from error

    def record(self, digest: bytes) -> SnapshotRecord:
        """The record of a digest, 32 bytes.

        Raises:
            NotFoundError: There is none.
        """
        return self.record_named(self._named(digest))

    def set_aside(self) -> list[RecordName]:
        """Records that were damaged, were set aside, and are not there again; the newest first."""
        names = [name_of_bad(info.name) for info in self.folder.listed(BAD)]
        found = [name for name in names if name is not None and name.startswith(SNAPSHOTS)]
        there = {name.name for name in self.names()} if found else set()
        return [
            RecordName(name, digest_of_name(name))
            for name in sorted(found, reverse=True)
            if name not in there
        ]

    def damaged(self, text: str) -> bytes | None:
        """The digest of the one damaged record, set aside or not, that a text is the digest of.

        Args:
            text: `sha256:` and 64 hex digits, or a beginning of these of at least 8.
        """
        if (match := _DIGEST(text)) is None:
            return None
        digits = match[1].lower()
        found = {
            name.digest
            for name in (*self.names(), *self.set_aside())
            if name.digest.hex().startswith(digits) and not self._is_sound(name)
        }
        return found.pop() if len(found) == 1 else None

    def _is_sound(self, name: RecordName) -> bool:
        try:
            self.record_named(name)
        except (IntegrityError, NotFoundError):
            return False
        return True

    def newest_of(self, store_id: uuidlib.UUID) -> tuple[bytes, SnapshotRecord] | None:
        """Digest and record of the newest snapshot of a store; None when there is none.

        Args:
            store_id: Identity of the store.
        """
        return next(((d, record) for d, record in self.records() if record.store_id == store_id), None)

    def resolve(self, text: str, store_id: uuidlib.UUID | None = None) -> tuple[bytes, SnapshotRecord]:
        """Find the snapshot that a caller means.

        Args:
            text: A label; `latest`; or `sha256:` and 64 hex digits, or a beginning of these of at least 8, of
                a record or a manifest. Of several records with one manifest the newest is meant.
            store_id: Identity of the store that `latest` is about; None for the newest of all.

        Returns:
            Digest of the record, and the record.

        Raises:
            InvalidArgumentError: It is none of these, or the beginning of several digests.
            NotFoundError: No snapshot answers to it.
        """
        if not isinstance(text, str):
            raise InvalidArgumentError(f"{quoted(text)} names no snapshot; pass a label or a digest")
        if text == LATEST:
            found = next(self.records(), None) if store_id is None else self.newest_of(store_id)
            if found is None:
                raise _unknown(text)
            return found
        if (match := _DIGEST(text)) is not None:
            return self._by_digest(text, match[1].lower())
        if text.lower().startswith("sha256:"):
            raise InvalidArgumentError(
                f"{quoted(text)} is no digest; write sha256: and {FEWEST_DIGITS} to 64 hex digits"
            )
        digest = self._labelled(check_label(text))
        if digest is None:
            raise _unknown(text)
        return digest.digest, self.record_named(digest)

    def _by_digest(self, text: str, digits: str) -> tuple[bytes, SnapshotRecord]:
        names = self.names()
        found = {name.digest: name for name in names if name.digest.hex().startswith(digits)}
        if len(digits) == 64 and found:
            ((digest, name),) = found.items()
            return digest, self.record_named(name)
        damaged: IntegrityError | None = None
        for name in self._ahead(names):
            try:
                record = self._if_there(name)
            except IntegrityError as error:
                damaged = damaged or error
                continue
            if record is not None and record.manifest.hex().startswith(digits):
                found.setdefault(record.manifest, name)
        if not found:
            raise damaged or _unknown(text)
        if len(found) > 1:
            raise InvalidArgumentError(
                f"{quoted(text)} is the beginning of several digests; write more digits of the one you mean"
            )
        (name,) = found.values()
        return name.digest, self.record_named(name)

    def labels(self) -> dict[str, bytes]:
        """Digest of its record by every label, sorted by label.

        One that is damaged or names no record is left out: only asking for it, and `fsck`, says so.
        """
        names = [info.name.removeprefix(LABELS) for info in self.folder.listed(LABELS)]
        there = {name.name for name in self.names()}
        found = {}
        for label, data in zip(names, self.folder.get_all([LABELS + name for name in names]), strict=True):
            record = None if data is None else record_of_label(data)
            if record is not None and record.name in there:
                found[label] = record.digest
        return found

    def _labelled(self, label: str) -> RecordName | None:
        """The record that a label names, which is there; None when there is no such label."""
        try:
            data = self.folder.get(LABELS + label)
        except FileNotFoundError:
            return None
        name = record_of_label(data)
        if name is None or not self.folder.has(name.name):
            raise IntegrityError(
                f"the label {quoted(label)} is damaged, or its snapshot is gone; run: skillfs snapshot fsck"
            )
        return name

    # -- manifests -----------------------------------------------------------------------------------------

    def top(self, record: SnapshotRecord) -> ManifestTop:
        """The top of the manifest of a snapshot."""
        top = parse_top(self.blobs.get_manifest(record.manifest))
        if (top.skills, top.files, top.size) != (record.skills, record.files, record.size):
            raise broken("has other counts than the record of its snapshot")
        return top

    def parts(self, top: ManifestTop, names: Iterable[str] | None = None) -> Iterator[ManifestSkill]:
        """The skills that parts of a manifest tell, part after part.

        Args:
            top: Top of the manifest.
            names: Which parts; None for all.
        """
        chosen = sorted(top.parts if names is None else names)
        for at in range(0, len(chosen), AHEAD):
            some = chosen[at : at + AHEAD]
            texts = self.blobs.get_manifests([top.parts[name] for name in some])
            for name, text in zip(some, texts, strict=True):
                yield from parse_part(text, name)

    def manifest(self, record: SnapshotRecord) -> Manifest:
        """All of the manifest of a snapshot.

        It is seen that all of it can lie in one tree of folders, that its counts are right, and that the
        digest of every skill is that of its files.
        """
        top = self.top(record)
        skills = tuple(sorted(self.parts(top), key=lambda skill: skill.path))
        found = Manifest(skills, top.links)
        files = sum(len(skill.files) for skill in skills)
        size = sum(file.size for skill in skills for file in skill.files)
        if (len(skills), files, size) != (top.skills, top.files, top.size):
            raise broken("has other counts than its top says")
        found.check()
        found.check_digests()
        return found

    # -- adding and removing -------------------------------------------------------------------------------

    def check_free(self, label: str, digest: bytes | None = None) -> str:
        """See that a label is one, and not taken.

        Args:
            label: The label.
            digest: Record that may have it already.

        Returns:
            The label.

        Raises:
            InvalidArgumentError: It is none.
            AlreadyExistsError: Another record has it.
        """
        if check_label(label) == LATEST:
            raise InvalidArgumentError(f"{quoted(label)} always is the newest snapshot; use another label")
        taken = self._labelled(label)
        if taken is not None and taken.digest != digest:
            raise AlreadyExistsError(
                f"the label {quoted(label)} is taken by another snapshot; use another, or remove that"
            )
        return label

    def add(self, record: SnapshotRecord, label: str | None = None) -> bytes:
        """Add a snapshot whose contents and manifest are all there; or give one that is there a label.

        To be called while the folder is held.

        Args:
            record: Its record.
            label: A name for it.

        Returns:
            Digest of the record, 32 bytes.

        Raises:
            InvalidArgumentError: The label is none.
            AlreadyExistsError: Another snapshot has the label. The record may be there all the same, when
                that one took it at this very moment.
        """
        data = render_record(record)
        parse_record(data)  # what nobody could read is not written
        digest = sha256(data).digest()
        if label is not None:
            self.check_free(label, digest)
        name = record_name(record, digest)
        self.folder.create(name, data)
        if self.record_named(RecordName(name, digest)) != record:
            raise broken("of a snapshot changed while it was written")
        if label is not None and not self.folder.create(LABELS + label, _text_of_label(name)):
            self.check_free(label, digest)
        return digest

    def remove(self, digest: bytes) -> None:
        """Remove a snapshot and its labels; its contents go with the next `gc`.

        Holds the folder alone meanwhile. A record that was set aside is removed as well.

        Args:
            digest: Digest of its record, 32 bytes.

        Raises:
            NotFoundError: There is none.
            StoreUnavailableError: Somebody else is working on the folder.
        """
        with self.folder.holding(alone=True):
            aside = [name for name in self.set_aside() if name.digest == digest]
            for name in aside:
                self.folder.remove(bad_name(name.name))
            try:
                name = self._named(digest)
            except NotFoundError:
                if aside:
                    return
                raise
            for label, labelled in self.labels().items():
                if labelled == digest:
                    self.folder.remove(LABELS + label)
            self.folder.remove(name.name)
            self._read.pop(name.name, None)

    def remove_label(self, label: str) -> None:
        """Remove a label; the snapshot that had it stays.

        Holds the folder alone meanwhile.

        Raises:
            InvalidArgumentError: It is none.
            NotFoundError: No snapshot has it.
            StoreUnavailableError: Somebody else is working on the folder.
        """
        check_label(label)
        with self.folder.holding(alone=True):
            if label not in self.labels():
                raise NotFoundError(
                    f"no snapshot has the label {quoted(label)}; list them with: skillfs snapshot list"
                )
            self.folder.remove(LABELS + label)

    # -- reading records -----------------------------------------------------------------------------------

    def _named(self, digest: bytes) -> RecordName:
        for name in self.names():
            if name.digest == digest:
                return name
        raise _unknown(digest_text(digest))

    def record_named(self, name: RecordName) -> SnapshotRecord:
        """The record of a name.

        Raises:
            NotFoundError: There is none.
        """
        found = self._read.get(name.name)
        if found is None:
            try:
                data = self.folder.get(name.name)
            except FileNotFoundError as error:
                raise _unknown(digest_text(name.digest)) from error
            found = self._parsed(name, data)
        return found

    def _parsed(self, name: RecordName, data: bytes) -> SnapshotRecord:
        if sha256(data).digest() != name.digest:
            raise IntegrityError(
                f"the record {digest_text(name.digest)} of a snapshot is damaged; run: skillfs snapshot fsck"
            )
        record = parse_record(data)
        if record_name(record, name.digest) != name.name:
            raise broken("of a snapshot bears another time than its name")
        self._read[name.name] = record
        return record

    def _ahead(self, names: Iterable[RecordName]) -> Iterator[RecordName]:
        """The same names; where reading costs requests, several of the records are read at once before."""
        if not self.folder.remote:
            yield from names
            return
        waiting = list(names)
        # The first alone: in most cases it is the one.
        at, count = 0, 1
        while some := waiting[at : at + count]:
            unread = [name for name in some if name.name not in self._read]
            for name, data in zip(unread, self.folder.get_all([n.name for n in unread]), strict=True):
                # What is wrong with one is told when it is its turn.
                if data is not None:
                    with contextlib.suppress(IntegrityError):
                        self._parsed(name, data)
            yield from some
            at, count = at + count, AHEAD


def _text_of_label(name: str) -> bytes:
    return name.removeprefix(SNAPSHOTS).encode() + b"\n"


def record_of_label(data: bytes) -> RecordName | None:
    """The record that a label holds the name of, or None where it holds none."""
    try:
        name = SNAPSHOTS + data.decode("ascii").removesuffix("\n")
    except UnicodeDecodeError:
        return None
    if not is_name(name) or _text_of_label(name) != data:
        return None
    return RecordName(name, digest_of_name(name))


def _unknown(text: str) -> NotFoundError:
    return NotFoundError(f"no snapshot answers to {quoted(text)}; list them with: skillfs snapshot list")
