"""The life of a server in the foreground: what ends it, and how fast."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillfs import SkillFileSystem
from skillfs.fuse.mountpoints import mount_points
from tests.conftest import skill_md, write
from tests.fuse.mounting import SECONDS, detach, ended, held_open, left_below
from tests.mountable import needs_mount_points

pytestmark = needs_mount_points

INTERRUPTED = 128 + signal.SIGINT

# What `skillfs` does, but for the seconds in which open files may be closed: they are the first argument.
_QUICK = """
import sys
import skillfs.fuse.serving
skillfs.fuse.serving.GRACE_SECONDS = float(sys.argv.pop(1))
import skillfs.__main__
"""


@contextlib.contextmanager
def served(
    store: Path, mountpoint: Path, *, grace: float = 0.4, **arguments: object
) -> Iterator[subprocess.Popen[str]]:
    """`skillfs mount` in the foreground, mounted."""
    command = [sys.executable, "-c", _QUICK, str(grace), "-s", store, "mount", mountpoint, "--json"]
    kept = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **arguments}
    process = subprocess.Popen(command, **kept)  # type: ignore[call-overload]
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert told == {"mountpoint": str(mountpoint), "pid": process.pid, "read_only": True}
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_unmounts_and_ends_it(skills: Path, mountpoint: Path, number: signal.Signals) -> None:
    with served(skills, mountpoint) as process:
        assert (mountpoint / "pdf/a.txt").read_text() == "first"
        process.send_signal(number)
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == (INTERRUPTED if number == signal.SIGINT else 0)
        assert errors == "mounted; interrupt to unmount\n"
        assert not left_below(mountpoint.parent)


def test_what_is_ignored_stays_ignored(skills: Path, mountpoint: Path) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with served(skills, mountpoint, preexec_fn=ignore) as process:
        process.send_signal(signal.SIGHUP)
        assert (mountpoint / "pdf/a.txt").read_text() == "first"
        assert process.poll() is None
        detach(mountpoint)
        assert process.wait(SECONDS) == 0


def test_it_ends_with_its_terminal(skills: Path, mountpoint: Path) -> None:
    main, other = pty.openpty()
    with served(
        skills, mountpoint, stdin=other, start_new_session=True, preexec_fn=_take_terminal
    ) as process:
        os.close(other)
        assert (mountpoint / "pdf/a.txt").read_text() == "first"
        os.close(main)
        assert process.wait(SECONDS) == 0
    assert not left_below(mountpoint.parent)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_open_files_keep_it_for_a_moment_only(skills: Path, mountpoint: Path) -> None:
    write(skills, {"pdf/large.bin": b"x" * 8_000_000})
    with (
        served(skills, mountpoint, grace=1.5) as process,
        held_open(mountpoint / "pdf/large.bin") as file,
    ):
        assert os.read(file, 3) == b"xxx"
        told = os.getxattr(mountpoint / "pdf/a.txt", "user.skillfs.md5")
        process.send_signal(signal.SIGTERM)
        while left_below(mountpoint.parent):
            time.sleep(0.01)
        # Unmounted at once, and what is open can be read on for a while.
        assert os.pread(file, 3, 7_000_000) == b"xxx"
        assert process.wait(SECONDS) == 0
        with pytest.raises(OSError, match=r"not connected|abort"):
            os.pread(file, 3, 4_000_000)
    # What was learned until then is kept.
    (entry,) = SkillFileSystem(skills).find_content(f"md5:{told.decode()}")
    assert entry.path == "pdf/a.txt"


def test_a_folder_above_that_is_renamed(skills: Path, mountpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "above/point").mkdir(parents=True)
    with served(skills, tmp_path / "above/point") as process:
        (tmp_path / "above").rename(tmp_path / "renamed")
        assert (tmp_path / "renamed/point/pdf/a.txt").read_text() == "first"
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    assert not left_below(tmp_path)


def test_a_second_signal_ends_it_at_once(skills: Path, mountpoint: Path) -> None:
    with served(skills, mountpoint, grace=10 * SECONDS) as process, held_open(mountpoint / "pdf/a.txt"):
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            while left_below(mountpoint.parent):
                time.sleep(0.01)
        assert process.wait(SECONDS) == INTERRUPTED


def test_what_unmounts_and_hangs_does_not_keep_it(skills: Path, mountpoint: Path, tmp_path: Path) -> None:
    write(tmp_path / "programs", {"fusermount3": "#!/bin/sh\nexec sleep 9\n"})
    (tmp_path / "programs/fusermount3").chmod(0o755)
    places = {**os.environ, "PATH": f"{tmp_path / 'programs'}:{os.environ['PATH']}"}
    with served(skills, mountpoint, env=places) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(8) == 0


def test_a_store_that_is_removed_does_not_keep_it(skills: Path, mountpoint: Path, tmp_path: Path) -> None:
    with served(skills, mountpoint) as process:
        shutil.move(skills, tmp_path / "away")
        with pytest.raises(OSError, match="Input/output"):
            (mountpoint / "pdf/a.txt").read_bytes()
        shutil.move(tmp_path / "away", skills)
        assert (mountpoint / "pdf/a.txt").read_bytes() == b"first"
        shutil.rmtree(skills)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    assert not left_below(mountpoint.parent)


def test_nobody_who_reads_what_it_says(skills: Path, mountpoint: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "skillfs", "-s", skills, "mount", mountpoint, "--json"]
    with subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        assert process.wait(SECONDS) == 128 + signal.SIGPIPE
    assert not left_below(mountpoint.parent)


@pytest.mark.soak
def test_killed_at_any_moment_it_leaves_nothing_that_force_does_not_mend(
    root: Path, mountpoint: Path
) -> None:
    write(root, {f"s{number}/SKILL.md": skill_md(f"s{number}") for number in range(300)})
    for number in range(60):
        before = mount_points()
        command = [sys.executable, "-m", "skillfs", "-s", root, "mount", mountpoint, "--force"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(number * 0.01)
        process.send_signal(signal.SIGTERM if number % 2 else signal.SIGKILL)
        process.wait(SECONDS)
        assert ended(process.pid)
        if number % 2:
            # It may have ended before it unmounted what the one before has left.
            assert all(point in before for point in mount_points() if point.path == str(mountpoint))
