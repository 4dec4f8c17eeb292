from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillfs.core.digest import Namespace, id_of_uuid, xxh3
from skillfs.core.model import Place
from skillfs.index.catalog import Catalog
from skillfs.index.database import Database
from skillfs.index.rows import ROOT, RowKind, Visibility, decode_place, encode_place
from skillfs.index.schema import ENTRY_INDEXES
from tests.conftest import write
from tests.sync.harness import make_engine

NAMESPACE = Namespace(uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8"))
NAMES = st.sampled_from(["a", "b", "SKILL.md", "é", "e\u0301", "[x]", "%", "'", "\U0001f600", "n" * 255])


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[str, RowKind]]:
    entries: dict[str, RowKind] = {}
    for _ in range(draw(st.integers(0, 20))):
        above = draw(st.sampled_from(["", *(p for p, k in entries.items() if k <= RowKind.SKILL)]))
        path = f"{above}/{draw(NAMES)}".lstrip("/")
        entries.setdefault(path, draw(st.sampled_from(RowKind)))
    return list(entries.items())


def filled(entries: list[tuple[str, RowKind]], root: RowKind = RowKind.FOLDER) -> Catalog:
    """A catalog of these entries, all of them visible."""
    database = Database(None)
    keys = {"": ROOT}
    with database.write() as connection:
        insert = "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        for key, (path, kind) in enumerate([("", root), *entries], ROOT):
            keys[path] = key
            above, _, name = path.rpartition("/")
            uuid_ = None if kind == RowKind.LINK else NAMESPACE.uuid_of(path)
            number = None if uuid_ is None else id_of_uuid(uuid_)
            content = xxh3(path.encode()) if kind == RowKind.FILE else None
            parent = keys[above] if path else 0
            connection.execute(
                insert, (key, parent, name, kind, 1, number, uuid_, b"s", None, key, content, None)
            )
        for statement in ENTRY_INDEXES:
            connection.execute(statement)
    return Catalog(database)


@settings(max_examples=150, deadline=None)
@given(trees(), st.sampled_from([RowKind.FOLDER, RowKind.SKILL]))
def test_the_ways_to_an_entry_agree(entries: list[tuple[str, RowKind]], root: RowKind) -> None:
    catalog = filled(entries, root)
    kinds = {"": root, **dict(entries)}
    for path, kind in kinds.items():
        row = catalog.by_path(path.split("/") if path else ())
        assert row is not None
        assert (row.path, row.kind, row.place) == (path, kind, Place(0, path))
        assert catalog.by_key(row.key) == row
        assert catalog._by_long_path(path.split("/") if path else ()) == row
        if kind == RowKind.LINK:
            assert row.uuid is row.id is None
        else:
            assert row.uuid is not None
            assert row.id is not None
            assert catalog.by_id(row.id) == row
            assert catalog.by_uuid(row.uuid, row.id) == row
        if kind == RowKind.FILE:
            assert catalog.by_content("xxh3", xxh3(path.encode())) == [row.key]
        above, skill = path, None
        while skill is None:
            if kinds[above] == RowKind.SKILL:
                skill = above
            elif not above:
                break
            above = above.rpartition("/")[0]
        assert (row.skill.path if row.skill else None) == skill
    paths = catalog.with_paths([node.key for node in catalog.subtree(ROOT)])
    assert set(paths.values()) == (kinds.keys() if entries else set())
    for key, path in paths.items():
        assert catalog.by_key(key) == catalog.by_path(path.split("/") if path else ())
    assert len(catalog.subtree(ROOT)) == len(entries)
    assert {node.name for node in catalog.subtree(ROOT, 1)} == {p for p in dict(entries) if "/" not in p}


@settings(max_examples=50, deadline=None)
@given(trees())
def test_what_is_not_there(entries: list[tuple[str, RowKind]]) -> None:
    catalog = filled(entries)
    for path in [*dict(entries), ""]:
        parts = path.split("/") if path else []
        missing = [*parts, "missing"]
        assert catalog.by_path(missing) is None
        row, depth = catalog.deepest(missing)
        assert (row.path, depth) == (path, len(parts))
    for number in (-1, 0, 12345, 1 << 53, 1 << 63, 1 << 80):
        assert catalog.by_id(number) is None
    assert catalog.by_uuid(b"\0" * 16, 0) is None
    assert catalog.by_key(10_000) is None


