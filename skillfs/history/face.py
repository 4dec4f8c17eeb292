"""The methods of `SkillFileSystem` about contents: digests, snapshots, differences, locks, versions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from skillfs.core.manifest import digest_text, parse_digest, skill_digest
from skillfs.core.model import FileDigest, Kind
from skillfs.digests import digest_of_file, manifest_of
from skillfs.errors import InvalidArgumentError, quoted
from skillfs.listing import kind_of
from skillfs.lookup import Asked
from skillfs.mounts import View, naming

__all__ = ["HistoryFace"]


class HistoryFace:
    """Whoever derives from it says what a call may see, and where."""

    _objects: str | os.PathLike[str] | None = None
    _objects_options: Mapping[str, Any] | None = None

    def _seen_by(self, base_paths: Sequence[object] | None) -> list[View]:
        """What a call may see, of each store."""
        raise NotImplementedError

    def _asked_of(self, ref: object, base_paths: Sequence[object] | None) -> tuple[View, Asked]:
        """The store in which a reference is to be looked up, and the reference as its look-up takes it."""
        raise NotImplementedError

    def manifest(self, ref: object, *, base_paths: Sequence[object] | None = None) -> tuple[FileDigest, ...]:
        """The files of a skill with sizes and SHA-256 digests, sorted by path.

        Those of skills nested in it are among them, and links to files; links to folders are not. A digest
        is computed once for each version of a file and kept.

        Args:
            ref: The skill: its folder, or its name as `name:…`.
            base_paths: As in `get_content`.

        Raises:
            InvalidArgumentError: The reference is malformed, or names a folder that is no skill.
            NotFoundError: Nothing visible answers to it.
            IsFileError: It names a file.
            UnreadableError: A file may not be read.
            ChangedError: Files of it come and go, or change, faster than they can be read.
        """
        view, asked = self._asked_of(ref, base_paths)
        with naming(view.mount.name):
            return manifest_of(view, asked)

    def digest(self, ref: object, *, base_paths: Sequence[object] | None = None) -> str:
        """The SHA-256 of a file, or the digest of a skill, as `sha256:<64 hex>`.

        That of a skill is the SHA-256 of JSON (ASCII, no blanks) of the sorted list of `[path below the skill
        folder, size in bytes, "sha256:<hex of the bytes>"]`, one for each of its files, as `manifest` lists
        them: the content revision that `agentskills-core` computes. It is the same wherever the same files
        lie.

        Args:
            ref: A file or a skill.
            base_paths: As in `get_content`.

        Raises:
            InvalidArgumentError: The reference is malformed, or names a folder that is no skill.
            SkillFSError: As in `manifest`.
        """
        view, asked = self._asked_of(ref, base_paths)
        with naming(view.mount.name):
            return digest_text(_digest_of(view, asked))


def _digest_of(view: View, asked: Asked) -> bytes:
    row = view.mount.lookup.entry(asked, view.access)
    kind = kind_of(row.kind)
    if kind is Kind.FILE:
        return digest_of_file(view, asked)
    if kind is Kind.FOLDER:
        raise InvalidArgumentError(
            f"{quoted(asked.shown)} names a folder that is no skill; pass a skill or a file"
        )
    files = manifest_of(view, asked)
    return skill_digest((file.path, file.size, parse_digest(file.digest)) for file in files)
