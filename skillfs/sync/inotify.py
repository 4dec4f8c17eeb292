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
# After these something else lies at a name, or nothing.
_LEFT = Mask(InotifyConstants.IN_MOVED_FROM | InotifyConstants.IN_MOVED_TO | InotifyConstants.IN_DELETE)
_MOST_UNPAIRED = 1024
_DEATH_SECONDS = 0.25


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
        ignores: Tells of a name, and whether it is a folder's, that nothing which happens there matters.

    Raises:
        OSError: EMFILE when this user may have no further inotify instance, or this process no further file.

    Attributes:
        unmounted: Whether a filesystem that was watched has been unmounted.
        overflows: How often the kernel has dropped events.
        failure: What the first folder failed with that could not be watched: ENOSPC where this user may
            watch no more; None while all are.
        mishap: What an event could not be taken in for, so that none counts any more; None as a rule.
    """

    def __init__(
        self, on_mark: Callable[[], None], ignores: Callable[[str, bool], bool] | None = None
    ) -> None:
        self._on_mark = on_mark
        self._ignores = ignores
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
        self._unpaired: dict[int, tuple[int, list[str]]] = {}
        self._is_closed = self._is_late = False
        self.unmounted = False
        self.overflows = 0
        self.failure: OSError | None = None
        self.mishap: BaseException | None = None
        self._reached = threading.Event()
        self._cookie = self._cookie_watch = -1
        self._is_stale = True
        self._inotify = InotifyFD()
        # A program that is run in place of this one, or beside it, must not keep the watches.
        os.set_inheritable(self._inotify._inotify_fd, False)
        self._inotify.name = _THREAD
        self._inotify.start()

    # -- which folders -------------------------------------------------------------------------------------

    def add(self, handle: int, inode: bytes, path: str, beside: str = "") -> None:
        """Watch a folder. Where the kernel refuses, `failure` says so, and no more are.

        Args:
            handle: File descriptor of the open folder.
            inode: What the store calls the folder itself, whatever its name.
            path: Store path of the folder to list again when something happens in this one: its own, or
                one that shows what lies in it.
            beside: Tells such a folder from the folder at that path.
        """
        key = f"{path}\0{beside}" if beside else path
        with self._lock:
            if self._is_closed or self.failure is not None:
                return
            number = CallbackId(next(self._numbers))
            try:
                found = self._inotify.add_callback(_by_handle(handle), _MASK, self, number)
            except OSError as error:
                self.failure = error
                return
            if found < 0:  # it may not be read: then it cannot be listed either
                self._inotify.remove_callbacks([(found, number)])
                return
            if (before := self._ids.get(found)) is not None:
                self._inotify.remove_callbacks([(found, before)])
            self._ids[found] = number
            self._inodes[found] = inode
            if (other := self._descriptors.get(key, found)) != found:
                self._drop(other, key)
            self._descriptors[key] = found
            # The last is what it was found at last.
            self._keys[found] = (*(k for k in self._keys.get(found, ()) if k != key), key)
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
        """Whether something may have been moved into a folder since the marks were taken."""
        return self._marks.arrivals

    @property
    def departures(self) -> bool:
        """Whether something was moved away from a folder since the marks were taken."""
        return self._marks.departures

    def times(self) -> tuple[float, float] | None:
        """When the first and the last of the marks were made, by the monotonic clock; None without marks."""
        with self._lock:
            return (self._since, self._last) if self._marks else None

    def _noticed(self, was: bool) -> None:
        if not self._marks:
            return
        self._last = time.monotonic()
        if not was:
            self._since = self._last
            self._on_mark()

    def barrier(self, seconds: float) -> bool:
        """Wait until everything that happened before this call has left its marks.

        A mark on a file of our own goes through the same queue, behind all that is in it.

        Args:
            seconds: How long to wait at most. Once that was too short, there is no answer any more.

        Returns:
            Whether it has.
        """
        with self._turn:  # one at a time, or the answer to one would be taken for that to another
            until = time.monotonic() + seconds
            try:
                if self._is_stale:
                    self._renew_cookie()
                self._reached.clear()
                os.fchmod(self._cookie, 0o600)
            except OSError:
                self._is_stale = True
                return False  # it was closed meanwhile, or there is no watch left to ask by
            while self.is_alive and not self._reached.wait(min(seconds, _DEATH_SECONDS)):
                self._is_late = time.monotonic() >= until
            return self.is_alive

    @property
    def is_alive(self) -> bool:
        """Whether events can still come."""
        return not (self._is_closed or self._is_late or self.mishap) and self._inotify.is_alive()

    def close(self) -> None:
        """Remove all watches and end the event thread."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._reached.set()
        self._inotify.stop()
        if self._inotify is not threading.current_thread():
            self._inotify.join(10)
        if not self._inotify.is_alive() and self._inotify._is_reading:
            self._inotify._close_resources()  # it died over its reading
        with self._turn:
            self._close_cookie()

    def abandon(self) -> None:
        """In a forked child: close what belongs to the parent, which goes on watching."""
        self._is_closed = True
        if not self._inotify._closed:
            self._inotify._closed = True
            self._inotify._close_resources()
        self._close_cookie()

    def _renew_cookie(self) -> None:
        """Ask by another file than before: to that an answer may be on its way that nobody waits for."""
        self._close_cookie()
        self._is_stale = False
        self._cookie = os.memfd_create("skillfs-barrier", os.MFD_CLOEXEC)
        self._cookie_watch = self._inotify.add_callback(
            _by_handle(self._cookie), InotifyConstants.IN_ATTRIB, self, CallbackId(0)
        )

    def _close_cookie(self) -> None:
        cookie, self._cookie = self._cookie, -1
        if cookie >= 0:
            os.close(cookie)

    # -- called by the event thread: an exception would end it ---------------------------------------------

    def on_event(self, event: InotifyEvent) -> None:
        """See `watchdog.observers.inotify_c.WatchCallback`."""
        if event.wd == self._cookie_watch:
            self._reached.set()
            return
        try:
            with self._lock:
                if (keys := self._keys.get(event.wd)) is not None:
                    was = bool(self._marks)
                    self._mark(event, keys)
                    self._noticed(was)
        except Exception as error:
            self.mishap = error

    def _mark(self, event: InotifyEvent, keys: tuple[str, ...]) -> None:
        marks = self._marks
        if event.mask & _UNMOUNTED:
            self.unmounted = True
            marks.doubt = marks.doubt or "a filesystem was unmounted"
        folders = [key for key in keys if "\0" not in key]
        if not event.name:
            marks.folders.update(parent_of(path) for path in folders)
            marks.trees.update(folders)
            marks.folders.update(key.partition("\0")[0] for key in keys)
            return
        try:
            name = event.name.decode()
        except UnicodeDecodeError:
            name = ""  # such a name has no path
        is_folder = bool(event.mask & InotifyConstants.IN_ISDIR)
        paths = [f"{path}/{name}" if path else name for path in folders] if name else []
        if event.mask & _LEFT:
            self._note_move(event, paths)
        if name and self._ignores is not None and self._ignores(name, is_folder):
            return
        marks.folders.update(key.partition("\0")[0] for key in keys)
        if is_folder and event.mask & _OTHER_FOLDER:
            marks.trees.update(paths)
            # What is moved into a folder that is not watched yet is not told.
            marks.arrivals = marks.arrivals or bool(event.mask & InotifyConstants.IN_CREATE)

    def _note_move(self, event: InotifyEvent, paths: list[str]) -> None:
        """Remember what went, and where it came to."""
        marks = self._marks
        if event.is_moved_from:
            marks.departures = True
            if len(self._unpaired) >= _MOST_UNPAIRED:
                del self._unpaired[next(iter(self._unpaired))]
            self._unpaired[event.cookie] = (event.wd, paths)
            return
        olds: list[str] = []
        if event.is_moved_to:
            marks.arrivals = True
            descriptor, olds = self._unpaired.pop(event.cookie, (0, olds))
            if descriptor != event.wd:
                olds = [""] * (len(paths) - 1) + olds[-1:]
        for number, path in enumerate(paths):
            if number < len(olds) and olds[number]:
                marks.moved(olds[number], path)
            else:
                marks.removed(path)

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
            self._marks.places.clear()
        try:
            self.doubt("the kernel dropped events")
        except Exception as error:
            self.mishap = error
        # The doubt stands for all that was dropped, be it the answer to a question; or that is still to come.
        self._is_stale = True
        self._reached.set()


def _by_handle(handle: int) -> bytes:
    """A path that leads to what is open, whatever its name leads to by now."""
    return b"/proc/self/fd/%d" % handle
