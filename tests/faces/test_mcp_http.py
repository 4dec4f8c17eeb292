"""The HTTP transport against what is no well-meant client."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillfs.errors import InvalidArgumentError
from skillfs.faces.mcp import connections
from skillfs.faces.mcp import http as transport
from skillfs.faces.mcp.http import Gate, settings_of
from tests.conftest import skill_md, write
from tests.faces.mcp_clients import Web

TOKEN = "correct-horse-battery-staple"
PATIENCE = 30.0

HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
    },
}  # fmt: skip
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
LISTEN = {
    "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
    "params": {
        "notifications": {"resourcesListChanged": True},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}  # fmt: skip
LISTEN_HEADERS = {
    **HEADERS, "Authorization": f"Bearer {TOKEN}", "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "subscriptions/listen",
}  # fmt: skip


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A server that wants a token."""
    store = write(tmp_path_factory.mktemp("http") / "the-store", {"a/SKILL.md": skill_md("a")})
    token_file = store.parent / "token"
    token_file.write_text(f" {TOKEN}\n")
    web = Web(
        store,
        tmp_path_factory.mktemp("home"),
        arguments=(
            "--token-file", str(token_file), "--allow-host", "skills.example", "--allow-host", "b.example:8",
        ),
    )  # fmt: skip
    yield web
    # Who listens is told of the end, and keeps the server from it no longer than others do.
    listening = http.client.HTTPConnection("127.0.0.1", web.port, timeout=PATIENCE)
    listening.request("POST", "/mcp", json.dumps(LISTEN), LISTEN_HEADERS)
    stream = listening.getresponse()
    assert b"acknowledged" in stream.readline() + stream.readline()
    log = web.close()
    assert b'"result"' in stream.read()
    listening.close()
    assert "error" not in log
    assert "Traceback" not in log
    assert TOKEN not in log
    assert log.count("Invalid HTTP request") <= 1
    assert all(line.startswith("skillfs: ") for line in log.splitlines()), log


def request(
    web: Web, method: str = "POST", path: str = "/mcp", body: object = None, **headers: str | None
) -> tuple[int, dict[str, str], bytes]:
    """What is answered; a header that is None is left out, and the token is right unless given."""
    sent = {"Authorization": f"Bearer {TOKEN}", **HEADERS}
    for name, value in headers.items():
        name = name.replace("_", "-")
        if value is None:
            sent.pop(name, None)
        else:
            sent[name] = value
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=PATIENCE)
    connection.request(method, path, data, sent)
    answer = connection.getresponse()
    found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    connection.close()
    assert b"the-store" not in found[2]
    assert b"/tmp" not in found[2]
    return found


def test_an_initialization(web: Web) -> None:
    status, headers, body = request(web, body=HELLO)
    assert status == 200
    assert json.loads(body)["result"]["serverInfo"]["name"] == "skillfs"
    assert headers["mcp-session-id"]
    assert "server" not in headers


def test_a_client_with_the_token(web: Web) -> None:
    for mode in ("legacy", "auto"):
        with web.client(mode, TOKEN) as served:
            assert "Something to do." in served.call("skill_get_content", id="a/SKILL.md")["text"]


@pytest.mark.parametrize(
    "value",
    [None, "", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN,
     "Bearer \xe9"],
)  # fmt: skip
def test_no_or_another_token(web: Web, value: str | None) -> None:
    for path in ("/mcp", f"/mcp?access_token={TOKEN}", f"/mcp?token={TOKEN}", "/", "/etc/passwd"):
        status, headers, body = request(web, path=path, body=HELLO, Authorization=value)
        assert status == 401
        assert headers["www-authenticate"] == "Bearer"
        assert TOKEN.encode() not in body


def test_the_scheme_of_the_token_may_be_written_in_any_case(web: Web) -> None:
    assert request(web, body=HELLO, Authorization=f"bearer  {TOKEN}")[0] == 200


def test_health_needs_no_token_and_tells_nothing(web: Web) -> None:
    assert request(web, "GET", "/health", Authorization=None)[::2] == (200, b"ok")
    assert request(web, "HEAD", "/health", Authorization=None)[0] == 200
    assert request(web, "POST", "/health", Authorization=None)[0] == 401
    assert request(web, "GET", "/health", Authorization=None, Host="evil.example")[0] == 421


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "b.example", "b.example:9", "a@b", ""]
)
def test_a_host_that_is_not_served(web: Web, host: str) -> None:
    assert request(web, body=HELLO, Host=host)[0] == 421


