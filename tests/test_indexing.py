"""Full indexing: for all files what readings compute one by one, and in step with the store."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillfs import SkillFileSystem, indexing
from skillfs.errors import NotFoundError, NotIndexedError
from skillfs.stores.base import Handle
from tests.conftest import skill_md, write
from tests.privileges import bound_by_permissions

Opener = Callable[..., SkillFileSystem]

FILES: dict[str, str | bytes] = {
    "a/SKILL.md": skill_md("a"),
    "a/empty": "",
    "a/umlaut.md": "ä\r\nö\n" * 5_000,
    "a/utf16.txt": "Ω\n".encode("utf-16"),
    "a/blob.bin": bytes(range(256)) * 10,
    "a/large.md": "0123456789äöü\n" * 90_000,
    "a/large.bin": b"\0" * (indexing.SMALL_FILE + 1),
    "b/c/SKILL.md": skill_md("c"),
    "b/c/same.md": "ä\r\nö\n" * 5_000,
}


@pytest.fixture
def store(root: Path) -> Path:
    return write(root, FILES)


@pytest.fixture
def helped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every store is large enough for a second process, and has several batches."""
    monkeypatch.setattr(indexing, "HELPED_BYTES", 0)
    monkeypatch.setattr(indexing, "BATCH_FILES", 2)


def as_bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def rows(fs: SkillFileSystem, table: str) -> dict[str, tuple[object, ...]]:
    catalog = fs._engine.catalog
    found = catalog.read(f"SELECT * FROM {table}")
    paths = catalog.with_paths([row[0] for row in found])
    return {paths[row[0]]: row[1:] for row in found}


@pytest.mark.parametrize("index", [":memory:", "file"])
@pytest.mark.parametrize("process", ["one", "two"])
def test_afterwards_every_hash_resolves(
    store: Path, tmp_path: Path, open_fs: Opener, index: str, process: str, request: pytest.FixtureRequest
) -> None:
    if process == "two":
        request.getfixturevalue("helped")
    (store / "b/link.md").symlink_to("../a/umlaut.md")
    (store / "b/c/linked.md").symlink_to("../../a/umlaut.md")
    fs = open_fs(index=tmp_path / "index.sqlite" if index == "file" else index)
    with pytest.raises(NotIndexedError):
        fs.find_content("md5:" + "0" * 32)
    assert fs.index_all() == len(FILES)
    for path, content in FILES.items():
        data = as_bytes(content)
        same = sorted(p for p, other in FILES.items() if as_bytes(other) == data)
        for name in ("md5", "sha256"):
            ref = f"{name}:{hashlib.new(name, data).hexdigest()}"
            assert [e.path for e in fs.find_content(ref)] == same
            assert fs.entry(ref).path == same[0]
        assert fs.entry(path).md5 == hashlib.md5(data).hexdigest()
    for name in ("md5:" + "0" * 32, "sha256:" + "0" * 64):
        with pytest.raises(NotFoundError):
            fs.find_content(name)


def test_facts_are_those_of_a_reading(store: Path, open_fs: Opener) -> None:
    wait_until_settled(store)
    read, indexed = open_fs(), open_fs()
    for path in FILES:
        read.skill_tree(path.rpartition("/")[0], details=True)
    read.sync()
    assert indexed.index_all() == len(FILES)
    assert rows(indexed, "text") == rows(read, "text")
    assert set(rows(indexed, "text")) == set(FILES)
    for path in FILES:
        assert indexed.entry(path).characters == read.entry(path).characters
    assert indexed.get_content("a/large.md", 1_000_000, 20) == read.get_content("a/large.md", 1_000_000, 20)


def wait_until_settled(root: Path) -> None:
    """Facts about a file that was written just now are not remembered."""
    deadline = max(os.stat(p).st_ctime_ns for p in root.rglob("*")) + 50_000_000
    probe = root.parent / "probe"
    while True:
        probe.write_text("x")
        if os.stat(probe).st_ctime_ns > deadline:
            return


