"""The command line as people and scripts meet it."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import skillfs
from skillfs import Content, SkillFileSystem, SkillFSError
from skillfs.faces import output
from skillfs.faces.cli import command, main
from tests.sync.watching import wait_until

if TYPE_CHECKING:
    from tests.servers.faults import FaultyS3
    from tests.servers.s3 import Bucket

ESCAPE = "\x1b"
LONG = 2_000_000
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
ODD_TEXT = "\ufeffZürich\r\nno\x1b[31m colour \u202e数据\r\tend"

FILES: dict[str, str | bytes] = {
    "pdf/SKILL.md": "---\nname: pdf\ndescription: Read and fill PDF forms.\nlicense: MIT\n---\n# PDF\n",
    "pdf/references/forms.md": "eins\nzwei\ndrei\nvier",
    "pdf/references/odd.txt": ODD_TEXT,
    "pdf/scripts/fill.py": "print('größe')\n",
    "pdf/logo.png": PNG,
    "pdf/.hidden.md": "hidden\n",
    "pdf/-rf": "a name like an option\n",
    "pdf/latin.txt": "Zürich\n".encode("latin-1"),
    "pdf/forms/SKILL.md": "---\nname: forms\ndescription: Nested.\n---\n",
    "8004/SKILL.md": "---\nname: '8004'\ndescription: A folder named like an id.\n---\n",
    "[bold]x[/bold]/SKILL.md": (
        '---\nname: "[red]mark[/red]"\ndescription: "[blink]b[/] \\e[31mred \\u202Eflip"\n---\n'
    ),
    "outside.md": "not in a skill\n",
}


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> object:
        return json.loads(self.out)


def make_store(root: Path) -> Path:
    for name, content in FILES.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


@pytest.fixture
def fs(store: Path) -> SkillFileSystem:
    return SkillFileSystem(store, index=":memory:")


@pytest.fixture
def run(store: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Done]:
    """Run a command in this process."""

    def run_in_process(*arguments: str | Path, at: Path | None = store) -> Done:
        named = [] if at is None else ["-s", str(at)]
        code = main([*named, *map(str, arguments)])
        captured = capsysbinary.readouterr()
        return Done(code, captured.out.decode(), captured.err.decode())

    return run_in_process


def start(
    *arguments: str | Path,
    env: dict[str, str] | None = None,
    command: list[str] | None = None,
    **options: object,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command or [sys.executable, "-m", "skillfs", *map(str, arguments)],
        env={**os.environ, **(env or {})},
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},  # type: ignore[call-overload]
    )


def process(*arguments: str | Path, env: dict[str, str] | None = None, **options: object) -> Done:
    """Run a command in a process of its own."""
    with start(*arguments, env=env, **options) as running:
        out, err = running.communicate(timeout=60)
    return Done(running.returncode, (out or b"").decode(), err.decode())


def on_terminal(*arguments: str | Path, env: dict[str, str] | None = None) -> Done:
    """Run a command whose standard output is a terminal."""
    terminal, slave = pty.openpty()
    environment = {"TERM": "xterm-256color", "COLUMNS": "160", "NO_COLOR": "", **(env or {})}
    with start(*arguments, env=environment, stdout=slave) as running:
        os.close(slave)
        written = b""
        while True:
            try:
                piece = os.read(terminal, 65_536)
            except OSError as error:
                if error.errno != errno.EIO:  # how Linux says that nobody writes any more
                    raise
                break
            if not piece:
                break
            written += piece
        assert running.stderr is not None
        err = running.stderr.read()
    os.close(terminal)
    return Done(running.returncode, re.sub("\r+\n", "\n", written.decode()), err.decode())


# -- help --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_alone_it_prints_help(run: Callable[..., Done], arguments: list[str]) -> None:
    done = run(*arguments, at=None)
    assert (done.code, done.err) == (0, "")
    assert all(name in done.out for name in command.commands)


@pytest.mark.parametrize("name", sorted(command.commands))
def test_every_command_has_a_short_help_and_an_example(name: str) -> None:
    result = CliRunner().invoke(command, [name, "--help"])
    assert result.exit_code == 0
    assert re.search(rf"Example: skillfs -s \./skills {name}\b", result.output)
    listed = CliRunner().invoke(command, []).output
    assert re.search(rf"^  {name} .*\w\.$", listed, re.MULTILINE), "the first line does not fit the list"


def test_version_and_both_ways_to_start() -> None:
    script = Path(sys.executable).with_name("skillfs")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == process("--version").out == f"skillfs {skillfs.__version__}\n"


# -- listing -----------------------------------------------------------------------------------------------


def test_skills(run: Callable[..., Done], fs: SkillFileSystem) -> None:
    done = run("skills")
    assert (done.code, done.err) == (0, "")
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [row[1] for row in rows] == ["/8004", "[bold]x[/bold]", "pdf", "pdf/forms"]
    assert rows[2] == ["pdf", "pdf", "Read and fill PDF forms."]
    assert ESCAPE not in done.out
    assert "\u202e" not in done.out

    listed = run("skills", "--json").json
    assert [skill["path"] for skill in listed] == [row[1] for row in rows]
    assert listed[2]["uuid"] == fs.skill("pdf").uuid
    assert listed[2]["license"] == "MIT"
    assert listed[2]["location"] == "pdf/SKILL.md"
    assert listed[0]["front_matter"] == {"name": "8004", "description": "A folder named like an id."}


def test_no_skills_says_so(run: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = run("skills", at=tmp_path / "empty")
    assert (done.code, done.out) == (0, "")
    assert "SKILL.md" in done.err


def test_tree(run: Callable[..., Done], fs: SkillFileSystem) -> None:
    assert run("tree") == (0, f"{fs.skill_tree()}\n", "")
    assert run("tree", "pdf") == (0, f"{fs.skill_tree('pdf')}\n", "")
    assert run("tree", "--json").json == fs.skill_tree().to_dict()


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (["--depth", "1"], {"depth": 1}),
        (["--no-files"], {"files": False}),
        (["--hidden"], {"hidden": True}),
        (["--include", "*.md", "--include", "*.py"], {"include": ["*.md", "*.py"]}),
        (["--exclude", "references/**"], {"exclude": ["references/**"]}),
        (["--details"], {"details": True}),
        (["--limit", "3"], {"limit": 3}),
        (["--limit", "0"], {"limit": None}),
    ],
)
def test_tree_options(
    run: Callable[..., Done], fs: SkillFileSystem, options: list[str], arguments: dict[str, object]
) -> None:
    asked = fs.skill_tree("pdf", **arguments)  # type: ignore[arg-type]
    assert run("tree", "pdf", *options).out == f"{asked}\n"
    assert run("tree", "pdf", *options, "--json").json == asked.to_dict()


def test_tree_pages_join(run: Callable[..., Done]) -> None:
    def names(node: dict[str, object]) -> list[object]:
        return [name for child in node.get("children", []) for name in (child["path"], *names(child))]

    whole = names(run("tree", "pdf", "--json").json)
    pages: set[object] = set()
    cursor: list[str] = []
    for _ in whole:
        page = run("tree", "pdf", "--json", "--limit", "4", *cursor).json
        pages.update(names(page))
        if page["cursor"] is None:
            break
        cursor = ["--cursor", page["cursor"]]
    assert pages == set(whole)


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["*.py"], ["pdf/scripts/fill.py"]),
        (["*.py", "*.png"], ["pdf/logo.png", "pdf/scripts/fill.py"]),
        (["pdf/references/**"], ["pdf/references/forms.md", "pdf/references/odd.txt"]),
        (["forms*"], ["pdf/forms", "pdf/references/forms.md"]),
        (["8004"], ["/8004"]),
        ([".hidden.md"], ["pdf/.hidden.md"]),
        (["*.rs"], []),
    ],
)
def test_find(run: Callable[..., Done], patterns: list[str], found: list[str]) -> None:
    done = run("find", *patterns)
    assert done == (0 if found else 1, "".join(f"{path}\n" for path in found), "")
    listed = run("find", *patterns, "--json")
    assert [entry["path"] for entry in listed.json] == found
    assert listed.code == done.code


def test_find_looks_no_entry_up_to_print_its_path(
    run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = run("find").out
    looked_up = []
    monkeypatch.setattr(SkillFileSystem, "entry", lambda _, ref: looked_up.append(ref))
    assert run("find").out == paths
    assert looked_up == []


def test_find_lists_everything_in_a_form_that_can_be_passed_back(run: Callable[..., Done]) -> None:
    paths = run("find").out.splitlines()
    assert len(paths) == len(set(paths)) == 11 + 7  # files and folders
    for path in paths:
        assert run("stat", "--json", "--", path).json["path"] == path


def test_find_by_content(run: Callable[..., Done]) -> None:
    known = run("stat", "pdf/logo.png", "--json").json["hash"]
    assert run("find", "--hash", known) == (0, "pdf/logo.png\n", "")
    assert run("find", "*.md", "--hash", known) == (1, "", "")
    assert run("find", "--hash", "xxh3:" + "0" * 32) == (1, "", "")
    assert run("find", "--hash", "xxh3:" + "0" * 32, "--json").json == []
    assert run("find", "--hash", "pdf").code == 2


def test_find_keeps_odd_names_on_one_line(run: Callable[..., Done], store: Path) -> None:
    (store / "pdf/a\nb\u202e.md").write_text("x")
    assert run("find", "a*b*").out == '"pdf/a\\nb\\342\\200\\256.md"\n'
    (entry,) = run("find", "a*b*", "--json").json
    assert entry["path"] == "pdf/a\nb\u202e.md"
    assert run("cat", entry["uuid"]).out == "x"


def test_find_shows_a_link_where_it_lies(run: Callable[..., Done], store: Path) -> None:
    (store / "pdf/alias.md").symlink_to("references/forms.md")
    (entry,) = run("find", "alias.md", "--json").json
    assert (entry["path"], entry["name"], entry["link"]) == (
        "pdf/alias.md",
        "alias.md",
        "pdf/references/forms.md",
    )
    assert entry["uuid"] == run("stat", "pdf/references/forms.md", "--json").json["uuid"]


# -- one entry ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n, c in FILES.items() if isinstance(c, str) and n.startswith("pdf/")])
def test_cat_prints_the_bytes_of_a_text(
    store: Path, name: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["-s", str(store), "cat", "--", name]) == 0
    assert capsysbinary.readouterr().out == (store / name).read_bytes()


def test_cat_in_a_real_pipe_is_exact(store: Path) -> None:
    with start("-s", store, "cat", "pdf/references/odd.txt", env={"LC_ALL": "C"}) as running:
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (0, ODD_TEXT.encode(), b"")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--lines", "2:3"], "zwei\ndrei\n"),
        (["--lines", "3:"], "drei\nvier"),
        (["--lines", ":1"], "eins\n"),
        (["--lines", "4:900"], "vier"),
        (["--lines", "9:"], ""),
        (["--start", "5", "--length", "4"], "zwei"),
        (["--start", "15"], "vier"),
        (["--start", "99999999999999999999"], ""),
        (["--length", "0"], ""),
    ],
)
def test_cat_parts(run: Callable[..., Done], options: list[str], text: str) -> None:
    assert run("cat", "pdf/references/forms.md", *options) == (0, text, "")


def test_cat_header_is_the_raw_format(run: Callable[..., Done], fs: SkillFileSystem) -> None:
    done = run("cat", "pdf/SKILL.md", "--header", "--start", "4", "--length", "9")
    assert Content.parse(done.out) == fs.get_content("pdf/SKILL.md", 4, 9)


def test_cat_encoding_and_bytes(
    run: Callable[..., Done], store: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    refused = run("cat", "pdf/latin.txt")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("skillfs: not_text: ")
    assert run("cat", "pdf/latin.txt", "--encoding", "latin-1") == (0, "Zürich\n", "")
    assert run("cat", "pdf/logo.png").code == 2
    uuid = run("stat", "pdf/logo.png", "--json").json["uuid"]
    assert main(["-s", str(store), "cat", uuid, "--bytes"]) == 0
    assert capsysbinary.readouterr().out == PNG


def test_stat(run: Callable[..., Done], fs: SkillFileSystem) -> None:
    facts = run("stat", "pdf/references/forms.md", "--json").json
    entry = fs.entry("pdf/references/forms.md")
    assert set(facts) == set(type(entry).__slots__)
    assert facts["uuid"] == entry.uuid
    assert facts["skill_path"] == "pdf"
    assert facts["modified"] == entry.modified.isoformat()
    lines = dict(line.split(": ", 1) for line in run("stat", str(facts["id"])).out.splitlines())
    assert lines.keys() == facts.keys()
    assert (lines["kind"], lines["size"], lines["link"]) == ("file", "19", "-")


def test_names_like_options(run: Callable[..., Done]) -> None:
    assert run("cat", "--", "pdf/-rf").out == "a name like an option\n"
    assert run("cat", "--", "--help").err.startswith(
        'skillfs: not_found: nothing visible answers to "--help"'
    )
    refused = run("cat", "-rf")
    assert refused.code == 2
    assert '"--"' in refused.err


# -- the state of the store --------------------------------------------------------------------------------


def test_check_lists_problems_and_counts_them(run: Callable[..., Done], fs: SkillFileSystem) -> None:
    done = run("check")
    problems = fs.problems()
    assert len(done.out.splitlines()) == len(problems) > 0
    for line in done.out.splitlines():
        assert re.fullmatch(r".+?(:\d+)?: (error|warning|info) [a-z-]+: .+", line)
    listed = run("check", "--json").json
    assert [p["code"] for p in listed["problems"]] == [p.code for p in problems]
    assert sum(listed["counts"].values()) == len(problems)


@pytest.mark.parametrize(
    ("skill", "plain", "strict"),
    [
        ("---\nname: s\ndescription: d\n---\n", 0, 0),
        ("---\nname: s\ndescription: d\ncolour: red\n---\n", 0, 1),
        ("---\nname: other\ndescription: d\n---\n", 0, 1),
        ("---\nname: s\n", 1, 1),
    ],
    ids=["sound", "info", "warning", "error"],
)
def test_check_exits_by_severity(
    run: Callable[..., Done], tmp_path: Path, skill: str, plain: int, strict: int
) -> None:
    (tmp_path / "own/s").mkdir(parents=True)
    (tmp_path / "own/s/SKILL.md").write_text(skill)
    assert run("check", at=tmp_path / "own").code == plain
    assert run("check", "--json", at=tmp_path / "own").code == plain
    assert run("check", "--strict", at=tmp_path / "own").code == strict


def test_index_and_status(run: Callable[..., Done], tmp_path: Path) -> None:
    file = tmp_path / "kept" / "index.sqlite"
    done = run("--index", file, "index")
    assert re.fullmatch(r"4 skills, 11 files, [\d,]+ bytes; revision \d+\n", done.out)
    assert file.exists()
    status = run("--index", file, "status", "--json").json
    assert status == run("--index", file, "index", "--json").json
    assert (status["skills"], status["files"], status["index"]) == (4, 11, str(file))
    assert not {name for name in status if "watch" in name}  # a command that ends at once watches nothing
    lines = dict(line.split(": ", 1) for line in run("--index", file, "status").out.splitlines())
    assert lines == {name: str(value) for name, value in status.items()}
    assert run("--index", ":memory:", "status", "--json").json["index"] == ":memory:"


def test_index_full_makes_every_hash_known(run: Callable[..., Done]) -> None:
    assert run("find", "--hash", "sha256:" + "0" * 64).err.startswith("skillfs: not_indexed: ")
    assert run("index", "--full").code == 0
    assert run("find", "--hash", "sha256:" + "0" * 64) == (1, "", "")


def test_changes(run: Callable[..., Done], store: Path) -> None:
    since = run("status", "--json").json["revision"]
    assert run("changes", "--since", str(since)).out == ""
    (store / "pdf/new.md").write_text("new\n")
    (store / "pdf/logo.png").rename(store / "pdf/sign.png")
    (store / "pdf/-rf").unlink()
    done = run("changes", "--since", str(since))
    assert sorted(done.out.splitlines()) == [
        "added     pdf/new.md",
        "moved     pdf/logo.png -> pdf/sign.png",
        "removed   pdf/-rf",
    ]
    found = run("changes", "--since", str(since), "--json").json
    assert not found["reset"]
    assert {item["kind"] for item in found["items"]} == {"added", "moved", "removed"}
    assert f"--since {found['revision']}" in done.err
    assert run("changes", "--json").json == {"revision": found["revision"], "reset": True, "items": []}
    assert "everything as new" in run("changes").err


@pytest.mark.parametrize("name", ["changes", "watch"])
@pytest.mark.parametrize("since", [-1, -(2**70)])
def test_a_revision_that_is_none_is_refused_in_the_words_of_the_interface(
    run: Callable[..., Done], fs: SkillFileSystem, name: str, since: int
) -> None:
    with pytest.raises(SkillFSError) as caught:
        fs.changes(since)
    done = run(name, "--since", str(since))
    assert done == (2, "", f"skillfs: invalid_argument: {caught.value.message}\n")


def test_what_changed_since_a_revision_that_never_was(run: Callable[..., Done]) -> None:
    for since in (1, 2**70):
        done = run("changes", "--since", str(since))
        assert (done.code, done.out) == (0, "")
        assert f"since revision {since} is not known" in done.err
    assert run("changes", "--since", "x").code == 2


def test_init_writes_the_identity_in_force(run: Callable[..., Done], store: Path) -> None:
    before = run("status", "--json").json["store_id"]
    uuids = [skill["uuid"] for skill in run("skills", "--json").json]
    done = run("init")
    assert (done.code, done.err) == (0, "")
    assert before in done.out
    assert json.loads((store / ".skillfs/store.json").read_text()) == {"store_id": before}
    again = run("init")
    assert again.code == 0
    assert "already" in again.out
    moved = store.rename(store.with_name("moved"))
    assert [skill["uuid"] for skill in run("skills", "--json", at=moved).json] == uuids


def test_init_refuses_a_broken_identity(run: Callable[..., Done], store: Path) -> None:
    (store / ".skillfs").mkdir()
    (store / ".skillfs/store.json").write_text("{}")
    assert run("init").err.startswith("skillfs: invalid_argument: .skillfs/store.json")


# -- which store -------------------------------------------------------------------------------------------


def test_the_store_may_come_from_the_environment(
    run: Callable[..., Done], store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLFS_STORE", str(store))
    assert run("find", "*.py", at=None).out == "pdf/scripts/fill.py\n"
    (tmp_path / "other").mkdir()
    assert run("find", "*.py", at=tmp_path / "other").code == 1
    monkeypatch.setenv("SKILLFS_STORE", "")
    (tmp_path / "project/.git").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert run("find", at=None).code == 2


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["-s", "a", "-s", "b"], "invalid_argument", "each needs a name: write NAME=STORE"),
        (["-s", "a=a", "-s", "b"], "invalid_argument", "each needs a name"),
        (["-s", "a=a", "-s", "a=b"], "invalid_argument", 'the name "a"'),
        (["-s", "mine=nowhere"], "not_found", "nowhere"),
        (["-s", "8004=nowhere"], "not_found", "8004=nowhere"),
        (["-s", "none://bucket/skills"], "invalid_argument", ""),
        (["-s", ""], "invalid_argument", ""),
        (["-s", "nowhere"], "not_found", "nowhere"),
        (["-s", "a-file"], "is_file", "a-file"),
    ],
)
def test_a_store_that_is_none(
    run: Callable[..., Done],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    code: str,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").touch()
    for name in ("tree", "init"):
        done = run(*options, name, at=None)
        assert (done.code, done.out) == (2, "")
        assert re.fullmatch(rf"skillfs: {code}: .*{re.escape(says)}.*\n", done.err)
        assert str(tmp_path) not in done.err


def test_a_store_with_an_equals_sign(
    run: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_store(tmp_path / "a=b")
    assert run("-s", "a=b", "find", at=None).code == 2
    assert run("-s", "./a=b", "find", at=None).code == 0


def test_base_ignore_and_follow(run: Callable[..., Done], store: Path, tmp_path: Path) -> None:
    found = ["pdf", "pdf/forms", "pdf/forms/SKILL.md"]
    assert run("--base", "pdf/forms", "find").out.splitlines() == found
    assert [entry["path"] for entry in run("--base", "pdf/forms", "find", "--json").json] == found
    assert run("--base", "pdf/forms", "cat", "pdf/SKILL.md").code == 2
    assert run("--base", "pdf/forms", "--base", "/8004", "skills").out.count("\n") == 2
    assert run("--base", "nowhere", "skills").err.startswith("skillfs: not_found: ")
    assert run("--ignore", "*.png", "find", "*.png").code == 1
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "s.md").write_text("shared\n")
    (store / "pdf/linked.md").symlink_to(shared / "s.md")
    assert run("cat", "pdf/linked.md").code == 2
    assert run("--follow", shared, "cat", "pdf/linked.md").out == "shared\n"


# -- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ref",
    [
        *(
            "nope",
            "outside.md",
            "../store/pdf/SKILL.md",
            "pdf//SKILL.md",
            "",
            "..",
            "pdf/a\nb",
            "pdf/a\x1b[31mb",
        ),
        *(
            "file:///etc/passwd",
            "/etc/passwd",
            "~/x",
            "x" * 5000,
            "9" * 400,
            "name:none",
            "\udcff",
            "pdf/SKILL.md/",
        ),
        *("md5:" + "0" * 32, "pdf", "/"),
    ],
)
def test_refusals_are_those_of_the_interface(run: Callable[..., Done], fs: SkillFileSystem, ref: str) -> None:
    with pytest.raises(SkillFSError) as refused:
        fs.get_content(ref)
    assert run("cat", "--", ref) == (2, "", f"skillfs: {refused.value.code}: {refused.value.message}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing-of-the-kind"],
        ["bad\x1b[31m\ncommand"],
        ["tree", "--colour"],
        ["cat"],
        ["cat", "a", "b"],
        ["cat", "a", "--start", "one"],
        ["cat", "a", "--start", "9" * 5000],
        ["cat", "a", "--lines", "5"],
        ["cat", "a", "--lines", "5:4"],
        ["cat", "a", "--lines", "-1:4"],
        ["cat", "a", "--lines", "1:2", "--start", "1"],
        ["cat", "a", "--lines", "1:2", "--header"],
        ["cat", "a", "--bytes", "--header"],
        ["cat", "pdf/SKILL.md", "--lines", "0:4"],
        ["cat", "pdf/SKILL.md", "--start", "-1"],
        ["cat", "pdf/SKILL.md", "--encoding", "klingon"],
        ["tree", "pdf/SKILL.md"],
        ["tree", "--depth", "0"],
        ["tree", "--limit", "-1"],
        ["tree", "--cursor", "?"],
        ["tree", "--include", "{" * 40],
        ["find", "../x"],
        ["changes", "--since", "-1"],
        ["--index", "", "tree"],
    ],
    ids=repr,
)
def test_what_cannot_be_run_says_so_in_one_line(run: Callable[..., Done], arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert re.fullmatch(r"skillfs: [a-z_]+: [^\n\x1b]+\n", done.err)


def test_a_warning_is_one_line(run: Callable[..., Done]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = run("--index", "/dev/null/index", "find", "*.py")
    assert (done.code, done.out) == (0, "pdf/scripts/fill.py\n")
    assert re.fullmatch(r"skillfs: warning: the index cannot be kept on disk [^\n]*\n", done.err)


def test_a_fault_of_ours_is_not_taken_for_a_finding(
    run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SkillFileSystem, "problems", lambda self: 1 / 0)
    done = run("check")
    assert done.code == 2
    assert "ZeroDivisionError" in done.err


def test_what_the_system_refuses_is_one_line(
    run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(SkillFileSystem, "problems", lambda self: (tmp_path / "none").read_text())
    done = run("check")
    assert done.code == 2
    assert re.fullmatch(r"skillfs: unavailable: [^\n]*No such file[^\n]*\n", done.err)
    assert str(tmp_path) not in done.err


# -- pipes, signals, locales -------------------------------------------------------------------------------


@pytest.fixture
def long_text(store: Path) -> Path:
    (store / "pdf/long.txt").write_text("0123456789abcde\n" * (LONG // 16))
    return store


# Unbuffered streams of Python write a part and say so in a number that nobody looks at.
BUFFERING = pytest.mark.parametrize("env", [{"PYTHONUNBUFFERED": ""}, {"PYTHONUNBUFFERED": "1"}], ids=str)


@BUFFERING
@pytest.mark.parametrize("arguments", [["cat", "pdf/long.txt"], ["cat", "pdf/long.txt", "--bytes"]])
def test_a_slow_reader_gets_everything(long_text: Path, env: dict[str, str], arguments: list[str]) -> None:
    with start("-s", long_text, *arguments, env=env) as running:
        assert running.stdout is not None
        got = len(running.stdout.read(4))
        time.sleep(0.3)
        got += len(running.stdout.read())
    assert (running.returncode, got) == (0, LONG)


@BUFFERING
def test_a_reader_that_leaves_ends_the_command_quietly(long_text: Path, env: dict[str, str]) -> None:
    with start("-s", long_text, "cat", "pdf/long.txt", env=env) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.read(4) == b"0123"
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(30) == 128 + signal.SIGPIPE


@pytest.mark.parametrize("arguments", [["tree"], ["find", "--json"], ["check"], ["--help"]])
def test_a_reader_that_never_was(store: Path, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = process("-s", store, *arguments, stdout=writing)
    os.close(writing)
    assert (done.code, done.err) == (128 + signal.SIGPIPE, "")


@BUFFERING
def test_an_interrupt_ends_the_command_quietly(long_text: Path, env: dict[str, str]) -> None:
    with start("-s", long_text, "cat", "pdf/long.txt", env=env) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.read(4)  # the rest fills the pipe, and the command waits for us
        time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 128 + signal.SIGINT
        assert running.stderr.read() == b""


def test_a_full_disk_is_an_error(store: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = process("-s", store, "tree", stdout=full)
    assert done.code == 2
    assert re.fullmatch(r"skillfs: unavailable: standard output cannot be written: [^\n]+\n", done.err)


@pytest.mark.parametrize("redirection", [">&-", ">&- 2>&-"])
def test_closed_standard_streams(store: Path, redirection: str) -> None:
    line = f'"$0" -m skillfs -s "$1" tree {redirection}'
    done = subprocess.run(
        ["sh", "-c", line, sys.executable, store], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("skillfs: unavailable: ") or "2>&-" in redirection


@pytest.mark.parametrize(
    "env", [{"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"PYTHONIOENCODING": "ascii"}], ids=str
)
def test_a_pipe_gets_utf8_whatever_the_locale(store: Path, env: dict[str, str]) -> None:
    (store / "pdf/数据.md").write_text("x")
    done = process("-s", store, "tree", "pdf", env=env)
    assert (done.code, done.err) == (0, "")
    assert "├── 数据.md" in done.out or "└── 数据.md" in done.out


def test_a_terminal_that_lacks_characters_gets_escapes(store: Path) -> None:
    (store / "pdf/数据.md").write_text("x")
    done = on_terminal("-s", store, "tree", "pdf", env={"PYTHONIOENCODING": "ascii"})
    assert done.code == 0
    assert r"\u6570\u636e.md" in done.out


# -- watching ----------------------------------------------------------------------------------------------


class Watching:
    """A command that runs on, and what it has said so far."""

    def __init__(self, *arguments: str | Path, env: dict[str, str] | None = None, **options: object) -> None:
        self.process = start(*arguments, env={"PYTHONUNBUFFERED": "", **(env or {})}, **options)
        self.out: list[str] = []
        self.err: list[str] = []
        self._readers = [
            threading.Thread(target=lambda: self.out.extend(self._lines(self.process.stdout)), daemon=True),
            threading.Thread(target=lambda: self.err.extend(self._lines(self.process.stderr)), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _lines(stream: IO[bytes] | None) -> Iterator[str]:
        for line in stream or ():
            yield line.decode().rstrip("\r\n")

    def says(self, pattern: str, *, after: int = 0) -> int:
        """Wait for a line on standard error; returns how many there are."""
        wait_until(lambda: any(re.search(pattern, line) for line in self.err[after:]), what=str(self.err))
        return len(self.err)

    def prints(self, *lines: str) -> None:
        """Wait for the next lines of output, whatever their order, and forget them."""
        wait_until(lambda: len(self.out) >= len(lines), what=f"{self.out} {self.err}")
        assert sorted(self.out) == sorted(lines)
        self.out.clear()

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        code = self.process.wait(30)
        for reader in self._readers:
            reader.join(30)
        return code

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def test_watch_prints_changes_as_they_come(store: Path) -> None:
    with Watching("-s", store, "watch") as watching:
        watching.says(r"^at revision \d+; interrupt to stop$")
        watching.says(r"^watching \d+ folders$")
        (store / "pdf/new.md").write_text("new\n")
        watching.prints("added     pdf/new.md")
        (store / "pdf/new.md").rename(store / "pdf/forms/newer.md")
        watching.prints("moved     pdf/new.md -> pdf/forms/newer.md")
        (store / "pdf/forms/newer.md").write_text("newer\n")
        watching.prints("modified  pdf/forms/newer.md")
        (store / "pdf/forms/newer.md").unlink()
        watching.prints("removed   pdf/forms/newer.md")
        (store / "pdf/8.md").write_text("a name that breaks the line\n")
        (store / "pdf/8.md").rename(store / "pdf/a\u202eb.md")
        wait_until(lambda: watching.out)
        assert watching.out[-1] in (
            r'added     "pdf/a\342\200\256b.md"',
            r'moved     pdf/8.md -> "pdf/a\342\200\256b.md"',
        )
        assert watching.end() == 128 + signal.SIGINT
        assert len(watching.err) == 2


def test_watch_prints_documents(store: Path, tmp_path: Path) -> None:
    index = ("--index", tmp_path / "own.sqlite")
    fs = SkillFileSystem(store, index=tmp_path / "own.sqlite")
    since = fs.revision
    with Watching("-s", store, *index, "watch", "--json", "--since", "1") as watching:
        wait_until(lambda: watching.out)
        assert json.loads(watching.out.pop()) == {"revision": since, "reset": True, "items": []}
        watching.says("everything as new")
        (store / "pdf/new.md").write_text("new\n")
        wait_until(lambda: watching.out)
        told = json.loads(watching.out.pop())
        (item,) = told["items"]
        assert (told["reset"], item["kind"], item["path"]) == (False, "added", "pdf/new.md")
        assert item == output.as_dict(fs.changes(since).items[0], fs.roots)
        assert watching.end() == 128 + signal.SIGINT
    (store / "pdf/newer.md").write_text("newer\n")
    with Watching("-s", store, *index, "watch", "--json", "--since", str(told["revision"])) as watching:
        wait_until(lambda: watching.out)
        assert [item["path"] for item in json.loads(watching.out.pop())["items"]] == ["pdf/newer.md"]


def test_watch_of_several_stores(store: Path, tmp_path: Path) -> None:
    other = make_store(tmp_path / "other")
    arguments = ("-s", f"mine={store}", "-s", f"team={other}", "--index", ":memory:")
    with Watching(*arguments, "watch") as watching:
        for name in ("mine", "team"):
            watching.says(rf'^mount "{name}": watching \d+ folders$')
        (store / "pdf/new.md").write_text("new\n")
        watching.prints("added     mine/pdf/new.md")
        said = len(watching.err)
        other.rename(tmp_path / "away")
        watching.says('^skillfs: unavailable: mount "team": ', after=said)
        (store / "pdf/new.md").unlink()
        watching.prints("removed   mine/pdf/new.md")
        (tmp_path / "away").rename(other)
        watching.says('^mount "team": watching', after=said)
        (other / "pdf/new.md").write_text("new\n")
        watching.prints("added     team/pdf/new.md")
        assert watching.end() == 128 + signal.SIGINT
        assert str(tmp_path) not in "".join(watching.err)


def test_watch_waits_for_a_store_that_is_away(store: Path) -> None:
    with Watching("-s", store, "watch") as watching:
        said = watching.says("^watching")
        store.rename(store.with_name("away"))
        said = watching.says("^skillfs: unavailable: the store's root folder is not there", after=said)
        store.with_name("away").rename(store)
        watching.says("^watching", after=said)
        assert watching.out == []  # all is as it was
        (store / "pdf/new.md").write_text("new\n")
        watching.prints("added     pdf/new.md")
        assert watching.end() == 128 + signal.SIGINT
        assert len(watching.err) == 4  # the beginning, and each state once


def test_watch_within_bounds_tells_nothing_of_outside(store: Path) -> None:
    with Watching("-s", store, "--base", "pdf/forms", "watch") as watching:
        watching.says("^watching$")
        (store / "pdf/new.md").write_text("new\n")
        (store / "pdf/references/forms.md").rename(store / "pdf/forms/eins.md")
        watching.prints("added     pdf/forms/eins.md")


def test_watch_where_the_store_is_polled(store: Path) -> None:
    with Watching("-s", store, "watch", env={"SKILLFS_WATCH": "poll"}) as watching:
        watching.says("^polling: SKILLFS_WATCH says so$")
        (store / "pdf/new.md").write_text("new\n")
        watching.prints("added     pdf/new.md")
    done = process("-s", store, "watch", env={"SKILLFS_WATCH": "no"})
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("skillfs: invalid_argument: SKILLFS_WATCH")


@BUFFERING
def test_watch_ends_with_its_reader(store: Path, env: dict[str, str]) -> None:
    with start("-s", store, "watch", env=env) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stderr.readline()
        running.stdout.close()
        # Nothing changes: it is not by writing that it notices.
        assert running.wait(30) == 128 + signal.SIGPIPE
        assert b"Traceback" not in running.stderr.read()


@pytest.mark.parametrize("arguments", [["watch"], ["watch", "--json"], ["watch", "--since", "1", "--json"]])
def test_watch_for_a_reader_that_never_was(store: Path, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = process("-s", store, *arguments, stdout=writing)
    os.close(writing)
    assert done.code == 128 + signal.SIGPIPE
    assert "Traceback" not in done.err


def test_a_slow_reader_of_watch_misses_nothing(store: Path) -> None:
    with start("-s", store, "--index", store.with_name("own.sqlite"), "watch", "--json") as running:
        assert running.stdout is not None
        assert running.stderr is not None
        while b"watching" not in running.stderr.readline():
            pass
        fs = SkillFileSystem(store, index=store.with_name("own.sqlite"), writable=True)
        start_of = fs.revision
        for number in range(400):  # more than a pipe holds
            fs.pipe_file("pdf/new.md", b"%d\n" % number)
        told = [json.loads(running.stdout.readline()) for _ in range(400)]
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 128 + signal.SIGINT
    assert [one["revision"] for one in told] == list(range(start_of + 1, fs.revision + 1))


@pytest.mark.parametrize("is_full", [False, True], ids=["room", "full"])
def test_errors_that_nobody_reads_do_not_keep_watch_from_ending(store: Path, is_full: bool) -> None:
    reading, writing = os.pipe()
    if is_full:
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"x" * 4096)
        os.set_blocking(writing, True)
    with start("-s", store, "--index", store.with_name("own.sqlite"), "watch", stderr=writing) as running:
        wait_until(lambda: store.with_name("own.sqlite").exists())
        time.sleep(1)
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 128 + signal.SIGINT
    os.close(reading)
    os.close(writing)


def test_a_warning_that_nobody_reads_keeps_no_thread() -> None:
    script = (
        "import logging, os, sys, threading\n"
        "from skillfs.faces import output\n"
        "with output.logged():\n"
        "    warn = lambda: [logging.getLogger('skillfs').warning('x' * 1000) for _ in range(200)]\n"
        "    thread = threading.Thread(target=warn, daemon=True)\n"
        "    thread.start()\n"
        "    thread.join(20)\n"
        "    sys.exit(3 if thread.is_alive() else 0)\n"
    )
    reading, writing = os.pipe()
    with subprocess.Popen([sys.executable, "-c", script], stderr=writing) as running:
        os.close(writing)
        assert running.wait(60) == 0
    os.close(reading)


def test_watch_on_a_terminal(store: Path) -> None:
    odd = "pdf/odd\x1b[31m\u202e\u2028.md"
    for arguments in (["watch"], ["watch", "--json"]):
        terminal, slave = pty.openpty()
        command = ("-s", store, "--index", ":memory:", *arguments)
        with Watching(*command, env={"TERM": "xterm", "NO_COLOR": "1"}, stdout=slave) as watching:
            os.close(slave)
            watching.says("^watching")
            (store / odd).write_text("one")
            (store / "pdf/last.md").write_text("one")
            written = b""
            while b"last.md" not in written:
                written += os.read(terminal, 65_536)
            assert watching.end() == 128 + signal.SIGINT
        os.close(terminal)
        assert b"odd" in written
        assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e\u2028]", written.decode())
        for name in (odd, "pdf/last.md"):
            (store / name).unlink()


def test_watch_of_what_is_no_store(tmp_path: Path) -> None:
    done = process("-s", tmp_path / "nothing", "watch")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("skillfs: not_found: ")


def test_watch_of_a_remote_store_tells_when_it_fails(faulty: FaultyS3, bucket: Bucket) -> None:
    from tests.servers.faults import ACCESS_DENIED

    bucket.seed({f"p/{path}": content for path, content in FILES.items() if "[" not in path})
    env = {
        "AWS_ENDPOINT_URL": faulty.endpoint,
        "AWS_ACCESS_KEY_ID": faulty.target_options["key"],
        "AWS_SECRET_ACCESS_KEY": faulty.target_options["secret"],
    }
    code = (
        "import sys; from skillfs import mounting; from skillfs.faces.cli import main; "
        "mounting.REMOTE_MAX_AGE = 0.1; sys.exit(main(sys.argv[1:]))"
    )
    arguments = [sys.executable, "-c", code, "-s", f"{bucket.url}/p", "--index", ":memory:", "watch"]
    with Watching(env=env, command=arguments) as watching:
        said = watching.says("^polling: only folders of this machine can be watched$")
        bucket.put("p/pdf/new.md", "new\n")
        watching.prints("added     pdf/new.md")
        rule = faulty.add(ACCESS_DENIED, "ListObjectsV2")
        said = watching.says("^skillfs: unavailable: .*credentials", after=said)
        faulty.rules.remove(rule)
        watching.says("^polling", after=said)
        bucket.delete("p/pdf/new.md")
        watching.prints("removed   pdf/new.md")
        assert watching.end() == 128 + signal.SIGINT
        assert len(watching.err) == 4  # the beginning, and each state once


# -- terminals ---------------------------------------------------------------------------------------------


def test_colours_on_a_terminal_only(store: Path) -> None:
    seen = on_terminal("-s", store, "check")
    assert f"{ESCAPE}[3" in seen.out
    for plain in (
        on_terminal("-s", store, "check", env={"NO_COLOR": "1"}),
        on_terminal("-s", store, "check", env={"TERM": "dumb"}),
        process("-s", store, "check", env={"FORCE_COLOR": "1"}),
    ):
        assert ESCAPE not in plain.out
        assert plain.out == re.sub(r"\x1b\[[0-9;]*m", "", seen.out)


def test_a_table_takes_names_as_they_are(store: Path) -> None:
    (store / "pdf/a[red]b\u202e.md").write_text("x")
    seen = on_terminal("-s", store, "skills", env={"NO_COLOR": "1"})
    assert seen.code == 0
    assert ESCAPE not in seen.out
    assert re.search(r"name +path +description", seen.out)
    assert "[red]mark[/red]" in seen.out
    assert "[bold]x[/bold]" in seen.out
    assert "[blink]b[/]" in seen.out
    uuid = json.loads(process("-s", store, "find", "a?red?b*", "--json").out)[0]["uuid"]
    facts = on_terminal("-s", store, "stat", uuid, env={"NO_COLOR": "1"})
    assert r'"a[red]b\342\200\256.md"' in facts.out
    assert "\u202e" not in facts.out


def test_a_terminal_never_gets_a_raw_control_character(store: Path) -> None:
    for arguments in (["skills", "--json"], ["tree"], ["check"], ["cat", "pdf/references/odd.txt"]):
        seen = on_terminal("-s", store, *arguments, env={"NO_COLOR": "1"})
        assert seen.code == 0
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ufeff]", seen.out), arguments
    assert seen.out == "\\ufeffZürich\nno\\x1b[31m colour \\u202e数据\\r\tend"


def test_bytes_are_not_for_a_terminal(store: Path) -> None:
    done = on_terminal("-s", store, "cat", "pdf/logo.png", "--bytes")
    assert (done.code, done.out) == (2, "")
    assert "terminal" in done.err


@given(st.text())
def test_printable_is_one_harmless_line(text: str) -> None:
    shown = output.printable(text)
    assert shown.splitlines() in ([], [shown])
    assert not re.search(
        r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]", shown
    )
    assert output.printable(shown) == shown


@given(
    st.recursive(st.text() | st.integers() | st.none(), lambda v: st.lists(v) | st.dictionaries(st.text(), v))
)
def test_json_means_what_it_was_made_from(value: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", io.StringIO())
        output.write_json(value)
        text = sys.stdout.getvalue()  # type: ignore[attr-defined]
    assert json.loads(text) == value
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e\ud800-\udfff]", text)


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def watch_errors(monkeypatch: pytest.MonkeyPatch) -> Callable[[], FakeTerminal]:
    """Make standard error a terminal. Called by the test itself, whose start resets the captured streams."""

    def watch() -> FakeTerminal:
        terminal = FakeTerminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(output, "SHOW_AFTER", 0.0)
        monkeypatch.setenv("TERM", "xterm")
        return terminal

    return watch


def test_long_work_shows_a_bar(watch_errors: Callable[[], FakeTerminal]) -> None:
    errors = watch_errors()
    with output.Progress("reading [b]x[/b]") as progress:
        assert progress.callback is progress
        progress(256)
        progress(512, 1024)
    assert "reading [b]x[/b]" in errors.getvalue()
    assert "512" in errors.getvalue()


def test_a_first_opening_reports_progress(store: Path, watch_errors: Callable[[], FakeTerminal]) -> None:
    for number in range(300):
        (store / f"pdf/{number}").mkdir()
    errors = watch_errors()
    assert main(["-s", str(store), "--index", ":memory:", "index"]) == 0
    assert "reading the store" in errors.getvalue()


def test_short_work_and_pipes_show_none(
    watch_errors: Callable[[], FakeTerminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = watch_errors()
    monkeypatch.setattr(output, "SHOW_AFTER", 60.0)
    with output.Progress("x") as progress:
        progress(1)
    assert errors.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert output.Progress("x").callback is None


# -- starting ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["tree"], ["tree", "pdf"], ["cat", "pdf/SKILL.md"], ["check"], ["skills"]]
)
def test_a_warm_start_loads_little(store: Path, arguments: list[str]) -> None:
    process("-s", store, "index")
    code = (
        "import sys; from skillfs.faces.cli import main; main(sys.argv[1:]); "
        "print(sorted({'rich', 'yaml', 'wcmatch', 'bracex'} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "-s", str(store), *arguments], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] == "[]"


def test_help_loads_no_filesystem() -> None:
    code = (
        "import sys; from skillfs.faces.cli import main; main(['tree', '--help']); "
        "print(sorted({'fsspec', 'sqlite3', 'rich', 'yaml'} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_an_option_of_all_commands_goes_before_them(store: Path, run: Callable[..., Done]) -> None:
    done = run("tree", "-s", store)
    assert done.code == 2
    assert "-s goes before the command" in done.err
    assert 'put "--" before' in run("tree", "-x").err


def test_what_a_reading_has_learned_is_there_for_the_next_command(store: Path, tmp_path: Path) -> None:
    index = ("-s", store, "--index", tmp_path / "own.sqlite")
    file = json.loads(process(*index, "find", "--json", "**/SKILL.md").out)[0]
    assert json.loads(process(*index, "stat", "--json", file["uuid"]).out)["md5"] is None
    header = process(*index, "cat", "--header", file["uuid"]).out
    assert json.loads(process(*index, "stat", "--json", file["uuid"]).out)["md5"] in header
