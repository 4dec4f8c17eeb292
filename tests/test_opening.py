"""Which index and which identity a store gets."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from skillfs import InvalidArgumentError, SkillFileSystem
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
    return open_engine(str(store), **given)  # type: ignore[arg-type]


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
    assert store_namespace(LocalStore(store), None) != ID
    with pytest.raises(InvalidArgumentError, match="link"):
        write_store_id(LocalStore(store), uuid.uuid4())


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
    assert stat.S_IMODE((data_home / "skillfs" / "indexes").stat().st_mode) == 0o700


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
