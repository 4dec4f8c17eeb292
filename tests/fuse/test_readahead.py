"""Reading ahead: bytes, numbers of requests and memory, without a store; threads where they are the point."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillfs.errors import ChangedError, StoreUnavailableError
from skillfs.fuse import windows
from skillfs.fuse.readahead import ReadAhead
from skillfs.fuse.windows import LARGEST_WINDOW, MOST_OF_FILE, PAGE, Plan, Room, Window
from skillfs.stores.workers import Workers

KIB = 1 << 10
MIB = 1 << 20
PIECE = 128 * KIB
"""What the kernel asks for at a time when a file is read on and on."""

SECONDS = 20
"""After which a thread that should have ended has not."""

SMALL = {
    "PAGE": 4,
    "FIRST_WINDOW": 16,
    "LARGEST_WINDOW": 128,
    "LONG_RUN": 256,
    "MOST_OF_FILE": 384,
    "BEHIND": 24,
}


class Tasks:
    """Background work that is done when a test says so."""

    def __init__(self) -> None:
        self.tasks: list[tuple[Callable[[Window], object], Window]] = []

    def submit(self, work: Callable[[Window], object], window: Window) -> None:
        self.tasks.append((work, window))

    def run(self, number: int = 0) -> None:
        work, window = self.tasks.pop(number)
        work(window)

    def run_all(self) -> None:
        while self.tasks:
            self.run()


class File:
    """What is fetched from; it counts, and fails where that was asked for."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.fetches: list[tuple[int, int]] = []
        self.errors: list[Exception | None] = []
        self.failing: set[int] = set()

    def fetch(self, offset: int, length: int) -> bytes:
        self.fetches.append((offset, length))
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        if offset in self.failing:
            self.failing.remove(offset)
            raise away()
        return self.data[offset : offset + length]


def reader(file: File, tasks: Tasks, room: Room | None = None, start: int = 0) -> ReadAhead:
    return ReadAhead(file.fetch, len(file.data), cast(Workers, tasks), room, file.data[:start])


