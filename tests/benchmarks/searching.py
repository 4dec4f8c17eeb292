"""What search costs, and what FTS5 costs by itself. Each function runs in a process of its own.

The floor is FTS5 with all detail, filled with the same texts in the order of the file system, and asked for
the ten best by its own rank: it knows neither who may see what, nor passages, nor words of Chinese.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.measure import Meter, microseconds

COMMON = ("the file value", "table of input", "when the user should", "数据", "größe", '"before each"')
_TABLE = "CREATE VIRTUAL TABLE t USING fts5 (text, content='', tokenize='unicode61 remove_diacritics 2')"


def _texts(store: str) -> Iterator[str]:
    for folder, _, names in os.walk(store):
        for name in names:
            data = Path(folder, name).read_bytes()
            if b"\0" not in data:
                try:
                    yield data.decode()
                except UnicodeDecodeError:
                    continue


def build_fts(store: str, state: str) -> dict[str, float]:
    """Read every text and put it into FTS5."""
    path = Path(state, "fts.sqlite")
    for left in path.parent.glob(f"{path.name}*"):
        left.unlink()
    with Meter() as meter:
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(_TABLE)
        connection.executemany("INSERT INTO t (text) VALUES (?)", ((text,) for text in _texts(store)))
        found = connection.execute("SELECT max(rowid) FROM t").fetchone()[0] or 0
        connection.commit()
        connection.close()
    return meter.figures(found) | {"size": path.stat().st_size / 1e6}


def _open(store: str, index: str) -> Any:
    from skillfs import SkillFileSystem

    return SkillFileSystem(store, index=index, skip_instance_cache=True, max_age=3600)


def build(store: str, index: str) -> dict[str, float]:
    """The first search of an open filesystem."""
    path = Path(f"{index}.search")
    for left in path.parent.glob(f"{path.name}*"):
        left.unlink()
    fs = _open(store, index)
    with Meter() as meter:
        found = fs.search("nothingofthekind")
    if not found.complete:
        raise RuntimeError("not everything was searched")
    return meter.figures(found.searched) | {"size": path.stat().st_size / 1e6}


def _rare(calls: int) -> list[str]:
    """Numbers at the end of skill names: each stands in a skill and the few files that speak of it."""
    return [f"{number:05d}" for number in random.Random(1).sample(range(1_000), calls)]


def rare_fts(store: str, state: str, calls: int) -> dict[str, float]:
    return _find_fts(store, state, _rare(calls))


def common_fts(store: str, state: str, calls: int) -> dict[str, float]:
    return _find_fts(store, state, [COMMON[n % len(COMMON)] for n in range(calls)])


def _find_fts(store: str, state: str, queries: list[str]) -> dict[str, float]:
    path = Path(state, "fts.sqlite")
    if not path.exists():
        build_fts(store, state)
    connection = sqlite3.connect(path)

    def find(query: str) -> None:
        connection.execute("SELECT rowid FROM t WHERE t MATCH ? ORDER BY rank LIMIT 10", (query,)).fetchall()

    return {"": microseconds(find, [(query,) for query in queries])}


def rare(store: str, index: str, calls: int) -> dict[str, float]:
    return _find(store, index, _rare(calls))


def common(store: str, index: str, calls: int) -> dict[str, float]:
    return _find(store, index, [COMMON[n % len(COMMON)] for n in range(calls)])


def _find(store: str, index: str, queries: list[str]) -> dict[str, float]:
    fs = _open(store, index)
    fs.search("nothingofthekind")
    base = [fs.skills()[0].path]
    return {
        "all": microseconds(fs.search, [(query,) for query in queries]),
        "one base": microseconds(lambda query: fs.search(query, base_paths=base), [(q,) for q in queries]),
    }
