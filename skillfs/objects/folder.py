"""Where objects lie: things that are written once, under a name, and never changed.

An object folder is a local folder or lies behind any filesystem of fsspec. It holds::

    blobs/ab/<62 hex digits>       contents of files, by SHA-256
    manifests/<64 hex digits>      manifests, tops and parts, by SHA-256
    snapshots/<time>-<64 hex>      records of snapshots, by time and SHA-256
    labels/<label>                 the name of a record
    bad/…                          what did not match its name, set aside

Names come from this package only: what was read from somewhere is validated before it becomes one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from skillfs.stores.base import Handle

__all__ = ["ObjectFolder", "ObjectInfo"]


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
    """A folder of objects. Methods raise `StoreUnavailableError` when it cannot be read or written now.

    Attributes:
        url: Where it is, as it can be shown: without credentials.
    """

    url: str

    def open(self, name: str) -> Handle:
        """Open an object for reading, without looking at what it holds; `FileNotFoundError` if there is none.

        The signature of the handle's state tells versions apart, as that of a file of a store does.
        """

    def get(self, name: str) -> bytes:
        """All of a small object; `FileNotFoundError` if there is none."""

    def has(self, name: str) -> bool:
        """Whether there is an object of this name."""

    def listed(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects whose names begin with this, which ends with `/`; in order of their names."""

    def put_all(self, objects: Iterable[tuple[str, Iterable[bytes]]]) -> None:
        """Write objects, each whole or not at all; when it returns all of them are there to stay.

        Args:
            objects: Name and content of each. What has a name that is there already replaces it: the content
                is the same, or the one that was there was damaged.

        Raises:
            StoreUnavailableError: The folder is full or does not answer; what was written before is left.
        """

    def create(self, name: str, data: bytes) -> bool:
        """Write a small object unless there is one of this name; False when there is."""

    def remove(self, name: str) -> None:
        """Remove an object; nothing happens when there is none."""

    def set_aside(self, name: str) -> None:
        """Take a damaged object out of the way: it is then found under `bad/`, and not as itself."""

    def holding(self, *, alone: bool) -> AbstractContextManager[None]:
        """While this is held, nobody who wants to be alone is working on the folder; or nobody else at all.

        Whoever writes a snapshot holds it with others, whoever removes objects alone. It ends with the
        process that holds it, however that ends.

        Raises:
            StoreUnavailableError: Somebody else is at work who does not go together with this.
        """
