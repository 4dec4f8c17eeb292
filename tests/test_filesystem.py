"""The fsspec face: every method, every way to get an instance, and sharing between threads and processes."""

from __future__ import annotations

import errno
import gc
import json
import multiprocessing
import os
import pickle
import threading
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest
from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.chained import ChainedFileSystem

from skillfs import (
    InvalidArgumentError,
    IsFileError,
    IsFolderError,
    NotFoundError,
    ReadOnlyError,
    SkillFileSystem,
    SkillFSError,
)
from tests.conftest import skill_md, write

Open = Callable[..., SkillFileSystem]

TEXT = "0123456789\nabc\nlast line"


@pytest.fixture
def store(root: Path) -> Path:
    return write(
        root,
        {
            "a/SKILL.md": skill_md("a"), "a/t.md": TEXT, "a/refs/x.md": "x", "a/refs/deep/y.md": "yy",
            "a/empty": b"", "a/odd [1]/*.md": "star", "b/SKILL.md": skill_md("b"), "stray.md": "stray",
        },
    )  # fmt: skip


A = ["a/SKILL.md", "a/empty", "a/odd [1]/*.md", "a/refs/deep/y.md", "a/refs/x.md", "a/t.md"]


# -- every method --------------------------------------------------------------------------------------------

OWN = {
    "head", "tail",
    "info", "exists", "lexists", "isdir", "isfile", "ls", "find", "cat_file", "cat_ranges", "open", "created",
    "modified", "ukey", "checksum", "fsid", "invalidate_cache", "sign", "walk",
}  # fmt: skip
DERIVED = {
    # from the methods above, which fsspec's own versions of these call
    "cat", "disk_usage", "download", "du", "expand_path", "get", "get_file", "get_mapper", "glob",
    "listdir", "read_block", "read_bytes", "read_text", "size", "sizes", "stat", "tree",
    # about instances, not files
    "clear_instance_cache", "current", "from_dict", "from_json", "mirror_sync_methods", "to_dict", "to_json",
    "unstrip_protocol",
    # attributes
    "async_impl", "blocksize", "cachable", "protocol", "root_marker", "sep",
}  # fmt: skip
REFUSED = {
    "copy", "cp", "cp_file", "delete", "end_transaction", "makedir", "makedirs", "mkdir", "mkdirs", "move",
    "mv", "pipe", "pipe_file", "put", "put_file", "rename", "rm", "rm_file", "rmdir", "start_transaction",
    "touch", "transaction", "upload", "write_bytes", "write_text",
}  # fmt: skip


def test_every_public_method_is_here_on_purpose() -> None:
    public = {name for name in dir(AbstractFileSystem) if not name.startswith("_")}
    assert public == OWN | DERIVED | REFUSED | {"transaction_type"}
    classes = SkillFileSystem.__mro__[: SkillFileSystem.__mro__.index(ChainedFileSystem)]
    own = {name for name in public if any(name in vars(c) for c in classes)}
    assert own == OWN | REFUSED | {"cachable", "protocol", "root_marker", "transaction_type"}


@pytest.mark.parametrize("name", sorted(REFUSED - {"transaction"}))
def test_whatever_would_write_is_refused(store: Path, open_fs: Open, name: str) -> None:
    fs = open_fs()
    before = sorted((p, p.stat().st_mtime_ns) for p in store.rglob("*"))
    for arguments in (("a/t.md", "a/u.md"), ("a/new", b"x"), ("a/t.md",), ()):
        with pytest.raises(ReadOnlyError) as caught:
            getattr(fs, name)(*arguments)
        assert caught.value.errno == errno.EROFS
        assert caught.value.code == "read_only"
    assert sorted((p, p.stat().st_mtime_ns) for p in store.rglob("*")) == before


@pytest.mark.parametrize("mode", ["w", "wb", "a", "ab", "x", "xb", "r+", "r+b", "w+b", "rb+", "", None, "q"])
def test_modes_that_write_are_refused(store: Path, open_fs: Open, mode: str) -> None:
    with pytest.raises(SkillFSError) as caught:
        open_fs().open("a/t.md", mode)
    assert caught.value.code in ("read_only", "invalid_argument")
    assert (store / "a/t.md").read_text() == TEXT


