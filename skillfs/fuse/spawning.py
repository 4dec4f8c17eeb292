"""Servers as processes of their own, and the mount points that this process has by them.

No thread of the caller's own process answers the kernel: where it touches a mapped file of the mount point,
it would wait for itself while it keeps all of Python from running. The filesystem travels over the server's
standard input, as it may hold credentials, which neither arguments nor the environment may.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pickle
import subprocess
import sys
import weakref
from typing import TYPE_CHECKING, NamedTuple

import skillfs.errors
from skillfs.errors import InvalidArgumentError, SkillFSError, StoreUnavailableError, quoted
from skillfs.fuse.claiming import claimed, refuse_within
from skillfs.fuse.face import check_shareable, served_folders, urls_of
from skillfs.fuse.library import check_library
from skillfs.fuse.mountpoints import (
    MountPoint,
    State,
    is_ready,
    mount_point_at,
    mount_points,
    states_of,
    unmount,
)
from skillfs.fuse.serving import GRACE_SECONDS

if TYPE_CHECKING:
    from types import TracebackType

    from skillfs.fuse.face import KernelFace

__all__ = ["MountedFolder", "Order", "mount_folder", "start_server"]

# What `python -m skillfs.fuse` does, but with the places of modules that this process has.
_BEGIN = """
import pickle, runpy, sys
try:
    sys.path[:] = pickle.load(sys.stdin.buffer)
except EOFError:
    sys.exit()  # who started this was interrupted
