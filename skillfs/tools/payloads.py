"""Payloads: what models write where no interface calls tools for them, one JSON object each.

::

    {"action": "read_file", "thinking": "…", "sequential": {"prompt": "…"},
     "properties": [{"name": "filePath", "value": "pdf"}, {"name": "fileName", "value": "SKILL.md"}]}

`action` is `read_file` or `list_files`; the other members may be left out. All values of properties are
text: numbers in digits and nothing else (`"7"`, not `"07"`, `" 7"`, `"+7"` or `"7.0"`), booleans as `"true"`
and `"false"`. Members and properties that do not exist, or stand twice, are refused by name. `fileName`,
`cursor`, `description` and the prompt may be blank, which is as if they were not there: models fill in every
field of a form.

`filePath` is a folder that holds `fileName`; or it is the file, and `fileName` repeats its name or is left
out. Which it is, the filesystem says: a file's name needs no dot. So the order is

1. without `fileName`, `filePath`;
2. where `filePath` is a file, this file, if its path ends in `fileName`; else the two contradict each other;
3. where it is a folder, `fileName` below it.

Both are looked up like any reference, so nothing is seen that could not be seen without them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from skillfs.core.model import Kind
from skillfs.core.refs import printable_path
from skillfs.errors import InvalidArgumentError, IsFileError, SkillFSError, quoted
from skillfs.tools.envelope import PROPERTIES, Payload, envelope_of, parse_payload, validated
from skillfs.tools.files import AS_IT_IS
from skillfs.tools.globs import split_globs
from skillfs.tools.listing import listing
from skillfs.tools.skills import MOST_CHARACTERS

if TYPE_CHECKING:
    from skillfs.core.wire import Lines
    from skillfs.filesystem import SkillFileSystem

__all__ = ["Payload", "parse_payload", "run_payload"]


def run_payload(
    fs: SkillFileSystem | None,
    payload: object,
    *,
    base_paths: Sequence[object] | None = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Do what a payload asks for.

    The result always has the same members, of values that JSON can hold:

    * `action`; None where the payload does not tell it
    * `success`
    * `content`: text of the file, of at most 50,000 characters; None unless a file was read
    * `entries`: what the folder holds, as `list_files` tells it; None unless a folder was listed
    * `error`: None, or `code` and `message`; there is no content then, and there are no entries
    * `truncated`: whether the answer is less than what was asked for
    * `next`: None; or how to go on where it is: as `payload`, ready to be run, where the next line or entry
      begins, else as `call`, name and arguments of a tool that goes on within the line; the other is None.
      That tool takes no encoding, so there is none of both where another one than UTF-8 was named
    * `sequential`: None; or `prompt`, `content` and `entries` where the payload asked to go on with a prompt
    * `request`: the payload as it was understood (see `Payload.to_dict`); None where it was not
    * `repairs`: what was mended in it
    * `metadata`: None; or of a file `path`, `uuid`, `hash` (MD5), `size` (bytes), `characters` and `lines` of
      the whole file and `startLine` and `endLine` of the content; of a folder `path`, `total`, `returned` and
      a `remark` that tells an empty one from one in which nothing matches

    With a range of lines and `maxBytes` both, the lines are chosen first, and of their text as many whole
    characters as have no more bytes in UTF-8.

    Args:
        fs: The filesystem; None will do for a dry run.
        payload: As for `parse_payload`; whatever is wrong with it is told in the result.
        base_paths: Folders to stay within; None for no restriction.
        dry_run: Whether the payload is only checked, so that the request can be seen.
    """
    result: dict[str, Any] = {
        "action": None,
        "success": False,
        "content": None,
        "entries": None,
        "error": None,
        "truncated": False,
        "next": None,
        "sequential": None,
        "request": None,
        "repairs": [],
        "metadata": None,
    }
    try:
        envelope, repairs = envelope_of(payload)
        result["repairs"] = [asdict(repair) for repair in repairs]
        action = envelope.get("action")
        result["action"] = action if isinstance(action, str) and action in PROPERTIES else None
        request = validated(envelope, repairs, () if fs is None else fs.roots)
        shown = request.to_dict()
        del shown["repairs"]
        result["request"] = shown
        if not dry_run:
            if fs is None:
                raise InvalidArgumentError("there is no filesystem to run the payload on; pass one")
            run = _read if request.action == "read_file" else _list
            result.update(run(fs, request, base_paths))
            if request.sequential_prompt is not None:
                result["sequential"] = {
                    "prompt": request.sequential_prompt,
                    "content": result["content"],
                    "entries": result["entries"],
                }
        result["success"] = True
    except SkillFSError as error:
        result["error"] = {"code": error.code, "message": error.message}
    return result


