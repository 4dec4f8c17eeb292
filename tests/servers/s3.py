"""An S3 in the process of the tests, by moto, that records what is asked of it.

It listens on the loopback interface only, and its credentials are made up. Objects are laid behind a
filesystem's back through a door of their own, so what a test does itself is never among what is recorded.
"""

from __future__ import annotations

import contextlib
import os
import threading
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any
from unittest import mock
from urllib.parse import parse_qsl, unquote

import boto3
from botocore.config import Config
from moto.s3.models import FakeDeleteMarker, FakeKey, S3Backend, s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app

from tests.servers.listener import Answer, Incoming, Listener, run_wsgi

__all__ = ["KEY", "SECRET", "Bucket", "Recorder", "Request", "Requests", "S3Server", "request_of"]

KEY = "AKIATESTONLYNOTSECRET"
SECRET = "made/up+secret0that1must2never3show"
"""Credentials that a test can look for in messages."""

ACCOUNT = "123456789012"
REGION = "us-east-1"

ENVIRONMENT = {
    # Nothing of whoever runs the tests, and no request to the address where cloud machines ask.
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_DEFAULT_REGION": REGION,
    # Objects above this moto keeps in temporary files, which it leaves open.
    "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": str(1 << 30),
}
ABSENT = (
    "AWS_PROFILE",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_ENDPOINT_URL",
)


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as the server saw it.

    Attributes:
        operation: As S3 calls it, such as `ListObjectsV2` or `GetObject`.
        bucket: Name of the bucket; empty when none is concerned.
        key: Decoded; empty for what concerns a bucket.
        query: Decoded parameters, such as `prefix`, `continuation-token`, `versionId`.
        range: The Range header.
        if_match: The If-Match header.
        if_none_match: The If-None-Match header.
        copy_source: The x-amz-copy-source header.
        received: Bytes of the request's body.
        status: Of the answer; 0 when the connection ended without one.
        sent: Bytes of the answer's body.
    """

    operation: str
    bucket: str
    key: str
    query: Mapping[str, str]
    range: str | None = None
    if_match: str | None = None
    if_none_match: str | None = None
    copy_source: str | None = None
    received: int = 0
    status: int = 0
    sent: int = 0


class Requests(list[Request]):
    """The requests of a stretch of time, in the order in which they were answered."""

    @property
    def counts(self) -> dict[str, int]:
        """How often each operation was asked for."""
        return dict(Counter(request.operation for request in self))

    @property
    def sent(self) -> int:
        """Bytes of all bodies sent."""
        return sum(request.sent for request in self)

    def of(self, operation: str) -> Requests:
        """Those of one operation."""
        return Requests(request for request in self if request.operation == operation)


class Recorder:
    """Whoever answers requests and tells about them."""

    def __init__(self) -> None:
        self._recordings: list[Requests] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def recorded(self) -> Iterator[Requests]:
        """The requests that are answered while this is open; each is there before its answer is sent."""
        requests = Requests()
        with self._lock:
            self._recordings.append(requests)
        try:
            yield requests
        finally:
            with self._lock:
                # By identity: two recordings without a request are equal.
                self._recordings[:] = [other for other in self._recordings if other is not requests]

    def record(self, request: Request) -> None:
        """Add a request to every recording that is open."""
        with self._lock:
            for requests in self._recordings:
                requests.append(request)


class S3Server(Recorder):
    """A running server; `recorded()` tells what it was asked.

    Attributes:
        endpoint: URL of the server.
        target_options: What a filesystem over S3 is given to reach it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._environment = mock.patch.dict(os.environ, ENVIRONMENT)
        self._environment.start()
        for name in ABSENT:
            os.environ.pop(name, None)
        self._app = DomainDispatcherApplication(create_backend_app)
        self._numbers = count(1)
        # A listing that meets a write in another thread fails, and two conditional writes could both succeed.
        self._one_at_a_time = threading.Lock()
        self._door = Listener(self.run)
        self._listener = Listener(self.answer)
        self.endpoint = self._listener.endpoint
        self.target_options = {"key": KEY, "secret": SECRET, "endpoint_url": self.endpoint}
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=self._door.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name=REGION,
            config=Config(
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                s3={"addressing_style": "path"},
                retries={"total_max_attempts": 1},
            ),
        )

    @property
    def backend(self) -> S3Backend:
        """What moto keeps in memory."""
        return s3_backends[ACCOUNT]["aws"]

    def run(self, incoming: Incoming) -> Answer:
        """Answer without telling."""
        try:
            with self._one_at_a_time:
                return run_wsgi(self._app, incoming)
        except Exception:
            return Answer(500, (("Content-Type", "text/plain"),), traceback.format_exc().encode())

    def answer(self, incoming: Incoming) -> Answer:
        """Answer a request and record it."""
        answer = self.run(incoming)
        self.record(request_of(incoming, answer))
        return answer

    def new_bucket(self, *, versions: bool = True) -> Bucket:
        """An empty bucket of a name not used before."""
        name = f"skills-{os.getpid()}-{next(self._numbers)}"
        self.client.create_bucket(Bucket=name)
        bucket = Bucket(self, name)
        if versions:
            bucket.set_versions(True)
        return bucket

    def drop(self, bucket: Bucket) -> None:
        """Forget a bucket with all it holds; moto itself would keep every object to the end."""
        self.backend.buckets.pop(bucket.name, None)
        s3_backends.bucket_accounts.pop(bucket.name, None)
        kept = []
        for key in FakeKey.instances_tracked:
            if key.bucket_name == bucket.name:
                key.dispose()
            else:
                kept.append(key)
        FakeKey.instances_tracked[:] = kept

    def close(self) -> None:
        """End it with all its threads, and forget every object."""
        self.client.close()
        self._listener.close()
        self._door.close()
        self.backend.reset()
        self._environment.stop()


