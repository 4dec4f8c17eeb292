"""Folders on a web server as a source: pages with links, such as servers make of folders by themselves.

A listing is a page for each folder, and a HEAD for each file, because pages do not say which version of a
file there is. A reading is one GET, whose own headers say of which version its bytes are. Redirects are
followed on the same server only.

fsspec's own filesystem for HTTP makes the connections and nothing else: it takes every failure for a missing
file, follows redirects anywhere, and passes over links that begin with `http`, such as `http-client/`.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from asyncio import Semaphore, gather
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from html.parser import HTMLParser
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urljoin, urlsplit

from fsspec.asyn import sync
from fsspec.implementations.http import HTTPFileSystem
from yarl import URL

from skillfs.core.refs import MAX_REF_BYTES
from skillfs.errors import InvalidArgumentError, SkillFSError, StoreUnavailableError
from skillfs.stores.attributes import Tells, least, state_of
from skillfs.stores.base import FileState, StaleFile, unsettled
from skillfs.stores.patience import Refused, persistently
from skillfs.stores.source import (
    YOUNG_NS,
    Found,
    LengthError,
    account_of,
    after_fork,
    may_not_list,
    no_such_root,
    reason_of,
    root_is_away,
    root_is_file,
)

__all__ = ["HttpSource"]

PIECE = 1 << 20
"""Bytes that a file is read in from one end to the other."""

AT_ONCE = 32
"""How many files are asked for together while everything is listed."""

MOST_REQUESTS = 5
"""How many requests are under way at a time.

