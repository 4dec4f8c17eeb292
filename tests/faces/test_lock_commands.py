"""`skillfs digest`, `lock`, `verify` and `--lock` as people and scripts meet them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from skillfs import SkillFileSystem
from skillfs.core.lock import render_lock
from skillfs.faces.cli import main
from tests.conftest import skill_md, write

FILES = {
    "pdf/SKILL.md": skill_md("pdf"),
    "pdf/a b\n.md": "odd",
    "pdf/lines.txt": "1\n2\n",
    "pdf/.env": "never",
    "8004/SKILL.md": skill_md("8004"),
}

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    root: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run a command in a folder beside the store: exit code, output, errors."""
    write(root, FILES)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("SKILLFS_STORE", raising=False)

    def run_in_process(*arguments: str | Path, at: Path | None = root) -> tuple[int, str, str]:
        named = [] if at is None else ["-s", str(at)]
        code = main([*named, *map(str, arguments)])
        captured = capsysbinary.readouterr()
        return code, captured.out.decode(), captured.err.decode()

    return run_in_process


def test_digest(run: Run, root: Path) -> None:
    fs = SkillFileSystem(root, index=":memory:")
    lines = f"{fs.digest('/8004')}  /8004\n{fs.digest('pdf')}  pdf\n"
    assert run("digest") == (0, lines, "")
    assert run("digest", "name:pdf", fs.entry("pdf/lines.txt").uuid) == (
        0, f"{fs.digest('pdf')}  pdf\n{fs.digest('pdf/lines.txt')}  pdf/lines.txt\n", "",
    )  # fmt: skip
    code, out, _ = run("digest", "--json", "/8004")
    assert (code, json.loads(out)) == (0, [{"path": "/8004", "digest": fs.digest("/8004")}])
    code, out, err = run("digest", "nowhere")
    assert (code, out) == (2, "")
    assert err.startswith("skillfs: not_found:")


def test_lock_and_verify(run: Run, root: Path) -> None:
    counts = "2 skills, 4 files"
    assert run("lock") == (0, f"wrote skills.lock: {counts}\n", "")
    assert Path("skills.lock").read_bytes() == render_lock(SkillFileSystem(root, index=":memory:").lock())
    assert run("lock") == (0, f"unchanged: skills.lock: {counts}\n", "")
    assert run("lock", "--output", "-")[1] == Path("skills.lock").read_text()
    assert run("verify") == (0, "ignored   pdf/.env\nskills: 2 ok; files: 4 ok, 1 ignored\n", "")
    write(root, {"pdf/lines.txt": "1\r\n2\r\n", "pdf/x": "", "new/SKILL.md": ""})
    (root / "pdf/a b\n.md").chmod(0o755)
    (root / "8004/SKILL.md").unlink()
    assert run("verify", "skills.lock") == (
        1,
        "missing   8004/\n"
        "unlocked  new/\n"
        "ignored   pdf/.env\n"
        'mode      "pdf/a b\\n.md"\n'
        "modified  pdf/lines.txt (only line endings)\n"
        "extra     pdf/x\n"
        "skills: 1 modified, 1 missing, 1 unlocked; files: 1 ok, 1 modified, 1 missing, 1 extra, 1 mode, "
        "1 ignored\n",
        "",
    )
    code, out, _ = run("verify", "--json", "--reread")
    told = json.loads(out)
    assert (code, told["ok"], told["counts"]["files.modified"]) == (1, False, 1)
    assert [(skill["path"], skill["status"]) for skill in told["skills"]] == [
        ("/8004", "missing"), ("new", "unlocked"), ("pdf", "modified"),
    ]  # fmt: skip
    assert {"path": "lines.txt", "status": "modified", "line_endings": True} in told["skills"][2]["files"]
    assert run("lock", "pdf", "--output", "pdf.lock")[0] == 0
    assert run("verify", "pdf.lock")[0] == 1
    assert run("verify", "pdf.lock", "--allow-unlocked")[0] == 0
    assert run("--base", "pdf", "verify", "pdf.lock") == (
        0,
        "ignored   pdf/.env\nskills: 1 ok; files: 4 ok, 1 ignored\n",
        "",
    )


def test_nothing_to_compare_is_a_failure(run: Run, root: Path, tmp_path: Path) -> None:
    run("lock")
    (tmp_path / "empty").mkdir()
    assert run("verify", at=tmp_path / "empty")[0] == 1
    write(root, {"new/SKILL.md": ""})
    code, out, _ = run("--base", "new", "verify")
    assert (code, out) == (1, "unlocked  new/\nskills: 1 unlocked; files: none\n")
    assert run("--base", "new", "verify", "--allow-unlocked")[0] == 1
    code, out, err = run("lock", at=tmp_path / "empty")
    assert (code, out) == (2, "")
    assert "no skill to lock" in err


