"""The life of a server: it mounts, answers the kernel, and ends, whatever else ends first.

libfuse runs in a thread, so that the main one is free to notice what ends a server: a signal, the end of the
process that it serves for, or that its mount point was unmounted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

from skillfs.errors import SkillFSError, StoreUnavailableError
from skillfs.fuse.library import run
from skillfs.fuse.mountpoints import (
    MOUNTS,
    MountPoint,
    is_mounted,
    mount_point_at,
    mount_points_of,
    states_of,
    unmount,
)
from skillfs.fuse.operations import Operations
from skillfs.fuse.view import KernelView

__all__ = ["GRACE_SECONDS", "end_of_parent", "end_soon", "heed_signals", "serve"]

GRACE_SECONDS = 2.0
"""How long files may stay open when the server is to end; then whoever has them is told ENOTCONN."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# What is written to the pipe that the main thread reads, where no signals have numbers.
_ENDED = 0
_READY = 255

_PARENT_SECONDS = 0.5

_log = logging.getLogger("skillfs.fuse")


def serve(
    view: KernelView,
    mountpoint: str,
    *,
    allow_other: bool = False,
    on_ready: Callable[[MountPoint], object] = lambda point: None,
    parent: int | None = None,
) -> int:
    """Mount, and answer the kernel until told to end; to be called in the main thread.

    It ends at SIGTERM, SIGINT or SIGHUP, when the parent does, or when the mount point is unmounted. What is
    still open then keeps it for two seconds, or until a second signal; after that the process ends at once,
    without returning.

    Args:
        view: What is shown.
        mountpoint: An empty folder, absolute and without links.
        allow_other: Whether users other than this one may look in.
        on_ready: Called when it is mounted, with the mount point as the kernel lists it.
        parent: A file that is ready for reading when the parent has ended, as `end_of_parent` gives it.

    Returns:
        An exit status: 130 after SIGINT, as shells count, else 0.

    Raises:
        StoreUnavailableError: It cannot be mounted, or the folder is another one by now.
    """
    with _events() as (events, tell):
        server = _Server(view, mountpoint, allow_other, on_ready, tell)
        server.start()
        try:
            _attend(server, events, parent)
        except BaseException:
            server.abandon()
            raise
    return server.finish()


def _attend(server: _Server, events: int, parent: int | None) -> None:
    """Wait for what happens, until libfuse has ended."""
    with select.epoll() as poll, open(MOUNTS, "rb") as mounts:
        poll.register(events, select.EPOLLIN)
        poll.register(mounts, select.EPOLLPRI)  # which is how the kernel says that they changed
        if parent is not None:
            poll.register(parent, select.EPOLLIN)
        while not server.ended:
            for file, _ in poll.poll(server.seconds_left()):
                if file == events:
                    for event in os.read(events, 4096):
                        server.take(event)
                elif file == parent:
                    poll.unregister(file)
                    server.stop()
                else:
                    server.look()
            if server.seconds_left() == 0 and not server.ended:
                server.give_up()


