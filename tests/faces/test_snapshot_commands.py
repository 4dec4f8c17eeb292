"""`skillfs snapshot …` and `skillfs --at …`, as people and scripts meet them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from skillfs.faces.cli import OBJECTS_VARIABLE
from tests.conftest import skill_md, write
from tests.faces.test_cli import Done


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write(
        tmp_path / "store",
        {
            "a/SKILL.md": skill_md("a"),
            "a/one.md": "one\n",
            "a/\x1b[31m.md": "red\n",
            "b/SKILL.md": skill_md("b"),
        },
    )


def test_from_taking_to_removing(run: Callable[..., Done], store: Path, tmp_path: Path) -> None:
    at = ("-s", store)
    assert run(*at, "snapshot", "list") == (
        0, "", "no snapshots here; take one with: skillfs snapshot create\n"
    )  # fmt: skip
    taken = run(*at, "snapshot", "create", "v1")
    assert taken.code == 0
    digest = taken.out.strip()
    assert taken.err.endswith("(v1)\n")
    (store / "a/one.md").write_text("two\n")
    assert run(*at, "snapshot", "create").code == 0
    rows = [line.split("\t") for line in run(*at, "snapshot", "list").out.splitlines()]
    assert [row[2:5] for row in rows] == [["", "2", "4"], ["v1", "2", "4"]]
    assert digest.startswith(rows[1][1])
    assert run(*at, "--at", rows[1][1], "cat", "a/one.md").out == "one\n"
    assert run(*at, "--at", "latest", "cat", "a/one.md").out == "two\n"
    shown = run(*at, "snapshot", "show", "v1")
    assert f"digest: {digest}\n" in shown.out
    assert "labels: v1\n" in shown.out
    assert [line.split("\t")[0] for line in shown.out.splitlines()[-2:]] == ["a", "b"]
    restored = run(*at, "snapshot", "restore", "v1", "out")
    assert (restored.code, restored.out, restored.err[:5]) == (0, "", "wrote")
    assert Path("out/a/one.md").read_text() == "one\n"
    again = run(*at, "snapshot", "restore", "v1", "out")
    assert (again.code, again.err[:25]) == (2, "skillfs: invalid_argument")
    assert run(*at, "snapshot", "export", "v1", "a.zip", "--skill", "name:a").code == 0
    assert run("-s", "zip://::file://a.zip", "--index", ":memory:", "cat", "a/one.md").out == "one\n"
    assert run(*at, "snapshot", "remove", "v1").code == 0
    gone = run(*at, "snapshot", "show", "v1")
    assert (gone.code, gone.err) == (
        2, 'skillfs: not_found: no snapshot answers to "v1"; list them with: skillfs snapshot list\n'
    )  # fmt: skip
    assert run(*at, "snapshot", "gc").err.startswith("removed 3 objects")  # file, part, top
    assert run(*at, "snapshot", "fsck") == (0, "", "0 objects damaged or missing\n")


def test_as_json(run: Callable[..., Done], store: Path) -> None:
    at = ("-s", store, "snapshot")
    taken = run(*at, "create", "v1", "--json").json
    assert isinstance(taken, dict)
    assert (taken["labels"], taken["skills"], taken["files"]) == (["v1"], 2, 4)
    assert run(*at, "list", "--json").json == [taken]
    shown = run(*at, "show", "v1", "--json").json
    assert isinstance(shown, dict)
    assert shown["digest"] == taken["digest"]
    assert [skill["path"] for skill in shown["skills"]] == ["a", "b"]
    exported = run(*at, "export", "v1", "out", "--json").json
    assert exported == {"skills": 2, "files": 4, "size": taken["size"], "left_out": []}
    assert run(*at, "fsck", "--json").json == []
    assert run(*at, "gc", "--json").json == {"objects": 0, "size": 0}


def test_damage_is_found_and_told(run: Callable[..., Done], store: Path, tmp_path: Path) -> None:
    at = ("-s", store, "--objects", tmp_path / "objects", "snapshot")
    run(*at, "create", "v1")
    for blob in (tmp_path / "objects/blobs").rglob("*"):
        if blob.is_file() and blob.read_bytes() == b"one\n":
            blob.write_bytes(b"eno\n")
    found = run(*at, "fsck")
    assert (found.code, found.out[:8]) == (1, "damaged\t")
    assert str(tmp_path) not in found.out
    refused = run(*at, "restore", "v1", "out")
    assert (refused.code, refused.err[:18]) == (2, "skillfs: integrity")
    assert run("-s", store, "--objects", tmp_path / "objects", "--at", "v1", "tree", "a").code == 0
    # The store still has it.
    run(*at, "create")
    assert run(*at, "restore", "v1", "out").code == 0
    assert run(*at, "fsck").code == 0


def test_a_store_has_to_be_named_or_the_objects(
    run: Callable[..., Done], store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "here/.claude/skills", {"c/SKILL.md": skill_md("c")})
    for command in (("create",), ("list",), ("gc",), ("show", "v1"), ("restore", "v1", "out")):
        refused = run("snapshot", *command)
        assert (refused.code, refused.err[:43]) == (2, "skillfs: invalid_argument: which store? nam")
        several = run("-s", f"x={store}", "-s", f"y={tmp_path}", "snapshot", *command)
        assert (several.code, several.err[:45]) == (2, "skillfs: invalid_argument: 2 stores are named")
    assert run("--at", "v1", "tree").code == 2
    monkeypatch.setenv(OBJECTS_VARIABLE, str(tmp_path / "team"))
    assert run("snapshot", "create").code == 2
    assert run("-s", store, "snapshot", "create", "v1").code == 0
    shutil.rmtree(store)
    assert run("snapshot", "list").out.split("\t")[2] == "v1"
    assert run("--at", "v1", "cat", "a/one.md").out == "one\n"
    assert run("snapshot", "restore", "v1", "out").code == 0
    assert run("-s", store, "snapshot", "restore", "v1", store).code == 0
    assert run("-s", f"x={store}", "--at", "v1", "cat", "x/a/one.md").out == "one\n"


def test_bases_confine_it(run: Callable[..., Done], store: Path) -> None:
    run("-s", store, "snapshot", "create", "v1")
    confined = ("-s", store, "--base", "b", "snapshot")
    assert run(*confined, "list").out.split("\t")[3] == "1"
    assert run(*confined, "restore", "v1", "out").code == 0
    assert [path.name for path in Path("out").iterdir()] == ["b"]
    for command in (("remove", "v1"), ("gc",), ("fsck",)):
        assert run(*confined, *command).code == 2


def test_names_are_shown_harmlessly(run: Callable[..., Done], store: Path) -> None:
    write(store, {"\x1b[31m/SKILL.md": skill_md("red")})
    run("-s", store, "snapshot", "create", "v1")
    shown = run("-s", store, "snapshot", "show", "v1")
    assert "\x1b" not in shown.out
    assert "\x1b" not in run("-s", store, "snapshot", "show", "\x1b[31m").err


def test_a_label_goes_and_the_snapshot_stays(run: Callable[..., Done], store: Path) -> None:
    at = ("-s", store)
    run(*at, "snapshot", "create", "v1")
    run(*at, "snapshot", "create", "again")
    done = run(*at, "snapshot", "remove", "--label", "again")
    assert (done.code, done.err) == (0, "removed the label again\n")
    assert run(*at, "snapshot", "list").out.split("\t")[2] == "v1"
    assert run(*at, "snapshot", "remove", "--label", "again").code == 2
    (store / "a/one.md").write_text("two\n")
    assert run(*at, "snapshot", "create", "again").code == 0


def test_the_group_alone_shows_its_help(run: Callable[..., Done]) -> None:
    done = run("snapshot")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Usage: ")
