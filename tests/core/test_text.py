from __future__ import annotations

import encodings.aliases
import warnings

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skillfs.core.text import (
    HOLD_LIMIT,
    LineCut,
    Window,
    character_window,
    check_hold_limit,
    cut_characters,
    cut_lines,
    cut_lines_within,
    decode_as,
    holds_for,
    limit_window,
    line_window,
    normal_encoding,
    not_text_message,
    take_characters,
    take_lines,
    take_lines_within,
)
from skillfs.core.textfacts import GRID_STEP, TextFacts, TextScanner, decoded_facts, scan_text
from skillfs.errors import ChangedError, InvalidArgumentError, NotTextError, TooLargeError

any_text = st.text(
    st.sampled_from("ab\n\n\r\t\x0b\x85\u2028é中\u0301\ufeff😀\U0010ffff\u200d")
    | st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    max_size=80,
)
any_step = st.integers(1, 9) | st.just(GRID_STEP)
position = st.integers(0, 90) | st.sampled_from([2**31, 2**63, 10**30])
long_text = (
    "".join(f"{n} Zeile mit Umlauten, 数据 und 😀\r\n" + "\n" * (n % 3) for n in range(4000)) + "das Ende"
)


def brief(value: object) -> str:
    """A test id, where pytest would print 10,000 characters or digits."""
    return repr(value)[:20] if isinstance(value, str | bytes) else type(value).__name__


def facts_of(data: bytes, step: int) -> TextFacts:
    scanner = TextScanner(step=step)
    scanner.feed(data)
    return scanner.finish()


def read_characters(data: bytes, facts: TextFacts, start: int, length: int | None) -> str:
    window = character_window(facts, len(data), start, length)
    return take_characters(data[window.offset : window.end], window, facts)


def read_lines(data: bytes, facts: TextFacts, first: int, limit: int | None) -> str:
    window = line_window(facts, len(data), first, limit)
    return take_lines(data[window.offset : window.end], window, facts)


def split_lines(text: str) -> list[str]:
    pieces = [piece + "\n" for piece in text.split("\n")]
    pieces[-1] = pieces[-1][:-1]
    return pieces if pieces[-1] else pieces[:-1]


