"""Reading remote files ahead of whoever reads them from one end to the other, by threads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from skillfs.errors import ChangedError, StoreUnavailableError
from skillfs.fuse.windows import Plan, Room, Window
from skillfs.stores.workers import Workers

__all__ = ["ReadAhead"]


class ReadAhead:
    """Reads a file for several threads, ahead of them where they read on and on.

    At most 24 MiB of the file are held, beside what is just arriving.

    Args:
        fetch: Bytes from an offset, as many as are asked for; one request. Called by several threads.
        size: Bytes of the file.
        workers: What fetches in the background; they may be shared with other files.
        room: Memory that is shared with other files.
        start: The first bytes, where they are there already.
    """

    def __init__(
        self,
        fetch: Callable[[int, int], bytes],
        size: int,
        workers: Workers,
        room: Room | None = None,
        start: bytes = b"",
    ) -> None:
        self._fetch = fetch
        self._size = size
        self._workers = workers
        self._room = room or Room()
        self._lock = self._room.lock
        self._plan = Plan(size, self._room, start)
        self._changed: ChangedError | None = None

    def read(self, offset: int, length: int) -> bytes:
        """Bytes from an offset; fewer than `length` only at the end of the file. Raises as `fetch`."""
        end = min(offset + length, self._size)
        if offset >= end:
            return b""
        with self._lock:
            if self._changed is not None:
                raise self._changed.with_traceback(None)
            parts, ahead = self._plan.read(offset, end)
        for window in ahead:
            self._workers.submit(self._fetch_ahead, window)
        try:
            found = [self._part(window, max(offset, window.start), min(end, window.end)) for window in parts]
        except BaseException:
            with self._lock:
                self._plan.forget(parts)
            raise
        return found[0] if len(found) == 1 else b"".join(found)

    def close(self) -> None:
        """Drop what is held; what is not yet being fetched never is."""
        with self._lock:
            self._plan.clear()

    def _part(self, window: Window, start: int, end: int) -> bytes:
        """Bytes of a window, which this thread fetches where nobody else does."""
        if self._begin(window):
            data = self._fetch_window(window)
        else:
            window.ended.wait()
            if window.error is not None:
                if window.ahead and not isinstance(window.error, ChangedError):
                    return self._fetched(start, end)
                raise window.error.with_traceback(None)
            assert window.data is not None
            data = window.data
        return data[start - window.start : end - window.start]

    def _begin(self, window: Window) -> bool:
        if window.begun:
            return False
        with self._lock:
            begun, window.begun = window.begun, True
            return not begun

    def _fetch_ahead(self, window: Window) -> None:
        # One that was dropped is wanted by nobody.
        if window.kept and self._begin(window):
            with suppress(Exception):  # it is raised where the bytes are wanted
                self._fetch_window(window)

    def _fetch_window(self, window: Window) -> bytes:
        try:
            data = self._fetched(window.start, window.end)
        except BaseException as error:
            with self._lock:
                self._plan.end(window, None, error)
            window.ended.set()
            raise
        with self._lock:
            self._plan.end(window, data)
        window.ended.set()
        return data

    def _fetched(self, start: int, end: int) -> bytes:
        try:
            data = self._fetch(start, end - start)
        except ChangedError as error:
            with self._lock:
                self._changed = error
                self._plan.clear()
            raise
        if len(data) != end - start:
            raise StoreUnavailableError("the store sent fewer bytes than the file has; try again")
        return data
