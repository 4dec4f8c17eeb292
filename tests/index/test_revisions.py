"""Numbers for what several indexes have come to: in a file, in memory, in many processes."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from skillfs.errors import StoreUnavailableError
from skillfs.index import revisions
from skillfs.index.revisions import Revisions, Vector
from tests.limits import no_files_left


@pytest.fixture(params=["file", "memory"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "folder" / "numbers.sqlite" if request.param == "file" else None


def test_a_number_for_every_vector_that_is_new(path: Path | None) -> None:
    before = int(time.time() * 1000)
    numbers = Revisions(path)
    first = numbers.number(lambda: (1, 2))
    assert before <= first <= int(time.time() * 1000)
    assert numbers.number(lambda: (1, 2)) == first
    assert numbers.number(lambda: (1, 3)) == first + 1
    assert numbers.number(lambda: (1, 2)) == first + 2  # an index that was begun anew may come to what was
    assert [numbers.vector(first + n) for n in (-1, 0, 1, 2, 3)] == [None, (1, 2), (1, 3), (1, 2), None]
    assert numbers.vector(10**30) is None
    assert numbers.vector(-1) is None


def test_only_the_newest_are_kept(path: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert revisions.KEPT_REVISIONS == 10_000
    monkeypatch.setattr(revisions, "KEPT_REVISIONS", 3)
    numbers = Revisions(path)
    given = [numbers.number(lambda n=n: (n,)) for n in range(5)]  # type: ignore[misc]
    assert [numbers.vector(number) for number in given] == [None, None, (2,), (3,), (4,)]
    assert numbers.number(lambda: (4,)) == given[-1]


def test_a_failure_to_read_leaves_nothing(path: Path | None) -> None:
    numbers = Revisions(path)
    first = numbers.number(lambda: (1,))
    with pytest.raises(ZeroDivisionError):
        numbers.number(lambda: (1 // 0,))
    assert numbers.number(lambda: (1,)) == first
    assert numbers.number(lambda: (2,)) == first + 1


def test_threads_get_numbers_one_after_the_other(path: Path | None) -> None:
    numbers = Revisions(path)
    state = [0]
    got: list[tuple[int, Vector]] = []

    def read() -> Vector:
        state[0] += 1
        return (state[0],)

    def work() -> None:
        for _ in range(20):
            number = numbers.number(read)
            vector = numbers.vector(number)
            assert vector is not None
            got.append((number, vector))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(got)) == 80
    assert [vector for _, vector in sorted(got)] == [(n,) for n in range(1, 81)]


def test_processes_count_on(tmp_path: Path) -> None:
    path = tmp_path / "numbers.sqlite"
    first = Revisions(path).number(lambda: (7, 8))
    code = (
        "import sys; from pathlib import Path; from skillfs.index.revisions import Revisions; "
        "r = Revisions(Path(sys.argv[1])); print(r.number(lambda: (7, 8)), r.number(lambda: (7, 9)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(first), str(first + 1)]
    assert Revisions(path).vector(first + 1) == (7, 9)


@pytest.mark.parametrize("content", [b"no database" * 500, b"SQLite format 3\0" + b"\xff" * 5000, b"x"])
def test_a_damaged_file_is_begun_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "numbers.sqlite"
    path.write_bytes(content)
    numbers = Revisions(path)
    number = numbers.number(lambda: (1,))
    assert Revisions(path).vector(number) == (1,)
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE revision")
        connection.execute("CREATE TABLE revision (something TEXT)")
    connection.close()
    assert numbers.number(lambda: (1,)) >= number


def test_where_nothing_can_be_written_numbers_are_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    numbers = Revisions(tmp_path / "file" / "numbers.sqlite")
    number = numbers.number(lambda: (1,))
    assert numbers.vector(number) == (1,)
    assert numbers.number(lambda: (2,)) == number + 1


def test_the_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    Revisions(tmp_path / "own" / "numbers.sqlite").number(lambda: (1,))
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700


def test_a_file_that_is_in_use_is_left_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for long, and what was given before stays known."""
    assert revisions.BUSY_SECONDS <= 10
    monkeypatch.setattr(revisions, "BUSY_SECONDS", 0.1)
    path = tmp_path / "numbers.sqlite"
    numbers = Revisions(path)
    first = numbers.number(lambda: (1,))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for call in (lambda: numbers.number(lambda: (2,)), lambda: numbers.vector(first)):
        with pytest.raises(StoreUnavailableError, match=r"another process .* try again"):
            call()
    other.execute("ROLLBACK")
    other.close()
    assert numbers.vector(first) == (1,)
    assert numbers.number(lambda: (2,)) == first + 1
    assert Revisions(path).vector(first + 1) == (2,)


def full_at(statement: str) -> Callable[[revisions._File, str], None]:
    """Makes the disk full for one statement: SQLite counts the pages it may have itself."""
    run = revisions._File.run

    def run_on_a_full_disk(self: revisions._File, sql: str, *parameters: object) -> list[tuple[object, ...]]:
        if sql.startswith(statement):
            run(self, "PRAGMA max_page_count=1")
            run(self, "CREATE TABLE more (something TEXT)")
        return run(self, sql, *parameters)

    return run_on_a_full_disk  # type: ignore[return-value]


@pytest.mark.parametrize("statement", ["INSERT", "DELETE", "COMMIT"])
def test_on_a_full_disk_numbers_go_on_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    path = tmp_path / "numbers.sqlite"
    first = Revisions(path).number(lambda: (1,))
    numbers = Revisions(path)
    asked = []
    with monkeypatch.context() as patched:
        patched.setattr(revisions._File, "run", full_at(statement))
        second = numbers.number(lambda: asked.append(None) or (2,))  # type: ignore[func-returns-value]
    assert asked == [None]
    assert second > first
    assert [numbers.vector(first), numbers.vector(second)] == [(1,), (2,)]
    assert numbers.number(lambda: (2,)) == second
    assert numbers.number(lambda: (3,)) == second + 1
    # Who holds one of these numbers elsewhere is told to read everything anew, not what another number means.
    elsewhere = Revisions(path)
    assert elsewhere.number(lambda: (4,)) == first + 1
    assert elsewhere.vector(second) is None


def test_too_many_open_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "numbers.sqlite"
    numbers = Revisions(path)
    first = numbers.number(lambda: (1,))
    with no_files_left(), pytest.raises(StoreUnavailableError, match="too many files are open"):
        numbers.number(lambda: (2,))
    assert numbers.vector(first) == (1,)
    assert numbers.number(lambda: (2,)) == first + 1
