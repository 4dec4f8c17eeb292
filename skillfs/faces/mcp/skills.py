"""The Skills extension (`io.modelcontextprotocol/skills`): skills with their front matter and every file.

An entry is made of one version of `SKILL.md`: the digest that stands in it is of the bytes that its front
matter was read from. What the extension does not allow, or a host could not load, is left out of
`skills/list`, and told once by the log and in `_meta` of the page where it would have been.
"""

from __future__ import annotations

import logging
import threading
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, PaginatedRequestParams, RequestParams

from skillfs.core.model import Kind
from skillfs.core.refs import find_unfit
from skillfs.errors import (
    ChangedError,
    IntegrityError,
    InvalidArgumentError,
    IsFileError,
    IsFolderError,
    NotFoundError,
    SkillFSError,
    UnreadableError,
    not_found,
    quoted,
)
from skillfs.faces.mcp.listed import Listed
from skillfs.faces.mcp.uris import cursor_of, path_of, place_of, shown, uri_of
from skillfs.faces.mcp.verbatim import Unfit, front_matter_of

if TYPE_CHECKING:
    from skillfs.filesystem import SkillFileSystem

__all__ = ["EXTENSION", "SETTINGS", "SKIPPED", "GetSkillParams", "ListSkillsParams", "Skills"]

EXTENSION = "io.modelcontextprotocol/skills"
SETTINGS = {"directoryRead": True}

SKIPPED = "skillfs/skipped"
"""Key in `_meta` of a page: URIs and reasons of what was left out of it."""

# Limits of the extension.
MOST_FILES = 512
MOST_BYTES = 16 * 1024 * 1024

PAGE_SKILLS = 50
PAGE_FILES = 1_000
PAGE_LOOKS = 200
"""Skills that are looked at for a page at most, whether they are fit for it or not."""

_ATTEMPTS = 3

# What a skill answers that is being moved, removed or made anew.
_GONE = (NotFoundError, InvalidArgumentError, IsFileError, IsFolderError)

_MOST_REPORTED = 10_000
_MOST_KEPT = 10_000
_MOST_KEPT_CHARACTERS = 4_096

_log = logging.getLogger("skillfs")


class ListSkillsParams(PaginatedRequestParams):
    """Parameters of `skills/list`."""


class GetSkillParams(RequestParams):
    """Parameters of `skills/get`.

    Attributes:
        uri: URI of the `SKILL.md`.
    """

    uri: str


