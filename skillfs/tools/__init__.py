"""Tools for agents: functions of a filesystem that a model can call, with names, descriptions and schemas.

Example:
    >>> from skillfs import SkillFileSystem
    >>> from skillfs.tools import call, schemas
    >>> fs = SkillFileSystem("sample_skills", index=":memory:")
    >>> [tool["name"] for tool in schemas("anthropic")][:2]
    ['skill_tree', 'skill_get_content']
    >>> call(fs, "skill_get_content", {"id": "commit-messages/SKILL.md", "length": 3}).splitlines()[-2]
    '---'
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from skillfs.tools.files import FILE_TOOLS
from skillfs.tools.payloads import Payload, parse_payload, run_payload
from skillfs.tools.registry import Answer, SchemaFormat, Tool, check_fixed, find_tool, schemas_of
from skillfs.tools.skills import SKILL_TOOLS

if TYPE_CHECKING:
    from skillfs.filesystem import SkillFileSystem

__all__ = ["TOOLS", "Answer", "Payload", "Tool", "answer", "call", "parse_payload", "run_payload", "schemas"]

TOOLS: Mapping[str, Tool] = MappingProxyType({tool.name: tool for tool in (*SKILL_TOOLS, *FILE_TOOLS)})
"""Every tool by its name."""


def schemas(format: SchemaFormat, fixed: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The tools as a model's interface takes them.

    Args:
        format: `mcp` (`tools/list` of the Model Context Protocol), `anthropic` (`tools` of the Messages API)
            or `openai` (`tools` of the Chat Completions API).
        fixed: Values of parameters, by name, that no model is to set, such as `basePathIds`: they are left
            out of the schemas. Pass the same to `call`.

    Raises:
        InvalidArgumentError: The format is unknown, or no tool has a parameter of such a name.
    """
    return schemas_of(TOOLS, format, fixed)


def answer(
    fs: SkillFileSystem, name: str, arguments: Mapping[str, Any], *, fixed: Mapping[str, Any] | None = None
) -> Answer:
    """Call a tool; the answer has both a text and a structured result.

    Args:
        fs: The filesystem.
        name: Name of the tool.
        arguments: By name; strict: see `schemas`.
        fixed: Values of parameters that are not the model's to set; given in `arguments` they are refused.

    Raises:
        InvalidArgumentError: There is no such tool, or an argument is unknown, missing or malformed.
        SkillFSError: What the tool was asked for is refused.
    """
    check_fixed(TOOLS, fixed)
    return find_tool(TOOLS, name).answer(fs, arguments, fixed)


def call(
    fs: SkillFileSystem, name: str, arguments: Mapping[str, Any], *, fixed: Mapping[str, Any] | None = None
) -> str | dict[str, Any]:
    """Call a tool: what it answers as text where it has one, else its structured result.

    Args:
        fs: The filesystem.
        name: Name of the tool.
        arguments: As for `answer`.
        fixed: As for `answer`.

    Raises:
        SkillFSError: As for `answer`.
    """
    found = answer(fs, name, arguments, fixed=fixed)
    return found.structured if found.text is None else found.text
