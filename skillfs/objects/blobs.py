"""Contents of files and texts of manifests, kept and found by SHA-256.

Everything is checked when it is read. What does not match its name is set aside, so that it is missing from
then on, and is written anew by the next snapshot that comes by the same content.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NoReturn

from skillfs.core.digest import sha256
from skillfs.core.manifest import digest_text
from skillfs.errors import IntegrityError, SkillFSError
from skillfs.objects.folder import BLOBS, MANIFESTS, ObjectFolder, blob_name, manifest_name
from skillfs.objects.several import each
from skillfs.objects.verified import VerifiedHandle

__all__ = ["Blobs", "is_right", "set_aside_if_bad"]

MANY_REMOTE = 64
"""Blobs that are looked for one by one where that costs a request each; of more the folder is listed."""

MANY_LOCAL = 4_096


class Blobs:
    """Contents of files, and texts of manifests, in an object folder.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: ObjectFolder) -> None:
        self.folder = folder

    def has_all(self, asked: Iterable[bytes] | Mapping[bytes, int]) -> set[bytes]:
        """Which of some blobs are there.

        Args:
            asked: Their SHA-256, 32 bytes each; or these with the bytes that each must have: one of another
                size counts as missing, so that it is written anew.

        Raises:
            StoreUnavailableError: The folder cannot be read now.
        """
        sizes = asked if isinstance(asked, Mapping) else {}
        wanted = set(asked)
        if len(wanted) > (MANY_REMOTE if self.folder.remote else MANY_LOCAL):
            return set(self._listed(wanted, sizes))

        def has(digest: bytes) -> bool:
            return self.folder.has(blob_name(digest), sizes.get(digest))

        return {digest for digest, is_there in each(self.folder, has, wanted) if is_there}

    def open(self, digest: bytes, size: int) -> VerifiedHandle:
        """Open the content of a file; every byte is checked before it is given out.

        Args:
            digest: Its SHA-256, 32 bytes.
            size: Bytes that it must have.

        Raises:
            IntegrityError: It is missing; a reading that meets other bytes raises it, too, and sets the blob
                aside.
            StoreUnavailableError: The folder cannot be read now.
        """
        name = blob_name(digest)
        try:
            handle = self.folder.open(name)
        except FileNotFoundError as error:
            raise _missing(digest) from error
        return VerifiedHandle(handle, digest, size, partial(self._refuse, name, digest))

    def put_all(self, contents: Iterable[tuple[bytes, Iterable[bytes]]]) -> None:
        """Write contents of files; when it returns all of them are there to stay.

        Args:
            contents: SHA-256 (32 bytes) and content of each. That they belong together is not checked here:
                the content of what may change while it is read has to raise, at its end, when it turns out to
                be another; then nothing of it is kept.

        Raises:
            StoreUnavailableError: The folder is full, or cannot be written now.
        """
        self.folder.put_all((blob_name(digest), content) for digest, content in contents)

    def get_manifest(self, digest: bytes) -> bytes:
        """The text of a manifest's top, or of a part.

        Args:
            digest: Its SHA-256, 32 bytes.

        Raises:
            IntegrityError: It is missing or damaged; a damaged one is set aside.
            StoreUnavailableError: The folder cannot be read now.
        """
        return self.get_manifests([digest])[0]

    def get_manifests(self, digests: Sequence[bytes]) -> list[bytes]:
        """The texts of several, in their order; as `get_manifest` otherwise."""
        found = []
        texts = self.folder.get_all([manifest_name(digest) for digest in digests])
        for digest, text in zip(digests, texts, strict=True):
            if text is None:
                raise _missing(digest, "manifest")
            if sha256(text).digest() != digest:
                self._refuse(manifest_name(digest), digest)
            found.append(text)
        return found

    def put_manifests(self, texts: Mapping[bytes, bytes]) -> None:
        """Write texts of manifests that are not there yet; when it returns all of them are there to stay.

        Args:
            texts: Texts by their SHA-256.

        Raises:
            StoreUnavailableError: The folder is full, or cannot be written now.
        """
        there = {info.name: info.size for info in self.folder.listed(MANIFESTS)}
        named = {manifest_name(digest): text for digest, text in texts.items()}
        new = [(name, [text]) for name, text in named.items() if there.get(name) != len(text)]
        self.folder.put_all(new)

    def _listed(self, wanted: set[bytes], sizes: Mapping[bytes, int]) -> Iterator[bytes]:
        """Those of some blobs that are there, each of the right size where that is told."""
        names: dict[str, bytes] = {}
        for digest in wanted:
            text = digest.hex()
            names[f"{text[:2]}/{text[2:]}"] = digest
        # A folder of blobs that holds none of them is not looked at where that saves something.
        for above in [""] if self.folder.remote else sorted({name[:3] for name in names}):
            for below, size in self.folder.sizes(BLOBS + above).items():
                found = names.get(above + below)
                if found is not None and size in (-1, sizes.get(found, size)):
                    yield found

    def _refuse(self, name: str, digest: bytes) -> NoReturn:
        # Whoever writes a snapshot may be writing it anew at this moment. While somebody is at work it stays
        # where it is; it is not given out there either.
        with contextlib.suppress(SkillFSError, OSError), self.folder.holding(alone=True, wait=False):
            set_aside_if_bad(self.folder, name, digest)
        raise IntegrityError(
            f"the content that the object folder has for {digest_text(digest)} is damaged, and is not given "
            "out; run: skillfs snapshot fsck"
        )


def is_right(folder: ObjectFolder, name: str, digest: bytes) -> bool:
    """Whether an object is there and has a SHA-256.

    Raises:
        StoreUnavailableError: It cannot be read now.
    """
    hasher = sha256()
    try:
        with folder.open(name) as handle:
            for block in handle.blocks():
                hasher.update(block)
    except FileNotFoundError:
        return False
    return hasher.digest() == digest


def set_aside_if_bad(folder: ObjectFolder, name: str, digest: bytes) -> bool:
    """Read an object once more, and set it aside when it has not the SHA-256 that it must have.

    To be called while the folder is held alone.

    Returns:
        Whether it was set aside.
    """
    with contextlib.suppress(IntegrityError):  # what lies there is no object at all
        if is_right(folder, name, digest):
            return False
    folder.set_aside(name)
    return True


def _missing(digest: bytes, what: str = "content") -> IntegrityError:
    return IntegrityError(
        f"the {what} {digest_text(digest)} is missing from the object folder; run: skillfs snapshot fsck"
    )
