"""Thousands of changes at once: a watched index misses none of them, be the kernel's queue long or short."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from skillfs import SkillFileSystem
from skillfs.core.digest import hex_hash, uuid_text
from skillfs.core.model import Changes
from skillfs.sync.engine import Engine
from tests.conftest import skill_md, write
from tests.sync.harness import check, expected, shown, states, uuids
from tests.sync.watching import reaches, stays, wait_until

FOLDERS, FILES = 500, 10
PATHS = 4750
QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")
SHORT = 256

GIT_CONFIG = ("user.name=tests", "user.email=tests@localhost", "gc.auto=0", "core.autocrlf=false")


class Known(NamedTuple):
    """What a told of changes knows of an entry."""

    path: str
    skill: str | None
    hash: str | None


class Told:
    """Holds the entries of a filesystem by nothing but the changes it is told."""

    def __init__(self, fs: SkillFileSystem) -> None:
        self.fs = fs
        with fs._engine.database.snapshot():
            self.revision = fs._engine.journal.revision()
            self.known = self._there()

    def _there(self) -> dict[str, Known]:
        return {
            uuid_text(uuid): Known(
                state.path, state.skill and uuid_text(state.skill), hex_hash(state.content)
            )
            for uuid, state in states(self.fs._engine).items()
        }

    def take(self, changes: Changes) -> None:
        assert not changes.reset
        assert changes.revision == self.revision + 1
        for item in changes.items:
            old = self.known.pop(item.uuid, None)
            assert (old is None) == (item.kind == "added"), item
            assert item.old_hash == (old.hash if old is not None else None), item
            if old is not None:
                assert old.path == (item.old_path or item.path), item
            if item.kind != "removed":
                self.known[item.uuid] = Known(item.path, item.skill_folder_uuid, item.hash)
        self.revision = changes.revision

    def agrees(self) -> None:
        """Wait until everything was told, and compare."""
        wait_until(lambda: self.revision == self.fs._engine.journal.revision(), what="a change was not told")
        assert self.known == self._there()


@contextlib.contextmanager
def watched(root: Path, index: Path, queue: int | None = None) -> Iterator[tuple[SkillFileSystem, Told]]:
    """A filesystem that is kept in step, and what its changes tell."""
    with contextlib.nullcontext() if queue is None else queue_of(queue):
        fs = SkillFileSystem(root, index=index, watch=True, skip_instance_cache=True)
        assert fs._engine.watcher is not None
        reaches(fs._engine.watcher, "watching")
    told = Told(fs)
    try:
        with fs.watch(told.take, since=told.revision):
            yield fs, told
    finally:
        for hold in fs._holds:
            hold.release()


def settles(engine: Engine, root: Path, wait: bool = True) -> None:
    """Wait until an index shows what is there, holds together, and has nothing left to be found.

    Nothing here has the engine look, but for the last step.
    """

    def is_in_step() -> bool:
        try:
            return shown(engine) == expected(root)
        except (AssertionError, OSError):  # it changes while it is looked at
            return False

    def holds_together() -> bool:
        try:
            check(engine, root)
        except AssertionError:
            # What was too young to be trusted is looked at once more, and has another row from then on.
            return False
        return True

    if wait:
        wait_until(is_in_step, what="something was missed")
    assert shown(engine) == expected(root)
    wait_until(holds_together, what="the index does not hold together")
    stays(engine)


@contextlib.contextmanager
def queue_of(events: int) -> Iterator[None]:
    """Watches that are begun meanwhile have a queue of so many events."""
    before = QUEUE.read_text()
    try:
        QUEUE.write_text(str(events))
    except OSError as error:
        pytest.skip(f"the kernel's queue cannot be made short here ({error.strerror})")
    try:
        yield
    finally:
        QUEUE.write_text(before)


@contextlib.contextmanager
def deaf(fs: SkillFileSystem) -> Iterator[None]:
    """No event is taken from the kernel's queue meanwhile."""
    watches = fs._engine.watches
    assert watches is not None
    with watches._lock:
        yield


