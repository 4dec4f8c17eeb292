"""What opens as a store, what it is called then, and what is refused in which words."""

from __future__ import annotations

import gc
import pickle
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.implementations.tar import TarFileSystem
from fsspec.implementations.zip import ZipFileSystem
from fsspec.registry import _registry

from skillfs import SkillFileSystem
from skillfs.errors import (
    InvalidArgumentError,
    IsFileError,
    NotFoundError,
    SkillFSError,
    StoreUnavailableError,
)
from skillfs.opening import is_url, open_engine, open_store, store_argument
from skillfs.stores.local import LocalStore
from skillfs.stores.remote import RemoteStore
from tests.conftest import skill_md, write


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 0.3)


@pytest.fixture
def place() -> Iterator[str]:
    """A path in memory at which there is one skill."""
    fs, path = fsspec.filesystem("memory"), f"/{uuid4().hex}"
    fs.pipe_file(f"{path}/a/SKILL.md", skill_md("a").encode())
    yield path
    fs.rm(path, recursive=True)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "x y.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("in/a/SKILL.md", skill_md("a"))
    return path


def opened(store: object = None, **options: Any) -> SkillFileSystem:
    return SkillFileSystem(store, **{"index": ":memory:", "skip_instance_cache": True, **options})


def error_of(store: object = None, **options: Any) -> SkillFSError:
    with pytest.raises(SkillFSError) as caught:
        opened(store, **options)
    assert "Traceback" not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "/tmp" not in str(caught.value)
    return caught.value


# -- one place, one name -------------------------------------------------------------------------------------


def test_a_place_in_memory_has_one_name(place: str) -> None:
    memory = fsspec.filesystem("memory")
    wrapped = DirFileSystem(place, AsyncFileSystemWrapper(memory, asynchronous=False))
    spelled: list[tuple[object, dict[str, Any]]] = [
        (f"memory:/{place}", {}),
        (f"memory:/{place}//", {}),
        (f"memory://{place[1:]}", {}),
        (f"dir://{place[1:]}::memory://", {}),
        (f"dir://::memory:/{place}", {}),
        (place, {"fs": memory}),
        (f"{place[1:]}/", {"fs": memory}),
        ("", {"fs": DirFileSystem(place, memory)}),
        (None, {"fs": wrapped}),
        (place, {"target_protocol": "memory"}),
    ]
    engines = []
    for store, options in spelled:
        fs = opened(store, **options)
        engines.append(fs._engine)
        assert fs.find("") == ["a/SKILL.md"]
    assert {(e.store.url, e.store.account, e.namespace.uuid) for e in engines} == {
        (f"memory://{place}", "", engines[0].namespace.uuid)
    }
    assert len(set(map(id, engines))) == 1


