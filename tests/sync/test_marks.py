"""What marks know of moves, against a tree in which things really are moved."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillfs.sync import marks as module
from skillfs.sync.marks import Marks
from skillfs.sync.reconcile import parents_of

# -- a naive model -----------------------------------------------------------------------------------------


class Thing:
    """A file or folder. A folder is watched, and its path of then is its key, or it is not, and has none."""

    def __init__(self, parent: Thing | None, name: str, inode: int, *, folder: bool) -> None:
        self.parent = parent
        self.name = name
        self.inode = inode
        self.folder = folder
        self.key: str | None = None
        self.children: dict[str, Thing] = {}
        self.was_lost = False
        if parent is not None:
            parent.children[name] = self

    @property
    def path(self) -> str:
        above = "" if self.parent is None else self.parent.path
        return f"{above}/{self.name}" if above else self.name

    @property
    def place(self) -> str | None:
        """Its place, as its folder is watched; None where that is not."""
        assert self.parent is not None
        key = self.parent.key
        return None if key is None else f"{key}/{self.name}" if key else self.name

    def everything(self) -> list[Thing]:
        """What it holds, and itself."""
        return [self, *(t for child in self.children.values() for t in child.everything())]

    def above(self) -> list[Thing]:
        return [] if self.parent is None else [self.parent, *self.parent.above()]


class Tree:
    """A store that tells marks of what happens, as kernel and watches do."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.free = list(range(1000, 0, -1))
        self.log: list[str] = []
        self.batches = [Marks()]
        self.root = Thing(None, "", self.free.pop(), folder=True)
        self.outside = Thing(None, "outside", self.free.pop(), folder=True)
        for _ in range(self.random.randrange(2, 14)):
            self.create()
        for folder in self.root.everything():
            folder.key = folder.path if folder.folder else None
        self.before = {thing.path: (thing, thing.inode) for thing in self.root.everything()}
        self.log = [*self.before, "--"]

    def some(self) -> Thing:
        return self.random.choice([*self.root.everything(), *self.outside.everything()])

    def some_folder(self) -> Thing:
        inside = [t for t in self.root.everything() if t.folder]
        return self.outside if self.random.random() < 0.1 else self.random.choice(inside)

    def step(self) -> None:
        if self.random.random() < 0.1:
            self.batches.append(Marks())
        self.random.choice((self.create, self.delete, self.move, self.move, self.move, self.swap))()

    def create(self) -> None:
        folder, name = self.some_folder(), self.random.choice("abc")
        if name not in folder.children:
            # Numbers that were freed are given out again at once.
            made = Thing(folder, name, self.free.pop(), folder=self.random.random() < 0.5)
            self.log.append(f"create {made.path}")

    def delete(self) -> None:
        thing = self.some()
        if thing.parent is not None:
            self.log.append(f"delete {thing.path}")
            self._delete(thing)

    def _delete(self, thing: Thing) -> None:
        for child in list(thing.children.values()):
            self._delete(child)
        assert thing.parent is not None
        if (place := thing.place) is not None:
            self.batches[-1].removed(place)
        self._release(thing)
        del thing.parent.children[thing.name]

    def move(self) -> None:
        thing, folder, name = self.some(), self.some_folder(), self.random.choice("abc")
        replaced = folder.children.get(name)
        if thing.parent is None or thing in (folder, *folder.above()) or replaced is thing:
            return
        if replaced is not None and (replaced.folder or thing.folder):
            return
        self.log.append(f"move {thing.path} {folder.path}/{name}")
        old = thing.place
        del thing.parent.children[thing.name]
        self._put(thing, folder, name)
        if replaced is not None:
            self._release(replaced)
        self._tell(thing, old, thing.place)

    def swap(self) -> None:
        """As `renameat2` does with RENAME_EXCHANGE: what is told cannot be told from two moves."""
        one, two = self.some(), self.some()
        if one.parent is None or two.parent is None or one in two.everything() or two in one.everything():
            return
        self.log.append(f"swap {one.path} {two.path}")
        first, second = one.place, two.place
        (above, name), (above2, name2) = (one.parent, one.name), (two.parent, two.name)
        self._put(one, above2, name2)
        self._put(two, above, name)
        self._tell(one, first, second)
        self._tell(two, second, first)
        one.was_lost = two.was_lost = True

    def _release(self, thing: Thing) -> None:
        # That one which went out of sight was removed there, and its number came back, would be too much.
        if not thing.was_lost:
            self.free.append(thing.inode)

    def _put(self, thing: Thing, folder: Thing, name: str) -> None:
        thing.parent, thing.name = folder, name
        folder.children[name] = thing

    def _tell(self, thing: Thing, old: str | None, new: str | None) -> None:
        if old is None or new is None:
            thing.was_lost = True
        if old is not None and new is not None:
            self.batches[-1].moved(old, new)
        elif new is not None:
            self.batches[-1].removed(new)


def origin(moves: dict[str, str], path: str) -> str:
    """Where something lay before, by what is said to have been moved."""
    for above in (path, *parents_of(path)):
        if above in moves:
            return moves[above] + path[len(above) :]
    return path


