r"""Outlines: which stretch of a Markdown text stands under which heading.

Headings are those of CommonMark, by `#` as well as underlined, as markdown-it-py finds them; the front matter
of a text is no Markdown. A heading in a block quote or in a list item belongs to what it stands in, and opens
no section. Where a line of the text begins is counted here: a parser of Markdown replaces `\r\n` and NUL
before it counts, and positions have to be those of the text as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from skillfs.core.frontmatter import HEAD_LIMIT, read_front_matter
from skillfs.core.wire import Content
from skillfs.errors import TooLargeError

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock

__all__ = ["MOST_LINES", "Outline", "Section", "outline_of", "outlined"]

MOST_LINES = 1_000_000
"""Lines of a Markdown text that are looked at; the parser keeps some 130 bytes of each."""

LONGEST_TITLE = 300
"""Characters of a title; brackets and emphasis in a heading of megabytes would take minutes to pair."""

MOST_MARKED_UP = 100_000
"""Characters of titles of a text that are freed of markup: at worst some 8 µs each, of brackets and stars."""

_SUFFIXES = (".md", ".markdown", ".mdown", ".mkd", ".mdx")
_BYTE_ORDER_MARK = "\ufeff"

_LINE_END = re.compile(r"\r\n?|\n")
# What can mean something else than itself inside a heading.
_MARKED_UP = re.compile(r"[\\`*_\[\]<>!&\n]")


@dataclass(frozen=True, slots=True)
class Section:
    """A stretch of a text under one heading, up to the next heading of any level. All in characters.

    Attributes:
        title: The heading without markup, cut to 300 characters; empty for what stands before the first one.
            Behind 100,000 characters of headings with markup in one file, the markup stays.
        level: 1 to 6; 0 for what stands before the first heading, front matter included.
        start: Where it begins, with its heading; counted from 0.
        length: Characters up to the next section.
        line: Line of `start`, counted from 1 as `get_lines` counts.
        whole_length: Characters up to the next heading of the same or a higher level: with its subsections.
    """

    title: str
    level: int
    start: int
    length: int
    line: int
    whole_length: int


@dataclass(frozen=True, slots=True)
class Outline:
    """The sections of a text file, in order; their texts joined are the text of the file.

    Attributes:
        uuid: UUID of the file, in canonical lower-case form.
        id: Integer id of the file.
        path: Store path of the file.
        name: Name of the file.
        hash: MD5 of the bytes of the whole file, lower-case hex: of the version the sections are of.
        size: Characters of the whole file.
        skill_folder_uuid: UUID of the enclosing skill folder.
        sections: The sections; none of an empty file.
    """

    uuid: str
    id: int
    path: str
    name: str
    hash: str
    size: int
    skill_folder_uuid: str
    sections: tuple[Section, ...]


class _Heading(NamedTuple):
    title: str
    level: int
    start: int


def outlined(content: Content) -> Outline:
    """The outline of a file.

    Args:
        content: The whole file as it was read, with its id and path.

    Raises:
        TooLargeError: It is Markdown of more than a million lines.
    """
    assert content.id is not None
    assert content.path is not None
    sections = outline_of(content.text, content.name)
    return Outline(
        content.uuid, content.id, content.path, content.name, content.hash, content.size,
        content.skill_folder_uuid, sections,
    )  # fmt: skip


def outline_of(text: str, name: str) -> tuple[Section, ...]:
    """Cut a text into sections that follow on each other without a gap.

    Args:
        text: The whole text of a file.
        name: Its name. What is not called `.md`, `.markdown`, `.mdown`, `.mkd` or `.mdx` is one section of
            level 0, whatever it holds.

    Raises:
        TooLargeError: It is Markdown of more than a million lines.
    """
    if not text:
        return ()
    headings = list(_headings(text)) if name.lower().endswith(_SUFFIXES) else []
    if not headings or headings[0].start:
        headings.insert(0, _Heading("", 0, 0))
    ends = [heading.start for heading in headings[1:]] + [len(text)]
    whole_ends = _whole_ends(headings, len(text))
    sections = []
    line, counted = 1, 0
    for heading, end, whole_end in zip(headings, ends, whole_ends, strict=True):
        title, level, start = heading
        line += text.count("\n", counted, start)
        counted = start
        sections.append(Section(title, level, start, end - start, line, whole_end - start))
    return tuple(sections)


def _whole_ends(headings: list[_Heading], size: int) -> list[int]:
    """Where each heading, with all below it, ends. What has no level ends at the first heading."""
    ends = [size] * len(headings)
    nearest = [size] * 7  # by level: where the next heading of that or a higher level starts
    for at in range(len(headings) - 1, -1, -1):
        _, level, start = headings[at]
        ends[at] = nearest[level or 6]
        nearest[level:] = [start] * (7 - level)
    return ends


def _headings(text: str) -> Iterator[_Heading]:
    from markdown_it import MarkdownIt  # Not at the top: it takes some 30 ms, and few commands need it.

    body = _body_start(text)
    if text.count("\n", body) + text.count("\r", body) - text.count("\r\n", body) > MOST_LINES:
        raise TooLargeError(
            f"the file has more than {MOST_LINES:,} lines, too many for an outline; "
            "read it by lines or characters"
        )
    # A mark at the very start is no part of the first line, but of the first section.
    marked = body == 0 and text.startswith(_BYTE_ORDER_MARK)
    first = body + 1 if marked else body
    starts = [body, *(match.end() for match in _LINE_END.finditer(text, first))]
    parser = MarkdownIt("commonmark")
    env: dict[str, Any] = {}
    found = _state(parser, _LINE_END.sub("\n", text[first:]).replace("\0", "\ufffd"), env)
    parser.block.tokenize(found, 0, found.lineMax)
    tokens = iter(found.tokens)
    left = MOST_MARKED_UP
    for opening, inline in zip(tokens, tokens, strict=True):
        assert opening.map is not None
        title = inline.content[: LONGEST_TITLE + 1]
        if left > 0 and _MARKED_UP.search(title):
            left -= len(title)
            title = _without_markup(parser, title, env)
        yield _Heading(_cut(title), int(opening.tag[1:]), starts[opening.map[0]])


def _body_start(text: str) -> int:
    """Where the text behind the front matter starts; 0 where there is none, or it is not closed."""
    head = text[:HEAD_LIMIT].encode("utf-8", "surrogatepass")
    complete = len(text) <= HEAD_LIMIT and len(head) <= HEAD_LIMIT
    start = 0
    for _ in range(read_front_matter(head, "", complete=complete).body_line - 1):
        start = text.find("\n", start) + 1 or len(text)
    return start


def _state(parser: MarkdownIt, source: str, env: dict[str, Any]) -> StateBlock:
    """A parser's state that keeps the headings of sections only: two tokens of each, the opening first.

    Long lists make a hundred tokens of a kilobyte, each of several hundred bytes.
    """
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token

    class Headings(StateBlock):
        opened = False

        def push(self, ttype: str, tag: str, nesting: Any) -> Token:
            token = Token(ttype, tag, nesting, block=True)
            self.level -= nesting < 0
            token.level = self.level
            self.level += nesting > 0
            opening = ttype == "heading_open" and token.level == 0
            if opening or self.opened:
                self.tokens.append(token)
            self.opened = opening
            return token

    return Headings(source, parser, env, [])


def _without_markup(parser: MarkdownIt, title: str, env: dict[str, Any]) -> str:
    """A heading as plain text: of links and images the text, of code the code, nothing of HTML tags."""
    (inline,) = parser.parseInline(title, env)
    return "".join(_plain(inline.children or []))


def _cut(title: str) -> str:
    flat = " ".join(title.split())
    return flat if len(flat) <= LONGEST_TITLE else flat[: LONGEST_TITLE - 1].rstrip() + "…"


def _plain(tokens: list[Any]) -> Iterator[str]:
    for token in tokens:
        if token.type == "image":
            yield from _plain(token.children or [])
        elif token.type in ("softbreak", "hardbreak"):
            yield " "
        elif token.type != "html_inline":
            yield token.content
