"""Keeps an index in step by itself: by watching where that works, by looking now and then where it does not.

One thread for each store does everything: it waits for marks or for the next heartbeat, lets a burst calm
down, and has the engine look. It runs while somebody holds the watcher, and ends by itself afterwards.
"""

from __future__ import annotations

import errno
import heapq
import logging
import os
import random
import sys
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, get_args
from weakref import WeakSet

from skillfs.errors import InvalidArgumentError, SkillFSError, StoreUnavailableError, quoted
from skillfs.stores.local import LocalStore, filesystem_type
from skillfs.sync.engine import Engine, Keeper
from skillfs.sync.marked import MOST_WAIT
from skillfs.sync.marks import Marks

if TYPE_CHECKING:
    from skillfs.sync.inotify import FolderWatches

__all__ = ["WATCH_STATES", "Hold", "WatchState", "Watcher", "watch", "watch_status"]

_log = logging.getLogger("skillfs")

WatchState = Literal["watching", "starting", "polling", "unavailable"]
WATCH_STATES = ("off", *get_args(WatchState))
"""From the best to the worst, but for what is not kept in step at all."""

QUIET = 0.02
"""Seconds without an event after which a burst counts as over."""

MOST_QUIET = 0.1
"""Seconds after the first event of a burst when it is looked at, over or not."""

HEARTBEAT = 1.0
"""Seconds between two looks at whether watching still works, and whether another process was faster."""

LOCAL_INTERVAL = 2.0
"""Seconds between two checks of a local store that cannot be watched."""

CHECK_COST = 10.0
"""A check that was not asked for is followed by at least this many times its own duration without one."""

SAFETY_SECONDS = 600.0
SAFETY_COST = 1000.0
"""A watched store is compared whole after so many seconds, and so many times the duration of that: what is
changed through a memory map, or by a kernel that forgets, raises no event."""

MOST_BACKOFF = 900.0
"""Seconds between two attempts at a store that does not answer, at most."""

JITTER = 0.1
"""The part of an interval by which it is varied, so that many processes do not ask all at once."""

AGAIN_SECONDS = 600.0
"""Seconds after which watching is tried again where it did not work."""

YOUNG_SECONDS = 0.05
YOUNG_BYTE_SECONDS = 50e-9
"""When a file is looked at again that was looked at too soon after its last change: see `LocalStore`."""

POLL_VARIABLE = "SKILLFS_WATCH"
"""Environment variable: `poll` has stores looked at now and then instead of watched."""

# Where other machines change files without this kernel's knowing.
_NETWORK = (
    *("nfs", "cifs", "smb", "9p", "fuse", "afs", "ceph", "gluster", "lustre", "ocfs2", "gfs2", "virtiofs"),
    *("vboxsf", "prl_fs", "drvfs", "beegfs", "gpfs", "orangefs", "coda", "ncp"),
)


class Hold:
    """What keeps a watcher running, for as long as it is referred to."""

    __slots__ = ("__weakref__", "watcher")

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher

    def release(self) -> None:
        """Let go now; the watcher ends unless others hold it."""
        self.watcher.release(self)


def watch(engine: Engine, interval: float) -> Hold:
    """Have an index kept in step by itself.

    Args:
        engine: Store and index.
        interval: Seconds between two looks at a store that is not watched but asked.

    Returns:
        What keeps it so while it is referred to.

    Raises:
        InvalidArgumentError: The environment says something that is not understood.
    """
    if os.environ.get(POLL_VARIABLE, "") not in ("", "auto", "poll"):
        raise InvalidArgumentError(
            f'{POLL_VARIABLE} is {quoted(os.environ[POLL_VARIABLE])}; set it to "poll" or "auto"'
        )
    with _starting:
        if not isinstance(engine.watcher, Watcher):
            engine.watcher = Watcher(engine)
        return engine.watcher.hold(interval)


def watch_status(watcher: Keeper | None) -> dict[str, Any]:
    """`watch`, `watch_reason` and `watched_folders` of `SkillFileSystem.status`."""
    if watcher is None or not watcher.is_running:
        return {"watch": "off", "watch_reason": None, "watched_folders": 0}
    return watcher.status()


_starting = threading.Lock()


