"""Every visible file as a resource, and every folder as a directory of them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, PaginatedRequestParams

from skillfs.core.model import Kind
from skillfs.core.refs import find_unfit
from skillfs.errors import NotFoundError
from skillfs.faces.mcp.listed import Listed
from skillfs.faces.mcp.uris import DIRECTORY, SCHEME, cursor_of, media_type, path_of, place_of, shown, uri_of

if TYPE_CHECKING:
    from skillfs.core.model import Entry
    from skillfs.filesystem import SkillFileSystem

__all__ = ["MOST_BYTES", "TEMPLATE", "ReadDirectoryParams", "Resources"]

MOST_BYTES = 16 * 1024 * 1024
"""Bytes of a file that is answered as a resource; more is read in stretches, by a tool."""

PAGE = 200

_DESCRIPTION = 1_024

TEMPLATE = {
    "uriTemplate": f"{SCHEME}{{+path}}",
    "name": "file",
    "title": "A file of a skill",
    "description": "Any file by its path from the root of the store, percent-encoded.",
}


class ReadDirectoryParams(PaginatedRequestParams):
    """Parameters of `resources/directory/read`.

    Attributes:
        uri: URI of the folder, without a slash at its end.
    """

    uri: str


class Resources:
    """The files of a filesystem as resources.

    Args:
        fs: The filesystem.
        listed: What there is in it.
    """

    def __init__(self, fs: SkillFileSystem, listed: Listed) -> None:
        self._fs = fs
        self._listed = listed

    def page(self, cursor: str | None) -> dict[str, Any]:
        """A page of `resources/list`.

        Raises:
            MCPError: The cursor is none of this listing.
            SkillFSError: The store cannot be read now.
        """
        found: list[dict[str, Any]] = []
        following = None
        last = ""
        for looks, info in enumerate(self._listed.files_after(place_of("files", cursor))):
            if looks == PAGE:
                following = cursor_of("files", last)
                break
            last = info["name"]
            if not find_unfit(last):
                found.append(self._resource(uri_of(last), info))
        return _page(found, following)

    def directory(self, uri: str, cursor: str | None) -> dict[str, Any]:
        """A page of `resources/directory/read`.

        Raises:
            MCPError: It is no folder that is served, or the cursor is none of this listing.
            SkillFSError: The store cannot be read now.
        """
        entry = self._entry(uri)
        if entry.kind is Kind.FILE:
            message = f"{self._shown(uri)} is a file, and no directory resource; read it with resources/read"
            raise MCPError(INVALID_PARAMS, message)
        path = path_of(uri) or ""
        found: list[dict[str, Any]] = []
        following = None
        last = ""
        for looks, info in enumerate(self._listed.children_after(entry.path, place_of(path, cursor))):
            if looks == PAGE:
                following = cursor_of(path, last)
                break
            last = info["name"].rpartition("/")[2]
            if not find_unfit(last):
                child = uri_of(f"{path}/{last}" if path else last)
                found.append(self._resource(child, info))
        return _page(found, following)

    def read(self, uri: str, most: int = MOST_BYTES) -> dict[str, Any] | None:
        """What `resources/read` answers: the bytes as they are, as text where they are UTF-8.

        Args:
            uri: URI of a file.
            most: Bytes of a file that is read; None is returned for a larger one.

        Raises:
            MCPError: No file is served there, or it is too large for one answer.
            SkillFSError: It cannot be read now.
        """
        entry = self._entry(uri)
        if entry.kind is not Kind.FILE:
            message = f"{self._shown(uri)} is a directory; list it with resources/directory/read"
            raise MCPError(INVALID_PARAMS, message)
        size = entry.size or 0
        if most < size <= MOST_BYTES:
            return None
        if size <= MOST_BYTES:
            data = self._fs.cat_file(entry.path, 0, MOST_BYTES + 1)
            size = len(data)
        if size > MOST_BYTES:
            message = (
                f"{self._shown(uri)} has {size:,} bytes or more, and {MOST_BYTES:,} can be read at once; "
                "read it in stretches with the tool skill_get_content"
            )
            raise MCPError(INVALID_PARAMS, message, {"code": "too_large"})
        text = _text_of(data)
        kind = media_type(entry.name) or ("application/octet-stream" if text is None else "text/plain")
        content: dict[str, Any] = {"uri": uri, "mimeType": kind}
        if text is None:
            content["blob"] = base64.b64encode(data).decode("ascii")
        else:
            content["text"] = text
        return {"resultType": "complete", "contents": [content]}

    def _entry(self, uri: str) -> Entry:
        """What a URI of ours names.

        Raises:
            MCPError: Nothing visible.
            SkillFSError: The store cannot be read now.
        """
        if path_of(uri) is not None:
            try:
                return self._fs.entry(uri)
            except NotFoundError:
                pass
        raise MCPError(INVALID_PARAMS, f"no resource is served at {self._shown(uri)}; see resources/list")

    def _shown(self, uri: str) -> str:
        return shown(uri, self._fs.roots)

    def _resource(self, uri: str, info: dict[str, Any]) -> dict[str, Any]:
        """The metadata of a file or folder."""
        name = info["name"].rpartition("/")[2]
        if info["type"] == "directory":
            return {"uri": uri, "name": name, "mimeType": DIRECTORY}
        resource: dict[str, Any] = {"uri": uri, "name": name}
        if name == "SKILL.md":
            try:
                skill = self._fs.skill(uri)
                resource["name"] = skill.name
                if skill.description:
                    resource["description"] = skill.description[:_DESCRIPTION]
            except (NotFoundError, ValueError):
                pass  # gone since it was listed
        kind = media_type(name)
        if kind is not None:
            resource["mimeType"] = kind
        if info["size"] is not None:
            resource["size"] = info["size"]
        return resource


def _page(found: list[dict[str, Any]], following: str | None) -> dict[str, Any]:
    page: dict[str, Any] = {"resultType": "complete", "resources": found}
    if following is not None:
        page["nextCursor"] = following
    return page


def _text_of(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8", "strict")
    except UnicodeDecodeError:
        return None
