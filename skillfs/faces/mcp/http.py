"""Serving clients over HTTP: the SDK's streamable transport at `/mcp`, behind a gate of our own.

The gate lets through what names an allowed host, comes from an allowed origin and has the token, if there is
one; all else is answered before anything of it is read. Nothing is redirected, and no answer holds a path.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import re
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from skillfs.errors import InvalidArgumentError, StoreUnavailableError, quoted
from skillfs.faces import output
from skillfs.faces.mcp.connections import Connection
from skillfs.faces.mcp.workers import SENT, Afterwards

if TYPE_CHECKING:
    from skillfs.faces.mcp.server import SkillServer

__all__ = ["ANY_ADDRESS", "PATH", "Gate", "Settings", "serve_http", "settings_of"]

PATH = "/mcp"
HEALTH = "/health"

MOST_BODY = 4 * 1024 * 1024
MOST_BODIES = 64 * 1024 * 1024
"""Bytes of all bodies that are being received or answered; beyond it only small ones are taken."""

SMALL_BODY = 64 * 1024

PIECE = 256 * 1024
"""Bytes of an answer that are handed on at once, so that what a client has not read stays in one place."""


MOST_SESSIONS = 256
MOST_CONNECTIONS = 256
SESSION_SECONDS = 1_800.0
BODY_SECONDS = 30.0
"""Seconds that a client has for the body of a request."""

ANY_ADDRESS = ("0.0.0.0", "::")
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

_HOST = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^\s:/@\[\]]+)(?::([0-9]{1,5}))?")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_log = logging.getLogger("skillfs")


class Settings(NamedTuple):
    """How to serve.

    Attributes:
        host: Address to bind.
        port: Port to bind; 0 for any that is free.
        allowed: Further hosts that a client may name, each with its port, or None for any.
        token: What a client has to send; None for nothing.
    """

    host: str
    port: int
    allowed: tuple[tuple[str, str | None], ...] = ()
    token: str | None = None


def settings_of(address: str, allowed_hosts: tuple[str, ...] = (), token: str | None = None) -> Settings:
    """Check how to serve.

    Args:
        address: `HOST:PORT`; an IPv6 address in brackets.
        allowed_hosts: `HOST` or `HOST:PORT`, by which clients reach the server besides.
        token: What a client has to send.

    Raises:
        InvalidArgumentError: Something is malformed, or others than this machine could reach the server
            without a token.
    """
    match = _HOST.fullmatch(address)
    if match is None or match[2] is None or int(match[2]) > 65_535:
        raise InvalidArgumentError(
            f"--http takes HOST:PORT, such as 127.0.0.1:8765 or [::1]:0, not {quoted(address)}"
        )
    host, port = match[1].strip("[]"), int(match[2])
    allowed = []
    for each in allowed_hosts:
        found = _HOST.fullmatch(each)
        if found is None:
            raise InvalidArgumentError(f"--allow-host takes HOST or HOST:PORT, not {quoted(each)}")
        allowed.append((found[1].lower(), found[2]))
    if token is None and not _is_loopback(host):
        raise InvalidArgumentError(
            f"others can reach {quoted(host)}, so clients need a token: set SKILLFS_MCP_TOKEN, pass "
            "--token-file, or serve on 127.0.0.1"
        )
    return Settings(host, port, tuple(allowed), token)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve_http(server: SkillServer, settings: Settings) -> None:
    """Serve until interrupted; the address is told on standard error.

    Raises:
        StoreUnavailableError: The address cannot be bound.
    """
    bound = _bound(settings)
    port = bound.getsockname()[1]
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    names = [*_LOOPBACK, shown.lower()] if _is_loopback(settings.host) else [shown.lower()]
    if settings.host in ANY_ADDRESS:
        names += _LOOPBACK
    allowed = [*((name, str(port)) for name in names), *settings.allowed]
    inner = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        max_request_body_size=MOST_BODY,
        session_idle_timeout=SESSION_SECONDS,
        max_sessions=MOST_SESSIONS,
        # The gate has checked host and origin.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    config = uvicorn.Config(
        Gate(inner, allowed, settings.token),
        http=Connection,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=64 * 1024,
    )
    output.note(f"serving at http://{shown}:{port}{PATH}")
    with bound:
        asyncio.run(_Server(config, server).serve(sockets=[bound]))


class _Server(uvicorn.Server):
    """uvicorn's server, which otherwise waits for who listens as for any answer, and then cuts it off."""

    def __init__(self, config: uvicorn.Config, ours: SkillServer) -> None:
        super().__init__(config)
        self._ours = ours

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._ours.end_streams()
        await super().shutdown(sockets)


def _bound(settings: Settings) -> socket.socket:
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, number)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(MOST_CONNECTIONS)  # at once: the address is told before the server has begun
        except OSError:
            bound.close()
            raise
    except OSError as error:
        where = quoted(f"{settings.host}:{settings.port}")
        raise StoreUnavailableError(
            f"the server cannot listen at {where} ({error.strerror}); choose another address or port"
        ) from None
    return bound


