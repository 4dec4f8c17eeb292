from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillfs.core.digest import xxh3
from skillfs.sync.reconcile import EMPTY_CONTENT, Plan, State, reconcile

NAMES = ("a", "b", "c", "x.md", "SKILL.md")


def file(content: str, inode: int = 0) -> State:
    return State(False, b"i%d" % inode if inode else b"", xxh3(content.encode()))


def folder(inode: int = 0) -> State:
    return State(True, b"i%d" % inode if inode else b"", None)


Tree = Mapping[str, State]


@st.composite
def trees(draw: st.DrawFn) -> dict[str, State]:
    """A tree as a filesystem could show it: folders above everything, an inode of a folder used once."""
    tree: dict[str, State] = {}
    inodes = draw(st.booleans())
    free = draw(st.permutations(range(1, 30)))
    contents = st.sampled_from(["", "", "one", "two", "three"])
    for _ in range(draw(st.integers(0, 10))):
        above = draw(st.sampled_from(["", *(p for p, s in tree.items() if s.folder and p.count("/") < 2)]))
        name = draw(st.sampled_from(NAMES))
        path = f"{above}/{name}" if above else name
        number = free.pop() if inodes else 0
        if path not in tree:
            state = folder(number) if draw(st.booleans()) else file(draw(contents), number)
            if not state.folder and draw(st.integers(0, 9)) == 0:
                state = state._replace(content=None)
            tree[path] = state
    if inodes and draw(st.booleans()):
        files = [p for p, s in tree.items() if not s.folder]
        if len(files) > 1:
            tree[files[0]] = tree[files[1]]  # hard links
    return tree


def as_sets(plan: Plan) -> tuple[object, ...]:
    return set(plan.kept), dict(plan.moved), set(plan.added), set(plan.removed)


def keeps_its_place(plan: Plan, old: str, new: str) -> bool:
    above_old, _, name_old = old.rpartition("/")
    above_new, _, name_new = new.rpartition("/")
    return name_old == name_new and plan.moved.get(above_new) == above_old


# -- properties --------------------------------------------------------------------------------------------


@settings(max_examples=1000, deadline=None)
@given(trees(), trees(), st.frozensets(st.sampled_from([xxh3(b"one"), xxh3(b"two")])))
def test_each_path_has_one_fate(known: Tree, seen: Tree, held: frozenset[bytes]) -> None:
    plan = reconcile(known, seen, held)
    assert sorted([*plan.kept, *plan.moved.values(), *plan.removed]) == sorted(known)
    assert sorted([*plan.kept, *plan.moved, *plan.added]) == sorted(seen)


@settings(max_examples=1000, deadline=None)
@given(trees(), trees(), st.frozensets(st.sampled_from([xxh3(b"one"), xxh3(b"two")])))
def test_rules_of_moves(known: Tree, seen: Tree, held: frozenset[bytes]) -> None:
    plan = reconcile(known, seen, held)
    assert set(plan.kept) == {p for p in known.keys() & seen.keys() if known[p].folder == seen[p].folder}
    for new, old in plan.moved.items():
        was, now = known[old], seen[new]
        assert was.folder == now.folder
        if was.folder:
            continue
        assert was.content == now.content is not None
        same_inode = was.inode == now.inode != b""
        if not same_inode and not keeps_its_place(plan, old, new):
            assert now.content != EMPTY_CONTENT
            assert now.content not in held
            assert [p for p in seen if seen[p].content == now.content] == [new]
            vanished = [p for p in known if p not in plan.kept and known[p].content == now.content]
            assert vanished == [old]


@settings(max_examples=300, deadline=None)
@given(trees(), trees(), st.randoms(use_true_random=False))
def test_order_does_not_matter(known: Tree, seen: Tree, random: object) -> None:
    def shuffled(tree: Tree) -> Tree:
        items = list(tree.items())
        random.shuffle(items)  # type: ignore[attr-defined]
        return dict(items)

    assert as_sets(reconcile(known, seen)) == as_sets(reconcile(shuffled(known), shuffled(seen)))


@given(trees())
def test_nothing_happened(tree: Tree) -> None:
    assert as_sets(reconcile(tree, tree)) == (set(tree), {}, set(), set())


