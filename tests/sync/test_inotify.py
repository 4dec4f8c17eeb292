"""Watches on real folders: which marks are left by what, and that none is missing."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillfs.sync import inotify
from skillfs.sync.inotify import FolderWatches
from skillfs.sync.marks import Marks
from tests.conftest import write
from tests.privileges import bound_by_permissions
from tests.sync.watching import short_queue, wait_until

PATIENCE = 20.0


class Watched(FolderWatches):
    """Watches of a folder and all below it, looked at by hand."""

    def __init__(self, root: Path, ignores: Callable[[str, bool], bool] | None = None) -> None:
        self.woken = 0
        super().__init__(self._wake, ignores)
        self.root = root
        for at, _, _ in os.walk(root):
            self.watch(Path(at))

    def _wake(self) -> None:
        self.woken += 1

    def watch(self, folder: Path, path: str | None = None, beside: str = "") -> None:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            inode = str(os.fstat(handle).st_ino).encode()
            shown = folder.relative_to(self.root).as_posix() if path is None else path
            self.add(handle, inode, "" if shown == "." else shown, beside)
        finally:
            os.close(handle)

    def marks(self) -> Marks:
        """The marks of all that happened until now."""
        assert self.barrier(PATIENCE)
        return self.take()


def inotify_files() -> int:
    """How many inotify instances this process holds."""
    count = 0
    for entry in os.scandir("/proc/self/fd"):
        try:
            count += os.readlink(entry.path) == "anon_inode:inotify"
        except OSError:
            continue
    return count


@pytest.fixture
def watches(root: Path) -> Iterator[Watched]:
    write(root, {"a/x.md": "x", "a/sub/y.md": "y", "b/z.md": "z"})
    found = Watched(root)
    yield found
    found.close()


# -- what leaves marks -------------------------------------------------------------------------------------


def test_nothing_has_happened(watches: Watched) -> None:
    assert watches.count == 4
    assert not watches.marks()
    assert watches.times() is None
    assert watches.woken == 0


def test_a_write_marks_its_folder(watches: Watched, root: Path) -> None:
    before = time.monotonic()
    (root / "a/x.md").write_text("edited")
    assert watches.marks() == Marks(folders={"a"})
    assert watches.woken == 1
    (root / "top.md").write_text("new")
    assert watches.barrier(PATIENCE)
    times = watches.times()
    assert times is not None
    assert before <= times[0] <= times[1] <= time.monotonic()
    assert watches.take() == Marks(folders={""})


@pytest.mark.parametrize(
    "happens",
    [
        lambda path: path.write_text("other"),
        lambda path: path.unlink(),
        lambda path: path.chmod(0o600),
        lambda path: os.utime(path),
        lambda path: os.truncate(path, 0),
        lambda path: path.with_name("new.md").touch(),
        lambda path: path.with_name("new").mkdir(),
        lambda path: path.with_name("link").symlink_to("x.md"),
        lambda path: os.link(path, path.with_name("name.md")),
        lambda path: os.mkfifo(path.with_name("pipe")),
        lambda path: path.rename(path.with_name("other.md")),
    ],
)
def test_whatever_happens_marks_the_folder(
    watches: Watched, root: Path, happens: Callable[[Path], object]
) -> None:
    happens(root / "a/x.md")
    assert watches.marks().folders == {"a"}


def test_a_memory_map_marks_the_folder_when_it_is_given_up(watches: Watched, root: Path) -> None:
    with (root / "a/x.md").open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[:1] = b"y"
    assert watches.marks().folders == {"a"}


def test_reading_leaves_no_mark(watches: Watched, root: Path) -> None:
    for at, folders, files in os.walk(root):
        for name in (*folders, *files):
            (Path(at) / name).stat()
        for name in files:
            (Path(at) / name).read_bytes()
            os.access(Path(at) / name, os.R_OK)
    assert not watches.marks()
    assert watches.woken == 0


def test_a_folder_that_comes_is_to_be_compared_whole(watches: Watched, root: Path) -> None:
    (root / "c").mkdir()
    marks = watches.marks()
    assert (marks.folders, marks.trees) == ({""}, {"c"})
    assert marks.arrivals  # something may have been moved into it
    (root / "c").chmod(0o700)
    assert watches.marks().trees == {"c"}
    (root / "c").rmdir()
    assert watches.marks() == Marks(folders={""}, places={"c": None})


def test_a_removed_tree_marks_its_folders(watches: Watched, root: Path) -> None:
    shutil.rmtree(root / "a")
    marks = watches.marks()
    assert marks.folders == {"", "a", "a/sub"}
    assert not marks.moves
    wait_until(lambda: watches.count == 2)


def test_a_move_is_told_with_its_origin(watches: Watched, root: Path) -> None:
    (root / "a/x.md").rename(root / "b/w.md")
    marks = watches.marks()
    assert marks.folders == {"a", "b"}
    assert marks.moves == {"b/w.md": "a/x.md"}
    assert marks.arrivals
    assert marks.departures


def test_a_moved_folder_is_named_as_it_was_until_it_is_watched_anew(watches: Watched, root: Path) -> None:
    (root / "a").rename(root / "b/a")
    (root / "b/a/x.md").rename(root / "b/a/w.md")
    marks = watches.marks()
    assert marks.moves == {"b/a": "a", "b/a/w.md": "a/x.md"}
    assert marks.trees >= {"b/a"}
    watches.watch(root / "b/a")
    watches.watch(root / "b/a/sub")
    watches.forget(["a", "a/sub"])
    assert watches.count == 4
    (root / "b/a/sub/y.md").write_text("edited")
    assert watches.marks().folders == {"b/a/sub"}


def test_a_move_out_of_sight_and_one_in(watches: Watched, root: Path, tmp_path: Path) -> None:
    (root / "a/x.md").rename(tmp_path / "out.md")
    marks = watches.marks()
    assert (marks.folders, marks.moves, marks.departures, marks.arrivals) == ({"a"}, {}, True, False)
    (tmp_path / "out.md").rename(root / "b/in.md")
    marks = watches.marks()
    assert (marks.folders, marks.moves, marks.departures, marks.arrivals) == ({"b"}, {}, False, True)


def test_many_moves_out_of_sight_are_not_remembered_for_ever(
    watches: Watched, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inotify, "_MOST_UNPAIRED", 10)
    for number in range(30):
        (root / "a/new").write_text("")
        (root / "a/new").rename(tmp_path / str(number))
    (root / "a/x.md").rename(root / "b/x.md")
    assert watches.marks().moves == {"b/x.md": "a/x.md"}
    assert len(watches._unpaired) <= 10


def test_a_name_that_is_no_text_marks_its_folder(watches: Watched, root: Path) -> None:
    name = os.fsencode(root / "a") + b"/\xff.md"
    with open(name, "wb"):
        pass
    assert watches.marks().folders == {"a"}
    os.rename(name, root / "b/y.md")
    marks = watches.marks()
    assert (marks.folders, marks.moves) == ({"a", "b"}, {})


def test_what_is_ignored_leaves_no_mark_but_its_moves_are_known(root: Path) -> None:
    write(root, {"a/x.md": "x"})
    watches = Watched(root, lambda name, is_folder: name in (".git", "x.md~") or (is_folder and name == "v"))
    try:
        (root / ".git").mkdir()
        (root / "a/x.md~").write_text("1")
        (root / "a/x.md~").write_text("2")
        (root / "a/x.md~").unlink()
        (root / "v").mkdir()
        (root / "v").rmdir()
        (root / ".git").chmod(0o700)
        assert not watches.marks()
        (root / "a/v").write_text("a file")
        assert watches.marks().folders == {"a"}
        (root / "a/x.md").rename(root / "a/x.md~")
        (root / "a/x.md~").rename(root / "a/w.md")
        assert watches.marks().moves == {"a/w.md": "a/x.md"}
    finally:
        watches.close()


def test_a_folder_that_is_shown_twice_marks_both(watches: Watched, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    watches.watch(outside, "a/link")
    watches.watch(outside, "b/link")
    (outside / "1.md").write_text("")
    assert watches.marks().folders == {"a/link", "b/link"}
    (outside / "1.md").rename(outside / "2.md")
    marks = watches.marks()
    assert marks.moves == {"a/link/2.md": "a/link/1.md", "b/link/2.md": "b/link/1.md"}
    watches.forget(["a/link"])
    (outside / "2.md").unlink()
    assert watches.marks().folders == {"b/link"}
    watches.forget(["b/link"])
    assert watches.count == 4
    (outside / "3.md").write_text("")
    assert not watches.marks()


def test_a_folder_beside_marks_the_one_that_shows_its_files(watches: Watched, root: Path) -> None:
    watches.watch(root / "b", "a", "0:b")
    (root / "b/z.md").write_text("edited")
    assert watches.marks().folders == {"a", "b"}
    (root / "b").rename(root / "c")
    marks = watches.marks()
    assert marks.folders == {"", "a", "b"}
    assert marks.moves == {"c": "b"}
    watches.forget(["a"])
    (root / "c/z.md").write_text("edited again")
    assert watches.marks().folders == {"b"}


def test_a_folder_in_the_place_of_another_is_watched_instead(watches: Watched, root: Path) -> None:
    (root / "a").rename(root / "old")
    write(root, {"a/new.md": "new"})
    watches.watch(root / "a")
    watches.marks()
    (root / "old/x.md").write_text("edited")
    assert not watches.marks().folders
    (root / "a/new.md").write_text("edited")
    assert watches.marks().folders == {"a"}
    assert watches.holds("a", str((root / "a").stat().st_ino).encode())
    assert not watches.holds("a", str((root / "old").stat().st_ino).encode())
    assert not watches.holds("nowhere", b"")


def test_a_folder_that_may_not_be_read_is_not_watched(root: Path) -> None:
    write(root, {"a/x.md": "x"})
    watches = Watched(root)
    try:
        with bound_by_permissions():
            handle = os.open(root / "a", os.O_RDONLY | os.O_DIRECTORY)
            try:
                (root / "a").chmod(0)
                watches.forget(["a"])
                watches.add(handle, b"", "a")
            finally:
                (root / "a").chmod(0o700)
                os.close(handle)
        assert watches.failure is None
        assert watches.count == 1
        assert watches.barrier(PATIENCE)
    finally:
        watches.close()


# -- the barrier -------------------------------------------------------------------------------------------


def test_all_that_happened_before_a_barrier_has_left_its_marks(watches: Watched, root: Path) -> None:
    for number in range(500):
        (root / "a/x.md").write_text(str(number))
        assert "a" in watches.marks().folders


def test_what_another_process_does_before_a_barrier_has_left_its_marks(watches: Watched, root: Path) -> None:
    script = "import sys\nfor line in sys.stdin:\n open(line.strip(), 'w').close()\n print(flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        for number in range(300):
            print(root / f"a/{number}.md", file=other.stdin, flush=True)
            other.stdout.readline()
            assert "a" in watches.marks().folders


def test_many_wait_at_a_barrier(watches: Watched, root: Path) -> None:
    faults = []

    def run(name: str) -> None:
        for _ in range(100):
            (root / name / "x.md").write_text("")
            if not watches.barrier(PATIENCE) or name not in watches._marks.folders:
                faults.append(name)

    threads = [threading.Thread(target=run, args=(name,)) for name in ("a", "a/sub", "b", "")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_a_barrier_that_is_late_once_is_never_trusted_again(
    watches: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watches._lock:  # the event thread cannot go on
        (watches.root / "a/x.md").write_text("edited")
        (watches.root / "b/z.md").write_text("edited")
        assert not watches.barrier(0.2)
    # Its answer comes now, and is not one to this question.
    assert not watches.barrier(PATIENCE)
    assert not watches.is_alive


def test_a_barrier_ends_when_the_watches_are_closed(watches: Watched) -> None:
    answers = []
    with watches._lock:
        (watches.root / "a/x.md").write_text("edited")
        waiting = threading.Thread(target=lambda: answers.append(watches.barrier(60)))
        waiting.start()
    watches.close()
    waiting.join(10)
    assert answers
    assert not watches.barrier(60)


# -- when something is wrong -------------------------------------------------------------------------------


def test_events_that_are_dropped_leave_doubt(root: Path) -> None:
    write(root, {"a/x.md": "x", "b/z.md": "z"})
    with short_queue(16):
        watches = Watched(root)
    try:
        with watches._lock:
            (root / "b/z.md").rename(root / "b/w.md")
            for number in range(50):
                (root / f"a/{number}.md").write_text("")
        # The question is dropped, too, if the queue is still full; the doubt stands for its answer.
        marks = watches.marks()
        assert marks.doubt
        assert watches.overflows
        watches.marks()  # of what was told after the doubt
        (root / "a/x.md").write_text("edited")
        assert watches.marks() == Marks(folders={"a"})
    finally:
        watches.close()


def test_a_barrier_in_a_storm_of_dropped_events_is_answered(root: Path) -> None:
    write(root, {"a/x.md": "x"})
    with short_queue(16):
        watches = Watched(root)
    ended = threading.Event()

    def storm() -> None:
        while not ended.is_set():
            for number in range(100):
                (root / f"a/{number % 7}.md").write_text("")

    threads = [threading.Thread(target=storm) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        for number in range(50):
            (root / f"seen{number}").write_text("")
            marks = watches.marks()
            assert marks.doubt or "" in marks.folders
    finally:
        ended.set()
        for thread in threads:
            thread.join()
        watches.close()


def test_an_event_that_cannot_be_taken_in_is_said(watches: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(watches, "_mark", fail)
    (watches.root / "a/x.md").write_text("edited")
    wait_until(lambda: watches.mishap is not None)
    assert not watches.is_alive
    assert not watches.barrier(PATIENCE)
    assert watches._inotify.is_alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_event_thread_is_noticed(watches: Watched) -> None:
    def die(*_: object) -> None:
        raise SystemExit

    watches._inotify.handle_event = die  # type: ignore[method-assign]
    started = time.monotonic()
    assert not watches.barrier(60)
    assert time.monotonic() - started < 30
    assert not watches.is_alive


def test_a_filesystem_that_goes_away(watches: Watched, root: Path) -> None:
    class Event:
        wd = watches._descriptors["a"]
        mask = inotify._UNMOUNTED
        name = b""
        cookie = 0

    watches.on_event(Event())  # type: ignore[arg-type]
    assert watches.unmounted
    assert watches.marks().doubt


# -- what is left open -------------------------------------------------------------------------------------


def test_nothing_is_left_open(root: Path) -> None:
    write(root, {"a/x.md": "x", "b/z.md": "z"})
    before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(5):
        watches = Watched(root)
        assert watches.barrier(PATIENCE)
        watches.close()
        watches.close()
        assert not watches.is_alive
        watches.watch(root)  # nobody is told any more
        assert not watches.barrier(1)
    assert len(os.listdir("/proc/self/fd")) == before
    assert threading.active_count() == threads


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nothing_is_left_open_by_a_thread_that_died(root: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for place in ("handle_event", "_check_inotify_fd"):
        watches = Watched(root)

        def die(*_: object) -> None:
            raise SystemExit

        setattr(watches._inotify, place, die)
        (root / "new").write_text("")
        (root / "new").unlink()
        wait_until(lambda w=watches: not w._inotify.is_alive())  # type: ignore[misc]
        watches.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_another_program_does_not_inherit_the_watches(watches: Watched) -> None:
    assert inotify_files() == 1
    script = (
        "import os\nfor n in os.listdir('/proc/self/fd'):\n try: print(os.readlink('/proc/self/fd/' + n))"
    )
    script += "\n except OSError: pass"
    out = subprocess.run(
        ["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True, text=True, check=True
    )
    assert "inotify" not in out.stdout
    assert "skillfs-barrier" not in out.stdout


def test_a_forked_child_lets_go_without_a_word(watches: Watched, root: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
        child = os.fork()
    if child == 0:
        watches.abandon()
        os._exit(0 if inotify_files() == 0 and not watches.is_alive else 1)
    assert os.waitpid(child, 0)[1] == 0
    (root / "a/x.md").write_text("edited")
    assert watches.marks().folders == {"a"}
