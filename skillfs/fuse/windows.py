"""Which bytes of a remote file to fetch for the readings of it, and what to hold of them.

The kernel asks for 4 to 128 KiB at a time, from several threads and not always in order, and a request to a
store takes as long for 100 bytes as for 100 KiB. So single readings fetch what they ask for; readings that
follow on each other fetch growing windows, the next of which is under way while the present one is read.

Nothing here fetches anything or knows of threads, but that each use is made under the lock of a `Room`.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

__all__ = [
    "FIRST_WINDOW",
    "LARGEST_WINDOW",
    "MOST_IN_ALL",
    "MOST_OF_FILE",
    "PAGE",
    "Plan",
    "Room",
    "Step",
    "Window",
]

PAGE = 4 << 10
"""Bytes that the kernel keeps at once; a single reading is rounded to them."""

FIRST_WINDOW = 256 << 10
"""Bytes of the first window; all end at multiples of it, as the blocks do that a lock has verified."""

LARGEST_WINDOW = 8 << 20
"""Bytes of a window of a file that has been read on and on."""

LONG_RUN = 2 * LARGEST_WINDOW
"""Bytes that are read on and on before two windows are fetched ahead: many a reader stops earlier."""

MOST_OF_FILE = 24 << 20
"""Bytes that are held of one file: the window that is read and two ahead."""

MOST_IN_ALL = 128 << 20
"""Bytes that are held of all files together; a file gets its share of them, however many are being read."""

BEHIND = 2 << 20
"""Bytes behind the furthest reading that threads which are late may still ask for."""

IDLE = 10.0
"""Seconds after which a file that is not read makes room for others."""

MOST_RUNS = 8
"""How many places of a file can be read on from at a time."""

STALE_READINGS = 64
"""Readings of a file after which a place that none of them read on from is forgotten."""


class Window:
    """Bytes of a file that are fetched at once.

    Attributes:
        start: The first byte.
        end: The byte after the last.
        kept: Whether it stays for later readings.
        ahead: Whether it was begun before any reading asked for it.
        begun: Whether somebody fetches it, or has.
        data: What was fetched.
        error: Why it was not.
        ended: Set when one of the two is there.
        left: Bytes that no reading has had.
    """

    __slots__ = ("ahead", "begun", "data", "end", "ended", "error", "kept", "left", "start")

    def __init__(self, start: int, end: int, *, kept: bool, ahead: bool = False) -> None:
        self.start = start
        self.end = end
        self.kept = kept
        self.ahead = ahead
        self.begun = False
        self.data: bytes | None = None
        self.error: BaseException | None = None
        self.ended = threading.Event()
        self.left = end - start

    @property
    def length(self) -> int:
        """Bytes."""
        return self.end - self.start


class _Run:
    """A place where a file is read on and on.

    Attributes:
        start: What lies before is done with.
        end: The end of the furthest reading.
        fetched: The end of the last window ahead.
        window: Bytes of the next one.
        read: Bytes that were read.
        touched: The last reading there, counted.
    """

    __slots__ = ("end", "fetched", "read", "start", "touched", "window")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = self.fetched = end
        self.window = FIRST_WINDOW
        self.read = end - start
        self.touched = 0

    def wants(self, window: Window) -> bool:
        """Whether readings may come that a window is for."""
        return self.start < window.end and window.start <= self.fetched


class Step(NamedTuple):
    """What a reading takes.

    Attributes:
        parts: The windows that its bytes lie in, in order. Whoever needs one that nobody has begun begins it.
        ahead: Windows to be fetched in the background.
    """

    parts: Sequence[Window]
    ahead: Sequence[Window]


class Room:
    """The memory that windows of many files share.

    Args:
        most: Bytes.
        clock: Tells seconds.

    Attributes:
        lock: To be held around every use of it and of the plans that share it.
        held: Bytes that are taken.
    """

    def __init__(self, most: int = MOST_IN_ALL, clock: Callable[[], float] = time.monotonic) -> None:
        self.lock = threading.Lock()
        self.held = 0
        self._most = most
        self._clock = clock
        self._files: OrderedDict[Plan, float] = OrderedDict()

    def share(self, plan: Plan) -> int:
        """Bytes that a file may hold."""
        files = len(self._files) + (plan not in self._files)
        return min(MOST_OF_FILE, self._most // files)

    def take(self, plan: Plan, length: int) -> bool:
        """Take bytes for a file, from files that are not being read if need be; False when there are none."""
        if plan.held + length > self.share(plan):
            return False
        if self.held + length > self._most:
            self._clear_idle()
            if self.held + length > self._most:
                return False
        self.held += length
        plan.held += length
        self.touch(plan)
        return True

    def give(self, plan: Plan, length: int) -> None:
        """Give back what was taken."""
        self.held -= length
        plan.held -= length
        if not plan.held:
            self._files.pop(plan, None)

    def touch(self, plan: Plan) -> None:
        """A file is being read."""
        if plan.held:
            self._files[plan] = self._clock()
            self._files.move_to_end(plan)

    def _clear_idle(self) -> None:
        now = self._clock()
        for plan, used in list(self._files.items()):
            if now - used < IDLE:
                return
            plan.clear()


class Plan:
    """Which bytes of one file to fetch, for the readings of it.

    Args:
        size: Bytes of the file.
        room: What its windows take their memory from.
        start: The first bytes, where they are there already.

    Attributes:
        held: Bytes of memory that are taken.
    """

    def __init__(self, size: int, room: Room, start: bytes = b"") -> None:
        self.held = 0
        self._size = size
        self._room = room
        self._windows: list[Window] = []
        self._runs: list[_Run] = []
        self._readings = 0
        self._start: Window | None = None
        if start:
            self._start = Window(0, len(start), kept=True)
            self._start.data, self._start.begun = start, True
            self._start.ended.set()
            self._windows.append(self._start)

    def read(self, start: int, end: int) -> Step:
        """Plan a reading of at least one byte, all inside the file."""
        self._readings += 1
        self._room.touch(self)
        run = self._follow(start, end)
        parts = self._cover(start, end, run)
        for part in parts:
            part.left -= min(end, part.end) - max(start, part.start)
        self._drop_used()
        return Step(parts, self._ahead(run) if run is not None else ())

    def end(self, window: Window, data: bytes | None, error: BaseException | None = None) -> None:
        """A window was fetched, or failed to be."""
        window.data, window.error = data, error
        if window not in self._windows:
            self._give(window)  # it was dropped meanwhile
        elif error is not None or not window.kept or window.left <= 0:
            self._drop(window)
        if error is not None:
            for run in self._runs:
                if run.wants(window):
                    run.window = FIRST_WINDOW

    def clear(self) -> None:
        """Drop all windows. Those that are being fetched take their memory until they end."""
        for window in list(self._windows):
            self._drop(window)
        for run in self._runs:
            run.fetched = run.end

    def forget(self, windows: Sequence[Window]) -> None:
        """A reading ends before it has begun these."""
        for window in windows:
            if not window.begun and not window.ahead and window in self._windows:
                self._drop(window)

    def _follow(self, start: int, end: int) -> _Run | None:
        """The run that a reading carries on; None when it carries on none, or lies where one has been."""
        runs = [run for run in self._runs if self._readings - run.touched <= STALE_READINGS]
        own = next((run for run in runs if run.start <= start <= run.fetched), None)
        follows = own is not None and end > own.end
        if own is None:
            own = _Run(start, end)
        else:
            runs.remove(own)
            own.read += max(0, end - own.end)
            own.end = max(own.end, end)
        own.start = max(own.start, own.end - BEHIND)
        own.fetched = max(own.fetched, own.end)
        own.touched = self._readings
        self._runs = [own, *runs][:MOST_RUNS]
        return own if follows else None

    def _cover(self, start: int, end: int, run: _Run | None) -> list[Window]:
        parts: list[Window] = []
        at, before = start, 0
        for window in list(self._windows):
            if window.start >= end:
                break
            if window.end > at:
                if window.start > at:
                    parts.append(self._fill(at, window.start, before, window.start, run))
                parts.append(window)
                at = window.end
            before = window.end
        if at < end:
            after = next((w.start for w in self._windows if w.start >= end), self._size)
            parts.append(self._fill(at, end, before, after, run))
        return parts

    def _fill(self, start: int, end: int, least: int, most: int, run: _Run | None) -> Window:
        """A window for bytes that are in none, between those on both sides."""
        first = max(least, start - start % PAGE)
        if run is not None:
            last = min(most, _up(max(end, first + FIRST_WINDOW), FIRST_WINDOW))
            if self._room.take(self, last - first):
                run.window = max(run.window, 2 * FIRST_WINDOW)
                window = self._add(first, last, kept=True)
                window.left = last - start
                return window
        return self._add(first, min(most, _up(end, PAGE)), kept=False)

    def _ahead(self, run: _Run) -> list[Window]:
        """Windows to fetch ahead of a run: the next one, of a long run the one after it too."""
        found: list[Window] = []
        while True:
            at, under_way = run.end, 0
            for window in self._windows:
                if window.start <= at < window.end:
                    under_way += window.start >= run.end
                    at = window.end
            if at >= self._size or under_way >= (2 if run.read >= LONG_RUN else 1):
                break
            third = self._room.share(self) // 3
            length = min(run.window, third - third % FIRST_WINDOW)
            end = next((window.start for window in self._windows if window.start > at), self._size)
            end = min(end, _up(at + length, FIRST_WINDOW))
            if not length or not self._room.take(self, end - at):
                break
            found.append(self._add(at, end, kept=True, ahead=True))
            run.window = min(2 * run.window, LARGEST_WINDOW)
        run.fetched = max(run.fetched, at)
        return found

    def _add(self, start: int, end: int, *, kept: bool, ahead: bool = False) -> Window:
        window = Window(start, end, kept=kept, ahead=ahead)
        self._windows.append(window)
        self._windows.sort(key=lambda w: w.start)
        return window

    def _drop_used(self) -> None:
        """Drop what was read to its last byte, and what lies where nobody reads on any more."""
        for window in list(self._windows):
            if window.data is not None and (
                window.left <= 0 or not any(run.wants(window) for run in self._runs)
            ):
                self._drop(window)

    def _drop(self, window: Window) -> None:
        if window is self._start:
            return
        self._windows.remove(window)
        if window.data is not None or window.error is not None or not window.begun:
            self._give(window)

    def _give(self, window: Window) -> None:
        if window.kept:
            window.kept = False
            self._room.give(self, window.length)


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
