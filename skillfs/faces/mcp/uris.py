"""`skill://` URIs of store paths, and what their files are."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from mimetypes import MimeTypes
from urllib.parse import quote, unquote

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from skillfs.errors import quoted

__all__ = ["DIRECTORY", "SCHEME", "cursor_of", "media_type", "path_of", "place_of", "shown", "uri_of"]

SCHEME = "skill://"
DIRECTORY = "inode/directory"

_SAFE = "!$&'()*+,;=-._~"
"""Besides letters and digits, what both the first segment (an authority) and the others may hold as it is."""

_LONGEST_CURSOR = 16 * 1024

# The built-in table alone: what the machine has in its own files would change the answers.
_TYPES = MimeTypes(filenames=())
for _suffix, _type in {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".toml": "application/toml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".ts": "text/x-typescript",
    ".sh": "application/x-sh",
    ".py": "text/x-python",
}.items():
    _TYPES.add_type(_type, _suffix)
_PACKED = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}


def uri_of(path: str) -> str:
    """The URI of a store path.

    >>> uri_of("a b/Ä.md")
    'skill://a%20b/%C3%84.md'
    """
    return SCHEME + "/".join(quote(part, safe=_SAFE) for part in path.split("/"))


def path_of(uri: str) -> str | None:
    """The store path that a URI names, whether there is anything or not; None when it is none of ours."""
    if not uri.startswith(SCHEME):
        return None
    try:
        return unquote(uri[len(SCHEME) :], errors="strict").strip("/")
    except UnicodeDecodeError:
        return None


def shown(uri: str, roots: Iterable[str]) -> str:
    """A URI that was asked for as errors echo it, without the root of a store that may stand in it."""
    for root in sorted(roots, key=len, reverse=True):
        uri = uri.replace(root, "") if len(root) > 1 else uri
    return quoted(uri)


def media_type(name: str) -> str | None:
    """The media type that the name of a file tells, if it tells one."""
    kind, packed = _TYPES.guess_type(f"x/{name}", strict=False)
    return _PACKED.get(packed, "application/octet-stream") if packed else kind


def cursor_of(what: str, place: str) -> str:
    """A cursor that goes on behind a place of one kind of listing."""
    return base64.urlsafe_b64encode(json.dumps([what, place]).encode()).decode("ascii")


def place_of(what: str, cursor: str | None) -> str | None:
    """The place that a cursor goes on behind; None for the first page.

    Raises:
        MCPError: It is no cursor of this listing.
    """
    if cursor is None:
        return None
    try:
        if len(cursor) > _LONGEST_CURSOR:
            raise ValueError
        kind, place = json.loads(base64.b64decode(cursor.encode("ascii"), b"-_", validate=True))
        if kind != what or not isinstance(place, str):
            raise ValueError
        place.encode()
    except (ValueError, TypeError, binascii.Error, RecursionError):
        message = f"{quoted(cursor)} is no cursor of this listing; pass nextCursor of its last page, or none"
        raise MCPError(INVALID_PARAMS, message) from None
    return place
