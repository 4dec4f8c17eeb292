from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from skillfs.core.outline import LONGEST_TITLE, MOST_LINES, MOST_MARKED_UP, Section, outline_of
from skillfs.errors import TooLargeError

PIECES = [
    "# ", "## ", "###### ", "####### ", "#", "===", "---", "- ", "1. ", "> ", "```", "~~~", "    ", "\t",
    "<!--", "-->", "<div>", "[a]: b", "[a]", "*b*", "`c`", "word", "é😀", "\0", "\u2028", "\x0b", "\ufeff",
    "name: x", " ",
]  # fmt: skip
LINE_ENDS = ["\n", "\n", "\n\n", "\r\n", "\r"]
markdown = st.lists(st.sampled_from(PIECES) | st.sampled_from(LINE_ENDS), max_size=40).map("".join)


def texts_of(text: str, sections: tuple[Section, ...]) -> list[str]:
    return [text[s.start : s.start + s.length] for s in sections]


def headings(text: str, name: str = "a.md") -> list[tuple[int, str]]:
    return [(section.level, section.title) for section in outline_of(text, name)]


# -- sections ----------------------------------------------------------------------------------------------


@given(text=markdown | st.text(max_size=60), name=st.sampled_from(["a.md", "a.MDX", "a.txt"]))
@example(text="---\nname: x\n# no\n---\n# A\r\rb\r\n## B\n", name="a.md")
def test_sections_are_the_whole_text(text: str, name: str) -> None:
    sections = outline_of(text, name)
    assert "".join(texts_of(text, sections)) == text
    assert all(section.length for section in sections)
    for at, section in enumerate(sections):
        assert section.line == text.count("\n", 0, section.start) + 1
        assert (section.level == 0) <= (at == 0 and section.title == "")
        following = (s for s in sections[at + 1 :] if not section.level or s.level <= section.level)
        end = next((s.start for s in following), len(text))
        assert section.whole_length == end - section.start


@given(text=markdown)
def test_headings_are_those_of_the_whole_parser(text: str) -> None:
    if text.startswith(("---", "\ufeff")):
        text = "x\n\n" + text  # no front matter, and no mark, which the parser takes for a character
    tokens = MarkdownIt("commonmark").parse(text)
    expected = [int(t.tag[1:]) for t in tokens if t.type == "heading_open" and t.level == 0]
    assert [section.level for section in outline_of(text, "a.md") if section.level] == expected


def test_an_empty_text_has_no_section() -> None:
    assert outline_of("", "a.md") == ()
    assert outline_of("", "a.txt") == ()


def test_a_section_ends_at_the_next_heading_and_the_whole_at_one_that_is_not_below() -> None:
    text = "intro\n# A\na\n### A.a\nb\n## A.b\nc\n# B\nd"
    assert outline_of(text, "a.md") == (
        Section("", 0, 0, 6, 1, 6),
        Section("A", 1, 6, 6, 2, 25),
        Section("A.a", 3, 12, 10, 4, 10),
        Section("A.b", 2, 22, 9, 6, 9),
        Section("B", 1, 31, 5, 8, 5),
    )


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_positions_are_those_of_the_text_as_it_is(end: str) -> None:
    text = end.join(["", "a\0b", "# A", "", "B", "===", "c", "## C"])
    found = outline_of(text, "a.md")
    assert [s.title for s in found] == ["", "A", "B", "C"]
    assert texts_of(text, found)[1:] == [f"# A{end}{end}", f"B{end}==={end}c{end}", "## C"]


def test_a_byte_order_mark_belongs_to_the_first_section() -> None:
    assert outline_of("\ufeff# A\nb", "a.md") == (Section("A", 1, 0, 6, 1, 6),)
    assert headings("\ufeffx\n# A") == [(0, ""), (1, "A")]
    assert headings("\ufeff---\nname: x\n---\n# A") == [(0, ""), (1, "A")]


@pytest.mark.parametrize("name", ["a.md", "A.MARKDOWN", "a.mdown", "a.mkd", "a.mdx", ".md"])
def test_markdown_is_known_by_its_name(name: str) -> None:
    assert headings("# A", name) == [(1, "A")]


@pytest.mark.parametrize("name", ["a.txt", "a.md.txt", "md", "a.py", "README"])
def test_what_is_no_markdown_is_one_section(name: str) -> None:
    assert outline_of("# A\n# B\n", name) == (Section("", 0, 0, 8, 1, 8),)


