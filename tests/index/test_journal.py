from __future__ import annotations

import time
from pathlib import Path

import pytest

from skillfs.index import journal as journal_module
from skillfs.index.database import Database
from skillfs.index.journal import ChangeRow, Journal


@pytest.fixture(params=["memory", "file"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return Database(None if request.param == "memory" else tmp_path / "index.sqlite")


@pytest.fixture
def journal(database: Database) -> Journal:
    with database.write() as connection:
        Journal.begin(connection)
    return Journal(database)


def append(database: Database, *paths: str) -> int:
    with database.write() as connection:
        return Journal.append(
            connection, [ChangeRow("added", b"u" * 16, path, content=b"c" * 16) for path in paths]
        )


def test_before_the_first_scan(database: Database) -> None:
    assert Journal(database).revision() == 0
    assert Journal(database).since(0) == (0, False, [])
    assert Journal(database).since(7) == (0, True, [])


def test_since(database: Database, journal: Journal) -> None:
    start = journal.revision()
    assert journal.since(start) == (start, False, [])
    assert append(database, "a", "b") == start + 1
    assert append(database, "c") == start + 2
    for behind, paths in enumerate(["", "c", "abc"]):
        now, reset, items = journal.since(start + 2 - behind)
        assert (now, reset, [item.path for item in items]) == (start + 2, False, list(paths))
    assert journal.since(start)[2][0] == ChangeRow("added", b"u" * 16, "a", content=b"c" * 16)


@pytest.mark.parametrize(
    "ask", [lambda now: 0, lambda now: now - 1, lambda now: now + 1, lambda now: -1, lambda now: 2**70]
)
def test_reset_for_what_was_never_said(journal: Journal, ask: object) -> None:
    now = journal.revision()
    assert journal.since(ask(now)) == (now, True, [])  # type: ignore[operator]


def test_reset_when_older_than_what_is_kept(
    database: Database, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "KEPT_CHANGES", 10)
    start = journal.revision()
    for n in range(30):
        append(database, f"{n}", f"{n}b")
        complete = [r for r in range(start, start + n + 2) if not journal.since(r)[1]]
        for revision in complete:
            items = journal.since(revision)[2]
            assert [i.path for i in items] == [
                f"{k}{b}" for k in range(revision - start, n + 1) for b in ("", "b")
            ]
        assert len(complete) == min(n + 2, 6)
    (kept,) = database.read("SELECT count(*) FROM change")[0]
    assert kept == 10


def test_one_revision_larger_than_what_is_kept(
    database: Database, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "KEPT_CHANGES", 10)
    start = journal.revision()
    now = append(database, *map(str, range(25)))
    assert journal.since(start) == (now, True, [])
    assert journal.since(now) == (now, False, [])
    again = append(database, "x")
    assert [i.path for i in journal.since(now)[2]] == ["x"]
    assert again == now + 1


def test_rebuilt_index_never_counts_through_old_numbers(database: Database, journal: Journal) -> None:
    held = [journal.revision()] + [append(database, "x") for _ in range(20)]
    with database.write() as connection:
        Journal.begin(connection)
    assert all(journal.since(revision)[1] for revision in held)
    time.sleep(0.025)  # 21 numbers have been given out, one a millisecond at most
    with database.write() as connection:
        connection.execute("DELETE FROM facts.meta")  # as if the file had been lost
        Journal.begin(connection)
    for _ in range(20):
        append(database, "y")
    assert all(journal.since(revision)[1] for revision in held)


def test_revision_is_an_exact_number_in_json(journal: Journal) -> None:
    assert journal.revision() < 2**53


def test_a_new_log_repeats_neither_revision_nor_stamp(database: Database, journal: Journal) -> None:
    ahead = journal.revision() + 10**9
    for name in ("stamp", "revision"):
        with database.write() as connection:
            connection.execute("UPDATE facts.meta SET value=? WHERE name=?", (ahead, name))
        with database.write() as connection:
            assert Journal.begin(connection) > ahead
        ((stamp,),) = database.read("SELECT value FROM facts.meta WHERE name='stamp'")
        assert stamp > ahead
        ahead += 10**9


def test_a_revision_without_items(database: Database, journal: Journal) -> None:
    start = journal.revision()
    assert append(database) == start + 1
    assert journal.since(start) == (start + 1, False, [])


def test_steps(database: Database, journal: Journal) -> None:
    start = journal.revision()
    assert journal.steps(start, 10) == (start, False, [])
    append(database, "a", "b")
    append(database)
    append(database, "c")
    for most, expected in ((1, ["ab"]), (2, ["ab", ""]), (3, ["ab", "", "c"]), (10, ["ab", "", "c"])):
        now, reset, steps = journal.steps(start, most)
        assert (now, reset) == (start + 3, False)
        assert ["".join(row.path for row in step) for step in steps] == expected
    assert journal.steps(start + 2, 10)[2] == [[ChangeRow("added", b"u" * 16, "c", content=b"c" * 16)]]


@pytest.mark.parametrize(
    "ask", [lambda now: 0, lambda now: now - 1, lambda now: now + 1, lambda now: -1, lambda now: 2**70]
)
def test_steps_from_what_was_never_said(journal: Journal, ask: object) -> None:
    now = journal.revision()
    assert journal.steps(ask(now), 10) == (now, True, [])  # type: ignore[operator]


def test_steps_join_to_what_changed(
    database: Database, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "KEPT_CHANGES", 20)
    start = journal.revision()
    for n in range(25):
        append(database, *(f"{n}.{k}" for k in range(n % 4)))
    now = journal.revision()
    for revision in range(start, now + 1):
        _, reset, items = journal.since(revision)
        at, found = revision, []
        while at < now:
            told, is_new, steps = journal.steps(at, 3)
            assert (told, is_new) == (now, reset)
            if reset:
                break
            assert len(steps) == min(3, now - at)
            found += [row for step in steps for row in step]
            at += len(steps)
        assert found == items
    assert not journal.since(now - 5)[1]
    assert journal.since(start)[1]
