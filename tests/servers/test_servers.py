"""The test equipment itself, with s3fs as the client: what is laid is there, and faults are what they say."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import socket
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from s3fs import S3FileSystem

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
from tests.servers.s3 import KEY, SECRET, Bucket, Request, S3Server

Connect = Callable[[dict[str, str]], S3FileSystem]

ODD_KEYS = (
    *("a//b", "/lead", "//", "..", "../x", "a/../b", ".", "./x", "a/./b", "folder/", "a/b/"),
    *("control\x01", "tab\tx", "del\x7f", "nel\x85x", "line\u2028x", " blank ", "plus+x", "per%41cent"),
    *("q?x=1", "hash#x", "back\\slash", "é", "e\u0301", "日本/😀.md", "a&b<c>", "quote'\""),
)


@pytest.fixture
def connect() -> Connect:
    def connected(options: dict[str, str]) -> S3FileSystem:
        """Without a second attempt, which would wait and hide the first one's fault."""
        fs = S3FileSystem(
            **options,
            use_listings_cache=False,
            skip_instance_cache=True,
            config_kwargs={"retries": {"total_max_attempts": 1}},
        )
        fs.retries = 1
        return fs

    return connected


@pytest.fixture
def s3(connect: Connect, s3_server: S3Server) -> S3FileSystem:
    return connect(s3_server.target_options)


@pytest.fixture
def fs(connect: Connect, faulty: FaultyS3) -> S3FileSystem:
    return connect(faulty.target_options)


# -- objects -----------------------------------------------------------------------------------------------


def put_all(bucket: Bucket) -> None:
    for key in ODD_KEYS:
        bucket.put(key, key)


def seed_all(bucket: Bucket) -> None:
    bucket.seed({key: key for key in ODD_KEYS})


@pytest.mark.parametrize("lay", [put_all, seed_all])
def test_every_odd_key_is_listed_and_read(
    lay: Callable[[Bucket], None], bucket: Bucket, s3: S3FileSystem
) -> None:
    lay(bucket)
    assert bucket.keys() == sorted(ODD_KEYS)
    pages = s3.call_s3("list_objects_v2", Bucket=bucket.name)
    assert [item["Key"] for item in pages["Contents"]] == sorted(ODD_KEYS)
    for key in ODD_KEYS:
        answer = s3.call_s3("get_object", Bucket=bucket.name, Key=key)
        assert answer["ContentLength"] == len(key.encode())
        assert bucket.get(key) == key.encode()


def test_key_with_a_newline_is_listed_but_cannot_be_read(bucket: Bucket, s3: S3FileSystem) -> None:
    bucket.seed({"a\nb": "x"})
    listed = s3.call_s3("list_objects_v2", Bucket=bucket.name)
    assert [item["Key"] for item in listed["Contents"]] == ["a\nb"]
    with pytest.raises(FileNotFoundError):
        s3.call_s3("get_object", Bucket=bucket.name, Key="a\nb")


def test_seeding_is_fast_enough_for_ten_thousand_keys(bucket: Bucket) -> None:
    began = time.perf_counter()
    bucket.seed({f"skill-{n}/SKILL.md": b"x" for n in range(10_000)}, "some/prefix/")
    assert time.perf_counter() - began < 5
    assert len(bucket.keys()) == 10_000


def test_versions_are_kept_or_not(s3_server: S3Server, bucket: Bucket, s3: S3FileSystem) -> None:
    for content in ("one", "two"):
        bucket.put("a", content)
    first = s3.call_s3("list_object_versions", Bucket=bucket.name)["Versions"][-1]["VersionId"]
    old = s3.call_s3("get_object", Bucket=bucket.name, Key="a", VersionId=first)
    assert old["ETag"] == f'"{hashlib.md5(b"one").hexdigest()}"'
    bucket.delete("a")
    assert bucket.keys() == []
    assert not s3.exists(f"{bucket.name}/a")

    plain = s3_server.new_bucket(versions=False)
    plain.put("a", "one")
    plain.put("a", "two")
    assert "VersionId" not in s3.call_s3("head_object", Bucket=plain.name, Key="a")
    s3_server.drop(plain)
    assert not s3.exists(plain.name)


