"""What changes underneath a mount point: the kernel shows what is there, one version whole, or an error."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillfs import SkillFileSystem
from tests.conftest import skill_md, write
from tests.fuse.mounted import (
    KEPT,
    Shown,
    mounted,
    names,
    opened,
    python,
    refused,
    run,
    s3_shown,
    until,
    whole,
)  # fmt: skip
from tests.mountable import needs_mount_points
from tests.servers.faults import Error, FaultyS3, Reset
from tests.servers.s3 import S3Server

pytestmark = needs_mount_points


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A store that tests change, each in a skill of its own, and where it is shown; listings are old soon."""
    folder = tmp_path_factory.mktemp("changing")
    store = write(folder / "store", {"other/SKILL.md": skill_md("other")})
    fs = SkillFileSystem(store, index=":memory:", max_age=0.2)
    with mounted(fs, folder / "mount") as at:
        yield store, at


@pytest.fixture
def changing(place: tuple[Path, Path], request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """The folder of a skill that is a test's own: in the store, and at the mount point."""
    name = request.node.name.replace("[", "-").removesuffix("]")
    store, at = place
    write(store / name, {"SKILL.md": skill_md(name), "a.txt": "first", "deep/b.txt": "b"})
    until(lambda: name in names(at))
    return store / name, at / name


def swap(path: Path, text: str | bytes) -> None:
    """Replace a file as an editor does."""
    beside = path.parent.parent / "beside"  # in no skill
    beside.write_bytes(text.encode() if isinstance(text, str) else text)
    beside.rename(path)


@pytest.mark.parametrize("text", ["other", "longer than before", "1", ""])
@pytest.mark.parametrize("way", [swap, Path.write_text])
def test_the_next_reading_is_of_what_is_there(
    changing: tuple[Path, Path], way: Callable[[Path, str], object], text: str
) -> None:
    store, at = changing
    for _ in range(3):
        assert whole(at / "a.txt") == "first"
        os.stat(at / "a.txt")
        way(store / "a.txt", text)
        assert whole(at / "a.txt") == text
        assert os.stat(at / "a.txt").st_size == len(text)
        way(store / "a.txt", "first")


def test_a_look_is_no_older_than_the_kernel_keeps_it(changing: tuple[Path, Path]) -> None:
    store, at = changing
    for size in (1, 1000, 3):
        os.stat(at / "a.txt")
        swap(store / "a.txt", "x" * size)
        time.sleep(KEPT)
        found = os.stat(at / "a.txt")
        assert (found.st_size, found.st_mtime_ns) == (size, os.stat(store / "a.txt").st_mtime_ns)


def test_what_is_gone_and_comes_back(changing: tuple[Path, Path]) -> None:
    store, at = changing
    number = os.stat(at / "a.txt").st_ino
    (store / "a.txt").unlink()
    time.sleep(KEPT)
    assert refused(lambda: os.stat(at / "a.txt")) == errno.ENOENT
    assert refused(lambda: whole(at / "a.txt")) == errno.ENOENT
    until(lambda: "a.txt" not in names(at))
    (store / "a.txt").write_text("again")
    assert whole(at / "a.txt") == "again"
    assert os.stat(at / "a.txt").st_ino == number
    until(lambda: "a.txt" in names(at))


def test_opening_what_is_gone_fails_though_the_kernel_believes_it_is_there(
    changing: tuple[Path, Path],
) -> None:
    store, at = changing
    assert whole(at / "a.txt") == "first"
    (store / "a.txt").unlink()
    assert refused(lambda: whole(at / "a.txt")) == errno.ENOENT


def test_a_new_file_and_a_new_folder(changing: tuple[Path, Path]) -> None:
    store, at = changing
    assert names(at) == ["SKILL.md", "a.txt", "deep"]
    write(store, {"new.md": "new", "fresh/deeper/x.md": "x"})
    assert whole(at / "new.md") == "new"
    assert whole(at / "fresh/deeper/x.md") == "x"
    until(lambda: names(at) == ["SKILL.md", "a.txt", "deep", "fresh", "new.md"])
    shutil.rmtree(store / "fresh")
    until(lambda: names(at) == ["SKILL.md", "a.txt", "deep", "new.md"])
    time.sleep(KEPT)
    assert refused(lambda: os.stat(at / "fresh/deeper/x.md")) == errno.ENOENT


def test_a_file_becomes_a_folder_and_a_file_again(changing: tuple[Path, Path]) -> None:
    store, at = changing
    for _ in range(2):
        assert whole(at / "a.txt") == "first"
        (store / "a.txt").unlink()
        write(store, {"a.txt/inner.md": "inner"})
        time.sleep(KEPT)
        assert whole(at / "a.txt/inner.md") == "inner"
        assert names(at / "a.txt") == ["inner.md"]
        assert refused(lambda: whole(at / "a.txt")) == errno.EISDIR
        shutil.rmtree(store / "a.txt")
        (store / "a.txt").write_text("first")
        time.sleep(KEPT)
        assert refused(lambda: whole(at / "a.txt/inner.md")) == errno.ENOTDIR


def test_a_file_becomes_a_link_and_the_other_way_round(changing: tuple[Path, Path]) -> None:
    store, at = changing
    assert whole(at / "a.txt") == "first"
    (store / "a.txt").unlink()
    (store / "a.txt").symlink_to("deep/b.txt")
    time.sleep(KEPT)
    assert os.readlink(at / "a.txt") == "deep/b.txt"
    assert whole(at / "a.txt") == "b"
    (store / "a.txt").unlink()
    (store / "a.txt").symlink_to("/etc/hostname")
    time.sleep(KEPT)
    assert refused(lambda: os.lstat(at / "a.txt")) == errno.ENOENT
    (store / "a.txt").unlink()
    (store / "a.txt").write_text("a file")
    time.sleep(KEPT)
    assert whole(at / "a.txt") == "a file"


def test_a_folder_is_renamed(changing: tuple[Path, Path]) -> None:
    store, at = changing
    number = os.stat(at / "deep").st_ino
    with opened(at / "deep/b.txt") as fd:
        (store / "deep").rename(store / "deeper")
        assert os.pread(fd, 10, 0) == b"b"
        assert whole(at / "deeper/b.txt") == "b"
        time.sleep(KEPT)
        assert refused(lambda: os.stat(at / "deep/b.txt")) == errno.ENOENT
        until(lambda: names(at) == ["SKILL.md", "a.txt", "deeper"])
        assert os.stat(at / "deeper").st_ino == number


def test_two_folders_change_places(changing: tuple[Path, Path]) -> None:
    store, at = changing
    write(store, {"one/x.md": "one", "two/x.md": "the other"})
    for first, second in (("one", "the other"), ("the other", "one"), ("one", "the other")):
        assert (whole(at / "one/x.md"), whole(at / "two/x.md")) == (first, second)
        (store / "one").rename(store / "three")
        (store / "two").rename(store / "one")
        (store / "three").rename(store / "two")


def test_a_skill_that_is_none_any_more(changing: tuple[Path, Path]) -> None:
    store, at = changing
    text = (store / "SKILL.md").read_text()
    for _ in range(2):
        assert whole(at / "deep/b.txt") == "b"
        (store / "SKILL.md").rename(store / "skill.md")
        time.sleep(KEPT)
        for work in (
            lambda: whole(at / "deep/b.txt"), lambda: os.stat(at / "a.txt"), lambda: os.listdir(at / "deep"),
            lambda: whole(at / "SKILL.md"), lambda: os.stat(at / "skill.md"),
        ):  # fmt: skip
            assert refused(work) == errno.ENOENT
        until(lambda: at.name not in names(at.parent))
        (store / "skill.md").rename(store / "SKILL.md")
        assert whole(at / "deep/b.txt") == "b"
        assert whole(at / "SKILL.md") == text
        until(lambda: at.name in names(at.parent))


def test_a_skill_in_folders_that_held_none_is_found_by_its_path(place: tuple[Path, Path]) -> None:
    store, at = place
    write(store, {"hollow/deep/er/loose.md": "loose", "hollow/other/x.md": "x"})
    assert refused(lambda: os.stat(at / "hollow/deep/er/loose.md")) == errno.ENOENT
    assert "hollow" not in names(at)
    # Of the folders in which nothing happens nobody can see that there is a skill below now.
    write(store, {"hollow/deep/er/SKILL.md": skill_md("er")})
    until(lambda: os.path.exists(at / "hollow/deep/er/loose.md"))
    assert whole(at / "hollow/deep/er/loose.md") == "loose"
    assert names(at / "hollow") == ["deep"]


def test_an_open_file_is_one_version_or_stale(changing: tuple[Path, Path]) -> None:
    store, at = changing
    old, new = b"old" * 100_000, b"new" * 100_001
    for way in (swap, Path.write_bytes):
        (store / "a.txt").write_bytes(old)
        with opened(at / "a.txt") as fd:
            assert os.pread(fd, 1000, 0) == old[:1000]
            way(store / "a.txt", new)
            os.stat(at / "a.txt")
            with opened(at / "a.txt") as other:
                for place in (0, 150_000, 299_990, 250_000):
                    assert os.pread(other, 5000, place) == new[place : place + 5000]
                    try:
                        assert os.pread(fd, 5000, place) == old[place : place + 5000]
                    except OSError as error:
                        assert error.errno == errno.ESTALE  # noqa: PT017  # either is right
        assert whole(at / "a.txt") == new.decode()


def test_what_is_appended_is_there_and_nothing_else(changing: tuple[Path, Path]) -> None:
    store, at = changing
    text = ""
    for number in range(20):
        more = f"line {number}\n" * 300
        with (store / "log.txt").open("a") as file:
            file.write(more)
        text += more
        assert whole(at / "log.txt") == text
        assert run("tail", "-n", "1", at / "log.txt") == f"line {number}\n"


def version(number: int) -> bytes:
    """A content that says which it is, and how long, from any stretch of it."""
    unit = b"%07d|" % number
    return unit * (1 + number * 7919 % 40_000)


READ_VERSIONS = """
import errno, os, select, sys, time
path, way = sys.argv[1:]
done = stale = 0
def version(number):
    return (b"%07d|" % number) * (1 + number * 7919 % 40_000)
while not select.select([sys.stdin], [], [], 0)[0]:
    if way == "stat":
        os.stat(path)
        done += 1
        continue
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as error:
        assert error.errno == errno.ESTALE, error
        stale += 1
        continue
    parts = []
    try:
        while part := os.read(fd, int(way)):
            parts.append(part)
    except OSError as error:
        assert error.errno == errno.ESTALE, error
        stale += 1
        continue
    finally:
        os.close(fd)
    data = b"".join(parts)
    assert data == version(int(data[:7])), (data[:16], data[-16:], len(data), len(version(int(data[:7]))))
    done += 1
print(done, stale)
"""


def read_while_replaced(store: Path, at: Path, seconds: float) -> list[tuple[int, int]]:
    """Replace a file time and again while others read it and look at it: readings and refusals of each."""
    swap(store / "a.txt", version(0))
    assert whole(at / "a.txt").encode() == version(0)
    pauses = random.Random(1)
    return read_versions(
        at / "a.txt",
        (4096, 65_536, 1_000_000, "stat"),
        lambda number: (
            swap(store / "a.txt", version(number)),
            time.sleep(pauses.choice([0, 0.001, 0.01, 0.05])),
        ),
        seconds,
    )


def read_versions(
    path: Path, ways: tuple[object, ...], put: Callable[[int], object], seconds: float
) -> list[tuple[int, int]]:
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(python(READ_VERSIONS, path, way)) for way in ways]
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end:
            number += 1
            put(number)
        told = []
        for process in processes:
            answer, _ = process.communicate(timeout=60)
            assert process.returncode == 0
            done, stale = answer.split()
            told.append((int(done), int(stale)))
        return told


