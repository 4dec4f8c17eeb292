"""Which stores a command is about: `-s`, `SKILLFS_STORE`, and the folders that agents use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from skillfs.errors import InvalidArgumentError, NotFoundError
from skillfs.faces.cli import main
from skillfs.faces.stores import conventional_stores, named_stores, stores_of_environment
from tests.conftest import skill_md, write
from tests.privileges import bound_by_permissions


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    monkeypatch.delenv("SKILLFS_STORE", raising=False)

    def run_in_process(*arguments: str | Path) -> Done:
        code = main([str(argument) for argument in arguments])
        return Done(code, *capsys.readouterr())

    return run_in_process


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    return write(
        tmp_path,
        {
            "t/pdf/SKILL.md": skill_md("pdf", "Copied."),
            "t/pdf/forms.md": "eins\nzwei\n",
            "m/pdf/SKILL.md": skill_md("pdf", "Copied."),
            "m/pdf/forms.md": "eins\nzwei\n",
            "m/notes/SKILL.md": "---\nname: notes\n",
        },
    )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def project(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, in which the working folder is two levels down."""
    write(tmp_path, {"work/repo/.git/HEAD": "x", "work/repo/src/deep/x.txt": ""})
    monkeypatch.chdir(tmp_path / "work/repo/src/deep")
    return tmp_path / "work/repo"


# -- those that are named ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["/srv/skills"], "/srv/skills"),
        (["s3://bucket/skills"], "s3://bucket/skills"),
        (["team=/srv/skills"], {"team": "/srv/skills"}),
        (["team=~/skills", "mine=s3://b/k?a=b"], {"team": "~/skills", "mine": "s3://b/k?a=b"}),
        (["a=b=c"], {"a": "b=c"}),
        (["two words=x"], {"two words": "x"}),
        (["b=x", "a=y"], {"b": "x", "a": "y"}),
        (["team="], {"team": ""}),
        (["./a=b"], "./a=b"),
        (["/a=b"], "/a=b"),
        (["dir/a=b"], "dir/a=b"),
        (["s3://b/k?a=b"], "s3://b/k?a=b"),
        (["v1.2=b"], "v1.2=b"),
        (["8004=b"], "8004=b"),
        (["=b"], "=b"),
        ([""], ""),
        (["a", "b"], None),
        (["a=x", "b"], None),
        (["a=x", "./b=y"], None),
        (["a=x", "a=y"], None),
    ],
    ids=repr,
)
def test_what_names_a_store(values: list[str], found: object) -> None:
    if found is None:
        with pytest.raises(InvalidArgumentError, match=r"NAME=STORE|two stores have"):
            named_stores(values)
        return
    assert named_stores(values) == found
    if isinstance(found, dict):
        assert list(named_stores(values)) == list(found)  # in this order


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("1", "would be read as an id"),
        ("2dfd4627-a391-5597-bf5b-924f0550c2c5", "would be read as an id, a UUID"),
        ("v1.2", 'holds "/", ":" or "."'),
        ("a:b", 'holds "/", ":" or "."'),
        ("a/b", 'holds "/"'),
        ("a\u202eb", "holds a character that does not show"),
        ("a\u200b", "holds a character that does not show"),
        ("..", '".."'),
    ],
)
def test_a_name_that_is_none_is_told_where_a_store_follows(
    run: Callable[..., Done], stores: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str
) -> None:
    done = run("-s", f"{name}={stores}/t", "skills")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("skillfs: invalid_argument: the mount name")
    assert says in done.err
    assert str(stores) not in done.err
    assert run("-s", f"mine={stores}/m", "-s", f"{name}={stores}/t", "skills").err == done.err
    monkeypatch.setenv("SKILLFS_STORE", f"{name}={stores}/t")
    assert run("skills").err == done.err
    monkeypatch.chdir(stores)
    (stores / f"{name}=t").mkdir(parents=True)
    assert run("-s", f"{name}=t", "index").code == 0  # a folder of that name is one


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("/srv/skills", ["/srv/skills"]),
        ("/srv/a:/srv/b", ["/srv/a:/srv/b"]),
        ("s3://bucket/x", ["s3://bucket/x"]),
        ("team=/srv/a", ["team=/srv/a"]),
        ("team=/srv/a:mine=/srv/b", ["team=/srv/a", "mine=/srv/b"]),
        ("team=s3://bucket/a:mine=/srv/b", ["team=s3://bucket/a", "mine=/srv/b"]),
        ("team=http://host:8080/a:mine=memory://x", ["team=http://host:8080/a", "mine=memory://x"]),
        ("team=/srv/a:b", ["team=/srv/a:b"]),
        ("/srv/a:b=c", ["/srv/a:b=c"]),
    ],
)
def test_what_the_environment_names(value: str, found: list[str]) -> None:
    assert stores_of_environment(value.replace(":m", f"{os.pathsep}m")) == found


