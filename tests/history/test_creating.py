"""Snapshots are of states that were there, cost what is new, and are whole or not there at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillfs import SkillFileSystem
from skillfs.core.manifest import parse_digest
from skillfs.errors import (
    AlreadyExistsError,
    ChangedError,
    InvalidArgumentError,
    NotFoundError,
    StoreUnavailableError,
    UnreadableError,
)
from skillfs.history import contents, creating
from tests.collisions import MD5_PAIR, XXH3_PAIR
from tests.conftest import skill_md, write
from tests.privileges import bound_by_permissions

if TYPE_CHECKING:
    from tests.servers.s3 import Bucket, S3Server

FILES: dict[str, str | bytes] = {
    "a/SKILL.md": skill_md("a"),
    "a/one.md": "one\n",
    "a/copy.md": "one\n",
    "a/sub/two.bin": bytes(range(256)) * 9_000,
    "a/sub/inner/SKILL.md": skill_md("inner"),
    "b/SKILL.md": skill_md("b"),
    "b/empty.md": "",
    "no/skill.md": "not seen",
    "README.md": "not seen either",
}


LONG_AGO = 1_700_000_000


@pytest.fixture
def opened(root: Path, tmp_path: Path) -> Callable[..., SkillFileSystem]:
    """Opens the store with an index on the disk, and objects beside it."""

    def open_it(**options: Any) -> SkillFileSystem:
        return SkillFileSystem(
            root, **{"index": tmp_path / "index", "max_age": 0, "skip_instance_cache": True, **options}
        )

    write(root, FILES)
    settle(root)
    return open_it


def settle(root: Path) -> None:
    """Make all files old enough to be trusted to be written."""
    for path in root.rglob("*"):
        if not path.is_symlink() and path.stat().st_mtime != LONG_AGO:
            os.utime(path, (LONG_AGO, LONG_AGO))
    time.sleep(0.03)  # of which the system keeps the time, too


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that snapshots read, as they are read."""
    names: list[str] = []
    real = creating.read_whole

    def taken(node: Any, handle: Any) -> Any:
        names.append(node.name)
        return real(node, handle)

    monkeypatch.setattr(creating, "read_whole", taken)
    return names


def blobs(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "index.objects/blobs").rglob("*") if path.is_file()]


# -- what it costs -------------------------------------------------------------------------------------------


def test_what_is_known_is_neither_read_nor_stored_again(
    opened: Callable[..., SkillFileSystem], root: Path, tmp_path: Path, read: list[str]
) -> None:
    first = opened().snapshot("v1")
    assert sorted(read) == ["SKILL.md"] * 3 + ["copy.md", "empty.md", "one.md", "two.bin"]
    assert (first.skills, first.files, first.labels, first.parents) == (3, 7, ("v1",), ())
    stored = {path: path.stat().st_mtime_ns for path in blobs(tmp_path)}
    assert len(stored) == 6  # of seven files two are equal
    read.clear()
    assert opened().snapshot() == first
    assert not read
    write(root, {"a/one.md": "two\n", "b/new.md": "one\n"})
    settle(root)
    second = opened().snapshot("v2")
    assert sorted(read) == ["new.md", "one.md"]
    assert second.parents == (first.record,)
    assert second.created > first.created
    now = {path: path.stat().st_mtime_ns for path in blobs(tmp_path)}
    assert len(now) == 7
    assert stored.items() <= now.items()


def test_what_is_digested_already_is_read_for_its_content_only(
    opened: Callable[..., SkillFileSystem], read: list[str]
) -> None:
    fs = opened()
    fs.index_all()
    fs.snapshot()
    assert sorted(read) == ["SKILL.md"] * 3 + [
        "copy.md",
        "empty.md",
        "two.bin",
    ]  # the other is known to be the same