def test_no_reader_sees_half_of_a_version(changing: tuple[Path, Path]) -> None:
    told = read_while_replaced(*changing, seconds=1.5)
    assert all(done for done, _ in told), told


@pytest.mark.soak
def test_no_reader_sees_half_of_a_version_for_long(changing: tuple[Path, Path]) -> None:
    read_while_replaced(*changing, seconds=60)


MAPPED_WHILE_REPLACED = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
memory = mmap.mmap(fd, 0, int(sys.argv[2]), mmap.PROT_READ)
print(memory[0:4].decode(), flush=True)
for line in sys.stdin:
    print("".join(sorted({memory[at : at + 4].decode() for at in range(0, len(memory), 4096)})), flush=True)
"""


@pytest.mark.parametrize("flags", [mmap.MAP_SHARED, mmap.MAP_PRIVATE], ids=["shared", "private"])
def test_mapped_memory_of_a_file_that_is_replaced(changing: tuple[Path, Path], flags: int) -> None:
    store, at = changing
    (store / "a.txt").write_text("old!" * 300_000)
    with python(MAPPED_WHILE_REPLACED, at / "a.txt", flags) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"old!\n"
        swap(store / "a.txt", "new!" * 400_000)
        assert whole(at / "a.txt") == "new!" * 400_000
        told, _ = process.communicate(b"\n", timeout=60)
    assert told in (b"old!\n", b"")
    assert process.returncode == (0 if told else -signal.SIGBUS)


def test_new_listings_within_two_seconds(tmp_path: Path) -> None:
    store = write(tmp_path / "store", {"a/SKILL.md": skill_md("a")})
    with mounted(SkillFileSystem(store, index=":memory:"), tmp_path / "mount") as at:
        assert names(at) == ["a"]
        write(store, {"b/SKILL.md": skill_md("b"), "a/new.md": "new"})
        until(lambda: names(at) == ["a", "b"] and names(at / "a") == ["SKILL.md", "new.md"], 8)
        assert whole(at / "b/SKILL.md") == skill_md("b")


# -- what changes in a bucket ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[Shown]:
    """A bucket that tests change; listings are old soon."""
    with s3_shown(
        tmp_path_factory.mktemp("remote"), s3_server, {"a/SKILL.md": skill_md("a")}, {}, max_age=0.3
    ) as made:
        yield made


@pytest.fixture
def object_of(remote: Shown, request: pytest.FixtureRequest) -> str:
    """The path of an object that is a test's own."""
    name = f"a/{request.node.name}.txt"
    remote.put(name, "first")
    until(lambda: os.path.exists(remote.at / name))
    return name