class Bucket:
    """A bucket, and what happens in it behind a filesystem's back.

    Attributes:
        server: The server.
        name: Name of the bucket.
        url: `s3://` and the name.
    """

    def __init__(self, server: S3Server, name: str) -> None:
        self.server = server
        self.name = name
        self.url = f"s3://{name}"

    def set_versions(self, on: bool) -> None:
        """Keep every version of an object from now on, or no longer."""
        self.server.client.put_bucket_versioning(
            Bucket=self.name, VersioningConfiguration={"Status": "Enabled" if on else "Suspended"}
        )

    def seed(self, objects: Mapping[str, bytes | str], prefix: str = "") -> None:
        """Lay many objects, tens of thousands a second: straight into the server's memory, under any key.

        Args:
            objects: Key to content.
            prefix: Put in front of every key.
        """
        put = self.server.backend.put_object
        for key, content in objects.items():
            put(self.name, prefix + key, _bytes(content), disable_notification=True)

    def put(self, key: str, content: bytes | str, **options: Any) -> str:
        """Put an object by a request, and return its ETag.

        Args:
            key: Any key but an empty one or one with a newline, which `seed` can lay.
            content: Text is encoded as UTF-8.
            **options: As boto3 calls them: `ContentEncoding="gzip"`, `StorageClass="GLACIER"`, `Metadata`, …
        """
        done = self.server.client.put_object(Bucket=self.name, Key=key, Body=_bytes(content), **options)
        return str(done["ETag"])

    def put_parts(self, key: str, *parts: bytes, **options: Any) -> str:
        """Put an object in parts of any size, and return its ETag: no MD5, and with `-<parts>` at its end."""
        client, where = self.server.client, {"Bucket": self.name, "Key": key}
        upload = client.create_multipart_upload(**where, **options)["UploadId"]
        done = [
            {
                "PartNumber": number,
                "ETag": client.upload_part(**where, UploadId=upload, PartNumber=number, Body=part)["ETag"],
            }
            for number, part in enumerate(parts, 1)
        ]
        # Of real S3 every part but the last is 5 MiB at least.
        with mock.patch("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 0):
            completed = client.complete_multipart_upload(
                **where, UploadId=upload, MultipartUpload={"Parts": done}
            )
        return str(completed["ETag"])

    def copy(self, source: str, target: str) -> None:
        """Copy an object."""
        self.server.client.copy_object(
            Bucket=self.name, Key=target, CopySource={"Bucket": self.name, "Key": source}
        )

    def delete(self, *keys: str) -> None:
        """Delete objects; where versions are kept, each leaves a delete marker."""
        for key in keys:
            self.server.client.delete_object(Bucket=self.name, Key=key)

    def get(self, key: str) -> bytes:
        """The bytes of an object as stored."""
        return bytes(self.server.backend.get_object(self.name, key).value)

    def keys(self) -> list[str]:
        """Every key that is listed, sorted."""
        kept = self.server.backend.get_bucket(self.name).keys.items()
        return sorted(key for key, what in kept if not isinstance(what, FakeDeleteMarker))


def request_of(incoming: Incoming, answer: Answer) -> Request:
    """What was asked for, in the terms of S3, and what was answered."""
    path, _, text = incoming.target.partition("?")
    bucket, _, key = path.removeprefix("/").partition("/")
    query = dict(parse_qsl(text, keep_blank_values=True))
    headers = incoming.headers
    return Request(
        _operation(incoming.method, bool(bucket), bool(key), query, headers),
        unquote(bucket),
        unquote(key),
        query,
        headers.get("range"),
        headers.get("if-match"),
        headers.get("if-none-match"),
        headers.get("x-amz-copy-source"),
        len(incoming.body),
        answer.status,
        answer.sent if answer.status else 0,
    )


def _operation(
    method: str, bucket: bool, key: bool, query: Mapping[str, str], headers: Mapping[str, str]
) -> str:
    asked = next((name for name in _SUBRESOURCES if name in query), None)
    if not bucket:
        return "ListBuckets"
    if not key:
        if asked is not None:
            return _BUCKET_OPERATIONS.get((method, asked), f"{method} {asked}")
        if method == "GET":
            return "ListObjectsV2" if query.get("list-type") == "2" else "ListObjects"
        return {"HEAD": "HeadBucket", "PUT": "CreateBucket", "DELETE": "DeleteBucket"}.get(method, method)
    if asked is not None:
        return _OBJECT_OPERATIONS.get((method, asked), f"{method} {asked}")
    if method == "PUT" and "x-amz-copy-source" in headers:
        return "UploadPartCopy" if "uploadId" in query else "CopyObject"
    if "uploadId" in query:
        return _UPLOAD_OPERATIONS.get(method, method)
    return {
        "GET": "GetObject",
        "HEAD": "HeadObject",
        "PUT": "PutObject",
        "DELETE": "DeleteObject",
    }.get(method, method)


_BUCKET_OPERATIONS = {
    ("POST", "delete"): "DeleteObjects",
    ("GET", "versions"): "ListObjectVersions",
    ("GET", "uploads"): "ListMultipartUploads",
    ("GET", "location"): "GetBucketLocation",
    ("GET", "versioning"): "GetBucketVersioning",
    ("PUT", "versioning"): "PutBucketVersioning",
}
_OBJECT_OPERATIONS = {
    ("POST", "uploads"): "CreateMultipartUpload",
    ("GET", "attributes"): "GetObjectAttributes",
    ("GET", "tagging"): "GetObjectTagging",
    ("GET", "acl"): "GetObjectAcl",
}
_UPLOAD_OPERATIONS = {
    "PUT": "UploadPart",
    "POST": "CompleteMultipartUpload",
    "DELETE": "AbortMultipartUpload",
    "GET": "ListParts",
}
_SUBRESOURCES = {name for _, name in [*_BUCKET_OPERATIONS, *_OBJECT_OPERATIONS]}


def _bytes(content: bytes | str) -> bytes:
    return content.encode() if isinstance(content, str) else content
