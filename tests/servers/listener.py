"""An HTTP/1.1 server on the loopback interface that can end an answer at any byte.

The server that comes with moto closes the connection after every answer, which no real store does and which
costs most of its time. This one keeps connections, and hands each request, whole, to one function.
"""

from __future__ import annotations

import contextlib
import io
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote_to_bytes

__all__ = ["Answer", "Incoming", "Listener", "run_wsgi"]

NO_BODY = {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as it came.

    Attributes:
        method: `GET` and so on.
        target: Path and query, still encoded.
        headers: Name in lower case to value.
        body: Without the framing of chunked transfer; what is inside `aws-chunked` stays as it is.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back, and how sending it goes wrong.

    Attributes:
        status: 0 when the connection ends without an answer.
        headers: Without `Content-Length` and `Connection`, unless the request was HEAD.
        body: Bytes of the body.
        length: `Content-Length` to declare; None for the truth.
        end: Bytes of the body after which the connection ends; None when it stays open.
        reset: Whether it ends with a reset instead of an orderly close.
        delay: Seconds before the answer begins.
        pause: Byte of the body, and seconds of silence before it.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    length: int | None = None
    end: int | None = None
    reset: bool = False
    delay: float = 0.0
    pause: tuple[int, float] | None = None

    @property
    def sent(self) -> int:
        """Bytes of the body that are sent."""
        return len(self.body) if self.end is None else min(self.end, len(self.body))


@dataclass(slots=True)
class Listener:
    """A server that is running until it is closed.

    Attributes:
        answer: Called in the connection's own thread for each request.
        endpoint: URL of the server.
    """

    answer: Callable[[Incoming], Answer]
    endpoint: str = field(init=False)
    _server: _Server = field(init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.answer = self.answer
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.02},
            name=f"listener {self.endpoint}",
        )
        self._thread.start()

    def close(self) -> None:
        """End every connection and every thread."""
        self._server.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.end_connections()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing it waits for the threads of the connections
    request_queue_size = 128
    answer: Callable[[Incoming], Answer]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.closing = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        # An orderly end before a reset would be all that the client sees.
        linger = struct.unpack("ii", request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))
        if linger == (1, 0):
            request.close()
        else:
            super().shutdown_request(request)

    def end_connections(self) -> None:
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    # Else each answer on a kept connection waits 40 ms for the client's delayed acknowledgement.
    disable_nagle_algorithm = True

    def log_message(self, *args: Any) -> None:
        """Nothing: the tests' output is not the place."""

    def _serve(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = (
            self._dechunked()
            if "chunked" in headers.get("transfer-encoding", "").lower()
            else self.rfile.read(int(headers.get("content-length", 0)))
        )
        self._send(self.server.answer(Incoming(self.command, self.path, headers, body)))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_OPTIONS = _serve

    def _dechunked(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return b"".join(parts)

    def _send(self, answer: Answer) -> None:
        self.server.closing.wait(answer.delay)
        if answer.status:
            head = [f"HTTP/1.1 {answer.status} {_reason(answer.status)}"]
            head += [f"{name}: {value}" for name, value in answer.headers]
            if self.command != "HEAD" and answer.status not in NO_BODY:
                head.append(f"Content-Length: {len(answer.body) if answer.length is None else answer.length}")
            data = "\r\n".join([*head, "\r\n"]).encode("latin-1")
            body = answer.body[: answer.sent]
            if answer.pause is not None:
                at, seconds = answer.pause
                self.connection.sendall(data + body[:at])
                self.server.closing.wait(seconds)
                data, body = b"", body[at:]
            self.connection.sendall(data + body)
        if answer.end is not None or answer.length is not None or not answer.status:
            self.close_connection = True
        if answer.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _reason(status: int) -> str:
    return HTTPStatus(status).phrase


def run_wsgi(app: Callable[[dict[str, Any], Any], Iterable[bytes]], incoming: Incoming) -> Answer:
    """What a WSGI application answers to a request."""
    path, _, query = incoming.target.partition("?")
    environ: dict[str, Any] = {
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(incoming.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "REQUEST_METHOD": incoming.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query,
        "RAW_URI": incoming.target,
        "REQUEST_URI": incoming.target,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": incoming.headers.get("host", ":80").rpartition(":")[2],
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
    }
    for name, value in incoming.headers.items():
        if name not in ("content-type", "content-length", "transfer-encoding", "expect"):
            environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
    if "content-type" in incoming.headers:
        environ["CONTENT_TYPE"] = incoming.headers["content-type"]
    environ["CONTENT_LENGTH"] = str(len(incoming.body))

    started: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> None:
        started[:] = [int(status.split()[0]), headers]

    chunks = app(environ, start_response)
    try:
        body = b"".join(chunks)
    finally:
        if callable(close := getattr(chunks, "close", None)):
            close()
    status, headers = started
    # The length of what HEAD is about is the application's to say.
    dropped = {"connection", "transfer-encoding"}
    if incoming.method != "HEAD":
        dropped.add("content-length")
    return Answer(status, tuple((n, v) for n, v in headers if n.lower() not in dropped), body)
