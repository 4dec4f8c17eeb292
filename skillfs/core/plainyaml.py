"""A hostile or careless YAML mapping, read into strings, lists and mappings.

The parser's events are followed directly: nothing is resolved, constructed, expanded or merged. Anchors,
aliases, tags and merge keys are refused one by one, and what they stand on is left out. Where YAML fails
because of a value that should have been quoted (it holds `: `, starts with `[`, `*` or `@` and goes on
otherwise, or holds the quote that encloses it), the value is read as if it were. Depth, values and attempts
are bounded, so that 64 KiB of anything take less than 50 ms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from yaml.error import MarkedYAMLError, YAMLError
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.scanner import Scanner

from skillfs.core.model import Severity
from skillfs.errors import quoted

_libyaml: Callable[[str], Any] | None
try:
    from yaml._yaml import CParser

    _libyaml = CParser
except ImportError:  # PyYAML built without it
    _libyaml = None

__all__ = ["Loaded", "Notice", "Value", "load"]

Value: TypeAlias = "str | list[Value] | dict[str, Value]"

# Events over all attempts at one text, of which a key costs two: the worst 8,000, all tags, take 15 ms.
_EVENT_LIMIT = 8_000
_DEPTH_LIMIT = 20
# Each attempt scans up to 64 KiB again, 0.7 ms at worst.
_ATTEMPT_LIMIT = 16
# The pure-Python parser reads half a megabyte a second where libyaml reads fifty: 4 KiB, with every attempt
# used up, take 36 ms. Its time also grows with the square of the open brackets: 1,000 take 700 ms.
_PURE_LENGTH_LIMIT = 4 * 1024
_PURE_BRACKET_LIMIT = 64

# What YAML takes for the end of a line where a text file has none, and what its parsers refuse altogether.
_BREAKS = re.compile("[\r\x85\u2028\u2029]")
_REFUSED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_HARMLESS = bytes([0x09, 0x0A, *range(0x20, 0x7F)])

# What stands before a value on its line: `key: `, `- ` or `- key: `. Possessive, so that none backtracks.
_PAIR = re.compile(
    r"(?P<lead>[ ]*+(?:-[ ]++)*+)"
    r"(?P<key>[^\s:#\[\]{},\"'&*!|>%@`][^:]*+|'[^']*+'|\"[^\"]*+\")[ ]*+:[ \t]++(?=\S)"
)
_ITEM = re.compile(r"(?P<lead>[ ]*+(?:-[ ]++)++)(?=\S)")
_BLOCK_SCALAR = re.compile(r"[|>][-+0-9]{0,2}(?:[ \t]+#.*)?\Z")
# A wrongly indented key of the specification is that, not the next line of the value before it.
_SPECIFIED_KEY = re.compile(
    r"[ \t]+(?:name|description|license|compatibility|metadata|allowed-tools)[ ]*:(?:\s|\Z)"
)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that is wrong with the text.

    Attributes:
        code: Stable name of the fault.
        severity: How much it weighs.
        message: What is wrong and how to mend it.
        row: Line within the text, counted from 0.
    """

    code: str
    severity: Severity
    message: str
    row: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a text holds.

    Attributes:
        values: Every key that was read, in order.
        rows: Line of each key within the text, counted from 0.
        notices: What is wrong.
        broken: Whether the text could not be read to its end; the values before that are there.
    """

    values: dict[str, Value]
    rows: dict[str, int]
    notices: tuple[Notice, ...]
    broken: bool


def load(text: str) -> Loaded:
    """Read a YAML mapping. Never raises.

    Args:
        text: The mapping without its fences, 64 KiB at most; lines end in LF or CRLF.
    """
    text, notices = _neutral(text)
    attempt = _Attempt(text, _EVENT_LIMIT)
    lines: list[str] = []
    left = _ATTEMPT_LIMIT
    while (failure := attempt.failure) is not None and left > 0:
        lines = lines or text.split("\n")
        for row, column in failure.spots:
            owner = _owner(lines, row, column)
            mended = _with_quotes(lines, owner) if owner else None
            if owner is None or mended is None:
                continue
            left -= 1
            retry = _Attempt("\n".join(mended), attempt.events_left)
            if retry.failure is None or retry.failure.row > owner.row:
                what = f"the value of {quoted(owner.key)}" if owner.key else "this item"
                message = f"{what} is no valid YAML as it stands and is read as if it were quoted; quote it"
                notices.append(Notice("frontmatter-yaml", "warning", message, owner.row))
                attempt, lines = retry, mended
                break
            attempt.events_left = retry.events_left
        else:
            break
    notices += attempt.notices
    if failure is not None:
        attempt.drop_cut_value(lines, failure.row)
        notices.append(Notice(failure.code, "error", failure.message, failure.row))
    return Loaded(attempt.values, attempt.rows, tuple(notices), failure is not None)


def _neutral(text: str) -> tuple[str, list[Notice]]:
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if text.isascii() and not text.encode("ascii").translate(None, _HARMLESS):
        return text, []
    found = [match.start() for pattern in (_BREAKS, _REFUSED) if (match := pattern.search(text))]
    if not found:
        return text, []
    message = "control or line-separating characters here are read as blanks or U+FFFD; remove them"
    row = text.count("\n", 0, min(found))
    text = _REFUSED.sub("\ufffd", _BREAKS.sub(" ", text))
    return text, [Notice("invisible-characters", "warning", message, row)]


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why reading stopped; `spots` are (row, column) of what may be to blame, the likeliest first."""

    code: str
    message: str
    spots: tuple[tuple[int, int], ...]

    @property
    def row(self) -> int:
        return self.spots[0][0]