class Gate:
    """What every request has to pass, as an ASGI application.

    Args:
        app: What is behind it.
        allowed: Hosts that a client may name, each with its port, or None for any.
        token: What it has to send; None for nothing.
    """

    def __init__(self, app: Any, allowed: list[tuple[str, str | None]], token: str | None = None) -> None:
        self._app = app
        self._allowed = set(allowed)
        self._token = None if token is None else token.encode()
        self._held = 0
        """Bytes of bodies that are held now."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value)
        hosts, origins = headers.get(b"host", []), headers.get(b"origin", [])
        if len(hosts) != 1 or not self._is_allowed(hosts[0].decode("latin-1"), "80"):
            await _refuse(send, 421, "the Host header names no host that is served here")
        elif len(origins) > 1 or not all(self._is_origin(o.decode("latin-1")) for o in origins):
            await _refuse(send, 403, "requests from this origin are not served")
        elif scope["path"] == HEALTH and scope["method"] in ("GET", "HEAD"):
            await _answer(send, 200, b"ok", b"text/plain")
        elif self._token is not None and not self._has_token(headers.get(b"authorization", [])):
            challenge = [(b"www-authenticate", b"Bearer")]
            await _refuse(send, 401, "send the token as: Authorization: Bearer TOKEN", challenge)
        elif scope["path"] != PATH:
            await _refuse(send, 404, f"there is only {PATH}")
        else:
            await self._serve(scope, receive, send)

    def _is_allowed(self, host: str, default_port: str) -> bool:
        match = _HOST.fullmatch(host.lower())
        if match is None:
            return False
        name, port = match[1], match[2] or default_port
        return (name, port) in self._allowed or (name, None) in self._allowed

    def _is_origin(self, origin: str) -> bool:
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        ports = {"http": "80", "https": "443"}
        return parts.scheme in ports and self._is_allowed(parts.netloc, ports[parts.scheme])

    def _has_token(self, values: list[bytes]) -> bool:
        if len(values) != 1 or self._token is None:
            return False
        scheme, _, given = values[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on when all of it is there."""
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                is_whole = await self._take_body(receive, body)
            if is_whole:
                await self._hand_on(scope, bytes(body), receive, send)
        except TimeoutError:
            await _refuse(send, 408, "the body took too long")
        except _BodyRefused as error:
            await _refuse(send, error.status, str(error))
        finally:
            self._held -= len(body)

    async def _take_body(self, receive: Receive, body: bytearray) -> bool:
        """Take the body of a request; false when the client has gone.

        Raises:
            _BodyRefused: It is too large, or all of them together are.
        """
        while (message := await receive())["type"] == "http.request":
            part = message.get("body", b"")
            body += part
            self._held += len(part)
            if len(body) > MOST_BODY:
                raise _BodyRefused(413, f"a request has {MOST_BODY:,} bytes at most")
            if self._held > MOST_BODIES and len(body) > SMALL_BODY:
                raise _BodyRefused(503, "too much is being sent at once; try again")
            if not message.get("more_body", False):
                return True
        return False

    async def _hand_on(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Have a request answered, and let out no trace of what fails."""
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        answer = _Answer(send)
        scope[SENT] = sent = Afterwards()

        async def take() -> Message:
            return whole.pop() if whole else await receive()

        try:
            await self._app(scope, take, answer.tell)
            await answer.finish()
        except asyncio.CancelledError:  # the server ends, and has waited long enough
            await answer.refuse(503, "the server ends; try again")
        except Exception:
            _log.exception("a request over HTTP failed")
            await answer.refuse(500, "internal error; the log of the server tells more")
        finally:
            sent.run()


class _Answer:
    """An answer that is being sent: in pieces, as fast as the client reads."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = self._finished = False

    async def tell(self, message: Message) -> None:
        self._started = True
        if message["type"] != "http.response.body":
            await self._send(message)
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        self._finished = not more
        for at in range(0, len(body) or 1, PIECE):
            is_last = at + PIECE >= len(body) and not more
            piece = {"type": message["type"], "body": body[at : at + PIECE], "more_body": not is_last}
            await self._send(piece)

    async def finish(self) -> None:
        """End what the end of the server ended in the middle: a stream."""
        if self._started and not self._finished:
            await self._send({"type": "http.response.body", "body": b""})

    async def refuse(self, status: int, text: str) -> None:
        """Answer something else, if nothing is sent yet."""
        if not self._started:
            self._started = self._finished = True
            await _refuse(self._send, status, text)


class _BodyRefused(Exception):
    """A body that is not taken.

    Args:
        status: Status of the answer.
        text: For the client.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


async def _refuse(
    send: Send, status: int, text: str, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    # What was sent is not read: the connection ends with the answer.
    await _answer(send, status, text.encode(), b"text/plain", [*(headers or ()), (b"connection", b"close")])


async def _answer(
    send: Send, status: int, body: bytes, kind: bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    length = str(len(body)).encode()
    head = [(b"content-type", kind), (b"content-length", length), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": [*head, *(headers or ())]})
    await send({"type": "http.response.body", "body": body})
