"""The file of words: what it answers, and what becomes of it."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from skillfs.core.search import Query, Word, parse_query
from skillfs.core.words import index_terms
from skillfs.errors import StoreUnavailableError
from skillfs.index.search import SearchIndex
from skillfs.index.words import Document, FileRow, SearchFile, every, some


@pytest.fixture(params=["file", "memory"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> SearchIndex:
    return SearchIndex(tmp_path / "new" / "index.search" if request.param == "file" else None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.search"


def document(key: int, text: str, *, skill: str = "", about: str = "", name: str = "a.md") -> Document:
    terms = index_terms(text, "" if skill else name, skill, about)
    return Document(key, f"{skill}/{about}/{name}/{text}".encode(), terms, bool(skill), len(text))


def fill(index: SearchIndex, skills: dict[int, dict[int, Document]], revision: int = 1) -> None:
    def work(file: SearchFile) -> None:
        with file.writing():
            for skill, documents in skills.items():
                rows = [FileRow(key, d.main, d.digest) for key, d in documents.items()]
                file.put_skill(skill, b"%16d" % skill, rows)
            file.keep(d._replace(key=key) for documents in skills.values() for key, d in documents.items())
            file.set_revision(revision)

    index.run(work)


def uuids(skills: Iterable[int] | None) -> list[bytes] | None:
    return None if skills is None else [b"%16d" % skill for skill in skills]


def count(index: SearchIndex, query: str, skills: Iterable[int] | None = None) -> tuple[int, int]:
    words = parse_query(query).words

    def work(file: SearchFile) -> tuple[int, int]:
        file.only(uuids(skills))
        return file.count(every(words)), file.count(some(words))

    return index.run(work)


def best(index: SearchIndex, query: str, skills: Iterable[int] | None = None, most: int = 10) -> list[int]:
    parsed = parse_query(query)

    def work(file: SearchFile) -> list[int]:
        file.only(uuids(skills))
        return [
            key
            for _, key in file.best(parsed, dict.fromkeys(parsed.words, 1.0), some(parsed.words), (), most)
        ]

    return index.run(work)


TWO = {
    1: {
        10: document(0, "lock waits", skill="sql", about="Migrations."),
        11: document(0, "timeout 数据库"),
    },
    2: {20: document(0, "a lock timeout", skill="lock", about="Keys."), 21: document(0, "timeout 数据库")},
}


LOCK = parse_query("lock").words


# -- answers -----------------------------------------------------------------------------------------------


def test_words_are_counted_by_file(index: SearchIndex) -> None:
    fill(index, TWO)
    assert count(index, "lock") == (2, 2)
    assert count(index, "lock timeout") == (1, 4)
    assert count(index, "数据") == count(index, "数据库") == count(index, "库") == (2, 2)
    assert count(index, "据库 lock") == (0, 4)
    assert count(index, "migration") == (1, 1)
    assert count(index, "nothing") == (0, 0)


def test_only_some_skills_are_asked(index: SearchIndex) -> None:
    fill(index, TWO)
    assert count(index, "timeout", [1]) == (1, 1)
    assert count(index, "timeout", []) == (0, 0)
    assert count(index, "timeout", None) == (3, 3)
    assert index.run(lambda file: (file.only(uuids([2])), file.counts())[1]) == (2, 2)
    assert index.run(lambda file: file.counts()) == (4, 4)
    assert best(index, "lock timeout", [1]) == [10, 11]
    assert best(index, "lock timeout", [2]) == [20, 21]


def test_the_best_come_first_with_all_their_copies(index: SearchIndex) -> None:
    fill(index, TWO)
    assert best(index, "lock timeout") == [20, 10, 11, 21]
    assert best(index, "timeout", most=1) == [20]
    assert best(index, "数据库") == [11, 21]


def test_every_query_can_be_asked(index: SearchIndex) -> None:
    fill(index, TWO)
    for text in (
        'AND OR NOT NEAR(a, 2) * ^ : - + "', "'; DROP TABLE words; --", "{terms} : x", "a\0b", "字", "½",
        " ".join(f"w{n}" for n in range(300))[:1000], "rowid rank words terms", "数" * 999,
    ):  # fmt: skip
        count(index, text)
        best(index, text, [1])
    wide = parse_query("tim loc").widened({Word("tim", False), Word("loc", False)})
    assert wide == parse_query("tim loc")
    words = Query((Word("time", True),), ())
    assert index.run(lambda file: file.count(every(words.words))) == 3


def test_a_file_has_one_document_at_a_time(index: SearchIndex) -> None:
    fill(index, TWO)
    fill(index, {1: {10: document(0, "other words", skill="sql")}}, 2)
    assert index.run(SearchFile.revision) == 2
    assert count(index, "lock") == (1, 1)
    assert count(index, "other") == (1, 1)
    assert index.run(SearchFile.counts) == (3, 3)
    index.run(lambda file: [file.drop_skill(key) for key in file.skill_keys([b"%16d" % 2])])
    assert count(index, "lock") == (0, 0)
    assert best(index, "lock") == []


def test_what_is_dead_takes_no_place_among_the_best(index: SearchIndex) -> None:
    fill(index, TWO)
    assert best(index, "lock", most=1) == [20]
    index.run(lambda file: file.drop_skill(2))
    assert best(index, "lock", most=1) == [10]


def test_documents_that_are_known_need_not_be_read_again(index: SearchIndex) -> None:
    fill(index, TWO)
    index.run(SearchFile.forget_files)
    assert count(index, "lock") == (0, 0)
    rows = [FileRow(30, False, TWO[1][11].digest), FileRow(31, False, b"unknown"), FileRow(32, True, None)]
    index.run(lambda file: file.put_skill(3, b"3" * 16, rows))
    assert count(index, "timeout") == (1, 1)
    assert index.run(SearchFile.counts) == (3, 1)
    assert index.run(lambda file: file.missing((2, 0), 9)) == [(1, 32), (0, 31)]
    assert index.run(lambda file: file.missing((1, 32), 9)) == [(0, 31)]
    index.run(lambda file: file.keep([document(31, "lock")]))  # it has changed since it was read
    assert index.run(SearchFile.counts) == (3, 1)
    assert count(index, "lock") == (0, 0)
    index.run(lambda file: file.keep([Document(32, b"", None, True, 0), Document(31, b"", None, False, 0)]))
    assert index.run(SearchFile.counts) == (2, 1)
    index.run(SearchFile.try_again)
    assert index.run(SearchFile.counts) == (3, 1)


def test_the_dead_are_forgotten_when_they_are_a_third(index: SearchIndex) -> None:
    fill(index, {1: {n: document(0, f"word{n} all") for n in range(1, 301)}})
    assert not index.run(SearchFile.forget_dead)
    fill(index, {1: {n: document(0, f"word{n} all") for n in range(1, 202)}})
    assert count(index, "word250") == (0, 0)
    assert not index.run(SearchFile.forget_dead)
    fill(index, {1: {n: document(0, f"word{n} all") for n in range(1, 200)}})
    assert index.run(SearchFile.forget_dead)
    assert index.run(SearchFile.counts) == (199, 0)
    assert count(index, "all") == (0, 0)
    fill(index, {1: {n: document(0, f"word{n} all") for n in range(1, 200)}})
    assert count(index, "all") == (199, 199)
    assert best(index, "word7") == [7]


def test_what_was_not_committed_is_not_there(index: SearchIndex) -> None:
    fill(index, TWO)

    def broken(file: SearchFile) -> None:
        with file.writing():
            file.put_skill(1, b"%16d" % 1, [])
            file.keep([document(20, "more")])
            raise KeyError

    with pytest.raises(KeyError):
        index.run(broken)
    assert count(index, "lock") == (2, 2)
    assert count(index, "more") == (0, 0)


# -- the file ----------------------------------------------------------------------------------------------


def test_nothing_is_made_before_it_is_asked(path: Path) -> None:
    index = SearchIndex(path)
    assert not path.exists()
    assert index.run(SearchFile.revision) is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    fill(index, TWO)
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in path.parent.iterdir())


def test_another_that_opens_it_finds_what_was_kept(path: Path) -> None:
    fill(SearchIndex(path), TWO)
    assert count(SearchIndex(path), "lock") == (2, 2)


def damage_pages(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))


def make_foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()


def make_another_version(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()


ANOTHER = "another version"
DAMAGE: dict[str, Callable[[Path], object]] = {
    "no database": lambda path: path.write_bytes(b"not a database, but longer than a header " * 50),
    "empty": lambda path: path.write_bytes(b""),
    "cut short": lambda path: os.truncate(path, 5000),
    "pages": damage_pages,
    "foreign": make_foreign,
    ANOTHER: make_another_version,
    "removed": Path.unlink,
}


@pytest.mark.parametrize(
    ("kind", "is_open"),
    # Another version puts a file of its own there, and leaves this one alone.
    [(kind, is_open) for kind in DAMAGE for is_open in (False, True) if (kind, is_open) != (ANOTHER, True)],
)
def test_what_is_damaged_is_begun_anew(path: Path, kind: str, is_open: bool) -> None:
    index = SearchIndex(path)
    fill(index, TWO)
    # As after the end of the process that wrote it: all is in one file.
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    if not is_open:
        index = SearchIndex(path)
        for extra in ("-wal", "-shm"):
            path.with_name(path.name + extra).unlink(missing_ok=True)
    DAMAGE[kind](path)
    for _ in range(2):
        fill(index, TWO)
        assert count(index, "lock") == (2, 2)
    assert count(SearchIndex(path), "timeout") == (3, 3)
    assert index.path == path


def test_what_another_has_begun_anew_is_left_alone(path: Path) -> None:
    index, other = SearchIndex(path), SearchIndex(path)
    fill(index, TWO)
    turns: list[int] = []

    def work(file: SearchFile) -> tuple[int, int]:
        turns.append(1)
        if len(turns) == 1:
            path.unlink()
            fill(other, TWO)
            error = sqlite3.DatabaseError("as if")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
        return file.counts()

    assert index.run(work) == (4, 4)
    assert other.run(SearchFile.counts) == (4, 4)


def test_where_it_cannot_be_written_all_is_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    index = SearchIndex(tmp_path / "file" / "index.search")
    fill(index, TWO)
    assert count(index, "lock") == (2, 2)
    assert index.path is None


def test_another_that_writes_for_too_long_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillfs.index.search.BUSY_SECONDS", 0.05)
    index = SearchIndex(path)
    fill(index, TWO)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailableError, match="another process"):
        fill(index, TWO)
    assert count(index, "lock") == (2, 2)
    other.execute("ROLLBACK")
    other.close()
    fill(index, TWO, 3)


def test_threads_ask_and_write_at_the_same_time(index: SearchIndex) -> None:
    fill(index, TWO)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(10):
                key = 100 * number + turn
                fill(index, {key: {key: document(0, f"word{key}")}})
                assert count(index, f"word{key}") == (1, 1)
                assert count(index, "lock") == (2, 2)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures
    assert index.run(SearchFile.counts) == (44, 44)


def test_what_is_asked_within_a_moment_is_as_of_it(index: SearchIndex) -> None:
    fill(index, TWO)
    other = SearchIndex(index.path)
    skills = uuids([1])
    with index.moment():
        assert index.run(lambda file: (file.only(skills), file.count(every(LOCK)))[1]) == 1
        if index.path is not None:
            other.run(SearchFile.forget_files)
        assert index.run(lambda file: (file.only(skills), file.count(every(LOCK)))[1]) == 1
        assert index.run(lambda file: (file.only(None), file.count(every(LOCK)))[1]) == 2
        assert index.run(lambda file: (file.only(uuids([2])), file.count(every(LOCK)))[1]) == 1
    assert count(index, "lock") == ((0, 0) if index.path is not None else (2, 2))
    fill(index, TWO)
    assert index.run(lambda file: (file.only(skills), file.count(every(LOCK)))[1]) == 1


def test_a_thread_that_opens_it_takes_no_lock_away(path: Path) -> None:
    index = SearchIndex(path)
    fill(index, TWO)
    log = path.with_name(f"{path.name}-wal")
    inode = log.stat().st_ino
    thread = threading.Thread(target=count, args=(index, "lock"))
    thread.start()
    thread.join(20)
    # The last process that closes a file removes its log: this one is not the last.
    code = f"import sqlite3; c = sqlite3.connect({str(path)!r}); c.execute('SELECT * FROM meta'); c.close()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
    assert log.stat().st_ino == inode
    fill(index, {3: {30: document(0, "more")}})
    assert count(SearchIndex(path), "more") == (1, 1)


def in_child(work: Callable[[], bool]) -> bool:
    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return False


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_asks_for_itself(path: Path) -> None:
    index = SearchIndex(path)
    fill(index, TWO)
    with index.building(None) as is_turn:
        assert is_turn
        assert in_child(lambda: count(index, "lock") == (2, 2))

    def write() -> bool:
        fill(index, {3: {30: document(0, "from the child")}})
        return count(index, "child") == (1, 1)

    assert in_child(write)
    assert count(index, "child") == (1, 1)
    memory = SearchIndex(None)
    fill(memory, TWO)
    assert in_child(lambda: count(memory, "lock") == (0, 0) and memory.run(SearchFile.revision) is None)
    assert count(memory, "lock") == (2, 2)


def hold_turn(path: Path, has: object, go: object) -> None:
    with SearchIndex(path).building(None) as is_turn:
        assert is_turn
        has.set()  # type: ignore[attr-defined]
        go.wait(20)  # type: ignore[attr-defined]


def test_one_process_builds_at_a_time(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    has, go = context.Event(), context.Event()
    index = SearchIndex(path)
    index.run(SearchFile.revision)
    process = context.Process(target=hold_turn, args=(path, has, go))
    process.start()
    assert has.wait(20)
    with index.building(time.monotonic() + 0.05) as is_turn:
        assert not is_turn
    go.set()
    with index.building(None) as is_turn:
        assert is_turn
        late: list[bool] = []

        def ask() -> None:
            with index.building(time.monotonic() + 0.05) as is_turn:
                late.append(is_turn)

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(20)
        assert late == [False]
    process.join(20)
    assert process.exitcode == 0
