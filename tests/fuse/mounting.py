"""What the tests of mount points share: a clean folder for one, and whether processes live."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillfs.fuse import spawning
from skillfs.fuse.mountpoints import mount_points

__all__ = ["SECONDS", "cleaned", "detach", "ended", "hasten", "held_open", "is_alive", "left_below", "stop"]

SECONDS = 30.0
"""For what takes a moment; only a guard."""


_HASTE = "import skillfs.fuse.serving\nskillfs.fuse.serving.GRACE_SECONDS = 0.2\n"


def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers that are started from now on wait for open files for a fifth of a second only."""
    monkeypatch.setattr(spawning, "_BEGIN", spawning._BEGIN.replace("runpy.run", f"{_HASTE}runpy.run"))


def left_below(folder: Path) -> list[str]:
    """The mount points in a folder."""
    return [point.path for point in mount_points() if point.path.startswith(f"{folder}/")]


def detach(path: str | os.PathLike[str]) -> None:
    """Unmount at once, as somebody from outside would."""
    subprocess.run(["fusermount3", "-u", "-z", path], check=True, timeout=SECONDS)


@contextlib.contextmanager
def cleaned(folder: Path) -> Iterator[Path]:
    """A folder in which a test mounts; whatever is left of it goes."""
    try:
        yield folder
    finally:
        while left := left_below(folder):
            for path in left:
                detach(path)


@contextlib.contextmanager
def held_open(path: Path) -> Iterator[int]:
    """An open file, whose server may be gone when it is closed: then that fails, too."""
    file = os.open(path, os.O_RDONLY)
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):
            os.close(file)


def stop(pid: int) -> None:
    """Let a process stand still, all of it."""
    os.kill(pid, signal.SIGSTOP)
    while any(_state(f"{pid}/task/{thread}") != "T" for thread in os.listdir(f"/proc/{pid}/task")):
        time.sleep(0.01)


def _state(process: str) -> str:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    return _state(str(pid)) not in "ZX"


def ended(pid: int) -> bool:
    """Wait for the end of a process, which need not be a child of this one."""
    try:
        file = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(file, select.POLLIN)
        return bool(poll.poll(SECONDS * 1000))
    finally:
        os.close(file)
