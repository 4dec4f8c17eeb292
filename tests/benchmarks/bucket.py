"""An S3 in a process of its own that costs next to nothing and counts what it is asked.

moto takes 2.5 ms of its one process for a reading and 0.1 s for a page of a listing, several times what a
client does: nothing could be seen of that. This one knows listings, readings under conditions
and plain writes, and keeps listings in the form in which they are sent. It listens on the loopback interface
only, lets everybody in, and can hold every answer back for a while, as a distance would.

`python -m tests.benchmarks.bucket CONTENTS JSON` serves what the function `CONTENTS` here makes of keyword
arguments, and prints its address. Clients are told `BUCKET`. What begins with `/-/` steers it:

    GET /-/taken              what was asked since the last time: how often each operation, and bytes sent
    GET /-/delay/SECONDS      hold every answer back from now on
    GET /-/delay/SECONDS/GET  hold the answers to one operation back
"""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import os
import re
import subprocess
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, quote, unquote
from xml.sax.saxutils import escape

BUCKET = "skills"
LIBRARY = "library"
READING = "reading"
LARGE_BYTES = 20_000_000
_PAGE = 1000
_MODIFIED = ("2026-01-02T03:04:05.000Z", "Fri, 02 Jan 2026 03:04:05 GMT")
_RANGE = re.compile(r"bytes=(\d*)-(\d*)").fullmatch
_REASONS = {200: "OK", 206: "Partial Content", 404: "Not Found", 412: "Precondition Failed", 416: "Range"}


