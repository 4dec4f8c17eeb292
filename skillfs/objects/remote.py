"""A folder of objects behind any filesystem of fsspec, such as a bucket that a team shares.

Where the filesystem has conditional writes, as S3 has, two that create one name never both succeed; elsewhere
it is looked first whether the name is there. Where it does not replace files at once, a killed writer can
leave a part of an object under its name: it does not match that, and is written anew by whoever needs it.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, BinaryIO, NamedTuple, cast

from skillfs.core.manifest_json import MOST_JSON_BYTES
from skillfs.core.model import Place
from skillfs.errors import (
    IntegrityError,
    NotFoundError,
    ReadOnlyError,
    SkillFSError,
    StoreUnavailableError,
    UnreadableError,
)
from skillfs.objects.folder import ObjectFolder, ObjectInfo, bad_name, check_name, check_prefix, is_name
from skillfs.objects.holds import Holds
from skillfs.objects.local import LocalObjects
from skillfs.stores.base import FileState, Handle, StaleFile
from skillfs.stores.remote import RemoteStore
from skillfs.stores.source import Source, WritableSource
from skillfs.stores.targets import open_source
from skillfs.stores.workers import MOST_WORKERS, Workers

__all__ = ["FsspecObjects", "open_remote"]

ONE_READING = 8 << 20
"""Bytes of a small object that are asked for at once: nearly all of them are no longer."""

SPOOLED = 4 << 20
"""Bytes of one object that wait in memory to be sent; more go to a temporary file."""

MOST_WAITING_BYTES = 64 << 20
ATTEMPTS = 3
"""How often a reading starts over when the object is written anew meanwhile."""


def open_remote(url: str, options: dict[str, Any], *, create: bool) -> ObjectFolder:
    """Open the object folder that a URL names; see `open_objects`."""
    try:
        source = open_source(url, None, options)
    except NotFoundError as error:
        if not create:
            raise NotFoundError("there is no object folder; take a snapshot, or name another") from error
        _make_folder(url, options)
        source = open_source(url, None, options)
    if isinstance(source, str):
        return LocalObjects(source, create=create)
    return FsspecObjects(source)


def _make_folder(url: str, options: dict[str, Any]) -> None:
    from fsspec.core import url_to_fs

    try:
        fs, path = url_to_fs(url, **options)
        fs.makedirs(path, exist_ok=True)
    except Exception as error:  # what it says may hold a host or a path
        raise StoreUnavailableError(
            f"the object folder cannot be made ({type(error).__name__}); make it, and try again"
        ) from error


class FsspecObjects:
    """A folder of objects below the root of a source; see `ObjectFolder`.

    Args:
        source: The filesystem.
    """

    remote = True

    def __init__(self, source: Source) -> None:
        self._source = source
        self._store = RemoteStore(source)
        self._made: set[str] = set()
        self._holds = Holds(source)
        self.url = source.url

    # -- reading -------------------------------------------------------------------------------------------

    def open(self, name: str) -> Handle:
        """See `ObjectFolder.open`."""
        return _ObjectHandle(self._store, check_name(name))

    def get(self, name: str) -> bytes:
        """See `ObjectFolder.get`."""
        check_name(name)
        with _telling():
            for _ in range(ATTEMPTS):
                state, data = self._source.head(name, ONE_READING)
                if state.size > MOST_JSON_BYTES:
                    raise IntegrityError("an object is larger than it can be; run: skillfs snapshot fsck")
                if state.size <= len(data):
                    return data
                known = state._replace(signature=state.signature.removesuffix(b"?"))
                with contextlib.suppress(StaleFile):
                    return data + self._source.get(name, len(data), state.size, known)
        raise StoreUnavailableError("an object changes faster than it can be read; try again")

    def get_all(self, names: Sequence[str]) -> list[bytes | None]:
        """See `ObjectFolder.get_all`: several at a time."""

        def get(name: str) -> bytes | None:
            try:
                return self.get(name)
            except FileNotFoundError:
                return None

        if len(names) <= 1:
            return [get(name) for name in names]
        with Workers() as workers:
            return workers.map(get, list(names))

    def has(self, name: str, size: int | None = None) -> bool:
        """See `ObjectFolder.has`."""
        with _telling():
            state = self._source.state(check_name(name))
        return state is not None and (size is None or state.size in (-1, size))

    def listed(self, prefix: str) -> Iterator[ObjectInfo]:
        """See `ObjectFolder.listed`: one listing, of a thousand keys a request on S3."""
        folder = check_prefix(prefix)[:-1]
        with _telling():
            found = [
                ObjectInfo(key, state.size, state.modified)
                for key, kind, state in self._source.find(folder)
                if kind == "file" and is_name(key)
            ]
        yield from sorted(found)

    def sizes(self, prefix: str) -> dict[str, int]:
        """See `ObjectFolder.sizes`."""
        return {info.name.removeprefix(prefix): info.size for info in self.listed(prefix)}

    def has_any(self, prefix: str) -> bool:
        """See `ObjectFolder.has_any`: by one request on S3."""
        folder = check_prefix(prefix)[:-1]
        with _telling():
            found = self._source.find(folder)
            return any(kind == "file" and is_name(key) for key, kind, _ in found)

    # -- writing -------------------------------------------------------------------------------------------

    def put_all(self, objects: Iterable[tuple[str, Iterable[bytes]]]) -> None:
        """See `ObjectFolder.put_all`: several at a time."""
        under_way: deque[tuple[Future[None], int]] = deque()
        waiting = 0

        def wait_for_one() -> int:
            future, size = under_way.popleft()
            future.result()
            return size

        with Workers() as workers:
            for name, content in objects:
                whole = self._spooled(check_name(name), content)
                under_way.append((workers.submit(self._put, whole), whole.size))
                waiting += whole.size
                while len(under_way) >= MOST_WORKERS or waiting > MOST_WAITING_BYTES:
                    waiting -= wait_for_one()
            while under_way:
                wait_for_one()

    def _spooled(self, name: str, content: Iterable[bytes]) -> _Whole:
        target = self._target
        self._make_way(name)
        file = tempfile.SpooledTemporaryFile(SPOOLED)  # noqa: SIM115  # closed when it was sent
        try:
            for block in content:
                file.write(block)
            return _Whole(target, name, cast(BinaryIO, file), file.tell())
        except BaseException:
            file.close()
            raise

    def _put(self, whole: _Whole) -> None:
        with whole.file, _telling():
            whole.target.put(whole.name, whole.file, whole.size, exclusive=False)

    def create(self, name: str, data: bytes) -> bool:
        """See `ObjectFolder.create`."""
        target = self._target
        self._holds.check()
        self._make_way(check_name(name))
        try:
            with _telling(existing=False):
                target.put(name, io.BytesIO(data), len(data), exclusive=True)
        except FileExistsError:
            return False
        return True

    def remove(self, name: str) -> None:
        """See `ObjectFolder.remove`."""
        target = self._target
        self._holds.check()
        with _telling(), contextlib.suppress(FileNotFoundError):
            target.delete(check_name(name))

    def set_aside(self, name: str) -> None:
        """See `ObjectFolder.set_aside`."""
        target, bad = self._target, bad_name(name)
        self._holds.check()
        self._make_way(bad)
        with _telling(), contextlib.suppress(FileNotFoundError):
            target.copy(name, bad)
            target.delete(name)

    def leftovers(self, *, remove: bool = False) -> list[ObjectInfo]:
        """See `ObjectFolder.leftovers`: flags of those who have not renewed them for an hour."""
        with _telling():
            return self._holds.abandoned(remove=remove)

    @contextlib.contextmanager
    def holding(self, *, alone: bool, wait: bool = True) -> Iterator[None]:
        """See `ObjectFolder.holding`."""
        with contextlib.ExitStack() as stack:
            with _telling():
                target = self._target
                self._make_way(self._holds.example)
                stack.enter_context(self._holds.holding(target, alone=alone, wait=wait))
            yield

    @property
    def _target(self) -> WritableSource:
        if not self._source.writable:
            raise ReadOnlyError("the object folder lies where nothing can be written; name another")
        return cast(WritableSource, self._source)

    def _make_way(self, name: str) -> None:
        """Make the folders that lead to a name, where there are such."""
        if not self._source.holds_empty_folders:
            return
        folder = ""
        for part in name.split("/")[:-1]:
            folder = f"{folder}/{part}" if folder else part
            if folder not in self._made:
                with _telling(existing=False), contextlib.suppress(FileExistsError):
                    self._target.make_folder(folder)
                self._made.add(folder)


class _Whole(NamedTuple):
    """An object that waits to be sent."""

    target: WritableSource
    name: str
    file: BinaryIO
    size: int


class _ObjectHandle:
    """An object that is open; see `Handle`. One that is written anew meanwhile, the same, is opened again."""

    def __init__(self, store: RemoteStore, name: str) -> None:
        self._store = store
        self._name = name
        self._handle = self._opened()
        self.state: FileState = self._handle.state

    def _opened(self) -> Handle:
        with _telling():
            return self._store.open(Place(0, self._name))

    def read(self, offset: int, length: int) -> bytes:
        """See `Handle.read`."""
        for _ in range(ATTEMPTS):
            try:
                with _telling():
                    return self._handle.read(offset, length)
            except StaleFile:
                self._open_again()
        raise StoreUnavailableError("an object changes faster than it can be read; try again")

    def _open_again(self) -> None:
        try:
            self._handle = self._opened()
        except FileNotFoundError as error:
            raise IntegrityError(
                "an object is missing from the object folder since it was opened; run: skillfs snapshot fsck"
            ) from error

    def blocks(self) -> Iterator[bytes]:
        """See `Handle.blocks`."""
        try:
            with _telling():
                yield from self._handle.blocks()
        except StaleFile:
            self._open_again()
            raise StoreUnavailableError("an object changed while it was read; try again") from None

    def unchanged(self) -> bool:
        """See `Handle.unchanged`: every reading sees to that."""
        return True

    def settled(self) -> FileState:
        """See `Handle.settled`."""
        return self._handle.settled()

    def close(self) -> None:
        """See `Handle.close`."""
        self._handle.close()

    def __enter__(self) -> _ObjectHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def _telling(*, existing: bool = True) -> Iterator[None]:
    """Errors of the filesystem come out as what they mean; that there is no such object passes through.

    Args:
        existing: Whether what is there already is an error, too.
    """
    try:
        yield
    except (SkillFSError, FileNotFoundError):
        raise
    except PermissionError as error:
        raise UnreadableError(
            "the object folder may not be read or written with these credentials; pass others"
        ) from error
    except FileExistsError as error:
        if existing:
            raise _other_kind() from error
        raise
    except (IsADirectoryError, NotADirectoryError) as error:
        raise _other_kind() from error


def _other_kind() -> IntegrityError:
    return IntegrityError("something else lies in the object folder where an object belongs; remove it")


_FOLDER: type[ObjectFolder] = FsspecObjects
_HANDLE: type[Handle] = _ObjectHandle
