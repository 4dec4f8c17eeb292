"""`read_file` and `list_files`, also with the inputs on which other file tools failed."""

from __future__ import annotations

import hashlib
import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillfs import InvalidArgumentError, SkillFileSystem
from skillfs.tools import answer
from skillfs.tools.files import MOST_OUTPUT
from skillfs.tools.listing import listing
from tests.conftest import skill_md, write
from tests.privileges import bound_by_permissions

LONG_LINE = "x" * 15_000
FILES: dict[str, str | bytes] = {
    "a/SKILL.md": skill_md("a"),
    "a/abc.txt": "a\nb\nc\n",
    "a/open.txt": "a\nb\nc",
    "a/crlf.txt": "a\r\nb\rc\r\n\r\nd",
    "a/empty.txt": "",
    "a/split.txt": "a" * 1_023 + "あ\n",
    "a/long.txt": f"line\n{LONG_LINE}\nimportant\nline\n",
    "a/emoji.txt": "a" * 1_999 + "😀tail\n",
    "a/chinese.txt": "中文测试内容。" * 50,
    "a/wide.txt": "\ufeffZürich\n数据\n".encode("utf-16-le"),
    "a/latin.txt": "Zürich\n".encode("latin-1"),
    "a/600.txt": "".join(f"{n}\n" for n in range(1, 601)),
    "a/nul.bin": b"text\0" * 3_000,
    "a/picture.png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "a/references/output-schema.md": "# Schema\n",
    "a/references/[x].{md}": "odd\n",
    "a/.hidden/deep.md": "dot\n",
    "a/scripts/run.py": "print()\n",
    "a/scripts/lib/help.py": "print()\n",
    "b/c/SKILL.md": skill_md("c"),
    "8004/SKILL.md": skill_md("8004"),
    "outside.md": "outside\n",
    "loose/outside.md": "outside\n",
}


@pytest.fixture
def fs(root: Path, open_fs: Callable[..., SkillFileSystem]) -> SkillFileSystem:
    write(root, FILES)
    (root / "a" / "linked.md").symlink_to("references/output-schema.md")
    (root / "a" / "linked").symlink_to("references")
    (root / "a" / "void").mkdir()
    return open_fs()


def read(fs: SkillFileSystem, path: str, **arguments: Any) -> dict[str, Any]:
    return called(fs, "read_file", {"path": path, **arguments})


def show(fs: SkillFileSystem, **arguments: Any) -> dict[str, Any]:
    return called(fs, "list_files", arguments)


