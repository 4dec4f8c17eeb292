"""What is written beside its place goes when whoever wrote it was killed, and not before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from skillfs.history.beside import file_beside, folder_beside

KILLED = """
import os, sys
from skillfs.history import beside
with getattr(beside, sys.argv[1])(sys.argv[2]) as made:
    name = made if isinstance(made, str) else made[1]
    if os.path.isdir(name):
        open(os.path.join(name, "x"), "w").close()
    print("made", flush=True)
    sys.stdin.read()
"""


def beside(kind: str, path: Path) -> AbstractContextManager[Any]:
    return (folder_beside if kind == "folder_beside" else file_beside)(str(path))


@pytest.mark.parametrize("kind", ["folder_beside", "file_beside"])
@pytest.mark.parametrize("name", ["out", "a\n*[x]" + "日" * 60])
def test_what_a_killed_one_left_goes_with_the_next(tmp_path: Path, kind: str, name: str) -> None:
    place = tmp_path / name
    command = [sys.executable, "-c", KILLED, kind, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"made\n"
        left = set(os.listdir(tmp_path))
        assert len(left) == 1
        with beside(kind, place):
            assert len(os.listdir(tmp_path)) == 2
        assert set(os.listdir(tmp_path)) == left  # somebody is at work on it
        other.send_signal(signal.SIGKILL)
        other.wait()
    (tmp_path / f".{name[:50]}.mine~").touch()
    (tmp_path / ".other.0123456789abcdef~").touch()
    with beside(kind, place.with_name("else")):
        assert left <= set(os.listdir(tmp_path))
    with beside(kind, place):
        assert not left & set(os.listdir(tmp_path))
    assert set(os.listdir(tmp_path)) == {f".{name[:50]}.mine~", ".other.0123456789abcdef~"}


def test_one_that_is_a_link_or_a_pipe_is_left(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/x").touch()
    (tmp_path / ".out.0000000000000000~").symlink_to("folder")
    os.mkfifo(tmp_path / ".out.1111111111111111~")
    with folder_beside(str(tmp_path / "out")):
        pass
    assert (tmp_path / "folder/x").exists()
    assert len(os.listdir(tmp_path)) == 3


def test_many_at_a_time_do_not_sweep_each_other(tmp_path: Path) -> None:
    with ExitStack() as stack:
        made = [stack.enter_context(folder_beside(str(tmp_path / "out"))) for _ in range(20)]
        assert all(map(os.path.isdir, made))
    assert os.listdir(tmp_path) == []
