"""The mount points of skillfs on this machine: which there are, how they stand, and unmounting them.

Of a mount point nothing is asked that its server would have to answer, for whoever does that hangs where the
server does. Only `states_of` asks, and waits for no answer for long.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import select
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from skillfs.errors import (
    InvalidArgumentError,
    NotFoundError,
    StoreUnavailableError,
    quoted,
)
from skillfs.fuse.library import DEVICE, FUSERMOUNT
from skillfs.fuse.operations import SERVER

__all__ = [
    "MOUNTS",
    "MountPoint",
    "Standing",
    "State",
    "is_mounted",
    "is_ready",
    "mount_point_at",
    "mount_points",
    "mount_points_of",
    "resolved",
    "states_of",
    "unmount",
    "unmount_with_server",
]

MOUNTS = "/proc/self/mountinfo"
"""Where the kernel tells what is mounted; its format is that of proc(5)."""

_KIND = b"fuse.skillfs"

ANSWER_SECONDS = 2.0
"""How long a server that is well may take to say that it is there, on a busy machine."""

END_SECONDS = 10.0
"""How long a server may take to end when its mount point is gone; it cuts off what is open after two."""

_UNMOUNT_SECONDS = 5.0
"""How long the system may take to unmount what is not in use."""


class MountPoint(NamedTuple):
    """A mount point of this user that skillfs made.

    Attributes:
        path: Absolute, without links.
        device: Number of the mounted filesystem, as the kernel writes it; another one after each mounting.
    """

    path: str
    device: str


class State(StrEnum):
    """How a mount point stands."""

    SERVED = "served"
    STALE = "stale"
    HUNG = "hung"


class Standing(NamedTuple):
    """How a mount point stands, and who serves it.

    Attributes:
        state: `served`; `stale` where the server is gone; `hung` where it does not answer.
        pid: The server's process; None where neither it nor the kernel could tell.
    """

    state: State
    pid: int | None


# -- what is mounted ---------------------------------------------------------------------------------------


class _Mounted(NamedTuple):
    path: str
    device: str
    root: bytes
    kind: bytes
    options: list[bytes]


def _mounted() -> Iterator[_Mounted]:
    """All that is mounted, what lies above something else at the same path after that."""
    with open(MOUNTS, "rb") as file:
        lines = file.read().split(b"\n")[:-1]  # no other break ends a line: names may hold them
    for line in lines:
        fields = line.split(b" ")
        after = fields.index(b"-", 6)
        path = os.fsdecode(re.sub(rb"\\([0-3][0-7]{2})", lambda octal: bytes([int(octal[1], 8)]), fields[4]))
        kind, options = fields[after + 1], fields[after + 3].split(b",")
        yield _Mounted(path, fields[2].decode(), fields[3], kind, options)


def mount_points() -> list[MountPoint]:
    """The mount points of this user, those of others being closed to everybody else, root included."""
    own = f"user_id={os.getuid()}".encode()
    tops = {one.path: one for one in _mounted()}
    return [
        MountPoint(one.path, one.device)
        for one in tops.values()
        if one.kind == _KIND and one.root == b"/" and own in one.options
    ]


def mount_point_at(path: str) -> MountPoint | None:
    """The mount point at a path as `resolved` gives it; None where there is none of this user's."""
    return next((point for point in mount_points() if point.path == path), None)


def mount_points_of(device: str) -> list[MountPoint]:
    """Where a mounted filesystem is to be found by now: folders above it may have been renamed."""
    return [point for point in mount_points() if point.device == device]


def is_mounted(device: str) -> bool:
    """Whether a mounted filesystem can still be reached by some path."""
    return any(one.device == device for one in _mounted())