def called(fs: SkillFileSystem, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    found = answer(fs, name, arguments)
    assert found.text is None
    values = found.structured
    assert values["success"] is not found.failed
    assert values["exitCode"] == int(found.failed)
    assert ("error" in values) is found.failed
    if found.failed:
        assert list(values) == ["success", "output", "exitCode", "error", "metadata"]
        assert values["output"] == ""
        assert list(values["metadata"]) == ["path"]
    else:
        assert list(values) == ["success", "output", "exitCode", "metadata"]
    return values


# -- read_file ---------------------------------------------------------------------------------------------


def test_what_is_told_of_a_file(fs: SkillFileSystem) -> None:
    data = (FILES["a/chinese.txt"] + "\n" + "x" * 5).encode()  # type: ignore[operator]
    write(Path(fs.roots[0]), {"a/chinese.txt": data})
    found = read(fs, "./a/chinese.txt", limit=1)
    assert found["output"] == "中文测试内容。" * 50 + "\n"
    assert found["metadata"] == {
        "path": "a/chinese.txt",
        "uuid": fs.entry("a/chinese.txt").uuid,
        "hash": hashlib.md5(data).hexdigest(),
        "size": len(data),
        "characters": len(data.decode()),
        "lines": 2,
        "offset": 1,
        "limit": 1,
        "returned": 1,
        "truncated": True,
        "nextOffset": 2,
        "cut": None,
    }


@pytest.mark.parametrize(
    ("path", "arguments", "output", "returned", "following"),
    [
        ("a/abc.txt", {}, "a\nb\nc\n", 3, None),
        ("a/abc.txt", {"offset": 2, "limit": 1}, "b\n", 1, 3),
        ("a/abc.txt", {"offset": 3}, "c\n", 1, None),
        ("a/abc.txt", {"offset": 4}, "", 0, None),
        ("a/abc.txt", {"offset": 10**30}, "", 0, None),
        ("a/abc.txt", {"limit": 10**30}, "a\nb\nc\n", 3, None),
        ("a/open.txt", {"offset": 3}, "c", 1, None),
        ("a/crlf.txt", {"offset": 2, "limit": 2}, "b\rc\r\n\r\n", 2, 4),
        ("a/empty.txt", {}, "", 0, None),
        ("a/split.txt", {"limit": 1}, "a" * 1_023 + "あ\n", 1, None),
        ("a/long.txt", {"limit": 3}, f"line\n{LONG_LINE}\nimportant\n", 3, 4),
        ("a/long.txt", {"offset": 3, "limit": 3}, "important\nline\n", 2, None),
        ("a/emoji.txt", {}, "a" * 1_999 + "😀tail\n", 1, None),
        ("a/chinese.txt", {}, "中文测试内容。" * 50, 1, None),
        ("a/600.txt", {"offset": 386, "limit": 315}, "".join(f"{n}\n" for n in range(386, 601)), 215, None),
        ("a/wide.txt", {}, "Zürich\n数据\n", 2, None),
        ("a/wide.txt", {"encoding": "UTF-8"}, "Zürich\n数据\n", 2, None),
        ("a/latin.txt", {"encoding": "latin-1"}, "Zürich\n", 1, None),
        ("a/linked.md", {}, "# Schema\n", 1, None),
        ("a/references/[x].{md}", {}, "odd\n", 1, None),
    ],
)
def test_lines_as_they_are(
    fs: SkillFileSystem,
    path: str,
    arguments: dict[str, Any],
    output: str,
    returned: int,
    following: int | None,
) -> None:
    found = read(fs, path, **arguments)
    assert found["output"] == output
    metadata = found["metadata"]
    assert (metadata["returned"], metadata["nextOffset"]) == (returned, following)
    assert metadata["truncated"] is (following is not None)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("a/nul.bin", "not_text"),
        ("a/picture.png", "not_text"),
        ("a/latin.txt", "not_text"),
        ("a", "is_folder"),
        ("./", "is_folder"),
        ("a/abc.txt/", "is_file"),
        ("a/nothing.md", "not_found"),
        ("outside.md", "not_found"),
        ("/etc/passwd", "not_found"),
        ("C:\\Windows\\win.ini", "not_found"),
        ("~/.ssh/id_rsa", "not_found"),
        ("file:///etc/passwd", "not_found"),
        ("a\\SKILL.md", "not_found"),
        ("../store/a/abc.txt", "invalid_argument"),
        ("a/../a/abc.txt", "invalid_argument"),
        ("a/abc.txt\0.md", "invalid_argument"),
        ("a/\ud800.md", "invalid_argument"),
        ("", "invalid_argument"),
        ("x" * 5_000, "invalid_argument"),
    ],
)
def test_failures_have_the_same_shape(fs: SkillFileSystem, path: str, code: str) -> None:
    found = read(fs, path)
    assert found["error"]["code"] == code
    assert found["error"]["message"]
    assert len(found["metadata"]["path"]) <= 203
    str(found).encode()


def test_a_near_miss_is_named(fs: SkillFileSystem) -> None:
    found = read(fs, "a/references/output-schema")
    assert '"a/references/output-schema.md"' in found["error"]["message"]
    assert found["metadata"]["path"] == '"a/references/output-schema"'


def test_a_failure_never_tells_the_root(root: Path, fs: SkillFileSystem) -> None:
    assert read(fs, f"{root}/a/abc.txt")["metadata"]["path"] == "a/abc.txt"
    for found in (read(fs, f"{root}/a/zz"), show(fs, directoryPath=f"{root}/zz"), read(fs, str(root))):
        assert str(root) not in str(found)
    missing = read(fs, f"{root}-evil/a/abc.txt")
    assert missing["error"]["code"] == "not_found"


@pytest.mark.parametrize("encoding", ["klingon", "base64", "", "x" * 1_000, "punycode"])
def test_an_encoding_that_is_none_is_a_failure(fs: SkillFileSystem, encoding: str) -> None:
    assert read(fs, "a/abc.txt", encoding=encoding)["error"]["code"] == "invalid_argument"


