"""S3 as a source, by the client of s3fs.

Listings are `ListObjectsV2` without a delimiter, a thousand keys a request (`ListObjectVersions` where s3fs
was told to be `version_aware`); a reading is one `GetObject` with a range and, as its condition, the ETag
that was known. There is no `HeadObject`: its answer would be old by the time of the reading.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, BinaryIO
from weakref import WeakSet

from aiobotocore.httpsession import AIOHTTPSession
from botocore.utils import parse_timestamp  # type: ignore[import-untyped]

from skillfs.errors import InvalidArgumentError, quoted
from skillfs.stores.base import FileState, StaleFile
from skillfs.stores.patience import Refused, persistently
from skillfs.stores.source import (
    Found,
    Tells,
    account_of,
    after_fork,
    is_not_there,
    may_not_list,
    may_not_read,
)

__all__ = ["S3Source", "s3_settings"]

PIECE = 1 << 20
"""Bytes that a file is read in from one end to the other; in pieces of 8 MiB it took half as long again."""

CLOSING = 5.0
"""Seconds that ending something may take beyond its own time."""

ONE_PUT = 64 << 20
"""Bytes up to which a file is sent in one request; a longer one in parts of this size."""


_SPAN = re.compile(r"bytes (\d+)-(\d+)/(\d+)").fullmatch


class _Straight:
    """A session of aiohttp that goes where it is sent, and nowhere else."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def request(self, *args: Any, **kwargs: Any) -> Any:
        return self._session.request(*args, **kwargs, allow_redirects=False)


class _StraightSession(AIOHTTPSession):  # type: ignore[misc]  # aiobotocore is not typed
    """What sends the requests of a client; by itself it follows a redirect to any host at all."""

    async def _get_session(self, proxy_url: str | None) -> _Straight:
        return _Straight(await super()._get_session(proxy_url))


def s3_settings() -> dict[str, Any]:
    """Settings for a client of botocore; made anew for each, because botocore writes into them."""
    return {
        # Trying again is done up to a deadline, and not by botocore within each try.
        "retries": {"total_max_attempts": 1},
        # Ten are the default: with them 1,500 heads at 15 ms took 2.5 times as long.
        "max_pool_connections": 64,
        # To put its own together takes botocore an eighth of the time of a request.
        "user_agent": "skillfs",
        "http_session_cls": _StraightSession,
    }


_making_anew = threading.Lock()
"""Held by the one thread that makes a client in place of what a fork has left behind."""


def _go_on_in_child() -> None:
    """Before there is a second thread: a closed loop is one that nothing is taken from any more.

    Parent and child share what the loop waits with. To close a connection here, as the client does when it
    is thrown away, would take it from the parent's loop too, whose request would then wait for its timeout.
    """
    global _making_anew
    _making_anew = threading.Lock()
    for source in list(_sources):
        loop = source._target[0].loop
        with suppress(AttributeError):
            loop._thread_id, loop._closed = None, True


_sources: WeakSet[S3Source] = WeakSet()
os.register_at_fork(after_in_child=_go_on_in_child)


def _patient(fs: Any, pid: int) -> tuple[Any, int]:
    # Trying again is done here, up to a deadline, and not five times below each time.
    fs.retries = 1
    return fs, pid