def test_the_next_reading_of_an_object(remote: Shown, object_of: str) -> None:
    for text in ("other", "longer than before", "1", "", "first"):
        os.stat(remote.at / object_of)
        remote.put(object_of, text)
        assert whole(remote.at / object_of) == text
        assert os.stat(remote.at / object_of).st_size == len(text)


def test_an_object_that_is_replaced_while_it_is_open(remote: Shown, object_of: str) -> None:
    old, new = b"old!" * 1_000_000, b"new!" * 1_000_001
    remote.put(object_of, old)
    with opened(remote.at / object_of) as fd:
        assert os.pread(fd, 1000, 0) == old[:1000]
        remote.put(object_of, new)
        with opened(remote.at / object_of) as other:
            assert os.fstat(other).st_size == len(new)
            for place in (0, 3_900_000, 1_000_000, 3_999_990):
                assert os.pread(other, 5000, place) == new[place : place + 5000]
                try:
                    assert os.pread(fd, 5000, place) == old[place : place + 5000]
                except OSError as error:
                    assert error.errno == errno.ESTALE  # noqa: PT017  # either is right
    assert whole(remote.at / object_of) == new.decode()


def test_an_object_that_is_removed_and_made_again(remote: Shown, object_of: str) -> None:
    assert whole(remote.at / object_of) == "first"
    remote.remove(object_of)
    assert refused(lambda: whole(remote.at / object_of)) == errno.ENOENT
    time.sleep(KEPT)
    assert refused(lambda: os.stat(remote.at / object_of)) == errno.ENOENT
    assert os.path.basename(object_of) not in names(remote.at / "a")
    remote.put(object_of, "again")
    until(lambda: os.path.basename(object_of) in names(remote.at / "a"))
    assert whole(remote.at / object_of) == "again"