@pytest.mark.parametrize(
    "arguments",
    [
        {"offset": 0},
        {"offset": -1},
        {"limit": 0},
        {"limit": -1},
        {"offset": 1.5},
        {"limit": "3"},
        {"limit": True},
        {"offset": None},
        {"view_range": [50, 55]},
        {"path": 7},
        {"basePathIds": ["a"]},
    ],
)
def test_malformed_arguments_are_refused(fs: SkillFileSystem, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(arguments))):
        read(fs, **{"path": "a/abc.txt", **arguments})


def test_a_path_in_the_form_of_an_id_is_told_so_that_it_can_be_passed_back(
    root: Path, open_fs: Callable[..., SkillFileSystem]
) -> None:
    write(root, {"SKILL.md": skill_md("store"), "8004": "a number\n"})
    fs = open_fs()
    path = read(fs, "/8004")["metadata"]["path"]
    assert path == "/8004"
    assert read(fs, path)["output"] == "a number\n"
    assert "\n/8004\n" in "\n" + show(fs)["output"]


def test_more_than_fits_is_cut_behind_a_line(root: Path, fs: SkillFileSystem) -> None:
    lines = [f"{number} {'é' * 990}\n" for number in range(2_500)]
    write(root, {"a/large.md": "".join(lines)})
    pages: list[str] = []
    offset: int | None = 1
    while offset is not None:
        found = read(fs, "a/large.md", offset=offset, limit=5_000)
        metadata = found["metadata"]
        assert metadata["cut"] is None
        assert len(found["output"]) <= MOST_OUTPUT
        assert found["output"].count("\n") == metadata["returned"]
        assert metadata["truncated"] is (metadata["nextOffset"] is not None)
        pages.append(found["output"])
        offset = metadata["nextOffset"]
    assert "".join(pages) == "".join(lines)
    assert len(pages) == 3


def test_a_line_that_alone_is_too_long_is_cut_and_that_is_said(root: Path, fs: SkillFileSystem) -> None:
    line = "é" * (MOST_OUTPUT + 10)
    text = f"one\n{line}\nthree\n"
    write(root, {"a/large.md": text})
    first = read(fs, "a/large.md")
    assert (first["output"], first["metadata"]["nextOffset"]) == ("one\n", 2)
    found = read(fs, "a/large.md", offset=2)
    assert found["output"] == line[:MOST_OUTPUT]
    metadata = found["metadata"]
    assert (metadata["returned"], metadata["truncated"], metadata["nextOffset"]) == (1, True, 3)
    assert metadata["cut"] == {"line": 2, "nextStart": 4 + MOST_OUTPUT}
    rest = fs.get_content("a/large.md", metadata["cut"]["nextStart"], expect_hash=metadata["hash"])
    assert rest.text == "é" * 10 + "\nthree\n"
    write(root, {"a/large.md": line})
    only = read(fs, "a/large.md")["metadata"]
    assert (only["truncated"], only["nextOffset"], only["cut"]) == (
        True,
        None,
        {"line": 1, "nextStart": MOST_OUTPUT},
    )


def test_lines_within_a_number_of_characters(fs: SkillFileSystem) -> None:
    lines = fs.get_lines("a/abc.txt", most_characters=5)
    assert (lines.text, lines.count, lines.cut_at) == ("a\nb\n", 2, None)
    assert (lines.complete, lines.next_offset, lines.size_bytes) == (False, 3, 6)
    cut = fs.get_lines("a/emoji.txt", most_characters=2_000)
    assert (cut.text[-1], cut.count, cut.cut_at) == ("😀", 1, 2_000)
    assert (cut.complete, cut.next_offset) == (False, None)
    assert fs.get_lines("a/abc.txt", most_characters=10**30).complete
    for most in (0, -1, True, "5", 1.5):
        with pytest.raises(InvalidArgumentError, match="most_characters"):
            fs.get_lines("a/abc.txt", most_characters=most)  # type: ignore[arg-type]


def test_a_large_file_takes_little_memory(root: Path, fs: SkillFileSystem) -> None:
    line = "0123456789" * 7_000_000  # over 64 MiB: up to that a file that is just written is held whole
    write(root, {"a/large.txt": f"one\n{line}\n{line[:5]}\n"})
    del line
    tracemalloc.start()
    try:
        assert read(fs, "a/large.txt", offset=2, limit=2)["metadata"]["cut"] is not None
        assert read(fs, "a/large.txt", offset=3)["output"] == "01234\n"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12 * MOST_OUTPUT


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    text=st.text(st.sampled_from("ab\n\n\r中😀\u2028"), max_size=40),
    limit=st.integers(1, 9),
    encoding=st.sampled_from(["utf-8", "utf-16"]),
)
def test_pages_of_any_size_are_the_whole_file(
    fs: SkillFileSystem, text: str, limit: int, encoding: str
) -> None:
    write(Path(fs.roots[0]), {"a/page.txt": text.encode(encoding)})
    pages = []
    offset: int | None = 1
    while offset is not None:
        found = read(fs, "a/page.txt", offset=offset, limit=limit)
        pages.append(found["output"])
        offset = found["metadata"]["nextOffset"]
    assert "".join(pages) == text


