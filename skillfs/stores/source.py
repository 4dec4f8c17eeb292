"""What lies under a remote store: listings and bytes of some filesystem, without any rule about skills."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple, Protocol, runtime_checkable

from fsspec import AbstractFileSystem
from fsspec.asyn import reset_lock

from skillfs.errors import IsFileError, NotFoundError, StoreUnavailableError, UnreadableError
from skillfs.stores.attributes import Kind, Tells
from skillfs.stores.base import FileState
from skillfs.stores.patience import Refused

__all__ = [
    "BLOCK",
    "YOUNG_NS",
    "Found",
    "LengthError",
    "RootedSource",
    "Source",
    "Tells",
    "WritableSource",
    "account_of",
    "after_fork",
    "is_not_there",
    "may_not_list",
    "may_not_read",
    "no_such_root",
    "reason_of",
    "remade",
    "root_is_away",
    "root_is_file",
]

YOUNG_NS = 2_000_000_000
"""A time that is younger vouches for nothing yet: many filesystems keep whole or even seconds."""

BLOCK = 4 << 20
"""Bytes that are asked for at once where a file is read from one end to the other."""


class Found(NamedTuple):
    """One thing of a listing.

    Attributes:
        key: Below the root, as the filesystem spells it.
        kind: `other` is what is neither file nor folder, such as a link.
        state: Of a file.
    """

    key: str
    kind: Kind
    state: FileState


class Source(Protocol):
    """A remote filesystem below a root. Keys are relative to the root and sound paths, but in listings.

    Methods raise `StoreUnavailableError` when the filesystem does not answer, `FileNotFoundError` and
    `PermissionError` where it says so of a key.

    Attributes:
        url: Canonical URL of the root.
        spellings: Everything that may stand for the root in front of a path.
        account: Hash of endpoint and credential; see `Store`.
        title: Last component of the root.
        tells: What its listings tell about a file.
        holds_empty_folders: Whether a folder can be there with nothing in it.
        writable: Whether it is a `WritableSource`.
    """

    url: str
    spellings: tuple[str, ...]
    account: str
    title: str
    tells: Tells
    holds_empty_folders: bool
    writable: bool

    def find(self, folder: str) -> Iterator[Found]:
        """Everything below a folder, in no order; empty for the root."""

    def get(self, key: str, start: int, end: int, known: FileState) -> bytes:
        """Bytes `start` to `end` of the file that has a state.

        Raises:
            StaleFile: It is another file, or there is none.
        """

    def blocks(self, key: str, known: FileState) -> Iterator[bytes]:
        """All bytes of the file that has a state, in pieces; raises as `get`."""

    def head(self, key: str, length: int) -> tuple[FileState, bytes]:
        """The state of a file and its first bytes, which belong together."""

    def state(self, key: str) -> FileState | None:
        """The state of a file; None when there is none."""

    def settled(self, state: FileState) -> FileState:
        """The state to remember: marked when it is too young to vouch for the file."""


class WritableSource(Source, Protocol):
    """A source that can be written to."""

    def put(self, key: str, file: BinaryIO, size: int, *, exclusive: bool) -> None:
        """Write a file; FileExistsError when it was to be created and there is one."""

    def copy(self, source: str, target: str) -> None:
        """Copy a file."""

    def delete(self, key: str) -> None:
        """Remove a file."""

    def make_folder(self, key: str) -> None:
        """Make a folder, where folders can be empty."""

    def remove_folder(self, key: str) -> None:
        """Remove an empty folder, where folders can be empty."""


@runtime_checkable
class RootedSource(Source, Protocol):
    """A source whose root is something by itself, not only what keys begin with."""

    def check_root(self) -> None:
        """See that the root is a folder; what keeps it from being seen is left for the first listing to say.

        Raises:
            NotFoundError: There is none.
            IsFileError: It is a file.
        """


def account_of(options: Mapping[str, Any]) -> str:
    """A hash of everything that may choose another endpoint or another user."""
    if not options:
        return ""
    text = json.dumps(options, sort_keys=True, default=_described)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _described(value: object) -> str:
    """An object among the options; what cannot be told from its like is taken for another each time."""
    name = type(value).__qualname__
    if isinstance(value, str | os.PathLike | uuid.UUID):
        return f"{name}:{value}"
    try:
        return f"{name}:{hashlib.sha256(pickle.dumps(value)).hexdigest()}"
    except Exception:
        return f"{name}:{uuid.uuid4()}"


def remade(fs: AbstractFileSystem, **options: Any) -> AbstractFileSystem:
    """A new filesystem like another, which nobody else has; `options` replace some of its own."""
    return type(fs)(*fs.storage_args, **{**fs.storage_options, **options, "skip_instance_cache": True})


def after_fork(fs: AbstractFileSystem, pid: int) -> tuple[AbstractFileSystem, int]:
    """A filesystem that works in this process: its like, when it was made in the one that forked this.

    The event loop of an asynchronous one, and its connections, stayed behind in the parent.
    """
    now = os.getpid()
    if now == pid:
        return fs, pid
    if getattr(fs, "async_impl", False):
        reset_lock()  # another thread of the parent may have held it
        fs = remade(fs)
    return fs, now


class LengthError(Exception):
    """A body of another length than was announced. Never reaches a caller."""


def may_not_list(code: str = "") -> UnreadableError:
    """The error of a store that the credentials do not open; `code` is what the store calls that."""
    called = f" ({code})" if code else ""
    return UnreadableError(
        f"the store may not be listed with these credentials{called}; pass others, or have listing allowed"
    )


def may_not_read(code: str = "") -> PermissionError:
    """The error of a key that the credentials do not open; `code` is what the store calls that."""
    return PermissionError(errno.EACCES, "the credentials do not allow it", code or None)


def is_not_there() -> FileNotFoundError:
    """The error of a key at which there is nothing."""
    return FileNotFoundError(errno.ENOENT, "there is no such file")


def no_such_root() -> NotFoundError:
    """The error of a store that is opened at nothing."""
    return NotFoundError("there is no such folder in the store's filesystem; create it or name another")


def root_is_file() -> IsFileError:
    """The error of a store that is opened at a file."""
    return IsFileError("the store is a file; name the folder that holds skill folders")


def root_is_away() -> StoreUnavailableError:
    """The error of a store whose root was there when it was opened."""
    return StoreUnavailableError(
        "the store's root folder is not there; it counts as away, not as empty: try again when it is back"
    )


_WORDS = {
    "LengthError": "the answer has not the length that was announced",
    "FSTimeoutError": "no answer in time",
    "TimeoutError": "no answer in time",
    "ConnectTimeout": "no answer in time",
    "ReadTimeout": "no answer in time",
    "SSLError": "no trusted connection",
    "EOFError": "the connection was closed",
}


def reason_of(error: Exception) -> str:
    """What went wrong, in words, without anything that the error says of endpoint or credentials."""
    if isinstance(error, PermissionError):
        raise may_not_read() from error
    if isinstance(error, FileNotFoundError):
        raise is_not_there() from error
    if isinstance(error, FileExistsError | IsADirectoryError | NotADirectoryError):
        # Made anew: the message of the filesystem may hold a path or a host.
        raise type(error)(error.errno or 0, "it is of another kind") from error
    status = _status(error)
    if status in (401, 403):
        raise may_not_read() from error
    if status in (404, 410):
        raise is_not_there() from error
    if status is not None:
        if 300 <= status < 500 and status not in (408, 425, 429):
            raise Refused(f"HTTP status {status}") from error
        return f"HTTP status {status}"
    name = type(error).__name__
    if name not in _WORDS and isinstance(
        error,
        TypeError | ValueError | AttributeError | LookupError | NotImplementedError | ImportError
        | AssertionError | RecursionError,
    ):  # fmt: skip
        raise Refused(f"{name} in the filesystem below") from error
    return _WORDS.get(name, "the connection failed" if isinstance(error, ConnectionError) else name)


def _status(error: Exception) -> int | None:
    """HTTP status of what the clients of the various filesystems raise."""
    response = getattr(error, "response", None)
    for holder in (error, response):
        for name in ("status", "status_code", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and 100 <= value < 600:
                return value
    return None
