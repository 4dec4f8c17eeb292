"""What differs between two texts, line by line, in the unified format that `patch` reads.

Lines end at a line feed and nothing else, so a carriage return is part of its line. Differences are the
fewest there can be where they are few; where they are many, lines that stand once in both texts are taken as
fixed points, and between these what has nothing in common is replaced as a whole. So the time follows the
length of the texts, whatever they are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

__all__ = ["unified_diff"]

_MOST_CHANGED = 200  # lines of a stretch up to which the fewest are looked for
_MOST_LEVELS = 16  # how often a stretch is cut at fixed points

NOTHING = "/dev/null"
"""Name of a text that is not there."""


class _Change(NamedTuple):
    """Lines `start` to `end` of the old text that became `new_start` to `new_end` of the new one."""

    start: int
    end: int
    new_start: int
    new_end: int


def unified_diff(old: str | None, new: str | None, old_name: str, new_name: str, context: int = 3) -> str:
    """What leads from one text to another; empty where they are equal.

    Args:
        old: A text; None where there is none.
        new: Likewise.
        old_name: What the first line calls the old text; to be one line.
        new_name: What the second line calls the new one.
        context: Lines that are told around each change.
    """
    before, after = _lines(old or ""), _lines(new or "")
    changes = _changes(before, after)
    if not changes and (old is None) == (new is None):
        return ""
    told = [f"--- {NOTHING if old is None else old_name}\n", f"+++ {NOTHING if new is None else new_name}\n"]
    for hunk in _hunks(changes, context):
        told += _told(before, after, hunk, context)
    return "".join(told)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


# -- what differs --------------------------------------------------------------------------------------------


def _changes(old: Sequence[str], new: Sequence[str]) -> list[_Change]:
    numbers: dict[str, int] = {}
    before = [numbers.setdefault(line, len(numbers)) for line in old]
    after = [numbers.setdefault(line, len(numbers)) for line in new]
    found: list[_Change] = []
    pending = [(_Change(0, len(before), 0, len(after)), 0)]
    while pending:
        stretch, level = pending.pop()
        stretch = _trimmed(before, after, stretch)
        start, end, new_start, new_end = stretch
        if start == end and new_start == new_end:
            continue
        if start == end or new_start == new_end:
            found.append(stretch)
            continue
        fewest = _fewest(before[start:end], after[new_start:new_end])
        if fewest is not None:
            found += (_Change(start + a, start + b, new_start + c, new_start + d) for a, b, c, d in fewest)
            continue
        points = _fixed_points(before, after, stretch) if level < _MOST_LEVELS else []
        if not points:
            found.append(stretch)
            continue
        at = [(start - 1, new_start - 1), *points, (end, new_end)]
        pending += ((_Change(a + 1, b, c + 1, d), level + 1) for (a, c), (b, d) in pairwise(at))
    return _joined(sorted(found))


def _trimmed(before: list[int], after: list[int], stretch: _Change) -> _Change:
    """A stretch without the lines that begin or end both texts of it."""
    start, end, new_start, new_end = stretch
    while start < end and new_start < new_end and before[start] == after[new_start]:
        start, new_start = start + 1, new_start + 1
    while start < end and new_start < new_end and before[end - 1] == after[new_end - 1]:
        end, new_end = end - 1, new_end - 1
    return _Change(start, end, new_start, new_end)


def _fewest(before: list[int], after: list[int]) -> list[_Change] | None:
    """The fewest changes (Myers, An O(ND) Difference Algorithm, 1986); None where that are too many."""
    size, new_size = len(before), len(after)
    if abs(size - new_size) > _MOST_CHANGED:
        return None
    furthest = {1: 0}  # by diagonal, how far into `before`
    steps = []
    for changed in range(_MOST_CHANGED + 1):
        steps.append(furthest.copy())
        for diagonal in range(-changed, changed + 1, 2):
            down = _goes_down(furthest, diagonal, changed)
            at = furthest[diagonal + 1] if down else furthest[diagonal - 1] + 1
            while at < size and at - diagonal < new_size and before[at] == after[at - diagonal]:
                at += 1
            furthest[diagonal] = at
            if at >= size and at - diagonal >= new_size:
                return _traced(steps, size, new_size)
    return None


def _goes_down(furthest: dict[int, int], diagonal: int, changed: int) -> bool:
    if diagonal in (-changed, changed):
        return diagonal == -changed
    return furthest[diagonal - 1] < furthest[diagonal + 1]


def _traced(steps: list[dict[int, int]], at: int, new_at: int) -> list[_Change]:
    """The changes that led to the ends of two texts, one line each, the last first."""
    found = []
    for changed in range(len(steps) - 1, 0, -1):
        furthest, diagonal = steps[changed], at - new_at
        down = _goes_down(furthest, diagonal, changed)
        at = furthest[diagonal + 1] if down else furthest[diagonal - 1]
        new_at = at - (diagonal + 1 if down else diagonal - 1)
        found.append(_Change(at, at + (not down), new_at, new_at + down))
    return found


def _fixed_points(before: list[int], after: list[int], stretch: _Change) -> list[tuple[int, int]]:
    """Lines that stand once in both texts of a stretch: the most of them that are in the same order."""
    start, end, new_start, new_end = stretch
    counts, new_counts = Counter(before[start:end]), Counter(after[new_start:new_end])
    place = {after[at]: at for at in range(new_start, new_end) if new_counts[after[at]] == 1}
    pairs = [
        (at, place[line])
        for at, line in enumerate(before[start:end], start)
        if counts[line] == 1 and line in place
    ]
    ends: list[int] = []  # the smallest place in the new text at which an order of each length ends
    last: list[int] = []  # and the pair it ends with
    previous: list[int] = []
    for number, (_, at) in enumerate(pairs):
        length = bisect_left(ends, at)
        previous.append(last[length - 1] if length else -1)
        ends[length : length + 1], last[length : length + 1] = [at], [number]
    found = []
    number = last[-1] if last else -1
    while number >= 0:
        found.append(pairs[number])
        number = previous[number]
    return found[::-1]


def _joined(changes: list[_Change]) -> list[_Change]:
    """Changes that touch each other as one."""
    found: list[_Change] = []
    for change in changes:
        if found and (found[-1].end, found[-1].new_end) == (change.start, change.new_start):
            found[-1] = found[-1]._replace(end=change.end, new_end=change.new_end)
        else:
            found.append(change)
    return found


# -- how it is told ------------------------------------------------------------------------------------------


def _hunks(changes: list[_Change], context: int) -> Iterator[list[_Change]]:
    """Changes that are told together, because the lines around them meet."""
    hunk: list[_Change] = []
    for change in changes:
        if hunk and change.start - hunk[-1].end > 2 * context:
            yield hunk
            hunk = []
        hunk.append(change)
    if hunk:
        yield hunk


def _told(before: list[str], after: list[str], hunk: list[_Change], context: int) -> Iterator[str]:
    first, last = hunk[0], hunk[-1]
    lead, trail = min(context, first.start), min(context, len(before) - last.end)
    old = _range(first.start - lead, last.end + trail)
    new = _range(first.new_start - lead, last.new_end + trail)
    yield f"@@ -{old} +{new} @@\n"
    at = first.start - lead
    for change in hunk:
        yield from _marked(" ", before[at : change.start])
        yield from _marked("-", before[change.start : change.end])
        yield from _marked("+", after[change.new_start : change.new_end])
        at = change.end
    yield from _marked(" ", before[at : last.end + trail])


def _marked(mark: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"


def _range(start: int, end: int) -> str:
    count = end - start
    return f"{start + 1}" if count == 1 else f"{start if count == 0 else start + 1},{count}"