def test_what_may_not_be_read_is_a_failure(root: Path, fs: SkillFileSystem) -> None:
    (root / "a" / "abc.txt").chmod(0)
    with bound_by_permissions():
        assert read(fs, "a/abc.txt")["error"]["code"] == "unreadable"
    assert read(fs, "a/open.txt")["success"]


# -- list_files --------------------------------------------------------------------------------------------


def test_one_level_shows_files_and_folders(fs: SkillFileSystem) -> None:
    found = show(fs)
    assert found["output"] == "/8004/\na/\nb/\n(3 entries)"
    assert [entry["path"] for entry in found["metadata"]["entries"]] == ["/8004", "a", "b"]
    assert [entry["kind"] for entry in found["metadata"]["entries"]] == ["skill", "skill", "folder"]
    found = show(fs, directoryPath="a/references/")
    assert found["output"] == "a/references/[x].{md}\na/references/output-schema.md\n(2 entries)"
    assert found["metadata"] == {
        "path": "a/references",
        "entries": [
            {
                "path": path,
                "name": path.rpartition("/")[2],
                "kind": "file",
                "uuid": fs.entry(path).uuid,
                "id": fs.entry(path).id,
            }
            for path in ("a/references/[x].{md}", "a/references/output-schema.md")
        ],
        "total": 2,
        "returned": 2,
        "truncated": False,
        "cursor": None,
    }


def test_globs_choose_files_and_leave_folders(fs: SkillFileSystem) -> None:
    lines = show(fs, directoryPath="a", includeGlob="*.{md,png}", excludeGlob="SKILL.md")[
        "output"
    ].splitlines()
    assert lines == [
        "a/linked/ -> a/references",
        "a/linked.md -> a/references/output-schema.md",
        "a/picture.png",
        "a/references/",
        "a/scripts/",
        "a/void/",
        "(6 entries)",
    ]
    assert (
        show(fs, directoryPath="a", includeGlob="*.md, *.png", excludeGlob="SKILL.md")["output"].splitlines()
        == lines
    )


def test_recursion_shows_files_alone(fs: SkillFileSystem) -> None:
    found = show(fs, recursive=True, includeGlob="*.md,*.py", excludeGlob="**/lib/**")
    assert found["output"].splitlines() == [
        "8004/SKILL.md",
        "a/SKILL.md",
        "a/linked.md -> a/references/output-schema.md",
        "a/references/output-schema.md",
        "a/scripts/run.py",
        "b/c/SKILL.md",
        "(6 files; links to folders are not entered, list them by themselves: a/linked/)",
    ]
    assert {entry["kind"] for entry in found["metadata"]["entries"]} == {"file"}
    assert found["metadata"]["entries"][2]["link"] == "a/references/output-schema.md"
    everything = show(fs, recursive=True)["metadata"]["entries"]
    assert show(fs, recursive=True, includeGlob="")["metadata"]["entries"] == everything
    assert not any("hidden" in entry["path"] for entry in everything)


def test_hidden_names_are_shown_when_asked_for(fs: SkillFileSystem) -> None:
    assert "a/.hidden/" not in show(fs, directoryPath="a")["output"].splitlines()
    assert "a/.hidden/" in show(fs, directoryPath="a", includeHidden=True)["output"].splitlines()
    found = show(fs, directoryPath="a", recursive=True, includeHidden=True, includeGlob="deep.md")
    assert found["output"].startswith("a/.hidden/deep.md\n(1 file; links to folders are not entered")


