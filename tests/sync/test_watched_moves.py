"""Moves, links and other names, seen by a watcher: identities stay, and the last truth is told."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from skillfs.core.digest import xxh3
from skillfs.stores.base import Listed
from skillfs.stores.local import LocalFolder
from skillfs.sync.engine import Engine
from tests.conftest import skill_md, write
from tests.privileges import bound_by_permissions
from tests.sync.harness import Follower, make_engine, problems, rows, uuid_at, uuids
from tests.sync.watching import in_step, kept_in_step, stays, wait_until

FILES = {
    "pdf/SKILL.md": skill_md("pdf"),
    "pdf/refs/x.md": "x\n",
    "pdf/refs/y.md": "y\n",
    "pdf/refs/deep/z.md": "z\n",
    "lib/a/SKILL.md": skill_md("a"),
    "lib/a/docs/w.md": "w\n",
    "lib/b/SKILL.md": skill_md("b"),
    "lib/b/docs/w.md": "another w\n",
}


class Store(NamedTuple):
    """A watched store.

    Attributes:
        root: Its root.
        engine: What is kept in step.
        follower: A reader of its changes.
    """

    root: Path
    engine: Engine
    follower: Follower


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    write(root, FILES)
    engine = make_engine(root)
    engine.sync()
    with kept_in_step(engine):
        yield Store(root, engine, Follower(engine))


def is_true(store: Store) -> None:
    in_step(store.engine, store.root)
    store.follower.catch_up()
    assert store.follower.states == Follower(store.engine).states


def exchange(one: Path, two: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(two), 2) != 0:
        pytest.skip(f"names cannot be exchanged here: {os.strerror(ctypes.get_errno())}")


def content(store: Store, path: str) -> bytes | None:
    return rows(store.engine)[path].content


# -- moves -------------------------------------------------------------------------------------------------


def test_a_move_within(store: Store) -> None:
    before = uuids(store.engine)
    (store.root / "pdf/refs/x.md").rename(store.root / "lib/a/docs/v.md")
    is_true(store)
    assert uuid_at(store.engine, "lib/a/docs/v.md") == before["pdf/refs/x.md"]


def test_a_move_out_and_in_again(store: Store, tmp_path: Path) -> None:
    before = uuids(store.engine)
    (store.root / "pdf").rename(tmp_path / "pdf")
    is_true(store)
    assert uuid_at(store.engine, "pdf") is None
    (tmp_path / "pdf/refs/x.md").write_text("edited outside\n")
    time.sleep(0.1)
    (tmp_path / "pdf").rename(store.root / "pdf")
    is_true(store)
    assert uuids(store.engine) == before
    (store.root / "pdf/refs/x.md").write_text("edited inside\n")
    is_true(store)
    assert content(store, "pdf/refs/x.md") == xxh3(b"edited inside\n")


def test_a_tree_moved_in_is_watched(store: Store, tmp_path: Path) -> None:
    write(tmp_path / "new", {"SKILL.md": skill_md("new"), "a/b/c/d.md": "1"})
    (tmp_path / "new").rename(store.root / "lib/new")
    is_true(store)
    (store.root / "lib/new/a/b/c/d.md").write_text("2")
    (store.root / "lib/new/a/b/e.md").write_text("2")
    is_true(store)


def test_a_file_renamed_and_edited_at_once(store: Store) -> None:
    before = uuids(store.engine)
    with store.engine._lock:
        (store.root / "pdf/refs/x.md").rename(store.root / "pdf/refs/new.md")
        (store.root / "pdf/refs/new.md").write_text("nothing is as it was\n")
    is_true(store)
    assert uuid_at(store.engine, "pdf/refs/new.md") == before["pdf/refs/x.md"]


def test_a_folder_renamed_and_everything_in_it_edited_at_once(store: Store) -> None:
    before = uuids(store.engine)
    with store.engine._lock:
        (store.root / "pdf").rename(store.root / "lib/doc")
        for path in (store.root / "lib/doc").rglob("*.md"):
            path.write_text(f"{path.name} edited\n")
        (store.root / "lib/doc/refs/x.md").rename(store.root / "lib/doc/refs/new.md")
        (store.root / "lib/doc/refs/new.md").write_text("and again\n")
    is_true(store)
    after = uuids(store.engine)
    assert after["lib/doc"] == before["pdf"]
    assert after["lib/doc/refs"] == before["pdf/refs"]
    assert after["lib/doc/refs/y.md"] == before["pdf/refs/y.md"]
    assert after["lib/doc/refs/deep/z.md"] == before["pdf/refs/deep/z.md"]
    assert after["lib/doc/refs/new.md"] == before["pdf/refs/x.md"]


def test_what_leaves_a_folder_before_it_is_renamed(store: Store) -> None:
    before = uuids(store.engine)
    with store.engine._lock:
        (store.root / "pdf/refs/x.md").rename(store.root / "pdf/x.md")
        (store.root / "pdf/refs").rename(store.root / "pdf/docs")
        (store.root / "pdf/docs/x.md").write_text("another\n")
        (store.root / "pdf/x.md").write_text("edited\n")
    is_true(store)
    after = uuids(store.engine)
    assert after["pdf/x.md"] == before["pdf/refs/x.md"]
    assert after["pdf/docs/y.md"] == before["pdf/refs/y.md"]
    assert after["pdf/docs/x.md"] not in before.values()


def test_a_chain_of_renames_at_once(store: Store) -> None:
    before = uuids(store.engine)
    with store.engine._lock:
        path = store.root / "pdf/refs/x.md"
        for name in ("1.md", "2.md", "3.md"):
            path = path.rename(path.with_name(name))
        path = path.rename(store.root / "lib/a/4.md")
        path.write_text("edited\n")
    is_true(store)
    assert uuid_at(store.engine, "lib/a/4.md") == before["pdf/refs/x.md"]


def test_a_file_in_the_place_of_what_was_moved_away_and_removed(store: Store) -> None:
    """Its inode is likely that of the one which was removed."""
    before = uuids(store.engine)
    with store.engine._lock:
        (store.root / "pdf/refs/x.md").rename(store.root / "pdf/refs/new.md")
        (store.root / "pdf/refs/new.md").unlink()
        (store.root / "pdf/refs/new.md").write_text("nothing to do with it\n")
    is_true(store)
    assert uuid_at(store.engine, "pdf/refs/new.md") not in before.values()


def test_there_and_back_with_an_edit(store: Store) -> None:
    before = uuids(store.engine)
    with store.engine._lock:
        (store.root / "pdf/refs").rename(store.root / "pdf/e")
        (store.root / "pdf/e").rename(store.root / "pdf/refs")
        (store.root / "pdf/refs/x.md").write_text("edited\n")
    is_true(store)
    assert uuids(store.engine) == before
    assert content(store, "pdf/refs/x.md") == xxh3(b"edited\n")
    for _ in range(50):
        (store.root / "pdf/refs").rename(store.root / "pdf/e")
        (store.root / "pdf/e").rename(store.root / "pdf/refs")
    (store.root / "pdf/refs/x.md").write_text("edited again\n")
    is_true(store)
    assert uuids(store.engine) == before


def test_a_rename_over_an_existing_file(store: Store) -> None:
    before = uuids(store.engine)
    os.replace(store.root / "pdf/refs/x.md", store.root / "pdf/refs/y.md")
    is_true(store)
    assert uuid_at(store.engine, "pdf/refs/y.md") == before["pdf/refs/y.md"]
    assert uuid_at(store.engine, "pdf/refs/x.md") is None
    assert content(store, "pdf/refs/y.md") == xxh3(b"x\n")


@pytest.mark.parametrize(("one", "two"), [("pdf/refs/x.md", "pdf/refs/y.md"), ("lib/a", "lib/b")])
@pytest.mark.parametrize("way", ["exchange", "three renames"])
@pytest.mark.parametrize("at_once", [True, False])
def test_swapped_names(store: Store, one: str, two: str, way: str, at_once: bool) -> None:
    before = uuids(store.engine)
    first, second = store.root / one, store.root / two
    if way == "exchange":
        exchange(first, second)
    else:
        with store.engine._lock:
            first.rename(store.root / "swapping~")
            second.rename(first)
            (store.root / "swapping~").rename(second)
    if not at_once:
        is_true(store)
    if first.is_dir():
        (first / "docs/w.md").write_text("edited\n")
        (second / "docs/new.md").write_text("new\n")
    is_true(store)
    after = uuids(store.engine)
    assert {path: after[path] for path in before} == before


def test_swapped_folders_stay_watched(store: Store) -> None:
    for number in range(10):
        exchange(store.root / "lib/a", store.root / "lib/b")
        (store.root / "lib/a/docs/w.md").write_text(f"a {number}\n")
        is_true(store)
        (store.root / "lib/b/docs/w.md").write_text(f"b {number}\n")
        is_true(store)


def test_renames_in_case_alone(store: Store) -> None:
    before = uuids(store.engine)
    (store.root / "pdf/refs/x.md").rename(store.root / "pdf/refs/X.md")
    (store.root / "pdf/refs/deep").rename(store.root / "pdf/refs/Deep")
    is_true(store)
    after = uuids(store.engine)
    assert after["pdf/refs/X.md"] == before["pdf/refs/x.md"]
    assert after["pdf/refs/Deep"] == before["pdf/refs/deep"]
    assert after["pdf/refs/Deep/z.md"] == before["pdf/refs/deep/z.md"]


@pytest.mark.parametrize("at_once", [True, False])
def test_removed_and_made_again(store: Store, at_once: bool) -> None:
    before = uuids(store.engine)
    shutil.rmtree(store.root / "pdf")
    (store.root / "lib/a/docs/w.md").unlink()
    if not at_once:
        is_true(store)
    write(store.root, {path: text for path, text in FILES.items() if path.startswith("pdf/")})
    (store.root / "lib/a/docs/w.md").write_text("other\n")
    is_true(store)
    assert uuids(store.engine) == before
    (store.root / "pdf/refs/deep/z.md").write_text("edited\n")
    is_true(store)


def test_a_file_that_becomes_a_folder_and_a_folder_that_becomes_a_file(store: Store) -> None:
    (store.root / "pdf/refs/x.md").unlink()
    write(store.root, {"pdf/refs/x.md/inner.md": "1"})
    shutil.rmtree(store.root / "lib/a/docs")
    (store.root / "lib/a/docs").write_text("a file\n")
    is_true(store)
    (store.root / "pdf/refs/x.md/inner.md").write_text("2")
    is_true(store)


def test_a_folder_renamed_while_files_in_it_are_written(store: Store) -> None:
    before = uuids(store.engine)
    ended = threading.Event()

    handle = os.open(store.root / "pdf/refs", os.O_RDONLY)
    kept_open = (store.root / "pdf/refs/x.md").open("a")

    def in_folder(name: str, flags: int) -> int:
        return os.open(name, flags, 0o644, dir_fd=handle)

    def write_on() -> None:
        number = 0
        with kept_open:
            while not ended.is_set():
                number += 1
                kept_open.write(f"{number}\n")
                kept_open.flush()
                with open(f"{number % 5}.md", "w", opener=in_folder) as file:
                    file.write(str(number))
                time.sleep(0.001)

    writing = threading.Thread(target=write_on)
    writing.start()
    try:
        for number in range(20):
            (store.root / "pdf/refs").rename(store.root / f"pdf/{number}")
            time.sleep(0.03)
            (store.root / f"pdf/{number}").rename(store.root / "pdf/refs")
            time.sleep(0.03)
        (store.root / "pdf/refs").rename(store.root / "lib/a/refs")
    finally:
        ended.set()
        writing.join()
        os.close(handle)
    is_true(store)
    after = uuids(store.engine)
    assert after["lib/a/refs"] == before["pdf/refs"]
    assert after["lib/a/refs/x.md"] == before["pdf/refs/x.md"]
    assert after["lib/a/refs/deep/z.md"] == before["pdf/refs/deep/z.md"]


def test_a_look_that_is_ahead_of_its_marks(store: Store) -> None:
    """It has seen already what later marks tell."""
    before = uuids(store.engine)
    watches, refs = store.engine.watches, store.root / "pdf/refs"
    assert watches is not None
    with store.engine._lock:
        refs.rename(refs.with_name("one"))
        assert watches.barrier(30)
        with watches._lock:
            refs.with_name("one").rename(refs)
            (refs / "x.md").write_text("edited\n")
            store.engine.take_marks()
        refs.rename(refs.with_name("two"))
        (refs.with_name("two") / "x.md").write_text("edited again\n")
    is_true(store)
    after = uuids(store.engine)
    assert after["pdf/two"] == before["pdf/refs"]
    assert after["pdf/two/x.md"] == before["pdf/refs/x.md"]


def test_files_moved_between_folders_all_the_time_keep_their_identity(store: Store) -> None:
    folders = [
        store.root / name for name in ("pdf", "pdf/refs", "lib/a", "lib/a/docs", "lib/b", "pdf/refs/deep")
    ]
    paths = []
    for number in range(6):
        path = folders[number] / f"moving{number}.md"
        path.write_text(f"{number}\n")
        paths.append(path)
    is_true(store)
    before = uuids(store.engine)
    was = [before[path.relative_to(store.root).as_posix()] for path in paths]
    until = time.monotonic() + 3
    turn = 0
    while time.monotonic() < until:
        turn += 1
        for number, path in enumerate(paths):
            paths[number] = path.rename(folders[(turn + number) % len(folders)] / path.name)
            time.sleep(0.002)
        if turn % 3 == 0:
            made = store.root / "lib/b" / f"made{turn}"
            made.mkdir()
            paths[0] = paths[0].rename(made / paths[0].name)
    is_true(store)
    after = uuids(store.engine)
    assert [after[path.relative_to(store.root).as_posix()] for path in paths] == was


@pytest.mark.parametrize(("old", "new"), [("lib/a", "lib/b"), ("lib/b", "lib/a"), ("lib/b", "lib/a/new")])
@pytest.mark.parametrize("at", ["lib/a", "lib/b"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_moves_between_two_listings_keeps_its_identity(
    store: Store, monkeypatch: pytest.MonkeyPatch, old: str, new: str, at: str, when: str
) -> None:
    """It is seen in both folders, or in none."""
    (store.root / old / "x.md").write_text("x\n")
    is_true(store)
    before = uuid_at(store.engine, f"{old}/x.md")
    entries = LocalFolder.entries

    def move() -> None:
        with contextlib.suppress(OSError):
            (store.root / new).mkdir(exist_ok=True)
            (store.root / old / "x.md").rename(store.root / new / "x.md")

    def moving(folder: LocalFolder) -> Listed:
        is_there = os.readlink(f"/proc/self/fd/{folder.fileno()}") == str(store.root / at)
        if is_there and when == "before":
            move()
        listed = entries(folder)
        if is_there and when == "after":
            move()
        return listed

    monkeypatch.setattr(LocalFolder, "entries", moving)
    with store.engine._lock:
        (store.root / "lib/a/other.md").write_text("other\n")
        (store.root / "lib/b/other.md").write_text("other\n")
    is_true(store)
    assert uuid_at(store.engine, f"{new}/x.md") == before


# -- whole trees -------------------------------------------------------------------------------------------


def tree(folder: Path, count: int = 300) -> Path:
    files = {
        f"s{number % 20}/d{number % 7}/e{number % 3}/{number}.md": f"{number}" for number in range(count)
    }
    return write(folder, files | {f"s{number}/SKILL.md": f"{number}" for number in range(20)})


def by_cp(store: Store, outside: Path) -> None:
    subprocess.run(["cp", "-a", tree(outside / "tree"), store.root / "lib"], check=True)


def by_tar(store: Store, outside: Path) -> None:
    with tarfile.open(outside / "tree.tar", "w") as archive:
        archive.add(tree(outside / "tree"), "tree")
    subprocess.run(["tar", "-xf", outside / "tree.tar", "-C", store.root / "lib"], check=True)


def by_mv(store: Store, outside: Path) -> None:
    subprocess.run(["mv", tree(outside / "tree"), store.root / "lib"], check=True)


def by_a_script(store: Store, outside: Path) -> None:
    tree(store.root / "lib/tree")


@pytest.mark.parametrize("way", [by_cp, by_tar, by_mv, by_a_script])
def test_a_tree_that_comes(store: Store, tmp_path: Path, way: Callable[[Store, Path], None]) -> None:
    way(store, tmp_path)
    is_true(store)
    for path in (store.root / "lib/tree").rglob("e1/*.md"):
        path.write_text("edited")
    is_true(store)
    shutil.rmtree(store.root / "lib/tree")
    is_true(store)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_checkout(store: Store) -> None:
    def git(*arguments: str) -> None:
        settings = ("-c", "user.name=tests", "-c", "user.email=tests@localhost", "-c", "gc.auto=0")
        subprocess.run(["git", *settings, *arguments], cwd=store.root, check=True, capture_output=True)

    git("init", "-b", "one")
    git("add", ".")
    git("commit", "-m", "one")
    git("checkout", "-b", "two")
    tree(store.root / "lib/tree", 600)
    (store.root / "pdf/refs/x.md").write_text("two\n")
    git("mv", "pdf/refs/y.md", "pdf/refs/moved.md")
    git("rm", "lib/b/docs/w.md")
    git("add", ".")
    git("commit", "-m", "two")
    is_true(store)
    before = uuids(store.engine)
    for pause in (True, False):
        for branch in ("one", "two", "one", "two"):
            git("checkout", branch)
            if pause:
                is_true(store)
        is_true(store)
        after = uuids(store.engine)
        # What is removed at one path and written at another is one file or two, as it is seen.
        assert after.pop("pdf/refs/moved.md")
        assert after == {path: uuid for path, uuid in before.items() if path != "pdf/refs/moved.md"}


# -- permissions -------------------------------------------------------------------------------------------


def test_what_may_not_be_read_for_a_while(root: Path) -> None:
    write(root, FILES)
    engine = make_engine(root)
    file, folder = root / "pdf/refs/x.md", root / "lib/a/docs"
    # Threads that are started meanwhile are bound, too.
    with bound_by_permissions():
        engine.sync()
        before = uuids(engine)
        with kept_in_step(engine):
            try:
                file.chmod(0)
                folder.chmod(0)
                wait_until(lambda: len([p for p in problems(engine) if p[1] == "unreadable"]) == 2)
                engine.sync()
                assert uuids(engine) == before
                with open(root / "lib/a/SKILL.md", "a") as other:
                    other.write("more\n")
                engine.sync()
                assert uuids(engine) == before
            finally:
                file.chmod(0o644)
                folder.chmod(0o755)
            in_step(engine, root)
            assert uuids(engine) == before
            (folder / "w.md").write_text("edited\n")
            in_step(engine, root)
            assert not [p for p in problems(engine) if p[1] == "unreadable"]


# -- other names of files ----------------------------------------------------------------------------------


def test_hard_links_inside(store: Store) -> None:
    os.link(store.root / "pdf/refs/x.md", store.root / "lib/a/same.md")
    is_true(store)
    (store.root / "lib/a/same.md").write_text("edited through the other name\n")
    store.engine.sync()
    stays(store.engine)
    assert content(store, "pdf/refs/x.md") == xxh3(b"edited through the other name\n")
    is_true(store)


def test_a_hard_link_from_outside(store: Store, tmp_path: Path) -> None:
    os.link(store.root / "pdf/refs/x.md", tmp_path / "outside.md")
    is_true(store)
    (tmp_path / "outside.md").write_text("edited from outside\n")
    store.engine.sync()
    assert content(store, "pdf/refs/x.md") == xxh3(b"edited from outside\n")
    (tmp_path / "outside.md").write_text("edited from outside again\n")
    is_true(store)  # at the next heartbeat


# -- links -------------------------------------------------------------------------------------------------


def test_a_link_inside_to_a_folder(store: Store) -> None:
    (store.root / "lib/link").symlink_to("../pdf")
    is_true(store)
    assert "lib/link" in rows(store.engine)
    (store.root / "pdf/refs/x.md").write_text("edited\n")
    is_true(store)
    (store.root / "lib/link").unlink()
    (store.root / "lib/link").symlink_to("b")
    is_true(store)
    assert rows(store.engine)["lib/link"].target == "lib/b"
    (store.root / "lib/b").rename(store.root / "lib/c")
    is_true(store)
    assert "lib/link" not in rows(store.engine)
    (store.root / "lib/c").rename(store.root / "lib/b")
    is_true(store)
    assert "lib/link" in rows(store.engine)


@pytest.mark.parametrize("target", ["inside", "in a skill"])
def test_a_skill_md_that_is_a_link(store: Store, target: str) -> None:
    shared = store.root / ("shared" if target == "inside" else "pdf/refs")
    shared.mkdir(exist_ok=True)
    real = shared / "real.md"
    real.write_text(skill_md("c"))
    (store.root / "lib/c").mkdir()
    (store.root / "lib/c/SKILL.md").symlink_to(os.path.relpath(real, store.root / "lib/c"))
    is_true(store)
    before = uuids(store.engine)
    assert "lib/c" in before
    real.write_text(skill_md("c", "Something else."))
    is_true(store)
    beside = real.with_name("beside~")
    beside.write_text(skill_md("c", "Replaced."))
    os.replace(beside, real)
    is_true(store)
    assert uuids(store.engine) == before
    real.unlink()
    is_true(store)
    assert "lib/c" not in uuids(store.engine)
    real.write_text(skill_md("c", "Here again."))
    is_true(store)
    assert uuids(store.engine) == before
    shared.rename(store.root / "elsewhere")
    is_true(store)
    (store.root / "elsewhere").rename(shared)
    is_true(store)
    assert uuids(store.engine) == before


class Followed(NamedTuple):
    """A watched store with links into another folder.

    Attributes:
        root: Its root.
        outside: The folder that is followed.
        engine: What is kept in step.
    """

    root: Path
    outside: Path
    engine: Engine

    def becomes(self, expected: dict[str, str]) -> None:
        """Wait until these files have these contents."""

        def found() -> dict[str, bytes | None]:
            try:
                return {path: row.content for path, row in rows(self.engine).items() if row.kind == 2}
            except (AssertionError, KeyError):
                return {}  # it changes while it is asked

        hashes = {path: xxh3(text.encode()) for path, text in expected.items()}
        wait_until(lambda: found() == hashes, what=f"{sorted(expected)}")
        stays(self.engine)
        assert found() == hashes


@pytest.fixture
def followed(root: Path, tmp_path: Path) -> Iterator[Followed]:
    outside = tmp_path / "outside"
    write(root, {"a/SKILL.md": "a"})
    write(outside, {"kit/SKILL.md": "kit", "kit/deep/x.md": "x", "other/SKILL.md": "other", "one.md": "one"})
    (root / "kit").symlink_to(outside / "kit")
    (root / "a/one.md").symlink_to(outside / "one.md")
    engine = make_engine(root, follow=[outside])
    engine.sync()
    with kept_in_step(engine):
        found = Followed(root, outside, engine)
        found.becomes({"a/SKILL.md": "a", "a/one.md": "one", "kit/SKILL.md": "kit", "kit/deep/x.md": "x"})
        yield found


def test_a_followed_folder_is_watched(followed: Followed) -> None:
    before = uuids(followed.engine)
    (followed.outside / "kit/deep/x.md").write_text("edited")
    (followed.outside / "one.md").write_text("two")
    now = {"a/SKILL.md": "a", "a/one.md": "two", "kit/SKILL.md": "kit", "kit/deep/x.md": "edited"}
    followed.becomes(now)
    assert uuids(followed.engine) == before
    write(followed.outside, {"kit/deep/er/y.md": "y"})
    followed.becomes(now | {"kit/deep/er/y.md": "y"})
    write(followed.outside, {"kit/deep/er/y.md": "z"})
    followed.becomes(now | {"kit/deep/er/y.md": "z"})
    (followed.outside / "kit/deep/x.md").rename(followed.outside / "kit/w.md")
    (followed.outside / "kit/w.md").write_text("moved")
    now.pop("kit/deep/x.md")
    followed.becomes(now | {"kit/deep/er/y.md": "z", "kit/w.md": "moved"})
    assert uuids(followed.engine)["kit/w.md"] == before["kit/deep/x.md"]


def test_a_followed_folder_is_removed_renamed_and_made_again(followed: Followed) -> None:
    before = uuids(followed.engine)
    rest = {"a/SKILL.md": "a", "a/one.md": "one"}
    kit = {"kit/SKILL.md": "kit", "kit/deep/x.md": "x"}
    (followed.outside / "kit").rename(followed.outside / "elsewhere")
    followed.becomes(rest)
    (followed.outside / "elsewhere").rename(followed.outside / "kit")
    followed.becomes(rest | kit)
    assert uuids(followed.engine) == before
    (followed.outside / "kit/deep/x.md").write_text("edited")
    followed.becomes(rest | kit | {"kit/deep/x.md": "edited"})
    shutil.rmtree(followed.outside / "kit")
    followed.becomes(rest)
    write(followed.outside, kit)
    followed.becomes(rest | kit)
    assert uuids(followed.engine) == before


def test_a_link_into_a_followed_folder_is_set_elsewhere(followed: Followed) -> None:
    rest = {"a/SKILL.md": "a", "a/one.md": "one"}
    (followed.root / "kit").unlink()
    followed.becomes(rest)
    (followed.root / "kit").symlink_to(followed.outside / "other")
    followed.becomes(rest | {"kit/SKILL.md": "other"})
    (followed.outside / "other/SKILL.md").write_text("edited")
    followed.becomes(rest | {"kit/SKILL.md": "edited"})
    (followed.outside / "kit/SKILL.md").write_text("not shown any more")
    (followed.root / "beside").symlink_to(followed.outside / "kit")
    os.replace(followed.root / "beside", followed.root / "kit")
    followed.becomes(rest | {"kit/SKILL.md": "not shown any more", "kit/deep/x.md": "x"})


def test_a_link_in_a_followed_folder_is_set_elsewhere(followed: Followed) -> None:
    rest = {"a/SKILL.md": "a", "a/one.md": "one", "kit/SKILL.md": "kit", "kit/deep/x.md": "x"}
    (followed.outside / "current").symlink_to("kit")
    (followed.root / "now").symlink_to(followed.outside / "current")
    followed.becomes(rest | {"now/SKILL.md": "kit", "now/deep/x.md": "x"})
    (followed.outside / "next").symlink_to("other")
    os.replace(followed.outside / "next", followed.outside / "current")
    followed.becomes(rest | {"now/SKILL.md": "other"})
    (followed.outside / "other/SKILL.md").write_text("edited")
    followed.becomes(rest | {"now/SKILL.md": "edited"})


def test_a_skill_md_that_is_a_link_into_a_followed_folder(followed: Followed) -> None:
    rest = {"a/SKILL.md": "a", "a/one.md": "one", "kit/SKILL.md": "kit", "kit/deep/x.md": "x"}
    real = followed.outside / "texts/c.md"
    write(followed.outside, {"texts/c.md": "c"})
    write(followed.root, {"c/x.md": "x"})
    (followed.root / "c/SKILL.md").symlink_to(real)
    followed.becomes(rest | {"c/SKILL.md": "c", "c/x.md": "x"})
    before = uuids(followed.engine)
    real.write_text("edited")
    followed.becomes(rest | {"c/SKILL.md": "edited", "c/x.md": "x"})
    real.with_name("beside").write_text("replaced")
    os.replace(real.with_name("beside"), real)
    followed.becomes(rest | {"c/SKILL.md": "replaced", "c/x.md": "x"})
    real.unlink()
    followed.becomes(rest)
    real.write_text("again")
    followed.becomes(rest | {"c/SKILL.md": "again", "c/x.md": "x"})
    assert uuids(followed.engine) == before