class Stored:
    """An object that is held."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)

    @cached_property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}"'

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        yield self.data if start == 0 and end == self.size else self.data[start:end]


class Endless:
    """A text of any size that is held by nobody: blocks that differ in the number at their start.

    Every block is `BLOCK` bytes and `CHARACTERS` characters of UTF-8.
    """

    _LINE = "größe → “quoted” 数据 🙂 and plain words that a reader passes over, one after another\n"
    _REST = (_LINE * 11_000).encode()
    BLOCK = 13 + len(_REST)
    CHARACTERS = 13 + len(_LINE) * 11_000

    def __init__(self, blocks: int) -> None:
        self.size = blocks * self.BLOCK
        self.etag = f'"{blocks:032x}-{blocks}"'

    @classmethod
    def block(cls, number: int) -> bytes:
        return b"%012d\n" % number + cls._REST

    @classmethod
    def text(cls, start: int, length: int) -> str:
        """Characters of it."""
        first, last = start // cls.CHARACTERS, (start + length) // cls.CHARACTERS
        text = "".join(cls.block(number).decode() for number in range(first, last + 1))
        return text[start - first * cls.CHARACTERS :][:length]

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            number, at = divmod(start, self.BLOCK)
            stop = min(self.BLOCK, at + end - start)
            yield self.block(number)[at:stop]
            start += stop - at


Object = Stored | Endless


def library(skills: int, files: int, small_files: bool) -> dict[str, Object]:
    """Skills with so many files each, of the sizes and faults of real ones, and what is to be read."""
    from tests.benchmarks import corpus

    objects: dict[str, Object] = {
        f"{LIBRARY}/{key}": Stored(data)
        for key, data in corpus.objects(skills, files, seed=20, small_files=small_files).items()
    }
    for key, data in corpus.reading_objects(20, LARGE_BYTES).items():
        objects[f"{READING}/{key}"] = Stored(data)
    return objects


def endless(blocks: int) -> dict[str, Object]:
    """One skill with a text of so many blocks."""
    return {
        f"{LIBRARY}/texts/SKILL.md": Stored(b"---\nname: texts\ndescription: A long one.\n---\n"),
        f"{LIBRARY}/texts/huge.txt": Endless(blocks),
    }


class Server:
    """Answers requests about some objects."""

    def __init__(self, objects: Mapping[str, Object]) -> None:
        self.objects = dict(objects)
        self.keys = sorted(self.objects)
        self.listed = {key: _listed(key, found) for key, found in self.objects.items()}
        self.asked: Counter[str] = Counter()
        self.delay, self.delayed = 0.0, ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, target, _ = head[0].split(" ", 2)
                headers = {
                    name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                await self.answer(writer, method, target, headers, body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(
        self, writer: asyncio.StreamWriter, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> None:
        path, _, text = target.partition("?")
        if path.startswith("/-/"):
            await self.send(writer, "", 200, {}, self.steered(path))
            return
        _, bucket, key = (*path.split("/", 2), "")[:3]
        key = unquote(key)
        query = {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}
        operation = "LIST" if not key and "list-type" in query else method
        self.asked[operation] += 1
        if self.delay and self.delayed in ("", operation):
            await asyncio.sleep(self.delay)
        if bucket != BUCKET:
            await self.send(writer, method, 404, {}, _error("NoSuchBucket"))
        elif not key:
            await self.send(writer, method, 200, {}, self.page(query) if operation == "LIST" else b"")
        elif method == "PUT":
            await self.send(writer, method, 200, {"ETag": self.put(key, body)}, b"")
        else:
            await self.object(writer, method, key, headers)

    def steered(self, path: str) -> bytes:
        if path.startswith("/-/delay/"):
            seconds, _, self.delayed = path.removeprefix("/-/delay/").partition("/")
            self.delay = float(seconds)
            return b""
        taken, self.asked = self.asked, Counter()
        return json.dumps(taken).encode()

    def put(self, key: str, data: bytes) -> str:
        found = Stored(data)
        if key not in self.objects:
            self.keys.insert(bisect_right(self.keys, key), key)
        self.objects[key], self.listed[key] = found, _listed(key, found)
        return found.etag

    async def object(
        self, writer: asyncio.StreamWriter, method: str, key: str, headers: dict[str, str]
    ) -> None:
        found = self.objects.get(key)
        if found is None:
            await self.send(writer, method, 404, {}, _error("NoSuchKey"))
            return
        if headers.get("if-match", found.etag).strip('"') != found.etag.strip('"'):
            await self.send(writer, method, 412, {}, _error("PreconditionFailed"))
            return
        about = {
            "ETag": found.etag,
            "Last-Modified": _MODIFIED[1],
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
        }
        start, end, status = 0, found.size, 200
        if asked := _RANGE(headers.get("range", "")):
            first, last = asked.groups()
            start = int(first) if first else max(0, found.size - int(last))
            end = min(found.size, int(last) + 1) if first and last else found.size
            status = 206
            if start >= end:
                await self.send(writer, method, 416, {}, _error("InvalidRange"))
                return
            about["Content-Range"] = f"bytes {start}-{end - 1}/{found.size}"
        await self.send(writer, method, status, about, found.pieces(start, end), end - start)

    def page(self, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        at = query.get("continuation-token") or query.get("start-after") or ""
        most = min(_PAGE, int(query.get("max-keys", _PAGE)))
        place = max(bisect_right(self.keys, at), bisect_right(self.keys, prefix[:-1]) if prefix else 0)
        contents: list[str] = []
        folders: list[str] = []
        last, more = "", False
        while place < len(self.keys):
            key = self.keys[place]
            if not key.startswith(prefix):
                if key > prefix:
                    break
                place += 1
                continue
            if len(contents) + len(folders) == most:
                more = True
                break
            cut = key.find(delimiter, len(prefix)) if delimiter else -1
            if cut < 0:
                contents.append(self.listed[key])
                last = key
                place += 1
                continue
            folder = key[: cut + 1]
            folders.append(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>")
            last = folder + "\U0010ffff"
            place = bisect_right(self.keys, last)
        return "".join(
            (
                '<?xml version="1.0" encoding="UTF-8"?>\n'
                '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">',
                f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><MaxKeys>{most}</MaxKeys>",
                f"<KeyCount>{len(contents) + len(folders)}</KeyCount>",
                f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>",
                f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if more else "",
                *contents,
                *folders,
                "</ListBucketResult>",
            )
        ).encode()

    async def send(
        self,
        writer: asyncio.StreamWriter,
        method: str,
        status: int,
        headers: dict[str, str],
        body: bytes | Iterator[bytes],
        size: int | None = None,
    ) -> None:
        size = len(body) if isinstance(body, bytes) else size or 0
        lines = [f"HTTP/1.1 {status} {_REASONS[status]}", f"Content-Length: {size}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "\r\n"]).encode())
        if method != "HEAD":
            self.asked["sent"] += size if method else 0
            for piece in [body] if isinstance(body, bytes) else body:
                writer.write(piece)
                await writer.drain()


def _listed(key: str, found: Object) -> str:
    return (
        f"<Contents><Key>{escape(key)}</Key><LastModified>{_MODIFIED[0]}</LastModified>"
        f"<ETag>{escape(found.etag)}</ETag><Size>{found.size}</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
    )


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()


class Bucket:
    """A server in a process of its own, and how to reach it.

    Attributes:
        endpoint: Its URL.
        process: The process.
    """

    def __init__(self, contents: str, **arguments: object) -> None:
        argv = [sys.executable, "-m", __name__, contents, json.dumps(arguments)]
        root = Path(__file__).resolve().parents[2]
        self.process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stdin=subprocess.PIPE, cwd=root, text=True
        )
        assert self.process.stdout is not None
        self.endpoint = self.process.stdout.readline().strip()
        if not self.endpoint:
            raise RuntimeError("the server did not start")

    def url(self, folder: str) -> str:
        return f"s3://{BUCKET}/{folder}"

    @property
    def target_options(self) -> dict[str, Any]:
        """What a filesystem of s3fs is given to reach it."""
        return options(self.endpoint)

    def __enter__(self) -> Bucket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stdin):
            if pipe is not None:
                pipe.close()


def options(endpoint: str) -> dict[str, Any]:
    """What a filesystem of s3fs is given to reach a server."""
    return {
        "key": "made-up",
        "secret": "made-up",
        "endpoint_url": endpoint,
        "client_kwargs": {"region_name": "us-east-1"},
    }


def steer(endpoint: str, path: str, method: str = "GET", body: bytes | None = None) -> bytes:
    """Ask a server for something; `/-/…`, or the path of an object."""
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"))
    try:
        connection.request(method, quote(path), body)
        return connection.getresponse().read()
    finally:
        connection.close()


def taken(endpoint: str) -> dict[str, float]:
    """How often each operation was asked for since the last time, and how many bytes were sent."""
    counts: dict[str, float] = json.loads(steer(endpoint, "/-/taken"))
    return {name: counts.get(name, 0) for name in ("LIST", "GET", "HEAD", "sent")} | {
        name: count for name, count in counts.items() if count
    }


def put(endpoint: str, key: str, body: bytes) -> None:
    """Replace an object; whatever was asked so far is forgotten."""
    steer(endpoint, f"/{BUCKET}/{key}", "PUT", body)
    taken(endpoint)


async def _serve(contents: str, arguments: dict[str, Any]) -> None:
    server = Server(globals()[contents](**arguments))
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=256)
    print(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", flush=True)
    # It ends with whoever started it, however that ends.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], json.loads(sys.argv[2])))
