"""Which skills are versions of each other, and who is told of that."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from skillfs import SkillFileSystem
from skillfs.core.versions import SkillVersions
from skillfs.errors import InvalidArgumentError, NotFoundError
from skillfs.history import versions as module
from tests.conftest import skill_md, write
from tests.privileges import bound_by_permissions

Opener = Callable[..., SkillFileSystem]

WORDS = [f"w{number}" for number in range(50)]


def told(found: list[SkillVersions]) -> dict[str, list[tuple[str, str]]]:
    return {one.path: [(v.kind, v.path) for v in one.versions] for one in found}


def text(name: str, words: list[str] = WORDS) -> str:
    return skill_md(name, description=name, body=" ".join(words) + "\n")


@pytest.fixture
def store(root: Path) -> Path:
    return write(
        root,
        {
            "one/SKILL.md": text("one"),
            "one/a.md": "a",
            "copies/one/SKILL.md": text("one"),
            "copies/one/a.md": "a",
            "copies/two/SKILL.md": text("one"),
            "copies/two/a.md": "b",
            "edited/SKILL.md": text("one", [*WORDS[:25], "other", *WORDS[26:]]),
            "longer/SKILL.md": text("longer", WORDS + [f"x{n}" for n in range(800)]),
            "named/SKILL.md": skill_md("one", body="nothing of it"),
            "else/SKILL.md": skill_md("else", "What it is for: another matter."),
        },
    )


def test_copies_edited_ones_and_namesakes(store: Path, open_fs: Opener) -> None:
    found = open_fs().versions()
    assert [one.path for one in found] == [
        "copies/one", "copies/two", "edited", "else", "longer", "named", "one",
    ]  # fmt: skip
    assert told(found) == {
        "one": [
            ("word for word", "copies/one"), ("word for word", "copies/two"), ("edited", "longer"),
            ("edited", "edited"), ("own version", "named"),
        ],
        "copies/one": [
            ("word for word", "one"), ("word for word", "copies/two"), ("edited", "longer"),
            ("edited", "edited"), ("own version", "named"),
        ],
        "copies/two": [
            ("word for word", "copies/one"), ("word for word", "one"), ("edited", "longer"),
            ("edited", "edited"), ("own version", "named"),
        ],
        "edited": [
            ("edited", "copies/one"), ("edited", "copies/two"), ("edited", "one"), ("edited", "longer"),
            ("own version", "named"),
        ],
        "longer": [
            ("edited", "copies/one"), ("edited", "copies/two"), ("edited", "one"), ("edited", "edited"),
        ],
        "named": [
            ("own version", "copies/one"), ("own version", "copies/two"), ("own version", "edited"),
            ("own version", "one"),
        ],
        "else": [],
    }  # fmt: skip
    one = found[-1]
    assert [v.same_files for v in one.versions] == [True, False, None, None, None]
    assert (one.total, one.name, one.uuid) == (5, "one", open_fs().entry("one").uuid)
    # name: one description: one w0 … w49: four words and fifty, so fifty phrases.
    longer, edited = one.versions[2:4]
    assert (edited.held, edited.holds) == (45 / 50, 45 / 50)
    assert (longer.held, longer.holds) == (46 / 50, 46 / 850)
    assert found[4].versions[0].held == 46 / 850
    assert (one.versions[0].held, one.versions[4].held) == (1.0, None)


def test_one_skill_is_told_what_is_told_of_it_among_all(store: Path, open_fs: Opener) -> None:
    fs = open_fs()
    for options in ({}, {"least": 0}, {"least": 0.95}, {"limit": 2}, {"limit": 0}, {"limit": None}):
        for one in fs.versions(**options):
            assert fs.versions(f"/{one.path}", **options) == [one]
    assert fs.versions("name:else") == fs.versions("else/SKILL.md") == fs.versions(fs.entry("else").uuid)
    for ref in ("no", "name:no"):
        with pytest.raises(NotFoundError):
            fs.versions(ref)


def test_how_many_are_told_and_from_which_share_on(store: Path, open_fs: Opener) -> None:
    fs = open_fs()
    (one,) = fs.versions("/one", limit=1)
    assert (one.total, told([one])) == (5, {"one": [("word for word", "copies/one")]})
    assert [one.total for one in fs.versions(limit=0)] == [5, 5, 5, 0, 4, 4, 5]
    assert ("edited", "edited") in told(fs.versions("/one", least=0.9))["one"]
    assert ("own version", "edited") in told(fs.versions("/one", least=0.9001))["one"]
    assert told(fs.versions("/longer", least=1)) == {"longer": []}
    for least in (-0.1, 1.1, "0.1", True, None, float("nan")):
        with pytest.raises(InvalidArgumentError):
            fs.versions(least=least)  # type: ignore[arg-type]
    for limit in (-1, 1.0, "1", True):
        with pytest.raises(InvalidArgumentError):
            fs.versions(limit=limit)  # type: ignore[arg-type]


def test_between_stores(store: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", {"deep/er/SKILL.md": text("one"), "deep/er/a.md": "a"})
    fs = SkillFileSystem({"ours": store, "theirs": other}, index=":memory:")
    (found,) = fs.versions("theirs/deep/er")
    assert [(v.path, v.same_files) for v in found.versions[:3]] == [
        ("ours/copies/one", True), ("ours/one", True), ("ours/copies/two", False)
    ]  # fmt: skip
    assert ("word for word", "theirs/deep/er") in told(fs.versions("ours/one"))["ours/one"]
    assert found == fs.versions()[-1]


def test_what_lies_outside_bears_on_nothing(store: Path, open_fs: Opener) -> None:
    for fs, bases in ((open_fs(), ["one", "edited"]), (open_fs(base_paths=["one", "edited"]), None)):
        found = fs.versions(base_paths=bases)
        assert told(found) == {"edited": [("edited", "one")], "one": [("edited", "edited")]}
        assert [one.total for one in found] == [1, 1]
        with pytest.raises(NotFoundError):
            fs.versions("named", base_paths=bases)
    assert open_fs().versions(base_paths=[]) == []


def test_what_cannot_be_compared_by_phrases(
    root: Path, open_fs: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_COMPARED", 1_000)
    large = text("large", [f"y{n}" for n in range(900)])
    write(root, {"a/SKILL.md": large, "b/SKILL.md": large, "c/SKILL.md": large + "more\n"})
    binary = b"---\nname: bin\n---\n\0" + " ".join(WORDS).encode()
    write(root, {"d/SKILL.md": binary, "e/SKILL.md": binary, "f/SKILL.md": binary + b"x"})
    write(root, {"g/SKILL.md": text("g"), "h/SKILL.md": text("g").encode("utf-16")})
    found = told(open_fs().versions())
    assert found["a"] == [("word for word", "b"), ("own version", "c")]
    assert found["d"] == [("word for word", "e"), ("own version", "f")]
    assert ("edited", "h") in found["g"]


def test_short_and_empty_texts(root: Path, open_fs: Opener) -> None:
    write(root, {"a/SKILL.md": "One two!", "b/SKILL.md": "one two", "c/SKILL.md": "", "d/SKILL.md": "\n"})
    write(root, {"e/SKILL.md": "one two three"})
    found = told(open_fs().versions())
    assert found == {
        "a": [("edited", "b")], "b": [("edited", "a")], "c": [], "d": [], "e": []
    }  # fmt: skip


def test_what_cannot_be_read_is_a_namesake(root: Path, open_fs: Opener) -> None:
    write(root, {"x/one/SKILL.md": text("one"), "y/one/SKILL.md": text("one")})
    fs = open_fs()
    (root / "y/one/SKILL.md").chmod(0)
    with bound_by_permissions():
        assert told(fs.versions())["x/one"] == [("own version", "y/one")]


def test_links_and_odd_names(root: Path, open_fs: Opener) -> None:
    write(root, {"a/SKILL.md": text("a"), "o\nd\x1bd/SKILL.md": text("a"), "8004/SKILL.md": text("a")})
    (root / "linked").mkdir()
    (root / "linked/SKILL.md").symlink_to("../a/SKILL.md")
    (root / "alias").symlink_to("a")
    found = told(open_fs().versions())
    assert set(found) == {"a", "8004", "linked", "o\nd\x1bd"}
    assert {kind for one in found.values() for kind, _ in one} == {"word for word"}
    assert {len(one) for one in found.values()} == {3}


def test_under_a_lock_only_what_it_names_is_compared(store: Path, open_fs: Opener) -> None:
    lock = open_fs().lock()
    write(store, {"else/SKILL.md": text("one")})
    locked = open_fs(lock=lock)
    assert told(locked.versions())["else"] == []
    assert ("word for word", "else") not in told(locked.versions("/one"))["one"]
    assert ("word for word", "else") in told(open_fs().versions("/one"))["one"]


def test_of_other_stores_and_of_snapshots(store: Path, tmp_path: Path, open_fs: Opener) -> None:
    expected = told(open_fs().versions())
    memory = fsspec.filesystem("memory")
    memory.put(str(store), "/versions", recursive=True)
    try:
        assert told(SkillFileSystem("memory://versions", index=":memory:").versions()) == expected
    finally:
        memory.rm("/versions", recursive=True)
    open_fs(objects=tmp_path / "objects").snapshot("v1")
    then = SkillFileSystem(at="v1", objects=tmp_path / "objects", index=":memory:")
    assert told(then.versions()) == expected


def test_many_of_one_name_and_many_copies(root: Path, open_fs: Opener) -> None:
    rng = random.Random(1)
    files: dict[str, Any] = {}
    for number in range(120):
        words = [f"z{rng.random()}" for _ in range(30)] if number % 3 else WORDS
        files[f"s{number:03}/SKILL.md"] = skill_md("same", f"for {number % 2}", " ".join(words))
    write(root, files)
    fs = open_fs()
    found = fs.versions(limit=5)
    assert {one.total for one in found} == {119}
    assert {len(one.versions) for one in found} == {5}
    first = fs.versions("/s000", limit=None)[0]
    kinds = [v.kind for v in first.versions]
    assert [kinds.count(kind) for kind in ("word for word", "edited", "own version")] == [19, 20, 80]
    assert kinds == sorted(kinds, key=["word for word", "edited", "own version"].index)
    for kind in set(kinds):
        paths = [v.path for v in first.versions if v.kind == kind]
        assert paths == sorted(paths)
    assert fs.versions(limit=None)[0] == first