def test_copied_encoded_and_multipart_objects(bucket: Bucket, s3: S3FileSystem) -> None:
    packed = gzip.compress(b"text")
    bucket.put("packed", packed, ContentEncoding="gzip")
    bucket.copy("packed", "copied")
    etag = bucket.put_parts("parts", b"a" * 100, b"b" * 50)
    assert etag.endswith('-2"')
    assert s3.info(f"{bucket.name}/parts")["ETag"] == etag
    assert s3.cat_file(f"{bucket.name}/parts") == b"a" * 100 + b"b" * 50
    assert s3.cat_file(f"{bucket.name}/packed") == packed
    answer = s3.call_s3("get_object", Bucket=bucket.name, Key="copied")
    assert answer["ContentEncoding"] == "gzip"
    assert bucket.get("copied") == packed


def test_archived_object_is_listed_and_refused(bucket: Bucket, s3: S3FileSystem) -> None:
    bucket.put("cold", "x", StorageClass="GLACIER")
    assert s3.info(f"{bucket.name}/cold")["StorageClass"] == "GLACIER"
    with pytest.raises(OSError, match="storage class"):
        s3.cat_file(f"{bucket.name}/cold", start=0, end=1)


def test_conditional_reads_and_writes(bucket: Bucket, s3: S3FileSystem) -> None:
    etag = bucket.put("a", "0123456789")
    read = {"Bucket": bucket.name, "Key": "a", "Range": "bytes=2-4"}
    assert s3.call_s3("get_object", **read, IfMatch=etag)["ContentRange"] == "bytes 2-4/10"
    with pytest.raises(OSError, match=r"(?i)precondition|pre-condition"):
        s3.call_s3("get_object", **read, IfMatch='"other"')
    with pytest.raises(FileExistsError):
        s3.pipe_file(f"{bucket.name}/a", b"new", mode="create")
    with pytest.raises(OSError, match=r"(?i)precondition|pre-condition"):
        s3.call_s3("put_object", Bucket=bucket.name, Key="a", Body=b"new", IfMatch='"other"')
    assert bucket.get("a") == b"0123456789"


# -- what is recorded --------------------------------------------------------------------------------------


def test_requests_are_recorded(bucket: Bucket, s3: S3FileSystem, s3_server: S3Server) -> None:
    path = f"{bucket.name}/folder/a b.md"
    s3.pipe_file(path, b"0123456789")
    etag = s3.info(path)["ETag"]
    with s3_server.recorded() as requests:
        bucket.put("unseen", "x")
        s3.call_s3("get_object", Bucket=bucket.name, Key="folder/a b.md", Range="bytes=0-3", IfMatch=etag)
        s3.info(path)
        s3.find(f"{bucket.name}/folder")
        s3.pipe_file(f"{bucket.name}/é", b"new", mode="create")
        s3.cp_file(path, f"{bucket.name}/copy")
        s3.rm_file(f"{bucket.name}/copy")
        s3.rm([path, f"{bucket.name}/é"])
    s3.exists(path)

    read, looked, listed, made, *rest, copied, removed, several = requests
    name = bucket.name
    assert read == Request(
        "GetObject", name, "folder/a b.md", {}, "bytes=0-3", etag, status=206, sent=4
    )  # fmt: skip
    assert (looked.operation, looked.status, looked.sent) == ("HeadObject", 200, 0)
    assert (listed.operation, listed.query["prefix"]) == ("ListObjectsV2", "folder/")
    assert (made.operation, made.key, made.if_none_match, made.received) == ("PutObject", "é", "*", 3)
    assert {request.operation for request in rest} <= {"HeadObject"}
    assert (copied.operation, copied.copy_source) == ("CopyObject", f"{name}/folder/a%20b.md")
    assert (removed.operation, removed.key) == ("DeleteObject", "copy")
    assert (several.operation, several.key) == ("DeleteObjects", "")
    assert requests.of("GetObject") == [read]
    assert requests.counts["ListObjectsV2"] == 1
    assert requests.sent == sum(request.sent for request in requests) >= 4


