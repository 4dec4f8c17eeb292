"""Reading: characters, lines and bytes against a naive decode, and files that change meanwhile."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillfs import ChangedError, Content, InvalidArgumentError, SkillFileSystem, SkillFSError
from tests.conftest import skill_md, write

Open = Callable[..., SkillFileSystem]

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=300) | st.text(
    st.sampled_from("a\n\r\u2028\x1cé数😀\u200d\ufeff= "), max_size=60
)


def code_of(work: Callable[[], object]) -> str:
    with pytest.raises(SkillFSError) as caught:
        work()
    return caught.value.code


def lines_of(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> SkillFileSystem:
    """A store for properties that write one file after the other."""
    root = write(tmp_path_factory.mktemp("shared"), {"s/SKILL.md": skill_md("s")})
    return SkillFileSystem(root, index=":memory:", skip_instance_cache=True)


def put(fs: SkillFileSystem, data: bytes, name: str = "s/file") -> str:
    (Path(fs._engine.store.root) / name).write_bytes(data)
    return name


# -- against a naive decode ----------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.integers(1, 70))
def test_pages_join_to_the_text(shared: SkillFileSystem, text: str, size: int) -> None:
    data = text.encode()
    path = put(shared, data)
    pages, start = [], 0
    while True:
        page = shared.get_content(path, start, size)
        assert (page.size, page.start, page.length) == (len(text), start, len(page.text))
        assert page.hash == hashlib.md5(data).hexdigest()
        assert Content.parse(str(page)) == page
        pages.append(page)
        if page.next_start is None:
            break
        start = page.next_start
    assert pages[-1].complete
    assert "".join(page.text for page in pages).encode() == data
    assert Content.parse_all("\n".join(map(str, pages))) == pages


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.integers(1, 12), st.one_of(st.none(), st.integers(0, 12)))
def test_lines_are_those_of_a_split(
    shared: SkillFileSystem, text: str, offset: int, limit: int | None
) -> None:
    path = put(shared, text.encode())
    every = lines_of(text)
    wanted = every[offset - 1 :] if limit is None else every[offset - 1 : offset - 1 + limit]
    lines = shared.get_lines(path, offset, limit)
    assert (lines.text, lines.lines, lines.size) == ("".join(wanted), len(every), len(text))
    assert lines.count == len(wanted)


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=200),
    st.one_of(st.none(), st.integers(-250, 250)),
    st.one_of(st.none(), st.integers(-250, 250)),
)
def test_byte_ranges_are_slices(
    shared: SkillFileSystem, data: bytes, start: int | None, end: int | None
) -> None:
    path = put(shared, data)
    assert shared.cat_file(path, start, end) == data[start:end]
    assert shared.cat_ranges([path, path], [start, 0], [end, None]) == [data[start:end], data]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_text_is_what_decodes_whole(shared: SkillFileSystem, data: bytes) -> None:
    path = put(shared, data)
    try:
        text = None if b"\0" in data or data[:2] in (b"\xff\xfe", b"\xfe\xff") else data.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None:
        assert shared.get_content(path).text == text
    elif data[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        assert code_of(lambda: shared.get_content(path)) == "not_text"


BIG = (
    "é" + "a" * 4094 + "数" + "😀" * 5000 + "".join(f"line {n} — 数据\r\n" for n in range(60_000)) + "ende"
)  # 1.5 MB: characters lie across the borders of the grid, and it is read in blocks


@pytest.fixture(scope="module")
def big(shared: SkillFileSystem) -> str:
    return put(shared, BIG.encode(), "s/big.md")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(BIG) + 10), st.integers(0, 20_000))
def test_ranges_of_a_large_file(shared: SkillFileSystem, big: str, start: int, length: int) -> None:
    page = shared.get_content(big, start, length)
    assert page.text == BIG[start : start + length]
    assert page.size == len(BIG)


def test_ranges_at_every_border_of_the_grid(shared: SkillFileSystem, big: str) -> None:
    starts = [len(BIG.encode()[:at].decode(errors="ignore")) for at in range(4096, 60_000, 4096)]
    for start in starts:
        for first in range(max(0, start - 3), start + 3):
            assert shared.get_content(big, first, 3).text == BIG[first : first + 3]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60_010), st.integers(0, 50))
def test_lines_of_a_large_file(shared: SkillFileSystem, big: str, offset: int, limit: int) -> None:
    every = lines_of(BIG)
    lines = shared.get_lines(big, offset, limit)
    assert lines.text == "".join(every[offset - 1 : offset - 1 + limit])
    assert lines.lines == len(every)


# -- tables --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b"\xef\xbb\xbfx", "\ufeffx"),
        ("中文测试内容。".encode() * 50, "中文测试内容。" * 50),
        (b"a" * 1023 + "あ\n".encode(), "a" * 1023 + "あ\n"),
        (b"a" * 1999 + "😀tail".encode(), "a" * 1999 + "😀tail"),
        ("x".encode("utf-16"), "x"),
        ("\ufeffé😀".encode("utf-16-be"), "é😀"),
        ("\ufeffé😀".encode("utf-32-le"), "é😀"),
        (b"=== END OF FILE ===", "=== END OF FILE ==="),
        (b"x\n=== END OF FILE ===", "x\n=== END OF FILE ==="),
        (b"=== FILE METADATA ===\nuuid: \n=== FILE CONTENT ===\n\r\n\x1c\xe2\x80\xa8", None),
        (b"\n\n\n", "\n\n\n"),
        (b"no newline", "no newline"),
        (b"\r", "\r"),
        (b"a" * 9_000 + b"\0", "not_text"),
        (b"\x89PNG\r\n\x1a\n\0\0", "not_text"),
        (b"\x1f\x8b\x08\0", "not_text"),
        (b"\x7fELF\x02\x01\0", "not_text"),
        ("x y".encode("utf-16-le"), "not_text"),
        (b"caf\xe9", "not_text"),
        ("数".encode()[:2], "not_text"),
        (b"\xed\xa0\x80", "not_text"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_text(root: Path, open_fs: Open, data: bytes, text: str | None) -> None:
    write(root, {"s/SKILL.md": skill_md("s"), "s/picture.png": data, "s/file.md": data})
    fs = open_fs()
    for path in ("s/picture.png", "s/file.md"):  # decided by content, whatever the name
        assert fs.cat_file(path) == data
        if text == "not_text":
            with pytest.raises(ValueError, match="at byte") as caught:
                fs.get_content(path)
            assert caught.value.code == "not_text"  # type: ignore[attr-defined]
            assert "caf" not in str(caught.value)
        else:
            page = fs.get_content(path)
            decoded = page.text.encode()
            assert page.text == (data.decode() if text is None else text) or decoded == data
            assert Content.parse(str(page)) == page
            assert page.hash == hashlib.md5(data).hexdigest()


def test_an_empty_skill_md_is_a_skill(root: Path, open_fs: Open) -> None:
    write(root, {"s/SKILL.md": b""})
    page = open_fs().get_content("s/SKILL.md")
    assert (page.text, page.size, page.length, page.complete, page.next_start) == ("", 0, 0, True, None)
    assert [s.path for s in open_fs().skills()] == ["s"]


@pytest.mark.parametrize(
    ("start", "length", "text"),
    [
        (0, None, "a\r\n😀\u200d👩b"),
        (0, 0, ""),
        (2, 1, "\n"),
        (1, 1, "\r"),
        (3, 1, "😀"),
        (4, 1, "\u200d"),
        (5, 1, "👩"),
        (7, 5, ""),
        (8, 1, ""),
        (0, 10**30, "a\r\n😀\u200d👩b"),
        (0, 2**63, "a\r\n😀\u200d👩b"),
        (10**30, 1, ""),
        (2**63, None, ""),
        (2**64, 10**30, ""),
    ],
)
def test_ranges(root: Path, open_fs: Open, start: int, length: int | None, text: str) -> None:
    write(root, {"s/SKILL.md": skill_md("s"), "s/t.md": "a\r\n😀\u200d👩b"})
    page = open_fs().get_content("s/t.md", start, length)
    assert (page.text, page.length, page.size) == (text, len(text), 7)
    assert page.complete == (page.start + page.length >= 7)
    assert Content.parse(str(page)) == page


@pytest.mark.parametrize("value", [-1, True, False, 1.0, "1", "", [1]])
def test_ranges_that_are_none(root: Path, open_fs: Open, value: object) -> None:
    write(root, {"s/SKILL.md": skill_md("s")})
    fs = open_fs()
    for call in (
        lambda: fs.get_content("s/SKILL.md", value),
        lambda: fs.get_content("s/SKILL.md", 0, value),
        lambda: fs.get_lines("s/SKILL.md", value),
        lambda: fs.get_lines("s/SKILL.md", 1, value),
        lambda: fs.get_lines("s/SKILL.md", 0),
    ):
        assert code_of(call) == "invalid_argument"
    if value != -1:
        assert code_of(lambda: fs.cat_file("s/SKILL.md", value)) == "invalid_argument"
    with pytest.raises(TypeError):
        fs.get_content("s/SKILL.md", view_range=[50, 55])  # type: ignore[call-arg]


def test_lines_asked_for(root: Path, open_fs: Open) -> None:
    long = "x" * 15_000
    write(
        root,
        {
            "s/SKILL.md": skill_md("s"),
            "s/three.md": "a\nb\nc\n",
            "s/long.md": f"line\n{long}\nimportant\nline\n",
            "s/many.md": "".join(f"{n}\n" for n in range(1, 601)),
        },
    )
    fs = open_fs()
    three = fs.get_lines("s/three.md")
    assert (three.text, three.lines, three.count, three.complete) == ("a\nb\nc\n", 3, 3, True)
    none = fs.get_lines("s/three.md", 1, 0)
    assert (none.text, none.count, none.complete, none.next_offset) == ("", 0, False, 1)
    first = fs.get_lines("s/long.md", 1, 3)
    assert first.text == f"line\n{long}\nimportant\n"
    assert first.next_offset == 4
    assert fs.get_lines("s/long.md", 4, 3).text == "line\n"
    past = fs.get_lines("s/many.md", 386, 315)
    assert (past.count, past.text[:4], past.complete) == (215, "386\n", True)
    beyond = fs.get_lines("s/many.md", 700)
    assert (beyond.text, beyond.count, beyond.complete, beyond.next_offset) == ("", 0, True, None)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("latin-1", "cafÃ©"),
        ("utf-8", "café"),
        ("UTF8", "café"),
        ("ascii", "not_text"),
        ("utf-16", "not_text"),
        ("cp1252", "cafÃ©"),
        ("base64", "invalid_argument"),
        ("rot13", "invalid_argument"),
        ("nonsense", "invalid_argument"),
        ("", "invalid_argument"),
        ("punycode", "invalid_argument"),
        (5, "invalid_argument"),
    ],
)
def test_named_encodings(root: Path, open_fs: Open, encoding: str, text: str) -> None:
    write(root, {"s/SKILL.md": skill_md("s"), "s/t.md": "café"})
    fs = open_fs()
    if text in ("not_text", "invalid_argument"):
        assert code_of(lambda: fs.get_content("s/t.md", encoding=encoding)) == text
        assert code_of(lambda: fs.get_lines("s/t.md", encoding=encoding)) == text
        return
    page = fs.get_content("s/t.md", 3, 10, encoding=encoding)
    assert (page.text, page.size) == (text[3:], len(text))
    assert page.hash == hashlib.md5("café".encode()).hexdigest()  # of the bytes, whatever they are read as
    assert fs.get_lines("s/t.md", encoding=encoding).text == text


def test_an_encoding_that_cannot_be_entered_midway(root: Path, open_fs: Open) -> None:
    text = "Grüße\n数据\n" * 200_000
    write(root, {"s/SKILL.md": skill_md("s"), "s/t.txt": text.encode("gb18030", "replace")})
    text = text.encode("gb18030", "replace").decode("gb18030")
    fs = open_fs()
    assert code_of(lambda: fs.get_content("s/t.txt")) == "not_text"
    assert fs.get_content("s/t.txt", 1_000_000, 7, encoding="gb18030").text == text[1_000_000:1_000_007]
    with (root / "s/t.txt").open("ab") as file:
        file.truncate(65 << 20)
    assert code_of(lambda: fs.get_content("s/t.txt", 0, 1, encoding="gb18030")) == "too_large"


def test_pages_of_two_versions_are_not_mixed(root: Path, open_fs: Open) -> None:
    write(root, {"s/SKILL.md": skill_md("s"), "s/t.md": "one two"})
    fs = open_fs()
    page = fs.get_content("s/t.md", 0, 3)
    assert fs.get_content("s/t.md", 3, 4, expect_hash=page.hash).text == " two"
    assert fs.get_content("s/t.md", 3, 4, expect_hash=page.hash.upper()).text == " two"
    assert fs.get_content("s/t.md", 3, 4, expect_hash=f"md5:{page.hash}").text == " two"
    write(root, {"s/t.md": "eins zwei"})
    assert code_of(lambda: fs.get_content("s/t.md", 3, 4, expect_hash=page.hash)) == "changed"
    assert code_of(lambda: fs.get_lines("s/t.md", expect_hash=page.hash)) == "changed"
    for wrong in ("", "x", page.hash[:-1], f"sha256:{page.hash}", 5):
        assert code_of(lambda wrong=wrong: fs.get_content("s/t.md", expect_hash=wrong)) == "invalid_argument"


def test_a_sparse_file_reads_as_zeros(root: Path, open_fs: Open) -> None:
    write(root, {"s/SKILL.md": skill_md("s")})
    with (root / "s/sparse").open("wb") as file:
        file.seek(3 << 20)
        file.write(b"end")
    fs = open_fs()
    assert fs.cat_file("s/sparse") == bytes(3 << 20) + b"end"
    with fs.open("s/sparse") as file:
        file.seek(-5, os.SEEK_END)
        assert file.read() == b"\0\0end"
    assert code_of(lambda: fs.get_content("s/sparse")) == "not_text"


def test_near_the_end_of_a_huge_text_memory_is_bounded(tmp_path: Path) -> None:
    root = write(tmp_path, {"s/SKILL.md": skill_md("s")})
    with (root / "s/huge.md").open("wb") as file:
        for _ in range(150):
            file.write("é".encode() * (1 << 19))
        file.write(b"the end")
    script = (
        "import re, sys; from skillfs import SkillFileSystem\n"
        "fs = SkillFileSystem(sys.argv[1], index=':memory:')\n"
        "size = fs.get_content('s/huge.md', 0, 0).size\n"
        "print(fs.get_content('s/huge.md', size - 7).text)\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", script, str(root)], capture_output=True, text=True, check=True
    )
    text, peak = out.stdout.split("\n")[:2]
    assert text == "the end"
    assert int(peak) < 110_000  # KiB, of which the interpreter takes 40,000; the file has 153,600


# -- what changes --------------------------------------------------------------------------------------------


def test_edits_are_seen_at_once(root: Path, open_fs: Open) -> None:
    write(root, {"s/SKILL.md": skill_md("s"), "s/t.md": "0"})
    fs = open_fs(max_age=3600)
    for number in range(200):
        text = str(number) * random.Random(number).randrange(1, 4)
        (root / "s/t.md").write_text(text)
        page = fs.get_content("s/t.md")
        assert (page.text, page.hash) == (text, hashlib.md5(text.encode()).hexdigest())
        assert fs.cat_file("s/t.md") == text.encode()
        with fs.open("s/t.md") as file:
            assert file.read() == text.encode()


def test_an_atomic_save_is_seen_and_keeps_the_identity(root: Path, open_fs: Open) -> None:
    write(root, {"s/SKILL.md": skill_md("s"), "s/t.md": "old"})
    fs = open_fs(max_age=3600)
    uuid = fs.get_content("s/t.md").uuid
    write(root, {"s/.t.md.tmp": "new"})
    os.replace(root / "s/.t.md.tmp", root / "s/t.md")
    assert fs.get_content(uuid).text == fs.get_content("s/t.md").text == "new"


@pytest.mark.parametrize("settled", [False, True])
def test_an_edit_of_equal_size_with_the_time_restored(root: Path, open_fs: Open, settled: bool) -> None:
    write(root, {"s/SKILL.md": skill_md("s"), "s/t.md": "AAAA"})
    if settled:
        time.sleep(0.05)
    fs = open_fs(max_age=3600)
    assert fs.get_content("s/t.md").text == "AAAA"
    before = (root / "s/t.md").stat()
    with (root / "s/t.md").open("r+b") as file:  # the same inode
        file.write(b"BBBB")
    os.utime(root / "s/t.md", ns=(before.st_atime_ns, before.st_mtime_ns))
    page = fs.get_content("s/t.md")
    assert (page.text, page.hash) == ("BBBB", hashlib.md5(b"BBBB").hexdigest())
    assert fs.checksum("s/t.md") == fs.checksum("s/t.md") != 0
    assert [e.path for e in fs.find_content(str(fs.entry("s/t.md").hash))] == ["s/t.md"]


def test_facts_are_computed_once_for_a_file_at_rest(
    root: Path, open_fs: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, {"s/SKILL.md": skill_md("s"), "s/t.md": "é" * 3_000_000})
    fs = open_fs(max_age=3600)
    fs.get_content("s/t.md", 0, 1)
    read: list[int] = []
    pread = os.pread

    def counted(fd: int, length: int, offset: int) -> bytes:
        data = pread(fd, length, offset)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    deadline = time.monotonic() + 20
    while not read or sum(read) > 100_000:  # indexed and read while it was too young to vouch for itself
        assert time.monotonic() < deadline
        time.sleep(0.05)
        read.clear()
        fs.get_content("s/t.md", 0, 1)
    read.clear()
    for _ in range(20):
        assert fs.get_content("s/t.md", 1_000_000, 1).text == "é"
    assert 0 < sum(read) < 20 * 100_000  # of six million bytes each time


def versions(size: int) -> list[bytes]:
    return [(f"{letter}{size}é" * 8000).encode()[:size] for letter in "ABCD"]


def replace(path: Path, data: bytes) -> None:
    beside = path.with_name(".tmp-file")
    beside.write_bytes(data)
    os.replace(beside, path)


def rewrite(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


def grow_and_cut(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(data)


@pytest.mark.parametrize("change", [replace, rewrite, grow_and_cut])
def test_files_that_change_while_they_are_read(
    root: Path, open_fs: Open, change: Callable[[Path, bytes], None]
) -> None:
    """Header, text and bytes belong to one state of the file, or the answer is `changed`."""
    path = root / "s/t.md"
    texts = [f"{letter}" * (40_000 + 17 * n) for n, letter in enumerate("ABCD")]
    write(root, {"s/SKILL.md": skill_md("s"), "s/t.md": texts[0]})
    fs = open_fs()
    stop = threading.Event()

    def keep_changing() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            change(path, texts[number % 4].encode())
            time.sleep(0.0005)

    writer = threading.Thread(target=keep_changing)
    writer.start()
    outcomes = {"read": 0, "changed": 0}
    try:
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            for read in readings(fs):
                try:
                    text, digest = read()
                except ChangedError:
                    outcomes["changed"] += 1
                    continue
                outcomes["read"] += 1
                if digest is not None:
                    assert hashlib.md5(text).hexdigest() == digest
                if change is replace:
                    assert text.decode() in texts
    finally:
        stop.set()
        writer.join()
    assert outcomes["read"] > 20
    assert fs.get_content("s/t.md").text.encode() == path.read_bytes()


def readings(fs: SkillFileSystem) -> Iterator[Callable[[], tuple[bytes, str | None]]]:
    def content() -> tuple[bytes, str | None]:
        page = fs.get_content("s/t.md")
        return page.text.encode(), page.hash

    def paged() -> tuple[bytes, str | None]:
        first = fs.get_content("s/t.md", 0, 20_000)
        rest = fs.get_content("s/t.md", 20_000, expect_hash=first.hash)
        assert (first.hash, first.size) == (rest.hash, rest.size)
        return (first.text + rest.text).encode(), first.hash

    def lines() -> tuple[bytes, str | None]:
        found = fs.get_lines("s/t.md")
        return found.text.encode(), found.hash

    def whole() -> tuple[bytes, str | None]:
        return fs.cat_file("s/t.md"), None

    def streamed() -> tuple[bytes, str | None]:
        with fs.open("s/t.md") as file:
            return b"".join(iter(lambda: file.read(7_000), b"")), None

    yield from (content, paged, lines, whole, streamed)


def test_an_open_file_belongs_to_one_version(root: Path, open_fs: Open) -> None:
    write(root, {"s/SKILL.md": skill_md("s"), "s/t.md": "x" * 300_000})
    fs = open_fs()
    with fs.open("s/t.md") as file:
        assert file.read(10) == b"x" * 10
        replace(root / "s/t.md", b"y" * 300_000)
        # The old inode is untouched but for its link count: reading on would mix nothing, yet it is no longer
        # what is there.
        file.seek(200_000)
        with pytest.raises(OSError, match="changed since it was opened"):
            file.read(10)
    with fs.open("s/t.md") as file:
        assert file.read() == b"y" * 300_000
        assert file.read() == b""


def test_sizes_and_seeks_of_an_open_file(root: Path, open_fs: Open) -> None:
    data = bytes(range(256)) * 1000
    write(root, {"s/SKILL.md": skill_md("s"), "s/t.bin": data})
    with open_fs().open("s/t.bin") as file:
        assert (file.size, file.path, file.mode) == (len(data), "s/t.bin", "rb")
        assert file.readable()
        assert file.seekable()
        assert not file.writable()
        generator = random.Random(5)
        for _ in range(300):
            at, count = generator.randrange(len(data) + 20), generator.randrange(70_000)
            assert file.seek(at) == at
            assert file.read(count) == data[at : at + count]
        for where in ((-1, 0), (-len(data) - 1, 2), (0, 9)):
            with pytest.raises((InvalidArgumentError, ValueError)):
                file.seek(*where)
        with pytest.raises(OSError, match="write"):
            file.write(b"x")
    with pytest.raises(ValueError, match="closed"):
        file.read()


# -- permissions ---------------------------------------------------------------------------------------------

AS_NOBODY = """
import json, os, sys
from skillfs import SkillFileSystem, SkillFSError
root = sys.argv[1]
fs = SkillFileSystem(root, index=":memory:", max_age=0)
seen = fs.find("")
for path in seen:
    fs.get_content(path)
