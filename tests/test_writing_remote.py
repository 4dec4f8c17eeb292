"""Writing to stores that have to be asked: what it costs, in which order, and what comes in between."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from skillfs import ReadOnlyError, SkillFileSystem, StoreUnavailableError
from tests.conftest import skill_md, write
from tests.servers.faults import SLOW_DOWN, FaultyS3, Hook
from tests.servers.s3 import Bucket
from tests.writable import open_writable

FILES = {
    "a/SKILL.md": skill_md("a"),
    "a/x.md": "one\n",
    "a/refs/y.md": "two\n",
    "b/SKILL.md": skill_md("b"),
    "free.txt": "in no skill\n",
}


@pytest.fixture(params=["s3", "memory"])
def fs(request: pytest.FixtureRequest) -> Iterator[SkillFileSystem]:
    if request.param == "s3":
        bucket: Bucket = request.getfixturevalue("bucket")
        bucket.seed(FILES, "p/")
        yield on_s3(bucket)
        return
    memory, root = MemoryFileSystem(), f"/{uuid4().hex}"
    for path, content in FILES.items():
        memory.pipe_file(f"{root}/{path}", content.encode())
    yield open_writable(f"memory:/{root}")
    memory.rm(root, recursive=True)


def on_s3(bucket: Bucket, way: Any = None, **options: Any) -> SkillFileSystem:
    return open_writable(f"{bucket.url}/p", target_options=(way or bucket.server).target_options, **options)


def same_as_new(fs: SkillFileSystem) -> None:
    """The index says what one that is made anew says, but for identities that moved."""
    told = {p: (i["type"], i["size"]) for p, i in fs.find("", withdirs=True, detail=True).items()}
    fs.sync()
    found = {p: (i["type"], i["size"]) for p, i in fs.find("", withdirs=True, detail=True).items()}
    assert told == found


def test_what_is_written_is_there(fs: SkillFileSystem) -> None:
    revision = fs.revision
    fs.pipe_file("a/new/deep.md", b"new\n")
    assert fs.cat_file("a/new/deep.md") == b"new\n"
    assert fs.get_content("a/new/deep.md").text == "new\n"
    fs.pipe_file("a/x.md", b"another\n")
    assert fs.get_content("a/x.md").text == "another\n"
    fs.rm_file("a/refs/y.md")
    assert not fs.exists("a/refs/y.md")
    fs.pipe_file("c/SKILL.md", skill_md("c").encode())
    assert fs.skill("c").path == "c"
    kinds = {(change.kind, change.path) for change in fs.changes(revision).items}
    assert {
        ("added", "a/new/deep.md"),
        ("modified", "a/x.md"),
        ("removed", "a/refs/y.md"),
        ("added", "c"),
    } <= kinds
    same_as_new(fs)


@pytest.mark.parametrize(
    ("source", "target"),
    [("a/x.md", "a/z.md"), ("a/x.md", "b/deep/z.md"), ("a/refs", "a/texts"), ("a", "z"), ("a", "b/inner")],
)
def test_a_move_keeps_identities(fs: SkillFileSystem, source: str, target: str) -> None:
    before = {p: i["uuid"] for p, i in fs.find("", withdirs=True, detail=True).items()}
    contents = {p: fs.cat_file(p) for p in fs.find("")}
    fs.mv(source, target, recursive=True)
    after = {p: i["uuid"] for p, i in fs.find("", withdirs=True, detail=True).items()}

    def moved(path: str) -> str:
        return target + path[len(source) :] if path == source or path.startswith(f"{source}/") else path

    for path, uuid in before.items():
        if moved(path) in after or path == source:
            assert after[moved(path)] == uuid
    assert {moved(p): c for p, c in contents.items()} == {p: fs.cat_file(p) for p in fs.find("")}
    assert not fs.exists(source)
    same_as_new(fs)
    assert {p: i["uuid"] for p, i in fs.find("", withdirs=True, detail=True).items()} == after


def test_what_is_outside_stays_as_it_is(fs: SkillFileSystem) -> None:
    for attempt in (
        lambda: fs.pipe_file("free.txt", b"x"),
        lambda: fs.pipe_file("new.txt", b"x"),
        lambda: fs.rm_file("free.txt"),
        lambda: fs.mv("a/x.md", "x.md"),
        lambda: fs.cp_file("a/x.md", "free.txt"),
    ):
        with pytest.raises((ValueError, FileNotFoundError)):
            attempt()
    backing = fs._engine.store
    assert backing.look().state(_place("free.txt")).size == len(FILES["free.txt"])  # type: ignore[union-attr]


def test_no_skill_is_made_around_what_is_hidden(fs: SkillFileSystem) -> None:
    store: Any = fs._engine.store
    sink = store.create(_place("hid/deep/secret.txt"))
    sink.write(b"secret")
    sink.commit()
    for attempt in (
        lambda: fs.pipe_file("SKILL.md", b""),
        lambda: fs.pipe_file("hid/SKILL.md", b""),
        lambda: fs.pipe({"hid/x.md": b"", "hid/SKILL.md": b""}),
        lambda: fs.cp_file("a/SKILL.md", "hid/deep/SKILL.md"),
        lambda: fs.mv("a", "hid"),
        lambda: fs.mv("b/SKILL.md", "hid/SKILL.md"),
    ):
        with pytest.raises(ValueError, match=r"no skill can be made at .*; choose a new folder"):
            attempt()
    assert fs.find("hid") == []
    assert fs.exists("a/x.md")
    fs.mv("a", "hid/deep/a")
    assert sorted(fs.find("hid")) == ["hid/deep/a/SKILL.md", "hid/deep/a/refs/y.md", "hid/deep/a/x.md"]
    same_as_new(fs)


def test_a_file_whose_skill_is_gone_is_not_written(fs: SkillFileSystem) -> None:
    file = fs.open("a/new.md", "wb")
    file.write(b"late")
    fs.rm("a", recursive=True)
    with pytest.raises(OSError, match="changed meanwhile"):
        file.close()
    assert not fs._engine.store.look().exists(_place("a/new.md"))


def _place(path: str) -> Any:
    from skillfs.core.model import Place

    return Place(0, path)


def test_transactions(fs: SkillFileSystem) -> None:
    with fs.transaction:
        for name in ("one", "two"):
            with fs.open(f"a/{name}.md", "wb") as file:
                file.write(name.encode())
        assert not fs.exists("a/one.md")
    assert fs.cat_file("a/two.md") == b"two"

    def fail() -> None:
        with fs.transaction:
            with fs.open("a/three.md", "wb") as file:
                file.write(b"three")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not fs.exists("a/three.md")
    same_as_new(fs)


def test_a_large_file_in_parts(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillfs.stores.s3.ONE_PUT", 5 << 20)
    bucket.seed(FILES, "p/")
    fs = on_s3(bucket)
    content = os.urandom(11 << 20)
    with fs.open("a/large.bin", "wb") as file:
        for start in range(0, len(content), 1 << 20):
            file.write(content[start : start + (1 << 20)])
        assert not fs.exists("a/large.bin")
    assert fs.cat_file("a/large.bin") == content


def test_what_a_write_costs(bucket: Bucket) -> None:
    bucket.seed(FILES, "p/")
    fs = on_s3(bucket)
    for work, counts in (
        (lambda: fs.pipe_file("a/x.md", b"another\n"), {"PutObject": 1, "ListObjectsV2": 1}),
        (lambda: fs.rm_file("a/x.md"), {"DeleteObject": 1, "ListObjectsV2": 1}),
        (lambda: fs.mv("a/refs/y.md", "a/z.md"), {"CopyObject": 1, "DeleteObject": 1}),
    ):
        with bucket.server.recorded() as requests:
            work()
        assert counts.items() <= requests.counts.items(), requests.counts
        assert not any(name.startswith("Head") for name in requests.counts)
        assert len(requests) <= 5
        assert all(r.query["prefix"].startswith("p/a/") for r in requests.of("ListObjectsV2"))


def test_a_skill_md_comes_first_and_goes_last(bucket: Bucket, tmp_path: Path) -> None:
    bucket.seed({"p/b/SKILL.md": skill_md("b")})
    fs = on_s3(bucket)
    write(
        tmp_path / "new",
        {
            "0.md": "0",
            "SKILL.md": skill_md("new"),
            "z/SKILL.md": skill_md("z"),
            "z/0.md": "0",
            "z/zz.md": "1",
        },
    )
    with bucket.server.recorded() as requests:
        fs.put(str(tmp_path / "new"), "new", recursive=True)
    written = [request.key for request in requests.of("PutObject")]
    assert written[0] == "p/new/SKILL.md"
    assert written.index("p/new/z/SKILL.md") < written.index("p/new/z/0.md")
    assert requests.counts["ListObjectsV2"] <= 3
    with bucket.server.recorded() as requests:
        fs.rm("new", recursive=True)
    removed = [request.key for request in requests if request.operation.startswith("Delete")]
    assert removed[-1] == "p/new/SKILL.md"
    assert bucket.keys() == ["p/b/SKILL.md"]


def test_what_is_to_be_new_is_so_by_the_server(bucket: Bucket, faulty: FaultyS3) -> None:
    bucket.seed(FILES, "p/")
    fs = on_s3(bucket, faulty)
    faulty.add(Hook(lambda _: bucket.put("p/a/new.md", "theirs\n")), "PutObject", times=1)
    with pytest.raises(FileExistsError):
        fs.pipe_file("a/new.md", b"ours\n", mode="create")
    assert bucket.get("p/a/new.md") == b"theirs\n"


def test_a_write_during_a_listing_is_not_lost(bucket: Bucket, faulty: FaultyS3) -> None:
    bucket.seed(FILES, "p/")
    fs = on_s3(bucket, faulty, max_age=0.05)
    listed, go = threading.Event(), threading.Event()

    class Late(Hook):
        """The answer is made, and then held back."""

        def after(self, answer: Any) -> Any:
            listed.set()
            go.wait(20)
            return answer

    time.sleep(0.1)
    faulty.add(Late(lambda _: None), "ListObjectsV2", times=1)
    fs.skills()
    assert listed.wait(20)
    fs.pipe_file("a/new.md", b"new\n")
    assert fs.exists("a/new.md")
    go.set()
    end = time.monotonic() + 2
    while time.monotonic() < end:
        assert fs.exists("a/new.md")
        time.sleep(0.01)


def test_a_failed_write_changes_nothing(
    bucket: Bucket, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.seed(FILES, "p/")
    fs = on_s3(bucket, faulty)
    monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 0.3)
    rule = faulty.add(SLOW_DOWN, "PutObject")
    revision = fs.revision
    with pytest.raises(StoreUnavailableError):
        fs.pipe_file("a/x.md", b"another\n")
    assert rule.hits
    assert fs.cat_file("a/x.md") == b"one\n"
    assert fs.revision == revision


def test_a_store_that_cannot_be_written_to(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a/SKILL.md", skill_md("a"))
    with pytest.raises(ReadOnlyError):
        open_writable(f"zip://::file://{tmp_path}/x.zip")


def test_two_writers_of_one_key(bucket: Bucket) -> None:
    bucket.seed(FILES, "p/")
    one, two = on_s3(bucket), on_s3(bucket)
    works: list[Callable[[], None]] = [
        lambda: one.pipe_file("a/x.md", b"1" * 1_000),
        lambda: two.pipe_file("a/x.md", b"2" * 1_000),
    ]
    for _ in range(5):
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert one.cat_file("a/x.md") in (b"1" * 1_000, b"2" * 1_000)
        assert one.cat_file("a/x.md") == two.cat_file("a/x.md")
