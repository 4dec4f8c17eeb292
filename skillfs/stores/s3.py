"""S3 as a source, by the client of s3fs.

Listings are `ListObjectsV2` without a delimiter, a thousand keys a request (`ListObjectVersions` where s3fs
was told to be `version_aware`); a reading is one `GetObject` with a range and, as its condition, the ETag
that was known. There is no `HeadObject`: its answer would be old by the time of the reading.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Set
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, BinaryIO
from weakref import WeakSet

from aiobotocore.httpsession import AIOHTTPSession
from botocore.utils import parse_timestamp  # type: ignore[import-untyped]

from skillfs.errors import InvalidArgumentError, StoreUnavailableError, quoted
from skillfs.stores import patience
from skillfs.stores.base import FileState, StaleFile
from skillfs.stores.s3_answers import (
    LengthError,
    NotS3Error,
    answer_of,
    is_same_version,
    listed,
    next_page,
    read_all,
    reason_of,
    span,
    state_of,
)
from skillfs.stores.source import (
    Found,
    Tells,
    account_of,
    after_fork,
    may_not_list,
)

__all__ = ["S3Source", "s3_settings"]

PIECE = 1 << 20
"""Bytes that a file is read in from one end to the other; in pieces of 8 MiB it took half as long again."""

CLOSING = 5.0
"""Seconds that ending something may take beyond its own time."""

ONE_PUT = 16 << 20
"""Bytes up to which a file is sent in one request; a longer one in parts of this size."""


MOST_OF_ERROR = 1 << 20
"""Bytes that are read of an answer that says no."""

MOST_OF_ANSWER = 16 << 20
"""Bytes that are read of any answer but a file: a thousand of the longest keys take 5 MB at most."""

SILENCE = 1 / 3
"""Part of the deadline that nothing may come for in the middle of a file; then it is asked for anew."""


class _Straight:
    """A session of aiohttp that goes where it is sent, and nowhere else."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def request(self, *args: Any, **kwargs: Any) -> Any:
        return self._session.request(*args, **kwargs, allow_redirects=False)


class _StraightSession(AIOHTTPSession):  # type: ignore[misc]  # aiobotocore is not typed
    """What sends the requests of a client; by itself it follows a redirect to any host at all.

    Nor does it end before the body of an answer does, however long that is.
    """

    async def _get_session(self, proxy_url: str | None) -> _Straight:
        return _Straight(await super()._get_session(proxy_url))

    async def send(self, request: Any) -> Any:
        streamed, request.stream_output = request.stream_output, True  # so that the body is left to be read
        answer = await super().send(request)
        if answer.status_code >= 300:
            answer._content = await _at_most(MOST_OF_ERROR, answer.raw)
        elif not streamed:
            answer._content = await _at_most(MOST_OF_ANSWER, answer.raw)
        return answer


async def _at_most(most: int, response: Any) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async for part in response.content.iter_any():
            size += len(part)
            if size > most:
                raise NotS3Error
            parts.append(part)
    except BaseException:
        response.close()
        raise
    return b"".join(parts)


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
        with suppress(Exception):  # of one source; the others are still to be seen to
            loop = source._target[0]._loop  # `loop` itself raises here
            loop._thread_id, loop._closed = None, True
            # Everything that is thrown away unclosed would be told on the standard error.
            loop.set_exception_handler(lambda *_: None)


