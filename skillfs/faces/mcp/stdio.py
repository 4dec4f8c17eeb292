"""Serving one client over standard input and output.

Not by the SDK's own transport: there an unpaired surrogate in an answer ends the server, what is no message
is dropped without a word, a line has no limit, and what was asked for before the end of the input is not
answered. Here a line that is no message is answered by an error, with its id where it has one; everything
asked for is answered before the end; and whatever prints to standard output finds itself on standard error.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import select
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from skillfs.errors import InvalidArgumentError
from skillfs.faces.mcp.server import cleaned
from skillfs.faces.mcp.workers import Workers

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from skillfs.faces.mcp.server import SkillServer

__all__ = ["LONGEST_LINE", "claimed", "serve_stdio"]

LONGEST_LINE = 4 * 1024 * 1024
"""Bytes of one message; a longer one is skipped, and answered by an error."""

MOST_IN_FLIGHT = 256
"""Requests that are worked on at once; then no more are read until one is answered."""

DRAIN_SECONDS = 30.0
"""Seconds that what was asked for before the end of the input is waited for."""

LAST_SECONDS = 5.0
"""Seconds that the last answers may take to be written."""

_CHUNK = 64 * 1024
_INSTEAD = "the answer cannot be written; the log of the server tells more"

_log = logging.getLogger("skillfs")


class _Fault(NamedTuple):
    """What is wrong with a line: an error as JSON-RPC has it."""

    request_id: Any
    code: int
    message: str


def serve_stdio(server: SkillServer, wire: tuple[int, int]) -> None:
    """Serve a client until the input ends.

    Args:
        server: The server.
        wire: What `claimed` gives.

    Raises:
        BrokenPipeError: The client does not read any more.
    """
    asyncio.run(_Connection(server, *wire).run())


@contextmanager
def claimed() -> Iterator[tuple[int, int]]:
    """Handles of standard input and output for us alone; meanwhile the standard ones lead elsewhere.

    What reads finds an end, and what prints finds itself on standard error.

    Raises:
        InvalidArgumentError: One of them is closed.
    """
    # Where one is closed its number may stand for any file that was opened since.
    if sys.stdin is None or sys.stdout is None:
        raise InvalidArgumentError(
            "standard input or output is closed; start it as a client does, or use --http"
        )
    sys.stdout.flush()
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nothing, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # standard error is closed
            os.dup2(nothing, 1)
        yield source, target
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(source, 0)
        os.dup2(target, 1)
        os.close(nothing)
        # `source` and `target` stay open: a thread may still wait on them, and must not meet another file.


class _Connection:
    """One client: a thread that reads lines, one that writes them, and the server between."""

    def __init__(self, server: SkillServer, source: int, target: int) -> None:
        self._server = server
        self._source = source
        self._target = target
        self._open: set[int | str] = set()
        """Ids of requests that are to be answered before the end."""
        self._answered = asyncio.Event()
        self._broken = False
        self._writer = Workers()
        self._capacity = _capacity(target)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        room = threading.Semaphore(16)  # chunks of lines that are read ahead

        def deliver(line: bytes | None) -> None:
            room.acquire()
            loop.call_soon_threadsafe(lines.put_nowait, line)

        def read() -> None:
            with suppress(RuntimeError):  # the loop has ended
                _read_lines(self._source, deliver)

        threading.Thread(target=read, name="skillfs-stdin", daemon=True).start()
        to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)

        async def take_lines() -> None:
            async with to_server:
                while (line := await lines.get()) is not None:
                    room.release()
                    await self._take(line, to_server, to_client)
                await self._drain()

        try:
            async with anyio.create_task_group() as group:

                async def send() -> None:
                    await self._send(from_server)
                    group.cancel_scope.cancel()  # nobody is there to be answered, or all are

                group.start_soon(send)
                group.start_soon(take_lines)
                await self._server.run(
                    from_client,
                    to_client,
                    self._server.create_initialization_options(),
                )
                await asyncio.sleep(LAST_SECONDS)
                group.cancel_scope.cancel()
        finally:
            self._writer.close()
        if self._broken:
            raise BrokenPipeError

    async def _take(
        self,
        line: bytes,
        to_server: MemoryObjectSendStream[SessionMessage | Exception],
        to_client: MemoryObjectSendStream[SessionMessage],
    ) -> None:
        found = _message_of(line)
        if found is None:
            return
        if isinstance(found, _Fault):
            error = {"code": found.code, "message": found.message}
            answer = JSONRPCError.model_validate({"jsonrpc": "2.0", "id": found.request_id, "error": error})
            await to_client.send(SessionMessage(answer))
            return
        if isinstance(found, JSONRPCRequest) and found.method != "subscriptions/listen":
            while len(self._open) >= MOST_IN_FLIGHT:
                self._answered.clear()
                await self._answered.wait()
            self._open.add(found.id)
        elif isinstance(found, JSONRPCNotification) and found.method == "notifications/cancelled":
            self._close((found.params or {}).get("requestId"))
        await to_server.send(SessionMessage(found))

    def _room(self) -> int:
        """Bytes that can be written at once without waiting, as far as is known."""
        if not self._capacity:
            return 0
        unread = bytearray(4)
        fcntl.ioctl(self._target, termios.FIONREAD, unread)
        # In one that is not empty the pages may be filled in part, and take less than is left.
        return 0 if any(unread) else self._capacity

    def _close(self, request_id: object) -> None:
        """Take note that a request needs no answer any more."""
        if isinstance(request_id, int | str):
            self._open.discard(request_id)
            self._answered.set()

    async def _drain(self) -> None:
        with anyio.move_on_after(DRAIN_SECONDS):
            while self._open:
                self._answered.clear()
                await self._answered.wait()

    async def _send(self, from_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with from_server:
            async for item in from_server:
                message = item.message
                data = _line_of(message)
                try:
                    # A client that does not read must not hold up the loop; a thread costs 0.1 ms.
                    if len(data) <= self._room():
                        os.write(self._target, data)
                    else:
                        await self._writer.run(_write_all, self._target, data)
                except OSError:
                    self._broken = True
                    return
                if isinstance(message, JSONRPCResponse | JSONRPCError):
                    self._close(message.id)


def _read_lines(source: int, deliver: Callable[[bytes | None], None]) -> None:
    """Hand over the lines of a stream, and at last None; of one that is too long only its beginning."""
    parts: list[bytes] = []
    length = 0
    while True:
        try:
            chunk = os.read(source, _CHUNK)
        except BlockingIOError:  # some clients hand over pipes that do not wait
            _wait_for(source, select.POLLIN)
            continue
        except OSError:
            chunk = b""
        if not chunk:
            break
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            parts.append(end)
            deliver(b"".join(parts))
            parts, length = [], 0
        # One byte more than is allowed is kept, which tells that there was more.
        kept = rest[: LONGEST_LINE + 1 - length]
        if kept:
            parts.append(kept)
            length += len(kept)
    if parts:
        deliver(b"".join(parts))
    deliver(None)


def _message_of(line: bytes) -> JSONRPCMessage | _Fault | None:
    """What a line holds; None for what needs no answer."""
    if not line.strip():
        return None
    if len(line) > LONGEST_LINE:
        return _Fault(
            None, INVALID_REQUEST, f"a message has {LONGEST_LINE:,} bytes at most; send less at once"
        )
    message: JSONRPCMessage
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        pass
    else:
        if not isinstance(message, JSONRPCNotification) or b'"id"' not in line:
            return message
    # Slower, and for what is wrong only: it also takes unpaired surrogates, and tells the id.
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return _Fault(None, PARSE_ERROR, "the line is no JSON in UTF-8, or too deep; send one message a line")
    if not isinstance(value, dict):
        text = "the line holds no JSON-RPC message; send one object a line, and no batches"
        return _Fault(None, INVALID_REQUEST, text)
    if "method" not in value and ("result" in value or "error" in value):
        return None  # an answer, to nothing that was asked
    given = value.get("id")
    request_id = given if isinstance(given, int | str) and not isinstance(given, bool) else None
    request_id = cleaned(request_id)
    if "id" not in value or request_id is not None:
        try:
            return jsonrpc_message_adapter.validate_python(
                {**value, **_with_id(value, request_id)}, by_name=False
            )
        except (ValidationError, RecursionError):
            pass
    text = "the line holds no valid JSON-RPC message; an id is a string or an integer"
    return _Fault(request_id, INVALID_REQUEST, text)


def _with_id(value: dict[str, Any], request_id: Any) -> dict[str, Any]:
    return {"id": request_id} if "id" in value else {}


def _line_of(message: JSONRPCMessage) -> bytes:
    """A message as a line of JSON, whatever it holds."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except Exception:  # pydantic's own errors, and what a value in it raises
        _log.debug("a message that cannot be written as it is:", exc_info=True)
    try:
        value = cleaned(message.model_dump(by_alias=True, exclude_unset=True))
        return json.dumps(value, allow_nan=False).encode() + b"\n"
    except Exception:
        _log.exception("an answer cannot be written")
    request_id = cleaned(getattr(message, "id", None))
    error = {"code": -32603, "message": _INSTEAD}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode() + b"\n"


def _capacity(target: int) -> int:
    """Bytes that a pipe holds; 0 for what is none, or does not tell."""
    command = getattr(fcntl, "F_GETPIPE_SZ", None)
    try:
        return 0 if command is None else fcntl.fcntl(target, command)
    except OSError:
        return 0


def _write_all(target: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(target, left) :]
        except BlockingIOError:
            _wait_for(target, select.POLLOUT)


def _wait_for(handle: int, event: int) -> None:
    """Wait until a handle can be read or written, or its other end is closed."""
    poll = select.poll()
    poll.register(handle, event)
    poll.poll()
