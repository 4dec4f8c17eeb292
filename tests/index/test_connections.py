"""How many connections a process keeps: enough for what it does, and never more files than it may open."""

from __future__ import annotations

import os
import resource
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillfs.index import connections
from skillfs.index.connections import Connection, inside_sqlite
from skillfs.index.database import Database


@pytest.fixture
def few_files() -> Iterator[int]:
    """A process that may open few files more than it has open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(os.listdir("/proc/self/fd")) + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_many_indexes_in_many_threads(tmp_path: Path, few_files: int) -> None:
    databases = [Database(tmp_path / f"{n}.sqlite") for n in range(60)]
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(2):
                for database in databases:
                    assert database.read("SELECT 1") == [(1,)]
        except BaseException as error:
            failures.append(error)

    work()
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert not any(database.in_memory for database in databases)


def test_a_thread_keeps_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 24)
    databases = [Database(tmp_path / f"{n}.sqlite") for n in range(9)]
    open_now = [d for d in databases if d._kept.held is not None and d._kept.held.generation >= 0]
    assert open_now == databases[-3:]
    first = databases[-1].connection()
    assert databases[-1].connection() is first
    assert databases[0].connection() is databases[0].connection()


def test_what_is_in_use_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 8)
    used = Database(tmp_path / "used.sqlite")
    with used.snapshot():
        before = used.connection()
        others = [Database(tmp_path / f"{n}.sqlite") for n in range(3)]
        assert used.connection() is before
        assert used.read("SELECT 1") == [(1,)]
    with used.write() as connection:
        assert [other.read("SELECT 1") for other in others] == [[(1,)]] * 3
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_connection_that_is_collected_while_its_thread_enters_sqlite() -> None:
    def enter() -> None:
        # Between the two, an allocation may run the collector, and that what a forgotten connection does.
        with inside_sqlite._door, inside_sqlite._lock:
            Connection(sqlite3.connect(":memory:"), 0).close()

    entering = threading.Thread(target=enter, daemon=True)
    entering.start()
    entering.join(10)
    assert not entering.is_alive()