class S3Source:
    """A bucket, or what has a prefix in one; see `Source`.

    The signature of a file is its ETag, its size and, with `version_aware`, its version id. ETags are opaque.

    Args:
        fs: A filesystem of s3fs that nobody else uses.
        root: `bucket` or `bucket/prefix`.
        options: What it was made with.
    """

    def __init__(self, fs: Any, root: str, options: Mapping[str, Any]) -> None:
        bucket, _, prefix = root.strip("/").partition("/")
        if not bucket:
            raise InvalidArgumentError(f"store {quoted(root)} names no bucket; write s3://bucket/prefix")
        self._target = _patient(fs, os.getpid())
        _sources.add(self)
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self.spellings: tuple[str, ...] = (self.url, f"s3a://{self.url[5:]}")
        self.account = account_of(options)
        self.title = prefix.rpartition("/")[2] or bucket
        self.tells: Tells = "version"
        self.holds_empty_folders = False
        self.writable = True

    def find(self, folder: str) -> Iterator[Found]:
        """See `Source.find`."""
        prefix = f"{self._prefix}{folder}/" if folder else self._prefix
        start = len(self._prefix)
        versions = bool(self._fs.version_aware)
        method = "list_object_versions" if versions else "list_objects_v2"
        more: dict[str, str] = {}
        while True:
            try:
                page = self._call(method, Prefix=prefix, **more)
            except PermissionError as error:
                raise may_not_list() from error
            for item in page.get("Versions" if versions else "Contents", ()):
                if not versions or item.get("IsLatest"):
                    yield Found(item["Key"][start:], "file", _state(item, item["Size"], versions))
            if not page.get("IsTruncated"):
                return
            if versions:
                more = {
                    "KeyMarker": page.get("NextKeyMarker", ""),
                    "VersionIdMarker": page.get("NextVersionIdMarker", ""),
                }
            else:
                more = {"ContinuationToken": page["NextContinuationToken"]}

    def get(self, key: str, start: int, end: int, known: FileState) -> bytes:
        """See `Source.get`."""
        end = min(end, known.size)

        async def get() -> bytes:
            async with self._body(key, start, end, known) as body:
                return await _read_all(body, end - start)

        data: bytes = self._persistently(get)
        return data

    def blocks(self, key: str, known: FileState) -> Iterator[bytes]:
        """See `Source.blocks`: one request, and another for the rest where that breaks off."""
        at = 0
        stack = AsyncExitStack()
        body: Any = None

        async def piece() -> bytes:
            nonlocal body, stack
            try:
                if body is None:
                    body = await stack.enter_async_context(self._body(key, at, known.size, known))
                return await _read_all(body, min(PIECE, known.size - at))
            except BaseException:
                await stack.aclose()
                stack, body = AsyncExitStack(), None
                raise

        try:
            while at < known.size:
                data: bytes = self._persistently(piece)
                at += len(data)
                yield data
        finally:
            self._run(stack.aclose, CLOSING)

    @asynccontextmanager
    async def _body(self, key: str, start: int, end: int, known: FileState) -> AsyncIterator[Any]:
        """The body of one GET, which is of the file that has a state."""
        options = {"IfMatch": known.signature.partition(b"\0")[0].decode()}
        part = start > 0 or end < known.size
        if part:
            options["Range"] = f"bytes={start}-{end - 1}"
        try:
            answer = await self._ask("get_object", Key=self._prefix + key, **options)
        except FileNotFoundError as error:
            if (_answer(error) or (0, ""))[1] == "NoSuchBucket":
                raise
            raise StaleFile from None
        async with answer["Body"] as body:
            first, _, size = _span(answer)
            if not answer.get("ETag"):
                raise NotS3Error
            if (first, answer["ContentLength"]) != (start, end - start):
                raise LengthError
            if _state(answer, size, self._fs.version_aware).signature != known.signature:
                raise StaleFile
            yield body

    def head(self, key: str, length: int) -> tuple[FileState, bytes]:
        """See `Source.head`."""

        async def get(**options: str) -> tuple[FileState, bytes]:
            answer = await self._ask("get_object", Key=self._prefix + key, **options)
            async with answer["Body"] as body:
                first, end, size = _span(answer)
                if not answer.get("ETag"):
                    raise NotS3Error
                if first != 0 or end != (min(length, size) if options else 0):
                    raise LengthError
                return _state(answer, size, self._fs.version_aware), await _read_all(body, end)

        try:
            found: tuple[FileState, bytes] = self._persistently(partial(get, Range=f"bytes=0-{length - 1}"))
        except _EmptyError:
            found = self._persistently(get)
        return found

    def state(self, key: str) -> FileState | None:
        """See `Source.state`: by a GET of one byte, so that a key may be read where it may not be listed."""
        try:
            return self.head(key, 1)[0]
        except FileNotFoundError:
            return None

    def settled(self, state: FileState) -> FileState:
        """See `Source.settled`: an ETag is never too young."""
        return state

    def put(self, key: str, file: BinaryIO, size: int, *, exclusive: bool) -> None:
        """See `Source.put`."""
        try:
            self._put(self._prefix + key, file, size, {"IfNoneMatch": "*"} if exclusive else {})
        except StaleFile:
            raise FileExistsError(errno.EEXIST, "there is such a file already") from None

    def _put(self, key: str, file: BinaryIO, size: int, condition: dict[str, str]) -> None:
        name = {"Key": key}
        if size <= ONE_PUT:
            file.seek(0)
            self._call("put_object", **name, Body=file.read(), **condition)
            return
        upload = {**name, "UploadId": self._call("create_multipart_upload", **name)["UploadId"]}
        try:
            file.seek(0)
            parts: list[dict[str, Any]] = []
            while block := file.read(ONE_PUT):
                number = len(parts) + 1
                answer = self._call("upload_part", **upload, PartNumber=number, Body=block)
                parts.append({"PartNumber": number, "ETag": answer["ETag"]})
            self._call("complete_multipart_upload", **upload, MultipartUpload={"Parts": parts}, **condition)
        except BaseException:
            self._call("abort_multipart_upload", **upload)
            raise

    def copy(self, source: str, target: str) -> None:
        """See `Source.copy`."""
        origin = {"Bucket": self._bucket, "Key": self._prefix + source}
        self._call("copy_object", Key=self._prefix + target, CopySource=origin)

    def delete(self, key: str) -> None:
        """See `Source.delete`."""
        self._call("delete_object", Key=self._prefix + key)

    def make_folder(self, key: str) -> None:
        """Nothing: there are no folders."""

    def remove_folder(self, key: str) -> None:
        """Nothing: there are no folders."""

    @property
    def _fs(self) -> Any:
        fs, pid = self._target
        if pid != os.getpid():
            with _making_anew:
                fs, _ = self._target = _patient(*after_fork(*self._target))
        return fs

    async def _ask(self, method: str, **options: Any) -> dict[str, Any]:
        fs = self._fs
        client = await fs.set_session()
        with suppress(AttributeError):
            # Its own way to read times takes three quarters of the time in which a listing is parsed.
            client._endpoint._response_parser_factory.set_parser_defaults(timestamp_parser=_time_of)
        answer: dict[str, Any] = await fs._call_s3(method, Bucket=self._bucket, **options)
        return answer

    def _call(self, method: str, **options: Any) -> dict[str, Any]:
        async def call() -> dict[str, Any]:
            answer = await self._ask(method, **options)
            if method.startswith("list_") and answer.get("Name") != self._bucket:
                raise NotS3Error  # a page of something between would pass for a bucket with nothing in it
            return answer

        found: dict[str, Any] = self._persistently(call)
        return found

    def _persistently(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return persistently(lambda left: self._run(work, left), _reason)

    def _run(self, work: Callable[[], Coroutine[Any, Any, Any]], seconds: float) -> Any:
        """Run something on the loop of the client; nothing of it goes on when this ends, however it does."""
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work(), seconds), self._fs.loop)
        try:
            return future.result(seconds + CLOSING)
        finally:
            future.cancel()