def away() -> StoreUnavailableError:
    return StoreUnavailableError("the store does not answer; try again later")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of a few bytes."""
    for name, value in SMALL.items():
        monkeypatch.setattr(windows, name, value)


# -- bytes ---------------------------------------------------------------------------------------------------

LARGE = random.Random(7).randbytes(3_000)

readings = st.tuples(st.just("read"), st.integers(0, 3_100), st.integers(0, 200))
onward = st.tuples(st.just("on"), st.integers(0, 3), st.integers(1, 64))
work = st.tuples(st.just("work"), st.integers(0, 9), st.just(0))
failure = st.tuples(st.just("fail"), st.integers(0, 2), st.just(0))
steps = st.lists(st.one_of(readings, onward, onward, work, failure), max_size=60)


def test_any_readings_in_any_order_give_the_bytes(small: None) -> None:
    @given(steps=steps, start=st.sampled_from([0, 1, 50]), most=st.sampled_from([40, 384, 4_000]))
    @settings(max_examples=200, deadline=None)
    def check(steps: list[tuple[str, int, int]], start: int, most: int) -> None:
        file, tasks, room = File(LARGE), Tasks(), Room(most)
        ahead = reader(file, tasks, room, start)
        places = [0, 700, 710, 1_500]
        for kind, first, second in steps:
            if kind == "work":
                if tasks.tasks:
                    tasks.run(first % len(tasks.tasks))
            elif kind == "fail":
                file.errors = [*[None] * first, away()]
            else:
                offset = first if kind == "read" else places[first]
                try:
                    assert ahead.read(offset, second) == LARGE[offset : offset + second]
                except StoreUnavailableError:
                    assert ahead.read(offset, second) == LARGE[offset : offset + second]
                if kind == "on":
                    places[first] += second
            assert_sound(ahead, room, most)
        ahead.close()
        tasks.run_all()
        assert room.held == ahead._plan.held == 0

    check()


def assert_sound(ahead: ReadAhead, room: Room, most: int) -> None:
    plan = ahead._plan
    assert room.held == plan.held == sum(w.length for w in plan._windows if w.kept and w is not plan._start)
    assert plan.held <= min(most, windows.MOST_OF_FILE)
    assert all(window.begun or window.ahead for window in plan._windows)  # no reading has left one behind
    assert_disjoint(plan)


def assert_disjoint(plan: Plan) -> None:
    for before, after in zip(plan._windows, plan._windows[1:], strict=False):
        assert before.end <= after.start


def test_plans_are_sound_whatever_ends_when(small: None) -> None:
    # As threads have it: several readings at a time, each window ends some time after it was begun.
    @given(steps=steps, numbers=st.randoms(use_true_random=False))
    @settings(max_examples=200, deadline=None)
    def check(steps: list[tuple[str, int, int]], numbers: random.Random) -> None:
        room = Room(600)
        plans = [Plan(3_000, room), Plan(3_000, room, b"start")]
        under_way: list[tuple[Plan, Window]] = []
        places = [0, 0, 700, 700]
        for kind, first, second in steps:
            if kind in ("work", "fail"):
                if under_way:
                    plan, window = under_way.pop(numbers.randrange(len(under_way)))
                    data = bytes(window.length) if kind == "work" else None
                    plan.end(window, data, None if data is not None else away())
            else:
                plan = plans[first % 2]
                offset = min(first, 2_999) if kind == "read" else places[first]
                end = min(offset + max(1, second), 3_000)
                parts, ahead = plan.read(offset, end)
                assert parts[0].start <= offset < parts[0].end
                assert [part.start for part in parts[1:]] == [part.end for part in parts[:-1]]
                assert parts[-1].start < end <= parts[-1].end
                assert_disjoint(plan)
                for window in [*parts, *ahead]:
                    if not window.begun:
                        window.begun = True
                        under_way.append((plan, window))
                if kind == "on":
                    places[first] = end if end < 3_000 else 0
            assert room.held == sum(plan.held for plan in plans) <= 600
            assert all(0 <= plan.held <= 384 for plan in plans)
        for plan in plans:
            plan.clear()
        for plan, window in under_way:
            plan.end(window, bytes(window.length))
        assert room.held == 0
        assert not room._files

    check()


def test_nothing_is_read_past_the_end() -> None:
    file, tasks = File(b"0123456789"), Tasks()
    ahead = reader(file, tasks)
    assert ahead.read(10, 5) == ahead.read(99, 5) == ahead.read(3, 0) == b""
    assert not file.fetches
    assert ahead.read(8, 5) == b"89"


# -- requests ------------------------------------------------------------------------------------------------


def test_single_readings_fetch_what_they_ask_for() -> None:
    slot = 64 * KIB
    data = bytes(100 * slot + 77)

    spans = st.dictionaries(
        st.integers(0, 99), st.tuples(st.integers(1, PAGE), st.integers(1, slot - PAGE * 3))
    )

    @given(spans=spans, numbers=st.randoms(use_true_random=False))
    @settings(max_examples=50, deadline=None)
    def check(spans: dict[int, tuple[int, int]], numbers: random.Random) -> None:
        file, tasks = File(data), Tasks()
        ahead = reader(file, tasks)
        order = list(spans)
        numbers.shuffle(order)
        for number in order:
            offset, length = number * slot + spans[number][0], spans[number][1]
            file.fetches.clear()
            assert len(ahead.read(offset, length)) == length
            [(first, count)] = file.fetches
            assert first == offset - offset % PAGE
            assert first + count == -(-(offset + length) // PAGE) * PAGE
        assert not tasks.tasks
        assert ahead._plan.held == 0

    check()


def pieces(
    size: int, piece: int, numbers: random.Random | None, spread: int = 1
) -> Iterator[tuple[int, int]]:
    """A file from one end to the other, in pieces of which some stand in each other's place."""
    offsets = list(range(0, size, piece))
    if numbers is not None:
        # As threads of a server take them up: each a few places before or after its own.
        keys = {at: number + numbers.random() * spread for number, at in enumerate(offsets)}
        offsets.sort(key=keys.__getitem__)
    for at in offsets:
        yield at, min(piece, size - at)


class Zeros(File):
    """A large file that takes no memory until it is fetched."""

    def __init__(self, size: int) -> None:
        super().__init__(b"")
        self.size = size

    def fetch(self, offset: int, length: int) -> bytes:
        super().fetch(offset, 0)
        assert offset + length <= self.size
        self.fetches[-1] = offset, length
        return bytes(length)


