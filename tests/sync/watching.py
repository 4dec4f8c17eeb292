"""An engine under test that is kept in step by a watcher."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillfs.sync.engine import Engine
from skillfs.sync.watcher import Watcher, WatchState, watch
from tests.sync.harness import check, expected, shown

PATIENCE = 30.0
"""Seconds after which something that has to happen counts as not happening."""


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE, what: str = "") -> None:
    """Return as soon as a condition holds; fail when it does not hold for so long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what or "waited in vain"
        time.sleep(0.005)


def reaches(watcher: Watcher, state: WatchState, seconds: float = PATIENCE) -> None:
    """Wait until a watcher is in a state."""
    deadline = time.monotonic() + seconds
    while watcher.state != state:
        assert time.monotonic() < deadline, f"{watcher.state} ({watcher.reason}) instead of {state}"
        time.sleep(0.005)


@contextlib.contextmanager
def kept_in_step(
    engine: Engine, state: WatchState = "watching", *, interval: float = 60.0
) -> Iterator[Watcher]:
    """Start a watcher, wait until it is in a state, and end it afterwards."""
    hold = watch(engine, interval)
    try:
        reaches(hold.watcher, state)
        yield hold.watcher
    finally:
        hold.release()
    assert engine.watches is None


def in_step(engine: Engine, root: Path, seconds: float = PATIENCE) -> None:
    """Wait until an index shows by itself what is there; then check that it holds together, and for good.

    Nothing here has the engine look: only the watcher does.
    """
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError, AssertionError, KeyError):  # it changes while it is looked at
            if shown(engine) == expected(root):
                break
        if time.monotonic() > deadline:
            assert shown(engine) == expected(root)
        time.sleep(0.02)
    with engine._lock:  # or a second look at what was young would change its stamps meanwhile
        check(engine, root)
    stays(engine)


def stays(engine: Engine) -> None:
    """Check that a comparison of the whole store finds nothing that the watcher has not."""
    revision = engine.journal.revision()
    engine.check()
    assert engine.journal.revision() == revision


_QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")


@contextlib.contextmanager
def short_queue(events: int = 256) -> Iterator[None]:
    """Have the kernel keep so few events only for those who begin to watch meanwhile."""
    usual = _QUEUE.read_text()
    try:
        _QUEUE.write_text(str(events))
    except OSError:
        pytest.skip("the length of the queue cannot be set here")
    try:
        yield
    finally:
        _QUEUE.write_text(usual)
