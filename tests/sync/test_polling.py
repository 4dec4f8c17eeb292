"""Keeping an index in step by listing a store now and then: what it costs, and what happens when it fails."""

from __future__ import annotations

import gc
import logging
import random
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import pytest

from skillfs import ChangeFeed, Changes, SkillFileSystem, UnreadableError
from skillfs.sync import watcher
from tests.conftest import skill_md
from tests.servers.faults import ACCESS_DENIED, SLOW_DOWN, FaultyS3, Hook, Reset
from tests.servers.s3 import KEY, SECRET, Bucket
from tests.sync.watching import PATIENCE, wait_until

FILES = {
    "p/a/SKILL.md": skill_md("a"),
    "p/a/x.md": "one\n",
    "p/b/SKILL.md": skill_md("b"),
    "p/b/y.md": "two\n",
}
OFTEN = 0.1
"""Seconds between two listings, here."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time goes faster; whoever fails is given up soon."""
    monkeypatch.setattr(watcher, "HEARTBEAT", 0.02)
    monkeypatch.setattr(watcher, "CHECK_COST", 0.0)
    monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 3.0)
    monkeypatch.setattr("skillfs.stores.patience.FIRST_PAUSE", 0.01)


@pytest.fixture
def seeded(bucket: Bucket) -> Bucket:
    bucket.seed(FILES)
    return bucket


def opened(bucket: Bucket, way: Any = None, **options: Any) -> SkillFileSystem:
    options = {"index": ":memory:", "max_age": OFTEN, **options}
    return SkillFileSystem(f"{bucket.url}/p", target_options=(way or bucket.server).target_options, **options)


def next_paths(feed: ChangeFeed) -> list[tuple[str, str]]:
    changes = feed.get(timeout=PATIENCE)
    assert changes is not None
    assert not changes.reset
    return sorted((change.kind, change.path) for change in changes.items)


def listings(fs: SkillFileSystem) -> Callable[[], int]:
    """Counts the checks that a store came through, from now on."""
    seen = {fs._engine.checked_at}

    def count() -> int:
        seen.add(fs._engine.checked_at)
        return len(seen) - 1

    return count


# -- what is told ------------------------------------------------------------------------------------------


def test_what_is_put_changed_and_deleted_arrives(seeded: Bucket) -> None:
    fs = opened(seeded)
    told: list[Changes] = []
    start = fs.revision
    with fs.watch() as feed, fs.watch(told.append):
        assert feed.status()["watch"] in ("starting", "polling")
        seeded.put("p/a/new.md", "new\n")
        assert next_paths(feed) == [("added", "a/new.md")]
        seeded.put("p/a/new.md", "another\n")
        assert next_paths(feed) == [("modified", "a/new.md")]
        seeded.delete("p/a/new.md")
        assert next_paths(feed) == [("removed", "a/new.md")]
        seeded.delete("p/b/SKILL.md")
        assert next_paths(feed) == [("removed", "b"), ("removed", "b/SKILL.md"), ("removed", "b/y.md")]
        wait_until(lambda: len(told) == 4)
        status = feed.status()
        assert (status["watch"], status["watched_folders"]) == ("polling", 0)
        assert "this machine" in status["watch_reason"]
        assert status["check_error"] is None
    assert [changes.revision for changes in told] == list(range(start + 1, start + 5))


def test_changes_add_up_to_what_is_there(seeded: Bucket) -> None:
    fs = opened(seeded)
    known = {info["uuid"]: path for path, info in fs.find("", withdirs=True, detail=True).items()}
    rng = random.Random(7)
    names = [f"p/{skill}/{name}.md" for skill in "abc" for name in ("SKILL", "x", "sub/y", "z")]
    with fs.watch() as feed:
        for number in range(60):
            name = rng.choice(names)
            if rng.random() < 0.3:
                seeded.delete(name)
            else:
                seeded.put(name, skill_md("a", f"Number {number}."))
            if rng.random() < 0.2:
                time.sleep(0.05)
        fs.sync()
        while feed.revision != fs.revision:
            changes = feed.get(timeout=PATIENCE)
            assert changes is not None
            assert not changes.reset
            for item in changes.items:
                if not item.path:
                    continue
                assert (item.uuid in known) == (item.kind != "added"), item
                if item.kind == "removed":
                    assert known.pop(item.uuid) == item.path
                else:
                    known[item.uuid] = item.path
        assert known == {info["uuid"]: p for p, info in fs.find("", withdirs=True, detail=True).items()}


