"""What a reading returns, and the raw text format that it is written in.

A record of the raw format is seven header lines, the text, and an end marker::

    === FILE METADATA ===
    uuid: 6a1f6f0e-6f0f-5b0e-9c58-2d1f0a0c9b1d
    name: SKILL.md
    hash: 9e107d9d372bb6826bd81d3542a419d6
    size: 1834
    start: 0
    length: 5
    skillFolderUuid: 0d4c4b1e-2f4a-5b7a-8f0e-1c2d3e4f5a6b
    === FILE CONTENT ===
    # PDF
    === END OF FILE ===

A reader takes `length` characters, so the text may hold any marker. One newline that is not counted stands
before the end marker, always; none follows it. A name that could break a line, or hide what it is, is
C-quoted as git quotes paths; every other name is written as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from skillfs.errors import InvalidArgumentError

__all__ = ["Content", "Lines", "quote_name", "unquote_name"]

_BEGIN = "=== FILE METADATA ===\n"
_TEXT = "=== FILE CONTENT ===\n"
_END = "\n=== END OF FILE ==="

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MD5 = re.compile(r"[0-9a-f]{32}")
_NEWLINES = re.compile(r"\n*")
# Longer numbers than this int() may refuse, by a limit that an application can lower to 640 digits.
_COUNT = re.compile(r"0|[1-9][0-9]{0,639}")

_HEADER = (
    ("uuid", _UUID, "a UUID in lower case"),
    ("name", None, ""),
    ("hash", _MD5, "an MD5 in lower-case hex"),
    ("size", _COUNT, "a number of characters"),
    ("start", _COUNT, "a number of characters"),
    ("length", _COUNT, "a number of characters"),
    ("skillFolderUuid", _UUID, "a UUID in lower case"),
)

# What is never written raw in a name: control characters (NEL among them), line and paragraph separators,
# bidirectional controls, tag characters, invisible characters without a use in a name, unpaired surrogates.
# The zero-width joiner and non-joiner are left alone: emoji and several scripts are spelled with them.
_UNSAFE = (
    r"\x00-\x1f\x7f-\x9f\u2028\u2029"
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"
    r"\U000e0000-\U000e007f"
    r"\u200b\u2060-\u2065\ufeff"
    r"\ud800-\udfff"
)
_unsafe = re.compile(f"[{_UNSAFE}]").search
_TO_ESCAPE = re.compile(rf'[{_UNSAFE}"\\]')
# Possessive, so that a name of megabytes keeps no stack of places to go back to.
_QUOTED = re.compile(rf'"((?:[^{_UNSAFE}"\\]++|\\(?:[abtnvfr"\\]|[0-3][0-7]{{2}}))*+)"')
_ESCAPED = re.compile(rb"\\([0-7]{3}|.)")

_LETTERS = {
    "\a": "\\a", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\v": "\\v", "\f": "\\f", "\r": "\\r",
    '"': '\\"', "\\": "\\\\",
}  # fmt: skip
_BYTES = {escape[1:].encode(): char.encode() for char, escape in _LETTERS.items()}


@dataclass(frozen=True, slots=True)
class Content:
    """A stretch of a text file, with what is needed to ask for the next one. `str()` is the raw format.

    Attributes:
        uuid: UUID of the file, in canonical lower-case form.
        name: Name of the file.
        hash: MD5 of the bytes of the whole file, lower-case hex.
        size: Characters of the whole file.
        start: Where the text begins, in characters from 0.
        length: Characters returned, that is `len(text)`.
        skill_folder_uuid: UUID of the enclosing skill folder.
        text: The characters, exactly as stored.
        id: Integer id of the file; None in what was parsed, as the raw format does not hold it.
        path: Store path of the file; None in what was parsed.
    """

    uuid: str
    name: str
    hash: str
    size: int
    start: int
    length: int
    skill_folder_uuid: str
    text: str = field(repr=False)
    id: int | None = field(default=None, compare=False)
    path: str | None = field(default=None, compare=False)

    @property
    def complete(self) -> bool:
        """Whether the text reaches the end of the file."""
        return self.start + self.length >= self.size

    @property
    def next_start(self) -> int | None:
        """The `start` of the next page; None when this one reaches the end of the file."""
        end = self.start + self.length
        return end if end < self.size else None

    def __str__(self) -> str:
        return (
            f"=== FILE METADATA ===\nuuid: {self.uuid}\nname: {quote_name(self.name)}\nhash: {self.hash}\n"
            f"size: {self.size}\nstart: {self.start}\nlength: {self.length}\n"
            f"skillFolderUuid: {self.skill_folder_uuid}\n"
            f"=== FILE CONTENT ===\n{self.text}\n=== END OF FILE ==="
        )

    @classmethod
    def parse(cls, text: str) -> Content:
        """Read one record in the raw format back, with nothing before or after it.

        Raises:
            InvalidArgumentError: The text is not exactly one record; the message says where it departs.
        """
        content, end = _record(_checked(text), 0)
        if end != len(text):
            raise _malformed(text, end, "nothing, the record ends here; several are read by parse_all()")
        return content

    @classmethod
    def parse_all(cls, text: str) -> list[Content]:
        """Read every record of a text that holds them one after the other, newlines between them or not.

        Raises:
            InvalidArgumentError: Something other than records and newlines is there; the message says where.
        """
        found = []
        at = _after_newlines(_checked(text), 0)
        while at < len(text):
            content, at = _record(text, at)
            found.append(content)
            at = _after_newlines(text, at)
        return found


@dataclass(frozen=True, slots=True)
class Lines:
    r"""Some lines of a text file, with what is needed to ask for the next ones. `str()` is their text.

    A line ends at `\n`, which belongs to it, as does a `\r` before it; a final newline adds no line.

    Attributes:
        uuid: UUID of the file, in canonical lower-case form.
        name: Name of the file.
        hash: MD5 of the bytes of the whole file, lower-case hex.
        size: Characters of the whole file.
        lines: Lines of the whole file.
        offset: Number of the first line returned, counted from 1.
        count: Lines returned.
        skill_folder_uuid: UUID of the enclosing skill folder.
        text: The lines, exactly as stored.
        id: Integer id of the file.
        path: Store path of the file.
        size_bytes: Bytes of the whole file.
        cut_at: Where the rest of a line starts, in characters of the file, when that line is the only one
            here and longer than what may be returned; None where every line is whole.
    """

    uuid: str
    name: str
    hash: str
    size: int
    lines: int
    offset: int
    count: int
    skill_folder_uuid: str
    text: str = field(repr=False)
    id: int | None = field(default=None, compare=False)
    path: str | None = field(default=None, compare=False)
    size_bytes: int | None = field(default=None, compare=False)
    cut_at: int | None = None

    @property
    def complete(self) -> bool:
        """Whether the end of the last line of the file is among these, or before them."""
        return self.offset + self.count > self.lines and self.cut_at is None

    @property
    def next_offset(self) -> int | None:
        """The `offset` of the next lines, behind one that was cut; None when there are no more."""
        following = self.offset + self.count
        return following if following <= self.lines else None

    def __str__(self) -> str:
        return self.text


def quote_name(name: str) -> str:
    r"""Write a file name on one line, such that it can be read back and shows what it is.

    It stays as it is unless it starts with `"`, starts or ends with a space, or holds a control,
    line-separating, bidirectional, tag or other invisible character. Then it is C-quoted as git quotes paths:
    in double quotes, with `\n` and the like, and other characters as the octal values of their UTF-8 bytes.

    >>> quote_name("notes.md"), quote_name("a\nb.md")
    ('notes.md', '"a\\nb.md"')
    """
    # isprintable() is false for all that is unsafe, and for some that is not, in a tenth of the time.
    if (name.isprintable() or not _unsafe(name)) and name[:1] not in {'"', " "} and name[-1:] != " ":
        return name
    return f'"{_TO_ESCAPE.sub(_escape, name)}"'


def unquote_name(text: str) -> str:
    """Read what `quote_name` wrote.

    Raises:
        InvalidArgumentError: The quoting is malformed or not of UTF-8, or is missing where it is needed.
    """
    if not text.startswith('"'):
        if quote_name(text) != text:
            raise InvalidArgumentError("the name has a space at an end or an unsafe character: quote it")
        return text
    match = _QUOTED.fullmatch(text)
    if match is None:
        raise InvalidArgumentError("the quoted name is malformed: quote it as git quotes paths")
    try:
        return _ESCAPED.sub(_unescape, match[1].encode()).decode()
    except UnicodeDecodeError:
        raise InvalidArgumentError("the quoted name is not UTF-8: escape its UTF-8 bytes") from None


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    letter = _LETTERS.get(char)
    return letter or "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogatepass"))


def _unescape(match: re.Match[bytes]) -> bytes:
    escape = match[1]
    return bytes([int(escape, 8)]) if len(escape) == 3 else _BYTES[escape]


def _checked(text: object) -> str:
    if not isinstance(text, str):
        raise InvalidArgumentError(f"the raw format is a string, not a {type(text).__name__}")
    return text


def _after_newlines(text: str, at: int) -> int:
    match = _NEWLINES.match(text, at)
    return match.end() if match else at


def _record(text: str, at: int) -> tuple[Content, int]:
    """Read the record that starts at a character; return it with the place after it."""
    at = _literal(text, at, _BEGIN)
    fields: dict[str, str] = {}
    places: dict[str, int] = {}
    for key, pattern, kind in _HEADER:
        at = _literal(text, at, f"{key}: ")
        end = text.find("\n", at)
        if end < 0:
            raise _malformed(text, len(text), f"a newline after the value of {key!r}")
        value = text[at:end]
        if pattern is not None and pattern.fullmatch(value) is None:
            raise _malformed(text, at, f"{kind} as {key!r}")
        fields[key] = value
        places[key] = at
        at = end + 1
    at = _literal(text, at, _TEXT)
    try:
        name = unquote_name(fields["name"])
    except InvalidArgumentError as error:
        raise _malformed(text, places["name"], f"a name ({error})") from None
    size, start, length = (int(fields[key]) for key in ("size", "start", "length"))
    if length and start + length > size:
        raise _malformed(text, places["length"], "a 'length' that ends within 'size'")
    if length > len(text) - at:
        raise _malformed(text, len(text), "more text, as 'length' says; pass the record uncut")
    content = Content(
        uuid=fields["uuid"],
        name=name,
        hash=fields["hash"],
        size=size,
        start=start,
        length=length,
        skill_folder_uuid=fields["skillFolderUuid"],
        text=text[at : at + length],
    )
    return content, _literal(text, at + length, _END)


def _literal(text: str, at: int, literal: str) -> int:
    if not text.startswith(literal, at):
        raise _malformed(text, at, repr(literal))
    return at + len(literal)


def _malformed(text: str, at: int, expected: str) -> InvalidArgumentError:
    line = text.count("\n", 0, at) + 1
    return InvalidArgumentError(f"not in the raw format: line {line}, character {at:,} should be {expected}")
