"""What a tool call by MCP costs on standard input and output, beside a tool of the same SDK that only echoes.

Both servers run in processes of their own; the client is as plain as can be, so that the servers make the
difference. The echo answers text and a structured result of the same sizes, which it has at hand.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.harness import Contender, Limit, Row

SIZES = (100, 10_000)
CALLS = 2_000
_READ = 100
_CHARACTERS = 4_000


def rows() -> list[Row]:
    """The row of tool calls."""
    echo = Contender("echo tool, same SDK", "floor", "mcp_calls", "echo", {"calls": CALLS})
    ours = Contender("skillfs", "skillfs", "mcp_calls", "content", {"calls": CALLS})
    figures = tuple(f"{size:,} skills" for size in SIZES)
    listings = tuple(f"{size:,} skills" for size in SIZES)
    page = Contender("skillfs", "skillfs", "mcp_calls", "page", {"calls": 100})
    return [
        Row(
            "mcp-call",
            "skill_get_content of 4 KB by MCP",
            "µs",
            (echo, ours),
            (Limit(1.15, echo.label),),
            figures,
        ),
        Row("mcp-page", "a page of skills/list by MCP", "µs", (page,), (), listings),
    ]


class Client:
    """A client of the handshake era that sends a line and reads a line."""

    def __init__(self, argv: list[str], state: str) -> None:
        env = {**os.environ, "XDG_DATA_HOME": state}
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        info = {"name": "benchmark", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
        self._send({"method": "notifications/initialized"})

    def _send(self, message: dict[str, Any]) -> None:
        self._to.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._to.flush()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._send({"id": 1, "method": method, "params": params})
        while (answer := json.loads(self._from.readline())).get("id") != 1:
            pass
        return answer["result"]

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.ask("tools/call", {"name": name, "arguments": arguments})

    def close(self) -> None:
        self._to.close()
        self._from.read()
        self._process.wait()


@contextlib.contextmanager
def _served(size: int) -> Iterator[Client]:
    """A client of skillfs on a store of so many skills, of one file of 4 KB each."""
    with tempfile.TemporaryDirectory(prefix="mcp-calls-") as folder:
        rng = random.Random(1)
        words = ["skill", "agent", "Ärger", "read", "the", "file", "of", "a", "page"]
        for number in range(size):
            skill = Path(folder, "store", f"group-{number % 50}", f"skill-{number}")
            skill.mkdir(parents=True)
            head = f"---\nname: skill-{number}\ndescription: Number {number}.\n---\n"
            body = " ".join(rng.choices(words, k=_CHARACTERS // 4))
            (skill / "SKILL.md").write_text((head + body)[:_CHARACTERS], encoding="utf-8")
        argv = [sys.executable, "-m", "skillfs", "-s", f"{folder}/store", "mcp"]
        client = Client(argv, folder)
        yield client
        client.close()


def _paths(size: int) -> list[str]:
    numbers = random.Random(2).sample(range(size), min(size, _READ))
    return [f"group-{number % 50}/skill-{number}/SKILL.md" for number in numbers]


def content(calls: int) -> dict[str, float]:
    figures = {}
    for size in SIZES:
        with _served(size) as client:
            paths = _paths(size)
            for path in paths:
                if client.call("skill_get_content", {"id": path})["isError"]:
                    raise RuntimeError("a call failed")
            taken = []
            for number in range(calls):
                arguments = {"id": paths[number % len(paths)]}
                start = time.perf_counter()
                client.call("skill_get_content", arguments)
                taken.append(time.perf_counter() - start)
            figures[f"{size:,} skills"] = median(taken) * 1e6
    return figures


def page(calls: int) -> dict[str, float]:
    """A page of 50 skills somewhere in the listing, all digests known."""
    figures = {}
    for size in SIZES:
        with _served(size) as client:
            cursors: list[dict[str, Any]] = [{}]
            while (found := client.ask("skills/list", cursors[-1])).get("nextCursor"):
                cursors.append({"cursor": found["nextCursor"]})
            # The last page may be a short one.
            rng, taken = random.Random(3), []
            for _ in range(calls):
                params = rng.choice(cursors[:-1] or cursors)
                start = time.perf_counter()
                client.ask("skills/list", params)
                taken.append(time.perf_counter() - start)
            figures[f"{size:,} skills"] = median(taken) * 1e6
    return figures


def echo(calls: int) -> dict[str, float]:
    with _served(SIZES[0]) as client:
        answer = client.call("skill_get_content", {"id": _paths(SIZES[0])[0]})
    with tempfile.TemporaryDirectory(prefix="mcp-calls-") as folder:
        payload = Path(folder, "payload.json")
        payload.write_text(json.dumps(answer))
        client = Client([sys.executable, "-m", "tests.benchmarks.mcp_calls", str(payload)], folder)
        taken = []
        for number in range(calls + _READ):
            arguments = {"id": f"group-{number % 50}/skill-{number}/SKILL.md"}
            start = time.perf_counter()
            found = client.call("echo", arguments)
            if number >= _READ:
                taken.append(time.perf_counter() - start)
        client.close()
    if found["structuredContent"] != answer["structuredContent"]:
        raise RuntimeError("the echo answers something else")
    return {"": median(taken) * 1e6}


def serve_echo(payload: str) -> None:
    """A server whose one tool answers what is in a file."""
    import anyio
    import mcp_types as types
    from mcp.server.lowlevel.server import Server
    from mcp.server.stdio import stdio_server

    answer = json.loads(Path(payload).read_text())
    text, structured = answer["content"][0]["text"], answer["structuredContent"]

    async def call(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], structured_content=structured
        )

    server: Server[Any] = Server("echo", on_call_tool=call)

    async def run() -> None:
        async with stdio_server() as (source, target):
            await server.run(source, target, server.create_initialization_options())

    anyio.run(run)


if __name__ == "__main__":
    serve_echo(sys.argv[1])