def test_upload_in_parts_is_recorded(bucket: Bucket, s3: S3FileSystem, s3_server: S3Server) -> None:
    with s3_server.recorded() as requests, s3.open(f"{bucket.name}/big", "wb", block_size=5 << 20) as file:
        for _ in range(2):
            file.write(b"x" * (6 << 20))
    counts = requests.counts
    assert (counts["CreateMultipartUpload"], counts["CompleteMultipartUpload"]) == (1, 1)
    assert counts["UploadPart"] == 2
    assert sum(request.received for request in requests.of("UploadPart")) == 12 << 20
    assert bucket.get("big") == b"x" * (12 << 20)


# -- faults ------------------------------------------------------------------------------------------------

BODY = bytes(range(256)) * 40


@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        (SLOW_DOWN, OSError, "SlowDown|reduce your request rate"),
        (INTERNAL_ERROR, OSError, "internal error"),
        (ACCESS_DENIED, PermissionError, "Access Denied"),
        (Error(403, "InvalidAccessKeyId"), PermissionError, "asked for"),
        (Reset(), Exception, "(?i)connect|closed"),
        (Reset(1000), Exception, "(?i)payload|reset"),
        (Cut(1000), Exception, "(?i)payload"),
        (Cut(0), Exception, "(?i)payload"),
        (Html(502), OSError, "502"),
        (Redirect(), Exception, "endpoint"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_fault_is_an_error_and_no_short_file(
    fault: Fault, error: type[Exception], text: str, bucket: Bucket, faulty: FaultyS3, fs: S3FileSystem
) -> None:
    bucket.put("a", BODY)
    rule = faulty.add(fault, "GetObject", key="a")
    with pytest.raises(error, match=text) as caught:
        fs.cat_file(f"{bucket.name}/a")
    assert rule.hits >= 1
    assert SECRET not in repr(caught.value)
    faulty.rules.clear()
    assert fs.cat_file(f"{bucket.name}/a") == BODY


@pytest.mark.parametrize(
    ("fault", "got"),
    [(Html(200), b"<!DOCTYPE html>"), (Delay(0.2), BODY), (Delay(0.2, 99), BODY)],
    ids=lambda value: type(value).__name__,
)
def test_fault_that_a_client_cannot_see(
    fault: Fault, got: bytes, bucket: Bucket, faulty: FaultyS3, fs: S3FileSystem
) -> None:
    bucket.put("a", BODY)
    faulty.add(fault, "GetObject")
    began = time.perf_counter()
    assert fs.cat_file(f"{bucket.name}/a").startswith(got)
    assert time.perf_counter() - began > (0.2 if isinstance(fault, Delay) else 0)


def test_redirect_leads_to_another_host(bucket: Bucket, faulty: FaultyS3, fs: S3FileSystem) -> None:
    """The client goes there, without its signature, and takes what it gets for the object."""
    bucket.put("a", BODY)
    came: list[Incoming] = []
    elsewhere = Listener(lambda incoming: came.append(incoming) or Answer(200, body=b"forged"))
    try:
        faulty.add(Redirect(elsewhere.endpoint + "/b"), "GetObject")
        assert fs.call_s3("get_object", Bucket=bucket.name, Key="a")["ContentLength"] == 6
    finally:
        elsewhere.close()
    assert [incoming.target for incoming in came] == ["/b"]
    assert "authorization" not in came[0].headers


def test_length_that_is_too_small(bucket: Bucket, faulty: FaultyS3) -> None:
    bucket.put("a", BODY)
    faulty.add(ShortLength(1000), "GetObject")
    connection = connection_to(faulty)
    connection.request("GET", f"/{bucket.name}/a", headers=SIGNED)
    raw = connection.sock.makefile("rb")
    answer = connection.getresponse()
    assert answer.read() == BODY[:-1000]
    connection.close()
    raw.close()


def test_html_in_place_of_a_listing(bucket: Bucket, faulty: FaultyS3, fs: S3FileSystem) -> None:
    bucket.put("a", "x")
    faulty.add(Html(200), "ListObjectsV2")
    with pytest.raises(Exception, match="Internal Server Error"):
        fs.find(bucket.name)


def test_fault_comes_so_often_and_from_there_on(bucket: Bucket, faulty: FaultyS3) -> None:
    bucket.put("a", BODY)
    rule = faulty.add(SLOW_DOWN, "GetObject", first=2, times=2)
    assert [status_of(faulty, f"/{bucket.name}/a") for _ in range(5)] == [200, 503, 503, 200, 200]
    assert (rule.seen, rule.hits) == (5, 2)
    faulty.add(ACCESS_DENIED, "Get*", key="a")
    faulty.add(SLOW_DOWN, "Get*", key="b")
    assert status_of(faulty, f"/{bucket.name}/a") == 403
    assert status_of(faulty, f"/{bucket.name}/b") == 503


def test_retries_that_end_well(bucket: Bucket, faulty: FaultyS3) -> None:
    bucket.put("a", BODY)
    faulty.add(SLOW_DOWN, "GetObject", times=2)
    fs = S3FileSystem(**faulty.target_options, skip_instance_cache=True)
    with faulty.recorded() as requests:
        assert fs.cat_file(f"{bucket.name}/a", start=0, end=10) == BODY[:10]
    assert [request.status for request in requests.of("GetObject")] == [503, 503, 206]


def test_pages_of_a_listing_are_small_and_the_second_fails(
    bucket: Bucket, faulty: FaultyS3, fs: S3FileSystem
) -> None:
    bucket.seed({f"{n:02}": b"" for n in range(25)})
    faulty.page_size = 10
    with faulty.recorded() as requests:
        assert len(fs.find(bucket.name)) == 25
    assert requests.counts == {"ListObjectsV2": 3}
    rule = faulty.add(INTERNAL_ERROR, "ListObjectsV2", first=2)
    with pytest.raises(OSError, match="internal error"):
        fs.find(bucket.name)
    assert rule.seen >= 2


def test_hook_runs_between_receiving_and_passing_on(
    bucket: Bucket, faulty: FaultyS3, fs: S3FileSystem
) -> None:
    bucket.seed({"a": b"old", "b": b"old"})
    seen: list[Request] = []
    faulty.add(Hook(seen.append), "GetObject")
    faulty.add(Hook(lambda request: bucket.put("a", "new")), "GetObject", key="a", times=1)
    faulty.add(Hook(lambda request: bucket.delete("b")), "GetObject", key="b", times=1)
    assert fs.find(bucket.name) == [f"{bucket.name}/a", f"{bucket.name}/b"]
    assert fs.cat_file(f"{bucket.name}/a", start=0, end=3) == b"new"
    with pytest.raises(FileNotFoundError):
        fs.cat_file(f"{bucket.name}/b", start=0, end=3)
    assert [request.key for request in seen] == ["a", "b"]


def test_hook_that_fails_is_told(bucket: Bucket, s3_server: S3Server) -> None:
    way = FaultyS3(s3_server)
    way.add(Hook(lambda request: 1 / 0), "GetObject")
    assert status_of(way, f"/{bucket.name}/none") == 404
    way.close()
    assert [type(error) for error in way.errors] == [ZeroDivisionError]


def test_faults_add_up(bucket: Bucket, faulty: FaultyS3) -> None:
    ran: list[Request] = []
    faulty.add(Delay(0.2), "GetObject")
    faulty.add(SLOW_DOWN, "GetObject")
    faulty.add(ACCESS_DENIED, "GetObject")
    faulty.add(Hook(ran.append), "GetObject")
    began = time.perf_counter()
    assert status_of(faulty, f"/{bucket.name}/a") == 503
    assert time.perf_counter() - began > 0.2
    assert len(ran) == 1


def test_recorded_faults(bucket: Bucket, faulty: FaultyS3, s3_server: S3Server) -> None:
    bucket.put("a", BODY)
    faulty.add(Cut(10), "GetObject", times=1)
    faulty.add(Reset(), "GetObject", first=2)
    with faulty.recorded() as sent, s3_server.recorded() as passed_on:
        with pytest.raises(http.client.IncompleteRead):
            status_of(faulty, f"/{bucket.name}/a")
        with pytest.raises(ConnectionResetError):
            status_of(faulty, f"/{bucket.name}/a")
    assert [(request.status, request.sent) for request in sent] == [(200, 10), (0, 0)]
    assert [(request.status, request.sent) for request in passed_on] == [(200, len(BODY))]


# -- connections -------------------------------------------------------------------------------------------


# To moto whoever has signed in any way is the owner.
SIGNED = {"Authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/us-east-1/s3/aws4_request"}


def connection_to(server: S3Server | FaultyS3) -> http.client.HTTPConnection:
    parts = urlsplit(server.endpoint)
    assert parts.hostname == "127.0.0.1"
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)


