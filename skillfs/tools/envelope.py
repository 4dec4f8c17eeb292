"""What a payload may say: its members and properties, checked before anything is looked up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

from skillfs.core.globs import compile_globs
from skillfs.core.refs import parse_ref
from skillfs.core.text import normal_encoding
from skillfs.errors import InvalidArgumentError, NotFoundError, quoted
from skillfs.tools.files import AS_IT_IS, FILE_TOOLS
from skillfs.tools.globs import split_globs
from skillfs.tools.json_text import MOST_CHARACTERS, MOST_DIGITS, Repair, find_object
from skillfs.tools.parameters import Parameter, checked

__all__ = ["PROPERTIES", "Payload", "envelope_of", "parse_payload", "validated"]

_READ_FILE = (
    Parameter("filePath", "string", "the folder of the file, or the file."),
    Parameter("fileName", "string", "the name of the file, where filePath is a folder."),
    Parameter("encoding", "string", "how the file is encoded.", default=AS_IT_IS),
    Parameter("maxBytes", "integer", "bytes of UTF-8 to answer; 0 for all.", default=0, least=0),
    Parameter("startLine", "integer", "the first line, counted from 1.", default=1, least=1),
    Parameter("endLine", "integer", "the last line; 0 for that of the file.", default=0, least=0),
    Parameter("description", "string", "what it is for."),
)
_LIST_FILES = tuple(
    parameter
    for tool in FILE_TOOLS
    if tool.name == "list_files"
    for parameter in tool.parameters
    if not parameter.hidden
)
PROPERTIES: Mapping[str, tuple[Parameter, ...]] = {"read_file": _READ_FILE, "list_files": _LIST_FILES}

_MEMBERS = ("action", "thinking", "sequential", "properties")
_TELLING = ("action", "thinking", "sequential")  # `properties` is a member of every JSON schema, too
_MAY_BE_EMPTY = ("fileName", "cursor", "description", "sequential")
_NUMBER = re.compile(r"0|[1-9][0-9]*")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Payload:
    """A payload that was found good; nothing of it has been looked up.

    Attributes:
        action: `read_file` or `list_files`.
        arguments: The properties by name as text, integers and booleans, with what holds for those that were
            left out.
        thinking: What the model thought.
        sequential_prompt: What it wants to go on with when it has the answer.
        repairs: What was mended in the text.
    """

    action: str
    arguments: Mapping[str, Any]
    thinking: str | None = None
    sequential_prompt: str | None = None
    repairs: tuple[Repair, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The payload as values that JSON can hold, for review before it is run."""
        prompt = self.sequential_prompt
        return {
            "action": self.action,
            "arguments": dict(self.arguments),
            "thinking": self.thinking,
            "sequential": None if prompt is None else {"prompt": prompt},
            "repairs": [asdict(repair) for repair in self.repairs],
        }


def parse_payload(payload: object) -> Payload:
    """Check a payload, and look nothing up.

    Args:
        payload: A mapping; or text of at most `json_text.MOST_CHARACTERS` characters that holds it as JSON,
            bare, in a code fence, or with prose around it. A trailing comma and a missing one are mended.

    Raises:
        InvalidArgumentError: It is malformed, with the place where that is known; or not allowed, with the
            name of the member or property.
    """
    envelope, repairs = envelope_of(payload)
    return validated(envelope, repairs, ())


def envelope_of(payload: object) -> tuple[Mapping[Any, Any], tuple[Repair, ...]]:
    """The object of a payload, and what was mended in its text.

    Raises:
        InvalidArgumentError: There is none, or it is malformed.
    """
    if isinstance(payload, str):
        found = find_object(payload, "action", _TELLING)
        return found.value, found.repairs
    if isinstance(payload, Mapping):
        return payload, ()
    raise InvalidArgumentError(f"a payload is a JSON object, or text that holds one, not {quoted(payload)}")


def validated(envelope: Mapping[Any, Any], repairs: tuple[Repair, ...], roots: Sequence[str]) -> Payload:
    """The payload of an object, if it is allowed.

    Args:
        envelope: From `envelope_of`.
        repairs: Likewise.
        roots: Spellings of the store's root, as `SkillFileSystem.roots` has them.

    Raises:
        InvalidArgumentError: Naming the member or property.
    """
    _check_members(envelope, _MEMBERS, "a payload")
    action = _text(envelope.get("action"), "action")
    if action not in PROPERTIES:
        raise InvalidArgumentError(f"there is no action {quoted(action)}; use {' or '.join(PROPERTIES)}")
    thinking = _text(envelope["thinking"], "thinking") if "thinking" in envelope else None
    prompt = None
    if "sequential" in envelope:
        sequential = envelope["sequential"]
        if not isinstance(sequential, Mapping):
            raise InvalidArgumentError(
                f"sequential must be an object with a prompt, not {_shown(sequential)}; or leave it out"
            )
        _check_members(sequential, ("prompt",), "sequential")
        prompt = _text(sequential.get("prompt"), "the prompt of sequential")
    arguments = checked(action, PROPERTIES[action], _properties(action, envelope.get("properties", [])))
    for name in _MAY_BE_EMPTY:
        if name in arguments and not (arguments[name] or "").strip():
            arguments[name] = None
    # `list_files` has a property of this name, too, and models use either.
    prompts = {text for text in (prompt, arguments.get("sequential")) if text is not None and text.strip()}
    if len(prompts) > 1:
        raise InvalidArgumentError("sequential is a member and a property, with two prompts; send one")
    _check_arguments(action, arguments, roots)
    return Payload(action, arguments, thinking, next(iter(prompts), None), repairs)


