"""Everything the README shows is run, and prints what the README says.

A `console` block is a transcript: lines that start with `$ ` are commands, what follows is their output. A
`pycon` block is a doctest. Both run in a copy of the repository's sample store. The two set-up commands make
environments of their own; here only what they run at the end is run, in this environment.
"""

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SET_UP = re.compile(r"^python3 -m venv \.venv && \.venv/bin/pip install -q (?:\.|-e '\.\[test\]') && ")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def transcripts() -> list[list[tuple[str, str]]]:
    found = []
    for block in blocks("console"):
        steps: list[tuple[str, str]] = []
        for line in block.splitlines(keepends=True):
            if line.startswith("$ "):
                steps.append((line[2:].strip(), ""))
            else:
                command, output = steps[-1]
                steps[-1] = (command, output + line)
        found.append(steps)
    return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the sample store, where `skillfs` and `.venv/bin/skillfs` are this environment's."""
    shutil.copytree(ROOT / "sample_skills", tmp_path / "sample_skills", symlinks=True)
    binaries = tmp_path / ".venv" / "bin"
    binaries.parent.mkdir()
    binaries.symlink_to(Path(sys.executable).parent)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("SKILLFS_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("steps", transcripts(), ids=lambda steps: steps[0][0][-40:])
def test_transcript(steps: list[tuple[str, str]], place: Path) -> None:
    for command, expected in steps:
        done = subprocess.run(
            ["bash", "-c", SET_UP.sub("", command)],
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            check=False,
            timeout=60,
        )
        assert done.stdout == expected, command


def test_python_sessions(place: Path) -> None:
    """The blocks are one session: later ones use what earlier ones made."""
    runner = doctest.DocTestRunner()
    session = doctest.DocTestParser().get_doctest("\n".join(blocks("pycon")), {}, "README", "README.md", 0)
    said: list[str] = []
    runner.run(session, out=said.append)
    assert runner.tries >= 10
    assert not runner.failures, "".join(said)


def test_there_is_something_to_run() -> None:
    assert len(transcripts()) >= 3
    assert len(blocks("pycon")) >= 2


def test_ci_runs_the_command_that_the_readme_gives() -> None:
    command = "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' && .venv/bin/python -m pytest"
    assert command in README
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_layout_that_the_readme_draws_is_the_one_there_is() -> None:
    drawn = set(re.findall(r"\b(?:\w+/)?\w+\.py\b", next(b for b in blocks("text") if "errors.py" in b)))
    there = {p.relative_to(ROOT / "skillfs").as_posix() for p in (ROOT / "skillfs").rglob("*.py")}
    names = {p.rpartition("/")[2] for p in there if not p.endswith("__init__.py")} - {"__main__.py"}
    assert {p.rpartition("/")[2] for p in drawn} == names