_left_behind: list[object] = []
"""Bodies that the parent of a fork was reading; to end one here would meddle with the parent's connection."""


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
        more: dict[str, str] = {}
        asked: set[tuple[str, ...]] = set()
        while True:
            try:
                found, more = self._page(prefix, more, asked)
            except PermissionError as error:
                raise may_not_list(error.filename or "") from error
            except FileNotFoundError as error:
                raise StoreUnavailableError(
                    "the store refuses to answer: HTTP status 404; see that endpoint and bucket are right"
                ) from error
            yield from found
            if not more:
                return
            asked.add(tuple(more.values()))

    def _page(
        self, prefix: str, more: dict[str, str], asked: Set[tuple[str, ...]]
    ) -> tuple[list[Found], dict[str, str]]:
        """What one answer lists, and how to ask for the next page; empty when there is none."""
        versions = bool(self._fs.version_aware)

        async def page() -> tuple[list[Found], dict[str, str]]:
            method = "list_object_versions" if versions else "list_objects_v2"
            answer = await self._ask(method, Prefix=prefix, **more)
            if answer.get("Name") != self._bucket:
                raise NotS3Error  # a page of something between would pass for a bucket with nothing in it
            found = [
                Found(key[len(self._prefix) :], "file", state)
                for key, state in listed(answer, prefix, versions)
            ]
            return found, next_page(answer, versions, asked)

        result: tuple[list[Found], dict[str, str]] = self._persistently(page)
        return result

    def get(self, key: str, start: int, end: int, known: FileState) -> bytes:
        """See `Source.get`."""
        return b"".join(self._pieces(key, start, min(end, known.size), known))

    def blocks(self, key: str, known: FileState) -> Iterator[bytes]:
        """See `Source.blocks`: one request, and another for the rest where that breaks off."""
        if known.size > 0:
            yield from self._pieces(key, 0, known.size, known)

    def _pieces(self, key: str, start: int, end: int, known: FileState) -> Iterator[bytes]:
        """Bytes in pieces, at least one; each with its own deadline, begun anew where it breaks off."""
        at = start
        stack = AsyncExitStack()
        body: Any = None
        pid = os.getpid()

        async def leave() -> None:
            nonlocal stack, body
            left, stack, body = stack, AsyncExitStack(), None
            await left.aclose()

        async def piece() -> bytes:
            nonlocal body
            length = min(PIECE, end - at)
            try:
                if body is None:
                    body = await stack.enter_async_context(self._body(key, at, end, known))
                data = await read_all(body, length, patience.DEADLINE * SILENCE)
            except BaseException:
                await leave()
                raise
            if at + length >= end:
                await leave()
            return data

        try:
            while True:
                if pid != os.getpid():
                    _left_behind.append(stack)
                    stack, body, pid = AsyncExitStack(), None, os.getpid()
                data: bytes = self._persistently(piece, of_key=True)
                at += len(data)
                yield data
                if at >= end:
                    return
        finally:
            if pid != os.getpid():
                _left_behind.append(stack)
            elif body is not None:
                self._end(leave)

    def _end(self, leave: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Leave a body that was not read to its end."""
        loop = self._fs.loop
        done = asyncio.run_coroutine_threadsafe(leave(), loop)
        try:
            if asyncio.get_running_loop() is loop:
                return  # the garbage collector ran on the very thread that is to do it
        except RuntimeError:
            pass
        with suppress(Exception):  # nobody wants anything of it any more
            done.result(CLOSING)

    @asynccontextmanager
    async def _body(self, key: str, start: int, end: int, known: FileState) -> AsyncIterator[Any]:
        """The body of one GET, which is of the file that has a state."""
        options = {"IfMatch": known.signature.partition(b"\0")[0].decode()}
        part = start > 0 or end < known.size
        if part:
            options["Range"] = f"bytes={start}-{end - 1}"
        try:
            answer = await self._ask("get_object", Key=self._prefix + key, **options)
        except Exception as error:
            status, code = answer_of(error) or (0, "")
            # Where the condition is overlooked, a file that has become too short has not the range.
            if status == 416 or (isinstance(error, FileNotFoundError) and code != "NoSuchBucket"):
                raise StaleFile from None
            raise
        async with answer["Body"] as body:
            first, after, size = span(answer)
            state = state_of(answer, size, self._fs.version_aware)
            if state.signature != known.signature:
                if is_same_version(state, known):
                    raise LengthError
                raise StaleFile
            if (first, after) != (start, end):
                raise LengthError
            yield body

    def head(self, key: str, length: int) -> tuple[FileState, bytes]:
        """See `Source.head`."""

        async def get(**options: str) -> tuple[FileState, bytes]:
            try:
                answer = await self._ask("get_object", Key=self._prefix + key, **options)
            except Exception as error:
                if options and (answer_of(error) or (0, ""))[0] == 416:
                    return await get()  # an empty file has no range
                raise
            async with answer["Body"] as body:
                first, end, size = span(answer)
                state = state_of(answer, size, self._fs.version_aware)
                if first != 0 or end != (min(length, size) if options else 0):
                    raise LengthError
                return state, await read_all(body, end, patience.DEADLINE * SILENCE)

        found: tuple[FileState, bytes] = self._persistently(
            partial(get, Range=f"bytes=0-{length - 1}"), of_key=True
        )
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
        upload = {**name, "UploadId": self._call("create_multipart_upload", "UploadId", **name)["UploadId"]}
        try:
            file.seek(0)
            parts: list[dict[str, Any]] = []
            while block := file.read(ONE_PUT):
                number = len(parts) + 1
                answer = self._call("upload_part", "ETag", **upload, PartNumber=number, Body=block)
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

    def _call(self, method: str, *told: str, **options: Any) -> dict[str, Any]:
        """An answer that has a text under each name of `told`."""

        async def call() -> dict[str, Any]:
            answer = await self._ask(method, **options)
            if not all(answer.get(name) for name in told):
                raise NotS3Error
            return answer

        found: dict[str, Any] = self._persistently(call)
        return found

    def _persistently(self, work: Callable[[], Coroutine[Any, Any, Any]], *, of_key: bool = False) -> Any:
        return patience.persistently(lambda left: self._run(work, left), partial(reason_of, of_key=of_key))

    def _run(self, work: Callable[[], Coroutine[Any, Any, Any]], seconds: float) -> Any:
        """Run something on the loop of the client; nothing of it goes on when this ends, however it does."""
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work(), seconds), self._fs.loop)
        try:
            return future.result(seconds + CLOSING)
        finally:
            future.cancel()


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
