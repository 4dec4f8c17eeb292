"""Writing a lock is broken off, or fails, at any system call: the file is the old one or the new one."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from skillfs.core.lock import Lock, LockedFile, locked_skills, render_lock
from skillfs.errors import SkillFSError
from skillfs.history.locking import read_lock, write_lock

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace makes system calls fail")

CALLS = (
    "openat", "open", "read", "write", "fstat", "newfstatat", "lseek", "fchmod", "fsync", "rename",
    "getdents64", "readlink", "close", "unlink", "ioctl", "statx", "lstat", "stat",
)  # fmt: skip
SAMPLE = (("openat", 3), ("write", 1), ("fchmod", 1), ("fsync", 1), ("fsync", 2), ("rename", 1))
FAULTS = ("ENOSPC", "EIO", "EDQUOT", "EROFS", "EACCES")

SURVIVED, REFUSED, BROKEN = 0, 3, 9


def a_lock(word: bytes) -> Lock:
    return Lock(
        locked_skills({"a": [LockedFile("SKILL.md", 1, word * 32), LockedFile("x" * 200, 2, word * 32)]})
    )


OLD, NEW = a_lock(b"\1"), a_lock(b"\2")


def write_under(file: Path, injected: str) -> int:
    """Write the new lock in a child with a fault: its exit code, or the signal it died of, as a negative."""
    gate, open_gate = os.pipe()
    child = os.fork()
    if child == 0:
        code = BROKEN
        try:
            select.select([gate], [], [])
            try:
                write_lock(file, NEW)
                code = SURVIVED
            except SkillFSError as error:
                code = REFUSED if str(file.parent) not in error.message else BROKEN
        finally:
            os._exit(code)
    options = ("-e", f"trace={injected.partition(':')[0]}", "-e", f"inject={injected}")
    tracer = subprocess.Popen(
        ["strace", "-qq", "-o", os.devnull, *options, "-p", str(child)],
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        until = time.monotonic() + 20
        while "TracerPid:\t0\n" in Path(f"/proc/{child}/status").read_text():
            if tracer.poll() is not None or time.monotonic() > until:
                assert tracer.stderr is not None
                pytest.skip(f"strace cannot trace: {tracer.poll()} {injected} {tracer.stderr.read()!r}")
            time.sleep(0.001)
        os.write(open_gate, b"x")
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(gate)
        os.close(open_gate)
        tracer.wait(20)
        tracer.stderr.close()  # type: ignore[union-attr]


def prepared(folder: Path) -> Path:
    for left in folder.iterdir():
        left.unlink()
    (folder / "skills.lock").write_bytes(render_lock(OLD))
    return folder / "skills.lock"


def check_killed(folder: Path, call: str, number: int) -> bool:
    """Whether it was killed."""
    file = prepared(folder)
    code = write_under(file, f"{call}:signal=KILL:when={number}")
    assert code in (SURVIVED, -signal.SIGKILL)
    assert read_lock(file) in ((NEW,) if code == SURVIVED else (OLD, NEW))
    write_lock(file, NEW)
    assert read_lock(file) == NEW
    return code != SURVIVED


def check_failed(folder: Path, call: str, number: int, error: str) -> bool:
    """Whether it failed."""
    file = prepared(folder)
    code = write_under(file, f"{call}:error={error}:when={number}")
    assert code in (SURVIVED, REFUSED)
    assert read_lock(file) in ((NEW,) if code == SURVIVED else (OLD, NEW))
    if call not in ("unlink", "close"):
        assert [left.name for left in folder.iterdir()] == ["skills.lock"]
    return code != SURVIVED


@pytest.mark.parametrize(("call", "number"), SAMPLE)
def test_killed_or_failed(tmp_path: Path, call: str, number: int) -> None:
    assert check_killed(tmp_path, call, number)
    assert check_failed(tmp_path, call, number, "ENOSPC" if call != "fchmod" else "EPERM")


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_killed_at_every_call(tmp_path: Path) -> None:
    kills = 0
    for call in CALLS:
        number = 1
        while check_killed(tmp_path, call, number):
            number += 1
        kills += number - 1
    assert kills > 20


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("error", FAULTS)
def test_failed_at_every_call(tmp_path: Path, error: str) -> None:
    failed = 0
    for call in ("openat", "write", "fsync", "rename", "fchmod", "read", "fstat", "newfstatat", "getdents64"):
        # Some failures are none: what cannot be looked at is written anew.
        for number in range(1, 8):
            failed += check_failed(tmp_path, call, number, error)
    assert failed > 5


def test_a_full_disk(tmp_path: Path) -> None:
    """A real one, where this user may mount one."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("no filesystem can be mounted")
    try:
        file = tmp_path / "skills.lock"
        write_lock(file, OLD)
        with open(tmp_path / "fill", "wb", 0) as fill, contextlib.suppress(OSError):
            while True:
                fill.write(b"\0" * 4096)
        with pytest.raises(SkillFSError, match="disk is full") as error:
            write_lock(file, NEW)
        assert error.value.code == "unavailable"
        assert read_lock(file) == OLD
        assert sorted(os.listdir(tmp_path)) == ["fill", "skills.lock"]
        (tmp_path / "fill").unlink()
        assert write_lock(file, NEW)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
