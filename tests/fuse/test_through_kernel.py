"""Reading through the kernel: by many at once, anywhere, in memory; of a store, of several, of a snapshot."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillfs import SkillFileSystem
from tests.conftest import skill_md, write
from tests.fuse.mounted import (
    SIZES,
    TREE,
    Shown,
    blob,
    mounted,
    opened,
    python,
    refused,
    run,
    s3_shown,
    whole,
)  # fmt: skip
from tests.mountable import needs_mount_points
from tests.servers.s3 import S3Server

pytestmark = needs_mount_points


# -- reading -----------------------------------------------------------------------------------------------

READ_ANYWHERE = """
import os, random, sys
path, source, seed = sys.argv[1:]
data = open(source, "rb").read()
fd = os.open(path, os.O_RDONLY)
pick = random.Random(int(seed))
for _ in range(60):
    at, length = pick.randrange(len(data) + 10), pick.choice([1, 7, 4096, 5000, 131072, 200000])
    assert os.pread(fd, length, at) == data[at : at + length], (at, length)
"""


def test_many_read_at_once(shown: Shown) -> None:
    name = f"sizes/{SIZES[-1]:07}.bin"
    data = blob(SIZES[-1])
    bad: list[object] = []

    def read(seed: int, fd: int) -> None:
        pick = random.Random(seed)
        for _ in range(60):
            at, length = pick.randrange(len(data) + 10), pick.choice([1, 7, 4096, 5000, 131072])
            if os.pread(fd, length, at) != data[at : at + length]:
                bad.append((at, length))

    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(python(READ_ANYWHERE, shown.at / name, shown.source / name, seed))
            for seed in range(8)
        ]
        one, other = (stack.enter_context(opened(shown.at / name)) for _ in range(2))
        threads = [threading.Thread(target=read, args=(seed, (one, other)[seed % 2])) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not bad
        for process in processes:
            process.communicate(timeout=60)
            assert process.returncode == 0


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(SIZES),
    st.lists(st.tuples(st.integers(0, SIZES[-1] + 5000), st.integers(0, 200_000)), min_size=1, max_size=8),
)
def test_any_offset_and_length(shown: Shown, size: int, readings: list[tuple[int, int]]) -> None:
    data = blob(size)
    with opened(shown.at / f"sizes/{size:07}.bin") as fd:
        for at, length in readings:
            assert os.pread(fd, length, at) == data[at : at + length]


MAPPED = """
import hashlib, mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
    with mmap.mmap(fd, 0, flags, mmap.PROT_READ) as whole:
        print(hashlib.md5(whole).hexdigest(), whole[131_060:131_090].hex())