runpy.run_module("skillfs.fuse", run_name="__main__", alter_sys=True)
"""

_LOOK_SECONDS = 0.25
_END_SECONDS = GRACE_SECONDS + 4


class Order(NamedTuple):
    """What a server is told on its standard input.

    Attributes:
        filesystem: The filesystem, pickled.
        urls: What its stores have to be, as `urls_of` tells it.
        mountpoint: As `claimed` gives it.
        allow_other: Whether other users may look in.
        channel: Number of the file to which it writes how it went, as JSON.
        parent: Process with which it ends.
        lives_on: Whether it does so only until it is mounted.
    """

    filesystem: bytes
    urls: list[tuple[str, str]]
    mountpoint: str
    allow_other: bool
    channel: int
    parent: int
    lives_on: bool


class MountedFolder:
    """A mount point that a process of its own serves; a context manager, and a path.

    Attributes:
        path: The mount point, absolute and without links.
        pid: The process that serves it.
    """

    def __init__(self, path: str, point: MountPoint, process: subprocess.Popen[bytes]) -> None:
        self.path = path
        self.pid = process.pid
        self._end = weakref.finalize(self, _end, os.getpid(), point, process)
        # Whoever does not keep what `mount` returns is not to see an empty folder.
        _mounted.add(self)

    def __enter__(self) -> MountedFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<MountedFolder of process {self.pid}{'' if self._end.alive else ', closed'}>"

    def close(self) -> None:
        """Unmount and end the server; whoever has files open for longer than two seconds loses them.

        To close what is closed does nothing, nor does it in a process forked from the one that mounted. What
        is left behind by a server that was killed is cleaned up.
        """
        self._end()
        _mounted.discard(self)


_mounted: set[MountedFolder] = set()
"""All that are not closed: they last for as long as this process, whoever refers to them."""


def mount_folder(
    fs: KernelFace, path: str | os.PathLike[str], *, force: bool = False, allow_other: bool = False
) -> MountedFolder:
    """Mount a filesystem for as long as this process runs; see `SkillFileSystem.mount`."""
    for name, value in (("force", force), ("allow_other", allow_other)):
        if not isinstance(value, bool):
            raise InvalidArgumentError(f"{name} is {quoted(value)}; pass True or False")
    check_library()
    mounts = fs.kernel_mounts()
    check_shareable(mounts)
    with claimed(path, force=force) as real:
        refuse_within(real, path, served_folders(mounts))
        point, process = start_server(fs, real, allow_other=allow_other)
    return MountedFolder(real, point, process)


def start_server(
    fs: KernelFace, mountpoint: str, *, allow_other: bool = False, lives_on: bool = False
) -> tuple[MountPoint, subprocess.Popen[bytes]]:
    """Start a server, and wait until the mount point answers, however long the stores take to open.

    It has a session of its own, so that no terminal ends it, neither by an interrupt nor with itself.

    Args:
        fs: The filesystem.
        mountpoint: As `claimed` gives it.
        allow_other: Whether other users may look in.
        lives_on: Whether it goes on when this process ends, once it is mounted.

    Returns:
        The mount point, and the server's process.

    Raises:
        InvalidArgumentError: The filesystem cannot be made again in another process.
        SkillFSError: As the server told it.
        StoreUnavailableError: The server ended without a word.
    """
    mounts = fs.kernel_mounts()
    check_shareable(mounts)
    try:
        pickled = pickle.dumps(fs)
    except Exception as error:  # whatever an object of the caller raises
        raise InvalidArgumentError(
            "the filesystem cannot be sent to the process that is to serve it; open it with arguments that "
            "can be pickled"
        ) from error
    process, reading, writing = _started(mountpoint)
    try:
        order = Order(pickled, urls_of(mounts), mountpoint, allow_other, writing, os.getpid(), lives_on)
        _send(process, order)
        point = MountPoint(mountpoint, _told(process, reading))
        states_of([point])  # which returns when it answers
        return point, process
    except BaseException:
        _end(os.getpid(), mount_point_at(mountpoint), process)
        raise
    finally:
        os.close(reading)


def _started(mountpoint: str) -> tuple[subprocess.Popen[bytes], int, int]:
    """A process that is to serve, a file to read what it tells, and the number by which it writes there.

    Raises:
        StoreUnavailableError: The system refuses.
    """
    with contextlib.ExitStack() as stack:
        try:
            reading, low = os.pipe()
            stack.callback(os.close, reading)
            with open(low, "wb"):
                # Where this process has closed its standard files, the pipe took their numbers.
                writing = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 3)
            stack.callback(os.close, writing)
            process = subprocess.Popen(
                # Of what the filesystem warns whoever opened it knows. The last is for people.
                [sys.executable or "", "-P", "-W", "ignore", "-c", _BEGIN, mountpoint],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(writing,),
                start_new_session=True,
            )
        except OSError as error:
            raise StoreUnavailableError(
                f"no process could be started to serve the mount point ({error.strerror}); "
                "see sys.executable, and the limits of this process: ulimit -a"
            ) from error
        stack.pop_all()
        os.close(writing)
        return process, reading, writing


def _send(process: subprocess.Popen[bytes], order: Order) -> None:
    assert process.stdin is not None
    # Where it has ended already, `_told` notices.
    with contextlib.suppress(BrokenPipeError), process.stdin as stream:
        # The order by itself, as its class can be found by the places only.
        stream.write(pickle.dumps(sys.path) + pickle.dumps(tuple(order)))


def _told(process: subprocess.Popen[bytes], channel: int) -> str:
    """What a server tells: the device that is mounted.

    Raises:
        SkillFSError: As it tells it.
        StoreUnavailableError: It ended without a word.
    """
    data = b""
    while not data.endswith(b"\n"):
        # Not by the end of the file alone, as others may have been forked with it.
        ended = process.poll() is not None
        if is_ready(channel, 0 if ended else _LOOK_SECONDS):
            part = os.read(channel, 4096)
            data += part
            ended = ended or not part
        elif not ended:
            continue
        if ended and not data.endswith(b"\n"):
            raise StoreUnavailableError(
                "the process that was to serve the mount point ended early; what it wrote on standard error "
                "says why, else try again"
            )
    told = json.loads(data)
    if "error" in told:
        kind = getattr(skillfs.errors, told["error"], None)
        if not (isinstance(kind, type) and issubclass(kind, SkillFSError)):
            kind = StoreUnavailableError
        raise kind(told["message"])
    device: str = told["device"]
    return device


def _end(owner: int, point: MountPoint | None, process: subprocess.Popen[bytes]) -> None:
    """End a server that this process started, and see to it that its mount point is none any more."""
    if os.getpid() != owner:
        return
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_END_SECONDS)
    # The kernel gives numbers of devices again: what is served now is not what this server has left.
    if point in mount_points() and states_of([point])[0].state == State.STALE:
        unmount(point, "the mount point", lazily=True)
