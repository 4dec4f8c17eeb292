"""Compares two states of a store: snapshots, or what it shows now.

Of two snapshots only those parts of their manifests are read that are not the same in both. What the store
shows now is written as a manifest, in memory, and compared in the same way. Who may not see everything has
manifests of what there is to be seen, so that nothing else bears on what is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from skillfs.access import Access
from skillfs.core.differing import Identities, State, differences, differing_parts
from skillfs.core.digest import id_of_uuid, sha256
from skillfs.core.manifest import (
    Manifest,
    ManifestFile,
    ManifestSkill,
    ManifestTop,
    SnapshotRecord,
    part_name,
)
from skillfs.core.manifest_json import parse_top, written
from skillfs.core.model import Difference, Differences
from skillfs.core.refs import IdRef, PathRef, Ref, UuidRef, is_below, parse_ref, printable_path
from skillfs.core.textdiff import unified_diff
from skillfs.core.textfacts import scan_text
from skillfs.core.wire import quote_name
from skillfs.errors import ChangedError, InvalidArgumentError, NotFoundError, not_found, quoted
from skillfs.history.describing import described, within
from skillfs.history.present import ATTEMPTS, Present, digests_of, present
from skillfs.history.snapshots import Snapshots
from skillfs.history.vouching import require_named
from skillfs.index.rows import Row
from skillfs.locked import LockedStore
from skillfs.lookup import Asked
from skillfs.mounts import View
from skillfs.objects.snapshots import SnapshotCatalog
from skillfs.reading import check_count
from skillfs.stores.base import Handle

__all__ = ["Comparison", "Side", "confined_now", "side_of_snapshot", "side_of_store"]

MOST_COMPARED = 8 << 20
"""Bytes of a file up to which it is compared line by line."""


class Side(Protocol):
    """One of the two states that are compared.

    Attributes:
        top: Of its manifest.
        identities: Of its entries.
        modes: Whether it is known which files may be executed.
        revision: Of the store, where this is what it shows now; else 0.
    """

    top: ManifestTop
    identities: Identities
    modes: bool
    revision: int

    def skills(self, parts: Iterable[str]) -> Iterable[ManifestSkill]:
        """The skills that are told in some parts of the manifest."""

    def read(self, path: str, file: ManifestFile) -> bytes:
        """All of a file; that it may be held has been seen.

        Args:
            path: Store path.
            file: What the manifest says of it.
        """


# -- snapshots -----------------------------------------------------------------------------------------------


def side_of_snapshot(snapshots: Snapshots, ref: object, base_paths: Sequence[object] | None = None) -> Side:
    """A snapshot, or what of it may be seen.

    Args:
        snapshots: The snapshots among which it is.
        ref: What names it.
        base_paths: Folders that the call is confined to.

    Raises:
        InvalidArgumentError: What names it, or a base, is malformed.
        NotFoundError: No snapshot answers to it.
        IntegrityError: It is damaged.
        StoreUnavailableError: The object folder cannot be read now.
    """
    record, access = snapshots.find(ref, base_paths)
    catalog = snapshots.catalog()
    kind = _ConfinedSnapshot if access.restricted else _Snapshot
    return kind(catalog, record, access, snapshots.locked)


class _Snapshot:
    modes = True
    revision = 0

    def __init__(
        self, catalog: SnapshotCatalog, record: SnapshotRecord, access: Access, locked: LockedStore | None
    ) -> None:
        self._locked = locked
        self.top = catalog.top(record)
        self.identities = Identities(record.store_id, {path: uuid.bytes for path, uuid in record.identities})
        self._catalog = catalog

    def skills(self, parts: Iterable[str]) -> Iterable[ManifestSkill]:
        found = tuple(sorted(self._catalog.parts(self.top, parts), key=lambda skill: skill.path))
        # As far as it is read: whether all of it holds together, fsck sees.
        Manifest(found, self.top.links).check()
        return found

    def read(self, path: str, file: ManifestFile) -> bytes:
        if self._locked is not None:
            require_named(self._locked, path, file.digest)
        with self._catalog.blobs.open(file.digest, file.size) as handle:
            return handle.read(0, file.size)


class _Parted:
    """A manifest, taken apart."""

    def __init__(self, manifest: Manifest) -> None:
        self.top = parse_top(written(manifest)[0])
        self._by_part: dict[str, list[ManifestSkill]] = {}
        for skill in manifest.skills:
            self._by_part.setdefault(part_name(skill.path), []).append(skill)

    def skills(self, parts: Iterable[str]) -> Iterable[ManifestSkill]:
        for name in parts:
            yield from self._by_part[name]


class _ConfinedSnapshot(_Snapshot):
    def __init__(
        self, catalog: SnapshotCatalog, record: SnapshotRecord, access: Access, locked: LockedStore | None
    ) -> None:
        super().__init__(catalog, record, access, locked)
        self._parted = _Parted(within(catalog.manifest(record), access))
        self.top = self._parted.top

    def skills(self, parts: Iterable[str]) -> Iterable[ManifestSkill]:
        return self._parted.skills(parts)


# -- the store -----------------------------------------------------------------------------------------------


def side_of_store(view: View) -> Side:
    """What a store shows now; files of which the SHA-256 is not known are read.

    Args:
        view: Where it lies, and what may be seen there.

    Raises:
        ChangedError: Files come and go, or change, faster than they can be read.
        UnreadableError: A file may not be read.
        StoreUnavailableError: The store does not answer.
    """
    view.mount.engine.sync()  # what is told is of now, however old a listing may be
    revision = view.mount.engine.query(view.mount.engine.journal.revision)
    for attempt in range(ATTEMPTS):
        found = present(view)
        try:
            return _Store(found, revision)
        except ChangedError:
            if attempt == ATTEMPTS - 1:
                raise
            view.mount.engine.sync()
    raise AssertionError


def confined_now(
    seen_by: Callable[[Sequence[object] | None], list[View]],
    base_paths: Sequence[object] | None,
    roots: Sequence[str],
) -> View:
    """What a call may see of the one store of a filesystem; a base that is not there now may have been.

    Args:
        seen_by: What a call with some base paths may see, of each store.
        base_paths: Those of the call.
        roots: How the root of the store may be spelled in front of a path.

    Raises:
        InvalidArgumentError: There are several stores, or a base is malformed.
        IsFileError: A base is a file.
    """
    views = seen_by(None)
    if len(views) != 1 or views[0].mount.name:
        raise InvalidArgumentError(
            "differences are of one store, and there are several; open that one by itself"
        )
    mount, access = views[0]
    if base_paths is None:
        return views[0]
    paths: set[str] = set()
    for base in base_paths:
        ref = parse_ref(base, roots)
        try:
            paths |= seen_by([base])[0].access.bases or set()
        except NotFoundError:
            if isinstance(ref, PathRef):
                paths.add(ref.path)
    return View(mount, access.within(paths))


class _Store(_Parted):
    def __init__(self, found: Present, revision: int) -> None:
        files = [file for skill in found.skills for file in skill.files]
        nodes = {file.node.key: file.node for file in files}
        for skill in found.skills:
            nodes.update((link.file.key, link.file) for link in skill.links if link.file is not None)
        super().__init__(described(found, digests_of(found, list(nodes.values()))))
        self.identities = Identities(found.view.mount.engine.namespace.uuid, found.uuids)
        self.modes = all(file.executable is not None for file in files)
        self.revision = revision
        self._view = found.view

    def read(self, path: str, file: ManifestFile) -> bytes:
        def read(row: Row, handle: Handle) -> bytes:
            return handle.read(0, handle.state.size) if handle.state.size == file.size else b""

        mount, access = self._view
        data = mount.reader.with_handle(Asked(PathRef(tuple(path.split("/"))), path), access, read)
        if sha256(data).digest() != file.digest:
            raise ChangedError("a file has changed since it was compared; compare anew")
        return data


# -- comparing -----------------------------------------------------------------------------------------------


class Comparison:
    """What leads from one state of a store to another.

    Args:
        before: The one state.
        after: The other.
        refs: Files, or folders with all below them, to be told of these alone; None for everything.
        roots: How the root of the store may be spelled in front of a path.

    Attributes:
        differences: It, as callers get it.

    Raises:
        InvalidArgumentError: A reference is malformed, or is a name or a content hash.
        NotFoundError: Neither state holds what a reference names.
        IntegrityError: A snapshot is damaged.
    """

    def __init__(
        self, before: Side, after: Side, refs: Sequence[object] | None = None, roots: Sequence[str] = ()
    ) -> None:
        asked = None if refs is None else [(parse_ref(ref, roots), ref) for ref in refs]
        self._before, self._after, self._roots = before, after, roots
        names = differing_parts(before.top.parts, after.top.parts)
        old, new = (
            {skill.path: skill for skill in side.skills(sorted(some))}
            for side, some in zip((before, after), names, strict=True)
        )
        self._old_files, self._new_files = _files(old.values()), _files(new.values())
        items, skills = differences(
            State(old, before.top.links, before.identities, before.modes),
            State(new, after.top.links, after.identities, after.modes),
        )
        if asked is not None:
            paths = {path for ref, sent in asked for path in self._paths(ref, sent, (*items, *skills))}
            items, skills = (
                tuple(one for one in some if any(_is_about(one, path) for path in paths))
                for some in (items, skills)
            )
        self._items = items
        self.differences = Differences(after.revision, False, items, skills)

    def _paths(self, ref: Ref, sent: object, told: Sequence[Difference]) -> set[str]:
        """The paths that a reference names in the two states."""
        if not isinstance(ref, PathRef | UuidRef | IdRef):
            raise InvalidArgumentError(
                f"{quoted(sent)} is no path, id or UUID; name a file or folder by one of these"
            )
        sides = self._before, self._after
        if isinstance(ref, PathRef):
            path = ref.path
            if any(_is_about(one, path) for one in told):
                return {path}
            found = {path} if any(path in _places(side) for side in sides) else set()
        else:
            found = {
                path for side in sides for path in _places(side) if _is_called(ref, side.identities.of(path))
            }
        if not found:
            raise not_found(sent)
        return found

    def texts(self, context: int) -> Iterator[str]:
        """What differs in each file, one after the other.

        Args:
            context: Lines that are told around each change.

        Raises:
            InvalidArgumentError: That is no count.
            IntegrityError: The content of a file is damaged or missing.
            ChangedError: A file of the store has changed since it was compared.
        """
        check_count("context", context, 0)
        for item in self._items:
            yield "".join(self._told(item, context))

    def _shown(self, path: str | None) -> str:
        return "none" if path is None else quote_name(printable_path(path, self._roots))

    def _told(self, item: Difference, context: int) -> Iterator[str]:
        name, old_name = self._shown(item.path), self._shown(item.old_path or item.path)
        yield (
            f"{item.kind:<8}  {name}\n"
            if item.old_path is None
            else f"{item.kind:<8}  {old_name} -> {name}\n"
        )
        if item.link != item.old_link:
            yield _from_to("link", self._shown(item.old_link), self._shown(item.link))
        if None not in (item.executable, item.old_executable) and item.executable != item.old_executable:
            yield _from_to(
                "executable", *("yes" if bit else "no" for bit in (item.old_executable, item.executable))
            )
        if item.hash == item.old_hash:
            return
        old_file = None if item.old_hash is None else self._old_files[item.old_path or item.path]
        new_file = None if item.hash is None else self._new_files[item.path]
        old = None if old_file is None else _text(self._before, item.old_path or item.path, old_file)
        new = None if new_file is None else _text(self._after, item.path, new_file)
        if _NO_TEXT in (old, new):
            yield _from_to("no text", item.old_hash, item.hash)
        elif None not in (old, new) and old == new:
            yield "the same text, in another encoding\n"
        else:
            yield unified_diff(old, new, _named("a", old_name), _named("b", name), context)


_NO_TEXT = "\0"
"""Stands for what is no text, or too large: no text holds a NUL."""


def _text(side: Side, path: str, file: ManifestFile) -> str:
    if file.size > MOST_COMPARED:
        return _NO_TEXT
    data = side.read(path, file)
    encoding = scan_text(data).encoding
    return _NO_TEXT if encoding is None else data.decode(encoding)


def _named(side: str, name: str) -> str:
    """The name of a text as `diff` and `git` write it."""
    if name.startswith('"'):
        return f'"{side}/{name[1:]}'
    # The name ends at a tab; without one it ends at its first blank.
    return f"{side}/{name.lstrip('/')}" + "\t" * (" " in name)


def _from_to(what: str, old: str | None, new: str | None) -> str:
    return f"{what}: {old or 'none'} -> {new or 'none'}\n"


def _is_about(item: Difference, path: str) -> bool:
    return is_below(item.path, path) or (item.old_path is not None and is_below(item.old_path, path))


def _is_called(ref: UuidRef | IdRef, uuid: bytes) -> bool:
    return uuid == ref.uuid if isinstance(ref, UuidRef) else id_of_uuid(uuid) == ref.id


def _files(skills: Iterable[ManifestSkill]) -> dict[str, ManifestFile]:
    """Files by store path."""
    return {_joined(skill, file.path): file for skill in skills for file in skill.files}


def _joined(skill: ManifestSkill, below: str) -> str:
    return f"{skill.path}/{below}" if skill.path else below


def _places(side: Side) -> set[str]:
    """All paths of a state, those of the folders included that lead to something."""
    found = {""}
    for skill in side.skills(sorted(side.top.parts)):
        below = (*(file.path for file in skill.files), *(path for path, _ in skill.links), *skill.folders)
        for path in (skill.path, *(_joined(skill, path) for path in below)):
            while path not in found:
                found.add(path)
                path = path.rpartition("/")[0]
    return found