class Watcher:
    """What keeps one index in step.

    Args:
        engine: Store and index.

    Attributes:
        state: What it does now.
        reason: Why it does not watch, where it does not; None where it does.
        restarts: How often watching was begun anew because it had broken.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._holds: WeakSet[Hold] = WeakSet()
        self._wake = threading.Event()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._interval = 0.0
        self._watches: FolderWatches | None = None
        self._revision = 0
        self._later: list[tuple[float, str]] = []
        self._failures = 0
        self.state: WatchState = "starting"
        self.reason: str | None = None
        self.restarts = 0
        self._next_beat = self._next_check = self._next_safety = self._next_try = self._next_links = 0.0
        self._checked_alone = 0.0

    # -- who holds it --------------------------------------------------------------------------------------

    def hold(self, interval: float) -> Hold:
        """Keep it running; see `watch`."""
        hold = Hold(self)
        with self._lock:
            self._interval = min(interval, self._interval) if len(self._holds) else interval
            self._holds.add(hold)
        self._ensure_running()
        return hold

    def release(self, hold: Hold) -> None:
        """Let one hold go; where it was the last, return when everything has ended."""
        with self._lock:
            self._holds.discard(hold)
            thread = None if len(self._holds) else self._thread
        if thread is not None and thread is not threading.current_thread():
            self._wake.set()
            thread.join(10)

    def _ensure_running(self) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self.state, self.reason = "starting", None
                self._thread = threading.Thread(target=self._run, name="skillfs-watch", daemon=True)
                self._thread.start()

    def begun_anew(self) -> Watcher | None:
        """In a forked child, which has none of the parent's threads: the watcher to go on with."""
        holds = list(self._holds)
        if not holds:
            return None
        new = Watcher(self._engine)
        new._interval = self._interval
        for hold in holds:
            hold.watcher = new
            new._holds.add(hold)
        return new

    # -- what others ask -----------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether anybody holds it."""
        return len(self._holds) > 0 and self._thread is not None and self._thread.is_alive()

    def keeps_in_step(self) -> bool:
        """Whether what is listed is as young as watching makes it."""
        if self._thread is None:
            self._ensure_running()  # in a forked child
        return self.state == "watching"

    def has_told_all(self) -> bool:
        """Wait until all that happened before this call has left its marks; False where nothing watches."""
        watches = self._watches
        if self.state != "watching" or watches is None:
            return False
        sound = self._engine.store.is_rooted() and not watches.unmounted and watches.failure is None
        if not sound or not watches.barrier(MOST_WAIT):
            self._wake.set()
            return False
        return True

    def look_later(self, folders: Iterable[str], size: int) -> None:
        """Look at folders again when a file in them of so many bytes can be trusted to be written."""
        at = time.monotonic() + YOUNG_SECONDS + size * YOUNG_BYTE_SECONDS
        with self._lock:
            for folder in folders:
                heapq.heappush(self._later, (at, folder))

    def status(self) -> dict[str, Any]:
        """See `watch_status`."""
        return {"watch": self.state, "watch_reason": self.reason, "watched_folders": self.watched}

    @property
    def watched(self) -> int:
        """How many folders are watched."""
        watches = self._watches
        return 0 if watches is None else watches.count

    @property
    def overflows(self) -> int:
        """How often the kernel has dropped events since watching began."""
        watches = self._watches
        return 0 if watches is None else watches.overflows

    # -- the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._next_beat = 0.0
            while len(self._holds):
                try:
                    self._turn()
                except SkillFSError as error:
                    self._is_away(error)
                except Exception as error:
                    # Whatever it is: the index must not go blind while the program looks alive.
                    _log.exception("watching failed and begins anew")
                    self._give_up(f"an error ({type(error).__name__})")
                    self._wait(HEARTBEAT)
        finally:
            self._close()

    def _turn(self) -> None:
        if self.state == "starting":
            self._begin()
        elif self.state == "watching":
            self._watch()
        elif self.state == "polling":
            self._poll()
        else:
            self._wait(HEARTBEAT)
            self._engine.store.check_root()
            self._log_state("starting", None)

    def _wait(self, seconds: float) -> None:
        if seconds > 0:
            self._wake.wait(seconds)
            self._wake.clear()

    def _log_state(self, state: WatchState, reason: str | None) -> None:
        if (state, reason) != (self.state, self.reason) and state != "starting":
            if reason is None:
                _log.info("the store is watched: %d folders", self.watched)
            else:
                _log.warning("the store is %s: %s", "not there" if state == "unavailable" else state, reason)
        self.state, self.reason = state, reason

    def _begin(self) -> None:
        """Watch first, then check: what happens in between leaves marks."""
        self._close()
        engine = self._engine
        why = _why_not(engine.store)
        if why is None:
            try:
                # Here, as most who use a store do not watch it.
                from skillfs.sync.inotify import FolderWatches

                self._watches = FolderWatches(self._wake.set)
                engine.watches = self._watches
                engine.taking.watch_all()
                engine.check()
                if self._watches.failure is not None:
                    raise self._watches.failure
            except OSError as error:
                if isinstance(error, SkillFSError):
                    raise
                self._close()
                why = _limit(error)
            except ImportError as error:
                why = f"this version of watchdog does not serve ({error})"
        now = time.monotonic()
        self._next_beat = now + HEARTBEAT
        self._next_safety = now + SAFETY_SECONDS
        self._next_try = now + AGAIN_SECONDS
        if why is None:
            self._revision = self._read_revision()
            self._log_state("watching", None)
        else:
            self._log_state("polling", why)
            self._next_check = 0.0

    # -- watching ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        watches = self._watches
        assert watches is not None
        now = time.monotonic()
        times = watches.times()
        if times is None:
            due = self._next_beat
            if self._later:
                due = min(due, self._later[0][0])
            if due > now:
                self._wait(due - now)
                return
        else:
            due = min(times[1] + QUIET, times[0] + MOST_QUIET)
            if due > now:
                time.sleep(due - now)
                return
            started = time.monotonic()
            self._take(watches)
            # Whoever writes a large file without pause has it hashed half of the time, not all of it.
            if (took := time.monotonic() - started) > MOST_QUIET and len(self._holds):
                time.sleep(min(took, HEARTBEAT))
            if self._watches is not watches:
                return
            now = time.monotonic()
        self._mark_later(watches, now)
        if now >= self._next_beat:
            self._next_beat = now + HEARTBEAT
            self._beat(watches, now)

    def _take(self, watches: FolderWatches, *, links: bool = False) -> None:
        self._engine.take_marks(links=links)
        if watches.failure is not None:
            # A folder that is not watched must not look as if it were.
            self._close()
            self._log_state("polling", _limit(watches.failure))
            self._next_check = 0.0
            self._next_try = time.monotonic() + AGAIN_SECONDS
        self._revision = self._read_revision()

    def _mark_later(self, watches: FolderWatches, now: float) -> None:
        marks = Marks()
        with self._lock:
            while self._later and self._later[0][0] <= now:
                marks.folders.add(heapq.heappop(self._later)[1])
        if marks:
            watches.mark(marks)

    def _beat(self, watches: FolderWatches, now: float) -> None:
        if not self._engine.store.is_rooted():
            self._engine.store.check_root()
            self._give_up("the root folder was replaced")
        elif watches.unmounted:
            self._give_up("a filesystem was unmounted")
        elif not watches.barrier(MOST_WAIT):
            self._give_up("no events come any more")
        elif now >= self._next_safety:
            self._check()
            took = self._checked_alone
            self._next_safety = time.monotonic() + max(SAFETY_SECONDS, SAFETY_COST * took)
        elif now >= self._next_links:
            self._take(watches, links=True)  # and at files with other names
            self._next_links = time.monotonic() + max(HEARTBEAT, 100 * (time.monotonic() - now))
        else:
            self._hear()

    def _hear(self) -> None:
        """Notice what another process has taken in."""
        revision = self._read_revision()
        if revision != self._revision:
            self._revision = revision
            self._engine.announce()

    def _read_revision(self) -> int:
        return self._engine.query(self._engine.journal.revision)

    def _check(self) -> None:
        started = time.monotonic()
        self._engine.check()
        self._checked_alone = time.monotonic() - started

    def _give_up(self, reason: str) -> None:
        """Begin anew, because of something that leaves watching in doubt."""
        self.restarts += 1
        _log.warning("watching begins anew: %s", reason)
        self._close()
        self.state, self.reason = "starting", reason

    def _is_away(self, error: SkillFSError) -> None:
        self._close()
        if isinstance(self._engine.store, LocalStore):
            self._log_state("unavailable", error.message)
            return
        self._failures += 1
        self._log_state("polling", error.message)

    # -- polling -------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        now = time.monotonic()
        if now < self._next_check:
            self._wait(min(self._next_check - now, HEARTBEAT))
            self._hear()
            return
        is_local = isinstance(self._engine.store, LocalStore)
        if is_local and now >= self._next_try and os.environ.get(POLL_VARIABLE) != "poll":
            self.state = "starting"
            return
        started = time.monotonic()
        try:
            self._engine.check()
            self._failures = 0
        except SkillFSError as error:
            if is_local:
                raise
            self._failures += 1
            self._engine.check_error = error.message
            _log.warning("a check of the store failed: %s", error.message)
        took = time.monotonic() - started
        interval = LOCAL_INTERVAL if is_local else self._interval
        interval = max(interval, CHECK_COST * took, HEARTBEAT) * 2.0 ** min(self._failures, 20)
        interval = min(interval, max(MOST_BACKOFF, self._interval))
        self._next_check = time.monotonic() + interval * random.uniform(1 - JITTER, 1 + JITTER)
        self._revision = self._read_revision()

    def _close(self) -> None:
        watches, self._watches = self._watches, None
        if watches is not None:
            if self._engine.watches is watches:
                self._engine.watches = None
            watches.close()


def _why_not(store: object) -> str | None:
    """Why a store cannot be watched; None when it can."""
    if not isinstance(store, LocalStore):
        return "only folders of this machine can be watched"
    if os.environ.get(POLL_VARIABLE) == "poll":
        return f"{POLL_VARIABLE} says so"
    if not sys.platform.startswith("linux"):
        return "watching needs inotify, which this system does not have"
    for folder in (store.root, *store.followed):
        try:
            kind = filesystem_type(folder) or ""
        except OSError as error:
            message = "the store's root folder is not there; try again when it is back"
            raise StoreUnavailableError(message) from error
        if kind.startswith(_NETWORK):
            return f"on {kind} other machines may change files unnoticed"
    return None


def _limit(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "this user may not watch more folders; raise fs.inotify.max_user_watches"
    if error.errno == errno.EMFILE:
        return "this user may not watch more stores; raise fs.inotify.max_user_instances"
    return f"folders cannot be watched ({error.strerror or type(error).__name__})"
