from __future__ import annotations

import dataclasses
import doctest
import shutil
import subprocess
import timeit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillfs.core import wire
from skillfs.core.wire import Content, Lines, quote_name, unquote_name
from skillfs.errors import InvalidArgumentError

UUID = "6a1f6f0e-6f0f-5b0e-9c58-2d1f0a0c9b1d"
SKILL = "0d4c4b1e-2f4a-5b7a-8f0e-1c2d3e4f5a6b"
MD5 = "9e107d9d372bb6826bd81d3542a419d6"

RAW = """\
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
=== END OF FILE ==="""


def content(text="# PDF", name="SKILL.md", start=0, more=0):
    return Content(
        uuid=UUID,
        name=name,
        hash=MD5,
        size=start + len(text) + more,
        start=start,
        length=len(text),
        skill_folder_uuid=SKILL,
        text=text,
        id=7,
        path=f"pdf/{name}",
    )


def test_the_raw_format():
    page = content(more=1829)
    assert str(page) == RAW
    parsed = Content.parse(RAW)
    assert parsed == page
    assert (parsed.id, parsed.path) == (None, None)


def test_an_empty_reading():
    page = content(text="", start=10**30)
    assert str(page).endswith("\n=== FILE CONTENT ===\n\n=== END OF FILE ===")
    assert Content.parse(str(page)) == page


def test_the_text_is_not_shown_in_a_repr():
    assert "secret" not in repr(content(text="secret"))


markers = st.sampled_from(
    [
        *("=== FILE METADATA ===", "=== FILE CONTENT ===", "=== END OF FILE ===", "\n=== END OF FILE ==="),
        *("\n", "\r", "\r\n", "\x1c", "\x0b", "\x85", "\u2028", "\ufeff", "\0", '"', "\\", "\\n", " ", "\t"),
        *(
            "length: 0\n",
            "name: x\n",
            "\u202e",
            "\u200b",
            "\u200d",
            "\U000e0041",
            "é",
            "技",
            "😀",
            "\\303",
            RAW,
        ),
    ]
)
names = st.one_of(st.text(), st.lists(markers, max_size=5).map("".join))
texts = st.one_of(st.text(), st.lists(st.one_of(markers, st.text(max_size=3)), max_size=8).map("".join))
contents = st.builds(content, text=texts, name=names, start=st.integers(0, 2**70), more=st.integers(0, 2**70))


@given(contents)
def test_what_is_rendered_parses_back(page):
    raw = str(page)
    assert Content.parse(raw) == page
    assert raw.split("\n=== FILE CONTENT ===\n")[0].count("\n") == 7


@given(st.lists(contents, max_size=4), st.data())
def test_records_one_after_the_other(pages, data):
    separator = st.integers(0, 3).map("\n".__mul__)
    raw = data.draw(separator) + "".join(str(page) + data.draw(separator) for page in pages)
    assert Content.parse_all(raw) == pages


@given(contents, st.data())
def test_a_damaged_record_is_refused_or_read_as_another(page, data):
    raw = str(page)
    at = data.draw(st.integers(0, len(raw)))
    cut = data.draw(st.integers(at, min(len(raw), at + 4)))
    damaged = raw[:at] + data.draw(st.one_of(st.just(""), markers, st.text(max_size=3))) + raw[cut:]
    for parse in (Content.parse, Content.parse_all):
        try:
            read = parse(damaged)
        except InvalidArgumentError:
            continue
        records = read if isinstance(read, list) else [read]
        assert Content.parse_all("\n".join(map(str, records))) == records


@given(texts)
def test_any_other_text_is_refused(text):
    try:
        assert str(Content.parse(text)) == text
    except InvalidArgumentError:
        assert text != RAW


