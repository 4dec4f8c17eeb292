"""Several things asked of a remote store at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillfs import NotFoundError, SkillFileSystem
from skillfs.stores.workers import MOST_WORKERS, Workers
from tests.benchmarks import corpus
from tests.benchmarks.bucket import LIBRARY, Bucket, steer, taken

SKILLS, FILES = 40, 3
DELAY = 0.05


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "skillfs-worker"]


def test_results_come_in_order_whoever_is_first() -> None:
    def work(item: int) -> int:
        time.sleep(0.02 if item == 0 else 0)
        return item * item

    with Workers() as workers:
        assert workers.map(work, list(range(100))) == [item * item for item in range(100)]
        assert len(threads()) <= MOST_WORKERS
    for thread in threads():
        thread.join(5)
    assert threads() == []


def test_the_first_error_is_raised_and_nothing_more_is_begun() -> None:
    begun: list[int] = []
    go_on = threading.Event()

    def work(item: int) -> None:
        begun.append(item)
        if item == 0:
            raise LookupError("of the first")
        go_on.wait(5)

    with pytest.raises(LookupError), Workers() as workers:
        workers.map(work, list(range(10 * MOST_WORKERS)))
    go_on.set()
    for thread in threads():
        thread.join(5)
    assert len(begun) <= 2 * MOST_WORKERS


def test_workers_are_really_at_it_together() -> None:
    meeting = threading.Barrier(MOST_WORKERS, timeout=5)
    with Workers() as workers:
        assert sorted(workers.map(lambda _: meeting.wait(), [0] * MOST_WORKERS)) == [*range(MOST_WORKERS)]


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with Bucket("library", skills=SKILLS, files=FILES, small_files=True) as bucket:
        yield bucket


@pytest.fixture
def fs(bucket: Bucket, tmp_path: Path) -> Iterator[SkillFileSystem]:
    options: dict[str, Any] = {"target_options": bucket.target_options, "index": tmp_path / "index.sqlite"}
    steer(bucket.endpoint, "/-/delay/0")
    fs = SkillFileSystem(bucket.url(LIBRARY), **options)
    steer(bucket.endpoint, f"/-/delay/{DELAY}")
    taken(bucket.endpoint)
    yield fs
    steer(bucket.endpoint, "/-/delay/0")


CONTENT = corpus.objects(SKILLS, FILES, seed=20, small_files=True)


def test_ranges_are_read_several_at_a_time(fs: SkillFileSystem, bucket: Bucket) -> None:
    paths = [*CONTENT, "nothing", "//"]
    starts = [number % 7 for number in range(len(paths))]
    started = time.monotonic()
    found = fs.cat_ranges(paths, starts, [start + 5 for start in starts])
    took = time.monotonic() - started
    for path, start, data in zip(paths[:-2], starts, found, strict=False):
        assert data == CONTENT[path][start : start + 5]
    assert [getattr(error, "code", None) for error in found[-2:]] == ["not_found", "invalid_argument"]
    asked = taken(bucket.endpoint)
    assert asked["GET"] == sum(
        start < len(data) for start, data in zip(starts, CONTENT.values(), strict=False)
    )
    assert asked["LIST"] == asked["HEAD"] == 0
    assert took < asked["GET"] * DELAY / 3
    with pytest.raises(NotFoundError):
        fs.cat_ranges(paths, starts, [9] * len(paths), on_error="raise")


def test_details_are_learned_several_at_a_time(fs: SkillFileSystem, bucket: Bucket) -> None:
    started = time.monotonic()
    tree = fs.skill_tree("/", details=True, limit=None, hidden=True)
    took = time.monotonic() - started
    asked = taken(bucket.endpoint)
    assert asked["GET"] <= len(CONTENT)
    assert asked["GET"] > len(CONTENT) // 2
    assert took < asked["GET"] * DELAY / 3
    nodes, known = [tree.root], {}
    while nodes:
        node = nodes.pop()
        nodes += node.children
        if node.kind == "file":
            known[node.path] = (node.size, node.hash is not None)
    assert known == {path: (len(data), True) for path, data in CONTENT.items()}
