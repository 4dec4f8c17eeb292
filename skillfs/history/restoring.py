"""Writes what a manifest tells into a folder: whole, under its name, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import stat
from collections.abc import Callable, Iterator

from skillfs.core.manifest import Manifest, ManifestFile
from skillfs.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    IsFileError,
    NotFoundError,
    SkillFSError,
    StoreUnavailableError,
    UnreadableError,
    quoted,
)
from skillfs.history.beside import folder_beside
from skillfs.objects.blobs import Blobs
from skillfs.objects.system import sync_filesystem
from skillfs.sync.scan import SKILL_MD

__all__ = [
    "check_outside_skills",
    "check_place",
    "files_in",
    "flush",
    "folders_in",
    "links_in",
    "new_folder",
    "told",
    "way_to",
    "write_folder",
]

_FULL = (errno.ENOSPC, errno.EDQUOT)


def files_in(manifest: Manifest) -> Iterator[tuple[str, ManifestFile]]:
    """Path and file of everything that is no link and no folder."""
    for skill in manifest.skills:
        top = f"{skill.path}/" if skill.path else ""
        for file in skill.files:
            yield top + file.path, file


def links_in(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Path of every link, and the path that it leads to."""
    yield from manifest.links
    for skill in manifest.skills:
        top = f"{skill.path}/" if skill.path else ""
        for path, target in skill.links:
            yield top + path, target


def folders_in(manifest: Manifest) -> Iterator[str]:
    """Paths of the folders that hold nothing."""
    for skill in manifest.skills:
        top = f"{skill.path}/" if skill.path else ""
        for path in skill.folders:
            yield top + path


def check_outside_skills(folder: str, given: str) -> None:
    """See that a folder lies in no skill, which would then hold what is written there."""
    while True:
        if os.path.isfile(os.path.join(folder, SKILL_MD)):
            raise InvalidArgumentError(f"{quoted(given)} lies in a skill; name a folder outside of skills")
        if folder == (above := os.path.dirname(folder)):
            return
        folder = above


def check_place(folder: str | os.PathLike[str]) -> str:
    """The absolute path of a folder that does not exist yet, or holds nothing.

    Raises:
        InvalidArgumentError: It is no path, or lies in a skill.
        AlreadyExistsError: It holds something.
        IsFileError: It is a file.
        NotFoundError: The folder that it is to lie in does not exist.
        UnreadableError: It may not be looked at.
    """
    given = os.fspath(folder) if isinstance(folder, str | os.PathLike) else None
    if not isinstance(given, str) or not given or "\0" in given:
        raise InvalidArgumentError(f"the folder to write to is {quoted(folder)}; pass a path, as text")
    try:
        path = os.path.abspath(os.path.expanduser(given))
        above = os.path.dirname(path)
        if not os.path.isdir(above):
            raise NotFoundError(
                f"the folder in which {quoted(given)} is to lie does not exist; create it first"
            )
        check_outside_skills(os.path.realpath(above), given)
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return path
        if not stat.S_ISDIR(found.st_mode):
            raise IsFileError(f"{quoted(given)} is no folder; name one that does not exist, or is empty")
        with os.scandir(path) as entries:
            if next(entries, None) is not None:
                raise AlreadyExistsError(
                    f"the folder {quoted(given)} holds something; name one that does not exist, or is empty"
                )
    except SkillFSError:
        raise
    except PermissionError as error:
        raise UnreadableError(
            f"the folder {quoted(given)} may not be used by this user; mend its permissions"
        ) from error
    except OSError as error:
        raise StoreUnavailableError(
            f"the folder {quoted(given)} cannot be looked at ({error.strerror}); name another"
        ) from error
    return path


@contextlib.contextmanager
def new_folder(folder: str | os.PathLike[str]) -> Iterator[str]:
    """A folder to write into, which in the end is, whole and on the disk, the one that was named.

    Args:
        folder: Path of one that does not exist, or holds nothing.

    Raises:
        SkillFSError: As for `check_place`.
        StoreUnavailableError: The disk is full or fails.
        UnreadableError: This user may not write there.
    """
    path = check_place(folder)
    with told(folder), folder_beside(path) as temporary:
        yield temporary
        _flush(temporary)
        try:
            os.rename(temporary, path)  # takes the place of a folder that holds nothing
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise AlreadyExistsError(
                    f"something was put at {quoted(os.fspath(folder))} meanwhile; name another folder"
                ) from error
            raise
        flush(os.path.dirname(path))


def write_folder(
    blobs: Blobs,
    manifest: Manifest,
    folder: str,
    on_progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write what a manifest tells into an empty folder; every byte is verified on the way.

    Args:
        blobs: Where the contents are.
        manifest: What is to be written.
        folder: The folder.
        on_progress: Called now and then with the number of files done and the number there are.

    Raises:
        IntegrityError: A blob is missing or damaged.
        InvalidArgumentError: The filesystem takes two names for one, or does not take one.
        OSError: The system refuses something else.
    """
    files = sorted(files_in(manifest))
    made = {""}

    def make(path: str) -> None:
        if path not in made:
            make(path.rpartition("/")[0])
            with naming_path(path):
                os.mkdir(os.path.join(folder, path))
            made.add(path)

    for number, (path, file) in enumerate(files):
        make(path.rpartition("/")[0])
        mode = 0o777 if file.executable else 0o666
        with blobs.open(file.digest, file.size) as handle:
            with naming_path(path):
                fd = os.open(os.path.join(folder, path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with open(fd, "wb", buffering=0) as target:
                for block in handle.blocks():
                    view = memoryview(block)
                    while view:
                        view = view[target.write(view) :]
        if on_progress is not None and number % 1_000 == 999:
            on_progress(number + 1, len(files))
    for path in folders_in(manifest):
        make(path)
    for path, target_path in links_in(manifest):
        above = path.rpartition("/")[0]
        make(above)
        with naming_path(path):
            os.symlink(way_to(target_path, above), os.path.join(folder, path))


def way_to(target: str, above: str) -> str:
    """A path of a manifest as a link in a folder of it says it."""
    return posixpath.relpath(f"/{target}", f"/{above}")


@contextlib.contextmanager
def naming_path(path: str) -> Iterator[None]:
    """Let what a filesystem says of a name tell which name it is about."""
    try:
        yield
    except FileExistsError as error:
        raise InvalidArgumentError(
            f"{quoted(path)} cannot be written: to this filesystem its name is one that is there already; "
            "write to a filesystem that tells upper and lower case apart"
        ) from error
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ):
            raise InvalidArgumentError(
                f"{quoted(path)} cannot be written: this filesystem does not take such a name; "
                "write to another"
            ) from error
        raise


@contextlib.contextmanager
def told(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Let errors of the system say what is to be done, and no path of this machine."""
    try:
        yield
    except SkillFSError:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise StoreUnavailableError("the disk is full; make room, and do it again") from error
        shown = quoted(os.fspath(folder))
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise UnreadableError(f"{shown} may not be written by this user; mend its permissions") from error
        raise StoreUnavailableError(
            f"{shown} cannot be written ({error.strerror or type(error).__name__}); try again"
        ) from error


def _flush(folder: str) -> None:
    """Have all that was written into a folder on the disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if sync_filesystem(fd):
            return
    finally:
        os.close(fd)
    for above, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(above, name)
            if not os.path.islink(path):
                flush(path)
        flush(above)


def flush(path: str) -> None:
    """Have a file, or the names in a folder, on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a filesystem that keeps no such promise for folders
            raise
    finally:
        os.close(fd)
