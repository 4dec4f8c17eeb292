"""What a tool may be called with: one declaration that gives both the JSON schema and the check.

The check is as strict as the schema: a number written as a string, `true` for 1, null for what was left out,
and a name that does not exist are all refused, since a tool that guesses answers another question than the
one that was asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from skillfs.errors import InvalidArgumentError, quoted

__all__ = ["MOST_BASE_PATHS", "Parameter", "checked", "schema_of"]

MOST_BASE_PATHS = 10_000

ParameterType = Literal["string", "integer", "boolean", "reference", "references"]

_REFERENCE = {"type": ["string", "integer"]}
_SCHEMAS: Mapping[ParameterType, dict[str, Any]] = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "reference": _REFERENCE,
    "references": {"type": "array", "items": _REFERENCE, "maxItems": MOST_BASE_PATHS},
}
_WANTED: Mapping[ParameterType, str] = {
    "string": "a string",
    "integer": "an integer",
    "boolean": "true or false",
    "reference": "a string or an integer id",
    "references": "a list of strings or integer ids",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a tool.

    Attributes:
        name: As callers write it.
        type: `reference` is anything that names an entry, `references` a list of these.
        description: For a model.
        required: Whether it has to be given.
        default: What it is when it is not given; told in the schema unless it is None.
        least: Least value of an integer.
        most: Greatest value of an integer.
        hidden: Whether it is in no schema and can be fixed only by who offers the tool.
    """

    name: str
    type: ParameterType
    description: str
    required: bool = False
    default: Any = None
    least: int | None = None
    most: int | None = None
    hidden: bool = False

    def schema(self) -> dict[str, Any]:
        """The JSON schema of its value, which whoever gets it may change."""
        schema: dict[str, Any] = {**deepcopy(_SCHEMAS[self.type]), "description": self.description}
        if self.least is not None:
            schema["minimum"] = self.least
        if self.most is not None:
            schema["maximum"] = self.most
        if self.default is not None:
            schema["default"] = self.default
        return schema

    def check(self, value: object) -> None:
        """Refuse a value that the schema does not allow.

        Raises:
            InvalidArgumentError: Naming the parameter and what it takes.
        """
        if not self._fits(value):
            raise InvalidArgumentError(
                f"{self.name} must be {_WANTED[self.type]}, not {self._shown(value)}"
                + ("" if value is not None or self.required else "; leave it out instead")
            )
        if self.type == "references":
            assert isinstance(value, Sequence)
            if len(value) > MOST_BASE_PATHS:
                raise InvalidArgumentError(
                    f"{self.name} holds over {MOST_BASE_PATHS:,} entries; pass folders further up instead"
                )
        elif self.type == "integer":
            assert isinstance(value, int)
            if self.least is not None and value < self.least:
                raise InvalidArgumentError(f"{self.name} must be {self.least:,} or more")
            if self.most is not None and value > self.most:
                raise InvalidArgumentError(f"{self.name} must be {self.most:,} or less")

    def _fits(self, value: object) -> bool:
        match self.type:
            case "string":
                return isinstance(value, str)
            case "integer":
                return isinstance(value, int) and not isinstance(value, bool)
            case "boolean":
                return isinstance(value, bool)
            case "reference":
                return _is_reference(value)
            case "references":
                return isinstance(value, list | tuple) and all(map(_is_reference, value))

    def _shown(self, value: object) -> str:
        if value is None:
            return "null"
        if self.type == "references" and isinstance(value, list | tuple):
            odd = next(item for item in value if not _is_reference(item))
            return f"a list that holds {'null' if odd is None else quoted(odd)}"
        return quoted(value)


def _is_reference(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def schema_of(parameters: Sequence[Parameter], without: Collection[str] = ()) -> dict[str, Any]:
    """The JSON schema of an object of arguments.

    Args:
        parameters: What may be given.
        without: Names that are left out of it.
    """
    shown = [p for p in parameters if not p.hidden and p.name not in without]
    return {
        "type": "object",
        "properties": {p.name: p.schema() for p in shown},
        "required": [p.name for p in shown if p.required],
        "additionalProperties": False,
    }


def checked(
    tool: str, parameters: Sequence[Parameter], arguments: object, fixed: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Arguments with defaults for what was left out.

    Args:
        tool: Name of the tool, for messages.
        parameters: What may be given.
        arguments: What was given.
        fixed: Values of parameters that a caller may not give.

    Raises:
        InvalidArgumentError: It is no object, a name is unknown or missing, or a value is not allowed.
    """
    if not isinstance(arguments, Mapping):
        raise InvalidArgumentError(f"{tool} takes an object of named arguments, not {quoted(arguments)}")
    values: dict[str, Any] = {}
    fixed = fixed or {}
    allowed = {p.name: p for p in parameters if p.name not in fixed and not p.hidden}
    for name, value in arguments.items():
        if name not in allowed:
            raise InvalidArgumentError(_unknown(tool, name, list(allowed)))
        allowed[name].check(value)
    for parameter in parameters:
        if parameter.name in fixed:
            parameter.check(value := fixed[parameter.name])
            values[parameter.name] = value
        elif parameter.name in arguments:
            values[parameter.name] = arguments[parameter.name]
        elif parameter.required:
            raise InvalidArgumentError(f"{tool} needs {parameter.name}: {parameter.description}")
        else:
            values[parameter.name] = parameter.default
    return values


def _unknown(tool: str, name: object, known: list[str]) -> str:
    near = get_close_matches(name[:50], known, 1) if isinstance(name, str) else []
    hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(known) or 'none'}"
    return f"{tool} takes no argument {quoted(name)}; {hint}"
