"""The source over S3, request by request."""

from __future__ import annotations

import io
import os
from typing import Any

import pytest

from skillfs.errors import InvalidArgumentError, StoreUnavailableError
from skillfs.stores.base import StaleFile
from skillfs.stores.remote import RemoteStore
from skillfs.stores.s3 import S3Source
from skillfs.stores.targets import open_target
from tests.servers.faults import SLOW_DOWN, Cut, FaultyS3, Hook, Reset
from tests.servers.s3 import Bucket


def source_of(bucket: Bucket, prefix: str = "p", server: Any = None, **options: Any) -> S3Source:
    found = open_target(
        f"{bucket.url}/{prefix}", None, {**(server or bucket.server).target_options, **options}
    )
    assert isinstance(found, RemoteStore)
    assert isinstance(found._source, S3Source)
    return found._source


@pytest.fixture
def source(bucket: Bucket) -> S3Source:
    return source_of(bucket)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillfs.stores.patience.FIRST_PAUSE", 0.01)


ODD = [
    *("a//b", "/lead", "..", "../up", "dir/", "a\x01b", "tab\tx", "cr\rx", "%2F", "a?versionId=1", "a b+c"),
    *("ä/ö", "[x]", "*", "{a,b}", "#x", "~", "new\nline", "\u2028", "."),
]


def test_keys_are_listed_exactly(bucket: Bucket, source: S3Source) -> None:
    bucket.seed(dict.fromkeys(ODD, b"x"), prefix="p/")
    bucket.seed({"p-evil/x": b"", "p": b"", "q/x": b""})
    assert sorted(found.key for found in source.find("")) == sorted(ODD)


def test_sound_odd_keys_are_read_exactly(bucket: Bucket, source: S3Source) -> None:
    for key in ("%2F", "a?versionId=1", "a b+c", "ä/ö", "[x]", "*", "{a,b}", "#x", "~", "\u2028"):
        bucket.seed({f"p/{key}": key})
        state, data = source.head(key, 100)
        assert data == key.encode()
        assert source.get(key, 0, len(data), state) == data


def test_listing_of_a_folder_and_of_a_whole_bucket(bucket: Bucket) -> None:
    bucket.seed({"p/a/x": b"1", "p/a/b/y": b"22", "p/ab/z": b"", "top": b""})
    assert {f.key: f.state.size for f in source_of(bucket).find("a")} == {"a/x": 1, "a/b/y": 2}
    whole = source_of(bucket, "")
    assert (whole.url, whole.title) == (bucket.url, bucket.name)
    assert sorted(f.key for f in whole.find("")) == ["p/a/b/y", "p/a/x", "p/ab/z", "top"]


def test_pages(bucket: Bucket, faulty: FaultyS3) -> None:
    bucket.seed({f"p/{n:03}": b"" for n in range(25)})
    faulty.page_size = 10
    with faulty.recorded() as requests:
        assert len(list(source_of(bucket, server=faulty).find(""))) == 25
    assert requests.counts == {"ListObjectsV2": 3}


@pytest.mark.parametrize("content", [b"", b"x", b"0123456789" * 1_000])
def test_head_get_and_blocks_agree(bucket: Bucket, source: S3Source, content: bytes) -> None:
    bucket.seed({"p/x": content})
    (listed,) = source.find("")
    state, start = source.head("x", 100)
    assert state.signature == listed.state.signature
    assert state.size == len(content)
    assert start == content[:100]
    assert source.get("x", 0, len(content), state) == content
    assert source.get("x", 3, 7, state) == content[3:7] if len(content) > 7 else True
    assert b"".join(source.blocks("x", state)) == content
    known = source.state("x")
    assert known is not None
    assert known.signature == state.signature
    assert source.state("nothing") is None
    with pytest.raises(FileNotFoundError):
        source.head("nothing", 1)


def test_parts_have_an_etag_of_their_own(bucket: Bucket, source: S3Source) -> None:
    etag = bucket.put_parts("p/x", b"one", b"two")
    assert "-2" in etag
    (listed,) = source.find("")
    assert source.get("x", 2, 5, listed.state) == b"etw"
    bucket.put("p/x", b"onetwo")
    with pytest.raises(StaleFile):
        source.get("x", 2, 5, listed.state)


@pytest.mark.parametrize("aware", [False, True])
def test_the_same_bytes_once_more(bucket: Bucket, aware: bool) -> None:
    source = source_of(bucket, version_aware=aware)
    bucket.put("p/x", b"same")
    (one,) = source.find("")
    bucket.put("p/x", b"same")
    (two,) = source.find("")
    # Only where s3fs is told to look at versions two of the same bytes are two.
    assert (one.state.signature == two.state.signature) == (not aware)
    assert source.get("x", 0, 4, two.state) == b"same"
    assert source.head("x", 9)[0].signature == two.state.signature
    bucket.delete("p/x")
    assert list(source.find("")) == []
    with pytest.raises(StaleFile):
        source.get("x", 0, 4, two.state)


