"""Folders of objects in a bucket that misbehaves, or that others write to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skillfs.errors import IntegrityError, SkillFSError, StoreUnavailableError, UnreadableError
from skillfs.objects import remote
from skillfs.objects.folder import ObjectFolder, blob_name
from skillfs.objects.opening import open_objects
from skillfs.objects.snapshots import SnapshotCatalog
from tests.objects.harness import check_whole, digest_of, take

if TYPE_CHECKING:
    from tests.servers.faults import FaultyS3
    from tests.servers.s3 import Bucket

TEXT = b"one text"
NAME = blob_name(digest_of(TEXT))


def use(folder: ObjectFolder) -> None:
    take(SnapshotCatalog(folder), [TEXT, b"more"], "v2", at=1)
    check_whole(folder)


@pytest.fixture
def shared(bucket: Bucket, faulty: FaultyS3) -> ObjectFolder:
    """A folder of objects on the way to which things go wrong."""
    return open_objects(f"{bucket.url}/team", faulty.target_options)


def test_what_passes_is_waited_for(shared: ObjectFolder, faulty: FaultyS3) -> None:
    from tests.servers.faults import INTERNAL_ERROR, SLOW_DOWN

    for operation in ("PutObject", "GetObject", "ListObjectsV2", "DeleteObject"):
        faulty.add(INTERNAL_ERROR, operation, times=1)
    faulty.add(SLOW_DOWN, "PutObject", key="*snapshots/*", times=1)
    take(SnapshotCatalog(shared), [TEXT], "v1")
    assert check_whole(shared) == {"v1": [TEXT]}


@pytest.mark.parametrize("key", ["*snapshots/*", "*labels/*"])
def test_an_answer_that_gets_lost_creates_nothing_twice(
    shared: ObjectFolder, faulty: FaultyS3, key: str
) -> None:
    """The request was carried out: the second one finds that there is such an object already, its own."""
    from tests.servers.faults import Reset

    lost = faulty.add(Reset(0), "PutObject", key=key, times=1)
    take(SnapshotCatalog(shared), [TEXT], "v1")
    assert lost.hits == 1
    assert check_whole(shared) == {"v1": [TEXT]}


@pytest.mark.parametrize(
    ("operation", "fault"),
    [("PutObject", "denied"), ("GetObject", "denied"), ("ListObjectsV2", "denied"), ("GetObject", "down")],
)
def test_no_answer_and_no_permission(
    shared: ObjectFolder, faulty: FaultyS3, operation: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.servers.faults import ACCESS_DENIED, INTERNAL_ERROR
    from tests.servers.s3 import KEY, SECRET

    take(SnapshotCatalog(shared), [TEXT], "v1")
    monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 0.3)
    faulty.add(ACCESS_DENIED if fault == "denied" else INTERNAL_ERROR, operation)
    with pytest.raises(UnreadableError if fault == "denied" else StoreUnavailableError) as caught:
        use(shared)
    assert not any(word in str(caught.value) for word in (KEY, SECRET, faulty.endpoint, "127.0.0.1"))
    monkeypatch.undo()
    faulty.rules.clear()
    assert check_whole(shared)["v1"] == [TEXT]


def test_a_blob_that_is_written_anew_is_read_on(
    shared: ObjectFolder, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ETag may be another, as that of what is sent in parts."""
    big = bytes(range(256)) * 8_192
    name = blob_name(digest_of(big))
    shared.put_all([(name, [big])])
    blobs = SnapshotCatalog(shared).blobs
    with blobs.open(digest_of(big), len(big)) as handle:
        assert handle.read(1_000_000, 100) == big[1_000_000:1_000_100]
        bucket.put_parts(f"team/{name}", big[:700_000], big[700_000:])
        assert handle.read(2_000_000, 100) == big[2_000_000:2_000_100]
        bucket.put(f"team/{name}", b"x" + big[1:])
        with pytest.raises(IntegrityError, match="damaged"):
            handle.read(0, 5)


def test_a_blob_that_goes_away_while_it_is_open(shared: ObjectFolder, bucket: Bucket) -> None:
    big = bytes(range(256)) * 8_192
    shared.put_all([(blob_name(digest_of(big)), [big])])
    with SnapshotCatalog(shared).blobs.open(digest_of(big), len(big)) as handle:
        handle.read(0, 10)
        bucket.delete(f"team/{blob_name(digest_of(big))}")
        with pytest.raises(IntegrityError, match="missing"):
            handle.read(2_000_000, 10)
        with pytest.raises(IntegrityError, match="missing"):
            list(handle.blocks())


def test_a_small_object_comes_in_one_request(shared: ObjectFolder, faulty: FaultyS3, bucket: Bucket) -> None:
    shared.put_all([(NAME, [TEXT])])
    with faulty.recorded() as requests:
        assert shared.get(NAME) == TEXT
        with SnapshotCatalog(shared).blobs.open(digest_of(TEXT), len(TEXT)) as handle:
            assert handle.read(0, 100) == TEXT
    assert requests.counts == {"GetObject": 2}


def test_an_object_that_comes_in_two(shared: ObjectFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "ONE_READING", 3)
    shared.put_all([(NAME, [TEXT])])
    assert shared.get(NAME) == TEXT


def test_keys_of_others_are_left_alone(shared: ObjectFolder, bucket: Bucket) -> None:
    mine = ["team/README", "team/blobs/x", "team/labels/.x", "team/labels/a/b", "team/holds/mine", "other/x"]
    bucket.seed(dict.fromkeys(mine, ""))
    take(SnapshotCatalog(shared), [TEXT], "v1")
    assert check_whole(shared) == {"v1": [TEXT]}
    shared.leftovers(remove=True)
    assert set(mine) < set(bucket.keys())


def test_nothing_is_written_where_there_is_no_bucket(faulty: FaultyS3) -> None:
    folder = open_objects("s3://no-such-bucket/team", faulty.target_options)
    with pytest.raises(SkillFSError, match="no such bucket"):
        take(SnapshotCatalog(folder), [TEXT])