@settings(max_examples=300, deadline=None)
@given(trees(), st.sampled_from(["moved", "deep/er/moved"]))
def test_moved_folder_takes_everything_along(tree: Tree, to: str) -> None:
    """By inode: a rename changes no inode and no content."""
    tree = {p: s._replace(inode=s.inode or b"of " + p.encode()) for p, s in tree.items()}
    known = {"old": folder(99), **{f"old/{p}": s for p, s in tree.items()}}
    seen = {to: folder(99), **{f"{to}/{p}": s for p, s in tree.items()}}
    above = {"deep": folder(97), "deep/er": folder(98)} if "/" in to else {}
    plan = reconcile(known | above, seen | above)
    links = len({s.inode for s in tree.values()}) < len(tree)
    unreadable = {p for p, s in tree.items() if not s.folder and s.content is None}
    lost = {f"{to}/{p}" for p in unreadable}
    if tree.keys() == unreadable and tree:
        lost.add(to)  # nothing at all says that it is the same folder
    if any(all(q in unreadable for q in tree if q.startswith(p + "/")) for p in tree if tree[p].folder):
        return
    assert set(plan.added) == lost
    if not links:
        assert plan.moved == {f"{to}{p[3:]}": p for p in known if f"{to}{p[3:]}" not in lost}


@settings(max_examples=300, deadline=None)
@given(trees())
def test_copy_is_new(tree: Tree) -> None:
    known = {"old": folder(), **{f"old/{p}": s._replace(inode=b"") for p, s in tree.items()}}
    copy = {"copy": folder(), **{f"copy/{p}": s._replace(inode=b"") for p, s in tree.items()}}
    plan = reconcile(known, known | copy)
    assert plan.moved == {}
    assert set(plan.added) == set(copy)
    # The same when the original is left out of both sides because nothing happened to it.
    held = {s.content for s in tree.values() if s.content is not None}
    assert reconcile({}, copy, held).moved == {}


# -- cases -------------------------------------------------------------------------------------------------

ONE_FOLDER = {
    "a": folder(1),
    "a/SKILL.md": file("skill", 2),
    "a/refs": folder(3),
    "a/refs/x.md": file("x", 4),
    "a/refs/y.md": file("y", 5),
}


def moved_to(tree: Tree, to: str, top: str = "a") -> dict[str, State]:
    return {to + path[len(top) :]: state for path, state in tree.items()}


def without_inodes(tree: Tree, other: str = "") -> dict[str, State]:
    """The same tree in another file system, or written anew."""
    return {p: s._replace(inode=b"new %s %s" % (other.encode(), p.encode())) for p, s in tree.items()}