@pytest.mark.parametrize("depth", [1, 39, 40, 41, 42, 120])
def test_deep_paths(depth: int) -> None:
    path = "/".join(f"d{n}" for n in range(depth))
    folders = ["/".join(path.split("/")[:n]) for n in range(1, depth)]
    catalog = filled([*((p, RowKind.FOLDER) for p in folders), (path, RowKind.FILE)])
    row = catalog.by_path(path.split("/"))
    assert row is not None
    assert row.path == path
    assert catalog.by_path([*path.split("/")[:-1], "other"]) is None
    assert catalog.by_key(row.key) == row


def test_number_that_was_taken(root: Path) -> None:
    """Another entry has the number already: the next free one is taken, kept, and found by the UUID."""
    write(root, {"a/SKILL.md": "a\n"})
    engine = make_engine(root)
    engine.sync()
    number = id_of_uuid(NAMESPACE.uuid_of("a/x.md"))
    with engine.database.write() as connection:
        connection.execute("UPDATE entry SET id=? WHERE name='SKILL.md'", (number,))
        connection.execute("UPDATE entry SET id=? WHERE name='a'", (number + 1,))
    write(root, {"a/x.md": "x\n"})
    engine.sync()
    row = engine.catalog.by_path(("a", "x.md"))
    assert row is not None
    assert (row.uuid, row.id) == (NAMESPACE.uuid_of("a/x.md"), number + 2)
    assert engine.catalog.by_id(number + 2) == row
    assert engine.catalog.by_uuid(NAMESPACE.uuid_of("a/x.md"), number) == row
    (root / "a/x.md").rename(root / "a/y.md")
    engine.sync()
    assert engine.catalog.by_uuid(NAMESPACE.uuid_of("a/x.md"), number) == engine.catalog.by_path(
        ("a", "y.md")
    )


def test_numbers_that_collide_at_a_first_opening(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, {"a/SKILL.md": "a\n", "a/x.md": "x\n", "a/y.md": "y\n"})
    monkeypatch.setattr("skillfs.index.identities.id_of_uuid", lambda uuid_: 7)
    monkeypatch.setattr("skillfs.sync.apply.id_of_uuid", lambda uuid_: 7)
    engine = make_engine(root)
    engine.sync()

    def numbers() -> dict[str, int | None]:
        rows = [engine.catalog.by_key(n.key) for n in engine.catalog.subtree(ROOT)]
        return {row.path: row.id for row in rows if row is not None}

    expected = {"a": 8, "a/SKILL.md": 9, "a/x.md": 10, "a/y.md": 11}
    assert numbers() == expected
    row = engine.catalog.by_uuid(NAMESPACE.uuid_of("a/y.md"), 7)
    assert row is not None
    assert row.path == "a/y.md"
    (root / "a/SKILL.md").rename(root / "b")
    (root / "b").rename(root / "a/SKILL.md")
    with engine.database.write() as connection:
        connection.execute("DELETE FROM facts.meta")
    engine.sync()
    assert numbers() == expected


def test_equal_under_nfc() -> None:
    catalog = filled([("é", RowKind.FILE), ("e\u0301", RowKind.FILE), ("e", RowKind.FILE)])
    assert sorted(catalog.equal_under_nfc(ROOT, "é")) == sorted(["é", "e\u0301"])
    assert catalog.equal_under_nfc(ROOT, "e") == ["e"]
    kelvin = filled([("\u212a", RowKind.FILE), ("K", RowKind.FILE), ("k", RowKind.FILE)])
    assert sorted(kelvin.equal_under_nfc(ROOT, "K")) == sorted(kelvin.equal_under_nfc(ROOT, "\u212a"))
    assert sorted(kelvin.equal_under_nfc(ROOT, "K")) == ["K", "\u212a"]


@given(st.integers(0, 99), st.text())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_places_are_written_and_read_back(number: int, path: str) -> None:
    assert decode_place(encode_place(Place(number, path))) == Place(number, path)


def test_counts_and_hashed(root: Path) -> None:
    write(root, {"a/SKILL.md": "a\n", "a/x.md": "xx\n", "b/no.md": "hidden\n", "c/d/SKILL.md": "d\n"})
    engine = make_engine(root)
    engine.sync()
    assert engine.catalog.counts() == {"skills": 2, "folders": 2, "files": 3, "bytes": 7}
    assert engine.catalog.hashed("md5") == (0, 3)
    row = engine.catalog.by_path(("b",))
    assert row is not None
    assert row.visible == Visibility.HIDDEN