if os.getuid() == 0:  # the interpreter itself may lie where only this user may read, so not any earlier
    os.setgid(65534)
    os.setuid(65534)
answers = {}
print(json.dumps(seen), flush=True)
sys.stdin.readline()
for path in ("s/closed.md", "s/locked/x.md", "s/SKILL.md", "t/x.md", "s/none.md"):
    for name, call in (("content", fs.get_content), ("cat", fs.cat_file), ("open", fs.open)):
        try:
            call(path)
            answers[f"{name} {path}"] = "read"
        except SkillFSError as error:
            assert root not in str(error)
            answers[f"{name} {path}"] = error.code
fs.sync()
answers["find"] = fs.find("")
print(json.dumps(answers))
"""


def test_what_may_not_be_read_is_unreadable_and_stays(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp())  # the test's own is closed to other users
    try:
        folder.chmod(0o755)
        root = write(
            folder,
            {
                "s/SKILL.md": skill_md("s"), "s/closed.md": "closed", "s/locked/x.md": "x",
                "t/SKILL.md": skill_md("t"), "t/x.md": "x",
            },
        )  # fmt: skip
        if os.getuid() == 0:
            os.chown(root, 65534, 65534)
            for path in root.rglob("*"):
                os.chown(path, 65534, 65534)
        process = subprocess.Popen(
            [sys.executable, "-c", AS_NOBODY, str(root)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        before = json.loads(process.stdout.readline())
        (root / "s/closed.md").chmod(0)
        (root / "s/locked").chmod(0o600)
        (root / "t").chmod(0)
        output, _ = process.communicate("\n", timeout=30)
        answers = json.loads(output)
        for call in ("content", "cat", "open"):
            assert answers[f"{call} s/closed.md"] == "unreadable"
            assert answers[f"{call} s/locked/x.md"] == "unreadable"
            assert answers[f"{call} t/x.md"] == "unreadable"
            assert answers[f"{call} s/SKILL.md"] == "read"
            assert answers[f"{call} s/none.md"] == "not_found"
        assert answers["find"] == before
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=True)
        subprocess.run(["rm", "-r", str(folder)], check=True)


def test_text_and_hash_are_of_one_reading_while_a_file_is_written(root: Path, open_fs: Open) -> None:
    """A write stamps the file when it begins: while it lasts, equal signatures prove nothing."""
    size = 3 << 20
    write(root, {"s/SKILL.md": skill_md("s"), "s/big.txt": b"a" * size})
    fs = open_fs()
    stop = threading.Event()

    def rewrite() -> None:
        with (root / "s/big.txt").open("r+b") as file:
            for character in itertools.cycle(b"bcdefg"):
                if stop.is_set():
                    return
                file.seek(0)
                file.write(bytes([character]) * size)
                file.flush()

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        for _ in range(60):
            try:
                page = fs.get_content("s/big.txt")
            except ChangedError:
                continue
            assert hashlib.md5(page.text.encode()).hexdigest() == page.hash
    finally:
        stop.set()
        writer.join()
