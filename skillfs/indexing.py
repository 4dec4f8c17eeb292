"""Computes for every file what is otherwise computed at its first reading.

Everything about a file comes from one opening of it: MD5, SHA-256 and the facts about its text, and the
XXH3-128 that must be the one the index has. That ties the facts to the bytes even where a file was indexed so
soon after its last modification that its signature vouches for nothing.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from skillfs.access import Access
from skillfs.core.digest import md5, sha256, xxh3, xxh3_of_blocks
from skillfs.core.model import Place
from skillfs.core.textfacts import TextScanner, scan_text
from skillfs.errors import StoreUnavailableError
from skillfs.index.rows import ROOT, RowKind, decode_place
from skillfs.listing import counts_of
from skillfs.stores.base import FileState, Handle, KeyRefusedError, StaleFile, Store
from skillfs.stores.local import LocalStore
from skillfs.stores.workers import Workers
from skillfs.sync.engine import Engine

__all__ = ["index_all", "serve"]

MOST_ROUNDS = 3
"""How often files that changed meanwhile are looked at again."""

BATCH_FILES = 500
BATCH_BYTES = 16 << 20
"""What is measured in one go, and handed to a second process."""

COMMIT_FILES = 10_000
"""How much is kept in memory and committed together. Hashes come in no order: every commit writes nearly all
pages of their indexes: with one for each batch a quarter of the time went there."""

HELPED_BYTES = 256 << 20
"""From here on a second process helps: it takes a tenth of a second to start, and saves a third of the time.
Threads save a tenth."""

SMALL_FILE = 1 << 20

_LACKING = (
    "FROM entry e LEFT JOIN text t ON t.key=e.key LEFT JOIN sha256 s ON s.key=e.key "
    "WHERE e.kind=2 AND e.visible=1 AND (t.md5 IS NULL OR s.digest IS NULL)"
)
_COUNT = f"SELECT count(*), count(*) - count(e.content), coalesce(sum(e.size), 0) {_LACKING}"
_MISSING = (
    "SELECT e.key, e.parent, e.name, e.signature, e.size, e.content, e.target "
    f"{_LACKING} AND e.key > ? ORDER BY e.key LIMIT 5000"
)
_SAME = "WHERE EXISTS (SELECT 1 FROM entry WHERE key=? AND signature=? AND content=?)"
_KEEP_CONTENT = "UPDATE entry SET content=? WHERE key=? AND signature=? AND content IS NULL"
_KEEP_TEXT = f"INSERT OR REPLACE INTO text SELECT ?, ?, ?, ?, ?, ?, ?, ? {_SAME}"
_KEEP_SHA256 = f"INSERT OR REPLACE INTO sha256 SELECT ?, ? {_SAME}"


class _Task(NamedTuple):
    key: int
    place: Place
    signature: bytes
    size: int
    content: bytes | None


class _Found(NamedTuple):
    """What was computed of a file, with its place in the batch; text facts as the columns of their row."""

    number: int
    content: bytes
    md5: bytes
    sha256: bytes
    text: tuple[str | None, int, int, str | None, int | None, bytes | None]


class _Missing(NamedTuple):
    """How many files lack something, how many of these cannot be read, and the bytes of all."""

    files: int
    unreadable: int
    size: int


def index_all(engine: Engine, access: Access, on_progress: Callable[[int, int], None] | None) -> int:
    """Text facts, MD5 and SHA-256 of every visible file that lacks one of them.

    Args:
        engine: Store and index, in step with one another.
        access: What the caller may see: nothing else is read, counted or reported.
        on_progress: Called with the number of files done and the number there are, after every batch.

    Returns:
        How many files have them now.
    """
    total = engine.query(lambda: counts_of(engine.catalog, access))["files"]
    for turn in range(MOST_ROUNDS):
        if turn:
            engine.sync()
        missing = _count(engine, access)
        done = total - missing.files
        if on_progress is not None:
            on_progress(done, total)
        if missing.files == missing.unreadable:
            break
        store, helper = engine.store, None
        if missing.size >= HELPED_BYTES and isinstance(store, LocalStore):
            helper = _Helper(store)
        with helper or contextlib.nullcontext():
            batches = _batches(task for task in _missing(engine, access) if task.content or store.remote)
            rows = _Rows()
            for batch, found in _measured(store, batches, helper):
                rows.add(batch, found)
                if len(rows.texts) >= COMMIT_FILES:
                    done += rows.keep(engine)
                if on_progress is not None:
                    on_progress(done + len(rows.texts), total)
            done += rows.keep(engine)
        if done + missing.unreadable >= total:
            break
    return done


def _count(engine: Engine, access: Access) -> _Missing:
    remote = engine.store.remote
    if not access.restricted:
        (row,) = engine.query(lambda: engine.catalog.read(_COUNT))
        return _Missing(*row) if not remote else _Missing(*row)._replace(unreadable=0)
    files = unreadable = size = 0
    for task in _missing(engine, access):
        files += 1
        unreadable += not task.content and not remote
        size += max(0, task.size)
    return _Missing(files, unreadable, size)


def _missing(engine: Engine, access: Access) -> Iterator[_Task]:
    """Files that lack something; those that could not be read, or have not been so far, have no content."""
    folders = _Folders(engine)
    key = 0
    while rows := engine.query(lambda after=key: engine.catalog.read(_MISSING, (after,))):  # type: ignore[misc]
        for key, parent, name, signature, size, content, target in rows:
            above = folders.get(parent)
            if above is None or above.skill is None or (access.restricted and not access.allows(above.skill)):
                continue
            place = decode_place(target) if target is not None else above.place.child(name)
            yield _Task(key, place, signature, -1 if size is None else size, content)


class _Folder(NamedTuple):
    path: str
    place: Place
    skill: str | None


class _Folders:
    """Path, place and enclosing skill of folders, each worked out once."""

    def __init__(self, engine: Engine) -> None:
        self._rows = {
            key: (parent, name, kind, target)
            for key, parent, name, kind, _, target in engine.query(lambda: list(engine.catalog.folders()))
        }
        self._known: dict[int, _Folder] = {0: _Folder("", Place(0, ""), None)}

    def get(self, key: int) -> _Folder | None:
        way = []
        while key not in self._known:
            if key not in self._rows:
                return None
            way.append(key)
            key = self._rows[key][0]
        for at in reversed(way):
            parent, name, kind, target = self._rows[at]
            above = self._known[parent]
            path, place = above.path, above.place
            if at != ROOT:
                path = f"{path}/{name}" if path else name
                place = place.child(name)
            if target is not None:
                place = decode_place(target)
            self._known[at] = _Folder(path, place, path if kind == RowKind.SKILL else above.skill)
            key = at
        return self._known[key]


def _batches(tasks: Iterable[_Task]) -> Iterator[list[_Task]]:
    batch: list[_Task] = []
    size = 0
    for task in tasks:
        batch.append(task)
        size += max(0, task.size)
        if len(batch) >= BATCH_FILES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _measured(
    store: Store, batches: Iterator[list[_Task]], helper: _Helper | None
) -> Iterator[tuple[list[_Task], list[_Found]]]:
    """Batches with what was computed of them, in no order."""
    turn = threading.Lock()

    def following() -> list[_Task] | None:
        with turn:
            return next(batches, None)

    helped: queue.SimpleQueue[tuple[list[_Task], list[_Found]] | BaseException | None] = queue.SimpleQueue()
    unanswered: list[list[_Task]] = []

    def be_helped(helper: _Helper) -> None:
        try:
            while (batch := following()) is not None:
                found = helper.measure(batch)
                if found is None:
                    unanswered.append(batch)
                    break
                helped.put((batch, found))
            helped.put(None)
        except BaseException as error:
            helped.put(error)

    waiting = helper is not None
    if helper is not None:
        threading.Thread(target=be_helped, args=(helper,), daemon=True).start()
    while (batch := following()) is not None or waiting:
        if batch is not None:
            yield batch, _measure_all(store, batch)
        while waiting and (batch is None or not helped.empty()):
            found = helped.get()
            if isinstance(found, BaseException):
                raise found
            if found is None:
                waiting = False
            else:
                yield found
    for batch in unanswered:
        yield batch, _measure_all(store, batch)


def _measure_all(store: Store, batch: list[_Task]) -> list[_Found]:
    if store.remote:
        with Workers() as workers:
            found = workers.map(lambda item: _measure_one(store, *item), list(enumerate(batch)))
            return [one for one in found if one is not None]
    return [
        one for number, task in enumerate(batch) if (one := _measure_one(store, number, task)) is not None
    ]


def _measure_one(store: Store, number: int, task: _Task) -> _Found | None:
    known = FileState(task.signature, task.size, 0) if store.remote else None
    try:
        with store.open(task.place, known) as handle:
            return _measure(number, task, handle)
    except KeyRefusedError:
        return None
    except StoreUnavailableError:
        raise
    except (OSError, StaleFile):
        return None


def _measure(number: int, task: _Task, handle: Handle) -> _Found | None:
    """Everything about one file, from one handle; None when it is not, or no longer, what the index has."""
    signature, size = handle.state.signature, handle.state.size
    if task.signature not in (signature, signature + b"?"):
        return None
    if size <= SMALL_FILE:
        data = handle.read(0, size) if size >= 0 else b"".join(handle.blocks())
        content, md5_, sha256_, text = xxh3(data), md5(data), sha256(data), scan_text(data)
    else:
        md5_, sha256_, scanner = md5(), sha256(), TextScanner()

        def blocks() -> Iterator[bytes]:
            for block in handle.blocks():
                md5_.update(block)
                sha256_.update(block)
                scanner.feed(block)
                yield block

        content, text = xxh3_of_blocks(blocks()), scanner.finish()
    if (task.content is not None and content != task.content) or not handle.unchanged():
        return None
    grid = None if text.grid is None else text.grid.pack()
    columns = (text.encoding, text.characters, text.lines, text.reason, text.reason_at, grid)
    return _Found(number, content, md5_.digest(), sha256_.digest(), columns)


class _Rows:
    """What was computed and is not committed yet."""

    def __init__(self) -> None:
        self.texts: list[tuple[Any, ...]] = []
        self._digests: list[tuple[Any, ...]] = []
        self._contents: list[tuple[Any, ...]] = []

    def add(self, batch: list[_Task], found: list[_Found]) -> None:
        """Take the results of a batch."""
        for number, content, md5_, sha256_, columns in found:
            key, _, signature, _, known = batch[number]
            if known is None:
                self._contents.append((content, key, signature))
            content = content if known is None else known
            self.texts.append((key, md5_, *columns, key, signature, content))
            self._digests.append((key, sha256_, key, signature, content))

    def keep(self, engine: Engine) -> int:
        """Commit, of files that the index still has with these bytes; returns of how many."""

        def keep() -> int:
            with engine.database.write() as connection:
                connection.executemany(_KEEP_CONTENT, self._contents)
                connection.executemany(_KEEP_TEXT, self.texts)
                return connection.executemany(_KEEP_SHA256, self._digests).rowcount if self._digests else 0

        kept = engine.query(keep)
        for rows in (self.texts, self._digests, self._contents):
            rows.clear()
        return kept


class _Helper:
    """A second process that measures batches.

    It is started by hand: `multiprocessing` would run the caller's main module once more in it.

    Args:
        store: The store, which the process opens for itself.
    """

    def __init__(self, store: LocalStore) -> None:
        ours, theirs = socket.socketpair()
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from skillfs.indexing import serve; serve({theirs.fileno()})"
        )
        with theirs:
            self._process: subprocess.Popen[bytes] | None = None
            # Without a program to run, as in an embedded interpreter, there is no help.
            with contextlib.suppress(OSError, ValueError, TypeError):
                self._process = subprocess.Popen(
                    [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                )  # fmt: skip
        self._pipe = Connection(ours.detach())
        self._opened = False
        self._store = (store.root, store.followed)

    def measure(self, batch: list[_Task]) -> list[_Found] | None:
        """What it computes of a batch; None when it is not there any more."""
        try:
            if not self._opened:
                self._pipe.send(self._store)
                self._opened = True
            self._pipe.send([(*task.place, *task[2:]) for task in batch])
            # Named tuples cost pickle twice what plain ones do.
            found = [_Found(*one) for one in self._pipe.recv()]
        except (EOFError, OSError):
            return None
        return found

    def __enter__(self) -> _Helper:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def serve(descriptor: int) -> None:
    """Measure batches that come through a socket until it is closed; the main function of the helper."""
    pipe = Connection(descriptor)
    with contextlib.suppress(EOFError, OSError):
        store = LocalStore(*pipe.recv())
        while True:
            batch = [_Task(0, Place(root, path), *rest) for root, path, *rest in pipe.recv()]
            pipe.send([tuple(one) for one in _measure_all(store, batch)])
    os._exit(0)
