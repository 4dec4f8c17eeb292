"""A watcher on a real store: what it does when all goes well, and how it heals when something breaks."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillfs import SkillFileSystem
from skillfs.core.digest import xxh3
from skillfs.core.ignore import IgnoreRules
from skillfs.errors import InvalidArgumentError, StoreUnavailableError, UnreadableError
from skillfs.stores.base import Listed
from skillfs.stores.local import LocalFolder, LocalStore
from skillfs.sync import watchable, watcher
from skillfs.sync.engine import Engine
from skillfs.sync.inotify import FolderWatches
from skillfs.sync.watcher import Watcher, watch
from tests.conftest import skill_md, write
from tests.privileges import bound_by_permissions
from tests.sync.harness import Follower, make_engine, problems, rows, uuids
from tests.sync.watching import in_step, kept_in_step, reaches, short_queue, stays, wait_until

FILES = {
    "pdf/SKILL.md": skill_md("pdf"),
    "pdf/refs/x.md": "x\n",
    "pdf/refs/deep/y.md": "y\n",
    "lib/a/SKILL.md": skill_md("a"),
}
FOLDERS = 6


@pytest.fixture
def store(root: Path) -> Path:
    return write(root, FILES)


@pytest.fixture
def engine(store: Path) -> Engine:
    engine = make_engine(store)
    engine.sync()
    return engine


def threads() -> list[str]:
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("skillfs-"))


def open_files() -> Counter[str]:
    """How many files of those kinds are open that watching needs; others come and go with the garbage."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            kind = os.readlink(f"/proc/self/fd/{name}").partition(":[")[0]
            if kind == "pipe" or "inotify" in kind or "barrier" in kind:
                found[kind] += 1
    return found


def kill(thread: threading.Thread) -> None:
    """Have a thread end at its next step, as if by a fault that nobody foresaw."""
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


def told(caplog: pytest.LogCaptureFixture, words: str) -> int:
    return sum(words in record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)


# -- when all goes well ------------------------------------------------------------------------------------


def test_a_store_is_kept_in_step(engine: Engine, store: Path) -> None:
    follower = Follower(engine)
    with kept_in_step(engine) as watching:
        assert watching.status() == {
            "watch": "watching",
            "watch_reason": None,
            "watched_folders": FOLDERS,
        }
        write(store, {"pdf/new.md": "new", "lib/b/SKILL.md": skill_md("b"), "lib/b/c/d.md": "d"})
        (store / "pdf/refs/x.md").unlink()
        in_step(engine, store)
        assert watching.watched == FOLDERS + 2
        assert watching.restarts == 0
    follower.catch_up()
    assert follower.states == Follower(engine).states


def test_what_was_written_before_watching_began_is_in(engine: Engine, store: Path) -> None:
    write(store, {"pdf/new.md": "new", "c/SKILL.md": skill_md("c")})
    with kept_in_step(engine):
        in_step(engine, store)


def test_a_store_without_an_index_so_far(store: Path) -> None:
    engine = make_engine(store)
    with kept_in_step(engine) as watching:
        in_step(engine, store)
        assert watching.watched == FOLDERS


def test_what_is_written_while_watching_begins_is_in(store: Path) -> None:
    ended = threading.Event()

    def write_on() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            write(store, {f"s{number % 50}/SKILL.md": str(number), f"s{number % 50}/d{number}/x.md": "x"})

    for _ in range(3):
        engine = make_engine(store)
        writing = threading.Thread(target=write_on)
        writing.start()
        try:
            with kept_in_step(engine):
                ended.set()
                writing.join()
                in_step(engine, store)
        finally:
            ended.set()
            writing.join()
            ended.clear()


def test_many_hold_one_watcher(engine: Engine) -> None:
    holds = [watch(engine, 60) for _ in range(3)]
    assert len({id(hold.watcher) for hold in holds}) == 1
    reaches(holds[0].watcher, "watching")
    holds[0].release()
    holds[0].release()
    holds.pop(1)
    gc.collect()
    assert holds[-1].watcher.is_running
    assert threads() == ["skillfs-events", "skillfs-watch"]
    holds[-1].release()
    assert threads() == []


def test_held_again_at_once(engine: Engine, store: Path) -> None:
    for _ in range(30):
        hold = watch(engine, 60)
        hold.release()
        again = watch(engine, 60)
        assert again.watcher.is_running
        again.release()
    assert threads() == []


def test_held_and_let_go_by_many_threads(engine: Engine, store: Path) -> None:
    def run() -> None:
        for number in range(20):
            hold = watch(engine, 60)
            time.sleep(number % 3 * 0.002)
            hold.release()

    running = [threading.Thread(target=run) for _ in range(4)]
    last = watch(engine, 60)
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert last.watcher.is_running
    reaches(last.watcher, "watching")
    (store / "pdf/refs/x.md").write_text("edited")
    in_step(engine, store)
    last.release()
    assert threads() == []
    assert engine.watches is None


# -- what is not watched -----------------------------------------------------------------------------------


def test_ignored_folders_are_not_watched(store: Path) -> None:
    write(
        store,
        {
            ".git/objects/aa/bb": "",
            "pdf/node_modules/x/y/index.js": "",
            "pdf/private/notes/x.md": "",
            "pdf/__pycache__/x.pyc": "",
        },
    )
    engine = make_engine(store)
    engine.taking.ignore = IgnoreRules(["private"])
    engine.ignore = engine.taking.ignore
    with kept_in_step(engine) as watching:
        assert watching.watched == FOLDERS
        write(store, {".git/objects/cc/dd": "", "pdf/private/new/x.md": ""})
        write(store, {"pdf/.git/HEAD": "", "lib/venv/bin/python": "", "pdf/node_modules/z/index.js": ""})
        engine.sync()
        assert watching.watched == FOLDERS


def test_own_reads_wake_nobody(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    take_marks = Engine.take_marks

    def counted(self: Engine, folder: str | None = None, *, links: bool = False) -> bool:
        if not links:
            looks.append(folder)
        return take_marks(self, folder, links=links)

    fs = SkillFileSystem(store, index=":memory:", skip_instance_cache=True, watch=True)
    watching = fs._engine.watcher
    assert isinstance(watching, Watcher)
    reaches(watching, "watching")
    time.sleep(0.3)  # until nothing is young any more
    watches = fs._engine.watches
    assert watches is not None
    wait_until(lambda: watches.times() is None)
    monkeypatch.setattr(Engine, "take_marks", counted)
    for _ in range(20):
        fs.get_content("pdf/refs/x.md")
        fs.get_content("pdf/SKILL.md", start=2, length=5)
        fs.cat_file("pdf/refs/deep/y.md")
        fs.skill_tree()
        fs.skills()
        fs.find("")
        fs._engine.check()
        assert watches.barrier(30)
        assert not watches._marks
    assert looks == []
    del fs


def test_nothing_is_done_when_nothing_happens(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = []
    turn = Watcher._turn

    def counted(self: Watcher) -> None:
        turns.append(time.monotonic())
        turn(self)

    with kept_in_step(engine) as watching:
        time.sleep(0.3)
        monkeypatch.setattr(Watcher, "_turn", counted)
        started, used = time.monotonic(), time.process_time()
        while time.monotonic() - started < 4:
            time.sleep(1)
        used = time.process_time() - used
        beats = (time.monotonic() - started) / watcher.HEARTBEAT
        assert len(turns) <= 3 * beats + 3
        assert used < 0.4  # a tenth of what there was, on a machine that does much else
        assert watching.restarts == 0


# -- events are lost ---------------------------------------------------------------------------------------


def test_dropped_events(engine: Engine, store: Path, caplog: pytest.LogCaptureFixture) -> None:
    with short_queue(256):
        hold = watch(engine, 60)
        reaches(hold.watcher, "watching")
    try:
        for turn in range(3):
            assert engine.watches is not None
            with engine.watches._lock:  # nobody can take them as fast as they come
                for number in range(700):
                    write(store, {f"pdf/refs/{number}.md": f"{turn} {number}"})
            for number in range(200):
                write(store, {f"s{turn}/d{number % 40}/{number}.md": str(number)})
            write(store, {f"s{turn}/SKILL.md": "s"})
            (store / "pdf").rename(store / "swapping")
            (store / "swapping").rename(store / "pdf")
            (store / "pdf/refs/x.md").write_text(f"{turn}")
            in_step(engine, store)
        assert hold.watcher.overflows
        assert hold.watcher.restarts == 0
        assert told(caplog, "the kernel dropped events") == 1
        (store / "s2/d39/39.md").write_text("edited")
        in_step(engine, store)
    finally:
        hold.release()
    assert hold.watcher.overflows


def test_a_sync_after_dropped_events(engine: Engine, store: Path) -> None:
    with short_queue(16):
        hold = watch(engine, 60)
        reaches(hold.watcher, "watching")
    try:
        for number in range(40):
            for other in range(30):
                (store / f"pdf/refs/{other}.md").write_text(str(number))
            write(store, {f"pdf/new{number}/x.md": "x"})
            engine.sync()
            assert f"pdf/new{number}/x.md" in rows(engine)
        assert hold.watcher.overflows
        in_step(engine, store)
    finally:
        hold.release()


# -- something breaks --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_event_thread_dies(engine: Engine, store: Path, caplog: pytest.LogCaptureFixture) -> None:
    with kept_in_step(engine) as watching:
        watches = engine.watches
        assert watches is not None
        kill(watches._inotify)
        (store / "pdf/refs/x.md").write_text("this is the last that it reads")
        wait_until(lambda: not watches._inotify.is_alive())
        (store / "pdf/refs/x.md").write_text("nobody reads of this")
        write(store, {"lib/b/SKILL.md": skill_md("b")})
        in_step(engine, store)
        wait_until(lambda: watching.restarts == 1)
        reaches(watching, "watching")
        (store / "lib/b/SKILL.md").write_text("edited")
        in_step(engine, store)
    assert told(caplog, "watching begins anew: no events come any more") == 1


def test_an_event_fails(
    engine: Engine, store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    with kept_in_step(engine) as watching:
        for turn in (1, 2):
            watches = engine.watches
            assert watches is not None
            with monkeypatch.context() as broken:
                broken.setattr(watches, "_mark", fail)
                (store / "pdf/refs/x.md").write_text(f"this fails {turn}")
                wait_until(lambda: watches.mishap)  # noqa: B023  # called at once
            in_step(engine, store)
            wait_until(lambda: watching.restarts == turn)  # noqa: B023  # likewise
            reaches(watching, "watching")
            write(store, {f"lib/{turn}/SKILL.md": skill_md("b")})
            in_step(engine, store)
    assert told(caplog, "watching begins anew") == 1  # and not the same again and again


@pytest.mark.parametrize("error", [RuntimeError("unforeseen"), SystemExit(1), MemoryError()])
def test_a_look_fails(
    engine: Engine,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
) -> None:
    take_marks = Engine.take_marks
    faults = [error]

    def fail(self: Engine, *arguments: object, **options: object) -> bool:
        if faults:
            raise faults.pop()
        return take_marks(self, *arguments, **options)  # type: ignore[arg-type]

    with kept_in_step(engine) as watching:
        monkeypatch.setattr(Engine, "take_marks", fail)
        (store / "pdf/refs/x.md").write_text("edited")
        in_step(engine, store)
        assert watching.restarts == 1
        reaches(watching, "watching")
        write(store, {"lib/b/SKILL.md": skill_md("b")})
        in_step(engine, store)
    assert told(caplog, f"an error ({type(error).__name__})") == 1


def test_a_look_that_always_fails_is_tried_less_and_less(
    engine: Engine, store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    def fail(self: Engine) -> None:
        tries.append(time.monotonic())
        raise RuntimeError("for ever")

    with kept_in_step(engine) as watching:
        monkeypatch.setattr(watcher, "HEARTBEAT", 0.05)
        with monkeypatch.context() as broken:
            broken.setattr(Engine, "check", fail)
            assert engine.watches is not None
            engine.watches.mishap = RuntimeError("to begin with")
            wait_until(lambda: len(tries) == 5)
            assert tries[4] - tries[3] >= 0.05 * 8
            assert not watching.keeps_in_step()
        reaches(watching, "watching")
        (store / "pdf/refs/x.md").write_text("edited")
        in_step(engine, store)
    assert told(caplog, "an error (RuntimeError)") == 1


def test_the_thread_is_ended_by_force(engine: Engine, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "HEARTBEAT", 0.1)
    with kept_in_step(engine) as watching:
        for number in range(5):
            thread = watching._thread
            assert thread is not None
            kill(thread)
            write(store, {f"s{number}/SKILL.md": "s"})
            in_step(engine, store)
            reaches(watching, "watching")
        assert watching.is_running
    assert threads() == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_thread_dies_of_what_it_does_about_a_failure(
    engine: Engine, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise SystemExit

    with kept_in_step(engine) as watching:
        thread = watching._thread
        assert thread is not None
        with monkeypatch.context() as broken:
            broken.setattr(Watcher, "_has_failed", fail)
            broken.setattr(Engine, "take_marks", fail)
            (store / "pdf/refs/x.md").write_text("edited")
            thread.join(30)
        assert not thread.is_alive()
        reaches(watching, "watching")
        in_step(engine, store)
        (store / "pdf/refs/x.md").write_text("edited again")
        in_step(engine, store)


def test_a_kernel_that_tells_nothing(engine: Engine, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FolderWatches, "on_event", lambda self, event: None)
    monkeypatch.setattr(watcher, "MOST_WAIT", 0.2)
    with kept_in_step(engine, "polling") as watching:
        assert watching.reason == "the kernel does not tell what happens"
        (store / "pdf/refs/x.md").write_text("edited")
        in_step(engine, store)


# -- the root ----------------------------------------------------------------------------------------------


def test_the_root_is_renamed_for_a_while(
    engine: Engine, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, revision = uuids(engine), engine.journal.revision()
    with kept_in_step(engine) as watching:
        elsewhere = store.rename(store.with_name("elsewhere"))
        with pytest.raises(StoreUnavailableError):
            engine.sync()
        reaches(watching, "unavailable")
        assert "counts as away" in str(watching.reason)
        assert watching.watched == 0
        with pytest.raises(StoreUnavailableError):
            engine.ensure_fresh("", 0)
        assert (uuids(engine), engine.journal.revision()) == (before, revision)
        time.sleep(1.5)
        (elsewhere / "pdf/refs/x.md").write_text("edited meanwhile")
        elsewhere.rename(store)
        reaches(watching, "watching")
        in_step(engine, store)
        assert uuids(engine) == before
        (store / "pdf/refs/x.md").write_text("edited afterwards")
        in_step(engine, store)
        assert uuids(engine) == before
    assert told(caplog, "the store is unavailable") == 1


def test_the_root_is_removed_and_made_again(engine: Engine, store: Path) -> None:
    before = uuids(engine)
    with kept_in_step(engine) as watching:
        shutil.rmtree(store)
        reaches(watching, "unavailable")
        with pytest.raises(StoreUnavailableError):
            engine.sync()
        write(store, FILES)
        reaches(watching, "watching")
        in_step(engine, store)
        assert uuids(engine) == before
        (store / "pdf/refs/x.md").write_text("edited")
        in_step(engine, store)
        for number in range(5):  # faster than anybody looks
            shutil.rmtree(store)
            write(store, FILES | {"pdf/refs/x.md": f"{number}"})
        in_step(engine, store)
        assert uuids(engine) == before


def test_a_folder_above_the_root_is_replaced(tmp_path: Path) -> None:
    """No event tells of that, and the first to look may look at one folder only."""
    root = write(tmp_path / "above/store", FILES)
    write(tmp_path / "other/store", {"pdf/SKILL.md": skill_md("pdf", "Another."), "c/SKILL.md": "c"})
    engine = make_engine(root)
    engine.sync()
    with kept_in_step(engine) as watching:
        with engine._lock:
            (tmp_path / "above").rename(tmp_path / "old")
            (tmp_path / "other").rename(tmp_path / "above")
            (tmp_path / "old/store/pdf/refs/x.md").write_text("edited")
            assert engine.watches is not None
            assert engine.watches.barrier(30)
            engine.take_marks()
            assert not watching.keeps_in_step()
        engine.sync()
        assert "c/SKILL.md" in rows(engine)
        in_step(engine, root)
        wait_until(lambda: watching.restarts == 1)
        reaches(watching, "watching")
        (root / "c/SKILL.md").write_text("edited")
        in_step(engine, root)


@pytest.mark.parametrize("asked", [True, False])
def test_the_root_is_replaced_by_another_folder(
    engine: Engine, store: Path, caplog: pytest.LogCaptureFixture, asked: bool
) -> None:
    before = uuids(engine)
    other = write(store.with_name("other"), {"pdf/SKILL.md": skill_md("pdf", "Another."), "c/SKILL.md": "c"})
    with kept_in_step(engine) as watching:
        (store / "lib").rename(other / "lib")
        store.rename(store.with_name("old"))
        other.rename(store)
        if asked:
            engine.sync()
            assert "c/SKILL.md" in rows(engine)
        in_step(engine, store)
        wait_until(lambda: watching.restarts == 1)
        reaches(watching, "watching")
        assert told(caplog, "the root folder was replaced") == 1
        assert uuids(engine)["pdf/SKILL.md"] == before["pdf/SKILL.md"]
        assert uuids(engine)["lib/a"] == before["lib/a"]
        write(store, {"c/new.md": "new", "lib/a/SKILL.md": skill_md("a", "Edited.")})
        in_step(engine, store)
        write(store.with_name("old"), {"d/SKILL.md": "d"})
        in_step(engine, store)


def test_the_root_may_not_be_read_for_a_while(store: Path) -> None:
    engine = make_engine(store)
    with bound_by_permissions():  # so are the threads that begin meanwhile
        engine.sync()
        before = uuids(engine)
        with kept_in_step(engine):
            try:
                store.chmod(0)
                wait_until(lambda: [p for p in problems(engine) if p[1] == "unreadable"])
                engine.sync()
                assert uuids(engine) == before
            finally:
                store.chmod(0o755)
            in_step(engine, store)
            assert uuids(engine) == before
            (store / "pdf/refs/x.md").write_text("edited")
            in_step(engine, store)


def test_the_root_is_replaced_by_one_that_may_not_be_read(store: Path) -> None:
    engine = make_engine(store)
    with bound_by_permissions():
        engine.sync()
        before = uuids(engine)
        assert isinstance(engine.store, LocalStore)
        with kept_in_step(engine) as watching:
            store.rename(store.with_name("old"))
            store.mkdir(0)
            reaches(watching, "unavailable")
            for _ in range(5):
                with pytest.raises(UnreadableError):
                    engine.sync()
            assert uuids(engine) == before
            assert engine.store._retired == []  # they are in use
            store.rmdir()
            store.with_name("old").rename(store)
            reaches(watching, "watching")
            (store / "pdf/refs/x.md").write_text("edited")
            in_step(engine, store)
            assert uuids(engine) == before


def test_a_listing_notices_a_replaced_root_at_once(store: Path) -> None:
    other = write(store.with_name("other"), {"c/SKILL.md": skill_md("c")})
    fs = SkillFileSystem(store, index=":memory:", skip_instance_cache=True, watch=True, max_age=0)
    watching = fs._engine.watcher
    assert isinstance(watching, Watcher)
    for _ in range(3):
        reaches(watching, "watching")
        store.rename(store.with_name("old"))
        other.rename(store)
        assert [s.name for s in fs.skills()] == ["c"]
        reaches(watching, "watching")
        store.rename(other)
        store.with_name("old").rename(store)
        assert [s.name for s in fs.skills()] == ["a", "pdf"]
    del fs


def test_the_root_is_replaced_by_a_link(engine: Engine, store: Path) -> None:
    before = uuids(engine)
    one = store.with_name("one")
    two = write(store.with_name("two"), FILES | {"pdf/refs/x.md": "two"})
    with kept_in_step(engine) as watching:
        store.rename(one)
        store.symlink_to(one)
        (one / "pdf/refs/x.md").write_text("one")
        (one / "lib/link").symlink_to("../pdf")
        in_step(engine, store)
        assert rows(engine)["lib/link"].target == "pdf"
        (one / "lib/link").unlink()
        store.with_name("next").symlink_to(two)
        os.replace(store.with_name("next"), store)
        in_step(engine, store)
        reaches(watching, "watching")
        (two / "pdf/refs/x.md").write_text("two, edited")
        in_step(engine, store)
        assert uuids(engine) == before


def test_a_store_opened_through_a_link(store: Path) -> None:
    """It is what the link led to when it was opened."""
    link = store.with_name("link")
    link.symlink_to(store)
    engine = make_engine(link)
    engine.sync()
    with kept_in_step(engine) as watching:
        (link / "pdf/refs/x.md").write_text("edited")
        in_step(engine, store)
        link.unlink()
        link.symlink_to(write(store.with_name("other"), {"c/SKILL.md": "c"}))
        (store / "pdf/refs/x.md").write_text("edited again")
        in_step(engine, store)
        assert watching.restarts == 0


def mounts() -> Callable[..., None]:
    """What mounts, where this process may; undone by `umount`."""

    def run(*command: object) -> None:
        subprocess.run([str(word) for word in command], check=True, capture_output=True)

    return run


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., None]]:
    point = tmp_path / "probe"
    point.mkdir()
    try:
        mounts()("mount", "-t", "tmpfs", "none", point)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nothing can be mounted here")
    mounts()("umount", point)
    yield mounts()
    gc.collect()
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if line.split()[4].startswith(str(tmp_path)):
            subprocess.run(["umount", "-l", line.split()[4]], check=False)


@pytest.mark.parametrize("kind", ["device", "bind"])
@pytest.mark.parametrize("watched", [True, False])
def test_the_root_is_unmounted_for_a_while(
    tmp_path: Path, mount: Callable[..., None], kind: str, watched: bool
) -> None:
    disk, root = tmp_path / "disk", tmp_path / "root"
    disk.mkdir()
    root.mkdir()
    if kind == "device":
        mount("mount", "-t", "tmpfs", "none", disk)
    write(disk, FILES)
    mount("mount", "--bind", disk, root)
    engine = make_engine(root, tmp_path / "index.sqlite")
    engine.sync()
    before, revision = uuids(engine), engine.journal.revision()
    with kept_in_step(engine) if watched else contextlib.nullcontext() as watching:
        mount("umount", "-l", root)
        assert list(root.iterdir()) == []
        with pytest.raises(StoreUnavailableError, match="mounted"):
            engine.sync()
        if watching is not None:
            reaches(watching, "unavailable")
            time.sleep(1.2)
            assert watching.state == "unavailable"
        assert (uuids(engine), engine.journal.revision()) == (before, revision)
        mount("mount", "--bind", disk, root)
        if watching is not None:
            reaches(watching, "watching")
        engine.sync()
        assert (uuids(engine), engine.journal.revision()) == (before, revision)
        (root / "pdf/refs/x.md").write_text("edited")
        if watching is None:
            engine.sync()
        in_step(engine, root)
        assert uuids(engine) == before


def test_the_root_is_unmounted_while_another_process_opens_the_store(
    tmp_path: Path, mount: Callable[..., None]
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    mount("mount", "-t", "tmpfs", "none", root)
    write(root, FILES)
    engine = make_engine(root, tmp_path / "index.sqlite")
    engine.sync()
    before, revision = uuids(engine), engine.journal.revision()
    mount("umount", "-l", root)
    other = make_engine(root, tmp_path / "index.sqlite")
    with pytest.raises(StoreUnavailableError):
        other.sync()
    assert (uuids(other), other.journal.revision()) == (before, revision)
    with kept_in_step(other, "unavailable"):
        time.sleep(1.2)
    mount("mount", "-t", "tmpfs", "none", root)
    write(root, FILES)
    other.sync()
    assert uuids(other) == before


def test_a_root_that_was_empty_and_is_replaced_by_an_empty_one(
    tmp_path: Path, mount: Callable[..., None]
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    engine = make_engine(root)
    engine.sync()
    with kept_in_step(engine) as watching:
        mount("mount", "-t", "tmpfs", "none", root)
        wait_until(lambda: watching.restarts == 1)
        reaches(watching, "watching")
        write(root, FILES)
        in_step(engine, root)


def test_a_followed_folder_is_unmounted_for_a_while(tmp_path: Path, mount: Callable[..., None]) -> None:
    disk, outside, root = tmp_path / "disk", tmp_path / "outside", tmp_path / "root"
    for folder in (disk, outside, root):
        folder.mkdir()
    mount("mount", "-t", "tmpfs", "none", disk)
    write(disk, {"kit/SKILL.md": "kit"})
    mount("mount", "--bind", disk, outside)
    (root / "kit").symlink_to(outside / "kit")
    engine = make_engine(root, follow=[outside])
    engine.sync()
    before = uuids(engine)
    assert "kit/SKILL.md" in before
    with kept_in_step(engine) as watching:
        mount("umount", "-l", outside)
        reaches(watching, "unavailable")
        assert uuids(engine) == before
        mount("mount", "--bind", disk, outside)
        reaches(watching, "watching")
        assert uuids(engine) == before
        (disk / "kit/SKILL.md").write_text("edited")
        wait_until(lambda: rows(engine)["kit/SKILL.md"].content == xxh3(b"edited"))
        stays(engine)


# -- where watching cannot work ----------------------------------------------------------------------------

_LIMITED = """
import logging, sys, time
from pathlib import Path
limit, value, store = sys.argv[1:]
Path("/proc/sys/user", limit).write_text(value)
logging.basicConfig(level=logging.WARNING, format="%(message)s")
from skillfs import SkillFileSystem

def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, fs.status()
        time.sleep(0.02)

fs = SkillFileSystem(store, index=":memory:", watch=True)
until(lambda: fs.status()["watch"] != "starting")
print(fs.status()["watch"], fs.status()["watched_folders"], fs.status()["watch_reason"], sep="; ")
with fs.watch() as feed:
    Path(store, "late").mkdir()
    Path(store, "late/SKILL.md").write_text("late")
    deadline = time.monotonic() + 60
    seen = set()
    while "late/SKILL.md" not in seen:
        assert time.monotonic() < deadline
        changes = feed.get(1)
        seen |= {item.path for item in changes.items} if changes else set()
print("seen; ", fs.status()["watch"], sep="")
# Folder by folder until no more can be watched.
for number in range(20):
    Path(store, f"late/{number}").mkdir()
    Path(store, f"late/{number}/x.md").write_text("x")
until(lambda: len(fs.find("late")) == 21)
until(lambda: fs.status()["watch"] == "polling")
print(fs.status()["watch"], fs.status()["watched_folders"], sep="; ")
Path(store, "late/19/x.md").write_text("edited")
fs.sync()
assert fs.cat_file("late/19/x.md") == b"edited"
"""


@pytest.mark.parametrize(
    ("limit", "value", "first", "reason"),
    [
        ("max_inotify_watches", 4, "polling; 0", "fs.inotify.max_user_watches"),
        ("max_inotify_watches", 12, "watching; 6", "fs.inotify.max_user_watches"),
        ("max_inotify_instances", 0, "polling; 0", "fs.inotify.max_user_instances"),
    ],
)
def test_limits_of_this_user(store: Path, limit: str, value: int, first: str, reason: str) -> None:
    unshare = ["unshare", "-U", "-r", "--"]
    probe = [*unshare, "sh", "-c", f"echo {value} > /proc/sys/user/{limit}"]
    try:
        subprocess.run(probe, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no namespace of users can be made here")
    done = subprocess.run(
        [*unshare, sys.executable, "-c", _LIMITED, limit, str(value), store],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(first)
    assert lines[-1] == "polling; 0"
    assert done.stderr.count("not watched but looked at now and then") == 1
    assert reason in done.stderr


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "LOCAL_INTERVAL", 0.1)
    monkeypatch.setattr(watcher, "CHECK_COST", 0.0)
    monkeypatch.setattr(watcher, "HEARTBEAT", 0.1)


@pytest.mark.usefixtures("impatient")
def test_polling_because_the_environment_says_so(
    engine: Engine, store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SKILLFS_WATCH", "poll")
    with kept_in_step(engine, "polling") as watching:
        assert watching.status() == {
            "watch": "polling",
            "watch_reason": "SKILLFS_WATCH says so",
            "watched_folders": 0,
        }
        write(store, {"lib/b/SKILL.md": skill_md("b")})
        in_step(engine, store)
        store.rename(store.with_name("away"))
        reaches(watching, "unavailable")
        store.with_name("away").rename(store)
        reaches(watching, "polling")
        (store / "pdf/refs/x.md").write_text("edited")
        in_step(engine, store)
    assert told(caplog, "SKILLFS_WATCH says so") == 1


def test_the_environment_says_what_is_not_understood(
    engine: Engine, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLFS_WATCH", "never")
    with pytest.raises(InvalidArgumentError, match="SKILLFS_WATCH"):
        watch(engine, 60)
    with pytest.raises(InvalidArgumentError, match="SKILLFS_WATCH"):
        SkillFileSystem(store, index=":memory:", skip_instance_cache=True, watch=True)
    assert threads() == []
    monkeypatch.setenv("SKILLFS_WATCH", "auto")
    with kept_in_step(engine):
        pass


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", ["nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "virtiofs"])
def test_a_network_filesystem_is_polled(
    engine: Engine, store: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(watchable, "filesystem_type", lambda path: kind)
    with kept_in_step(engine, "polling") as watching:
        assert kind in str(watching.reason)
        write(store, {"lib/b/SKILL.md": skill_md("b")})
        in_step(engine, store)


@pytest.mark.usefixtures("impatient")
def test_watching_is_tried_again(engine: Engine, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "AGAIN_SECONDS", 0.5)
    kinds = ["nfs"]
    monkeypatch.setattr(watchable, "filesystem_type", lambda path: kinds[0])
    with kept_in_step(engine, "polling") as watching:
        kinds[0] = "ext4"
        reaches(watching, "watching")
        (store / "pdf/refs/x.md").write_text("edited")
        in_step(engine, store)


# -- sync is a barrier -------------------------------------------------------------------------------------

_WRITER = """
import sys
for line in sys.stdin:
    path, text = line.rstrip("\\n").split("\\t")
    with open(path, "w") as file:
        file.write(text)
    print(flush=True)
"""


def test_sync_after_writes_of_this_process(engine: Engine, store: Path) -> None:
    with kept_in_step(engine) as watching:
        for number in range(500):
            (store / "pdf/refs/x.md").write_text(str(number))
            (store / f"pdf/refs/{number % 7}.md").write_text(str(number))
            engine.sync()
            in_index(engine, store, "pdf/refs/x.md", f"pdf/refs/{number % 7}.md")
        assert watching.restarts == 0
        in_step(engine, store)


def in_index(engine: Engine, store: Path, *paths: str) -> None:
    for path in paths:
        row = engine.catalog.by_path(path.split("/"))
        assert row is not None, path
        assert engine.store.in_step(row.place, row.signature.removesuffix(b"?")), path


def test_sync_after_writes_of_other_threads_and_processes(engine: Engine, store: Path) -> None:
    with (
        kept_in_step(engine) as watching,
        subprocess.Popen(
            [sys.executable, "-c", _WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other,
    ):
        assert other.stdin is not None
        assert other.stdout is not None
        faults = []

        def run(name: str) -> None:
            for number in range(250):
                path = f"{name}/{number % 5}.md"
                (store / path).write_text(f"{number}")
                engine.sync()
                row = engine.catalog.by_path(path.split("/"))
                if row is None or not engine.store.in_step(row.place, row.signature.removesuffix(b"?")):
                    faults.append((name, number))

        running = [threading.Thread(target=run, args=(name,)) for name in ("pdf", "lib/a", "pdf/refs/deep")]
        for thread in running:
            thread.start()
        for number in range(500):
            path = f"pdf/refs/{number % 7}.md"
            print(store / path, number, sep="\t", file=other.stdin, flush=True)
            other.stdout.readline()
            engine.sync()
            in_index(engine, store, path)
        for thread in running:
            thread.join()
        assert not faults
        assert watching.restarts == 0
        in_step(engine, store)


def test_sync_does_not_look_everywhere_when_watching(
    engine: Engine, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kept_in_step(engine):
        time.sleep(0.2)
        engine.sync()
        listed = []
        entries = LocalFolder.entries

        def counted(folder: LocalFolder) -> Listed:
            listed.append(os.readlink(f"/proc/self/fd/{folder.fileno()}"))
            return entries(folder)

        with engine._lock:
            monkeypatch.setattr(LocalFolder, "entries", counted)
            engine.sync()
            assert listed == []
            (store / "pdf/refs/x.md").write_text("edited")
            engine.sync()
            assert listed == [str(store / "pdf/refs")]


def test_sync_while_watching_begins(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(store)
    engine.sync()
    gate, there = threading.Event(), threading.Event()
    watch_all = type(engine.taking).watch_all

    def slow(taking: object) -> None:
        there.set()
        assert gate.wait(60)
        watch_all(taking)  # type: ignore[arg-type]

    monkeypatch.setattr(type(engine.taking), "watch_all", slow)
    hold = watch(engine, 60)
    try:
        assert there.wait(60)
        assert hold.watcher.state == "starting"
        # Somebody who has been told all by watches that broke since looks at what the new ones know.
        (store / "lib/a/SKILL.md").write_text("told by others")
        assert engine.take_marks()
        in_index(engine, store, "lib/a/SKILL.md")
        for number in range(20):
            (store / "pdf/refs/x.md").write_text(str(number))
            write(store, {f"s{number}/SKILL.md": "s"})
            engine.sync()
            in_index(engine, store, "pdf/refs/x.md", f"s{number}/SKILL.md")
        gate.set()
        reaches(hold.watcher, "watching")
        in_step(engine, store)
    finally:
        gate.set()
        hold.release()


def test_sync_while_polling_and_while_unavailable(
    engine: Engine, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLFS_WATCH", "poll")
    with kept_in_step(engine, "polling") as watching:
        for number in range(50):
            (store / "pdf/refs/x.md").write_text(str(number))
            engine.sync()
            in_index(engine, store, "pdf/refs/x.md")
        store.rename(store.with_name("away"))
        for _ in range(3):
            with pytest.raises(StoreUnavailableError):
                engine.sync()
        reaches(watching, "unavailable")
        with pytest.raises(StoreUnavailableError):
            engine.sync()
        store.with_name("away").rename(store)
        (store / "pdf/refs/x.md").write_text("back")
        engine.sync()
        in_index(engine, store, "pdf/refs/x.md")


# -- the end -----------------------------------------------------------------------------------------------


def test_nothing_is_left_when_it_is_let_go(engine: Engine, store: Path) -> None:
    engine.sync()
    files = open_files()
    for _ in range(3):
        hold = watch(engine, 60)
        reaches(hold.watcher, "watching")
        (store / "pdf/refs/x.md").write_text("edited")
        engine.sync()
        assert threads() == ["skillfs-events", "skillfs-watch"]
        assert open_files() != files
        hold.release()
        assert threads() == []
        assert open_files() == files
        assert engine.watches is None
        assert not hold.watcher.is_running


def test_it_ends_in_the_middle_of_a_burst(engine: Engine, store: Path) -> None:
    for turn in range(5):
        hold = watch(engine, 60)
        reaches(hold.watcher, "watching")
        for number in range(200):
            write(store, {f"s{turn}/{number}/x.md": "x"})
        started = time.monotonic()
        hold.release()
        assert time.monotonic() - started < 10
        assert threads() == []


def test_it_ends_with_its_filesystem(store: Path) -> None:
    fs = SkillFileSystem(store, index=":memory:", skip_instance_cache=True, watch=True)
    watching = fs._engine.watcher
    assert isinstance(watching, Watcher)
    reaches(watching, "watching")
    del fs
    gc.collect()
    wait_until(lambda: threads() == [])
    assert not watching.is_running


_FORKING = """
import os, sys, threading, time, warnings
from pathlib import Path
from skillfs import SkillFileSystem
warnings.simplefilter("ignore", DeprecationWarning)
store, index = Path(sys.argv[1]), sys.argv[2]

def until(condition, what):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, (what, fs.status())
        time.sleep(0.02)

def inotify():
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += "inotify" in os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass
    return count

def is_kept_in_step(name):
    until(lambda: fs.status()["watch"] == "watching", "watching")
    assert inotify() == 1, inotify()
    (store / f"{name}.d").mkdir()
    (store / f"{name}.d/SKILL.md").write_text(name)
    until(lambda: f"{name}.d" in [s.path for s in fs.skills()], "seen")

fs = SkillFileSystem(store, index=index, watch=True)
is_kept_in_step("before")
for number in range(3):
    child = os.fork()
    if child == 0:
        assert inotify() == 0
        assert threading.active_count() == 1
        fs.skills()
        is_kept_in_step(f"child{number}")
        fs.sync()
        os._exit(0)
    is_kept_in_step(f"parent{number}")
    assert os.waitpid(child, 0)[1] == 0
    is_kept_in_step(f"parent_after{number}")
print("done")
"""


@pytest.mark.parametrize("index", [":memory:", "index.sqlite"])
def test_a_fork(store: Path, tmp_path: Path, index: str) -> None:
    where = index if index == ":memory:" else str(tmp_path / index)
    done = subprocess.run(
        [sys.executable, "-c", _FORKING, store, where], capture_output=True, text=True, timeout=110
    )
    assert done.stdout == "done\n", done.stderr
    assert done.returncode == 0


_NOISY = """
import logging, sys, threading, time
from pathlib import Path
from skillfs import SkillFileSystem
store, many = Path(sys.argv[1]), int(sys.argv[2])
fs = SkillFileSystem(store, index=":memory:", watch=True)
deadline = time.monotonic() + 60
while fs.status()["watch"] != "watching":
    assert time.monotonic() < deadline
    time.sleep(0.02)
print("watching", flush=True)
sys.stdin.readline()
ended = threading.Event()
def storm():
    number = 0
    while not ended.is_set():
        number += 1
        (store / f"pdf/refs/{number % 100}.md").write_text("x")
writing = [threading.Thread(target=storm) for _ in range(2)]
for thread in writing: thread.start()
for number in range(many):
    # What breaks again and again.
    watches = fs._engine.watches
    if watches is not None:
        watches.mishap = RuntimeError("x" * 1000)
    time.sleep(0.01)
ended.set()
for thread in writing: thread.join()
started = time.monotonic()
watcher = fs._engine.watcher
fs._holds[0].release()
print("stopped", time.monotonic() - started < 9, watcher.overflows > 0, flush=True)
"""


def test_nobody_reads_standard_error(store: Path) -> None:
    with short_queue(64):
        process = subprocess.Popen(
            [sys.executable, "-c", _NOISY, store, "500"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "watching\n"
    with process:
        process.stdin.write("\n")
        process.stdin.flush()
        try:
            out = process.communicate(timeout=100)
        finally:
            process.kill()
    assert out[0] == "stopped True True\n", out
    assert process.returncode == 0
    assert len(out[1]) < 20_000