def test_details(fs: SkillFileSystem) -> None:
    found = show(fs, directoryPath="a", includeGlob="chinese.txt,picture.png", showDetails=True)
    by_name = {entry["name"]: entry for entry in found["metadata"]["entries"]}
    data = (FILES["a/chinese.txt"]).encode()  # type: ignore[union-attr]
    chinese = by_name["chinese.txt"]
    assert (chinese["size"], chinese["characters"]) == (len(data), 350)
    assert chinese["hash"] == hashlib.md5(data).hexdigest()
    assert chinese["modified"].startswith("20")
    assert by_name["picture.png"]["characters"] is None
    assert "a/chinese.txt  (1050 bytes, 350 characters, 20" in found["output"]
    assert "a/picture.png  (16 bytes, 20" in found["output"]


def test_details_read_the_files_of_the_page_alone(
    fs: SkillFileSystem, open_fs: Callable[..., SkillFileSystem]
) -> None:
    # What is learned of a file that is too young to be vouched for is forgotten when that is over.
    time.sleep(0.1)
    fs = open_fs(max_age=600)
    show(fs, directoryPath="a", includeGlob="abc.txt", showDetails=True)
    show(fs, recursive=True, includeGlob="*.txt", showDetails=True, maxResults=2)
    read_paths = [path for path in fs.find("a") if fs.entry(fs.info(path)["uuid"]).md5 is not None]
    assert read_paths == ["a/600.txt", "a/abc.txt"]


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ({"directoryPath": "a/void"}, "(empty)"),
        ({"directoryPath": "a/void", "recursive": True}, "(empty)"),
        ({"directoryPath": "a/references", "includeGlob": "*.zip"}, "(nothing matches)"),
        ({"directoryPath": "a/scripts", "includeGlob": "*.zip", "recursive": True}, "(nothing matches)"),
        ({"directoryPath": "a/references", "excludeGlob": "*"}, "(nothing matches)"),
        ({"directoryPath": "a/.hidden"}, "a/.hidden/deep.md\n(1 entry)"),
    ],
)
def test_empty_and_no_match_read_differently(
    fs: SkillFileSystem, arguments: dict[str, Any], output: str
) -> None:
    assert show(fs, **arguments)["output"] == output


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"directoryPath": "zz"}, "not_found"),
        ({"directoryPath": "loose"}, "not_found"),
        ({"directoryPath": "/etc"}, "not_found"),
        ({"directoryPath": "a/abc.txt"}, "is_file"),
        ({"directoryPath": ""}, "invalid_argument"),
        ({"directoryPath": "a/.."}, "invalid_argument"),
        ({"cursor": "nonsense"}, "invalid_argument"),
        ({"includeGlob": "x" * 5_000}, "invalid_argument"),
        ({"includeGlob": "{a,b}" * 30}, "invalid_argument"),
    ],
)
def test_listings_that_fail(fs: SkillFileSystem, arguments: dict[str, Any], code: str) -> None:
    for recursive in (False, True):
        assert show(fs, recursive=recursive, **arguments)["error"]["code"] == code


def test_a_folder_of_folders_alone(root: Path, fs: SkillFileSystem) -> None:
    (root / "a" / "void" / "inner").mkdir()
    fs.sync()
    assert show(fs, directoryPath="a/void")["output"] == "a/void/inner/\n(1 entry)"
    assert show(fs, directoryPath="a/void", recursive=True)["output"] == "(no files, only folders)"


@pytest.mark.parametrize(
    "arguments",
    [
        {"recursive": True},
        {"directoryPath": "a"},
        {"directoryPath": "a", "includeGlob": "*.txt", "excludeGlob": "[0-9]*"},
        {"recursive": True, "includeGlob": "*.md,*.txt"},
    ],
)
@pytest.mark.parametrize("details", [False, True])
@pytest.mark.parametrize("most", [1, 2, 5])
def test_pages_are_the_whole_listing(
    fs: SkillFileSystem, arguments: dict[str, Any], details: bool, most: int
) -> None:
    whole = show(fs, showDetails=details, **arguments)["metadata"]
    found: list[Any] = []
    cursor: dict[str, Any] = {}
    while True:
        page = show(fs, showDetails=details, maxResults=most, **cursor, **arguments)
        metadata = page["metadata"]
        assert metadata["total"] == whole["total"] == len(whole["entries"])
        assert metadata["returned"] == len(metadata["entries"]) <= most
        found += metadata["entries"]
        assert metadata["truncated"] is (metadata["cursor"] is not None)
        last = page["output"].splitlines()[-1]
        if metadata["cursor"] is None:
            assert last.startswith("(the last ")
            break
        assert f"{metadata['returned']} of {metadata['total']} " in last
        assert metadata["cursor"] in last
        cursor = {"cursor": metadata["cursor"]}
    assert found == whole["entries"]


