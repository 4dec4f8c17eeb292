"""What goes where in a bulk call, and in which order."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from glob import has_magic
from typing import Any, TypeVar

from fsspec.spec import AbstractFileSystem

from skillfs.core.refs import is_below
from skillfs.errors import (
    InvalidArgumentError,
    NotFoundError,
    SkillFSError,
    UnreadableError,
    not_found,
    quoted,
)
from skillfs.lookup import Asked
from skillfs.reading import check_count
from skillfs.writing.writer import Batch, is_marker

__all__ = ["check_local", "local_blocks", "markers_first", "pairs_of", "path_text", "plan_all"]

T = TypeVar("T")

BLOCK = 1 << 20
"""Bytes that are read at once."""

SHOWN = 3
"""Components of a local path that an error shows: which file it is, and not where on the machine."""


def pairs_of(
    fs: Any, bulk: Callable[..., None], source: Any, target: Any, recursive: bool, maxdepth: int | None
) -> list[tuple[str, Any]]:
    """Which path goes to which, as fsspec has it for a bulk call; source first.

    Args:
        fs: The filesystem.
        bulk: `AbstractFileSystem.copy` or `AbstractFileSystem.put`.
        source: A path, a pattern, or a list of either.
        target: A path, or a list of as many.
        recursive: Whether folders go with all they hold.
        maxdepth: Levels of that; None for all.

    Raises:
        InvalidArgumentError: An argument is malformed.
        NotFoundError: Nothing answers to the source.
    """
    if maxdepth is not None:
        check_count("maxdepth", maxdepth, 1)
    sources, targets = _path_texts(source), _path_texts(target)
    if isinstance(sources, list) and isinstance(targets, list) and len(sources) != len(targets):
        raise InvalidArgumentError("the two lists must have one length; pass one target for each source")
    if isinstance(targets, list) and not isinstance(sources, list):
        raise InvalidArgumentError("a list of targets needs a list of sources; pass one path")
    if bulk is AbstractFileSystem.copy and isinstance(sources, str) and isinstance(targets, str):
        literal = _literal_pairs(fs, sources, targets, recursive, maxdepth)
        if literal is not None:
            return _with_linked(fs, literal)
    planner = _Planner(fs)
    try:
        bulk(planner, sources, targets, recursive=recursive, maxdepth=maxdepth)
    except SkillFSError:
        raise
    except FileNotFoundError as error:
        raise not_found(source) from error
    return _with_linked(fs, planner.pairs) if bulk is AbstractFileSystem.copy else planner.pairs


def _with_linked(fs: Any, pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The same, with what links to folders lead to: nothing that lists them descends into these.

    Raises:
        InvalidArgumentError: A link leads to a folder that it lies in, or to one with more such links.
    """
    held = {path.rpartition("/")[0] for path, _ in pairs}
    found = []
    for path, to in pairs:
        found.append((path, to))
        if path in held or not _is_linked_folder(fs, path):
            continue
        top, above = fs._at(path).row.path, fs._at(path.rpartition("/")[0]).row.path
        if is_below(above, top):
            raise InvalidArgumentError(
                f"the link {quoted(path.lstrip('/'))} leads to a folder that it lies in, and a copy of that "
                "would never end; copy what it leads to by its own name"
            )
        shown = fs._strip_protocol(path)
        for name in fs.find(path, withdirs=True):
            if name == shown:
                continue
            if _is_linked_folder(fs, name):
                raise InvalidArgumentError(
                    f"{quoted(name)} is a link to a folder behind another, which is not copied; "
                    "copy what it leads to by its own name"
                )
            found.append((f"/{name}", to.rstrip("/") + name[len(shown) :]))
    return found


def _is_linked_folder(fs: Any, path: str) -> bool:
    try:
        info = fs.info(path)
    except NotFoundError:
        return False
    return bool(info["islink"]) and info["type"] == "directory"


