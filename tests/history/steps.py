"""What is done with snapshots in a process of its own, which may be killed at any call of the system.

Run as a program it is a nursery, as `tests.objects.steps` is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

from skillfs import SkillFileSystem
from skillfs.errors import StoreUnavailableError, UnreadableError
from tests.conftest import skill_md, write
from tests.objects.steps import FAILED, FULL, ROOT, Nursery

__all__ = ["SnapshotNursery", "do", "opened"]


def opened(folder: Path) -> SkillFileSystem:
    return SkillFileSystem(folder / "store", index=folder / "index", skip_instance_cache=True)


def do(what: str, folder: Path) -> None:
    """Do it."""
    if what == "snapshot":
        opened(folder).snapshot("new")
    elif what == "restore":
        opened(folder).snapshots.restore("old", folder / "out")
    else:
        assert what == "export"
        opened(folder).snapshots.export("old", folder / "out.zip")


class SnapshotNursery(Nursery):
    """A process that has everything imported, and forks children that do one thing each under strace."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.history.steps"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip


def raise_children() -> None:
    """What runs in the nursery."""
    with tempfile.TemporaryDirectory() as name:  # so that no child has to import anything
        folder = write(Path(name), {"store/a/SKILL.md": skill_md("a"), "store/b/SKILL.md": "b"})
        opened(folder).snapshot("old")
        for what in ("snapshot", "restore", "export"):
            do(what, folder)
    for line in sys.stdin:
        if not line.strip():
            continue  # for a child that was killed before it had read that
        what, folder = line.split()
        child = os.fork()
        if not child:
            os.read(0, 1)
            warnings.simplefilter("ignore")  # of an index that falls back to memory
            try:
                do(what, Path(folder))
            except (StoreUnavailableError, UnreadableError):
                os._exit(FULL)
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(FAILED)
            os._exit(0)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    raise_children()
