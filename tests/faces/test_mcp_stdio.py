"""The protocol over standard input and output, byte by byte: nothing that comes in ends the server."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError

from skillfs import SkillFileSystem
from skillfs.faces.mcp import stdio
from skillfs.faces.mcp.server import _guard, make_server
from skillfs.faces.mcp.stdio import LONGEST_LINE, _Connection, _Fault, _line_of, _message_of
from skillfs.faces.mcp.workers import Workers
from skillfs.tools.registry import Answer, Tool
from tests.conftest import skill_md, write
from tests.faces.mcp_clients import command, environment

PATIENCE = 30.0
Open = Callable[..., SkillFileSystem]

HELLO = {
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
    },
}  # fmt: skip
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Pipe:
    """A server in a thread of this process, at the other end of two pipes."""

    def __init__(self, fs: SkillFileSystem, *, greet: bool = True, waits: bool = True) -> None:
        source, self._to = os.pipe()
        self._from, target = os.pipe()
        os.set_blocking(source, waits)
        os.set_blocking(target, waits)
        self.failure: BaseException | None = None

        def serve() -> None:
            try:
                asyncio.run(_Connection(make_server(fs), source, target).run())
            except BaseException as error:
                self.failure = error
            finally:
                os.close(target)

        self._thread = threading.Thread(target=serve)
        self._thread.start()
        self._answers = os.fdopen(self._from, "rb")
        self.number = 0
        self.told: list[bytes] = []
        if greet:
            self.ask(**HELLO)
            self.send({"method": "notifications/initialized"})

    def raw(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._to, data) :]

    def send(self, message: dict[str, Any]) -> None:
        self.raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def next(self) -> dict[str, Any]:
        line = self._answers.readline()
        self.told.append(line)
        assert line, "the server has ended"
        return json.loads(line.decode("utf-8", "strict"))

    def start(self, **message: Any) -> int:
        self.number += 1
        self.send({"id": self.number, **message})
        return self.number

    def ask(self, **message: Any) -> dict[str, Any]:
        number = self.start(**message)
        while (answer := self.next()).get("id") != number:
            pass
        return answer

    def read(self, ref: object, **arguments: Any) -> dict[str, Any]:
        params = {"name": "skill_get_content", "arguments": {"id": ref, **arguments}}
        return self.ask(method="tools/call", params=params)["result"]["structuredContent"]

    def close(self) -> list[dict[str, Any]]:
        """End the input, and wait for the end of the server."""
        os.close(self._to)
        rest = self._answers.read()
        self.told.append(rest)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._answers.close()
        return [json.loads(line) for line in rest.splitlines()]


@pytest.fixture
def fs(root: Path, open_fs: Open) -> SkillFileSystem:
    write(root, {"a/SKILL.md": skill_md("a"), "a/x.md": "text of x\n"})
    return open_fs()


@pytest.fixture
def pipe(fs: SkillFileSystem) -> Iterator[Pipe]:
    pipe = Pipe(fs)
    yield pipe
    assert pipe.read("a/x.md")["text"] == "text of x\n"  # whatever came before
    pipe.close()
    assert pipe.failure is None
    assert all(b"Traceback" not in line and bytes(fs.roots[0], "utf-8") not in line for line in pipe.told)


# -- what is no message ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "number"),
    [
        (b"{", -32700, None),
        (b"[]", -32600, None),
        (b'[{"jsonrpc":"2.0","id":5,"method":"ping"}]', -32600, None),
        (b"null", -32600, None),
        (b"7", -32600, None),
        (b"\xff\xfe{}", -32700, None),
        (b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":"\xff"}}', -32700, None),
        (b"[" * 100_000, -32700, None),
        (b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":' + b"[" * 100_000, -32700, None),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, -32700, None),
        (b"x" * (LONGEST_LINE + 1), -32600, None),
        (b"x" * (3 * LONGEST_LINE), -32600, None),
        (b"{}", -32600, None),
        (b'{"jsonrpc":"2.0","id":5}', -32600, 5),
        (b'{"jsonrpc":"1.0","id":5,"method":"ping"}', -32600, 5),
        (b'{"jsonrpc":"2.0","id":5,"method":7}', -32600, 5),
        (b'{"jsonrpc":"2.0","id":5,"method":"ping","params":[1]}', -32600, 5),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":' + b"9" * 5_000 + b"}}", -32700, None),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_line_that_is_no_message_is_answered_by_an_error(
    pipe: Pipe, line: bytes, code: int, number: int | None
) -> None:
    pipe.raw(line + b"\n")
    answer = pipe.next()
    assert (answer["error"]["code"], answer["id"]) == (code, number)
    assert len(answer["error"]["message"]) < 200


def test_what_needs_no_answer_has_none(pipe: Pipe) -> None:
    pipe.raw(b'\n  \r\n{"jsonrpc":"2.0","id":9,"result":{}}\n{"jsonrpc":"2.0","id":9,"error":{}}\n')
    pipe.send({"method": "notifications/unknown"})
    pipe.send({"method": "notifications/cancelled", "params": {"requestId": 10**30}})
    pipe.send({"method": "notifications/cancelled", "params": {"requestId": [1]}})
    assert pipe.read("a/x.md")["length"] == 10
    assert all(json.loads(line)["id"] <= pipe.number for line in pipe.told)


def test_a_message_may_come_in_pieces_and_end_in_crlf(pipe: Pipe) -> None:
    for byte in b'{"jsonrpc":"2.0","id":"x","method":"ping"}\r\n':
        pipe.raw(bytes([byte]))
    assert pipe.next() == {"jsonrpc": "2.0", "id": "x", "result": {}}


def test_a_message_of_the_greatest_length(pipe: Pipe) -> None:
    head, tail = b'{"jsonrpc":"2.0","id":"x","method":"ping","params":{"x":"', b'"}}'
    pipe.raw(head + b"y" * (LONGEST_LINE - len(head) - len(tail)) + tail + b"\n")
    assert pipe.next()["result"] == {}


@pytest.mark.parametrize("depth", [50, 150, 250, 600, 900, 2_000])
def test_deep_arguments(pipe: Pipe, depth: int) -> None:
    line = b'{"jsonrpc":"2.0","id":77,"method":"tools/call",'
    line += b'"params":{"name":"skill_get_content","arguments":{"id":'
    pipe.raw(line + b"[" * depth + b"]" * depth + b"}}}\n")
    answer = pipe.next()
    if "result" in answer:
        assert answer["result"]["structuredContent"]["error"]["code"] == "invalid_argument"
    else:
        assert answer["error"]["code"] in (-32700, -32600, -32602)


MESSAGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "name", "uri", "_meta"])
        | st.text(max_size=3),
        inner | st.sampled_from(["2.0", "ping", "tools/call", "skills/list", 1]),
        max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


@given(MESSAGE.map(json.dumps).map(str.encode) | st.binary(max_size=200))
def test_any_line_is_a_message_a_fault_or_nothing(line: bytes) -> None:
    found = _message_of(line)
    if isinstance(found, _Fault):
        assert found.request_id is None or isinstance(found.request_id, int | str)
        json.dumps(found).encode()
    elif found is not None:
        json.loads(_line_of(found).decode("utf-8", "strict"))


def test_a_stream_of_anything(pipe: Pipe) -> None:
    rng = random.Random(9)
    parts = [
        b'{"jsonrpc":"2.0",',
        b'"id":5,',
        b'"method":"tools/call",',
        b'"params":{}',
        b"}",
        b"\n",
        b"\xff",
        b"[",
        b'"',
    ]
    pipe.raw(b"".join(rng.choices(parts, k=3_000)) + b"\n")


# -- characters that no encoder takes ----------------------------------------------------------------------


@pytest.mark.parametrize("ref", ["a/\ud800.md", "a/bad\udcff.md", "\udfff", "name:\ud800", "skill://\ud800"])
def test_unpaired_surrogates_in_a_reference(pipe: Pipe, ref: str) -> None:
    assert pipe.read(ref)["error"]["code"] in ("invalid_argument", "not_found")
    for method in ("resources/read", "skills/get", "resources/directory/read"):
        assert pipe.ask(method=method, params={"uri": ref})["error"]["code"] == -32602
    assert "id" in pipe.ask(method="resources/subscribe", params={"uri": ref})


def test_unpaired_surrogates_anywhere_else(pipe: Pipe) -> None:
    odd = "\ud800x"
    assert pipe.ask(method="tools/call", params={"name": odd})["error"]["code"] == -32602
    assert pipe.ask(method="tools/call", params={"name": "skill_tree", "arguments": {odd: 1}})["result"][
        "isError"
    ]
    assert pipe.ask(method=odd)["error"]["code"] == -32601
    assert pipe.ask(method="skills/list", params={"cursor": odd})["error"]["code"] == -32602
    assert pipe.ask(method="ping", params={"_meta": {"progressToken": odd}})["result"] == {}
    pipe.send({"id": odd, "method": "ping"})
    assert pipe.next() == {"jsonrpc": "2.0", "id": "\ufffdx", "result": {}}


def test_an_answer_with_unpaired_surrogates(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Answer("a\ud800b", {"text": "a\udc00b", "list": ["\ud800"]})
    monkeypatch.setattr(Tool, "answer", lambda *_: found)
    result = pipe.ask(method="tools/call", params={"name": "skill_tree"})["result"]
    assert result["content"][0]["text"] == "a\ufffdb"
    assert result["structuredContent"] == {"text": "a\ufffdb", "list": ["\ufffd"]}
    monkeypatch.undo()


def test_the_guard_lets_out_what_every_encoder_takes() -> None:
    """Also where the transport is the SDK's own."""

    async def call_next(context: Any) -> dict[str, Any]:
        if context.method == "x":
            raise MCPError(-32602, "a\ud800b", {"x": "\udc00"})
        return {"text": ["a\ud800b"], "\ud800": 1}

    async def ask(method: str) -> Any:
        return await _guard(SimpleNamespace(method=method), call_next)  # type: ignore[arg-type]

    assert asyncio.run(ask("y")) == {"text": ["a\ufffdb"], "\ufffd": 1}
    with pytest.raises(MCPError) as refused:
        asyncio.run(ask("x"))
    assert (refused.value.message, refused.value.data) == ("a\ufffdb", {"x": "\ufffd"})


