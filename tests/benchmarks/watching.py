"""What watching costs and how soon a change is noticed: skillfs, floors and peers.

The changes are made in skills of their own, laid out below the store before anybody watches it and removed
afterwards. A change counts as noticed when the listener has been told of its path; the clock starts before
the first system call of the change. Costs are of the process that watches, all its threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import multiprocessing
import os
import queue
import random
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Protocol

from tests.benchmarks.measure import Meter

KINDS = (
    *("new file", "edit", "atomic save", "new skill", "skill renamed", "file deleted", "skill deleted"),
    "moved out",
)
IDLE_SECONDS = 30.0
_PATIENCE = 5.0
_NOTHING = "nothing"
_MOST_MISSED = 3
"""Of a kind: then it is given up."""

_QUIET = 0.15
_SETTLING = 3.0
_SCRATCH = "watching"


class Listener(Protocol):
    """Whatever is told of changes."""

    def wait_for(self, path: str, seconds: float) -> float | None:
        """When it was told of a store path, by the monotonic clock; None when it was not for so long."""


class Scratch:
    """A folder of skills to change, and a folder outside the store."""

    def __init__(self, store: str, skills: int) -> None:
        self.store = Path(store)
        self.top = self.store / _SCRATCH
        self._outside = tempfile.mkdtemp(prefix="watching-", dir=self.store.parent)
        self._count = 0
        shutil.rmtree(self.top, ignore_errors=True)  # of a turn that failed
        for number in range(skills):
            self._skill(f"edit-{number}")
            for kind in ("deleted", "out", "renamed"):
                self._skill(f"{kind}-{number}")

    def _skill(self, name: str) -> None:
        folder = self.top / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: To be changed.\n---\n")
        (folder / "notes.md").write_text(f"{0:08} notes of {name}\n")

    def change(self, kind: str, number: int) -> tuple[str, Callable[[], object]]:
        """The path that tells of a change, and what makes it."""
        self._count += 1
        edit = self.top / f"edit-{number}"
        notes, new = edit / "notes.md", edit / f"new-{self._count}.md"
        if kind == "new file":
            return self._told(new), lambda: new.write_text("new\n")
        if kind == "edit":
            return self._told(notes), lambda: _write_over(notes, f"{self._count:08}".encode())
        if kind == "atomic save":
            return self._told(notes), lambda: _save(notes, f"{self._count:08} saved\n")
        if kind == "new skill":
            folder = self.top / f"made-{self._count}"
            return self._told(folder), lambda: _make_skill(folder)
        if kind == "skill renamed":
            old, to = self.top / f"renamed-{number}", self.top / f"other-{number}"
            return self._told(to), lambda: old.rename(to)
        if kind == "file deleted":
            return self._told(notes), notes.unlink
        if kind == "skill deleted":
            gone = self.top / f"deleted-{number}"
            return self._told(gone), lambda: shutil.rmtree(gone)
        out = self.top / f"out-{number}" / "notes.md"
        return self._told(out), lambda: out.rename(Path(self._outside, str(number)))

    def _told(self, path: Path) -> str:
        return str(path.relative_to(self.store))

    def close(self) -> None:
        shutil.rmtree(self.top)
        shutil.rmtree(self._outside)


def _write_over(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY)
    os.pwrite(handle, data, 0)
    os.close(handle)


def _save(path: Path, text: str) -> None:
    beside = path.with_name(f"{path.name}~")
    beside.write_text(text)
    beside.replace(path)


def _make_skill(folder: Path) -> None:
    folder.mkdir()
    (folder / "SKILL.md").write_text(f"---\nname: {folder.name}\ndescription: New.\n---\n")


@contextlib.contextmanager
def _scratch(store: str, skills: int) -> Iterator[Scratch]:
    scratch = Scratch(store, skills)
    try:
        yield scratch
    finally:
        scratch.close()


def _latencies(scratch: Scratch, listener: Listener, calls: int) -> dict[str, float]:
    """Median, 99th percentile and greatest latency of each kind of change, in µs; how many were missed."""
    rng = random.Random(1)
    figures: dict[str, float] = {}
    missed, worst = 0, 0.0
    time.sleep(_SETTLING)
    for kind in KINDS:
        taken = []
        for number in range(calls):
            path, make = scratch.change(kind, number)
            time.sleep(_QUIET * (1 + rng.random()))
            listener.wait_for(_NOTHING, 0.005)  # what is still told of the change before
            started = time.monotonic()
            make()
            told = listener.wait_for(path, _PATIENCE)
            if told is not None:
                taken.append((told - started) * 1e6)
            elif number + 1 - len(taken) == _MOST_MISSED:
                break
        missed += number + 1 - len(taken)
        if len(taken) < 2:
            continue
        p99 = quantiles(taken, n=100, method="inclusive")[98]
        figures |= {kind: median(taken), f"{kind} p99": p99, f"{kind} max": max(taken)}
        if kind != "moved out":
            worst = max(worst, p99)
    return figures | {"p99": worst, "missed": missed}


# -- skillfs -----------------------------------------------------------------------------------------------


def _watched(fs: Any) -> Any:
    """The feed of a filesystem, once that is watched."""
    feed = fs.watch()
    until = time.monotonic() + 120
    # That of the filesystem counts all there is at each call.
    while (status := feed.status())["watch"] != "watching":
        if time.monotonic() > until:
            raise RuntimeError(f"not watched: {status['watch_reason']}")
        time.sleep(0.01)
    return feed


def _open(store: str, index: str) -> Any:
    from skillfs import SkillFileSystem

    return SkillFileSystem(store, index=index, skip_instance_cache=True)


class _Feed:
    """The feed of a filesystem in this process."""

    def __init__(self, feed: Any) -> None:
        self._feed = feed

    def wait_for(self, path: str, seconds: float) -> float | None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            changes = self._feed.get(timeout=left)
            told = time.monotonic()
            if changes is not None and any(path in (item.path, item.old_path) for item in changes.items):
                return told
        return None


def told(store: str, index: str, calls: int) -> dict[str, float]:
    """`fs.watch()` in the process that watches; the changes are made by it, too."""
    with _scratch(store, calls) as scratch:
        listener = _Feed(_watched(_open(store, index)))
        with Meter() as meter:
            figures = _latencies(scratch, listener, calls)
        return figures | {"CPU s": meter.cpu}


def _poll(store: str, index: str, end: Any) -> None:
    """In a process of its own: ask for changes all the time, and pass on when which path was told."""
    from skillfs import SkillFileSystem

    fs = SkillFileSystem(store, index=index, skip_instance_cache=True, max_age=3600.0)
    revision = fs.revision
    end.send("polling")
    while not end.poll(0.001):
        if fs.revision != revision:
            changes = fs.changes(revision)
            told = time.monotonic()
            revision = changes.revision
            for item in changes.items:
                end.send((item.path, told))
                if item.old_path is not None:
                    end.send((item.old_path, told))


class _Elsewhere:
    """Another process that shares the index, and asks it every millisecond."""

    def __init__(self, store: str, index: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._end, other = context.Pipe()
        self._process = context.Process(target=_poll, args=(store, index, other), daemon=True)
        self._process.start()
        if self._end.recv() != "polling":
            raise RuntimeError("the other process does not poll")

    def wait_for(self, path: str, seconds: float) -> float | None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._end.poll(left):
                found, told = self._end.recv()
                if found == path:
                    return float(told)
        return None

    def close(self) -> None:
        self._end.send("end")
        self._process.join(10)


def told_elsewhere(store: str, index: str, calls: int) -> dict[str, float]:
    """`fs.changes()` in another process, of what the one that watches has taken in."""
    with _scratch(store, calls) as scratch:
        feed = _watched(_open(store, index))
        listener = _Elsewhere(store, index)
        try:
            return _latencies(scratch, listener, calls)
        finally:
            listener.close()
            feed.close()


def idle(store: str, index: str) -> dict[str, float]:
    """What a filesystem that is watched does while nothing happens."""
    feed = _watched(_open(store, index))
    time.sleep(_SETTLING)
    figures = _idle(os.getpid())
    return figures | {"folders": feed.status()["watched_folders"]}


def start(store: str, index: str) -> dict[str, float]:
    """From an open filesystem to one that is watched, and what that takes of memory, for good and at most."""
    fs = _open(store, index)
    fs.skill_tree(limit=10)
    gc.collect()
    before = _memory()
    with Meter() as meter:
        feed = _watched(fs)
    time.sleep(_SETTLING)
    after = _memory()
    feed.close()
    return {
        "": meter.cpu,
        "wall": meter.wall,
        "memory": after["VmRSS"] - before["VmRSS"],
        "RSS unwatched": before["VmRSS"],
        "peak": after["VmHWM"],
    }


# -- floors ------------------------------------------------------------------------------------------------

_IN_ALL = 0x2 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200  # written to, closed, moved from and to, made, deleted
_IN_ONLYDIR = 0x01000000
_EVENT = struct.Struct("iIII")


class _Inotify:
    """The kernel's own events of some folders, read by a thread that does nothing else."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._handle = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._folders: dict[int, str] = {}
        self._told: queue.SimpleQueue[tuple[str, float]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def add(self, folder: str, shown: str) -> None:
        found = self._libc.inotify_add_watch(self._handle, os.fsencode(folder), _IN_ALL | _IN_ONLYDIR)
        if found < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._folders[found] = shown

    def start(self) -> None:
        self._thread.start()

    def _read(self) -> None:
        while select.select([self._handle], [], [])[0]:
            data = os.read(self._handle, 1 << 16)
            told = time.monotonic()
            at = 0
            while at < len(data):
                watch, _, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
                at += length
                above = self._folders.get(watch, "")
                self._told.put((f"{above}/{name}".lstrip("/"), told))

    def wait_for(self, path: str, seconds: float) -> float | None:
        return _wait_in(self._told, path, seconds)


def _wait_in(told: queue.SimpleQueue[tuple[str, float]], path: str, seconds: float) -> float | None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        with contextlib.suppress(queue.Empty):
            found, at = told.get(timeout=left)
            if found == path:
                return at
    return None


def told_inotify(store: str, calls: int) -> dict[str, float]:
    """Raw events of the folders that are changed, and of no other."""
    with _scratch(store, calls) as scratch:
        listener = _Inotify()
        for folder in (scratch.top, *scratch.top.iterdir()):
            listener.add(str(folder), str(folder.relative_to(store)))
        listener.start()
        return _latencies(scratch, listener, calls)


def idle_inotify(store: str) -> dict[str, float]:
    listener = _Inotify()
    listener.add(store, "")
    listener.start()
    time.sleep(_SETTLING)
    return _idle(os.getpid())


def start_inotify(store: str) -> dict[str, float]:
    """A walk that puts a kernel watch on every folder, and keeps its path."""
    before = _memory()["VmRSS"]
    listener = _Inotify()
    with Meter() as meter:
        pending = [store]
        while pending:
            folder = pending.pop()
            listener.add(folder, folder)
            with os.scandir(folder) as entries:
                pending.extend(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    after = _memory()
    return {
        "": meter.cpu,
        "wall": meter.wall,
        "memory": after["VmRSS"] - before,
        "peak": after["VmHWM"],
    }


class _Observer:
    """watchdog as its documentation shows it: recursive, with the default filter."""

    def __init__(self, store: str) -> None:
        from watchdog.events import FileSystemEvent, FileSystemEventHandler
        from watchdog.observers import Observer

        told: queue.SimpleQueue[tuple[str, float]] = queue.SimpleQueue()

        class Handler(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                if event.event_type in ("created", "deleted", "modified", "moved"):
                    at = time.monotonic()
                    for path in (event.src_path, event.dest_path):
                        if path:
                            told.put((os.path.relpath(os.fsdecode(path), store), at))

        self._told = told
        self.observer = Observer()
        self.observer.schedule(Handler(), store, recursive=True)
        self.observer.start()

    def wait_for(self, path: str, seconds: float) -> float | None:
        return _wait_in(self._told, path, seconds)


def told_watchdog(store: str, calls: int) -> dict[str, float]:
    with _scratch(store, calls) as scratch:
        return _latencies(scratch, _Observer(store), calls)


def idle_watchdog(store: str) -> dict[str, float]:
    _Observer(store)
    time.sleep(_SETTLING)
    return _idle(os.getpid())


def start_watchdog(store: str) -> dict[str, float]:
    from watchdog.observers import Observer  # noqa: F401  # not timed

    before = _memory()["VmRSS"]
    with Meter() as meter:
        _Observer(store)
    after = _memory()
    return {
        "": meter.cpu,
        "wall": meter.wall,
        "memory": after["VmRSS"] - before,
        "peak": after["VmHWM"],
    }


# -- watchman ----------------------------------------------------------------------------------------------


class _Watchman:
    """A server of its own, subscribed to everything in a store."""

    def __init__(self, store: str, state: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="watchman-", dir=state)
        at = f"{self._folder}/socket"
        files = [f"--{kind}file={self._folder}/{kind}" for kind in ("state", "log", "pid")]
        command = ["watchman", "--foreground", "--no-save-state", f"--sockname={at}", *files]
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._socket = socket.socket(socket.AF_UNIX)
        until = time.monotonic() + _PATIENCE
        while self._socket.connect_ex(at):
            if time.monotonic() > until:
                raise RuntimeError("watchman does not start")
            time.sleep(0.01)
        self._read = bytearray()
        self._store = store

    def subscribe(self) -> None:
        """Returns when the server has seen the whole store."""
        self._ask("watch", self._store)
        self._ask("query", self._store, {"expression": "false", "fields": ["name"]})
        self._ask("subscribe", self._store, "all", {"fields": ["name"], "expression": "true"})
        while self._line(_SETTLING) is not None:
            pass

    def _ask(self, *words: object) -> None:
        self._socket.sendall(json.dumps(words).encode() + b"\n")
        while True:
            line = self._line(120)
            if line is None:
                raise RuntimeError("watchman does not answer")
            answer = json.loads(line)
            if "error" in answer:
                raise RuntimeError(answer["error"])
            if "unilateral" not in answer:
                return

    def _line(self, seconds: float) -> bytes | None:
        """The next line that the server sends; None when there is none for so long."""
        until = time.monotonic() + seconds
        while (end := self._read.find(b"\n")) < 0:
            left = max(0.0, until - time.monotonic())
            if not select.select([self._socket], [], [], left)[0]:
                return None
            self._read += self._socket.recv(1 << 20)
        line = bytes(self._read[:end])
        del self._read[: end + 1]
        return line

    def wait_for(self, path: str, seconds: float) -> float | None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            line = self._line(left)
            told = time.monotonic()
            if line is not None and path in json.loads(line).get("files", ()):
                return told
        return None

    def close(self) -> None:
        self._socket.close()
        self.server.terminate()
        self.server.wait(30)
        shutil.rmtree(self._folder)


@contextlib.contextmanager
def _watchman(store: str, state: str) -> Iterator[_Watchman]:
    watchman = _Watchman(store, state)
    try:
        yield watchman
    finally:
        watchman.close()


def told_watchman(store: str, state: str, calls: int) -> dict[str, float]:
    with _scratch(store, calls) as scratch, _watchman(store, state) as watchman:
        watchman.subscribe()
        return _latencies(scratch, watchman, calls)


def idle_watchman(store: str, state: str) -> dict[str, float]:
    with _watchman(store, state) as watchman:
        watchman.subscribe()
        return _idle(watchman.server.pid)


def start_watchman(store: str, state: str) -> dict[str, float]:
    with _watchman(store, state) as watchman:
        pid = watchman.server.pid
        started, before = time.perf_counter(), _work(pid)["CPU"]
        memory = _memory(pid)["VmRSS"]
        watchman._ask("watch", store)
        watchman._ask("query", store, {"expression": "false", "fields": ["name"]})
        wall = time.perf_counter() - started
        after = _memory(pid)
        return {
            "": _work(pid)["CPU"] - before,
            "wall": wall,
            "memory": after["VmRSS"] - memory,
            "peak": after["VmHWM"],
        }


# -- what a process does -----------------------------------------------------------------------------------


def _idle(pid: int) -> dict[str, float]:
    before = _work(pid)
    time.sleep(IDLE_SECONDS)
    after = _work(pid)
    # This one sleep is one of them, where it is the measured process that sleeps.
    own = 1 if pid == os.getpid() else 0
    return {"": after["CPU"] - before["CPU"], "wake-ups": after["wake-ups"] - before["wake-ups"] - own}


def _work(pid: int) -> dict[str, float]:
    """CPU seconds of a process and how often its threads have gone to sleep."""
    switches = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                switches += int(line.split()[1])
    clock = ~pid << 3 | 2  # the CPU clock of another process, as clock_getcpuclockid(3) numbers it
    return {"CPU": time.clock_gettime(clock), "wake-ups": switches}


def _memory(pid: int | str = "self") -> dict[str, float]:
    """Resident memory of a process, now and at most, in MB of 10^6 bytes."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "VmHWM"):
            found[name] = int(value.split()[0]) * 1024 / 1e6
    return found