def test_the_same_uploaded_again_is_no_change(seeded: Bucket) -> None:
    fs = opened(seeded)
    with fs.watch() as feed:
        seeded.put("p/a/x.md", FILES["p/a/x.md"])
        count = listings(fs)
        wait_until(lambda: count() >= 3)
        assert feed.get(timeout=0) is None


def test_an_index_is_kept_in_step_without_a_subscriber(seeded: Bucket) -> None:
    fs = opened(seeded, watch=True)
    revision = fs.revision
    seeded.put("p/c/SKILL.md", skill_md("c"))
    wait_until(lambda: fs.revision > revision)
    assert fs.exists("c")


# -- what it costs -----------------------------------------------------------------------------------------


def test_a_look_at_an_unchanged_store_is_its_listing(seeded: Bucket, faulty: FaultyS3) -> None:
    faulty.page_size = 2
    fs = opened(seeded, faulty)
    with fs.watch() as feed:
        wait_until(lambda: feed.status()["watch"] == "polling")
        count = listings(fs)
        with faulty.recorded() as requests:
            wait_until(lambda: count() >= 4)
    done = count()
    assert requests.counts.keys() == {"ListObjectsV2"}
    assert {request.query["prefix"] for request in requests} == {"p/"}
    # Two pages each, of which the first or last may be cut off by the recording.
    assert 2 * (done - 1) <= len(requests) <= 2 * (done + 2)


def test_only_what_is_new_is_read(seeded: Bucket) -> None:
    fs = opened(seeded)
    with fs.watch() as feed, seeded.server.recorded() as requests:
        seeded.put("p/a/new.md", "new\n")
        seeded.put("p/a/x.md", "another\n")
        found: list[tuple[str, str]] = []
        while len(found) < 2:
            found += next_paths(feed)
        assert requests.counts.keys() == {"ListObjectsV2"}
        seeded.put("p/b/SKILL.md", skill_md("b", "Another."))
        assert next_paths(feed) == [("modified", "b/SKILL.md")]
        assert [request.key for request in requests.of("GetObject")] == ["p/b/SKILL.md"]


def test_subscribers_share_the_listings(seeded: Bucket) -> None:
    one = opened(seeded, index=None, max_age=0.5)
    two = opened(seeded, index=None, max_age=0.5)
    feeds = [fs.watch() for fs in (one, two) for _ in range(5)]
    began = time.monotonic()
    with seeded.server.recorded() as requests:
        count = listings(one)
        wait_until(lambda: count() >= 3)
    assert len(requests) <= 2 + (time.monotonic() - began) / (0.5 * (1 - watcher.JITTER))
    for feed in feeds:
        feed.close()


def test_who_has_it_listed_meanwhile_saves_a_listing(seeded: Bucket) -> None:
    fs = opened(seeded, max_age=1.5)
    with fs.watch() as feed:
        wait_until(lambda: feed.status()["watch"] == "polling")
        with seeded.server.recorded() as requests:
            for _ in range(36):  # long enough for two listings of its own
                fs.sync()
                time.sleep(0.1)
    assert len(requests) == 36


def test_a_store_is_not_listed_again_at_the_beginning(seeded: Bucket) -> None:
    fs = opened(seeded, max_age=3600)
    with seeded.server.recorded() as requests, fs.watch() as feed:
        wait_until(lambda: feed.status()["watch"] == "polling")
        assert feed.get(timeout=0.3) is None
    assert requests == []