def test_a_cursor_behind_the_end_says_that_there_are_no_more(root: Path, fs: SkillFileSystem) -> None:
    write(root, {"a/pages/1": "", "a/pages/2": ""})
    fs.sync()
    cursor = show(fs, directoryPath="a/pages", maxResults=1)["metadata"]["cursor"]
    os.remove(root / "a/pages/2")
    fs.sync()
    found = show(fs, directoryPath="a/pages", maxResults=1, cursor=cursor)
    assert found["output"] == "(no more entries; there are 1 in all)"


@pytest.mark.parametrize("limit", [0, -1, True, "5"])
def test_a_listing_of_no_entries_is_refused(fs: SkillFileSystem, limit: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="limit"):
        listing(fs, directory="a", limit=limit)


def test_a_cursor_of_another_folder_is_refused(fs: SkillFileSystem) -> None:
    cursor = show(fs, directoryPath="a", maxResults=1)["metadata"]["cursor"]
    assert show(fs, directoryPath="a/references", cursor=cursor)["error"]["code"] == "invalid_argument"
    for odd in (cursor[:-1], cursor + "A", "é", "\ud800", ""):
        assert show(fs, directoryPath="a", cursor=odd)["error"]["code"] == "invalid_argument"


def test_what_a_call_is_for_changes_nothing(fs: SkillFileSystem) -> None:
    plain = show(fs)
    assert show(fs, description="To look around.", sequential="Then read a/SKILL.md.") == plain


@pytest.mark.parametrize(
    "arguments",
    [{"maxResults": 0}, {"maxResults": 5_001}, {"recursive": "true"}, {"depth": 2}, {"basePathIds": []}],
)
def test_malformed_listings_are_refused(fs: SkillFileSystem, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(arguments))):
        show(fs, **arguments)


def test_names_cannot_break_a_line(root: Path, fs: SkillFileSystem) -> None:
    write(root, {"a/odd/x\n(9 files)": "", "a/odd/\u202eflip": ""})
    fs.sync()
    lines = show(fs, directoryPath="a/odd")["output"].splitlines()
    assert lines == ['"a/odd/x\\n(9 files)"', '"a/odd/\\342\\200\\256flip"', "(2 entries)"]


def test_names_cannot_pass_for_links_details_or_totals(
    root: Path, open_fs: Callable[..., SkillFileSystem]
) -> None:
    write(root, {"SKILL.md": skill_md("store"), "(9 files)": "", "a -> b": "", 'c  (9 bytes)"': "", "d": ""})
    (root / "e").symlink_to("a -> b")
    assert show(open_fs())["output"].splitlines() == [
        '"(9 files)"', "SKILL.md", '"a -> b"', '"c  (9 bytes)\\""', "d", 'e -> "a -> b"', "(6 entries)",
    ]  # fmt: skip


def test_links_to_folders_are_told_where_they_are_not_entered(root: Path, fs: SkillFileSystem) -> None:
    said = "links to folders are not entered, list them by themselves: "
    plain = show(fs, directoryPath="a", recursive=True)["output"].splitlines()
    assert plain[-1].endswith(f" files; {said}a/linked/)")
    assert "a/linked/output-schema.md" not in plain
    for arguments in ({"includeGlob": "*.zip"}, {"maxResults": 1}, {"showDetails": True}):
        last = show(fs, directoryPath="a", recursive=True, **arguments)["output"].splitlines()[-1]
        assert said in last
    for arguments in ({"excludeGlob": "linked"}, {"recursive": False}):
        assert said not in show(fs, **{"directoryPath": "a", "recursive": True, **arguments})["output"]
    assert said not in str(answer(fs, "list_files", {"recursive": True}, fixed={"basePathIds": ["b"]}))
    for number in range(6):
        (root / "a" / f"to{number}").symlink_to("references")
    fs.sync()
    assert show(fs, directoryPath="a", recursive=True)["output"].endswith("a/to3/ and 2 more)")


def test_a_page_follows_on_another_when_the_folder_was_moved_between_them(
    root: Path, fs: SkillFileSystem
) -> None:
    uuid = fs.entry("a").uuid
    whole = [entry["name"] for entry in show(fs, directoryPath=uuid)["metadata"]["entries"]]
    first = show(fs, directoryPath=uuid, maxResults=3)["metadata"]
    (root / "a").rename(root / "A")
    fs.sync()
    rest = show(fs, directoryPath=uuid, cursor=first["cursor"])["metadata"]
    assert [entry["name"] for entry in first["entries"] + rest["entries"]] == whole


