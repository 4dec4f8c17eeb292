"""What is left out by its name, wherever it is met."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skillfs import SkillFileSystem
from tests.conftest import skill_md, write
from tests.sync.harness import check_like_new, make_engine, problems, rows, shown

SECRET = "KEY=secret\n"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return write(
        tmp_path / "outside",
        {
            "notes.md": "notes\n",
            ".env": SECRET,
            ".git/config": SECRET,
            ".git/info/SKILL.md": skill_md("info"),
            "node_modules/SKILL.md": skill_md("modules"),
            "id_rsa-rotation/SKILL.md": skill_md("id_rsa-rotation"),
            "id_rsa-rotation/server.pem": SECRET,
        },
    )


@pytest.mark.parametrize(
    ("link", "target", "served"),
    [
        ("a/l.md", "notes.md", {"a/l.md"}),
        ("a/l.md", ".env", set()),
        ("a/l.md", ".git/config", set()),
        ("a/l.md", "id_rsa-rotation/server.pem", set()),
        ("a/l", ".git", set()),
        ("a/l", ".git/info", set()),
        ("a/l", "node_modules", set()),
        ("a/l", "id_rsa-rotation", {"a/l", "a/l/SKILL.md"}),
        ("a/.env", "notes.md", set()),
        ("l", ".git/info", set()),
        ("l", "node_modules", set()),
        ("l", "id_rsa-rotation", {"l", "l/SKILL.md"}),
        ("b/SKILL.md", ".git/info/SKILL.md", set()),
        ("b/SKILL.md", ".env", set()),
        ("b/SKILL.md", "notes.md", {"b", "b/SKILL.md", "b/x.md"}),
    ],
)
@pytest.mark.parametrize("opened_before", [False, True])
def test_links_into_a_followed_folder_bring_back_nothing_that_is_left_out(
    root: Path, outside: Path, link: str, target: str, served: set[str], opened_before: bool
) -> None:
    write(root, {"a/SKILL.md": skill_md("a"), "b/x.md": "x\n"})
    engine = make_engine(root, follow=[outside])
    if opened_before:
        engine.sync()
    (root / link).symlink_to(outside / target)
    for _ in range(2):
        engine.sync()
        assert shown(engine).keys() == {"", "a", "a/SKILL.md"} | served
        assert {code for _, code, _ in problems(engine)} <= {"link-dangling", "secret-file"}
        assert served or problems(engine)


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("a/l.md", "a/.env"),
        ("a/l", "a/.git"),
        ("a/l.md", "a/.git/config"),
        ("l", "b/.git"),
        ("b/SKILL.md", "b/.env"),
        ("b/SKILL.md", "a/.git/config"),
    ],
)
def test_links_inside_the_store_bring_back_nothing_that_is_left_out(
    root: Path, link: str, target: str
) -> None:
    hidden = {"a/.env": SECRET, "a/.git/config": SECRET, "b/.env": SECRET, "b/.git/SKILL.md": SECRET}
    write(root, {"a/SKILL.md": skill_md("a"), **hidden})
    (root / link).symlink_to(root / target)
    engine = make_engine(root)
    engine.sync()
    assert shown(engine).keys() == {"", "a", "a/SKILL.md"}
    assert link.partition("/")[0] != "a" or (link, "link-dangling") in {
        (p, c) for p, c, _ in problems(engine)
    }


def test_what_a_link_leads_to_can_be_renamed_into_sight_and_out(root: Path, outside: Path) -> None:
    write(root, {"a/SKILL.md": skill_md("a")})
    link = root / "a/l"
    link.symlink_to(outside / "seen")
    engine = make_engine(root, follow=[outside])
    engine.sync()
    assert "a/l" not in shown(engine)
    for target, is_shown in (("seen", True), (".git", False), ("seen", True)):
        link.unlink()
        link.symlink_to(outside / target)
        if is_shown:
            (outside / ".git").rename(outside / "seen")
        else:
            (outside / "seen").rename(outside / ".git")
        engine.sync()
        assert ("a/l/config" in shown(engine)) == is_shown


def _open_skill(root: Path) -> None:
    write(root, {"id_rsa-rotation/SKILL.md": skill_md("id_rsa-rotation"), "id_rsa-rotation/x.md": "x\n"})


def _inner_folders(root: Path) -> None:
    write(root, {"a/SKILL.md": skill_md("a"), "a/.env.d/x.md": "x\n", "a/certs.pem/x.md": "x\n"})


@pytest.mark.parametrize(
    ("lay", "served"),
    [
        (_open_skill, {"id_rsa-rotation", "id_rsa-rotation/SKILL.md", "id_rsa-rotation/x.md"}),
        (
            _inner_folders,
            {"a", "a/SKILL.md", "a/.env.d", "a/.env.d/x.md", "a/certs.pem", "a/certs.pem/x.md"},
        ),
    ],
)
@pytest.mark.parametrize("opened_before", [False, True])
def test_a_folder_is_no_secret(
    root: Path, lay: Callable[[Path], None], served: set[str], opened_before: bool
) -> None:
    engine = make_engine(root)
    if opened_before:
        engine.sync()
    lay(root)
    engine.sync()
    assert shown(engine).keys() == {"", *served}
    check_like_new(engine, root)
    assert problems(engine) == []


def test_a_secret_in_a_folder_of_such_a_name_is_one(root: Path) -> None:
    _open_skill(root)
    write(root, {"id_rsa-rotation/id_rsa": SECRET, "id_rsa-rotation/.env": SECRET})
    (root / "id_rsa-rotation/id_rsa.pub").symlink_to("x.md")
    engine = make_engine(root)
    engine.sync()
    assert {row.name for row in rows(engine).values()} == {"", "id_rsa-rotation", "SKILL.md", "x.md"}
    assert {(path, code) for path, code, _ in problems(engine)} == {
        (f"id_rsa-rotation/{name}", "secret-file") for name in ("id_rsa", ".env", "id_rsa.pub")
    }


def test_a_huge_sparse_file_does_not_hold_up_the_scan(root: Path) -> None:
    """It is listed and said to be too large; its bytes can be read in ranges."""
    write(root, {"a/SKILL.md": "a\n", "a/huge.bin": "start"})
    os.truncate(root / "a/huge.bin", 9 << 40)
    fs = SkillFileSystem(root, index=":memory:", skip_instance_cache=True)
    assert fs.info("a/huge.bin")["size"] == 9 << 40
    assert fs.info("a/huge.bin")["hash"] is None
    assert fs.cat_file("a/huge.bin", 0, 6) == b"start\0"
    assert [(p.code, p.path) for p in fs.problems() if p.path == "a/huge.bin"] == [
        ("too-large", "a/huge.bin")
    ]
