"""A file that is being written, and what can go wrong with it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Iterator, Sequence

from skillfs.core.model import Place
from skillfs.errors import (
    ChangedError,
    InvalidArgumentError,
    IsFolderError,
    ReadOnlyError,
    SkillFSError,
    StoreUnavailableError,
    TooLargeError,
    UnreadableError,
    no_handle_left,
    not_found,
    quoted,
)
from skillfs.lookup import Asked
from skillfs.stores.base import Sink, StaleFile, WritableStore
from skillfs.writing.placing import exists_error

__all__ = ["Writing", "changed_error", "failing", "failing_between", "unmake"]

_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))
_REPLACED = frozenset((errno.ELOOP, errno.ENOTDIR, errno.ESTALE))


class Writing:
    """A file that is being written; nothing of it can be seen before a batch commits it.

    Args:
        store: The store.
        asked: What the caller calls it.
        path: Store path.
        sink: Takes the bytes.
        made: Folders that were made for it.
        skill: Path of the skill that is to enclose it; None where it makes one itself.
        folder: What names the folder that it lies in, whatever that is called; empty where nothing does.
    """

    def __init__(
        self,
        store: WritableStore,
        asked: Asked,
        path: str,
        sink: Sink,
        made: Iterable[str],
        *,
        skill: str | None,
        folder: bytes,
    ) -> None:
        self.asked = asked
        self.path = path
        self.skill = skill
        self.folder = folder
        self.size = 0
        self._store = store
        self._sink: Sink | None = sink
        self._made = list(made)
        self._watched: tuple[Place, bytes] | None = None

    def write(self, data: bytes) -> None:
        """Add bytes at the end.

        Raises:
            SkillFSError: The store does not take them.
        """
        assert self._sink is not None
        with failing(self.asked):
            self._sink.write(data)
        self.size += len(data)

    def take_over(self, place: Place, *, keep_watch: bool = False) -> None:
        """Add all bytes of a file of the store.

        Args:
            place: Where it lies.
            keep_watch: Whether that file has to be the same still when this one is committed.

        Raises:
            ChangedError: It changes while it is read.
        """
        with self._store.open(place) as handle:
            try:
                for block in handle.blocks():
                    self.write(block)
                unchanged = handle.unchanged()
            except StaleFile:
                unchanged = False
            if not unchanged:
                raise changed_error(self.asked)
            if keep_watch:
                self._watched = (place, handle.state.signature)

    def commit(self) -> list[str]:
        """See `Batch.commit`; returns the folders that were made for it."""
        assert self._sink is not None
        try:
            with failing(self.asked):
                if self._watched is not None:
                    place, signature = self._watched
                    with self._store.open(place) as handle:
                        if handle.state.signature != signature:
                            raise changed_error(self.asked)
                self._sink.commit()
        except BaseException:
            self.discard()
            raise
        self._sink = None
        return self._made

    def discard(self) -> None:
        """Leave nothing behind; does nothing after a commit."""
        if self._sink is not None:
            self._sink.discard()
            self._sink = None
            unmake(self._store, self._made)


@contextlib.contextmanager
def failing(asked: Asked, *, reading: bool = False) -> Iterator[None]:
    """Tell errors of the system in the words of a caller.

    Args:
        asked: What the caller calls the thing that is worked on.
        reading: Whether it is read, and not written.
    """
    try:
        yield
    except SkillFSError:
        raise
    except OSError as error:
        raise _in_words(error, asked, reading) from error


@contextlib.contextmanager
def failing_between(source: Asked, path: str, asked: Asked, *, reading: bool) -> Iterator[None]:
    """The same for what is done between two places: of an error's two ends that which it is about is named.

    Args:
        source: What the caller calls the one that things come from.
        path: Its store path, by which errors name it.
        asked: What the caller calls the other.
        reading: Whether the first is only read.
    """
    try:
        yield
    except SkillFSError:
        raise
    except OSError as error:
        named = error.filename
        if named == path if named is not None else isinstance(error, FileNotFoundError):
            raise _in_words(error, source, reading) from error
        raise _in_words(error, asked, False) from error


def _in_words(error: OSError, asked: Asked, reading: bool) -> SkillFSError:
    shown, code = quoted(asked.shown), error.errno
    if code in _NO_ROOM:
        return StoreUnavailableError(f"no room is left in the store for {shown}; make room and try again")
    if (exhausted := no_handle_left(error)) is not None:
        return exhausted
    if code == errno.EROFS:
        return ReadOnlyError(f"the store lies on a read-only filesystem; {shown} cannot be changed")
    if code == errno.ENOTEMPTY:
        return InvalidArgumentError(f"the folder {shown} is not empty; remove what is in it first")
    if code == errno.EXDEV:
        return InvalidArgumentError(f"another device is mounted on the way to {shown}; choose another path")
    if code == errno.ENAMETOOLONG:
        return InvalidArgumentError(f"the path {shown} is too long for the store; choose a shorter one")
    if code == errno.EFBIG:
        return TooLargeError(f"{shown} is larger than the store can hold; write less")
    if isinstance(error, FileExistsError):
        return exists_error(asked)
    if isinstance(error, PermissionError) and reading:
        return UnreadableError(f"{shown} may not be read by this user; mend its permissions")
    if isinstance(error, PermissionError):
        return UnreadableError(f"{shown} may not be written by this user; mend the permissions of its folder")
    if isinstance(error, FileNotFoundError):
        return not_found(asked.shown)
    if isinstance(error, IsADirectoryError):
        return IsFolderError(f"{shown} names a folder; name a file, or remove recursively")
    if code in _REPLACED:
        return changed_error(asked)
    why = error.strerror or type(error).__name__
    doing = "reading" if reading else "writing"
    return StoreUnavailableError(f"{doing} {shown} failed ({why}); try again")


def changed_error(asked: Asked) -> ChangedError:
    """The error for what is another than it was when the work on it began."""
    shown = quoted(asked.shown)
    return ChangedError(f"{shown}, or what leads to it, changed meanwhile; look again and try again")


def unmake(store: WritableStore, folders: Sequence[str]) -> None:
    """Remove folders again that were made for something that failed; those above come first in the list."""
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            store.remove_folder(Place(0, folder))