@pytest.mark.parametrize("piece", [PIECE, 100_003])
@pytest.mark.parametrize("size", [1, PIECE + 1, 5 * MIB, 100 * MIB + 12_345])
@pytest.mark.parametrize("when", ["at once", "never", "late"])
def test_reading_from_one_end_to_the_other_takes_few_requests(size: int, piece: int, when: str) -> None:
    file, tasks, room = Zeros(size), Tasks(), Room()
    ahead = ReadAhead(file.fetch, size, cast(Workers, tasks), room)
    most = 0
    for offset, length in pieces(size, piece, None):
        assert len(ahead.read(offset, length)) == length
        most = max(most, room.held)
        if when == "at once":
            tasks.run_all()
        elif when == "late" and len(tasks.tasks) > 1:
            tasks.run()
    assert len(file.fetches) <= size / LARGEST_WINDOW + 8
    assert sum(length for _, length in file.fetches) <= size + PIECE
    assert most <= MOST_OF_FILE
    if size > LARGEST_WINDOW:
        assert most > 2 * LARGEST_WINDOW  # two windows ahead of a long run
    assert room.held == 0  # nothing is held of what was read to its end
    tasks.run_all()
    assert len(file.fetches) <= size / LARGEST_WINDOW + 8


def test_readings_out_of_order_take_few_requests() -> None:
    size = 40 * MIB

    @given(numbers=st.randoms(use_true_random=False), spread=st.integers(1, 8), late=st.booleans())
    @settings(max_examples=15, deadline=None)
    def check(numbers: random.Random, spread: int, late: bool) -> None:
        file, tasks, room = Zeros(size), Tasks(), Room()
        ahead = ReadAhead(file.fetch, size, cast(Workers, tasks), room)
        for offset, length in pieces(size, PIECE, numbers, spread):
            assert len(ahead.read(offset, length)) == length
            if not late:
                tasks.run_all()
        assert len(file.fetches) <= size / LARGEST_WINDOW + 8 + 2 * spread
        assert room.held <= windows.BEHIND  # what came too early was fetched by itself, and again

    check()


def test_the_start_is_not_asked_for_again() -> None:
    file, tasks = File(bytes(MIB)), Tasks()
    ahead = reader(file, tasks, start=PIECE)
    for offset in range(0, PIECE, 16 * KIB):
        ahead.read(offset, 16 * KIB)
    assert not file.fetches
    tasks.run_all()
    assert file.fetches[0] == (PIECE, 384 * KIB)  # what comes next was on its way meanwhile
    ahead.read(PIECE, PIECE)
    assert len(file.fetches) == 1


