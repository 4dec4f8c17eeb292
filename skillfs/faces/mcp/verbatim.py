"""The front matter of a `SKILL.md` as it stands, for the entry of a skill.

A host compares it field by field with what it reads itself, so nothing is mended here: what is no plain YAML
that JSON can hold makes a skill unfit. Values have the types that YAML 1.1 gives them, as PyYAML's safe
loader does.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from skillfs.core.frontmatter import HEAD_LIMIT, read_front_matter

__all__ = ["Unfit", "front_matter_of"]

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_UNFIT = {
    "not-text": "SKILL.md is no UTF-8 text",
    "frontmatter-missing": "SKILL.md has no front matter",
    "frontmatter-unclosed": "the front matter is not closed",
    "too-large": "the front matter is too large",
    "frontmatter-yaml": "the front matter is no plain YAML mapping",
    "frontmatter-duplicate-key": "a key stands twice in the front matter",
    "name-missing": "name is missing in the front matter",
    "name-invalid": "name is not 1 to 64 lower-case letters, digits and single hyphens",
    "name-differs-from-folder": "name is not the name of the folder",
    "description-missing": "description is missing in the front matter",
}

# Line breaks for YAML 1.1 and for no text file: a host that reads lines would see other keys.
_ODD_BREAKS = re.compile("\r(?!\n)|[\x85\u2028\u2029]")

_MOST_EXACT = 2**53
"""Integers that every reader of JSON takes as they are."""


class Unfit(Exception):
    """A skill that is served by tools and as plain resources, but not as a skill.

    Args:
        reason: For a person; holds nothing of the file.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def front_matter_of(data: bytes, folder: str) -> dict[str, Any]:
    """The front matter of a `SKILL.md` as a JSON object.

    Args:
        data: The file, or its first `HEAD_LIMIT` bytes.
        folder: Name of the skill folder.

    Raises:
        Unfit: It is none that can stand in the entry of a skill.
    """
    complete = len(data) <= HEAD_LIMIT
    head = data[:HEAD_LIMIT]
    found = read_front_matter(head, folder, complete=complete)
    codes = {fault.code for fault in found.faults}
    for code, reason in _UNFIT.items():
        if code in codes:
            raise Unfit(reason)
    # Between the fences: lines 2 to the one before the last fence.
    lines = head.split(b"\n")[1 : found.body_line - 2]
    block = b"".join(line + b"\n" for line in lines).decode()
    if _ODD_BREAKS.search(block):
        raise Unfit("the front matter holds line breaks other than LF and CRLF")
    try:
        # Safe and bounded: of at most 64 KiB, without anchors, aliases and tags, and not deep, as the faults
        # would have told.
        values = yaml.load(block, Loader=_LOADER)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        raise Unfit(_UNFIT["frontmatter-yaml"]) from None
    if not isinstance(values, dict):
        raise Unfit(_UNFIT["frontmatter-yaml"])
    _check(values)
    for key in ("name", "description"):
        if not isinstance(values.get(key), str):
            raise Unfit(f"{key} is no text in the front matter; quote it")
    if values["name"] != folder:
        raise Unfit(_UNFIT["name-differs-from-folder"])
    return values


def _check(value: object) -> None:
    """Refuse what JSON has not: dates, sets, bytes, keys that are no text, numbers that it cannot hold."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise Unfit("a key of the front matter is no text; quote it")
            _check(key)
            _check(item)
    elif isinstance(value, list):
        for item in value:
            _check(item)
    elif isinstance(value, str):
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise Unfit("the front matter holds unpaired surrogates")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise Unfit("the front matter holds a number that JSON has not; quote it")
    elif isinstance(value, int):  # and `bool`
        if abs(value) > _MOST_EXACT:
            raise Unfit("the front matter holds a number that JSON does not keep exactly; quote it")
    elif value is not None:
        raise Unfit(f"the front matter holds a {type(value).__name__}, which JSON has not; quote it")
