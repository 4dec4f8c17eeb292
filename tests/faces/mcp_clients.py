"""Servers in processes of their own, and clients of the official SDK that tests can use without `await`."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
from anyio.from_thread import start_blocking_portal
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter

PATIENCE = 60.0
_ANY = TypeAdapter(dict[str, Any])


class Anything(types.Request[dict[str, Any], str]):
    """A request of any method."""


class Refused(Exception):
    """An error that the server answered."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Served:
    """A client that is connected to a server; it writes down all that it is told."""

    def __init__(self, client: Client, portal: Any) -> None:
        self.client = client
        self.portal = portal
        self.transcript: list[str] = []

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a coroutine function where the client runs."""
        return self.portal.call(function, *arguments)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self.do(self.ask_async, method, params)

    async def ask_async(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        try:
            found = await self.client.session.send_request(Anything(method=method, params=params), _ANY)
        except MCPError as error:
            self.transcript.append(f"{error.code} {error.message} {error.data}")
            raise Refused(error.code, error.message) from None
        self.transcript.append(repr(found))
        return found

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The structured result of a tool; an `error` in it is that."""
        return self.whole(name, arguments)["structuredContent"]

    def whole(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        found = self.ask("tools/call", name=name, arguments=arguments)
        assert found["content"][0]["type"] == "text"
        return found


def environment(home: Path) -> dict[str, str]:
    """Variables for a server that keeps its index in a folder of the test."""
    return {**os.environ, "XDG_DATA_HOME": str(home), "SKILLFS_STORE": "", "PYTHONUNBUFFERED": "1"}


def command(store: Path | str, *options: str, arguments: tuple[str, ...] = ()) -> list[str]:
    """The command line of a server."""
    return [sys.executable, "-m", "skillfs", "-s", str(store), *options, "mcp", *arguments]


@contextlib.contextmanager
def connected(transport: Any, mode: str, **options: Any) -> Iterator[Served]:
    """A client over a transport, in a thread of its own."""
    with start_blocking_portal("asyncio") as portal:
        client = Client(transport, mode=mode, cache=None, read_timeout_seconds=PATIENCE, **options)
        with portal.wrap_async_context_manager(client):
            yield Served(client, portal)


@contextlib.contextmanager
def over_stdio(
    store: Path, home: Path, mode: str, *options: str, log: Path | None = None, **client: Any
) -> Iterator[Served]:
    """A client of a server on its standard input and output."""
    line = command(store, *options)
    with open(log or os.devnull, "w", encoding="utf-8") as errors:
        parameters = StdioServerParameters(command=line[0], args=line[1:], env=environment(home))
        with connected(stdio_client(parameters, errors), mode, **client) as served:
            yield served


class Web:
    """A server over HTTP in a process of its own."""

    def __init__(
        self, store: Path, home: Path, *options: str, arguments: tuple[str, ...] = (), **env: str
    ) -> None:
        line = command(store, *options, arguments=("--http", "127.0.0.1:0", *arguments))
        self._log = open(home / "log", "w+", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen(
            line, env={**environment(home), **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stderr is not None
        first = self.process.stderr.readline()
        match = re.search(r"http://(127\.0\.0\.1):(\d+)/mcp", first)
        assert match, first + self.process.stderr.read()
        self.url, self.port = match[0], int(match[2])

    @contextlib.contextmanager
    def client(self, mode: str, token: str | None = None, **options: Any) -> Iterator[Served]:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        with start_blocking_portal("asyncio") as portal:
            http = httpx2.AsyncClient(headers=headers, timeout=PATIENCE)
            with portal.wrap_async_context_manager(http):
                transport = streamable_http_client(self.url, http_client=http)
                client = Client(transport, mode=mode, cache=None, read_timeout_seconds=PATIENCE, **options)
                with portal.wrap_async_context_manager(client):
                    yield Served(client, portal)

    def close(self) -> str:
        """End it; returns what it wrote on standard output and standard error."""
        self.process.terminate()
        out, err = self.process.communicate(timeout=PATIENCE)
        self._log.close()
        return out + err
