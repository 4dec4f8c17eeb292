"""What goes wrong on the way to S3: each ends in an answer that is whole, or in one clear error."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from skillfs import (
    ChangedError,
    NotFoundError,
    SkillFileSystem,
    SkillFSError,
    StoreUnavailableError,
    UnreadableError,
)
from tests.conftest import skill_md
from tests.servers.faults import (
    ACCESS_DENIED,
    INTERNAL_ERROR,
    SLOW_DOWN,
    Cut,
    Delay,
    Error,
    Fault,
    FaultyS3,
    Hook,
    Html,
    Redirect,
    Reset,
    ShortLength,
)
from tests.servers.listener import Answer, Incoming, Listener
from tests.servers.s3 import KEY, SECRET, Bucket

TEXT = "".join(f"{n:06} Zeile mit Umlauten: äöü\n" for n in range(1_000))
FILES = {
    "library/a/SKILL.md": skill_md("a"),
    "library/a/text.md": TEXT,
    "library/a/small.txt": "small\n",
    "library/b/SKILL.md": skill_md("b"),
    "library/b/x.txt": "some more bytes than a fault lets through\n",
}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses are short; where something fails for ever, the deadline is near as well."""
    monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 20.0)
    monkeypatch.setattr("skillfs.stores.patience.FIRST_PAUSE", 0.01)


@pytest.fixture
def seeded(bucket: Bucket) -> Bucket:
    bucket.seed(FILES)
    return bucket


def opened(bucket: Bucket, way: FaultyS3, **options: Any) -> SkillFileSystem:
    options = {"index": ":memory:", "max_age": 1e6, **options}
    return SkillFileSystem(f"{bucket.url}/library", target_options=way.target_options, **options)


def everything(fs: SkillFileSystem) -> dict[str, Any]:
    """What an index says of its store, without what is learned later."""
    learned = ("hash",)
    return {
        path: {name: value for name, value in info.items() if name not in learned}
        for path, info in fs.find("", withdirs=True, detail=True).items()
    }


def assert_true(fs: SkillFileSystem, bucket: Bucket) -> None:
    """The index, after a check, equals one that is made anew, and every file is read as it is."""
    fs.sync()
    fresh = SkillFileSystem(
        f"{bucket.url}/library", target_options=bucket.server.target_options, index=":memory:"
    )
    assert everything(fs) == everything(fresh)
    assert [s.description for s in fs.skills()] == [s.description for s in fresh.skills()]
    for path in fs.find(""):
        assert fs.cat_file(path) == bucket.get(f"library/{path}")


def assert_discreet(error: SkillFSError, way: FaultyS3) -> None:
    for secret in (KEY, SECRET, way.endpoint, way.endpoint.partition("://")[2], "127.0.0.1"):
        assert secret not in str(error)


PASSING = [
    pytest.param(SLOW_DOWN, id="503"),
    pytest.param(INTERNAL_ERROR, id="500"),
    pytest.param(Reset(), id="reset"),
    pytest.param(Reset(at=3), id="reset in the body"),
    pytest.param(Cut(2), id="cut"),
    pytest.param(Html(502), id="gateway"),
    pytest.param(Html(200), id="portal"),
]


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("operation", ["ListObjectsV2", "GetObject"])
def test_what_passes_is_waited_for(seeded: Bucket, faulty: FaultyS3, fault: Fault, operation: str) -> None:
    rule = faulty.add(fault, operation, times=2)
    fs = opened(seeded, faulty)
    assert [skill.name for skill in fs.skills()] == ["a", "b"]
    assert rule.hits == 2
    rule.hits = 0
    assert fs.get_content("a/text.md").text == TEXT
    rule.hits = 0
    assert fs.get_content("a/text.md", 5_000, 100).text == TEXT[5_000:5_100]
    assert_true(fs, seeded)


LASTING = [
    *PASSING,
    pytest.param(ShortLength(), id="another length"),
    pytest.param(Redirect(), id="redirect"),
    pytest.param(Delay(60), id="silence"),
]


@pytest.mark.parametrize("fault", LASTING)
def test_what_lasts_is_unavailable(
    seeded: Bucket, faulty: FaultyS3, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = opened(seeded, faulty)
    before, revision = everything(fs), fs.revision
    fs.get_content("a/text.md")
    monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 0.15)
    faulty.add(fault)
    attempts: list[Callable[[], object]] = [
        lambda: opened(seeded, faulty),
        fs.sync,
        lambda: fs.get_content("a/small.txt"),
        lambda: fs.get_content("a/text.md", 5_000, 100),
        lambda: fs.cat_file("b/x.txt"),
    ]
    for attempt in attempts:
        started = time.monotonic()
        with pytest.raises(StoreUnavailableError) as caught:
            attempt()
        assert time.monotonic() - started < 4
        assert_discreet(caught.value, faulty)
    monkeypatch.undo()
    # What could not be looked at is not gone.
    assert everything(fs) == before
    assert fs.revision == revision
    faulty.rules.clear()
    assert_true(fs, seeded)