@settings(max_examples=1000, deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(1, 25))
def test_moves(seed: int, steps: int) -> None:
    tree = Tree(seed)
    for _ in range(steps):
        tree.step()
    marks = Marks()
    for batch in tree.batches:
        marks.add(batch)
    moves = marks.moves
    told = "\n".join((*tree.log, repr(moves)))
    now = {thing.path: thing for thing in tree.root.everything()}
    for old, (thing, _) in tree.before.items():
        is_told = not thing.was_lost and all(t.key is not None and not t.was_lost for t in thing.above())
        if is_told and now.get(thing.path) is thing:
            assert origin(moves, thing.path) == old, told
    for new, old in moves.items():
        # What is told is right wherever the inode agrees, which is asked before it is believed.
        if new in now and old in tree.before and now[new].inode == tree.before[old][1]:
            assert now[new] is tree.before[old][0], told


# -- one by one --------------------------------------------------------------------------------------------


def test_a_chain_of_moves_is_one() -> None:
    marks = Marks()
    marks.moved("a", "b")
    marks.moved("b", "c/d")
    assert marks.moves == {"c/d": "a"}


def test_there_and_back_is_no_move() -> None:
    marks = Marks()
    marks.moved("a", "b")
    marks.moved("b", "a")
    assert marks.moves == {"a": "a"}


def test_a_swap_by_three_moves() -> None:
    marks = Marks()
    marks.moved("a", "t")
    marks.moved("b", "a")
    marks.moved("t", "b")
    assert marks.moves == {"a": "b", "b": "a"}


def test_what_a_moved_folder_holds_is_named_by_the_place_where_it_is_watched() -> None:
    marks = Marks()
    marks.moved("d", "e")
    marks.moved("d/x", "d/y")  # in what is called e by now
    assert marks.moves == {"e": "d", "e/y": "d/x"}
    marks.moved("d/y", "z")
    assert marks.moves == {"e": "d", "z": "d/x"}


def test_what_was_moved_and_then_removed_is_not_what_comes_instead() -> None:
    first, second = Marks(), Marks()
    first.moved("a", "b")
    second.removed("b")
    first.add(second)
    assert first.moves == {}


def test_batches_tell_the_same_as_one() -> None:
    steps = [("a", "b"), ("x", "a"), ("b", "c"), ("a", "x"), ("c", "d/c"), ("d", "e")]
    whole, parts = Marks(), Marks()
    for old, new in steps:
        whole.moved(old, new)
        part = Marks()
        part.moved(old, new)
        parts.add(part)
    assert parts.moves == whole.moves == {"e/c": "a", "e": "d", "x": "x"}


def test_what_makes_no_sense_is_no_move() -> None:
    marks = Marks()
    marks.moved("a", "b/a")
    marks.moved("b", "a/b")  # events were lost: each lies in the other
    assert marks.moves == {}


def test_a_great_many_moves_take_no_time() -> None:
    marks = Marks()
    for number in range(20_000):
        marks.moved(f"skill/{number}", f"skill/{number}.md")
    assert len(marks.moves) == 20_000


def test_more_than_can_be_remembered_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PLACES", 100)
    marks = Marks()
    for number in range(1000):
        marks.moved(f"{number}", f"{number}.md")
    assert len(marks.places) <= 102
    assert all(new == f"{old}.md" for new, old in marks.moves.items())


def test_tops() -> None:
    marks = Marks(trees={"a", "a/b", "ab", "a/c/d", "c/d"})
    assert marks.tops() == ["a", "ab", "c/d"]
    assert Marks(trees={"", "a"}).tops() == [""]


def test_marks_add_up() -> None:
    marks = Marks(folders={"a"}, doubt="first")
    marks.add(Marks(folders={"b"}, trees={"c"}, doubt="second", arrivals=True))
    assert (marks.folders, marks.trees, marks.doubt) == ({"a", "b"}, {"c"}, "first")
    assert marks.arrivals
    assert not marks.departures
    assert not Marks(arrivals=True)
    assert Marks(doubt="events were lost")


def test_what_went_out_of_sight_is_not_what_came_instead() -> None:
    marks = Marks()
    marks.moved("a", "b/x")
    marks.moved("b/c", "b")  # so that folder is elsewhere, and what it holds with it
    assert marks.moves == {"b": "b/c"}


def test_the_way_of_what_was_moved_is_known() -> None:
    marks = Marks()
    for old, new in (("a", "b"), ("b", "a"), ("a", "c"), ("c", "b"), ("b", "d/x"), ("d", "e")):
        marks.moved(old, new)
    assert marks.ways == {"e/x": ("a", "b", "c"), "e": ("d",)}
    later = Marks()
    later.moved("d/x", "a")  # as its folder is watched
    marks.add(later)
    assert marks.ways == {"a": ("a", "b", "c", "d/x"), "e": ("d",)}
    assert marks.moves == {"a": "a", "e": "d"}


def test_a_long_way_is_known_from_its_beginning() -> None:
    marks = Marks()
    for number in range(100):
        marks.moved(f"{number}", f"{number + 1}")
    (way,) = marks.ways.values()
    assert way == tuple(str(number) for number in range(module.MOST_STOPS))
