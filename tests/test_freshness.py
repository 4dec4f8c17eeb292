"""How soon listings are true, what a revision means, and what changes tell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillfs import SkillFileSystem
from skillfs.core.model import Changes, Kind
from skillfs.errors import InvalidArgumentError, StoreUnavailableError
from tests.conftest import skill_md, write

Opener = Callable[..., SkillFileSystem]


@pytest.fixture
def store(root: Path) -> Path:
    return write(
        root,
        {
            "a/SKILL.md": skill_md("a"),
            "a/x.md": "x",
            "a/sub/y.md": "y",
            "b/SKILL.md": skill_md("b"),
            "b/z.md": "z",
        },
    )


def names(fs: SkillFileSystem) -> list[str]:
    return [s.path for s in fs.skills()]


# -- max_age -----------------------------------------------------------------------------------------------


def test_a_listing_holds_for_max_age(store: Path, open_fs: Opener) -> None:
    fs = open_fs(max_age=3600)
    write(store, {"c/SKILL.md": skill_md("c")})
    assert names(fs) == ["a", "b"]
    assert "c/" not in str(fs.skill_tree())
    fs.max_age = 0.1
    deadline = time.monotonic() + 20
    while "c" not in names(fs):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "c/" in str(fs.skill_tree())


def test_a_check_holds_for_a_multiple_of_what_it_cost(
    store: Path, open_fs: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = open_fs(max_age=0)
    fs.sync()
    monkeypatch.setattr("skillfs.sync.engine.CHECK_COST", 1e9)
    write(store, {"c/SKILL.md": skill_md("c")})
    assert "c" not in names(fs)
    monkeypatch.setattr("skillfs.sync.engine.CHECK_COST", 0.0)
    assert "c" in names(fs)


@pytest.mark.parametrize(
    "call",
    [
        lambda fs: names(fs),
        lambda fs: fs.skill_tree(),
        lambda fs: fs.skill_tree("/"),
        lambda fs: fs.skill("a"),
        lambda fs: fs.problems(),
        lambda fs: fs.to_prompt(),
        lambda fs: fs.changes(fs.revision),
    ],
    ids=["skills", "overview", "tree", "skill", "problems", "prompt", "changes"],
)
def test_every_listing_checks_once_in_max_age(
    store: Path, open_fs: Opener, call: Callable[[SkillFileSystem], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = open_fs(max_age=3600)
    engine = fs._engine
    checks: list[str] = []
    sync = engine.sync
    monkeypatch.setattr(engine, "sync", lambda path="", **more: (checks.append(path), sync(path, **more))[1])
    call(fs)
    assert checks == []
    engine._checked.clear()
    call(fs)
    call(fs)
    assert checks == [""]


def test_a_listed_folder_is_checked_alone(store: Path, open_fs: Opener) -> None:
    fs = open_fs(max_age=3600)
    fs._engine._checked.clear()
    fs.skill_tree("a/sub")
    assert list(fs._engine._checked) == ["a/sub"]
    fs.skill_tree("a")
    assert set(fs._engine._checked) == {"a", "a/sub"}
    fs.skills()
    assert list(fs._engine._checked) == [""]


@pytest.mark.parametrize("max_age", [-1, "2", True, float("nan")])
def test_max_age_is_a_number_of_seconds(store: Path, open_fs: Opener, max_age: object) -> None:
    with pytest.raises(InvalidArgumentError, match="max_age"):
        open_fs(max_age=max_age)


# -- sync and revisions ------------------------------------------------------------------------------------


def test_sync_is_a_barrier(store: Path, open_fs: Opener) -> None:
    fs = open_fs(max_age=3600)
    for number in range(30):
        write(store, {f"a/new{number}.md": str(number), f"n{number}/SKILL.md": skill_md(f"n{number}")})
        (store / "a/x.md").write_text(f"version {number}")
        fs.sync()
        assert fs.skill(f"n{number}").path == f"n{number}"
        assert f"a/new{number}.md" in fs.find("a")
        assert len(fs.find_content(fs.entry("a/x.md").hash or "")) == 1
        before = fs.revision
        fs.sync()
        assert fs.revision == before


def test_an_edit_in_place_and_a_new_skill_are_noticed(store: Path, open_fs: Opener) -> None:
    fs = open_fs(max_age=3600)
    stamp = os.stat(store / "a")
    (store / "a/SKILL.md").write_text(skill_md("a", "Another."))
    assert os.stat(store / "a").st_mtime_ns == stamp.st_mtime_ns
    write(store, {"deep/er/c/SKILL.md": skill_md("c")})
    fs.sync()
    assert fs.skill("a").description == "Another."
    assert fs.skill("c").path == "deep/er/c"


def test_a_file_replaced_by_rename_stays_itself(store: Path, open_fs: Opener) -> None:
    fs = open_fs()
    for number in range(3):
        uuid, since = fs.entry("a/x.md").uuid, fs.revision
        (store / "a/x.tmp").write_text(f"version {number}")
        os.replace(store / "a/x.tmp", store / "a/x.md")
        fs.sync()
        assert fs.entry("a/x.md").uuid == uuid
        assert [(c.kind, c.path) for c in fs.changes(since).items] == [("modified", "a/x.md")]
        assert fs.get_content("a/x.md").text == f"version {number}"


@pytest.mark.parametrize(
    ("action", "grows"),
    [
        (lambda r: None, False),
        (lambda r: os.utime(r / "a/x.md"), False),
        (lambda r: (r / "a/x.md").write_text("x"), False),
        (lambda r: os.utime(r / "a"), False),
        (lambda r: (r / "a/x.md").chmod(0o600), False),
        (lambda r: (r / "outside.md").write_text("in no skill"), False),
        (lambda r: (r / "empty").mkdir(), False),
        (lambda r: (r / "a/.git").mkdir(), False),
        (lambda r: (r / "a/x.md").write_text("y"), True),
        (lambda r: (r / "a/new").write_text(""), True),
        (lambda r: (r / "a/empty").mkdir(), True),
        (lambda r: (r / "a/x.md").unlink(), True),
        (lambda r: (r / "a/x.md").rename(r / "a/w.md"), True),
        (lambda r: shutil.rmtree(r / "b"), True),
        (lambda r: (r / "b/SKILL.md").unlink(), True),
    ],
    ids=[
        "nothing", "touch", "same-bytes", "touch-folder", "chmod", "outside", "empty-outside", "ignored",
        "edit", "new", "empty-folder", "remove", "rename", "remove-skill", "no-skill-any-more",
    ],
)  # fmt: skip
def test_the_revision_grows_exactly_on_change(
    store: Path, open_fs: Opener, action: Callable[[Path], object], grows: bool
) -> None:
    fs = open_fs()
    before = fs.revision
    action(store)
    fs.sync()
    after = fs.revision
    assert (after > before) == grows
    changes = fs.changes(before)
    assert changes.revision == after
    assert bool(changes.items) == grows
    assert not changes.reset
    fs.sync()
    assert fs.revision == after


def test_a_root_that_goes_away_is_away_and_not_empty(store: Path, open_fs: Opener) -> None:
    fs = open_fs(max_age=0)
    before = fs.revision
    store.rename(store.parent / "elsewhere")
    with pytest.raises(StoreUnavailableError):
        fs.sync()
    time.sleep(0.1)
    with pytest.raises(StoreUnavailableError):
        fs.skills()
    (store.parent / "elsewhere").rename(store)
    fs.sync()
    assert names(fs) == ["a", "b"]
    assert fs.revision == before


# -- changes -----------------------------------------------------------------------------------------------


def test_what_a_change_says(store: Path, open_fs: Opener) -> None:
    fs = open_fs()
    since = fs.revision
    x, y, a, b = (fs.entry(p) for p in ("a/x.md", "a/sub/y.md", "a", "b"))
    (store / "a/x.md").write_text("xx")
    (store / "a/sub/y.md").rename(store / "b/moved.md")
    (store / "b/z.md").unlink()
    write(store, {"b/new.md": "new"})
    fs.sync()
    changes = fs.changes(since)
    by_path = {c.path: c for c in changes.items}
    assert len(by_path) == len(changes.items)
    assert by_path["a/x.md"].kind == "modified"
    assert (by_path["a/x.md"].uuid, by_path["a/x.md"].skill_folder_uuid) == (x.uuid, a.uuid)
    assert by_path["a/x.md"].old_hash == x.hash
    assert by_path["a/x.md"].hash == fs.entry("a/x.md").hash
    moved = by_path["b/moved.md"]
    assert (moved.kind, moved.uuid, moved.old_path) == ("moved", y.uuid, "a/sub/y.md")
    assert (moved.skill_folder_uuid, moved.hash, moved.old_hash) == (b.uuid, y.hash, y.hash)
    assert (by_path["b/z.md"].kind, by_path["b/z.md"].hash) == ("removed", None)
    assert by_path["b/z.md"].skill_folder_uuid == b.uuid
    assert (by_path["b/new.md"].kind, by_path["b/new.md"].old_hash) == ("added", None)
    assert {c.kind for c in changes.items if c.path.startswith("a")} == {"modified"}


def test_resets(store: Path, open_fs: Opener) -> None:
    fs = open_fs()
    now = fs.revision
    assert fs.changes(now) == Changes(now, False, ())
    for since in (0, 1, now - 1, now + 1):
        assert fs.changes(since) == Changes(now, True, ())
    for since in (-1, "1", None, True, 1.0):
        with pytest.raises(InvalidArgumentError):
            fs.changes(since)  # type: ignore[arg-type]


def test_changes_add_up_over_revisions(store: Path, open_fs: Opener) -> None:
    fs = open_fs()
    revisions = [fs.revision]
    for number in range(4):
        write(store, {f"a/n{number}.md": str(number)})
        fs.sync()
        revisions.append(fs.revision)
    for at, since in enumerate(revisions):
        assert [c.path for c in fs.changes(since).items] == [f"a/n{n}.md" for n in range(at, 4)]


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (lambda r: (r / "b/z.md").rename(r / "a/z.md"), [("added", "a/z.md", None)]),
        (lambda r: (r / "a/x.md").rename(r / "b/x.md"), [("removed", "a/x.md", None)]),
        (lambda r: (r / "a/x.md").rename(r / "a/w.md"), [("moved", "a/w.md", "a/x.md")]),
        (lambda r: (r / "b/z.md").rename(r / "b/w.md"), []),
        (lambda r: (r / "b/z.md").write_text("zz"), []),
        (lambda r: write(r, {"c/d/SKILL.md": "x"}), []),
        (lambda r: write(r, {"a/sub/SKILL.md": skill_md("sub")}), None),
        (lambda r: (r / "a").rename(r / "c"), None),
        (lambda r: shutil.rmtree(r / "a"), None),
    ],
    ids=["in", "out", "within", "elsewhere", "edit-elsewhere", "new-elsewhere", "nested", "all-out", "gone"],
)
def test_changes_of_one_who_sees_one_skill(
    store: Path,
    open_fs: Opener,
    action: Callable[[Path], object],
    expected: list[tuple[str, str, str | None]] | None,
) -> None:
    fs = open_fs(base_paths=["a"])
    all_of_it = open_fs()
    foreign = {all_of_it.entry("b").uuid}
    since = fs.revision
    before = {e["name"] for e in fs.find("a", detail=True, withdirs=True).values()}
    action(store)
    fs.sync()
    changes = fs.changes(since)
    if expected is not None:
        assert [(c.kind, c.path, c.old_path) for c in changes.items] == expected
    for change in changes.items:
        assert change.path == "a" or change.path.startswith("a/")
        assert change.skill_folder_uuid not in foreign
    removed = {c.path for c in changes.items if c.kind == "removed"}
    if not (store / "a").exists():
        assert removed == before
    if removed == {"a/x.md"}:
        assert changes.items[0].skill_folder_uuid == all_of_it.skill("/a").uuid
        assert changes.items[0].old_hash is not None
        assert changes.items[0].hash is None


# -- replay ------------------------------------------------------------------------------------------------

_places = st.sampled_from(["a", "a/b", "a/b/c", "d", "d/e", "f"])
_names = st.sampled_from(["SKILL.md", "x.md", "y.md"])
_steps = st.one_of(
    st.tuples(st.just("write"), _places, _names, st.sampled_from(["1", "2", "long " * 9, ""])),
    st.tuples(st.just("remove"), _places, _names, st.just("")),
    st.tuples(st.just("move"), _places, _places, st.just("")),
    st.tuples(st.just("rmtree"), _places, st.just(""), st.just("")),
    st.tuples(st.just("sync"), st.just(""), st.just(""), st.just("")),
)


def _do(root: Path, step: tuple[str, str, str, str]) -> None:
    what, first, second, text = step
    path = root / first
    if what == "write":
        path.mkdir(parents=True, exist_ok=True)
        (path / second).write_text(text)
    elif what == "remove":
        (path / second).unlink(missing_ok=True)
    elif (
        what == "move"
        and path.exists()
        and not (root / second).exists()
        and not f"{second}/".startswith(f"{first}/")
    ):
        (root / second).parent.mkdir(parents=True, exist_ok=True)
        path.rename(root / second)
    elif what == "rmtree":
        shutil.rmtree(path, ignore_errors=True)


def _state(fs: SkillFileSystem, base_paths: list[str] | None) -> dict[str, tuple[str, str | None]]:
    found = {}
    tree = fs.skill_tree(limit=None, hidden=True, include="**", base_paths=base_paths)
    stack = [tree.root]
    while stack:
        node = stack.pop()
        stack.extend(node.children)
        if node.path:
            found[node.uuid] = (node.path, fs.entry(node.uuid).hash if node.kind == Kind.FILE else None)
    return found


def _replayed(
    state: dict[str, tuple[str, str | None]], changes: Changes
) -> dict[str, tuple[str, str | None]]:
    state = dict(state)
    for change in changes.items:
        if change.kind == "removed":
            assert state.pop(change.uuid)[0] == change.path
            continue
        known = state.get(change.uuid)
        assert (known is None) == (change.kind == "added")
        if known is not None:
            assert known[1] == change.old_hash
            assert known[0] == (change.old_path or change.path)
            assert known[0] != change.path or change.kind == "modified"
        state[change.uuid] = (change.path, change.hash)
    return state


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(first=st.lists(_steps, max_size=8), then=st.lists(_steps, min_size=1, max_size=10))
def test_applying_changes_to_what_one_had_gives_what_is_there(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[tuple[str, str, str, str]],
    then: list[tuple[str, str, str, str]],
) -> None:
    root = tmp_path_factory.mktemp("replay")
    for step in first:
        _do(root, step)
    fs = SkillFileSystem(root, index=":memory:", skip_instance_cache=True, max_age=3600)
    since = fs.revision
    had = _state(fs, None)
    for step in then:
        _do(root, step)
        if step[0] == "sync":
            fs.sync()
    fs.sync()
    assert _replayed(had, fs.changes(since)) == _state(fs, None)


# -- one index, several filesystems ------------------------------------------------------------------------

_CHILD = """
import sys
from skillfs import SkillFileSystem
fs = SkillFileSystem(sys.argv[1], index=sys.argv[2], max_age=3600)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