@pytest.mark.parametrize(
    ("known", "seen", "moved", "added", "removed"),
    [
        pytest.param({"x": file("1", 1)}, {"y": file("1", 1)}, {"y": "x"}, [], [], id="file renamed"),
        pytest.param({"x": file("1", 1)}, {"y": file("1", 2)}, {"y": "x"}, [], [], id="written elsewhere"),
        pytest.param({"x": file("1", 1)}, {"y": file("2", 1)}, {}, ["y"], ["x"], id="inode used again"),
        pytest.param({"x": file("", 1)}, {"y": file("", 1)}, {"y": "x"}, [], [], id="empty file renamed"),
        pytest.param({"x": file("", 1)}, {"y": file("", 2)}, {}, ["y"], ["x"], id="another empty file"),
        pytest.param({"x": file("1", 1)}, {"x": folder(1)}, {}, ["x"], ["x"], id="file became folder"),
        pytest.param(
            {"x": file("1", 1), "y": file("2", 2)},
            {"x": file("2", 2), "y": file("1", 1)},
            {},
            [],
            [],
            id="two names swapped",
        ),
        pytest.param(
            {"x": file("1", 1), "y": file("2", 2), "z": file("3", 3)},
            {"y": file("1", 1), "z": file("2", 2), "w": file("3", 3)},
            {},
            ["w"],
            ["x"],
            id="names shifted by one: where the old path exists the path keeps it",
        ),
        pytest.param(
            {"x": file("1", 1), "y": file("1", 2)},
            {"z": file("1", 3)},
            {},
            ["z"],
            ["x", "y"],
            id="of two equal ones nobody knows which",
        ),
        pytest.param(
            {"x": file("1", 1)},
            {"y": file("1", 2), "z": file("1", 3)},
            {},
            ["y", "z"],
            ["x"],
            id="to two equal ones nobody knows which",
        ),
        pytest.param(
            {"x": file("1", 1), "k": file("0", 9)},
            {"y": file("1", 2), "k": file("1", 9)},
            {},
            ["y"],
            ["x"],
            id="another entry holds the content now",
        ),
        pytest.param(
            {"x": file("1", 7), "k": file("1", 7)},
            {"y": file("1", 7), "k": file("1", 7)},
            {"y": "x"},
            [],
            [],
            id="one of two hard links renamed",
        ),
        pytest.param(
            {"x": file("1", 7), "y": file("1", 7)},
            {"a/y": file("1", 7), "a/x": file("1", 7), "a": folder(1)},
            {"a/x": "x", "a/y": "y"},
            ["a"],
            [],
            id="hard links go by their names",
        ),
        pytest.param(
            {"x": file("1", 7)},
            {"x": file("1", 7), "y": file("1", 7)},
            {},
            ["y"],
            [],
            id="a hard link is new",
        ),
        pytest.param(
            ONE_FOLDER,
            moved_to(ONE_FOLDER, "b"),
            moved_to({p: p for p in ONE_FOLDER}, "b"),
            [],
            [],
            id="folder renamed",
        ),
        pytest.param(
            ONE_FOLDER,
            moved_to(ONE_FOLDER, "b") | {"b/refs/x.md": file("edited", 4)},
            {"b": "a", "b/SKILL.md": "a/SKILL.md", "b/refs": "a/refs", "b/refs/y.md": "a/refs/y.md"},
            ["b/refs/x.md"],
            ["a/refs/x.md"],
            id="folder renamed and one of its files edited",
        ),
        pytest.param(
            ONE_FOLDER,
            without_inodes(moved_to(ONE_FOLDER, "b")),
            moved_to({p: p for p in ONE_FOLDER}, "b"),
            [],
            [],
            id="folder checked out under another name",
        ),
        pytest.param(
            ONE_FOLDER | {"a/z": folder(8), "a/z/__init__.py": file("", 9), "a/v": file("x", 10)},
            without_inodes(
                moved_to(ONE_FOLDER, "b") | {"b/z": folder(), "b/z/__init__.py": file(""), "b/v": file("x")}
            ),
            moved_to({p: p for p in [*ONE_FOLDER, "a/z", "a/z/__init__.py", "a/v"]}, "b"),
            [],
            [],
            id="checked out: inside a moved folder empty and equal files go by their names",
        ),
        pytest.param(
            {"a": folder(1), "a/b": folder(2), "a/b/c": folder(3), "a/b/c/x": file("x", 4)},
            {"b": folder(2), "b/a": folder(1), "b/c": folder(3), "b/c/x": file("x", 4)},
            {"b": "a/b", "b/c": "a/b/c", "b/c/x": "a/b/c/x"},
            ["b/a"],
            ["a"],
            id="inner folder moved out, its parent into it: the parent held nothing else that says so",
        ),
        pytest.param(
            {"a": folder(1), "a/b": folder(2), "a/b/x": file("x", 3), "a/y": file("y", 4)},
            {"z": folder(1), "z/q": folder(2), "z/q/x": file("x", 3), "z/y": file("y", 4)},
            {"z": "a", "z/q": "a/b", "z/q/x": "a/b/x", "z/y": "a/y"},
            [],
            [],
            id="folder and the folder in it renamed",
        ),
        pytest.param(
            {"a": folder(1), "a/x": file("x", 2)},
            {"b": folder(1), "b/y": file("x", 2)},
            {"b": "a", "b/y": "a/x"},
            [],
            [],
            id="folder and its only file renamed",
        ),
        pytest.param(
            {"a": folder(1), "a/x": file("1", 3), "a/y": file("2", 4), "b": folder(2), "b/z": file("3", 5)},
            {"c": folder(9), "c/x": file("1", 3), "c/y": file("2", 4), "c/z": file("3", 5)},
            {"c": "a", "c/x": "a/x", "c/y": "a/y", "c/z": "b/z"},
            [],
            ["b"],
            id="two folders merged: the one that gave more",
        ),
        pytest.param(
            {"a": folder(1), "a/x": file("1", 3), "a/y": file("2", 4)},
            {"b": folder(8), "b/x": file("1", 3), "c": folder(9), "c/y": file("2", 4)},
            {"b": "a", "b/x": "a/x", "c/y": "a/y"},
            ["c"],
            [],
            id="folder split: a tie goes to the first path",
        ),
        pytest.param(
            {"a": folder(1), "a/x": file("1", 2), "a/y": file("2", 3), "b": folder(4)},
            {"b": folder(4), "b/x": file("1", 2)},
            {"b/x": "a/x"},
            [],
            ["a", "a/y"],
            id="file moved out of a folder that was removed",
        ),
        pytest.param({"a": folder(1)}, {"b": folder(1)}, {"b": "a"}, [], [], id="empty folder renamed"),
        pytest.param({"a": folder(1)}, {"b": folder(2)}, {}, ["b"], ["a"], id="another empty folder"),
        pytest.param(
            {"a": folder(1), "a/x": file("1", 2)},
            {"b": folder(1), "b/y": file("2", 3)},
            {},
            ["b", "b/y"],
            ["a", "a/x"],
            id="inode of a folder used again",
        ),
        pytest.param(
            {"a": State(False, b"i", None)},
            {"b": State(False, b"i", None)},
            {},
            ["b"],
            ["a"],
            id="unreadable file renamed",
        ),
    ],
)  # fmt: skip
def test_cases(known: Tree, seen: Tree, moved: dict[str, str], added: list[str], removed: list[str]) -> None:
    plan = reconcile(known, seen)
    assert plan.moved == moved
    assert sorted(plan.added) == sorted(added)
    assert sorted(plan.removed) == sorted(removed)


