"""The source over S3, request by request."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
import threading
import time
import traceback
import tracemalloc
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from skillfs.errors import InvalidArgumentError, StoreUnavailableError
from skillfs.stores.base import KeyRefusedError, StaleFile
from skillfs.stores.remote import RemoteStore
from skillfs.stores.s3 import S3Source
from skillfs.stores.s3_answers import NotS3Error, span
from skillfs.stores.targets import open_target
from tests.servers.faults import SLOW_DOWN, Cut, Delay, Error, FaultyS3, Hook, Redirect, Reset
from tests.servers.listener import Answer
from tests.servers.s3 import Bucket, Request


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


def try_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pause is too long already; so nothing depends on how fast the machine is."""
    monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 20.0)
    monkeypatch.setattr("skillfs.stores.patience.FIRST_PAUSE", 50.0)


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


@pytest.mark.parametrize("method", ["get", "blocks"])
def test_a_long_silence_within_a_file_is_no_end(
    bucket: Bucket, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    content = os.urandom(6_000_000)
    bucket.seed({"p/x": content})
    source = source_of(bucket, server=faulty)
    state, _ = source.head("x", 1)
    monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 0.9)
    faulty.add(Delay(1.2, at=3 << 20), "GetObject")
    with faulty.recorded() as requests:
        found = (
            source.get("x", 7, 5_999_990, state) if method == "get" else b"".join(source.blocks("x", state))
        )
    assert found == (content[7:5_999_990] if method == "get" else content)
    assert len(requests) == 2
    assert all(request.if_match for request in requests)


def test_a_file_that_takes_longer_than_the_deadline(
    bucket: Bucket, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(6_000_000)
    bucket.seed({"p/x": content})
    source = source_of(bucket, server=faulty)
    state, _ = source.head("x", 1)
    monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 4.0)
    # Every connection brings one piece and hangs for a while before it breaks.
    faulty.add(Cut(1_200_000), "GetObject")
    faulty.add(Delay(0.9, at=1_000_000), "GetObject")
    started = time.monotonic()
    assert source.get("x", 0, len(content), state) == content
    assert time.monotonic() - started > 4.0


def test_a_file_that_stops_for_good_is_unavailable(
    bucket: Bucket, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.seed({"p/x": b"a" * 3_000_000})
    source = source_of(bucket, server=faulty)
    state, _ = source.head("x", 1)
    monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 0.6)
    faulty.add(Delay(60, at=10), "GetObject")
    with pytest.raises(StoreUnavailableError, match="no answer in time") as caught:
        source.get("x", 0, 3_000_000, state)
    assert not isinstance(caught.value, KeyRefusedError)


def test_a_stream_that_the_loop_itself_throws_away(bucket: Bucket, source: S3Source) -> None:
    bucket.seed({"p/x": b"a" * 5_000_000})
    state, _ = source.head("x", 1)
    blocks = cast("Generator[bytes, None, None]", source.blocks("x", state))
    next(blocks)
    started = time.monotonic()
    done = threading.Event()

    def throw_away() -> None:
        blocks.close()  # as the garbage collector does in whatever thread it runs
        done.set()

    source._fs.loop.call_soon_threadsafe(throw_away)
    assert done.wait(10)
    assert time.monotonic() - started < 2
    assert source.get("x", 0, 1, state) == b"a"


@dataclass(frozen=True)
class Fixed:
    """The same answer to every request."""

    answer: Answer

    def before(self, request: Request) -> Answer:
        """The answer."""
        return self.answer

    def after(self, answer: Answer) -> Answer:
        """As it is."""
        return answer


# -- answers that are wrong ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Headers:
    """An answer whose headers are changed."""

    new: dict[str, str]

    def before(self, request: Request) -> None:
        """Pass it on."""

    def after(self, answer: Answer) -> Answer:
        """The answer with other headers."""
        lowered = {name.lower() for name in self.new}
        headers = tuple((n, v) for n, v in answer.headers if n.lower() not in lowered)
        return replace(answer, headers=(*headers, *((n, v) for n, v in self.new.items() if v)))


WRONG = [
    pytest.param(Headers({"ETag": ""}), "not one of S3", id="no ETag"),
    pytest.param(Headers({"Content-Range": "bytes 0-3/9"}), "length", id="another size"),
    pytest.param(Headers({"Content-Range": "bytes 0-9/10"}), "length", id="another range"),
    pytest.param(Headers({"Content-Range": f"bytes 0-3/{9 * 10**18}"}), "length", id="a vast size"),
]


@pytest.mark.parametrize(("fault", "words"), WRONG)
def test_an_answer_to_a_get_that_is_wrong(
    bucket: Bucket, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch, fault: Headers, words: str
) -> None:
    bucket.seed({"p/x": b"0123456789ab"})
    source = source_of(bucket, server=faulty)
    state, _ = source.head("x", 1)
    try_once(monkeypatch)
    faulty.add(fault, "GetObject")
    for read in (lambda: source.get("x", 0, 4, state), lambda: list(source.blocks("x", state))):
        with pytest.raises(StoreUnavailableError, match=words):
            read()


def test_an_answer_to_a_get_has_a_length() -> None:
    for answer in ({}, {"ContentLength": None}, {"ContentRange": "bytes 0-3/9"}):
        with pytest.raises(NotS3Error):
            span(answer)


