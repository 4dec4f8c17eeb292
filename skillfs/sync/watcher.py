"""Keeps an index in step by itself: by watching where that works, by looking now and then where it does not.

One thread for each store does everything: it waits for marks or for the next heartbeat, lets a burst calm
down, and has the engine look. It runs while somebody holds the watcher, and ends by itself afterwards. What
breaks is begun anew; what cannot be watched is looked at now and then.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, get_args
from weakref import WeakSet

from skillfs.core.ignore import IgnoreRules
from skillfs.errors import SkillFSError
from skillfs.stores.local import LocalStore
from skillfs.sync.engine import Engine, Keeper
from skillfs.sync.marked import MOST_WAIT
from skillfs.sync.marks import Marks
from skillfs.sync.watchable import is_to_be_polled, why_not_watched, why_refused
from skillfs.sync.young import Young

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

LINKS_COST = 100.0
"""Files with several names are looked at after every heartbeat, or so many times the duration of that."""

MOST_BACKOFF = 900.0
"""Seconds between two attempts at a store that does not answer, at most."""

JITTER = 0.1
"""The part of an interval by which it is varied, so that many processes do not ask all at once."""

AGAIN_SECONDS = 600.0
"""Seconds after which watching is tried again where it did not work, and the log warns again of the same."""

MOST_PAUSE = 60.0
"""Seconds between two attempts to begin anew, at most, where each of them fails."""


class Hold:
    """What keeps a watcher running, for as long as it is referred to."""

    __slots__ = ("__weakref__", "interval", "watcher")

    def __init__(self, watcher: Watcher, interval: float) -> None:
        self.watcher = watcher
        self.interval = interval

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
    is_to_be_polled()  # or the thread would have to say what is wrong with the environment
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


def _go_on_in_child() -> None:
    global _starting
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_go_on_in_child)


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
        self._watches: FolderWatches | None = None
        self._revision = 0
        self._young = Young()
        self._failures = 0
        self._told: dict[str, float] = {}
        self._overflows = self._told_overflows = 0
        self._reopened = 0
        self.state: WatchState = "starting"
        self.reason: str | None = None
        self.restarts = 0
        self._next_beat = self._next_check = self._next_safety = self._next_try = self._next_links = 0.0

    # -- who holds it --------------------------------------------------------------------------------------

    def hold(self, interval: float) -> Hold:
        """Keep it running; see `watch`."""
        with self._lock:
            if interval < self._interval:
                self._next_check = 0.0
            hold = Hold(self, interval)
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
            if len(self._holds) and (self._thread is None or not self._thread.is_alive()):
                self.state, self.reason = "starting", None
                self._thread = threading.Thread(target=self._run, name="skillfs-watch", daemon=True)
                self._thread.start()

    def begun_anew(self) -> Watcher | None:
        """In a forked child, which has none of the parent's threads: the watcher to go on with."""
        if self._watches is not None:
            self._watches.abandon()
        holds = list(self._holds)
        if not holds:
            return None
        new = Watcher(self._engine)
        for hold in holds:
            hold.watcher = new
            new._holds.add(hold)
        return new

    # -- what others ask -----------------------------------------------------------------------------------

    @property
    def _interval(self) -> float:
        """Seconds between two looks at a store that is asked: as who holds it wants them most often."""
        with self._lock:
            return min((hold.interval for hold in self._holds), default=math.inf)

    @property
    def is_running(self) -> bool:
        """Whether anybody holds it."""
        return len(self._holds) > 0 and self._thread is not None and self._thread.is_alive()

    def keeps_in_step(self) -> bool:
        """Whether what is listed is as young as watching makes it."""
        if self._thread is None or not self._thread.is_alive():
            self._ensure_running()  # in a forked child, say
            return False
        return self._watching() is not None

    def polls_within(self, seconds: float) -> bool:
        """Whether the store is looked at by itself at least as often; less often while it fails."""
        return self.is_running and self.state == "polling" and self._interval <= seconds

    def has_told_all(self) -> bool:
        """Wait until all that happened before this call has left its marks; False where nothing watches."""
        watches = self._watching()
        if watches is not None and watches.barrier(MOST_WAIT) and watches is self._watching():
            return True
        if self.state == "watching":
            self._next_beat = 0.0
            self._wake.set()
        return False

    def _watching(self) -> FolderWatches | None:
        """The watches, as long as nothing is known to be wrong with them."""
        watches = self._watches
        if self.state != "watching" or watches is None or self._thread is None or not self._thread.is_alive():
            return None
        if not watches.is_alive or watches.unmounted or watches.failure is not None:
            return None
        return watches if self._is_same_root() else None

    def _is_same_root(self) -> bool:
        """Whether the root is the folder that is watched, whoever may have noticed another one first."""
        store = self._engine.store
        return isinstance(store, LocalStore) and store.reopened == self._reopened and store.is_rooted()

    def look_later(self, folders: Iterable[str], size: int) -> None:
        """Look at folders again when a file in them of so many bytes can be trusted to be written."""
        with self._lock:
            self._young.add(folders, size, time.monotonic())

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
        """How often the kernel has dropped events."""
        watches = self._watches
        return self._overflows + (0 if watches is None else watches.overflows)

    # -- the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while len(self._holds):
                try:
                    self._turn()
                except SkillFSError as error:
                    self._is_away(error)
                except BaseException as error:
                    # Whatever it is: the index must not go blind while the program looks alive.
                    self._has_failed(error)
        finally:
            self._close()
            with self._lock:
                self._thread = None
                self.state, self.reason = "starting", None
            with contextlib.suppress(RuntimeError):  # no thread can be started when the program ends
                self._ensure_running()  # if it was ended by force

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
            if time.monotonic() >= self._next_try:
                self.state = "starting"

    def _wait(self, seconds: float) -> None:
        if seconds > 0:
            self._wake.wait(seconds)
            self._wake.clear()

    def _be(self, state: WatchState, reason: str | None) -> None:
        self.state, self.reason = state, reason
        if reason is None:
            _log.info("the store is watched: %d folders", self.watched)
        elif state == "polling" and not isinstance(self._engine.store, LocalStore):
            _log.info("the store is looked at now and then: %s", reason)
        elif state == "polling":
            self._tell(f"the store is not watched but looked at now and then: {reason}")
        else:
            self._tell(f"the store is {state}: {reason}")

    def _tell(self, text: str, error: BaseException | None = None) -> None:
        """Warn, but not of the same all the time: standard error can be a pipe that nobody reads."""
        now = time.monotonic()
        again = now < self._told.get(text, 0.0)
        if not again:
            self._told[text] = now + AGAIN_SECONDS
        _log.log(logging.DEBUG if again else logging.WARNING, text, exc_info=error)

    def _begin(self) -> None:
        """Watch first, then check: what happens in between leaves marks."""
        self._close()
        engine = self._engine
        why = why_not_watched(engine.store)
        if why is None:
            engine.store.check_root()
            assert isinstance(engine.store, LocalStore)
            self._reopened = engine.store.reopened
            try:
                # Here, as most who use a store do not watch it.
                from skillfs.sync.inotify import FolderWatches

                self._watches = FolderWatches(self._wake.set, _ignores(engine.ignore))
                # Should anybody else be the first to take the marks.
                self._watches.doubt("watching has begun")
                engine.watches = self._watches
                engine.query(engine.taking.watch_all)
                engine.check()
                if self._watches.failure is not None:
                    raise self._watches.failure
                if not self._watches.barrier(MOST_WAIT):
                    self._close()
                    why = "the kernel does not tell what happens"
            except OSError as error:
                if isinstance(error, SkillFSError):
                    raise
                self._close()
                why = why_refused(error)
            except ImportError as error:
                why = f"this version of watchdog does not serve ({error})"
        now = time.monotonic()
        self._next_beat = now + HEARTBEAT
        self._next_safety = now + SAFETY_SECONDS
        self._next_try = now + AGAIN_SECONDS
        if why is None:
            self._hear()
            self._be("watching", None)
        else:
            self._be("polling", why)
            self._next_check = 0.0

    # -- watching ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        watches = self._watches
        assert watches is not None
        now = time.monotonic()
        times = watches.times()
        if times is None:
            due = min(self._next_beat, self._young.due)
            if due > now:
                self._wait(due - now)
                return
        else:
            due = min(times[1] + QUIET, times[0] + MOST_QUIET)
            if due > now:
                time.sleep(due - now)
                return
            started = time.monotonic()
            if not self._take(watches):
                return
            # Whoever writes a large file without pause has it hashed half of the time, not all of it.
            if (took := time.monotonic() - started) > MOST_QUIET and len(self._holds):
                time.sleep(min(took, HEARTBEAT))
            now = time.monotonic()
        with self._lock:
            marks = Marks(folders=self._young.take(now))
        if marks:
            watches.mark(marks)
        if now >= self._next_beat:
            self._next_beat = now + HEARTBEAT
            self._beat(watches, now)

    def _take(self, watches: FolderWatches, *, links: bool = False, everywhere: bool = False) -> bool:
        """Have the engine look; False where not all can be watched any more."""
        overflows = self.overflows
        if everywhere:
            self._engine.check()
        else:
            self._engine.take_marks(links=links, seconds=0.0)
        self._hear()
        if overflows > self._told_overflows:
            self._told_overflows = overflows
            self._tell(
                "the kernel dropped events, so the whole store is compared; to have it drop fewer, raise "
                "fs.inotify.max_queued_events"
            )
        if (failure := watches.failure) is None:
            return True
        # A folder that is not watched must not look as if it were.
        self._close()
        self._be("polling", why_refused(failure))
        self._next_check = 0.0
        self._next_try = time.monotonic() + AGAIN_SECONDS
        return False

    def _beat(self, watches: FolderWatches, now: float) -> None:
        self._hear()
        if not self._is_same_root():
            self._engine.store.check_root()
            self._give_up("the root folder was replaced")
        elif watches.unmounted:
            self._give_up("a filesystem was unmounted")
        elif not watches.barrier(MOST_WAIT):
            self._give_up("no events come any more", watches.mishap)
        elif now >= self._next_safety:
            if self._take(watches, everywhere=True):
                took = time.monotonic() - now
                self._next_safety = time.monotonic() + max(SAFETY_SECONDS, SAFETY_COST * took)
        elif now >= self._next_links:
            self._take(watches, links=True)  # and at files with other names
            self._next_links = time.monotonic() + max(HEARTBEAT, LINKS_COST * (time.monotonic() - now))
        self._failures = 0

    def _hear(self) -> None:
        """Tell of what was taken in, be it by another process."""
        revision = self._engine.query(self._engine.journal.revision)
        if revision != self._revision:
            self._revision = revision
            self._engine.announce()

    # -- what goes wrong -----------------------------------------------------------------------------------

    def _give_up(self, reason: str, error: BaseException | None = None) -> None:
        """Begin anew, because of something that leaves watching in doubt."""
        self.restarts += 1
        self._tell(f"watching begins anew: {reason}", error)
        self._close()
        self.state, self.reason = "starting", reason

    def _has_failed(self, error: BaseException) -> None:
        self._give_up(f"an error ({type(error).__name__})", error)
        until = time.monotonic() + self._pause()
        while len(self._holds) and (left := until - time.monotonic()) > 0:
            self._wait(min(left, HEARTBEAT))

    def _is_away(self, error: SkillFSError) -> None:
        self._close()
        if not isinstance(self._engine.store, LocalStore):
            self._failures += 1
            self._be("polling", error.message)
            return
        # Whether the root is there is asked at every heartbeat. Anything else gets no better by asking often.
        pause = self._pause() if self._engine.store.is_rooted() else 0.0
        self._next_try = time.monotonic() + pause
        self._be("unavailable", error.message)

    def _pause(self) -> float:
        self._failures += 1
        return min(HEARTBEAT * 2.0 ** min(self._failures - 1, 20), MOST_PAUSE)

    def _close(self) -> None:
        watches, self._watches = self._watches, None
        if watches is not None:
            if self._engine.watches is watches:
                self._engine.watches = None
            watches.close()
            self._overflows += watches.overflows

    # -- polling -------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        now = time.monotonic()
        if now < self._next_check:
            self._wait(min(self._next_check - now, HEARTBEAT))
            self._hear()
            return
        is_local = isinstance(self._engine.store, LocalStore)
        if is_local and now >= self._next_try and not is_to_be_polled():
            self.state = "starting"
            return
        checked = self._engine.checked_at
        if not is_local and checked is not None and now - checked < self._interval * (1 - JITTER):
            # Somebody else had it listed meanwhile.
            self._next_check = checked + self._interval * random.uniform(1 - JITTER, 1 + JITTER)
            return
        started = time.monotonic()
        try:
            self._engine.check()
            self._failures = 0
            if not is_local:
                self.reason = why_not_watched(self._engine.store)
        except SkillFSError as error:
            if is_local:
                raise
            self._failures += 1
            self._engine.check_error = error.message
            self._tell(f"a check of the store failed: {error.message}")
        took = time.monotonic() - started
        interval = LOCAL_INTERVAL if is_local else self._interval
        interval = max(interval, CHECK_COST * took, HEARTBEAT) * 2.0 ** min(self._failures, 20)
        interval = min(interval, max(MOST_BACKOFF, self._interval))
        self._next_check = time.monotonic() + interval * random.uniform(1 - JITTER, 1 + JITTER)
        self._hear()


def _ignores(rules: IgnoreRules) -> Callable[[str, bool], bool]:
    """Whether nothing that happens to a name matters. What looks like a secret does: it is told of."""
    return lambda name, is_folder: (
        rules.ignores_folder(name) if is_folder else rules.reason(name) == "ignored"
    )