def status_of(server: S3Server | FaultyS3, target: str) -> int:
    connection = connection_to(server)
    try:
        connection.request("GET", target, headers=SIGNED)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def test_connections_are_kept(bucket: Bucket, faulty: FaultyS3, s3_server: S3Server) -> None:
    bucket.put("a", "x")
    for server in (s3_server, faulty):
        connection = connection_to(server)
        connection.connect()
        port = connection.sock.getsockname()[1]
        began = time.perf_counter()
        for target, body in ((f"/{bucket.name}/a", b"x"), (f"/{bucket.name}/none", None)) * 5:
            connection.request("GET", target, headers=SIGNED)
            answer = connection.getresponse()
            read = answer.read()
            assert body is None or read == body
            assert connection.sock.getsockname()[1] == port
            connection.request("HEAD", target, headers=SIGNED)
            assert connection.getresponse().read() == b""
        assert time.perf_counter() - began < 0.4, "each answer waits for a delayed acknowledgement"
        connection.close()


def test_chunked_uploads_come_through(bucket: Bucket, faulty: FaultyS3, s3_server: S3Server) -> None:
    framed = b"5;chunk-signature=" + b"0" * 64 + b"\r\nhello\r\n0;chunk-signature=" + b"0" * 64 + b"\r\n\r\n"
    aws = {
        "content-encoding": "aws-chunked",
        "x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        "x-amz-decoded-content-length": "5",
    }
    for server in (s3_server, faulty):
        for body, headers in ((framed, aws), (iter([b"hel", b"lo"]), {"transfer-encoding": "chunked"})):
            connection = connection_to(server)
            connection.request(
                "PUT", f"/{bucket.name}/a", body, headers, encode_chunked="transfer-encoding" in headers
            )
            assert connection.getresponse().status == 200
            connection.close()
            assert bucket.get("a") == b"hello"
            bucket.delete("a")


