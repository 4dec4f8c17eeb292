"""What skillfs costs. Each function runs in a process of its own, after the import of skillfs.

References are drawn from the filesystem itself before the clock starts.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.measure import Meter, command, microseconds

_CHARACTERS = 1000


def _load() -> Any:
    """Import the class, so that what is timed afterwards does not pay for the import."""
    from skillfs import SkillFileSystem

    return SkillFileSystem


def _open(store: str, index: str) -> Any:
    return _load()(store, index=index, skip_instance_cache=True)


def _fresh(state: str) -> str:
    """Path of an index file that is not there yet, in a folder of its own."""
    return os.path.join(tempfile.mkdtemp(prefix="fresh-", dir=state), "index.sqlite")


def prepare(store: str, index: str) -> dict[str, float]:
    """Make the index that the rows on a warm one open; not timed."""
    for path in Path(index).parent.glob(Path(index).name + "*"):
        path.unlink()
    _open(store, index)
    # Once more: what was written within the clock's grain of the first check is looked at again.
    _open(store, index)
    return {}


def first_opening(store: str, state: str) -> dict[str, float]:
    _load()

    index = _fresh(state)
    with Meter() as meter:
        fs = _open(store, index)
    figures = meter.figures() | {"found": len(fs.skills())}
    shutil.rmtree(os.path.dirname(index))
    return figures


def full_hashes(store: str, state: str) -> dict[str, float]:
    """A first opening and then every hash, as `skillfs index --full` on a new index."""
    _load()

    index = _fresh(state)
    with Meter() as meter:
        _open(store, index).index_all()
    shutil.rmtree(os.path.dirname(index))
    return meter.figures()


def reopening(store: str, index: str) -> dict[str, float]:
    _load()

    with Meter() as meter:
        _open(store, index)
    return meter.figures()


def check_again(store: str, index: str) -> dict[str, float]:
    """`sync()` of an open filesystem in which nothing changed."""
    fs = _open(store, index)
    with Meter() as meter:
        fs.sync()
    return meter.figures()


def discovery(store: str, index: str, state: str) -> dict[str, float]:
    """Names and descriptions: on an open filesystem, with a re-opening, with a first opening."""
    _load()

    with Meter() as reopened:
        fs = _open(store, index)
        with Meter() as listed:
            found = len(fs.skills())
    fresh = _fresh(state)
    with Meter() as first:
        _open(store, fresh).skills()
    shutil.rmtree(os.path.dirname(fresh))
    return {"open": listed.cpu, "re-opened": reopened.cpu, "first": first.cpu, "found": found}


def read_huge(store: str, index: str, calls: int) -> dict[str, float]:
    """1,000 characters at random places near the start, the middle and the end of 200 MB."""
    fs = _open(store, index)
    entry = fs.entry("texts/huge.txt")
    size = fs.get_content(entry.id, 0, 0).size
    rng = random.Random(1)
    spread = size // 100
    places = {"start": 0, "middle": size // 2, "end": size - spread - 2 * _CHARACTERS}
    figures = {}
    for name, place in places.items():
        arguments = [(entry.id, place + rng.randrange(spread), _CHARACTERS) for _ in range(calls)]
        if any(len(fs.get_content(*each).text) != _CHARACTERS for each in arguments[:20]):
            raise RuntimeError("a reading is shorter than it should be")
        figures[name] = microseconds(fs.get_content, arguments)
    return figures


def read_pages(store: str, index: str, paths: list[str], calls: int) -> dict[str, float]:
    fs = _open(store, index)
    references = [fs.get_content(f"/{path}").uuid for path in paths]
    return {"": microseconds(fs.get_content, [(references[i % len(references)],) for i in range(calls)])}


def look_up(store: str, index: str, calls: int) -> dict[str, float]:
    """`entry()` of files all over the store, by each form of reference."""
    fs = _open(store, index)
    paths: list[str] = []
    for skill in fs.skills():
        folder = os.path.join(store, skill.path)
        paths.extend(
            f"{skill.path}/{name}" for name in os.listdir(folder) if os.path.isfile(f"{folder}/{name}")
        )
        if len(paths) > 20 * calls:
            break
    random.Random(1).shuffle(paths)
    entries = [fs.entry(f"/{path}") for path in paths[:calls]]
    return {
        "id": microseconds(fs.entry, [(entry.id,) for entry in entries]),
        "uuid": microseconds(fs.entry, [(entry.uuid,) for entry in entries]),
        "path": microseconds(fs.entry, [(f"/{entry.path}",) for entry in entries]),
        "hash": microseconds(fs.entry, [(entry.hash,) for entry in entries]),
    }


def tree(store: str, index: str, skills: list[str], calls: int) -> dict[str, float]:
    """The tree of a skill of twelve files, as a value and drawn."""
    fs = _open(store, index)
    uuids = [fs.entry(f"/{skill}").uuid for skill in skills]
    arguments = [(uuids[i % len(uuids)],) for i in range(calls)]
    return {
        "listed": microseconds(fs.skill_tree, arguments),
        "drawn": microseconds(lambda ref: str(fs.skill_tree(ref)), arguments),
    }


def command_line(samples: str, state: str) -> dict[str, float]:
    """`skillfs -s sample_skills tree`, from start to end."""
    script = Path(sys.executable).with_name("skillfs")
    argv = [str(script)] if script.exists() else [sys.executable, "-m", "skillfs.faces.cli"]
    env = os.environ | {"XDG_DATA_HOME": state}
    return command([*argv, "-s", samples, "tree"], env=env)