def test_windows_grow_and_end_where_blocks_do() -> None:
    file, tasks = Zeros(64 * MIB), Tasks()
    ahead = ReadAhead(file.fetch, file.size, cast(Workers, tasks))
    for offset, length in pieces(40 * MIB, PIECE, None):
        ahead.read(offset, length)
        tasks.run_all()
    lengths = [length // (256 * KIB) for _, length in file.fetches[2:]]
    assert lengths[:6] == [2, 4, 8, 16, 32, 32]
    assert all((offset + length) % (256 * KIB) == 0 for offset, length in file.fetches[1:])


def test_little_is_fetched_for_who_stops_early() -> None:
    file, tasks = Zeros(100 * MIB), Tasks()
    ahead = ReadAhead(file.fetch, file.size, cast(Workers, tasks))
    for offset, length in pieces(60 * MIB, PIECE, None):
        ahead.read(offset, length)
        tasks.run_all()
        read, fetched = offset + length, sum(length for _, length in file.fetches)
        assert fetched <= min(4 * read + 256 * KIB, read + 3 * LARGEST_WINDOW)
        if read < 16 * MIB:
            assert fetched <= read + 2 * LARGEST_WINDOW


def test_two_places_of_a_file_are_read_on_from() -> None:
    file, tasks = Zeros(64 * MIB), Tasks()
    ahead = ReadAhead(file.fetch, file.size, cast(Workers, tasks))
    for offset in range(0, 16 * MIB, PIECE):
        for place in (offset, offset + 32 * MIB):
            ahead.read(place, PIECE)
            tasks.run_all()
    assert len(file.fetches) < 40  # 256 by single readings


def test_bytes_that_are_not_asked_for_are_dropped() -> None:
    # The kernel has some of a file already.
    file, tasks, room = Zeros(64 * MIB), Tasks(), Room()
    ahead = ReadAhead(file.fetch, file.size, cast(Workers, tasks), room)
    for number, (offset, length) in enumerate(pieces(64 * MIB, PIECE, None)):
        if number % 8 != 5:
            ahead.read(offset, length)
            tasks.run_all()
    assert len(file.fetches) <= 64 * MIB / LARGEST_WINDOW + 8
    assert room.held <= LARGEST_WINDOW


def test_a_place_that_is_left_makes_room_for_others() -> None:
    file, tasks = Zeros(256 * MIB), Tasks()
    ahead = ReadAhead(file.fetch, file.size, cast(Workers, tasks))

    def read(start: int, size: int) -> None:
        for offset in range(start, start + size, PIECE):
            ahead.read(offset, PIECE)
            tasks.run_all()

    left = (windows.STALE_READINGS + 8) * PIECE
    read(0, 30 * MIB)
    assert ahead._plan.held > 2 * LARGEST_WINDOW
    read(128 * MIB, left)
    assert all(window.start >= 128 * MIB for window in ahead._plan._windows)
    file.fetches.clear()
    read(128 * MIB + left, 48 * MIB)
    assert len(file.fetches) <= 48 * MIB / LARGEST_WINDOW + 4


def test_files_share_the_memory() -> None:
    room, tasks = Room(48 * MIB), Tasks()
    many = [ReadAhead(Zeros(64 * MIB).fetch, 64 * MIB, cast(Workers, tasks), room) for _ in range(8)]
    for offset in range(0, 32 * MIB, PIECE):
        for ahead in many:
            ahead.read(offset, PIECE)
            tasks.run_all()
            assert room.held <= 48 * MIB
    held = [ahead._plan.held for ahead in many]
    assert min(held) > 0  # none took all of it
    for ahead in many:
        ahead.close()
    assert room.held == 0


def test_a_file_that_is_not_read_makes_room() -> None:
    now = [0.0]
    room, tasks = Room(24 * MIB, lambda: now[0]), Tasks()

    def opened() -> ReadAhead:
        return ReadAhead(Zeros(64 * MIB).fetch, 64 * MIB, cast(Workers, tasks), room)

    def read(ahead: ReadAhead) -> None:
        for offset in range(0, 30 * MIB, PIECE):
            ahead.read(offset, PIECE)
            tasks.run_all()

    idle, other = opened(), opened()
    read(idle)
    taken = idle._plan.held
    assert taken > 16 * MIB
    read(other)
    assert idle._plan.held == taken  # it was read a moment ago
    now[0] = windows.IDLE + 1
    read(other)
    assert idle._plan.held == 0
    assert other._plan.held > 16 * MIB
    assert idle.read(30 * MIB, 10) == bytes(10)


# -- errors --------------------------------------------------------------------------------------------------


def reading_on(file: File, tasks: Tasks) -> ReadAhead:
    """Something that has been read up to 128 KiB, with a window ahead that is not being fetched yet."""
    ahead = reader(file, tasks)
    for offset in (0, 64 * KIB):
        ahead.read(offset, 64 * KIB)
    assert len(tasks.tasks) == 1
    return ahead


def test_an_error_in_the_background_is_for_whoever_needs_the_bytes() -> None:
    file, tasks = File(random.Random(1).randbytes(2 * MIB)), Tasks()
    ahead = reading_on(file, tasks)
    [(_, window)] = tasks.tasks
    file.errors = [away()]
    tasks.run()
    assert ahead.read(MIB, 10) == file.data[MIB : MIB + 10]
    assert ahead.read(window.start - 10, 10) == file.data[window.start - 10 : window.start]
    file.errors = [away()]
    with pytest.raises(StoreUnavailableError):  # it asked itself
        ahead.read(window.start, 10)
    assert ahead.read(window.start, 10) == file.data[window.start : window.start + 10]


def test_windows_are_small_again_after_an_error() -> None:
    plan = Plan(64 * MIB, Room())
    for offset, length in pieces(64 * MIB, PIECE, None):
        parts, ahead = plan.read(offset, offset + length)
        for window in [*parts, *ahead]:
            window.begun = True
            if window.length == 2 * MIB:
                plan.end(window, None, away())
                _, [again] = plan.read(offset + length, offset + 2 * length)
                assert (again.start, again.length) == (window.start, 256 * KIB)
                return
            if window.data is None:
                plan.end(window, bytes(window.length))
    pytest.fail("no window has grown")


def test_a_reading_that_fails_leaves_nothing_begun() -> None:
    file, tasks = File(bytes(2 * MIB)), Tasks()
    ahead = reading_on(file, tasks)
    [(_, window)] = tasks.tasks
    file.errors = [away()]
    with pytest.raises(StoreUnavailableError):
        ahead.read(window.start - 100 * KIB, window.length + 200 * KIB)  # with a gap on both sides
    assert file.fetches[-1] == (window.start, window.length)
    assert all(one.begun or one.ahead for one in ahead._plan._windows)


def test_a_changed_file_is_so_for_all_readings() -> None:
    file, tasks = File(bytes(2 * MIB)), Tasks()
    ahead = reading_on(file, tasks)
    file.errors = [ChangedError("it changed since it was opened; open it again")]
    tasks.run()
    for offset in (0, 70 * KIB, MIB):
        with pytest.raises(ChangedError):
            ahead.read(offset, 10)
    assert ahead._plan.held == 0


def test_a_change_drops_what_was_held() -> None:
    file, tasks = File(bytes(2 * MIB)), Tasks()
    ahead = reading_on(file, tasks)
    tasks.run()
    file.errors = [ChangedError("it changed since it was opened; open it again")]
    with pytest.raises(ChangedError):
        ahead.read(MIB + 512 * KIB, 10)
    with pytest.raises(ChangedError):
        ahead.read(PIECE, 10)
    assert ahead._plan.held == 0


def test_fewer_bytes_than_the_file_has_are_an_error() -> None:
    file, tasks = File(b"x" * 100), Tasks()
    ahead = ReadAhead(lambda offset, length: file.fetch(offset, length)[:-1], 100, cast(Workers, tasks))
    with pytest.raises(StoreUnavailableError, match="fewer bytes"):
        ahead.read(0, 50)


def test_after_closing_nothing_is_fetched() -> None:
    file, tasks = File(bytes(2 * MIB)), Tasks()
    ahead = reading_on(file, tasks)
    fetches = len(file.fetches)
    ahead.close()
    tasks.run_all()
    assert len(file.fetches) == fetches
    assert ahead._plan.held == 0


# -- threads -------------------------------------------------------------------------------------------------


class Gate(File):
    """A file whose fetches wait to be let through."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.came = threading.Semaphore(0)
        self.open = threading.Event()

    def fetch(self, offset: int, length: int) -> bytes:
        self.came.release()
        assert self.open.wait(SECONDS)
        return super().fetch(offset, length)


def in_threads(*works: Callable[[], Any]) -> tuple[list[threading.Thread], list[Any]]:
    """Begun threads, and what becomes of each: what it returns, or raises."""
    results: list[Any] = [None] * len(works)

    def run(number: int) -> None:
        try:
            results[number] = works[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(len(works))]
    for thread in threads:
        thread.start()
    return threads, results


def join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_threads_that_want_the_same_bytes_wait_for_one_request() -> None:
    file = Gate(random.Random(2).randbytes(MIB))
    with Workers() as workers:
        ahead = ReadAhead(file.fetch, MIB, workers)
        threads, results = in_threads(*[lambda: ahead.read(300_000, 1_000)] * 4)
        until(lambda: ahead._plan._readings == 4)
        file.open.set()
        join(threads)
    assert results == [file.data[300_000:301_000]] * 4
    assert len(file.fetches) == 1


def test_who_waits_for_a_request_that_fails_has_its_error() -> None:
    file = Gate(bytes(MIB))
    file.errors = [away()]
    with Workers() as workers:
        ahead = ReadAhead(file.fetch, MIB, workers)
        threads, results = in_threads(*[lambda: ahead.read(300_000, 1_000)] * 4)
        until(lambda: ahead._plan._readings == 4)
        file.open.set()
        join(threads)
    assert [type(result) for result in results] == [StoreUnavailableError] * 4
    assert len(file.fetches) == 1


def test_who_waits_for_the_background_asks_once_more_itself() -> None:
    file = Gate(random.Random(3).randbytes(2 * MIB))
    file.open.set()
    with Workers() as workers:
        ahead = ReadAhead(file.fetch, 2 * MIB, workers)
        ahead.read(0, 64 * KIB)
        file.open.clear()
        file.came = threading.Semaphore(0)
        # The second of them asks itself, and behind it begins what is fetched ahead.
        threads, results = in_threads(lambda: ahead.read(64 * KIB, 64 * KIB))
        for _ in range(2):
            assert file.came.acquire(timeout=SECONDS)
        [window] = [w for w in ahead._plan._windows if w.ahead]
        more, later = in_threads(lambda: ahead.read(window.start, 100))
        until(lambda: ahead._plan._readings == 3)
        file.failing = {64 * KIB, window.start}  # the one in the foreground, and the one behind it
        file.open.set()
        join([*threads, *more])
    assert isinstance(results[0], StoreUnavailableError)  # nobody asks twice for what it has asked for itself
    assert later == [file.data[window.start : window.start + 100]]
    assert (window.start, 100) in file.fetches


def test_requests_of_one_file_run_side_by_side() -> None:
    file = Gate(bytes(MIB))
    with Workers() as workers:
        ahead = ReadAhead(file.fetch, MIB, workers)
        threads, _ = in_threads(
            *[lambda at=at: ahead.read(at, 1_000) for at in range(0, MIB, 256 * KIB)]  # type: ignore[misc]
        )
        for _ in range(4):
            assert file.came.acquire(timeout=SECONDS)  # all of them, before any has an answer
        file.open.set()
        join(threads)


def test_a_window_that_waits_for_a_worker_is_fetched_by_who_needs_it() -> None:
    file, tasks = File(bytes(2 * MIB)), Tasks()  # whose background never does anything
    ahead = reading_on(file, tasks)
    [(_, window)] = tasks.tasks
    assert ahead.read(window.start, 10) == bytes(10)
    assert (window.start, window.length) in file.fetches


@pytest.mark.parametrize("examples", [3, pytest.param(300, marks=pytest.mark.soak)])
def test_many_threads_read_the_bytes(examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL.items():
        monkeypatch.setattr(windows, name, value * 64)
    data = random.Random(4).randbytes(200_000)
    for example in range(examples):
        faults = random.Random(example)

        def fetch(offset: int, length: int, faults: random.Random = faults) -> bytes:
            time.sleep(faults.random() * 0.0005)
            if faults.random() < 0.02:
                raise away()
            return data[offset : offset + length]

        def one_by_one(seed: int, ahead: ReadAhead) -> int:
            numbers, read = random.Random(seed), 0
            for offset, length in pieces(len(data), numbers.choice([1_000, 4_096]), numbers, 3):
                read += checked(ahead, offset, length)
            return read

        def anywhere(seed: int, ahead: ReadAhead) -> int:
            numbers = random.Random(seed)
            return sum(
                checked(ahead, numbers.randrange(210_000), numbers.randrange(9_000)) for _ in range(60)
            )

        def checked(ahead: ReadAhead, offset: int, length: int) -> int:
            for _ in range(20):
                try:
                    found = ahead.read(offset, length)
                except StoreUnavailableError:
                    continue
                assert found == data[offset : offset + length]
                return len(found)
            raise AssertionError("it failed at every attempt")

        room = Room(60_000)
        with Workers() as workers:
            ahead = ReadAhead(fetch, len(data), workers, room)
            other = ReadAhead(fetch, len(data), workers, room)
            threads, results = in_threads(
                *[lambda s=s, a=a: one_by_one(s, a) for s in range(2) for a in (ahead, other)],  # type: ignore[misc]
                *[lambda s=s, a=a: anywhere(s, a) for s in range(2) for a in (ahead, other)],  # type: ignore[misc]
            )
            join(threads)
            assert results[:4] == [len(data)] * 4
            assert [result for result in results if not isinstance(result, int)] == []
            ahead.close()
            other.close()
            until(lambda room=room: room.held == 0)  # type: ignore[misc]
