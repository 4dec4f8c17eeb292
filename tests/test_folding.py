"""Skills of the same content: what is folded, under which of them, and what it costs."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillfs import SkillFileSystem
from skillfs.core.digest import sha256
from tests.conftest import skill_md, write
from tests.privileges import bound_by_permissions

Opener = Callable[..., SkillFileSystem]

SKILL: dict[str, str | bytes] = {
    "SKILL.md": skill_md("pdf"),
    "a.md": "text",
    "refs/b.bin": bytes(range(256)),
    "refs/empty": b"",
}


def copied(*places: str) -> dict[str, str | bytes]:
    return {f"{place}/{path}": content for place in places for path, content in SKILL.items()}


def places(fs: SkillFileSystem, **options: Any) -> dict[str, tuple[str, ...]]:
    return {skill.path: skill.places for skill in fs.skills(fold=True, **options)}


def test_copies_are_one_skill_with_places(root: Path, open_fs: Opener) -> None:
    write(root, {**copied("z", "a/copy", "b"), "other/SKILL.md": skill_md("other")})
    fs = open_fs()
    assert places(fs) == {"a/copy": ("a/copy", "b", "z"), "other": ("other",)}
    whole = {skill.path: skill for skill in fs.skills()}
    assert {path: skill.places for path, skill in whole.items()} == {path: (path,) for path in whole}
    folded = fs.skills(fold=True)[0]
    assert (folded.uuid, folded.name, folded.shadowed_by) == (fs.entry("a/copy").uuid, "pdf", None)
    assert places(fs, base_paths=["b", "z", "other"]) == {"b": ("b", "z"), "other": ("other",)}
    assert places(fs, base_paths=["z"]) == {"z": ("z",)}
    assert places(fs, base_paths=[]) == {}


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("a.md", "tExt"),
        ("a.md", "texts"),
        ("SKILL.md", skill_md("pdf", body="# Other\n")),
        ("refs/b.bin", bytes(reversed(range(256)))),
        ("refs/more", ""),
        (".hidden", "x"),
        ("in/SKILL.md", skill_md("in")),
    ],
)
def test_what_makes_a_difference(root: Path, open_fs: Opener, path: str, content: str | bytes) -> None:
    write(root, copied("a", "b"))
    fs = open_fs(max_age=0)
    assert places(fs) == {"a": ("a", "b")}
    write(root, {f"b/{path}": content})
    assert "b" in places(fs)
    assert places(fs)["a"] == ("a",)
    write(root, {f"a/{path}": content})
    assert places(fs)["a"] == ("a", "b")


@pytest.mark.parametrize("change", ["rename", "remove", "ignored", "empty-folder", "times"])
def test_what_of_a_folder_counts(root: Path, open_fs: Opener, change: str) -> None:
    write(root, copied("a", "b"))
    if change == "rename":
        (root / "b/a.md").rename(root / "b/b.md")
    elif change == "remove":
        (root / "b/a.md").unlink()
    elif change == "ignored":
        write(root, {"b/.git/config": "x", "b/.env": "KEY=1"})
    elif change == "empty-folder":
        (root / "b/nothing").mkdir()
    else:
        os.utime(root / "b/a.md", (1, 1))
    one = change not in ("rename", "remove")
    assert places(open_fs()) == ({"a": ("a", "b")} if one else {"a": ("a",), "b": ("b",)})


def test_nested_skills_are_part_of_a_skill_and_skills_themselves(root: Path, open_fs: Opener) -> None:
    inner = {"SKILL.md": skill_md("in"), "x.md": "x"}
    write(root, {**copied("a", "b"), **{f"{top}/in/{p}": c for top in "ab" for p, c in inner.items()}})
    fs = open_fs(max_age=0)
    assert places(fs) == {"a": ("a", "b"), "a/in": ("a/in", "b/in")}
    write(root, {"b/in/x.md": "y"})
    assert places(fs) == {"a": ("a",), "a/in": ("a/in",), "b": ("b",), "b/in": ("b/in",)}


def test_links_count_as_what_they_lead_to(root: Path, open_fs: Opener) -> None:
    write(root, copied("a", "b", "c"))
    for name in ("a", "b"):
        (root / name / "link.md").symlink_to("a.md")
        (root / name / "folder").symlink_to("refs")
    (root / "c/link.md").write_text("text")
    (root / "c/folder").symlink_to("../a/refs")
    fs = open_fs(max_age=0)
    assert places(fs) == {"a": ("a", "b"), "c": ("c",)}
    (root / "c/folder").unlink()
    (root / "c/folder").symlink_to("refs")
    assert places(fs) == {"a": ("a", "b", "c")}


def test_a_root_may_be_a_copy(tmp_path: Path) -> None:
    write(tmp_path, copied("root", "team/pdf"))
    (tmp_path / "root/folder").symlink_to("refs")
    (tmp_path / "team/pdf/folder").symlink_to("refs")
    fs = SkillFileSystem({"z": tmp_path / "root", "a": tmp_path / "team"}, index=":memory:")
    assert places(fs) == {"z": ("z", "a/pdf")}
    assert places(SkillFileSystem({"a": tmp_path / "team", "z": tmp_path / "root"}, index=":memory:")) == {
        "a/pdf": ("a/pdf", "z")
    }


def test_mounts_go_before_paths(tmp_path: Path) -> None:
    write(
        tmp_path, {**copied("m/b", "m/a", "t/c"), "t/x/SKILL.md": skill_md("pdf", "Another."), "m/t.md": ""}
    )
    fs = SkillFileSystem({"team": tmp_path / "t", "mine": tmp_path / "m"}, index=":memory:", max_age=0)
    assert places(fs) == {"team/c": ("team/c", "mine/a", "mine/b"), "team/x": ("team/x",)}
    shadows = {skill.path: skill.shadowed_by for skill in fs.skills(fold=True)}
    assert shadows == {"team/c": None, "team/x": "team/c"}
    assert places(fs, base_paths=["mine"]) == {"mine/a": ("mine/a", "mine/b")}


def test_what_cannot_be_read_is_like_nothing(root: Path, open_fs: Opener) -> None:
    write(root, copied("a", "b", "c"))
    (root / "b/a.md").chmod(0)
    with bound_by_permissions():
        assert places(open_fs()) == {"a": ("a", "c"), "b": ("b",)}


def test_skills_without_a_name_of_their_own(root: Path, open_fs: Opener) -> None:
    write(root, {f"{name}/SKILL.md": "# Title\n\nText.\n" for name in ("a", "b")})
    (skill,) = open_fs().skills(fold=True)
    assert (skill.name, skill.places) == ("a", ("a", "b"))


def test_only_candidates_are_read(root: Path, open_fs: Opener) -> None:
    write(
        root,
        {
            **copied("a", "b"),
            "c/SKILL.md": SKILL["SKILL.md"],
            "c/a.md": "longer",
            "d/SKILL.md": skill_md("d"),
        },
    )
    write(root, {**copied("e"), "e/a.md": "tExt"})
    fs = open_fs(max_age=0)
    opened: list[str] = []
    store = fs._engine.store
    really = store.open
    store.open = lambda place, known=None: (opened.append(place.path), really(place, known))[1]  # type: ignore[method-assign]
    try:
        assert fs.skills() != []
        assert opened == []
        assert places(fs)["a"] == ("a", "b")
        assert sorted(set(opened)) == sorted(copied("a", "b"))
    finally:
        del store.open


def test_where_no_hash_is_known_the_bytes_decide(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    for path, content in {**copied("a", "b", "c"), "c/a.md": "tExt"}.items():
        memory.pipe(f"/folding/{path}", content if isinstance(content, bytes) else content.encode())
    write(tmp_path, copied("d"))
    try:
        fs = SkillFileSystem({"far": "memory://folding", "near": tmp_path}, index=":memory:")
        assert places(fs) == {"far/a": ("far/a", "far/b", "near/d"), "far/c": ("far/c",)}
    finally:
        memory.rm("/folding", recursive=True)


def test_digests_are_kept(root: Path, open_fs: Opener) -> None:
    write(root, copied("a", "b"))
    time.sleep(0.05)  # until signatures vouch for the bytes
    fs = open_fs(max_age=0)
    fs.skills(fold=True)
    digest = sha256(b"text").digest()
    assert len(fs._engine.catalog.by_content("sha256", digest)) == 2
    store = fs._engine.store
    store.open = None  # type: ignore[method-assign,assignment]
    try:
        assert places(fs) == {"a": ("a", "b")}
    finally:
        del store.open


TREES = st.lists(
    st.dictionaries(
        st.sampled_from(["a.md", "b/c.md", "in/SKILL.md"]), st.sampled_from(["", "x", "y"]), max_size=3
    ),
    min_size=2,
    max_size=5,
)


@given(TREES)
@settings(max_examples=40, deadline=None)
def test_folding_is_equality_of_bytes(trees: list[dict[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        halves = {"z": Path(folder) / "1", "a": Path(folder) / "2"}
        whole: dict[str, dict[str, str]] = {}
        for number, files in enumerate(trees):
            mount = "z" if number % 2 else "a"
            files = {"SKILL.md": skill_md("s"), **files}
            write(halves[mount], {f"s{number}/{path}": content for path, content in files.items()})
            whole[f"{mount}/s{number}"] = files
            if "in/SKILL.md" in files:
                whole[f"{mount}/s{number}/in"] = {"SKILL.md": files["in/SKILL.md"]}
        for half in halves.values():
            half.mkdir(exist_ok=True)
        fs = SkillFileSystem(halves, index=":memory:")
        expected: dict[str, list[str]] = {}
        order = sorted(whole, key=lambda path: (not path.startswith("z/"), path.split("/")))
        for path in order:
            first = next((other for other in expected if whole[other] == whole[path]), path)
            expected.setdefault(first, []).append(path)
        assert places(fs) == {path: tuple(copies) for path, copies in expected.items()}
        assert [s.path for s in fs.skills(fold=True)] == sorted(expected, key=lambda path: path.split("/"))