def test_a_file_that_became_shorter_where_the_condition_is_overlooked(
    bucket: Bucket, faulty: FaultyS3
) -> None:
    bucket.seed({"p/x": b"0123456789"})
    source = source_of(bucket, server=faulty)
    state, _ = source.head("x", 1)
    faulty.add(Error(416, "InvalidRange"), "GetObject")
    with pytest.raises(StaleFile):
        source.get("x", 5, 9, state)
    with pytest.raises(StoreUnavailableError, match="416"):
        source.head("x", 5)


@pytest.mark.parametrize("year", [1, 9999])
def test_a_time_beyond_all_nanoseconds(bucket: Bucket, faulty: FaultyS3, year: int) -> None:
    bucket.seed({"p/x": b"1"})
    source = source_of(bucket, server=faulty)
    faulty.add(Headers({"Last-Modified": f"Fri, 31 Dec {year:04} 23:00:00 GMT"}), "GetObject")
    state, _ = source.head("x", 1)
    assert -(1 << 63) <= state.modified < 1 << 63


@pytest.mark.parametrize(
    ("error", "of_key"),
    [
        (Error(403, "InvalidObjectState"), True),
        (Error(400, "InvalidRequest"), True),
        (Error(400, "KMS.DisabledException"), True),
        (Error(400, "ExpiredToken"), False),
        (Error(404, "NoSuchBucket"), False),
        (Redirect(), False),
    ],
)
def test_whether_a_refusal_is_of_one_file(
    bucket: Bucket, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch, error: Any, of_key: bool
) -> None:
    try_once(monkeypatch)
    bucket.seed({"p/x": b"1"})
    source = source_of(bucket, server=faulty)
    state, _ = source.head("x", 1)
    faulty.add(error)
    reads: list[Callable[[], object]] = [
        lambda: source.get("x", 0, 1, state),
        lambda: list(source.blocks("x", state)),
        lambda: source.head("x", 1),
    ]
    for read in reads:
        with pytest.raises(StoreUnavailableError) as caught:
            read()
        assert isinstance(caught.value, KeyRefusedError) == of_key
        assert caught.value.code == "unavailable"
    with pytest.raises(StoreUnavailableError) as caught:
        list(source.find(""))
    assert not isinstance(caught.value, KeyRefusedError)


@pytest.mark.parametrize("code", ["A" * 5_000, "10.0.0.1", "ä" * 10, "Two words", "²"])
def test_a_code_that_is_none_is_not_echoed(bucket: Bucket, faulty: FaultyS3, code: str) -> None:
    source = source_of(bucket, server=faulty)
    faulty.add(Error(400, code))
    with pytest.raises(StoreUnavailableError) as caught:
        source.head("x", 1)
    assert code not in str(caught.value)
    assert "400" in str(caught.value)
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("status", [200, 400, 503])
@pytest.mark.parametrize("operation", ["GetObject", "ListObjectsV2"])
def test_an_answer_without_measure_is_left_unread(
    bucket: Bucket, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch, status: int, operation: str
) -> None:
    bucket.seed({"p/x": b"1"})
    source = source_of(bucket, server=faulty)
    state, _ = source.head("x", 1)
    try_once(monkeypatch)
    body = b"<Error><Code>InvalidRequest</Code>" + b" " * (40 << 20) + b"</Error>"
    faulty.add(Fixed(Answer(status, body=body, pause=(0, 0.0))), operation)  # so that it is sent uncopied
    attempt: Callable[[], object] = (
        (lambda: source.get("x", 0, 1, state))
        if operation == "GetObject"
        else (lambda: list(source.find("")))
    )
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        with pytest.raises(StoreUnavailableError):
            attempt()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < (24 << 20 if status == 200 and operation != "GetObject" else 6 << 20)


# -- forks ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
# What the parent's client holds is left unclosed on purpose; such warnings are off unless asked for.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("way", ["ends", "drops", "goes on"])
def test_a_child_meddles_with_nothing(
    bucket: Bucket,
    faulty: FaultyS3,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    # What the child cannot raise goes to its standard error, and not to pytest.
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    content = os.urandom(5_000_000)
    bucket.seed({"p/x": content})
    source = source_of(bucket, server=faulty)
    state, _ = source.head("x", 1)
    blocks = source.blocks("x", state)
    parts = [next(blocks)]
    # A request of the parent is on its way while the child throws the client away.
    faulty.add(Delay(1.0), "GetObject", key="p/x", times=1)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(source.get("x", 0, 9, state)))
    reader.start()
    time.sleep(0.3)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if way == "goes on":
                assert b"".join([*parts, *blocks]) == content
                assert source.get("x", 0, 9, state) == content[:9]
            if way != "ends":
                del blocks
                source._target = (None, 0)
                gc.collect()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    started = time.monotonic()
    reader.join(10)
    assert found == [content[:9]]
    assert time.monotonic() - started < 2
    assert b"".join([*parts, *blocks]) == content
    assert capfd.readouterr().err == ""


def test_one_source_that_is_broken_keeps_no_other_from_being_mended(
    bucket: Bucket, capfd: pytest.CaptureFixture[str]
) -> None:
    script = f"""
import os
from skillfs.stores.targets import open_target
kept = [open_target({bucket.url!r}, None, {bucket.server.target_options!r}) for _ in range(3)]
for store in kept:
    list(store._source.find(""))
kept[1]._source._target = (None, 0)
child = os.fork()
if child == 0:
    ends = [kept[n]._source._target[0]._loop.is_closed() for n in (0, 2)]
    os._exit(0 if ends == [True, True] else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=60)
    assert capfd.readouterr().err == ""


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
