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
    start = at = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char in "{[":
            at = max(at, _closing(text, at))
        elif char == ",":
            parts.append(text[start:at])
            start = at + 1
        at += 1
    parts.append(text[start:])
    return [part for part in map(str.strip, parts) if part]


def _closing(text: str, opening: int) -> int:
    """Where the brace or bracket that opens at a place is closed; -1 when it is not."""
    if text[opening] == "[":
        first = opening + 2 if text[opening + 1 : opening + 2] in ("!", "^") else opening + 1
        return text.find("]", first + 1)  # a bracket that comes first stands for itself
    depth = 0
    at = opening
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == "{":
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if not depth:
                return at
        at += 1
    return -1