class TestCharacters:
    @given(any_text, any_step, position, st.none() | position)
    def test_any_slice(self, text: str, step: int, start: int, length: int | None) -> None:
        data = text.encode()
        wanted = text[start:] if length is None else text[start : start + length]
        assert read_characters(data, facts_of(data, step), start, length) == wanted

    @given(any_text, st.sampled_from(["utf-16", "utf-32"]), position, st.none() | position)
    def test_any_slice_of_wide_text(self, text: str, encoding: str, start: int, length: int | None) -> None:
        data = text.encode(encoding)
        wanted = text[start:] if length is None else text[start : start + length]
        assert read_characters(data, scan_text(data), start, length) == wanted

    @given(any_text, any_step, st.integers(1, 20))
    @example("\ufeffa\r\n👩\u200d💻\r\n", 3, 1)
    def test_pages_rejoin_to_the_file(self, text: str, step: int, size: int) -> None:
        data = text.encode()
        facts = facts_of(data, step)
        pages = [read_characters(data, facts, at, size) for at in range(0, facts.characters, size)]
        assert "".join(pages).encode() == data
        assert read_characters(data, facts, facts.characters, size) == ""

    @pytest.mark.parametrize("size", [997, 4096, 20_000])
    @pytest.mark.parametrize(
        "text", [long_text, "x" * 9000 + "\n", "あ" * 9000, "a" + "😀" * 4096, "é" * 2048 * 3]
    )
    def test_pages_rejoin_at_the_real_step(self, text: str, size: int) -> None:
        data = text.encode()
        facts = scan_text(data)
        pages = [read_characters(data, facts, at, size) for at in range(0, facts.characters, size)]
        assert "".join(pages) == text

    @pytest.mark.parametrize(
        ("text", "start", "length", "wanted"),
        [
            ("a" * 1023 + "あ\n", 1023, 1, "あ"),
            ("a" * 4095 + "😀tail", 4095, 1, "😀"),
            ("a" * 4095 + "😀tail" * 2000, 4096, 4, "tail"),
            ("a" * 4095 + "😀tail" * 2000, 4094, 2, "a😀"),
            ("a" * 4094 + "あtail" * 2000, 4095, 4, "tail"),
            ("a" * 1999 + "😀tail", 1999, 1, "😀"),
            ("ab\r\ncd", 3, 2, "\nc"),
            ("\ufeffab", 0, 1, "\ufeff"),
            ("\ufeffab", 1, None, "ab"),
            ("ab", 0, 0, ""),
            ("ab", 2, None, ""),
            ("", 0, None, ""),
            ("ab", 10**30, 10**30, ""),
            ("ab", 1, 2**63, "b"),
            ("中文测试内容。" * 50, 349, 5, "。"),
        ],
    )
    def test_slice(self, text: str, start: int, length: int | None, wanted: str) -> None:
        data = text.encode()
        assert read_characters(data, scan_text(data), start, length) == wanted

    @given(any_text, st.integers(1, 9), st.integers(0, 80), st.integers(0, 80))
    def test_reads_little_more_than_is_wanted(self, text: str, step: int, start: int, length: int) -> None:
        data = text.encode()
        facts = facts_of(data, step)
        window = character_window(facts, len(data), start, length)
        wanted = len(text[start : start + length].encode())
        assert 0 <= window.offset <= window.end <= len(data)
        if wanted == 0:
            assert window == Window(0, 0, 0, 0)
        elif facts.encoding == "ascii":
            assert window == Window(start, start + wanted, 0, wanted)
        elif facts.grid is not None:
            assert window.end - window.offset <= wanted + 2 * step + 3

    def test_reads_little_of_a_large_file(self) -> None:
        data = long_text.encode() * 20
        facts = scan_text(data)
        for start in range(0, facts.characters, facts.characters // 50):
            window = character_window(facts, len(data), start, 10)
            assert window.end - window.offset <= 40 + 2 * GRID_STEP + 3

    def test_offsets_beyond_four_gigabytes(self) -> None:
        assert character_window(TextFacts("ascii", 10**12, 1), 10**12, 10**12 - 5, 100) == Window(
            10**12 - 5, 10**12, 0, 5
        )


class TestLines:
    @given(any_text, any_step, st.integers(1, 90) | st.just(10**30), st.none() | position)
    def test_any_range(self, text: str, step: int, first: int, limit: int | None) -> None:
        data = text.encode()
        facts = facts_of(data, step)
        lines = split_lines(text)
        stop = None if limit is None else first - 1 + limit
        assert facts.lines == len(lines)
        assert read_lines(data, facts, first, limit) == "".join(lines[first - 1 : stop])

    @given(any_text, st.sampled_from(["utf-16", "utf-32"]), st.integers(1, 90), st.none() | position)
    def test_any_range_of_wide_text(self, text: str, encoding: str, first: int, limit: int | None) -> None:
        data = text.encode(encoding)
        stop = None if limit is None else first - 1 + limit
        assert read_lines(data, scan_text(data), first, limit) == "".join(split_lines(text)[first - 1 : stop])

    @pytest.mark.parametrize("size", [1, 100, 3000])
    @pytest.mark.parametrize(
        "text",
        [long_text, "\n" * 9000, "x" * 9000, "x" * 9000 + "\n", ("x" * 4095 + "\n") * 3, "ü" * 5000 + "\ny"],
    )
    def test_pages_rejoin_at_the_real_step(self, text: str, size: int) -> None:
        data = text.encode()
        facts = scan_text(data)
        pages = [read_lines(data, facts, at, size) for at in range(1, facts.lines + 1, size)]
        assert "".join(pages) == text

    @pytest.mark.parametrize(
        ("text", "first", "limit", "wanted"),
        [
            ("a" * 1023 + "あ\n", 1, 1, "a" * 1023 + "あ\n"),
            ("a\nb\nc\n", 1, 0, ""),
            ("a\nb\nc\n", 4, None, ""),
            ("a\nb\nc\n", 3, 5, "c\n"),
            ("line\n" + "x" * 15_000 + "\nimportant\nline\n", 3, 1, "important\n"),
            ("line\n" + "x" * 15_000 + "\nimportant\nline\n", 4, 3, "line\n"),
            ("".join(f"{n}\n" for n in range(1, 601)), 386, 315, "".join(f"{n}\n" for n in range(386, 601))),
            ("a\r\nb\x0bc\u2028d\re\n\nf", 2, 1, "b\x0bc\u2028d\re\n"),
            ("a\n\nf", 2, 2, "\nf"),
            ("", 1, None, ""),
            ("a", 10**30, 10**30, ""),
        ],
    )
    def test_range(self, text: str, first: int, limit: int | None, wanted: str) -> None:
        data = text.encode()
        assert read_lines(data, scan_text(data), first, limit) == wanted

    @given(any_text, st.integers(1, 9), st.integers(1, 40), st.integers(0, 40))
    def test_reads_little_more_than_is_wanted(self, text: str, step: int, first: int, limit: int) -> None:
        data = text.encode()
        facts = facts_of(data, step)
        window = line_window(facts, len(data), first, limit)
        wanted = len("".join(split_lines(text)[first - 1 : first - 1 + limit]).encode())
        if wanted == 0:
            assert window == Window(0, 0, 0, 0)
        elif facts.grid is not None:
            assert window.end - window.offset <= wanted + 2 * step


class TestArguments:
    facts = scan_text(b"a\nb\n")

    @pytest.mark.parametrize("value", [-1, -(10**5000), True, 1.0, "1", None], ids=brief)
    def test_start(self, value: object) -> None:
        with pytest.raises(InvalidArgumentError, match="start must be"):
            character_window(self.facts, 4, value, 1)  # type: ignore[arg-type]

    @pytest.mark.parametrize("value", [-1, False, 1.5, "2"])
    def test_length(self, value: object) -> None:
        with pytest.raises(InvalidArgumentError, match="length must be"):
            character_window(self.facts, 4, 0, value)  # type: ignore[arg-type]

    @pytest.mark.parametrize("value", [0, -1, True, 1.0, "1", None])
    def test_offset(self, value: object) -> None:
        with pytest.raises(InvalidArgumentError, match="offset must be"):
            line_window(self.facts, 4, value, 1)  # type: ignore[arg-type]

    @pytest.mark.parametrize("value", [-1, True, 0.5, "2"])
    def test_limit(self, value: object) -> None:
        with pytest.raises(InvalidArgumentError, match="limit must be"):
            line_window(self.facts, 4, 1, value)  # type: ignore[arg-type]


class TestNotText:
    facts = scan_text(b"word\n" * 1800 + b"\0secret")

    def test_message_says_why_where_and_what_next(self) -> None:
        message = not_text_message(self.facts)
        assert "at byte 9000: holds a NUL byte" in message
        assert "read it as bytes" in message
        assert "secret" not in message

    def test_has_no_windows(self) -> None:
        with pytest.raises(NotTextError, match="byte 9000"):
            character_window(self.facts, 9007, 0, 0)
        with pytest.raises(NotTextError, match="byte 9000"):
            line_window(self.facts, 9007, 1, 0)


class TestHoldLimit:
    @pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "gb18030"])
    def test_large_files_in_other_encodings_are_refused(self, encoding: str) -> None:
        facts = TextFacts(encoding, 1000, 10)
        assert character_window(facts, HOLD_LIMIT, 5, 1) == Window(0, HOLD_LIMIT, 5, 1)
        with pytest.raises(TooLargeError, match="UTF-8"):
            character_window(facts, HOLD_LIMIT + 1, 5, 1)
        with pytest.raises(TooLargeError, match="UTF-8"):
            line_window(facts, HOLD_LIMIT + 1, 5, 1)

    def test_an_empty_reading_holds_nothing(self) -> None:
        facts = TextFacts("utf-16", 1000, 10)
        assert character_window(facts, 10**10, 1000, None) == Window(0, 0, 0, 0)
        assert line_window(facts, 10**10, 11, None) == Window(0, 0, 0, 0)

    def test_utf8_is_never_too_large(self) -> None:
        assert character_window(TextFacts("ascii", 10**11, 1), 10**11, 0, None).end == 10**11

    def test_check(self) -> None:
        check_hold_limit(HOLD_LIMIT)
        with pytest.raises(TooLargeError):
            check_hold_limit(HOLD_LIMIT + 1)


