"""How those who work on a shared folder of objects keep out of each other's way."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

from skillfs.errors import StoreUnavailableError
from skillfs.objects import holds
from skillfs.objects.holds import Holds
from skillfs.objects.opening import open_objects
from skillfs.objects.remote import FsspecObjects
from skillfs.stores.targets import open_source
from tests.objects.harness import numbers

if TYPE_CHECKING:
    from tests.servers.s3 import Bucket

FLAG = "holds/{}-" + "0" * 32


@pytest.fixture
def place() -> Iterator[str]:
    """A folder in memory, and nothing in it."""
    name = f"holds-{next(numbers)}"
    fsspec.filesystem("memory").makedirs(f"/{name}/holds")
    yield f"memory://{name}"
    fsspec.filesystem("memory").rm(f"/{name}", recursive=True)


def flags_of(place: str) -> list[str]:
    return fsspec.filesystem("memory").ls(f"/{place.partition('://')[2]}/holds", detail=False)


def raise_flag(place: str, kind: str, age: float) -> Any:
    """Put up the flag of another, who renewed it so many seconds ago."""
    memory = fsspec.filesystem("memory")
    path = f"/{place.partition('://')[2]}/{FLAG.format(kind)}"
    memory.pipe_file(path, str(time.time_ns() - int(age * 1e9)).encode())
    memory.store[path].modified = datetime.now(UTC) - timedelta(seconds=age)
    return path


@pytest.mark.parametrize("kind", ["shared", "alone"])
@pytest.mark.parametrize("alone", [True, False])
def test_flags_of_others_count_for_an_hour(place: str, kind: str, alone: bool) -> None:
    folder = open_objects(place)
    raise_flag(place, kind, 3_500)
    if alone or kind == "alone":
        with pytest.raises(StoreUnavailableError), folder.holding(alone=alone, wait=False):
            pytest.fail("another is at work")
        assert len(flags_of(place)) == 1
    else:
        with folder.holding(alone=alone, wait=False):
            assert len(flags_of(place)) == 2
    assert folder.leftovers() == []
    raise_flag(place, kind, 3_700)
    (left,) = folder.leftovers()
    assert left.name == FLAG.format(kind)
    with folder.holding(alone=alone, wait=False):
        assert len(flags_of(place)) == 1  # whoever came by has taken it down
    assert flags_of(place) == []


def test_abandoned_flags_can_be_removed(place: str) -> None:
    folder = open_objects(place)
    raise_flag(place, "alone", 3_700)
    assert len(folder.leftovers(remove=True)) == 1
    assert flags_of(place) == []


def test_where_no_times_are_told_flags_tell_them(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_objects(place)
    source_find = folder._source.find  # type: ignore[attr-defined]
    monkeypatch.setattr(
        folder._source,  # type: ignore[attr-defined]
        "find",
        lambda at: (found._replace(state=found.state._replace(modified=0)) for found in source_find(at)),
    )
    raise_flag(place, "alone", 3_500)
    with pytest.raises(StoreUnavailableError), folder.holding(alone=True, wait=False):
        pytest.fail("another is at work")
    raise_flag(place, "alone", 3_700)
    with folder.holding(alone=True, wait=False):
        pass


def test_who_was_not_heard_of_has_lost_its_hold(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_objects(place)
    clock = holds._clock
    with folder.holding(alone=False):
        folder.create("labels/a", b"")
        with monkeypatch.context() as patch:
            patch.setattr(holds, "_clock", lambda: clock() + 3_100)  # the machine slept
            for work in (
                lambda: folder.create("labels/b", b""),
                lambda: folder.remove("labels/a"),
                lambda: folder.set_aside("labels/a"),
            ):
                with pytest.raises(StoreUnavailableError, match="begin anew"):
                    work()
    assert [info.name for info in folder.listed("labels/")] == ["labels/a"]
    folder.remove("labels/a")


def test_a_forked_child_has_lost_nothing(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_objects(place)
    clock, pid = holds._clock, os.getpid()
    with folder.holding(alone=False):
        with monkeypatch.context() as patch:
            patch.setattr(holds, "_clock", lambda: clock() + 3_100)
            patch.setattr(os, "getpid", lambda: pid + 1)
            folder.create("labels/a", b"")
        assert len(flags_of(place)) == 1
    assert flags_of(place) == []


def test_flags_are_renewed(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "RENEWED_SECONDS", 0.01)
    folder = open_objects(place)
    memory = fsspec.filesystem("memory")
    with folder.holding(alone=False):
        ((path,),) = (flags_of(place),)
        first = memory.cat_file(path)
        until = time.monotonic() + 10
        while memory.cat_file(path) == first:
            assert time.monotonic() < until, "it is never renewed"
            time.sleep(0.005)
    assert flags_of(place) == []
    time.sleep(0.05)
    assert flags_of(place) == []  # and not after it was taken down


def test_a_listing_that_is_behind_is_not_trusted(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_objects(place)
    monkeypatch.setattr(folder._source, "find", lambda at: iter(()))  # type: ignore[attr-defined]
    with pytest.raises(StoreUnavailableError, match="list at once"), folder.holding(alone=True):
        pytest.fail("nobody knows who else is at work")


class Slow:
    """A source on which everything takes a while, each time another."""

    def __init__(self, source: Any, seed: int) -> None:
        self._source = source
        self._random = random.Random(seed)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._source, name)
        if name not in ("find", "put", "delete", "head"):
            return value

        def slow(*args: Any, **options: Any) -> Any:
            time.sleep(self._random.uniform(0, 0.004))
            found = value(*args, **options)
            found = list(found) if name == "find" else found
            time.sleep(self._random.uniform(0, 0.004))
            return found

        return slow


def check_nobody_meets(place: str, workers: int, rounds: int, seed: int) -> None:
    at_work: list[str] = []
    mistakes: list[list[str]] = []
    lock = threading.Lock()
    counts = {"alone": 0, "shared": 0}

    def work(number: int) -> None:
        chance = random.Random(seed + number)
        source = Slow(open_source(place, None, {}), seed + number)
        own = Holds(source)  # type: ignore[arg-type]
        for _ in range(rounds):
            alone = chance.random() < 0.4
            kind = "alone" if alone else "shared"
            with (
                contextlib.suppress(StoreUnavailableError),
                own.holding(source, alone=alone, wait=chance.random() < 0.7),  # type: ignore[arg-type]
            ):
                with lock:
                    at_work.append(kind)
                    counts[kind] += 1
                    if "alone" in at_work and len(at_work) > 1:
                        mistakes.append(list(at_work))
                time.sleep(chance.uniform(0, 0.003))
                with lock:
                    at_work.remove(kind)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mistakes == []
    assert sum(counts.values()) > 0
    assert flags_of(place) == []


def test_nobody_meets_whoever_is_alone(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "WAIT_SECONDS", 0.3)
    check_nobody_meets(place, 4, 8, 1)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_nobody_ever_meets_whoever_is_alone(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "WAIT_SECONDS", 0.3)
    for seed in range(0, 2_000, 10):
        check_nobody_meets(place, 6, 20, seed)


def test_on_s3_the_server_tells_the_age(bucket: Bucket) -> None:
    folder = open_objects(f"{bucket.url}/team", bucket.server.target_options)
    assert isinstance(folder, FsspecObjects)
    bucket.put("team/" + FLAG.format("alone"), b"0")  # whatever it says itself
    with pytest.raises(StoreUnavailableError), folder.holding(alone=False, wait=False):
        pytest.fail("another is at work")
    with (
        bucket.server.recorded() as requests,
        contextlib.suppress(StoreUnavailableError),
        folder.holding(alone=False, wait=False),
    ):
        pytest.fail("another is at work")
    assert requests.counts == {"PutObject": 1, "ListObjectsV2": 1, "DeleteObject": 1}
    assert bucket.keys() == ["team/" + FLAG.format("alone")]
    kept = bucket.server.backend.get_object(bucket.name, "team/" + FLAG.format("alone"))
    kept.last_modified -= timedelta(seconds=3_700)
    with folder.holding(alone=True, wait=False):
        pass
    assert bucket.keys() == []