class Skills:
    """The entries of skills.

    Args:
        fs: The filesystem.
        listed: What there is in it.
    """

    def __init__(self, fs: SkillFileSystem, listed: Listed) -> None:
        self._fs = fs
        self._listed = listed
        self._reported: dict[str, str] = {}
        self._fit: dict[str, tuple[str, dict[str, Any]]] = {}
        """Digests and front matter of `SKILL.md` by the path of the skill, as they were last read."""
        self._lock = threading.Lock()

    def page(self, cursor: str | None) -> dict[str, Any]:
        """A page of `skills/list`.

        Raises:
            MCPError: The cursor is none of this listing.
            SkillFSError: The store cannot be read now.
        """
        skills: list[dict[str, Any]] = []
        skipped: list[dict[str, str]] = []
        looks = files = 0
        following = None
        last = ""
        for path in self._listed.skills_after(place_of("skills", cursor)):
            if looks == PAGE_LOOKS or len(skills) == PAGE_SKILLS or files >= PAGE_FILES:
                following = cursor_of("skills", last)
                break
            looks, last = looks + 1, path
            try:
                skill = self._entry(path)
            except Unfit as unfit:
                skipped.append({"uri": _skill_md(path), "reason": unfit.reason})
                self._report(path, unfit.reason)
            except NotFoundError:
                continue  # gone since it was listed
            else:
                skills.append(skill)
                files += len(skill["resources"])
        page: dict[str, Any] = {"resultType": "complete", "skills": skills, **self.freshness}
        if following is not None:
            page["nextCursor"] = following
        if skipped:
            page["_meta"] = {SKIPPED: skipped}
        return page

    def get(self, uri: str) -> dict[str, Any]:
        """What `skills/get` answers.

        Raises:
            MCPError: No skill is served there.
            SkillFSError: The store cannot be read now.
        """
        path = path_of(uri)
        try:
            entry = self._fs.entry(uri) if path is not None else None
        except (NotFoundError, ValueError, OSError) as error:
            if not isinstance(error, SkillFSError) or error.code in ("unavailable", "changed"):
                raise
            entry = None
        if entry is None or path is None:
            raise MCPError(INVALID_PARAMS, f"no skill is served at {self._shown(uri)}; see skills/list")
        if entry.kind is not Kind.FILE or entry.name != "SKILL.md" or entry.path != path:
            message = (
                f"{self._shown(uri)} is no SKILL.md of a skill; pass the URI of one, as skills/list tells it"
            )
            raise MCPError(INVALID_PARAMS, message)
        try:
            # Who asks for one wants it as it is now.
            with self._lock:
                self._fit.pop(path.rpartition("/")[0], None)
            skill = self._entry(path.rpartition("/")[0])
        except Unfit as unfit:
            message = f"{self._shown(uri)} is served as a file, and not as a skill: {unfit.reason}"
            raise MCPError(INVALID_PARAMS, message) from None
        except NotFoundError:
            raise MCPError(
                INVALID_PARAMS, f"no skill is served at {self._shown(uri)}; see skills/list"
            ) from None
        return {"resultType": "complete", "skill": skill, **self.freshness}

    def _shown(self, uri: str) -> str:
        return shown(uri, self._fs.roots)

    @property
    def freshness(self) -> dict[str, Any]:
        """How long an answer holds: as long as a check of the store does."""
        return {"ttlMs": int(min(self._fs.max_age, 3600) * 1000), "cacheScope": "private"}

    def _entry(self, path: str) -> dict[str, Any]:
        """The entry of a skill.

        Raises:
            Unfit: It cannot have one.
            NotFoundError: It is not there any more.
            StoreUnavailableError: The store cannot be read now.
        """
        if not path:
            raise Unfit("it is the root of the store, which has no name in a URI")
        if find_unfit(path):
            raise Unfit("it lies in a folder with a name that no URI can spell")
        try:
            for attempt in range(_ATTEMPTS):
                try:
                    entry = self._attempt(path)
                except _GONE:
                    if attempt == _ATTEMPTS - 1:
                        raise not_found(uri_of(path)) from None
                    continue
                if entry is not None:
                    return entry
        except (UnreadableError, IntegrityError):
            raise Unfit("a file of it cannot be read") from None
        except ChangedError:
            pass
        raise Unfit("it changes faster than it can be read")

    def _attempt(self, path: str) -> dict[str, Any] | None:
        """The entry; None where `SKILL.md` is another than it was a moment before."""
        # Counted before anything is read: a skill over the limits must not be hashed to be refused.
        _check_limits([info["size"] or 0 for info in self._fs.find(path, detail=True).values()])
        # Read before the others are hashed, which a skill without proper front matter need not be; and not
        # again while it is the same.
        digest, front_matter = self._fit.get(path) or self._front_matter(path)
        files = self._fs.manifest(uri_of(path))
        _check_limits([file.size for file in files])
        if not any(file.path == "SKILL.md" and file.digest == digest for file in files):
            with self._lock:
                self._fit.pop(path, None)
            return None
        if any(find_unfit(file.path) for file in files):
            raise Unfit("a file of it has a name that no URI can spell")
        resources = [
            {"uri": uri_of(f"{path}/{file.path}"), "digest": file.digest, "size": file.size} for file in files
        ]
        return {"uri": _skill_md(path), "frontmatter": front_matter, "resources": resources}

    def _front_matter(self, path: str) -> tuple[str, dict[str, Any]]:
        """The digest and the front matter of a `SKILL.md`."""
        data = self._fs.cat_file(f"{path}/SKILL.md", 0, MOST_BYTES + 1)
        front_matter = front_matter_of(data, path.rpartition("/")[2])
        found = f"sha256:{sha256(data).hexdigest()}", front_matter
        if len(repr(front_matter)) <= _MOST_KEPT_CHARACTERS:
            with self._lock:
                if len(self._fit) >= _MOST_KEPT:
                    self._fit.clear()
                self._fit[path] = found
        return found

    def _report(self, path: str, reason: str) -> None:
        """Tell the log, once for each reason."""
        with self._lock:
            if self._reported.get(path) == reason or len(self._reported) >= _MOST_REPORTED:
                return
            self._reported[path] = reason
        _log.warning("left out of skills/list: %s: %s", quoted(path or "/"), reason)


def _check_limits(sizes: list[int]) -> None:
    if len(sizes) > MOST_FILES:
        raise Unfit(f"it holds {len(sizes):,} files, and the extension allows {MOST_FILES}")
    if sum(sizes) > MOST_BYTES:
        raise Unfit(f"its files have {sum(sizes):,} bytes together, and the extension allows {MOST_BYTES:,}")


def _skill_md(path: str) -> str:
    return uri_of(f"{path}/SKILL.md" if path else "SKILL.md")