def test_transactions_are_refused(store: Path, open_fs: Open) -> None:
    fs = open_fs()
    with pytest.raises(ReadOnlyError), fs.transaction:
        pass
    with pytest.raises(NotImplementedError):
        fs.sign("a/t.md")
    assert not fs._intrans


# -- listing -------------------------------------------------------------------------------------------------


def test_ls_and_info(store: Path, open_fs: Open) -> None:
    fs = open_fs()
    assert fs.ls("", detail=False) == fs.ls("/", detail=False) == ["a", "b"]
    assert fs.ls("a", detail=False) == ["a/SKILL.md", "a/empty", "a/odd [1]", "a/refs", "a/t.md"]
    assert fs.ls("a/", detail=False) == fs.ls("/a", detail=False) == fs.ls("a", detail=False)
    assert fs.ls("a/t.md") == [fs.info("a/t.md")]
    for info in fs.ls("a"):
        assert info == fs.info(info["name"])
    info = fs.info("a/t.md")
    entry = fs.entry("a/t.md")
    assert (info["name"], info["size"], info["type"], info["kind"]) == ("a/t.md", len(TEXT), "file", "file")
    assert (info["id"], info["uuid"], info["hash"]) == (entry.id, entry.uuid, entry.hash)
    assert info["mtime"] == pytest.approx((store / "a/t.md").stat().st_mtime)
    assert (info["skill_folder_uuid"], info["islink"]) == (fs.entry("a").uuid, False)
    assert fs.info("")["type"] == fs.info("/")["type"] == "directory"
    assert (fs.info("")["name"], fs.info("a")["kind"], fs.info("a/refs")["kind"]) == ("", "skill", "folder")
    json.dumps(fs.ls("a"))
    for missing in ("stray.md", "nothing", "a/nothing", "nothing/at/all"):
        for call in (fs.ls, fs.info, fs.cat_file, fs.open, fs.size, fs.ukey, fs.created, fs.checksum):
            with pytest.raises(FileNotFoundError):
                call(missing)


def test_walk_find_glob_and_sizes(store: Path, open_fs: Open) -> None:
    fs = open_fs()
    assert fs.find("a") == fs.find("/a/") == A
    assert fs.find("a/refs", withdirs=True) == ["a/refs", "a/refs/deep", "a/refs/deep/y.md", "a/refs/x.md"]
    assert fs.find("a/refs", maxdepth=1) == ["a/refs/x.md"]
    assert fs.find("a/t.md") == ["a/t.md"]
    assert fs.find("nothing") == []
    assert fs.find("a", detail=True)["a/t.md"] == fs.info("a/t.md")
    with pytest.raises(ValueError, match="maxdepth"):
        fs.find("a", maxdepth=0)
    assert list(fs.walk("a/refs")) == [("a/refs", ["deep"], ["x.md"]), ("a/refs/deep", [], ["y.md"])]
    assert [top for top, _, _ in fs.walk("")] == ["", "a", "a/odd [1]", "a/refs", "a/refs/deep", "b"]
    assert list(fs.walk("nothing")) == []
    assert fs.glob("*/SKILL.md") == ["a/SKILL.md", "b/SKILL.md"]
    assert fs.glob("a/**/*.md") == [p for p in A if p.endswith(".md")]
    assert fs.glob("**/y.md") == ["a/refs/deep/y.md"]
    assert fs.glob("*/") == ["a", "b"]
    assert fs.glob("nothing*") == []
    assert fs.du("a/refs") == fs.disk_usage("a/refs") == 3
    assert fs.du("a/refs", total=False) == {"a/refs/deep/y.md": 2, "a/refs/x.md": 1}
    assert (fs.size("a/t.md"), fs.sizes(["a/t.md", "a/empty"])) == (len(TEXT), [len(TEXT), 0])
    assert fs.stat("a/t.md") == fs.info("a/t.md")
    assert fs.listdir("b", detail=False) == ["b/SKILL.md"]
    assert "t.md" in fs.tree("a")


def test_what_is_there_and_what_it_is(store: Path, open_fs: Open) -> None:
    fs = open_fs()
    table = {
        "": "folder", "/": "folder", "a": "folder", "a/": "folder", "/a/refs": "folder", "a/t.md": "file",
        "/a/t.md": "file", "skill://a/t.md": "file", "a/t.md/": None, "a//t.md": None, "..": None,
        "a/../b": None, "stray.md": None, "a/none": None, "a/\0": None, "x" * 5000: None,
        "http://x/y": None,
    }  # fmt: skip
    for path, kind in table.items():
        assert (fs.exists(path), fs.isdir(path), fs.isfile(path)) == (
            kind is not None,
            kind == "folder",
            kind == "file",
        ), path