def test_an_archive_has_one_name(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(archive.parent)
    (archive.parent / "link.zip").symlink_to(archive)
    spelled: list[tuple[object, dict[str, Any]]] = [
        (f"zip://in::file://{archive}", {}),
        (f"zip://in::{archive}", {}),
        ("zip://in::x y.zip", {}),
        ("zip:///in/::./link.zip", {}),
        (f"dir://in::zip::{archive}", {}),
        ("zip://in", {"target_options": {"fo": str(archive)}}),
        ("in", {"fs": ZipFileSystem(str(archive))}),
        ("in", {"fs": ZipFileSystem("x y.zip", target_protocol="file")}),
        (None, {"fs": DirFileSystem("in", ZipFileSystem(fo=str(archive)))}),
    ]
    with zipfile.ZipFile(archive) as packed:
        assert packed.namelist()
    engines = [opened(store, **options)._engine for store, options in spelled]
    assert len(set(map(id, engines))) == 1
    assert engines[0].store.url == f"zip://in::file://{archive.parent}/x%20y.zip"
    gc.collect()


@pytest.mark.parametrize("spelling", ["file://{}", "local://{}", "{}", "dir://::{}", "dir://b::{}/a/.."])
def test_what_is_local_is_a_local_store(tmp_path: Path, spelling: str) -> None:
    write(tmp_path, {"b/SKILL.md": skill_md("b")})
    assert isinstance(open_store(spelling.format(tmp_path)), LocalStore)


def test_local_instances_are_confined(tmp_path: Path) -> None:
    write(tmp_path, {"store/b/SKILL.md": skill_md("b"), "outside.md": "secret"})
    (tmp_path / "store/b/link.md").symlink_to("../../outside.md")
    for fs, path in (
        (LocalFileSystem(), str(tmp_path / "store")),
        (DirFileSystem(str(tmp_path), LocalFileSystem()), "store"),
        (DirFileSystem(str(tmp_path / "store"), LocalFileSystem()), ""),
        (DirFileSystem("store", DirFileSystem(str(tmp_path), LocalFileSystem())), ""),
    ):
        assert isinstance(open_store(path, fs=fs), LocalStore)
        store = opened(path, fs=fs)
        assert store.find("") == ["b/SKILL.md"]
        with pytest.raises(NotFoundError):
            store.cat_file("b/link.md")
    for path in ("..", "store/../.."):
        with pytest.raises(InvalidArgumentError, match="leave them away"):
            open_store(path, fs=DirFileSystem(str(tmp_path), LocalFileSystem()))
    with pytest.raises(InvalidArgumentError, match="which store"):
        open_store("", fs=LocalFileSystem())


def test_what_may_be_another_has_another_index(place: str) -> None:
    class Derived(MemoryFileSystem):
        pass

    alone = MemoryFileSystem(global_store=False, skip_instance_cache=True)
    other = MemoryFileSystem(global_store=False, skip_instance_cache=True)
    for fs in (alone, other):
        fs.pipe_file(f"{place}/b/SKILL.md", skill_md("b").encode())
    accounts = {
        open_store(place, fs=fs).account for fs in (fsspec.filesystem("memory"), Derived(), alone, other)
    }
    assert len(accounts) == 4


def test_hosts_and_users_are_told_apart() -> None:
    from skillfs.stores.ftp import FtpFileSystem
    from skillfs.stores.targets import _described, _url_of

    class Unconnected(FtpFileSystem):
        def _connect(self) -> None:
            pass

    def named(**options: Any) -> tuple[str, str]:
        fs = Unconnected(**options)
        return _url_of(fs, "/skills/"), str(sorted(_described(fs).items()))

    some = [
        named(host="a"),
        named(host="b"),
        named(host="a", port=2121),
        named(host="a", username="u", password="1"),
        named(host="a", username="u", password="2"),
    ]
    assert [url for url, _ in some] == [
        "ftp://a/skills",
        "ftp://b/skills",
        "ftp://a:2121/skills",
        "ftp://u@a/skills",
        "ftp://u@a/skills",
    ]
    assert len({described for _, described in some}) == 5


def test_an_instance_stays_as_it_is(place: str, archive: Path) -> None:
    memory = MemoryFileSystem(use_listings_cache=True, skip_instance_cache=True)
    packed = ZipFileSystem(str(archive))
    for fs, path in ((memory, place), (packed, "in")):
        before = {name: repr(value) for name, value in vars(fs).items()}
        opened(path, fs=fs).get_content("a/SKILL.md")
        assert {name: repr(value) for name, value in vars(fs).items()} == before
    assert packed.cat_file("in/a/SKILL.md") == skill_md("a").encode()


def test_pickled_and_opened_elsewhere(place: str, archive: Path) -> None:
    for fs in (
        opened(f"memory:/{place}"),
        opened(place, fs=fsspec.filesystem("memory")),
        opened(f"zip://in::{archive}"),
        opened("in", fs=ZipFileSystem(str(archive))),
    ):
        again = pickle.loads(pickle.dumps(fs))
        assert again.get_content("a/SKILL.md").uuid == fs.get_content("a/SKILL.md").uuid


def test_as_fsspec_chains_it(archive: Path, place: str) -> None:
    for url in (f"skill://::zip://in::file://{archive}", f"skill://::memory:/{place}"):
        fs, _ = fsspec.core.url_to_fs(url, index=":memory:")
        assert fs.find("") == ["a/SKILL.md"]
    with fsspec.open(f"skill://a/SKILL.md::zip://in::file://{archive}", skill={"index": ":memory:"}) as file:
        assert file.read() == skill_md("a").encode()


def test_an_archive_in_an_archive(tmp_path: Path, archive: Path) -> None:
    with zipfile.ZipFile(tmp_path / "outer.zip", "w") as packed:
        packed.write(archive, "deep/inner.zip")
    fs = opened(f"zip://in::zip://deep/inner.zip::{tmp_path}/outer.zip")
    assert fs.get_content("a/SKILL.md").text == skill_md("a")


# -- what a string means -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket", True),
        ("memory://", True),
        ("nosuch://x", True),
        ("zip::file:///x.zip", True),
        ("zip://a::x.zip", True),
        ("simplecache::s3://bucket", True),
        ("file:///x", False),
        ("file:///x::y", False),
        ("local:///x", False),
        ("/a/b", False),
        ("~/a", False),
        ("a::b", False),
        ("./zip::b", False),
        ("/srv/zip::memory://x", False),
        ("me@host", False),
        ("host:path", False),
        ("./s3://bucket", False),
        ("a b://c", False),
        ("data:,x", False),
        ("reference:x.json", False),
    ],
)
def test_is_url(text: str, expected: bool) -> None:
    assert is_url(text) is expected