def _state(answer: Mapping[str, Any], size: int, versions: bool) -> FileState:
    modified = answer.get("LastModified")
    nanoseconds = int(modified.timestamp()) * 1_000_000_000 if isinstance(modified, datetime) else 0
    version = answer.get("VersionId", "") if versions else ""
    return FileState(f"{answer['ETag']}\0{size}\0{version}".encode(), size, nanoseconds)


def _time_of(text: str) -> datetime:
    """A time as S3 writes it: in ISO 8601 in listings, as mail does in headers."""
    try:
        if text[4:5] == "-":
            return datetime.fromisoformat(text)
        if text[3:4] == ",":
            return parsedate_to_datetime(text)
    except ValueError:
        pass
    found: datetime = parse_timestamp(text)
    return found


async def _read_all(body: Any, length: int) -> bytes:
    """Exactly so many bytes: a reading may return fewer than were asked for."""
    parts = []
    while length > 0:
        data = await body.read(length)
        if not data:
            raise LengthError
        parts.append(data)
        length -= len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _span(answer: Mapping[str, Any]) -> tuple[int, int, int]:
    """The first byte of a body, the one after its last, and the size of the whole file."""
    found = _SPAN(answer.get("ContentRange") or "")
    length = int(answer["ContentLength"])
    if found is None:
        return 0, length, length
    first, last, size = map(int, found.groups())
    return first, last + 1, size


