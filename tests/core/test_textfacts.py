from __future__ import annotations

import codecs
import tracemalloc
from array import array

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skillfs.core import textfacts
from skillfs.core.textfacts import GRID_STEP, Grid, TextFacts, TextScanner, decoded_facts, scan_text

MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

any_text = st.text(
    st.sampled_from("ab\n\r\t\x0b\x85\u2028é中\u0301\ufeff😀\U0010ffff\u200d")
    | st.characters(exclude_categories=["Cs"])
)
utf8 = any_text.map(lambda text: text.replace("\0", "").encode())
marked = st.one_of(
    any_text.map(lambda text: text.encode("utf-16")),
    any_text.map(lambda text: text.encode("utf-32")),
    any_text.map(lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be")),
    any_text.map(lambda text: codecs.BOM_UTF32_BE + text.encode("utf-32-be")),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(utf8 | marked))
    at = draw(st.integers(0, len(data)))
    what = draw(
        st.binary(max_size=3) | st.sampled_from([b"\0", b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90"])
    )
    data[at : at + draw(st.integers(0, 3))] = what
    return bytes(data)


any_file = st.binary(max_size=200) | utf8 | marked | damaged()
any_step = st.integers(1, 9) | st.sampled_from([16, 100, GRID_STEP])


def naive(data: bytes) -> tuple[str | None, int, int, int | None]:
    """Encoding, characters, lines and place of the fault by decoding the whole."""
    encoding = next((name for mark, name in MARKS.items() if data.startswith(mark)), "utf-8")
    faults = []
    if encoding == "utf-8" and 0 in data:
        faults.append(data.index(0))
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        faults.append(error.start)
    if faults:
        return None, 0, 0, min(faults)
    if encoding == "utf-8" and text.isascii():
        encoding = "ascii"
    return encoding, len(text), len(text.split("\n")) - (text[-1:] in ("", "\n")), None


def naive_grid(data: bytes, step: int) -> tuple[list[int], list[int]]:
    edges = range(step, len(data), step)
    starts = [sum(byte & 0xC0 != 0x80 for byte in data[:edge]) for edge in edges]
    return [data.count(b"\n", 0, edge) for edge in edges], starts


def scan_blocks(data: bytes, size: int, step: int = GRID_STEP) -> TextFacts:
    scanner = TextScanner(step=step)
    for at in range(0, len(data), size):
        scanner.feed(data[at : at + size])
    return scanner.finish()


def seen(facts: TextFacts) -> tuple[str | None, int, int, int | None]:
    return facts.encoding, facts.characters, facts.lines, facts.reason_at


class TestAgainstDecodingTheWhole:
    @given(any_file)
    @example(b"\xff\xfe\0")
    @example(b"\xff\xfe\0\0")
    @example(b"\xff\xfea\0\n\0")
    @example(b"\xff\xfe\x0a")
    @example(b"a\xe3\0")
    def test_in_memory(self, data: bytes) -> None:
        facts = scan_text(data)
        assert seen(facts) == naive(data)
        assert (facts.reason is None) == (facts.encoding is not None)

    @given(any_file, st.lists(st.integers(0, 30), min_size=1), any_step)
    def test_in_blocks_of_any_size(self, data: bytes, sizes: list[int], step: int) -> None:
        scanner = TextScanner(step=step)
        at = 0
        for size in sizes:
            scanner.feed(data[at : at + size])
            at += size
        scanner.feed(data[at:])
        facts = scanner.finish()
        assert seen(facts) == naive(data)
        assert facts == scan_blocks(data, len(data) + 1, step)
        assert facts.reason == scan_text(data).reason

    @given(utf8, st.integers(1, 30), any_step)
    def test_grid(self, data: bytes, size: int, step: int) -> None:
        grid = scan_blocks(data, size, step).grid
        if len(data) <= step:
            assert grid is None
            return
        assert grid is not None
        lines, characters = naive_grid(data, step)
        assert list(grid.lines) == lines
        assert grid.step == step
        if data.isascii():
            assert grid.characters is None
        else:
            assert grid.characters is not None
            assert list(grid.characters) == characters

    @pytest.mark.parametrize("size", [1000, 4095, 4096, 4097, 2**16, 10**6])
    @pytest.mark.parametrize(
        "data",
        [
            b"word word\n" * 20_000,
            "数据\n".encode() * 30_000,
            b"x" * 150_000 + "é".encode() + b"\n" * 70_000,
            "é".encode() * 50_000 + b"x\n" * 70_000 + "😀".encode(),
            b"x\n" * 70_000 + b"\xe9" + b"x" * 9000,
            b"x\n" * 70_000 + b"\0",
            "数".encode() * 4096,
            b"a" * 8192,
            b"a" * 4096 * 40 + "é".encode(),
            "é\n".encode() * 30_000 + b"\0" + "é".encode() * 9000,
            ("a\n数" * 60_000).encode("utf-16"),
            ("a" + "😀" * 40_000 + "\n").encode("utf-16"),
            ("a" + "😀" * 40_000).encode("utf-16") + b"\0\xdc" + b"a\0" * 40_000,
            ("a" + "😀" * 40_000).encode("utf-32") + b"\0\0\0\1",
            ("a" + "😀" * 40_000).encode("utf-16") + b"\0",
        ],
        ids=lambda data: f"{data[:4]!r}-{len(data)}",
    )
    def test_real_step(self, data: bytes, size: int) -> None:
        facts = scan_blocks(data, size)
        assert seen(facts) == naive(data)
        assert facts == scan_text(data)
        if facts.grid is not None:
            edges = range(GRID_STEP, len(data), GRID_STEP)
            assert list(facts.grid.lines) == [data.count(b"\n", 0, edge) for edge in edges]
            if facts.grid.characters is not None:
                starts = [len(data[:edge].decode(errors="ignore")) for edge in edges]
                cut = [data[edge] & 0xC0 == 0x80 for edge in edges]
                assert list(facts.grid.characters) == [n + c for n, c in zip(starts, cut, strict=True)]


class TestWhatIsText:
    @pytest.mark.parametrize(
        ("data", "encoding", "characters", "lines"),
        [
            (b"", "ascii", 0, 0),
            (b"\n", "ascii", 1, 1),
            (b"a\r\nb", "ascii", 4, 2),
            (b"a\rb\x0bc\x0cd\x1ce", "ascii", 9, 1),
            ("a\u2028b\u2029c\x85d".encode(), "utf-8", 7, 1),
            (b"\xef\xbb\xbfhi\n", "utf-8", 4, 1),
            (b"\xef\xbb\xbf", "utf-8", 1, 1),
            ("hé\n".encode("utf-16"), "utf-16", 3, 1),
            (b"\xfe\xff\0h\0i", "utf-16", 2, 1),
            (b"\xff\xfe", "utf-16", 0, 0),
            ("h😀\nx".encode("utf-32"), "utf-32", 4, 2),
            (b"\0\0\xfe\xff\0\0\0h", "utf-32", 1, 1),
            ("\ufeffa\0b".encode("utf-16-le"), "utf-16", 3, 1),
            ("中文测试内容。".encode() * 50, "utf-8", 350, 1),
            (b"a" * 1023 + "あ\n".encode(), "utf-8", 1025, 1),
            (b"a" * 4095 + "😀tail".encode(), "utf-8", 4100, 1),
        ],
    )
    def test_text(self, data: bytes, encoding: str, characters: int, lines: int) -> None:
        for facts in (scan_text(data), scan_blocks(data, 1)):
            assert seen(facts) == (encoding, characters, lines, None)

    @pytest.mark.parametrize(
        ("data", "reason", "at"),
        [
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "invalid UTF-8 start byte", 0),
            (b"\x1f\x8b\x08\0\0\0\0\0", "invalid UTF-8 start byte", 1),
            (b"\x7fELF\x02\x01\x01\0\0\0", "holds a NUL byte", 7),
            (b"word\n" * 1800 + b"\0" + b"word\n" * 1000, "holds a NUL byte", 9000),
            (b"\0" + b"word", "holds a NUL byte", 0),
            (b"caf\xe9 au lait", "invalid UTF-8 continuation byte", 3),
            (b"ab\x80", "invalid UTF-8 start byte", 2),
            (b"\xc0\x80", "invalid UTF-8 start byte", 0),
            (b"\xc1\xbf", "invalid UTF-8 start byte", 0),
            (b"x\xe0\x80\xaf", "invalid UTF-8 continuation byte", 1),
            (b"x\xf0\x80\x80\xaf", "invalid UTF-8 continuation byte", 1),
            (b"\xed\xa0\xbd\xed\xb8\x80", "invalid UTF-8 continuation byte", 0),
            (b"\xf4\x90\x80\x80", "invalid UTF-8 continuation byte", 0),
            (b"\xf5\x80\x80\x80", "invalid UTF-8 start byte", 0),
            (b"ok \xf0\x9f\x98", "ends inside a UTF-8 character", 3),
            (b"ok \xf0\x9f\x98\0", "invalid UTF-8 continuation byte", 3),
            (b"a" * 4095 + b"\xe3\x81", "ends inside a UTF-8 character", 4095),
            (b"\xff\xfea\0b", "invalid UTF-16: truncated data", 4),
            (b"\xff\xfea\0\x3d\xd8", "invalid UTF-16: unexpected end of data", 4),
            (b"\xff\xfe\0\0\0\0\x11\0", "invalid UTF-32: code point not in range(0x110000)", 4),
        ],
    )
    def test_not_text(self, data: bytes, reason: str, at: int) -> None:
        for facts in (scan_text(data), scan_blocks(data, 1), scan_blocks(data, 4096)):
            assert facts == TextFacts(None, 0, 0, reason, at)

    @pytest.mark.parametrize("at", range(40))
    @pytest.mark.parametrize("bad", [b"\xff", b"\0", b"\x80", b"\xc3"])
    def test_a_fault_at_every_byte(self, at: int, bad: bytes) -> None:
        data = b"a" * at + bad + b"b" * (40 - at)
        for step in (1, 2, 3, 7, 8, 4096):
            assert seen(scan_blocks(data, 5, step)) == (None, 0, 0, at)

    def test_the_first_fault_is_named(self) -> None:
        assert scan_text(b"a\0b\xff").reason_at == 1
        assert scan_text(b"a\xffb\0").reason_at == 1
        assert scan_text(b"x" * 9000 + b"\xff" + b"x" * 9000 + b"\0").reason_at == 9000


class TestLikelyEncoding:
    @pytest.mark.parametrize(
        "text", ["# Title\n\nSome words.\n", "数据处理 and words.\r\n", "数据处理的说明文字\n" * 200]
    )
    @pytest.mark.parametrize("encoding", ["UTF-16-LE", "UTF-16-BE", "UTF-32-LE", "UTF-32-BE"])
    @pytest.mark.parametrize("size", [1, 10**6])
    def test_is_named(self, text: str, encoding: str, size: int) -> None:
        facts = scan_blocks(text.encode(encoding), size)
        assert facts.encoding is None
        assert facts.reason == f"looks like {encoding} without a byte-order mark"

    @pytest.mark.parametrize(
        "data",
        [
            b"words and\0words, mostly words and nothing else but words",
            b"words an\0 words, mostly words and nothing else but words",
            "é words and\0 words, mostly words and nothing else but wörds".encode(),
            b"MZ\x90\0\x03\0\0\0\x04\0\0\0\xff\xff\0\0\xb8\0",
            b"\0" * 5000,
            b"\0even",
            "# Title\n".encode("utf-16-le") + b"x",
            b"\0",
        ],
    )
    def test_is_not_imagined(self, data: bytes) -> None:
        assert "looks like" not in str(scan_text(data).reason)


class TestGrid:
    @given(utf8.filter(lambda data: len(data) > 1), st.integers(1, 5))
    def test_packs(self, data: bytes, step: int) -> None:
        grid = scan_blocks(data, 10, step).grid
        if grid is not None:
            assert Grid.unpack(grid.pack()) == grid

    def test_is_compact(self) -> None:
        ascii_grid = scan_text(b"word\n" * 200_000).grid
        utf8_grid = scan_text("数据\n".encode() * 200_000).grid
        assert ascii_grid is not None
        assert utf8_grid is not None
        assert len(ascii_grid.pack()) == 8 + 4 * (1_000_000 // 4096)
        assert len(utf8_grid.pack()) == 8 + 8 * (1_400_000 // 4096)

    def test_layout(self) -> None:
        packed = Grid(array("I", [1, 2]), array("Q", [4096, 2**32]), 4096).pack()
        assert packed == (
            b"TG\x01\x03" + (4096).to_bytes(4, "little")
            + (4096).to_bytes(8, "little") + (2**32).to_bytes(8, "little")
            + (1).to_bytes(4, "little") + (2).to_bytes(4, "little")
        )  # fmt: skip
        assert Grid.unpack(packed).pack() == packed

    def test_eight_bytes_only_where_four_do_not_do(self) -> None:
        assert textfacts._compact(array("Q", [1, 2**32 - 1])) == array("I", [1, 2**32 - 1])
        assert textfacts._compact(array("Q", [1, 2**32 - 1])).itemsize == 4
        assert textfacts._compact(array("Q", [1, 2**32])).itemsize == 8
        assert textfacts._compact(array("Q")).itemsize == 4

    def test_big_endian_machines_write_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(textfacts.sys, "byteorder", "big")
        native = array("I", [1])
        native.byteswap()
        grid = Grid(native)
        assert grid.pack()[8:] == b"\1\0\0\0"
        assert Grid.unpack(grid.pack()) == grid
        assert native != array("I", [1])

    @pytest.mark.parametrize(
        "packed",
        [
            b"",
            b"TG\x01",
            b"XX\x01\0\0\x10\0\0",
            b"TG\x02\0\0\x10\0\0",
            b"TG\x01\x08\0\x10\0\0",
            b"TG\x01\0\0\0\0\0",
            b"TG\x01\0\0\x10\0\0abc",
            b"TG\x01\x01\0\x10\0\0abcd",
        ],
    )
    def test_refuses_what_is_no_grid(self, packed: bytes) -> None:
        with pytest.raises(ValueError, match="not a packed grid"):
            Grid.unpack(packed)


@given(any_text)
def test_facts_of_decoded_text(text: str) -> None:
    facts = decoded_facts(text, "gb18030")
    assert facts == TextFacts("gb18030", len(text), len(text.split("\n")) - (text[-1:] in ("", "\n")))


def test_memory_is_bounded() -> None:
    block = "数据 and words\n".encode() * 3000
    tracemalloc.start()
    try:
        scanner = TextScanner()
        for _ in range(400):
            scanner.feed(block)
        facts = scanner.finish()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert facts.encoding == "utf-8"
    assert facts.characters == 400 * len(block.decode())
    assert peak < 2**20