def test_hosts_that_are_served(web: Web) -> None:
    for host in (f"127.0.0.1:{web.port}", f"localhost:{web.port}", f"LocalHost:{web.port}",
                 f"[::1]:{web.port}", "skills.example", "skills.example:443", "b.example:8"):  # fmt: skip
        assert request(web, body=HELLO, Host=host)[0] == 200, host


def test_origins(web: Web) -> None:
    for origin in ("http://evil.example", "null", "file://", f"http://127.0.0.1:{web.port}.evil.example",
                   "https://127.0.0.1", "http://a b", "", "http://[::1"):  # fmt: skip
        assert request(web, body=HELLO, Origin=origin)[0] == 403, origin
    for origin in (f"http://localhost:{web.port}", "https://skills.example"):
        assert request(web, body=HELLO, Origin=origin)[0] == 200, origin


@pytest.mark.parametrize(
    "path", ["/", "/mcp/", "/mcp//", "/MCP", "/mcp/x", "/favicon.ico", "/../etc/passwd", "//"]
)
def test_other_paths_are_not_redirected(web: Web, path: str) -> None:
    status, headers, _ = request(web, path=path, body=HELLO)
    assert status == 404
    assert "location" not in headers


@pytest.mark.parametrize("version", [None, "2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"\xff", 400),
        (b"[" * 100_000, 400),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"[" * 100_000, 400),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":' + b"9" * 5_000 + b"}}", 400),
        (b"x" * (4 * 1024 * 1024 + 1), 413),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_bodies_that_are_no_message(web: Web, body: bytes, status: int, version: str | None) -> None:
    found = request(web, body=body, MCP_Protocol_Version=version)
    assert found[0] == status
    assert len(found[2]) < 2_000
    assert request(web, body=HELLO)[0] == 200


def test_other_methods_and_media_types(web: Web) -> None:
    for method in ("PUT", "PATCH", "OPTIONS", "TRACE"):
        assert request(web, method)[0] in (400, 404, 405)
    assert request(web, body=HELLO, Content_Type="text/plain")[0] in (400, 415)
    assert request(web, body=HELLO, Accept="text/html")[0] == 406


def test_what_is_no_http_is_told_once(web: Web) -> None:
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE) as connection:
            connection.sendall(b"\x16\x03\x01 / \x1b[31m\r\n\r\n")
            assert connection.recv(1_000).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("session", ["0" * 32, "", "../../etc/passwd", "x" * 5_000])
def test_another_session(web: Web, session: str) -> None:
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    status, _, _ = request(web, body=body, Mcp_Session_Id=session, MCP_Protocol_Version="2025-11-25")
    assert status in (400, 404)


def test_a_session_that_ended(web: Web) -> None:
    _, headers, _ = request(web, body=HELLO)
    session = headers["mcp-session-id"]
    assert request(web, "DELETE", Mcp_Session_Id=session)[0] in (200, 204)
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    assert request(web, body=body, Mcp_Session_Id=session)[0] == 404


def test_unpaired_surrogates(web: Web) -> None:
    call = {"name": "skill_get_content", "arguments": {"id": "a/\ud800.md"}}
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {**call, "_meta": meta}}
    status, _, answer = request(
        web, body=body, MCP_Protocol_Version="2026-07-28", Mcp_Method="tools/call",
        Mcp_Name="skill_get_content",
    )  # fmt: skip
    assert status == 200
    assert json.loads(answer)["result"]["structuredContent"]["error"]["code"] == "invalid_argument"


def test_clients_that_go_midway(web: Web) -> None:
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{web.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    )
    body = json.dumps(HELLO)
    for text in ("", "GET", head, f"{head}Content-Length: 1000\r\n\r\n{{", "\r\n\r\n", "\x16\x03\x01",
                 "GET / HTTP/9\r\n\r\n", f"{head}Content-Length: {len(body)}\r\n\r\n{body}"):  # fmt: skip
        with socket.create_connection(("127.0.0.1", web.port), PATIENCE) as connection:
            connection.sendall(text.encode())
    assert request(web, body=HELLO)[0] == 200


# -- limits that take time: in this process ----------------------------------------------------------------


async def _served(app: Any, **limits: Any) -> tuple[Any, asyncio.Task[None], int]:
    import uvicorn

    bound = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, http=connections.Connection, ws="none", lifespan="off", log_config=None, **limits
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve(sockets=[bound]))
    while not server.started:
        await asyncio.sleep(0.01)
    return server, task, bound.getsockname()[1]


