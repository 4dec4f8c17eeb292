"""The tools that read skills, called as a model calls them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillfs import (
    ChangedError,
    Content,
    InvalidArgumentError,
    IsFileError,
    IsFolderError,
    NotFoundError,
    NotTextError,
    SkillFileSystem,
)
from skillfs.tools import TOOLS, answer, call
from skillfs.tools.skills import MOST_CHANGES, MOST_CHARACTERS, MOST_SECTIONS
from tests.conftest import skill_md, write

SAMPLES = Path(__file__).parent.parent.parent / "sample_skills"
LARGE = "unicode-lookup/references/unicode-table.md"
TEXT = "erste\r\nzweite 😀\n=== END OF FILE ===\ndritte"


@pytest.fixture
def fs(root: Path, open_fs: Callable[..., SkillFileSystem]) -> SkillFileSystem:
    files: dict[str, str | bytes] = {
        "a/SKILL.md": skill_md("a"),
        "a/text.md": TEXT,
        "a/picture.png": b"\x89PNG\r\n\x1a\n\0",
        "a/b/SKILL.md": skill_md("b"),
        "c/SKILL.md": skill_md("c"),
        "outside.md": "outside\n",
    }
    write(root, files)
    return open_fs()


@pytest.fixture(scope="module")
def samples() -> SkillFileSystem:
    return SkillFileSystem(SAMPLES, index=":memory:", skip_instance_cache=True)


def structured(fs: SkillFileSystem, name: str, **arguments: Any) -> dict[str, Any]:
    found = answer(fs, name, arguments)
    assert not found.failed
    assert json.loads(json.dumps(found.structured)) == found.structured
    return found.structured


# -- skill_get_content -------------------------------------------------------------------------------------


def test_content_is_in_the_raw_format_exactly(fs: SkillFileSystem) -> None:
    whole = fs.get_content("a/text.md")
    text = call(fs, "skill_get_content", {"id": "a/text.md", "start": 7, "length": 8})
    assert text == (
        "=== FILE METADATA ===\n"
        f"uuid: {whole.uuid}\n"
        "name: text.md\n"
        f"hash: {whole.hash}\n"
        f"size: {len(TEXT)}\n"
        "start: 7\n"
        "length: 8\n"
        f"skillFolderUuid: {fs.entry('a').uuid}\n"
        "=== FILE CONTENT ===\n"
        "zweite 😀\n"
        "=== END OF FILE ==="
    )
    assert Content.parse(call(fs, "skill_get_content", {"id": whole.uuid})) == whole  # type: ignore[arg-type]


def test_the_structured_result_says_what_follows(fs: SkillFileSystem) -> None:
    found = structured(fs, "skill_get_content", id="a/text.md", length=5)
    assert (found["text"], found["length"], found["size"]) == ("erste", 5, len(TEXT))
    assert (found["complete"], found["next_start"], found["path"]) == (False, 5, "a/text.md")
    last = structured(fs, "skill_get_content", id="a/text.md", start=5)
    assert (last["complete"], last["next_start"]) == (True, None)
    past = structured(fs, "skill_get_content", id="a/text.md", start=10**30)
    assert (past["text"], past["complete"]) == ("", True)


@pytest.mark.parametrize("length", [None, MOST_CHARACTERS, MOST_CHARACTERS + 1, 10**30])
def test_an_answer_is_capped_and_shows_it(samples: SkillFileSystem, length: int | None) -> None:
    asked = {} if length is None else {"length": length}
    found = answer(samples, "skill_get_content", {"id": LARGE, **asked})
    content = Content.parse(found.text or "")
    assert content.length == len(content.text) == MOST_CHARACTERS < content.size
    assert found.structured["length"] == MOST_CHARACTERS
    assert (found.structured["complete"], found.structured["next_start"]) == (False, MOST_CHARACTERS)


def test_paging_by_the_text_alone_rebuilds_a_large_file(samples: SkillFileSystem) -> None:
    pages: list[str] = []
    start, expected = 0, {}
    while True:
        arguments = {"id": LARGE, "start": start, **expected}
        page = Content.parse(str(call(samples, "skill_get_content", arguments)))
        pages.append(page.text)
        start, expected = page.start + page.length, {"expectHash": page.hash}
        if start >= page.size:
            break
    assert len(pages) > 8
    assert "".join(pages).encode() == (SAMPLES / LARGE).read_bytes()


def test_paging_through_the_outline_rebuilds_a_large_file(samples: SkillFileSystem) -> None:
    outline = structured(samples, "skill_outline", id=LARGE)
    assert outline["next_start"] is None
    texts = []
    for section in outline["sections"]:
        start, end = section["start"], section["start"] + section["length"]
        while start < end:
            page = structured(
                samples,
                "skill_get_content",
                id=outline["uuid"],
                start=start,
                length=end - start,
                expectHash=outline["hash"],
            )
            texts.append(page["text"])
            start += page["length"]
    assert "".join(texts).encode() == (SAMPLES / LARGE).read_bytes()


def test_pages_of_two_versions_are_kept_apart(root: Path, fs: SkillFileSystem) -> None:
    first = structured(fs, "skill_get_content", id="a/text.md", length=5)
    write(root, {"a/text.md": "another"})
    with pytest.raises(ChangedError):
        call(fs, "skill_get_content", {"id": "a/text.md", "start": 5, "expectHash": first["hash"]})


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"id": "a"}, IsFolderError),
        ({"id": "name:a"}, IsFolderError),
        ({"id": "/"}, IsFolderError),
        ({"id": "a/picture.png"}, NotTextError),
        ({"id": "outside.md"}, NotFoundError),
        ({"id": "/etc/passwd"}, NotFoundError),
        ({"id": 7}, NotFoundError),
        ({"id": "../x"}, InvalidArgumentError),
        ({"id": "a/text.md", "expectHash": "x"}, InvalidArgumentError),
        ({"id": "a/text.md", "start": -1}, InvalidArgumentError),
        ({"id": "a/text.md", "basePathIds": ["c"]}, NotFoundError),
        ({"id": "a/text.md", "basePathIds": []}, NotFoundError),
        ({"id": "a/text.md", "basePathIds": ["zz"]}, NotFoundError),
        ({"id": "a/text.md", "basePathIds": ["a/text.md"]}, IsFileError),
        ({"id": "a/text.md", "basePathIds": [""]}, InvalidArgumentError),
        ({"id": "a/text.md", "basePathIds": "a"}, InvalidArgumentError),
        ({}, InvalidArgumentError),
    ],
)
def test_what_is_refused(fs: SkillFileSystem, arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        call(fs, "skill_get_content", arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("skill_get_content", {"id": "a/text.md", "expectHash": "x"}, "expected hash"),
        ("skill_get_content", {"id": "a/text.md", "expectHash": "0" * 32}, "expected hash"),
        ("skill_tree", {"includeGlob": "../*"}, "includeGlob"),
        ("skill_tree", {"excludeGlob": "{a,b}" * 30}, "excludeGlob"),
        ("skill_tree", {"id": "a", "includeGlob": "*", "excludeGlob": "\0"}, "excludeGlob"),
    ],
)
def test_errors_speak_of_what_was_sent(
    fs: SkillFileSystem, name: str, arguments: dict[str, Any], named: str
) -> None:
    with pytest.raises((InvalidArgumentError, ChangedError)) as caught:
        call(fs, name, arguments)
    assert named in caught.value.message
    assert "_" not in caught.value.message


def test_every_path_can_be_passed_back(root: Path, open_fs: Callable[..., SkillFileSystem]) -> None:
    write(root, {"SKILL.md": skill_md("store"), "8004": "# Zephyr\n"})
    write(root, {"name:x/SKILL.md": skill_md("x", body="# Zephyr\n"), "name:x/one.md": "1\n"})
    write(root, {"name:y/SKILL.md": skill_md("x", body="# Zephyr\n")})
    fs = open_fs()
    before = fs.revision
    (root / "name:x" / "one.md").rename(root / "name:x" / "two.md")
    fs.sync()
    told = [structured(fs, name, id=ref)["path"] for name in ("skill_get_content", "skill_outline")
            for ref in ("/8004", "/name:x/SKILL.md")]  # fmt: skip
    for hit in structured(fs, "skill_search", query="zephyr")["hits"]:
        told += [hit["path"], f"{hit['skill_path']}/SKILL.md" if hit["skill_path"] != "/" else "SKILL.md"]
        told += hit["copies"]
    (item,) = structured(fs, "skill_changes", since=before)["items"]
    assert item["old_path"] == "/name:x/one.md"
    told.append(item["path"])
    assert set(told) == {"/8004", "SKILL.md", "/name:x/SKILL.md", "/name:y/SKILL.md", "/name:x/two.md"}
    for path in told:
        assert structured(fs, "skill_get_content", id=path)["path"] == path


@pytest.mark.parametrize("tool", ["skill_get_content", "skill_outline"])
def test_a_schema_offers_nothing_that_is_refused(fs: SkillFileSystem, tool: str) -> None:
    (offered,) = (p.description for p in TOOLS[tool].parameters if p.name == "id")
    assert "name:" not in offered  # it names a folder, and these read files
    with pytest.raises(IsFolderError):
        call(fs, tool, {"id": "name:a"})


def test_outside_a_base_and_missing_are_the_same(fs: SkillFileSystem) -> None:
    messages = set()
    for bases in (["c"], []):
        with pytest.raises(NotFoundError) as caught:
            call(fs, "skill_get_content", {"id": "a/text.md", "basePathIds": bases})
        messages.add(str(caught.value))
    assert len(messages) == 1
    uuid = fs.entry("a").uuid
    assert call(fs, "skill_get_content", {"id": "a/text.md", "basePathIds": [uuid, "c"]})
    assert call(fs, "skill_get_content", {"id": "a/text.md", "basePathIds": ["/"]})


# -- skill_tree --------------------------------------------------------------------------------------------


def test_a_tree_is_drawn_and_nested(fs: SkillFileSystem) -> None:
    found = answer(fs, "skill_tree", {"id": "a"})
    assert found.text == str(fs.skill_tree("a"))
    assert found.structured == fs.skill_tree("a").to_dict()
    assert [child["name"] for child in found.structured["children"]] == [
        "SKILL.md", "b", "picture.png", "text.md",
    ]  # fmt: skip


def test_globs_of_a_tree_are_split_at_commas(fs: SkillFileSystem) -> None:
    drawn = str(
        call(fs, "skill_tree", {"id": "/", "includeGlob": "*.{png,gif},SKILL.md", "excludeGlob": "b,c"})
    )
    assert [line.split("── ")[1].split(" ")[0] for line in drawn.splitlines()[1:]] == [
        "a/", "SKILL.md", "picture.png",
    ]  # fmt: skip


def test_options_of_a_tree(fs: SkillFileSystem) -> None:
    assert "SKILL.md" not in str(call(fs, "skill_tree", {"id": "/", "withFiles": False}))
    assert "text.md  (" in str(call(fs, "skill_tree", {"id": "a", "showDetails": True}))
    first = structured(fs, "skill_tree", id="/", maxResults=2)
    assert (first["returned"], first["truncated"]) == (2, True)
    rest = structured(fs, "skill_tree", id="/", maxResults=5_000, cursor=first["cursor"])
    assert first["returned"] + rest["returned"] == rest["total"]
    assert "c/" not in str(call(fs, "skill_tree", {"basePathIds": ["a"]}))
    with pytest.raises(IsFileError):
        call(fs, "skill_tree", {"id": "a/text.md"})


# -- skill_outline -----------------------------------------------------------------------------------------


def test_an_outline_of_many_sections_comes_in_pages(root: Path, fs: SkillFileSystem) -> None:
    text = "".join(f"# {number}\n" for number in range(MOST_SECTIONS + 5))
    write(root, {"a/many.md": text})
    first = structured(fs, "skill_outline", id="a/many.md")
    assert (len(first["sections"]), first["total"]) == (MOST_SECTIONS, MOST_SECTIONS + 5)
    rest = structured(fs, "skill_outline", id="a/many.md", start=first["next_start"])
    assert rest["next_start"] is None
    sections = first["sections"] + rest["sections"]
    assert "".join(text[s["start"] : s["start"] + s["length"]] for s in sections) == text
    with pytest.raises(IsFolderError):
        call(fs, "skill_outline", {"id": "a"})


# -- skill_changes -----------------------------------------------------------------------------------------


def test_changes_since_a_revision(root: Path, fs: SkillFileSystem) -> None:
    before = structured(fs, "skill_changes")["revision"]
    write(root, {"a/new.md": "new\n"})
    fs.sync()
    found = structured(fs, "skill_changes", since=before)
    assert (found["reset"], found["total"]) == (False, 1)
    assert (found["items"][0]["kind"], found["items"][0]["path"]) == ("added", "a/new.md")
    assert structured(fs, "skill_changes", since=found["revision"])["items"] == []
    hidden = structured(fs, "skill_changes", since=before, basePathIds=["c"])
    assert hidden["items"] == []


def test_too_many_changes_are_a_reset(root: Path, fs: SkillFileSystem) -> None:
    before = structured(fs, "skill_changes")["revision"]
    write(root, {f"a/new/{number}": "" for number in range(MOST_CHANGES - 1)})
    fs.sync()
    found = structured(fs, "skill_changes", since=before)
    assert (found["reset"], len(found["items"])) == (False, MOST_CHANGES)  # with their folder
    write(root, {"a/new/one-more": ""})
    fs.sync()
    found = structured(fs, "skill_changes", since=before)
    assert (found["reset"], found["total"], found["items"]) == (True, MOST_CHANGES + 1, [])


def test_a_search_answers_in_time_from_what_it_has(
    fs: SkillFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillfs.tools.skills.SEARCH_SECONDS", 0)
    found = structured(fs, "skill_search", query="erste")
    assert (found["complete"], found["searched"], found["hits"]) == (False, 0, [])
    monkeypatch.undo()
    found = structured(fs, "skill_search", query="erste")
    assert (found["complete"], [hit["path"] for hit in found["hits"]]) == (True, ["a/text.md"])
