"""What changes, as it comes: every revision, in order, once, or the word that all is to be read anew."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import skillfs.index.journal
from skillfs import (
    ChangeFeed,
    Changes,
    InvalidArgumentError,
    IsFileError,
    NotFoundError,
    SkillFileSystem,
    StoreUnavailableError,
)
from skillfs.index.journal import Journal
from tests.conftest import skill_md, write
from tests.limits import no_files_left
from tests.sync.watching import PATIENCE, wait_until

FILES = {
    "a/SKILL.md": skill_md("a"),
    "a/x.md": "ax\n",
    "a/sub/y.md": "ay\n",
    "b/SKILL.md": skill_md("b"),
    "b/z.md": "bz\n",
    "group/c/SKILL.md": skill_md("c"),
}


@pytest.fixture
def store(root: Path) -> Path:
    return write(root, FILES)


@pytest.fixture(params=["in memory", "on disk"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return ":memory:" if request.param == "in memory" else str(tmp_path / "index.sqlite")


def is_watched(feed: ChangeFeed) -> bool:
    return bool(feed.status()["watch"] == "watching")


def there(fs: SkillFileSystem) -> dict[str, tuple[str, Any]]:
    """What there is, by UUID: path and hash."""
    infos = fs.find("", withdirs=True, detail=True)
    found = {info["uuid"]: (path, info.get("hash")) for path, info in infos.items()}
    assert len(found) == len(infos)
    return found


class Reader:
    """Holds what there is by nothing but changes, and remembers what it was told."""

    def __init__(self, fs: SkillFileSystem) -> None:
        self.fs = fs
        self.start = fs.revision
        self.entries = there(fs)
        self.told: list[Changes] = []

    def take(self, changes: Changes) -> None:
        self.told.append(changes)
        if changes.reset:
            assert changes.items == ()
            self.entries = there(self.fs)
        for item in changes.items:
            if not item.path:
                continue  # the root, which `find` does not list
            if item.kind == "added":
                assert item.uuid not in self.entries, item
            else:
                path, known = self.entries.pop(item.uuid)
                assert (item.old_path or item.path, item.old_hash) == (path, known), item
                assert (item.kind == "moved") == (item.old_path is not None)
            if item.kind != "removed":
                self.entries[item.uuid] = (item.path, item.hash)

    @property
    def revisions(self) -> list[int]:
        return [changes.revision for changes in self.told]

    def caught_up(self) -> bool:
        return self.entries == there(self.fs) and self.revisions[-1:] in ([], [self.fs.revision])


def paths(changes: Changes | None) -> list[tuple[str, str]]:
    assert changes is not None
    assert not changes.reset
    return sorted((item.kind, item.path) for item in changes.items)


def next_paths(feed: ChangeFeed) -> list[tuple[str, str]]:
    return paths(feed.get(timeout=PATIENCE))


def churn(store: Path, seed: int, times: int) -> None:
    """Write, move and remove at random; nothing else goes on in the store."""
    rng = random.Random(seed)
    for number in range(times):
        files = sorted(p for p in store.rglob("*") if p.is_file() and p.name != "SKILL.md")
        folders = sorted(p for p in store.rglob("*") if p.is_dir())
        what = rng.randrange(6)
        if what <= 1 or not files:
            (rng.choice(folders) / f"n{number}.md").write_text(f"{number}\n" * rng.randrange(3))
        elif what == 2:
            rng.choice(files).write_text(f"another {number}\n")
        elif what == 3:
            rng.choice(files).rename(rng.choice(folders) / f"m{number}.md")
        elif what == 4:
            rng.choice(files).unlink()
        else:
            write(store, {f"s{number}/SKILL.md": skill_md(f"s{number}"), f"s{number}/x.md": f"{number}"})
        if rng.random() < 0.3:
            time.sleep(0.03)


# -- every revision, in order, once ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_changes_add_up_to_what_is_there(store: Path, index: str, seed: int) -> None:
    fs = SkillFileSystem(store, index=index)
    reader = Reader(fs)
    with fs.watch(reader.take):
        churn(store, seed, 60)
        fs.sync()
        wait_until(lambda: fs.revision == reader.start or reader.revisions[-1:] == [fs.revision])
        wait_until(reader.caught_up)
    assert reader.revisions == list(range(reader.start + 1, fs.revision + 1))
    assert not any(changes.reset for changes in reader.told)
    assert len(reader.told) > 3


def test_what_is_written_through_the_filesystem_is_told_at_once(store: Path, index: str) -> None:
    fs = SkillFileSystem(store, index=index, writable=True)
    with fs.watch() as feed:
        fs.pipe_file("a/new.md", b"new\n")
        changes = feed.get(timeout=0)
        assert paths(changes) == [("added", "a/new.md")]
        fs.mv("a/new.md", "b/moved.md")
        moved = feed.get(timeout=0)
        assert moved is not None
        (item,) = moved.items
        assert (item.kind, item.old_path, item.path) == ("moved", "a/new.md", "b/moved.md")


def test_a_slow_subscriber_holds_nobody_up(store: Path, index: str) -> None:
    fs = SkillFileSystem(store, index=index, writable=True)
    fast, slow, polling = Reader(fs), Reader(fs), Reader(fs)
    go = threading.Event()

    def crawl(changes: Changes) -> None:
        go.wait(PATIENCE)
        slow.take(changes)

    with fs.watch(fast.take), fs.watch(crawl), fs.watch() as feed:
        for number in range(50):
            fs.pipe_file(f"a/{number}.md", b"%d\n" % number)
            if number % 7 == 0:
                while (changes := feed.get(timeout=0)) is not None:
                    polling.take(changes)
        wait_until(lambda: fast.revisions[-1:] == [fs.revision])
        assert not slow.told
        go.set()
        wait_until(lambda: slow.revisions[-1:] == [fs.revision])
        while (changes := feed.get(timeout=0)) is not None:
            polling.take(changes)
    expected = list(range(fast.start + 1, fs.revision + 1))
    for reader in (fast, slow, polling):
        assert reader.revisions == expected
        assert reader.caught_up()


def test_who_falls_behind_what_is_kept_reads_anew(
    store: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skillfs.index.journal, "KEPT_CHANGES", 5)
    fs = SkillFileSystem(store, index=index, writable=True)
    reader = Reader(fs)
    with fs.watch() as feed:
        for number in range(20):
            fs.pipe_file(f"a/{number}.md", b"%d\n" % number)
        changes = feed.get(timeout=0)
        assert changes == Changes(fs.revision, True, ())
        reader.take(changes)
        assert feed.revision == fs.revision
        fs.rm("a/0.md")
        changes = feed.get(timeout=0)
        assert paths(changes) == [("removed", "a/0.md")]
        assert changes is not None
        reader.take(changes)
        assert reader.caught_up()
        assert feed.get(timeout=0) is None


def test_many_revisions_are_read_in_parts(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillfs.following.MOST_STEPS", 4)
    fs = SkillFileSystem(store, index=":memory:", writable=True)
    since = fs.revision
    for number in range(11):
        fs.pipe_file(f"a/{number}.md", b"")
    with fs.watch(since=since) as feed:
        found = [next_paths(feed) for _ in range(11)]
        assert feed.get(timeout=0) is None
    assert found == [[("added", f"a/{number}.md")] for number in range(11)]


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_share_a_feed(store: Path, index: str, threads: int) -> None:
    fs = SkillFileSystem(store, index=index, writable=True)
    start = fs.revision
    found: list[list[int]] = [[] for _ in range(threads)]
    with fs.watch() as feed:

        def read(own: list[int]) -> None:
            own.extend(changes.revision for changes in feed)

        readers = [threading.Thread(target=read, args=(own,)) for own in found]
        for reader in readers:
            reader.start()
        for number in range(100):
            fs.pipe_file("a/x.md", b"%d\n" % number)
        wait_until(lambda: sum(map(len, found)) == 100)
        feed.close()
        for reader in readers:
            reader.join(PATIENCE)
            assert not reader.is_alive()
    assert sorted(revision for own in found for revision in own) == list(range(start + 1, start + 101))
    assert all(own == sorted(own) for own in found)


def test_what_one_thread_leaves_another_takes_that_waits() -> None:
    begun, go = threading.Event(), threading.Event()
    asked: list[int] = []

    def pull(after: int) -> tuple[int, list[Changes]]:
        asked.append(after)
        if len(asked) == 1:
            begun.set()
            go.wait(PATIENCE)
            return after, []
        return (2, [Changes(1, False, ()), Changes(2, False, ())]) if after == 0 else (after, [])

    feed = ChangeFeed(pull, 0, [])
    found: list[Changes | None] = []
    threads = [threading.Thread(target=lambda: found.append(feed.get(PATIENCE))) for _ in range(2)]
    threads[0].start()
    assert begun.wait(PATIENCE)
    feed._told.set()  # both revisions are announced
    threads[1].start()
    wait_until(lambda: not feed._told.is_set())  # and the other has heard it
    started = time.monotonic()
    go.set()
    for thread in threads:
        thread.join()
    assert time.monotonic() - started < PATIENCE / 2
    assert sorted(changes.revision for changes in found if changes is not None) == [1, 2]


def test_subscribers_come_and_go_while_others_are_told(store: Path) -> None:
    fs = SkillFileSystem(store, index=":memory:")
    failed: list[BaseException] = []
    done = threading.Event()

    def come_and_go() -> None:
        try:
            while not done.is_set():
                with fs.watch(since=0) as feed:
                    assert feed.get(timeout=0) == Changes(fs.revision, True, ())
        except BaseException as error:
            failed.append(error)

    before = sys.getswitchinterval()
    others = [threading.Thread(target=come_and_go) for _ in range(3)]
    with fs.watch():
        sys.setswitchinterval(1e-6)
        try:
            for other in others:
                other.start()
            end = time.monotonic() + 2
            while time.monotonic() < end and not failed:
                fs._engine.announce()
        finally:
            sys.setswitchinterval(before)
            done.set()
            for other in others:
                other.join(PATIENCE)
    assert not failed


# -- how it ends -------------------------------------------------------------------------------------------


def test_time_that_is_over(store: Path) -> None:
    with SkillFileSystem(store, index=":memory:").watch() as feed:
        started = time.monotonic()
        assert feed.get(timeout=0) is None
        assert feed.get(0.2) is None
        assert time.monotonic() - started >= 0.2


@pytest.mark.parametrize("timeout", [-1, True, "1", float("nan"), [], -float("inf")])
def test_timeouts_that_are_none(store: Path, timeout: object) -> None:
    with (
        SkillFileSystem(store, index=":memory:").watch() as feed,
        pytest.raises(InvalidArgumentError, match="timeout"),
    ):
        feed.get(timeout)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [float("inf"), 1e300, 10**400, 1e10])
def test_a_timeout_longer_than_a_thread_can_wait(store: Path, timeout: float) -> None:
    with SkillFileSystem(store, index=":memory:").watch() as feed:
        threading.Timer(0.1, write, (store, {"a/new.md": "new"})).start()
        assert paths(feed.get(timeout)) == [("added", "a/new.md")]


@pytest.mark.parametrize("how", ["get", "for"])
def test_close_lets_go_who_waits(store: Path, how: str) -> None:
    feed = SkillFileSystem(store, index=":memory:").watch()
    ended: list[object] = []
    waits = [
        threading.Thread(target=lambda: ended.append(list(feed) if how == "for" else feed.get()))
        for _ in range(3)
    ]
    for waiting in waits:
        waiting.start()
    time.sleep(0.1)
    assert ended == []
    feed.close()
    for waiting in waits:
        waiting.join(PATIENCE)
    assert ended == [[] if how == "for" else None] * 3
    assert feed.get() is None
    assert list(feed) == []
    assert feed.status()["watch"] == "off"
    feed.close()


def test_what_was_not_taken_before_the_end_is_not_handed_out(store: Path) -> None:
    fs = SkillFileSystem(store, index=":memory:", writable=True)
    feed = fs.watch()
    for name in "123":
        fs.pipe_file(f"a/{name}.md", b"")
    assert next_paths(feed) == [("added", "a/1.md")]
    feed.close()
    assert feed.get() is None
    with fs.watch(since=feed.revision) as again:
        assert [next_paths(again) for _ in range(2)] == [[("added", "a/2.md")], [("added", "a/3.md")]]


def test_a_callback_that_closes(store: Path) -> None:
    fs = SkillFileSystem(store, index=":memory:", writable=True)
    told: list[Changes] = []
    closed = threading.Event()

    def once(changes: Changes) -> None:
        told.append(changes)
        feed.close()
        closed.set()

    feed = fs.watch(once)
    for number in range(5):
        fs.pipe_file(f"a/{number}.md", b"")
    assert closed.wait(PATIENCE)
    wait_until(lambda: fs.status()["watch"] == "off")
    assert [paths(changes) for changes in told] == [[("added", "a/0.md")]]


def test_no_call_comes_after_close_has_returned(store: Path) -> None:
    fs = SkillFileSystem(store, index=":memory:", writable=True)
    inside = threading.Event()
    returned: list[float] = []

    def call(_: Changes) -> None:
        inside.set()
        time.sleep(0.3)
        returned.append(time.monotonic())

    with fs.watch(call):
        fs.pipe_file("a/1.md", b"")
        fs.pipe_file("a/2.md", b"")
        assert inside.wait(PATIENCE)
    assert len(returned) == 1
    assert returned[0] <= time.monotonic()


def test_a_callback_that_hangs_does_not_hang_the_end(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillfs.feed.CLOSE_SECONDS", 0.2)
    fs = SkillFileSystem(store, index=":memory:", writable=True)
    go, inside = threading.Event(), threading.Event()

    def hang(_: Changes) -> None:
        inside.set()
        go.wait(PATIENCE)

    with fs.watch(hang):
        fs.pipe_file("a/1.md", b"")
        assert inside.wait(PATIENCE)
    assert not go.is_set()
    go.set()


def test_a_callback_that_raises_is_logged_and_called_again(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fs = SkillFileSystem(store, index=":memory:", writable=True)
    reader = Reader(fs)

    def stumble(changes: Changes) -> None:
        reader.take(changes)
        raise ValueError("of the callback")

    with caplog.at_level(logging.WARNING, "skillfs"), fs.watch(stumble):
        for number in range(3):
            fs.pipe_file(f"a/{number}.md", b"")
        wait_until(lambda: len(reader.told) == 3)
        wait_until(lambda: len(caplog.records) == 3)
    assert reader.caught_up()
    for record, revision in zip(caplog.records, reader.revisions, strict=True):
        assert record.name == "skillfs"
        assert str(revision) in record.getMessage()
        assert "of the callback" in str(record.exc_info[1] if record.exc_info else "")


def test_a_callback_that_ends_its_thread_closes_the_feed(store: Path) -> None:
    fs = SkillFileSystem(store, index=":memory:", writable=True)
    feed = fs.watch(lambda _: sys.exit())
    fs.pipe_file("a/1.md", b"")
    wait_until(lambda: fs.status()["watch"] == "off")
    assert feed.get() is None


@pytest.mark.parametrize("callback", ["print", 1, [], {"a": 1}])
def test_callbacks_that_are_none(store: Path, callback: Any) -> None:
    fs = SkillFileSystem(store, index=":memory:")
    with pytest.raises(InvalidArgumentError, match="callback"):
        fs.watch(callback)
    assert fs.status()["watch"] == "off"


def test_a_feed_that_nobody_refers_to_ends(store: Path) -> None:
    fs = SkillFileSystem(store, index=":memory:")
    feed = fs.watch()
    kept = weakref.ref(feed)
    wait_until(lambda: fs.status()["watch"] == "watching")
    del feed
    gc.collect()
    assert kept() is None
    wait_until(lambda: fs.status()["watch"] == "off")
    wait_until(lambda: fs._engine.watches is None)


def test_a_filesystem_that_watches_is_pickled_as_such(store: Path) -> None:
    fs = pickle.loads(
        pickle.dumps(SkillFileSystem(store, watch=True, max_age=3600, skip_instance_cache=True))
    )
    wait_until(lambda: fs.status()["watch"] == "watching")
    write(store, {"a/new.md": "new"})
    wait_until(lambda: "a/new.md" in fs.find(""))


def test_a_loop_that_is_left_ends_it(store: Path) -> None:
    fs = SkillFileSystem(store, index=":memory:", writable=True)
    since = fs.revision
    fs.pipe_file("a/1.md", b"")
    for changes in fs.watch(since=since):
        assert paths(changes) == [("added", "a/1.md")]
        break
    gc.collect()
    wait_until(lambda: fs.status()["watch"] == "off")


def test_a_callback_is_called_whether_or_not_anybody_refers_to_the_feed(store: Path) -> None:
    reader: list[Changes] = []
    feed = weakref.ref(SkillFileSystem(store, index=":memory:").watch(reader.append))
    gc.collect()
    write(store, {"a/new.md": "new"})
    wait_until(lambda: reader)
    assert paths(reader[0]) == [("added", "a/new.md")]
    found = feed()
    assert found is not None
    found.close()


@pytest.mark.parametrize("again", ["listing", "watching"])
def test_after_the_last_feed_the_index_is_kept_in_step_as_before(store: Path, again: str) -> None:
    fs = SkillFileSystem(store, index=":memory:", max_age=0)
    for name in "123":
        with fs.watch() as feed:
            wait_until(lambda: is_watched(feed))
            write(store, {f"a/{name}.md": name})
            assert next_paths(feed) == [("added", f"a/{name}.md")]
        if again == "listing":
            write(store, {f"a/{name}after.md": name})
            assert f"a/{name}after.md" in fs.find("")


def test_feeds_that_follow_at_once_on_one_another(store: Path) -> None:
    fs = SkillFileSystem(store, index=":memory:", max_age=3600)
    for number in range(30):
        feed = fs.watch()
        if number % 3:
            wait_until(lambda: is_watched(feed))  # noqa: B023  # called at once
        if number % 2:
            feed.close()
        del feed
    with fs.watch() as feed:
        wait_until(lambda: is_watched(feed))
        write(store, {"a/new.md": "new"})
        assert next_paths(feed) == [("added", "a/new.md")]


# -- where it begins ---------------------------------------------------------------------------------------


def test_from_an_old_revision(store: Path, index: str) -> None:
    fs = SkillFileSystem(store, index=index, writable=True)
    since = fs.revision
    fs.pipe_file("a/1.md", b"")
    fs.pipe_file("a/2.md", b"")
    with fs.watch(since=since) as feed:
        assert feed.revision == since
        assert next_paths(feed) == [("added", "a/1.md")]
        assert feed.revision == since + 1
        with fs.watch(since=feed.revision) as later:
            assert next_paths(later) == next_paths(feed) == [("added", "a/2.md")]
            assert later.get(timeout=0) is None


def test_from_the_present_revision(store: Path, index: str) -> None:
    fs = SkillFileSystem(store, index=index, writable=True)
    fs.pipe_file("a/1.md", b"")
    for since in (None, fs.revision):
        with fs.watch(since=since) as feed:
            assert feed.get(timeout=0) is None
            assert feed.revision == fs.revision


@pytest.mark.parametrize("ask", [lambda now: 0, lambda now: now - 1, lambda now: now + 1, lambda now: 2**70])
def test_from_a_revision_that_never_was(store: Path, index: str, ask: Callable[[int], int]) -> None:
    fs = SkillFileSystem(store, index=index, writable=True)
    with fs.watch(since=ask(fs.revision)) as feed:
        assert feed.get(timeout=0) == Changes(fs.revision, True, ())
        assert feed.get(timeout=0) is None
        fs.pipe_file("a/1.md", b"")
        assert next_paths(feed) == [("added", "a/1.md")]


@pytest.mark.parametrize("since", [-1, True, 1.0, "1", [], float("nan")])
def test_from_what_is_no_revision(store: Path, since: Any) -> None:
    fs = SkillFileSystem(store, index=":memory:")
    with pytest.raises(InvalidArgumentError) as caught:
        fs.watch(since=since)
    with pytest.raises(InvalidArgumentError) as like:
        fs.changes(since)
    assert caught.value.message == like.value.message
    assert fs.status()["watch"] == "off"


def test_an_environment_that_is_not_understood(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKILLFS_WATCH", "perhaps")
    with pytest.raises(InvalidArgumentError, match="SKILLFS_WATCH"):
        SkillFileSystem(store, index=":memory:").watch()


# -- what may be seen --------------------------------------------------------------------------------------


@pytest.fixture(params=["of the call", "of the filesystem"])
def confined(
    request: pytest.FixtureRequest, store: Path
) -> Callable[[list[Any]], tuple[SkillFileSystem, ChangeFeed]]:
    """A filesystem that writes everywhere, and a feed confined to some folders."""
    all_of_it = SkillFileSystem(store, index=str(store.parent / "index.sqlite"), writable=True)

    def watch(bases: list[Any]) -> tuple[SkillFileSystem, ChangeFeed]:
        if request.param == "of the call":
            return all_of_it, all_of_it.watch(base_paths=bases)
        options: dict[str, Any] = {"index": str(store.parent / "index.sqlite"), "base_paths": bases}
        return all_of_it, SkillFileSystem(store, **options).watch()

    return watch


Confined = Callable[[list[Any]], tuple[SkillFileSystem, ChangeFeed]]


def test_a_move_in_is_an_arrival_and_a_move_out_a_departure(confined: Confined) -> None:
    fs, feed = confined(["a"])
    with feed:
        fs.mv("b/z.md", "a/z.md")
        changes = feed.get(timeout=0)
        assert paths(changes) == [("added", "a/z.md")]
        assert changes is not None
        assert changes.items[0].old_path is changes.items[0].old_hash is None
        fs.mv("a/x.md", "b/x.md")
        changes = feed.get(timeout=0)
        assert paths(changes) == [("removed", "a/x.md")]
        assert changes is not None
        assert changes.items[0].old_path is changes.items[0].hash is None
        assert changes.items[0].skill_folder_uuid == fs.entry("a").uuid
        fs.mv("a/z.md", "a/sub/z.md")
        assert paths(feed.get(timeout=0)) == [("moved", "a/sub/z.md")]


def test_nothing_is_told_of_outside(confined: Confined, store: Path) -> None:
    fs, feed = confined(["a"])
    with feed:
        start = feed.revision
        fs.pipe_file("b/new.md", b"")
        fs.mv("b/new.md", "group/c/new.md")
        fs.pipe_file("new/SKILL.md", skill_md("new").encode())
        assert fs.revision > start
        assert feed.get(timeout=0.2) is None
        assert feed.revision == start
        assert feed.status()["watched_folders"] is None
        fs.pipe_file("a/new.md", b"")
        assert next_paths(feed) == [("added", "a/new.md")]
        assert feed.get(timeout=0) is None


def test_nothing_is_told_where_nothing_is_allowed(confined: Confined) -> None:
    fs, feed = confined([])
    with feed:
        fs.pipe_file("a/new.md", b"")
        assert feed.get(timeout=0.1) is None


def test_a_base_given_as_a_path_stays_that_path(confined: Confined, store: Path) -> None:
    fs, feed = confined(["a"])
    with feed:
        fs.mv("a", "elsewhere", recursive=True)
        assert {kind for kind, _ in next_paths(feed)} == {"removed"}
        fs.pipe_file("elsewhere/new.md", b"")
        assert feed.get(timeout=0) is None
        fs.pipe_file("a/SKILL.md", skill_md("a").encode())
        assert ("added", "a/SKILL.md") in next_paths(feed)


@pytest.mark.parametrize("form", ["uuid", "id", "name"])
def test_a_base_given_otherwise_follows_what_it_names(confined: Confined, store: Path, form: str) -> None:
    all_of_it = SkillFileSystem(store, index=":memory:")
    entry = all_of_it.entry("a")
    fs, feed = confined([{"uuid": entry.uuid, "id": entry.id, "name": "name:a"}[form]])
    with feed:
        fs.pipe_file("a/1.md", b"")
        assert next_paths(feed) == [("added", "a/1.md")]
        fs.mv("a", "group/moved", recursive=True)
        # What may be seen is another: changes alone do not say what of it is there.
        assert feed.get(timeout=PATIENCE) == Changes(fs.revision, True, ())
        fs.pipe_file("group/moved/2.md", b"")
        assert next_paths(feed) == [("added", "group/moved/2.md")]
        fs.pipe_file("b/new.md", b"")
        assert feed.get(timeout=0) is None


def test_a_base_in_which_a_skill_comes_to_be(confined: Confined) -> None:
    fs, feed = confined(["a/sub"])
    with feed:
        fs.pipe_file("a/sub/1.md", b"")
        assert feed.get(timeout=0) is None  # of the outer skill, which is out of bounds
        fs.pipe_file("a/sub/inner/SKILL.md", skill_md("inner").encode())
        assert feed.get(timeout=PATIENCE) == Changes(fs.revision, True, ())
        fs.pipe_file("a/sub/inner/1.md", b"")
        assert next_paths(feed) == [("added", "a/sub/inner/1.md")]
        fs.pipe_file("a/sub/2.md", b"")
        assert feed.get(timeout=0) is None


def test_both_confinements_hold(store: Path) -> None:
    options: dict[str, Any] = {"index": str(store.parent / "index.sqlite")}
    fs = SkillFileSystem(store, writable=True, **options)
    mine = SkillFileSystem(store, base_paths=["a", "group"], **options)
    with mine.watch(base_paths=["group/c"]) as one, mine.watch(base_paths=["/"]) as all_of_mine:
        for path in ("a/1.md", "b/1.md", "group/c/1.md"):
            fs.pipe_file(path, b"")
        assert next_paths(one) == [("added", "group/c/1.md")]
        assert one.get(timeout=0) is None
        found = [next_paths(all_of_mine) for _ in range(2)]
        assert found == [[("added", "a/1.md")], [("added", "group/c/1.md")]]
        assert all_of_mine.get(timeout=0) is None
        with pytest.raises(NotFoundError):
            mine.watch(base_paths=["b"])


@pytest.mark.parametrize(
    ("bases", "kind"),
    [
        (["nothing"], NotFoundError),
        (["a/x.md"], IsFileError),
        ("a", InvalidArgumentError),
        (["a/../b"], InvalidArgumentError),
        (1, InvalidArgumentError),
    ],
)
def test_bases_that_are_none(store: Path, bases: Any, kind: type[Exception]) -> None:
    fs = SkillFileSystem(store, index=":memory:")
    with pytest.raises(kind):
        fs.watch(base_paths=bases)
    assert fs.status()["watch"] == "off"


def test_bases_that_are_handed_over_once(store: Path) -> None:
    fs = SkillFileSystem(store, index=":memory:", writable=True)
    with fs.watch(base_paths=iter(["a"])) as feed:  # type: ignore[arg-type]
        fs.pipe_file("b/1.md", b"")
        fs.pipe_file("a/1.md", b"")
        assert next_paths(feed) == [("added", "a/1.md")]


def test_how_many_folders_are_watched_is_told_to_who_may_see_them_all(store: Path) -> None:
    fs = SkillFileSystem(store, index=":memory:", watch=True)
    wait_until(lambda: fs.status()["watch"] == "watching")
    assert fs.status()["watched_folders"] >= 5
    options: dict[str, Any] = {"index": ":memory:", "watch": True, "base_paths": ["a"]}
    mine = SkillFileSystem(store, **options)
    wait_until(lambda: mine.status()["watch"] == "watching")
    assert mine.status()["watched_folders"] is None


# -- what goes wrong with the index ------------------------------------------------------------------------


def test_an_index_that_cannot_be_read_for_a_moment(store: Path, tmp_path: Path) -> None:
    fs = SkillFileSystem(store, index=tmp_path / "index.sqlite", writable=True)
    found: list[Any] = []
    with fs.watch() as feed:
        fs.pipe_file("a/1.md", b"")

        def ask() -> None:
            try:
                found.append(feed.get(timeout=0))
            except StoreUnavailableError as error:
                found.append(error.code)

        fs.sync()
        time.sleep(0.3)  # what is young is looked at once more: what that closes could be opened here
        with no_files_left():
            asking = threading.Thread(target=ask)  # which has no connection so far
            asking.start()
            asking.join(PATIENCE)
        assert found == ["unavailable"]
        assert next_paths(feed) == [("added", "a/1.md")]


def test_a_callback_waits_for_an_index_that_cannot_be_read(
    store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("skillfs.feed.RETRY_SECONDS", 0.05)
    fs = SkillFileSystem(store, index=":memory:", writable=True)
    reader = Reader(fs)
    steps = Journal.steps
    failed: list[int] = []

    def fail(self: Journal, revision: int, most: int) -> Any:
        failed.append(revision)
        if len(failed) <= 6:
            raise StoreUnavailableError("one") if len(failed) <= 3 else RuntimeError("unforeseen")
        return steps(self, revision, most)

    monkeypatch.setattr(Journal, "steps", fail)
    with caplog.at_level(logging.WARNING, "skillfs"), fs.watch(reader.take):
        fs.pipe_file("a/1.md", b"")
        wait_until(reader.told.__len__)
    assert [paths(changes) for changes in reader.told] == [[("added", "a/1.md")]]
    # Once each, however often it was tried.
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["one", "RuntimeError"]


@pytest.mark.filterwarnings("ignore::skillfs.index.database.IndexWarning")
@pytest.mark.parametrize("content", [b"", b"This is no index.\n" * 5000], ids=["empty", "text"])
def test_a_damaged_index(store: Path, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "index.sqlite"
    fs = SkillFileSystem(store, index=file)
    reader = Reader(fs)
    with fs.watch(reader.take) as feed:
        wait_until(lambda: is_watched(feed))
        fs._engine.database.read("PRAGMA facts.wal_checkpoint(TRUNCATE)")
        file.write_bytes(content)
        write(store, {"a/new.md": "new\n"})
        wait_until(lambda: any(changes.reset for changes in reader.told))
        wait_until(reader.caught_up)
        assert "a/new.md" in [path for path, _ in reader.entries.values()]
        write(store, {"a/newer.md": "newer\n"})
        wait_until(lambda: reader.told[-1].items)
        wait_until(reader.caught_up)
    assert reader.revisions == sorted(set(reader.revisions))


def test_an_index_that_another_process_has_put_in_its_place(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "index.sqlite"
    fs = SkillFileSystem(store, index=file)
    reader = Reader(fs)
    with fs.watch(reader.take) as feed:
        wait_until(lambda: is_watched(feed))
        for part in tmp_path.glob("index.sqlite*"):
            if not part.name.endswith(".lock"):
                part.unlink()
        run(OPEN, store, file)
        wait_until(lambda: any(changes.reset for changes in reader.told))
        write(store, {"a/new.md": "new\n"})
        wait_until(lambda: reader.told[-1].items)
        wait_until(reader.caught_up)


def test_an_index_that_another_filesystem_has_taken_over(store: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"index": tmp_path / "index.sqlite"}
    fs = SkillFileSystem(store, **options)
    with fs.watch() as feed:
        wait_until(lambda: is_watched(feed))
        other = SkillFileSystem(store, ignore=["*.tmp"], **options)
        with pytest.raises(InvalidArgumentError, match="another filesystem keeps this index"):
            list(feed)
        assert other.revision


# -- several processes -------------------------------------------------------------------------------------

OPEN = """
import sys
from skillfs import SkillFileSystem
SkillFileSystem(sys.argv[1], index=sys.argv[2])
"""

SYNC = """
import sys
from skillfs import SkillFileSystem
fs = SkillFileSystem(sys.argv[1], index=sys.argv[2], writable=True)
fs.pipe_file("b/theirs.md", b"theirs")
open(sys.argv[1] + "/a/found.md", "w").close()
fs.sync()
"""

LISTEN = """
import json, logging, sys, time
from skillfs import SkillFileSystem
logging.basicConfig(level=logging.INFO, format="%(message)s")
store, index, last = sys.argv[1:]
fs = SkillFileSystem(store, index=index)
with fs.watch() as feed:
    while feed.status()["watch"] == "starting":
        time.sleep(0.01)
    print(feed.revision, flush=True)
    while True:
        changes = feed.get(timeout=60)
        if changes is None:
            break
        items = [[item.kind, item.path] for item in changes.items]
        print(json.dumps([changes.revision, changes.reset, items]), flush=True)
        if any(path == last for _, path in items):
            break
