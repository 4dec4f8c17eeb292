"""A folder of objects on a local disk.

An object is written under a temporary name, brought to the disk, and only then gets its name by a rename;
what is seen under a name is whole. Of many objects the contents are brought to the disk together, by one call
for the filesystem; likewise the folders that have got new names.

The temporary files of a writer lie in a folder of its own, `tmp/<16 hex digits>/`, which it holds a lock on.
One that nobody holds is what a killed process has left, and goes with the next writer.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

from skillfs.core.manifest_json import MOST_JSON_BYTES
from skillfs.errors import (
    IntegrityError,
    InvalidArgumentError,
    NotFoundError,
    SkillFSError,
    StoreUnavailableError,
    quoted,
)
from skillfs.objects.folder import (
    BAD,
    BLOBS,
    LABELS,
    SNAPSHOTS,
    ObjectFolder,
    ObjectInfo,
    bad_name,
    check_name,
    check_prefix,
    is_name,
)
from skillfs.objects.locking import locked
from skillfs.objects.system import OTHER_KIND, sync_filesystem, sync_folder, telling, told
from skillfs.objects.temporary import TMP, Temporary, sweep
from skillfs.stores.confine import open_root, opener
from skillfs.stores.local import LocalHandle

__all__ = ["LocalObjects", "check_outside"]

_NO_LINKS = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK))


def check_outside(root: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
    """See that an object folder does not lie in a skill of a local store.

    Args:
        root: Root of the store.
        folder: The object folder, which need not be there yet.

    Raises:
        InvalidArgumentError: It does.
    """
    top, path = os.path.realpath(root), _real_path(os.fspath(folder))
    while path == top or path.startswith(top.rstrip("/") + "/"):
        if os.path.isfile(os.path.join(path, "SKILL.md")):
            raise InvalidArgumentError(
                f"the object folder {quoted(os.fspath(folder))} lies in a skill; keep it outside of skills"
            )
        path = os.path.dirname(path)


def _real_path(text: str) -> str:
    if not text or "\0" in text:
        raise InvalidArgumentError(f"objects is {quoted(text)}; pass the path of a folder, or a URL")
    try:
        return os.path.realpath(os.path.expanduser(text))
    except OSError as error:
        raise InvalidArgumentError(
            f"the object folder {quoted(text)} is relative, and the working folder is not there any more; "
            "change to another, or pass an absolute path"
        ) from error


class LocalObjects:
    """A folder of objects on a local disk; see `ObjectFolder`.

    Args:
        path: The folder. `~` is expanded; a link is followed once, here.
        create: Whether to make it, for this user only, when it is not there.

    Raises:
        InvalidArgumentError: The path is none, or of something else than a folder.
        NotFoundError: It is not there, and not to be made.
        UnreadableError: This user may not read or make it.
        StoreUnavailableError: It cannot be made or read now.

    Attributes:
        path: Where it lies.
    """

    remote = False

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        self._fd = -1
        self._retired: list[int] = []
        self._known = (-1, -1)
        self.path = _real_path(os.fspath(path))
        self.url = f"file://{self.path}"
        self._opener = opener()
        try:
            if create:
                _make_private(self.path)
            self._root()
        except NotFoundError as error:
            raise NotFoundError(
                f"there is no object folder {quoted(os.fspath(path))}; take a snapshot, or name another"
            ) from error
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.EEXIST) and not isinstance(error, SkillFSError):
                raise InvalidArgumentError(
                    f"the object folder {quoted(os.fspath(path))} is no folder; name another"
                ) from error
            raise told(error) from error

    def open(self, name: str) -> LocalHandle:
        """See `ObjectFolder.open`."""
        with telling():
            return LocalHandle(self._opener.file(self._root(), check_name(name)))

    def get(self, name: str) -> bytes:
        """See `ObjectFolder.get`."""
        with self.open(name) as handle, telling():
            if handle.state.size > MOST_JSON_BYTES:
                raise IntegrityError("an object is larger than it can be; run: skillfs snapshot fsck")
            return handle.read(0, handle.state.size + 1)

    def get_all(self, names: Sequence[str]) -> list[bytes | None]:
        """See `ObjectFolder.get_all`."""
        found: list[bytes | None] = []
        for name in names:
            try:
                found.append(self.get(name))
            except FileNotFoundError:
                found.append(None)
        return found

    def has(self, name: str, size: int | None = None) -> bool:
        """See `ObjectFolder.has`."""
        with telling():
            try:
                st = self._opener.stat(self._root(), check_name(name))
                return stat.S_ISREG(st.st_mode) and size in (None, st.st_size)
            except FileNotFoundError:
                return False
            except OSError as error:
                if error.errno in OTHER_KIND:
                    return False
                raise

    def listed(self, prefix: str) -> Iterator[ObjectInfo]:
        """See `ObjectFolder.listed`."""
        folder = check_prefix(prefix)[:-1]
        if prefix == BLOBS:
            for name, _ in self._entries(folder):
                if re.fullmatch("[0-9a-f]{2}", name):
                    yield from self.listed(f"{prefix}{name}/")
            return
        # Whatever lies in place of a record: what the snapshot needs must not go because of that.
        of_any_kind = prefix in (SNAPSHOTS, BAD)
        for name, st in self._entries(folder):
            if (of_any_kind or stat.S_ISREG(st.st_mode)) and is_name(prefix + name):
                yield ObjectInfo(prefix + name, st.st_size, st.st_mtime_ns)

    def sizes(self, prefix: str) -> dict[str, int]:
        """See `ObjectFolder.sizes`."""
        if check_prefix(prefix) == BLOBS:
            return {info.name.removeprefix(BLOBS): info.size for info in self.listed(BLOBS)}
        found = self._found(prefix[:-1])
        return {name: st.st_size for name, st in found if stat.S_ISREG(st.st_mode)}

    def has_any(self, prefix: str) -> bool:
        """See `ObjectFolder.has_any`."""
        return next(self.listed(prefix), None) is not None

    def _entries(self, folder: str) -> list[tuple[str, os.stat_result]]:
        """Names in a folder, in order, and what they are; nothing where there is no such folder."""
        return sorted(self._found(folder), key=lambda entry: entry[0])

    def _found(self, folder: str) -> list[tuple[str, os.stat_result]]:
        entries: list[tuple[str, os.stat_result]] = []
        with telling():
            try:
                fd = self._opener.folder(self._root(), folder)
            except FileNotFoundError:
                return entries
            try:
                with os.scandir(fd) as found:
                    for entry in found:
                        with contextlib.suppress(FileNotFoundError):  # gone meanwhile
                            entries.append((entry.name, entry.stat(follow_symlinks=False)))
            finally:
                os.close(fd)
        return entries

    # -- writing -------------------------------------------------------------------------------------------

    def put_all(self, objects: Iterable[tuple[str, Iterable[bytes]]]) -> None:
        """See `ObjectFolder.put_all`."""
        with self._temporary() as temporary:
            try:
                for name, content in objects:
                    temporary.write(check_name(name), content)
                    if temporary.is_full:
                        self._name(temporary)
            except Exception:
                # What is whole is kept, so that whoever tries again need not write it again.
                with contextlib.suppress(OSError):
                    self._name(temporary)
                    temporary.settle(self._root())
                raise
            with telling():
                self._name(temporary)
                temporary.settle(self._root())

    def create(self, name: str, data: bytes) -> bool:
        """See `ObjectFolder.create`."""
        check_name(name)
        if self.has(name):
            return False
        with self._temporary() as temporary, telling():
            if name.startswith(SNAPSHOTS):
                # What a record leads to may have been written by another process, which has not come to
                # bring it to the disk yet.
                sync_filesystem(self._root())
            temporary.write(name, [data])
            ((written, _),) = temporary.waiting
            above, _, last = name.rpartition("/")
            fd = self._folder(above, temporary)
            try:
                temporary.sync()
                try:
                    os.link(written, last, src_dir_fd=temporary.fd, dst_dir_fd=fd, follow_symlinks=False)
                except FileExistsError:
                    return False
                except OSError as error:
                    if error.errno not in _NO_LINKS:
                        raise
                    # Without hard links two that create one name at the same moment both believe they did.
                    if self.has(name):
                        return False
                    os.rename(written, last, src_dir_fd=temporary.fd, dst_dir_fd=fd)
                sync_folder(fd)
            finally:
                os.close(fd)
            temporary.settle(self._root())
            return True

    def remove(self, name: str) -> None:
        """See `ObjectFolder.remove`."""
        with (
            telling(),
            contextlib.suppress(FileNotFoundError),
            self._opener.holding(self._root(), check_name(name)) as (fd, last),
        ):
            os.unlink(last, dir_fd=fd)
            # Should the machine stop, what goes first must not come back alone.
            if name.startswith((SNAPSHOTS, LABELS)):
                sync_folder(fd)

    def set_aside(self, name: str) -> None:
        """See `ObjectFolder.set_aside`."""
        above, _, last = bad_name(name).rpartition("/")
        with telling(), contextlib.suppress(FileNotFoundError):
            bad = self._folder(above)
            try:
                with self._opener.holding(self._root(), name) as (fd, own):
                    os.rename(own, last, src_dir_fd=fd, dst_dir_fd=bad)
                    sync_folder(fd)
                sync_folder(bad)
            finally:
                os.close(bad)

    def _name(self, temporary: Temporary) -> None:
        """Bring what was written to the disk, then give it the names it is to have."""
        with telling():
            temporary.sync()
            folders: dict[str, list[tuple[str, str]]] = {}
            for written, name in temporary.waiting:
                above, _, last = name.rpartition("/")
                folders.setdefault(above, []).append((written, last))
            for above, files in folders.items():
                fd = self._folder(above, temporary)
                try:
                    for written, last in files:
                        os.rename(written, last, src_dir_fd=temporary.fd, dst_dir_fd=fd)
                finally:
                    os.close(fd)
            temporary.named()

    def _folder(self, path: str, temporary: Temporary | None = None) -> int:
        """Open a folder below this one, which is made when it is not there."""
        root = self._root()
        if temporary is not None:
            temporary.changed.add(path)
        try:
            return self._opener.folder(root, path)
        except FileNotFoundError:
            above = path.rpartition("/")[0]
            if above:
                os.close(self._folder(above, temporary))
            if temporary is not None:
                temporary.changed.add(above)
            with contextlib.suppress(FileExistsError), self._opener.holding(root, path) as (fd, last):
                os.mkdir(last, 0o700, dir_fd=fd)
            return self._opener.folder(root, path)

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[Temporary]:
        with telling():
            fd = self._folder(TMP)
            try:
                sweep(self._opener, fd)
                temporary = Temporary(self._opener, fd)
            except BaseException:
                os.close(fd)
                raise
        try:
            yield temporary
        finally:
            temporary.close()
            os.close(fd)

    def leftovers(self, *, remove: bool = False) -> list[ObjectInfo]:
        """See `ObjectFolder.leftovers`."""
        with telling():
            try:
                fd = self._opener.folder(self._root(), TMP)
            except FileNotFoundError:
                return []
            try:
                return sweep(self._opener, fd, remove=remove)
            finally:
                os.close(fd)

    # -- together or alone ---------------------------------------------------------------------------------

    def holding(self, *, alone: bool, wait: bool = True) -> AbstractContextManager[None]:
        """See `ObjectFolder.holding`."""
        return locked(self._root(), alone=alone, wait=wait)

    # -- the folder itself ---------------------------------------------------------------------------------

    def _root(self) -> int:
        """Handle of the folder that lies at its path now."""
        try:
            st = os.stat(self.path)
            if (st.st_dev, st.st_ino) != self._known:
                fd = open_root(self.path)
                if self._fd >= 0:
                    self._retired.append(self._fd)  # another thread may be using it
                self._fd = fd
                st = os.fstat(fd)
                self._known = (st.st_dev, st.st_ino)
        except FileNotFoundError as error:
            if self._fd < 0:
                raise NotFoundError("there is no object folder; take a snapshot, or name another") from error
            raise StoreUnavailableError(
                "the object folder is not there any more; try again when it is back"
            ) from error
        return self._fd

    def __del__(self) -> None:
        for fd in (self._fd, *self._retired):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)


def _make_private(path: str) -> None:
    """Make a folder and those that lead to it, for this user only; one that is there is left as it is."""
    if not os.path.isdir(path):
        above = os.path.dirname(path)
        if above != path:
            _make_private(above)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)


_FOLDER: type[ObjectFolder] = LocalObjects