class TestChangedBytes:
    data = "数据\nhallo\n".encode() * 2000
    facts = scan_text(data)

    @pytest.mark.parametrize(
        "change",
        [
            lambda data: data[:-1],
            lambda data: data + b"x",
            lambda data: b"\xff" * len(data),
            lambda data: b"",
        ],
    )
    def test_are_noticed(self, change) -> None:
        characters = character_window(self.facts, len(self.data), 5000, 2000)
        with pytest.raises(ChangedError):
            take_characters(change(self.data[characters.offset : characters.end]), characters, self.facts)
        lines = line_window(self.facts, len(self.data), 500, 200)
        with pytest.raises(ChangedError):
            take_lines(change(self.data[lines.offset : lines.end]), lines, self.facts)

    def test_fewer_characters_or_lines_are_noticed(self) -> None:
        window = character_window(self.facts, len(self.data), 7000, 4000)
        with pytest.raises(ChangedError):
            take_characters("😀".encode() * 5000, Window(0, 20_000, 0, 5001), self.facts)
        window = line_window(self.facts, len(self.data), 500, 200)
        with pytest.raises(ChangedError):
            take_lines(b"x" * (window.end - window.offset), window, self.facts)
        with pytest.raises(ChangedError):
            cut_lines("a\nb", Window(0, 3, 1, 2))

    def test_wide_text(self) -> None:
        data = "hallo\n".encode("utf-16")
        facts = scan_text(data)
        window = line_window(facts, len(data), 1, 1)
        with pytest.raises(ChangedError):
            take_lines(data[:-2] + b"\0\xd8", window, facts)


