"""What snapshots, differences, locks and versions cost, beside git and sha256sum; a process a function.

Whatever changes files works on a copy of the store, which `prepare_copy` makes. Objects and repositories are
written below the state of the corpus, on the same filesystem.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.measure import Meter, command
from tests.benchmarks.peers import git_command, git_environment

CHANGED = 20
"""Files that change between two snapshots."""


def _load() -> Any:
    """Import what is used, so that what is timed afterwards does not pay for the import."""
    import skillfs.history.diff
    import skillfs.history.versions  # noqa: F401  # for those who use it
    from skillfs import SkillFileSystem

    return SkillFileSystem


def _open(store: str, index: str, **options: object) -> Any:
    return _load()(store, index=index, skip_instance_cache=True, max_age=3600, **options)


def _files(store: str) -> Iterator[str]:
    for folder, _, names in os.walk(store):
        for name in names:
            yield os.path.join(folder, name)


def _change(store: str) -> None:
    """Add a line to some files, others each time."""
    rng = random.Random()
    for path in rng.sample(sorted(_files(store)), CHANGED):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"changed {rng.random()}\n")


# -- what is prepared, and not timed -------------------------------------------------------------------------


def prepare_copy(store: str, copy: str) -> dict[str, float]:
    """A copy of the store with a snapshot and a commit before and after a change."""
    folder = Path(copy)
    if (folder / "done").exists():
        return {}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run(["cp", "-r", store, str(folder / "store")], check=True)
    here, git_dir, env = str(folder / "store"), str(folder / "git"), git_environment()
    subprocess.run(git_command(here, git_dir, "init", "--quiet"), env=env, check=True, cwd=here)
    for turn in range(2):
        if turn:
            _change(here)
        fs = _open(here, str(folder / "index.sqlite"), objects=str(folder / "objects"))
        fs.snapshot()
        for arguments in (("add", "."), ("commit", "--quiet", "-m", "all")):
            subprocess.run(git_command(here, git_dir, *arguments), env=env, check=True, cwd=here)
    (folder / "done").touch()
    return {}


def prepare_lock(store: str, index: str, state: str) -> dict[str, float]:
    """A `skills.lock`, and the same sums for `sha256sum`."""
    from skillfs.history.locking import write_lock

    write_lock(f"{state}/skills.lock", _open(store, index).lock())
    with open(f"{state}/SHA256SUMS", "w", encoding="utf-8") as sums:
        script = "find . -type f -print0 | xargs -0 sha256sum"
        subprocess.run(["sh", "-c", script], cwd=store, stdout=sums, check=True)
    return {}


# -- the first snapshot --------------------------------------------------------------------------------------


def read_hash_write(store: str, state: str) -> dict[str, float]:
    """Read every file, and write each content under its SHA-256; once to the disk in the end."""
    target = tempfile.mkdtemp(prefix="fresh-", dir=state)
    with Meter() as meter:
        for first in range(256):
            os.mkdir(f"{target}/{first:02x}")
        for path in _files(store):
            handle = os.open(path, os.O_RDONLY)
            data = os.read(handle, os.fstat(handle).st_size + 1)
            os.close(handle)
            name = hashlib.sha256(data).hexdigest()
            try:
                handle = os.open(f"{target}/{name[:2]}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                continue
            os.write(handle, data)
            os.close(handle)
        os.sync()
    shutil.rmtree(target)
    return meter.figures()


def git_first(store: str, state: str) -> dict[str, float]:
    """`git add` of everything and `git commit`, in an empty repository."""
    git_dir = tempfile.mkdtemp(prefix="fresh-", dir=state)
    env = git_environment()
    subprocess.run(git_command(store, git_dir, "init", "--quiet"), env=env, check=True, cwd=store)
    with Meter() as meter:
        for arguments in (("add", "."), ("commit", "--quiet", "-m", "all")):
            subprocess.run(git_command(store, git_dir, *arguments), env=env, check=True, cwd=store)
    size = sum(os.path.getsize(path) for path in _files(git_dir)) / 1e6
    shutil.rmtree(git_dir)
    return meter.figures() | {"size": size}


def first_snapshot(store: str, index: str, state: str) -> dict[str, float]:
    """The first snapshot, into an empty object folder: of a store that is open, and with a first opening."""
    _load()
    objects = tempfile.mkdtemp(prefix="fresh-", dir=state)
    fs = _open(store, index, objects=objects)
    # What an earlier turn has learned would spare half of the work.
    fs._engine.database.try_write([("DELETE FROM sha256", [()])])
    with Meter() as opened:
        fs.snapshot()
    size = sum(os.path.getsize(path) for path in _files(objects)) / 1e6
    shutil.rmtree(objects)
    fresh = tempfile.mkdtemp(prefix="fresh-", dir=state)
    with Meter() as first:
        _open(store, f"{fresh}/index.sqlite", objects=f"{fresh}/objects").snapshot()
    shutil.rmtree(fresh)
    figures = {"open": opened.cpu, "from nothing": first.cpu, "wall": opened.wall, "size": size}
    return figures | {"wall from nothing": first.wall, "peak": first.figures()["peak"]}


# -- the next, and what differs ------------------------------------------------------------------------------


def git_second(copy: str) -> dict[str, float]:
    """The same after a change of some files."""
    store, git_dir, env = f"{copy}/store", f"{copy}/git", git_environment()
    _change(store)
    with Meter() as meter:
        for arguments in (("add", "."), ("commit", "--quiet", "-m", "more")):
            subprocess.run(git_command(store, git_dir, *arguments), env=env, check=True, cwd=store)
    return meter.figures()


def second_snapshot(copy: str) -> dict[str, float]:
    """The store is opened again, and a snapshot taken, after a change of some files."""
    _load()
    _change(f"{copy}/store")
    with Meter() as meter:
        _open(f"{copy}/store", f"{copy}/index.sqlite", objects=f"{copy}/objects").snapshot()
    return meter.figures()


def git_diff(copy: str) -> dict[str, float]:
    """`git diff --stat` of the last two commits."""
    argv = git_command(f"{copy}/store", f"{copy}/git", "diff", "--stat", "HEAD~1", "HEAD")
    return command(argv, env=git_environment(), cwd=f"{copy}/store")


def difference(copy: str) -> dict[str, float]:
    """The last two snapshots of the store, compared without opening it."""
    _load()
    from skillfs.history.diff import Comparison, side_of_snapshot
    from skillfs.history.snapshots import find_snapshots

    snapshots = find_snapshots(None, objects=f"{copy}/objects")
    after, before = snapshots.list()[:2]
    with Meter() as meter:
        snapshots = find_snapshots(None, objects=f"{copy}/objects")
        sides = [side_of_snapshot(snapshots, one) for one in (before, after)]
        found = Comparison(*sides).differences
    return meter.figures(len(found.items))


# -- verifying -----------------------------------------------------------------------------------------------


def sha256sum(store: str, state: str) -> dict[str, float]:
    """`sha256sum -c` of every file."""
    return command(["sha256sum", "-c", "--quiet", f"{state}/SHA256SUMS"], cwd=store)


def verify(store: str, state: str) -> dict[str, float]:
    """`verify` of everything: with a first opening, again of the open store, and by reading every file."""
    _load()
    from skillfs.history.locking import read_lock

    fresh = tempfile.mkdtemp(prefix="fresh-", dir=state)
    with Meter() as first:
        fs = _open(store, f"{fresh}/index.sqlite")
        outcome = fs.verify(f"{state}/skills.lock")
    if not outcome.ok:
        raise RuntimeError("the store is not as it was locked")
    with Meter() as again:
        fs.verify(f"{state}/skills.lock")
    with Meter() as reread:
        fs.verify(read_lock(f"{state}/skills.lock"), reread=True)
    shutil.rmtree(fresh)
    return {
        "from nothing": first.cpu,
        "again": again.cpu,
        "every file read": reread.cpu,
        "peak": first.figures()["peak"],
    }


# -- versions ------------------------------------------------------------------------------------------------


def read_and_split(store: str) -> dict[str, float]:
    """Read every `SKILL.md`, and cut it into words."""
    word = re.compile(r"\w+").findall
    count = 0
    with Meter() as meter:
        for folder, _, names in os.walk(store):
            if "SKILL.md" in names:
                with open(f"{folder}/SKILL.md", "rb") as file:
                    count += len(word(file.read().decode("utf-8", "replace").casefold()))
    return meter.figures(count)


def versions(store: str, index: str) -> dict[str, float]:
    """The versions of all skills, and of one."""
    fs = _open(store, index)
    with Meter() as everything:
        found = fs.versions()
    with Meter() as one:
        fs.versions(f"/{found[len(found) // 2].path}")
    peak = everything.figures()["peak"]
    return {"all": everything.cpu, "one": one.cpu, "peak": peak, "found": sum(each.total for each in found)}
