"""The tools by name: what they are for, what they take, and how they are called.

A tool is a plain function of a filesystem and checked arguments. Whoever offers tools to a model takes the
descriptions from `schemas` and passes what the model answers to `call` or `answer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

from skillfs.errors import InvalidArgumentError, quoted
from skillfs.tools.parameters import Parameter, checked, schema_of

if TYPE_CHECKING:
    from skillfs.filesystem import SkillFileSystem

__all__ = ["FORMATS", "Answer", "SchemaFormat", "Tool", "check_fixed", "find_tool", "schemas_of"]

FORMATS = ("mcp", "anthropic", "openai")

SchemaFormat = Literal["mcp", "anthropic", "openai"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool answers.

    Attributes:
        text: For a model to read; None where the structured result, as JSON, is that.
        structured: The same, and what is known besides, as JSON values.
        failed: Whether it tells of a failure.
    """

    text: str | None
    structured: dict[str, Any]
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool.

    Attributes:
        name: Its name.
        title: Its name for people.
        description: For a model: what it gives, and what to do next.
        parameters: What it takes.
        function: Called with the filesystem and all parameters by name.
    """

    name: str
    title: str
    description: str
    parameters: tuple[Parameter, ...]
    function: Callable[..., Answer]

    def answer(
        self, fs: SkillFileSystem, arguments: object, fixed: Mapping[str, Any] | None = None
    ) -> Answer:
        """Check the arguments and run it.

        Args:
            fs: The filesystem.
            arguments: By name.
            fixed: Values of parameters that the caller may not give.

        Raises:
            SkillFSError: The arguments are refused, or what they ask for is.
        """
        return self.function(fs, **checked(self.name, self.parameters, arguments, fixed))

    def schema(self, fixed: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The JSON schema of its arguments, without those that are fixed."""
        return schema_of(self.parameters, fixed or ())


def find_tool(tools: Mapping[str, Tool], name: object) -> Tool:
    """A tool by its name.

    Raises:
        InvalidArgumentError: There is none.
    """
    found = tools.get(name) if isinstance(name, str) else None
    if found is None:
        near = get_close_matches(name[:50], tools, 1) if isinstance(name, str) else []
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(tools)}"
        raise InvalidArgumentError(f"there is no tool {quoted(name)}; {hint}")
    return found


def schemas_of(
    tools: Mapping[str, Tool], format: object, fixed: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The tools as a model's interface takes them.

    Args:
        tools: The tools.
        format: `mcp` (`tools/list` of the Model Context Protocol), `anthropic` (`tools` of the Messages API)
            or `openai` (`tools` of the Chat Completions API).
        fixed: Values of parameters, by name, that are left out of the schemas.

    Raises:
        InvalidArgumentError: The format is unknown, or no tool has a parameter of such a name.
    """
    check_fixed(tools, fixed)
    if format == "mcp":
        return [
            {
                "name": tool.name,
                "title": tool.title,
                "description": tool.description,
                "inputSchema": tool.schema(fixed),
                "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
            }
            for tool in tools.values()
        ]
    if format == "anthropic":
        return [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema(fixed)}
            for tool in tools.values()
        ]
    if format == "openai":
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.schema(fixed),
                },
            }
            for tool in tools.values()
        ]
    raise InvalidArgumentError(f"there is no format {quoted(format)}; use one of {', '.join(FORMATS)}")


def check_fixed(tools: Mapping[str, Tool], fixed: Mapping[str, Any] | None) -> None:
    """Refuse to fix what no tool takes: a misspelt name would leave callers free.

    A value has to suit every tool that takes the name: one that does not could never be called.

    Raises:
        InvalidArgumentError: No tool has a parameter of such a name, or a value is not allowed.
    """
    for name, value in (fixed or {}).items():
        takers = [(tool, p) for tool in tools.values() for p in tool.parameters if p.name == name]
        if not takers:
            known = dict.fromkeys(p.name for tool in tools.values() for p in tool.parameters)
            raise InvalidArgumentError(
                f"no tool takes {quoted(name)}, so it cannot be fixed; they take {', '.join(known)}"
            )
        for tool, parameter in takers:
            try:
                parameter.check(value)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(
                    f"what is fixed does not suit {tool.name}: {error.message}"
                ) from None
