"""`skillfs diff` and `skillfs versions`, as people and scripts meet them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import skill_md, write
from tests.faces.test_cli import Done, on_terminal

WORDS = " ".join(f"w{number}" for number in range(30))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write(
        tmp_path / "store",
        {
            "a/SKILL.md": skill_md("a", body=WORDS),
            "a/one.md": "one\n",
            "a/\x1b[31m.md": "red \x1b[31m\n",
            "b/SKILL.md": skill_md("b"),
            "8004/SKILL.md": skill_md("8004", "Numbers of all kinds."),
        },
    )


def edit(store: Path) -> None:
    write(store, {"a/one.md": "two\n", "c/SKILL.md": skill_md("c"), "8004/x": "x\n"})
    (store / "b").rename(store / "d")
    (store / "a/\x1b[31m.md").unlink()


LINES = (
    "modified  8004/\nmodified  a/\nadded     c/\nmoved     b/ -> d/\n"
    'added     8004/x\nremoved   "a/\\033[31m.md"\nmodified  a/one.md\nadded     c/SKILL.md\n'
    "moved     b/SKILL.md -> d/SKILL.md\n"
)


def test_what_differs_is_listed(run: Callable[..., Done], store: Path, tmp_path: Path) -> None:
    at = ("-s", store, "--objects", tmp_path / "objects")
    run(*at, "snapshot", "create", "v1")
    assert run(*at, "diff", "v1") == (0, "", "")
    edit(store)
    assert run(*at, "diff", "v1") == (1, LINES, "")
    run(*at, "snapshot", "create", "v2")
    assert run(*at, "diff", "v1", "v2") == (1, LINES, "")
    assert run(*at, "diff", "v1", ".").out == run(*at, "diff", "v1", "latest").out == LINES
    assert run(*at, "diff", ".", "v2") == (0, "", "")
    back = run(*at, "diff", ".", "v1").out.splitlines()
    assert back[:2] == ["modified  8004/", "modified  a/"]
    assert "moved     d/ -> b/" in back
    told = run(*at, "diff", "v1", "v2", "--json").json
    assert isinstance(told, dict)
    assert [one["path"] for one in told["skills"]] == ["/8004", "a", "c", "d"]
    assert {one["entry"] for one in told["skills"]} == {"skill"}
    assert told["items"][2]["old_hash"].startswith("sha256:")
    assert told["revision"] == 0
    assert run(*at, "diff", "v1", "--only", "b", "--only", "a/one.md").out == (
        "moved     b/ -> d/\nmodified  a/one.md\nmoved     b/SKILL.md -> d/SKILL.md\n"
    )
    assert run(*at, "--base", "c", "diff", "v2", "--json").json == {
        "revision": told_revision(run, at),
        "skills": [],
        "items": [],
    }


def told_revision(run: Callable[..., Done], at: tuple[str | Path, ...]) -> int:
    status = run(*at, "status", "--json").json
    assert isinstance(status, dict)
    revision = status["revision"]
    assert isinstance(revision, int)
    return revision


def test_texts_are_shown(run: Callable[..., Done], store: Path, tmp_path: Path) -> None:
    at = ("-s", store, "--objects", tmp_path / "objects")
    run(*at, "snapshot", "create", "v1")
    assert run(*at, "diff", "v1", "--text") == (0, "", "")
    edit(store)
    one = "modified  a/one.md\n--- a/a/one.md\n+++ b/a/one.md\n@@ -1 +1 @@\n-one\n+two\n"
    assert run(*at, "diff", "v1", "--text", "--only", "a/one.md") == (1, one, "")
    whole = run(*at, "diff", "v1", "--text")
    assert one in whole.out
    assert [line for line in whole.out.splitlines() if line[:5] in ("added", "moved", "remov")] == [
        line for line in LINES.splitlines()[4:] if not line.startswith("modified")
    ]
    run(*at, "snapshot", "create", "v2")
    assert run(*at, "diff", "v1", "v2", "--text") == whole
    both = run(*at, "diff", "v1", "v2", "--text", "--only", "a/one.md", "--only", "/8004", "--context", "0")
    assert both.out == "added     8004/x\n--- /dev/null\n+++ b/8004/x\n@@ -0,0 +1 @@\n+x\n" + one
    assert (
        run(*at, "diff", "v1", "v2", "--text", "--only", "b/SKILL.md").out
        == "moved     b/SKILL.md -> d/SKILL.md\n"
    )
    assert run(*at, "diff", "v1", "--text", "--only", "d/SKILL.md").code == 1


def test_of_two_snapshots_the_store_need_not_be_there(
    run: Callable[..., Done], store: Path, tmp_path: Path
) -> None:
    at = ("-s", store, "--objects", tmp_path / "objects")
    run(*at, "snapshot", "create", "v1")
    edit(store)
    run(*at, "snapshot", "create", "v2")
    shutil.rmtree(store)
    alone = ("--objects", tmp_path / "objects")
    assert run(*alone, "diff", "v1", "v2") == (1, LINES, "")
    assert run(*alone, "diff", "v1", "v2", "--text", "--only", "c").code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("diff", "v9"), 'not_found: no snapshot answers to "v9"'),
        (("diff", "v1", "v9"), 'not_found: no snapshot answers to "v9"'),
        (("diff", "v1", "--only", "no"), 'not_found: nothing visible answers to "no"'),
        (("diff", "v1", "--text", "--only", "name:a"), "invalid_argument: "),
        (("diff", "v1", "--text", "--json"), "invalid_argument: --text is no JSON"),
        (("diff", "v1", "--context", "3"), "invalid_argument: --context goes with --text"),
        (("diff", "v1", "--context", "-3", "--text"), "invalid_argument: context"),
        (("diff", "v1", "v1", "--context", "-3", "--text"), "invalid_argument: context"),
        (("diff",), "Missing argument"),
        (("versions", "no"), 'not_found: nothing visible answers to "no"'),
        (("versions", "--least", "101"), "invalid_argument: --least"),
        (("versions", "--limit", "-1"), "invalid_argument: limit"),
    ],
)
def test_what_cannot_be_done_is_said(
    run: Callable[..., Done], store: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    at = ("-s", store, "--objects", tmp_path / "objects")
    run(*at, "snapshot", "create", "v1")
    done = run(*at, *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_versions_are_listed(run: Callable[..., Done], store: Path, tmp_path: Path) -> None:
    at = ("-s", store, "--index", ":memory:")
    assert run(*at, "versions") == (0, "", "no other versions here\n")
    shutil.copytree(store / "a", store / "copy")
    write(store, {"edited/SKILL.md": skill_md("a", body=WORDS.replace("w15", "other"))})
    write(store, {"named/SKILL.md": skill_md("b", "Quite another matter, this one.")})
    assert run(*at, "versions", "/a").out == (
        "a\tword for word\t100%\t100%\tcopy\tsame files\na\tedited\t84%\t84%\tedited\t\n"
    )
    assert run(*at, "versions", "b").out == "b\town version\t\t\tnamed\t\n"
    limited = run(*at, "versions", "/a", "--limit", "1")
    assert (len(limited.out.splitlines()), limited.err) == (1, "1 version more; show all with: --limit 0\n")
    assert "own version" in run(*at, "versions", "/a", "--least", "85").out
    told = run(*at, "versions", "--json").json
    assert isinstance(told, list)
    assert [one["path"] for one in told] == ["a", "b", "copy", "edited", "named"]
    assert told[0]["versions"][0] == {
        "kind": "word for word", "path": "copy", "uuid": told[2]["uuid"], "name": "a", "held": 1.0,
        "holds": 1.0, "same_files": True,
    }  # fmt: skip
    assert run(*at, "versions", "/8004", "--json").json == [
        {"path": "/8004", "uuid": run(*at, "stat", "/8004", "--json").json["uuid"], "name": "8004",  # type: ignore[index]
         "total": 0, "versions": []}
    ]  # fmt: skip


def test_nothing_reaches_a_terminal_raw(run: Callable[..., Done], store: Path, tmp_path: Path) -> None:
    at = ("-s", store, "--index", ":memory:", "--objects", tmp_path / "objects")
    run(*at, "snapshot", "create", "v1")
    write(store, {"a/\x1b[31m.md": "green \x1b[32m\r\n", "\x1b[1mx/SKILL.md": skill_md("a", body=WORDS)})
    for command in (("diff", "v1", "--text"), ("diff", "v1"), ("versions",)):
        shown = on_terminal(*at, *command)
        assert "[31m" in shown.out or "[1m" in shown.out
        for raw in ("\x1b[31m.md", "green \x1b[32m", "\x1b[1mx/"):
            assert raw not in shown.out
    assert "\x1b[32m+green" in on_terminal(*at, "diff", "v1", "--text").out
    assert "\x1b" not in on_terminal(*at, "diff", "v1", "--text", env={"NO_COLOR": "1"}).out
