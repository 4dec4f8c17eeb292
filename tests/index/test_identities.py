from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from skillfs.core.digest import Namespace, id_of_uuid
from skillfs.index.database import Database
from skillfs.index.identities import REMEMBERED_SECONDS, Identities

NAMESPACE = Namespace(uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8"))


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with Database(None).write() as open_one:
        yield open_one


def at(connection: sqlite3.Connection, now: float = 0.0, namespace: Namespace = NAMESPACE) -> Identities:
    return Identities(connection, namespace, now)


def test_first_birth_needs_no_record(connection: sqlite3.Connection) -> None:
    born = at(connection).born("pdf/SKILL.md")
    assert born == (NAMESPACE.uuid_of("pdf/SKILL.md"), id_of_uuid(NAMESPACE.uuid_of("pdf/SKILL.md")))
    assert uuid.UUID(bytes=born[0]) == uuid.uuid5(NAMESPACE.uuid, "pdf/SKILL.md")
    assert connection.execute("SELECT count(*) FROM identity").fetchone() == (0,)


@pytest.mark.parametrize(
    ("later", "births"),
    [(0.0, 1), (REMEMBERED_SECONDS, 1), (REMEMBERED_SECONDS + 1, 2), (-3600.0, 1)],
)
def test_removed_and_back(connection: sqlite3.Connection, later: float, births: int) -> None:
    first, number = at(connection).born("a")
    at(connection, 1e9).removed("a", first, number)
    assert at(connection, 1e9 + later).born("a")[0] == NAMESPACE.uuid_of("a", births)
    # Living, it stays what it is however much later it is asked for, as when an index is rebuilt.
    assert at(connection, 1e9 + later + 9 * REMEMBERED_SECONDS).born("a")[0] == NAMESPACE.uuid_of("a", births)


def test_births_are_counted_on(connection: sqlite3.Connection) -> None:
    now = 0.0
    for birth in range(1, 6):
        uuid_, number = at(connection, now).born("a")
        assert uuid_ == NAMESPACE.uuid_of("a", birth)
        assert uuid.UUID(bytes=uuid_) == uuid.uuid5(NAMESPACE.uuid, "a" if birth == 1 else f"a\0{birth}")
        at(connection, now).removed("a", uuid_, number)
        now += REMEMBERED_SECONDS + 1


def test_where_something_moved_away_the_next_is_another(connection: sqlite3.Connection) -> None:
    moved, number = at(connection).born("a")
    identities = at(connection)
    identities.left("a")
    identities.arrived("b", moved, number)
    assert at(connection).born("a")[0] == NAMESPACE.uuid_of("a", 2)
    assert at(connection).born("b")[0] == moved
    # What was moved in and removed may come back; after that the path bears its first.
    at(connection, 5.0).removed("b", moved, number)
    assert at(connection, 6.0).born("b")[0] == moved
    at(connection, 7.0).removed("b", moved, number)
    assert at(connection, 8.0 + REMEMBERED_SECONDS).born("b")[0] == NAMESPACE.uuid_of("b", 1)


def test_taken_number_is_kept(connection: sqlite3.Connection) -> None:
    uuid_, number = at(connection).born("a")
    at(connection).numbered("a", uuid_, number + 3)
    assert at(connection).born("a") == (uuid_, number + 3)
    identities = at(connection)
    identities.left("a")
    identities.arrived("b", uuid_, number + 3)
    assert at(connection).born("b") == (uuid_, number + 3)
    at(connection, 1.0).removed("b", uuid_, number + 3)
    assert at(connection, 2.0).born("b") == (uuid_, number + 3)


def test_another_namespace_has_records_of_its_own(connection: sqlite3.Connection) -> None:
    """A store that is opened once by another identity forgets nothing of its own."""
    moved, number = at(connection).born("a")
    identities = at(connection)
    identities.left("a")
    identities.arrived("b", moved, number)
    other = Namespace(uuid.uuid5(NAMESPACE.uuid, "other"))
    assert at(connection, namespace=other).born("a")[0] == other.uuid_of("a")
    assert at(connection, namespace=other).born("b")[0] == other.uuid_of("b")
    at(connection, namespace=other).left("b")
    assert at(connection, namespace=other).born("b")[0] == other.uuid_of("b", 2)
    assert at(connection).born("a")[0] == NAMESPACE.uuid_of("a", 2)
    assert at(connection).born("b")[0] == moved


PATHS = st.sampled_from("abcd")


class Life(RuleBasedStateMachine):
    """Entries that are born, move, go and come back, against a dictionary of who is where."""

    def __init__(self) -> None:
        super().__init__()
        self.database = Database(None)
        self.now = 1e9
        self.living: dict[str, bytes] = {}
        self.gone: dict[str, tuple[bytes, float]] = {}
        self.ever: set[bytes] = set()

    def identities(self) -> Identities:
        return Identities(self.database.connection(), NAMESPACE, self.now)

    @precondition(lambda self: len(self.living) < 4)
    @rule(path=PATHS)
    def appear(self, path: str) -> None:
        if path in self.living:
            return
        uuid_, number = self.identities().born(path)
        assert number == id_of_uuid(uuid_)
        remembered = self.gone.pop(path, None)
        if remembered is not None and self.now - remembered[1] <= REMEMBERED_SECONDS:
            assert uuid_ == remembered[0]
        else:
            assert uuid_ not in self.ever
        self.ever.add(uuid_)
        self.living[path] = uuid_

    @rule(path=PATHS)
    def go(self, path: str) -> None:
        if path in self.living:
            uuid_ = self.living.pop(path)
            self.identities().removed(path, uuid_, id_of_uuid(uuid_))
            self.gone[path] = (uuid_, self.now)

    @rule(moves=st.dictionaries(PATHS, PATHS, max_size=3))
    def move(self, moves: dict[str, str]) -> None:
        """Some at once, to places that are free or become so; no two to one."""
        moves = {old: new for old, new in moves.items() if old in self.living and new != old}
        if len(set(moves.values())) < len(moves):
            return
        if any(new in self.living and new not in moves for new in moves.values()):
            return
        identities = self.identities()
        before = dict(self.living)
        for old in moves:
            identities.left(old)
            del self.living[old]
        for old, new in moves.items():
            identities.arrived(new, before[old], id_of_uuid(before[old]))
            self.living[new] = before[old]
            self.gone.pop(new, None)

    @rule(days=st.integers(1, 9))
    def wait(self, days: int) -> None:
        self.now += days * 86_400

    @invariant()
    def a_rebuilt_index_agrees(self) -> None:
        connection = self.database.connection()
        connection.execute("BEGIN")
        for path, uuid_ in self.living.items():
            assert self.identities().born(path)[0] == uuid_
        connection.execute("ROLLBACK")

    @invariant()
    def nobody_is_twice(self) -> None:
        assert len(set(self.living.values())) == len(self.living)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