"""


def test_mapped_memory(shown: Shown) -> None:
    # In a process of its own: a page that is not there yet is waited for with Python's lock held, and the S3
    # of the tests answers from this one.
    data = blob(SIZES[-1])
    with python(MAPPED, shown.at / f"sizes/{SIZES[-1]:07}.bin") as process:
        told, _ = process.communicate(timeout=60)
    line = f"{hashlib.md5(data).hexdigest()} {data[131_060:131_090].hex()}\n"
    assert told.decode() == line * 2


def test_one_version_is_mapped_by_several(shown: Shown) -> None:
    data = blob(SIZES[-1])
    path = shown.at / f"sizes/{SIZES[-1]:07}.bin"
    with contextlib.ExitStack() as stack:
        stack.enter_context(opened(path))
        processes = [stack.enter_context(python(MAPPED, path)) for _ in range(3)]
        for process in processes:
            told, _ = process.communicate(timeout=60)
            assert told.decode().count(hashlib.md5(data).hexdigest()) == 2


def test_attributes_of_an_open_file(shown: Shown) -> None:
    for size in SIZES:
        with opened(shown.at / f"sizes/{size:07}.bin") as fd:
            assert os.fstat(fd).st_size == size
            assert os.lseek(fd, 0, os.SEEK_END) == size
            assert os.read(fd, 10) == b""


def test_extended_attributes(shown: Shown) -> None:
    name = "pdf/references/große Übersicht.md"
    data = (shown.source / name).read_bytes()
    wanted = {
        "uuid": shown.fs.entry(name).uuid,
        "skill": shown.fs.entry("pdf").uuid,
        "md5": hashlib.md5(data).hexdigest(),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    for fact, value in wanted.items():
        assert os.getxattr(shown.at / name, f"user.skillfs.{fact}").decode() == value
    assert os.listxattr(shown.at / name) == [f"user.skillfs.{fact}" for fact in wanted]
    assert os.listxattr(shown.at / "pdf") == ["user.skillfs.uuid", "user.skillfs.skill"]
    assert os.listxattr(shown.at / "office") == ["user.skillfs.uuid"]
    assert os.listxattr(shown.at) == ["user.skillfs.uuid", "user.skillfs.server"]
    with opened(shown.at / name) as fd:
        assert os.getxattr(fd, "user.skillfs.uuid").decode() == wanted["uuid"]
    for other in ("user.skillfs.other", "security.capability", "user.x", "system.posix_acl_access"):
        assert refused(lambda other=other: os.getxattr(shown.at / name, other)) in (
            errno.ENODATA,
            errno.EOPNOTSUPP,
        )


def test_where_it_comes_from_is_told_by_nothing(shown: Shown) -> None:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    (line,) = [line for line in lines if f" {shown.at} " in line]
    before, _, after = line.partition(" - ")
    assert after.split()[:2] == ["fuse.skillfs", "skillfs"]
    assert {"ro", "nosuid", "nodev"} <= set(before.split()[5].split(","))
    assert "pid" in json.loads(os.getxattr(shown.at, "user.skillfs.server"))


def test_totals(shown: Shown) -> None:
    told = os.statvfs(shown.at)
    assert told.f_files == len(TREE)
    assert told.f_bfree == told.f_bavail == told.f_ffree == 0
    assert told.f_flag & os.ST_RDONLY


# -- large files -------------------------------------------------------------------------------------------

MIB, GIB = 1 << 20, 1 << 30


PLACES = [0, 1, 4095, MIB - 3, GIB // 2 - 1, GIB - 9]


def large_file(folder: Path) -> tuple[Path, Path]:
    """A store, and a file of it that is all zeros but for some places."""
    store = write(folder / "store", {"a/SKILL.md": skill_md("a"), "a/large.bin": b""})
    with (store / "a/large.bin").open("r+b") as file:
        file.truncate(GIB)
        for place in PLACES:
            os.pwrite(file.fileno(), f"<{place % 9_999_999:7}".encode(), place)
    return store, store / "a/large.bin"


def test_a_file_of_a_gibibyte(tmp_path: Path) -> None:
    store, path = large_file(tmp_path)
    with mounted(SkillFileSystem(store, index=tmp_path / "index"), tmp_path / "mount") as at:
        large = at / "a/large.bin"
        assert large.stat().st_size == GIB
        with opened(large) as fd, opened(path) as source:
            for place in [*PLACES, 123_456_789, GIB - 1, GIB]:
                for before in (0, 3, 5000):
                    start = max(0, place - before)
                    assert os.pread(fd, 9000, start) == os.pread(source, 9000, start)
        assert run("cmp", "-i", GIB - 100 * MIB, large, path) == ""


@pytest.mark.soak
def test_the_whole_of_a_file_of_a_gibibyte(tmp_path: Path) -> None:
    store, path = large_file(tmp_path)
    with mounted(SkillFileSystem(store, index=tmp_path / "index"), tmp_path / "mount") as at:
        assert run("md5sum", at / "a/large.bin").split()[0] == run("md5sum", path).split()[0]
        assert run("cmp", at / "a/large.bin", path) == ""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server) -> Iterator[Shown]:
    """An object of 64 MiB."""
    tree = {"a/SKILL.md": skill_md("a"), "a/large.bin": random.Random(1).randbytes(MIB) * 64}
    with s3_shown(tmp_path_factory.mktemp("large"), s3_server, tree, {}) as made:
        yield made


def test_a_large_object_from_its_beginning_to_its_end(large: Shown, s3_server: S3Server) -> None:
    with s3_server.recorded() as requests:
        told = run("md5sum", large.at / "a/large.bin").split()[0]
    assert told == hashlib.md5((large.source / "a/large.bin").read_bytes()).hexdigest()
    assert {request.operation for request in requests} == {"GetObject"}
    assert len(requests) < 24
    assert requests.sent < 72 * MIB


def test_a_large_object_here_and_there(large: Shown, s3_server: S3Server) -> None:
    pick = random.Random(2)
    with opened(large.at / "a/large.bin") as fd, opened(large.source / "a/large.bin") as source:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for _ in range(8):
            place = pick.randrange(MIB, 63 * MIB)
            with s3_server.recorded() as requests:
                assert os.pread(fd, 1000, place) == os.pread(source, 1000, place)
            assert requests.counts in ({}, {"GetObject": 1})
            assert requests.sent <= 256 << 10


# -- large folders -----------------------------------------------------------------------------------------


def test_a_folder_that_is_read_in_many_pieces(tmp_path: Path) -> None:
    sizes = {f"{number:04}{'n' * (number * 7 % 200)}": number % 50 for number in range(1500)}
    files = {f"a/{name}": "x" * size for name, size in sizes.items()}
    store = write(tmp_path / "store", {"a/SKILL.md": "", **files})
    sizes["SKILL.md"] = 0
    with mounted(SkillFileSystem(store, index=":memory:"), tmp_path / "mount") as at:
        assert {entry.name: entry.stat().st_size for entry in os.scandir(at / "a")} == sizes
        assert os.listdir(at / "a") == sorted(sizes)
        with opened(at / "a") as fd:
            assert os.listdir(fd) == os.listdir(fd) == sorted(sizes)  # from its beginning each time
        # Several read one folder, each its own list, while another is in it.
        with contextlib.ExitStack() as stack:
            lists = [stack.enter_context(os.scandir(at / "a")) for _ in range(3)]
            found: list[list[str]] = [[] for _ in lists]
            for _ in range(len(sizes)):
                for names, entries in zip(found, lists, strict=True):
                    names.append(next(entries).name)
            assert found == [sorted(sizes)] * 3


# -- several, then, and less -------------------------------------------------------------------------------


def test_several_stores_by_name(tmp_path: Path, s3_server: S3Server) -> None:
    one = write(tmp_path / "one", {"a/SKILL.md": skill_md("a")})
    bucket = s3_server.new_bucket()
    bucket.seed({"b/SKILL.md": skill_md("b")})
    stores = {"disk": one, "bucket": {"store": bucket.url, "target_options": s3_server.target_options}}
    fs = SkillFileSystem(stores, index=":memory:")
    with mounted(fs, tmp_path / "mount") as at:
        found = run("find", at, "-type", "f", "-printf", r"%P\n").split()
        assert sorted(found) == ["bucket/b/SKILL.md", "disk/a/SKILL.md"]
        assert whole(at / "bucket/b/SKILL.md") == skill_md("b")
        assert refused(lambda: os.stat(at / "other")) == errno.ENOENT
        for path in ("", "disk", "bucket/b"):
            assert os.stat(at / path).st_ino == fs.info(path)["id"]


def test_a_snapshot(tmp_path: Path) -> None:
    store = write(tmp_path / "store", {"a/SKILL.md": skill_md("a"), "a/x.md": "x", "a/run.sh": "#!/bin/sh\n"})
    (store / "a/run.sh").chmod(0o755)
    (store / "a/link").symlink_to("x.md")
    options = {"index": ":memory:", "objects": tmp_path / "objects"}
    shutil.copytree(store, tmp_path / "then", symlinks=True)
    SkillFileSystem(store, **options).snapshot("then")
    write(store, {"a/x.md": "another", "a/new.md": "new"})
    with mounted(SkillFileSystem(store, at="then", **options), tmp_path / "mount") as at:
        assert run("diff", "-r", "--no-dereference", tmp_path / "then", at) == ""
        assert os.access(at / "a/run.sh", os.X_OK)
        assert os.getxattr(at / "a/x.md", "user.skillfs.md5") == hashlib.md5(b"x").hexdigest().encode()
        shutil.rmtree(store)
        assert run("diff", "-r", "--no-dereference", tmp_path / "then", at) == ""
