"""Killed, or out of room, at any moment of taking, restoring or exporting: all of it is there, or nothing."""

from __future__ import annotations

import os
import random
import shutil
import signal
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from skillfs import SkillFileSystem
from tests.conftest import skill_md, write
from tests.history.steps import SnapshotNursery, do, opened
from tests.history.trees import on_disk
from tests.objects.steps import FULL, can_trace
from tests.objects.test_interrupted import FORMS

CALLS = (
    *("mkdir", "openat2", "openat", "read", "pread64", "write", "fsync", "syncfs", "symlink"),
    *("rename", "linkat", "unlink", "flock", "close", "newfstatat", "pwrite64", "fdatasync"),
)
CAN_BE_FULL = ("mkdir", "openat", "write", "fsync", "syncfs", "rename", "linkat", "pwrite64", "symlink")
WORKS = ("snapshot", "restore", "export")

pytestmark = pytest.mark.skipif(not can_trace(), reason="needs strace, and to be allowed to use it")


@pytest.fixture(scope="module")
def nursery() -> Iterator[SnapshotNursery]:
    with SnapshotNursery() as found:
        yield found


def prepared(tmp_path: Path) -> Path:
    """A store of which there is a snapshot, `old`, and in which something has changed since."""
    folder = tmp_path / "before"
    if not folder.exists():
        write(folder / "store", {"a/SKILL.md": skill_md("a"), "a/x.md": "x\n", "b/SKILL.md": skill_md("b")})
        (folder / "store/a/x.md").chmod(0o755)
        (folder / "store/b/link").symlink_to("../a/x.md")
        fs = opened(folder)
        fs.snapshot("old")
        fs.snapshots.restore("old", tmp_path / "expected")
        fs.snapshots.export("old", tmp_path / "expected.zip")
        write(folder / "store", {"a/x.md": "changed\n", "b/big.bin": bytes(2_000_000), "c/SKILL.md": "c"})
        (tmp_path / "digest").write_text(opened(folder).snapshot(base_paths=None).digest)
        fs = opened(folder)
        fs.snapshots.remove("latest")
        fs.snapshots.gc()
        for path in folder.glob("index*"):
            if path.is_file():
                path.unlink()
    return folder


def check_interrupted(
    nursery: SnapshotNursery, tmp_path: Path, what: str, call: str, inject: str, number: int
) -> bool:
    """Do something, and have something happen at a call of the system. Returns whether it did not happen."""
    folder = tmp_path / f"{what}-{call}-{number}"
    shutil.copytree(prepared(tmp_path), folder, symlinks=True)
    before = on_disk(folder / "store")
    ended = nursery.do(what, folder, FORMS.get(call, call), inject)
    assert ended in (0, -signal.SIGKILL, FULL)
    assert on_disk(folder / "store") == before
    check_done(tmp_path, folder, what, sure=ended == 0)
    if ended == FULL and call != "openat":  # by which folders are listed, too
        assert not [name for name in os.listdir(folder) if name.startswith(".out")]
    # What was begun can be done now; and nobody who reads is kept from it.
    at = SkillFileSystem(folder / "store", at="old", objects=folder / "index.objects", index=":memory:")
    assert at.cat_file("a/x.md") == b"x\n"
    if not (what == "restore" and (folder / "out").exists()) and not (folder / "out.zip").exists():
        do(what, folder)
    check_done(tmp_path, folder, what, sure=True)
    shutil.rmtree(folder)
    return ended == 0


def check_done(tmp_path: Path, folder: Path, what: str, *, sure: bool) -> None:
    """All of it is there, or, unless that is sure, nothing."""
    if what == "restore":
        if sure or (folder / "out").exists():
            assert on_disk(folder / "out") == on_disk(tmp_path / "expected")
    elif what == "export":
        if sure or (folder / "out.zip").exists():
            assert (folder / "out.zip").read_bytes() == (tmp_path / "expected.zip").read_bytes()
            assert zipfile.ZipFile(folder / "out.zip").testzip() is None
    else:
        snapshots = opened(folder).snapshots
        digests = {label: one.digest for one in snapshots.list() for label in one.labels}
        assert digests.keys() == {"old", "new"} if sure else digests.keys() <= {"old", "new"}
        if "new" in digests:
            assert digests["new"] == (tmp_path / "digest").read_text()
        assert not [finding for finding in snapshots.fsck() if finding.is_fault]


@pytest.mark.parametrize("what", WORKS)
def test_killed_at_some_calls(nursery: SnapshotNursery, tmp_path: Path, what: str) -> None:
    chance = random.Random(what)
    for call in ("write", *chance.sample(CALLS, 2)):
        number = chance.randrange(1, 5)
        check_interrupted(nursery, tmp_path, what, call, f"signal=KILL:when={number}", number)


@pytest.mark.parametrize("what", WORKS)
def test_full_at_some_calls(nursery: SnapshotNursery, tmp_path: Path, what: str) -> None:
    chance = random.Random(what)
    for call in ("write", *chance.sample(CAN_BE_FULL, 1)):
        number = chance.randrange(1, 4)
        check_interrupted(nursery, tmp_path, what, call, f"error=ENOSPC:when={number}+", number)


def sweep(
    nursery: SnapshotNursery, tmp_path: Path, calls: Sequence[str], inject: str, whats: Sequence[str]
) -> int:
    happened = 0
    for what in whats:
        for call in calls:
            number = 1
            while not check_interrupted(nursery, tmp_path, what, call, inject.format(number), number):
                number += 1
            happened += number - 1
    return happened


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("what", WORKS)
def test_killed_at_every_call(nursery: SnapshotNursery, tmp_path: Path, what: str) -> None:
    happened = sweep(nursery, tmp_path, CALLS, "signal=KILL:when={}", [what])
    print(f"{what}: killed {happened} times")
    assert happened > 50


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("what", WORKS)
@pytest.mark.parametrize("from_then_on", ["", "+"])
def test_full_at_every_call(nursery: SnapshotNursery, tmp_path: Path, what: str, from_then_on: str) -> None:
    happened = sweep(nursery, tmp_path, CAN_BE_FULL, f"error=ENOSPC:when={{}}{from_then_on}", [what])
    print(f"{what}: full {happened} times")
    assert happened > 5
