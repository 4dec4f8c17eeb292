"""Text: which bytes hold the characters or lines that are wanted, and cutting them out.

A file is text if it decodes strictly, as a whole: UTF-8 without NUL, UTF-16 or UTF-32 announced by a
byte-order mark, or the encoding a caller names. From the facts that `skillfs.core.textfacts` finds once,
`character_window` and `line_window` say which bytes to read; `take_characters` and `take_lines` cut exactly
what was asked from them.

A character is a Unicode code point. A line ends at a line feed and nothing else, a carriage return
before it being part of the line.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import AnyStr, NamedTuple, NoReturn

from skillfs.core.textfacts import TextFacts
from skillfs.errors import ChangedError, InvalidArgumentError, NotTextError, TooLargeError, quoted

__all__ = [
    "HOLD_LIMIT",
    "LineCut",
    "Window",
    "character_window",
    "check_hold_limit",
    "cut_characters",
    "cut_lines",
    "cut_lines_within",
    "decode_as",
    "holds_for",
    "limit_window",
    "line_window",
    "normal_encoding",
    "not_text_message",
    "take_characters",
    "take_lines",
    "take_lines_within",
]

HOLD_LIMIT = 64 * 2**20
"""Most bytes of a file that is decoded whole because its encoding cannot be entered midway."""

# Longer or stranger names are refused before the look-up: it keeps every unknown name for ever.
_ENCODING_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.:-]{0,39}")

# Text codecs to Python, but notations for pieces of text: no file is written in them, decoding the first two
# takes quadratic time, and the escapes yield characters that no encoding can hold.
_NOTATIONS = {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"}


@dataclass(frozen=True, slots=True)
class Window:
    """Bytes that are enough to answer, and what to take from them.

    Attributes:
        offset: First byte of the file to read.
        end: Byte behind the last one to read.
        skip: Characters or lines that start in these bytes before the wanted ones.
        count: Characters or lines to take; 0: nothing need be read.
    """

    offset: int
    end: int
    skip: int
    count: int


_NOTHING = Window(0, 0, 0, 0)


class LineCut(NamedTuple):
    """As many whole lines as a number of characters allows; of one that alone is too long, its beginning.

    Attributes:
        text: The lines.
        lines: How many there are; 1 for the beginning of one.
        cut_at: Where in the file, in characters, a line was cut; None where all are whole.
    """

    text: str
    lines: int
    cut_at: int | None


def not_text_message(facts: TextFacts) -> str:
    """Say why a file is not text, at which byte, and what can be done."""
    return (
        f"the file is not text, at byte {facts.reason_at}: {facts.reason}; "
        "read it as bytes, or name its encoding if you know it"
    )


def check_hold_limit(
    size_bytes: int,
    why: str = "in its encoding",
    instead: str = "convert it to UTF-8, or read it as bytes",
) -> None:
    """Refuse to hold a file that is too large for it.

    Args:
        size_bytes: Its size.
        why: When it has to be held, for the message.
        instead: What can be done, for the message.

    Raises:
        TooLargeError: The file has more than `HOLD_LIMIT` bytes.
    """
    if size_bytes > HOLD_LIMIT:
        raise TooLargeError(
            f"the file has {size_bytes} bytes, and {why} it would have to be held whole, which is "
            f"done up to {HOLD_LIMIT}; {instead}"
        )


def normal_encoding(name: str) -> str:
    """Return the one spelling of an encoding's name, such as `utf-8` for `UTF8`.

    Raises:
        InvalidArgumentError: Nothing is encoded so: the name is unknown, or not of a text encoding.
    """
    try:
        if not isinstance(name, str) or not _ENCODING_NAME.fullmatch(name):
            raise LookupError
        codec = codecs.lookup(name)
    except LookupError:
        raise InvalidArgumentError(
            f"unknown encoding {quoted(name)}; use a name such as utf-8, utf-16-le, latin-1 or gb18030"
        ) from None
    spelled = codec.name.replace("_", "-")
    if not codec._is_text_encoding or spelled in _NOTATIONS:
        raise InvalidArgumentError(
            f"{quoted(name)} is no encoding of text files; use one such as utf-8 or latin-1"
        )
    return spelled


def holds_for(facts: TextFacts, encoding: str) -> bool:
    """Whether a file's facts also hold when it is read as an encoding, so that windows can be used.

    Args:
        facts: Of the file.
        encoding: As `normal_encoding` spells it.
    """
    return facts.encoding == encoding or (facts.encoding == "ascii" and encoding == "utf-8")


def decode_as(data: bytes, encoding: str) -> str:
    """Decode a whole file, strictly, as the encoding that a caller names.

    Raises:
        InvalidArgumentError: As `normal_encoding`.
        NotTextError: It does not decode, or holds a NUL byte and the encoding has units of 8 bits.
    """
    name = normal_encoding(encoding)
    nul = -1 if name.startswith(("utf-16", "utf-32")) else data.find(0)
    try:
        text = data.decode(name)
    except UnicodeDecodeError as error:
        if not 0 <= nul < error.start:
            raise NotTextError(_not_decoded(name, error.start, error.reason)) from None
    if nul >= 0:
        raise NotTextError(_not_decoded(name, nul, "holds a NUL byte"))
    # UTF-7 can spell half a surrogate pair, which nothing could encode again.
    if name == "utf-7":
        try:
            text.encode()
        except UnicodeEncodeError as error:
            at = len(text[: error.start].encode(name))
            raise NotTextError(_not_decoded(name, at, "unpaired surrogate")) from None
    return text


def _not_decoded(encoding: str, at: int, reason: str) -> str:
    return (
        f"the file is not text as {encoding}, at byte {at}: {reason}; "
        "read it without an encoding, or name the one it is written in"
    )


def character_window(facts: TextFacts, size_bytes: int, start: int, length: int | None) -> Window:
    """Return the bytes that hold some characters of a file.

    Args:
        facts: Of the file.
        size_bytes: Its size in bytes.
        start: First character, from 0; at or past the end nothing is wanted.
        length: Characters; None: all the rest. More than there are means the rest.

    Raises:
        InvalidArgumentError: `start` or `length` is no integer, or negative.
        NotTextError: The file is not text.
        TooLargeError: The file would have to be held whole, and is over `HOLD_LIMIT`.
    """
    _check_number("start", start, 0)
    if length is not None:
        _check_number("length", length, 0)
    _check_text(facts)
    stop = facts.characters if length is None else min(start + length, facts.characters)
    if start >= stop:
        return _NOTHING
    count = stop - start
    if facts.encoding == "ascii":
        return Window(start, stop, 0, count)
    grid = facts.grid
    if grid is None or grid.characters is None:
        return _whole(facts, size_bytes, start, count)
    counts, step = grid.characters, grid.step
    first = bisect_right(counts, start)
    last = bisect_left(counts, stop, first)
    # The last wanted character starts before the edge and may have three bytes behind it.
    end = min((last + 1) * step + 3, size_bytes) if last < len(counts) else size_bytes
    return Window(first * step, end, start - counts[first - 1] if first else start, count)


def line_window(facts: TextFacts, size_bytes: int, first_line: int, limit: int | None) -> Window:
    """Return the bytes that hold some lines of a file.

    Args:
        facts: Of the file.
        size_bytes: Its size in bytes.
        first_line: First line, from 1; past the last nothing is wanted.
        limit: Lines; None: all the rest. More than there are means the rest.

    Raises:
        InvalidArgumentError: `first_line` or `limit` is no integer, or less than 1 and 0.
        NotTextError: The file is not text.
        TooLargeError: The file would have to be held whole, and is over `HOLD_LIMIT`.
    """
    _check_number("offset", first_line, 1)
    if limit is not None:
        _check_number("limit", limit, 0)
    _check_text(facts)
    start = first_line - 1
    stop = facts.lines if limit is None else min(start + limit, facts.lines)
    if start >= stop:
        return _NOTHING
    count = stop - start
    grid = facts.grid
    if grid is None:
        return _whole(facts, size_bytes, start, count)
    counts, step = grid.lines, grid.step
    # A line starts behind a newline, so that newline has to be in the window: hence left, not right.
    first = bisect_left(counts, start) if start else 0
    last = bisect_left(counts, stop, first)
    end = (last + 1) * step if last < len(counts) else size_bytes
    return Window(first * step, end, start - counts[first - 1] if first else start, count)


def limit_window(window: Window, facts: TextFacts, most_characters: int) -> Window:
    """Return a window of lines without the bytes that some first characters of the lines do not need.

    Args:
        window: From `line_window`.
        facts: Of the file.
        most_characters: Characters of the lines that are wanted at most.
    """
    if facts.grid is None or not window.count:
        return window
    # The first line begins no more than a step behind the offset.
    width = 1 if facts.encoding == "ascii" else 4
    end = window.offset + facts.grid.step + width * most_characters
    return replace(window, end=end) if end < window.end else window


def take_characters(data: bytes, window: Window, facts: TextFacts) -> str:
    """Cut the characters of a window from its bytes.

    Raises:
        ChangedError: The bytes are not those the facts are about.
    """
    if not window.count:
        return ""
    try:
        text = cut_characters(_decode_window(data, window, facts), window)
    except UnicodeDecodeError:
        _raise_changed()
    if len(text) != window.count:
        _raise_changed()
    return text


def take_lines(data: bytes, window: Window, facts: TextFacts) -> str:
    """Cut the lines of a window from its bytes, each with the newline that ends it.

    Raises:
        ChangedError: The bytes are not those the facts are about.
    """
    if not window.count:
        return ""
    try:
        if facts.encoding in ("ascii", "utf-8"):
            _check_length(data, window)
            return _cut_lines(data, b"\n", window).decode(facts.encoding)
        return _cut_lines(_decode_window(data, window, facts), "\n", window)
    except UnicodeDecodeError:
        _raise_changed()


def take_lines_within(
    data: bytes, window: Window, limited: Window, facts: TextFacts, most_characters: int
) -> LineCut:
    """Cut from bytes as many whole lines of a window as have no more than some characters together.

    Args:
        data: The bytes of `limited`.
        window: From `line_window`.
        limited: The same from `limit_window`.
        facts: Of the file.
        most_characters: At least 1.

    Raises:
        ChangedError: The bytes are not those the facts are about.
    """
    if not window.count:
        return LineCut("", 0, None)
    try:
        text = _decode_window(data, limited, facts)
    except UnicodeDecodeError:
        _raise_changed()
    before = 0
    if window.offset and facts.grid is not None:
        counts = facts.grid.characters
        before = window.offset if counts is None else counts[window.offset // facts.grid.step - 1]
    return cut_lines_within(text, window, most_characters, before, more=limited.end < window.end)


def cut_lines_within(
    text: str, window: Window, most_characters: int, before: int = 0, *, more: bool = False
) -> LineCut:
    """The same from a text that is decoded.

    Args:
        text: The text of the bytes of the window.
        window: From `line_window`.
        most_characters: At least 1.
        before: Characters of the file before the text.
        more: Whether the text ends before the window does.

    Raises:
        ChangedError: The text has not so many lines.
    """
    if not window.count:
        return LineCut("", 0, None)
    found = text.count("\n")
    if found < window.skip or (not more and found < window.skip + window.count - 1):
        _raise_changed()
    start = _behind_newline(text, "\n", window.skip)
    stop = len(text)
    if found >= window.skip + window.count:
        stop, more = _behind_newline(text, "\n", window.skip + window.count), False
    if not more and stop - start <= most_characters:
        return LineCut(text[start:stop], window.count, None)
    last = text.rfind("\n", start, start + most_characters) + 1
    if last:
        return LineCut(text[start:last], text.count("\n", start, last), None)
    last = start + most_characters
    return LineCut(text[start:last], 1, before + last)


def cut_characters(text: str, window: Window) -> str:
    """Cut the characters of a window from the text of its bytes."""
    return text[window.skip : window.skip + window.count]


def cut_lines(text: str, window: Window) -> str:
    """Cut the lines of a window from the text of its bytes.

    Raises:
        ChangedError: The text has not so many lines.
    """
    return _cut_lines(text, "\n", window)


def _cut_lines(whole: AnyStr, newline: AnyStr, window: Window) -> AnyStr:
    found = whole.count(newline)
    last = window.skip + window.count
    # The last line of a file need not end in a newline.
    if found < window.skip or found < last - 1:
        _raise_changed()
    start = _behind_newline(whole, newline, window.skip)
    return whole[start:] if found < last else whole[start : _behind_newline(whole, newline, last)]


def _behind_newline(whole: AnyStr, newline: AnyStr, number: int) -> int:
    """Position behind the `number`-th newline, of which there are enough.

    By halving: one pass of counting altogether, where `find` in a loop takes 0.1 µs for each line.
    """
    if not number:
        return 0
    low, high = 0, len(whole)
    while high - low > 1:
        middle = (low + high) // 2
        before = whole.count(newline, low, middle)
        if before < number:
            number -= before
            low = middle
        else:
            high = middle
    return high


def _decode_window(data: bytes, window: Window, facts: TextFacts) -> str:
    _check_length(data, window)
    if facts.encoding == "utf-8":
        start = 0
        if window.offset:
            # The cut may be inside a character, which was counted before it.
            while start < 3 and data[start : start + 1] and data[start] & 0xC0 == 0x80:
                start += 1
        return codecs.utf_8_decode(data[start:] if start else data, "strict", False)[0]
    return data.decode(str(facts.encoding))


def _whole(facts: TextFacts, size_bytes: int, skip: int, count: int) -> Window:
    if facts.encoding not in ("ascii", "utf-8"):
        check_hold_limit(size_bytes)
    return Window(0, size_bytes, skip, count)


def _check_number(name: str, value: object, least: int) -> None:
    # bool is an int, and True as a position is a mistake of the caller.
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgumentError(f"{name} must be an integer, not {quoted(value)}")
    if value < least:
        raise InvalidArgumentError(f"{name} must be {least} or more")


def _check_text(facts: TextFacts) -> None:
    if facts.encoding is None:
        raise NotTextError(not_text_message(facts))


def _check_length(data: bytes, window: Window) -> None:
    if len(data) != window.end - window.offset:
        _raise_changed()


def _raise_changed() -> NoReturn:
    raise ChangedError("the file changed while it was read; read it again")