def test_who_is_slow_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr(transport, "BODY_SECONDS", 0.3)
    monkeypatch.setattr(transport, "MOST_BODIES", 2_000)
    monkeypatch.setattr(transport, "SMALL_BODY", 700)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await transport._answer(send, 200, b"done", b"text/plain")

    async def run() -> None:
        server, task, port = await _served(None)
        server.config.loaded_app = gate = Gate(app, [("127.0.0.1", None)])

        async def answer(*parts: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(OSError):
                for part in parts:
                    writer.write(part)
                    await asyncio.sleep(0.05)
            found = b""
            async with asyncio.timeout(PATIENCE):
                with contextlib.suppress(ConnectionError):
                    while data := await reader.read(1_000):
                        found += data
            writer.close()
            return found

        head = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        assert await answer() == b""
        assert await answer(*[bytes([byte]) for byte in head[:30]]) == b""
        assert b" 408 " in await answer(head + b"Content-Length: 9\r\n\r\n1")
        quick = head + b"Content-Length: 1\r\n\r\n1"
        closing = head + b"Connection: close\r\nContent-Length: 1\r\n\r\n1"
        assert (await answer(quick, quick, closing)).count(b"done") == 3
        # After an answer, the head of the next request has its limit, too.
        assert (await answer(quick, b"POST /m")).count(b"done") == 1
        # What all are sending together is limited, whoever sends it.
        monkeypatch.setattr(transport, "BODY_SECONDS", PATIENCE)
        unfinished = head + b"Content-Length: 900\r\n\r\n" + bytes(800)
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in held:
            writer.write(unfinished)
        while gate._held < 1_600:
            await asyncio.sleep(0.01)
        assert b" 503 " in await answer(unfinished)
        assert b"done" in await answer(closing)
        for _, writer in held:
            writer.close()
        while gate._held:
            await asyncio.sleep(0.01)
        server.should_exit = True
        await task

    asyncio.run(run())


def test_an_answer_that_takes_long_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    monkeypatch.setattr(transport, "BODY_SECONDS", 0.2)
    gone = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()

        async def watch() -> None:
            gone.append(await receive())

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.6)
        await transport._answer(send, 200, b"done", b"text/plain")
        await watching

    async def run() -> None:
        server, task, port = await _served(None)
        server.config.loaded_app = Gate(app, [("127.0.0.1", None)])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert b"done" in await reader.read()
        writer.close()
        server.should_exit = True
        await task

    asyncio.run(run())
    assert gone[0]["type"] == "http.disconnect"


def test_an_unexpected_failure_is_masked(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("at /the/root")

    sent: list[Any] = []

    async def run() -> None:
        async def receive() -> Any:
            return {"type": "http.request"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [(b"host", b"a")]}
        await Gate(app, [("a", "80")])(scope, receive, send)

    asyncio.run(run())
    assert sent[0]["status"] == 500
    assert b"root" not in sent[1]["body"]
    assert "RuntimeError: at /the/root" in caplog.text


def test_sessions_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp.server.transport_security import TransportSecuritySettings

    from skillfs import SkillFileSystem
    from skillfs.faces.mcp.server import make_server

    write(tmp_path, {"a/SKILL.md": skill_md("a")})
    inner = make_server(SkillFileSystem(tmp_path, index=":memory:")).streamable_http_app(
        json_response=True, max_sessions=3,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )  # fmt: skip

    async def run() -> None:
        server, task, port = await _served(None)
        server.config.loaded_app = Gate(inner, [("127.0.0.1", str(port))])

        def ask() -> int:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            connection.request("POST", "/mcp", json.dumps(HELLO), HEADERS)
            status = connection.getresponse().status
            connection.close()
            return status

        async with inner.router.lifespan_context(inner):
            found = [await asyncio.to_thread(ask) for _ in range(6)]
        assert found == [200] * 3 + [503] * 3
        server.should_exit = True
        await task
        for each in server.servers:
            each.close()

    asyncio.run(run())
    assert transport.MOST_SESSIONS <= 1_000


def test_who_does_not_read_large_answers_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp.server.transport_security import TransportSecuritySettings

    from skillfs import SkillFileSystem
    from skillfs.faces.mcp import server as server_module

    monkeypatch.setattr(server_module, "_MOST_LARGE", 1)
    data = bytes(range(256)) * 40_000
    write(tmp_path, {"a/SKILL.md": skill_md("a"), "a/x.md": "small"})
    (tmp_path / "a/large.bin").write_bytes(data)
    ours = server_module.make_server(SkillFileSystem(tmp_path, index=":memory:"))
    inner = ours.streamable_http_app(
        json_response=True,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )

    async def run() -> None:
        server, task, port = await _served(None)
        server.config.loaded_app = Gate(inner, [("127.0.0.1", None)])

        def asked(uri: str) -> bytes:
            meta = LISTEN["params"]["_meta"]
            message = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "resources/read",
                "params": {"uri": uri, "_meta": meta},
            }
            body = json.dumps(message).encode()
            head = {
                **HEADERS, "Host": "127.0.0.1", "MCP-Protocol-Version": "2026-07-28", "Connection": "close",
                "Mcp-Method": "resources/read", "Mcp-Name": uri, "Content-Length": str(len(body)),
            }  # fmt: skip
            return "\r\n".join(["POST /mcp HTTP/1.1", *map(": ".join, head.items()), "", ""]).encode() + body

        async def read(uri: str) -> dict[str, Any]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(asked(uri))
            async with asyncio.timeout(PATIENCE):
                found = await reader.read()
            writer.close()
            return json.loads(found.partition(b"\r\n\r\n")[2])["result"]["contents"][0]

        async with inner.router.lifespan_context(inner):
            with socket.socket() as idle:
                idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                idle.setblocking(False)
                await asyncio.get_running_loop().sock_connect(idle, ("127.0.0.1", port))
                idle.sendall(asked("skill://a/large.bin"))
                await asyncio.get_running_loop().sock_recv(idle, 10)
                waiting = asyncio.create_task(read("skill://a/large.bin"))
                assert (await read("skill://a/x.md"))["text"] == "small"
                assert not waiting.done()
                [stuck] = [c for c in server.server_state.connections if c.client == idle.getsockname()]
                while stuck._unread is None:
                    await asyncio.sleep(0.01)
                stuck._unread._run()  # the time is over
                assert base64.b64decode((await waiting)["blob"]) == data
        server.should_exit = True
        await task

    asyncio.run(run())