def tree() -> dict[str, str]:
    """Paths and contents of 5,000 files in 500 folders, nested up to nine deep; many of them are skills."""
    rng = random.Random(7)
    folders = ["top"]
    while len(folders) < FOLDERS:
        above = rng.choice([folder for folder in folders[-60:] if folder.count("/") < 8] or folders[:1])
        folders.append(f"{above}/folder-{len(folders)}")
    files = {}
    for number, folder in enumerate(folders):
        names = ["SKILL.md"] if number % 6 == 0 else ["notes.md"]
        names += [f"file-{n}.md" for n in range(FILES - 1)]
        for name in names:
            head = skill_md(f"folder-{number}") if name == "SKILL.md" else ""
            files[f"{folder}/{name}"] = head + f"{folder}/{name}\n" * rng.randrange(1, 60)
    assert len(files) == FOLDERS * FILES
    return files


SCRIPT = """
import os, sys
source, target = sys.argv[1:]
for at, folders, files in os.walk(source):
    to = os.path.join(target, os.path.relpath(at, os.path.dirname(source)))
    os.mkdir(to)
    for name in files:
        with open(os.path.join(at, name), "rb") as old, open(os.path.join(to, name), "wb", 0) as new:
            data = old.read()
            new.write(data[:100])
            new.write(data[100:])
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder `top` with the tree, beside an archive of it."""
    folder = tmp_path_factory.mktemp("source")
    write(folder, tree())
    subprocess.run(["tar", "-cf", folder / "top.tar", "-C", folder, "top"], check=True)
    return folder


@pytest.fixture(params=[pytest.param("a long queue", marks=pytest.mark.soak), "a short queue"])
def queue(request: pytest.FixtureRequest) -> int | None:
    return SHORT if request.param == "a short queue" else None


BURSTS: dict[str, Callable[[Path], list[str]]] = {
    "script": lambda source: [sys.executable, "-c", SCRIPT, str(source / "top"), "."],
    "cp": lambda source: ["cp", "-r", str(source / "top"), "."],
    "tar": lambda source: ["tar", "-xf", str(source / "top.tar")],
}


@pytest.mark.parametrize(
    ("kind", "queue"),
    [
        ("script", None),
        ("tar", SHORT),
        *(pytest.param(kind, None, marks=pytest.mark.soak) for kind in ("cp", "tar")),
    ],
)
def test_a_tree_of_five_thousand_files(
    root: Path, tmp_path: Path, source: Path, kind: str, queue: int | None
) -> None:
    write(root, {"a/SKILL.md": skill_md("a"), "b/SKILL.md": ""})
    command = BURSTS[kind](source)
    with watched(root, tmp_path / "index.sqlite", queue) as (fs, told):
        engine = fs._engine
        subprocess.run(command, cwd=root / "b", check=True)
        settles(engine, root)
        told.agrees()
        assert len(fs.find("b")) == FOLDERS * FILES + 1
        before = uuids(engine)
        shutil.rmtree(root / "b" / "top")
        subprocess.run(command, cwd=root / "b", check=True)
        fs.sync()
        settles(engine, root, wait=False)
        told.agrees()
        assert uuids(engine) == before
        # What is new is watched in turn.
        with deaf(fs) if queue else contextlib.nullcontext():
            write(root / "b", dict.fromkeys(tree(), "edited\n"))
        settles(engine, root)
        told.agrees()
        assert uuids(engine) == before
        assert engine.watcher is not None
        assert engine.watcher.overflows or not queue


