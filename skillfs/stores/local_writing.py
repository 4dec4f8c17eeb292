"""How a local store is written to.

Every change is made in a folder that was opened confined, by the handle of that folder and one name, and no
call follows a link that bears the name. A file is written beside its place under a name that is left out of
skills, and takes its place by a rename when it is whole and on the disk. While it is written it is locked;
one that nobody holds a lock on is what a killed process left, and whoever writes or removes in its folder
sweeps it away.

A folder that was changed is on the disk when the call returns, or at the end of `together`: once for all that
was changed in it.

A folder that is moved away between its opening and the change is changed all the same, wherever it is then:
what lies outside was never looked up by name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterator

from skillfs.core.ignore import TEMPORARY
from skillfs.core.model import Place
from skillfs.stores.base import Sink
from skillfs.stores.confine import Opener

__all__ = ["LocalSink", "LocalWriting"]

BLOCK = 1 << 20
_PERMISSIONS = 0o777
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LEFT = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_NOT_EMPTY = frozenset((errno.ENOTEMPTY, errno.EEXIST))
_OF_TARGET = frozenset(
    (
        *(errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG),
        *(errno.ENOSPC, errno.EDQUOT, errno.EMLINK),
    )
)
_is_temporary = re.compile(TEMPORARY.encode()).fullmatch

MOST_COPIES = 4
"""How often a copy is begun when the file changes under it."""

MOST_HELD = 64
"""Folders that are held open until they are flushed; a process may often have 1,024 files open."""


class _Together(threading.local):
    """The folders that a thread has changed and are flushed later; None where each is flushed at once."""

    changed: dict[tuple[int, int], int] | None = None
    swept: set[tuple[int, int]] | None = None


_together = _Together()


class LocalWriting:
    """The methods of `WritableStore`, for a store that has handles of its roots."""

    holds_empty_folders = True
    _opener: Opener
    _fds: list[int]
    _devices: set[int]

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Flush the folders that this thread changes meanwhile at the end, each once, also after a failure.

        Raises:
            OSError: A folder cannot be flushed.
        """
        if _together.changed is not None:
            yield
            return
        changed = _together.changed = {}
        _together.swept = set()
        try:
            yield
        finally:
            _together.changed = _together.swept = None
            _flush(changed)

    def create(self, place: Place, *, exclusive: bool = False) -> LocalSink:
        """See `WritableStore.create`."""
        with self._holding(place) as (folder, name):
            return LocalSink(folder, name, exclusive)

    def touch(self, place: Place) -> None:
        """See `WritableStore.touch`: of a file with other names, a copy takes the place of this one."""
        with self._holding(place) as (folder, name):
            st = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if st.st_nlink == 1 or not stat.S_ISREG(st.st_mode):
                os.utime(name, dir_fd=folder, follow_symlinks=False)
                return
        self.copy(place, place)

    def remove(self, place: Place) -> None:
        """See `WritableStore.remove`."""
        with self._holding(place) as (folder, name):
            os.unlink(name, dir_fd=folder)
            _changed(folder)

    def make_folder(self, place: Place) -> None:
        """See `WritableStore.make_folder`."""
        with self._holding(place) as (folder, name):
            os.mkdir(name, dir_fd=folder)
            _changed(folder)

    def remove_folder(self, place: Place) -> None:
        """See `WritableStore.remove_folder`: what killed writers left in it does not count."""
        with self._holding(place) as (folder, name):
            try:
                os.rmdir(name, dir_fd=folder)
            except OSError as error:
                if error.errno not in _NOT_EMPTY or not self._swept(place):
                    raise
                os.rmdir(name, dir_fd=folder)
            _changed(folder)

    def _swept(self, place: Place) -> bool:
        fd = self._opener.folder(self._fds[0], place.path)
        try:
            return _sweep(fd)
        finally:
            os.close(fd)

    def move(self, source: Place, target: Place) -> None:
        """See `WritableStore.move`; an empty folder that lies there is replaced too.

        Raises:
            OSError: With the path, as `filename`, of the end that it is about.
        """
        with contextlib.ExitStack() as stack:
            with _about(source.path):
                folder, name = stack.enter_context(self._holding(source))
            with _about(target.path):
                to_folder, to_name = stack.enter_context(self._holding(target))
            hard_links = _are_hard_links(folder, name, to_folder, to_name)
            try:
                os.rename(name, to_name, src_dir_fd=folder, dst_dir_fd=to_folder)
            except OSError as error:
                error.filename, error.filename2 = source.path, None
                if error.errno in _OF_TARGET or (isinstance(error, PermissionError) and _may_change(folder)):
                    error.filename = target.path
                raise
            if hard_links:
                os.unlink(name, dir_fd=folder)
            _changed(to_folder)
            _changed(folder)

    def copy(self, source: Place, target: Place) -> None:
        """See `WritableStore.copy`: a new file has the permissions of its source.

        Raises:
            OSError: With the path, as `filename`, of the end that it is about; ESTALE when the source changes
                faster than it can be copied.
        """
        for _ in range(MOST_COPIES):
            with _about(source.path):
                fd = self._opener.file(self._fds[source.root], source.path)
            try:
                before = os.fstat(fd)
                with _about(target.path), self._holding(target) as (folder, name):
                    sink = LocalSink(folder, name, False, before.st_mode & _PERMISSIONS)
                try:
                    for block in _blocks(fd, source.path):
                        with _about(target.path):
                            sink.write(block)
                    if _version(os.fstat(fd)) == _version(before):
                        with _about(target.path):
                            sink.commit()
                        return
                finally:
                    sink.discard()
            finally:
                os.close(fd)
        raise OSError(errno.ESTALE, "the file changes faster than it can be copied", source.path)

    @contextlib.contextmanager
    def _holding(self, place: Place) -> Iterator[tuple[int, bytes]]:
        """The folder that holds a name, and the name.

        Raises:
            OSError: EXDEV when the folder lies on a device whose content is not served; see `Opener.holding`.
        """
        assert place.root == 0, "what lies in a followed folder is only ever read"
        with self._opener.holding(self._fds[0], place.path) as (folder, name):
            if os.fstat(folder).st_dev not in self._devices:
                raise OSError(errno.EXDEV, "another device is mounted there")
            yield folder, name


