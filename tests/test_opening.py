"""Which index and which identity a store gets."""

from __future__ import annotations

import gc
import json
import os
import resource
import stat
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from skillfs import InvalidArgumentError, SkillFileSystem
from skillfs.errors import StoreUnavailableError
from skillfs.opening import STORE_FILE, data_folder, open_engine, store_namespace, write_store_id
from skillfs.stores.local import LocalStore
from skillfs.sync.engine import Engine
from tests.conftest import skill_md, write

ID = uuid.UUID("6a1f6f0e-6f0f-5b0e-9c58-2d1f0a0c9b1d")


@pytest.fixture
def store(root: Path) -> Path:
    return write(root, {"a/SKILL.md": skill_md("a")})


def engine(store: object, **options: object) -> Engine:
    given = {"index": ":memory:", "store_id": None, "ignore": (), "follow": (), **options}
    return open_engine(str(store), **given)[0]  # type: ignore[arg-type]


# -- identity ------------------------------------------------------------------------------------------------


def test_identity_is_as_given_else_as_written_else_from_the_url(store: Path) -> None:
    local = LocalStore(store)
    assert store_namespace(local, None) == uuid.uuid5(uuid.NAMESPACE_URL, f"file://{store}")
    write(store, {STORE_FILE: json.dumps({"store_id": str(ID), "more": 1})})
    assert store_namespace(local, None) == ID
    other = uuid.uuid4()
    assert store_namespace(local, str(other)) == store_namespace(local, other.urn) == other


def test_copies_with_one_identity_give_the_same_uuids(store: Path, tmp_path: Path) -> None:
    copy = write(tmp_path / "copy", {"a/SKILL.md": "---\nname: a\n---\n"})
    uuids = [
        SkillFileSystem(folder, index=":memory:", store_id=str(ID), skip_instance_cache=True).entry("a").uuid
        for folder in (store, copy)
    ]
    assert uuids[0] == uuids[1]
    assert uuids[0] != SkillFileSystem(store, index=":memory:", skip_instance_cache=True).entry("a").uuid


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "null", '{"store_id": 5}', '{"store_id": "x"}', "[" * 30_000, b"\xff",
        b"{" + b" " * 70_000 + b"}",
    ],
)  # fmt: skip
def test_an_identity_that_cannot_be_read_is_an_error(store: Path, text: str | bytes) -> None:
    write(store, {STORE_FILE: text})
    with pytest.raises(InvalidArgumentError, match="store_id") as caught:
        engine(store)
    assert str(store) not in str(caught.value)


@pytest.mark.parametrize("store_id", ["", "x", 5, "6a1f6f0e"])
def test_an_identity_that_is_none(store: Path, store_id: object) -> None:
    with pytest.raises(InvalidArgumentError, match="store_id"):
        engine(store, store_id=store_id)