def _literal_pairs(
    fs: Any, source: str, target: str, recursive: bool, maxdepth: int | None
) -> list[tuple[str, Any]] | None:
    """The pairs for a source that something is named by, though it could be a pattern."""
    if not has_magic(source) or not fs.exists(source):
        return None
    top = fs._strip_protocol(source)
    if (target.endswith("/") or fs.isdir(target)) and not source.endswith("/"):
        target = f"{target.rstrip('/')}/{top.rpartition('/')[2]}"
    if not fs.isdir(top):
        return [(top, target)]
    if not recursive:
        return []
    found = fs.find(top, maxdepth=maxdepth, withdirs=True)
    return [(path, target.rstrip("/") + path[len(top) :]) for path in found]


class _Planner:
    """Stands in for a filesystem while fsspec works out which path goes to which."""

    def __init__(self, fs: Any) -> None:
        self._fs = fs
        self.pairs: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def expand_path(self, *args: Any, **kwargs: Any) -> list[str]:
        # Without a slash in it fsspec takes a path for one that has no name of its own.
        return [f"/{path}" for path in self._fs.expand_path(*args, **kwargs)]

    def put_file(self, lpath: str, rpath: Any, **kwargs: Any) -> None:
        self.pairs.append((lpath, rpath))

    def cp_file(self, path1: str, path2: Any, **kwargs: Any) -> None:
        self.pairs.append((path1, path2))


def plan_all(
    files: Iterable[tuple[Batch, Asked]], folders: Iterable[tuple[Batch, Asked]], *, exclusive: bool = False
) -> None:
    """Check everything before anything is written."""
    planned: dict[Batch, tuple[list[Asked], list[Asked]]] = {}
    for number, items in enumerate((files, folders)):
        for batch, asked in items:
            planned.setdefault(batch, ([], []))[number].append(asked)
    for batch, (some_files, some_folders) in planned.items():
        batch.plan(some_files, some_folders, exclusive=exclusive)


def markers_first(items: Iterable[T], path_of: Callable[[T], Asked | str]) -> list[T]:
    """Each `SKILL.md` before the rest, both in the order they had."""

    def comes_later(item: T) -> bool:
        path = path_of(item)
        return not (path.rpartition("/")[2] == "SKILL.md" if isinstance(path, str) else is_marker(path))

    return sorted(items, key=comes_later)


def check_local(local: str) -> None:
    """See to it that a local file can be read; raises as `local_blocks` does."""
    with _local_errors(local):
        os.close(_opened(local))


def local_blocks(local: str) -> Iterator[bytes]:
    """A local file, in blocks; it belongs to whoever calls, and may be a link.

    Raises:
        NotFoundError: It is not there.
        UnreadableError: It may not be read.
        InvalidArgumentError: It is no file that can be read.
    """
    with _local_errors(local), open(_opened(local), "rb", buffering=0) as file:
        while block := file.read(BLOCK):
            yield block


def _opened(local: str) -> int:
    # A FIFO that nobody writes to would never open, and a device might never end.
    fd = os.open(local, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file")
    return fd


@contextlib.contextmanager
def _local_errors(local: str) -> Iterator[None]:
    try:
        yield
    except SkillFSError:
        raise
    except OSError as error:
        shown = quoted("/".join(local.split("/")[-SHOWN:]))
        if isinstance(error, FileNotFoundError):
            raise NotFoundError(f"the local file {shown} is not there; check its path") from error
        if isinstance(error, PermissionError):
            raise UnreadableError(f"the local file {shown} may not be read by this user") from error
        why = error.strerror or type(error).__name__
        raise InvalidArgumentError(
            f"the local file {shown} cannot be read ({why}); leave it out of what is put"
        ) from error


def path_text(path: object) -> str:
    """A path as text.

    Raises:
        InvalidArgumentError: It is none.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str) or "\0" in text:
        raise InvalidArgumentError(f"a path is a string or an os.PathLike of one, not {quoted(path)}")
    return text


def _path_texts(paths: object) -> str | list[str]:
    return [path_text(path) for path in paths] if isinstance(paths, list | tuple) else path_text(paths)