def test_what_could_not_be_run(run: Run, root: Path, tmp_path: Path) -> None:
    code, _, err = run("lock", at=None)
    assert (code, "which store" in err) == (2, True)
    run("lock")
    text = Path("skills.lock").read_text()
    cases: list[tuple[str, str, tuple[str | Path, ...]]] = [
        ("not_found", "skillfs lock", ("verify", "none.lock")),
        ("invalid_argument", "inside a skill", ("lock", "--output", root / "pdf/x.lock")),
        ("invalid_argument", "inside a skill", ("verify", root / "pdf/SKILL.md")),
        ("not_found", "make it first", ("lock", "--output", "none/x.lock")),
        ("is_folder", "folder", ("lock", "--output", tmp_path)),
        ("not_found", "nothing visible", ("lock", "nowhere")),
        ("not_found", "skillfs lock", ("--lock", "none.lock", "tree")),
    ]
    for code_name, message, arguments in cases:
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith(f"skillfs: {code_name}: ")
        assert message in err
        assert str(tmp_path) not in err
    for bad in (
        text[:-1],
        text.replace("sha256", "md5", 1),
        text.replace('"version": 1', '"version": 9'),
        "",
    ):
        Path("skills.lock").write_text(bad)
        code, out, err = run("verify")
        assert (code, out) == (2, "")
        assert err.startswith("skillfs: integrity: ")
    Path("skills.lock").write_text(text)
    code, _, err = run("verify", at=tmp_path / "away")
    assert code == 2


def test_a_lock_is_enforced(run: Run, root: Path) -> None:
    run("lock")
    assert run("--lock", "skills.lock", "cat", "pdf/lines.txt") == (0, "1\n2\n", "")
    assert run("--lock", "skills.lock", "check")[0] == 0
    write(root, {"pdf/lines.txt": "evil", "pdf/new": "evil", "8004/SKILL.md": skill_md("8004", "Evil.")})
    for path in ("pdf/lines.txt", "pdf/new"):
        code, out, err = run("--lock", "skills.lock", "cat", path)
        assert (code, out) == (2, "")
        assert err.startswith("skillfs: integrity: ")
    assert "Evil" in run("tree")[1]
    for command in ("tree", "skills", "check"):
        assert "Evil" not in run("--lock", "skills.lock", command)[1]
    code, out, _ = run("--lock", "skills.lock", "check")
    assert (code, "lock-mismatch" in out) == (1, True)
    assert run("--lock", "skills.lock", "verify")[0] == 1
    assert run("--lock", "skills.lock", "lock")[0] == 0
    assert run("--lock", "skills.lock", "cat", "pdf/lines.txt")[1] == "evil"


def test_conventional_stores_are_verified_and_not_locked(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    write(Path.cwd(), {".git/HEAD": "", ".claude/skills/a/SKILL.md": skill_md("a")})
    assert run("lock", at=None)[0] == 2
    code, out, _ = run("digest", at=None)
    assert (code, out.count("\n")) == (0, 1)
    os.environ["SKILLFS_STORE"] = f"project={Path.cwd() / '.claude/skills'}"
    try:
        assert run("lock", at=None)[0] == 0
        assert run("verify", at=None) == (0, "skills: 1 ok; files: 1 ok\n", "")
    finally:
        del os.environ["SKILLFS_STORE"]


def test_one_skill_is_locked_anew_and_the_rest_stays(run: Run, root: Path) -> None:
    run("lock")
    write(root, {"pdf/lines.txt": "3\n", "8004/new.md": "not reviewed"})
    assert run("lock", "pdf") == (0, "wrote skills.lock: 2 skills, 4 files\n", "")
    assert run("verify")[1].splitlines()[0] == "extra     8004/new.md"
    Path("skills.lock").write_text("no lock")
    assert run("lock", "pdf")[0] == 2
    assert Path("skills.lock").read_text() == "no lock"


def test_skill_that_is_gone_leaves_the_lock_with_its_folder(root: Path) -> None:
    write(root, {f"{path}/SKILL.md": skill_md("x") for path in ("team/a", "team/b", "c")})
    fs = SkillFileSystem(root, index=":memory:")
    before = fs.lock()
    shutil.rmtree(root / "team/b")
    write(root, {"c/new.md": "not reviewed"})
    after = fs.lock(["team"], renewing=before)
    assert [skill.path for skill in after.skills] == ["c", "team/a"]
    assert after.skills[0] == before.skills[0]