"""


def run(code: str, *arguments: object) -> None:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def start(code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **{**pipes, **options})


@pytest.fixture
def listeners(store: Path, tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes that watch the store, up to a file that comes last."""
    found = [start(LISTEN, store, tmp_path / "index.sqlite", "a/last.md") for _ in range(2)]
    yield found
    for one in found:
        one.kill()
        one.communicate()


def test_one_process_writes_and_all_hear(
    store: Path, tmp_path: Path, listeners: list[subprocess.Popen[str]]
) -> None:
    import json

    begins = [int(one.stdout.readline()) for one in listeners if one.stdout is not None]
    assert begins[0] == begins[1]
    fs = SkillFileSystem(store, index=tmp_path / "index.sqlite", writable=True)
    for number in range(30):
        fs.pipe_file(f"b/{number}.md", b"%d\n" % number)
        write(store, {f"a/{number}.md": f"{number}\n"})
        if number % 3 == 0:
            time.sleep(0.05)
    time.sleep(0.3)  # the last of its own
    write(store, {"a/last.md": "last"})
    told = []
    for one in listeners:
        out, err = one.communicate(timeout=60)
        assert one.returncode == 0
        assert {line.partition(":")[0] for line in err.splitlines()} == {"the store is watched"}
        told.append([json.loads(line) for line in out.splitlines()])
    assert told[0] == told[1]
    assert [revision for revision, *_ in told[0]] == list(range(begins[0] + 1, fs.revision + 1))
    assert not any(reset for _, reset, _ in told[0])
    counts = Counter((kind, path) for _, _, items in told[0] for kind, path in items)
    assert all(items for _, _, items in told[0])
    added = {path for (kind, path), count in counts.items() if kind == "added" and count == 1}
    assert added == {f"{skill}/{n}.md" for n in range(30) for skill in "ab"} | {"a/last.md"}