def test_listings_of_one_call_and_the_next(store: Path, open_fs: Open) -> None:
    fs = open_fs(max_age=0)
    write(store, {"a/new.md": "new", "c/SKILL.md": skill_md("c")})
    assert fs.ls("", detail=False) == ["a", "b", "c"]
    assert "a/new.md" in fs.find("a")
    kept = open_fs(max_age=3600)
    write(store, {"d/SKILL.md": skill_md("d")})
    kept.invalidate_cache()
    assert kept.ls("", detail=False) == ["a", "b", "c", "d"]


# -- reading -------------------------------------------------------------------------------------------------


def test_the_many_ways_to_read(store: Path, open_fs: Open) -> None:
    fs = open_fs()
    data = TEXT.encode()
    assert fs.cat("a/t.md") == fs.cat_file("a/t.md") == fs.read_bytes("a/t.md") == data
    assert fs.cat_file("/a/t.md") == fs.cat_file("skill://a/t.md") == fs.cat_file(f"{store}/a/t.md") == data
    assert fs.cat(["a/t.md", "a/empty"]) == {"a/t.md": data, "a/empty": b""}
    assert fs.cat("a/refs", recursive=True, on_error="omit") == {
        "a/refs/deep/y.md": b"yy",
        "a/refs/x.md": b"x",
    }
    assert fs.read_text("a/t.md") == TEXT
    assert fs.head("a/t.md", 4) == data[:4]
    assert fs.tail("a/t.md", 4) == data[-4:]
    assert fs.read_block("a/t.md", 3, 5) == data[3:8]
    assert fs.read_block("a/t.md", 3, 10, delimiter=b"\n") == b"abc\n"
    assert fs.read_block("a/t.md", 0, None) == data
    for start, end in (
        (None, None),
        (2, 5),
        (-4, None),
        (None, -4),
        (-9, -4),
        (5, 5),
        (7, 2),
        (0, 10**30),
        (99, None),
    ):
        assert fs.cat_file("a/t.md", start, end) == data[start:end]
    with fs.open("a/t.md", "r") as file:
        assert file.readlines() == TEXT.splitlines(keepends=True)
    with fs.open("a/t.md", "rt", encoding="ascii", newline="") as file:
        assert file.read() == TEXT
    with fs.open("a/t.md") as file:
        assert list(file) == data.splitlines(keepends=True)
    write(store, {"a/t.gz": __import__("gzip").compress(data)})
    with fs.open("a/t.gz", compression="infer") as file:
        assert file.read() == data
    target = store.parent / "got"
    fs.get("a/refs", str(target), recursive=True)
    assert (target / "deep/y.md").read_text() == "yy"
    fs.download("a/t.md", str(target / "t"))
    assert (target / "t").read_bytes() == data


def test_cat_ranges(store: Path, open_fs: Open) -> None:
    fs = open_fs()
    paths = ["a/t.md", "a/none", "a", "a/../x", "a/empty"]
    results = fs.cat_ranges(paths, 0, 3)
    assert results[0] == b"012"
    assert [type(r) for r in results[1:4]] == [NotFoundError, IsFolderError, InvalidArgumentError]
    assert results[4] == b""
    assert fs.cat_ranges(["a/t.md"] * 3, [0, -4, None], [2, None, 1]) == [b"01", b"line", b"0"]
    with pytest.raises(NotFoundError):
        fs.cat_ranges(paths, 0, 3, on_error="raise")
    assert fs.cat_ranges([], [], []) == []
    for arguments in (("a/t.md", 0, 1), (["a/t.md"], [0, 1], [1]), (["a/t.md"], [0], [1, 2])):
        with pytest.raises(InvalidArgumentError):
            fs.cat_ranges(*arguments)


def test_names_that_fsspec_takes_for_patterns(store: Path, open_fs: Open) -> None:
    fs = open_fs()
    path = "a/odd [1]/*.md"
    assert fs.cat_file(path) == b"star"
    assert fs.info(path)["name"] == path
    assert fs.isfile(path)
    with fs.open(path) as file:
        assert file.read() == b"star"
    assert fs.ls("a/odd [1]", detail=False) == [path]


