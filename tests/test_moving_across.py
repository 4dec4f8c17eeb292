"""Moves from one mounted store to another: nothing is lost, nothing replaced, nothing half."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from skillfs import SkillFileSystem
from skillfs.errors import ChangedError, InvalidArgumentError, SkillFSError
from skillfs.stores.local import LocalStore
from skillfs.stores.local_writing import LocalSink
from tests.conftest import skill_md, write
from tests.sync.harness import check, check_like_new
from tests.test_writing import code_of, everything
from tests.writable import open_writable

SKILLS = {
    "1/a/SKILL.md": skill_md("a"),
    "1/a/x.md": "x",
    "1/a/docs/y.md": "y",
    "1/a/inner/SKILL.md": skill_md("inner"),
    "1/a/inner/z.md": "z",
    "2/c/SKILL.md": skill_md("c"),
    "2/c/u.md": "u",
    "2/g/d/SKILL.md": skill_md("d"),
}


@pytest.fixture
def fs(root: Path) -> SkillFileSystem:
    write(root, SKILLS)
    (root / "1/a/empty").mkdir()
    return open_writable({"one": root / "1", "two": root / "2"}, max_age=0)


def in_step(fs: Any, root: Path) -> None:
    for mount, folder in zip(fs._table.mounts, ("1", "2"), strict=True):
        check(mount.engine, root / folder)
        check_like_new(mount.engine, root / folder)


@pytest.mark.parametrize(
    ("old", "new", "lands"),
    [
        ("a", "a", "a"),
        ("a", "", "a"),
        ("a", "c", "c/a"),
        ("a", "g", "g/a"),
        ("a", "far/away", "far/away"),
        ("a/inner", "inner", "inner"),
        ("a/docs", "c", "c/docs"),
        ("a/docs", "c/new/deep", "c/new/deep"),
        ("a/x.md", "c", "c/x.md"),
        ("a/x.md", "c/u.md", "c/u.md"),
        ("a/x.md", "c/new/", "c/new/x.md"),
        ("a/empty", "c", "c/empty"),
    ],
)
def test_all_of_it_is_there_and_nothing_here(
    fs: SkillFileSystem, root: Path, old: str, new: str, lands: str
) -> None:
    before = everything(root / "1" / old) if (root / "1" / old).is_dir() else (root / "1" / old).read_bytes()
    fs.mv(f"one/{old}", f"two/{new}".rstrip("/") if not new.endswith("/") else f"two/{new}")
    assert not (root / "1" / old).exists()
    there = root / "2" / lands
    assert (everything(there) if there.is_dir() else there.read_bytes()) == before
    in_step(fs, root)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("a/docs", "c/docs", "invalid_argument"),
        ("a", "c/u.md", "invalid_argument"),
        ("a/docs", "c", "invalid_argument"),
        ("a/x.md", "c", "invalid_argument"),
        ("a/docs", "docs", "invalid_argument"),
        ("a/x.md", "x.md", "invalid_argument"),
        ("a/SKILL.md", "c/S.md", "invalid_argument"),
        ("a/SKILL.md", "new/SKILL.md", "invalid_argument"),
        ("a", "hid", "invalid_argument"),
        ("a/none.md", "c", "not_found"),
        ("", "c", "invalid_argument"),
    ],
)
def test_what_is_refused_leaves_all_as_it_is(
    fs: SkillFileSystem, root: Path, old: str, new: str, code: str
) -> None:
    write(root / "2", {"c/docs/docs/t.md": "there", "c/x.md": "there", "hid/secret.txt": "s"})
    before = everything(root)
    assert code_of(lambda: fs.mv(f"one/{old}", f"two/{new}")) == code
    assert everything(root) == before


def test_a_name_that_the_other_store_leaves_out(root: Path) -> None:
    write(root, SKILLS)
    fs = open_writable({"one": root / "1", "two": {"store": root / "2", "ignore": ["y.*"]}})
    before = everything(root)
    assert code_of(lambda: fs.mv("one/a", "two")) == "invalid_argument"
    assert everything(root) == before


@pytest.mark.parametrize("target", ["docs", "x.md", "nowhere", "SKILL.md", "/etc"])
def test_links_do_not_go_along(fs: SkillFileSystem, root: Path, target: str) -> None:
    (root / "1/a/link").symlink_to(target)
    before = everything(root)
    with pytest.raises(InvalidArgumentError, match='holds the link "link", which cannot go to another store'):
        fs.mv("one/a", "two/b")
    if target in ("docs", "x.md", "SKILL.md"):
        assert code_of(lambda: fs.mv("one/a/link", "two/c")) == "invalid_argument"
    assert everything(root) == before


def test_what_is_left_out_stays(fs: SkillFileSystem, root: Path) -> None:
    write(root / "1", {"a/.git/config": "kept", "a/docs/.env": "kept"})
    fs.mv("one/a", "two/b")
    assert everything(root / "1/a") == {
        ".git": None, ".git/config": b"kept", "docs": None, "docs/.env": b"kept",
    }  # fmt: skip
    in_step(fs, root)


# -- what changes meanwhile --------------------------------------------------------------------------------


def _once(
    monkeypatch: pytest.MonkeyPatch, kind: type, name: str, number: int, act: Callable[[], object]
) -> None:
    """Do something before the n-th call of a method."""
    original, calls = getattr(kind, name), [0]

    def hooked(self: object, *arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            act()
        return original(self, *arguments, **options)

    monkeypatch.setattr(kind, name, hooked)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a new file": lambda a: (a / "late.md").write_text("precious"),
    "a new file deep down": lambda a: (a / "docs/late.md").write_text("precious"),
    "a new link": lambda a: (a / "late").symlink_to("docs"),
    "a new skill": lambda a: write(a / "late", {"SKILL.md": "precious"}),
    "another content": lambda a: (a / "docs/y.md").write_text("precious"),
    "another marker": lambda a: (a / "SKILL.md").write_text("precious"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_before_anything_was_removed(
    fs: SkillFileSystem, root: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(root / "2")
    _once(monkeypatch, LocalSink, "commit", 5, lambda: CHANGES[change](root / "1/a"))
    with pytest.raises(ChangedError, match=r"stays as it is|changed meanwhile"):
        fs.mv("one/a", "two/far/b")
    assert everything(root / "2") == before
    assert set(everything(root / "1")) >= {p[2:] for p in SKILLS if p.startswith("1/")}
    in_step(fs, root)


@pytest.mark.parametrize("change", [c for c in CHANGES if c != "another marker"])
def test_what_changes_while_it_is_removed_stays_in_its_skill(
    fs: SkillFileSystem, root: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By then the inner skill is gone, and what lies in the outer one is not.
    _once(monkeypatch, LocalStore, "remove", 2, lambda: CHANGES[change](root / "1/a"))
    with pytest.raises(ChangedError, match='some of "one/a" changed while it was moved, and stays there'):
        fs.mv("one/a", "two/b")
    left = everything(root / "1")
    assert left["a/SKILL.md"] is not None
    assert b"precious" in left.values() or (root / "1/a/late").is_symlink()
    assert set(left) <= {"a", "a/SKILL.md", "a/late.md", "a/late", "a/docs", "a/docs/late.md", "a/docs/y.md",
                         "a/late/SKILL.md"}  # fmt: skip
    assert (root / "2/b/docs/y.md").read_text() == "y"
    in_step(fs, root)


@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize(("kind", "name"), [(LocalSink, "commit"), (LocalStore, "create")])
def test_a_failure_leaves_no_copy(
    fs: SkillFileSystem, root: Path, kind: type, name: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError(28, "no room")

    before = everything(root)
    _once(monkeypatch, kind, name, number, fail)
    assert code_of(lambda: fs.mv("one/a", "two/far/b")) == "unavailable"
    monkeypatch.undo()
    assert everything(root) == before
    in_step(fs, root)


def test_a_removal_that_fails_at_once_leaves_no_copy(
    fs: SkillFileSystem, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise PermissionError(13, "no")

    before = everything(root)
    _once(monkeypatch, LocalStore, "remove", 1, fail)
    with pytest.raises(SkillFSError, match=r'"one/a/inner/z\.md" may not be written'):
        fs.mv("one/a", "two/b")
    assert everything(root) == before
    in_step(fs, root)


# -- stores in one another ---------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["plain", "linked"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("in/a", "out/1/a/k"),
        ("in/a", "out/1/a"),
        ("in/a", "out/b"),
        ("in/a/x.md", "out/1/a/x.md"),
        ("in/a/x.md", "out/1/a/docs"),
        ("out/1/a", "in/b"),
        ("out/1/a", "in/a"),
        ("out/1/a/x.md", "in/a/x.md"),
        ("out/2/c/u.md", "in/a/u.md"),
    ],
)
def test_of_two_stores_one_in_the_other(root: Path, old: str, new: str, spelling: str) -> None:
    write(root, SKILLS)
    inner = root / "1"
    if spelling == "linked":
        inner = root.parent / "way"
        inner.symlink_to(root / "1")
    fs = open_writable({"in": inner, "out": root}, max_age=0)
    before = everything(root)
    with pytest.raises(
        InvalidArgumentError, match="lie in one store, which is mounted twice; move within one"
    ):
        fs.mv(old, new)
    assert everything(root) == before


def test_of_two_remote_stores_one_in_the_other() -> None:
    memory, top = MemoryFileSystem(), f"/{uuid4().hex}"
    for path, content in {**SKILLS, "1/kept/SKILL.md": ""}.items():
        memory.pipe_file(f"{top}/{path}", content.encode())
    try:
        fs = open_writable({"in": f"memory:/{top}/1", "out": f"memory:/{top}", "two": f"memory:/{top}/2"})
        for old, new in (("in/a", "out/1/a/k"), ("out/2/c", "in/c")):
            assert code_of(lambda old=old, new=new: fs.mv(old, new)) == "invalid_argument"
        fs.mv("in/a", "two/c")
        assert fs.cat_file("two/c/a/docs/y.md") == b"y"
        assert not fs.exists("in/a")
        assert not memory.exists(f"{top}/1/a/SKILL.md")
    finally:
        memory.rm(top, recursive=True)