def test_an_identity_is_not_read_through_a_link(store: Path, tmp_path: Path) -> None:
    write(tmp_path, {"elsewhere/store.json": json.dumps({"store_id": str(ID)})})
    (store / ".skillfs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidArgumentError, match="link"):
        store_namespace(LocalStore(store), None)
    with pytest.raises(InvalidArgumentError, match="link"):
        write_store_id(LocalStore(store), uuid.uuid4())


def test_an_identity_that_cannot_be_read_now_is_not_another(store: Path) -> None:
    """To open without it would give every entry another identity."""
    write(store, {STORE_FILE: json.dumps({"store_id": str(ID)})})
    local = LocalStore(store)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(StoreUnavailableError, match=r"too many files are open .* \(ulimit -n\)"):
            store_namespace(local, None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert store_namespace(local, None) == ID


def test_a_file_where_the_folder_of_the_identity_would_be(store: Path) -> None:
    write(store, {".skillfs": "x"})
    assert store_namespace(LocalStore(store), None) != ID


def test_writing_an_identity_once(store: Path) -> None:
    local = LocalStore(store)
    assert write_store_id(local, ID) is True
    assert write_store_id(local, uuid.uuid4()) is False
    assert store_namespace(local, None) == ID
    assert os.listdir(store / ".skillfs") == ["store.json"]
    assert SkillFileSystem(store, index=":memory:").find("") == ["a/SKILL.md"]


# -- index ---------------------------------------------------------------------------------------------------


def test_the_index_lies_in_the_data_folder_and_is_private(store: Path, data_home: Path) -> None:
    SkillFileSystem(store, skip_instance_cache=True).get_content("a/SKILL.md")
    assert data_folder() == data_home / "skillfs"
    files = [p for p in data_home.rglob("*") if p.is_file()]
    assert {p.suffix for p in files} >= {".sqlite", ".identity"}
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file
    for folder in (data_home / "skillfs", data_home / "skillfs" / "indexes"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        folder.chmod(0o755)
    SkillFileSystem(store, ignore=["other"], skip_instance_cache=True)
    for folder in (data_home / "skillfs", data_home / "skillfs" / "indexes"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_one_index_for_every_spelling_of_a_store(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(store)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    spellings = [
        store,
        f"{store}/",
        f"file://{store}",
        tmp_path / "link",
        "~/store",
        "store",
        "./store",
        f"{store}/a/..",
    ]
    engines = [engine(spelling, index=None) for spelling in spellings]
    assert len(set(map(id, engines))) == 1


def test_what_shows_another_store_has_another_index(store: Path, tmp_path: Path) -> None:
    write(tmp_path, {"other/SKILL.md": skill_md("other")})
    paths = [
        engine(store, index=None, **options).database.path
        for options in ({}, {"ignore": ["*.tmp"]}, {"follow": [str(tmp_path / "other")]})
    ]
    assert len(set(paths)) == 3
    assert engine(tmp_path / "other", index=None).database.path not in paths
    # An identity names entries; the index goes by the place.
    assert engine(store, index=None, store_id=str(ID)).database.path == paths[0]


def test_a_given_index(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert engine(store, index="~/deep/er/index.sqlite").database.path == tmp_path / "deep/er/index.sqlite"
    assert engine(store, index=tmp_path / "i").database.path == tmp_path / "i"
    assert engine(store).database.in_memory
    with pytest.raises(InvalidArgumentError, match="folder"):
        engine(store, index=tmp_path)
    for index in ("", "a\0b", 5, b"x"):
        with pytest.raises(InvalidArgumentError, match="index"):
            engine(store, index=index)


@pytest.mark.parametrize(
    "other",
    [{"ignore": ["!.env"]}, {"store_id": str(ID)}, {"follow": "outside"}],
    ids=lambda o: next(iter(o)),
)
def test_one_index_holds_one_view(store: Path, tmp_path: Path, other: dict[str, object]) -> None:
    """Whoever opens an index last has it; what another shows is never served from it."""
    write(tmp_path, {"outside/x.md": "x"})
    write(store, {"a/.env": "SECRET=1"})
    if "follow" in other:
        other = {"follow": [tmp_path / "outside"]}
    index = tmp_path / "index.sqlite"

    def opened(**options: object) -> SkillFileSystem:
        return SkillFileSystem(store, index=index, skip_instance_cache=True, max_age=3600, **options)  # type: ignore[arg-type]

    first = opened()
    before = first.entry("a").uuid
    second = opened(**other)
    assert (second.entry("a").uuid == before) == ("store_id" not in other)
    calls: list[Callable[[SkillFileSystem], object]] = [
        lambda fs: fs.cat_file("a/.env"),
        lambda fs: fs.entry("a"),
        lambda fs: fs.entry(before),
        lambda fs: fs.skills(),
        lambda fs: fs.skill_tree("/"),
        lambda fs: fs.find(""),
        lambda fs: fs.revision,
        lambda fs: fs.sync(),
        lambda fs: fs.index_all(),
    ]
    for call in calls:
        with pytest.raises(InvalidArgumentError, match="own index"):
            call(first)
    assert second.entry("a").path == "a"
    del first
    gc.collect()
    third = opened()
    assert third.entry("a").uuid == before
    with pytest.raises(InvalidArgumentError, match="own index"):
        second.entry("a")
    assert third.find("") == ["a/SKILL.md"]


def test_another_identity_for_a_while_forgets_no_move(store: Path, tmp_path: Path) -> None:
    index = tmp_path / "index.sqlite"
    fs = SkillFileSystem(store, index=index, skip_instance_cache=True)
    before = fs.entry("a").uuid
    (store / "a").rename(store / "b")
    fs.sync()
    assert fs.entry("b").uuid == before
    del fs
    gc.collect()
    SkillFileSystem(store, index=index, store_id=str(ID), skip_instance_cache=True)
    gc.collect()
    assert SkillFileSystem(store, index=index, skip_instance_cache=True).entry("b").uuid == before


def test_opening_checks_everything(store: Path, open_fs: Callable[..., SkillFileSystem]) -> None:
    first = open_fs(max_age=3600)
    write(store, {"b/SKILL.md": skill_md("b")})
    assert [s.path for s in open_fs(max_age=3600).skills()] == ["a", "b"]
    assert first.entry("b").path == "b"


def test_engines_are_shared_while_they_are_in_use(store: Path) -> None:
    one = engine(store)
    assert engine(store) is one
    number = id(one)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(id(engine(store)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [number] * 8


def test_a_second_process_reads_the_same_index(store: Path, data_home: Path) -> None:
    fs = SkillFileSystem(store, skip_instance_cache=True)
    page = fs.get_content("a/SKILL.md")
    fs.sync()
    script = (
        "import sys; from skillfs import SkillFileSystem; fs = SkillFileSystem(sys.argv[1]); "
        "print(fs.revision, fs.get_content('a/SKILL.md').uuid, len(fs.find('')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(store)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(fs.revision), page.uuid, "1"]
    assert len(list(data_home.rglob("*.sqlite"))) == 1


def test_an_index_inside_a_skill_is_refused(root: Path) -> None:
    """Setting a strange file aside must never touch what a skill holds."""
    write(root, {"a/SKILL.md": skill_md(), "a/refs/x.md": "x"})
    for place in ("a/SKILL.md", "a/refs/x.md", "a/new.sqlite"):
        with pytest.raises(InvalidArgumentError, match="lies in a skill"):
            SkillFileSystem(root, index=root / place, skip_instance_cache=True)
    assert (root / "a/SKILL.md").read_text() == skill_md()
    assert not (root / "a/new.sqlite").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"index": "\ud800"},
        {"index": 5},
        {"index": ""},
        {"follow": None},
        {"follow": "folder"},
        {"follow": [None]},
        {"follow": ["\ud800"]},
        {"follow": [b"/tmp"]},
        {"ignore": None},
        {"ignore": 5},
        {"ignore": b"x"},
        {"max_age": 10**400},
        {"max_age": -1},
        {"max_age": float("nan")},
        {"max_age": True},
    ],
    ids=repr,
)
def test_malformed_options_are_refused_by_name(root: Path, options: dict[str, object]) -> None:
    name = next(iter(options))
    with pytest.raises(InvalidArgumentError, match=name):
        SkillFileSystem(root, **{"index": ":memory:", **options})


@pytest.mark.parametrize("store", ["\ud800", "", "a\0b", 5, b"/tmp", None], ids=repr)
def test_malformed_stores_are_refused(store: object) -> None:
    with pytest.raises(InvalidArgumentError, match="store"):
        SkillFileSystem(store, index=":memory:")


def test_a_link_to_the_root_is_a_spelling_of_it_whoever_came_first(tmp_path: Path) -> None:
    real, link = write(tmp_path / "real", {"a/SKILL.md": skill_md("a")}), tmp_path / "link"
    link.symlink_to(real)
    index = tmp_path / "index.sqlite"
    first, second = SkillFileSystem(real, index=index), SkillFileSystem(link, index=index)
    assert first._engine is second._engine
    assert second.info(f"{link}/a/SKILL.md")["kind"] == "file"
    assert second.entry(f"{link}/a/SKILL.md").path == "a/SKILL.md"