class NotS3Error(Exception):
    """An answer that is none of S3, such as the page of a gateway. Never reaches a caller."""


class LengthError(Exception):
    """A body of another length than was asked for, or announced. Never reaches a caller."""


class _EmptyError(Exception):
    """A range was asked of an empty object."""


def _reason(error: Exception) -> str:
    answer = _answer(error)
    if answer is None:
        return _reason_without_answer(error)
    status, code = answer
    if code == "InvalidObjectState":
        raise Refused("the object is archived; restore it first") from error
    if status == 404 and code != "NoSuchBucket":
        raise is_not_there() from error
    if status == 412 or code == "PreconditionFailed":
        raise StaleFile from error
    if status == 416:
        raise _EmptyError from error
    if status in (401, 403):
        raise may_not_read() from error
    if code == "NoSuchBucket":
        raise Refused("there is no such bucket") from error
    if 300 <= status < 500 and status not in (408, 409, 425, 429):
        raise Refused(f"HTTP status {status}" + (f", {code}" if code.isalnum() else "")) from error
    return f"HTTP status {status}"


_WORDS = {
    "NoCredentialsError": "",
    "PartialCredentialsError": "",
    "ProfileNotFound": "",
    "ClientPayloadError": "the answer was cut short",
    "LengthError": "the answer has not the length that was asked for",
    "ResponseParserError": "the answer is not one of S3",
    "NotS3Error": "the answer is not one of S3",
    "EndpointConnectionError": "no connection",
    "ConnectionClosedError": "the connection was closed",
    "ServerDisconnectedError": "the connection was closed",
    "TimeoutError": "no answer in time",
    "ReadTimeoutError": "no answer in time",
    "ConnectTimeoutError": "no answer in time",
    "SSLError": "no trusted connection",
}


def _reason_without_answer(error: Exception) -> str:
    if isinstance(error, FileExistsError):
        raise error
    names = [type(each).__name__ for each in _chain(error)]
    name = next((n for n in names if n in _WORDS), names[0])
    if _WORDS.get(name) == "":
        raise Refused(
            "no credentials were found; pass key and secret, a profile or anon=True, or set them in the "
            "environment"
        ) from error
    if name == "ParamValidationError" or isinstance(
        error, TypeError | LookupError | AttributeError | ValueError | NameError | AssertionError
    ):
        raise Refused(f"{name} in the client") from error
    return _WORDS.get(name, "the connection failed")


def _answer(error: BaseException | None) -> tuple[int, str] | None:
    """HTTP status and code of the error of S3 that an error came from."""
    for each in _chain(error):
        response = getattr(each, "response", None)
        if isinstance(response, dict):
            code = str(response.get("Error", {}).get("Code", ""))
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return int(status or (code if code.isdigit() else 0)), code
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it came from: s3fs raises errors of the system in place of those of S3."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
