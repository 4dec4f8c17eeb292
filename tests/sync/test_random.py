"""Random operations on a real folder: after each sync the index shows what the model shows."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from skillfs.sync.gather import find_dirty
from tests.sync.harness import Follower, check, check_like_new, make_engine, rows, with_coarse_stamps
from tests.sync.operations import Operations

SYNCS = 8
SEQUENCES = 12
"""In each test, so that few folders are made."""


def run(tmp_path: Path, seed: int) -> None:
    root, outside = tmp_path / "store", tmp_path / "outside"
    root.mkdir(parents=True)
    outside.mkdir()
    (outside / "SKILL.md").write_text("outside\n")
    operations = Operations(root, outside, seed)
    if seed % 3 == 1:  # without links, what leads to skills is found in another way
        some = [operation for operation in operations._operations if "link" not in operation.__name__]
        operations._operations[:] = some
    chance = random.Random(-seed)
    try:
        for _ in range(chance.randrange(20)):
            operations.run()
        engine = make_engine(root, tmp_path / "index.sqlite" if seed % 4 == 0 else None)
        engine.sync()
        operations.log.append("-- opened")
        check(engine, root)
        follower = Follower(engine)
        for _ in range(SYNCS):
            before = rows(engine)
            for _ in range(chance.choice((1, 1, 2, 3, 8))):
                operations.run()
            if chance.random() < 0.3:
                scope = chance.choice((*before, "a/b/c/nothing"))
                operations.log.append(f"-- sync {scope}")
                engine.sync(scope)
            elif chance.random() < 0.1:
                engine.look_again(chance.choice([p for p, r in before.items() if r.kind < 2]))
            engine.sync()
            operations.log.append("-- sync")
            check(engine, root)
            after = rows(engine)
            for path in before.keys() & after.keys():
                if (
                    (before[path].kind < 2) == (after[path].kind < 2)
                    and before[path].uuid
                    and after[path].uuid
                ):
                    assert before[path].uuid == after[path].uuid, path
                    assert before[path].id == after[path].id, path
            follower.catch_up()
            assert follower.states == Follower(engine).states
            revision = engine.journal.revision()
            engine.sync()
            assert engine.journal.revision() == revision
        time.sleep(0.03)  # until the last stamps are old enough to be trusted
        engine.sync()
        assert find_dirty(engine.store, engine.catalog) == set()
        check_like_new(engine, root)
    except BaseException:
        print(f"seed {seed}:", *operations.log, sep="\n  ")
        raise


@pytest.mark.parametrize("start", range(0, 20 * SEQUENCES, SEQUENCES))
def test_random_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int) -> None:
    if start % 8 == 0:
        with_coarse_stamps(monkeypatch)
    for seed in range(start, start + SEQUENCES):
        run(tmp_path / str(seed), seed)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_random_operations(tmp_path: Path) -> None:
    start = random.SystemRandom().randrange(1 << 40)
    until = time.monotonic() + 300
    while time.monotonic() < until:
        run(tmp_path / str(start), start)
        start += 1