def _check_members(given: Mapping[Any, Any], allowed: Sequence[str], what: str) -> None:
    for name in given:
        if name not in allowed:
            near = get_close_matches(name[:50], allowed, 1) if isinstance(name, str) else []
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(allowed)}"
            raise InvalidArgumentError(f"{what} takes no member {quoted(name)}; {hint}")


def _properties(action: str, given: object) -> dict[str, Any]:
    """Properties by name, with their values as what they stand for."""
    if not isinstance(given, list | tuple):
        raise InvalidArgumentError(f"properties must be a list, not {_shown(given)}")
    known = {parameter.name: parameter for parameter in PROPERTIES[action]}
    values: dict[str, Any] = {}
    for number, item in enumerate(given, 1):
        if not isinstance(item, Mapping):
            raise InvalidArgumentError(
                f"property {number:,} must be an object with name and value, not {_shown(item)}"
            )
        _check_members(item, ("name", "value"), f"property {number:,}")
        name = _text(item.get("name"), f"the name of property {number:,}")
        if name in values:
            raise InvalidArgumentError(f"the property {quoted(name)} stands twice; send it once")
        if name not in known:
            checked(action, PROPERTIES[action], {name: None})  # says which there are
        values[name] = _typed(known[name], _text(item.get("value"), f"the value of {name}"))
    return values


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{what} must be text in double quotes, not {_shown(value)}")
    if len(value) > MOST_CHARACTERS:
        raise InvalidArgumentError(f"{what} has over {MOST_CHARACTERS:,} characters; send less")
    if _SURROGATE.search(value):
        raise InvalidArgumentError(f"{what} holds an unpaired surrogate; send text without it")
    return value


def _shown(value: object) -> str:
    return "null, or nothing" if value is None else quoted(value)


def _typed(parameter: Parameter, value: str) -> str | int | bool:
    if parameter.type == "integer":
        if not _NUMBER.fullmatch(value):
            raise InvalidArgumentError(
                f'{parameter.name} must be a number in digits alone, such as "20", not {quoted(value)}'
            )
        if len(value) > MOST_DIGITS:
            raise InvalidArgumentError(f"{parameter.name} has over {MOST_DIGITS} digits; send less")
        return int(value)
    if parameter.type == "boolean":
        if value not in ("true", "false"):
            raise InvalidArgumentError(f'{parameter.name} must be "true" or "false", not {quoted(value)}')
        return value == "true"
    return value


def _check_arguments(action: str, arguments: dict[str, Any], roots: Sequence[str]) -> None:
    """Refuse what cannot be right wherever it is looked up."""
    if action == "list_files":
        _check_ref("directoryPath", arguments["directoryPath"], roots)
        compile_globs(split_globs(arguments["includeGlob"]) or None, argument="includeGlob")
        compile_globs(split_globs(arguments["excludeGlob"]) or None, argument="excludeGlob")
        return
    arguments["encoding"] = normal_encoding(arguments["encoding"])
    path, name = arguments["filePath"], arguments["fileName"]
    if path is None and name is None:
        raise InvalidArgumentError("read_file needs filePath: the folder of the file, or the file")
    if path is not None:
        _check_ref("filePath", path, roots)
    if name is not None:
        try:
            _check_ref("fileName", f"./{name}", roots)
        except InvalidArgumentError:
            raise InvalidArgumentError(
                f"fileName {quoted(name)} cannot follow on filePath; send the name alone, as a listing has it"
            ) from None
    first, last = arguments["startLine"], arguments["endLine"]
    if last and last < first:
        raise InvalidArgumentError(
            "endLine is before startLine; send a later one, or 0 for the end of the file"
        )


def _check_ref(name: str, ref: str, roots: Sequence[str]) -> None:
    # What is not found is not malformed: it may be the URL of a store that is not known here.
    with suppress(NotFoundError):
        try:
            parse_ref(ref, roots)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{name}: {error.message}") from None
