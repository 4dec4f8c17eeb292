"""Which versions of files the kernel has open, and which it was told of.

To the kernel a path is one file of one size. It tells whoever reads where the end is without asking, by the
size that it was told of last, be that of the version that is read or of another. So a version that is open
and not there any more is given up: whoever goes on reading it is told ESTALE.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from skillfs.fuse.view import Node

__all__ = ["Told", "Versions", "stale"]

WAIT_SECONDS = 1.0
"""How long a look waits at most until a version that was open is given up."""

GRACE_SECONDS = 0.005
"""How long the kernel may take to hand on the bytes of an answer to whoever waits for them."""


@dataclass(eq=False, slots=True)
class _Open:
    path: str
    node: Node
    began: int
    readers: int = 0
    outdated: bool = False
    until: float = 0.0


class Versions:
    """The open files by their handles, for all threads of a server.

    Args:
        seconds: How long the kernel may believe what it was told.
        on_outdated: Called with whether a version is open that is not there any more, when that changes.
        clock: Tells seconds.
    """

    def __init__(
        self,
        seconds: float,
        on_outdated: Callable[[bool], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._told = Told(seconds, clock)
        self._on_outdated = on_outdated
        self._clock = clock
        self._lock = threading.Lock()
        self._answered = threading.Condition(self._lock)
        self._open: dict[int, _Open] = {}
        self._at: dict[str, set[int]] = {}
        self._outdated: set[int] = set()
        self._moment = 0

    def __len__(self) -> int:
        return len(self._open)

    def moment(self) -> int:
        """Now, to be taken before a look at a file; see `tell`."""
        return self._moment

    def add(self, handle: int, path: str, node: Node, moment: int) -> bool | None:
        """A file was opened.

        Args:
            handle: Its handle.
            path: Its path.
            node: What was opened.
            moment: When one began to look, as `moment` told it.

        Returns:
            Whether another version of it is open; None when one was opened since: then open it anew.
        """
        with self._lock:
            others = self._supersede(path, node, moment)
            if others is None:
                return None
            self._moment += 1
            self._open[handle] = _Open(path, node, self._moment)
            self._at.setdefault(path, set()).add(handle)
            return bool(others)

    def remove(self, handle: int) -> None:
        """A file was closed."""
        with self._lock:
            found = self._open.pop(handle, None)
            if found is None:
                return
            handles = self._at[found.path]
            handles.discard(handle)
            if not handles:
                del self._at[found.path]
            if handle in self._outdated:
                self._outdated.discard(handle)
                if not self._outdated:
                    self._on_outdated(False)

    def tell_open(self, handle: int) -> Node | None:
        """What an open file was when it was opened, of which the kernel is about to be told.

        Returns:
            None where there is no such handle.

        Raises:
            OSError: It is another by now (ESTALE).
        """
        with self._lock:
            found = self._open.get(handle)
            if found is None:
                return None
            if found.outdated:
                raise stale()
            self._told.add(found.path, found.node)
            return found.node

    @contextlib.contextmanager
    def reading(self, handle: int) -> Iterator[None]:
        """While an open file is read.

        Raises:
            OSError: It is another by now (ESTALE).
        """
        with self._lock:
            found = self._open.get(handle)
            if found is not None:
                if found.outdated:
                    raise stale()
                found.readers += 1
        try:
            yield
        finally:
            if found is not None:
                with self._lock:
                    found.readers -= 1
                    found.until = self._clock() + GRACE_SECONDS
                    if found.outdated:
                        self._answered.notify_all()

    def give_up(self, handle: int) -> None:
        """An open file was found to be another by now."""
        with self._lock:
            if (found := self._open.get(handle)) is not None:
                self._mark(handle, found)

    def tell_listed(self, path: str, node: Node) -> bool:
        """The kernel is about to be told of a file that is listed, which is how it was at the last check.

        Returns:
            False when another version of it is open: then the kernel is not to be told.
        """
        with self._lock:
            handles = self._at.get(path)
            if handles and any(_differ(self._open[handle].node, node) for handle in handles):
                return False
            self._told.add(path, node)
        return True

    def believes_other(self, path: str, node: Node) -> bool:
        """Whether the kernel may believe that a file is another than this, and is made to forget that now."""
        with self._lock:
            return self._told.replace(path, node)

    def tell(self, path: str, node: Node, moment: int) -> bool:
        """The kernel is about to be told of a file, by its path.

        Whoever reads another version of it now gets the bytes before that.

        Args:
            path: Its path.
            node: What was seen.
            moment: When one began to look, as `moment` told it.

        Returns:
            False when another version was opened since: then the kernel is not to be told, but to look again.
        """
        with self._lock:
            if path in self._at:
                if self._supersede(path, node, moment) is None:
                    return False
                self._wait(path, node)
                if self._supersede(path, node, moment) is None:
                    return False  # it was opened while we waited
            self._told.add(path, node)
        return True

    def _supersede(self, path: str, node: Node, moment: int) -> list[int] | None:
        """Give up what is open of other versions; None, and nothing, where one of these is younger."""
        others = [h for h in self._at.get(path, ()) if _differ(self._open[h].node, node)]
        if any(self._open[handle].began > moment and not self._open[handle].outdated for handle in others):
            return None
        for handle in others:
            self._mark(handle, self._open[handle])
        return others

    def _mark(self, handle: int, found: _Open) -> None:
        if found.outdated:
            return
        found.outdated = True
        found.until = self._clock() + GRACE_SECONDS
        if not self._outdated:
            self._on_outdated(True)
        self._outdated.add(handle)

    def _wait(self, path: str, node: Node) -> None:
        """Wait until everyone who read another version has got what they asked for, but not for ever."""
        end = self._clock() + WAIT_SECONDS
        while True:
            now = self._clock()
            others = [
                other
                for handle in self._at.get(path, ())
                if _differ((other := self._open[handle]).node, node)
            ]
            until = max((end if other.readers else other.until for other in others), default=now)
            if until <= now or now >= end:
                return
            self._answered.wait(min(until, end) - now)


class Told:
    """What the kernel was told of files lately, and may still believe; for one thread at a time.

    Args:
        seconds: How long it does.
        clock: Tells seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        # Size and time by path; None where there were several.
        self._lately: dict[str, tuple[int, int] | None] = {}
        self._before: dict[str, tuple[int, int] | None] = {}
        self._turned = clock()

    def add(self, path: str, node: Node) -> None:
        """The kernel is about to be told of a file."""
        self._turn()
        told = node.size, node.modified
        if self._lately.setdefault(path, told) != told:
            self._lately[path] = None

    def replace(self, path: str, node: Node) -> bool:
        """The kernel is made to forget what it was told of a file, and is going to be told this.

        Returns:
            Whether there was another to be forgotten.
        """
        self._turn()
        told = node.size, node.modified
        before, lately = self._before.pop(path, told), self._lately.get(path, told)
        self._lately[path] = told
        return before != told or lately != told

    def _turn(self) -> None:
        now = self._clock()
        passed = now - self._turned
        if passed > self._seconds:
            self._lately, self._before = {}, self._lately if passed <= 2 * self._seconds else {}
            self._turned = now


def stale() -> OSError:
    """The error of whoever reads what is another by now."""
    return OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def _differ(one: Node, other: Node) -> bool:
    return one.version != other.version
