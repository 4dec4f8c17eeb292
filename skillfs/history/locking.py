"""Makes locks, and keeps them in files."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from skillfs.core.lock import Lock, LockedFile, bad_lock, locked_skills, parse_lock, render_lock
from skillfs.core.manifest import path_fault
from skillfs.core.manifest_json import MOST_JSON_BYTES
from skillfs.core.refs import below_mount, is_below
from skillfs.errors import (
    ChangedError,
    InvalidArgumentError,
    IsFolderError,
    NotFoundError,
    ReadOnlyError,
    SkillFSError,
    StoreUnavailableError,
    UnreadableError,
    no_handle_left,
    quoted,
)
from skillfs.history.present import ATTEMPTS, Present, PresentSkill, digests_of, present
from skillfs.index.rows import NodeRow
from skillfs.mounts import View, naming
from skillfs.sync.scan import SKILL_MD

__all__ = ["LOCK_FILE", "lock_of", "read_lock", "write_lock"]

LOCK_FILE = "skills.lock"

_ABANDONED_SECONDS = 3_600
"""Age from which on a file that was being written belongs to nobody any more."""


# -- making --------------------------------------------------------------------------------------------------


def lock_of(views: Sequence[View], chosen: Mapping[str, Sequence[str]] | None) -> Lock:
    """The lock of skills as they are now.

    Args:
        views: The stores, and what may be seen of each.
        chosen: By the name of a mount, the folders whose skills are locked; None for all skills.

    Raises:
        InvalidArgumentError: There is no skill to lock, or a path is too long for a lock.
        ChangedError: Files go away while they are read.
        SkillFSError: A file or a store cannot be read.
    """
    files: dict[str, list[LockedFile]] = {}
    for view in views:
        name = view.mount.name
        if chosen is None or name in chosen:
            with naming(name):
                tops = None if chosen is None else chosen[name]
                files.update((below_mount(name, path), own) for path, own in _files_of(view, tops))
    if not files:
        raise InvalidArgumentError("there is no skill to lock; a skill is a folder that holds a SKILL.md")
    for path, own in files.items():
        for each in (path, *(file.path for file in own)):
            if each and (fault := path_fault(each)) is not None:
                raise InvalidArgumentError(
                    f"{quoted(each)} cannot be locked, as it {fault}; give it another name"
                )
    return Lock(locked_skills(files))


def renewed(lock: Lock, made: Lock, chosen: Mapping[str, Sequence[str]]) -> Lock:
    """A lock in which some folders are as another has them, and all else is as it was.

    Args:
        lock: The lock.
        made: What the folders hold now.
        chosen: The folders, by the name of a mount.
    """
    tops = [below_mount(name, path) for name, paths in chosen.items() for path in paths]
    files = {s.path: s.files for s in lock.skills if not any(is_below(s.path, top) for top in tops)}
    return Lock(locked_skills({**files, **{skill.path: skill.files for skill in made.skills}}))


def _files_of(view: View, tops: Sequence[str] | None) -> Iterable[tuple[str, list[LockedFile]]]:
    for attempt in range(ATTEMPTS):
        view.mount.engine.sync()  # what is known of a file holds for the version that is there now
        found = present(view)
        skills = [s for s in found.skills if tops is None or any(is_below(s.path, top) for top in tops)]
        try:
            return _locked_files(found, skills)
        except ChangedError:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _locked_files(found: Present, skills: Sequence[PresentSkill]) -> list[tuple[str, list[LockedFile]]]:
    executable = found.view.mount.engine.store.executable
    nodes = {node.key: node for skill in skills for _, node in nodes_of(skill)}
    digests = digests_of(found, list(nodes.values()))
    return [
        (
            skill.path,
            [
                LockedFile(path, *digests[node.key], executable(node.signature) is True)
                for path, node in nodes_of(skill)
            ],
        )
        for skill in skills
    ]


def nodes_of(skill: PresentSkill) -> list[tuple[str, NodeRow]]:
    """The files of a skill, and what links in it to files lead to: path below the skill, and row."""
    files = [(file.path, file.node) for file in skill.files]
    return [*files, *((link.path, link.file) for link in skill.links if link.file is not None)]


# -- files ---------------------------------------------------------------------------------------------------


def read_lock(path: str | os.PathLike[str]) -> Lock:
    """Read a lock.

    Raises:
        InvalidArgumentError: The path is none, or lies inside a skill.
        NotFoundError: There is no such file.
        IsFolderError: It is a folder.
        UnreadableError: It may not be read.
        StoreUnavailableError: It cannot be read now.
        IntegrityError: It is no lock, or a damaged one.
    """
    name = _file_name(path)
    _require_outside(name)
    with _explaining(name, "read"):
        # A pipe would hold up whoever opens it.
        handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            kind = os.fstat(handle).st_mode
            if stat.S_ISDIR(kind):
                raise IsADirectoryError(errno.EISDIR, "is a folder")
            if not stat.S_ISREG(kind):
                raise bad_lock("is no regular file")
            with open(handle, "rb", closefd=False) as file:
                data = file.read(MOST_JSON_BYTES + 1)
        finally:
            os.close(handle)
    return parse_lock(data)


def write_lock(path: str | os.PathLike[str], lock: Lock) -> bool:
    """Write a lock to a file, whole or not at all; one that says the same already is left alone.

    Returns:
        Whether the file is another now.

    Raises:
        InvalidArgumentError: The path is none, or lies inside a skill; or a pipe or device lies there.
        NotFoundError: The folder that it is to lie in is not there.
        IsFolderError: A folder lies there.
        UnreadableError: It may not be written there.
        ReadOnlyError: Nothing can be written there.
        StoreUnavailableError: The disk is full, or fails.
    """
    name = _file_name(path)
    _require_outside(name)
    data = render_lock(lock)
    with _explaining(name, "written"):
        mode = None
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(name).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise InvalidArgumentError(
                    f"{quoted(os.path.basename(name))} is no regular file, and no lock can take its place; "
                    'name another file, or print the lock with: skillfs lock --output "-"'
                )
            with open(name, "rb", opener=_without_waiting) as file:
                if file.read(len(data) + 1) == data:
                    return False
        _replace(os.path.realpath(name), data, None if mode is None else mode & 0o777)
    return True


def _without_waiting(name: str, flags: int) -> int:
    # What was a file a moment ago may be a pipe by now, which would hold up whoever opens it.
    return os.open(name, flags | os.O_NONBLOCK)


def _replace(name: str, data: bytes, mode: int | None) -> None:
    folder, own = os.path.split(name)
    _remove_abandoned(folder, own)
    temporary = os.path.join(folder, f".{own}-{os.urandom(8).hex()}~")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        with open(handle, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, name)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(above)
    finally:
        os.close(above)


def _remove_abandoned(folder: str, own: str) -> None:
    """Remove what a process that was killed has left beside a lock."""
    ours = re.compile(rf"\.{re.escape(own)}-[0-9a-f]{{16}}~").fullmatch
    latest = time.time() - _ABANDONED_SECONDS
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if ours(entry.name) and entry.stat(follow_symlinks=False).st_mtime < latest:
                os.unlink(entry.path)


def _file_name(path: object) -> str:
    try:
        name = os.fspath(path)  # type: ignore[call-overload]  # whatever it is
    except TypeError:
        name = None
    if not isinstance(name, str) or not name or "\0" in name:
        raise InvalidArgumentError(
            f"{quoted(path)} names no lock; pass the path of a file, such as {LOCK_FILE}"
        )
    name = os.path.expanduser(name)
    if name.endswith("/") and not os.path.isdir(name):
        shown = quoted(f"{os.path.basename(name.rstrip('/'))}/")
        raise InvalidArgumentError(
            f"{shown} is written as a folder, and a lock is a file; drop the last slash"
        )
    return name


def _require_outside(name: str) -> None:
    """Refuse a lock inside a skill: whoever changes the skill could change the lock with it.

    Raises:
        InvalidArgumentError: It lies inside one, by its path or where links lead.
    """
    above = os.path.realpath(os.path.dirname(os.path.abspath(name)))
    for folder in {above, os.path.dirname(os.path.realpath(name))}:
        while True:
            if os.path.isfile(os.path.join(folder, SKILL_MD)):
                raise InvalidArgumentError(
                    f"the lock {quoted(os.path.basename(name))} lies inside a skill, where whoever changes "
                    "the skill changes the lock; keep it in a folder without a SKILL.md at or above it"
                )
            if folder == (upper := os.path.dirname(folder)):
                break
            folder = upper


@contextlib.contextmanager
def _explaining(name: str, done: str) -> Iterator[None]:
    """Let errors of the system say what they mean for a lock; of its path they tell the last part only."""
    shown = quoted(os.path.basename(name) or name)
    try:
        yield
    except SkillFSError:
        raise
    except OSError as error:
        raise _error(error, shown, done) from error


def _error(error: OSError, shown: str, done: str) -> SkillFSError:
    code = error.errno or 0
    if code in (errno.ENOENT, errno.ENOTDIR):
        if done == "read":
            return NotFoundError(f"there is no lock {shown}; write one with: skillfs lock")
        return NotFoundError(f"the folder that the lock {shown} is to lie in is not there; make it first")
    if code == errno.EISDIR:
        return IsFolderError(f"a folder lies where the lock {shown} is to be {done}; name a file")
    if code in (errno.EACCES, errno.EPERM):
        return UnreadableError(f"the lock {shown} may not be {done} by this user; mend the permissions")
    if code == errno.EROFS:
        return ReadOnlyError(
            f"the lock {shown} cannot be written, as nothing can be there; choose another folder"
        )
    if code in (errno.ENOSPC, errno.EDQUOT):
        return StoreUnavailableError(
            f"the disk is full, and the lock {shown} is as it was; make room and try again"
        )
    if code in (errno.ENAMETOOLONG, errno.ELOOP):
        return InvalidArgumentError(f"{shown} is no name that a lock can have; choose another")
    return no_handle_left(error) or StoreUnavailableError(
        f"the lock {shown} could not be {done} ({error.strerror or type(error).__name__}); try again"
    )
