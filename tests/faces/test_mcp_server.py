"""What of the server no client can see: which calls the loop answers itself."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from skillfs.faces.mcp.server import _Tools
from skillfs.faces.mcp.workers import Workers
from skillfs.faces.mcp_command import mcp_command
from skillfs.faces.target import Target
from tests.conftest import skill_md, write


def test_the_loop_goes_on_while_a_check_holds_up_a_call(root: Path, open_fs: Callable[..., Any]) -> None:
    write(root, {"a/SKILL.md": skill_md("a")})
    fs = open_fs()
    workers = Workers()
    tools = _Tools(fs, None, workers)
    held, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        with fs._engine._lock:
            held.set()
            goes_on.wait(20)

    async def call() -> bool:
        write(root, {"a/new.md": "new"})  # it is taken in as it is read, when the check is over
        asked = SimpleNamespace(name="skill_get_content", arguments={"id": "a/new.md"})
        answered = asyncio.create_task(tools.call(None, asked))  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        went_on = not goes_on.is_set() and not answered.done()
        goes_on.set()
        assert (await answered)["isError"] is False
        return went_on

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(20)
    assert fs.checking
    assert asyncio.run(call())
    holder.join(20)
    assert not fs.checking
    workers.close()


def command_line(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "skillfs", *arguments], input=stdin, capture_output=True, text=True, timeout=60
    )


def test_a_store_without_skills_is_said(root: Path) -> None:
    write(root, {"a/x.md": "in no skill"})
    done = command_line("-s", str(root), "mcp")
    assert done.returncode == 0
    assert "skillfs: warning: there are no skills here" in done.stderr
    write(root, {"a/SKILL.md": skill_md("a")})
    assert command_line("-s", str(root), "mcp").stderr == ""


@pytest.mark.parametrize(
    ("more", "is_said"), [((), True), (("--allow-host", "skills.example"), False)], ids=["nothing", "a name"]
)
def test_an_address_that_nobody_else_can_name_is_said(
    root: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], is_said: bool
) -> None:
    # Not served: tests listen on the loopback alone.
    monkeypatch.setattr("skillfs.faces.mcp.http.serve_http", lambda server, settings: None)
    monkeypatch.setenv("SKILLFS_MCP_TOKEN", "secret")
    write(root, {"a/SKILL.md": skill_md("a")})
    target = Target((str(root),), ":memory:", (), (), ())
    done = CliRunner().invoke(mcp_command, ["--http", "0.0.0.0:0", *more], obj=target)
    assert done.exit_code == 0
    assert ("--allow-host" in done.stderr) is is_said


def test_a_store_is_watched_when_that_is_asked_for(root: Path) -> None:
    write(root, {"a/SKILL.md": skill_md("a")})
    target = Target((str(root),), ":memory:", (), (), ())
    with target.open() as fs:
        assert fs.status()["watch"] == "off"
    with target.open(watch=True) as fs:
        assert fs.status()["watch"] in ("starting", "watching", "polling")