def test_what_is_lost_comes_back(opened: Callable[..., SkillFileSystem], root: Path, tmp_path: Path) -> None:
    taken = opened().snapshot("v1")
    for path in blobs(tmp_path):
        path.unlink()
    faults = [finding.kind for finding in opened().snapshots.fsck()]
    assert faults == ["missing"] * 6
    assert opened().snapshot() == taken
    assert opened().snapshots.fsck() == []
    for path in blobs(tmp_path):
        path.unlink()
    write(root, {"b/new.md": "new\n"})
    assert opened().snapshot() != taken
    assert opened().snapshots.fsck() == []


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_an_interrupted_one_is_nothing_and_the_next_goes_on(
    opened: Callable[..., SkillFileSystem], read: list[str], monkeypatch: pytest.MonkeyPatch, stage: int
) -> None:
    monkeypatch.setattr(contents, "MOST_TOGETHER", 2)
    monkeypatch.setattr("skillfs.objects.temporary.MOST_WAITING", 1)
    seen: list[int] = []

    def stop(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) > stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened().snapshot("v1", on_progress=stop)
    assert opened().snapshots.list() == []
    assert len(read) == 2 * (stage + 1)
    taken = opened().snapshot("v1")
    assert len(read) == taken.files == 7, read  # what was stored is not read again
    then = SkillFileSystem(at="v1", objects=opened().snapshots._place.where, index=":memory:")
    assert then.cat_file("a/one.md") == b"one\n"