class _Stop(Exception):
    def __init__(self, failure: _Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def _yaml_failure(reason: str, *spots: tuple[int, int]) -> _Failure:
    message = f"this is no valid YAML ({reason}), and the front matter was not read from here on; mend it"
    return _Failure("frontmatter-yaml", message, spots)


class _Attempt:
    """One pass over a text."""

    __slots__ = ("_next", "events_left", "failure", "notices", "rows", "values")

    def __init__(self, text: str, events: int) -> None:
        self.values: dict[str, Value] = {}
        self.rows: dict[str, int] = {}
        self.notices: list[Notice] = []
        self.failure: _Failure | None = None
        self.events_left = events
        try:
            self._next: Callable[[], Any] = _parser(text).get_event
            self._document()
        except _Stop as stop:
            self.failure = stop.failure
        except MarkedYAMLError as error:
            # libyaml's reasons are fixed phrases; those of the pure parser may hold a piece of the text.
            reason = error.problem if _libyaml and error.problem else "unreadable"
            self.failure = _yaml_failure(reason, *_spots(error))
        except (YAMLError, ValueError, OverflowError, RecursionError):
            # Not only YAMLError: the pure parser lets out what `chr` and `int` say to escapes and directives.
            self.failure = _yaml_failure("unreadable", (0, 0))

    def _document(self) -> None:
        self._next()
        if type(self._next()) is StreamEndEvent:
            return
        event: Any = self._next()
        if type(event) is not MappingStartEvent:
            message = "the front matter is no list of `key: value` lines"
            raise _Stop(_Failure("frontmatter-yaml", message, ((_row(event), 0),)))
        if event.anchor is not None or event.tag is not None:
            self._refuse(event)
            return
        self._mapping(self.values, 1)
        self._next()
        event = self._next()
        if type(event) is not StreamEndEvent:
            raise _Stop(_yaml_failure("a second document starts", (_row(event), 0)))

    def _mapping(self, into: dict[str, Value], depth: int) -> None:
        following = self._next
        key: Any
        while type(key := following()) is not MappingEndEvent:
            self._spend(2)
            if type(key) is ScalarEvent and key.anchor is None and key.tag is None:
                name = key.value
                if name == "<<" and not key.style:
                    self._refuse(key, "a merge key")
                    self._skip(following())
                    continue
            elif type(key) is AliasEvent or key.anchor is not None or key.tag is not None:
                self._refuse(key)
                self._skip(following())
                continue
            else:
                # `{{placeholder}}` is a mapping whose key is a mapping; quoted, it is what was meant.
                mark = key.start_mark
                raise _Stop(_yaml_failure("a key is no string", (mark.line, mark.column)))
            event = following()
            if type(event) is ScalarEvent and event.anchor is None and event.tag is None:
                value: Value | None = event.value
            else:
                value = self._value(event, depth)
            if name in into:
                message = f"the key {quoted(name)} stands here again; its first value counts; remove one"
                self.notices.append(Notice("frontmatter-duplicate-key", "warning", message, _row(key)))
            elif value is not None:
                into[name] = value
                if depth == 1:
                    self.rows[name] = _row(key)

    def _value(self, event: Any, depth: int) -> Value | None:
        """The node that starts with `event`; None if it is refused."""
        kind: type = type(event)
        if kind is AliasEvent or event.anchor is not None or event.tag is not None:
            self._refuse(event)
            return None
        if kind is ScalarEvent:
            text: str = event.value
            return text
        if depth >= _DEPTH_LIMIT:
            message = f"the front matter is nested deeper than {_DEPTH_LIMIT} levels; make it flatter"
            raise _Stop(_Failure("too-large", message, ((_row(event), 0),)))
        if kind is MappingStartEvent:
            mapping: dict[str, Value] = {}
            self._mapping(mapping, depth + 1)
            return mapping
        items: list[Value] = []
        while type(item := self._next()) is not SequenceEndEvent:
            self._spend(1)
            value = self._value(item, depth + 1)
            if value is not None:
                items.append(value)
        return items

    def _refuse(self, event: Any, what: str = "") -> None:
        if not what:
            what = "an anchor" if event.anchor is not None else "a tag"
            what = "an alias" if type(event) is AliasEvent else what
        message = f"{what} is refused, and what it stands on left out; write the value out, or quote it"
        self.notices.append(Notice("frontmatter-yaml", "error", message, _row(event)))
        self._skip(event)

    def _skip(self, event: Any) -> None:
        depth = 0
        while True:
            if isinstance(event, CollectionStartEvent):
                depth += 1
            elif isinstance(event, CollectionEndEvent):
                depth -= 1
            if depth == 0:
                return
            self._spend(1)
            event = self._next()

    def _spend(self, events: int) -> None:
        self.events_left -= events
        if self.events_left < 0:
            message = "the front matter holds too many values; shorten it"
            raise _Stop(_Failure("too-large", message, ((0, 0),)))

    def drop_cut_value(self, lines: Sequence[str], row: int) -> None:
        """Forget the last value where reading stopped within it, for it may be the half of what was meant."""
        if not self.rows:
            return
        key, first = next(reversed(self.rows.items()))
        if all(not line or line[0] in " \t" for line in lines[first + 1 : row + 1]):
            del self.values[key], self.rows[key]


def _row(event: Any) -> int:
    row: int = event.start_mark.line
    return row


def _spots(error: MarkedYAMLError) -> list[tuple[int, int]]:
    # The context of an error in a block is the block's first line, which is innocent.
    innocent = "block mapping" in (error.context or "") or "block collection" in (error.context or "")
    marks = [None if innocent else error.context_mark, error.problem_mark]
    return [(mark.line, mark.column) for mark in marks if mark is not None] or [(0, 0)]


class _PureParser(Reader, Scanner, Parser):
    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)

    def get_event(self) -> Any:
        event: Any = super().get_event()  # type: ignore[no-untyped-call]
        if isinstance(event, ScalarEvent) and _SURROGATES.search(event.value):
            # Escaped, and refused by libyaml; they break every encoder.
            mark: Any = event.start_mark
            raise MarkedYAMLError(problem="surrogate", problem_mark=mark)
        return event


