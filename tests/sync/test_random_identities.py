"""Single things that happen to a watched folder, one between two quiet moments: who is who afterwards.

What is at a path before and after is the same entry; what was moved is, too, whatever happened to it right
after; everything else is new. Some happen in the midst of a look at the store.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

from tests.conftest import write
from tests.sync.faulty import Faults, Keeper, interrupted
from tests.sync.harness import Follower, check, make_engine, rows, states
from tests.sync.operations import exchange

SEQUENCES = 400
CHUNKS = 20
STEPS = 6

FILES = {
    "a/SKILL.md": "a",
    "a/x.md": "a x",
    "a/docs/x.md": "a docs x",
    "a/docs/deep/x.md": "a docs deep x",
    "a/docs/deep/y.md": "a docs deep y",
    "a/empty/x.md": "",
    "b/SKILL.md": "b",
    "b/docs/x.md": "b docs x",
    "b/docs/deep/x.md": "b docs deep x",
    "b/inner/SKILL.md": "b inner",
    "b/inner/docs/x.md": "b inner docs x",
    "group/c/SKILL.md": "group c",
    "group/c/y.md": "group c y",
    "group/d/SKILL.md": "group d",
    "none/docs/x.md": "in no skill",
}


AMID = (
    *("do_rename", "do_move", "do_move_folder", "do_replace", "do_exchange", "do_move_in", "do_hard_link"),
)
"""What is done in one step, so that nobody can see a half of it, whenever he looks."""


class Entry(NamedTuple):
    """Who is at a path."""

    uuid: bytes
    is_folder: bool


class Done(NamedTuple):
    """What was done.

    Attributes:
        log: Said in a line.
        moves: New path to old path of what was moved, with all it holds.
        copies: Paths of what is new though it looks like something known.
    """

    log: str
    moves: Mapping[str, str] = MappingProxyType({})
    copies: tuple[str, ...] = ()


class Happenings:
    """Does single things to a folder.

    Args:
        root: The store.
        outside: A folder beside it.
        chance: Decides what.
        quiet: Waits until everything has been looked at.
    """

    def __init__(self, root: Path, outside: Path, chance: random.Random, quiet: Callable[[], None]) -> None:
        self.root = root
        self.outside = outside
        self.chance = chance
        self.quiet = quiet
        self.number = 0
        self.kinds = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("do_")]

    # -- choices -------------------------------------------------------------------------------------------

    def files(self) -> list[str]:
        return sorted(self.name(p) for p in self.root.rglob("*.md") if p.name != "SKILL.md")

    def folders(self) -> list[str]:
        return sorted(self.name(p) for p in self.root.rglob("*") if p.is_dir())

    def name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def file(self) -> str:
        return self.chance.choice(self.files())

    def folder(self) -> str:
        return self.chance.choice(self.folders())

    def new(self, folder: str | None = None, suffix: str = "") -> str:
        """A path that nothing ever lay at."""
        self.number += 1
        above = self.folder() if folder is None else folder
        return f"{above}/new-{self.number}{suffix}".lstrip("/")

    def new_apart(self, *paths: str) -> str:
        """The same, and in none of these."""
        while True:
            new = self.new()
            if not any(f"{new}/".startswith(f"{path}/") for path in paths):
                return new

    def text(self) -> str:
        self.number += 1
        return f"text {self.number} {self.chance.random()}\n"

    def edit(self, path: str, ways: int = 5) -> str:
        """Edit a file in one of several ways; by the first two it stays the same file."""
        full = self.root / path
        way = self.chance.randrange(ways)
        if way == 0:
            with full.open("a") as file:
                file.write(self.text())
        elif way == 1:
            full.write_text(self.text())
        elif way == 2:
            beside = full.with_name("saving~")
            beside.write_text(self.text())
            os.replace(beside, full)
        elif way == 3:
            full.rename(full.with_name(full.name + "~"))
            full.write_text(self.text())
        else:
            full.unlink()
            full.write_text(self.text())
        return f"edited {path} in way {way}"

    # -- what happens --------------------------------------------------------------------------------------

    def do_rename(self) -> Done:
        old = self.file()
        new = self.new(os.path.dirname(old), ".md")
        os.rename(self.root / old, self.root / new)
        return Done(f"{old} -> {new}", {new: old})

    def do_move(self) -> Done:
        old, new = self.file(), self.new(suffix=".md")
        os.rename(self.root / old, self.root / new)
        return Done(f"{old} -> {new}", {new: old})

    def do_move_folder(self) -> Done:
        old = self.folder()
        new = self.new_apart(old)
        os.rename(self.root / old, self.root / new)
        return Done(f"{old}/ -> {new}/", {new: old})

    def do_move_and_edit(self) -> Done:
        old, new = self.file(), self.new(suffix=".md")
        os.rename(self.root / old, self.root / new)
        return Done(f"{old} -> {new}, {self.edit(new, ways=2)}", {new: old})

    def do_move_folder_and_edit(self) -> Done:
        old = self.folder()
        new = self.new_apart(old)
        os.rename(self.root / old, self.root / new)
        moves, log = {new: old}, [f"{old}/ -> {new}/"]
        inside = [path for path in self.files() if path.startswith(f"{new}/")]
        for path in self.chance.sample(inside, min(len(inside), 3)):
            way = self.chance.randrange(3)
            if way:
                log.append(self.edit(path))
            else:
                to = self.new(os.path.dirname(path), ".md")
                os.rename(self.root / path, self.root / to)
                moves[to] = old + path[len(new) :]
                log.append(f"{path} -> {to}")
        return Done(", ".join(log), moves)

    def do_move_twice(self) -> Done:
        old, between, new = self.folder(), "", ""
        between = self.new_apart(old)
        os.rename(self.root / old, self.root / between)
        new = self.new_apart(between)
        os.rename(self.root / between, self.root / new)
        return Done(f"{old}/ -> {between}/ -> {new}/", {new: old})

    def do_move_there_and_back(self) -> Done:
        old = self.folder()
        new = self.new_apart(old)
        os.rename(self.root / old, self.root / new)
        inside = [path for path in self.files() if path.startswith(f"{new}/")]
        log = self.edit(self.chance.choice(inside)) if inside else ""
        os.rename(self.root / new, self.root / old)
        return Done(f"{old}/ -> {new}/ -> {old}/ {log}")

    def do_nest(self) -> Done:
        """One folder into another, and that one elsewhere."""
        one, two = self.folder(), self.folder()
        if f"{one}/".startswith(f"{two}/") or f"{two}/".startswith(f"{one}/"):
            return Done("")
        inner, new = self.new(two), self.new_apart(one, two)
        os.rename(self.root / one, self.root / inner)
        os.rename(self.root / two, self.root / new)
        return Done(f"{one}/ -> {inner}/, {two}/ -> {new}/", {new: two, new + inner[len(two) :]: one})

    def do_move_what_was_in_it_first(self) -> Done:
        """A file out of a folder, and then the folder."""
        old = self.file()
        above = os.path.dirname(old)
        new, folder = self.new_apart(above) + ".md", self.new_apart(above)
        if not above:
            return Done("")
        os.rename(self.root / old, self.root / new)
        os.rename(self.root / above, self.root / folder)
        return Done(f"{old} -> {new}, {above}/ -> {folder}/", {new: old, folder: above})

    def do_swap(self) -> Done:
        choose = self.chance.choice((self.file, self.folder))
        one, two = choose(), choose()
        if f"{one}/".startswith(f"{two}/") or f"{two}/".startswith(f"{one}/"):
            return Done("")
        beside = self.root / self.chance.choice(("swapping~", "swapping"))
        os.rename(self.root / one, beside)
        os.rename(self.root / two, self.root / one)
        os.rename(beside, self.root / two)
        return Done(f"{one} <-> {two}")

    def do_exchange(self) -> Done:
        choose = self.chance.choice((self.file, self.folder))
        one, two = choose(), choose()
        if f"{one}/".startswith(f"{two}/") or f"{two}/".startswith(f"{one}/"):
            return Done("")
        try:
            exchange(self.root / one, self.root / two)
        except OSError:
            return Done("")  # this filesystem cannot
        return Done(f"{one} <-> {two} at once")

    def do_rename_in_turn(self) -> Done:
        """The first to a new name, the second to that of the first, and so on."""
        paths = self.chance.sample(self.files(), 3)
        new = self.new(os.path.dirname(paths[0]), ".md")
        for old, to in zip(paths, [new, *paths], strict=False):
            os.rename(self.root / old, self.root / to)
        return Done(f"{paths[::-1]} -> {new}")

    def do_replace(self) -> Done:
        old, new = self.chance.sample(self.files(), 2)
        os.replace(self.root / old, self.root / new)
        return Done(f"{old} -> {new}, which was there")

    def do_edit(self) -> Done:
        return Done(self.edit(self.name(self.chance.choice(sorted(self.root.rglob("*.md"))))))

    def do_save_slowly(self) -> Done:
        """What is written beside it is known before it takes the place."""
        path = self.file()
        beside = self.new(os.path.dirname(path), ".md")
        write(self.root, {beside: self.text()})
        self.quiet()
        os.replace(self.root / beside, self.root / path)
        return Done(f"{beside} -> {path}, saved slowly")

    def do_delete_and_recreate(self) -> Done:
        path, is_slow = self.file(), self.chance.random() < 0.5
        (self.root / path).unlink()
        if is_slow:
            self.quiet()
        write(self.root, {path: self.text()})
        return Done(f"{path} deleted and written again{' slowly' * is_slow}")

    def do_recreate_folder(self) -> Done:
        path, is_slow = self.folder(), self.chance.random() < 0.5
        saved = self.outside / os.path.basename(self.new())
        shutil.copytree(self.root / path, saved)
        shutil.rmtree(self.root / path)
        if is_slow:
            self.quiet()
        shutil.copytree(saved, self.root / path)
        return Done(f"{path}/ deleted and made again{' slowly' * is_slow}")

    def do_move_out_and_in(self) -> Done:
        path, is_slow = self.folder(), self.chance.random() < 0.5
        away = self.outside / os.path.basename(self.new())
        os.rename(self.root / path, away)
        if is_slow:
            self.quiet()
        os.rename(away, self.root / path)
        return Done(f"{path}/ out and in again{' slowly' * is_slow}")

    def do_move_in(self) -> Done:
        new = self.new()
        write(self.outside, {"came/SKILL.md": self.text(), "came/docs/x.md": self.text()})
        os.rename(self.outside / "came", self.root / new)
        copies = (new, f"{new}/SKILL.md", f"{new}/docs", f"{new}/docs/x.md")
        return Done(f"{new}/ came", copies=copies)

    def do_copy(self) -> Done:
        old, new = self.file(), self.new(suffix=".md")
        shutil.copy2(self.root / old, self.root / new)
        return Done(f"{new} is a copy of {old}", copies=(new,))

    def do_copy_folder(self) -> Done:
        old = self.folder()
        new = self.new_apart(old)
        shutil.copytree(self.root / old, self.root / new)
        inside = sorted((self.root / new).rglob("*"))
        return Done(f"{new}/ is a copy of {old}/", copies=(new, *map(self.name, inside)))

    def do_hard_link(self) -> Done:
        # Of a name in no skill nobody knows that it has others.
        skills = sorted(self.name(path.parent) for path in self.root.rglob("SKILL.md"))
        old, new = self.file(), self.new(self.chance.choice(skills), ".md")
        os.link(self.root / old, self.root / new)
        return Done(f"{new} = {old}", copies=(new,))

    def do_link_and_unlink(self) -> Done:
        old, new = self.file(), self.new(suffix=".md")
        os.link(self.root / old, self.root / new)
        os.unlink(self.root / old)
        return Done(f"{old} -> {new} by hard link", {new: old})

    def do_replace_folder(self) -> Done:
        """It moves away, and another takes its place."""
        old = self.folder()
        new = self.new_apart(old)
        os.rename(self.root / old, self.root / new)
        write(self.root, {f"{old}/SKILL.md": self.text(), f"{old}/{self.new('')}.md": self.text()})
        return Done(f"{old}/ -> {new}/, and another {old}/", {new: old})

    def do_change_mode(self) -> Done:
        path = self.file()
        (self.root / path).chmod(0o600)
        return Done(f"chmod {path}")


class Sequence:
    """Single happenings, each between two quiet moments."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.root, self.outside = folder / "store", folder / "outside"
        self.chance = random.Random(seed)
        write(self.root, FILES)
        self.outside.mkdir()
        self.log: list[str] = []
        self.happenings = Happenings(self.root, self.outside, self.chance, self.quiet)
        self.engine = make_engine(self.root, folder / "index.sqlite" if seed % 8 == 0 else None)
        self.engine.sync()
        self.keeper = Keeper(self.engine, Faults(), self.chance)
        if seed % 2:
            time.sleep(0.022)  # until the stamps are old enough to be trusted

    def quiet(self) -> None:
        assert self.keeper.watches is not None
        self.keeper.watches.calm_down()
        self.engine.take_marks()

    def entries(self) -> dict[str, Entry]:
        return {
            path: Entry(row.uuid, row.kind < 2)
            for path, row in rows(self.engine).items()
            if row.uuid is not None
        }

    def run(self) -> None:
        self.keeper.begin()
        try:
            follower = Follower(self.engine)
            for _ in range(STEPS):
                before = self.entries()
                done = self.happen()
                if not done.log:
                    continue
                self.log.append(done.log)
                self.quiet()
                check(self.engine, self.root)
                self.compare(before, self.entries(), done)
                follower.catch_up()
                assert follower.states == states(self.engine)
        finally:
            self.keeper.end()

    def happen(self) -> Done:
        """Do something; in the midst of a look, if that cannot see a half of it."""
        kind = self.chance.choice(self.happenings.kinds)
        if kind.__name__ not in AMID or self.chance.random() < 0.3:
            return kind()
        for path in self.chance.sample(self.happenings.files(), 4):
            os.utime(self.root / path)
        found: list[Done] = []
        at = int(self.chance.expovariate(0.1))
        calls = iter(range(at + 1))

        def meanwhile() -> None:
            if next(calls, None) == at:
                found.append(kind())

        look = self.engine.take_marks if self.chance.random() < 0.5 else self.engine.check
        with interrupted(meanwhile):
            look()
        if not found:
            return kind()
        return found[0]._replace(log=f"{found[0].log} (in the midst of a look, {at})")

    def compare(self, before: dict[str, Entry], after: dict[str, Entry], done: Done) -> None:
        stays = {path for path in before.keys() & after.keys() if before[path][1] == after[path][1]}
        for path in stays:
            assert before[path].uuid == after[path].uuid, path
        for new, old in self.moved(done.moves, before):
            if old not in stays and new in after and new not in before and after[new][1] == before[old][1]:
                assert after[new].uuid == before[old].uuid, (old, new)
        known = {entry.uuid for entry in before.values()}
        for path in done.copies:
            assert path not in after or after[path].uuid not in known, path

    def moved(self, moves: Mapping[str, str], before: dict[str, Entry]) -> Iterator[tuple[str, str]]:
        """New and old path of everything that was moved, by itself or with a folder."""
        for old in before:
            above = old
            while above:
                new = next((new for new, origin in moves.items() if origin == above), None)
                if new is not None:
                    yield new + old[len(above) :], old
                    break
                above = above.rpartition("/")[0]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_who_is_who(tmp_path: Path, chunk: int) -> None:
    size = SEQUENCES // CHUNKS
    for seed in range(chunk * size, chunk * size + size):
        sequence = Sequence(tmp_path / str(seed), seed)
        try:
            sequence.run()
        except BaseException:
            print(f"seed {seed}:", *sequence.log, sep="\n  ")
            raise
