"""From a path or URL to the object folder that lies there."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from skillfs.errors import InvalidArgumentError, quoted
from skillfs.objects.folder import ObjectFolder
from skillfs.objects.local import LocalObjects

__all__ = ["open_objects"]

_SCHEME = re.compile(r"([A-Za-z0-9][A-Za-z0-9+._-]*)://").match


def open_objects(
    where: str | os.PathLike[str], options: Mapping[str, Any] | None = None, *, create: bool = True
) -> ObjectFolder:
    """Open an object folder.

    Args:
        where: Path of a local folder; as text also the URL of a folder in any filesystem that fsspec knows.
        options: For the filesystem of a URL, as fsspec takes them.
        create: Whether to make the folder when it is not there. A local one is made for this user only.

    Raises:
        InvalidArgumentError: It cannot be the place of an object folder, or the options do not fit.
        NotFoundError: There is none, and it is not to be made.
        UnreadableError: This user may not read or make it.
        StoreUnavailableError: It cannot be read or made now.
    """
    if not isinstance(where, str | os.PathLike):
        raise InvalidArgumentError(f"objects is {quoted(where)}; pass the path of a folder, or a URL")
    text = os.fspath(where)
    scheme = _SCHEME(text) if isinstance(where, str) else None
    if scheme is not None and scheme[1] not in ("file", "local"):
        from skillfs.objects.remote import open_remote

        return open_remote(text, dict(options or {}), create=create)
    if options:
        raise InvalidArgumentError(
            f"a local object folder takes no option {quoted(next(iter(options)))}; leave it away"
        )
    if scheme is not None:
        text = re.sub("/{2,}", "/", text[scheme.end() :])
    return LocalObjects(text, create=create)
