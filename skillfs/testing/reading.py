"""Tests of references, texts and bytes."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest

from skillfs.core.wire import Content
from skillfs.testing.comparing import Both, Failure, everything, plain_entry, whole
from skillfs.testing.specimen import BIG, INVISIBLE, MALFORMED, SPECIMEN

__all__ = ["ReadingTests"]


class ReadingTests:
    """What is found by a reference, and what is read."""

    # -- references ----------------------------------------------------------------------------------------

    def test_every_form_of_reference(self, both: Both) -> None:
        """What is visible answers to its id, UUID, path and URL, with the same identity as anywhere."""
        found = both.answers(lambda fs: [plain_entry(fs.entry(f"/{path}")) for path in everything(fs)])
        assert len(found) > 140
        for entry in found:
            path, uuid = entry.path, UUID(entry.uuid)
            forms: tuple[Any, ...] = (
                entry.id,
                str(entry.id),
                entry.uuid,
                uuid.hex,
                str(uuid).upper(),
                uuid.urn,
            )
            forms += (f"./{path}", f"skill://{quote(path)}", path, f"/{path}/", f"/{path}")
            for form in forms:
                both.same(lambda fs, form=form: plain_entry(fs.entry(form)))
            for form in forms[:8]:
                assert plain_entry(both.fs.entry(form)) == entry, form
            for root in both.fs.roots:
                assert plain_entry(both.fs.entry(f"{root.rstrip('/')}/{path}")) == entry

    @pytest.mark.parametrize(
        "ref", ["", "/", ".", "./", "skill://", "name:word", "name:pdf", "names/\u212b.md"]
    )
    def test_other_references(self, both: Both, ref: str) -> None:
        """The root, names, and a name that is equal to two others under NFC."""
        both.same(lambda fs: plain_entry(fs.entry(ref)))

    def test_names_that_are_equal_under_nfc(self, both: Both) -> None:
        """A unique one is found by the other spelling, an exact one always."""
        assert both.answers(lambda fs: fs.entry("names/cafe\u0301.md").path) == "names/caf\u00e9.md"
        assert both.answers(lambda fs: fs.entry("names/na\u00efve.md").path) == "names/nai\u0308ve.md"
        for exact in ("names/\u00c5.md", "names/A\u030a.md"):
            assert both.answers(lambda fs, exact=exact: fs.entry(exact).path) == exact
        assert both.code(lambda fs: fs.entry("names/\u212b.md")) == "invalid_argument"

    @pytest.mark.parametrize("ref", INVISIBLE)
    def test_what_is_not_visible_is_not_found(self, both: Both, ref: Any) -> None:
        """The same answer to every question, whatever the reason."""
        for work in (
            lambda fs: fs.entry(ref),
            lambda fs: fs.get_content(ref),
            lambda fs: fs.get_lines(ref),
            lambda fs: fs.skill_tree(ref),
        ):
            assert both.code(work) == "not_found"
        if not isinstance(ref, str) or ":" in ref:
            return
        for work in (lambda fs: fs.info(ref), lambda fs: fs.ls(ref), lambda fs: fs.cat_file(ref)):
            assert both.code(work) == "not_found"
        assert both.answers(lambda fs: [fs.exists(ref), fs.isdir(ref), fs.isfile(ref), fs.find(ref)]) == [
            *(False, False, False),
            [],
        ]

    @pytest.mark.parametrize("ref", MALFORMED, ids=lambda ref: ascii(ref)[:30])
    def test_malformed_references(self, both: Both, ref: Any) -> None:
        """Refused, or not found, in the same words."""
        for work in (lambda fs: fs.entry(ref), lambda fs: fs.get_content(ref), lambda fs: fs.info(ref)):
            assert both.code(work) in {"invalid_argument", "not_found", "is_folder"}

    # -- text ----------------------------------------------------------------------------------------------

    def test_content_of_every_file(self, both: Both) -> None:
        """Text, header, raw format, or the reason why it is no text."""
        codes = set()
        for path in both.answers(lambda fs: fs.find("")):
            answer = both.same(lambda fs, path=path: whole(fs.get_content(f"/{path}")))
            if isinstance(answer, Failure):
                codes.add(answer.code)
                continue
            content = Content.parse(answer[0])
            assert content.hash == hashlib.md5(SPECIMEN[path]).hexdigest()
            assert content.complete
            if not SPECIMEN[path].startswith((b"\xff\xfe", b"\xfe\xff")):
                assert content.text.encode() == SPECIMEN[path]
        assert codes == {"not_text"}

    @pytest.mark.parametrize(
        ("start", "length"),
        [
            *((0, 0), (0, 1), (0, 4_096), (1, 7), (1_000, 1), (2_047, 3), (4_095, 2), (4_096, 4_096)),
            (8_191, 9),
            *((100_001, 1_000), (136_499, 1), (136_500, 1), (136_499, None), (10**9, 5), (0, 10**9)),
            *((-1, 1), (0, -1), (True, 1), (0, 1.0), ("0", 1)),
        ],
    )
    def test_a_stretch_of_text(self, both: Both, start: Any, length: Any) -> None:
        """Characters are counted alike, across the edges of blocks too."""
        for path in (BIG, "pdf/texts/utf-16-le.txt", "pdf/texts/crlf.md", "pdf/texts/empty.txt"):
            both.same(lambda fs, path=path: whole(fs.get_content(path, start, length)))

    def test_pages_join_to_the_file(self, both: Both) -> None:
        """Pages of an odd size, joined, are the text exactly."""
        pages: list[Content] = []
        start = 0
        while True:
            page = both.fs.get_content(BIG, start, 15_001, expect_hash=pages[0].hash if pages else None)
            pages.append(page)
            if page.next_start is None:
                break
            start = page.next_start
        assert "".join(page.text for page in pages).encode() == SPECIMEN[BIG]
        assert Content.parse_all("\n".join(map(str, pages))) == pages

    @pytest.mark.parametrize(
        ("offset", "limit"),
        [
            *((1, None), (1, 0), (1, 1), (2, 1), (2, None), (3, 2), (1_000, 3), (27_300, 1)),
            *((27_301, 1), (0, 1), (1, -1)),
        ],
    )
    def test_lines(self, both: Both, offset: int, limit: int | None) -> None:
        """Lines are counted alike."""
        texts = ("big.md", "crlf.md", "lone-returns.txt", "only-newlines.txt", "no-final-newline.txt")
        for name in (*texts, "other-separators.txt", "utf-16-be.txt", "empty.txt", "random.bin"):
            both.same(lambda fs, name=name: whole(fs.get_lines(f"pdf/texts/{name}", offset, limit)))

    @pytest.mark.parametrize(
        "encoding",
        ["utf-8", "latin-1", "utf-16", "utf-16-le", "cp1252", "ascii", "utf-8-sig", "rot13", "none", ""],
    )
    def test_named_encoding(self, both: Both, encoding: str) -> None:
        """Files are decoded, or refused, alike in an encoding that the caller names."""
        for name in ("latin-1.txt", "utf-16-le.txt", "byte-order-mark.md", "nul.txt", "crlf.md"):
            both.same(
                lambda fs, name=name: whole(fs.get_content(f"pdf/texts/{name}", 1, 5, encoding=encoding))
            )

    def test_hash_that_is_expected(self, both: Both) -> None:
        """Another version is refused."""
        md5 = hashlib.md5(SPECIMEN[BIG]).hexdigest()
        both.answers(lambda fs: fs.get_content(BIG, 5, 5, expect_hash=md5).text)
        assert both.code(lambda fs: fs.get_content(BIG, 5, 5, expect_hash="0" * 32)) == "changed"

    def test_folder_has_no_text(self, both: Both) -> None:
        """A folder and a skill are refused as such."""
        for ref in ("/", "pdf", "office", "pdf/texts/", "name:pdf"):
            assert both.code(lambda fs, ref=ref: fs.get_content(ref)) == "is_folder"

    # -- bytes ---------------------------------------------------------------------------------------------

    def test_bytes_of_every_file(self, both: Both) -> None:
        """Whole files, as stored."""
        for path in both.answers(lambda fs: fs.find("")):
            assert both.fs.cat_file(path) == SPECIMEN[path]

    @pytest.mark.parametrize(
        ("start", "end"),
        [
            *((None, None), (0, 0), (0, 1), (5, 5), (7, 3), (4_095, 4_098), (99_990, None)),
            (99_990, 200_000),
            *((-10, None), (-10, -5), (None, -99_990), (200_000, None), (200_000, 200_001), (-200_000, 5)),
        ],
    )
    def test_ranges_of_bytes_are_slices(self, both: Both, start: int | None, end: int | None) -> None:
        """One at a time and several at once."""
        random, empty = "pdf/texts/random.bin", "pdf/texts/empty.txt"
        assert both.fs.cat_file(random, start, end) == SPECIMEN[random][start:end]
        assert both.fs.cat_file(empty, start, end) == b""
        paths = [random, BIG, empty, random]
        assert both.fs.cat_ranges(paths, [start] * 4, [end] * 4) == [
            SPECIMEN[path][start:end] for path in paths
        ]

    def test_ranges_with_errors_among_them(self, both: Both) -> None:
        """An error stands in the place of its range."""
        paths = ["pdf/SKILL.md", "README.md", "pdf", "pdf/texts/empty.txt"]
        got = both.answers(
            lambda fs: [
                part if isinstance(part, bytes) else (type(part), str(part))
                for part in fs.cat_ranges(paths, [0] * 4, [3] * 4)
            ]
        )
        assert got[0] == b"---"
        assert both.code(lambda fs: fs.cat_ranges(paths, [0] * 4, [3] * 4, on_error="raise")) == "not_found"

    def test_open_files(self, both: Both) -> None:
        """Reading on, seeking and telling."""
        data = SPECIMEN[BIG]
        with both.fs.open(BIG) as file:
            assert file.read(10) == data[:10]
            assert file.seek(4_090) == 4_090
            assert file.read(13) == data[4_090:4_103]
            assert file.seek(-5, 2) == len(data) - 5
            assert file.read() == data[-5:]
            assert file.read(1) == b""
            assert file.seek(0) == file.tell() == 0
            assert file.read() == data
        with both.fs.open("pdf/texts/crlf.md", "rt", encoding="utf-8", newline="") as text:
            assert text.read().encode() == SPECIMEN["pdf/texts/crlf.md"]
        for path in ("README.md", "pdf", "pdf/none"):
            both.code(lambda fs, path=path: fs.open(path))

    def test_threads_read_side_by_side(self, both: Both) -> None:
        """Eight threads get what one gets."""
        paths = [path for path in SPECIMEN if path.startswith(("names/", "suite/"))] * 2
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(both.fs.cat_file, paths)) == [SPECIMEN[path] for path in paths]
