"""Which versions are open, by what was opened, read, told and closed."""

from __future__ import annotations

import errno
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillfs.fuse.versions import GRACE_SECONDS, Told, Versions
from skillfs.fuse.view import Node, NodeKind


def node(version: int) -> Node:
    return Node(1, NodeKind.FILE, version, version, version, version=b"%d" % version)


def versions_of(told: list[bool] | None = None) -> Versions:
    return Versions(1.0, [].append if told is None else told.append)


def is_stale(versions: Versions, handle: int) -> bool:
    """Whether an open file is given up, told alike by its node and by a reading."""

    def read() -> None:
        with versions.reading(handle):
            pass

    refusals = []
    for work in (lambda: versions.tell_open(handle), read):
        try:
            work()
        except OSError as error:
            refusals.append(error.errno)
        else:
            refusals.append(None)
    assert refusals in ([None, None], [errno.ESTALE, errno.ESTALE])
    return refusals[0] is not None


PATHS = st.sampled_from(["/a", "/b"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), PATHS, st.integers(0, 2)),
        st.tuples(st.just("tell"), PATHS, st.integers(0, 2)),
        st.tuples(st.just("close"), st.integers(0, 9), st.none()),
    ),
    max_size=20,
)


@given(STEPS)
def test_what_is_open_is_given_up_when_another_is_seen(steps: list[tuple[str, Any, Any]]) -> None:
    outdated: list[bool] = []
    versions = Versions(1.0, outdated.append, clock=_Clock())
    there: dict[int, tuple[str, int, bool]] = {}
    for handle, (step, where, version) in enumerate(steps, 1):
        if step == "close":
            if there:
                gone = sorted(there)[where % len(there)]
                versions.remove(gone)
                del there[gone]
        else:
            others = {h for h, (path, other, _) in there.items() if path == where and other != version}
            there.update({other: (*there[other][:2], True) for other in others})
            if step == "open":
                assert versions.add(handle, where, node(version), versions.moment()) is bool(others)
                there[handle] = where, version, False
            else:
                assert versions.tell_listed(where, node(version)) is not bool(others)
                assert versions.tell(where, node(version), versions.moment())
        for handle_there, (_, _, given_up) in there.items():
            assert is_stale(versions, handle_there) is given_up
        assert (outdated[-1:] == [True]) is any(given_up for _, _, given_up in there.values())
        assert len(versions) == len(there)
    assert outdated == [number % 2 == 0 for number in range(len(outdated))]


class _Clock:
    """Passes whenever somebody asks."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 2 * GRACE_SECONDS
        return self.now


def test_a_look_from_before_an_opening_gives_up_nothing() -> None:
    versions = versions_of()
    before = versions.moment()
    assert versions.add(1, "/a", node(1), versions.moment()) is False
    assert versions.tell("/a", node(0), before) is False
    assert versions.add(2, "/a", node(0), before) is None
    assert not is_stale(versions, 1)
    assert versions.tell("/a", node(1), before)
    assert versions.tell("/a", node(2), versions.moment())
    assert is_stale(versions, 1)


def test_a_file_that_was_found_to_be_another() -> None:
    told: list[bool] = []
    versions = versions_of(told)
    versions.add(1, "/a", node(1), versions.moment())
    versions.give_up(1)
    versions.give_up(2)
    assert is_stale(versions, 1)
    versions.remove(1)
    assert told == [True, False]
    assert versions.tell_open(1) is None


def test_whoever_reads_gets_the_bytes_before_another_version_is_told() -> None:
    versions = versions_of()
    versions.add(1, "/a", node(1), versions.moment())
    done: list[str] = []

    def look() -> None:
        assert versions.tell("/a", node(2), versions.moment())
        done.append("told")

    with versions.reading(1):
        looking = threading.Thread(target=look)
        looking.start()
        while not is_stale(versions, 1):
            pass
        assert versions.tell("/b", node(2), versions.moment())  # another path waits for nobody
        done.append("read")
    looking.join()
    assert done == ["read", "told"]


def test_another_version_that_is_opened_while_one_waits() -> None:
    versions = versions_of()
    versions.add(1, "/a", node(1), versions.moment())
    answers: list[bool] = []
    with versions.reading(1):
        looking = threading.Thread(
            target=lambda: answers.append(versions.tell("/a", node(2), versions.moment()))
        )
        looking.start()
        while not is_stale(versions, 1):
            pass
        versions.add(2, "/a", node(3), versions.moment())
    looking.join()
    assert answers == [False]
    assert not is_stale(versions, 2)


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillfs.fuse.versions.WAIT_SECONDS", 0.02)
    versions = versions_of()
    versions.add(1, "/a", node(1), versions.moment())
    with versions.reading(1):
        assert versions.tell("/a", node(2), versions.moment())


# -- what the kernel was told ------------------------------------------------------------------------------

LONG = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.floats(0, 0.3), st.none()),
        st.tuples(st.just("tell"), PATHS, st.integers(0, 2)),
        st.tuples(st.just("replace"), PATHS, st.integers(0, 2)),
    ),
    max_size=30,
)


@given(LONG)
def test_whoever_may_believe_something_else_is_found_out(steps: list[tuple[str, Any, Any]]) -> None:
    now = 0.0
    told = Told(0.1, lambda: now)
    believed: list[tuple[float, str, int]] = []
    for step, where, version in steps:
        if step == "wait":
            now += where
            continue
        if step == "tell":
            told.add(where, node(version))
        else:
            others = [at for at, path, other in believed if path == where and other != version]
            found = told.replace(where, node(version))
            assert found or not any(now - at <= 0.1 for at in others)
            assert not found or any(now - at <= 0.4 for at in others)
            believed = [one for one in believed if one[1] != where]
        believed.append((now, where, version))


def test_what_was_told_long_ago_is_forgotten() -> None:
    now = 0.0
    told = Told(0.1, lambda: now)
    for number in range(100):
        now += 0.05
        told.add(f"/{number}", node(1))
    assert len(told._lately) + len(told._before) < 10