def test_what_a_process_takes_in_that_does_not_watch(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "index.sqlite"
    fs = SkillFileSystem(store, index=file)
    reader = Reader(fs)
    with fs.watch(reader.take) as feed:
        wait_until(lambda: is_watched(feed))
        run(SYNC, store, file)
        wait_until(lambda: {"a/found.md", "b/theirs.md"} <= {path for path, _ in reader.entries.values()})
        wait_until(reader.caught_up)
    assert reader.revisions == list(range(reader.start + 1, fs.revision + 1))


def test_several_processes_where_the_store_is_polled(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLFS_WATCH", "poll")
    monkeypatch.setattr("skillfs.sync.watcher.LOCAL_INTERVAL", 3600.0)
    file = tmp_path / "index.sqlite"
    fs = SkillFileSystem(store, index=file)
    reader = Reader(fs)
    with fs.watch(reader.take) as feed:
        wait_until(lambda: feed.status()["watch"] == "polling")
        wait_until(lambda: fs._engine.checked_at is not None)
        run(SYNC, store, file)
        wait_until(lambda: {"a/found.md", "b/theirs.md"} <= {path for path, _ in reader.entries.values()})
    assert reader.revisions == list(range(reader.start + 1, fs.revision + 1))


EXIT = """
import sys, time
from skillfs import SkillFileSystem
fs = SkillFileSystem(sys.argv[1], index=sys.argv[2], writable=True, watch=True)
feed = fs.watch()
other = fs.watch(lambda changes: time.sleep(0.001))
for number in range(20):
    fs.pipe_file(f"a/{number}.md", b"%d" % time.time_ns())
    open(f"{sys.argv[1]}/b/{number}.md", "w").close()
assert feed.get(timeout=30).items
"""


def test_the_end_of_a_program_needs_no_close(store: Path, tmp_path: Path) -> None:
    for _ in range(3):
        started = time.monotonic()
        run(EXIT, store, tmp_path / "index.sqlite")
        assert time.monotonic() - started < PATIENCE


UNREAD = """
import logging, os, sys
import skillfs.feed
from skillfs import SkillFileSystem
skillfs.feed.CLOSE_SECONDS = 0.5
fs = SkillFileSystem(sys.argv[1], index=":memory:", writable=True)
def fail(changes):
    raise ValueError("x" * 10_000)
with fs.watch(fail):
    for number in range(30):
        fs.pipe_file(f"a/{number}.md", b"%d" % number)
print("closed", flush=True)
sys.stdin.readline()
os._exit(0)
"""


def test_errors_that_nobody_reads_do_not_hang_the_end(store: Path) -> None:
    with start(UNREAD, store, stdin=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == "closed\n"
        running.communicate("\n", timeout=60)
        assert running.returncode == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.timeout(60)
def test_a_feed_goes_on_in_a_forked_child(store: Path, tmp_path: Path) -> None:
    fs = SkillFileSystem(store, index=tmp_path / "index.sqlite")
    called: list[Changes] = []
    feed = fs.watch()
    waiting = threading.Thread(target=feed.get, daemon=True)  # holds what a fork copies
    waiting.start()
    with fs.watch(called.append) as other:
        wait_until(lambda: is_watched(feed))
        child = os.fork()
        if not child:
            code = 1
            try:
                started = time.monotonic()
                write(store, {"a/of_the_child.md": "child"})
                assert next_paths(feed) == [("added", "a/of_the_child.md")]
                code = 0 if time.monotonic() - started < PATIENCE / 2 else 2
                other.close()
                feed.close()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        wait_until(lambda: called)
        assert paths(called[0]) == [("added", "a/of_the_child.md")]
    feed.close()
    waiting.join(PATIENCE)


def test_a_killed_listener_leaves_nothing_behind(
    store: Path, tmp_path: Path, listeners: list[subprocess.Popen[str]]
) -> None:
    for one in listeners:
        assert one.stdout is not None
        int(one.stdout.readline())
    listeners[0].send_signal(signal.SIGKILL)
    shutil.rmtree(store / "b")
    write(store, {"a/last.md": "last"})
    out, _ = listeners[1].communicate(timeout=60)
    assert listeners[1].returncode == 0
    assert '["removed", "b/z.md"]' in out
