"""A file of a store that is open for reading: one version of it, its bytes in whatever order."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from skillfs.errors import ChangedError, InvalidArgumentError, SkillFSError, StoreUnavailableError, quoted
from skillfs.stores.base import FileState, Handle, StaleFile

__all__ = ["BUFFER", "OpenFile", "StoreFile"]

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BUFFER = 1 << 16
"""Bytes that an open file reads ahead; each filling costs two system calls."""


class StoreFile(io.RawIOBase):
    """An open file of a store, read-only. It has one position, but any thread may use `read_at` at any time.

    Attributes:
        path: Store path.
        size: Bytes.
        state: The version that was opened.
        requested: Whether a reading may be a request to a remote store.
    """

    mode = "rb"

    def __init__(self, handle: Handle, path: str, *, requested: bool = False) -> None:
        super().__init__()
        self._handle = handle
        self._at = 0
        self.path = path
        self.size = handle.state.size
        self.state: FileState = handle.state
        self.requested = requested

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a byte; see `io.IOBase.seek`.

        Raises:
            InvalidArgumentError: The position is negative, or `whence` is none of 0, 1, 2.
        """
        if whence not in (0, 1, 2):
            raise InvalidArgumentError(f"whence is {whence}; use 0, 1 or 2")
        to = offset + (0, self._at, self.size)[whence]
        if to < 0:
            raise InvalidArgumentError("a position before the start of the file; seek to 0 or later")
        self._at = to
        return to

    def tell(self) -> int:
        """Position in bytes."""
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read bytes into a buffer; see `io.RawIOBase.readinto`.

        Raises:
            ChangedError: The file is no longer the version that was opened.
            StoreUnavailableError: The store failed to read it.
        """
        view = memoryview(buffer).cast("B")
        data = self._next(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        """The rest of the file; raises as `readinto`."""
        return self._next(self.size)

    def read_at(self, offset: int, length: int) -> bytes:
        """Read at a byte, wherever the position is; that stays where it is.

        Args:
            offset: The first byte, from 0.
            length: Bytes; fewer come only at the end of the file.

        Raises:
            ChangedError: The file is no longer the version that was opened.
            IntegrityError: The bytes are not those that are vouched for.
            StoreUnavailableError: The store failed to read it.
            InvalidArgumentError: A number is negative.
        """
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if offset < 0 or length < 0:
            raise InvalidArgumentError("a negative position or length; pass 0 or more")
        try:
            data = self._handle.read(offset, max(0, min(length, self.size - offset)))
            unchanged = self._handle.unchanged()
        except StaleFile:
            raise ChangedError(f"{quoted(self.path)} changed since it was opened; open it again") from None
        except SkillFSError:
            raise
        except OSError as error:
            raise StoreUnavailableError(
                f"reading {quoted(self.path)} failed ({error.strerror or type(error).__name__}); try again"
            ) from error
        if not unchanged:
            raise ChangedError(f"{quoted(self.path)} changed since it was opened; open it again")
        return data

    def _next(self, length: int) -> bytes:
        data = self.read_at(self._at, length)
        self._at += len(data)
        return data

    def close(self) -> None:
        """Close it."""
        if not self.closed:
            self._handle.close()
        super().close()


class OpenFile(io.BufferedReader):
    """A `StoreFile` with a buffer.

    Attributes:
        path: Store path.
        size: Bytes.
    """

    def __init__(self, raw: StoreFile, buffer: int = BUFFER) -> None:
        super().__init__(raw, buffer)
        self.path = raw.path
        self.size = raw.size