def test_an_answer_that_cannot_be_written(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    for odd in (float("nan"), {1, 2}, object(), b"\xff"):
        found = Answer("x", {"odd": odd})
        monkeypatch.setattr(Tool, "answer", lambda *_, found=found: found)
        answer = pipe.ask(method="tools/call", params={"name": "skill_tree"})
        assert "result" in answer or answer["error"]["code"] == -32603
    monkeypatch.undo()


def test_what_nobody_expected_is_masked(
    pipe: Pipe, fs: SkillFileSystem, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(f"at {fs.roots[0]}")

    monkeypatch.setattr(fs, "get_content", fail)
    monkeypatch.setattr(fs, "cat_file", fail)
    result = pipe.ask(
        method="tools/call", params={"name": "skill_get_content", "arguments": {"id": "a/x.md"}}
    )
    assert (
        result["result"]["content"][0]["text"] == "internal: internal error; the log of the server tells more"
    )
    assert result["result"]["isError"]
    error = pipe.ask(method="resources/read", params={"uri": "skill://a/x.md"})["error"]
    assert error == {"code": -32603, "message": "internal error; the log of the server tells more"}
    assert caplog.text.count(f"RuntimeError: at {fs.roots[0]}") == 2
    monkeypatch.undo()


# -- the end -----------------------------------------------------------------------------------------------


def test_all_that_was_asked_for_is_answered_before_the_end(fs: SkillFileSystem) -> None:
    pipe = Pipe(fs)
    numbers = [pipe.start(method="skills/list") for _ in range(20)]
    numbers += [pipe.start(method="ping") for _ in range(20)]
    assert sorted(answer["id"] for answer in pipe.close()) == numbers
    assert pipe.failure is None


@pytest.mark.parametrize("data", [b"", b"\n", b"{", b'{"jsonrpc":"2.0","method":"notifications/x"}\n'])
def test_input_that_ends_before_anything_is_asked(fs: SkillFileSystem, data: bytes) -> None:
    pipe = Pipe(fs, greet=False)
    pipe.raw(data)
    assert len(pipe.close()) == (data == b"{")
    assert pipe.failure is None


def test_pipes_that_do_not_wait(fs: SkillFileSystem) -> None:
    pipe = Pipe(fs, waits=False)
    numbers = [pipe.start(method="tools/list") for _ in range(50)]
    # More than the pipe holds is written before anything is read.
    assert sorted(answer["id"] for answer in pipe.close()) == numbers
    assert sum(map(len, pipe.told)) > 256 * 1024
    assert pipe.failure is None


def test_a_client_that_does_not_read_any_more(fs: SkillFileSystem) -> None:
    pipe = Pipe(fs)
    pipe._answers.close()
    pipe.start(method="ping")
    pipe._thread.join(PATIENCE)
    assert isinstance(pipe.failure, BrokenPipeError)
    os.close(pipe._to)


def test_listening_does_not_keep_the_server_from_ending(fs: SkillFileSystem) -> None:
    pipe = Pipe(fs, greet=False)
    params = {"_meta": MODERN, "notifications": {"resourcesListChanged": True}}
    pipe.start(method="subscriptions/listen", params=params)
    assert pipe.next()["method"] == "notifications/subscriptions/acknowledged"
    before = time.monotonic()
    pipe.close()
    assert time.monotonic() - before < 20
    assert fs.status()["watch"] == "off"


def test_a_process_of_its_own(tmp_path: Path, root: Path) -> None:
    """Stray prints, and those of other programs, do not reach the client; an end of the input ends it."""
    write(root, {"a/SKILL.md": skill_md("a"), "b/SKILL.md": "no front matter\n"})
    stray = tmp_path / "sitecustomize.py"
    stray.write_text(
        "import threading, os, time, sys\n"
        "def stray():\n"
        "    while True:\n"
        "        time.sleep(0.01)\n"
        f"        if os.path.exists({str(tmp_path / 'now')!r}):\n"
        "            print('stray', flush=True); os.system('echo stray')\n"
        "threading.Thread(target=stray, daemon=True).start()\n"
    )
    process = subprocess.Popen(
        command(root), env={**environment(tmp_path), "PYTHONPATH": str(tmp_path)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, **HELLO}).encode() + b"\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == 1
    (tmp_path / "now").touch()
    time.sleep(0.1)
    out, err = process.communicate(b'{"jsonrpc":"2.0","id":2,"method":"skills/list"}\n', timeout=PATIENCE)
    assert json.loads(out)["result"]["skills"][0]["uri"] == "skill://a/SKILL.md"
    assert process.returncode == 0
    assert b"stray" in err
    assert b'skillfs: warning: left out of skills/list: "b": SKILL.md has no front matter' in err
    assert b"Traceback" not in err


def test_an_interrupted_server(tmp_path: Path, root: Path) -> None:
    write(root, {"a/SKILL.md": skill_md("a")})
    process = subprocess.Popen(
        command(root), env=environment(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, **HELLO}).encode() + b"\n")
    process.stdin.flush()
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert err == b""


def test_closed_standard_output(tmp_path: Path, root: Path) -> None:
    write(root, {"a/SKILL.md": skill_md("a")})
    line = " ".join([*command(root), "<&-"])
    done = subprocess.run(
        line, shell=True, env=environment(tmp_path), capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 2
    assert done.stderr.startswith("skillfs: ")
    assert "Traceback" not in done.stderr


# -- slow stores -------------------------------------------------------------------------------------------


class SlowStore(MemoryFileSystem):
    """A remote store whose readings wait until they are let go."""

    protocol = "slow"
    store: dict = {}  # noqa: RUF012
    pseudo_dirs: list = [""]  # noqa: RUF012
    cachable = False
    gate = threading.Event()
    waiting = 0
    is_slow = False

    def _open(self, *args: Any, **kwargs: Any) -> Any:
        self._wait()
        return super()._open(*args, **kwargs)

    def cat_file(self, *args: Any, **kwargs: Any) -> bytes:
        self._wait()
        return super().cat_file(*args, **kwargs)

    @classmethod
    def _wait(cls) -> None:
        if cls.is_slow:
            cls.waiting += 1
            cls.gate.wait(PATIENCE)
            cls.waiting -= 1


@pytest.fixture
def slow() -> Iterator[Pipe]:
    SlowStore.is_slow = False
    SlowStore.gate.clear()
    store = SlowStore(skip_instance_cache=True)
    store.store.clear()
    store.pipe_file("/k/a/SKILL.md", skill_md("a").encode())
    store.pipe_file("/k/a/x.md", b"text of x\n")
    pipe = Pipe(SkillFileSystem("/k", fs=store, index=":memory:"))
    yield pipe
    SlowStore.gate.set()
    SlowStore.is_slow = False
    assert pipe.read("a/x.md")["text"] == "text of x\n"
    pipe.close()
    assert pipe.failure is None
    assert SlowStore.waiting == 0


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_slow_call_holds_up_no_other(slow: Pipe) -> None:
    SlowStore.is_slow = True
    params = {"name": "skill_get_content", "arguments": {"id": "a/x.md"}}
    number = slow.start(method="tools/call", params=params)
    until(lambda: SlowStore.waiting > 0)
    for method in ("ping", "tools/list", "resources/templates/list"):
        assert "result" in slow.ask(method=method)
    assert "a" in slow.ask(method="tools/call", params={"name": "skill_tree"})["result"]["content"][0]["text"]
    SlowStore.gate.set()
    answer = slow.next()
    assert answer["id"] == number
    assert answer["result"]["structuredContent"]["text"] == "text of x\n"


def test_a_check_of_the_store_holds_up_only_who_needs_it(
    pipe: Pipe, fs: SkillFileSystem, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, held = threading.Event(), threading.Event()
    whole = fs.skill_tree

    def check(*arguments: Any, **options: Any) -> Any:
        with fs._engine._lock:
            held.set()
            assert gate.wait(PATIENCE)
        return whole(*arguments, **options)

    monkeypatch.setattr(fs, "skill_tree", check)
    pipe.read("a/x.md")
    numbers = [pipe.start(method="tools/call", params={"name": "skill_tree"})]
    assert held.wait(PATIENCE)
    (root / "a/x.md").write_text("another text of x\n")
    for ref in ("a/x.md", "a/new.md"):
        params = {"name": "skill_get_content", "arguments": {"id": ref}}
        numbers.append(pipe.start(method="tools/call", params=params))
    assert pipe.ask(method="ping")["result"] == {}
    gate.set()
    while not set(numbers) <= set(told := {(found := json.loads(line))["id"]: found for line in pipe.told}):
        pipe.next()
    assert not told[numbers[0]]["result"]["isError"]
    assert pipe.read("a/x.md")["text"] == "another text of x\n"
    (root / "a/x.md").write_text("text of x\n")


def test_a_cancelled_call_is_not_answered_and_lets_go(slow: Pipe) -> None:
    SlowStore.is_slow = True
    params = {"name": "skill_get_content", "arguments": {"id": "a/x.md"}}
    numbers = [
        slow.start(method="tools/call", params=params) for _ in range(80)
    ]  # more than there are threads
    until(lambda: SlowStore.waiting > 0)
    for number in numbers:
        slow.send({"method": "notifications/cancelled", "params": {"requestId": number}})
    assert slow.ask(method="ping")["result"] == {}
    SlowStore.is_slow = False
    SlowStore.gate.set()
    until(lambda: SlowStore.waiting == 0)
    assert slow.read("a/x.md")["length"] == 10
    assert not [line for line in slow.told if json.loads(line)["id"] in numbers]


def test_workers_give_up_what_nobody_waits_for() -> None:
    async def run() -> None:
        workers = Workers()
        gate, done = threading.Event(), []
        calls = [asyncio.create_task(workers.run(gate.wait, PATIENCE)) for _ in range(32)]
        late = asyncio.create_task(workers.run(done.append, 1))
        await asyncio.sleep(0.05)
        late.cancel()
        gate.set()
        assert await asyncio.gather(*calls) == [True] * 32
        assert await workers.run(lambda: 7) == 7
        assert done == []
        with pytest.raises(ZeroDivisionError):
            await workers.run(lambda: 1 // 0)
        with pytest.raises(RuntimeError):
            await workers.run(sys.exit)
        workers.close()

    asyncio.run(run())
    until(lambda: not [t for t in threading.enumerate() if t.name == "skillfs-mcp" and t.is_alive()])


def test_memory_is_bounded_by_the_longest_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "LONGEST_LINE", 100_000)
    source, target = os.pipe()
    lines: list[bytes | None] = []
    reading = threading.Thread(target=stdio._read_lines, args=(source, lines.append))
    reading.start()
    for _ in range(100):
        os.write(target, b"y" * 60_000)
    os.write(target, b"\nshort\n" + b"z" * 50)
    os.close(target)
    reading.join(PATIENCE)
    long, *others = [None if line is None else len(line) for line in lines]
    assert others == [5, 50, None]
    assert long is not None
    assert 100_000 < long < 200_000
    os.close(source)
