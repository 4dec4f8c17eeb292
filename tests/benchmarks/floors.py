"""What the same work costs when it is written plainly, with nothing around it.

Each function runs in a process of its own and returns its figures; see `measure`.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.measure import Meter, command, microseconds


def _walk(root: str) -> Iterator[tuple[bool, str]]:
    """Every folder (True) and file (False) below `root`, by absolute path."""
    pending = [root]
    while pending:
        folder = pending.pop()
        yield True, folder
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    yield False, entry.path


def read_and_xxh3(store: str) -> dict[str, float]:
    """Walk, and read and hash every file once."""
    import xxhash

    files = 0
    with Meter() as meter:
        for is_folder, path in _walk(store):
            if is_folder:
                continue
            handle = os.open(path, os.O_RDONLY)
            size = os.fstat(handle).st_size
            xxhash.xxh3_128_digest(os.read(handle, size + 1))
            os.close(handle)
            files += 1
    return meter.figures(files)


def md5sum(store: str) -> dict[str, float]:
    """`md5sum` of every file."""
    return command(["sh", "-c", 'find "$1" -type f -print0 | xargs -0 md5sum', "sh", store])


def stat_known(store: str) -> dict[str, float]:
    """Compare the times and sizes of known files and the times of known folders."""
    known = [(path, os.lstat(path)) for _, path in _walk(store)]
    signatures = [(path, (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)) for path, s in known]
    del known
    lstat = os.lstat
    changed = 0
    with Meter() as meter:
        for path, signature in signatures:
            s = lstat(path)
            if (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) != signature:
                changed += 1
    if changed:
        raise RuntimeError(f"{changed} files or folders changed while nothing should")
    return meter.figures(len(signatures))


def walk_and_heads(store: str) -> dict[str, float]:
    """Walk, and read the first 8 KB of every `SKILL.md`."""
    skills = 0
    with Meter() as meter:
        for is_folder, path in _walk(store):
            if not is_folder and path.endswith("/SKILL.md"):
                handle = os.open(path, os.O_RDONLY)
                os.read(handle, 8192)
                os.close(handle)
                skills += 1
    return meter.figures(skills)


def pread_huge(path: str, characters: int, calls: int) -> dict[str, float]:
    """Open, read the bytes around 1,000 characters at the start, middle and end of a file, decode, close."""
    size = os.path.getsize(path)

    def read(offset: int) -> str:
        handle = os.open(path, os.O_RDONLY)
        os.fstat(handle)
        data = os.pread(handle, 4 * 1000, offset)
        os.close(handle)
        return data.decode("utf-8", "ignore")[:1000]

    rng = random.Random(1)
    spread = size // 100
    places = {"start": 0, "middle": size // 2, "end": size - spread - 8000}
    return {
        name: microseconds(read, [(place + rng.randrange(spread),) for _ in range(calls)])
        for name, place in places.items()
    }


def read_pages(paths: list[str], calls: int) -> dict[str, float]:
    """Open, read, decode and close a file of 4 KB."""

    def read(path: str) -> str:
        handle = os.open(path, os.O_RDONLY)
        data = os.read(handle, os.fstat(handle).st_size + 1)
        os.close(handle)
        return data.decode()

    return {"": microseconds(read, [(paths[i % len(paths)],) for i in range(calls)])}


def prepare_rows(store: str, database: str) -> dict[str, float]:
    """Fill the table that `look_up_rows` and `tree_rows` ask; not timed."""
    import hashlib
    import uuid

    unfinished = database + ".new"
    for path in Path(unfinished).parent.glob(Path(unfinished).name + "*"):
        path.unlink()
    connection = sqlite3.connect(unfinished)
    connection.executescript(
        "PRAGMA journal_mode = WAL;"
        "CREATE TABLE entry (id INTEGER PRIMARY KEY, uuid BLOB, path TEXT, hash BLOB, kind INTEGER,"
        " size INTEGER, mtime INTEGER, skill INTEGER) STRICT;"
    )
    count = 0
    with connection:
        for is_folder, path in _walk(store):
            below = path[len(store) + 1 :]
            identity = uuid.UUID(bytes=hashlib.sha1(below.encode()).digest()[:16]).bytes
            status = os.lstat(path)
            row = (int.from_bytes(identity[:7]) >> 3, identity, below, hashlib.md5(below.encode()).digest())
            connection.execute(
                "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, int(is_folder), status.st_size, status.st_mtime_ns, count),
            )
            count += 1
        for column in ("uuid", "path", "hash"):
            connection.execute(f"CREATE INDEX entry_{column} ON entry ({column})")
    connection.close()
    os.replace(unfinished, database)
    return {"": count}


def look_up_rows(database: str, calls: int) -> dict[str, float]:
    """One row by its number, uuid, path and hash from a kept connection."""
    connection = sqlite3.connect(database)
    known = connection.execute(
        "SELECT id, uuid, path, hash FROM entry ORDER BY hash LIMIT ?", (calls,)
    ).fetchall()
    figures = {}
    for place, column in enumerate(("id", "uuid", "path", "hash")):
        query = f"SELECT id, uuid, path, hash, kind, size, mtime, skill FROM entry WHERE {column} = ?"
        figures[column] = microseconds(
            lambda key, query=query: connection.execute(query, (key,)).fetchone(),
            [(row[place],) for row in known],
        )
    return figures


def tree_rows(database: str, skills: list[str], calls: int) -> dict[str, float]:
    """The rows below one skill folder of twelve files, sorted."""
    connection = sqlite3.connect(database)
    query = "SELECT id, uuid, path, kind, size FROM entry WHERE path > ? AND path < ? ORDER BY path"

    def tree(skill: str) -> list[object]:
        return connection.execute(query, (skill + "/", skill + "0")).fetchall()

    return {"": microseconds(tree, [(skills[i % len(skills)],) for i in range(calls)])}


def bare_interpreter() -> dict[str, float]:
    """Start Python and end it."""
    return command([sys.executable, "-c", "pass"])
