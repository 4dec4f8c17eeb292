"""SHA-256 digests of the files of skills, kept in the index for as long as a file stays the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import NamedTuple

from skillfs.core.digest import id_of_uuid, sha256, uuid_text, xxh3_of_blocks
from skillfs.core.model import FileDigest
from skillfs.core.refs import below_mount, printable_path
from skillfs.errors import (
    ChangedError,
    InvalidArgumentError,
    IsFolderError,
    NotFoundError,
    UnreadableError,
    not_found,
    quoted,
)
from skillfs.index.rows import NodeRow, Row, RowKind, Visibility
from skillfs.lookup import Asked
from skillfs.mounts import Mount, View
from skillfs.stores.base import Handle, KeyRefusedError

__all__ = ["Hasher", "SkillFile", "digest_of_file", "files_below", "manifest_of"]

ATTEMPTS = 3
"""How often a manifest starts over when a file that it is to hold goes away."""

_KEEP = (
    "INSERT OR REPLACE INTO sha256 SELECT ?, ? WHERE EXISTS "
    "(SELECT 1 FROM entry WHERE key=? AND signature=? AND content IS ?)"
)


class SkillFile(NamedTuple):
    """A file of a skill, or a link in it that leads to a folder.

    Attributes:
        path: Path below the skill.
        size: Bytes; None of a folder.
        target: Of a link to a folder, where it leads: below the skill, or in the whole of a store.
        entry: Its row; of a link to a file that of the file.
    """

    path: str
    size: int | None
    target: str
    entry: NodeRow | Row


def files_below(view: View, uuid: bytes) -> list[SkillFile] | None:
    """All files that can be seen below a folder, and links in it that lead to folders, sorted by path.

    Args:
        view: Where it lies, and what may be seen there.
        uuid: 16 bytes, of the folder.

    Returns:
        None when the folder is not there.
    """
    return view.mount.engine.query(lambda: _files_now(view, uuid))


def _files_now(view: View, uuid: bytes) -> list[SkillFile] | None:
    (mount, access), catalog = view, view.mount.engine.catalog
    top = catalog.by_uuid(uuid, id_of_uuid(uuid))
    if top is None:
        return None
    folders = {top.key: ""}
    files = []
    for node in catalog.subtree(top.key):
        above = folders.get(node.parent)
        if above is None:
            continue
        path = above + node.name
        if node.kind in (RowKind.FOLDER, RowKind.SKILL):
            folders[node.key] = path + "/"
        elif node.visible == Visibility.HIDDEN:
            continue
        elif node.kind == RowKind.FILE:
            files.append(SkillFile(path, node.size or 0, "", node))
        elif node.target is not None:
            target = catalog.by_path(node.target.split("/") if node.target else ())
            if target is None or not access.sees(target):
                continue
            if target.kind == RowKind.FILE:
                files.append(SkillFile(path, target.size or 0, "", target))
            else:
                files.append(SkillFile(path, None, _target(mount, top.path, target.path), target))
    return sorted(files, key=lambda file: file.path)


def _target(mount: Mount, skill: str, target: str) -> str:
    inside = f"{skill}/" if skill else ""
    return "./" + target.removeprefix(inside) if target.startswith(inside) else "/" + mount.path(target)


class Hasher:
    """Gives the SHA-256 of files; what it has to compute is kept in the indexes."""

    def __init__(self) -> None:
        self._computed: dict[Mount, list[tuple[object, ...]]] = {}

    def digest(self, view: View, file: SkillFile) -> bytes:
        """The SHA-256 of a file, as 32 bytes.

        Raises:
            SkillFSError: It cannot be read, or is not there any more.
        """
        return self._known(view, file) or self.compute(view, file)[1]

    def _known(self, view: View, file: SkillFile) -> bytes | None:
        engine = view.mount.engine
        return engine.query(lambda: engine.catalog.sha256(file.entry.key))

    def compute(self, view: View, file: SkillFile) -> tuple[int, bytes]:
        """Size in bytes and SHA-256 of a file, both from one reading of it.

        Raises:
            SkillFSError: It cannot be read, or is not there any more.
        """

        def read(row: Row, handle: Handle) -> tuple[int, bytes]:
            return self.read(view.mount, row, handle)

        mount, engine = view.mount, view.mount.engine
        # By what stays when it moves.
        asked = mount.lookup.ask(uuid_text(file.entry.uuid or b""))
        try:
            return mount.reader.with_handle(asked, view.access, read, enforced=False)
        except (UnreadableError, ChangedError, KeyRefusedError):
            paths = engine.query(lambda: engine.catalog.with_paths([file.entry.key]))
            if (path := paths.get(file.entry.key)) is None:
                raise
            # Once more, so that what is wrong is told of a path.
            asked = asked._replace(sent=printable_path(below_mount(mount.name, path)))
            return mount.reader.with_handle(asked, view.access, read, enforced=False)

    def read(self, mount: Mount, row: Row, handle: Handle) -> tuple[int, bytes]:
        """Size in bytes and SHA-256 of an open file."""
        hasher = sha256()
        size = 0

        def blocks() -> Iterable[bytes]:
            nonlocal size
            for block in handle.blocks():
                hasher.update(block)
                size += len(block)
                yield block

        content, digest = xxh3_of_blocks(blocks()), hasher.digest()
        # A row whose signature vouches for nothing yet is of these bytes where its hash says so.
        settled = row.signature == handle.state.signature or content == row.content
        if settled and row.content in (None, content):
            self.remember(mount, row, digest)
        return size, digest

    def remember(self, mount: Mount, row: NodeRow | Row, digest: bytes) -> None:
        """Take in the SHA-256 of the very version of a file that a row is of."""
        kept = (row.key, digest, row.key, row.signature, row.content)
        self._computed.setdefault(mount, []).append(kept)

    def keep(self) -> None:
        """Commit what was computed, unless another writer is busy."""
        for mount, rows in self._computed.items():
            mount.engine.database.try_write([(_KEEP, rows)])


def digest_of_file(view: View, asked: Asked) -> bytes:
    """The SHA-256 of a file as it is now, 32 bytes; where it is known for its signature it is not read.

    Args:
        view: Where it lies, and what may be seen there.
        asked: A reference to it.

    Raises:
        NotFoundError: Nothing visible answers to the reference.
        IsFolderError: It names a folder.
        UnreadableError: It may not be read.
        ChangedError: It changes faster than it can be read.
    """
    hasher = Hasher()
    catalog, query = view.mount.engine.catalog, view.mount.engine.query

    def read(row: Row, handle: Handle) -> bytes:
        if row.signature == handle.state.signature:
            known = query(lambda: catalog.sha256(row.key))
            if known is not None:
                return known
        return hasher.read(view.mount, row, handle)[1]

    try:
        return view.mount.reader.with_handle(asked, view.access, read, enforced=False)
    finally:
        hasher.keep()


def manifest_of(view: View, asked: Asked) -> tuple[FileDigest, ...]:
    """The files of a skill, and of those nested in it, with sizes and digests, by path.

    Args:
        view: Where it lies, and what may be seen there.
        asked: A reference to it.

    Raises:
        NotFoundError: Nothing visible answers to the reference.
        IsFileError: It names a file.
        InvalidArgumentError: It names a folder that is no skill.
        UnreadableError: A file may not be read.
        ChangedError: Files come and go, or change, faster than they can be read.
    """
    for _ in range(ATTEMPTS):
        files, known = _files_of_skill(view, asked)
        with contextlib.suppress(NotFoundError, IsFolderError):  # which the index knows by then, too
            return _measured(view, files, known)
    raise ChangedError(
        f"files of {quoted(asked.shown)} go away faster than they can be read; try again when it is at rest"
    )


def _files_of_skill(view: View, asked: Asked) -> tuple[list[SkillFile], dict[int, bytes]]:
    mount, access = view
    mount.ensure_fresh(mount.lookup.folder(asked, access).path)
    row = mount.lookup.folder(asked, access)
    if row.kind != RowKind.SKILL:
        raise InvalidArgumentError(
            f"{quoted(asked.shown)} names a folder that is no skill; pass the folder of one"
        )
    files, known = mount.engine.query(lambda: _with_digests(view, row.uuid or b""))
    if files is None:
        raise not_found(asked.shown)
    return files, known


def _measured(view: View, files: list[SkillFile], known: dict[int, bytes]) -> tuple[FileDigest, ...]:
    hasher = Hasher()

    def measure(file: SkillFile) -> FileDigest:
        # How long a file is of which no listing tells it, only a reading does, each time.
        digest = None if file.entry.size is None else known.get(file.entry.key)
        size = file.size or 0
        if digest is None:
            size, digest = hasher.compute(view, file)
        return FileDigest(file.path, size, f"sha256:{digest.hex()}", uuid_text(file.entry.uuid or b""))

    try:
        return tuple(view.mount.reader.many(measure, files))
    finally:
        hasher.keep()


def _with_digests(view: View, uuid: bytes) -> tuple[list[SkillFile] | None, dict[int, bytes]]:
    """The files below a folder and what digests of them are known, as one state of the index has them."""
    catalog = view.mount.engine.catalog
    with catalog.database.snapshot():
        found = _files_now(view, uuid)
        if found is None:
            return None, {}
        files = [file for file in found if file.size is not None]
        return files, catalog.sha256s([file.entry.key for file in files])
