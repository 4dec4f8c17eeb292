"""Listings that are about to be asked for: who walks into a skill asks for all of its folders, one by one.

All of a skill is one question to the index, which costs little more than one of its folders, and a walk by
`find`, `grep` or `rsync` then waits half as long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

__all__ = ["SECONDS", "Foreseen"]

SECONDS = 0.1
"""No longer than the kernel itself keeps what it was told."""

MOST = 4000
"""Listings that are kept at once."""

T = TypeVar("T")


class Foreseen(Generic[T]):
    """Listings by path, each handed out once and soon, for all threads of a server.

    Args:
        clock: Tells seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, T]] = {}

    def moment(self) -> float:
        """The present, to be told when what was seen from now on is added."""
        return self._clock()

    def add(self, seen: float, listings: Mapping[str, T]) -> None:
        """Keep listings that were taken after a moment."""
        with self._lock:
            if len(self._kept) + len(listings) > MOST:
                # Most of them are of walks that went elsewhere, and too old.
                self._kept.clear()
            if len(listings) <= MOST:
                self._kept.update((path, (seen, listing)) for path, listing in listings.items())

    def take(self, path: str) -> T | None:
        """A listing that is still good; None where there is none. Whoever asks again gets a new one."""
        kept = self._kept.pop(path, None)
        return None if kept is None or self._clock() - kept[0] > SECONDS else kept[1]
