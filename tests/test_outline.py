"""`fs.outline`: the sections of a file, of one store and of several."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skillfs import (
    IsFolderError,
    NotFoundError,
    NotTextError,
    Outline,
    SkillFileSystem,
    TooLargeError,
)
from skillfs.core.text import HOLD_LIMIT
from tests.conftest import skill_md, write

SAMPLES = Path(__file__).parent.parent / "sample_skills"
BODY = "# Über\r\nein\r\n\r\n## 数据 😀\nzwei\n"


@pytest.fixture
def fs(root: Path, open_fs: Callable[..., SkillFileSystem]) -> SkillFileSystem:
    files: dict[str, str | bytes] = {
        "a/SKILL.md": skill_md("a", body=BODY),
        "a/wide.md": BODY.encode("utf-16"),
        "a/latin.md": "# Über\n".encode("latin-1"),
        "a/code.py": "# no heading\n",
        "a/empty.md": "",
        "b/SKILL.md": skill_md("b"),
    }
    write(root, files)
    return open_fs()


def rebuilt(fs: SkillFileSystem, outline: Outline, encoding: str | None = None) -> str:
    pages = [
        fs.get_content(outline.uuid, s.start, s.length, encoding=encoding, expect_hash=outline.hash)
        for s in outline.sections
    ]
    return "".join(page.text for page in pages)


def test_sections_are_ready_to_be_read(fs: SkillFileSystem) -> None:
    outline = fs.outline("a/SKILL.md")
    whole = fs.get_content("a/SKILL.md")
    assert [(s.level, s.title) for s in outline.sections] == [(0, ""), (1, "Über"), (2, "数据 😀")]
    assert rebuilt(fs, outline) == whole.text == skill_md("a", body=BODY)
    assert (outline.uuid, outline.id, outline.path, outline.name) == (
        whole.uuid,
        whole.id,
        "a/SKILL.md",
        "SKILL.md",
    )
    assert (outline.hash, outline.size) == (whole.hash, whole.size)
    assert outline.skill_folder_uuid == whole.skill_folder_uuid
    line = outline.sections[2].line
    assert fs.get_lines("a/SKILL.md", line, 1).text == "## 数据 😀\n"


@pytest.mark.parametrize(
    ("path", "encoding", "levels"),
    [
        ("a/wide.md", None, [1, 2]),
        ("a/latin.md", "latin-1", [1]),
        ("a/code.py", None, [0]),
        ("a/empty.md", None, []),
    ],
)
def test_outlines_of_other_files(
    fs: SkillFileSystem, path: str, encoding: str | None, levels: list[int]
) -> None:
    outline = fs.outline(path, encoding=encoding)
    assert [section.level for section in outline.sections] == levels
    assert rebuilt(fs, outline, encoding) == fs.get_content(path, encoding=encoding).text


def test_what_cannot_be_outlined(fs: SkillFileSystem) -> None:
    with pytest.raises(IsFolderError):
        fs.outline("a")
    with pytest.raises(NotTextError):
        fs.outline("a/latin.md")
    with pytest.raises(NotFoundError):
        fs.outline("a/SKILL.md", base_paths=["b"])
    assert fs.outline("a/SKILL.md", base_paths=["a"]) == fs.outline("a/SKILL.md")


@pytest.mark.parametrize("name", ["large.md", "large.txt"])
def test_a_file_too_large_to_be_held_is_refused_before_it_is_read(
    root: Path, fs: SkillFileSystem, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a" / name).touch()
    os.truncate(root / "a" / name, HOLD_LIMIT + 1)

    def read(*_: object) -> object:
        raise AssertionError("the file was read")

    monkeypatch.setattr("skillfs.reading._compute", read)
    with pytest.raises(TooLargeError, match="outline"):
        fs.outline(f"a/{name}")


def test_the_outline_is_that_of_the_file_as_it_is_now(root: Path, fs: SkillFileSystem) -> None:
    before = fs.outline("a/SKILL.md")
    write(root, {"a/SKILL.md": skill_md("a", body="# Other\n")})
    after = fs.outline("a/SKILL.md")
    assert [s.title for s in after.sections] == ["", "Other"]
    assert after.uuid == before.uuid
    assert after.hash != before.hash


def test_outlines_of_several_stores(root: Path) -> None:
    write(root, {"a/SKILL.md": skill_md("a", body=BODY)})
    fs = SkillFileSystem({"own": root, "samples": SAMPLES}, index=":memory:", skip_instance_cache=True)
    outline = fs.outline("own/a/SKILL.md")
    assert outline.path == "own/a/SKILL.md"
    assert rebuilt(fs, outline) == skill_md("a", body=BODY)
    assert fs.outline(outline.uuid) == outline
    for ref in ("own", "/"):
        with pytest.raises(IsFolderError):
            fs.outline(ref)
    with pytest.raises(NotFoundError):
        fs.outline("own/a/SKILL.md", base_paths=["samples"])


def test_every_sample_is_rebuilt_from_its_sections() -> None:
    fs = SkillFileSystem(SAMPLES, index=":memory:", skip_instance_cache=True)
    outlined = 0
    for path in fs.find(""):
        if path.endswith(".md"):
            outline = fs.outline(path)
            assert rebuilt(fs, outline) == (SAMPLES / path).read_bytes().decode()
            outlined += len(outline.sections)
    assert outlined > 100