# -- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    ["", "8080", "localhost", "127.0.0.1:", ":80", "127.0.0.1:65536", "::1:80", "a b:1", "http://127.0.0.1:80",
     "127.0.0.1:-1", "127.0.0.1:\u0663"],
)  # fmt: skip
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(InvalidArgumentError, match="HOST:PORT"):
        settings_of(address)


@pytest.mark.parametrize(
    "address", ["0.0.0.0:80", "[::]:80", "192.168.0.1:80", "example.org:80", "[::ffff:1.2.3.4]:1"]
)
def test_others_need_a_token(address: str) -> None:
    with pytest.raises(InvalidArgumentError, match="token"):
        settings_of(address)
    assert settings_of(address, token="x").token == "x"


def test_who_is_on_this_machine_needs_none() -> None:
    assert settings_of("127.0.0.1:0")[:2] == ("127.0.0.1", 0)
    assert settings_of("[::1]:8080")[:2] == ("::1", 8080)
    assert settings_of("localhost:1").host == "localhost"
    assert settings_of("127.9.9.9:1", ("A.example", "b:5")).allowed == (("a.example", None), ("b", "5"))
    with pytest.raises(InvalidArgumentError, match="allow-host"):
        settings_of("127.0.0.1:0", ("http://x",))


def test_refusals_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from skillfs.faces.mcp_command import mcp_command
    from skillfs.faces.target import Target

    empty = tmp_path / "empty"
    empty.write_text("\n")
    target = Target((str(tmp_path),), ":memory:", (), (), ())
    taken = socket.create_server(("127.0.0.1", 0))

    def refusal(*arguments: str, **env: str) -> str:
        done = CliRunner().invoke(mcp_command, arguments, obj=target, env={"SKILLFS_MCP_TOKEN": "", **env})
        assert done.exception is not None
        return f"{done.exception} {done.output}"

    assert "clients need a token" in refusal("--http", "0.0.0.0:0")
    monkeypatch.setattr("skillfs.faces.mcp_command.find_spec", lambda name: None)
    assert "pip install 'fsspec-skillfs[mcp]'" in refusal()
    monkeypatch.undo()
    assert "holds no token" in refusal("--http", "127.0.0.1:0", SKILLFS_MCP_TOKEN="a b")
    assert "holds no token" in refusal("--http", "127.0.0.1:0", "--token-file", str(empty))
    assert "cannot be read" in refusal("--http", "127.0.0.1:0", "--token-file", str(tmp_path / "none"))
    assert "go with --http" in refusal("--token-file", str(empty))
    assert "cannot listen" in refusal("--http", f"127.0.0.1:{taken.getsockname()[1]}")
    assert "cannot listen" in refusal("--http", "host.invalid:80", SKILLFS_MCP_TOKEN="x")
    taken.close()