def resolved(path: str | os.PathLike[str]) -> str:
    """A path without links, for which a mount point that it names itself is not asked.

    Raises:
        InvalidArgumentError: It is no path.
        NotFoundError: It is relative to a folder that is gone.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidArgumentError(f"the mount point is {quoted(path)}; pass the path of a folder")
    text = os.path.expanduser(text)
    head, name = os.path.split(text.rstrip("/"))
    try:
        if name not in ("", ".", ".."):
            unasked = os.path.join(os.path.realpath(head), name)
            if mount_point_at(unasked) is not None:
                return unasked
        return os.path.realpath(text)
    except FileNotFoundError:
        raise NotFoundError(
            f"{quoted(os.fspath(path))} is relative to the working folder, which is not there any more; "
            "change to another, or pass an absolute path"
        ) from None


# -- how they stand ----------------------------------------------------------------------------------------


def states_of(points: Sequence[MountPoint], seconds: float | None = None) -> list[Standing]:
    """How mount points stand, asked all at once.

    Args:
        points: Mount points.
        seconds: How long to wait for the answers of all; two by default.
    """
    found = [Standing(State.HUNG, None)] * len(points)

    def ask(number: int) -> None:
        found[number] = _standing(points[number])

    _try_apart(ask, range(len(points)), ANSWER_SECONDS if seconds is None else seconds)
    return [
        standing
        if standing.pid is not None or standing.state == State.STALE
        else Standing(standing.state, _server_of(point))
        for point, standing in zip(points, list(found), strict=True)
    ]


def _try_apart(action: Callable[[int], None], numbers: Sequence[int], seconds: float) -> None:
    """Do what may hang in the kernel, where nothing can end it, and wait no longer than a time."""
    # Not to be waited for at the end of the process either.
    threads = [threading.Thread(target=action, args=(number,), daemon=True) for number in numbers]
    deadline = time.monotonic() + seconds
    for number, thread in zip(numbers, threads, strict=True):
        try:
            thread.start()
        except RuntimeError:  # there are no new threads while Python ends, nor over a limit of the system
            action(number)
    for thread in threads:
        if thread.ident is not None:
            thread.join(max(0.0, deadline - time.monotonic()))


def _standing(point: MountPoint) -> Standing:
    try:
        told = json.loads(os.getxattr(point.path, SERVER))
        return Standing(State.SERVED, int(told["pid"]))
    except OSError as error:
        # A mount point that was unmounted meanwhile has no server either.
        gone = error.errno in (errno.ENOTCONN, errno.ECONNABORTED) or not is_mounted(point.device)
        return Standing(State.STALE if gone else State.SERVED, None)
    except (ValueError, KeyError, TypeError):
        return Standing(State.SERVED, None)


# -- unmounting --------------------------------------------------------------------------------------------


def unmount(
    point: MountPoint, shown: str, *, lazily: bool = False, seconds: float = _UNMOUNT_SECONDS
) -> None:
    """Unmount a mount point.

    Args:
        point: The mount point; nothing is done where it is none any more.
        shown: How errors call it.
        lazily: Whether it goes at once, whoever uses it.
        seconds: How long the system may take.

    Raises:
        StoreUnavailableError: It is in use, or the system refuses, or takes too long.
    """
    if not is_mounted(point.device):
        return
    # By its path alone: a search through PATH might lead into the very mount point.
    program = shutil.which(FUSERMOUNT)
    if program is None:
        raise StoreUnavailableError(
            f"{shown} is unmounted by {FUSERMOUNT}, which is not here; on Debian: apt-get install fuse3"
        )
    command = [program, "-u", *(["-z"] if lazily else []), point.path]
    told = b""

    def run(_: int) -> None:
        nonlocal told
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            told = subprocess.run(
                command,
                env={**os.environ, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=seconds,
                check=False,
            ).stderr

    _try_apart(run, range(1), seconds)
    if point not in mount_points():
        return
    if b"busy" in told:
        raise StoreUnavailableError(
            f"{shown} is in use; close the files and leave the folders in it (fuser -m MOUNTPOINT names who "
            "has them), or unmount it all the same: skillfs unmount --force MOUNTPOINT"
        )
    raise StoreUnavailableError(f"{shown} could not be unmounted; try: {FUSERMOUNT} -u -z MOUNTPOINT")


def unmount_with_server(
    mountpoint: str | os.PathLike[str], *, force: bool = False, seconds: float = END_SECONDS
) -> None:
    """Unmount a mount point, and wait for the end of its server.

    Args:
        mountpoint: The mount point.
        force: Whether it goes at once, whoever uses it.
        seconds: How long the server may take.

    Raises:
        InvalidArgumentError: It is no path, or no mount point of this user by skillfs.
        StoreUnavailableError: It is in use, or the system refuses; or it is unmounted, but the server stays.
    """
    shown = quoted(os.fspath(mountpoint)) if isinstance(mountpoint, str | os.PathLike) else ""
    point = mount_point_at(resolved(mountpoint))
    if point is None:
        raise InvalidArgumentError(
            f"{shown} is no mount point of yours by skillfs; list those there are: skillfs mountpoints"
        )
    (standing,) = states_of([point])
    if standing.state == State.HUNG and not force:
        raise StoreUnavailableError(
            f"{shown} has a server that does not answer; unmount it all the same: skillfs unmount --force "
            f"{shown}"
        )
    with contextlib.ExitStack() as stack:
        end = None
        if standing.pid is not None and _serves(standing.pid, point):
            with contextlib.suppress(OSError):  # it has just ended
                end = os.pidfd_open(standing.pid)
                stack.callback(os.close, end)
        # Where nobody answers, nobody uses it to any avail.
        unmount(point, shown, lazily=force or standing.state == State.STALE)
        if end is not None and not is_ready(end, seconds):
            raise StoreUnavailableError(
                f"{shown} is unmounted, but its server, process {standing.pid}, has not ended; "
                f"end it: kill -KILL {standing.pid}"
            )


def is_ready(file: int, seconds: float | None) -> bool:
    """Whether a file is ready for reading, or at its end, within a time; None for as long as it takes."""
    poll = select.poll()  # `select` takes no numbers over 1,023
    poll.register(file, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def _serves(pid: int, point: MountPoint) -> bool:
    """Whether a process is a server: one in another pid namespace tells a number that is no server's here."""
    return not _connections(pid).isdisjoint({"", _minor(point)})


def _server_of(point: MountPoint) -> int | None:
    """The server of a mount point, where it could not tell itself and the kernel does."""
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdecimal() and _minor(point) in _connections(int(name)):
                return int(name)
    return None


def _minor(point: MountPoint) -> str:
    return point.device.partition(":")[2]


def _connections(pid: int) -> set[str]:
    """The numbers of what a process serves; an empty text where the kernel does not tell."""
    found = set()
    folder = f"/proc/{pid}"
    with contextlib.suppress(OSError):
        for name in os.listdir(f"{folder}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"{folder}/fd/{name}") == DEVICE:
                    with open(f"{folder}/fdinfo/{name}", encoding="ascii") as file:
                        number = re.search(r"^fuse_connection:\s*(\d+)$", file.read(), re.MULTILINE)
                    found.add("" if number is None else number[1])
    return found
