"""The entries of skills, their pages, and what is left out: in this process, without a transport."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError

from skillfs import SkillFileSystem
from skillfs.core.frontmatter import HEAD_LIMIT
from skillfs.errors import ChangedError
from skillfs.faces.mcp import skills as skills_module
from skillfs.faces.mcp.listed import Listed
from skillfs.faces.mcp.resources import MOST_BYTES, Resources
from skillfs.faces.mcp.server import cleaned, make_server
from skillfs.faces.mcp.skills import SKIPPED, Skills
from skillfs.faces.mcp.uris import cursor_of, media_type, path_of, place_of, uri_of
from skillfs.faces.mcp.verbatim import Unfit, front_matter_of
from tests.conftest import skill_md, write
from tests.privileges import bound_by_permissions
from tests.servers.s3 import Bucket

Open = Callable[..., SkillFileSystem]


def front(text: str, folder: str = "a") -> dict[str, Any]:
    return front_matter_of(f"---\n{text}---\nBody.\n".encode(), folder)


# -- front matter ------------------------------------------------------------------------------------------

HEAD = "name: a\ndescription: b\n"


def test_front_matter_keeps_its_types() -> None:
    text = HEAD + (
        "version: 1.10\ncount: 3\non-demand: yes\nnothing: null\ntext: '1.10'\nempty:\n"
        "metadata:\n  author: x\n  deep: {list: [1, two, 3.5, false]}\nallowed-tools: Bash(git:*) Read\n"
        "long: |\n  two\n  lines\n"
    )
    assert front(text) == yaml.safe_load(text)
    assert front(text)["version"] == 1.1
    assert front(text)["on-demand"] is True
    assert list(front(text)) == list(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name: a\n", "description"),
        ("description: b\n", "name is missing"),
        ("name: A\ndescription: b\n", "name is not 1 to 64"),
        ("name: b\ndescription: b\n", "not the name of the folder"),
        ("name: a\ndescription: ''\n", "description"),
        ("name: a\ndescription: 5\n", "description is no text"),
        ("name: a\ndescription: [x]\n", "description is no text"),
        (HEAD + "name: a\n", "stands twice"),
        (HEAD + "m: {x: 1, x: 2}\n", "stands twice"),
        (HEAD + "date: 2026-01-02\n", "date"),
        (HEAD + "date: 2026-13-45\n", "plain YAML"),
        (HEAD + "time: 2026-01-02 03:04:05\n", "datetime"),
        (HEAD + "x: .inf\n", "number"),
        (HEAD + "x: .nan\n", "number"),
        (HEAD + "x: 9007199254740993\n", "number"),
        (HEAD + f"x: {'9' * 5_000}\n", "YAML"),
        (HEAD + "x: &a 1\ny: *a\n", "plain YAML"),
        (HEAD + "x: !!binary aGk=\n", "plain YAML"),
        (HEAD + "x: !!python/object/apply:os.system [true]\n", "plain YAML"),
        (HEAD + "x: !!set {a, b}\n", "plain YAML"),
        (HEAD + "<<: {x: 1}\n", "plain YAML"),
        (HEAD + "1: x\n", "a key of the front matter is no text"),
        (HEAD + "yes: x\n", "a key of the front matter is no text"),
        (HEAD + "x: Configure: this\n", "plain YAML"),
        (HEAD + "x: [action] - e.g.\n", "plain YAML"),
        (HEAD + "x: a\u2028y\n", "line breaks"),
        (HEAD + "x: a\u0085y\n", "line breaks"),
        ("- a\n", "plain YAML"),
        ("[" * 20_000 + "\n", "plain YAML"),
        ("\ttab: x\n", "plain YAML"),
        (HEAD + "x: " + "{a: " * 40 + "1" + "}" * 40 + "\n", "too large"),
        (HEAD + "x: 1\n" * 1_001, "too large"),
        (HEAD + f"x: {'y' * 70_000}\n", "too large"),
        (HEAD + 'x: "\\ud800"\n', "YAML"),
    ],
)
def test_front_matter_that_makes_a_skill_unfit(text: str, reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        front(text)


@pytest.mark.parametrize("data", [b"", b"---\n", b"# Title\n", b"---\nname: a\n", b"\xff", b"---\n\0\n---\n"])
def test_a_file_without_front_matter_is_unfit(data: bytes) -> None:
    with pytest.raises(Unfit):
        front_matter_of(data, "a")


def test_front_matter_tolerates_what_skillfs_does() -> None:
    plain = HEAD.replace("\n", "\r\n")
    assert front_matter_of(f"\ufeff---\r\n{plain}--- \r\nBody".encode(), "a") == yaml.safe_load(HEAD)
    long = f"---\n{HEAD}---\n".encode() + b"x" * (2 * HEAD_LIMIT)
    assert front_matter_of(long, "a") == yaml.safe_load(HEAD)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
def test_what_front_matter_holds_comes_out_as_json_or_not_at_all(value: object) -> None:
    text = yaml.safe_dump({"name": "a", "description": "b", "x": value}, allow_unicode=True, sort_keys=False)
    try:
        found = front(text)
    except Unfit:
        return
    assert found == yaml.safe_load(text)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@given(st.binary(max_size=300))
def test_no_front_matter_raises_anything_else(data: bytes) -> None:
    for head in (data, b"---\n" + data + b"\n---\n", b"---\nname: a\ndescription: b\n" + data + b"\n---\n"):
        with contextlib.suppress(Unfit):
            json.dumps(front_matter_of(head, "a"), allow_nan=False)


# -- entries -----------------------------------------------------------------------------------------------


def pages(skills: Skills) -> tuple[list[dict], dict[str, str]]:
    found, skipped, cursor, number = [], {}, None, 0
    while True:
        page = skills.page(cursor)
        found += page["skills"]
        skipped.update((item["uri"], item["reason"]) for item in page.get("_meta", {}).get(SKIPPED, ()))
        cursor = page.get("nextCursor")
        number += 1
        assert number < 100
        if cursor is None:
            return found, skipped


def skills_of(fs: SkillFileSystem) -> Skills:
    return Skills(fs, Listed(fs))


def test_limits_of_a_skill(root: Path, open_fs: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skills_module, "MOST_FILES", 3)
    monkeypatch.setattr(skills_module, "MOST_BYTES", 1_000)
    head = skill_md("a")
    write(root, {f"{name}/SKILL.md": skill_md(name) for name in ("just", "many", "large", "full")})
    write(root, {"just/1": "", "just/2": "", "many/1": "", "many/2": "", "many/3": ""})
    write(root, {"large/x": b"x" * (1_001 - len(skill_md("large")))})
    write(root, {"full/x": b"x" * (1_000 - len(skill_md("full")))})
    found, skipped = pages(skills_of(open_fs()))
    assert head
    assert [skill["uri"] for skill in found] == ["skill://full/SKILL.md", "skill://just/SKILL.md"]
    assert skipped["skill://many/SKILL.md"] == "it holds 4 files, and the extension allows 3"
    assert "1,001 bytes" in skipped["skill://large/SKILL.md"]


def test_the_limits_are_those_of_the_extension() -> None:
    assert skills_module.MOST_FILES == 512
    assert skills_module.MOST_BYTES == 16_777_216


def test_a_skill_over_the_limits_is_not_read(
    root: Path, open_fs: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, {"a/SKILL.md": skill_md("a"), **{f"a/{number}": "" for number in range(512)}})
    fs = open_fs()
    monkeypatch.setattr(fs, "manifest", lambda *_: pytest.fail("it was hashed"))
    assert pages(skills_of(fs))[0] == []


def test_what_is_left_out_is_told_once_and_served_otherwise(
    root: Path, open_fs: Open, caplog: pytest.LogCaptureFixture
) -> None:
    write(root, {"good/SKILL.md": skill_md("good"), "wrong/SKILL.md": skill_md("other"), "wrong/x.md": "x\n"})
    fs = open_fs(max_age=0)
    listed = Listed(fs)
    skills, resources = Skills(fs, listed), Resources(fs, listed)
    with caplog.at_level(logging.WARNING, "skillfs"):
        for _ in range(3):
            assert list(pages(skills)[1]) == ["skill://wrong/SKILL.md"]
    assert [r.getMessage() for r in caplog.records] == [
        'left out of skills/list: "wrong": name is not the name of the folder'
    ]
    assert "skill://wrong/x.md" in [r["uri"] for r in resources.page(None)["resources"]]
    assert resources.read("skill://wrong/x.md")["contents"][0]["text"] == "x\n"
    (root / "wrong/SKILL.md").write_text(skill_md("wrong"))
    assert pages(skills)[1] == {}
    assert skills.get("skill://wrong/SKILL.md")["skill"]["frontmatter"]["name"] == "wrong"


def test_a_store_that_is_a_skill_itself(root: Path, open_fs: Open) -> None:
    write(root, {"SKILL.md": skill_md("store"), "x.md": "x\n", "inner/SKILL.md": skill_md("inner")})
    fs = open_fs()
    found, skipped = pages(skills_of(fs))
    assert [skill["uri"] for skill in found] == ["skill://inner/SKILL.md"]
    assert list(skipped) == ["skill://SKILL.md"]
    resources = Resources(fs, Listed(fs)).page(None)["resources"]
    assert [r["uri"] for r in resources] == ["skill://SKILL.md", "skill://inner/SKILL.md", "skill://x.md"]


def test_a_file_that_cannot_be_read(root: Path, open_fs: Open) -> None:
    write(root, {"a/SKILL.md": skill_md("a"), "a/x.md": "x\n"})
    (root / "a/x.md").chmod(0)
    with bound_by_permissions():
        assert pages(skills_of(open_fs()))[1] == {"skill://a/SKILL.md": "a file of it cannot be read"}


def test_an_entry_is_of_one_version(root: Path, open_fs: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, {"a/SKILL.md": skill_md("a", "old")})
    fs = open_fs(max_age=0)
    manifest = fs.manifest
    count = 0

    def change_meanwhile(ref: object) -> object:
        nonlocal count
        count += 1
        (root / "a/SKILL.md").write_text(skill_md("a", f"new {count}"))
        return manifest(ref)

    monkeypatch.setattr(fs, "manifest", change_meanwhile)
    assert pages(skills_of(fs))[1] == {"skill://a/SKILL.md": "it changes faster than it can be read"}
    monkeypatch.setattr(fs, "manifest", lambda ref: change_meanwhile(ref) if count < 4 else manifest(ref))
    (entry,) = pages(skills_of(fs))[0]
    data = (root / "a/SKILL.md").read_bytes()
    assert entry["frontmatter"]["description"] == "new 4"
    assert entry["resources"][0]["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"

    def refuse(ref: object) -> object:
        raise ChangedError("it changes")

    monkeypatch.setattr(fs, "manifest", refuse)
    assert list(pages(skills_of(fs))[1]) == ["skill://a/SKILL.md"]


def test_what_is_known_of_a_remote_store_is_not_asked_for_again(bucket: Bucket) -> None:
    for name in ("a", "b"):
        bucket.put(f"{name}/SKILL.md", skill_md(name).encode())
    fs = SkillFileSystem(bucket.url, target_options=bucket.server.target_options, index=":memory:")
    skills = Skills(fs, Listed(fs))
    first = skills.page(None)
    with bucket.server.recorded() as requests:
        assert skills.page(None) == first
    assert not requests.counts
    # Who asks for one skill has it as it is now, and the list is no older then.
    bucket.put("a/SKILL.md", skill_md("a").encode() + b"More.\n")
    entry = skills.get("skill://a/SKILL.md")["skill"]
    data = fs.cat_file("a/SKILL.md")
    assert entry["resources"][0]["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert skills.page(None)["skills"] == [entry, first["skills"][1]]


def test_front_matter_that_changed_is_read_again(
    root: Path, open_fs: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skills_module, "_MOST_KEPT", 1)
    write(root, {f"{name}/SKILL.md": skill_md(name) for name in "abc"})
    fs = open_fs()
    skills = Skills(fs, Listed(fs))
    assert [skill["frontmatter"]["name"] for skill in skills.page(None)["skills"]] == ["a", "b", "c"]
    (root / "c/SKILL.md").write_text("---\nname: c\ndescription: Another.\n---\n")
    fs.sync()
    assert skills.page(None)["skills"][2]["frontmatter"]["description"] == "Another."
    (root / "c/SKILL.md").write_text("---\nname: c\n---\n")
    fs.sync()
    assert len(skills.page(None)["skills"]) == 2


def test_names_that_no_uri_can_spell(root: Path, open_fs: Open) -> None:
    write(root, {"a/SKILL.md": skill_md("a"), "a/x\ny.md": "x\n", "b/SKILL.md": skill_md("b")})
    write(root, {"\x1b/c/SKILL.md": skill_md("c")})
    fs = open_fs()
    found, skipped = pages(skills_of(fs))
    assert [skill["uri"] for skill in found] == ["skill://b/SKILL.md"]
    assert skipped == {
        "skill://a/SKILL.md": "a file of it has a name that no URI can spell",
        "skill://%1B/c/SKILL.md": "it lies in a folder with a name that no URI can spell",
    }
    resources = Resources(fs, Listed(fs))
    assert len(resources.page(None)["resources"]) == 2
    assert len(resources.directory("skill://a", None)["resources"]) == 1


# -- pages -------------------------------------------------------------------------------------------------


def test_pages_hold_every_skill_once(root: Path, open_fs: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skills_module, "PAGE_LOOKS", 7)
    monkeypatch.setattr(skills_module, "PAGE_SKILLS", 4)
    monkeypatch.setattr("skillfs.faces.mcp.resources.PAGE", 5)
    names = [f"s{number}" if number % 3 else f"g-{number}/s{number}" for number in range(40)]
    write(root, {f"{name}/SKILL.md": skill_md(name.rpartition("/")[2]) for name in names})
    write(root, {f"x{number}/SKILL.md": "no front matter\n" for number in range(20)})
    fs = open_fs()
    found, skipped = pages(skills_of(fs))
    expected = sorted((uri_of(f"{name}/SKILL.md") for name in names), key=lambda uri: uri.replace("/", "\0"))
    assert [skill["uri"] for skill in found] == expected
    assert len(skipped) == 20
    resources = Resources(fs, Listed(fs))
    uris: list[str] = []
    cursor = None
    while True:
        page = resources.page(cursor)
        uris += [r["uri"] for r in page["resources"]]
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    assert sorted(uris) == sorted([*expected, *skipped])
    children: list[str] = []
    while True:
        page = resources.directory("skill://", cursor)
        children += [r["name"] for r in page["resources"]]
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    assert children == sorted({name.partition("/")[0] for name in names} | {f"x{n}" for n in range(20)})


def test_a_page_goes_on_where_skills_came_and_went(
    root: Path, open_fs: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skills_module, "PAGE_SKILLS", 2)
    write(root, {f"{name}/SKILL.md": skill_md(name) for name in "bdfh"})
    skills = skills_of(open_fs(max_age=0))
    first = skills.page(None)
    (root / "d/SKILL.md").unlink()
    write(root, {f"{name}/SKILL.md": skill_md(name) for name in "ae"})
    second = skills.page(first["nextCursor"])
    assert [skill["uri"] for skill in second["skills"]] == ["skill://e/SKILL.md", "skill://f/SKILL.md"]


def test_all_skills_are_asked_for_only_where_that_may_have_changed(
    root: Path, open_fs: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skills_module, "PAGE_SKILLS", 1)
    write(root, {f"{name}/SKILL.md": skill_md(name) for name in "abcdef"})
    fs = open_fs(max_age=0)
    asked = []
    all_skills = fs.skills
    monkeypatch.setattr(fs, "skills", lambda: asked.append(1) or all_skills())
    skills = skills_of(fs)
    assert len(pages(skills)[0]) == 6
    assert len(asked) == 1
    (root / "a/SKILL.md").write_text(skill_md("a", "changed"))
    (root / "b/x.md").write_text("new")
    found = pages(skills)[0]
    assert len(asked) == 1
    assert found[0]["frontmatter"]["description"] == "changed"
    assert len(found[1]["resources"]) == 2
    write(root, {"g/SKILL.md": skill_md("g")})
    (root / "c").rename(root / "z")
    assert len(pages(skills)[0]) == 6  # z is not its name
    assert len(asked) == 2


def test_a_large_file_is_not_read_as_a_resource(root: Path, open_fs: Open) -> None:
    write(root, {"a/SKILL.md": skill_md("a"), "a/just.bin": b"x" * MOST_BYTES, "a/over.bin": b""})
    os.truncate(root / "a/over.bin", MOST_BYTES + 1)
    fs = open_fs()
    resources = Resources(fs, Listed(fs))
    assert len(resources.read("skill://a/just.bin")["contents"][0]["text"]) == MOST_BYTES
    with pytest.raises(MCPError, match="skill_get_content"):
        resources.read("skill://a/over.bin")


def test_several_stores(tmp_path: Path) -> None:
    write(tmp_path / "one", {"a/SKILL.md": skill_md("a")})
    write(tmp_path / "two", {"a/SKILL.md": skill_md("a"), "SKILL.md": skill_md("second"), "x": "x"})
    fs = SkillFileSystem(
        {"first": tmp_path / "one", "second": tmp_path / "two"}, index=":memory:", max_age=0
    )  # fmt: skip
    found, skipped = pages(skills_of(fs))
    assert [skill["uri"] for skill in found] == [
        "skill://first/a/SKILL.md", "skill://second/SKILL.md", "skill://second/a/SKILL.md"
    ]  # fmt: skip
    assert skipped == {}
    assert skills_of(fs).get("skill://second/SKILL.md")["skill"] == found[1]
    resources = Resources(fs, Listed(fs))
    assert [r["uri"] for r in resources.directory("skill://", None)["resources"]] == [
        "skill://first", "skill://second"
    ]  # fmt: skip
    assert len(resources.page(None)["resources"]) == 4
    make_server(fs)


# -- URIs --------------------------------------------------------------------------------------------------

PART = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(st.lists(PART, min_size=1, max_size=4))
def test_a_uri_names_its_path(parts: list[str]) -> None:
    path = "/".join(parts)
    uri = uri_of(path)
    assert uri.isascii()
    assert not set(uri[8:]) & set(' "<>\\^`{|}#?%[]') - {"%"}
    assert path_of(uri) == path


@given(st.text())
def test_anything_is_a_cursor_or_refused(text: str) -> None:
    with contextlib.suppress(MCPError):
        assert isinstance(place_of("files", text), str)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_cursor_keeps_its_place(place: str) -> None:
    assert place_of("files", cursor_of("files", place)) == place


@pytest.mark.parametrize(
    ("name", "kind"),
    [("SKILL.md", "text/markdown"), ("a.tar.gz", "application/gzip"), ("a.png", "image/png"), ("a", None),
     ("a.py", "text/x-python"), ("http://x/a.md", "text/markdown"), ("data:,x", None),
     ("a.JSON", "application/json")],
)  # fmt: skip
def test_media_types(name: str, kind: str | None) -> None:
    assert media_type(name) == kind


@given(
    st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=9)
)
def test_cleaned_values_can_be_encoded(value: object) -> None:
    json.dumps(cleaned(value), ensure_ascii=False).encode()


def test_cleaning_leaves_alone_what_is_clean() -> None:
    value = {"a": ["ä", 1, None, {"b": "😀"}]}
    assert cleaned(value) == value
    assert cleaned("a\ud800b") == "a\ufffdb"