def test_commands_over_several_stores(run: Callable[..., Done], stores: Path) -> None:
    both = ("-s", f"team={stores}/t", "-s", f"mine={stores}/m")
    assert run(*both, "find", "*.md").out.splitlines() == [
        *("mine/notes/SKILL.md", "mine/pdf/SKILL.md", "mine/pdf/forms.md"),
        *("team/pdf/SKILL.md", "team/pdf/forms.md"),
    ]
    assert run(*both, "find").out.splitlines()[0] == "mine"
    assert [e["path"] for e in run(*both, "find", "mine", "pdf", "--json").json] == [
        "mine",
        "mine/pdf",
        "team/pdf",
    ]
    assert run(*both, "cat", "mine/pdf/forms.md", "--lines", "2:2").out == "zwei\n"
    assert run(*both, "cat", "pdf/forms.md").err.startswith(
        'skillfs: not_found: nothing visible answers to "pdf/'
    )
    entry = run(*both, "stat", "mine/pdf/forms.md", "--json").json
    assert (entry["path"], entry["skill_path"]) == ("mine/pdf/forms.md", "mine/pdf")
    assert run(*both, "stat", str(entry["id"]), "--json").json == entry
    assert run(*both, "find", "--hash", entry["hash"]).out == "mine/pdf/forms.md\nteam/pdf/forms.md\n"
    assert "mine/\n" in run(*both, "tree").out
    done = run(*both, "check")
    assert done.code == 1
    assert "mine/pdf/SKILL.md: warning shadowed: " in done.out
    assert [line.split("\t")[1] for line in run(*both, "skills").out.splitlines()] == [
        *("mine/notes", "mine/pdf", "team/pdf"),
    ]
    assert run(*both, "--base", "mine/notes", "find").out == "mine\nmine/notes\nmine/notes/SKILL.md\n"
    since = run(*both, "status", "--json").json["revision"]
    write(stores, {"t/pdf/new.md": ""})
    changed = run(*both, "changes", "--since", str(since))
    assert changed.out == "added     team/pdf/new.md\n"
    assert f"--since {since + 1}" in changed.err
    assert run(*both, "index", "--full").out.startswith("3 skills, 6 files, ")


def test_folded_skills(run: Callable[..., Done], stores: Path) -> None:
    both = ("-s", f"team={stores}/t", "-s", f"mine={stores}/m")
    rows = [line.split("\t") for line in run(*both, "skills", "--fold").out.splitlines()]
    assert [(row[0], row[1], row[3]) for row in rows] == [
        ("notes", "mine/notes", ""),
        ("pdf", "team/pdf", "mine/pdf"),
    ]
    listed = run(*both, "skills", "--fold", "--json").json
    assert [skill["places"] for skill in listed] == [["mine/notes"], ["team/pdf", "mine/pdf"]]
    assert [skill["places"] for skill in run("-s", stores / "t", "skills", "--json").json] == [["pdf"]]


def test_the_status_of_several_stores(run: Callable[..., Done], stores: Path) -> None:
    both = ("-s", f"team={stores}/t", "-s", f"mine={stores}/m")
    status = run(*both, "status", "--json").json
    assert [mount["name"] for mount in status["mounts"]] == ["team", "mine"]
    assert status["skills"] == 3
    text = run(*both, "status").out
    assert "skills: 3\n" in text
    assert "\nname: team\nstore: t\n" in text
    assert "\nname: mine\n" in text
    assert "mounts" not in text


