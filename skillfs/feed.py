"""The changes of a filesystem as they come: every revision, in order, once."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from skillfs.core.model import Changes
from skillfs.errors import InvalidArgumentError, SkillFSError, quoted
from skillfs.sync.engine import Engine
from skillfs.sync.watcher import WATCH_STATES, Hold, watch_status

__all__ = ["ChangeFeed"]

_log = logging.getLogger("skillfs")

RETRY_SECONDS = 1.0
"""Seconds before an index that could not be read is asked again."""


class ChangeFeed:
    """What changes, as `Changes` of one revision each, from the call that made it on.

    An iterator that waits for the next; or, with a callback, a context manager that calls it from a thread of
    its own. A reader falls behind at nobody's cost: what it has not taken yet is kept in the index, and who
    has fallen behind what is kept is told so by a `Changes` with `reset`. Made by `SkillFileSystem.watch`.

    Args:
        pull: Gives what follows on a revision: the revision it leads to, and its changes.
        since: The revision to begin after.
        engines: Whose announcements say that there may be more.
        holds: What keeps them in step.
        callback: Called with each of the changes; what it raises is logged.
    """

    def __init__(
        self,
        pull: Callable[[int], tuple[int, Sequence[Changes]]],
        since: int,
        engines: Sequence[Engine],
        holds: Sequence[Hold],
        callback: Callable[[Changes], object] | None = None,
    ) -> None:
        self._pull = pull
        self._holds = list(holds)
        self._told = threading.Event()
        self._told.set()
        self._turn = threading.Lock()
        self._waiting: deque[Changes] = deque()
        self._pulled = self._revision = since
        self._is_closed = False
        self._thread: threading.Thread | None = None
        for engine in engines:
            engine.tell(self._told)
        if callback is not None:
            self._thread = threading.Thread(
                target=self._call, args=(callback,), name="skillfs-feed", daemon=True
            )
            self._thread.start()

    @property
    def revision(self) -> int:
        """The revision up to which changes have been handed out; to go on from by `watch(since=…)`."""
        return self._revision

    def get(self, timeout: float | None = None) -> Changes | None:
        """The next changes.

        Args:
            timeout: Seconds to wait for them at most; None to wait until there are some.

        Returns:
            None when the time is over or the feed was closed.

        Raises:
            InvalidArgumentError: `timeout` is no number of seconds.
            StoreUnavailableError: The index cannot be read now; the next call goes on where this one would
                have.
        """
        if timeout is not None and (
            isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0
        ):
            raise InvalidArgumentError(f"timeout is {quoted(timeout)}; pass seconds, or None to wait")
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            # Before the index is read: what is announced meanwhile is not missed.
            self._told.clear()
            with self._turn:
                if self._is_closed:
                    self._told.set()  # for others who wait
                    return None
                if (found := self._next()) is not None:
                    self._told.set()  # there may be more, for another thread
                    return found
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._told.wait(left)

    def _next(self) -> Changes | None:
        while not self._waiting:
            upto, found = self._pull(self._pulled)
            if upto == self._pulled:
                return None
            self._pulled = upto
            self._waiting.extend(found)
        found_next = self._waiting.popleft()
        self._revision = found_next.revision
        return found_next

    def status(self) -> dict[str, Any]:
        """How the index is kept in step: `watch`, `watch_reason` and `watched_folders`.

        See `SkillFileSystem.status`; of several stores the one that is worst off, and all folders.
        """
        found = [hold.watcher.status() for hold in self._holds]
        if not found:
            return watch_status(None)
        worst = max(found, key=lambda status: WATCH_STATES.index(status["watch"]))
        return {**worst, "watched_folders": sum(status["watched_folders"] for status in found)}

    def close(self) -> None:
        """Hand out nothing more, and end what was begun for it; who waits is let go."""
        self._is_closed = True
        self._told.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        holds, self._holds = self._holds, []
        for hold in holds:
            hold.release()

    def _call(self, callback: Callable[[Changes], object]) -> None:
        while not self._is_closed:
            try:
                changes = self.get()
            except SkillFSError as error:
                _log.warning("changes cannot be told now: %s", error.message)
                time.sleep(RETRY_SECONDS)
                continue
            if changes is None:
                return
            try:
                callback(changes)
            except Exception:
                _log.exception("a callback for changes failed at revision %d", changes.revision)

    def __iter__(self) -> Iterator[Changes]:
        return self

    def __next__(self) -> Changes:
        found = self.get()
        if found is None:
            raise StopIteration
        return found

    def __enter__(self) -> ChangeFeed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