def test_keys_and_times(store: Path, open_fs: Open) -> None:
    fs = open_fs(max_age=3600)
    now = datetime.now(UTC)
    key, checksum, modified = fs.ukey("a/t.md"), fs.checksum("a/t.md"), fs.modified("a/t.md")
    assert modified.tzinfo is not None
    assert abs((modified - now).total_seconds()) < 60
    assert abs((fs.created("a/t.md") - now).total_seconds()) < 60
    assert fs.ukey("a/t.md") == key
    os.utime(store / "a/t.md", (1, 1))
    assert fs.ukey("a/t.md") != key
    assert fs.checksum("a/t.md") == checksum
    assert fs.modified("a/t.md") == datetime.fromtimestamp(1, UTC)
    write(store, {"a/t.md": "other"})
    assert fs.checksum("a/t.md") != checksum
    assert fs.modified("a").tzinfo is not None
    with pytest.raises(IsFolderError):
        fs.checksum("a")
    with pytest.raises(IsFileError):
        fs.info("a/t.md/")


def test_a_mapper(store: Path, open_fs: Open) -> None:
    mapper = open_fs().get_mapper("a/refs")
    assert dict(mapper) == {"x.md": b"x", "deep/y.md": b"yy"}
    with pytest.raises(KeyError):
        mapper["none"]
    with pytest.raises(ReadOnlyError):
        mapper["new"] = b"x"


# -- instances -----------------------------------------------------------------------------------------------


def test_by_protocol_and_url(store: Path) -> None:
    options: dict[str, Any] = {"store": str(store), "index": ":memory:"}
    fs = fsspec.filesystem("skill", **options)
    assert isinstance(fs, SkillFileSystem)
    assert fsspec.filesystem("skill", **options)._engine is fs._engine
    with fsspec.open("skill://a/t.md", "r", **options) as file:
        assert file.read() == TEXT
    opened, path = url_to_fs("skill://a/t.md", **options)
    assert (opened, path) == (fs, "a/t.md")
    files = fsspec.open_files("skill://*/SKILL.md", **options)
    assert [f.path for f in files] == ["a/SKILL.md", "b/SKILL.md"]
    assert fs.unstrip_protocol("a/t.md") == "skill://a/t.md"
    assert fs._strip_protocol(["skill://a/", "/a", "./a", f"{store}/a", f"file://{store}/a"]) == ["a"] * 5
    assert SkillFileSystem._strip_protocol("skill://a/b/") == "a/b"


@pytest.mark.parametrize("url", ["skill://a/t.md::file://{store}", "skill://a/t.md::local://{store}"])
def test_chained_urls(store: Path, url: str) -> None:
    with fsspec.open(url.format(store=store), skill={"index": ":memory:"}) as file:
        assert file.read() == TEXT.encode()


@pytest.mark.parametrize("url", ["skill::file://{store}", "skill://::file://{store}"])
def test_a_chained_url_without_a_path_is_the_root(store: Path, url: str) -> None:
    fs, path = url_to_fs(url.format(store=store), skill={"index": ":memory:"})
    assert fs.ls(path, detail=False) == ["a", "b"]
    assert fs.glob(f"{path}/*/t.md") == ["a/t.md"]
    mapper = fsspec.get_mapper(url.format(store=store), skill={"index": ":memory:"})
    assert mapper["a/t.md"] == TEXT.encode()