def _list(fs: SkillFileSystem, request: Payload, base_paths: Sequence[object] | None) -> dict[str, Any]:
    wanted = request.arguments
    found = listing(
        fs,
        directory=wanted["directoryPath"],
        recursive=wanted["recursive"],
        hidden=wanted["includeHidden"],
        include=split_globs(wanted["includeGlob"]),
        exclude=split_globs(wanted["excludeGlob"]),
        details=wanted["showDetails"],
        limit=wanted["maxResults"],
        cursor=wanted["cursor"],
        base_paths=base_paths,
    )
    values = found.to_dict()
    following = None
    if found.cursor is not None:
        following = {"payload": _again(request, cursor=found.cursor), "call": None}
    return {
        "entries": values["entries"],
        "truncated": found.truncated,
        "next": following,
        "metadata": {
            "path": found.path,
            "total": found.total,
            "returned": values["returned"],
            "remark": found.remark,
        },
    }


def _read(fs: SkillFileSystem, request: Payload, base_paths: Sequence[object] | None) -> dict[str, Any]:
    wanted = request.arguments
    first, last, most_bytes = wanted["startLine"], wanted["endLine"], wanted["maxBytes"]
    ref = _file_ref(fs, wanted["filePath"], wanted["fileName"], base_paths)
    encoding = None if wanted["encoding"] == AS_IT_IS else wanted["encoding"]
    lines = partial(fs.get_lines, ref, encoding=encoding, base_paths=base_paths)
    found = lines(first, last - first + 1 if last else None, most_characters=MOST_CHARACTERS)
    text, cut_at = found.text, found.cut_at
    behind = first + found.count
    complete = cut_at is None and behind > min(last or found.lines, found.lines)
    room = MOST_CHARACTERS - len(text)
    if most_bytes and not complete and cut_at is None and room and _bytes(text) < most_bytes:
        # Who counts bytes is not to get fewer because lines are kept whole where nobody counts.
        more = lines(behind, 1, most_characters=room, expect_hash=found.hash)
        if _bytes(text) + _bytes(more.text) > most_bytes:
            text, cut_at = text + more.text, more.cut_at
    content = _within(text, most_bytes) if most_bytes else text
    truncated = not complete or len(content) < len(text)
    reached = first + content.count("\n")  # the line in which the content ends, or which comes next
    following = None
    if truncated and content.endswith("\n"):
        following = {"payload": _again(request, startLine=reached), "call": None}
    elif truncated and encoding is None:  # the tool that goes on within a line takes no encoding
        begun = len(content) - content.rfind("\n") - 1
        if cut_at is not None and len(content) == len(text):
            start = cut_at
        else:
            start = begun + _start_of(lines(reached, 1, most_characters=1, expect_hash=found.hash))
        arguments = {"id": found.uuid, "start": start, "expectHash": found.hash}
        following = {"payload": None, "call": {"name": "skill_get_content", "arguments": arguments}}
    return {
        "content": content,
        "truncated": truncated,
        "next": following,
        "metadata": {
            "path": printable_path(found.path or "", fs.roots),
            "uuid": found.uuid,
            "hash": found.hash,
            "size": found.size_bytes,
            "characters": found.size,
            "lines": found.lines,
            "startLine": first if content else None,
            "endLine": reached - content.endswith("\n") if content else None,
        },
    }


def _file_ref(
    fs: SkillFileSystem, path: str | None, name: str | None, base_paths: Sequence[object] | None
) -> str:
    """What to read, by the order that the module tells."""
    if name is None:
        assert path is not None  # one of them is there
        return path
    entry = fs.entry("/" if path is None else path, base_paths=base_paths)
    if entry.kind != Kind.FILE:
        return printable_path(f"{entry.path}/{name}" if entry.path else name, fs.roots)
    assert path is not None  # the root is no file
    if not _ends_in(path, name) and not _ends_in(entry.path, name):
        raise IsFileError(
            f"filePath names the file {quoted(entry.name)}, and fileName another, {quoted(name)}; "
            "send the folder as filePath, or leave fileName out"
        )
    return path


def _ends_in(path: str, name: str) -> bool:
    return f"/{unicodedata.normalize('NFC', path)}".endswith(f"/{unicodedata.normalize('NFC', name)}")


def _bytes(text: str) -> int:
    return len(text.encode())


def _within(text: str, most_bytes: int) -> str:
    """The whole characters at the beginning of a text that have no more bytes in UTF-8."""
    return text if len(text) * 4 <= most_bytes else text.encode()[:most_bytes].decode(errors="ignore")


def _start_of(line: Lines) -> int:
    """Where in a file a line starts that was read to its first character, and is not an empty one."""
    return line.size - len(line.text) if line.cut_at is None else line.cut_at - 1


def _again(request: Payload, **changed: object) -> dict[str, Any]:
    """The payload that goes on behind what is answered."""
    properties = []
    for parameter in PROPERTIES[request.action]:
        value = changed.get(parameter.name, request.arguments[parameter.name])
        if value is not None and value != parameter.default:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            properties.append({"name": parameter.name, "value": text})
    again: dict[str, Any] = {"action": request.action, "properties": properties}
    if request.sequential_prompt is not None:
        again["sequential"] = {"prompt": request.sequential_prompt}
    return again