def test_no_reader_sees_half_of_an_object(remote: Shown, object_of: str) -> None:
    remote.put(object_of, version(0))
    assert whole(remote.at / object_of).encode() == version(0)
    told = read_versions(
        remote.at / object_of,
        (4096, 200_000, "stat"),
        lambda number: (remote.put(object_of, version(number)), time.sleep(0.02)),
        1.5,
    )
    assert all(done for done, _ in told), told


def test_a_new_skill_in_a_bucket(remote: Shown) -> None:
    remote.put("new/SKILL.md", skill_md("new"))
    until(lambda: "new" in names(remote.at))
    assert whole(remote.at / "new/SKILL.md") == skill_md("new")
    remote.remove("new/SKILL.md")
    until(lambda: "new" not in names(remote.at))


# -- anything at all ---------------------------------------------------------------------------------------

FOLDERS = ("p", "p/q", "p/q/r", "s")
FILES = ("SKILL.md", "x.md", "y.md")


def readable(store: Path, path: str) -> bytes | None:
    """What is in a file that is in a skill; None where there is none."""
    file = store / path
    if not any((above / "SKILL.md").is_file() for above in file.parents if above.is_relative_to(store)):
        return None
    return file.read_bytes() if file.is_file() else None


def change(store: Path, pick: random.Random, number: int) -> None:
    """Something happens in a store: files and folders are written, removed, renamed and exchanged."""
    folder = store / pick.choice(FOLDERS)
    file, other = folder / pick.choice(FILES), store / pick.choice(FOLDERS) / pick.choice(FILES)
    with contextlib.suppress(OSError):
        match pick.randrange(7):
            case 0 | 1:
                folder.mkdir(parents=True, exist_ok=True)
                beside = store.parent / "beside"
                beside.write_text(f"{number} {file.name}\n" * pick.choice([1, 10, 1000]))
                beside.rename(file)
            case 2:
                folder.mkdir(parents=True, exist_ok=True)
                file.write_text(f"{number} in place\n")
            case 3:
                file.unlink()
            case 4:
                file.rename(other)
            case 5:
                folder.rename(store / pick.choice(FOLDERS))
            case 6:
                shutil.rmtree(folder)


