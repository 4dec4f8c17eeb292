"""An engine under test beside what a reader of its changes would have."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from skillfs.core.digest import Namespace, xxh3
from skillfs.core.ignore import IgnoreRules
from skillfs.index.database import Database
from skillfs.index.rows import ROOT, Row, RowKind
from skillfs.stores import local
from skillfs.stores.local import LocalStore
from skillfs.sync.engine import Engine
from tests.sync.model import Shown, visible

NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")


class State(NamedTuple):
    """What a reader knows of an entry."""

    path: str
    skill: bytes | None
    skill_path: str | None
    content: bytes | None


def make_engine(
    root: Path, index: Path | None = None, follow: Sequence[Path] = (), namespace: uuid.UUID = NAMESPACE
) -> Engine:
    return Engine(LocalStore(root, follow), Database(index), Namespace(namespace), IgnoreRules(), "store")


def with_coarse_stamps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store see stamps as a kernel gives them that counts in ticks of ten milliseconds."""
    pack = local._pack_numbers
    tick = 10_000_000
    monkeypatch.setattr(
        local,
        "_pack_numbers",
        lambda device, inode, executable, size, modified, changed: pack(
            device, inode, executable, size, modified // tick * tick, changed // tick * tick
        ),
    )


def rows(engine: Engine) -> dict[str, Row]:
    """Every visible row by path."""
    found = {}
    for key in [ROOT, *(node.key for node in engine.catalog.subtree(ROOT) if node.visible)]:
        row = engine.catalog.by_key(key)
        assert row is not None
        found[row.path] = row
    return found


def uuids(engine: Engine) -> dict[str, bytes]:
    return {path: row.uuid for path, row in rows(engine).items() if row.uuid is not None}


def uuid_at(engine: Engine, path: str) -> bytes | None:
    row = engine.catalog.by_path(tuple(path.split("/")) if path else ())
    return row.uuid if row is not None and row.visible else None


def shown(engine: Engine) -> dict[str, Shown]:
    """What the index shows, in the terms of the model, but for contents, which are hashes."""
    return {
        path: Shown(
            row.kind.name.lower(),
            row.skill.path if row.skill is not None else None,
            row.content,
            row.target if row.kind == RowKind.LINK else None,
        )
        for path, row in rows(engine).items()
    }


def expected(root: Path) -> dict[str, Shown]:
    return {
        path: entry._replace(content=None if entry.content is None else xxh3(entry.content))
        for path, entry in visible(str(root)).items()
    }


def states(engine: Engine) -> dict[bytes, State]:
    return {
        row.uuid: State(
            path, row.skill.uuid if row.skill else None, row.skill.path if row.skill else None, row.content
        )
        for path, row in rows(engine).items()
        if row.uuid is not None
    }


def problems(engine: Engine) -> list[tuple[str, str, str]]:
    found = []
    for folder, name, code, _, message in engine.catalog.problems():
        row = engine.catalog.by_key(folder)
        assert row is not None, (name, code)
        found.append((f"{row.path}/{name}".strip("/"), code, message))
    return sorted(found)


class Follower:
    """Holds the entries of an engine by nothing but its changes."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.revision = engine.journal.revision()
        self.states = states(engine)

    def catch_up(self) -> None:
        """Apply what changed, checking that each change fits what was there."""
        self.revision, reset, items = self.engine.journal.since(self.revision)
        assert not reset
        for item in items:
            new = State(item.path, item.skill, item.skill_path, item.content)
            if item.kind == "added":
                assert item.uuid not in self.states, item
                self.states[item.uuid] = new
                continue
            old = self.states.pop(item.uuid)
            assert (item.old_skill, item.old_skill_path) == (old.skill, old.skill_path), (item, old)
            assert item.old_content == old.content
            if item.kind == "removed":
                assert item.path == old.path
                continue
            self.states[item.uuid] = new
            assert (item.old_path or item.path) == old.path
            assert (item.kind == "moved") == (item.path != old.path)


def check(engine: Engine, root: Path) -> None:
    """Compare an engine that has just been synced with the model, and its tables with one another."""
    assert shown(engine) == expected(root)
    found = rows(engine)
    own = [row.uuid for row in found.values() if row.uuid is not None]
    assert len(set(own)) == len(own)
    for path, row in found.items():
        assert engine.catalog.by_path(tuple(path.split("/")) if path else ()) == row
        if row.uuid is not None and row.id is not None:
            assert engine.catalog.by_id(row.id) == row
            assert engine.catalog.by_uuid(row.uuid, row.id) == row
    read = engine.database.read
    assert (
        read("SELECT key FROM entry WHERE key != 1 AND parent NOT IN (SELECT key FROM entry WHERE kind < 2)")
        == []
    )
    assert read("SELECT uuid FROM entry WHERE uuid IS NOT NULL GROUP BY uuid HAVING count(*) > 1") == []
    assert read("SELECT key FROM entry WHERE (kind = 1) != (key IN (SELECT key FROM skill))") == []
    for table in ("text", "sha256"):
        assert read(f"SELECT key FROM {table} WHERE key NOT IN (SELECT key FROM entry WHERE kind = 2)") == []


def check_like_new(engine: Engine, root: Path) -> None:
    """Compare an engine with one that sees the store for the first time: only identities may differ."""
    new = make_engine(root)
    new.sync()
    assert shown(engine) == shown(new)
    assert problems(engine) == problems(new), (problems(engine), problems(new))
    sql = "SELECT s.name, s.front_matter FROM skill s ORDER BY 1, 2"
    assert engine.database.read(sql) == new.database.read(sql)