@pytest.mark.parametrize("cut", range(1, len(RAW)))
def test_every_cut_is_refused(cut):
    for part in (RAW[:cut], RAW[cut:]):
        with pytest.raises(InvalidArgumentError, match="raw format"):
            Content.parse(part)


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("=== FILE METADATA ===", "=== METADATA ===", "line 1, character 0 "),
        ("=== FILE METADATA", "\n=== FILE METADATA", "line 1, character 0 "),
        ("uuid: 6a", "id: 6a", "line 2, character 22 "),
        ("uuid: 6a1f", "uuid: 6A1F", "line 2, character 28 .* UUID"),
        ("name: SKILL.md\n", "", "line 3, character 65 .*'name: '"),
        ("SKILL.md", '"SKILL.md', "line 3, .* quoted name is malformed"),
        ("SKILL.md", "SKILL.md ", "line 3, .* quote it"),
        ("SKILL.md", "\u202eSKILL.md", "line 3, .* quote it"),
        ("SKILL.md", '"\\377"', "line 3, .* not UTF-8"),
        (MD5, MD5[:-1], "line 4, .* MD5"),
        (MD5, MD5.upper(), "line 4, .* MD5"),
        ("size: 1834", "size: 01834", "line 5, "),
        ("size: 1834", "size: +1834", "line 5, "),
        ("size: 1834", "size: ١٨٣٤", "line 5, "),
        ("size: 1834", "size: 1834 ", "line 5, "),
        ("size: 1834", "size: 1834\r", "line 5, "),
        ("size: 1834", "size: " + "9" * 700, "line 5, "),
        ("size: 1834", "size: 4", "line 7, .* within 'size'"),
        ("start: 0", "start: -1", "line 6, "),
        ("start: 0", "start: 1830", "line 7, .* within 'size'"),
        ("length: 5", "length: 4", "line 10, character .*END OF FILE"),
        ("length: 5", "length: 6", "line 11, character .*END OF FILE"),
        ("length: 5", "length: 500", "line 11, .*more text"),
        ("length: 5", "length: 5\nlength: 5", "line 8, .*'skillFolderUuid: '"),
        ("# PDF\n=== END", "# PDF=== END", "line 10, character .*END OF FILE"),
        ("=== END OF FILE ===", "=== END OF FILE ===\n", "line 11, .* nothing"),
        ("=== END OF FILE ===", f"=== END OF FILE ==={RAW}", "line 11, .* nothing"),
        ("\n", "\r\n", "line 1, "),
    ],
)
def test_the_message_says_where(old, new, where):
    assert old in RAW
    with pytest.raises(InvalidArgumentError, match=where) as caught:
        Content.parse(RAW.replace(old, new))
    assert "PDF" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [None, RAW.encode(), 7])
def test_only_strings_are_parsed(value):
    for parse in (Content.parse, Content.parse_all):
        with pytest.raises(InvalidArgumentError, match=type(value).__name__):
            parse(value)


def test_parse_all_refuses_what_stands_between():
    assert Content.parse_all("") == []
    assert Content.parse_all(f"\n{RAW}{RAW}\n\n") == [Content.parse(RAW)] * 2
    for raw in (f"{RAW} {RAW}", f"{RAW}\n--\n{RAW}", f"x{RAW}", f"{RAW}\r\n"):
        with pytest.raises(InvalidArgumentError):
            Content.parse_all(raw)


def test_a_needlessly_quoted_name_is_read():
    assert Content.parse(RAW.replace("SKILL.md", '"S\\113ILL.md"')).name == "SKILL.md"


@pytest.mark.parametrize(
    ("start", "text", "more", "complete", "next_start"),
    [
        (0, "abc", 0, True, None),
        (0, "abc", 1, False, 3),
        (5, "abc", 1, False, 8),
        (5, "", 1, False, 5),
        (0, "", 0, True, None),
    ],
)
def test_whether_a_page_is_the_last(start, text, more, complete, next_start):
    page = content(text=text, start=start, more=more)
    assert (page.complete, page.next_start) == (complete, next_start)


def test_past_the_end_is_complete():
    page = dataclasses.replace(content(text="", start=9), size=3)
    assert (page.complete, page.next_start) == (True, None)
    assert Content.parse(str(page)) == page


@pytest.mark.parametrize(
    ("lines", "offset", "count", "complete", "next_offset"),
    [
        (3, 1, 3, True, None),
        (3, 1, 2, False, 3),
        (3, 3, 1, True, None),
        (3, 2, 0, False, 2),
        (3, 9, 0, True, None),
        (0, 1, 0, True, None),
    ],
)
def test_whether_these_are_the_last_lines(lines, offset, count, complete, next_offset):
    page = Lines(UUID, "a.md", MD5, 99, lines, offset, count, SKILL, "x\r\n" * count)
    assert (page.complete, page.next_offset) == (complete, next_offset)
    assert str(page) == page.text == "x\r\n" * count


