"""The changes of a filesystem as they come: every revision, in order, once."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple
from weakref import WeakSet

from skillfs.core.model import Changes
from skillfs.errors import InvalidArgumentError, SkillFSError, quoted
from skillfs.sync.engine import Engine, Keeper
from skillfs.sync.watcher import WATCH_STATES, Hold, watch_status

__all__ = ["ChangeFeed", "Followed", "status_of_watch"]

_log = logging.getLogger("skillfs")

RETRY_SECONDS = 1.0
"""Seconds before an index that could not be read is asked again."""

CLOSE_SECONDS = 10.0
"""Seconds that `close` waits for a callback to return: one that hangs must not hang the program's end."""


class Followed(NamedTuple):
    """A store whose changes are told.

    Attributes:
        name: Of its mount; empty where it is alone.
        engine: Store and index; its announcements say that there may be more.
        hold: Keeps it in step.
        whole: Whether all of it may be seen: else how much of it is watched is not told.
    """

    name: str
    engine: Engine
    hold: Hold
    whole: bool


def status_of_watch(watcher: Keeper | None, *, whole: bool) -> dict[str, Any]:
    """`watch`, `watch_reason` and `watched_folders` of `SkillFileSystem.status`.

    Args:
        watcher: What keeps the index of the store in step.
        whole: Whether all of the store may be seen.
    """
    status = watch_status(watcher)
    return status if whole else {**status, "watched_folders": None}


class ChangeFeed:
    """What changes, as `Changes` of one revision each; made by `SkillFileSystem.watch`.

    An iterator that waits for the next, or what calls a callback from a thread of its own. Who is slow holds
    nobody up: what was not taken yet is in the index, and who has fallen behind what is kept there (100,000
    changes) is told so by a `Changes` with `reset`. Several threads may share one: each of the changes goes
    to one of them. In a forked child it goes on by itself, but for a callback.

    Args:
        pull: Gives what follows on a revision: the revision it leads to, and its changes.
        since: The revision to begin after.
        stores: The stores that changes are told of.
        callback: Called with each of the changes; what it raises is logged.
    """

    def __init__(
        self,
        pull: Callable[[int], tuple[int, Sequence[Changes]]],
        since: int,
        stores: Sequence[Followed],
        callback: Callable[[Changes], object] | None = None,
    ) -> None:
        self._pull = pull
        self._stores = list(stores)
        self._waiting: deque[Changes] = deque()
        self._pulled = self._revision = since
        self._is_closed = self._is_asleep = False
        self._thread: threading.Thread | None = None
        self._begin()
        _feeds.add(self)
        if callback is not None:
            self._thread = threading.Thread(
                target=self._call, args=(callback,), name="skillfs-feed", daemon=True
            )
            self._thread.start()

    def _begin(self) -> None:
        self._told = threading.Event()
        self._told.set()
        self._turn = threading.Lock()
        self._ended = threading.Event()
        for store in self._stores:
            store.engine.tell(self._told)

    def _begin_anew(self) -> None:
        """In a forked child, before it has a second thread: locks and threads are the parent's."""
        self._thread = None
        self._is_asleep = True
        # A thread of the parent may have been about to take something.
        self._waiting, self._pulled = deque(), self._revision
        self._begin()

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
        # What is longer than a thread can wait is for ever.
        is_bounded = timeout is not None and timeout < threading.TIMEOUT_MAX
        deadline = time.monotonic() + timeout if timeout is not None and is_bounded else None
        while True:
            # Before the index is read: what is announced meanwhile is not missed.
            self._told.clear()
            found = None
            is_idle = False
            try:
                with self._turn:
                    if self._is_asleep:
                        self._wake_up()
                    if not self._is_closed:
                        found = self._next()
                        is_idle = found is None
            finally:
                if not is_idle:
                    self._told.set()  # there may be more, or the end, for another thread that waits
            if not is_idle:
                return found
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._told.wait(left)

    def _wake_up(self) -> None:
        """In a forked child, at the first use there: have the stores kept in step again."""
        self._is_asleep = False
        for store in self._stores:
            store.hold.watcher.keeps_in_step()

    def _next(self) -> Changes | None:
        while not self._waiting:
            upto, found = self._pull(self._pulled)
            if upto == self._pulled:
                return None
            self._pulled, self._waiting = upto, deque(found)
        found_next = self._waiting.popleft()
        self._revision = found_next.revision
        return found_next

    def status(self) -> dict[str, Any]:
        """How the stores are kept in step: `watch`, `watch_reason`, `watched_folders` and `check_error`.

        See `SkillFileSystem.status`; of several stores the one that is worst off, with all folders and the
        first error, and under `mounts` a list of this of each, with its name.
        """
        each = [
            {
                "name": store.name,
                **status_of_watch(store.hold.watcher, whole=store.whole),
                "check_error": store.engine.check_error,
            }
            for store in self._stores
        ]
        if not each:
            return {**watch_status(None), "check_error": None}
        status = dict(max(each, key=lambda status: WATCH_STATES.index(status["watch"])))
        counts = [one["watched_folders"] for one in each]
        status["watched_folders"] = None if None in counts else sum(counts)
        status["check_error"] = next((e for one in each if (e := one["check_error"]) is not None), None)
        return {**status, "mounts": each} if status.pop("name") else status

    def close(self) -> None:
        """Hand out nothing more, and end what was begun for it; who waits is let go.

        Called from elsewhere than the callback, it returns when that has returned, after ten seconds at most.
        """
        self._is_closed = True
        self._ended.set()
        self._told.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_SECONDS)
        stores, self._stores = self._stores, []
        for store in stores:
            store.hold.release()

    def _call(self, callback: Callable[[Changes], object]) -> None:
        failure = None
        try:
            while True:
                try:
                    changes = self.get()
                except Exception as error:
                    # Whatever it is: who waits for a call must not wait for ever.
                    message = error.message if isinstance(error, SkillFSError) else type(error).__name__
                    if message != failure:
                        _log.warning("changes cannot be told now: %s", message)
                        _log.debug("how it failed:", exc_info=error)
                    failure = message
                    self._ended.wait(RETRY_SECONDS)
                    continue
                failure = None
                if changes is None:
                    return
                try:
                    callback(changes)
                except Exception:
                    _log.exception("a callback for changes failed at revision %d", changes.revision)
        except SystemExit:
            pass  # the callback ends its thread
        finally:
            self.close()

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


_feeds: WeakSet[ChangeFeed] = WeakSet()


def _go_on_in_child() -> None:
    for feed in list(_feeds):
        feed._begin_anew()


os.register_at_fork(after_in_child=_go_on_in_child)
