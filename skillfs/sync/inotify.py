"""Kernel watches on folders, by watchdog's binding to inotify.

One inotify instance has a watch on each folder that a scan lists, put there through the handle of the open
folder just before it is listed: what changes after that raises an event, what changed before it is listed.
Folders that are left out are never listed, and so never watched; no event makes anybody scan. watchdog's
`Observer` is not used: it watches ignored folders too, scans in its event thread, holds everything back for
half a second behind a move out of the store, and cannot say that all events until now have been handed on.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable

from watchdog.observers.inotify_c import CallbackId, InotifyConstants, InotifyEvent, InotifyFD, Mask

from skillfs.sync.marks import Marks
from skillfs.sync.reconcile import parent_of

__all__ = ["FolderWatches"]

# Neither opening nor reading nor closing what was read: a check does all of these, and would wake itself.
_HAPPENED = Mask(
    InotifyConstants.IN_CREATE
    | InotifyConstants.IN_DELETE
    | InotifyConstants.IN_MOVED_FROM
    | InotifyConstants.IN_MOVED_TO
    | InotifyConstants.IN_MODIFY
    | InotifyConstants.IN_CLOSE_WRITE
    | InotifyConstants.IN_ATTRIB
)
_SELF = Mask(InotifyConstants.IN_DELETE_SELF | InotifyConstants.IN_MOVE_SELF)
_MASK = Mask(_HAPPENED | _SELF | InotifyConstants.IN_ONLYDIR | InotifyConstants.IN_EXCL_UNLINK)
_UNMOUNTED = InotifyConstants.IN_UNMOUNT
# After these a folder of that name may be another than before, with other folders below it.
_OTHER_FOLDER = Mask(InotifyConstants.IN_CREATE | InotifyConstants.IN_MOVED_TO | InotifyConstants.IN_ATTRIB)
_MOST_UNPAIRED = 1024


class _NotOurs(logging.Filter):
    """Lets pass what watchdog logs in threads of others.

    Of what happens in ours the owner of the watches tells, once; a line for each lost event could block the
    thread for ever, where nobody reads standard error.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return record.threadName != _THREAD


_THREAD = "skillfs-events"
logging.getLogger("watchdog.observers.inotify_c").addFilter(_NotOurs())


