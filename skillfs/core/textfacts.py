"""The scan that finds out whether a file is text, and what has to be known to enter it midway.

One pass in bounded memory decodes the whole file strictly and counts its characters and lines. Which byte the
n-th character of UTF-8 starts at cannot be computed, so the pass also lays a `Grid` over the file, from which
`skillfs.core.text` finds the bytes of any stretch.
"""

from __future__ import annotations

import codecs
import struct
import sys
from array import array
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["GRID_STEP", "Grid", "TextFacts", "TextScanner", "decoded_facts", "scan_text"]

GRID_STEP = 4096
"""Bytes between two entries of a grid; a window reads at most two steps more than what is wanted."""

_Decode = Callable[[bytes, str, bool], tuple[str, int]]

# UTF-32-LE before UTF-16-LE: its mark begins with the other's.
_MARKS: tuple[tuple[bytes, str, _Decode], ...] = (
    (codecs.BOM_UTF32_LE, "utf-32", codecs.utf_32_le_decode),
    (codecs.BOM_UTF32_BE, "utf-32", codecs.utf_32_be_decode),
    (codecs.BOM_UTF16_LE, "utf-16", codecs.utf_16_le_decode),
    (codecs.BOM_UTF16_BE, "utf-16", codecs.utf_16_be_decode),
)
_MARK_LENGTH = 4

_HEAD = 1024  # bytes looked at to name the likely encoding of what is not text
_CHUNK = 2**16  # stays in the second-level cache while it is looked at several times

_UTF8_REASONS = {
    "invalid start byte": "invalid UTF-8 start byte",
    "invalid continuation byte": "invalid UTF-8 continuation byte",
    "unexpected end of data": "ends inside a UTF-8 character",
}


@dataclass(frozen=True, slots=True)
class Grid:
    """How many characters and newlines start before every `step`-th byte of a file.

    Entry k is about byte (k + 1) * step; there is one for each such byte inside the file.

    Attributes:
        lines: Newlines before that byte.
        characters: Characters that start before that byte, the last of which may reach beyond it; None for
            ASCII, where they are the bytes.
        step: Bytes between entries.
    """

    lines: array[int]
    characters: array[int] | None = None
    step: int = GRID_STEP

    def pack(self) -> bytes:
        """Serialise.

        A header of "TG", version 1, flags and step in 1 + 1 + 4 bytes, then characters, then lines, all
        little-endian. Flag 1: characters are there; 2 and 4: their and the lines' items have 8 bytes, not 4.
        """
        flags = 4 * (self.lines.itemsize == 8)
        body = _little_endian(self.lines).tobytes()
        if self.characters is not None:
            flags |= 1 | 2 * (self.characters.itemsize == 8)
            body = _little_endian(self.characters).tobytes() + body
        return _HEADER.pack(b"TG", 1, flags, self.step) + body

    @classmethod
    def unpack(cls, packed: bytes) -> Grid:
        """Read what `pack` wrote.

        Raises:
            ValueError: The bytes are not a packed grid, or of another version.
        """
        if len(packed) < _HEADER.size:
            raise ValueError("not a packed grid: too short")
        magic, version, flags, step = _HEADER.unpack_from(packed)
        if magic != b"TG" or version != 1 or flags > 7 or not step:
            raise ValueError("not a packed grid, or one of another version")
        line_size = 8 if flags & 4 else 4
        character_size = (8 if flags & 2 else 4) if flags & 1 else 0
        entries, rest = divmod(len(packed) - _HEADER.size, line_size + character_size)
        if rest:
            raise ValueError("not a packed grid: cut short")
        middle = _HEADER.size + entries * character_size
        lines = _from_little_endian(line_size, packed[middle:])
        if not character_size:
            return cls(lines, None, step)
        return cls(lines, _from_little_endian(character_size, packed[_HEADER.size : middle]), step)


_HEADER = struct.Struct("<2sBBI")


