"""What was looked at too soon after its last change for its stamps to be trusted."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

__all__ = ["Young"]

YOUNG_SECONDS = 0.05
YOUNG_BYTE_SECONDS = 50e-9
MOST_YOUNG_SECONDS = 600.0
"""When a file is looked at again that was looked at too soon after its last change: see `LocalStore`. That
doubles when it was too soon again: a clock that was put back can make a file young for ever."""


class Young:
    """Folders to look at again when what is in them has become old enough for its stamps to be trusted."""

    def __init__(self) -> None:
        self._queue: list[tuple[float, str]] = []
        self._due: dict[str, tuple[float, float]] = {}
        self._taken: dict[str, float] = {}

    def add(self, folders: Iterable[str], size: int, now: float) -> None:
        """Look at folders again; later each time when nothing else had them looked at meanwhile.

        Args:
            folders: Their paths.
            size: Bytes of the largest of the files.
            now: The time, by any clock that goes on steadily, in seconds.
        """
        least = YOUNG_SECONDS + size * YOUNG_BYTE_SECONDS
        for folder in folders:
            pause = least
            if folder in self._taken:
                pause = max(least, min(2 * self._taken.pop(folder), MOST_YOUNG_SECONDS))
            self._due[folder] = (now + pause, pause)
            heapq.heappush(self._queue, (now + pause, folder))

    @property
    def due(self) -> float:
        """When the next of them is to be looked at."""
        return self._queue[0][0] if self._queue else math.inf

    def take(self, now: float) -> set[str]:
        """Those to be looked at now."""
        taken = {}
        while self._queue and self._queue[0][0] <= now:
            at, folder = heapq.heappop(self._queue)
            if folder in self._due and self._due[folder][0] == at:
                taken[folder] = self._due.pop(folder)[1]
        if taken:
            self._taken = taken
        return set(taken)
