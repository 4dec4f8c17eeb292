"""How a local store is written to.

Every change is made in a folder that was opened confined, by the handle of that folder and one name, and no
call follows a link that bears the name. A file is written beside its place under a name that is left out of
skills, and takes its place by a rename when it is whole and on the disk.

A folder that is moved away between its opening and the change is changed all the same, wherever it is then:
what lies outside was never looked up by name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator

from skillfs.core.model import Place
from skillfs.stores.base import Sink
from skillfs.stores.confine import Opener

__all__ = ["LocalSink", "LocalWriting"]

BLOCK = 1 << 20
_PERMISSIONS = 0o777
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

MOST_COPIES = 4
"""How often a copy is begun when the file changes under it."""


class LocalWriting:
    """The methods of `WritableStore`, for a store that has handles of its roots."""

    holds_empty_folders = True
    _opener: Opener
    _fds: list[int]
    _devices: set[int]

    def create(self, place: Place, *, exclusive: bool = False) -> LocalSink:
        """See `WritableStore.create`."""
        with self._holding(place) as (folder, name):
            return LocalSink(folder, name, exclusive)

    def touch(self, place: Place) -> None:
        """See `WritableStore.touch`."""
        with self._holding(place) as (folder, name):
            os.utime(name, dir_fd=folder, follow_symlinks=False)

    def remove(self, place: Place) -> None:
        """See `WritableStore.remove`."""
        with self._holding(place) as (folder, name):
            os.unlink(name, dir_fd=folder)
            _sync_folder(folder)

    def make_folder(self, place: Place) -> None:
        """See `WritableStore.make_folder`."""
        with self._holding(place) as (folder, name):
            os.mkdir(name, dir_fd=folder)
            _sync_folder(folder)

    def remove_folder(self, place: Place) -> None:
        """See `WritableStore.remove_folder`."""
        with self._holding(place) as (folder, name):
            os.rmdir(name, dir_fd=folder)
            _sync_folder(folder)

    def move(self, source: Place, target: Place) -> None:
        """See `WritableStore.move`."""
        with self._holding(source) as (folder, name), self._holding(target) as (to_folder, to_name):
            hard_links = _are_hard_links(folder, name, to_folder, to_name)
            os.rename(name, to_name, src_dir_fd=folder, dst_dir_fd=to_folder)
            if hard_links:
                os.unlink(name, dir_fd=folder)
            _sync_folder(to_folder)
            _sync_folder(folder)

    def copy(self, source: Place, target: Place) -> None:
        """See `WritableStore.copy`: a new file has the permissions of its source.

        Raises:
            OSError: ESTALE when the source changes faster than it can be copied.
        """
        for _ in range(MOST_COPIES):
            fd = self._opener.file(self._fds[source.root], source.path)
            try:
                before = os.fstat(fd)
                with self._holding(target) as (folder, name):
                    sink = LocalSink(folder, name, False, before.st_mode & _PERMISSIONS)
                try:
                    for block in _blocks(fd):
                        sink.write(block)
                    if _version(os.fstat(fd)) == _version(before):
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
            # Never more open than what it is going to be: it may replace something private.
            own = self._replaced()
            mode = own if own is not None else permissions if permissions is not None else 0o666
            temporary = b".skillfs-%s~" % secrets.token_hex(8).encode()
            self._fd = os.open(temporary, _NEW, mode, dir_fd=self._folder)
            self._temporary = temporary
        except BaseException:
            self.discard()
            raise

    def write(self, data: bytes) -> None:
        """See `Sink.write`."""
        left = memoryview(data)
        while left:
            left = left[os.write(self._fd, left) :]

    def commit(self) -> None:
        """See `Sink.commit`; after a failure nothing is left either."""
        assert self._temporary is not None
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
            _sync_folder(self._folder)
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


def _sync_folder(folder: int) -> None:
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a filesystem that keeps no such promise for folders
            raise


def _version(st: os.stat_result) -> tuple[int, int, int]:
    return st.st_size, st.st_mtime_ns, st.st_ctime_ns


def _blocks(fd: int) -> Iterator[bytes]:
    while block := os.read(fd, BLOCK):
        yield block


_SINK: type[Sink] = LocalSink
