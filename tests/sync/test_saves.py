"""How editors and programs save files, seen by a watcher: the identity stays, and the last truth is told."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from skillfs.core.digest import xxh3
from skillfs.sync.engine import Engine
from tests.conftest import skill_md, write
from tests.sync import model
from tests.sync.harness import Follower, make_engine, rows, uuids
from tests.sync.watching import in_step, kept_in_step

SAVED = "pdf/refs/x.md"
TEXT, OTHER = "one line of text\n", "one LINE of text\n"

Steps = Iterator[None]


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
def store(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(model, "IGNORED", (*model.IGNORED, ".*.sw[a-p]", ".#*", "#*#"))
    write(
        root,
        {
            "pdf/SKILL.md": skill_md("pdf"),
            SAVED: TEXT,
            "pdf/refs/y.md": "another\n",
            "pdf/scripts/run.py": "print()\n",
            "lib/a/SKILL.md": skill_md("a"),
            "lib/a/docs/z.md": "z\n",
        },
    )
    engine = make_engine(root)
    engine.sync()
    with kept_in_step(engine):
        yield Store(root, engine, Follower(engine))


def at_once(store: Store, steps: Steps) -> list[tuple[str, str]]:
    """All the steps while nobody looks; returns the kinds and paths of the changes they came to."""
    engine, since = store.engine, store.engine.journal.revision()
    with engine._lock:
        for _ in steps:
            pass
    in_step(engine, store.root)
    store.follower.catch_up()
    assert store.follower.states == Follower(engine).states
    return sorted((item.kind, item.path) for item in engine.journal.since(since)[2])


def one_by_one(store: Store, steps: Steps) -> None:
    """Each step when the one before has been seen."""
    for _ in steps:
        in_step(store.engine, store.root)
        store.follower.catch_up()
    in_step(store.engine, store.root)
    store.follower.catch_up()
    assert store.follower.states == Follower(store.engine).states


# -- ways to save ------------------------------------------------------------------------------------------


def in_place(path: Path) -> Steps:
    path.write_text(OTHER)
    yield


def truncated_before(path: Path) -> Steps:
    with path.open("w") as file:
        yield
        file.write(OTHER[:4])
        file.flush()
        yield
        file.write(OTHER[4:])
    yield


def beside_and_replaced(path: Path) -> Steps:
    beside = path.with_name("x.md.tmp")
    beside.write_text(OTHER)
    yield
    os.replace(beside, path)
    yield


def beside_in_a_hidden_name(path: Path) -> Steps:
    beside = path.with_name(".x.md.Zk3Qa1")  # rsync
    with beside.open("w") as file:
        file.write(OTHER[:4])
        file.flush()
        yield
        file.write(OTHER[4:])
    os.utime(beside, (1e9, 1e9))
    yield
    beside.rename(path)
    yield


def in_another_folder_and_replaced(path: Path) -> Steps:
    beside = path.parent.parent / "scripts" / "tmp4711"
    beside.write_text(OTHER)
    yield
    os.replace(beside, path)
    yield


def linked_and_unlinked(path: Path) -> Steps:
    beside = path.with_name("tmp0815")
    beside.write_text(OTHER)
    yield
    path.unlink()
    os.link(beside, path)
    yield
    beside.unlink()
    yield


def without_a_name_and_linked(path: Path) -> Steps:
    handle = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o644)
    try:
        os.write(handle, OTHER.encode())
        yield
        path.unlink()
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.link(f"/proc/self/fd/{handle}", path.name, dst_dir_fd=folder, follow_symlinks=True)
        finally:
            os.close(folder)
    finally:
        os.close(handle)
    yield


def removed_and_written(path: Path) -> Steps:
    path.unlink()
    yield
    path.write_text(OTHER)
    yield


def by_vim_with_a_renamed_backup(path: Path) -> Steps:
    swap, probe, backup = path.with_name(".x.md.swp"), path.with_name("4913"), path.with_name("x.md~")
    swap.write_bytes(b"b0VIM 9.0")
    yield
    probe.touch()
    probe.unlink()
    path.rename(backup)
    yield
    with path.open("w") as file:
        file.write(OTHER)
        file.flush()
        os.fsync(file.fileno())
    yield
    path.chmod(0o644)
    backup.unlink()
    swap.unlink()
    yield


def by_vim_with_a_copied_backup(path: Path) -> Steps:
    swap, backup = path.with_name(".x.md.swp"), path.with_name("x.md~")
    swap.write_bytes(b"b0VIM 9.0")
    shutil.copy2(path, backup)
    yield
    with path.open("r+") as file:
        file.truncate(0)
        yield
        file.write(OTHER)
    yield
    backup.unlink()
    swap.unlink()
    yield


def by_emacs(path: Path) -> Steps:
    lock, autosave, backup = path.with_name(".#x.md"), path.with_name("#x.md#"), path.with_name("x.md~")
    lock.symlink_to("somebody@somewhere.4711:1700000000")
    autosave.write_text("half a te")
    yield
    path.rename(backup)
    path.write_text(OTHER)
    yield
    lock.unlink()
    autosave.unlink()
    yield


def by_an_editor_with_two_more_names(path: Path) -> Steps:
    new, old = path.with_name("x.md___jb_tmp___"), path.with_name("x.md___jb_old___")
    new.write_text(OTHER)
    yield
    path.rename(old)
    new.rename(path)
    yield
    old.unlink()
    yield


def with_a_linked_backup(path: Path) -> Steps:
    backup, new = path.with_name("x.md.orig"), path.with_name("x.md.new")
    os.link(path, backup)
    new.write_text(OTHER)
    yield
    os.replace(new, path)
    yield
    backup.unlink()
    yield


def with_the_times_it_had(path: Path) -> Steps:
    before = path.stat()
    path.write_text(OTHER)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    yield


def beside_with_the_times_it_had(path: Path) -> Steps:
    before = path.stat()
    beside = path.with_name("x.md.tmp")
    beside.write_text(OTHER)
    os.utime(beside, ns=(before.st_atime_ns, before.st_mtime_ns))
    yield
    os.replace(beside, path)
    yield


def through_a_memory_map(path: Path) -> Steps:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[:] = OTHER.encode()
    yield


def appended_and_kept_open(path: Path) -> Steps:
    with path.open("a") as file:
        for number in range(3):
            file.write(f"{number}\n")
            file.flush()
            yield
        in_the_end = path.read_text()
        path.write_text(OTHER)
        assert in_the_end.endswith("2\n")
        yield


def by_sed(path: Path) -> Steps:
    subprocess.run(["sed", "-i", "s/line/LINE/", path], check=True)
    yield


def by_another_program(path: Path) -> Steps:
    subprocess.run(["sh", "-c", 'printf "%s" "$1" > "$2"', "sh", OTHER, path], check=True)
    yield


WAYS: list[Callable[[Path], Steps]] = [
    in_place,
    truncated_before,
    beside_and_replaced,
    beside_in_a_hidden_name,
    in_another_folder_and_replaced,
    linked_and_unlinked,
    without_a_name_and_linked,
    removed_and_written,
    by_vim_with_a_renamed_backup,
    by_vim_with_a_copied_backup,
    by_emacs,
    by_an_editor_with_two_more_names,
    with_a_linked_backup,
    with_the_times_it_had,
    beside_with_the_times_it_had,
    through_a_memory_map,
    appended_and_kept_open,
    by_sed,
    by_another_program,
]


def is_saved(store: Store, uuid: bytes | None) -> None:
    row = rows(store.engine)[SAVED]
    assert row.uuid == uuid
    assert row.content == xxh3(OTHER.encode())


@pytest.mark.parametrize("way", WAYS)
def test_a_save_at_once(store: Store, way: Callable[[Path], Steps]) -> None:
    before = uuids(store.engine)
    assert at_once(store, way(store.root / SAVED)) == [("modified", SAVED)]
    is_saved(store, before[SAVED])
    assert uuids(store.engine) == before


@pytest.mark.parametrize("way", WAYS)
def test_a_slow_save(store: Store, way: Callable[[Path], Steps]) -> None:
    before = uuids(store.engine)
    one_by_one(store, way(store.root / SAVED))
    is_saved(store, before[SAVED])
    assert uuids(store.engine) == before


@pytest.mark.parametrize("way", WAYS)
def test_a_slow_save_of_a_skill_md(store: Store, way: Callable[[Path], Steps]) -> None:
    if way is in_another_folder_and_replaced:
        pytest.skip("there is no such folder")
    before = uuids(store.engine)
    path = store.root / "pdf/SKILL.md"
    path.write_text(TEXT)
    in_step(store.engine, store.root)
    one_by_one(store, way(path))
    assert uuids(store.engine) == before
    assert rows(store.engine)["pdf/SKILL.md"].content == xxh3(OTHER.encode())


def test_a_hundred_saves_without_pause(store: Store) -> None:
    # Not those that give the file's name, or all it holds, to another one first: whoever looks just then sees
    # a move.
    ways = [way for way in WAYS if way not in (by_an_editor_with_two_more_names, linked_and_unlinked)]
    before = uuids(store.engine)
    for number in range(100):
        for _ in ways[number % len(ways)](store.root / SAVED):
            pass
        (store.root / SAVED).write_text(TEXT)
    (store.root / SAVED).write_text(OTHER)
    in_step(store.engine, store.root)
    is_saved(store, before[SAVED])
    store.follower.catch_up()
    assert store.follower.states == Follower(store.engine).states


@pytest.mark.skipif(shutil.which("vim") is None, reason="vim is not installed")
@pytest.mark.parametrize("options", ["backupcopy=no", "backupcopy=yes", "nobackup nowritebackup"])
def test_vim_itself(store: Store, options: str, tmp_path: Path) -> None:
    before = uuids(store.engine)
    command = ["vim", "-N", "-u", "NONE", "-i", "NONE", "-es", "-c", f"set {options}", "-c", "%s/line/LINE/"]
    done = subprocess.run(
        [*command, "-c", "wq", store.root / SAVED],
        env={**os.environ, "HOME": str(tmp_path), "TERM": "dumb"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    assert (store.root / SAVED).read_text() == OTHER, done.stderr
    in_step(store.engine, store.root)
    is_saved(store, before[SAVED])
    assert uuids(store.engine) == before


# -- what is no change -------------------------------------------------------------------------------------


def touched(path: Path) -> Steps:
    os.utime(path)
    yield


def touched_by_the_program(path: Path) -> Steps:
    subprocess.run(["touch", path], check=True)
    yield


def written_with_the_same_bytes(path: Path) -> Steps:
    path.write_text(TEXT)
    yield


def replaced_by_the_same_bytes(path: Path) -> Steps:
    beside = path.with_name("x.md~")
    beside.write_text(TEXT)
    os.replace(beside, path)
    yield


def changed_in_mode(path: Path) -> Steps:
    path.chmod(0o600)
    yield
    path.chmod(0o644)
    yield


def opened_for_writing(path: Path) -> Steps:
    with path.open("r+"):
        yield
    yield


def renamed_there_and_back(path: Path) -> Steps:
    path.rename(path.with_name("w.md"))
    path.with_name("w.md").rename(path)
    yield


def beside_a_file_that_came_and_went(path: Path) -> Steps:
    path.with_name("new.md").write_text("new")
    path.with_name("new.md").unlink()
    yield


def beside_what_is_ignored(path: Path) -> Steps:
    path.with_name("x.pyc").write_text("new")
    path.with_name("node_modules").mkdir()
    path.with_name("node_modules").joinpath("y.md").write_text("y")
    yield


@pytest.mark.parametrize(
    "happens",
    [
        touched,
        touched_by_the_program,
        written_with_the_same_bytes,
        replaced_by_the_same_bytes,
        changed_in_mode,
        opened_for_writing,
        renamed_there_and_back,
        beside_a_file_that_came_and_went,
        beside_what_is_ignored,
    ],
)
def test_no_change(store: Store, happens: Callable[[Path], Steps]) -> None:
    revision = store.engine.journal.revision()
    assert at_once(store, happens(store.root / SAVED)) == []
    store.engine.sync()
    assert store.engine.journal.revision() == revision
