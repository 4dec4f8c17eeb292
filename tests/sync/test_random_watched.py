"""Random operations on a watched folder, with events dropped, doubled and reordered, and watchers that die.

A sequence is a seed and the numbers of its steps; each step draws from the two alone, so that any part of a
sequence can be run again: `attempt(folder, seed, steps)`. When one fails, the steps that it fails without are
left out, and the rest is printed.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from skillfs.sync.engine import Engine
from skillfs.sync.gather import find_dirty
from skillfs.sync.marks import Marks
from tests.conftest import write
from tests.sync.faulty import Faults, Keeper, interrupted, wait_until_closed
from tests.sync.harness import Follower, check, make_engine, problems, rows, shown, states
from tests.sync.model import visible
from tests.sync.naive import scan
from tests.sync.operations import Operations

SEQUENCES = 300
"""In the normal suite."""

CHUNKS = 10
STEPS = 12
MOST_SHRINKING = 60.0
"""Seconds for which steps are left out one by one."""

BEGINNING = {
    "a/SKILL.md": "---\nname: a\ndescription: d\n---\n",
    "a/x.md": "one\n",
    "a/docs/x.md": "unique 1\n",
    "a/docs/deep/x.md": "",
    "a/scripts/run.py": "same size A",
    "b/x.md": "in no skill\n",
    "b/docs/pdf/SKILL.md": "",
    "b/docs/pdf/docs/x.md": "unique 2\n",
    "b/docs/pdf/docs/deep/x.md": "unique 3\n",
    "pdf/SKILL.md": "unique 4\n",
    "pdf/docs/x.md": "unique 5\n",
    "pdf/b/SKILL.md": "unique 6\n",
    "pdf/b/docs/x.md": "unique 7\n",
    "pdf/b/docs/deep/x.md": "unique 8\n",
    "pdf/.git/x.md": "left out\n",
    "docs/deep/x.md": "in no skill, too\n",
}
"""Some of these are there before the first step."""

HARD_LINKS = (("a/x.md", "../outside/hard-1"), ("pdf/docs/x.md", "pdf/y.md"))
"""And some of these."""

LOOKS = (
    *("take", "take", "take", "take", "sync", "sync", "quiet", "quiet", "written"),
    *("scope", "fresh", "again", "check"),
)

SOAK_VARIABLE = "SKILLFS_SOAK_SEQUENCES"
"""Environment variable: how many sequences a soak runs."""

KINDS = (
    Faults(),
    Faults(),
    Faults(doubled=0.2, late=0.2),
    Faults(doubled=0.2, late=0.2),
    Faults(doubled=0.1, late=0.1, overflown=0.05),
    Faults(doubled=0.1, late=0.2, overflown=0.02, lost=0.1),
)


class Setting(NamedTuple):
    """What a sequence is run with.

    Attributes:
        faults: What events meet with.
        engines: How many keep one index, as several processes do.
        follow: Whether links may lead into the folder outside.
        on_disk: Whether the index is a file.
        kills: Whether watching ends now and then, and begins anew.
        meanwhile: Whether something happens in the midst of looks.
        before: How many steps are done before anybody watches.
        is_old: Whether all stamps are old enough by then to be trusted.
    """

    faults: Faults
    engines: int
    follow: bool
    on_disk: bool
    kills: bool
    meanwhile: bool
    before: int
    is_old: bool

    @classmethod
    def of(cls, seed: int) -> Setting:
        chance = random.Random(seed)
        engines = 2 if chance.random() < 0.25 else 1
        return cls(
            faults=chance.choice(KINDS),
            engines=engines,
            follow=chance.random() < 0.2,
            on_disk=engines > 1 or chance.random() < 0.1,
            kills=chance.random() < (0.4 if engines == 1 else 0.7),
            meanwhile=chance.random() < 0.4,
            before=chance.randrange(8),
            is_old=chance.random() < 0.5,
        )


class Sequence:
    """One run of a sequence.

    Args:
        folder: An empty folder to do it in.
        seed: The seed.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        self.setting = Setting.of(seed)
        self.root, self.outside = folder / "store", folder / "outside"
        self.root.mkdir(parents=True)
        self.outside.mkdir()
        self.chance = random.Random(seed)
        some = {path: text for path, text in BEGINNING.items() if self.chance.random() < 0.7}
        write(self.root, some)
        write(self.outside, {"SKILL.md": "outside\n", "docs/x.md": "outside, too\n"})
        self.has_links = False
        for one, two in HARD_LINKS:
            if self.chance.random() < 0.15 and one in some and (self.root / two).parent.is_dir():
                os.link(self.root / one, self.root / two)
                self.has_links = True
        self.operations = Operations(self.root, self.outside, seed)
        self.log = self.operations.log
        self.index = folder / "index.sqlite" if self.setting.on_disk else None
        self.follow = [self.outside] if self.setting.follow else []
        self.keepers: list[Keeper] = []
        self.needs_check = False
        self.names = self._names()

    def run(self, steps: Iterable[int]) -> None:
        try:
            for step in steps:
                if step >= self.setting.before and not self.keepers:
                    self._open()
                self.chance.seed(f"{self.seed} {step}")
                self.operations.random.seed(f"{self.seed} {step} operation")
                if not self.keepers or self.chance.random() < 0.7:
                    self._operate()
                else:
                    self._look()
            if not self.keepers:
                self._open()
            self.chance.seed(f"{self.seed} end")
            self._quiet()
            self._agrees_in_all()
            self._settle()
        finally:
            for keeper in self.keepers:
                keeper.end()
            self.operations.close()

    def _open(self) -> None:
        self.log.append("-- open")
        if self.setting.is_old:
            time.sleep(0.022)
        for _ in range(self.setting.engines):
            engine = make_engine(self.root, self.index, self.follow)
            if not self.keepers:
                engine.sync()
            self.keepers.append(Keeper(engine, self.setting.faults, self.chance))
            self.keepers[-1].begin()
        self.needs_check = False
        self.follower = Follower(self.keepers[0].engine)
        self._agrees()

    # -- steps ---------------------------------------------------------------------------------------------

    def _operate(self) -> None:
        for _ in range(8):
            count = len(self.log)
            self.operations.run()
            if len(self.log) > count and not self.log[-1].endswith(" not"):
                break
            del self.log[count:]
        names = self._names()
        if names != self.names or self.operations.is_silent:
            # A file with a name that nobody watches, or that had one.
            known = {inode: len(paths) for inode, (_, paths) in self.names.items()}
            for inode, (count, paths) in names.items():
                if count > len(paths) or len(paths) < known.get(inode, 0):
                    self.needs_check = True
            self.needs_check |= self.operations.is_silent or any(inode not in names for inode in known)
            self.operations.is_silent = False
            self.names = names

    def _names(self) -> dict[int, tuple[int, frozenset[str]]]:
        """The inodes that have several names: how many, and those that can be seen."""
        if not self.has_links and not any("link" in line for line in self.log):
            return {}
        found: dict[int, tuple[int, set[str]]] = {}
        shown = scan(str(self.root))
        for at, folders, files in os.walk(self.root):
            for name in files:
                path = os.path.join(at, name)
                st = os.lstat(path)
                if st.st_nlink > 1 and stat.S_ISREG(st.st_mode):
                    names = found.setdefault(st.st_ino, (st.st_nlink, set()))[1]
                    if (below := os.path.relpath(path, self.root)) in shown:
                        names.add(below)
            # Where a link in a folder that is left out leads can change unseen, and so can what leads there.
            if {".git", "node_modules"}.intersection(at.split(os.sep)):
                self.needs_check |= any(os.path.islink(os.path.join(at, n)) for n in (*folders, *files))
        return {inode: (count, frozenset(paths)) for inode, (count, paths) in found.items()}

    def _look(self) -> None:
        keeper = self.chance.choice(self.keepers)
        engine = keeper.engine
        names = [*LOOKS, "end", "begin", "begin"] if self.setting.kills else LOOKS
        kind = self.chance.choice(names)
        known = [path for path, row in rows(engine).items() if row.kind < 2]
        path = self.chance.choice([*known, "a/b/nothing"])
        self.log.append(f"-- {kind} {path} {self.keepers.index(keeper)}")
        with contextlib.ExitStack() as stack:
            if self.setting.meanwhile and kind != "quiet" and self.chance.random() < 0.6:
                stack.enter_context(interrupted(self._meanwhile(keeper)))
            if kind == "take":
                engine.take_marks(links=self.chance.random() < 0.5)
            elif kind == "sync":
                engine.sync()
            elif kind == "scope":
                engine.sync(path)
            elif kind == "check":
                engine.check()
            elif kind == "fresh":
                engine.ensure_fresh(path, 0.0)
            elif kind == "again":
                engine.look_again(path if path in known else "")
            elif kind == "written":
                self._write(engine)
            elif kind == "begin":
                keeper.begin()
            elif kind == "end":
                keeper.end()
            else:
                self._quiet()

    def _meanwhile(self, looking: Keeper) -> Callable[[], None]:
        """Something to call in the midst of a look: some of the times it does something."""
        others = [keeper for keeper in self.keepers if keeper is not looking]
        pause = self.chance.expovariate(0.2)

        def meanwhile() -> None:
            nonlocal pause
            pause -= 1
            if pause > 0:
                return
            pause = self.chance.choice((0.0, self.chance.expovariate(0.1), 1000.0))
            # In one thread a second writer would wait for the first for ever.
            if others and self.chance.random() < 0.4 and not is_writing(looking.engine):
                self.log.append("   look of the other, meanwhile")
                self.chance.choice((others[0].engine.take_marks, others[0].engine.check))()
            else:
                count = len(self.log)
                self._operate()
                self.log[count:] = [f"   {line}, meanwhile" for line in self.log[count:]]

        return meanwhile

    def _write(self, engine: Engine) -> None:
        """Change something as the program itself does."""
        folders = [p for p, shown in visible(str(self.root)).items() if shown.kind in ("folder", "skill")]
        folder = self.root / self.chance.choice(folders)
        old, new = folder / "x.md", folder / "written.md"
        if self.chance.random() < 0.3 and old.is_file() and not old.is_symlink() and not new.exists():
            old.rename(new)
            self.log.append(f"   moved {old.relative_to(self.root)} -> {new.name}")
            engine.written([], {str(new.relative_to(self.root)): str(old.relative_to(self.root))})
        elif not old.is_dir() and not old.is_symlink() and not old.is_fifo():
            old.write_text(f"written {self.chance.random()}\n")
            self.log.append(f"   wrote {old.relative_to(self.root)}")
            engine.written([str(old.relative_to(self.root))])

    # -- quiet ---------------------------------------------------------------------------------------------

    def _quiet(self) -> None:
        """All events have arrived, and all marks been looked at."""
        self.log.append("-- quiet")
        watching = [keeper for keeper in self.keepers if keeper.watches is not None]
        # Each of those that watch has to see everything, whoever else does.
        for keeper in self.chance.sample(watching, self.chance.randint(min(1, len(watching)), len(watching))):
            assert keeper.watches is not None
            keeper.watches.calm_down()
            self.needs_check |= keeper.watches.has_lost
            keeper.watches.has_lost = False
            keeper.engine.take_marks()
        if self.needs_check or not watching:
            for keeper in self.keepers:
                keeper.engine.check()
            self.needs_check = False
        self._agrees()

    def _agrees(self) -> None:
        engine = self.keepers[0].engine
        assert shown(engine) == scan(str(self.root), [str(f) for f in self.follow])
        own = [row.uuid for row in rows(engine).values() if row.uuid is not None]
        assert len(set(own)) == len(own)
        self.follower.catch_up()
        assert self.follower.states == states(engine)

    def _agrees_in_all(self) -> None:
        engine = self.keepers[0].engine
        revision = engine.journal.revision()
        for keeper in self.keepers:
            keeper.engine.check()
            assert keeper.engine.journal.revision() == revision, changes(engine, revision)
        if not self.follow:
            check(engine, self.root)
        new = make_engine(self.root, follow=self.follow)
        new.sync()
        assert problems(engine) == problems(new)
        assert shown(engine) == shown(new)

    def _settle(self) -> None:
        """What was too young to be trusted is looked at again."""
        if self.seed % 16 or not any(keeper.watches for keeper in self.keepers):
            return
        time.sleep(0.03)
        for keeper in self.keepers:
            if keeper.watches is not None:
                keeper.watches.mark(Marks(folders=keeper.young))
                keeper.watches.calm_down()
                keeper.engine.take_marks()
        engine = self.keepers[0].engine
        assert find_dirty(engine.store, engine.catalog) == set()
        self._agrees()