@pytest.fixture
def other(store: Path, tmp_path: Path) -> Callable[[str], str]:
    """Runs a line of Python in another process that has the same index open as `fs`."""
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(store), str(tmp_path / "index.sqlite")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip

    def run(line: str) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()
        printed = []
        while (answer := process.stdout.readline().strip()) != "done":
            assert answer or process.poll() is None
            printed.append(answer)
        return "\n".join(printed)

    with process:
        yield run
        process.kill()


def test_two_processes_see_each_others_syncs(
    store: Path, tmp_path: Path, open_fs: Opener, other: Callable[[str], str]
) -> None:
    assert other("print([s.path for s in fs.skills()])") == "['a', 'b']"
    fs = open_fs(index=tmp_path / "index.sqlite", max_age=3600)
    since = fs.revision
    assert other("print(fs.revision)") == str(since)
    write(store, {"c/SKILL.md": skill_md("c")})
    assert names(fs) == ["a", "b"]
    other("fs.sync()")
    assert names(fs) == ["a", "b", "c"]
    assert fs.revision > since
    assert {c.path for c in fs.changes(since).items} == {"c", "c/SKILL.md"}
    shutil.rmtree(store / "a")
    fs.sync()
    assert other("print([s.path for s in fs.skills()])") == "['b', 'c']"
    assert other("print(fs.revision)") == str(fs.revision)
    # Both at once: one of them does the work, both are right.
    (store / "b/z.md").rename(store / "c/z.md")
    uuid = fs.entry("c/z.md").uuid
    other("fs.sync()")
    fs.sync()
    assert other("print(fs.entry('c/z.md').uuid)") == uuid


def test_two_filesystems_of_one_process_share_what_they_know(
    store: Path, tmp_path: Path, open_fs: Opener
) -> None:
    one = open_fs(index=tmp_path / "index.sqlite", max_age=3600)
    two = open_fs(index=tmp_path / "index.sqlite", max_age=3600)
    write(store, {"c/SKILL.md": skill_md("c")})
    one.sync()
    assert names(two) == ["a", "b", "c"]
    assert one.revision == two.revision
