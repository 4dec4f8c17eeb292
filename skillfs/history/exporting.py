"""Writes a snapshot, or a skill of it, where others can use it: as a folder, as a zip file, or to a store.

With the skills goes a `skills.lock`, by which anybody can check them. Where links cannot be, as in a bucket,
a link to a file becomes that file; one to a folder is left out. So it is in a zip file as well: many programs
unpack a link as a file that holds its aim.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from skillfs.core.lock import Lock, LockedFile, locked_skills, render_lock
from skillfs.core.manifest import Manifest, ManifestFile, ManifestSkill
from skillfs.core.model import Place
from skillfs.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    ReadOnlyError,
    SkillFSError,
    StoreUnavailableError,
    quoted,
)
from skillfs.history.beside import file_beside
from skillfs.history.restoring import (
    check_outside_skills,
    files_in,
    flush,
    folders_in,
    new_folder,
    told,
    write_folder,
)
from skillfs.objects.blobs import Blobs
from skillfs.opening import is_url, open_store
from skillfs.stores.remote import RemoteStore
from skillfs.stores.workers import Workers

__all__ = ["Exported", "export", "locked", "rerooted", "without_links"]

LOCK_NAME = "skills.lock"
_SKILL_MD = "SKILL.md"
_TIME = (1980, 1, 1, 0, 0, 0)
"""What zip keeps as the time of every file: a manifest knows none, and the same content is the same zip."""

AT_ONCE = 256
"""Files that are given to threads at a time where they are written to a store."""

_UNIX = 3
_IS_FOLDER = 0x10  # as MS-DOS says it

Report = Callable[[int, int], None]


class Exported(NamedTuple):
    """What was written.

    Attributes:
        skills: How many.
        files: How many, the lock not counted.
        size: Bytes of these.
        left_out: Paths of the links that cannot be where it was written to, sorted.
    """

    skills: int
    files: int
    size: int
    left_out: tuple[str, ...]


def export(
    blobs: Blobs,
    manifest: Manifest,
    target: str | os.PathLike[str],
    options: dict[str, object] | None = None,
    on_progress: Report | None = None,
) -> Exported:
    """Write what a manifest tells, with a `skills.lock` beside the skills.

    Args:
        blobs: Where the contents are.
        manifest: What is to be written. No skill may be its root: there is no place beside that.
        target: A folder that does not exist or is empty; a file `*.zip` that does not exist; or the URL of a
            store of which nothing lies where something is to be written.
        options: For the filesystem of a URL.
        on_progress: Called now and then with the number of files done and the number there are.

    Raises:
        InvalidArgumentError: There is nothing to be written, or the target is none of these.
        AlreadyExistsError: Something lies there.
        IntegrityError: A blob is missing or damaged.
        SkillFSError: It cannot be written there.
    """
    if not manifest.skills:
        raise InvalidArgumentError("there is no skill to be exported")
    lock = render_lock(locked(manifest))
    text = os.fspath(target) if isinstance(target, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidArgumentError(
            f"the target is {quoted(target)}; pass the path of a folder or zip, or a URL"
        )
    links: tuple[str, ...] = ()
    if isinstance(target, str) and is_url(text):
        plain, links = without_links(manifest)
        manifest = plain
        _write_store(blobs, plain, lock, text, options or {}, on_progress)
    elif text.lower().endswith(".zip"):
        manifest, links = without_links(manifest)
        with _new_file(text) as file:
            _write_zip(blobs, manifest, lock, file, on_progress)
    else:
        with new_folder(text) as folder:
            write_folder(blobs, manifest, folder, on_progress)
            with open(os.path.join(folder, LOCK_NAME), "xb") as written:
                written.write(lock)
    files = [file for _, file in files_in(manifest)]
    return Exported(len(manifest.skills), len(files), sum(file.size for file in files), links)


# -- what is written ---------------------------------------------------------------------------------------


def locked(manifest: Manifest) -> Lock:
    """The lock of what a manifest tells; a link to a file counts as a file, as everywhere."""
    files = dict(files_in(manifest))
    by_skill: dict[str, list[LockedFile]] = {}
    for skill in manifest.skills:
        own = [LockedFile(*file) for file in skill.files]
        for path, target in skill.links:
            if (file := files.get(target)) is not None:
                own.append(LockedFile(path, file.size, file.digest, file.executable))
        by_skill[skill.path] = own
    return Lock(locked_skills(by_skill))


def without_links(manifest: Manifest) -> tuple[Manifest, tuple[str, ...]]:
    """The same with files in place of links to files; and the paths of the other links."""
    files = dict(files_in(manifest))
    left_out = [path for path, _ in manifest.links]
    skills = []
    for skill in manifest.skills:
        own = list(skill.files)
        for path, target in skill.links:
            if (file := files.get(target)) is not None:
                own.append(file._replace(path=path))
            else:
                left_out.append(f"{skill.path}/{path}" if skill.path else path)
        own.sort(key=lambda file: file.path)
        skills.append(ManifestSkill(skill.path, skill.digest, tuple(own), (), skill.folders))
    return Manifest(tuple(skills)), tuple(sorted(left_out))


def rerooted(manifest: Manifest, path: str, name: str) -> Manifest:
    """One skill of a manifest, with those nested in it, as a folder of a name at the root.

    Links to files outside of it become these files, links to other folders outside are left out: so its
    digest stays what it is.
    """
    top = f"{path}/" if path else ""
    files = dict(files_in(manifest))
    skills = []
    for skill in manifest.skills:
        if skill.path != path and not skill.path.startswith(top):
            continue
        own: list[ManifestFile] = list(skill.files)
        links = []
        for link, target in skill.links:
            if target == path or target.startswith(top):
                links.append((link, f"{name}/{target[len(top) :]}".rstrip("/")))
            elif (file := files.get(target)) is not None:
                own.append(file._replace(path=link))
        own.sort(key=lambda file: file.path)
        below = f"{name}/{skill.path[len(top) :]}".rstrip("/")
        skills.append(ManifestSkill(below, skill.digest, tuple(own), tuple(links), skill.folders))
    return Manifest(tuple(sorted(skills, key=lambda skill: skill.path)))


# -- where it is written -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _new_file(given: str) -> Iterator[io.BufferedWriter]:
    """A file to write into, which in the end is, whole and on the disk, the one that was named."""
    with told(given):  # a relative path in a working folder that is gone
        path = os.path.abspath(os.path.expanduser(given))
    above = os.path.dirname(path)
    if not os.path.isdir(above):
        raise NotFoundError(f"the folder in which {quoted(given)} is to lie does not exist; create it first")
    check_outside_skills(os.path.realpath(above), given)
    if os.path.lexists(path):
        raise AlreadyExistsError(f"{quoted(given)} exists; name a file that does not")
    with told(given), file_beside(path) as (fd, temporary):
        with open(fd, "wb", closefd=False) as file:
            yield file
            file.flush()
            os.fsync(fd)
        try:
            os.link(temporary, path)
        except FileExistsError as error:
            raise AlreadyExistsError(f"{quoted(given)} exists; name a file that does not") from error
        except OSError:  # no hard links here
            os.rename(temporary, path)
        flush(above)


def _write_zip(
    blobs: Blobs, manifest: Manifest, lock: bytes, file: io.BufferedWriter, report: Report | None
) -> None:
    """Members in the order of their paths, not compressed: the same bytes whatever library writes them."""
    files = dict(files_in(manifest))
    folders = {f"{path}/" for path in folders_in(manifest)}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as target:
        for number, path in enumerate(sorted({*files, *folders, LOCK_NAME})):
            if path in folders:
                target.writestr(_member(path, stat.S_IFDIR | 0o755), b"")
            elif path == LOCK_NAME:
                target.writestr(_member(path, stat.S_IFREG | 0o644), lock)
            else:
                one = files[path]
                member = _member(path, stat.S_IFREG | (0o755 if one.executable else 0o644))
                member.file_size = one.size
                with blobs.open(one.digest, one.size) as handle, target.open(member, "w") as written:
                    for block in handle.blocks():
                        written.write(block)
            if report is not None and number % 1_000 == 999:
                report(min(number + 1, len(files)), len(files))


def _member(path: str, mode: int) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(path, _TIME)
    member.create_system = _UNIX
    member.external_attr = mode << 16 | (_IS_FOLDER if stat.S_ISDIR(mode) else 0)
    return member


def _write_store(
    blobs: Blobs,
    manifest: Manifest,
    lock: bytes,
    url: str,
    options: dict[str, object],
    report: Report | None,
) -> None:
    """Each skill's `SKILL.md` first as far as that can be, and nothing in place of what is there."""
    store = open_store(url, target_options=options)
    if not isinstance(store, RemoteStore):
        raise InvalidArgumentError(f"{quoted(url)} is a local folder; name it by its path")
    if not store.writable:
        raise ReadOnlyError(f"{quoted(url)} cannot be written to; name another store")
    files = sorted(files_in(manifest), key=lambda one: (one[0].rpartition("/")[2] != _SKILL_MD, one[0]))
    there = store.look()
    for path in (LOCK_NAME, *(path for path, _ in files), *(skill.path for skill in manifest.skills)):
        if there.exists(Place(0, path)):
            raise AlreadyExistsError(
                f"{quoted(path)} is in the store already; name a store, or a folder of it, that is empty"
            )
    made = {""}

    def make(path: str) -> None:
        if path not in made and store.holds_empty_folders:
            make(path.rpartition("/")[0])
            with contextlib.suppress(FileExistsError):
                store.make_folder(Place(0, path))
            made.add(path)

    def write(path: str, blocks: Iterable[bytes]) -> None:
        sink = store.create(Place(0, path), exclusive=True)
        try:
            for block in blocks:
                sink.write(block)
        except BaseException:
            sink.discard()
            raise
        try:
            sink.commit()
        except FileExistsError as error:
            raise AlreadyExistsError(
                f"{quoted(path)} was put into the store meanwhile; name a store that is empty"
            ) from error

    def write_file(one: tuple[str, ManifestFile]) -> None:
        path, file = one
        with blobs.open(file.digest, file.size) as handle:
            write(path, handle.blocks())

    try:
        for path in (*(path.rpartition("/")[0] for path, _ in files), *folders_in(manifest)):
            make(path)
        for at in range(0, len(files), AT_ONCE):
            with Workers() as workers:
                workers.map(write_file, files[at : at + AT_ONCE])
            if report is not None:
                report(min(at + AT_ONCE, len(files)), len(files))
        write(LOCK_NAME, [lock])
    except SkillFSError:
        raise
    except PermissionError as error:
        raise ReadOnlyError("the store cannot be written to with these credentials; pass others") from error
    except FileNotFoundError as error:
        raise StoreUnavailableError("the store changes while it is written to; try again") from error
