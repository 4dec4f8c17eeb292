from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TypeAlias

import pytest

from skillfs.core.textfacts import scan_text
from skillfs.errors import InvalidArgumentError, StoreUnavailableError
from skillfs.index import database as database_module
from skillfs.index.database import Database, IndexWarning
from skillfs.index.schema import APPLICATION_ID
from skillfs.sync.engine import Engine
from tests.conftest import skill_md, write
from tests.limits import no_files_left
from tests.sync.harness import NAMESPACE, check, make_engine, rows, shown, uuids

Results: TypeAlias = "Queue[tuple[dict[str, bytes], int, list[str]]]"

HERE = Path(__file__).parent.parent.parent


def skills(count: int) -> dict[str, str]:
    files = {}
    for n in range(count):
        files |= {
            f"s{n}/SKILL.md": skill_md(f"s{n}"),
            f"s{n}/x/{n}.md": f"{n}\n" * 9,
            f"s{n}/x/y.md": f"y{n}\n",
        }
    return files


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return tmp_path / "data" / "index.sqlite"


@pytest.fixture
def opened(root: Path, index: Path) -> tuple[Engine, dict[str, bytes]]:
    """An engine with entries that are not where they were born, and the UUIDs it gave."""
    write(root, skills(40))
    engine = make_engine(root, index)
    engine.sync()
    (root / "s3").rename(root / "moved")
    engine.sync()
    write(root, {"s3/SKILL.md": "another\n"})
    engine.sync()
    return engine, uuids(engine)


def is_sound(path: Path) -> bool:
    with sqlite3.connect(path) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# -- damage ------------------------------------------------------------------------------------------------


