"""Everything the README shows is run, and prints what the README says.

A `console` block is a transcript: lines that start with `$ ` are commands, what follows is their output. A
`pycon` block is a doctest. Both run in a copy of the repository's sample store, with an S3 server in reach
that holds another copy as `s3://skill-library/team`. The two set-up commands make environments of their own;
here only what they run at the end is run, in this environment.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.mountable import can_mount, needs_mount_points

if TYPE_CHECKING:
    from tests.servers.s3 import S3Server

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


@pytest.fixture(scope="module")
def library(s3_server: S3Server) -> Iterator[S3Server]:
    """A bucket with the sample store."""
    from tests.servers.s3 import Bucket

    s3_server.client.create_bucket(Bucket="skill-library")
    bucket = Bucket(s3_server, "skill-library")
    samples = ROOT / "sample_skills"
    files = [path for path in samples.rglob("*") if path.is_file()]
    bucket.seed({f"team/{p.relative_to(samples).as_posix()}": p.read_bytes() for p in files})
    yield s3_server
    s3_server.drop(bucket)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: S3Server) -> Iterator[Path]:
    """A folder with the sample store, where `skillfs` and `.venv/bin/skillfs` are this environment's."""
    shutil.copytree(ROOT / "sample_skills", tmp_path / "sample_skills", symlinks=True)
    binaries = tmp_path / ".venv" / "bin"
    binaries.parent.mkdir()
    binaries.symlink_to(Path(sys.executable).parent)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("SKILLFS_STORE", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", library.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", library.target_options["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", library.target_options["secret"])
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        if (point := line.split()[1]).startswith(f"{tmp_path}/"):  # left behind by what failed
            subprocess.run(["fusermount3", "-u", "-z", point], check=False)


def _needs(steps: list[tuple[str, str]]) -> list[pytest.MarkDecorator]:
    return [needs_mount_points] if any(" mount " in command for command, _ in steps) else []


@pytest.mark.parametrize("steps", [pytest.param(s, marks=_needs(s), id=s[0][0][-40:]) for s in transcripts()])
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
    shown = [block for block in blocks("pycon") if can_mount or ".mount(" not in block]
    session = doctest.DocTestParser().get_doctest("\n".join(shown), {}, "README", "README.md", 0)
    said: list[str] = []
    runner.run(session, out=said.append)
    assert runner.tries >= 10
    assert not runner.failures, "".join(said)


def test_configuration_of_an_agent(place: Path) -> None:
    """Started as it says, the server lists its tools and answers."""
    import anyio
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    (block,) = blocks("json")
    settings = json.loads(block.replace("/path/to", str(place)))["mcpServers"]["skills"]
    server = StdioServerParameters(**settings, env=dict(os.environ), cwd="/")

    async def use() -> str:
        async with Client(stdio_client(server)) as client:
            assert len((await client.list_tools()).tools) == 7
            read = await client.call_tool("read_file", {"path": "commit-messages/SKILL.md", "limit": 1})
            return read.structured_content["output"]

    assert anyio.run(use) == "---\n"


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