@pytest.mark.parametrize(
    "name",
    [
        *("SKILL.md", "a b", "a\\b.md", 'a"b', "'", "*", "-rf", "~", "a: b", "=== FILE CONTENT ===", ""),
        *("技能.md", "é", "e\u0301", "😀", "👩\u200d🚀.md", "می\u200cروم", "a\xa0b"),
    ],
)
def test_names_written_raw(name):
    assert quote_name(name) == name
    assert unquote_name(name) == name


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ('"a"', r'"\"a\""'),
        (" a", '" a"'),
        ("a ", '"a "'),
        (" ", '" "'),
        ("a\nhash: 0\n=== FILE CONTENT ===\nx.md", r'"a\nhash: 0\n=== FILE CONTENT ===\nx.md"'),
        ("\a\b\t\n\v\f\r", r'"\a\b\t\n\v\f\r"'),
        ("\0\x1b\x1c\x7f", r'"\000\033\034\177"'),
        ("a\x85", r'"a\302\205"'),
        ("a\u2028\u2029", r'"a\342\200\250\342\200\251"'),
        ("技\u202egpj.exe", r'"技\342\200\256gpj.exe"'),
        ("\u2066a", r'"\342\201\246a"'),
        ("\u200fa", r'"\342\200\217a"'),
        ("a\u200bb", r'"a\342\200\213b"'),
        ("\ufeffa", r'"\357\273\277a"'),
        ("a\U000e0041", r'"a\363\240\201\201"'),
        ('a\\"\n', r'"a\\\"\n"'),
    ],
)
def test_names_written_quoted(name, quoted):
    assert quote_name(name) == quoted
    assert unquote_name(quoted) == name


@pytest.mark.parametrize(
    "text",
    [
        *('"', '"a', 'a"\n', '"a"b', '""a"', '"\\"', '"\\x"', '"\\1"', '"\\400"', '"\\12"', '"a\nb"'),
        *('"\u202e"', '"\\303"', '"\\355\\240\\200"', " a", "a\n", "\u2028", "a\u200b", "\ud800"),
    ],
)
def test_malformed_names(text):
    with pytest.raises(InvalidArgumentError):
        unquote_name(text)


@given(names)
def test_every_name_reads_back_from_one_line(name):
    quoted = quote_name(name)
    assert unquote_name(quoted) == name
    assert len((quoted + "x").splitlines()) == 1
    assert quoted == quoted.strip(" ")


@given(st.text(st.characters()))
def test_a_name_that_is_no_text_is_still_written(name):
    quote_name(name).encode("utf-8")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_quotes_the_same(tmp_path):
    names = ["a\nb", 'q"\t', "\x1b[1m\\", "\x7f", "é\r技"]
    for name in names:
        (tmp_path / name).touch()
    listing = ["git", "-c", "core.quotePath=false", "ls-files", "--others"]
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, timeout=20)
    listed = subprocess.run(listing, cwd=tmp_path, check=True, timeout=20, capture_output=True, text=True)
    assert sorted(listed.stdout.splitlines()) == sorted(map(quote_name, names))


@pytest.mark.parametrize("unit", ["\n", "=", '"', "\\", "a\\", "=== FILE METADATA ===\nuuid: "])
def test_huge_input_is_refused_quickly(unit):
    text = unit * (20_000_000 // len(unit))
    header = RAW[: RAW.index("SKILL.md")]

    def refuse():
        for raw in (text + "x", header + text, RAW.replace("SKILL.md", f'"{text}'), f"{RAW}\n{text}x"):
            for parse in (Content.parse, Content.parse_all):
                with pytest.raises(InvalidArgumentError) as caught:
                    parse(raw)
                assert len(str(caught.value)) < 300

    assert timeit.timeit(refuse, number=1) < 10


def test_many_records_are_read_quickly():
    raw = RAW * 20_000
    assert timeit.timeit(lambda: Content.parse_all(raw), number=1) < 2


def test_rendering_is_quick():
    # Measured 0.4 µs; the bound leaves room for a busy machine.
    page = content(text="x" * 200)
    assert min(timeit.repeat(lambda: str(page), number=10_000, repeat=5)) / 10_000 < 4e-6


def test_examples():
    assert doctest.testmod(wire).failed == 0