class TestNamedEncodings:
    @pytest.mark.parametrize(
        ("name", "normal"),
        [
            ("UTF8", "utf-8"),
            ("utf_8", "utf-8"),
            ("U8", "utf-8"),
            ("UTF-8-SIG", "utf-8-sig"),
            ("us-ascii", "ascii"),
            ("Latin-1", "iso8859-1"),
            ("utf_16_le", "utf-16-le"),
            ("shift_jis", "shift-jis"),
            ("windows-1252", "cp1252"),
            ("GBK", "gbk"),
        ],
    )
    def test_normal_spelling(self, name: str, normal: str) -> None:
        assert normal_encoding(name) == normal
        assert normal_encoding(normal) == normal

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "nope",
            "utf-8\0",
            "utf-8\n",
            "../utf_8",
            "é",
            "x" * 10_000,
            "__init__",
            "aliases",
            "\ud800",
            8,
            None,
            b"utf-8",
        ],
    )
    def test_unknown(self, name: object) -> None:
        with pytest.raises(InvalidArgumentError, match="unknown encoding"):
            normal_encoding(name)  # type: ignore[arg-type]

    @pytest.mark.parametrize("name", ["x" * 41, "a/b", "naïve"])
    def test_strange_names_are_not_remembered(self, name: str) -> None:
        with pytest.raises(InvalidArgumentError):
            normal_encoding(name)
        assert name not in encodings._cache  # type: ignore[attr-defined]

    @pytest.mark.parametrize(
        "name",
        ["base64", "hex", "zlib", "bz2", "rot13", "uu", "quopri", "idna", "punycode", "unicode_escape",
         "raw-unicode-escape", "undefined"],
    )  # fmt: skip
    def test_not_of_text(self, name: str) -> None:
        with pytest.raises(InvalidArgumentError, match="no encoding of text"):
            decode_as(b"abc", name)

    @pytest.mark.parametrize(
        ("data", "name", "text"),
        [
            (b"caf\xe9\r\n", "latin-1", "café\r\n"),
            ("数据".encode("gb18030"), "gb18030", "数据"),
            ("数据\0".encode("utf-16-le"), "utf-16-le", "数据\0"),
            ("a😀".encode("utf-32"), "UTF-32", "a😀"),
            (b"\xef\xbb\xbfa", "utf-8", "\ufeffa"),
            (b"\xef\xbb\xbfa", "utf-8-sig", "a"),
            (b"Hi +AOk-", "utf-7", "Hi é"),
            (b"", "cp1252", ""),
        ],
    )
    def test_decodes(self, data: bytes, name: str, text: str) -> None:
        assert decode_as(data, name) == text

    @pytest.mark.parametrize(
        ("data", "name", "at"),
        [
            (b"caf\xe9", "utf-8", 3),
            (b"caf\xe9", "ascii", 3),
            (b"ab\x81", "cp1252", 2),
            (b"ab\0", "latin-1", 2),
            (b"ab\0", "utf8", 2),
            (b"abc", "utf-16-le", 2),
            ("hi".encode("utf-16"), "utf-8", 0),
            (b"abc +2AA-", "utf-7", 4),
        ],
    )
    def test_does_not_decode(self, data: bytes, name: str, at: int) -> None:
        with pytest.raises(NotTextError, match=f"at byte {at}:"):
            decode_as(data, name)

    @pytest.mark.parametrize("name", sorted(set(encodings.aliases.aliases.values())))
    def test_every_codec_decodes_or_refuses(self, name: str) -> None:
        samples = [
            b"",
            b"words\n",
            bytes(range(1, 256)),
            b"\0",
            b"+2AA-",
            b"\\ud800",
            b"~{",
            b"\x1b$B",
            b"\x8e\xa2\xa1",
        ]
        for data in samples:
            try:
                text = decode_as(data, name)
            except (NotTextError, InvalidArgumentError):
                continue
            text.encode()

    @given(st.binary(max_size=60), st.sampled_from(["gb18030", "utf-7", "iso2022_jp", "hz", "big5", "cp037"]))
    def test_random_bytes(self, data: bytes, name: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                decode_as(data, name).encode()
            except NotTextError as error:
                assert "at byte" in str(error)  # noqa: PT017

    @pytest.mark.parametrize(
        ("data", "name", "holds"),
        [
            (b"abc", "utf-8", True),
            (b"abc", "ascii", True),
            ("é".encode(), "utf-8", True),
            ("é".encode(), "ascii", False),
            ("é".encode(), "iso8859-1", False),
            ("é".encode("utf-16"), "utf-16", True),
            ("é".encode("utf-16"), "utf-8", False),
            (b"\0", "utf-8", False),
        ],
    )
    def test_facts_hold(self, data: bytes, name: str, holds: bool) -> None:
        assert holds_for(scan_text(data), name) is holds

    @given(any_text, st.integers(0, 90), st.integers(0, 90))
    def test_ranges_of_what_was_decoded(self, text: str, start: int, length: int) -> None:
        data = text.encode("gb18030")
        facts = decoded_facts(decode_as(data, "gb18030"), "gb18030")
        characters = character_window(facts, len(data), start, length)
        assert cut_characters(text, characters) == text[start : start + length]
        assert (
            take_characters(data[characters.offset : characters.end], characters, facts)
            == text[start : start + length]
        )
        lines = line_window(facts, len(data), start + 1, length)
        assert cut_lines(text, lines) == "".join(split_lines(text)[start : start + length])


# -- as many lines as fit ----------------------------------------------------------------------------------


def read_lines_within(data: bytes, facts: TextFacts, first: int, limit: int | None, most: int) -> LineCut:
    window = line_window(facts, len(data), first, limit)
    limited = limit_window(window, facts, most)
    return take_lines_within(data[limited.offset : limited.end], window, limited, facts, most)


def lines_that_fit(text: str, first: int, limit: int | None, most: int) -> LineCut:
    """The same by the plainest means."""
    lines = text.split("\n")
    whole = [line + "\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]
    before = len("".join(whole[: first - 1]))
    wanted = whole[first - 1 :] if limit is None else whole[first - 1 :][:limit]
    taken: list[str] = []
    for line in wanted:
        if len("".join(taken)) + len(line) > most:
            break
        taken.append(line)
    if wanted and not taken:
        return LineCut(wanted[0][:most], 1, before + most)
    return LineCut("".join(taken), len(taken), None)


@given(
    text=any_text,
    step=any_step,
    first=st.integers(1, 12),
    limit=st.none() | st.integers(0, 12),
    most=st.integers(1, 40),
)
@example(text="\n", step=1, first=1, limit=None, most=1)
@example(text="😀😀\n😀", step=1, first=1, limit=None, most=2)
@example(text="é\n" * 5 + "é" * 60, step=3, first=6, limit=None, most=7)
@example(text="a" * 7 + "\nb\n" + "c\n" * 20, step=9, first=2, limit=1, most=4)
@example(text="a\nb", step=9, first=1, limit=1, most=9)
def test_as_many_whole_lines_as_fit(text: str, step: int, first: int, limit: int | None, most: int) -> None:
    data = text.encode()
    facts = facts_of(data, step)
    wanted = lines_that_fit(text, first, limit, most)
    assert read_lines_within(data, facts, first, limit, most) == wanted
    whole = line_window(decoded_facts(text, "utf-8"), len(data), first, limit)
    assert cut_lines_within(text, whole, most) == wanted
    if wanted.cut_at is not None:
        assert text[: wanted.cut_at].endswith(wanted.text)


def test_lines_that_fit_are_read_with_bytes_for_them_alone() -> None:
    data = ("short\n" + "é" * 1_000_000 + "\nend\n").encode()
    facts = facts_of(data, GRID_STEP)
    window = line_window(facts, len(data), 2, None)
    limited = limit_window(window, facts, 1_000)
    assert limited.end - limited.offset <= GRID_STEP + 4 * 1_000
    cut = take_lines_within(data[limited.offset : limited.end], window, limited, facts, 1_000)
    assert cut == LineCut("é" * 1_000, 1, 1_006)


def test_lines_that_fit_of_other_bytes_are_refused() -> None:
    data = b"a\nb\nc\n" * 2_000
    facts = facts_of(data, GRID_STEP)
    window = line_window(facts, len(data), 1_000, 3)
    other = b"x" * (window.end - window.offset)
    with pytest.raises(ChangedError):
        take_lines_within(other, window, window, facts, 100)
    with pytest.raises(ChangedError):
        take_lines_within(other[1:], window, window, facts, 100)
    # Also where the bytes end before the lines do, so that not all of their newlines can be counted.
    window = line_window(facts, len(data), 1_000, None)
    limited = limit_window(window, facts, 100)
    assert limited.end < window.end
    with pytest.raises(ChangedError):
        take_lines_within(b"x" * (limited.end - limited.offset), window, limited, facts, 100)
