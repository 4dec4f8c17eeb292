"""`skillfs mount`, `unmount` and `mountpoints`, as people and scripts meet them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from skillfs.fuse import library
from tests.conftest import skill_md, write
from tests.faces.test_cli import Done, process
from tests.fuse.mounting import SECONDS, cleaned, ended, held_open, is_alive, left_below
from tests.mountable import needs_mount_points


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write(tmp_path / "store", {"a/SKILL.md": skill_md("a"), "a/one.md": "one\n"})


@pytest.fixture
def point(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "the point"
    folder.mkdir()
    with cleaned(tmp_path):
        yield folder


def refused(done: Done, code: str) -> str:
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"skillfs: {code}: ")
    assert "Traceback" not in done.err
    return done.err


@needs_mount_points
def test_from_mounting_in_the_background_to_unmounting(
    run: Callable[..., Done], store: Path, point: Path
) -> None:
    # The pipes of this end when the command does, and not when the server does.
    done = process("-s", store, "mount", point, "--background", "--json")
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    assert told == {"mountpoint": str(point), "pid": told["pid"], "read_only": True}
    assert (point / "a/one.md").read_text() == "one\n"
    assert os.getsid(told["pid"]) == told["pid"]
    assert [os.readlink(f"/proc/{told['pid']}/fd/{number}") for number in range(3)] == [os.devnull] * 3
    listed = run("mountpoints", "--json").json
    assert isinstance(listed, list)
    assert {"mountpoint": str(point), "state": "served", "pid": told["pid"]} in listed
    assert "already" in refused(run("-s", store, "mount", point, "--background"), "invalid_argument")

    os.kill(told["pid"], signal.SIGKILL)
    assert ended(told["pid"])
    listed = run("mountpoints")
    assert (listed.code, f"{point}\tstale\t-\n" in listed.out) == (1, True)
    assert "--force" in refused(run("-s", store, "mount", point), "invalid_argument")
    anew = run("-s", store, "mount", point, "--background", "--force", "--json")
    assert anew.code == 0
    pid = json.loads(anew.out)["pid"]
    with held_open(point / "a/one.md"):
        assert "in use" in refused(run("unmount", point), "unavailable")
    assert run("unmount", point, "--force") == (0, "", "")
    assert not is_alive(pid)
    assert not left_below(point.parent)
    assert "mountpoints" in refused(run("unmount", point), "invalid_argument")


@needs_mount_points
def test_what_the_global_options_say_is_what_is_mounted(store: Path, point: Path, tmp_path: Path) -> None:
    write(tmp_path / "other", {"b/SKILL.md": skill_md("b"), "c/SKILL.md": skill_md("c")})
    named = ("-s", f"x={store}", "-s", f"y={tmp_path / 'other'}", "--base", "y/b")
    command = [sys.executable, "-m", "skillfs", *named, "mount", point, "--watch"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as served:
        assert served.stderr is not None
        assert served.stderr.readline() == "mounted; interrupt to unmount\n"
        assert [str(path.relative_to(point)) for path in point.rglob("*")] == ["y", "y/b", "y/b/SKILL.md"]
        served.send_signal(signal.SIGINT)
        assert served.wait(SECONDS) == 130
        assert served.stderr.read() == ""
    assert not left_below(tmp_path)


@needs_mount_points
def test_what_is_refused(run: Callable[..., Done], store: Path, point: Path, tmp_path: Path) -> None:
    write(tmp_path / "here/.claude/skills", {"c/SKILL.md": skill_md("c")})
    assert "which store?" in refused(run("mount", point), "invalid_argument")
    refused(run("-s", store, "mount", tmp_path / "missing"), "not_found")
    refused(run("-s", store, "mount", store / "a/one.md"), "is_file")
    assert "not empty" in refused(run("-s", store, "mount", store), "invalid_argument")
    (store / "a/empty").mkdir()
    assert "outside" in refused(run("-s", store, "mount", store / "a/empty"), "invalid_argument")
    refused(run("-s", tmp_path / "no-store", "mount", point), "not_found")
    refused(run("-s", "memory://nothing", "mount", point, "--background"), "not_found")
    refused(run("unmount", "/proc"), "invalid_argument")
    refused(run("unmount", "--force", tmp_path / "\x1b[31m"), "invalid_argument")
    assert not left_below(tmp_path)


@needs_mount_points
def test_a_store_without_skills_is_mounted_with_a_warning(
    run: Callable[..., Done], point: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    done = run("-s", tmp_path / "empty", "mount", point, "--background")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("skillfs: warning: there are no skills here")
    assert run("unmount", point).code == 0


def test_what_is_missing_is_said(
    run: Callable[..., Done], store: Path, point: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "find_spec", lambda name: None if name == "mfusepy" else find_spec(name))
    assert "pip install 'fsspec-skillfs[fuse]'" in refused(run("-s", store, "mount", point), "unavailable")
    monkeypatch.undo()
    monkeypatch.setattr(library, "find_spec", lambda name: True)
    monkeypatch.setattr(library, "find_library", lambda name: None)
    assert "apt-get install fuse3" in refused(run("-s", store, "mount", point), "unavailable")


def test_nothing_is_mounted(
    run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mountinfo").write_text("22 1 0:5 / /proc rw - proc proc rw\n")
    monkeypatch.setattr("skillfs.fuse.mountpoints.MOUNTS", str(tmp_path / "mountinfo"))
    assert run("mountpoints") == (0, "", "nothing is mounted; see: skillfs mount --help\n")
    assert run("mountpoints", "--json").json == []
