"""Kernel watches whose events meet with faults, and somebody who looks when a test says so."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pytest

from skillfs.stores.local import LocalFolder
from skillfs.sync.engine import Engine
from skillfs.sync.inotify import FolderWatches
from skillfs.sync.marks import Marks
from skillfs.sync.watcher import _ignores

__all__ = ["Faults", "Keeper", "Watches", "interrupted", "wait_until_closed"]

PATIENCE = 30.0


class Faults(NamedTuple):
    """How probable it is that an event meets with a fault.

    Attributes:
        doubled: It comes twice.
        late: It comes with later ones, in another order, whoever waits for it.
        overflown: It is lost with all behind it, and the loss is told.
        lost: It is lost, and nobody is told.
    """

    doubled: float = 0.0
    late: float = 0.0
    overflown: float = 0.0
    lost: float = 0.0


class Watches(FolderWatches):
    """Watches of real folders.

    The event thread only collects what the kernel says. It is handed on by the thread of the test, at a
    barrier or when the marks are taken, so that a sequence goes the same way each time.

    Args:
        engine: Whose store is watched.
        faults: What events meet with.
        chance: Decides which.

    Attributes:
        has_lost: Whether an event was lost of which nobody was told.
    """

    def __init__(self, engine: Engine, faults: Faults, chance: random.Random) -> None:
        self.has_lost = False
        self._faults = faults
        self._chance = chance
        self._told: list[Callable[[], None]] = []
        self._late: list[Callable[[], None]] = []
        self._latest: object = None
        super().__init__(lambda: None, _ignores(engine.ignore))

    # -- by the event thread -------------------------------------------------------------------------------

    def on_event(self, event: Any) -> None:
        if event.wd == self._cookie_watch:
            super().on_event(event)
        elif event != self._latest or not self._told:  # whether the kernel tells it again is a matter of time
            self._latest = event
            self._told.append(lambda: FolderWatches.on_event(self, event))

    def on_watch_deleted(self, descriptor: int) -> None:
        self._told.append(lambda: FolderWatches.on_watch_deleted(self, descriptor))

    # -- by the thread of the test -------------------------------------------------------------------------

    def barrier(self, seconds: float) -> bool:
        reached = super().barrier(PATIENCE)
        self._hand_on()
        return reached

    def take(self) -> Marks:
        super().barrier(PATIENCE)
        if self._chance.random() < 0.7:
            self._hand_on()
        return super().take()

    def calm_down(self) -> None:
        """Hand on everything, late events included."""
        assert super().barrier(PATIENCE)
        self._hand_on()
        late, self._late = self._late, []
        self._chance.shuffle(late)
        for tell in late:
            tell()

    def _hand_on(self) -> None:
        told, self._told = self._told, []
        faults, chance = self._faults, self._chance
        if self._late and chance.random() < 0.5:
            told += self._late
            self._late = []
            chance.shuffle(told)
        for number, tell in enumerate(told):
            if chance.random() < faults.lost:
                self.has_lost = True
            elif chance.random() < faults.overflown:
                self._late += (late for late in told[number:] if chance.random() < 0.3)
                FolderWatches.on_queue_overflow(self)
                return
            elif chance.random() < faults.late:
                self._late.append(tell)
            else:
                tell()
                if chance.random() < faults.doubled:
                    (tell if chance.random() < 0.5 else self._tell_late(tell))()

    def _tell_late(self, tell: Callable[[], None]) -> Callable[[], None]:
        return lambda: self._late.append(tell)


class Keeper:
    """Watches an engine's store, as a watcher does, but looks only when it is told to.

    Args:
        engine: The engine.
        faults: What events meet with.
        chance: Decides which.

    Attributes:
        watches: The watches, while there are any.
        young: Folders to look at again when what is in them is old enough.
    """

    is_running = True

    def __init__(self, engine: Engine, faults: Faults, chance: random.Random) -> None:
        self.engine = engine
        self.watches: Watches | None = None
        self.young: set[str] = set()
        self._faults = faults
        self._chance = chance
        engine.watcher = self

    def begin(self) -> None:
        """Begin to watch, or begin anew."""
        self.end()
        self.watches = self.engine.watches = Watches(self.engine, self._faults, self._chance)
        self.watches.doubt("watching has begun")
        self.engine.taking.watch_all()
        self.engine.check()

    def end(self) -> None:
        """Watch no more: what the kernel has told and nobody has looked at is lost."""
        if self.watches is not None:
            self.engine.watches = None
            # Most of that is waiting for the kernel.
            thread = threading.Thread(target=self.watches.close)
            thread.start()
            _closing.append(thread)
            self.watches = None

    # -- what an engine asks of its watcher ----------------------------------------------------------------

    def keeps_in_step(self) -> bool:
        return self.watches is not None

    def has_told_all(self) -> bool:
        return self.watches is not None and self.watches.barrier(PATIENCE)

    def look_later(self, folders: Iterable[str], size: int) -> None:
        self.young.update(folders)

    def begun_anew(self) -> None:
        return None

    def status(self) -> dict[str, Any]:
        return {}


_closing: list[threading.Thread] = []


def wait_until_closed() -> None:
    """Wait until nothing is left of the watches that were ended."""
    while _closing:
        _closing.pop().join()


@contextlib.contextmanager
def interrupted(by: Callable[[], None]) -> Iterator[None]:
    """Have something called in the midst of looks, around all that watches, lists and reads.

    Args:
        by: What is called; not while it runs.
    """
    is_running = False

    def interrupt() -> None:
        nonlocal is_running
        if not is_running:
            is_running = True
            try:
                by()
            finally:
                is_running = False

    def around(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            interrupt()
            found = method(*args, **options)
            interrupt()
            return found

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((Watches, "add"), (LocalFolder, "entries"), (LocalFolder, "hash")):
            patch.setattr(owner, name, around(getattr(owner, name)))
        yield