@pytest.mark.parametrize(
    "name", ["a::b", "zip::x", "s3:", "me@host", "a:b@c", "100%", "[x]*?#", "é 数", "~x", "file:"]
)
def test_folders_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    write(tmp_path, {f"{name}/bucket/a/SKILL.md": skill_md("a")})
    monkeypatch.chdir(tmp_path)
    for store in (
        tmp_path / name,
        f"{tmp_path}/{name}",
        f"file://{tmp_path}/{name}",
        Path(name),
        f"./{name}",
        f"{tmp_path}/{name}//bucket",
        f"./{name}//bucket",
        Path(f"{name}//bucket"),
    ):
        fs = opened(store)
        assert [skill.name for skill in fs.skills()] == ["a"], store
    assert opened(fo=Path(name), target_protocol="file").skills()


def test_the_arguments_of_a_chain() -> None:
    assert store_argument("k", None, "memory") == "memory://k"
    assert store_argument(None, "memory://k", "memory") == "memory://k"
    assert store_argument("/x://y", None, "memory") == "memory:///x://y"
    assert store_argument(Path("a::b"), None, None) == Path("a::b")
    assert store_argument("a", "a", None) == "a"


# -- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:s3cret@bucket",
        "s3://key:s3/cret@bucket/x",
        "ftp://user:s3cret@127.0.0.1/x",
        "ftp://user:@127.0.0.1/x",
        "http://u:s3cret@127.0.0.1/",
        "zip://x::http://u:s3cret@127.0.0.1/x.zip",
        "gist://user:s3cret@0123/x",
        "sftp://u:s3cret@127.0.0.1:22/x",
    ],
)
def test_a_password_in_a_url_is_refused(url: str) -> None:
    error = error_of(url)
    assert isinstance(error, InvalidArgumentError)
    assert "password" in str(error)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/a@b:c@d", "http://me@127.0.0.1:1/x", "memory://a:b@c", "ftp://me@127.0.0.1:1/"],
)
def test_what_holds_no_password_is_not(url: str) -> None:
    assert "password" not in str(error_of(url))