def test_content_held_elsewhere_is_no_proof() -> None:
    known, seen = {"x": file("1", 1)}, {"y": file("1", 2)}
    assert reconcile(known, seen, {xxh3(b"1")}).moved == {}
    assert reconcile(known, seen, {xxh3(b"2")}).moved == {"y": "x"}


def test_ten_thousand_moves_take_no_time_to_speak_of() -> None:
    known = {"a": folder(1)} | {f"a/{n}": file("same", n + 2) for n in range(10_000)}
    plan = reconcile(known, moved_to(known, "b"))
    assert len(plan.moved) == 10_001


# -- moves that are known ----------------------------------------------------------------------------------

TWO = {"a": folder(1), "a/x": file("same", 2), "a/y": file("same", 3), "b": folder(4), "b/x": file("old", 5)}


@pytest.mark.parametrize(
    ("known", "seen", "moves", "moved", "added", "removed"),
    [
        pytest.param(
            {"x": file(""), "y": file("")}, {"y": file(""), "z": file("")}, {"z": "x"}, {"z": "x"}, [], [],
            id="empty file, and no inodes",
        ),
        pytest.param(
            {"x": file("1", 1)}, {"z": file("2", 9)}, {"z": "x"}, {"z": "x"}, [], [],
            id="edited at once by another",
        ),
        pytest.param(
            {"x": file("1", 1), "y": file("1", 2)}, {"u": file("1", 1), "v": file("1", 2)},
            {"u": "y", "v": "x"}, {"u": "y", "v": "x"}, [], [],
            id="it counts for more than inode and content",
        ),
        pytest.param(
            {"x": file("1", 1), "y": file("2", 2)}, {"y": file("1", 1)}, {"y": "x"}, {"y": "x"}, [], ["y"],
            id="onto a file, which is gone",
        ),
        pytest.param(
            TWO, {**{p: s for p, s in TWO.items() if p[0] == "a"}, "c": folder(9), "c/x": file("new", 8)},
            {"c": "b"}, {"c": "b", "c/x": "b/x"}, [], [],
            id="folder with all it holds",
        ),
        pytest.param(
            {"a": folder(1), "a/b": folder(2), "a/b/x": file("1", 3)},
            {"a": folder(1), "z": folder(2), "z/x": file("1", 3), "z/new": file("2", 4)},
            {"z": "a/b"}, {"z": "a/b", "z/x": "a/b/x"}, ["z/new"], [],
            id="inner folder, with something new in it",
        ),
        pytest.param(
            {"a": folder(1), "a/x": file("1", 2)},
            {"b": folder(1), "b/x": file("2", 3), "u": file("1", 2)},
            {"b": "a", "u": "a/x"}, {"b": "a", "u": "a/x"}, ["b/x"], [],
            id="out of a folder that moved, and something new in its place",
        ),
        pytest.param(
            {"a": folder(1), "a/x": file("1", 2), "y": file("2", 3)},
            {"b": folder(1), "b/x": file("2", 3), "u": file("1", 2)},
            {"u": "a/x", "b/x": "y", "b": "a"}, {"b": "a", "u": "a/x", "b/x": "y"}, [], [],
            id="out of a folder that moved, and something known in its place",
        ),
        pytest.param(
            {"a": folder(1), "a/x": file("1", 2), "y": file("2", 3)},
            {"b": folder(1), "b/x": file("2", 3)},
            {"b/x": "y", "b": "a"}, {"b": "a", "b/x": "y"}, [], ["a/x"],
            id="into a folder that moved, onto what that held",
        ),
        pytest.param(
            {"x": file("1", 1)}, {"x": file("1", 1), "y": file("1", 2)}, {"y": "x"}, {}, ["y"], [],
            id="the old path is there again",
        ),
        pytest.param(
            {"x": file("1", 1)}, {}, {"y": "x"}, {}, [], ["x"],
            id="the new path is gone already",
        ),
        pytest.param(
            {"x": file("1", 1)}, {"y": folder(1)}, {"y": "x"}, {}, ["y"], ["x"],
            id="a folder took the place",
        ),
        pytest.param(
            {"a": folder(1), "ab": file("1", 2)}, {"ab": file("1", 2), "b": folder(1)},
            {"b": "a"}, {"b": "a"}, [], [], id="no neighbour whose name begins the same",
        ),
        pytest.param(
            {"x": file("1", 1), "y": file("2", 2)}, {"z": file("1", 1), "u": file("2", 2)}, {"z": "x"},
            {"z": "x", "u": "y"}, [], [], id="what others moved is found as ever",
        ),
    ],
)  # fmt: skip
def test_known_moves(
    known: Tree,
    seen: Tree,
    moves: dict[str, str],
    moved: dict[str, str],
    added: list[str],
    removed: list[str],
) -> None:
    plan = reconcile(known, seen, moves=moves)
    assert plan.moved == moved
    assert sorted(plan.added) == sorted(added)
    assert sorted(plan.removed) == sorted(removed)
    assert {*plan.kept, *plan.moved.values(), *plan.removed} == set(known)
    assert {*plan.kept, *plan.moved, *plan.added} == set(seen)


def test_many_known_moves_take_no_time_to_speak_of() -> None:
    known = {f"{n}": file("same", n + 1) for n in range(50_000)}
    plan = reconcile(
        known, {f"to-{path}": state for path, state in known.items()}, moves={f"to-{p}": p for p in known}
    )
    assert plan.moved == {f"to-{path}": path for path in known}


@given(known=trees(), data=st.data())
def test_a_known_move_is_never_guessed(known: dict[str, State], data: st.DataObject) -> None:
    if not known:
        return
    old = data.draw(st.sampled_from(sorted(known)))
    moved = {p: "new" + p[len(old) :] for p in known if p == old or p.startswith(f"{old}/")}
    seen = {moved.get(p, p): s for p, s in known.items()}
    for path in moved.values():
        if not seen[path].folder and data.draw(st.booleans()):
            seen[path] = file("edited")
    plan = reconcile(known, seen, moves={"new": old})
    assert plan.moved == {to: p for p, to in moved.items()}
    assert plan.added == plan.removed == ()
