"""Glob patterns over the paths of a listing, the same for every store.

A pattern is matched against paths relative to the listed folder, case-sensitively:

* without a `/` it matches a name at any depth; with one, or with a leading `/` or `./`, it is anchored at the
  listed folder; a trailing `/` does not anchor it, but makes it match folders only;
* `*` and `?` match any characters but `/`, a leading dot too; `**` as a whole component matches any number
  of folders, none included, and at the end everything below (`a/**` is not `a` itself);
* `[a-z]`, `[!a-z]`, `[[:alpha:]]`, `{a,b}` and `{1..3}` are those of bash, and so is a backslash that makes
  the next character an ordinary one. A bracket that is not closed is an ordinary character.

Matching never backtracks far, whatever the pattern: it takes at most the length of the pattern times the
length of the path. Within a component that is so because wcmatch, which translates components, gives back
nothing that stands between two `*`. Across components, what stands between two `**` is sought from the left
and kept where it is found, which misses nothing, because its number of components is fixed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from skillfs.core.refs import find_unfit
from skillfs.errors import InvalidArgumentError, quoted

__all__ = ["Glob", "compile_globs"]

MAX_PATTERNS = 256  # given, and again with all their braces expanded
MAX_PATTERN_CHARACTERS = 1024
MAX_EXPANDED_CHARACTERS = 16_384  # translated and compiled in 20 to 100 ms
MAX_BRACES = 32  # the expansion calls itself once for each that is open

_Match: TypeAlias = Callable[[str], re.Match[str] | None]

_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Run:
    """Components without a `**` among them."""

    width: int
    matches: _Match


@dataclass(frozen=True, slots=True)
class _Anchored:
    """A pattern that starts at the listed folder: runs of components with a `**` between each two."""

    runs: tuple[_Run, ...]
    folders_only: bool

    def matches(self, path: str, parts: list[str]) -> bool:
        head, *middle = self.runs
        if not middle:
            return head.matches(path) is not None
        tail = middle.pop()
        at = head.width
        end = len(parts) - tail.width
        if at > end or not (_matches(head, parts, 0) and _matches(tail, parts, end)):
            return False
        for run in middle:
            last = end - run.width
            while at <= last and not _matches(run, parts, at):
                at += 1
            if at > last:
                return False
            at += run.width
        return True


class Glob:
    """Compiled patterns, of which one has to match. Call it with a path.

    Use `compile_globs` to make one.
    """

    __slots__ = ("_anchored", "_folder_name", "_name")

    def __init__(
        self, name: _Match | None, folder_name: _Match | None, anchored: tuple[_Anchored, ...]
    ) -> None:
        self._name = name
        self._folder_name = folder_name
        self._anchored = anchored

    def __call__(self, path: str, is_folder: bool = False) -> bool:
        """Tell whether a pattern matches.

        Args:
            path: A path relative to the listed folder, without a leading or trailing `/`.
            is_folder: Whether it is a folder or a skill, which patterns with a trailing `/` ask for.
        """
        name = path[path.rfind("/") + 1 :]
        if self._name is not None and self._name(name):
            return True
        if is_folder and self._folder_name is not None and self._folder_name(name):
            return True
        if not self._anchored:
            return False
        parts = path.split("/")
        return any(
            pattern.matches(path, parts)
            for pattern in self._anchored
            if is_folder or not pattern.folders_only
        )


def compile_globs(patterns: str | list[str] | tuple[str, ...] | None, *, argument: str) -> Glob | None:
    """Compile the patterns that a caller sent.

    Args:
        patterns: One pattern, or a list of them; a string is always one pattern, commas and all.
        argument: Name of the argument they were sent as, for errors.

    Returns:
        A matcher, or None when there are no patterns (`None` or an empty list): nothing is filtered then.

    Raises:
        InvalidArgumentError: A pattern is not a string, malformed, too long, or stands for too many.
    """
    if patterns is None:
        return None
    if isinstance(patterns, str):
        patterns = [patterns]
    elif not isinstance(patterns, list | tuple):
        raise InvalidArgumentError(f"{argument} is a pattern or a list of patterns, not {quoted(patterns)}")
    if not patterns:
        return None
    if len(patterns) > MAX_PATTERNS:
        raise _too_many(argument)
    names: list[str] = []
    folder_names: list[str] = []
    anchored: list[_Anchored] = []
    room = MAX_EXPANDED_CHARACTERS
    count = 0
    for pattern in patterns:
        for text in _expanded(pattern, argument):
            count += 1
            room -= len(text)
            if count > MAX_PATTERNS or room < 0:
                raise _too_many(argument)
            folders_only = text.endswith("/")
            parts = [part for part in text.split("/") if part not in {"", "."}]
            if not parts or ".." in parts:
                raise InvalidArgumentError(
                    f"{argument}: the pattern {quoted(pattern)} names nothing below the listed folder; "
                    'use "**" for everything, and no ".."'
                )
            if text.startswith(("/", "./")) or len(parts) > 1:
                anchored.append(_Anchored(tuple(_runs(parts)), folders_only))
            else:
                (folder_names if folders_only else names).append(_regex(parts))
    return Glob(_any_of(names), _any_of(folder_names), tuple(anchored))


def _matches(run: _Run, parts: list[str], at: int) -> bool:
    return not run.width or run.matches("/".join(parts[at : at + run.width])) is not None


def _too_many(argument: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{argument} stands for more than {MAX_PATTERNS} patterns or {MAX_EXPANDED_CHARACTERS:,} characters, "
        "braces expanded; use fewer or wider patterns"
    )


def _expanded(pattern: object, argument: str) -> Iterator[str]:
    """Check one pattern and yield what its braces stand for; in these every `/` separates components."""
    if not isinstance(pattern, str):
        raise InvalidArgumentError(f"{argument}: a pattern is a string, not {quoted(pattern)}")
    fault = None
    if not pattern:
        fault = "is empty; leave it out"
    elif len(pattern) > MAX_PATTERN_CHARACTERS:
        fault = f"is over {MAX_PATTERN_CHARACTERS:,} characters; use several shorter ones"
    elif find_unfit(pattern):
        fault = 'holds a control character or an unpaired surrogate; use "?" in its place'
    elif pattern.count("{") > MAX_BRACES:
        fault = f'holds more than {MAX_BRACES} "{{"; use several patterns'
    if fault is not None:
        raise InvalidArgumentError(f"{argument}: the pattern {quoted(pattern)} {fault}")
    for text in _brace_expansion(pattern, argument) if "{" in pattern else [pattern]:
        plain = _ESCAPE.sub(_plain_escape, text)
        if plain:
            yield plain


def _brace_expansion(pattern: str, argument: str) -> list[str]:
    import bracex  # Not at the top, nor is wcmatch: a start that needs no patterns saves 15 ms.

    try:
        return bracex.expand(pattern, keep_escapes=True, limit=MAX_PATTERNS)
    except (bracex.ExpansionLimitException, ValueError):
        raise _too_many(argument) from None


def _plain_escape(match: re.Match[str]) -> str:
    if match[1] == "/":
        return "/"
    return match[0] if match[1] else "\\\\"  # a backslash with nothing behind it stands for itself


def _runs(parts: list[str]) -> Iterator[_Run]:
    if parts[-1] == "**":
        parts = [*parts, "*"]
    run: list[str] = []
    for part, before in zip(parts, [None, *parts], strict=False):
        if part != "**":
            run.append(part)
        elif before != "**":
            yield _run(run)
            run = []
    yield _run(run)


def _run(parts: list[str]) -> _Run:
    return _Run(len(parts), re.compile(_regex(parts) if parts else "").fullmatch)


def _regex(parts: list[str]) -> str:
    from wcmatch import glob

    including: list[str]
    including, _ = glob.translate("/".join(parts), flags=glob.CASE | glob.DOTGLOB | glob.FORCEUNIX)
    return including[0]


def _any_of(regexes: list[str]) -> _Match | None:
    return re.compile("|".join(regexes)).fullmatch if regexes else None
