"""Killed, or out of room, at any moment: no snapshot ever names what is not there and right."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from skillfs.errors import StoreUnavailableError
from skillfs.objects.local import LocalObjects
from skillfs.objects.snapshots import SnapshotCatalog
from skillfs.objects.upkeep import fsck, gc
from tests.objects import steps
from tests.objects.harness import check_whole, take
from tests.objects.steps import BEFORE, EXPECTED, FULL, ROOT, Nursery, can_trace

CALLS = (
    *("mkdir", "openat2", "openat", "write", "fsync", "syncfs"),
    *("rename", "linkat", "unlink", "rmdir", "flock", "close"),
)
"""Calls of the system; of those with several forms all."""

FORMS = {
    "mkdir": "/^mkdir(at)?$",
    "rename": "/^rename(at2?)?$",
    "unlink": "/^unlink(at)?$",
}
CAN_BE_FULL = ("mkdir", "openat", "write", "fsync", "syncfs", "rename", "linkat")

needs_strace = pytest.mark.skipif(not can_trace(), reason="needs strace, and to be allowed to use it")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as found:
        yield found


def check_interrupted(
    nursery: Nursery, tmp_path: Path, what: str, call: str, inject: str, number: int
) -> bool:
    """Do something, and have something happen at a call of the system. Returns whether it did not happen."""
    folder = tmp_path / f"{what}-{call}-{number}"
    if what != "begin":
        shutil.copytree(prepared(tmp_path, what), folder)
    ended = nursery.do(what, folder, FORMS.get(call, call), inject)
    assert ended in (0, -signal.SIGKILL, FULL)
    if what == "heal":
        if ended == 0:  # else what was damaged before may be damaged still
            check_whole(LocalObjects(folder))
    elif folder.exists():
        objects = LocalObjects(folder)
        found = check_whole(objects)
        assert found == EXPECTED[what] or (ended != 0 and found == BEFORE[what])
        assert not [finding for finding in fsck(objects) if finding.is_fault]
        if ended == FULL:
            assert objects.leftovers() == []
    # What was begun can be done now, and nothing is left of the first time.
    if what != "remove" or "old" in SnapshotCatalog(LocalObjects(folder)).labels():
        steps.do(what, folder)
    else:
        gc(LocalObjects(folder))
    objects = LocalObjects(folder)
    assert check_whole(objects) == EXPECTED[what]
    gc(objects)
    assert fsck(objects) == []
    assert objects.leftovers() == []
    assert [name for name in os.listdir(folder / "tmp") if name] == []
    shutil.rmtree(folder)
    return ended == 0


def prepared(tmp_path: Path, what: str) -> Path:
    folder = tmp_path / f"{what}-before"
    if not folder.exists():
        steps.prepare(what, folder)
    return folder


WORKS = ("begin", "take", "heal", "gc", "remove")


@needs_strace
@pytest.mark.parametrize("what", WORKS)
def test_killed_at_some_calls(nursery: Nursery, tmp_path: Path, what: str) -> None:
    chance = random.Random(what)
    for call in chance.sample(CALLS, 4):
        number = chance.randrange(1, 5)
        check_interrupted(nursery, tmp_path, what, call, f"signal=KILL:when={number}", number)


@needs_strace
@pytest.mark.parametrize("what", ["begin", "take"])
def test_full_at_some_calls(nursery: Nursery, tmp_path: Path, what: str) -> None:
    chance = random.Random(what)
    for call in chance.sample(CAN_BE_FULL, 3):
        number = chance.randrange(1, 4)
        check_interrupted(nursery, tmp_path, what, call, f"error=ENOSPC:when={number}+", number)


def sweep(nursery: Nursery, tmp_path: Path, calls: Sequence[str], inject: str, whats: Sequence[str]) -> int:
    happened = 0
    for what in whats:
        for call in calls:
            number = 1
            while not check_interrupted(nursery, tmp_path, what, call, inject.format(number), number):
                number += 1
            happened += number - 1
    return happened


@needs_strace
@pytest.mark.soak
@pytest.mark.timeout(0)
def test_killed_at_every_call(nursery: Nursery, tmp_path: Path) -> None:
    happened = sweep(nursery, tmp_path, CALLS, "signal=KILL:when={}", WORKS)
    print(f"killed {happened} times")
    assert happened > 200


@needs_strace
@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("from_then_on", ["", "+"])
def test_full_at_every_call(nursery: Nursery, tmp_path: Path, from_then_on: str) -> None:
    inject = f"error=ENOSPC:when={{}}{from_then_on}"
    happened = sweep(nursery, tmp_path, CAN_BE_FULL, inject, ["begin", "take", "heal"])
    print(f"full {happened} times")
    assert happened > 100


# -- a disk that is full -------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a filesystem")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=400", "tmpfs", folder], capture_output=True
    )
    if done.returncode:
        pytest.skip("no filesystem can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("filler", ["bytes", "files"])
def test_a_full_disk(small_disk: Path, filler: str) -> None:
    objects = LocalObjects(small_disk / "objects")
    catalog = SnapshotCatalog(objects)
    take(catalog, [b"kept"], "kept")
    big = [os.urandom(90_000) for _ in range(12)] if filler == "bytes" else [b"%d" % n for n in range(400)]
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="is full; free some space"):
            take(catalog, big, "big", at=1)
        assert check_whole(objects) == {"kept": [b"kept"]}
        assert objects.leftovers() == []
    gc(objects)
    assert fsck(objects) == []
    fitting = big[:5]
    take(catalog, fitting, "big", at=1)
    assert check_whole(objects) == {"big": sorted(fitting), "kept": [b"kept"]}


def test_however_little_room_there_is(small_disk: Path) -> None:
    """Byte by byte more: each step of a snapshot once is the one that fails."""
    filler = small_disk / "filler"
    page = 4_096
    free = os.statvfs(small_disk).f_bavail
    outcomes = []
    for room in range(0, 60, 2):
        filler.write_bytes(b"x" * page * (free - room))
        try:
            objects = LocalObjects(small_disk / "objects")
            take(SnapshotCatalog(objects), [b"x" * n for n in (1, 5_000, 40_000)], "new")
            outcomes.append(True)
        except StoreUnavailableError:
            outcomes.append(False)
            if (small_disk / "objects").exists():
                assert check_whole(LocalObjects(small_disk / "objects")) == {}
        else:
            assert len(check_whole(objects)["new"]) == 3
        filler.unlink()
        shutil.rmtree(small_disk / "objects", ignore_errors=True)
    assert outcomes == sorted(outcomes)
    assert 3 < outcomes.count(True) < 28


# -- several at work -----------------------------------------------------------------------------------------


def collect_against_writers(folder: Path, writers: int, seconds: float) -> int:
    LocalObjects(folder)
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.objects.steps", folder, str(seed), str(seconds)],
            cwd=ROOT, stderr=subprocess.PIPE, text=True,
        )
        for seed in range(1, writers + 1)
    ]  # fmt: skip
    objects = LocalObjects(folder)
    collected = 0
    try:
        while any(process.poll() is None for process in processes):
            try:
                collected += gc(objects).objects > 0
                with objects.holding(alone=True):
                    check_whole(objects)
            except StoreUnavailableError:
                continue
            time.sleep(0.01)  # it is the turn of the others
    finally:
        for process in processes:
            _, errors = process.communicate(timeout=60)
            assert not process.returncode, errors
    check_whole(objects)
    gc(objects)
    assert fsck(objects) == []
    return collected


def test_gc_while_snapshots_are_taken(tmp_path: Path) -> None:
    assert collect_against_writers(tmp_path / "objects", 2, 1.0) > 0


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_gc_while_many_snapshots_are_taken(tmp_path: Path) -> None:
    assert collect_against_writers(tmp_path / "objects", 4, 120.0) > 100
