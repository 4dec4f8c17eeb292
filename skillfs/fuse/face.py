"""The method of `SkillFileSystem` that mounts it, and what servers need of a filesystem."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skillfs.errors import InvalidArgumentError
from skillfs.mounts import Mount, View
from skillfs.objects.local import LocalObjects
from skillfs.objects.store import SnapshotStore
from skillfs.stores.local import LocalStore

if TYPE_CHECKING:
    from skillfs.fuse.spawning import MountedFolder
    from skillfs.fuse.view import KernelView

__all__ = ["KernelFace", "check_shareable", "served_folders", "urls_of"]

_IN_MEMORY = re.compile(r"(?:^|::)memory:")


class KernelFace:
    """Whoever derives from it says what there is to see, in classes that stand before this one."""

    def _seen_by(self, base_paths: Sequence[object] | None) -> list[View]:
        """What a call may see, of each store."""
        raise NotImplementedError

    def _at(self, path: object) -> Any:
        """What is at a path; its `row` is the entry."""
        raise NotImplementedError

    def mount(
        self, path: str | os.PathLike[str], *, force: bool = False, allow_other: bool = False
    ) -> MountedFolder:
        """Show what this filesystem shows as ordinary, read-only folders and files, for any program.

        A process of its own serves them, for as long as this one runs or until the mount point is closed. It
        opens the stores again, with the same arguments. Needs the extra `fuse`, and on Debian the package
        `fuse3`.

        Example:
            >>> fs = SkillFileSystem("sample_skills")  # doctest: +SKIP
            >>> with fs.mount("/mnt/skills") as folder:  # doctest: +SKIP
            ...     subprocess.run(["grep", "-r", "PDF", folder])

        Args:
            path: An empty folder, outside the stores; `~` is expanded and links are followed.
            force: Whether a mount point of skillfs there whose server is gone, or does not answer, is
                unmounted first.
            allow_other: Whether other users of this machine may look in. Unless this is root, the line
                `user_allow_other` in `/etc/fuse.conf` has to allow it.

        Returns:
            A context manager that unmounts at its end; to be closed by `close` where it is not used as one.

        Raises:
            InvalidArgumentError: The folder is not empty, lies in a store, or is a mount point already; or a
                store is in the memory of this process, where no other can read it.
            NotFoundError: The folder is not there.
            IsFileError: It is a file.
            UnreadableError: It may not be read.
            StoreUnavailableError: A library is missing, or the kernel refuses; or a store does not answer.
        """
        from skillfs.fuse.spawning import mount_folder

        return mount_folder(self, path, force=force, allow_other=allow_other)

    def kernel_mounts(self) -> list[Mount]:
        """The stores, each with what may be seen of it."""
        return [view.mount for view in self._seen_by(None)]

    def kernel_view(self) -> KernelView:
        """What the kernel is shown; for the servers of mount points."""
        from skillfs.fuse.view import KernelView

        return KernelView(self.kernel_mounts(), lambda: self._at("").row)


def served_folders(mounts: Sequence[Mount]) -> list[str]:
    """The local folders that a server reads, as absolute paths without links."""
    found = []
    for mount in mounts:
        store: object = mount.engine.store
        if isinstance(store, LocalStore):
            found += [store.root, *store.followed]
        elif isinstance(store, SnapshotStore) and isinstance(store.catalog.folder, LocalObjects):
            found.append(store.catalog.folder.path)
    return found


def urls_of(mounts: Sequence[Mount]) -> list[tuple[str, str]]:
    """The names of stores with what they are."""
    return [(mount.name, mount.engine.store.url) for mount in mounts]


def check_shareable(mounts: Sequence[Mount]) -> None:
    """Refuse stores that no other process can read.

    Raises:
        InvalidArgumentError: One lies in the memory of this process.
    """
    for mount in mounts:
        store: object = mount.engine.store
        url = store.catalog.folder.url if isinstance(store, SnapshotStore) else mount.engine.store.url
        if _IN_MEMORY.search(url):
            raise InvalidArgumentError(
                "a store in the memory of this process cannot be served by another; write it to a folder, "
                "and mount that"
            )
