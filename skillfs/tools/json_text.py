"""The one JSON object in a text that a model wrote: bare, in a code fence, or with prose around it.

A fence needs no rule of its own. No line of JSON begins with one, as a string cannot hold a line break, so a
fence is prose like any other, whatever its info string says. What counts is which brace begins what:

* A brace is the beginning of JSON when a name in double quotes and a colon follow. All others, as in `{x}`
  and `{}`, are prose.
* The outermost object counts; what lies inside another object, or in a string, is never looked at alone.
* An object with the member that is asked for (`action`, say) is what is sought. There must be exactly one.
  Complete objects without it are prose.
* An object that breaks off, of which a member of the envelope was read before, is a fault even beside a whole
  one: which of the two was meant is not for us to say. Another one that breaks off is prose up to that place.
  So is a brace behind which the name that is asked for and a colon stand in other quotes than double ones, or
  in none: a second one that somebody wrote by the rules of another language.
* What follows on its end with a name in double quotes and a colon is no prose but a member of it that a brace
  too many cut off, and a fault.

Two faults are mended and told of: a comma behind the last member, and a comma that is missing in front of a
name, or in a list in front of a string, an object or a list. Everything else ends in an error that says the
line, the column, and what was expected there.

The time taken grows with the length of the text and with nothing else: every character is looked at once as
prose, and once at most as JSON.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from skillfs.errors import InvalidArgumentError, quoted

__all__ = ["MOST_CHARACTERS", "JsonObject", "Repair", "find_object"]

MOST_CHARACTERS = 1 << 20
"""Characters of a text, prose and all."""

MOST_LEVELS = 100
"""How deep an object may nest: what writes JSON again recurses, and gives up at some hundreds."""

MOST_DIGITS = 640
"""Digits of an integer: longer ones `int` may refuse, by a limit that an application can lower to this."""

Fault = Literal["trailing comma", "missing comma"]

_SPACE = r"[ \t\n\r]*+"
# Possessive, so that a string of megabytes keeps no stack of places to go back to.
_INSIDE = r'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+'
_STRING = f'"{_INSIDE}"'
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"

_TOKEN = re.compile(
    rf"{_SPACE}(?:(?P<string>{_STRING})|(?P<number>{_NUMBER})|(?P<word>true|false|null)|(?P<mark>[{{}}\[\]:,]))"
)
_OPENING = re.compile(rf"\{{{_SPACE}{_STRING}{_SPACE}:")
_MEMBER_BEHIND = re.compile(rf"[ \t\n\r,\]}}]*+({_STRING}){_SPACE}:")
_LINE_END = re.compile(r"\r\n?|\n")
_ODD = re.compile(r"[\x00\ud800-\udfff]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_space = re.compile(_SPACE).match
_inside = re.compile(_INSIDE).match

_QUOTES = "\"'`\u2018\u2019\u201c\u201d"

_WORDS = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class Repair:
    """A fault that was mended.

    Attributes:
        fault: What was wrong.
        line: Where, counted from 1: of the comma, or where one was missing.
        column: Likewise, in characters.
    """

    fault: Fault
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class JsonObject:
    """An object that was found in a text.

    Attributes:
        value: The object.
        repairs: What was mended, in the order of the text.
    """

    value: dict[str, Any]
    repairs: tuple[Repair, ...]


def find_object(text: str, member: str, members: Collection[str] = ()) -> JsonObject:
    """Find the one object that has a member.

    A byte-order mark at the beginning is dropped. Lines end at a line feed, at a carriage return, or at both.

    Args:
        text: What a model wrote; of at most `MOST_CHARACTERS` characters.
        member: Name of the member that the object has.
        members: Names of which one tells that an object which breaks off was meant to be the one.

    Raises:
        InvalidArgumentError: There is none, or more than one; it is malformed, or has a name twice; or the
            text is too long, or holds NUL or an unpaired surrogate. With the line and the column.
    """
    if len(text) > MOST_CHARACTERS:
        raise InvalidArgumentError(
            f"the text has over {MOST_CHARACTERS:,} characters; send the JSON object alone"
        )
    text = text.removeprefix("\ufeff")
    where = _Places(text)
    if (odd := _ODD.search(text)) is not None:
        kind = "NUL" if odd[0] == "\0" else "an unpaired surrogate"
        raise InvalidArgumentError(f"the text holds {kind} at {where(odd.start())}; send it without")
    sought, broken, other, alike = _readings(text, member, {member, *members})
    if not sought:
        raise _none(text, member, {member, *members}, broken, other, where)
    for reading in sought:
        if reading.value is None:
            assert reading.fault is not None
            raise _malformed(reading.fault, where)
    if len(sought) > 1:
        raise InvalidArgumentError(
            f'two objects have a member "{member}", at {where(sought[0].start)} and at '
            f"{where(sought[1].start)}; send one at a time"
        )
    reading = sought[0]
    if reading.fault is not None:
        raise _malformed(reading.fault, where)
    if alike is not None and (fault := _Reader(text, alike).read().fault) is not None:
        raise _malformed(fault, where)
    if (member_behind := _MEMBER_BEHIND.match(text, reading.end)) is not None:
        raise _malformed((member_behind.start(1), "a member stands behind the end of the object"), where)
    assert reading.value is not None
    return JsonObject(reading.value, tuple(Repair(fault, *where.of(at)) for fault, at in reading.repairs))


@dataclass(slots=True)
class _Reading:
    """What reading at an opening brace came to.

    Attributes:
        start: Where the brace is.
        end: Behind the closing brace, or where it broke off.
        value: The object; None where it broke off.
        names: Names of its own members, as far as it was read.
        fault: Where something is wrong with it, and what; the first such place.
        repairs: What was mended, and where.
    """

    start: int
    end: int
    value: dict[str, Any] | None = None
    names: set[str] = field(default_factory=set)
    fault: tuple[int, str] | None = None
    repairs: list[tuple[Fault, int]] = field(default_factory=list)


class _Places:
    """Lines and columns of a text; the text is looked through for lines only when one is asked for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts: list[int] = []

    def of(self, at: int) -> tuple[int, int]:
        if not self._starts:
            self._starts = [0, *(end.end() for end in _LINE_END.finditer(self._text))]
        line = bisect_right(self._starts, at)
        return line, at - self._starts[line - 1] + 1

    def __call__(self, at: int) -> str:
        line, column = self.of(at)
        return f"line {line}, column {column}"