The server that comes with Python lets five wait, and a connection beyond that is tried again a second later:
130 files were listed in 0.1 s with up to six, and in 5 s with eight.
"""

MOST_REDIRECTS = 5
CLOSING = 5.0

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NO_HEAD = frozenset({405, 501})
_SPAN = re.compile(r"bytes (\d+)-(\d+)/(\d+)").fullmatch
_PAGES = frozenset({"text/html", "application/xhtml+xml"})

T = TypeVar("T")


class _NoPageError(Exception):
    """What was to be a page with links is something else."""


def _is_on(loop: object) -> bool:
    """Whether this runs on a loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class HttpSource:
    """A folder on a web server; see `Source`.

    Args:
        fs: A filesystem of fsspec for HTTP.
        root: URL of the folder.
        options: What the filesystem was made with.
    """

    def __init__(self, fs: HTTPFileSystem, root: str, options: Mapping[str, Any]) -> None:
        try:
            url = URL(root)
            self._origin = url.origin()
        except ValueError:
            raise InvalidArgumentError("the store's URL is malformed; write http://host/folder") from None
        if url.raw_query_string or url.raw_fragment or root.rstrip("/").endswith(("?", "#")):
            raise InvalidArgumentError(
                'the store\'s URL has a "?" or "#"; name a folder, and write %3F or %23 for those in its name'
            )
        if url.raw_path.rpartition("/")[2] in (".", ".."):
            raise InvalidArgumentError('the store\'s URL has "." or ".." in its path; leave them away')
        self._target = (fs, os.getpid())
        self._root = str(url.with_path(quote(url.path.rstrip("/")), encoded=True)).rstrip("/")
        self._late = 0
        self._slots = Semaphore(MOST_REQUESTS)
        self.url = self._root
        self.spellings: tuple[str, ...] = tuple(dict.fromkeys((self.url, root.rstrip("/"))))
        self.account = account_of(options)
        self.title = url.path.rstrip("/").rpartition("/")[2] or "/"
        self.tells: Tells = "version"
        self.holds_empty_folders = True
        self.writable = False

    # -- listing -------------------------------------------------------------------------------------------

    def find(self, folder: str) -> Iterator[Found]:
        """See `Source.find`.

        Raises:
            StoreUnavailableError: A page could not be had, or the root's is none or has no links.
            UnreadableError: The credentials do not allow it.
        """
        level = [folder]
        while level:
            below: list[str] = []
            files: list[str] = []
            for path, links in self._each(level, self._links):
                if links is None and not path:
                    raise root_is_away()
                if not links and not path:
                    # The page where one signs in, or the one of a gateway, looks just like that.
                    raise StoreUnavailableError(
                        "the page at the store's URL links to nothing below it and is taken for no listing; "
                        "have the server list the folder"
                    )
                for name in links or ():
                    key = f"{path}/{name}" if path else name
                    if not key.endswith("/"):
                        files.append(key)
                    elif len(key) < MAX_REF_BYTES and _is_plain(key[:-1]):
                        below.append(key[:-1])
                        yield Found(key[:-1], "folder", _NO_STATE)
            for key, state in self._each(files, self._state_of_link):
                if state is not None:
                    yield Found(key, "file", self.settled(state))
            level = below

    async def _links(self, folder: str) -> list[str] | None:
        """What a folder's page links to in it, folders with a slash at the end; None when there is none."""
        try:
            async with self._answer("GET", self._url(folder) + "/") as answer:
                if answer.content_type not in _PAGES and folder:
                    return None
                if answer.content_type not in _PAGES:
                    raise _NoPageError
                text = await answer.text(errors="surrogateescape")
                return _links_in(text, str(answer.url))
        except FileNotFoundError:
            return None

    async def _state_of_link(self, key: str) -> FileState | None:
        # Nothing else is asked for what can be no path of a file; it is told, and no more.
        return await self._head(key) if _is_plain(key) else FileState(b"", -1, 0)

    def _each(
        self, items: Sequence[str], work: Callable[[str], Coroutine[Any, Any, T]]
    ) -> Iterator[tuple[str, T]]:
        """Ask for many things, some at a time; what was answered is not asked for again."""
        for at in range(0, len(items), AT_ONCE):
            some = items[at : at + AT_ONCE]
            done: dict[str, T] = {}

            async def one(item: str, done: dict[str, T] = done) -> None:
                if item not in done:
                    done[item] = await work(item)

            async def all_of_them(some: Sequence[str] = some) -> None:
                for error in await gather(*map(one, some), return_exceptions=True):  # at once
                    if error is not None:
                        raise error

            try:
                self._persistently(all_of_them)
            except PermissionError as error:
                raise may_not_list() from error
            except IsADirectoryError as error:
                raise StoreUnavailableError(
                    "what the store's URL answers with is no page with links, so it is taken for no listing; "
                    "have the server list the folder"
                ) from error
            yield from ((item, done[item]) for item in dict.fromkeys(some))

    def check_root(self) -> None:
        """See `RootedSource.check_root`."""
        try:
            links = self._persistently(lambda: self._links(""))
        except (SkillFSError, PermissionError):
            return  # the first listing says it too
        except IsADirectoryError:
            raise root_is_file() from None
        if links is None:
            raise no_such_root()

    # -- reading -------------------------------------------------------------------------------------------

    def get(self, key: str, start: int, end: int, known: FileState) -> bytes:
        """See `Source.get`."""
        if known.size >= 0:
            end = min(end, known.size)

        async def get() -> bytes:
            async with self._body(key, start, end, known) as body:
                length = end - start
                return await _read_all(body, length) if known.size >= 0 else await _read_most(body, length)

        data: bytes = self._persistently(get)
        return data

    def blocks(self, key: str, known: FileState) -> Iterator[bytes]:
        """See `Source.blocks`: one request, and another for the rest where that breaks off."""
        if known.size < 0 or not known.signature:
            yield self.get(key, 0, known.size if known.size >= 0 else 1 << 62, known)
            return
        at = 0
        stack = AsyncExitStack()
        body: Any = None
        pid = os.getpid()

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
            # In a child, or when the garbage collector ends this on the loop's own thread, nobody can wait.
            if body is not None and pid == os.getpid() and not _is_on(self._fs.loop):
                sync(self._fs.loop, stack.aclose, timeout=CLOSING)

    @asynccontextmanager
    async def _body(self, key: str, start: int, end: int, known: FileState) -> AsyncIterator[Any]:
        """The body of one GET from `start` on, which is of the file that has a state."""
        part = known.size >= 0 and (start > 0 or end < known.size)
        wanted = {"Range": f"bytes={start}-{end - 1}"} if part else {}
        try:
            async with self._answer("GET", self._url(key), **wanted) as answer:
                if answer.url.path.endswith("/") or answer.status == 416:
                    raise StaleFile
                if self._state(answer).signature != known.signature:
                    raise StaleFile
                first = _first(answer)
                if first > start:
                    raise LengthError
                await _read_all(answer.content, start - first)  # of a server that knows no ranges
                yield answer.content
        except FileNotFoundError:
            raise StaleFile from None

    def head(self, key: str, length: int) -> tuple[FileState, bytes]:
        """See `Source.head`: state and bytes are of one answer."""

        async def get(wanted: Mapping[str, str]) -> tuple[FileState, bytes] | None:
            async with self._answer("GET", self._url(key), **wanted) as answer:
                if answer.url.path.endswith("/"):
                    raise FileNotFoundError
                if answer.status == 416:
                    return None  # of an empty file there is no range
                state = self._state(answer)
                if _first(answer):
                    raise LengthError
                if state.size >= 0:
                    return state, await _read_all(answer.content, min(length, state.size))
                data = await _read_most(answer.content, 1 << 62)
                return state._replace(size=len(data)), data[:length]

        found: tuple[FileState, bytes] | None = self._persistently(
            lambda: get({"Range": f"bytes=0-{length - 1}"})
        )
        if found is None:
            found = self._persistently(lambda: get({}))
        if found is None:
            raise StoreUnavailableError("the store refuses to answer: HTTP status 416")
        return self.settled(found[0]), found[1]

    def state(self, key: str) -> FileState | None:
        """See `Source.state`."""
        state: FileState | None = self._persistently(lambda: self._head(key))
        return state

    async def _head(self, key: str) -> FileState | None:
        url = self._url(key)
        try:
            try:
                async with self._answer("HEAD", url) as answer:
                    return None if answer.url.path.endswith("/") else self._state(answer)
            except Refused:
                pass  # some servers know no HEAD
            async with self._answer("GET", url) as answer:
                return None if answer.url.path.endswith("/") else self._state(answer)
        except FileNotFoundError:
            return None

    def _state(self, answer: Any) -> FileState:
        headers = answer.headers
        info: dict[str, Any] = {name: headers.get(name) for name in ("ETag", "Last-Modified")}
        if headers.get("Content-Encoding", "identity") == "identity":  # else the length is of what is sent
            span = _SPAN(headers.get("Content-Range", "")) if answer.status == 206 else None
            if span is not None:
                info["size"] = int(span[3])
            elif answer.status != 206 and "Content-Length" in headers:
                info["size"] = int(headers["Content-Length"])
        state, tells = state_of(info)
        self.tells = least(self.tells, tells)
        if now := state_of({"Last-Modified": headers.get("Date")})[0].modified:
            self._late = time.time_ns() - now
        return state

    def settled(self, state: FileState) -> FileState:
        """See `Source.settled`: many servers make an ETag of whole seconds and the size."""
        if not state.signature:
            return unsettled(state)
        young = state.modified and time.time_ns() - self._late - state.modified < YOUNG_NS
        return unsettled(state) if young else state

    # -- requests ------------------------------------------------------------------------------------------

    @property
    def _fs(self) -> Any:
        if self._target[1] != os.getpid():
            self._target = after_fork(*self._target)
            self._slots = Semaphore(MOST_REQUESTS)  # the other one is of the parent's event loop
        return self._target[0]

    def _url(self, key: str) -> str:
        return f"{self._root}/{quote(key)}" if key else self._root

    @asynccontextmanager
    async def _answer(self, method: str, url: str, **headers: str) -> AsyncIterator[Any]:
        """The answer to a request, unless it is an error; FileNotFoundError when there is nothing."""
        fs = self._fs
        session = await fs.set_session()
        options = {k: v for k, v in fs.kwargs.items() if k not in ("headers", "allow_redirects")}
        given = {**fs.kwargs.get("headers", {}), "Accept-Encoding": "identity", **headers}
        where = URL(url, encoded=True)
        for _ in range(MOST_REDIRECTS + 1):
            async with (
                self._slots,
                session.request(method, where, headers=given, allow_redirects=False, **options) as answer,
            ):
                status = answer.status
                if status in _REDIRECTS and "Location" in answer.headers:
                    where = where.join(URL(answer.headers["Location"]))
                    if where.origin() != self._origin:
                        raise Refused("it redirects to another server, which is not followed")
                    continue
                if method == "HEAD" and status in _NO_HEAD:
                    raise Refused(f"HTTP status {status}")
                if status in (404, 410):
                    raise FileNotFoundError
                if status != 416:
                    answer.raise_for_status()
                if 300 <= status < 400:
                    raise Refused(f"HTTP status {status}")
                yield answer
                return
        raise Refused("it redirects in a circle")

    def _persistently(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return persistently(lambda left: sync(self._fs.loop, work, timeout=left), _reason)


_NO_STATE = FileState(b"", 0, 0)


def _links_in(text: str, page: str) -> list[str]:
    """What a page links to below its own URL, decoded, each once; folders end with a slash."""
    collector = _Collector()
    collector.feed(text)
    base = urlsplit(page)
    top = unquote(base.path.rpartition("/")[0]) + "/"
    links: dict[str, None] = {}
    for href in collector.links:
        if "?" in href or "#" in href:
            continue  # orders to sort, and places in the page
        try:
            target = urlsplit(urljoin(page, href))
        except ValueError:
            continue
        if (target.scheme, target.netloc) != (base.scheme, base.netloc):
            continue
        # A slash that is encoded would be one between components.
        path = unquote(re.sub("%2f", "\0", target.path, flags=re.IGNORECASE), errors="surrogateescape")
        if path.startswith(top) and path != top:
            links[path[len(top) :]] = None
    return list(links)


class _Collector(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value.strip() for name, value in attrs if name == "href" and value]


def _is_plain(key: str) -> bool:
    return all(part not in ("", ".", "..") for part in key.split("/")) and not re.search(
        r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", key
    )


def _first(answer: Any) -> int:
    """The first byte of a body."""
    if answer.status != 206:
        return 0
    span = _SPAN(answer.headers.get("Content-Range", ""))
    if span is None:
        raise LengthError
    return int(span[1])


async def _read_all(body: Any, length: int) -> bytes:
    """Exactly so many bytes."""
    data = await _read_most(body, length)
    if len(data) != length:
        raise LengthError
    return data


async def _read_most(body: Any, length: int) -> bytes:
    parts = []
    while length > 0:
        data = await body.read(min(length, PIECE))
        if not data:
            break
        parts.append(data)
        length -= len(data)
    return b"".join(parts)


_WORDS = {
    "ClientPayloadError": "the answer was cut short",
    "ServerDisconnectedError": "the connection was closed",
    "ClientConnectorError": "no connection",
    "ClientConnectorDNSError": "no connection",
    "ClientConnectorCertificateError": "no trusted connection",
    "ServerTimeoutError": "no answer in time",
    "SocketTimeoutError": "no answer in time",
    "ConnectionTimeoutError": "no answer in time",
}


def _reason(error: Exception) -> str:
    if isinstance(error, Refused):
        raise error
    if isinstance(error, _NoPageError):
        raise IsADirectoryError from error
    return _WORDS.get(type(error).__name__) or reason_of(error)
