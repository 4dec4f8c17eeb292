"""The requests of the kernel, answered from a `KernelView`."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from skillfs.errors import ChangedError
from skillfs.fuse.files import OpenFiles
from skillfs.fuse.versions import Versions, stale
from skillfs.fuse.view import KernelView, Node, NodeKind
from skillfs.stores.base import is_unsettled

__all__ = ["Operations"]

ATTRIBUTE = "user.skillfs."
SERVER = "user.skillfs.server"
"""Extended attribute of the root alone: who serves it."""

KEPT_SECONDS = 0.1
"""How long the kernel keeps names and attributes: what is listed is looked at right afterwards."""

TOLD_SECONDS = KEPT_SECONDS + 1.0
"""How long it may go on believing what it was told: an answer can wait for a processor on the way to it."""

STILL_SECONDS = 3600.0
"""The same where nothing ever changes."""

_BLOCK = 4096
_MOST_PAGED = 10_000
"""Files of which it is remembered what version of them the kernel may hold in its pages."""

_LONGEST_NAME = 255
_MOST_LOOKS = 5


class Operations:
    """What libfuse calls, from several threads at once. What it raises is told by its `errno`.

    Args:
        view: What is shown.
        on_ready: Called once, when the kernel has mounted.

    Attributes:
        ask_again: Makes the kernel forget the attributes of what lies at a path; set by who knows a kernel.
    """

    use_ns = True

    def __init__(self, view: KernelView, on_ready: Callable[[], object] = lambda: None) -> None:
        self.ask_again: Callable[[str], object] = lambda path: None
        self._view = view
        self._on_ready = on_ready
        self._still = view.is_still
        self._seconds = STILL_SECONDS if self._still else KEPT_SECONDS
        self._config: Any = None
        self._files = OpenFiles()
        self._versions = Versions(TOLD_SECONDS, self._on_outdated)
        self._lock = threading.Lock()
        self._correcting: dict[str, threading.Event] = {}
        self._pages: dict[str, bytes] = {}
        self._folders: dict[int, tuple[str, list[tuple[bytes, Node]]]] = {}
        self._last = 0

    def init_with_config(self, connection: Any, config: Any) -> None:
        """Set what the kernel keeps, and say that it has mounted."""
        config.use_ino = 1
        config.entry_timeout = config.attr_timeout = self._seconds
        self._config = config
        self._on_ready()

    def destroy(self, path: str) -> None:
        """Close what is open."""
        self._config = None
        self._files.close_all()
        self._view.flush()

    # -- nodes ---------------------------------------------------------------------------------------------

    def getattr(self, path: str, handle: int | None = None) -> Node:
        """The attributes of what lies at a path; of an open file those of the version that is open.

        Raises:
            OSError: The file is open, and another by now (ESTALE).
        """
        if handle is not None and (node := self._versions.tell_open(handle)) is not None:
            return node
        for _ in range(_MOST_LOOKS):
            moment = self._versions.moment()
            node = self._view.node(path)
            if self._still or node.kind != NodeKind.FILE or self._versions.tell(path, node, moment):
                return node
        raise stale()

    def _on_outdated(self, outdated: bool) -> None:
        # As long as somebody has a version open that is no more, the kernel may keep no attributes: then it
        # asks before each reading. libfuse takes the number from here for each answer, for whatever file.
        if self._config is not None:
            self._config.attr_timeout = 0.0 if outdated else self._seconds

    def readlink(self, path: str) -> str:
        """Where a link leads."""
        node = self._view.node(path)
        if node.kind != NodeKind.LINK:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return node.target

    def opendir(self, path: str) -> int:
        """Take the list of a folder, which the kernel then reads in pieces."""
        found = self._view.listing(path)
        nodes = [(b".", found.own), (b"..", found.above)]
        nodes += [(name.encode(), node) for name, node in found.nodes]
        with self._lock:
            self._last += 1
            self._folders[self._last] = path, nodes
            return self._last

    def listed(self, handle: int, offset: int) -> Iterator[tuple[int, bytes, Node, bool]]:
        """What an open folder holds from an offset on.

        Yields:
            The offset of the next, a name, what it names, and whether the kernel is to know that: a listing
            is older than what is open.
        """
        path, listing = self._folders[handle]
        above = path if path == "/" else path + "/"
        for number in range(offset, len(listing)):
            name, node = listing[number]
            known = name not in (b".", b"..")
            if node.kind == NodeKind.FILE and not self._still:
                known = self._versions.tell_listed(above + name.decode(), node)
            yield number + 1, name, node, known

    # libfuse takes a folder for one that can be listed by this; `listed` does it.
    def readdir(self, path: str, handle: int) -> list[str]:
        """Not called."""
        raise NotImplementedError

    def releasedir(self, path: str, handle: Any) -> int:
        """Forget an open folder."""
        with self._lock:
            self._folders.pop(handle, None)
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        """How much there is: nothing is free."""
        totals = self._view.totals()
        blocks = (totals.bytes + _BLOCK - 1) // _BLOCK
        return {
            "f_bsize": _BLOCK,
            "f_frsize": _BLOCK,
            "f_blocks": blocks,
            "f_files": totals.files,
            "f_namemax": _LONGEST_NAME,
        }

    # -- files ---------------------------------------------------------------------------------------------

    def open(self, path: str, info: Any) -> int:
        """Open a file.

        Two versions of a file that are open at once share the kernel's pages, so the later one is read past
        these; one of unknown size too, as the kernel would read none of it. Pages are kept from one opening
        to the next where it is certain that they are of the same version.
        """
        for _ in range(_MOST_LOOKS):
            moment = self._versions.moment()
            file, node, sized = self._view.open(path)
            handle = self._files.add(file)
            others = self._versions.add(handle, path, node, moment)
            if others is not None:
                break
            self._files.remove(handle)
        else:
            raise stale()
        info.fh = handle
        info.direct_io = others or not sized
        with self._lock:
            paged = self._pages.pop(path, None)
            info.keep_cache = self._still or (not info.direct_io and paged == file.state.signature)
            if not info.direct_io and not is_unsettled(file.state):
                if len(self._pages) >= _MOST_PAGED:
                    self._pages.clear()
                self._pages[path] = node.version
        if not self._still:
            self._correct(path, node)
        return 0

    def _correct(self, path: str, node: Node) -> None:
        """Where the kernel may believe that a file is another than the one just opened, make it ask again.

        It would read no further than the file that it believes in. Forgetting waits for those who are
        reading, and these may wait for a thread of ours: so nobody waits for another who makes it forget for
        longer than the kernel remembers by itself.
        """
        with self._lock:
            other = self._correcting.get(path)
            if other is None:
                if not self._versions.believes_other(path, node):
                    return
                own = self._correcting[path] = threading.Event()
        if other is not None:
            other.wait(2 * KEPT_SECONDS)
            return
        try:
            self.ask_again(path)
        finally:
            del self._correcting[path]
            own.set()

    def read(self, path: str, size: int, offset: int, info: Any) -> bytes:
        """Bytes of an open file."""
        handle: int = info.fh
        try:
            with self._versions.reading(handle):
                return self._files.read(handle, offset, size)
        except ChangedError:
            self._versions.give_up(handle)
            raise

    def release(self, path: str, info: Any) -> int:
        """Close a file; the path may be another by now."""
        handle: int = info.fh
        self._versions.remove(handle)
        self._files.remove(handle)
        return 0

    # -- extended attributes -------------------------------------------------------------------------------

    def listxattr(self, path: str) -> list[str]:
        """The names of what else is known of an entry."""
        names = [ATTRIBUTE + name for name in self._view.facts(path)]
        return [*names, SERVER] if path == "/" else names

    def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
        """What else is known of an entry; a hash is computed where it is not known."""
        value = None
        if name == SERVER and path == "/":
            value = json.dumps({"pid": os.getpid()})
        elif name.startswith(ATTRIBUTE):
            value = self._view.fact(path, name.removeprefix(ATTRIBUTE))
        if value is None:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        return value.encode()
