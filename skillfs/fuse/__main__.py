"""A server as a process of its own, as `skillfs.fuse.spawning` starts it; not to be called by hand."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
import threading
from typing import TYPE_CHECKING

from skillfs.errors import InvalidArgumentError, SkillFSError
from skillfs.fuse.face import urls_of
from skillfs.fuse.mountpoints import MountPoint, is_ready
from skillfs.fuse.serving import end_of_parent, end_soon, heed_signals, serve
from skillfs.fuse.spawning import Order

if TYPE_CHECKING:
    from skillfs.fuse.face import KernelFace


def main() -> int:
    """Serve what standard input says.

    Returns:
        The exit status.
    """
    heed_signals()
    order = Order(*pickle.load(sys.stdin.buffer))
    os.set_inheritable(order.channel, False)
    _discard(0, os.O_RDONLY)
    if sys.stderr is None:
        _discard(2, os.O_WRONLY)  # closed, it would be the next file that is opened, and be written to
    parent, serving = end_of_parent(order.parent), threading.Event()
    threading.Thread(target=_end_with, args=(parent, serving), daemon=True).start()

    def ready(point: MountPoint) -> None:
        _tell(order.channel, {"device": point.device})
        if order.lives_on:
            _discard(2, os.O_WRONLY)  # whoever reads what this process was started with waits for its end

    try:
        fs = _opened(order)
        view = fs.kernel_view()
        serving.set()
        status = serve(
            view,
            order.mountpoint,
            allow_other=order.allow_other,
            on_ready=ready,
            parent=None if order.lives_on else parent,
        )
        end_soon()
        return status
    except SkillFSError as error:
        _tell(order.channel, {"error": type(error).__name__, "message": error.message})
        return 1


def _opened(order: Order) -> KernelFace:
    """The filesystem again.

    Raises:
        InvalidArgumentError: It cannot be made here, or is another one here.
        SkillFSError: A store cannot be opened.
    """
    try:
        fs: KernelFace = pickle.loads(order.filesystem)
    except SkillFSError:
        raise
    except (AttributeError, ImportError, pickle.UnpicklingError) as error:
        raise InvalidArgumentError(
            "the filesystem cannot be made again in the process that is to serve it; what it is made of has "
            "to be defined in modules that can be imported"
        ) from error
    if urls_of(fs.kernel_mounts()) != order.urls:
        raise InvalidArgumentError(
            "a store is another one in the process that is to serve it; open it by an absolute path"
        )
    return fs


def _end_with(parent: int, serving: threading.Event) -> None:
    """End while the stores are being opened, when nobody waits for that any more; later `serve` does it."""
    if is_ready(parent, None) and not serving.is_set():
        os._exit(0)


def _tell(channel: int, told: dict[str, str]) -> None:
    with contextlib.suppress(BrokenPipeError):  # who started this may have ended
        os.write(channel, json.dumps(told).encode() + b"\n")


def _discard(number: int, flags: int) -> None:
    file = os.open(os.devnull, flags)
    if file != number:  # which it is where that was closed
        os.dup2(file, number)
        os.close(file)


if __name__ == "__main__":
    sys.exit(main())
