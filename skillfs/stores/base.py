"""What a store offers to the layers above.

A place in a store is a pair: which root (0 is the store's own, the others are folders that `follow` named)
and the path below it. Places come from the index, never from a caller. Errors of the system pass through as
`OSError`; what they mean depends on who asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from skillfs.core.model import Place
from skillfs.errors import StoreUnavailableError

__all__ = [
    "FileState",
    "FolderHandle",
    "Handle",
    "KeyRefusedError",
    "Listed",
    "Sink",
    "StaleFile",
    "Store",
    "UnfitKey",
    "WritableStore",
    "is_unsettled",
    "unsettled",
]


class StaleFile(Exception):
    """A file is another than the one that was to be read. Never reaches a caller."""


class KeyRefusedError(StoreUnavailableError):
    """A remote store answers, but does not hand out this one file, such as one that is archived."""


class FileState(NamedTuple):
    """The outside of a file at one moment.

    Attributes:
        signature: Opaque; equal signatures mean equal bytes. One that was taken too soon after the last
            modification to vouch for later ones ends in `?` and equals no other.
        size: Bytes; -1 where the store does not say.
        modified: Nanoseconds since the epoch; 0 where the store does not say.
        changed: The same, of the last change of any kind; 0 where the store does not say.
    """

    signature: bytes
    size: int
    modified: int
    changed: int = 0


def unsettled(state: FileState) -> FileState:
    """The same state, marked so that it equals no other and the file is looked at again."""
    return state if is_unsettled(state) else state._replace(signature=state.signature + b"?")


def is_unsettled(state: FileState) -> bool:
    """Whether a state is marked so that it equals no other."""
    return state.signature.endswith(b"?")


class UnfitKey(NamedTuple):
    """A key of a remote store that is left out, because it cannot be the path of a file.

    Attributes:
        code: `directory-marker`, `unfit-key` or `file-and-folder`.
        name: Name in the folder it is reported with; empty where it has none that could be a name.
        message: What is wrong.
    """

    code: str
    name: str
    message: str


class Listed(NamedTuple):
    """The names in a folder, unsorted.

    Attributes:
        folders: Folders.
        files: Regular files.
        links: Symbolic links.
        special: Pipes, sockets and devices.
        undecodable: Names that are not UTF-8 and cannot be served.
        unfit: Of a remote store, keys that name nothing in a folder tree.
    """

    folders: list[str]
    files: list[str]
    links: list[str]
    special: list[str]
    undecodable: list[bytes]
    unfit: Sequence[UnfitKey] = ()


class Handle(Protocol):
    """A file that is open; every read and the signature are of the same file."""

    state: FileState

    def read(self, offset: int, length: int) -> bytes:
        """Bytes from `offset`; fewer than `length` only at the end of the file."""

    def blocks(self) -> Iterator[bytes]:
        """The whole file, in blocks."""

    def unchanged(self) -> bool:
        """Whether the file still has the signature it had when it was opened."""

    def settled(self) -> FileState:
        """The state to remember: marked when the file was opened too soon after its last modification."""

    def close(self) -> None:
        """Close it."""

    def __enter__(self) -> Handle: ...

    def __exit__(self, *_: object) -> None: ...


class FolderHandle(Protocol):
    """A folder that is open; what it lists and what is opened through it belong together."""

    state: FileState

    def entries(self) -> Listed:
        """What it holds."""

    def stat(self, name: str) -> tuple[FileState, int]:
        """The state of a name in it, links not followed, and how many names the file has."""

    def hash(self, name: str, *, head: int = 0) -> tuple[FileState, bytes, bytes, int]:
        """Read a file in it: its state, its XXH3-128, its first `head` bytes, and how many names it has."""


class Store(Protocol):
    """A place where skill folders lie.

    Attributes:
        url: Canonical URL of the root.
        spellings: Everything that may stand for the root in front of a path, the canonical one first.
        account: What tells apart two views of one URL: endpoint and credential, hashed; empty where there is
            but one.
        remote: Whether looking costs requests. Such a store shows nothing by itself, only what a call of
            `look` has found, and its files are read when a caller asks for them, not when it is scanned.
        writable: Whether it is a `WritableStore`.
    """

    url: str
    spellings: tuple[str, ...]
    account: str
    remote: bool
    writable: bool

    @property
    def followed(self) -> tuple[str, ...]:
        """Where the roots from 1 on lie."""

    def look(self, paths: Collection[str] = ("",)) -> Store:
        """What lies at and below some folders of root 0 now, as a store; a local one is always live: itself.

        Raises:
            StoreUnavailableError: A listing failed.
        """

    def open(self, place: Place, known: FileState | None = None) -> Handle:
        """Open a regular file, confined to its root.

        Args:
            place: Where it lies.
            known: What the caller takes it to be. A remote store believes that without asking, and its handle
                raises `StaleFile` at the first reading that shows it to be another.
        """

    def folder(self, place: Place) -> AbstractContextManager[FolderHandle]:
        """Open a folder, confined to its root."""

    def state(self, place: Place) -> FileState | None:
        """What lies at a place now, confined to its root and links not followed; None when nothing does.

        Raises:
            StoreUnavailableError: The process has no handle left to look with.
        """

    def in_step(self, place: Place, signature: bytes) -> bool:
        """Whether a place has this signature now; looks and raises as `state` does."""

    def is_regular(self, place: Place) -> bool | None:
        """Whether a regular file lies at a place; None when it is a link."""

    def exists(self, place: Place) -> bool:
        """Whether anything lies at a place, links not followed."""

    def differing(self, root: int, known: Iterable[tuple[str, bytes]]) -> Iterator[str]:
        """The paths, of pairs of path and known signature, whose signature is another now."""

    def inode(self, signature: bytes) -> bytes:
        """The part of a signature that names the thing itself."""

    def executable(self, signature: bytes) -> bool | None:
        """Whether the owner may execute a file of this signature; None where the store does not know."""

    def changed(self, signature: bytes) -> int | None:
        """When a file of this signature last changed in any way, in nanoseconds since the epoch.

        None where the store does not know more of that than when it was modified.
        """

    def resolve(self, place: Place) -> Place | str:
        """Where a link leads: a place that is no link, or the problem code that says why it leads nowhere."""

    def is_rooted(self) -> bool:
        """Whether every root is still the folder that was opened; cheap enough for every look-up."""

    def check_root(self) -> None:
        """Notice a root that was removed or replaced.

        Raises:
            StoreUnavailableError: The root is not there.
        """


class Sink(Protocol):
    """A file that is being written; nothing of it can be seen before it is committed."""

    def write(self, data: bytes) -> None:
        """Add bytes at the end."""

    def commit(self) -> None:
        """Make what was written the file at its place, whole and at once.

        Raises:
            FileExistsError: The file was to be created, and there is one.
        """

    def discard(self) -> None:
        """Leave nothing behind."""


class WritableStore(Store, Protocol):
    """A store that can be written to. Places are of root 0, and every way to one is confined as for reading.

    Errors of the system pass through as `OSError`.

    Attributes:
        holds_empty_folders: Whether a folder can be there with nothing in it.
    """

    holds_empty_folders: bool

    def create(self, place: Place, *, exclusive: bool = False) -> Sink:
        """Begin to write a file, in a folder that is there.

        Args:
            place: Where it is to lie; what lies there is replaced.
            exclusive: Whether to fail, at the commit, when a file lies there.
        """

    def touch(self, place: Place) -> None:
        """Set a file's modification time to now."""

    def remove(self, place: Place) -> None:
        """Remove a file or link."""

    def make_folder(self, place: Place) -> None:
        """Make a folder in one that is there; FileExistsError when something lies there."""

    def remove_folder(self, place: Place) -> None:
        """Remove an empty folder."""

    def move(self, source: Place, target: Place) -> None:
        """Give a file, or a folder with all it holds, another place; a file that lies there is replaced."""

    def copy(self, source: Place, target: Place) -> None:
        """Copy one file, whole and at once; a file that lies there is replaced."""