@pytest.mark.parametrize("size", [0, 1, 10, len(TEXT.encode()) - 1])
def test_no_part_of_a_body_is_taken_for_all(
    seeded: Bucket, faulty: FaultyS3, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = opened(seeded, faulty)
    monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 0.3)
    for fault in (Cut(size), Reset(at=size)):
        faulty.rules.clear()
        faulty.add(fault, "GetObject", key="*text.md")
        for read in (lambda: fs.cat_file("a/text.md"), lambda: fs.get_content("a/text.md")):
            with pytest.raises(StoreUnavailableError):
                read()


def test_a_listing_that_fails_on_its_second_page_changes_nothing(
    seeded: Bucket, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty.page_size = 2
    fs = opened(seeded, faulty)
    before, revision = everything(fs), fs.revision
    seeded.put("library/c/SKILL.md", skill_md("c"))
    seeded.delete("library/a/small.txt")
    monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 0.3)
    rule = faulty.add(SLOW_DOWN, "ListObjectsV2", first=2)
    with pytest.raises(StoreUnavailableError):
        fs.sync()
    assert rule.hits
    assert (everything(fs), fs.revision) == (before, revision)
    monkeypatch.undo()
    faulty.rules.clear()
    assert_true(fs, seeded)
    assert fs.exists("c")
    assert not fs.exists("a/small.txt")


def test_a_key_that_is_closed_is_unreadable(seeded: Bucket, faulty: FaultyS3) -> None:
    fs = opened(seeded, faulty)
    faulty.add(ACCESS_DENIED, "GetObject", key="*small.txt")
    for read in (lambda: fs.get_content("a/small.txt"), lambda: fs.cat_file("a/small.txt")):
        with pytest.raises(UnreadableError) as caught:
            read()
        assert_discreet(caught.value, faulty)
    fs.sync()
    assert fs.exists("a/small.txt")
    assert fs.get_content("a/text.md").text == TEXT
    faulty.rules.clear()
    assert_true(fs, seeded)


def test_a_closed_skill_md_stops_no_other(seeded: Bucket, faulty: FaultyS3) -> None:
    faulty.add(ACCESS_DENIED, "GetObject", key="*b/SKILL.md")
    fs = opened(seeded, faulty)
    assert [skill.path for skill in fs.skills()] == ["a", "b"]
    assert [(p.code, p.path) for p in fs.problems()] == [("unreadable", "b/SKILL.md")]
    assert fs.cat_file("b/x.txt") == FILES["library/b/x.txt"].encode()
    faulty.rules.clear()
    assert_true(fs, seeded)
    assert fs.problems() == []


def test_an_archived_skill_md_stops_no_other(seeded: Bucket, faulty: FaultyS3) -> None:
    seeded.put("library/b/SKILL.md", skill_md("b"), StorageClass="GLACIER")
    fs = opened(seeded, faulty)
    assert [skill.path for skill in fs.skills()] == ["a", "b"]
    (problem,) = fs.problems()
    assert (problem.code, problem.path) == ("unreadable", "b/SKILL.md")
    assert "archived" in problem.message
    fs.sync()
    assert fs.index_all() == len(FILES) - 1
    seeded.put("library/b/SKILL.md", skill_md("b"))
    assert_true(fs, seeded)
    assert fs.problems() == []


def test_a_bucket_that_may_not_be_listed(seeded: Bucket, faulty: FaultyS3) -> None:
    fs = opened(seeded, faulty)
    before = everything(fs)
    faulty.add(ACCESS_DENIED, "ListObjectsV2")
    for attempt in (fs.sync, lambda: opened(seeded, faulty)):
        with pytest.raises(UnreadableError) as caught:
            attempt()
        assert_discreet(caught.value, faulty)
    assert everything(fs) == before
    assert fs.get_content("a/text.md").text == TEXT


def test_what_goes_between_listing_and_reading(seeded: Bucket, faulty: FaultyS3) -> None:
    gone = faulty.add(Hook(lambda _: seeded.delete("library/b/SKILL.md")), "GetObject", times=1)
    fs = opened(seeded, faulty)
    assert gone.hits == 1
    assert [skill.path for skill in fs.skills()] == ["a"]
    assert_true(fs, seeded)
    faulty.add(Hook(lambda _: seeded.delete("library/a/small.txt")), "GetObject", key="*small.txt", times=1)
    with pytest.raises(NotFoundError):
        fs.get_content("a/small.txt")
    assert_true(fs, seeded)


def test_what_is_replaced_between_listing_and_reading(seeded: Bucket, faulty: FaultyS3) -> None:
    new = skill_md("b", "Another description.")
    faulty.add(Hook(lambda _: seeded.put("library/b/SKILL.md", new)), "GetObject", key="*b/SKILL.md", times=1)
    fs = opened(seeded, faulty)
    assert fs.skill("name:b").description == "Another description."
    faulty.add(
        Hook(lambda _: seeded.put("library/a/small.txt", "new\n")), "GetObject", key="*small*", times=1
    )
    assert fs.get_content("a/small.txt").text == "new\n"
    assert_true(fs, seeded)


