"""Any filesystem of fsspec as a source: what it tells, what is asked of it, and how it fails."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem

from skillfs import SkillFileSystem
from skillfs.errors import NotFoundError, SkillFSError, StoreUnavailableError, UnreadableError
from skillfs.opening import open_store
from skillfs.stores.attributes import kind_of, state_of
from skillfs.stores.base import StaleFile
from skillfs.stores.fsspec_source import FsspecSource
from skillfs.stores.source import account_of
from tests.conftest import skill_md

SKILL = skill_md("a").encode()
FILES = {"a/SKILL.md": SKILL, "a/one.md": b"one\n", "a/deep/er/two.md": b"two\n"}


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillfs.stores.patience.DEADLINE", 0.3)


class Files(AbstractFileSystem):  # type: ignore[misc]
    """A filesystem that a test can bend.

    Attributes:
        files: Path, as it spells them, to content.
        calls: What was asked, in order.
        facts: What it tells of a file beside name and type.
        before: Called with each method and path, to fail or to change something.
    """

    protocol = "files"

    def __init__(self, name: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.files: dict[str, bytes] = {}
        self.calls: list[tuple[str, str]] = []
        self.facts: Callable[[bytes], dict[str, Any]] = lambda content: {"size": len(content)}
        self.others: dict[str, str] = {}
        self.before: Callable[[str, str], None] = lambda method, path: None

    def _told(self, method: str, path: str) -> None:
        self.calls.append((method, path))
        self.before(method, path)

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        self._told("ls", path)
        prefix = f"{path}/" if path else ""
        found: dict[str, dict[str, Any]] = {}
        for name, content in self.files.items():
            if name.startswith(prefix):
                first, slash, _ = name[len(prefix) :].partition("/")
                below = prefix + first
                found[below] = (
                    {"name": below, "type": "directory", "size": 0} if slash else self._about(below, content)
                )
        for name, kind in self.others.items():
            if name.rpartition("/")[0] == path:
                found[name] = {"name": name, "type": kind}
        if not found:
            raise FileNotFoundError(path)
        return list(found.values())

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        self._told("info", path)
        if path in self.files:
            return self._about(path, self.files[path])
        if any(name.startswith(f"{path}/") for name in self.files):
            return {"name": path, "type": "directory", "size": 0}
        raise FileNotFoundError(path)

    def _about(self, name: str, content: bytes) -> dict[str, Any]:
        return {"name": name, "type": "file", **self.facts(content)}

    def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
        self._told("cat_file", path)
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path][start:end]


_numbers = iter(range(10_000))


def files_at(root: str, files: dict[str, bytes] = FILES, **facts: Any) -> Files:
    fs = Files(f"number {next(_numbers)}")
    fs.files = {f"{root}/{path}" if root else path: content for path, content in files.items()}
    if facts:
        fs.facts = lambda content: {k: v(content) if callable(v) else v for k, v in facts.items()}
    return fs


def opened(fs: AbstractFileSystem, root: str = "r", **options: Any) -> SkillFileSystem:
    return SkillFileSystem(
        root or None, fs=fs, **{"index": ":memory:", "skip_instance_cache": True, "max_age": 3600, **options}
    )


# -- roots and names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("root", "spelled"),
    [
        ("r", "r"),
        ("r/", "r"),
        ("files://r/", "r"),
        ("/r", "/r"),
        ("/r//", "/r"),
        ("bucket/a b", "bucket/a b"),
        ("", ""),
        ("/", ""),
        ("/r/[x]*?#%41", "/r/[x]*?#%41"),
    ],
)
def test_roots_and_names_with_and_without_a_slash(root: str, spelled: str) -> None:
    store = opened(files_at(spelled, size=len), root)
    assert store.find("") == sorted(FILES)
    assert store.cat_file("a/deep/er/two.md") == b"two\n"


def test_names_with_a_slash_that_the_root_has_not() -> None:
    class Slashed(Files):
        root_marker = "/"

        def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
            return [{**info, "name": f"/{info['name']}"} for info in super().ls(path.strip("/"))]

        def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
            return super().cat_file(path.strip("/"), start, end)

        def info(self, path: str, **options: Any) -> dict[str, Any]:
            return super().info(path.strip("/"))

    for root, below in (("r", "r/"), ("", "")):
        fs = Slashed(f"slashed {root}")
        fs.files = {f"{below}{path}": content for path, content in FILES.items()}
        store = opened(fs, root)
        assert store.find("") == sorted(FILES)
        assert store.cat_file("a/deep/er/two.md") == b"two\n"


def test_a_listing_of_something_else_is_no_empty_store() -> None:
    class Elsewhere(Files):
        def find(self, path: str, **options: Any) -> dict[str, Any]:
            return {"x/a": {"name": "x/a", "type": "file"}}

    with pytest.raises(StoreUnavailableError, match="below the root"):
        list(FsspecSource(Elsewhere(), "r", "files://r", {}, own=False).find(""))


def test_links_and_the_like_are_no_files() -> None:
    fs = files_at("r", size=len, mtime=5)
    fs.others = {"r/a/link.md": "link", "r/a/pipe": "other", "r/a/x": "nonsense"}
    store = opened(fs)
    assert store.find("") == sorted(FILES)
    assert [(p.code, p.path) for p in store.problems()] == [
        ("special-file", f"a/{name}") for name in ("link.md", "pipe", "x")
    ]


@pytest.mark.parametrize(
    ("info", "kind"),
    [
        ({"type": "file"}, "file"),
        ({"type": "directory"}, "folder"),
        ({"type": "file", "islink": True}, "other"),
        ({"type": "directory", "islink": True}, "other"),
        ({"type": "file", "mode": "120000"}, "other"),
        ({"type": "file", "mode": "100644"}, "file"),
        ({"type": "file", "mode": 0o120777}, "other"),
        ({"type": "file", "mode": 0o644}, "file"),
        ({"type": "link"}, "other"),
        ({"type": None}, "other"),
        ({}, "other"),
    ],
)
def test_kinds(info: dict[str, Any], kind: str) -> None:
    assert kind_of(info) == kind


@pytest.mark.parametrize(
    "time_",
    [
        1767323045.0,
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        datetime(2026, 1, 2, 3, 4, 5),
        "2026-01-02T03:04:05Z",
        "Fri, 02 Jan 2026 03:04:05 GMT",
        (2026, 1, 2, 3, 4, 5),
    ],
)
def test_times_in_any_form(time_: object) -> None:
    assert state_of({"mtime": time_})[0].modified == 1_767_323_045_000_000_000


@pytest.mark.parametrize("time_", ["", "yesterday", True, None, (1, 2), float("nan"), 1e300, "9" * 99])
def test_times_that_are_none(time_: object) -> None:
    assert state_of({"mtime": time_, "size": 1})[1] == "nothing"


def test_a_folder_that_holds_itself_ends() -> None:
    class Loop(Files):
        def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
            return [
                {"name": f"{path}/{'x' * 200}", "type": "directory"},
                {"name": path, "type": "directory"},
                {"name": "elsewhere", "type": "directory"},
            ]

    found = list(FsspecSource(Loop(), "r", "files://r", {}, own=False).find(""))
    assert 10 < len(found) < 50


# -- what it tells -------------------------------------------------------------------------------------------


def test_nothing_told_is_nothing_kept() -> None:
    fs = files_at("r", note=lambda content: "none")
    store = opened(fs)
    assert store._engine.store.tells == "nothing"  # type: ignore[attr-defined]
    for content in (b"one\n", b"eno\n", b"\xff", b"longer than before\n"):
        fs.files["r/a/one.md"] = content
        assert store.cat_file("a/one.md") == content
        assert store.cat_file("a/one.md", 1, 3) == content[1:3]
        if content != b"\xff":
            page = store.get_content("a/one.md", 1, 2)
            assert page.text == content.decode()[1:3]
    before = store.revision
    store.sync()
    assert store.revision >= before


def test_nothing_told_bytes_are_of_one_version() -> None:
    """Each reading is one call, so that no two versions are joined."""
    fs = files_at("r", size=len)
    fs.files["r/a/one.md"] = b"A" * (9 << 20)
    store = opened(fs)
    flip = iter(range(1_000_000))

    def change(method: str, path: str) -> None:
        if method == "cat_file" and path.endswith("one.md"):
            fs.files[path] = (b"A", b"B")[next(flip) % 2] * (9 << 20)

    fs.before = change
    for _ in range(3):
        assert len(set(store.cat_file("a/one.md"))) == 1
        assert len(set(store.get_content("a/one.md", 0, 100).text)) == 1


@pytest.mark.parametrize(
    ("facts", "tells"), [({"mtime": 5.0}, "time"), ({"ETag": lambda c: c.hex()}, "version")]
)
def test_what_is_told_saves_reading(facts: dict[str, Any], tells: str) -> None:
    fs = files_at("r", size=len, **facts)
    store = opened(fs)
    assert store._engine.store.tells == tells  # type: ignore[attr-defined]
    store.index_all()
    fs.calls.clear()
    store.sync()
    assert [method for method, _ in fs.calls] == ["ls"] * 4
    fs.calls.clear()
    assert store.get_content("a/one.md").text == "one\n"
    assert fs.calls == [("cat_file", "r/a/one.md"), ("info", "r/a/one.md")]


def test_a_cache_of_listings_is_not_believed() -> None:
    """An instance that was handed in answers from what it has seen before."""

    class Caching(Files):
        def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
            if path not in self.dircache:
                self.dircache[path] = super().ls(path, detail)
            return list(self.dircache[path])

        def info(self, path: str, **options: Any) -> dict[str, Any]:
            above = path.rpartition("/")[0]
            for info in self.ls(above):
                if info["name"] == path:
                    return dict(info)
            raise FileNotFoundError(path)

        def invalidate_cache(self, path: str | None = None) -> None:
            self.dircache.clear()

    fs = Caching("caching", use_listings_cache=True)
    fs.files = {f"r/{path}": content for path, content in FILES.items()}
    fs.facts = lambda content: {"size": len(content), "ETag": content.hex()}
    store = opened(fs)
    store.index_all()
    fs.ls("r/a")
    fs.files["r/a/one.md"] = b"eno\n"
    assert store.cat_file("a/one.md") == b"eno\n"
    assert store.get_content("a/one.md").text == "eno\n"
    fs.ls("r/a")
    fs.files["r/a/three.md"] = b"three\n"
    store.sync()
    assert "a/three.md" in store.find("")
    assert fs.dircache.use_listings_cache is True


# -- failing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (OSError(errno.EIO, "host.example /tmp/x"), StoreUnavailableError, "try again later"),
        (ConnectionResetError("host.example"), StoreUnavailableError, "the connection failed"),
        (TimeoutError("host.example"), StoreUnavailableError, "no answer in time"),
        (PermissionError("host.example"), UnreadableError, "may not be listed"),
        (ValueError("host.example"), StoreUnavailableError, "refuses to answer: ValueError"),
        (ImportError("host.example"), StoreUnavailableError, "ImportError"),
        (RuntimeError("host.example"), StoreUnavailableError, "RuntimeError"),
    ],
)
@pytest.mark.parametrize("folder", ["r", "r/a", "r/a/deep"])
def test_a_listing_that_fails_midway_removes_nothing(
    folder: str, error: Exception, kind: type[SkillFSError], words: str
) -> None:
    fs = files_at("r", size=len, mtime=5)
    store = opened(fs)

    def fail(method: str, path: str) -> None:
        if (method, path) == ("ls", folder):
            raise error

    fs.before = fail
    fs.files["r/a/new.md"] = b"new\n"
    with pytest.raises(kind, match=words) as caught:
        store.sync()
    assert "host.example" not in str(caught.value)
    assert "/tmp" not in str(caught.value)
    assert store.find("") == sorted(FILES)
    fs.before = lambda method, path: None
    store.sync()
    assert store.find("") == sorted([*FILES, "a/new.md"])


def test_a_find_that_raises_midway() -> None:
    class Flat(Files):
        broken = False

        def find(self, path: str, **options: Any) -> dict[str, Any]:
            if self.broken:
                raise ConnectionError("page 2")
            return {name: self._about(name, content) for name, content in self.files.items()}

    fs = Flat("flat")
    fs.files = {f"r/{path}": content for path, content in FILES.items()}
    store = opened(fs)
    fs.broken = True
    with pytest.raises(StoreUnavailableError):
        store.sync()
    assert store.find("") == sorted(FILES)


def test_a_failure_of_the_moment_is_overcome() -> None:
    fs = files_at("r", size=len, mtime=5)
    left = [2]

    def fail(method: str, path: str) -> None:
        if path == "r/a" and left[0]:
            left[0] -= 1
            raise ConnectionError

    fs.before = fail
    assert opened(fs).find("") == sorted(FILES)


def test_a_folder_that_vanishes_is_gone_and_a_root_is_away() -> None:
    fs = files_at("r", size=len, mtime=5)
    store = opened(fs)
    del fs.files["r/a/deep/er/two.md"]
    fs.others = {"r/a/deep": "directory"}
    store.sync()
    assert "a/deep/er/two.md" not in store.find("")
    fs.files.clear()
    fs.others.clear()
    with pytest.raises(StoreUnavailableError, match="away"):
        store.sync()
    assert store.find("") == ["a/SKILL.md", "a/one.md"]
    with pytest.raises(NotFoundError):
        opened(files_at("other"), "r")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PermissionError("host.example"), "unreadable"),
        (OSError("host.example"), "unavailable"),
        (FileNotFoundError("host.example"), "changed"),  # it is listed all the same
        (IsADirectoryError("host.example"), None),
    ],
)
def test_reading_that_fails(error: Exception, code: str | None) -> None:
    fs = files_at("r", size=len, ETag=lambda content: content.hex())
    store = opened(fs)

    def fail(method: str, path: str) -> None:
        if path == "r/a/one.md" and method in ("cat_file", "info"):
            raise error

    fs.before = fail
    for read in (store.get_content, store.cat_file):
        with pytest.raises(SkillFSError) as caught:
            read("a/one.md")
        assert code in (None, caught.value.code)
        assert "host.example" not in str(caught.value)
    assert store.cat_file("a/SKILL.md") == SKILL


def test_a_file_that_changes_under_every_reading() -> None:
    fs = files_at("r", size=len, ETag=lambda content: content.hex())
    store = opened(fs)
    store.index_all()
    numbers = iter(range(10_000))

    def change(method: str, path: str) -> None:
        if method == "cat_file" and path.endswith("one.md"):
            fs.files[path] = b"%04d" % next(numbers)

    fs.before = change
    with pytest.raises(SkillFSError) as caught:
        store.get_content("a/one.md")
    assert caught.value.code in ("changed", "unavailable")
    fs.before = lambda method, path: None
    assert store.cat_file("a/one.md") == fs.files["r/a/one.md"]


def test_bytes_cut_short_are_none() -> None:
    fs = files_at("r", size=len, ETag=lambda content: content.hex())
    source = FsspecSource(fs, "r", "files://r", {}, own=False)
    state = source.state("a/SKILL.md")
    assert state is not None
    whole, fs.files["r/a/SKILL.md"] = SKILL, SKILL[:-1]
    fs.facts = lambda content: {"size": len(whole), "ETag": whole.hex()}
    for read in (
        lambda: source.get("a/SKILL.md", 0, len(SKILL), state),
        lambda: source.get("a/SKILL.md", 5, len(SKILL), state),
        lambda: source.head("a/SKILL.md", 1000),
    ):
        with pytest.raises(StoreUnavailableError, match="length"):
            read()
    fs.files.clear()
    with pytest.raises(StaleFile):
        source.get("a/SKILL.md", 0, 5, state)


def test_a_server_that_knows_no_ranges() -> None:
    fs = files_at("r", size=len, ETag=lambda content: content.hex())
    plain = fs.cat_file
    fs.cat_file = lambda path, start=None, end=None: plain(path)  # type: ignore[method-assign]
    source = FsspecSource(fs, "r", "files://r", {}, own=False)
    state = source.state("a/SKILL.md")
    assert state is not None
    assert source.get("a/SKILL.md", 4, 9, state) == SKILL[4:9]
    assert source.head("a/SKILL.md", 7) == (state, SKILL[:7])


def test_one_call_at_a_time() -> None:
    """What is not asynchronous may have one connection only."""
    fs = files_at("r", {f"a/{n}.md": b"x" for n in range(20)} | FILES, size=len, ETag="x")
    inside: list[int] = []
    most: list[int] = []

    def look(method: str, path: str) -> None:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.001)
        inside.pop()

    fs.before = look
    store = opened(fs)
    threads = [threading.Thread(target=store.cat_file, args=(f"a/{n}.md",)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1


def test_an_asynchronous_one_that_hangs_is_left() -> None:
    import asyncio

    class Hanging(AsyncFileSystem):  # type: ignore[misc]
        protocol = "hanging"

        async def _ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
            await asyncio.sleep(5)
            return []

        async def _info(self, path: str, **options: Any) -> dict[str, Any]:
            return {"name": path, "type": "directory"}

    started = time.monotonic()
    with pytest.raises(StoreUnavailableError, match="in time"):
        open_store("r", fs=Hanging(skip_instance_cache=True)).look()
    assert time.monotonic() - started < 3


# -- accounts and sizes --------------------------------------------------------------------------------------


def test_an_account_is_the_same_in_every_process() -> None:
    class Key:
        pass

    same = {"key": "k", "at": datetime(2026, 1, 1, tzinfo=UTC), "n": 1, "nested": {"a": b"x"}}
    assert account_of(same) == account_of(dict(reversed(same.items())))
    assert account_of({"key": datetime(2026, 1, 1, tzinfo=UTC)}) != account_of(
        {"key": datetime(2026, 1, 2, tzinfo=UTC)}
    )
    # A credential that cannot be told from another of its kind is taken for another.
    assert account_of({"key": Key()}) != account_of({"key": Key()})
    assert account_of({}) == ""


def test_many_entries() -> None:
    import gc
    import tracemalloc

    count = 20_000

    class Flat(Files):
        def find(self, path: str, **options: Any) -> dict[str, Any]:
            names = (f"r/s{n // 1000}/f{n}.md" for n in range(count))
            return {name: {"name": name, "type": "file", "size": 5, "ETag": name} for name in names}

        def info(self, path: str, **options: Any) -> dict[str, Any]:
            return {"name": path, "type": "directory"}

    store = open_store("r", fs=Flat("many"))
    store.look()
    gc.collect()
    tracemalloc.start()
    started = time.perf_counter()
    try:
        look = store.look()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] / count < 400  # bytes an entry
    finally:
        tracemalloc.stop()
    assert (time.perf_counter() - started) / count < 500e-6
    assert look is not None
