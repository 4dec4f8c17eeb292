"""The files that archives are: on this machine, or in another source."""

from __future__ import annotations

import io
import os
import stat
import time
from typing import Any, BinaryIO, NamedTuple, Protocol

from skillfs.stores.attributes import digest_of
from skillfs.stores.base import FileState
from skillfs.stores.patience import Refused
from skillfs.stores.source import YOUNG_NS, Source, is_not_there

__all__ = ["Container", "FileContainer", "SourceContainer", "Version"]

HELD = 16 << 20
"""Bytes up to which an archive is fetched whole, in one request."""

AHEAD = 256 << 10
"""Bytes that are read at once from a larger one."""

FINE_NS = 20_000_000
"""Twice the tick of the clock that Linux stamps files with, at its coarsest."""


class Version(NamedTuple):
    """What an archive's file is at one moment.

    Attributes:
        mark: Of equal versions it is equal.
        sure: Whether another version would have another mark.
    """

    mark: bytes
    sure: bool


class Container(Protocol):
    """The file that an archive is.

    Attributes:
        url: Canonical URL.
        account: As of a `Source`.
    """

    url: str
    account: str

    def version(self) -> Version:
        """What it is now; FileNotFoundError when it is not there."""

    def open(self) -> tuple[BinaryIO, Version]:
        """Open it; no read returns bytes of another version without that showing in `version`."""


class FileContainer:
    """An archive on this machine; see `Container`.

    Args:
        path: Where it lies.
        url: Canonical URL.
    """

    def __init__(self, path: str, url: str) -> None:
        self._path = path
        self.url = url
        self.account = ""

    def version(self) -> Version:
        """See `Container.version`."""
        return _version_of(os.stat(self._path))

    def open(self) -> tuple[BinaryIO, Version]:
        """See `Container.open`."""
        _version_of(os.stat(self._path))
        # Should it be a pipe by now, this does not wait for a writer.
        fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        file = io.BufferedReader(_Nameless(fd))
        try:
            return file, _version_of(os.fstat(file.fileno()))
        except BaseException:
            file.close()
            raise


class _Nameless(io.FileIO):
    """A file that does not tell its name: fsspec would take `x.tgz` for compressed, whatever is in it."""

    @property
    def name(self) -> Any:
        raise AttributeError

    @name.setter
    def name(self, value: object) -> None:
        pass


def _version_of(st: os.stat_result) -> Version:
    if not stat.S_ISREG(st.st_mode):
        raise Refused("the archive is no file")
    known = (st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns)
    # A time of whole milliseconds is taken for one of a filesystem that keeps no finer ones.
    granule = FINE_NS if st.st_ctime_ns % 1_000_000 else YOUNG_NS
    return Version(digest_of(known), time.time_ns() - st.st_ctime_ns > granule)


class SourceContainer:
    """An archive in another source; see `Container`.

    Args:
        source: The source.
        key: Of the archive in it.
    """

    def __init__(self, source: Source, key: str) -> None:
        self._source = source
        self._key = key
        self.url = f"{source.url}/{key}"
        self.account = source.account

    def version(self) -> Version:
        """See `Container.version`."""
        state = self._source.state(self._key)
        if state is None:
            raise is_not_there()
        return self._version(state)

    def open(self) -> tuple[BinaryIO, Version]:
        """See `Container.open`."""
        state = self._source.state(self._key)
        if state is None:
            raise is_not_there()
        if state.size < 0 or not state.signature or state.size <= HELD:
            held = io.BytesIO(b"".join(self._source.blocks(self._key, state)))
            return held, self._version(state)
        file = io.BufferedReader(_SourceFile(self._source, self._key, state), AHEAD)
        return file, self._version(state)

    def _version(self, state: FileState) -> Version:
        settled = self._source.settled(state)
        return Version(state.signature.removesuffix(b"?"), not settled.signature.endswith(b"?"))


class _SourceFile(io.RawIOBase):
    """One version of a file of a source, for those who want a file to read."""

    def __init__(self, source: Source, key: str, state: FileState) -> None:
        super().__init__()
        self._source = source
        self._key = key
        self._state = state
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._state.size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._state.size)
        if end <= self._at:
            return 0
        data = self._source.get(self._key, self._at, end, self._state)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