def test_pages_of_two_versions_are_never_mixed(seeded: Bucket, faulty: FaultyS3) -> None:
    fs = opened(seeded, faulty)
    first = fs.get_content("a/text.md", 0, 1_000)
    with fs.open("a/text.md") as file:
        file.read(10)
        seeded.put("library/a/text.md", TEXT.upper())
        with pytest.raises(ChangedError):
            fs.get_content("a/text.md", 1_000, 1_000, expect_hash=first.hash)
        assert fs.get_content("a/text.md", 1_000, 1_000).text == TEXT.upper()[1_000:2_000]
    assert_true(fs, seeded)


def test_an_open_file_is_one_version(bucket: Bucket, faulty: FaultyS3) -> None:
    large = b"0123456789abcdef" * (256 << 10)
    bucket.seed({"library/a/SKILL.md": skill_md("a"), "library/a/large.bin": large})
    fs = opened(bucket, faulty)
    with fs.open("a/large.bin") as file:
        assert file.read(100) == large[:100]
        file.seek(3 << 20)
        assert file.read(100) == large[:100]
        bucket.put("library/a/large.bin", large[::-1])
        file.seek(1 << 20)
        with pytest.raises(ChangedError):
            file.read(2 << 20)


def test_a_file_replaced_at_every_reading_is_changed(seeded: Bucket, faulty: FaultyS3) -> None:
    fs = opened(seeded, faulty)
    count = iter(range(1_000))
    faulty.add(
        Hook(lambda _: seeded.put("library/a/small.txt", f"{next(count)}\n")), "GetObject", key="*small*"
    )
    with pytest.raises(ChangedError):
        fs.get_content("a/small.txt")
    faulty.rules.clear()
    assert_true(fs, seeded)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Error(404, "NoSuchBucket"), "no such bucket"),
        (Error(403, "InvalidObjectState"), "restore"),
        (Error(400, "InvalidRequest"), "400"),
    ],
)
def test_a_refusal_says_why(seeded: Bucket, faulty: FaultyS3, error: Error, words: str) -> None:
    fs = opened(seeded, faulty)
    faulty.add(error)
    started = time.monotonic()
    for attempt in (fs.sync, lambda: fs.get_content("a/small.txt")):
        with pytest.raises(StoreUnavailableError, match=words) as caught:
            attempt()
        assert_discreet(caught.value, faulty)
    assert time.monotonic() - started < 1  # asking again would change nothing


def test_a_redirect_leads_nowhere_else(seeded: Bucket, faulty: FaultyS3) -> None:
    fs = opened(seeded, faulty)
    came: list[Incoming] = []
    elsewhere = Listener(lambda incoming: came.append(incoming) or Answer(200, body=b"forged"))
    try:
        faulty.add(Redirect(f"{elsewhere.endpoint}/b"))
        for attempt in (fs.sync, lambda: fs.get_content("a/small.txt")):
            with pytest.raises(StoreUnavailableError, match="301"):
                attempt()
    finally:
        elsewhere.close()
    assert came == []


def test_a_missing_bucket_is_unavailable(faulty: FaultyS3) -> None:
    with pytest.raises(StoreUnavailableError, match="no such bucket"):
        SkillFileSystem("s3://no-such-bucket", target_options=faulty.target_options, index=":memory:")


def test_wrong_credentials_are_no_secret_told(seeded: Bucket, faulty: FaultyS3) -> None:
    faulty.add(Error(403, "SignatureDoesNotMatch", f"for {KEY}"))
    with pytest.raises(UnreadableError) as caught:
        opened(seeded, faulty)
    assert_discreet(caught.value, faulty)


def test_a_compressed_object_is_read_as_it_is_stored(seeded: Bucket, faulty: FaultyS3) -> None:
    import gzip

    stored = gzip.compress(b"text " * 1_000)
    seeded.put("library/a/packed.md", stored, ContentEncoding="gzip")
    fs = opened(seeded, faulty)
    assert fs.cat_file("a/packed.md") == stored
    assert fs.info("a/packed.md")["size"] == len(stored)


def test_an_archived_object_is_unavailable_with_the_reason(seeded: Bucket, faulty: FaultyS3) -> None:
    seeded.put("library/a/old.txt", "old\n", StorageClass="GLACIER")
    fs = opened(seeded, faulty)
    with pytest.raises(StoreUnavailableError, match="archived"):
        fs.get_content("a/old.txt")
    assert fs.get_content("a/small.txt").text == "small\n"


def test_a_check_in_the_background_fails_without_a_caller(
    seeded: Bucket, faulty: FaultyS3, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = opened(seeded, faulty, max_age=0.01)
    monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 0.3)
    faulty.add(SLOW_DOWN)
    with caplog.at_level(logging.WARNING, logger="skillfs"):
        time.sleep(0.05)
        assert len(fs.skills()) == 2
        end = time.monotonic() + 10
        while not caplog.records and time.monotonic() < end:
            time.sleep(0.05)
    assert "does not answer" in caplog.text
    monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 20.0)
    faulty.rules.clear()
    seeded.put("library/c/SKILL.md", skill_md("c"))
    end = time.monotonic() + 10
    while len(fs.skills()) != 3 and time.monotonic() < end:
        time.sleep(0.05)
    assert len(fs.skills()) == 3