def test_what_is_known_is_not_computed_again(
    store: Path, open_fs: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = open_fs()
    assert fs.index_all() == len(FILES)
    monkeypatch.setattr(indexing, "_measure", lambda *_: pytest.fail("read again"))
    assert fs.index_all() == len(FILES)


def test_only_what_changed_is_computed(store: Path, open_fs: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = open_fs()
    fs.index_all()
    read: list[str] = []
    measure = indexing._measure

    def noted(number: int, task: indexing._Task, handle: Handle) -> indexing._Found | None:
        read.append(task.place.path)
        return measure(number, task, handle)

    monkeypatch.setattr(indexing, "_measure", noted)
    (store / "a/umlaut.md").write_text("new")
    (store / "a/empty").rename(store / "b/c/empty")
    assert fs.index_all() == len(FILES)
    # To move a file is to give it another signature, which vouches for nothing that was known of it.
    assert sorted(read) == ["a/umlaut.md", "b/c/empty"]
    assert [e.path for e in fs.find_content("md5:" + hashlib.md5(b"new").hexdigest())] == ["a/umlaut.md"]


@pytest.mark.usefixtures("helped")
def test_progress_rises_to_the_number_of_files(store: Path, open_fs: Opener) -> None:
    calls: list[tuple[int, int]] = []
    open_fs().index_all(on_progress=lambda done, total: calls.append((done, total)))
    assert calls[0] == (0, len(FILES))
    assert calls[-1] == (len(FILES), len(FILES))
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert {total for _, total in calls} == {len(FILES)}


def test_nothing_outside_the_base_paths_is_read_or_counted(store: Path, open_fs: Opener) -> None:
    calls: list[tuple[int, int]] = []
    fs = open_fs(base_paths=["b"])
    assert fs.index_all(on_progress=lambda *call: calls.append(call)) == 2
    assert {total for _, total in calls} == {2}
    assert set(rows(fs, "text")) == set(rows(fs, "sha256")) == {"b/c/SKILL.md", "b/c/same.md"}


def test_a_file_that_cannot_be_read_holds_up_no_other(store: Path, open_fs: Opener) -> None:
    (store / "a/blob.bin").chmod(0)
    calls: list[tuple[int, int]] = []
    with bound_by_permissions():
        fs = open_fs()
        assert fs.index_all(on_progress=lambda *call: calls.append(call)) == len(FILES) - 1
        assert calls[-1] == (len(FILES) - 1, len(FILES))
        # There is nothing left to index: an unknown hash is not found.
        with pytest.raises(NotFoundError):
            fs.find_content("md5:" + "0" * 32)


def test_files_in_followed_folders(store: Path, tmp_path: Path, open_fs: Opener) -> None:
    write(
        tmp_path / "shared",
        {"lib/SKILL.md": skill_md("lib"), "lib/deep/x.md": "elsewhere", "one.md": "single"},
    )
    (store / "linked").symlink_to(tmp_path / "shared/lib")
    (store / "a/one.md").symlink_to(tmp_path / "shared/one.md")
    fs = open_fs(follow=[tmp_path / "shared"])
    assert fs.index_all() == len(FILES) + 3
    for text, path in (("elsewhere", "linked/deep/x.md"), ("single", "a/one.md")):
        ref = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        assert [e.path for e in fs.find_content(ref)] == [path]


@pytest.mark.parametrize("process", ["one", "two"])
def test_no_fact_belongs_to_other_bytes_while_files_change(
    store: Path, open_fs: Opener, process: str, request: pytest.FixtureRequest
) -> None:
    if process == "two":
        request.getfixturevalue("helped")
    fs = open_fs()
    done = threading.Event()

    def stir() -> None:
        number = 0
        while not done.is_set():
            number += 1
            (store / "a/umlaut.md").write_text(f"version {number % 10}")
            with open(store / "a/large.md", "r+") as file:
                file.write(str(number))

    thread = threading.Thread(target=stir)
    thread.start()
    try:
        for _ in range(8):
            fs.index_all()
            for table, name in (("text", "md5"), ("sha256", "sha256")):
                for path, (digest, *_) in rows(fs, table).items():
                    row = fs._engine.catalog.by_path(tuple(path.split("/")))
                    assert row is not None
                    if path == "a/umlaut.md":
                        texts = [f"version {n}".encode() for n in range(10)] + [as_bytes(FILES[path]), b""]
                        content = {hashlib.new(name, t).digest(): t for t in texts}[digest]
                        assert indexing.xxh3(content) == row.content
    finally:
        done.set()
        thread.join()
    assert fs.index_all() == len(FILES)
    for path in FILES:
        assert fs.entry(path).md5 == hashlib.md5((store / path).read_bytes()).hexdigest()


@pytest.mark.usefixtures("helped")
def test_a_helper_that_dies_leaves_its_work_to_us(
    store: Path, open_fs: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = indexing._Helper.measure

    def killed(self: indexing._Helper, batch: list[indexing._Task]) -> list[indexing._Found] | None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        return measure(self, batch)

    monkeypatch.setattr(indexing._Helper, "measure", killed)
    assert open_fs().index_all() == len(FILES)


@pytest.mark.usefixtures("helped")
@pytest.mark.parametrize("executable", [None, "", "/nowhere/python"])
def test_without_a_program_to_start_there_is_no_help(
    store: Path, open_fs: Opener, monkeypatch: pytest.MonkeyPatch, executable: str | None
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    assert open_fs().index_all() == len(FILES)


@pytest.mark.usefixtures("helped")
def test_an_error_ends_the_helper(store: Path, open_fs: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[indexing._Helper] = []
    enter = indexing._Helper.__enter__
    monkeypatch.setattr(indexing._Helper, "__enter__", lambda self: (started.append(self), enter(self))[1])

    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_fs().index_all(on_progress=stop)
    assert [h._process is not None and h._process.poll() is not None for h in started] == [True]


def test_a_script_without_a_main_guard_is_not_run_twice(store: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from skillfs import SkillFileSystem, indexing\n"
        "indexing.HELPED_BYTES = 0\n"
        "print('started')\n"
        "print(SkillFileSystem(sys.argv[1], index=':memory:').index_all())\n"
    )
    done = subprocess.run([sys.executable, script, store], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["started", str(len(FILES))]
    assert done.stderr == ""


def test_the_helper_computes_what_we_compute(store: Path, open_fs: Opener) -> None:
    fs = open_fs()
    tasks = list(indexing._missing(fs._engine, fs._lookup.access()))
    with indexing._Helper(fs._engine.store) as helper:
        assert helper.measure(tasks) == indexing._measure_all(fs._engine.store, tasks)
        assert helper.measure([]) == []


def test_facts_are_of_the_bytes_that_the_index_has(store: Path, open_fs: Opener) -> None:
    fs = open_fs()
    engine = fs._engine
    (task,) = (t for t in indexing._missing(engine, fs._lookup.access()) if t.place.path == "a/umlaut.md")
    settled = task.signature.removesuffix(b"?")
    for same in (task, task._replace(signature=settled), task._replace(signature=settled + b"?")):
        assert len(indexing._measure_all(engine.store, [same])) == 1
    for other in (task._replace(content=b"x" * 16), task._replace(signature=settled[:-1] + b"x")):
        assert indexing._measure_all(engine.store, [other]) == []
    # What has become of the row meanwhile counts too.
    found = indexing._measure_all(engine.store, [task])
    for batch in (
        [task._replace(content=b"x" * 16)],
        [task._replace(signature=b"x")],
        [task._replace(key=10**6)],
    ):
        kept = indexing._Rows()
        kept.add(batch, found)
        assert kept.keep(engine) == 0
    assert rows(fs, "text") == rows(fs, "sha256") == {}


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "BATCH_FILES", 3)
    monkeypatch.setattr(indexing, "BATCH_BYTES", 100)

    def tasks() -> Iterator[indexing._Task]:
        for key, size in enumerate([1, 1, 1, 1, 200, 1, 60, 60]):
            yield indexing._Task(key, None, b"", size, b"")  # type: ignore[arg-type]

    assert [[t.size for t in batch] for batch in indexing._batches(tasks())] == [
        [1, 1, 1],
        [1, 200],
        [1, 60, 60],
    ]
