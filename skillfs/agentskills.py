"""Skills for programs that are written against `agentskills-core`, which needs Python 3.12.

Example:
    >>> from agentskills_core import SkillRegistry
    >>> from skillfs import SkillFileSystem
    >>> from skillfs.agentskills import SkillFSProvider
    >>> registry = SkillRegistry()
    >>> await registry.register_all(SkillFSProvider(SkillFileSystem("sample_skills")))
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from skillfs.core.drawing import TreeNode
from skillfs.core.frontmatter import HEAD_LIMIT, read_front_matter
from skillfs.core.model import Kind, Skill
from skillfs.core.refs import find_unfit
from skillfs.errors import (
    ChangedError,
    InvalidArgumentError,
    IsFileError,
    IsFolderError,
    NotFoundError,
    SkillFSError,
    StoreUnavailableError,
    quoted,
)

try:
    from agentskills_core import (
        RESOURCE_KINDS,
        AgentSkillsError,
        ProviderUnavailableError,
        ResourceNotFoundError,
        SkillNotFoundError,
        SkillProvider,
        SkillUnavailableError,
    )
except ImportError as error:
    raise ImportError(
        "skillfs.agentskills needs agentskills-core, 0.7 or later, and with it Python 3.12: "
        "pip install 'fsspec-skillfs[agentskills]'"
    ) from error

if TYPE_CHECKING:
    from skillfs.filesystem import SkillFileSystem

__all__ = ["MOST_BYTES", "SkillFSProvider"]

T = TypeVar("T")

MOST_BYTES = 16 * 2**20
"""Bytes of one file that are handed out unless told otherwise: what `agentskills-core` holds of one skill."""

# `Read Bash(git add:*)` are two.
_ALLOWED_TOOL = re.compile(r"(?:\([^()]*\)|\S)+")


class SkillFSProvider(SkillProvider):
    """Gives the skills of a filesystem to `agentskills-core`.

    The id of a skill is its name. Of several skills of one name there is the first, as for
    `SkillFileSystem.skill`; nothing else is an id, no path and no UUID. The files of a skill are those of its
    manifest; names of resources may have folders in them.

    All of it is read at the moment of the call, in a thread, so that no event loop waits for a disk.

    Errors are those of `agentskills-core`: `SkillNotFoundError` and `ResourceNotFoundError` for what is not
    to be seen, malformed names included; `ProviderUnavailableError` where trying again may help;
    `SkillUnavailableError` for a file that changes faster than it can be read; else `AgentSkillsError`.

    Args:
        fs: The filesystem; one that is opened with `base_paths` shows only what these allow.
        max_bytes: Bytes of one file at most; larger ones are refused before they are read whole.

    Raises:
        InvalidArgumentError: `max_bytes` is no positive integer.
    """

    supports_resource_listing = True
    supports_discovery = True
    supports_file_access = True

    def __init__(self, fs: SkillFileSystem, *, max_bytes: int = MOST_BYTES) -> None:
        if not isinstance(max_bytes, int) or isinstance(max_bytes, bool) or max_bytes < 1:
            raise InvalidArgumentError(f"max_bytes must be a positive integer, not {quoted(max_bytes)}")
        self._fs = fs
        self._max_bytes = max_bytes

    async def discover(self) -> list[str]:
        """The names of all skills that can be looked up by their names, sorted."""
        return await asyncio.to_thread(self._discover)

    async def get_metadata(self, skill_id: str) -> dict[str, Any]:
        """The front matter of a skill, scalars as strings; name and description are there in any case.

        Two strings of the Agent Skills specification are other things to `agentskills-core`, which registers
        no skill of a store when one has them as they are: `allowed-tools` is a list of its parts here, and
        `compatibility` a dictionary with the string as `text`. `read_file` has all as it is written.
        """
        return await self._of_skill(skill_id, self._metadata)

    async def get_body(self, skill_id: str) -> str:
        """The text of a `SKILL.md` behind its front matter, exactly as stored."""
        return await self._of_skill(skill_id, self._body)

    async def get_script(self, skill_id: str, name: str) -> bytes:
        """The bytes of a file in `scripts/`."""
        return await self.read_file(skill_id, f"scripts/{name}")

    async def get_asset(self, skill_id: str, name: str) -> bytes:
        """The bytes of a file in `assets/`."""
        return await self.read_file(skill_id, f"assets/{name}")

    async def get_reference(self, skill_id: str, name: str) -> bytes:
        """The bytes of a file in `references/`."""
        return await self.read_file(skill_id, f"references/{name}")

    async def list_resources(self, skill_id: str) -> dict[str, list[str]]:
        """The files in `references/`, `scripts/` and `assets/` by their paths below these, sorted."""
        files = await self.list_files(skill_id)
        return {
            kind: [path.removeprefix(f"{kind}/") for path in files if path.startswith(f"{kind}/")]
            for kind in RESOURCE_KINDS
        }

    async def list_files(self, skill_id: str) -> list[str]:
        """The paths of all files below a skill folder, sorted; no content is read."""
        return await self._of_skill(skill_id, self._files)

    async def read_file(self, skill_id: str, path: str) -> bytes:
        """The bytes of any file below a skill folder."""

        def read(skill: Skill) -> bytes:
            with _errors_of(ResourceNotFoundError):
                return self._bytes(skill, path)

        return await self._of_skill(skill_id, read)

    async def _of_skill(self, skill_id: str, work: Callable[[Skill], T]) -> T:
        def find_and_work() -> T:
            with _errors_of(SkillNotFoundError):
                return work(self._fs.skill(f"name:{skill_id}"))

        return await asyncio.to_thread(find_and_work)

    def _discover(self) -> list[str]:
        with _errors_of(SkillUnavailableError):
            names = {skill.name for skill in self._fs.skills()}  # once where several have it
        return sorted(name for name in names if name and find_unfit(name) is None)

    def _metadata(self, skill: Skill) -> dict[str, Any]:
        data = self._bytes(skill, "SKILL.md")
        folder = skill.path.rpartition("/")[2]
        front = read_front_matter(data[:HEAD_LIMIT], folder, complete=len(data) <= HEAD_LIMIT)
        values = dict(front.values)  # made for this call, so that it may be changed
        if isinstance(tools := values.get("allowed-tools"), str):
            values["allowed-tools"] = _ALLOWED_TOOL.findall(tools)
        if isinstance(text := values.get("compatibility"), str):
            values["compatibility"] = {"text": text}
        return {**values, "name": front.name or skill.name, "description": front.description}

    def _body(self, skill: Skill) -> str:
        data = self._bytes(skill, "SKILL.md")
        front = read_front_matter(data[:HEAD_LIMIT], "", complete=len(data) <= HEAD_LIMIT)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise AgentSkillsError(f"the SKILL.md of {quoted(skill.name)} is no UTF-8 text") from None
        return "\n".join(text.split("\n")[front.body_line - 1 :])

    def _files(self, skill: Skill) -> list[str]:
        tree = self._fs.skill_tree(skill.uuid, hidden=True, limit=None)
        start = len(skill.path) + 1 if skill.path else 0
        return sorted(node.path[start:] for node in _below(tree.root) if node.kind == Kind.FILE)

    def _bytes(self, skill: Skill, path: str) -> bytes:
        place = f"./{skill.path}/{path}" if skill.path else f"./{path}"
        data: bytes = self._fs.cat_file(place, 0, self._max_bytes + 1)
        if len(data) > self._max_bytes:
            raise AgentSkillsError(
                f"{quoted(path)} of the skill {quoted(skill.name)} has over {self._max_bytes:,} bytes; "
                "raise max_bytes, or read it in pieces"
            )
        return data


def _below(root: TreeNode) -> Iterator[TreeNode]:
    stack = list(root.children)
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.children)


@contextmanager
def _errors_of(missing: type[Exception]) -> Iterator[None]:
    """Errors of this library as those of the other; `missing` for what is not to be seen."""
    try:
        yield
    except (NotFoundError, InvalidArgumentError, IsFolderError, IsFileError) as error:
        raise missing(error.message) from error
    except StoreUnavailableError as error:
        raise ProviderUnavailableError(error.message) from error
    except ChangedError as error:
        raise SkillUnavailableError(error.message) from error
    except SkillFSError as error:
        raise AgentSkillsError(error.message) from error