def test_progress_is_told_to_the_end(opened: Callable[..., SkillFileSystem]) -> None:
    told: list[tuple[int, int]] = []
    opened().snapshot(on_progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (7, 7)


def test_memory_stays_bounded(root: Path, tmp_path: Path) -> None:
    """What is read of a file at a time, and what waits to be stored, has a bound."""
    import tracemalloc

    write(root, {"a/SKILL.md": skill_md("a")})
    with (root / "a/big.bin").open("wb") as file:
        file.truncate(200 << 20)
    fs = SkillFileSystem(root, index=":memory:", objects=tmp_path / "objects")
    tracemalloc.start()
    try:
        fs.snapshot()
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


# -- what it is of -------------------------------------------------------------------------------------------


def test_the_same_content_has_the_same_digest_everywhere(
    root: Path, tmp_path: Path, s3_server: S3Server, bucket: Bucket
) -> None:
    write(root, FILES)
    memory = fsspec.filesystem("memory")
    raw = {path: text.encode() if isinstance(text, str) else text for path, text in FILES.items()}
    for path, data in raw.items():
        memory.pipe_file(f"/same/digest/{path}", data)
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as packed:
        for path, data in raw.items():
            packed.writestr(path, data)
    bucket.seed(raw, "store/")
    shared = tmp_path / "objects"
    options = {"index": ":memory:", "objects": shared, "skip_instance_cache": True}
    try:
        taken = [
            SkillFileSystem(store, **own, **options).snapshot()  # type: ignore[arg-type]
            for store, own in (
                (root, {}),
                ("memory://same/digest", {}),
                (f"zip://::file://{tmp_path}/x.zip", {}),
                (f"{bucket.url}/store", {"target_options": s3_server.target_options}),
            )
        ]
    finally:
        memory.rm("/same", recursive=True)
    assert len({one.digest for one in taken}) == 1
    assert len({one.store_id for one in taken}) == len({one.record for one in taken}) == 4
    listed = SkillFileSystem(root, **options).snapshots.list()  # type: ignore[arg-type]
    assert {one.record for one in listed} == {one.record for one in taken}
    # `latest` is the newest of the store that asks, though others came after it.
    latest = SkillFileSystem(root, at="latest", **options)  # type: ignore[arg-type]
    assert latest.status()["at"] == taken[0].record


def test_a_bucket_can_keep_the_snapshots_too(
    root: Path, s3_server: S3Server, bucket: Bucket, tmp_path: Path
) -> None:
    write(root, FILES)
    objects = {"objects": f"{bucket.url}/team", "objects_options": s3_server.target_options}
    fs = SkillFileSystem(root, index=":memory:", skip_instance_cache=True, **objects)  # type: ignore[arg-type]
    taken = fs.snapshot("v1")
    assert fs.snapshot() == taken
    then = SkillFileSystem(at="v1", index=":memory:", skip_instance_cache=True, **objects)  # type: ignore[arg-type]
    assert then.cat_file("a/sub/two.bin") == FILES["a/sub/two.bin"]
    fs.snapshots.restore(taken.digest[:20], tmp_path / "restored")
    assert (tmp_path / "restored/a/one.md").read_text() == "one\n"


def test_bits_links_and_empty_folders_count(opened: Callable[..., SkillFileSystem], root: Path) -> None:
    found = [opened().snapshot().digest]
    for change in (
        lambda: (root / "a/one.md").chmod(0o755),
        lambda: (root / "a/link").symlink_to("one.md"),
        lambda: (root / "a/empty").mkdir(),
        lambda: (root / "a/linked").symlink_to("../b"),
    ):
        change()
        found.append(opened().snapshot().digest)
    assert len(set(found)) == 5
    manifest = opened().snapshots.manifest("latest")
    skill = next(skill for skill in manifest.skills if skill.path == "a")
    assert [file.path for file in skill.files if file.executable] == ["one.md"]
    assert (skill.links, skill.folders) == ((("link", "a/one.md"), ("linked", "b")), ("empty",))
    assert opened().digest("a") == f"sha256:{skill.digest.hex()}"


def test_it_is_of_a_state_that_was_there(
    opened: Callable[..., SkillFileSystem], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What changes while it is read is looked at again: here two files that always belong together."""
    monkeypatch.setattr(contents, "MOST_TOGETHER", 1)
    turns = iter(range(4))

    def change(done: int, total: int) -> None:
        for turn in turns:
            write(root, {"a/one.md": f"turn {turn}\n", "b/empty.md": f"turn {turn}\n"})
            if turn == 2:
                shutil.rmtree(root / "a/sub")
                write(root, {"c/SKILL.md": skill_md("c")})
            return

    taken = opened().snapshot("v1", on_progress=change)
    then = SkillFileSystem(at="v1", objects=opened().snapshots._place.where, index=":memory:")
    assert then.cat_file("a/one.md") == then.cat_file("b/empty.md") == b"turn 3\n"
    assert [skill.path for skill in then.skills()] == ["a", "b", "c"]
    assert taken.digest == opened().snapshot().digest


@pytest.mark.parametrize("pair", [XXH3_PAIR, MD5_PAIR], ids=["xxh3", "md5"])
def test_contents_that_share_a_weaker_hash_are_two(
    opened: Callable[..., SkillFileSystem], root: Path, tmp_path: Path, pair: tuple[bytes, bytes]
) -> None:
    for label, data in zip(("one", "other"), pair, strict=True):
        write(root, {"a/one.md": data, "a/copy.md": pair[0]})
        opened().snapshot(label)
    for label, data in zip(("one", "other"), pair, strict=True):
        opened().snapshots.restore(label, tmp_path / label)
        assert (tmp_path / label / "a/one.md").read_bytes() == data
        assert (tmp_path / label / "a/copy.md").read_bytes() == pair[0]


def test_a_store_that_never_rests_is_refused(
    opened: Callable[..., SkillFileSystem], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "MOST_TOGETHER", 1)
    count = 0

    def change(done: int, total: int) -> None:
        nonlocal count
        count += 1
        write(root, {"a/one.md": f"turn {count}\n"})

    fs = opened()
    with pytest.raises(ChangedError, match="at rest"):
        fs.snapshot("v1", on_progress=change)
    assert fs.snapshots.list() == []
    assert fs.snapshot("v1").files == 7


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y", "z"])), max_size=6))
def test_a_chain_of_snapshots(tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[str, str]]) -> None:
    """Each names the one before, unless nothing changed, and keeps who is who after moves."""
    place = tmp_path_factory.mktemp("chain")
    root = write(place / "store", {"a/SKILL.md": skill_md("a"), "a/x": "1", "b/SKILL.md": skill_md("b")})
    fs = SkillFileSystem(
        root, index=":memory:", objects="memory://chain", max_age=0, skip_instance_cache=True
    )
    try:
        newest = fs.snapshot()
        lies = root / "a/x"
        uuids = {newest.record: fs.entry("a/x").uuid}
        for skill, name in moves:
            to = root / skill / name
            moved = to != lies
            lies.rename(to)
            lies = to
            taken = fs.snapshot()
            assert (taken == newest) is not moved
            assert taken.parents == ((newest.record,) if moved else newest.parents)
            newest = taken
            at = SkillFileSystem(at=taken.record, objects="memory://chain", index=":memory:")
            path = f"{skill}/{name}"
            assert at.entry(path).uuid == fs.entry(path).uuid == next(iter(uuids.values()))
            assert at.entry(UUID(at.entry(path).uuid).urn).path == path
        assert fs.snapshots.list()[0].record == newest.record
    finally:
        fsspec.filesystem("memory").rm("/chain", recursive=True)


# -- labels --------------------------------------------------------------------------------------------------


def test_labels(opened: Callable[..., SkillFileSystem], root: Path, read: list[str]) -> None:
    fs = opened()
    for label in ("", "a/b", ".hidden", "latest", "é", "x" * 101, "a b", "sha256:" + "0" * 64, 7):
        with pytest.raises(InvalidArgumentError):
            fs.snapshot(label)  # type: ignore[arg-type]
    first = fs.snapshot("v1")
    assert fs.snapshot("v1") == first
    write(root, {"a/one.md": "another\n"})
    with pytest.raises(AlreadyExistsError, match="taken"):
        fs.snapshot("v1")
    assert fs.snapshots.list() == [first]
    assert fs.snapshot("v2").labels == ("v2",)
    write(root, {"a/one.md": "a third\n"})
    read.clear()
    with pytest.raises(AlreadyExistsError, match="taken"):
        fs.snapshot("v1")
    assert not read  # whose label it is, is known before any work
    assert fs.snapshots.get("v1") == first
    with pytest.raises(NotFoundError, match="no snapshot answers to"):
        fs.snapshots.get("v3")


def test_a_file_that_may_not_be_read(opened: Callable[..., SkillFileSystem], root: Path) -> None:
    """What it holds is part of the state: without it there is no snapshot."""
    (root / "a/one.md").chmod(0)
    with bound_by_permissions():
        fs = opened()
        with pytest.raises(UnreadableError, match=r"a/one\.md"):
            fs.snapshot()
        assert fs.snapshots.list() == []
        (root / "a/one.md").chmod(0o644)
        assert fs.snapshot().files == 7


def test_objects_that_may_not_be_written(opened: Callable[..., SkillFileSystem], tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir(mode=0o500)
    with bound_by_permissions(), pytest.raises(UnreadableError) as raised:
        opened(objects=tmp_path / "objects").snapshot()
    assert str(tmp_path) not in raised.value.message


def test_while_objects_are_removed_none_is_taken(
    opened: Callable[..., SkillFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = opened()
    fs.snapshot()
    monkeypatch.setattr("skillfs.objects.locking.WAIT_SECONDS", 0)
    held = fs.snapshots.catalog().folder.holding(alone=True)
    with held, pytest.raises(StoreUnavailableError, match="removed"):
        opened().snapshot()


def test_objects_do_not_lie_in_a_skill(opened: Callable[..., SkillFileSystem], root: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="lies in a skill"):
        opened(objects=root / "a/objects").snapshot()
    assert not (root / "a/objects").exists()


def test_what_is_derived_from_several_stores_takes_none(
    opened: Callable[..., SkillFileSystem], root: Path, tmp_path: Path
) -> None:
    opened()
    fs = SkillFileSystem({"x": root, "y": write(tmp_path / "y", FILES)}, index=":memory:")
    with pytest.raises(InvalidArgumentError, match="of one store"):
        fs.snapshot()
    with pytest.raises(InvalidArgumentError, match="of one store"):
        _ = fs.snapshots
    taken = opened(objects=tmp_path / "objects").snapshot()
    both = SkillFileSystem({"x": root, "y": tmp_path / "y"}, index=":memory:", objects=tmp_path / "objects")
    assert both.snapshots.list() == [taken]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a filesystem")
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no filesystem can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk(
    opened: Callable[..., SkillFileSystem], root: Path, small_disk: Path, tmp_path: Path
) -> None:
    """Nothing half is seen, and as soon as there is room all goes on."""
    fs = opened(objects=small_disk / "objects")
    with pytest.raises(StoreUnavailableError, match="full"):
        fs.snapshot("v1")
    assert fs.snapshots.list() == []
    (root / "a/sub/two.bin").write_bytes(b"small now")
    taken = fs.snapshot("v1")
    assert fs.cat_file("a/sub/two.bin") == b"small now"
    assert [finding.kind for finding in fs.snapshots.fsck() if finding.is_fault] == []
    big = opened(objects=tmp_path / "others")
    write(root, {"a/big.bin": bytes(3_000_000)})
    big.snapshot("big")
    with pytest.raises(StoreUnavailableError, match="full"):
        big.snapshots.restore("big", small_disk / "out")
    with pytest.raises(StoreUnavailableError, match="full"):
        big.snapshots.export("big", small_disk / "out.zip")
    assert os.listdir(small_disk) == ["objects"]
    fs.snapshots.restore(taken, small_disk / "out")
    assert (small_disk / "out/a/sub/two.bin").read_bytes() == b"small now"


@pytest.fixture(autouse=True)
def no_memory_left() -> Iterator[None]:
    yield
    memory = fsspec.filesystem("memory")
    assert not [path for path in memory.find("/") if "chain" in path or "same" in path]


def test_digests_are_of_the_bytes(opened: Callable[..., SkillFileSystem], tmp_path: Path) -> None:
    import hashlib

    fs = opened()
    fs.snapshot("v1")
    for skill in fs.snapshots.manifest("v1").skills:
        for file in skill.files:
            data = FILES[f"{skill.path}/{file.path}"]
            raw = data.encode() if isinstance(data, str) else data
            assert (file.size, file.digest) == (len(raw), hashlib.sha256(raw).digest())
            assert parse_digest(fs.digest(f"{skill.path}/{file.path}")) == file.digest
    for path in blobs(tmp_path):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.parent.name + path.name


def test_what_a_bucket_is_asked_for(bucket: Bucket, s3_server: S3Server, tmp_path: Path) -> None:
    """Of a store in S3 every file is read once, and one that changed once more."""
    files = {f"store/{n}/{name}": f"{n} {name}" for n in range(20) for name in ("SKILL.md", "a.md", "b.md")}
    bucket.seed(files)
    options = {"target_options": s3_server.target_options, "skip_instance_cache": True}
    store = f"{bucket.url}/store"
    fs = SkillFileSystem(store, index=tmp_path / "index", **options)  # type: ignore[arg-type]
    with bucket.server.recorded() as requests:
        first = fs.snapshot()
    assert requests.counts == {"ListObjectsV2": 1, "GetObject": 60}
    bucket.put("store/3/a.md", "changed")
    del fs
    fs = SkillFileSystem(store, index=tmp_path / "index", **options)  # type: ignore[arg-type]
    with bucket.server.recorded() as requests:
        second = fs.snapshot()
    assert [request.key for request in requests.of("GetObject")] == ["store/3/a.md"]
    assert second.parents == (first.record,)
    with bucket.server.recorded() as requests:
        assert fs.snapshot() == second
    assert requests.counts == {"ListObjectsV2": 1}


def test_what_is_asked_of_a_bucket_that_keeps_them(root: Path, bucket: Bucket, s3_server: S3Server) -> None:
    """What follows costs what is new: of unchanged parts neither text nor blobs are asked for."""
    write(root, {f"{n}/{name}": f"{n} {name}" for n in range(40) for name in ("SKILL.md", "a.md")})
    fs = SkillFileSystem(
        root, index=":memory:", objects=f"{bucket.url}/team", objects_options=s3_server.target_options,
        max_age=0, skip_instance_cache=True,
    )  # fmt: skip
    with bucket.server.recorded() as requests:
        fs.snapshot()
    written = [request.key for request in requests.of("PutObject")]
    assert len([key for key in written if key.startswith("team/blobs/")]) == 80
    write(root, {"3/a.md": "changed"})
    with bucket.server.recorded() as requests:
        fs.snapshot()
    written = [request.key for request in requests.of("PutObject")]
    assert len([key for key in written if key.startswith("team/blobs/")]) == 1
    assert len([key for key in written if key.startswith("team/manifests/")]) == 2
    assert len(requests) < 30, requests.counts
