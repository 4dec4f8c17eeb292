"""Several globs in one string, as models write them."""

from __future__ import annotations

__all__ = ["split_globs"]


def split_globs(text: str) -> list[str]:
    """Split at commas but for those inside braces or brackets or behind a backslash; empty parts are dropped.

    A brace or bracket that is never closed is an ordinary character, so commas behind it split.

    Args:
        text: Globs separated by commas, such as `*.md, src/*.{py,sh}`.
    """
    parts: list[str] = []
    braces = _closed_braces(text)
    last_bracket = text.rfind("]")
    start = at = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char == "{":
            at = braces.get(at, at)
        elif char == "[" and at < last_bracket:
            first = at + 2 if text[at + 1 : at + 2] in ("!", "^") else at + 1
            at = max(at, text.find("]", first + 1))  # a bracket that comes first stands for itself
        elif char == ",":
            parts.append(text[start:at])
            start = at + 1
        at += 1
    parts.append(text[start:])
    return [part for part in map(str.strip, parts) if part]


def _closed_braces(text: str) -> dict[int, int]:
    """Where each brace that is closed is closed. In one pass: looking from each to the end takes minutes."""
    closed: dict[int, int] = {}
    opened: list[int] = []
    at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == "{":
            opened.append(at)
        elif text[at] == "}" and opened:
            closed[opened.pop()] = at
        at += 1
    return closed