@pytest.mark.parametrize(
    ("store", "options"),
    [
        ("simplecache::memory://x", {}),
        ("filecache://x::memory://x", {}),
        ("blockcache::s3://bucket", {}),
        ("zip://::simplecache::memory://x.zip", {}),
        ("dir://x::skill://::memory://x", {}),
        ("generic://x", {}),
        ("zip://", {"target_options": {"fo": "simplecache::memory://x.zip"}}),
        ("x", {"fs": fsspec.filesystem("simplecache", target_protocol="memory")}),
        ("x", {"fs": DirFileSystem("x", fsspec.filesystem("filecache", target_protocol="memory"))}),
    ],
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", str(value)),
)
def test_no_store_goes_through_a_cache(store: str, options: dict[str, Any]) -> None:
    error = error_of(store, **options)
    assert isinstance(error, InvalidArgumentError)
    assert "cannot go through" in str(error)


@pytest.mark.parametrize("protocol", sorted({*fsspec.available_protocols(), "nosuch", "s3x"} - {"skill"}))
def test_whatever_fsspec_knows_is_one_clear_error(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError("no network here")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    # Of s3 and the like nothing is asked before the first listing.
    for url in (
        f"{protocol}://127.0.0.1/nothing/here",
        f"{protocol}://",
        f"{protocol}::memory://nothing-here",
    ):
        if protocol in ("s3", "s3a", "memory", "file", "local"):
            continue
        error = error_of(url)
        assert re.fullmatch(r"[^\n]{20,400}", str(error))
        assert isinstance(error, InvalidArgumentError | NotFoundError | StoreUnavailableError | IsFileError)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nosuch://x", 'no filesystem is known for "nosuch"'),
        ("zip://x::nosuch://x", 'no filesystem is known for "nosuch"'),
        ("gs://bucket/x", "gcsfs"),
        ("az://bucket/x", "adlfs"),
        ("zip://x::gs://bucket/x.zip", "gcsfs"),
        ("sftp://127.0.0.1/x", "paramiko"),
    ],
)
def test_what_is_missing_is_named(url: str, message: str) -> None:
    error = error_of(url)
    assert isinstance(error, InvalidArgumentError)
    assert message in str(error)