def _little_endian(counts: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return counts
    swapped = counts[:]
    swapped.byteswap()
    return swapped


def _from_little_endian(itemsize: int, packed: bytes) -> array[int]:
    counts = array("Q" if itemsize == 8 else "I")
    counts.frombytes(packed)
    return _little_endian(counts)


def _compact(counts: array[int]) -> array[int]:
    """Four bytes an item, unless the last and so the largest does not fit."""
    return counts if counts and counts[-1] >= 2**32 else array("I", counts)


@dataclass(frozen=True, slots=True)
class TextFacts:
    """What is known about a file's text, from its bytes as a whole.

    Attributes:
        encoding: `ascii`, `utf-8`, `utf-16` or `utf-32` (these two with a byte-order mark), or the encoding a
            caller named; None: not text.
        characters: Code points of the whole file; 0 when it is not text.
        lines: Newlines, plus one if something follows the last of them; 0 when it is not text.
        reason: Why it is not text; None when it is.
        reason_at: The byte, counted from 0, at which that shows.
        grid: Checkpoints of ASCII and UTF-8 files of more than one step.
    """

    encoding: str | None
    characters: int
    lines: int
    reason: str | None = None
    reason_at: int | None = None
    grid: Grid | None = None


class TextScanner:
    """Computes `TextFacts` from a file's bytes, fed in order in blocks of any size.

    Beside the grid it holds one block and less than a step of bytes. After a fault, feeding costs nothing.
    """

    def __init__(self, *, step: int = GRID_STEP) -> None:
        self._step = step
        self._size = 0
        self._head = b""
        self._last = b""
        self._pending = b""
        self._at = 0  # position in the file of the first pending byte
        self._encoding: str | None = None
        self._decode: _Decode = codecs.utf_8_decode
        self._characters = 0
        self._newlines = 0
        self._line_counts = array("Q")
        self._character_counts: array[int] | None = None
        self._fault: tuple[str, int] | None = None

    def feed(self, block: bytes) -> None:
        """Take the next bytes of the file."""
        if not block:
            return
        self._size += len(block)
        if len(self._head) < _HEAD:
            self._head = (self._head + block[:_HEAD])[:_HEAD]
        if self._fault is not None:
            return
        data = self._pending + block if self._pending else block
        if self._encoding is None:
            if len(data) < _MARK_LENGTH:
                self._pending = data
                return
            data = self._recognise(data)
        self._pending = self._advance(data, final=False)

    def finish(self) -> TextFacts:
        """Return the facts; nothing may be fed afterwards."""
        if self._fault is None:
            data = self._pending if self._encoding is not None else self._recognise(self._pending)
            self._advance(data, final=True)
        if self._fault is not None:
            reason, at = self._fault
            likely = _likely_encoding(self._head, self._size) if self._encoding == "utf-8" else None
            if likely is not None:
                reason = f"looks like {likely} without a byte-order mark"
            return TextFacts(None, 0, 0, reason, at)
        lines = self._newlines + (self._last not in (b"", b"\n"))
        if self._encoding != "utf-8":
            return TextFacts(self._encoding, self._characters, lines)
        encoding = "ascii" if self._characters == self._size else "utf-8"
        return TextFacts(encoding, self._characters, lines, grid=self._grid())

    def _recognise(self, data: bytes) -> bytes:
        """Settle the encoding by the first bytes, and drop a UTF-16 or UTF-32 byte-order mark."""
        for mark, encoding, decode in _MARKS:
            if data.startswith(mark):
                self._encoding, self._decode, self._at = encoding, decode, len(mark)
                return data[len(mark) :]
        self._encoding = "utf-8"
        return data

    def _advance(self, data: bytes, *, final: bool) -> bytes:
        """Go as far as the bytes allow, and return those that have to wait for more."""
        used = 0
        try:
            if self._encoding == "utf-8":
                used = self._advance_utf8(data, final)
            else:
                used = self._advance_wide(data, final)
        except _FaultError as fault:
            self._fault = fault.reason, self._at + fault.at
        self._at += used
        return b"" if self._fault is not None else data[used:]

    def _advance_utf8(self, data: bytes, final: bool) -> int:
        step = self._step
        position = 0
        self._last = data[-1:] or self._last
        edge = (len(self._line_counts) + 1) * step - self._at
        while edge <= len(data):
            # The last edge of some _CHUNK bytes, as far as the data goes.
            stop = edge + min(max(_CHUNK - step, 0), len(data) - edge) // step * step
            position = self._count_cells(data, position, edge, stop)
            edge = stop + step
        if final and position < len(data):
            text, _ = _decode_utf8(data, position, len(data), final=True)
            self._characters += len(text)
            self._newlines += text.count("\n")
            position = len(data)
        return position

    def _count_cells(self, data: bytes, position: int, edge: int, stop: int) -> int:
        """Count cells that end at `edge`, then at every step up to `stop`; return how far was decoded."""
        step = self._step
        characters, newlines, line_counts = self._characters, self._newlines, self._line_counts
        if data[position:stop].isascii():
            nul = data.find(0, position, stop)
            if nul >= 0:
                raise _FaultError("holds a NUL byte", nul)
            character_counts = self._character_counts
            for end in range(edge, stop + 1, step):
                newlines += data.count(b"\n", position, end)
                line_counts.append(newlines)
                if character_counts is not None:
                    characters += end - position
                    character_counts.append(characters)
                position = end
            if character_counts is None:
                characters = self._at + stop
        else:
            character_counts = self._started_character_counts()
            for end in range(edge, stop + 1, step):
                text, used = _decode_utf8(data, position, end, final=False)
                position += used
                characters += len(text)
                newlines += text.count("\n")
                line_counts.append(newlines)
                # A character that reaches beyond the edge starts before it.
                character_counts.append(characters + (position < end))
        self._characters, self._newlines = characters, newlines
        return position

    def _started_character_counts(self) -> array[int]:
        if self._character_counts is None:
            passed = len(self._line_counts) * self._step
            self._character_counts = array("Q", range(self._step, passed + 1, self._step))
        return self._character_counts

    def _advance_wide(self, data: bytes, final: bool) -> int:
        position = 0
        while position < len(data):
            end = min(position + _CHUNK, len(data))
            try:
                text, used = self._decode(data[position:end], "strict", final)
            except UnicodeDecodeError as error:
                name = str(self._encoding).upper()
                raise _FaultError(f"invalid {name}: {error.reason}", position + error.start) from None
            position += used
            self._characters += len(text)
            self._newlines += text.count("\n")
            if text:
                self._last = b"\n" if text[-1] == "\n" else b"x"
            if end == len(data):
                break
        return position

    def _grid(self) -> Grid | None:
        if self._size <= self._step:
            return None
        characters = None if self._characters == self._size else self._started_character_counts()
        if self._size % self._step == 0:
            # The end of the file is no checkpoint: what starts before it is known already.
            self._line_counts.pop()
            if characters is not None:
                characters.pop()
        return Grid(
            _compact(self._line_counts), None if characters is None else _compact(characters), self._step
        )


class _FaultError(Exception):
    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason, at)
        self.reason = reason
        self.at = at