class _Server:
    """What the main thread knows of the thread that answers."""

    def __init__(
        self,
        view: KernelView,
        mountpoint: str,
        allow_other: bool,
        on_ready: Callable[[MountPoint], object],
        tell: Callable[[int], None],
    ) -> None:
        self.ended = False
        self.status = 0
        self._view = view
        self._mountpoint = mountpoint
        self._allow_other = allow_other
        self._on_ready = on_ready
        self._tell = tell
        self._point: MountPoint | None = None
        self._unmounted = False
        self._deadline: float | None = None
        self._error: BaseException | None = None
        # Where libfuse does not end, the process does not wait for it.
        self._thread = threading.Thread(target=self._answer, name="skillfs-fuse", daemon=True)

    def start(self) -> None:
        """Begin to mount."""
        self._thread.start()

    def _answer(self) -> None:
        try:
            operations = Operations(self._view, on_ready=lambda: self._tell(_READY))
            run(operations, self._mountpoint, allow_other=self._allow_other)
        except BaseException as error:
            self._error = error
        finally:
            self._tell(_ENDED)

    def take(self, event: int) -> None:
        """Do what an event asks for."""
        if event == _ENDED:
            self.ended = True
        elif event == _READY:
            self._point = mount_point_at(self._mountpoint)
            if self._point is None:
                self._point = self._elsewhere()
                self._error = StoreUnavailableError(
                    "the folder was moved or replaced while it became a mount point; try again"
                )
                self.stop()
            elif self._deadline is None:
                self._on_ready(self._point)
            else:
                self._unmount()
        elif event in _SIGNALS:
            if event == signal.SIGINT:
                self.status = 128 + event
            if self._deadline is not None:
                self.give_up()
            self.stop()

    def _elsewhere(self) -> MountPoint | None:
        """Where it was mounted after all, as a link took the place of the folder."""
        point = mount_point_at(os.path.realpath(self._mountpoint))
        return point if point is not None and states_of([point])[0].pid == os.getpid() else None

    def look(self) -> None:
        """Something was mounted or unmounted; maybe this."""
        if self._point is not None and not is_mounted(self._point.device):
            self.stop()

    def stop(self) -> None:
        """Unmount, and let what is open be closed."""
        if self._deadline is None:
            self._deadline = time.monotonic() + GRACE_SECONDS
            self._unmount()

    def _unmount(self) -> None:
        point = self._point or mount_point_at(self._mountpoint)
        # Once only: afterwards the number of the device may be another's.
        if point is None or self._unmounted:
            return
        self._unmounted = True
        try:
            for each in mount_points_of(point.device):
                unmount(each, "the mount point", lazily=True, seconds=GRACE_SECONDS)
        except SkillFSError as error:
            _log.error("%s", error)

    def seconds_left(self) -> float | None:
        """How long files may stay open; None while the server is not to end."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def give_up(self) -> NoReturn:
        """End the process. The kernel tells whoever has something open that nobody is there any more."""
        self._unmount()
        # In a thread, as what is still being read may hold what this waits for.
        flushing = threading.Thread(target=self._view.flush, daemon=True)
        flushing.start()
        flushing.join(GRACE_SECONDS)
        os._exit(self.status)

    def abandon(self) -> None:
        """Unmount, as something else has failed."""
        self.stop()
        self._thread.join(GRACE_SECONDS)

    def finish(self) -> int:
        """The exit status; raises what libfuse was ended by."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self.status


@contextlib.contextmanager
def _events() -> Iterator[tuple[int, Callable[[int], None]]]:
    """A file from which the main thread reads what happens, and a way to write to it; signals do so too."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    lock = threading.Lock()
    is_open = True

    def tell(event: int) -> None:
        with lock:
            if is_open:
                os.write(writing, bytes([event]))

    # What is ignored stays so, as `nohup` has it. What is handled libfuse does not take.
    before = {
        number: signal.signal(number, lambda *_: None)
        for number in _SIGNALS
        if signal.getsignal(number) != signal.SIG_IGN
    }
    woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading, tell
    finally:
        signal.set_wakeup_fd(woken)
        for number, handler in before.items():
            signal.signal(number, handler)
        with lock:
            is_open = False
            os.close(reading)
            os.close(writing)


def heed_signals() -> None:
    """Take the signals that end a server, also where those who started this process ignore or block them."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_SIGNALS, signal.SIGALRM})


def end_soon() -> None:
    """See to it that this process, which has nothing left to do, does not wait for threads that go on."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)


def end_of_parent(pid: int) -> int:
    """A file that is ready for reading when the parent of this process has ended, or had before.

    Args:
        pid: The parent, as it told itself.
    """
    with contextlib.suppress(OSError):
        found = os.pidfd_open(pid)
        if os.getppid() == pid:
            return found
        os.close(found)  # somebody else's by now
    reading, writing = os.pipe2(os.O_CLOEXEC)

    def look() -> None:
        while os.getppid() == pid:
            time.sleep(_PARENT_SECONDS)
        os.close(writing)  # which is what makes the other end ready: EPOLLHUP

    threading.Thread(target=look, daemon=True).start()
    return reading