@pytest.mark.parametrize("url", ["skill::{target}", "skill://::{target}", "skill:///::{target}"])
@pytest.mark.parametrize("target", ["memory://{name}", "zip://in::file://{folder}/store.zip"])
def test_the_root_below_any_filesystem(tmp_path: Path, url: str, target: str) -> None:
    """fsspec hands the target's own path over, where the URL names none below it."""
    name = f"root-{uuid4()}"
    fsspec.filesystem("memory").pipe(f"/{name}/a/SKILL.md", b"text")
    with zipfile.ZipFile(tmp_path / "store.zip", "w") as archive:
        archive.writestr("in/a/SKILL.md", "text")
    whole = url.format(target=target.format(name=name, folder=tmp_path))
    options = {"skill": {"index": ":memory:"}}
    fs, path = url_to_fs(whole, **options)
    assert fs.ls(path, detail=False) == ["a"]
    assert fs.find(path) == ["a/SKILL.md"]
    assert fs.glob(f"{path}/*/SKILL.md") == ["a/SKILL.md"]
    assert dict(fsspec.get_mapper(whole, **options)) == {"a/SKILL.md": b"text"}
    fsspec.filesystem("memory").rm(f"/{name}", recursive=True)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "invalid_argument"),
        ({"store": 5}, "invalid_argument"),
        ({"store": b"/x"}, "invalid_argument"),
        ({"store": ""}, "invalid_argument"),
        ({"store": "{store}", "fo": "/elsewhere"}, "invalid_argument"),
        ({"store": "{store}", "max_age": -1}, "invalid_argument"),
        ({"store": "{store}", "max_age": True}, "invalid_argument"),
        ({"store": "{store}", "max_age": float("nan")}, "invalid_argument"),
        ({"store": "{store}", "store_id": "x"}, "invalid_argument"),
        ({"store": "{store}", "follow": "/x"}, "invalid_argument"),
        ({"store": "{store}", "index": 5}, "invalid_argument"),
        ({"store": "{store}", "index": ""}, "invalid_argument"),
        ({"store": "{store}", "colour": "red"}, "invalid_argument"),
        ({"store": "{store}", "writable": "yes"}, "invalid_argument"),
        ({"fo": "{store}", "target_protocol": "memory"}, "not_found"),
        ({"fo": "{store}", "target_protocol": "file", "target_options": {"anon": True}}, "invalid_argument"),
        ({"store": "{store}/none"}, "not_found"),
        ({"store": "{store}/stray.md"}, "is_file"),
    ],
    ids=repr,
)
def test_arguments_that_are_refused(store: Path, options: dict[str, Any], code: str) -> None:
    given = {k: v.replace("{store}", str(store)) if isinstance(v, str) else v for k, v in options.items()}
    with pytest.raises(SkillFSError) as caught:
        SkillFileSystem(**{"index": ":memory:", **given}, skip_instance_cache=True)
    assert caught.value.code == code
    if "colour" in options:
        assert "colour" in str(caught.value)


def test_an_empty_store(root: Path, open_fs: Open) -> None:
    fs = open_fs(max_age=0)
    assert fs.ls("") == fs.find("") == fs.skills() == []
    assert fs.exists("")
    assert fs.isdir("/")
    write(root, {"a/SKILL.md": skill_md("a")})
    assert fs.ls("", detail=False) == ["a"]
    assert open_fs(base_paths=[]).ls("") == []


def test_a_root_that_is_itself_a_skill(root: Path, open_fs: Open) -> None:
    write(root, {"SKILL.md": skill_md("top"), "x.md": "x", "in/SKILL.md": skill_md("in")})
    fs = open_fs()
    assert fs.find("") == ["SKILL.md", "in/SKILL.md", "x.md"]
    assert (fs.info("")["kind"], fs.entry("/").skill_path) == ("skill", "")
    assert fs.get_content("x.md").skill_folder_uuid == fs.entry("/").uuid
    confined = open_fs(base_paths=["in"])
    assert confined.find("") == ["in/SKILL.md"]
    assert confined.info("")["kind"] == "folder"
    with pytest.raises(NotFoundError):
        confined.get_content("x.md")


def test_json_and_pickle(store: Path, tmp_path: Path) -> None:
    fs = SkillFileSystem(store, index=str(tmp_path / "index.sqlite"), base_paths=["a"])
    for again in (pickle.loads(pickle.dumps(fs)), AbstractFileSystem.from_json(fs.to_json())):
        assert isinstance(again, SkillFileSystem)
        assert again.cat_file("a/t.md") == TEXT.encode()
        assert not again.exists("b/SKILL.md")
        assert again._engine is fs._engine
    fresh = SkillFileSystem(store, index=":memory:", skip_instance_cache=True)
    assert pickle.loads(pickle.dumps(fresh)).find("a") == A
    assert json.loads(fs.to_json())["protocol"] == "skill"
    with pytest.raises(SkillFSError) as caught:
        fs.info("none")
    error = caught.value
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.errno) == (type(error), str(error), errno.ENOENT)