def _decode_utf8(data: bytes, start: int, end: int, *, final: bool) -> tuple[str, int]:
    """Decode UTF-8 without NUL, up to a character that is cut by the end unless that is final."""
    piece = data[start:end]
    try:
        text, used = codecs.utf_8_decode(piece, "strict", final)
    except UnicodeDecodeError as error:
        nul = piece.find(0, 0, error.start)
        if nul < 0:
            reason = _UTF8_REASONS.get(error.reason, f"invalid UTF-8: {error.reason}")
            raise _FaultError(reason, start + error.start) from None
    else:
        nul = piece.find(0)
        if nul < 0:
            return text, used
    raise _FaultError("holds a NUL byte", start + nul)


def _likely_encoding(head: bytes, size: int) -> str | None:
    """The UTF-16 or UTF-32 that a file of a size looks like by its first bytes, if any."""
    sides = head[0::2].count(0), head[1::2].count(0)
    if not any(sides) or size % 2:
        return None
    candidates: list[tuple[str, _Decode]] = []
    if size % 4 == 0:
        candidates += ("UTF-32-LE", codecs.utf_32_le_decode), ("UTF-32-BE", codecs.utf_32_be_decode)
    if not all(sides):
        try:
            codecs.utf_8_decode(head.replace(b"\0", b""), "strict", False)
            # Else valid, so mostly ASCII: then UTF-16 has a NUL in nearly every unit, not here and there.
            likely = 8 * max(sides) >= len(head)
        except UnicodeDecodeError:
            likely = True
        if likely and sides[1]:
            candidates.append(("UTF-16-LE", codecs.utf_16_le_decode))
        elif likely:
            candidates.append(("UTF-16-BE", codecs.utf_16_be_decode))
    for name, decode in candidates:
        try:
            text, _ = decode(head, "strict", False)
        except UnicodeDecodeError:
            continue
        if text and "".join(text.split()).isprintable():
            return name
    return None


def scan_text(data: bytes) -> TextFacts:
    """Return the facts of a whole file in memory, the same as a `TextScanner` would."""
    if len(data) <= GRID_STEP and 0 not in data:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            pass
        else:
            return decoded_facts(text, "ascii" if len(text) == len(data) else "utf-8")
    scanner = TextScanner()
    scanner.feed(data)
    return scanner.finish()


def decoded_facts(text: str, encoding: str) -> TextFacts:
    """Return the facts of a file that was decoded whole, such as by `decode_as`.

    Args:
        text: The whole file.
        encoding: What it was decoded as, as `normal_encoding` spells it.
    """
    lines = text.count("\n") + (text != "" and text[-1] != "\n")
    return TextFacts(encoding, len(text), lines)