# -- headings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "```\n# no\n```\n",
        "~~~ md\n# no\n",
        "    # no\n",
        "<!--\n# no\n-->\n",
        "<div>\n# no\n</div>\n",
        "> # no\n",
        "> no\n> ===\n",
        "- # no\n",
        "1. no\n   # no\n",
        "#no\n",
        "####### no\n",
        "\\# no\n",
        "no\n\n===\n",
        "[a]: b\n===\n",
        "---\nname: a\n# no\n---\n",
        "--- \r\nname: a\r\n# no\r\n---\t\r\n",
    ],
)
def test_what_is_no_heading_of_the_text(text: str) -> None:
    assert headings(text) == [(0, "")]


@pytest.mark.parametrize(
    ("text", "level", "title"),
    [
        ("# A", 1, "A"),
        ("   ###### A ######  ", 6, "A"),
        ("#", 1, ""),
        ("##\tA #b", 2, "A #b"),
        ("A\n=", 1, "A"),
        ("A\nB  \nC\\\nD\n---", 2, "A B C D"),
        ("# `a*b*` *c **d***", 1, "a*b* c d"),
        ('# [text](x "t") ![pic *b*](y) <http://z>', 1, "text pic b http://z"),
        ("# A <b>bold</b><br/> &amp; &copy; \\* x", 1, "A bold & © * x"),
        ("# [ref] [text][ref]\n\n[ref]: x", 1, "ref text"),
        ("# [ref] [text][ref]", 1, "[ref] [text][ref]"),
        ("# 数据 \u202e x", 1, "数据 \u202e x"),
        ("# a\0b", 1, "a\ufffdb"),
        ("---\n\n# A", 1, "A"),
    ],
)
def test_titles_are_plain_text(text: str, level: int, title: str) -> None:
    assert (level, title) in headings(text)


def test_front_matter_that_is_not_closed_is_markdown() -> None:
    assert headings("---\nname: a\n\n# A\n") == [(0, ""), (1, "A")]


def test_headings_behind_front_matter_are_found_also_when_it_is_broken() -> None:
    text = "---\nname: [\n# no\n---\n# A\n"
    assert texts_of(text, outline_of(text, "a.md")) == ["---\nname: [\n# no\n---\n", "# A\n"]


# -- bounds ------------------------------------------------------------------------------------------------


def test_long_titles_are_cut() -> None:
    ((_, title),) = headings("# " + "a" * 1_000)
    assert title == "a" * (LONGEST_TITLE - 1) + "…"
    assert headings("# " + "a" * LONGEST_TITLE) == [(1, "a" * LONGEST_TITLE)]


def test_markup_is_taken_out_of_a_bounded_number_of_characters() -> None:
    number = MOST_MARKED_UP // 10 + 1
    found = headings("# *aaaaaaaa*\n" * (number + 5))
    assert found[0] == (1, "aaaaaaaa")
    assert found[-1] == (1, "*aaaaaaaa*")
    assert [title[0] for _, title in found].index("*") == number - 1


# Each would take minutes if the time grew with the square of the length, or fail where a parser recurses.
@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("#" * 100_000, id="hashes"),
        pytest.param("#\n" * 20_000, id="headings"),
        pytest.param("# " + "[" * 1_000_000, id="brackets"),
        pytest.param(("# " + "*_[" * 99 + "\n") * 2_000, id="delimiters"),
        pytest.param("> " * 100_000 + "x", id="quotes"),
        pytest.param("- " * 100_000 + "x", id="lists"),
        pytest.param("".join("  " * level + "- x\n" for level in range(1_000)), id="indents"),
        pytest.param("x" * 1_000_000, id="line"),
        pytest.param("[a]: b\n" * 10_000, id="references"),
        pytest.param("[a\n" * 20_000, id="open-reference"),
        pytest.param("a\n" * 50_000, id="paragraph"),
        pytest.param("```x`\n" * 20_000, id="fences"),
        pytest.param("\n" * 500_000, id="blank"),
        pytest.param("---\n" * 20_000, id="rules"),
    ],
)
def test_no_text_takes_long(text: str) -> None:
    assert "".join(texts_of(text, outline_of(text, "a.md"))) == text


def test_markdown_of_too_many_lines_is_refused() -> None:
    text = "\n" * (MOST_LINES + 1)
    with pytest.raises(TooLargeError, match="lines"):
        outline_of(text, "a.md")
    assert len(outline_of(text, "a.txt")) == 1


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_line_end_is_one_however_it_is_written(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillfs.core.outline.MOST_LINES", 10)
    assert len(outline_of("a" + end * 10, "a.md")) == 1
    with pytest.raises(TooLargeError):
        outline_of("a" + end * 11, "a.md")
