"""When what is too young is looked at again."""

from __future__ import annotations

import math

from skillfs.sync.young import MOST_YOUNG_SECONDS, YOUNG_SECONDS, Young


def test_it_is_looked_at_again_when_it_is_old_enough() -> None:
    young = Young()
    assert young.due == math.inf
    assert young.take(1e9) == set()
    young.add({"a"}, 0, 100.0)
    assert young.due == 100.0 + YOUNG_SECONDS
    assert young.take(100.0) == set()
    assert young.take(101.0) == {"a"}
    assert young.due == math.inf


def test_a_large_file_is_young_for_longer() -> None:
    young = Young()
    young.add({"a"}, 1 << 30, 0.0)
    assert 20 < young.due < 100


def test_a_second_look_that_is_too_soon_puts_it_off() -> None:
    young = Young()
    young.add({"a", "b"}, 0, 0.0)
    young.add({"a"}, 0, 0.04)
    assert young.take(0.06) == {"b"}
    assert young.take(0.1) == {"a"}


def test_what_stays_young_is_looked_at_less_and_less() -> None:
    young = Young()
    now, pauses = 0.0, []
    for _ in range(40):
        young.add({"a"}, 0, now)
        pauses.append(round(young.due - now, 3))
        now = young.due
        assert young.take(now) == {"a"}
    assert pauses == sorted(pauses)
    assert pauses[-1] == MOST_YOUNG_SECONDS
    assert len(young._queue) + len(young._due) + len(young._taken) <= 1


def test_what_is_written_all_the_time_is_looked_at_soon_when_that_ends() -> None:
    young = Young()
    now = 0.0
    for _ in range(100):
        now += 0.1
        young.take(now)
        young.add({"a"}, 0, now)  # too soon after that look,
        now += 0.01
        young.add({"a"}, 0, now)  # and after one that an event led to
    assert young.due <= now + YOUNG_SECONDS