def test_a_listing_by_a_caller_asks_no_store_that_is_polled(
    seeded: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = opened(seeded, watch=True, max_age=60)
    wait_until(lambda: fs.status()["watch"] == "polling")
    asked: list[str] = []
    monkeypatch.setattr(fs._engine, "_check_in_background", asked.append)
    fs._engine._checked = {}  # as after a minute
    assert len(fs.skills()) == 2
    assert asked == []
    rare = opened(seeded, max_age=5, index=":memory:")
    monkeypatch.setattr(rare._engine, "_check_in_background", asked.append)
    rare._engine._checked = {}
    assert len(rare.skills()) == 2
    assert asked == [""]


def test_what_is_old_is_listed_at_the_beginning(seeded: Bucket) -> None:
    fs = opened(seeded, max_age=3600)
    seeded.put("p/a/new.md", "new\n")
    fs._engine.checked_at = time.monotonic() - 7200
    with fs.watch() as feed:
        assert next_paths(feed) == [("added", "a/new.md")]


def test_listings_keep_their_distance_and_vary(
    seeded: Bucket, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "JITTER", 0.5)
    fs = opened(seeded, faulty, max_age=0.3)
    times: list[float] = []
    faulty.add(Hook(lambda _: times.append(time.monotonic())), "ListObjectsV2")
    pauses: list[float] = []
    with fs.watch() as feed:
        wait_until(lambda: feed.status()["watch"] == "polling")
        while len(times) < 8:
            planned = feed._stores[0].hold.watcher._next_check - (fs._engine.checked_at or 0.0)
            if planned > 0 and planned not in pauses:
                pauses.append(planned)
            time.sleep(0.01)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert min(gaps) >= 0.3 * 0.5 - 0.05
    assert max(pauses) - min(pauses) > 0.03


def test_each_store_has_its_own_interval(seeded: Bucket, bucket: Bucket) -> None:
    bucket.seed({"q/c/SKILL.md": skill_md("c")})
    options = {"target_options": bucket.server.target_options}
    table = {
        "often": {"store": f"{bucket.url}/p", "max_age": OFTEN, **options},
        "seldom": {"store": f"{bucket.url}/q", **options},
    }
    fs = SkillFileSystem(table, index=":memory:", max_age=3600)
    often = fs._table.mounts[0].engine  # type: ignore[attr-defined]
    before = often.checked_at
    with fs.watch() as feed, bucket.server.recorded() as requests:
        wait_until(lambda: {mount["watch"] for mount in feed.status()["mounts"]} == {"polling"})
        bucket.put("q/c/new.md", "new\n")
        bucket.put("p/a/new.md", "new\n")
        assert next_paths(feed) == [("added", "often/a/new.md")]
        wait_until(lambda: len(requests) >= 4)
        assert often.checked_at != before
    assert {request.query["prefix"] for request in requests} == {"p/"}


def test_the_shortest_interval_counts_as_long_as_somebody_wants_it(seeded: Bucket) -> None:
    calm = opened(seeded, index=None, max_age=3600)
    eager = opened(seeded, index=None, max_age=OFTEN)
    with calm.watch() as feed:
        keeper = feed._stores[0].hold.watcher
        wait_until(lambda: keeper._next_check > time.monotonic() + 1000)
        with eager.watch():
            seeded.put("p/a/new.md", "new\n")
            assert next_paths(feed) == [("added", "a/new.md")]
        with seeded.server.recorded() as requests:
            time.sleep(5 * OFTEN)
        assert len(requests) <= 2


def test_nothing_is_asked_after_the_end(seeded: Bucket) -> None:
    fs = opened(seeded)
    count = listings(fs)
    with fs.watch():
        wait_until(lambda: count() >= 2)
    with seeded.server.recorded() as requests:
        time.sleep(5 * OFTEN)
    assert requests == []
    feed = fs.watch()
    wait_until(lambda: count() >= 3)
    del feed
    gc.collect()
    wait_until(lambda: fs.status()["watch"] == "off")
    with seeded.server.recorded() as requests:
        time.sleep(5 * OFTEN)
    assert len(requests) <= 1


def test_a_base_that_is_gone_does_not_have_the_store_listed_all_the_time(seeded: Bucket) -> None:
    fs = opened(seeded, max_age=0)
    uuid = fs.entry("a").uuid
    with fs.watch(base_paths=[uuid]) as feed:
        seeded.delete("p/a/SKILL.md", "p/a/x.md")
        fs.sync()
        assert feed.get(timeout=PATIENCE) == Changes(fs.revision, True, ())
        with seeded.server.recorded() as requests:
            assert feed.get(timeout=1) is None
        assert len(requests) <= 60  # one a heartbeat, and not as many as it can


# -- what fails --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [SLOW_DOWN, ACCESS_DENIED, Reset()], ids=["503", "403", "reset"])
def test_a_store_that_fails_says_so_and_recovers_by_itself(
    seeded: Bucket, faulty: FaultyS3, fault: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fs = opened(seeded, faulty)
    with caplog.at_level(logging.WARNING, "skillfs"), fs.watch() as feed:
        rule = faulty.add(fault, "ListObjectsV2")
        wait_until(lambda: feed.status()["check_error"] is not None)
        status = feed.status()
        assert status["watch"] == "polling"
        assert fs.status()["check_error"] == status["check_error"]
        for secret in (KEY, SECRET, faulty.endpoint):
            assert secret not in status["check_error"]
        hits = rule.hits
        wait_until(lambda: rule.hits > hits)
        assert feed.get(timeout=0) is None
        seeded.put("p/a/new.md", "new\n")
        faulty.rules.remove(rule)
        assert next_paths(feed) == [("added", "a/new.md")]
        wait_until(lambda: feed.status()["check_error"] is None)
        assert fs.status()["check_error"] is None
        assert "this machine" in feed.status()["watch_reason"]
    told = [record.getMessage() for record in caplog.records if status["check_error"] in record.getMessage()]
    assert len(told) == 1


def test_a_store_that_fails_is_asked_less_and_less_often(
    seeded: Bucket, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "JITTER", 0.0)
    fs = opened(seeded, faulty)
    times: list[float] = []
    # What is refused is not tried again at once: each attempt is one request.
    faulty.add(Hook(lambda _: times.append(time.monotonic())), "ListObjectsV2")
    rule = faulty.add(ACCESS_DENIED, "ListObjectsV2")
    with fs.watch():
        wait_until(lambda: len(times) >= 4)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        for number, gap in enumerate(gaps, 1):
            assert gap >= OFTEN * 2**number * 0.95
        faulty.rules.remove(rule)
        wait_until(lambda: fs.status()["check_error"] is None)
        # From then on as often as before: not half a minute later.
        count = listings(fs)
        began = time.monotonic()
        wait_until(lambda: count() >= 3)
        assert time.monotonic() - began < 10


def test_it_is_never_longer_than_so_long(
    seeded: Bucket, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "MOST_BACKOFF", 0.3)
    fs = opened(seeded, faulty)
    rule = faulty.add(ACCESS_DENIED, "ListObjectsV2")
    began = time.monotonic()
    with fs.watch():
        wait_until(lambda: rule.hits >= 12)  # by doubling alone that were 400 s
    assert time.monotonic() - began < PATIENCE


def test_a_store_that_fails_at_the_beginning(seeded: Bucket, faulty: FaultyS3) -> None:
    fs = opened(seeded, faulty)
    known = fs.find("")
    rule = faulty.add(ACCESS_DENIED, "ListObjectsV2")
    with pytest.raises(UnreadableError):
        fs.sync()
    time.sleep(2 * OFTEN)
    with fs.watch() as feed:
        wait_until(lambda: feed.status()["check_error"] is not None)
        assert fs.find("") == known
        seeded.put("p/a/new.md", "new\n")
        faulty.rules.remove(rule)
        assert next_paths(feed) == [("added", "a/new.md")]


def test_one_store_that_fails_leaves_the_others_alone(seeded: Bucket, faulty: FaultyS3) -> None:
    seeded.seed({"q/c/SKILL.md": skill_md("c")})
    table = {
        "bad": {"store": f"{seeded.url}/p", "target_options": faulty.target_options},
        "good": {"store": f"{seeded.url}/q", "target_options": seeded.server.target_options},
    }
    fs = SkillFileSystem(table, index=":memory:", max_age=OFTEN)
    faulty.add(ACCESS_DENIED, "ListObjectsV2")
    with fs.watch() as feed:
        wait_until(lambda: feed.status()["mounts"][0]["check_error"] is not None)
        assert feed.status()["check_error"] == feed.status()["mounts"][0]["check_error"]
        assert feed.status()["mounts"][1]["check_error"] is None
        seeded.put("q/c/new.md", "new\n")
        assert next_paths(feed) == [("added", "good/c/new.md")]


def test_an_error_that_nobody_has_thought_of(
    seeded: Bucket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fs = opened(seeded)
    check = fs._engine.check
    times: list[float] = []

    def fail() -> None:
        times.append(time.monotonic())
        if len(times) < 5:
            raise ZeroDivisionError("unforeseen")
        check()

    monkeypatch.setattr(fs._engine, "check", fail)
    with caplog.at_level(logging.WARNING, "skillfs"), fs.watch() as feed:
        seeded.put("p/a/new.md", "new\n")
        assert next_paths(feed) == [("added", "a/new.md")]
    assert "ZeroDivisionError" in caplog.text
    assert times[4] - times[3] > times[1] - times[0]


def test_a_slow_store_holds_nobody_up(seeded: Bucket, faulty: FaultyS3) -> None:
    fs = opened(seeded, faulty)
    go, inside = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        inside.set()
        go.wait(PATIENCE)

    with fs.watch() as feed:
        faulty.add(Hook(wait), "ListObjectsV2", times=1)
        assert inside.wait(PATIENCE)
        assert fs.get_content("a/x.md").text == "one\n"
        assert feed.get(timeout=0) is None
        assert feed.status()["watch"] == "polling"
        go.set()
        seeded.put("p/a/new.md", "new\n")
        assert next_paths(feed) == [("added", "a/new.md")]


# -- several processes, other filesystems ------------------------------------------------------------------

SYNC = f"""
import sys
from skillfs import SkillFileSystem
url, index, endpoint = sys.argv[1:]
options = {{"key": {KEY!r}, "secret": {SECRET!r}, "endpoint_url": endpoint}}
SkillFileSystem(url, index=index, target_options=options).sync()
"""


def test_what_another_process_takes_in_is_told_long_before_the_next_listing(
    seeded: Bucket, tmp_path: Path
) -> None:
    index = tmp_path / "index.sqlite"
    fs = opened(seeded, index=index, max_age=3600)
    with fs.watch() as feed:
        wait_until(lambda: feed.status()["watch"] == "polling")
        seeded.put("p/a/new.md", "new\n")
        command = [sys.executable, "-c", SYNC, f"{seeded.url}/p", str(index), seeded.server.endpoint]
        assert subprocess.run(command, check=False, timeout=60).returncode == 0
        with seeded.server.recorded() as requests:
            assert next_paths(feed) == [("added", "a/new.md")]
        assert requests == []


def test_any_filesystem_is_polled() -> None:
    name = f"polled-{uuid.uuid4()}"
    memory = fsspec.filesystem("memory")
    memory.pipe(f"/{name}/a/SKILL.md", skill_md("a").encode())
    fs = SkillFileSystem(f"memory://{name}", index=":memory:", max_age=OFTEN)
    with fs.watch() as feed:
        memory.pipe(f"/{name}/a/new.md", b"new")
        assert next_paths(feed) == [("added", "a/new.md")]
        memory.rm(f"/{name}", recursive=True)
        wait_until(lambda: feed.status()["check_error"] is not None)
        memory.pipe({f"/{name}/a/SKILL.md": skill_md("a").encode(), f"/{name}/a/newer.md": b"newer"})
        found = next_paths(feed)
        assert ("added", "a/newer.md") in found
        assert ("removed", "a/new.md") in found