def test_more_results_are_offered_only_where_they_can_be_had(
    fs: SkillFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillfs.tools.listing.MOST_RESULTS", 3)
    assert "raise maxResults" in show(fs, directoryPath="a", maxResults=2)["output"].splitlines()[-1]
    last = show(fs, directoryPath="a", maxResults=3)["output"].splitlines()[-1]
    assert "; go on with cursor" in last
    assert "maxResults" not in last


def test_a_file_without_details_is_listed_without_them(
    root: Path, fs: SkillFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_tree = fs.skill_tree

    def look_and_remove(*arguments: Any, **options: Any) -> Any:
        found = true_tree(*arguments, **options)
        (root / "a" / "abc.txt").unlink(missing_ok=True)
        fs.sync()
        return found

    monkeypatch.setattr(fs, "skill_tree", look_and_remove)
    found = show(fs, directoryPath="a", showDetails=True)
    assert "a/abc.txt\n" in found["output"]
    assert "None" not in found["output"]
    assert found["output"].endswith("; 1 file of these could not be read for details)")


def test_details_that_cannot_be_had_are_told_of(root: Path, fs: SkillFileSystem) -> None:
    assert "details" not in show(fs, directoryPath="a", showDetails=True)["output"]
    (root / "a" / "600.txt").chmod(0)
    fs.sync()
    with bound_by_permissions():
        found = show(fs, directoryPath="a", showDetails=True, includeGlob="*.txt")
    assert found["output"].endswith(" entries; 1 file of these could not be read for details)")
    assert "characters" in found["output"]


def test_what_is_told_fits_into_the_integers_of_json_readers(fs: SkillFileSystem) -> None:
    metadata = read(fs, "a/abc.txt", offset=10**30, limit=10**30)["metadata"]
    assert max(value for value in metadata.values() if isinstance(value, int)) < 2**63


# -- base paths and several stores -------------------------------------------------------------------------


def test_fixed_base_paths_confine_both(fs: SkillFileSystem) -> None:
    fixed = {"basePathIds": ["b"]}
    found = answer(fs, "list_files", {"recursive": True}, fixed=fixed)
    assert found.structured["output"] == "b/c/SKILL.md\n(1 file)"
    outside = answer(fs, "read_file", {"path": "a/abc.txt"}, fixed=fixed)
    missing = answer(fs, "read_file", {"path": "a/abc.txt"}, fixed={"basePathIds": []})
    assert outside.structured == missing.structured
    assert outside.structured["error"]["code"] == "not_found"
    assert answer(fs, "read_file", {"path": "b/c/SKILL.md"}, fixed=fixed).structured["success"]
    with pytest.raises(InvalidArgumentError, match="basePathIds"):
        answer(fs, "read_file", {"path": "a/abc.txt", "basePathIds": ["a"]}, fixed=fixed)


def test_of_several_stores(root: Path, tmp_path: Path) -> None:
    write(root, FILES)
    other = write(tmp_path / "other", {"z/SKILL.md": skill_md("z"), "z/one.txt": "1\n2\n"})
    fs = SkillFileSystem({"own": root, "more": other}, index=":memory:", skip_instance_cache=True)
    assert show(fs)["output"] == "more/\nown/\n(2 entries)"
    assert (
        show(fs, recursive=True, includeGlob="*.txt", directoryPath="more")["output"]
        == "more/z/one.txt\n(1 file)"
    )
    first = show(fs, recursive=True, maxResults=1)
    assert first["output"].startswith("more/z/SKILL.md\n(1 of ")
    second = show(fs, recursive=True, maxResults=1, cursor=first["metadata"]["cursor"])
    assert second["output"].startswith("more/z/one.txt\n(1 of ")
    assert read(fs, "more/z/one.txt", offset=2)["metadata"]["path"] == "more/z/one.txt"
    assert read(fs, "more/z/none")["error"]["code"] == "not_found"
    missing = read(fs, f"{other}/z/none")
    assert missing["metadata"]["path"] == '"more/z/none"'
    assert '"more/z/none"' in missing["error"]["message"]
    assert read(fs, str(other))["metadata"]["path"] == '"more"'