class LocalSink:
    """A file that is being written; see `Sink`.

    Filesystems without hard links cannot create a file exclusively; there it fails with EPERM.

    Args:
        folder: Descriptor of the folder it is to lie in; not kept.
        name: Its name.
        exclusive: Whether to fail when something bears the name by the time it is committed.
        permissions: Of a new file; None for what the process gives new files. One that is replaced keeps its.
    """

    def __init__(self, folder: int, name: bytes, exclusive: bool, permissions: int | None = None) -> None:
        self._fd = -1
        self._pid = os.getpid()
        self._folder = os.dup(folder)
        self._name = name
        self._exclusive = exclusive
        self._permissions = permissions
        self._temporary: bytes | None = None
        try:
            _sweep_once(folder)
            # Never more open than what it is going to be: it may replace something private.
            own = self._replaced()
            mode = own if own is not None else permissions if permissions is not None else 0o666
            while not self._open(mode):
                pass
        except BaseException:
            self.discard()
            raise

    def _open(self, mode: int) -> bool:
        """Make the temporary file; false when another has swept it away before it was locked."""
        temporary = b".skillfs-%s~" % secrets.token_hex(8).encode()
        self._fd = os.open(temporary, _NEW, mode, dir_fd=self._folder)
        self._temporary = temporary
        # Where files cannot be locked, nothing can be swept either.
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Another is sweeping it away at this moment; that it is still there says nothing.
                os.close(self._fd)
                self._fd, self._temporary = -1, None
                return False
        if os.fstat(self._fd).st_nlink:
            return True
        os.close(self._fd)
        self._fd, self._temporary = -1, None
        return False

    def write(self, data: bytes) -> None:
        """See `Sink.write`."""
        left = memoryview(data)
        while left:
            left = left[os.write(self._fd, left) :]

    def commit(self) -> None:
        """See `Sink.commit`; after a failure nothing is left either."""
        assert self._temporary is not None
        assert self._pid == os.getpid(), "in a forked child it is the parent's file still"
        try:
            kept = self._replaced()
            permissions = self._permissions if kept is None else kept
            if permissions is not None:
                os.fchmod(self._fd, permissions)
            os.fsync(self._fd)
            if self._exclusive:
                os.link(self._temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder,
                        follow_symlinks=False)  # fmt: skip
            else:
                os.rename(self._temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
                self._temporary = None
            _changed(self._folder)
        finally:
            self.discard()

    def discard(self) -> None:
        """See `Sink.discard`; nothing is done after a commit."""
        if self._temporary is not None:
            # In a forked child it is the parent's file still.
            if self._pid == os.getpid():
                with contextlib.suppress(OSError):
                    os.unlink(self._temporary, dir_fd=self._folder)
            self._temporary = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def _replaced(self) -> int | None:
        """The permissions of the file that bears the name now."""
        try:
            mode = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None
        return mode & _PERMISSIONS if stat.S_ISREG(mode) else None

    def __del__(self) -> None:
        self.discard()


def _are_hard_links(folder: int, name: bytes, to_folder: int, to_name: bytes) -> bool:
    """Whether two names are of one file: a rename then does nothing and leaves both."""
    try:
        one = os.stat(name, dir_fd=folder, follow_symlinks=False)
        two = os.stat(to_name, dir_fd=to_folder, follow_symlinks=False)
    except OSError:
        return False
    # One name in two spellings, where case does not count, is no pair: it has but one link.
    return (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino) and one.st_nlink > 1


def _may_change(folder: int) -> bool:
    return os.access(".", os.W_OK, dir_fd=folder, effective_ids=os.access in os.supports_effective_ids)


def _changed(folder: int) -> None:
    """See to it that a folder that was changed comes to be on the disk."""
    held = _together.changed
    if held is None:
        _sync_folder(folder)
        return
    st = os.fstat(folder)
    if (st.st_dev, st.st_ino) not in held:
        if len(held) >= MOST_HELD:
            _flush(held)
        held[st.st_dev, st.st_ino] = os.dup(folder)


def _sync_folder(folder: int) -> None:
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a filesystem that keeps no such promise for folders
            raise


def _flush(folders: dict[tuple[int, int], int]) -> None:
    """Flush folders and close them; all of them, whatever happens with one."""
    failed = None
    while folders:
        _, fd = folders.popitem()
        try:
            _sync_folder(fd)
        except OSError as error:
            failed = failed or error
        finally:
            os.close(fd)
    if failed is not None:
        raise failed


def _sweep_once(folder: int) -> None:
    """Sweep a folder; of many changes that are made together, before the first."""
    if _together.swept is not None:
        st = os.fstat(folder)
        if (st.st_dev, st.st_ino) in _together.swept:
            return
        _together.swept.add((st.st_dev, st.st_ino))
    _sweep(folder)


def _sweep(folder: int) -> bool:
    """Remove the temporary files of a folder that nobody writes to any more; returns whether there were any.

    Whoever makes one looks, after locking it, whether it is there still: so none is lost in between.
    """
    found = False
    for name in map(os.fsencode, os.listdir(folder)):
        if _is_temporary(name) is None:
            continue
        with contextlib.suppress(OSError):
            fd = os.open(name, _LEFT, dir_fd=folder)
            try:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(name, dir_fd=folder)
                    found = True
            finally:
                os.close(fd)
    return found


@contextlib.contextmanager
def _about(path: str) -> Iterator[None]:
    """Let errors of the system name a path of the store."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = path, None
        raise


def _version(st: os.stat_result) -> tuple[int, int, int]:
    return st.st_size, st.st_mtime_ns, st.st_ctime_ns


def _blocks(fd: int, path: str) -> Iterator[bytes]:
    while True:
        with _about(path):
            block = os.read(fd, BLOCK)
        if not block:
            return
        yield block


_SINK: type[Sink] = LocalSink