def test_no_thread_and_no_connection_outlives_it(s3_server: S3Server, bucket: Bucket) -> None:
    bucket.put("a", BODY)
    before = set(threading.enumerate())
    way = FaultyS3(s3_server)
    way.add(Delay(30), "GetObject")
    idle, waiting = connection_to(way), connection_to(way)
    idle.connect()
    waiting.request("GET", f"/{bucket.name}/a")
    deadline = time.monotonic() + 5
    while way.rules[0].hits == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    began = time.perf_counter()
    way.close()
    assert time.perf_counter() - began < 2
    assert set(threading.enumerate()) <= before
    idle.close()
    waiting.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", urlsplit(way.endpoint).port or 0), 1)


def test_nothing_is_printed(
    bucket: Bucket, fs: S3FileSystem, faulty: FaultyS3, capfd: pytest.CaptureFixture[str]
) -> None:
    bucket.put("a", BODY)
    faulty.add(Reset(10), "GetObject", times=1)
    with pytest.raises(Exception, match=r"(?i)connect|payload"):
        fs.cat_file(f"{bucket.name}/a")
    fs.cat_file(f"{bucket.name}/a")
    assert not fs.exists(f"{bucket.name}/none")
    assert capfd.readouterr() == ("", "")


def test_credentials_can_be_looked_for() -> None:
    assert len(KEY) >= 16
    assert len(SECRET) >= 20