def truncate(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def scribble(path: Path, offset: int, length: int = 4096) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(random.Random(offset).randbytes(min(length, max(0, path.stat().st_size - offset))))


DAMAGE: dict[str, Callable[[Path], None]] = {
    "empty": lambda p: truncate(p, 0),
    "one byte": lambda p: truncate(p, 1),
    "header": lambda p: truncate(p, 100),
    "one page": lambda p: truncate(p, 4096),
    "half a page": lambda p: truncate(p, p.stat().st_size // 2 + 1000),
    "half": lambda p: truncate(p, p.stat().st_size // 8192 * 4096),
    "text": lambda p: p.write_text("This is no index.\n" * 5000) and None,
    "zeros": lambda p: p.write_bytes(bytes(p.stat().st_size)) and None,
    "gone": lambda p: p.unlink(),
    **{f"page {n}": lambda p, n=n: scribble(p, n * 4096) for n in (0, 1, 2, 3, 5, 8, 13, 21, 30)},
    **{f"inside page {n}": lambda p, n=n: scribble(p, n * 4096 + 50, 2000) for n in (1, 2, 4, 9, 16)},
    "everything": lambda p: scribble(p, 0, 1 << 30),
}


def everything_works(engine: Engine, root: Path, before: dict[str, bytes]) -> None:
    """A caller who knows of no damage gets what is true."""
    engine.sync()
    assert engine.query(lambda: uuids(engine)) == before
    for n in range(4, 40):
        assert len(engine.query(lambda n=n: engine.catalog.skill_keys(f"s{n}"))) == 1  # type: ignore[misc]
    write(root, {"s1/new.md": "new\n"})
    engine.sync()
    engine.query(lambda: check(engine, root))
    (root / "s1/new.md").unlink()
    engine.sync()
    assert engine.query(lambda: uuids(engine)) == before


@pytest.mark.filterwarnings("ignore::skillfs.index.database.IndexWarning")
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("when", ["closed", "open", "open elsewhere"])
def test_damaged_facts(
    opened: tuple[Engine, dict[str, bytes]], root: Path, index: Path, damage: str, when: str
) -> None:
    engine, before = opened
    if when == "closed":
        engine.database.close()
    else:
        engine.database.read("PRAGMA facts.wal_checkpoint(TRUNCATE)")
    DAMAGE[damage](index)
    if when != "open":
        engine = make_engine(root, index)
    everything_works(engine, root, before)
    if when == "open elsewhere":
        everything_works(opened[0], root, before)
    engine.database.close()
    again = make_engine(root, index)
    everything_works(again, root, before)
    again.database.close()
    assert is_sound(index)


def test_damage_is_set_aside_and_said(
    opened: tuple[Engine, dict[str, bytes]], root: Path, index: Path
) -> None:
    engine, before = opened
    engine.database.close()
    index.write_text("no index\n" * 1000)
    with pytest.warns(
        IndexWarning, match=r"index\.sqlite was damaged .* kept as index\.sqlite\.damaged-"
    ) as caught:
        engine = make_engine(root, index)
    assert len(caught) == 1
    assert str(root.parent) not in str(caught[0].message)
    (aside,) = index.parent.glob("index.sqlite.damaged-*")
    assert aside.read_text() == "no index\n" * 1000
    engine.sync()
    assert uuids(engine) == before


@pytest.mark.filterwarnings("ignore::skillfs.index.database.IndexWarning")
@pytest.mark.parametrize(
    "damage", [d for d in DAMAGE if not d.startswith(("page", "inside")) or d == "page 0"]
)
def test_damaged_identities(
    opened: tuple[Engine, dict[str, bytes]], root: Path, index: Path, damage: str
) -> None:
    """What was recorded is lost with the record, and nothing else."""
    engine, _ = opened
    engine.database.close()
    DAMAGE[damage](index.with_name("index.sqlite.identity"))
    engine = make_engine(root, index)
    engine.sync()
    check(engine, root)
    write(root, {"s5/new.md": "new\n"})
    (root / "s6").rename(root / "six")
    engine.sync()
    check(engine, root)


@pytest.mark.filterwarnings("ignore::skillfs.index.database.IndexWarning")
@pytest.mark.parametrize("which", ["index.sqlite", "index.sqlite.identity"])
def test_foreign_file_is_not_touched(root: Path, index: Path, which: str) -> None:
    index.parent.mkdir()
    foreign = index.with_name(which)
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE entry (precious TEXT)")
        connection.execute("INSERT INTO entry VALUES ('data')")
    connection.close()
    write(root, skills(2))
    engine = make_engine(root, index)
    engine.sync()
    check(engine, root)
    (aside,) = index.parent.glob("*.damaged-*")
    with sqlite3.connect(aside) as connection:
        assert connection.execute("SELECT * FROM entry").fetchall() == [("data",)]
    connection.close()


@pytest.mark.parametrize("version", [0, 999])
def test_facts_of_another_version_are_built_again(
    opened: tuple[Engine, dict[str, bytes]], root: Path, index: Path, version: int
) -> None:
    engine, before = opened
    engine.database.close()
    with sqlite3.connect(index) as connection:
        connection.execute(f"PRAGMA user_version={version}")
    connection.close()
    engine = make_engine(root, index)  # a new version of skillfs is nothing to be warned of
    engine.sync()
    assert uuids(engine) == before
    assert not list(index.parent.glob("*.damaged-*"))


# -- where it cannot be written ----------------------------------------------------------------------------


def test_folder_as_index(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="folder"):
        Database(tmp_path)


def test_file_as_parent(root: Path, tmp_path: Path) -> None:
    write(tmp_path, {"file": "x"})
    write(root, skills(2))
    with pytest.warns(IndexWarning, match="in memory") as caught:
        engine = make_engine(root, tmp_path / "file" / "index.sqlite")
    assert len(caught) == 1
    assert str(tmp_path) not in str(caught[0].message)
    engine.sync()
    check(engine, root)
    assert engine.database.in_memory


UNWRITABLE = """
import os, sys, warnings
from pathlib import Path
from typing import TypeAlias
from tests.sync.harness import *
from skillfs.index.database import IndexWarning
import skillfs.core.plainyaml
os.setgroups([]); os.setgid(65534); os.setuid(65534)
root, index = Path(sys.argv[1]), Path(sys.argv[2])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    engine = make_engine(root, index)
    engine.sync()
assert [w.category for w in caught] == [IndexWarning], caught
assert engine.database.in_memory
check(engine, root)
"""


@pytest.mark.parametrize("state", ["no folder", "no file", "closed", "open", "no access"])
def test_read_only_folder(shared_folder: Path, state: str) -> None:
    root, index = shared_folder / "store", shared_folder / "data" / "index.sqlite"
    write(root, skills(2))
    engine = None
    if state != "no folder":
        index.parent.mkdir()
    if state in ("closed", "open", "no access"):
        engine = make_engine(root, index)
        engine.sync()
        for file in index.parent.iterdir():
            file.chmod(0o644)
        if state == "closed":
            engine.database.close()
    if index.parent.exists():
        index.parent.chmod(0o700 if state == "no access" else 0o755)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", UNWRITABLE, root, index],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_disk_full(root: Path, index: Path) -> None:
    write(root, skills(30))
    engine = make_engine(root, index)
    engine.database.connection().execute("PRAGMA facts.max_page_count=20")
    with pytest.warns(IndexWarning, match="in memory"):
        engine.sync()
    check(engine, root)


def test_what_may_pass_is_no_reason_to_leave_the_disk(root: Path, index: Path) -> None:
    """A thread that cannot open its connection, for too many files are open, fails; the index stays."""
    write(root, skills(2))
    engine = make_engine(root, index)
    engine.sync()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            engine.query(lambda: engine.catalog.by_path(("s0",)))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert failures == []
    with no_files_left():
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    assert [type(error) for error in failures] == [StoreUnavailableError]
    assert "too many files are open" in str(failures[0])
    assert not engine.database.in_memory
    engine.sync()
    check(engine, root)


@pytest.mark.parametrize("spare", range(6))
def test_too_many_open_files_are_no_reason_to_begin_in_memory(index: Path, spare: int) -> None:
    Database(index).close()
    with no_files_left(spare), pytest.raises(StoreUnavailableError, match="too many files are open"):
        Database(index)
    assert not [file.name for file in index.parent.iterdir() if "damaged" in file.name]
    with no_files_left(8):
        assert not Database(index).in_memory


def test_an_index_in_use_is_no_reason_to_begin_in_memory(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "BUSY_SECONDS", 0.1)
    index.parent.mkdir(mode=0o700)
    other = sqlite3.connect(index, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreUnavailableError, match="another process has been writing the index"):
        Database(index)
    other.close()
    assert not Database(index).in_memory


SHUT = """
import os, sys, threading
from pathlib import Path
from tests.sync.harness import *
import skillfs.core.plainyaml
root, index = Path(sys.argv[1]), Path(sys.argv[2])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
engine = make_engine(root, index)
engine.sync()
index.parent.chmod(0)
def read():
    try:
        engine.query(lambda: engine.catalog.by_path(("s0",)))
    except OSError as error:
        print(type(error).__name__, error)
thread = threading.Thread(target=read)
thread.start()
thread.join()
"""


def test_what_fails_is_told_without_a_path(shared_folder: Path) -> None:
    root, index = shared_folder / "store", shared_folder / "data" / "index.sqlite"
    write(root, skills(2))
    index.parent.mkdir()
    os.chown(index.parent, 65534, 65534)
    done = subprocess.run(
        [sys.executable, "-c", SHUT, root, index],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith(
        "StoreUnavailableError the index cannot be used now: its file cannot be opened"
    )
    assert str(shared_folder) not in done.stdout + done.stderr


def test_nothing_written_is_nothing_committed(index: Path) -> None:
    database = Database(index)
    with database.write() as connection:
        connection.execute("INSERT INTO facts.meta VALUES ('stamp', 1)")
    stamp = database.read("SELECT value FROM facts.meta WHERE name='stamp'")
    with database.write() as connection:
        connection.execute("SELECT * FROM entry")
    assert database.read("SELECT value FROM facts.meta WHERE name='stamp'") == stamp
    with database.write() as connection:
        connection.execute("DELETE FROM entry WHERE key=1")
        connection.execute("INSERT INTO problem VALUES (1, '', '', '', '')")
    assert database.read("SELECT value FROM facts.meta WHERE name='stamp'") == [(stamp[0][0] + 1,)]


def test_files_are_private(root: Path, index: Path) -> None:
    write(root, skills(1))
    engine = make_engine(root, index)
    engine.sync()
    assert index.parent.stat().st_mode & 0o777 == 0o700
    for file in index.parent.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file


def test_stamp(index: Path) -> None:
    Database(index).close()
    for file in (index, index.with_name("index.sqlite.identity")):
        with sqlite3.connect(file) as connection:
            assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        connection.close()


# -- threads, processes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [True, False])
def test_threads_share_an_index(root: Path, index: Path, memory: bool) -> None:
    write(root, skills(20))
    engine = make_engine(root, None if memory else index)
    engine.sync()
    facts = scan_text(b"x")
    failures: list[BaseException] = []
    until = time.monotonic() + 1.5

    def work(number: int) -> None:
        own = random.Random(number)
        try:
            while time.monotonic() < until:
                skill = own.randrange(20)
                if number < 2:
                    write(root, {f"s{skill}/t{number}.md": f"{own.random()}\n"})
                    engine.sync(f"s{skill}")
                else:
                    row = engine.catalog.by_path((f"s{skill}", "x", "y.md"))
                    assert row is not None
                    assert row.id is not None
                    assert engine.catalog.by_id(row.id) is not None
                    engine.journal.since(engine.journal.revision() - 3)
                    engine.learned.keep(row, b"x" * 16, b"m" * 16, facts)
                    engine.learned.flush()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    engine.sync()
    check(engine, root)


def sync_and_report(root: Path, index: Path, barrier: Barrier, results: Results, number: int) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        barrier.wait(30)
        engine = make_engine(root, index)
        engine.sync()
        write(root, {f"p{number}/SKILL.md": f"{number}\n"})
        engine.sync()
        barrier.wait(30)
        engine.sync()
    results.put((uuids(engine), engine.journal.revision(), [str(w.message) for w in caught]))


@pytest.mark.parametrize("damaged", [False, True])
def test_processes_open_one_index_at_once(root: Path, index: Path, damaged: bool) -> None:
    write(root, skills(60))
    if damaged:
        index.parent.mkdir()
        index.write_text("no index\n" * 1000)
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(4), context.Queue()
    processes = [
        context.Process(target=sync_and_report, args=(root, index, barrier, results, n)) for n in range(4)
    ]
    for process in processes:
        process.start()
    answers = [results.get(timeout=40) for _ in processes]
    for process in processes:
        process.join()
    assert len({revision for _, revision, _ in answers}) == 1
    assert sum(len(said) for _, _, said in answers) == damaged  # one process sets it aside for all
    engine = make_engine(root, index)
    engine.sync()
    for found, _, _ in answers:
        assert found == uuids(engine)
    check(engine, root)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("held", [False, True])
def test_fork(root: Path, index: Path, memory: bool, held: bool) -> None:
    """Parent and child both go on; also when another thread of the parent was writing."""
    write(root, skills(3))
    engine = make_engine(root, None if memory else index)
    engine.sync()
    before = uuids(engine)
    release, holding = threading.Event(), threading.Event()

    def hold() -> None:
        with engine._lock:
            while not release.is_set():
                with engine.database.write():
                    holding.set()
                    time.sleep(0.01)
                time.sleep(0.01)

    thread = threading.Thread(target=hold)
    if held:
        thread.start()
        holding.wait()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(20)
            assert engine.query(lambda: uuids(engine)) == before
            write(root, {"child/SKILL.md": "c\n"})
            engine.sync()
            check(engine, root)
            code = 0
        finally:
            os._exit(code)
    release.set()
    assert os.waitpid(child, 0)[1] == 0
    if held:
        thread.join()
    engine.sync()
    check(engine, root)
    write(root, {"parent/SKILL.md": "p\n"})
    engine.sync()
    check(engine, root)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forks_beside_readers(root: Path, index: Path) -> None:
    """SQLite's locks in memory are copied by a fork as they are: none may be held then."""
    write(root, skills(3))
    engine = make_engine(root, index)
    engine.sync()
    before = uuids(engine)
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            assert uuids(engine) == before

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(40):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    signal.signal(signal.SIGALRM, signal.SIG_DFL)
                    signal.alarm(10)
                    code = int(uuids(engine) != before)
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forks_at_once_and_beside_a_long_writer(
    root: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread lets go what is held for another's fork, and no fork waits for a writer without end."""
    monkeypatch.setattr(database_module, "MOST_FORK_SECONDS", 0.3)
    write(root, skills(1))
    engine = make_engine(root, index)
    engine.sync()
    release, holding = threading.Event(), threading.Event()

    def hold() -> None:
        with engine.database.write():
            holding.set()
            release.wait(30)

    def fork() -> None:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)

    forking = [threading.Thread(target=fork) for _ in range(3)]
    for thread in forking:
        thread.start()
    for thread in forking:
        thread.join(30)
    assert not any(thread.is_alive() for thread in forking)
    writer = threading.Thread(target=hold)
    writer.start()
    holding.wait(30)
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert time.monotonic() - began < 20
    release.set()
    writer.join()
    engine.sync()
    check(engine, root)


KILLED = """
import sys, random, os
from pathlib import Path
from typing import TypeAlias
from tests.conftest import write
from tests.sync.harness import *
root, index, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
engine = make_engine(root, index)
engine.sync()
print("ready", flush=True)
own = random.Random(seed)
while True:
    a, b = (root / f"k{own.randrange(6)}" for _ in "ab")
    if a.exists() and not b.exists():
        a.rename(b)
    else:
        write(root, {f"k{own.randrange(6)}/SKILL.md": f"{own.random()}", f"{a.name}/x.md": f"{own.random()}"})
    engine.sync()
"""


def test_kill_in_the_middle(root: Path, index: Path) -> None:
    write(root, skills(3))
    for seed in range(20):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, root, index, str(seed)],
            cwd=HERE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.01 + 0.003 * seed)
        process.kill()
        process.wait()
        process.stdout.close()
        engine = make_engine(root, index)
        engine.sync()
        check(engine, root)
        before = uuids(engine)
        engine.database.close()
        assert is_sound(index)
        if seed % 5 == 0:
            index.unlink()
            engine = make_engine(root, index)
            engine.sync()
            assert uuids(engine) == before
            engine.database.close()


def test_half_a_move_on_record(root: Path, index: Path) -> None:
    """A crash between the two files: the record says moved, the facts do not; and then it is gone."""
    write(root, skills(2))
    engine = make_engine(root, index)
    engine.sync()
    engine.database.read("PRAGMA facts.wal_checkpoint(TRUNCATE)")
    facts = index.read_bytes()
    (root / "s0/x/y.md").rename(root / "s0/z.md")
    engine.sync()
    moved = uuids(engine)["s0/z.md"]
    engine.database.close()
    index.write_bytes(facts)
    engine = make_engine(root, index)
    engine.sync()
    assert uuids(engine)["s0/z.md"] == moved
    engine.database.close()
    index.write_bytes(facts)
    (root / "s0/z.md").unlink()
    engine = make_engine(root, index)
    engine.sync()
    write(root, {"s0/z.md": "z\n", "s0/x/y.md": "again\n"})
    engine.sync()
    check(engine, root)
    engine.database.close()
    index.unlink()
    engine = make_engine(root, index)
    engine.sync()
    check(engine, root)


def test_index_that_is_deleted_under_an_open_engine(root: Path, index: Path) -> None:
    write(root, skills(3))
    engine = make_engine(root, index)
    engine.sync()
    before = shown(engine)
    for file in index.parent.iterdir():
        file.unlink()
    write(root, {"new/SKILL.md": "new\n"})
    engine.sync()
    check(engine, root)
    assert before.keys() < shown(engine).keys()
    assert index.exists()
    assert rows(engine) == rows(make_engine(root, index))
    assert engine.namespace.uuid == NAMESPACE


def test_the_folder_of_the_index_is_removed_while_it_is_open(root: Path, tmp_path: Path) -> None:
    index = tmp_path / "kept" / "index.sqlite"
    engine = make_engine(root, index)
    engine.sync()
    before = uuids(engine)
    shutil.rmtree(index.parent)
    engine.sync()
    assert index.exists()
    assert uuids(engine) == before


def test_opening_it_again_takes_no_lock_away(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    database = Database(path)
    with database.write() as connection:
        connection.execute("INSERT INTO facts.meta VALUES ('a', 1)")
    logs = [path.with_name(f"{path.name}{end}-wal") for end in ("", ".identity")]
    inodes = [log.stat().st_ino for log in logs]
    other = Database(path)
    # The last process that closes a file removes its log: this one is not the last.
    code = (
        "from pathlib import Path; from skillfs.index.database import Database; "
        f"d = Database(Path({str(path)!r})); d.read('SELECT * FROM facts.meta'); d.close()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert [log.stat().st_ino for log in logs] == inodes
    with database.write() as connection:
        connection.execute("INSERT INTO facts.meta VALUES ('b', 2)")
    assert other.read("SELECT value FROM facts.meta WHERE name IN ('a', 'b')") == [(1,), (2,)]