class FolderWatches:
    """The watches of one store, and the marks that events have left.

    Args:
        on_mark: Called from the event thread when marks come where there were none.

    Raises:
        OSError: EMFILE when this user may have no further inotify instance.

    Attributes:
        unmounted: Whether a filesystem that was watched has been unmounted.
        overflows: How often the kernel has dropped events.
        failure: What the first folder failed with that could not be watched: ENOSPC where this user may
            watch no more; None while all are.
    """

    def __init__(self, on_mark: Callable[[], None]) -> None:
        self._on_mark = on_mark
        self._lock = threading.RLock()
        self._turn = threading.Lock()
        self._marks = Marks()
        self._since = self._last = 0.0
        self._numbers = itertools.count(1)
        self._ids: dict[int, CallbackId] = {}
        self._inodes: dict[int, bytes] = {}
        self._keys: dict[int, tuple[str, ...]] = {}
        self._descriptors: dict[str, int] = {}
        self._beside: dict[str, set[str]] = {}
        self._unpaired: dict[int, str] = {}
        self._is_closed = False
        self.unmounted = False
        self.overflows = 0
        self.failure: OSError | None = None
        self._reached = threading.Event()
        self._cookie = os.memfd_create("skillfs-barrier", os.MFD_CLOEXEC)
        try:
            self._inotify = InotifyFD()
        except BaseException:
            os.close(self._cookie)
            raise
        self._inotify.name = _THREAD
        self._inotify.start()
        self._cookie_watch = self._inotify.add_callback(
            _by_handle(self._cookie), InotifyConstants.IN_ATTRIB, self, CallbackId(0)
        )

    # -- which folders -------------------------------------------------------------------------------------

    def add(self, handle: int, inode: bytes, path: str, beside: str = "") -> None:
        """Watch a folder.

        Args:
            handle: File descriptor of the open folder.
            inode: What the store calls the folder itself, whatever its name.
            path: Store path of the folder to list again when something happens in this one: its own, or
                one that shows what lies in it.
            beside: Tells such a folder from the folder at that path.
        """
        key = f"{path}\0{beside}" if beside else path
        with self._lock:
            if self._is_closed:
                return
            number = CallbackId(next(self._numbers))
            try:
                found = self._inotify.add_callback(_by_handle(handle), _MASK, self, number)
            except OSError as error:
                # Whoever lists the folder goes on all the same.
                self.failure = self.failure or error
                return
            if found < 0:
                return  # it may not be read: then it cannot be listed either
            if (before := self._ids.get(found)) is not None:
                self._inotify.remove_callbacks([(found, before)])
            self._ids[found] = number
            self._inodes[found] = inode
            if (other := self._descriptors.get(key, found)) != found:
                self._drop(other, key)
            self._descriptors[key] = found
            keys = self._keys.get(found, ())
            if key not in keys:
                self._keys[found] = (*keys, key)
            if beside:
                self._beside.setdefault(path, set()).add(key)

    def holds(self, path: str, inode: bytes) -> bool:
        """Whether the folder at a path is watched, and is the one that is meant."""
        with self._lock:
            found = self._descriptors.get(path)
            return found is not None and self._inodes.get(found) == inode

    def forget(self, paths: Iterable[str]) -> None:
        """Stop watching folders that are no more where they were."""
        with self._lock:
            for path in paths:
                for key in (path, *self._beside.pop(path, ())):
                    if (found := self._descriptors.pop(key, None)) is not None:
                        self._drop(found, key)

    def _drop(self, descriptor: int, key: str) -> None:
        keys = tuple(k for k in self._keys.get(descriptor, ()) if k != key)
        if keys:
            self._keys[descriptor] = keys
            return
        self._keys.pop(descriptor, None)
        self._inodes.pop(descriptor, None)
        if (number := self._ids.pop(descriptor, None)) is not None:
            with contextlib.suppress(OSError):  # it went with the folder
                self._inotify.remove_callbacks([(descriptor, number)])  # type: ignore[list-item]

    @property
    def count(self) -> int:
        """How many folders are watched."""
        return len(self._ids)

    # -- marks ---------------------------------------------------------------------------------------------

    def doubt(self, reason: str) -> None:
        """Mark the whole store."""
        with self._lock:
            was = bool(self._marks)
            self._marks.doubt = self._marks.doubt or reason
            self._noticed(was)

    def mark(self, marks: Marks) -> None:
        """Mark places that came to notice otherwise than by an event."""
        with self._lock:
            was = bool(self._marks)
            self._marks.add(marks)
            self._noticed(was)

    def put_back(self, marks: Marks) -> None:
        """Mark again what was taken and could not be looked at."""
        with self._lock:
            marks.add(self._marks)
            self._marks = marks

    def take(self) -> Marks:
        """All marks there are; the caller is to look at them, or put them back."""
        with self._lock:
            marks, self._marks = self._marks, Marks()
            return marks

    @property
    def arrivals(self) -> bool:
        """Whether something was moved into a watched folder since the marks were taken."""
        return self._marks.arrivals

    def times(self) -> tuple[float, float] | None:
        """When the first and the last of the marks were made, by the monotonic clock; None without marks."""
        with self._lock:
            return (self._since, self._last) if self._marks else None

    def _noticed(self, was: bool) -> None:
        self._last = time.monotonic()
        if not was and self._marks:
            self._since = self._last
            self._on_mark()

    def barrier(self, seconds: float) -> bool:
        """Wait until everything that happened before this call has left its marks.

        A mark on a file of our own goes through the same queue, behind all that is in it.

        Args:
            seconds: How long to wait at most.

        Returns:
            Whether it has.
        """
        if not self.is_alive:
            return False
        with self._turn:  # one at a time, or the answer to one would be taken for that to another
            self._reached.clear()
            try:
                os.fchmod(self._cookie, 0o600)
            except OSError:
                return False  # closed meanwhile
            return self._reached.wait(seconds)

    @property
    def is_alive(self) -> bool:
        """Whether events can still come."""
        return not self._is_closed and self._inotify.is_alive()

    def close(self) -> None:
        """Remove all watches and end the event thread."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._inotify.stop()
        if self._inotify is not threading.current_thread():
            self._inotify.join(10)
        with self._turn:
            os.close(self._cookie)
            self._cookie = -1

    # -- called by the event thread: an exception would end it ---------------------------------------------

    def on_event(self, event: InotifyEvent) -> None:
        """See `watchdog.observers.inotify_c.WatchCallback`."""
        if event.wd == self._cookie_watch:
            self._reached.set()
            return
        with self._lock:
            keys = self._keys.get(event.wd)
            if keys is None:
                return
            was = bool(self._marks)
            if event.mask & _UNMOUNTED:
                self.unmounted = True
                self._marks.doubt = self._marks.doubt or "a filesystem was unmounted"
            for key in keys:
                path, _, beside = key.partition("\0")
                self._mark(event, path, is_own=not beside)
            self._noticed(was)

    def _mark(self, event: InotifyEvent, path: str, *, is_own: bool) -> None:
        marks = self._marks
        marks.folders.add(path)
        if not is_own:
            return
        if not event.name:
            marks.folders.add(parent_of(path))
            marks.trees.add(path)
            return
        try:
            name = event.name.decode()
        except UnicodeDecodeError:
            return  # such a name has no path
        full = f"{path}/{name}" if path else name
        if event.is_moved_to:
            marks.arrivals = True
            old = self._unpaired.pop(event.cookie, None)
            if old is not None:
                marks.moved(old, full)
        elif event.is_moved_from:
            if len(self._unpaired) >= _MOST_UNPAIRED:
                self._unpaired.clear()
            self._unpaired[event.cookie] = full
        if event.mask & InotifyConstants.IN_ISDIR and event.mask & _OTHER_FOLDER:
            marks.trees.add(full)

    def on_watch_deleted(self, descriptor: int) -> None:
        """See `watchdog.observers.inotify_c.WatchCallback`."""
        with self._lock:
            self._ids.pop(descriptor, None)
            self._inodes.pop(descriptor, None)
            for key in self._keys.pop(descriptor, ()):
                if self._descriptors.get(key) == descriptor:
                    del self._descriptors[key]

    def on_queue_overflow(self) -> None:
        """See `watchdog.observers.inotify_c.WatchCallback`."""
        with self._lock:
            self.overflows += 1
            self._unpaired.clear()
        self.doubt("the kernel dropped events")


def _by_handle(handle: int) -> bytes:
    """A path that leads to what is open, whatever its name leads to by now."""
    return b"/proc/self/fd/%d" % handle