def _readings(
    text: str, member: str, members: Collection[str]
) -> tuple[list[_Reading], _Reading | None, _Reading | None, int | None]:
    """What is sought, whole or broken off; of what else broke off, and of all other objects, the first.

    And where in the prose between them something else begins that looks like what is sought.
    """
    sought: list[_Reading] = []
    broken: _Reading | None = None
    other: _Reading | None = None
    alike: re.Match[str] | None = None
    looks_alike = re.compile(rf"\{{\s*+[{_QUOTES}]?{re.escape(member)}[{_QUOTES}]?\s*+:")
    at = 0
    while len(sought) < 2 and (opening := _OPENING.search(text, at)) is not None:
        alike = alike or looks_alike.search(text, at, opening.start())
        reading = _Reader(text, opening.start()).read()
        at = reading.end  # beyond the brace in any case
        if reading.value is not None and member not in reading.names:
            other = other or reading
        elif reading.value is None and reading.names.isdisjoint(members):
            broken = broken or reading
        else:
            sought.append(reading)
    alike = alike or looks_alike.search(text, at)
    return sought, broken, other, None if alike is None else alike.start()


def _none(
    text: str,
    member: str,
    members: Collection[str],
    broken: _Reading | None,
    other: _Reading | None,
    where: _Places,
) -> InvalidArgumentError:
    """The error for a text in which nothing is as it should be: of what was most likely meant."""
    names = "|".join(map(re.escape, sorted(members)))
    meant = re.search(rf"\{{\s*+['\"\u2018\u201c]?(?:{names})\b", text)
    if meant is not None and (fault := _Reader(text, meant.start()).read().fault) is not None:
        return _malformed(fault, where)
    if broken is not None:
        assert broken.fault is not None
        return _malformed(broken.fault, where)
    if other is not None:
        return _without(member, where(other.start))
    if (brace := text.find("{")) >= 0:
        fault = _Reader(text, brace).read().fault
        return _without(member, where(brace)) if fault is None else _malformed(fault, where)
    at = _after_space(text, 0)
    found = quoted(text[at]) if at < len(text) else "the end of the text"
    return _malformed((at, f"a JSON object was expected, not {found}"), where)


def _without(member: str, place: str) -> InvalidArgumentError:
    return InvalidArgumentError(f'the object at {place} has no member "{member}"; send one that has')


def _malformed(fault: tuple[int, str], where: _Places) -> InvalidArgumentError:
    at, message = fault
    return InvalidArgumentError(f"the JSON is malformed at {where(at)}: {message}")


class _Await(Enum):
    """What may come next."""

    NAME = "a name in double quotes"
    COLON = 'a ":"'
    VALUE = "a value (text in double quotes, say)"
    COMMA = "a comma or the end of the object or list"


