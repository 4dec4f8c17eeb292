"""The files that the kernel has open, by the numbers that it knows them by."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import ExitStack

from skillfs.fuse.readahead import ReadAhead
from skillfs.fuse.windows import Room
from skillfs.open_file import StoreFile
from skillfs.reading import REMOTE_START
from skillfs.stores.workers import Workers

__all__ = ["OpenFiles"]

FETCHERS = 6
"""Threads that read ahead: each keeps what its last windows took, which with 32 was 90 MB more."""


class _Open:
    """An open file, and how many threads are reading it."""

    __slots__ = ("ahead", "closing", "file", "readers")

    def __init__(self, file: StoreFile, ahead: ReadAhead | None) -> None:
        self.file = file
        self.ahead = ahead
        self.readers = 0
        self.closing = False

    def read(self, offset: int, length: int) -> bytes:
        if self.ahead is None:
            return self.file.read_at(offset, length)
        return self.ahead.read(offset, length)

    def close(self) -> None:
        if self.ahead is not None:
            self.ahead.close()
        self.file.close()


class OpenFiles:
    """The open files of one mount point, for all threads of its server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[int, _Open] = {}
        self._last = 0
        self._room = Room()
        self._stack = ExitStack()
        self._workers = self._stack.enter_context(Workers(FETCHERS))

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: StoreFile) -> int:
        """Take a file, to be closed by `remove` or `close_all`, and give it a number that none had before.

        Raises:
            SkillFSError: As `StoreFile.read_at`; the file is closed.
        """
        ahead = None
        if file.requested and file.size > REMOTE_START:
            try:
                start = file.read_at(0, REMOTE_START)  # it is there from opening
            except BaseException:
                file.close()
                raise
            ahead = ReadAhead(file.read_at, file.size, self._workers, self._room, start)
        opened = _Open(file, ahead)
        with self._lock:
            self._last += 1
            self._files[self._last] = opened
            return self._last

    def get(self, handle: int) -> StoreFile:
        """The file that has a number.

        Raises:
            OSError: None has it (EBADF).
        """
        try:
            return self._files[handle].file
        except KeyError:
            raise _not_open() from None

    def read(self, handle: int, offset: int, length: int) -> bytes:
        """Bytes of a file; fewer than `length` only at its end.

        Raises:
            OSError: No file has that number (EBADF).
            SkillFSError: As `StoreFile.read_at`.
        """
        with self._lock:
            opened = self._files.get(handle)
            if opened is None:
                raise _not_open()
            opened.readers += 1
        try:
            return opened.read(offset, length)
        finally:
            with self._lock:
                opened.readers -= 1
                last = opened.closing and not opened.readers
            if last:
                opened.close()

    def remove(self, handle: int) -> None:
        """Close a file, once nobody reads it any more; nothing where no file has that number."""
        with self._lock:
            opened = self._files.pop(handle, None)
            if opened is None:
                return
            opened.closing = True
            busy = opened.readers > 0
        if not busy:
            opened.close()

    def close_all(self) -> None:
        """Close whatever is open; there is no adding after it."""
        for handle in list(self._files):
            self.remove(handle)
        self._stack.close()


def _not_open() -> OSError:
    return OSError(errno.EBADF, os.strerror(errno.EBADF))