def git(root: Path, *arguments: str) -> None:
    config = [part for setting in GIT_CONFIG for part in ("-c", setting)]
    env = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", *config, "-C", str(root), *arguments]
    subprocess.run(command, check=True, env=env, capture_output=True)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store under git, on the branch `one`; the branch `two` differs from it in 4,750 paths."""
    root = tmp_path_factory.mktemp("repository")
    paths = sorted(tree())
    one = {path: f"one {path}\n" * 5 for path in paths if not path.endswith("SKILL.md")}
    skills = {path: skill_md("one") for path in paths if path.endswith("SKILL.md")}
    try:
        git(root, "init", "-q", "-b", "one")
    except FileNotFoundError:
        pytest.skip("git is not installed")
    write(root, {"top/SKILL.md": skill_md("top"), **skills, **one})
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "one")
    git(root, "checkout", "-q", "-b", "two")
    some = random.Random(3).sample(sorted(one), len(one))
    gone, moved, edited = some[:500], some[500:900], some[900:]
    for path in gone:
        (root / path).unlink()
    for path in moved:
        to = root / f"top/moved/{path}"
        to.parent.mkdir(parents=True, exist_ok=True)
        (root / path).rename(to)
    count = PATHS - len(gone) - 2 * len(moved)
    write(root, {path: f"two {path}\n" * 7 for path in edited[: count - 400]})
    write(root, {f"{path}.new/SKILL.md": skill_md("new") for path in edited[:400]})
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "two")
    git(root, "checkout", "-q", "one")
    return root


def test_a_checkout_of_thousands_of_paths(repository: Path, tmp_path: Path, queue: int | None) -> None:
    root = repository
    git(root, "checkout", "-q", "one")
    with watched(root, tmp_path / "index.sqlite", queue) as (fs, told):
        engine = fs._engine
        assert engine.watcher is not None
        before = uuids(engine)
        with deaf(fs) if queue else contextlib.nullcontext():
            git(root, "checkout", "-q", "two")
        settles(engine, root)
        told.agrees()
        after = uuids(engine)
        both = before.keys() & after.keys()
        assert len(both) > 4000
        assert {path: before[path] for path in both} == {path: after[path] for path in both}
        assert engine.watcher.overflows or not queue
        git(root, "checkout", "-q", "one")
        fs.sync()
        settles(engine, root, wait=False)
        told.agrees()
        after = uuids(engine)
        assert {path: before[path] for path in both} == {path: after[path] for path in both}


ONCE = """
import os, random, sys, time
root, outside, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = random.Random(seed)
folders = [at for at, _, _ in os.walk(root) if at != root]
for number, _ in enumerate(folders):
    os.mkdir(os.path.join(outside, f"in-{number}"))
    for name in ("SKILL.md", "x.md"):
        with open(os.path.join(outside, f"in-{number}", name), "w") as file:
            file.write(f"{number} {name}")
rng.shuffle(folders)
print("begun", flush=True)
for number, folder in enumerate(folders):
    a, b = (os.path.join(folder, f"file-{n}.md") for n in (1, 2))
    kind = number % 8
    if kind == 0:
        with open(a, "w") as file:
            file.write("edited")
    elif kind == 1:
        with open(os.path.join(folder, "new.md"), "w") as file:
            file.write("new")
    elif kind == 2:
        os.makedirs(os.path.join(folder, "made", "deep"))
        with open(os.path.join(folder, "made", "deep", "x.md"), "w") as file:
            file.write("deep")
    elif kind == 3:
        os.rename(os.path.join(outside, f"in-{number}"), os.path.join(folder, "moved-in"))
    elif kind == 4:
        os.rename(a, os.path.join(outside, f"{number}"))
    elif kind == 5:
        os.rename(a, b)
    elif kind == 6:
        os.unlink(a)
    else:
        os.replace(os.path.join(outside, f"in-{number}", "x.md"), a)
    time.sleep(0.002)
"""


def test_a_store_that_changes_during_the_first_check(root: Path, tmp_path: Path, queue: int | None) -> None:
    """Nothing is lost between the first look at a folder and the first event from it.

    In each folder one thing happens, once: no later event in it makes good for one that was missed.
    """
    write(root, {"SKILL.md": "", **tree()})
    outside = tmp_path / "outside"
    outside.mkdir()
    command = [sys.executable, "-c", ONCE, str(root), str(outside), "1"]
    with contextlib.ExitStack() as opened:
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            each = [
                opened.enter_context(watched(root, tmp_path / f"{number}" / "index.sqlite", queue))
                for number in range(3)
            ]
        assert process.returncode == 0
        for fs, told in each:
            settles(fs._engine, root)
            told.agrees()
