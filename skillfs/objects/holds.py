"""How those who work on one folder of objects keep out of each other's way, on different machines.

Who wants to work raises a flag: a small object `holds/shared-<id>`, or `holds/alone-<id>`, under an id that
nobody else has. Only then the flags are listed. A filesystem that lists what was written before, as S3 does,
shows at least one of two their flags to the other; what they do then is this:

* Who wants to be alone and sees any other flag takes its own down, waits for a moment of random length, and
  begins anew.
* Who goes with others and sees a flag of somebody alone leaves its own up and waits until that is down. The
  other was at work before, and will end; or sees this flag, and gives way.

A flag is renewed every ten minutes. One that was not for an hour is of somebody who was killed, and is taken
down by whoever comes by. How old a flag is, is measured between the times that the filesystem itself gives to
it and to one's own, so that no two clocks are compared. Who could not renew its flag for nearly an hour, such
as a machine that slept, has lost its hold: from then on it creates and removes nothing.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import secrets
import threading
import time
from collections.abc import Iterator

from skillfs.errors import SkillFSError, StoreUnavailableError
from skillfs.objects.folder import ObjectInfo
from skillfs.objects.locking import refuse_busy
from skillfs.stores.source import Source, WritableSource

__all__ = ["Holds"]

RENEWED_SECONDS = 600.0
DEAD_SECONDS = 3_600.0
LOST_SECONDS = 3_000.0
"""A hold that was not renewed for so long is lost: some time before others take its flag down."""

WAIT_SECONDS = 10.0
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0

_FOLDER = "holds"
_is_flag = re.compile(r"holds/(shared|alone)-[0-9a-f]{32}").fullmatch


class Holds:
    """The holds on a folder of objects, of this process and of others.

    Args:
        source: The filesystem, below whose root the folder lies.

    Attributes:
        example: A name that a flag can have.
    """

    example = f"{_FOLDER}/shared-"

    def __init__(self, source: Source) -> None:
        self._source = source
        self._own: list[_Flag] = []

    @contextlib.contextmanager
    def holding(self, target: WritableSource, *, alone: bool, wait: bool) -> Iterator[None]:
        """See `ObjectFolder.holding`.

        Args:
            target: The filesystem.
            alone: Whether nobody else may be at work.
            wait: Whether to wait for others.
        """
        flag = _Flag(target, "alone" if alone else "shared")
        try:
            self._get(flag, alone, time.monotonic() + (WAIT_SECONDS if wait else 0))
            self._own.append(flag)
            flag.keep_up()
            yield
        finally:
            with contextlib.suppress(ValueError):
                self._own.remove(flag)
            flag.end()

    def _get(self, flag: _Flag, alone: bool, until: float) -> None:
        pause = FIRST_PAUSE
        flag.put_up()
        while True:
            others = [key for key, is_dead in self._others(flag) if not is_dead]
            if not alone:
                others = [key for key in others if "alone-" in key]
            if not others:
                return
            if alone:
                flag.take_down()
            if time.monotonic() + pause > until:
                refuse_busy(alone=alone)
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE)
            if alone:
                flag.put_up()

    def _others(self, own: _Flag) -> Iterator[tuple[str, bool]]:
        """The flags of others, and whether they are of somebody who is gone; such are taken down."""
        flags = self._flags()
        now = flags.pop(own.key, None)
        if now is None:  # a listing that is behind: whoever trusted it would not see the others either
            raise StoreUnavailableError(
                "the filesystem of the object folder does not list at once what is written; "
                "several cannot work on it at a time: try again, or name another"
            )
        for key, info in flags.items():
            is_dead = self._time(now) - self._time(info) > DEAD_SECONDS * 1e9
            if is_dead:
                with contextlib.suppress(SkillFSError, OSError):
                    own.target.delete(key)
            yield key, is_dead

    def _flags(self) -> dict[str, ObjectInfo]:
        return {
            key: ObjectInfo(key, state.size, state.modified)
            for key, kind, state in self._source.find(_FOLDER)
            if kind == "file" and _is_flag(key)
        }

    def _time(self, flag: ObjectInfo) -> int:
        """When a flag was put up or renewed: as the filesystem tells it, else as it says itself."""
        if flag.modified:
            return flag.modified
        try:
            return int(self._source.head(flag.name, 32)[1])
        except (OSError, ValueError):
            return time.time_ns()

    def abandoned(self, *, remove: bool) -> list[ObjectInfo]:
        """The flags of those who are gone; `remove` takes them down.

        Without a flag of one's own to compare with, the clock of this machine has to do.
        """
        found = []
        for key, info in sorted(self._flags().items()):
            if time.time_ns() - self._time(info) > DEAD_SECONDS * 1e9:
                found.append(info)
                if remove and self._source.writable:
                    with contextlib.suppress(SkillFSError, OSError):
                        self._source.delete(key)  # type: ignore[attr-defined]  # it is writable
        return found

    def check(self) -> None:
        """See that no hold of this process has been lost.

        Raises:
            StoreUnavailableError: One has.
        """
        if any(flag.is_lost for flag in self._own if flag.pid == os.getpid()):
            raise StoreUnavailableError(
                "this process was not heard of for too long, and others may be working on the object folder "
                "now; begin anew"
            )


class _Flag:
    """A flag of this process.

    Attributes:
        target: The filesystem.
        key: Its name in that.
        pid: The process; in a forked child it is the parent's still.
    """

    def __init__(self, target: WritableSource, kind: str) -> None:
        self.target = target
        self.key = f"{_FOLDER}/{kind}-{secrets.token_hex(16)}"
        self.pid = os.getpid()
        self._renewed = 0.0
        self._is_up = False
        self._ended = threading.Event()
        self._changing = threading.Lock()

    def put_up(self) -> None:
        """Put it up, or renew it."""
        now = _clock()
        self._is_up = True
        text = str(time.time_ns()).encode()
        self.target.put(self.key, io.BytesIO(text), len(text), exclusive=False)
        self._renewed = now

    def keep_up(self) -> None:
        """Renew it from time to time until it is taken down."""
        threading.Thread(target=self._keep_up, name="skillfs-hold", daemon=True).start()

    def _keep_up(self) -> None:
        while not self._ended.wait(RENEWED_SECONDS) and not self.is_lost:
            with self._changing, contextlib.suppress(SkillFSError, OSError):
                if not self._ended.is_set():
                    self.put_up()

    @property
    def is_lost(self) -> bool:
        """Whether others may take it for that of somebody who is gone."""
        return _clock() - self._renewed > LOST_SECONDS

    def end(self) -> None:
        """Take it down for good."""
        if self.pid == os.getpid():
            self._ended.set()
            with self._changing:
                self.take_down()

    def take_down(self) -> None:
        """Take it down; should that fail, it counts for nothing in an hour."""
        if self._is_up:
            self._is_up = False
            with contextlib.suppress(SkillFSError, OSError):
                self.target.delete(self.key)


def _clock() -> float:
    """Seconds that also pass while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.time() if clock is None else time.clock_gettime(clock)