def shows_whatever_happens(folder: Path, seed: int, steps: int) -> None:
    store = write(folder / "store", {"p/SKILL.md": "1", "s/SKILL.md": "2"})
    pick = random.Random(seed)
    every = [f"{above}/{name}" for above in FOLDERS for name in FILES]

    def read(path: str) -> bytes | None:
        try:
            return whole(at / path).encode()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ESTALE):
                raise
            return None

    with mounted(SkillFileSystem(store, index=":memory:", max_age=0.2), folder / "mount") as at:
        for number in range(steps):
            change(store, pick, number)
            for path in pick.sample(every, 3):
                found, there = read(path), readable(store, path)
                if found is None and there is not None:
                    # The kernel may believe a little longer in what was; and where folders held no skill,
                    # there is one when they are checked next.
                    until(lambda path=path, there=there: read(path) == there)
                else:
                    assert found == there, (number, path)
            if pick.random() < 0.1:
                assert set(names(at)) <= {"p", "s"}
        for path in every:
            assert read(path) == readable(store, path), path

        def listed(top: Path) -> set[str]:
            found = (os.path.join(folder, name) for folder, _, files in os.walk(top) for name in files)
            return {os.path.relpath(path, top) for path in found}

        there = {path for path in listed(store) if readable(store, path) is not None}
        until(lambda: listed(at) == there)


def test_whatever_happens_is_shown(tmp_path: Path) -> None:
    shows_whatever_happens(tmp_path, 1, 150)


@pytest.mark.soak
def test_whatever_happens_is_shown_for_long(tmp_path: Path) -> None:
    for seed in range(2, 40):
        shows_whatever_happens(tmp_path / str(seed), seed, 400)


# -- what goes away ----------------------------------------------------------------------------------------


def test_a_store_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    store = write(tmp_path / "store", {"a/SKILL.md": skill_md("a"), "a/x.md": "x"})
    other = write(tmp_path / "other", {"b/SKILL.md": skill_md("b")})
    fs = SkillFileSystem({"one": store, "two": other}, index=":memory:", max_age=0.2)
    with mounted(fs, tmp_path / "mount") as at:
        assert names(at / "one/a") == ["SKILL.md", "x.md"]
        store.rename(tmp_path / "away")
        time.sleep(0.3)
        for work in (
            lambda: os.stat(at / "one/a/x.md"), lambda: whole(at / "one/a/x.md"),
            lambda: os.listdir(at / "one/a"), lambda: os.listdir(at / "one"),
            lambda: os.stat(at / "one/a/no-such"),
        ):  # fmt: skip
            assert refused(work) == errno.EIO
        assert names(at) == ["one", "two"]
        assert whole(at / "two/b/SKILL.md") == skill_md("b")
        (tmp_path / "away").rename(store)
        until(lambda: os.path.exists(at / "one/a/x.md"))
        assert whole(at / "one/a/x.md") == "x"
        assert names(at / "one") == ["a"]


def goes_away(tmp_path: Path, faulty: FaultyS3, server: S3Server, fault: object) -> None:
    tree = {"a/SKILL.md": skill_md("a"), "a/x.md": "x", "a/y.md": "y" * 3_000_000}
    with s3_shown(tmp_path, server, tree, {}, target_options=faulty.target_options) as shown:
        at = shown.at / "a"
        assert whole(at / "x.md") == "x"
        with opened(at / "y.md") as fd:
            assert os.pread(fd, 10, 0) == b"y" * 10
            faulty.add(fault)  # type: ignore[arg-type]
            assert refused(lambda: whole(at / "x.md")) == errno.EIO
            assert refused(lambda: os.pread(fd, 10, 2_500_000)) == errno.EIO
            # What the last listing says is told on.
            assert names(at) == ["SKILL.md", "x.md", "y.md"]
            assert os.stat(at / "x.md").st_size == 1
            faulty.rules.clear()
            assert whole(at / "x.md") == "x"
            assert os.pread(fd, 10, 2_500_000) == b"y" * 10


def test_a_bucket_that_goes_away_and_comes_back(
    tmp_path: Path, faulty: FaultyS3, s3_server: S3Server
) -> None:
    goes_away(tmp_path, faulty, s3_server, Error(400, "InvalidRequest"))


@pytest.mark.soak
def test_a_bucket_that_nobody_answers_for(tmp_path: Path, faulty: FaultyS3, s3_server: S3Server) -> None:
    goes_away(tmp_path, faulty, s3_server, Reset())