class _Reader:
    """Reads the object that begins at a brace, as far as it is one, without calling itself."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._value: dict[str, Any] = {}
        self._holders: list[dict[str, Any] | list[Any]] = [self._value]
        self._names = [""]  # of each open object the one whose value comes next
        self._awaited = _Await.NAME
        self._comma = -1  # where the comma stands that was read last
        self._at = start + 1
        self._reading = _Reading(start, start + 1)

    def read(self) -> _Reading:
        reading = self._reading
        while self._holders:
            token = _TOKEN.match(self._text, self._at)
            if token is None or not self._takes(token):
                self._break_off(reading)
                return reading
            self._at = token.end()
        reading.value, reading.end = self._value, self._at
        return reading

    def _takes(self, token: re.Match[str]) -> bool:
        """Take the next token; False when it may not stand here."""
        kind = token.lastgroup
        piece = token[kind] if kind is not None else ""
        begin = token.end() - len(piece)
        member = _Await.VALUE if isinstance(self._holders[-1], list) else _Await.NAME
        if self._awaited is _Await.COMMA:
            if piece == ",":
                self._comma = begin
                self._awaited = member
                return True
            if kind == "string" or (member is _Await.VALUE and piece in ("{", "[")):
                self._reading.repairs.append(("missing comma", self._at))
                self._awaited = member
        if piece in ("}", "]"):
            return self._awaited in (_Await.COMMA, member) and self._closes(piece, member)
        self._comma = -1
        if self._awaited is _Await.NAME:
            return kind == "string" and self._takes_name(piece, begin)
        if self._awaited is _Await.COLON:
            if piece == ":":
                self._awaited = _Await.VALUE
            return piece == ":"
        return self._awaited is _Await.VALUE and self._takes_value(kind, piece, begin)

    def _closes(self, piece: str, member: _Await) -> bool:
        if piece != ("]" if member is _Await.VALUE else "}"):
            return False
        if self._comma >= 0:
            self._reading.repairs.append(("trailing comma", self._comma))
            self._comma = -1
        self._holders.pop()
        self._names.pop()
        self._awaited = _Await.COMMA
        return True

    def _takes_name(self, piece: str, begin: int) -> bool:
        name = self._string(piece, begin)
        if name in self._holders[-1]:
            self._flaw(begin, f"the name {quoted(name)} stands twice in one object")
        self._names[-1] = name
        if len(self._names) == 1:
            self._reading.names.add(name)
        self._awaited = _Await.COLON
        return True

    def _takes_value(self, kind: str | None, piece: str, begin: int) -> bool:
        value: Any
        if kind == "string":
            value = self._string(piece, begin)
        elif kind == "number":
            value = self._number(piece, begin)
        elif kind == "word":
            value = _WORDS[piece]
        elif piece in ("{", "["):
            value = {} if piece == "{" else []
        else:
            return False
        if isinstance(value, dict | list) and len(self._holders) == MOST_LEVELS:
            return False
        holder = self._holders[-1]
        if isinstance(holder, list):
            holder.append(value)
        else:
            holder[self._names[-1]] = value
        self._awaited = _Await.COMMA
        if isinstance(value, dict | list):
            self._holders.append(value)
            self._names.append("")
            self._awaited = _Await.NAME if piece == "{" else _Await.VALUE
        return True

    def _string(self, piece: str, begin: int) -> str:
        if "\\" not in piece:
            return piece[1:-1]
        text: str = json.loads(piece)
        if _SURROGATE.search(text):
            self._flaw(begin, "the string holds an unpaired surrogate, which is no character")
        return text

    def _number(self, piece: str, begin: int) -> int | float:
        if piece.lstrip("-").isdigit():
            if len(piece) <= MOST_DIGITS:
                return int(piece)
            self._flaw(begin, f"the number has over {MOST_DIGITS} digits")
            return 0
        if math.isinf(number := float(piece)):
            self._flaw(begin, "the number is larger than any that a program can hold")
        return number

    def _flaw(self, at: int, message: str) -> None:
        """Note what makes the object useless, and read on to see where it ends."""
        if self._reading.fault is None:
            self._reading.fault = (at, message)

    def _break_off(self, reading: _Reading) -> None:
        text = self._text
        at = reading.end = max(_after_space(text, self._at), reading.start + 1)
        if text.startswith('"', at) and _TOKEN.match(text, at) is None:
            at = _inside_end(text, at)
            if at == len(text):
                message = "the text ends inside a string"
            elif text[at] == "\\":
                message = 'there is no such escape in JSON; write a backslash as "\\\\"'
            else:
                message = (
                    "a line break or another control character stands in a string; write it as an escape"
                )
        elif len(self._holders) == MOST_LEVELS and text.startswith(("{", "["), at):
            message = f"it nests over {MOST_LEVELS} levels"
        else:
            found = quoted(text[at]) if at < len(text) else "the end of the text"
            message = f"{self._awaited.value} was expected, not {found}"
        self._flaw(at, message)


def _after_space(text: str, at: int) -> int:
    space = _space(text, at)
    assert space is not None  # it matches nothing, too
    return space.end()


def _inside_end(text: str, quote: int) -> int:
    inside = _inside(text, quote + 1)
    assert inside is not None  # likewise
    return inside.end()
