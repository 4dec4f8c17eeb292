"""A process that watches is killed at any moment: whoever opens the index next finds it whole."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from skillfs import SkillFileSystem
from skillfs.sync.engine import Engine
from tests.conftest import skill_md, write
from tests.sync.harness import NAMESPACE, Follower, check, expected, make_engine, shown, states, uuids
from tests.sync.watching import kept_in_step, wait_until

ROOT = Path(__file__).parent.parent
KILLS, PARTS = 50, 4
LONGEST = 0.25
"""Seconds: a watcher of these stores has opened, begun and taken in a few things by then."""

PACES = (0.01, 0.1)
HARD_PACES = (0.001, 0.01, 0.1)
"""Seconds between two changes, at most."""

INDEX = {f"index.sqlite{one}{two}" for one in ("", ".identity") for two in ("", "-wal", "-shm")}
INDEX |= {"index.sqlite.lock"}


class Nursery:
    """A process that has everything imported, and forks processes that watch.

    Attributes:
        errors: Where all of them write what goes wrong.
    """

    def __init__(self, errors: Path) -> None:
        self.errors = errors
        self._state = shared(errors.with_name("state"), make=True)
        with errors.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "tests.test_killed", errors.with_name("state")],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file,
            )  # fmt: skip

    def _ask(self, *words: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, store: Path, index: Path) -> int:
        self._state[0] = 0
        return int(self._ask(str(store), str(index)))

    @property
    def is_watching(self) -> bool:
        """Whether the child has come so far that it watches."""
        return bool(self._state[0])

    def kill(self, child: int) -> None:
        os.kill(child, signal.SIGKILL)
        assert self._ask() == -signal.SIGKILL, self.errors.read_text()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=30)


def shared(path: Path, *, make: bool = False) -> mmap.mmap:
    """One byte that several processes see."""
    if make:
        path.write_bytes(b"\0")
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 1)


def raise_children(state: Path) -> None:
    """What runs in the nursery."""
    import skillfs.sync.inotify  # noqa: F401  # so that no child has to

    child, is_watching = 0, shared(state)
    for line in sys.stdin:
        if words := json.loads(line):
            child = os.fork()
            if not child:
                os.close(0)
                store, index = words
                fs = SkillFileSystem(store, index=index, store_id=str(NAMESPACE), watch=True)
                feed = fs.watch()
                while True:
                    is_watching[0] = feed.status()["watch"] == "watching"
                    feed.get(timeout=None if is_watching[0] else 0.005)
            print(child, flush=True)
        else:
            _, status = os.waitpid(child, 0)
            child = 0
            print(os.waitstatus_to_exitcode(status), flush=True)
    if child:  # the test has failed
        os.kill(child, signal.SIGKILL)


class Churn:
    """Changes a store; of some of it it is known who has to stay who.

    Attributes:
        by_path: What stays at its path, whatever happens to it.
        by_content: What keeps its content, wherever it goes.
    """

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.random = random.Random(seed)
        self._made = 1000  # above all names there are
        still = {f"still/{n}/{name}": f"{n} {name}" for n in range(8) for name in ("a.md", "b.md", "c/d.md")}
        edited = {f"edited/{n}.md": "0" for n in range(10)}
        moving = {f"moving/{n}.md": f"moving {n}" for n in range(10)}
        tours = {f"tours/{n}/{name}": f"tour {n} {name}" for n in range(4) for name in ("x.md", "in/y.md")}
        skills = {f"{top}/SKILL.md": skill_md(top) for top in ("still", "edited", "moving", "tours", "noise")}
        write(root, skills | still | edited | moving | tours)
        self._edited = list(edited)
        self._moving = list(moving)
        self._tours = [f"tours/{n}" for n in range(4)]
        self.by_path = {*skills, *still, *edited, "still", "edited"}
        self.by_content = {*moving.values(), *tours.values()}

    def _new(self) -> str:
        self._made += 1
        return f"{self._made}"

    def step(self, move: bool = True) -> None:
        """Change something.

        Args:
            move: Whether it may be a move of what is to stay itself.
        """
        kind = self.random.choice((0, 1, 2, 3, 4, 5, 6) if move else (0, 1, 2, 5, 6))
        if kind == 0:
            path = self.random.choice(self._edited)
            (self.root / path).write_text(self._new() * self.random.randrange(1, 50))
        elif kind == 1:
            path = self.random.choice(self._edited)
            beside = self.root / f"{path}~"
            beside.write_text(self._new())
            beside.replace(self.root / path)
        elif kind == 2:
            path = self.random.choice(self._edited)
            (self.root / path).unlink()
            (self.root / path).write_text(self._new())
        elif kind == 3:
            self._move(self._moving, self.random.choice(("moving", "still/3", "noise")), ".md")
        elif kind == 4:
            self._move(self._tours, self.random.choice(("tours", "still/5")), "")
        elif kind == 5:
            folder = self.root / "noise" / self._new()
            write(folder, {"SKILL.md": "", "deep/x.md": self._new(), "y.md": "the same everywhere"})
        elif made := sorted(path for path in (self.root / "noise").iterdir() if path.is_dir()):
            shutil.rmtree(self.random.choice(made))

    def _move(self, paths: list[str], to: str, suffix: str) -> None:
        number = self.random.randrange(len(paths))
        new = f"{to}/{self._new()}{suffix}"
        (self.root / paths[number]).rename(self.root / new)
        paths[number] = new


class Store:
    """A store under churn, and what is known of its index from one opening to the next."""

    def __init__(self, folder: Path, nursery: Nursery, seed: int, paces: Sequence[float]) -> None:
        self.root = folder / "store"
        self.root.mkdir(parents=True)
        self.index = folder / "index" / "index.sqlite"
        self.churn = Churn(self.root, seed)
        self.random = random.Random(-seed)
        self.nursery = nursery
        self.paces = paces
        self.ids: dict[str, bytes] = {}
        self.follower: Follower | None = None

    def kill_a_watcher(self, longest: float) -> None:
        for _ in range(self.random.randrange(4)):
            self.churn.step()
        child = self.nursery.start(self.root, self.index)
        # At any moment, or right after one of the two files has begun to be written.
        written = self.random.choice((None, self.index, self.index.with_name("index.sqlite.identity")))
        before = size_of(written)
        until = time.monotonic() + self.random.uniform(0, longest)
        pace = self.random.choice(self.paces)
        while (now := time.monotonic()) < until:
            # What is moved while a process looks that has no watches yet may be seen in two places, or none.
            self.churn.step(move=self.nursery.is_watching)
            pause = min(until, now + self.random.uniform(0, pace))
            while time.monotonic() < pause:
                if written is not None and size_of(written) != before:
                    until = 0.0
                    break
                time.sleep(0.0002)
        self.nursery.kill(child)

    def find_whole(self, watch: bool) -> None:
        """Open the index, and compare it with the store, with what it held before, and with itself."""
        engine = make_engine(self.root, self.index)
        engine.sync()
        self._compare(engine)
        if watch:
            with kept_in_step(engine):
                self.churn.step()
                wait_until(lambda: is_in_step(engine, self.root), what="the next watcher does not work")
            self._compare(engine)
        engine.database.close()
        assert {path.name for path in self.index.parent.iterdir()} <= INDEX
        assert not [path for path in self.root.rglob("*") if path.name.startswith(".") or "~" in path.name]

    def _compare(self, engine: Engine) -> None:
        check(engine, self.root)
        self._compare_identities(engine)
        if self.follower is None:
            self.follower = Follower(engine)
        else:
            self.follower.engine = engine
            self.follower.catch_up()
            assert self.follower.states == states(engine)

    def _compare_identities(self, engine: Engine) -> None:
        found = uuids(engine)
        ids = {path: found[path] for path in self.churn.by_path}
        for path, uuid in found.items():
            if (self.root / path).is_file():
                content = (self.root / path).read_text()
                if content in self.churn.by_content:
                    ids[content] = uuid
        assert ids.keys() == self.churn.by_path | self.churn.by_content
        if self.ids:
            assert ids == self.ids
        self.ids = ids

    def begin_anew(self) -> None:
        """Without an index, so that the next watcher is killed while it builds one."""
        for path in self.index.parent.iterdir():
            path.unlink()
        self.ids, self.follower = {}, None

    def find_sound(self) -> None:
        """Let SQLite look at both files; then do without the one that can be made anew."""
        for name in ("index.sqlite", "index.sqlite.identity"):
            with contextlib.closing(sqlite3.connect(self.index.with_name(name))) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        for path in self.index.parent.iterdir():
            if path.name.removeprefix(self.index.name) in ("", "-wal", "-shm"):
                path.unlink()
        self.follower = None
        self.find_whole(watch=False)


def size_of(path: Path | None) -> tuple[int, int]:
    """Size and time of the log of a file."""
    try:
        st = os.stat(f"{path}-wal")
    except OSError:
        return 0, 0
    return st.st_size, st.st_mtime_ns


def is_in_step(engine: Engine, root: Path) -> bool:
    try:
        return shown(engine) == expected(root)
    except AssertionError:  # it changes while it is looked at
        return False


def kill(folder: Path, seed: int, times: int, paces: Sequence[float]) -> None:
    with Nursery(folder / "errors") as nursery:
        kept, new = (Store(folder / name, nursery, seed, paces) for name in ("kept", "new"))
        kept.find_whole(watch=False)
        new.find_whole(watch=False)
        for number in range(times):
            try:
                if number % 5 == 0:
                    new.begin_anew()
                    new.kill_a_watcher(LONGEST / 4)
                    new.find_whole(watch=number % 10 == 0)
                else:
                    kept.kill_a_watcher(LONGEST)
                    kept.find_whole(watch=number % 4 == 0)
                if number % 10 == 9:
                    kept.find_sound()
                    new.find_sound()
            except BaseException:
                print(f"seed {seed}, kill {number}")
                raise
    assert nursery.errors.read_text() == ""


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, PARTS))]
)
def test_killed_at_any_moment(tmp_path: Path, seed: int) -> None:
    kill(tmp_path, seed, KILLS, PACES)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_killed_five_thousand_times(tmp_path: Path) -> None:
    start = random.SystemRandom().randrange(1 << 40)
    for part in range(50):
        (tmp_path / str(part)).mkdir()
        kill(tmp_path / str(part), start + part, 100, HARD_PACES)
        shutil.rmtree(tmp_path / str(part))


if __name__ == "__main__":
    raise_children(Path(sys.argv[1]))
