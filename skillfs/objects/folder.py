"""Where objects lie: things that are written once, under a name, and never changed.

An object folder is a local folder or lies behind any filesystem of fsspec. It holds::

    blobs/ab/<62 hex digits>       contents of files, by SHA-256
    manifests/<64 hex digits>      manifests, tops and parts, by SHA-256
    snapshots/<time>-<64 hex>      records of snapshots, by time and SHA-256
    labels/<label>                 the name of a record
    bad/…                          what did not match its name, set aside

and beside these what those who are at work need: locally `lock`, `turn` and `tmp/…`, elsewhere `holds/…`.
Nothing else that lies there is looked at or touched.

Names come from this package only: what was read from somewhere is validated before it becomes one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from skillfs.errors import InvalidArgumentError, quoted
from skillfs.stores.base import Handle

__all__ = [
    "BAD",
    "BLOBS",
    "LABELS",
    "MANIFESTS",
    "SNAPSHOTS",
    "ObjectFolder",
    "ObjectInfo",
    "bad_name",
    "blob_name",
    "check_name",
    "check_prefix",
    "digest_of_name",
    "is_name",
    "manifest_name",
    "name_of_bad",
]

BLOBS, MANIFESTS, SNAPSHOTS, LABELS, BAD = "blobs/", "manifests/", "snapshots/", "labels/", "bad/"

_IN_FOLDER = r"[A-Za-z0-9][A-Za-z0-9._+-]"
_NAME = re.compile(
    r"blobs/[0-9a-f]{2}/[0-9a-f]{62}"
    r"|manifests/[0-9a-f]{64}"
    r"|snapshots/[0-9]{8}T[0-9]{12}Z-[0-9a-f]{64}"
    rf"|labels/{_IN_FOLDER}{{0,99}}"
    rf"|bad/{_IN_FOLDER}{{0,149}}"
).fullmatch
_PREFIX = re.compile(r"blobs/(?:[0-9a-f]{2}/)?|manifests/|snapshots/|labels/|bad/").fullmatch


def is_name(name: str) -> bool:
    """Whether an object can have this name."""
    return _NAME(name) is not None


def check_name(name: str) -> str:
    """The name of an object, as it is.

    Raises:
        InvalidArgumentError: It is none.
    """
    if not is_name(name):
        raise InvalidArgumentError(f"{quoted(name)} is no name that an object can have")
    return name


def check_prefix(prefix: str) -> str:
    """What the names of a kind of object begin with, as it is.

    Raises:
        InvalidArgumentError: No names do.
    """
    if _PREFIX(prefix) is None:
        raise InvalidArgumentError(f"no names of objects begin with {quoted(prefix)}")
    return prefix


def blob_name(digest: bytes) -> str:
    """Name of the content of a file by its SHA-256, 32 bytes."""
    text = digest.hex()
    return check_name(f"{BLOBS}{text[:2]}/{text[2:]}")


def manifest_name(digest: bytes) -> str:
    """Name of the top of a manifest, or of a part, by its SHA-256, 32 bytes."""
    return check_name(MANIFESTS + digest.hex())


def digest_of_name(name: str) -> bytes:
    """The SHA-256 (32 bytes) that the name of a blob, manifest or record tells."""
    return bytes.fromhex(check_name(name).replace("/", "")[-64:])


def bad_name(name: str) -> str:
    """Where an object is found when it was set aside."""
    return BAD + check_name(name).replace("/", "-")


def name_of_bad(name: str) -> str | None:
    """The name that an object had before it was set aside; None where no object was that."""
    kind, _, rest = name.removeprefix(BAD).partition("-")
    found = f"{kind}/{rest.replace('-', '/', 1) if kind == 'blobs' else rest}"
    return found if is_name(found) and not found.startswith(BAD) else None


class ObjectInfo(NamedTuple):
    """One object of a listing.

    Attributes:
        name: Its name in the folder.
        size: Bytes; -1 where a filesystem does not say.
        modified: Nanoseconds since the epoch; 0 where a filesystem does not say.
    """

    name: str
    size: int
    modified: int


class ObjectFolder(Protocol):
    """A folder of objects.

    Methods raise `StoreUnavailableError` when it cannot be read or written now, `UnreadableError` when this
    user may not, and `IntegrityError` where something else lies at the place of an object.

    Attributes:
        url: Where it is, as it can be shown: without credentials.
        remote: Whether looking costs requests.
    """

    url: str
    remote: bool

    def open(self, name: str) -> Handle:
        """Open an object for reading, without looking at what it holds; `FileNotFoundError` if there is none.

        The signature of the handle's state tells versions apart, as that of a file of a store does.
        """

    def get(self, name: str) -> bytes:
        """All of a small object; `FileNotFoundError` if there is none."""

    def get_all(self, names: Sequence[str]) -> list[bytes | None]:
        """All of each of some small objects, in their order; None for one that is not there."""

    def has(self, name: str, size: int | None = None) -> bool:
        """Whether there is an object of this name, and of so many bytes where that is told."""

    def listed(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects whose names begin with this, which ends with `/`; in order of their names."""

    def sizes(self, prefix: str) -> dict[str, int]:
        """Bytes of the objects whose names begin with this, by what follows, in no order; -1 as in `listed`.

        What is no object may be among them. Of many it takes less than `listed`.
        """

    def has_any(self, prefix: str) -> bool:
        """Whether there is any object whose name begins with this, which ends with `/`."""

    def put_all(self, objects: Iterable[tuple[str, Iterable[bytes]]]) -> None:
        """Write objects, each whole or not at all; when it returns all of them are there to stay.

        Args:
            objects: Name and content of each. What has a name that is there already replaces it: the content
                is the same, or the one that was there was damaged. What a content raises ends it all, and of
                that one nothing is left.

        Raises:
            StoreUnavailableError: The folder is full or does not answer; what was written before is left.
        """

    def create(self, name: str, data: bytes) -> bool:
        """Write a small object unless there is one of this name; False when there is.

        When a record is created, everything that can be seen in the folder by then is there to stay.
        """

    def remove(self, name: str) -> None:
        """Remove an object; nothing happens when there is none. Records and labels are gone for good then."""

    def set_aside(self, name: str) -> None:
        """Take a damaged object out of the way: it is then found under `bad/`, and not as itself."""

    def leftovers(self, *, remove: bool = False) -> list[ObjectInfo]:
        """What was left by those who were killed at work; `remove` takes it away, as far as that works."""

    def holding(self, *, alone: bool, wait: bool = True) -> AbstractContextManager[None]:
        """While this is held, nobody who wants to be alone is working on the folder; or nobody else at all.

        Whoever writes a snapshot holds it with others, whoever removes objects alone. It ends with the
        process that holds it, however that ends.

        Args:
            alone: Whether nobody else may be at work.
            wait: Whether to wait for others for a few seconds.

        Raises:
            StoreUnavailableError: Somebody else is at work who does not go together with this.
        """