def _pure_parser(text: str) -> _PureParser:
    if len(text) > _PURE_LENGTH_LIMIT or text.count("[") + text.count("{") > _PURE_BRACKET_LIMIT:
        message = "the front matter is too large for a PyYAML without libyaml; shorten it or install libyaml"
        raise _Stop(_Failure("too-large", message, ((0, 0),)))
    return _PureParser(text)


_parser: Callable[[str], Any] = _libyaml or _pure_parser


@dataclass(frozen=True, slots=True)
class _Owner:
    """Where a value starts, the indentation that its further lines exceed, and its key if it has one."""

    row: int
    column: int
    indent: int
    key: str = ""


def _owner(lines: Sequence[str], row: int, column: int) -> _Owner | None:
    """The value that holds this place: on its own line, or else started further up with less indentation."""
    row = min(row, len(lines) - 1)
    owner = _start(lines[row], row)
    if owner is not None and owner.column <= column:
        return owner
    indent = _indent(lines[row])
    while indent and row:
        row -= 1
        if lines[row] and _indent(lines[row]) < indent:
            owner = _start(lines[row], row)
            if owner is not None:
                return owner
            indent = _indent(lines[row])
    return None


def _start(line: str, row: int) -> _Owner | None:
    if match := _PAIR.match(line):
        return _Owner(row, match.end(), match.end("lead"), match["key"].strip(" '\""))
    if match := _ITEM.match(line):
        return _Owner(row, match.end(), len(match["lead"].rstrip()) - 1)
    return None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _with_quotes(lines: list[str], owner: _Owner) -> list[str] | None:
    """The lines with this value quoted on its first line, its others blank; None if that cannot help."""
    value = lines[owner.row][owner.column :].rstrip()
    if value[0] == "#" or _BLOCK_SCALAR.match(value):
        return None
    end = owner.row + 1
    while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > owner.indent):
        if _SPECIFIED_KEY.match(lines[end]):
            return None
        end += 1
    for line in lines[owner.row + 1 : end]:
        # Folded as YAML folds: a line break is a blank, an empty line a line break.
        part = line.strip()
        value += f"{'' if value.endswith(chr(10)) else ' '}{part}" if part else "\n"
    value = value.rstrip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    text = lines[owner.row][: owner.column] + json.dumps(value, ensure_ascii=False)
    return [*lines[: owner.row], text, *[""] * (end - owner.row - 1), *lines[end:]]