@pytest.mark.parametrize(
    ("module", "url"), [("s3fs", "s3://b"), ("aiohttp", "http://127.0.0.1/"), ("requests", "github://a:b@c")]
)
def test_a_library_that_is_not_installed(module: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        n for n in sys.modules if n.split(".")[0] in (module, "s3fs") or "implementations.http" in n
    ]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("skillfs.stores.http", "skillfs.stores.github", "fsspec.implementations.github"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    for protocol in ("s3", "http", "github"):
        monkeypatch.delitem(_registry, protocol, raising=False)
    error = error_of(url)
    assert isinstance(error, InvalidArgumentError)
    assert module in str(error)


@pytest.mark.parametrize(
    ("store", "kind"),
    [
        ("memory://nothing-{}", NotFoundError),
        ("dir://x::memory://nothing-{}", NotFoundError),
        ("memory:/{place}/a/SKILL.md", IsFileError),
        ("memory:/{place}/../x", InvalidArgumentError),
        ("zip://in::{archive}.none", NotFoundError),
        ("zip://none::{archive}", NotFoundError),
        ("zip://in/a/SKILL.md::{archive}", IsFileError),
        ("zip://in::memory://none.zip", NotFoundError),
        ("zip://in::memory://", InvalidArgumentError),
        ("zip://in", InvalidArgumentError),
        ("tar://in::{archive}", StoreUnavailableError),
        ("zip://in::memory:/{place}/a/SKILL.md", StoreUnavailableError),
        ("zip://in::{folder}", StoreUnavailableError),
        ("http://127.0.0.1:1/x?y=1", InvalidArgumentError),
        ("http://127.0.0.1:1/x#y", InvalidArgumentError),
        ("http://", InvalidArgumentError),
        ("http://127.0.0.1:1/x", StoreUnavailableError),
        ("ftp://127.0.0.1:1/x", StoreUnavailableError),
    ],
)
def test_roots_that_are_none(place: str, archive: Path, store: str, kind: type[SkillFSError]) -> None:
    url = store.format(uuid4().hex, place=place, archive=archive, folder=archive.parent)
    assert type(error_of(url)) is kind


@pytest.mark.parametrize(
    ("store", "options"),
    [
        ("x", {"fs": object()}),
        ("x", {"fs": "memory"}),
        ("x", {"fs": MemoryFileSystem(), "target_options": {"a": 1}}),
        ("memory://x", {"target_options": {"skip_instance_cache": object(), "asynchronous": 1, "mode": "x"}}),
        ("dir://x::memory://y", {"target_options": {"a": 1}}),
        ("ftp://127.0.0.1:1/", {"target_options": {"nosuch": 1, "tls": object(), "encoding": 5}}),
        ("memory://x", {"follow": ["/tmp"]}),
    ],
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", str(value)),
)
def test_options_that_do_not_fit(store: str, options: dict[str, Any]) -> None:
    error_of(store, **options)


def test_an_instance_of_an_event_loop_is_refused() -> None:
    import asyncio

    loop = asyncio.new_event_loop()
    try:
        fs = AsyncFileSystemWrapper(MemoryFileSystem(), asynchronous=True)
        bound = DirFileSystem("x", fs, asynchronous=True, loop=loop)
        assert isinstance(bound.fs, AbstractFileSystem)
        with pytest.raises(SkillFSError):
            open_store("", fs=bound)
    finally:
        loop.close()


def test_an_archive_without_a_name(archive: Path) -> None:
    with archive.open("rb") as file:
        fs = ZipFileSystem(file)
        assert opened("in", fs=fs).get_content("a/SKILL.md").text == skill_md("a")
    import io
    import tarfile

    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as packed:
        member = tarfile.TarInfo("a/SKILL.md")
        member.size = len(skill_md("a"))
        packed.addfile(member, io.BytesIO(skill_md("a").encode()))
    made.seek(0)
    assert opened(fs=TarFileSystem(made)).find("") == ["a/SKILL.md"]


ROOTS = [
    "a b",
    "100%",
    "%41",
    "[x]",
    "*",
    "?",
    "#",
    "a?b#c",
    "é",
    "数/😀",
    "a::b",
    "x://y",
    "{a,b}",
    "~",
    "$HOME",
    "trailing ",
]


@pytest.mark.parametrize("root", ROOTS)
def test_roots_of_any_name_in_memory(place: str, root: str) -> None:
    fs = fsspec.filesystem("memory")
    fs.store[f"{place}/{root}/b/SKILL.md"] = fs.store[f"{place}/a/SKILL.md"]
    fs.store[f"{place}/A/b/c/SKILL.md"] = fs.store[f"{place}/a/SKILL.md"]
    find: Callable[[object], list[str]] = lambda fs: fs.find("")  # type: ignore[attr-defined]  # noqa: E731
    if "::" in root or "://" in root:
        assert find(opened("", fs=DirFileSystem(f"{place}/{root}", fs))) == ["b/SKILL.md"]
        return
    assert find(opened(f"memory:/{place}/{root}/")) == ["b/SKILL.md"]
    assert find(opened(f"{place}/{root}", fs=fs)) == ["b/SKILL.md"]


@pytest.mark.parametrize("root", [r for r in ROOTS if "://" not in r and "::" not in r])
def test_roots_of_any_name_in_archives(tmp_path: Path, root: str) -> None:
    path = tmp_path / f"{root.replace('/', '_')}.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(f"{root}/b/SKILL.md", skill_md("b"))
        packed.writestr("A/c/SKILL.md", skill_md("c"))
    assert opened(f"zip://{root}::file://{path}").find("") == ["b/SKILL.md"]


def test_one_engine_for_a_store_and_its_index(place: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"store_id": None, "ignore": (), "follow": (), "index": tmp_path / "index"}
    one, _ = open_engine(f"memory:/{place}", **given)
    assert open_engine(f"dir://::memory:/{place}", **given)[0] is one
    assert isinstance(one.store, RemoteStore)
