"""What filesystems tell about a file, in whatever words, as one state.

| a listing gives | the signature is | so |
|---|---|---|
| an ETag, a checksum, a version or generation | these and the size | every change is noticed |
| times | all of them and the size | a change is noticed unless size and times are the same |
| neither | nothing | facts are never kept, and every reading reads the whole file |
"""

from __future__ import annotations

import calendar
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from skillfs.core.digest import xxh3
from skillfs.stores.base import FileState

__all__ = ["Kind", "Tells", "digest_of", "kind_of", "least", "state_of"]

MOST_NANOSECONDS = 1 << 63
"""What a time must lie below to be kept: in the year 2262."""

Kind = Literal["file", "folder", "other"]
Tells = Literal["version", "time", "nothing"]

_VERSIONS = (
    *("ETag", "etag", "md5Hash", "md5", "Content-MD5", "content_md5", "sha", "sha256", "checksum", "Digest"),
    *("crc32c", "CRC", "generation", "metageneration", "VersionId", "version_id"),
)
_TIMES = (
    "LastModified",
    "last_modified",
    "Last-Modified",
    "updated",
    "mtime",
    "modified",
    "date_time",
    "created",
)

_ORDER: tuple[Tells, ...] = ("nothing", "time", "version")


def least(one: Tells, other: Tells) -> Tells:
    """The one that promises less."""
    return min(one, other, key=_ORDER.index)


def kind_of(info: Mapping[str, Any]) -> Kind:
    """What a thing is; `other` is what is neither file nor folder, such as a link."""
    mode = info.get("mode")
    if isinstance(mode, str) and mode.isdecimal():
        mode = int(mode, 8)  # as git writes it
    if info.get("islink") or (isinstance(mode, int) and stat.S_ISLNK(mode)):
        return "other"
    kind = info.get("type")
    return "file" if kind == "file" else "folder" if kind == "directory" else "other"


def state_of(info: Mapping[str, Any], salt: bytes = b"") -> tuple[FileState, Tells]:
    """The state of a file, and what it is made of.

    Args:
        info: As a filesystem of fsspec gives it.
        salt: What more makes it another file when it is another.
    """
    size = info.get("size")
    size = size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else -1
    found = (_nanoseconds(info.get(key)) for key in _TIMES)
    times = [t for t in found if t is not None and abs(t) < MOST_NANOSECONDS]
    modified = times[0] if times else 0
    versions = [(key, str(info[key])) for key in _VERSIONS if info.get(key) not in (None, "")]
    if versions:
        return FileState(b"v" + digest_of((size, versions, salt)), size, modified), "version"
    if times:
        return FileState(b"t" + digest_of((size, times, salt)), size, modified), "time"
    return FileState(b"", size, 0), "nothing"


def digest_of(value: object) -> bytes:
    """In hex, because of the bytes themselves one in 256 ends like a state that is not settled."""
    return xxh3(repr(value).encode("utf-8", "backslashreplace")).hex().encode()


def _nanoseconds(value: object) -> int | None:
    """A time in any of the forms in which filesystems give one."""
    try:
        if isinstance(value, datetime):
            aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return int(aware.timestamp() * 1_000_000) * 1_000
        if isinstance(value, tuple) and len(value) == 6:
            return calendar.timegm((*value, 0, 0, 0)) * 1_000_000_000
        if isinstance(value, str):
            dated = value[:4].isdecimal()
            return _nanoseconds(datetime.fromisoformat(value) if dated else parsedate_to_datetime(value))
        if isinstance(value, int | float) and not isinstance(value, bool):
            return int(value * 1_000_000) * 1_000
    except (ValueError, OverflowError, OSError, TypeError):
        pass
    return None