def is_writing(engine: Engine) -> bool:
    return engine.database.connection().in_transaction


def changes(engine: Engine, since: int) -> list[tuple[str, str]]:
    return [(item.kind, item.path) for item in engine.journal.since(since)[2]]


# -- running, and leaving out what is not needed -----------------------------------------------------------


def steps_of(seed: int) -> list[int]:
    return list(range(Setting.of(seed).before + STEPS))


def attempt(folder: Path, seed: int, steps: list[int]) -> tuple[BaseException | None, list[str]]:
    """Run a sequence, or a part of it; returns what it failed with, and what it did."""
    sequence = Sequence(folder, seed)
    try:
        sequence.run(steps)
    except Exception as error:
        return error, sequence.log
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return None, sequence.log


def shrunk(folder: Path, seed: int, steps: list[int]) -> list[int]:
    """The steps without which a sequence does not fail."""
    until = time.monotonic() + MOST_SHRINKING
    size = len(steps) // 2
    number = 0
    while size and time.monotonic() < until:
        start, is_shorter = 0, False
        while start < len(steps) and time.monotonic() < until:
            fewer = steps[:start] + steps[start + size :]
            number += 1
            if attempt(folder / str(number), seed, fewer)[0] is not None:
                steps, is_shorter = fewer, True
            else:
                start += size
        if not is_shorter:
            size //= 2
    return steps


def run(folder: Path, seeds: Iterable[int]) -> None:
    for seed in seeds:
        wait_until_closed()
        steps = steps_of(seed)
        error, log = attempt(folder / "run", seed, steps)
        if error is None:
            continue
        steps = shrunk(folder, seed, steps)
        for number in range(3):  # a fault of time need not show each time
            found, done = attempt(folder / f"again{number}", seed, steps)
            if found is not None:
                error, log = found, done
                break
        print(f"seed {seed}, steps {steps}, {Setting.of(seed)}:", *log, sep="\n  ")
        raise error
    wait_until_closed()


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_operations_on_a_watched_folder(tmp_path: Path, chunk: int) -> None:
    size = SEQUENCES // CHUNKS
    run(tmp_path, range(chunk * size, chunk * size + size))


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(8))
def test_many_random_operations_on_a_watched_folder(tmp_path: Path, part: int) -> None:
    count = int(os.environ.get(SOAK_VARIABLE, "20000")) // 8
    first = random.SystemRandom().randrange(1 << 40)
    print(f"part {part} begins with seed {first}")
    run(tmp_path, range(first, first + count))