def test_instances_share_an_engine(store: Path, open_fs: Open, tmp_path: Path) -> None:
    one, two = open_fs(), open_fs(base_paths=["a"])
    assert one._engine is two._engine
    assert open_fs(ignore=["*.tmp"])._engine is not one._engine
    file = str(tmp_path / "index.sqlite")
    assert open_fs(index=file)._engine is not one._engine
    assert open_fs(index=file)._engine is open_fs(index=file)._engine
    write(store, {"a/seen-by-one.md": "new"})
    one.sync()
    assert "a/seen-by-one.md" in two.find("a")


def test_what_is_no_longer_used_is_closed(store: Path, tmp_path: Path) -> None:
    def handles() -> int:
        return len(os.listdir("/proc/self/fd"))

    def use() -> None:
        fs = SkillFileSystem(store, index=str(tmp_path / "index.sqlite"), skip_instance_cache=True)
        fs.get_content("a/t.md")
        fs.open("a/t.md").read(3)
        with pytest.raises(NotFoundError):
            fs.open("a/none.md")

    use()
    gc.collect()
    before = handles()
    for _ in range(5):
        use()
    gc.collect()
    assert handles() <= before


def test_threads_share_one_index(store: Path, tmp_path: Path) -> None:
    for index in (":memory:", str(tmp_path / "index.sqlite")):
        barrier = threading.Barrier(8)

        def work(number: int, index: str = index, barrier: threading.Barrier = barrier) -> int:
            fs = fsspec.filesystem("skill", store=str(store), index=index)
            barrier.wait()
            for turn in range(60):
                assert fs.get_content("a/t.md").text == TEXT
                assert fs.find("a/refs") == ["a/refs/deep/y.md", "a/refs/x.md"]
                path = store / f"b/own-{number}.md"
                path.write_text(str(turn))
                assert fs.get_content(f"b/own-{number}.md").text == str(turn)
            return id(fs._engine)

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(work, range(8)))) == 1


def read_in_child(fs: SkillFileSystem, answers: Any) -> None:
    try:
        found = (
            fs.get_content("a/t.md").text,
            fs.find("a"),
            fs.entry("a/t.md").uuid,
            [s.path for s in fs.skills()],
        )
        answers.put(found)
    except BaseException as error:
        answers.put(repr(error))


# Newer versions of Python warn of a fork beside threads: here it is what is tested.
beside_threads = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@beside_threads
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("where", ["memory", "file"])
def test_other_processes(store: Path, tmp_path: Path, method: str, where: str) -> None:
    index = ":memory:" if where == "memory" else str(tmp_path / "index.sqlite")
    fs = SkillFileSystem(store, index=index, max_age=3600)
    expected = (TEXT, A, fs.entry("a/t.md").uuid, ["a", "b"])
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    child = context.Process(target=read_in_child, args=(fs, answers))
    child.start()
    assert answers.get(timeout=30) == expected
    child.join(30)
    assert child.exitcode == 0
    assert (fs.get_content("a/t.md").text, fs.find("a")) == expected[:2]


@beside_threads
def test_a_fork_while_another_thread_holds_the_index(store: Path, tmp_path: Path) -> None:
    fs = SkillFileSystem(store, index=str(tmp_path / "index.sqlite"), max_age=0)
    stop = threading.Event()

    def keep_syncing() -> None:
        while not stop.is_set():
            write(store, {"b/busy.md": os.urandom(4).hex()})
            fs.sync()

    busy = threading.Thread(target=keep_syncing)
    busy.start()
    try:
        context = multiprocessing.get_context("fork")
        for _ in range(8):
            answers = context.Queue()
            child = context.Process(target=read_in_child, args=(fs, answers))
            child.start()
            answer = answers.get(timeout=30)
            child.join(30)
            assert answer[1] == A, answer
    finally:
        stop.set()
        busy.join()


def test_a_root_that_goes_away_and_comes_back(store: Path, open_fs: Open) -> None:
    fs = open_fs(max_age=0)
    away = store.with_name("away")
    store.rename(away)
    for call in (fs.sync, fs.invalidate_cache):
        with pytest.raises(SkillFSError) as caught:
            call()
        assert caught.value.code == "unavailable"
        assert str(store.parent) not in str(caught.value)
    away.rename(store)
    assert fs.cat_file("a/t.md") == TEXT.encode()
    store.rename(away)
    write(store, {"a/SKILL.md": skill_md("a"), "a/t.md": "another store"})
    fs.sync()
    assert fs.cat_file("a/t.md") == b"another store"


