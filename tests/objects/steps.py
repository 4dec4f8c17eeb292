"""What is done to a folder of objects in a process of its own, which may be killed at any call of the system.

Run as a program it is a nursery: for each line `<what> <folder>` it forks a child, tells its number, and has
the child do that once another line comes; then it tells how the child ended.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from skillfs.errors import SkillFSError, StoreUnavailableError
from skillfs.objects.local import LocalObjects
from skillfs.objects.snapshots import SnapshotCatalog
from skillfs.objects.upkeep import gc
from tests.objects.harness import take

ROOT = Path(__file__).parent.parent.parent
TEXTS = [b"one", b"two", b"three" * 10_000]
FULL, FAILED = 3, 4
"""How a child ends that was told that the folder cannot be written; or anything else."""


def prepare(what: str, folder: Path) -> None:
    """Lay the folder to which something is done."""
    if what == "begin":
        return
    catalog = SnapshotCatalog(LocalObjects(folder))
    first = take(catalog, [b"one", b"old"], "old")
    take(catalog, [b"one", b"kept"], "kept", at=1)
    if what in ("gc", "heal"):
        catalog.remove(first)
    if what == "heal":
        blob = max(info.name for info in catalog.folder.listed("blobs/"))
        (folder / blob).write_bytes(b"damaged")


def do(what: str, folder: Path) -> None:
    """Do it."""
    catalog = SnapshotCatalog(LocalObjects(folder))
    if what in ("begin", "take"):
        take(catalog, TEXTS, "new", at=2)
    elif what == "heal":
        take(catalog, [b"one", b"kept", b"old"], "new", at=2)
    elif what == "gc":
        gc(catalog.folder)
    else:
        assert what == "remove"
        catalog.remove(catalog.labels()["old"])


EXPECTED = {
    "begin": {"new": sorted(TEXTS)},
    "take": {"kept": [b"kept", b"one"], "new": sorted(TEXTS), "old": [b"old", b"one"]},
    "heal": {"kept": [b"kept", b"one"], "new": [b"kept", b"old", b"one"]},
    "gc": {"kept": [b"kept", b"one"]},
    "remove": {"kept": [b"kept", b"one"]},
}
"""What there is by which label when it was done."""

BEFORE = {
    "begin": {},
    "take": {"kept": [b"kept", b"one"], "old": [b"old", b"one"]},
    "heal": {"kept": [b"kept", b"one"]},
    "gc": EXPECTED["gc"],
    "remove": {"kept": [b"kept", b"one"], "old": [b"old", b"one"]},
}


class Nursery:
    """A process that has everything imported, and forks children that do one thing each under strace."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.objects.steps"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def do(self, what: str, folder: Path, call: str, inject: str) -> int:
        """Do something; `inject` happens to a call of the system. Returns how the child has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(what, folder, file=self._process.stdin, flush=True)
        child = self._process.stdout.readline().strip()
        tracer = subprocess.Popen(
            ["strace", "-p", child, "-e", f"trace={call}", "-e", f"inject={call}:{inject}", "-o", os.devnull],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert tracer.stderr is not None
        try:
            line = tracer.stderr.readline()
            assert "attached" in line, line
        finally:
            print(file=self._process.stdin, flush=True)
            ended = int(self._process.stdout.readline())
            tracer.communicate(timeout=30)
        return ended

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=30)


def can_trace() -> bool:
    """Whether processes can be traced here, and calls of the system made to fail."""
    if shutil.which("strace") is None:
        return False
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        tracer = subprocess.Popen(
            ["strace", "-p", str(sleeper.pid), "-e", "inject=fsync:error=EIO", "-o", os.devnull],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert tracer.stderr is not None
        return "attached" in tracer.stderr.readline()
    finally:
        sleeper.kill()
        sleeper.wait()
        tracer.communicate(timeout=30)


def raise_children() -> None:
    """What runs in the nursery."""
    with tempfile.TemporaryDirectory() as name:  # so that no child has to import anything
        for what in EXPECTED:
            prepare(what, Path(name, what))
            do(what, Path(name, what))
    for line in sys.stdin:
        what, folder = line.split()
        child = os.fork()
        if not child:
            os.read(0, 1)
            try:
                do(what, Path(folder))
            except StoreUnavailableError:
                os._exit(FULL)
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(FAILED)
            os._exit(0)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def write_and_remove(folder: Path, seed: int, seconds: float) -> None:
    """Take snapshots, and remove some, one after the other."""
    import random

    chance = random.Random(seed)
    catalog = SnapshotCatalog(LocalObjects(folder))
    until = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        number += 1
        try:
            texts = [b"%d" % chance.randrange(40) for _ in range(8)]
            digest = take(catalog, texts, f"{seed}-{number}", at=seed * 1_000_000 + number)
            if chance.random() < 0.7:
                catalog.remove(digest)
        except SkillFSError as error:
            if not isinstance(error, StoreUnavailableError):
                raise


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write_and_remove(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
    else:
        raise_children()