def test_the_index_belongs_to_one_store(run: Callable[..., Done], stores: Path, tmp_path: Path) -> None:
    both = ("-s", f"team={stores}/t", "-s", f"mine={stores}/m")
    refused = run("--index", tmp_path / "x.sqlite", *both, "tree")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("skillfs: invalid_argument: --index names the index of one store")
    assert run("--index", ":memory:", *both, "status", "--json").json["mounts"][0]["index"] == ":memory:"
    one = run("--index", tmp_path / "x.sqlite", "-s", f"team={stores}/t", "status", "--json").json
    assert one["mounts"][0]["index"] == str(tmp_path / "x.sqlite")


def test_a_store_that_cannot_be_opened_is_named(run: Callable[..., Done], stores: Path) -> None:
    done = run("-s", f"team={stores}/none", "-s", f"mine={stores}/m", "tree")
    assert done.code == 2
    assert done.err.startswith('skillfs: not_found: mount "team": ')


def test_several_stores_of_the_environment(
    run: Callable[..., Done], stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLFS_STORE", f"team={stores}/t{os.pathsep}mine={stores}/m")
    assert run("find", "SKILL.md").out.count("\n") == 3
    assert run("-s", stores / "t", "find", "SKILL.md").out == "pdf/SKILL.md\n"
    monkeypatch.setenv("SKILLFS_STORE", f"team={stores}/t")
    assert run("find", "SKILL.md").out == "team/pdf/SKILL.md\n"


def test_init_wants_one_store_named(
    run: Callable[..., Done], stores: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, {".claude/skills/a/SKILL.md": skill_md("a")})
    done = run("init")
    assert done.code == 2
    assert done.err.startswith("skillfs: invalid_argument: which store?")
    done = run("-s", f"team={stores}/t", "-s", f"mine={stores}/m", "init")
    assert (done.code, done.err.count("2 stores are named")) == (2, 1)
    assert not list(stores.rglob("store.json"))
    assert run("-s", f"team={stores}/t", "init").code == 0
    assert (stores / "t/.skillfs/store.json").exists()
    monkeypatch.setenv("SKILLFS_STORE", str(stores / "m"))
    assert run("init").code == 0


# -- those of agents ---------------------------------------------------------------------------------------


def test_project_before_home_nearest_first(project: Path, home: Path, run: Callable[..., Done]) -> None:
    skill = {"s/SKILL.md": skill_md("s")}
    for folder in (
        *(project / "src/deep/.cursor", project / "src/.claude", project / ".claude", project / ".agents"),
        *(home / ".agents", home / ".config/opencode", home / ".copilot", home / ".opencode"),
        *(project.parent / ".claude", project / ".copilot", project / ".config/opencode"),
    ):
        write(folder / "skills", skill)
    found = conventional_stores()
    assert found.left_out == []
    assert {
        name: Path(store).relative_to(project.parent.parent).as_posix()
        for name, store in found.stores.items()
    } == {
        "cursor": "work/repo/src/deep/.cursor/skills",
        "claude": "work/repo/src/.claude/skills",
        "agents": "work/repo/.agents/skills",
        "claude-2": "work/repo/.claude/skills",
        "home-agents": "home/.agents/skills",
        "home-opencode": "home/.opencode/skills",
        "home-config-opencode": "home/.config/opencode/skills",
        "home-copilot": "home/.copilot/skills",
    }
    assert list(found.stores) == [
        *("cursor", "claude", "agents", "claude-2"),
        *("home-agents", "home-opencode", "home-config-opencode", "home-copilot"),
    ]
    done = run("skills")
    assert (done.code, done.err) == (0, "")
    assert len(done.out.splitlines()) == 8
    assert run("stat", "name:s", "--json").json["path"] == "cursor/s"


def test_every_agent_has_a_name(project: Path, home: Path) -> None:
    for folder in (project, home):
        for agent in ("agents", "claude", "codex", "cursor", "gemini", "github", "opencode"):
            (folder / f".{agent}/skills").mkdir(parents=True)
    names = ["agents", "claude", "codex", "cursor", "gemini", "github", "opencode"]
    assert list(conventional_stores().stores) == [*names, *(f"home-{name}" for name in names)]


def test_without_a_repository_the_working_folder_counts(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("plain/.claude/skills", "plain/below/.agents/skills"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "plain/below")
    assert list(conventional_stores().stores) == ["agents"]


def test_one_folder_is_taken_once(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / ".agents/skills").mkdir(parents=True)
    (project / ".claude").symlink_to(".agents")
    (project / ".cursor").mkdir()
    (project / ".cursor/skills").symlink_to("../.agents/skills")
    (project / ".gemini").mkdir()
    (project / ".gemini/skills").symlink_to("nowhere")
    assert list(conventional_stores().stores) == ["agents"]
    (home / ".claude/skills").mkdir(parents=True)
    monkeypatch.chdir(home)
    assert list(conventional_stores().stores) == ["claude"]


def test_what_is_no_folder_is_left_out_with_a_note(
    project: Path, home: Path, run: Callable[..., Done]
) -> None:
    write(
        project,
        {".claude/skills": "a file", ".agents/skills/a/SKILL.md": skill_md("a"), "src/.codex/skills": ""},
    )
    (home / ".cursor/skills").mkdir(parents=True)
    (home / ".cursor/skills").chmod(0)
    with bound_by_permissions():
        done = run("find", "SKILL.md")
        assert (done.code, done.out) == (0, "agents/a/SKILL.md\n")
        assert done.err.splitlines() == [
            "skillfs: warning: ../.codex/skills is a file, and is left out",
            "skillfs: warning: ../../.claude/skills is a file, and is left out",
            "skillfs: warning: ~/.cursor/skills cannot be read (Permission denied), and is left out",
        ]
    (home / ".cursor/skills").chmod(0o755)


def test_a_project_that_may_not_be_searched(project: Path, home: Path, run: Callable[..., Done]) -> None:
    write(home, {".agents/skills/a/SKILL.md": skill_md("a")})
    for shut in (project / "src/deep", project / "src", project):
        shut.chmod(0o600)
        try:
            with bound_by_permissions():
                done = run("find", "SKILL.md")
        finally:
            shut.chmod(0o755)
        assert (done.code, done.out, done.err) == (0, "home-agents/a/SKILL.md\n", "")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["-s", "x", "skills"], 2, 'not_found: the store folder "x" is relative'),
        (["-s", ".", "skills"], 2, 'not_found: the store folder "." is relative'),
        (["-s", "file://x", "skills"], 2, 'not_found: the store folder "x" is relative'),
        (["-s", "a=x", "skills"], 2, 'not_found: mount "a": the store folder "x" is relative'),
        (["-s", "{home}", "--follow", "x", "skills"], 2, 'not_found: the follow folder "x" is relative'),
        (["-s", "{home}", "--index", "x", "skills"], 2, 'invalid_argument: index "x" is relative'),
        (["-s", "x", "init"], 2, 'not_found: the store folder "x" is relative'),
        (["skills"], 0, None),
        (["-s", "{home}/.agents/skills", "skills"], 0, None),
    ],
)
def test_a_working_folder_that_is_gone(
    tmp_path: Path, home: Path, arguments: list[str], code: int, says: str | None
) -> None:
    write(home, {".agents/skills/a/SKILL.md": skill_md("a")})
    gone = tmp_path / "gone"
    gone.mkdir()
    start = "import os, sys; os.rmdir(os.getcwd()); from skillfs.faces.cli import main; sys.exit(main())"
    filled = [argument.replace("{home}", str(home)) for argument in arguments]
    done = subprocess.run(
        [sys.executable, "-c", start, *filled], cwd=gone, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    if says is None:
        assert (done.stderr, done.stdout.count("\n")) == ("", 1)
    else:
        assert done.stderr.startswith(f"skillfs: {says}")
        assert done.stderr.count("\n") == 1


def test_none_at_all_says_what_to_pass(project: Path, home: Path, run: Callable[..., Done]) -> None:
    with pytest.raises(NotFoundError):
        conventional_stores()
    for command in ("tree", "skills", "check", "status"):
        done = run(command)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("skillfs: not_found: no skill folders are here")
        assert "skillfs -s STORE, or set SKILLFS_STORE" in done.err
        assert str(project) not in done.err


def test_a_home_that_is_not_known(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", home)
    (project / ".claude/skills").mkdir(parents=True)
    assert list(conventional_stores().stores) == ["claude"]
