"""Keeping an index in step with a store that has to be asked."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillfs import (
    ChangedError,
    InvalidArgumentError,
    NotFoundError,
    SkillFileSystem,
    StoreUnavailableError,
    UnreadableError,
)
from tests.conftest import skill_md
from tests.servers.faults import ACCESS_DENIED, Error, FaultyS3, Hook
from tests.servers.s3 import KEY, SECRET, Bucket

FILES = {
    "p/a/SKILL.md": skill_md("a"),
    "p/a/x.md": "one\n",
    "p/b/SKILL.md": skill_md("b"),
    "p/b/y.md": "one\n",
}


@pytest.fixture
def seeded(bucket: Bucket) -> Bucket:
    bucket.seed(FILES)
    return bucket


def opened(bucket: Bucket, way: Any = None, **options: Any) -> SkillFileSystem:
    options = {"index": ":memory:", "max_age": 1e6, **options}
    return SkillFileSystem(f"{bucket.url}/p", target_options=(way or bucket.server).target_options, **options)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_scope_is_listed_alone(seeded: Bucket) -> None:
    fs = opened(seeded)
    seeded.put("p/a/x.md", "another\n")
    seeded.put("p/b/y.md", "another\n")
    before = fs.info("b/y.md")
    with seeded.server.recorded() as requests:
        fs._engine.sync("a")
    assert [(r.operation, r.query["prefix"]) for r in requests] == [("ListObjectsV2", "p/a/")]
    assert fs.info("a/x.md")["size"] == 8
    assert fs.info("b/y.md") == before
    fs.sync()
    assert fs.info("b/y.md")["size"] == 8


@pytest.mark.parametrize("scope", ["a", "a/x.md", "a/nothing", "nothing/at/all"])
def test_a_scope_that_is_gone_shows_in_the_whole(seeded: Bucket, scope: str) -> None:
    fs = opened(seeded)
    seeded.delete("p/a/SKILL.md", "p/a/x.md")
    fs._engine.sync(scope)
    assert fs.find("") == ["b/SKILL.md", "b/y.md"]
    seeded.put("p/a/SKILL.md", skill_md("a"))
    fs._engine.sync(scope)
    assert "a/SKILL.md" in fs.find("")


def test_a_stale_row_is_renewed_by_its_own_folder(seeded: Bucket) -> None:
    fs = opened(seeded)
    seeded.put("p/a/x.md", "another\n")
    with seeded.server.recorded() as requests:
        assert fs.get_content("a/x.md").text == "another\n"
    assert [(r.operation, r.status) for r in requests] == [
        ("GetObject", 412),
        ("ListObjectsV2", 200),
        ("GetObject", 200),
    ]
    assert requests[1].query["prefix"] == "p/a/"


@pytest.mark.parametrize("end", ["SKILL.md", "x.md"])
def test_what_is_gone_is_gone_at_the_reading(seeded: Bucket, end: str) -> None:
    fs = opened(seeded)
    seeded.delete(f"p/a/{end}")
    for _ in range(2):
        with pytest.raises(NotFoundError):
            fs.get_content(f"a/{end}")
    assert not fs.exists("a/x.md")
    assert fs.exists("a") == (end == "x.md")


def test_opening_lists_once(seeded: Bucket) -> None:
    first = opened(seeded, index=None)
    with seeded.server.recorded() as requests:
        second = opened(seeded, index=None)
    assert second._engine is first._engine
    assert requests.counts == {"ListObjectsV2": 1}


def test_the_identity_in_the_store_is_read_where_there_is_one(seeded: Bucket) -> None:
    seeded.put("p/.skillfs/store.json", '{"store_id": "6a1f6f0e-6f0f-4b0e-9c58-2d1f0a0c9b1d"}')
    with seeded.server.recorded() as requests:
        fs = opened(seeded)
    assert fs.status()["store_id"] == "6a1f6f0e-6f0f-4b0e-9c58-2d1f0a0c9b1d"
    assert requests.counts == {"ListObjectsV2": 1, "GetObject": 3}


def test_an_overtaken_listing_is_taken_anew(seeded: Bucket, faulty: FaultyS3) -> None:
    fs = opened(seeded, faulty)
    other: list[threading.Thread] = []

    def overtake(_: object) -> None:
        if not other:
            seeded.put("p/c/SKILL.md", skill_md("c"))
            other.append(threading.Thread(target=fs.sync))
            other[0].start()
            other[0].join(20)
            seeded.delete("p/b/SKILL.md", "p/b/y.md")

    faulty.add(Hook(overtake), "ListObjectsV2", times=1)
    with faulty.recorded() as requests:
        fs.sync()
    assert requests.counts["ListObjectsV2"] == 3
    assert [skill.path for skill in fs.skills()] == ["a", "c"]


def test_an_old_listing_holds_nobody_up(seeded: Bucket, faulty: FaultyS3) -> None:
    fs = opened(seeded, faulty, max_age=0.05)
    time.sleep(0.1)
    seeded.put("p/c/SKILL.md", skill_md("c"))
    go = threading.Event()
    faulty.add(Hook(lambda _: go.wait(20)), "ListObjectsV2", times=1)
    assert [skill.path for skill in fs.skills()] == ["a", "b"]
    assert fs.get_content("a/x.md").text == "one\n"
    assert not fs.exists("c")
    go.set()
    wait_until(lambda: fs.exists("c"))


@pytest.mark.parametrize("ask", ["skills", "tree", "find", "path", "id", "changes"])
def test_everything_asked_leads_to_a_check_in_the_end(seeded: Bucket, ask: str) -> None:
    fs = opened(seeded, max_age=0.01)
    revision, number = fs.revision, fs.entry("a").id
    seeded.put("p/a/SKILL.md", skill_md("a", "Something else."))
    seeded.put("p/c/SKILL.md", skill_md("c"))
    questions: dict[str, Callable[[], object]] = {
        "skills": fs.skills,
        "tree": lambda: fs.skill_tree("/"),
        "find": lambda: fs.find(""),
        "path": lambda: fs.exists("a/x.md"),
        "id": lambda: fs.skill_tree(number),
        "changes": lambda: fs.changes(revision),
    }

    def noticed() -> bool:
        time.sleep(0.02)
        questions[ask]()
        return fs.revision != revision

    wait_until(noticed)


def test_no_age_at_all_means_to_ask_each_time(seeded: Bucket) -> None:
    fs = opened(seeded, max_age=0)
    seeded.put("p/c/SKILL.md", skill_md("c"))
    assert [skill.path for skill in fs.skills()] == ["a", "b", "c"]
    seeded.put("p/c/new.md", "new\n")
    assert fs.get_content("c/new.md").text == "new\n"
    seeded.delete("p/c/new.md")
    assert not fs.exists("c/new.md")


def test_a_move_behind_its_back_is_a_new_entry(seeded: Bucket) -> None:
    fs = opened(seeded)
    fs.index_all()
    uuid = fs.entry("a/x.md").uuid
    seeded.copy("p/a/x.md", "p/a/z.md")
    seeded.delete("p/a/x.md")
    revision = fs.revision
    fs.sync()
    assert [(c.kind, c.path) for c in fs.changes(revision).items] == [
        ("removed", "a/x.md"),
        ("added", "a/z.md"),
    ]
    assert fs.entry("a/z.md").uuid != uuid


def test_what_was_learned_is_kept_while_the_file_is_the_same(seeded: Bucket) -> None:
    fs = opened(seeded)
    fs.get_content("a/x.md")
    fs._engine.learned.flush()
    known = fs.entry("a/x.md")
    assert known.hash
    assert known.md5
    assert known.characters == 4
    seeded.put("p/a/other.md", "new\n")
    fs.sync()
    assert fs.entry("a/x.md") == known
    # As another skill comes above or below it, too.
    seeded.put("p/SKILL.md", skill_md("p"))
    fs.sync()
    assert fs.entry("a/x.md").hash == known.hash
    seeded.put("p/a/x.md", "two\n")
    fs.sync()
    entry = fs.entry("a/x.md")
    assert (entry.hash, entry.md5, entry.characters, entry.uuid) == (None, None, None, known.uuid)


def test_an_older_listing_takes_nothing_from_another_process(
    seeded: Bucket, faulty: FaultyS3, tmp_path: Path
) -> None:
    index = tmp_path / "index.sqlite"
    slow = opened(seeded, faulty, index=index)

    class Late(Hook):
        """The answer is made, and then held back until another has written."""

        def after(self, answer: Any) -> Any:
            other = subprocess.run(
                [sys.executable, "-c", OTHER, f"{seeded.url}/p", str(index), faulty.endpoint],
                check=False,
                timeout=60,
            )
            assert other.returncode == 0
            return answer

    faulty.add(Late(lambda _: None), "ListObjectsV2", times=1)
    slow.sync()
    assert slow.exists("a/theirs.md")


OTHER = f"""
import sys
from skillfs import SkillFileSystem
url, index, endpoint = sys.argv[1:]
options = {{"key": {KEY!r}, "secret": {SECRET!r}, "endpoint_url": endpoint}}
fs = SkillFileSystem(url, index=index, target_options=options, writable=True)
fs.pipe_file("a/theirs.md", b"theirs")
"""


def test_a_failed_opening_leaves_no_old_look_behind(seeded: Bucket) -> None:
    fs = opened(seeded, index=None)
    with pytest.raises(InvalidArgumentError):
        opened(seeded, index=None, max_age="bad")
    seeded.put("p/a/new.md", "new\n")
    fs.sync()
    assert fs.exists("a/new.md")


@pytest.mark.parametrize("read", ["get_content", "get_lines"])
@pytest.mark.parametrize("end", ["changed", "gone", "closed"])
def test_a_version_that_is_expected_and_is_another_by_now(
    seeded: Bucket, faulty: FaultyS3, read: str, end: str
) -> None:
    fs = opened(seeded, faulty)
    first = fs.get_content("a/x.md").hash
    seeded.put("p/a/x.md", "two\n")
    fs.get_content("a/x.md")
    errors: dict[str, type[Exception]] = {
        "changed": ChangedError,
        "gone": NotFoundError,
        "closed": UnreadableError,
    }
    if end == "changed":
        seeded.put("p/a/x.md", "three\n")
    elif end == "gone":
        seeded.delete("p/a/x.md")
    else:
        faulty.add(ACCESS_DENIED, "GetObject")
    with pytest.raises(errors[end]):
        getattr(fs, read)("a/x.md", expect_hash=first)


def test_a_skill_md_that_goes_while_something_is_written(seeded: Bucket, faulty: FaultyS3) -> None:
    fs = opened(seeded, faulty, writable=True)
    seeded.put("p/a/n/SKILL.md", skill_md("n"))
    faulty.add(Hook(lambda _: seeded.delete("p/a/n/SKILL.md")), "GetObject", key="*n/SKILL.md", times=1)
    fs.pipe_file("a/w.md", b"w")
    assert fs.exists("a/w.md")
    assert not fs.exists("a/n")


def test_nobody_waits_for_the_heads_of_a_check(seeded: Bucket, faulty: FaultyS3) -> None:
    fs = opened(seeded, faulty, max_age=0.05, writable=True)
    time.sleep(0.1)
    seeded.put("p/b/SKILL.md", skill_md("b", "Another."))
    seeded.put("p/a/x.md", "two\n")
    asked, go = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        asked.set()
        go.wait(20)

    faulty.add(Hook(wait), "GetObject", key="*b/SKILL.md", times=1)
    fs.skills()
    assert asked.wait(20)
    assert fs.get_content("a/x.md").text == "two\n"
    fs.pipe_file("a/w.md", b"w")
    assert fs.cat_file("a/w.md") == b"w"
    go.set()
    wait_until(lambda: fs.skill("b").description == "Another.")
    assert fs.exists("a/w.md")


def test_looking_at_details_once_more_costs_nothing(seeded: Bucket) -> None:
    fs = opened(seeded)
    first = fs.skill_tree("/", details=True).to_dict()
    with seeded.server.recorded() as requests:
        assert fs.skill_tree("/", details=True).to_dict() == first
    assert requests == []


def test_no_more_bytes_than_are_asked_for(bucket: Bucket) -> None:
    large = b"0123456789abcdef" * (256 << 10)
    bucket.seed({"p/a/SKILL.md": skill_md("a"), "p/a/large.bin": large})
    fs = opened(bucket)
    for work, most in (
        (lambda: fs.head("a/large.bin", 10), 10),
        (lambda: fs.tail("a/large.bin", 10), 10),
        (lambda: fs.open("a/large.bin").read(), len(large)),
        (lambda: fs.checksum("a/large.bin"), len(large)),
    ):
        with bucket.server.recorded() as requests:
            work()
        assert requests.sent <= most
    assert fs.head("a/large.bin", 10) == large[:10]
    assert fs.tail("a/large.bin", 10) == large[-10:]
    assert fs.tail("a/large.bin", 0) == b""


def test_an_index_belongs_to_one_endpoint_and_credential(
    seeded: Bucket, faulty: FaultyS3, tmp_path: Path
) -> None:
    index = tmp_path / "index.sqlite"
    one = opened(seeded, index=index)
    opened(seeded, faulty, index=index)
    with pytest.raises(InvalidArgumentError, match="endpoint"):
        one.sync()


def test_a_write_takes_nothing_from_another_process(seeded: Bucket, faulty: FaultyS3, tmp_path: Path) -> None:
    index = tmp_path / "index.sqlite"
    ours = opened(seeded, faulty, index=index, writable=True)

    class Late(Hook):
        """The answer is made, and then held back until another has written."""

        def after(self, answer: Any) -> Any:
            command = [sys.executable, "-c", OTHER, f"{seeded.url}/p", str(index), faulty.endpoint]
            assert subprocess.run(command, check=False, timeout=60).returncode == 0
            return answer

    faulty.add(Late(lambda _: None), "ListObjectsV2", times=1)
    ours.pipe_file("a/ours.md", b"ours")
    assert ours.exists("a/ours.md")
    assert ours.exists("a/theirs.md")


def test_an_answer_that_there_is_nothing_to_list(seeded: Bucket, faulty: FaultyS3) -> None:
    fs = opened(seeded, faulty)
    faulty.add(Error(404, "NotFound"), "ListObjectsV2")
    for attempt in (fs.sync, lambda: opened(seeded, faulty)):
        with pytest.raises(StoreUnavailableError, match="404"):
            attempt()
    assert fs.exists("a/x.md")