def test_walk_does_not_descend_into_links(root: Path, open_fs: Open) -> None:
    write(root, {"a/SKILL.md": skill_md("a"), "a/refs/x.md": "x"})
    for name in ("l1", "l2", "refs/up"):
        (root / "a" / name).symlink_to(root / "a")
    fs = open_fs()
    assert list(fs.walk("")) == [
        ("", ["a"], []), ("a", ["l1", "l2", "refs"], ["SKILL.md"]), ("a/refs", ["up"], ["x.md"]),
    ]  # fmt: skip
    assert [top for top, _, _ in fs.walk("a/l1")] == ["a/l1", "a/l1/refs"]
    assert [top for top, _, _ in fs.walk("", topdown=False)] == ["a/refs", "a", ""]
    assert [top for top, _, _ in fs.walk("", maxdepth=2)] == ["", "a"]
    pruned = []
    for top, folders, _ in fs.walk(""):
        pruned.append(top)
        if "refs" in folders:
            folders.remove("refs")
    assert pruned == ["", "a"]
    ((_, folders, files),) = fs.walk("a/refs", detail=True)
    assert folders["up"]["islink"] is True
    assert files["x.md"] == fs.info("a/refs/x.md")
    assert list(fs.walk("a/SKILL.md")) == [("a/SKILL.md", [], [""])]
    errors: list[OSError] = []
    assert list(fs.walk("none", on_error=errors.append)) == []
    assert isinstance(errors[0], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        list(fs.walk("none", on_error="raise"))


def test_a_relative_store_is_one_below_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        write(tmp_path / f"w{number}/s", {"a/SKILL.md": skill_md("a"), "a/t.md": f"text {number}"})
        monkeypatch.chdir(tmp_path / f"w{number}")
        assert SkillFileSystem("s", index=":memory:").cat_file("a/t.md") == f"text {number}".encode()


def test_a_listing_above_the_base_paths_looks_at_the_ways_to_them(root: Path, open_fs: Open) -> None:
    write(
        root,
        {
            "g/a/SKILL.md": skill_md("a"),
            "g/b/SKILL.md": skill_md("b"),
            "o/SKILL.md": skill_md("o"),
            "o/m/i/SKILL.md": skill_md("i"),
            "o/m/y.md": "y",
            "o/n/y.md": "y",
            "p/SKILL.md": skill_md("p"),
        },
    )
    fs = open_fs(base_paths=["g/a", "o/m"], max_age=3600)
    asked: list[str] = []
    fs._engine.database.connection().set_trace_callback(asked.append)
    assert fs.ls("", detail=False) == ["g", "o"]
    fs._engine.database.connection().set_trace_callback(None)
    assert not any("(key, n)" in sql for sql in asked)
    assert fs.ls("g", detail=False) == ["g/a"]
    assert fs.ls("o", detail=False) == ["o/m"]
    assert fs.ls("o/m", detail=False) == ["o/m/i"]
    assert fs.find("") == ["g/a/SKILL.md", "o/m/i/SKILL.md"]
    assert fs.find("", maxdepth=2, withdirs=True) == ["g", "g/a", "o", "o/m"]
    assert [top for top, _, _ in fs.walk("")] == ["", "g", "g/a", "o", "o/m", "o/m/i"]


@pytest.mark.parametrize("depth", [2**31, 2**63, 10**30])
def test_any_depth_is_deep_enough(root: Path, open_fs: Callable[..., SkillFileSystem], depth: int) -> None:
    fs = open_fs()
    write(root, {"a/SKILL.md": skill_md(), "a/b/c.md": "c"})
    fs.sync()
    assert fs.find("", maxdepth=depth) == fs.find("")
    assert fs.skill_tree("/", depth=depth).total == fs.skill_tree("/").total


@pytest.mark.parametrize("depth", [0, -1, True, 1.5, "2"])
def test_malformed_depths_are_refused(open_fs: Callable[..., SkillFileSystem], depth: object) -> None:
    fs = open_fs()
    for call in (lambda: fs.find("", maxdepth=depth), lambda: list(fs.walk("", maxdepth=depth))):
        with pytest.raises(InvalidArgumentError, match="maxdepth"):
            call()