@pytest.mark.parametrize("fault", [Cut(1_500_000), Reset(at=1_500_000)])
def test_a_stream_that_breaks_goes_on_where_it_was(bucket: Bucket, faulty: FaultyS3, fault: Any) -> None:
    content = os.urandom(3_000_000)
    bucket.seed({"p/x": content})
    source = source_of(bucket, server=faulty)
    state, _ = source.head("x", 1)
    faulty.add(fault, "GetObject", times=1)
    with faulty.recorded() as requests:
        assert b"".join(source.blocks("x", state)) == content
    assert len(requests) == 2
    if isinstance(fault, Cut):  # a reset may take along what had come and was not read
        assert requests[1].range == "bytes=1048576-2999999"
    assert all(request.if_match for request in requests)


def test_a_stream_is_of_one_version(bucket: Bucket, faulty: FaultyS3) -> None:
    bucket.seed({"p/x": b"a" * 3_000_000})
    source = source_of(bucket, server=faulty)
    state, _ = source.head("x", 1)
    faulty.add(Reset(at=1_500_000), "GetObject", times=1)
    faulty.add(Hook(lambda _: bucket.put("p/x", b"b" * 3_000_000)), "GetObject", first=2, times=1)
    with pytest.raises(StaleFile):
        list(source.blocks("x", state))


def test_a_stream_that_is_left_is_closed(bucket: Bucket, source: S3Source) -> None:
    bucket.seed({"p/x": b"a" * 5_000_000})
    state, _ = source.head("x", 1)
    for _ in range(70):  # more than there are connections
        blocks = source.blocks("x", state)
        next(blocks)
        blocks.close()
    assert source.get("x", 0, 1, state) == b"a"


# -- writing -----------------------------------------------------------------------------------------------


def put(source: S3Source, key: str, content: bytes, *, exclusive: bool = False) -> None:
    source.put(key, io.BytesIO(content), len(content), exclusive=exclusive)


@pytest.mark.parametrize("in_parts", [False, True])
def test_put(bucket: Bucket, source: S3Source, monkeypatch: pytest.MonkeyPatch, in_parts: bool) -> None:
    content = os.urandom(12 << 20) if in_parts else b"content"
    if in_parts:
        monkeypatch.setattr("skillfs.stores.s3.ONE_PUT", 5 << 20)
    with bucket.server.recorded() as requests:
        put(source, "x", content)
    assert ("CreateMultipartUpload" in requests.counts) == in_parts
    assert bucket.get("p/x") == content
    with pytest.raises(FileExistsError):
        put(source, "x", content, exclusive=True)
    put(source, "y", content, exclusive=True)
    assert bucket.get("p/y") == content
    uploads = bucket.server.client.list_multipart_uploads(Bucket=bucket.name)
    assert "Uploads" not in uploads  # nothing is left behind to be paid for


def test_copy_and_delete(bucket: Bucket, source: S3Source) -> None:
    bucket.put("p/ä +?", b"one")
    source.copy("ä +?", "z/%41")
    assert bucket.get("p/z/%41") == b"one"
    source.delete("ä +?")
    assert bucket.keys() == ["p/z/%41"]
    source.delete("nothing")
    with pytest.raises(FileNotFoundError):
        source.copy("nothing", "a")


def test_a_put_is_tried_again(bucket: Bucket, faulty: FaultyS3) -> None:
    source = source_of(bucket, server=faulty)
    faulty.add(SLOW_DOWN, "PutObject", times=2)
    put(source, "x", b"content")
    assert bucket.get("p/x") == b"content"


# -- opening -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3a://bucket/a/b/", "s3://bucket/a/b"),
    ],
)
def test_canonical_url(url: str, canonical: str) -> None:
    found = open_target(url, None, {"anon": True})
    assert isinstance(found, RemoteStore)
    assert found.url == canonical


def test_a_url_without_a_bucket_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="bucket"):
        open_target("s3://", None, {"anon": True})


def test_two_users_have_two_indexes(bucket: Bucket) -> None:
    assert source_of(bucket).account == source_of(bucket).account
    assert source_of(bucket).account != source_of(bucket, token="x").account
    assert bucket.server.target_options["secret"] not in source_of(bucket).account


def test_an_instance_of_somebody_else_is_left_as_it_is(bucket: Bucket) -> None:
    import s3fs

    theirs = s3fs.S3FileSystem(**bucket.server.target_options, use_listings_cache=True)
    retries = theirs.retries
    bucket.seed({"p/x": b"1"})
    found = open_target(f"{bucket.name}/p", theirs, {})
    assert isinstance(found, RemoteStore)
    assert [f.key for f in found._source.find("")] == ["x"]
    bucket.seed({"p/y": b"1"})
    assert [f.key for f in found._source.find("")] == ["x", "y"]
    assert theirs.retries == retries
    assert theirs.dircache == {}


def test_missing_credentials_say_what_to_do(monkeypatch: pytest.MonkeyPatch, bucket: Bucket) -> None:
    options = {k: v for k, v in bucket.server.target_options.items() if k == "endpoint_url"}
    found = open_target(f"{bucket.url}/p", None, options)
    assert isinstance(found, RemoteStore)
    with pytest.raises(StoreUnavailableError, match="anon=True"):
        list(found._source.find(""))
