"""Eight readers and two watchers, each a process, share an index of a store that somebody writes to."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import logging
import mmap
import os
import random
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from skillfs import SkillFileSystem
from skillfs.core.digest import hex_hash, xxh3
from skillfs.core.drawing import TreeNode
from skillfs.errors import ChangedError, NotFoundError, SkillFSError
from tests.conftest import skill_md
from tests.sync.model import visible
from tests.test_bursts import Told

ROOT = Path(__file__).parent.parent
READERS, WATCHERS = 8, 2
SECONDS = 10.0
PATIENCE = 60.0

SKILLS = 4
REPLACED, MOVED = 8, 8
"""Slots: files that are always there, and files that come, go and move."""

SLOTS = SKILLS + REPLACED + MOVED + 1
FOLDER = SLOTS - 1
"""The slot of a whole skill folder that is moved to and fro."""

PLACES = ("here", "there/inside")
PARTS = ("SKILL.md", "deep/a.md", "deep/b.md")


class State(NamedTuple):
    """Where a file is, and what it holds."""

    path: str
    text: str


@functools.lru_cache(4096)
def text(slot: int, version: int) -> str:
    """A text that says whose it is, which version, and what has to stand before its end."""
    rng = random.Random(slot << 32 | version)
    body = f"{slot} {version} " + "é" * rng.randrange(3) + "x" * rng.randrange(700)
    return f"{body} {md5(body.encode())}\n"


@functools.lru_cache(4096)
def states(slot: int, version: int) -> State | None:
    """What there is of a slot at a version of it; None while it is not there."""
    if slot < SKILLS:
        return State(f"skill-{slot}/SKILL.md", skill_md(f"skill-{slot}", text(slot, version).strip()))
    home = f"skill-{slot % SKILLS}/docs/{slot}.md"
    if slot < SKILLS + REPLACED:
        whole = text(slot, version - version % 3)
        return State(home, whole + "".join(text(slot, version - n) for n in reversed(range(version % 3))))
    step, begun = version % 8, version - version % 8
    if step <= 3:  # replaced, added to, moved away, moved back
        away = f"skill-{(slot + 1) % SKILLS}/away/{slot}.md"
        whole = text(slot, begun) + (text(slot, begun + 1) if step else "")
        return State(away if step == 2 else home, whole)
    if step == 4:  # removed
        return None
    return State(home, "" if step == 6 else text(slot, version))  # made anew, cut short, written to


def folder(version: int) -> str:
    return PLACES[version % 2]


class Versions:
    """Which version of each slot is there: that which was done last, or one after it that was begun."""

    def __init__(self, path: Path, slots: int = SLOTS) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 16 * slots)
        self.done = (ctypes.c_uint64 * slots).from_buffer(self._map)
        self.begun = (ctypes.c_uint64 * slots).from_buffer(self._map, 8 * slots)


# -- the writer --------------------------------------------------------------------------------------------


def write(root: Path, versions: Versions, until: float) -> dict[str, Any]:
    rng = random.Random(3)
    while time.monotonic() < until:
        slot = rng.randrange(SLOTS)
        version = versions.done[slot] + 1
        versions.begun[slot] = version
        step(root, slot, version)
        versions.done[slot] = version
        time.sleep(rng.choice((0, 0.0005, 0.005, 0.02)))
    return {"written": sum(versions.done)}


def step(root: Path, slot: int, version: int) -> None:
    """Lead a slot from the version before to this one, so that there is nothing in between."""
    if slot == FOLDER:
        (root / folder(version - 1)).rename(root / folder(version))
        return
    old, new = states(slot, version - 1), states(slot, version)
    if new is None:
        assert old is not None
        (root / old.path).unlink()
    elif old is None or new.path == old.path:
        path = root / new.path
        if old is not None and new.text == "":
            os.truncate(path, 0)
        elif old is not None and new.text.startswith(old.text):
            with path.open("ab", 0) as file:
                file.write(new.text.removeprefix(old.text).encode())
        else:
            beside = path.with_name(f"{path.name}~")
            beside.write_text(new.text)
            beside.replace(path)
    else:
        (root / old.path).rename(root / new.path)


# -- readers -----------------------------------------------------------------------------------------------


class Reader:
    """Asks for this and that, and compares what comes with what there was between question and answer."""

    def __init__(self, fs: SkillFileSystem, versions: Versions, seed: int) -> None:
        self.fs = fs
        self.versions = versions
        self.random = random.Random(seed)
        self.calls: Counter[str] = Counter()
        self.slowest = 0.0
        self.seen = [0] * SLOTS
        self._asks: list[Callable[[], None]] = [
            *(self.content, self.content, self.content_by_uuid, self.bytes, self.entry),
            *(self.find, self.tree, self.skills),
        ]

    def run(self, until: float) -> dict[str, Any]:
        while time.monotonic() < until:
            self.random.choice(self._asks)()
        return {"calls": self.calls, "slowest": self.slowest}

    def _ask(self, slot: int, ask: Callable[[], Any]) -> tuple[Any, list[State | None], bool]:
        """The answer, or the error; every state that there was meanwhile; and whether there were several."""
        first, started = self.versions.done[slot], time.monotonic()
        try:
            answer = ask()
        except (NotFoundError, ChangedError) as error:
            answer = error
        self.slowest = max(self.slowest, time.monotonic() - started)
        last = self.versions.begun[slot]
        return answer, [states(slot, version) for version in range(first, last + 1)], last > first

    def _slot_and_path(self) -> tuple[int, str]:
        slot = self.random.randrange(FOLDER)
        places = {state.path for version in range(8) if (state := states(slot, version)) is not None}
        return slot, self.random.choice(sorted(places))

    def _count(self, call: str, answer: Any) -> bool:
        """Count a call; returns whether it was answered."""
        is_error = isinstance(answer, SkillFSError)
        self.calls[f"{call}: {answer.code}" if is_error else call] += 1
        return not is_error

    def _compare(self, answer: Any, there: list[State | None], path: str, shown: str, several: bool) -> None:
        texts = [None if state is None or state.path != path else state.text for state in there]
        if isinstance(answer, NotFoundError):
            assert None in texts, f"{path} was there all the time"
        elif isinstance(answer, ChangedError):
            assert several, f"{path} did not change"
        else:
            assert shown in texts, f"{path} was never {shown!r} but one of {texts!r}"

    def content(self) -> None:
        slot, path = self._slot_and_path()
        answer, there, several = self._ask(slot, lambda: self.fs.get_content(f"/{path}"))
        shown = ""
        if self._count("get_content", answer):
            shown = answer.text
            assert answer.hash == md5(shown.encode())
            assert (answer.size, answer.length, answer.start) == (len(shown), len(shown), 0)
            assert answer.path == path
        self._compare(answer, there, path, shown, several)

    def content_by_uuid(self) -> None:
        slot, path = self._slot_and_path()
        answer, there, several = self._ask(slot, lambda: self.fs.get_content(self.fs.entry(f"/{path}").uuid))
        if self._count("get_content by UUID", answer):
            shown = answer.text
            assert answer.hash == md5(shown.encode())
            assert (answer.path, shown) in there
        elif isinstance(answer, NotFoundError):
            assert several or there[0] is None or there[0].path != path
        else:
            assert several

    def bytes(self) -> None:
        slot, path = self._slot_and_path()
        answer, there, several = self._ask(slot, lambda: self.fs.cat_file(path))
        shown = answer.decode() if self._count("cat_file", answer) else ""
        self._compare(answer, there, path, shown, several)

    def entry(self) -> None:
        slot, path = self._slot_and_path()
        answer, there, several = self._ask(slot, lambda: self.fs.entry(f"/{path}"))
        shown = ""
        if self._count("entry", answer):
            assert answer.path == path
            like = [state.text for state in there if state is not None and is_of(answer, state)]
            assert like, f"{answer} was none of {there}"
            shown = like[0]
        self._compare(answer, there, path, shown, several)

    def find(self) -> None:
        """Every file that is always there, and none that never was.

        What was moved while somebody looked may be in two places for a moment, or in none: that is counted.
        """
        found = self.fs.find("")
        self.calls["find"] += 1
        left = set(found)
        assert len(left) == len(found)
        for slot in range(FOLDER):
            places = {state.path for version in range(8) if (state := states(slot, version)) is not None}
            shown = left & places
            assert shown or slot >= SKILLS + REPLACED, f"not listed: {places}"
            self.calls["find: in motion"] += len(shown) > 1
            left -= places
        folders = [{f"{place}/{part}" for part in PARTS} for place in PLACES]
        self.calls["find: in motion"] += left not in folders
        assert left <= folders[0] | folders[1]

    def tree(self) -> None:
        """Sizes and hashes of a listing are of one version each, as old as it may be."""
        skill = self.random.randrange(SKILLS)
        listed = self.fs.skill_tree(f"/skill-{skill}", details=True, limit=None)
        self.calls["skill_tree"] += 1
        files = list(files_of(listed.root))
        for node in files:
            slot = skill if node.name == "SKILL.md" else int(node.name.removesuffix(".md"))
            if node.hash is None:  # gone before its details were looked up
                assert slot >= SKILLS + REPLACED, node
                continue
            versions = range(self.seen[slot], self.versions.begun[slot] + 1)
            assert any(has_details(node, states(slot, version)) for version in versions), node
        always = (slot for slot in range(SKILLS, SKILLS + REPLACED) if slot % SKILLS == skill)
        assert {node.path for node in files} >= {f"skill-{skill}/docs/{slot}.md" for slot in always}

    def skills(self) -> None:
        """All of them, always; no description that never was, and none older than one that was seen."""
        found = {skill.path: skill for skill in self.fs.skills()}
        self.calls["skills"] += 1
        assert found.keys() - set(PLACES) == {f"skill-{slot}" for slot in range(SKILLS)}
        self.calls["skills: in motion"] += len(found) != SKILLS + 1
        for slot in range(SKILLS):
            description = found[f"skill-{slot}"].description
            version = int(description.split()[1])
            assert description == text(slot, version).strip()
            assert self.seen[slot] <= version <= self.versions.begun[slot], (slot, version)
            self.seen[slot] = version


def is_of(entry: Any, state: State) -> bool:
    data = state.text.encode()
    return bool(
        entry.size == len(data)
        and entry.hash == hex_hash(xxh3(data))
        and entry.md5 in (None, md5(data))
        and entry.characters in (None, len(state.text))
    )


def files_of(node: TreeNode) -> Iterator[TreeNode]:
    for child in node.children:
        yield from files_of(child)
        if child.kind == "file":
            yield child


def has_details(node: TreeNode, state: State | None) -> bool:
    if state is None:
        return False
    data = state.text.encode()
    return (node.size, node.characters, node.hash) == (len(data), len(state.text), md5(data))


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


# -- watchers ----------------------------------------------------------------------------------------------


def follow(fs: SkillFileSystem, root: Path, until: float) -> dict[str, Any]:
    """Know what is told, and nothing else; in the end that has to be what is there, before long."""
    told, changed = Told(fs), 0
    feed = fs.watch(since=told.revision)
    while (now := time.monotonic()) < until + PATIENCE:
        changes = feed.get(timeout=0.2)
        if changes is not None:
            told.take(changes)
            changed += len(changes.items)
        elif now > until and paths_and_hashes(told) == there(root):
            return {"changes": changed}
    raise AssertionError(f"{paths_and_hashes(told)} is not {there(root)}")


def paths_and_hashes(told: Told) -> dict[str, str | None]:
    return {known.path: known.hash for known in told.known.values()}


def there(root: Path) -> dict[str, str | None]:
    return {
        path: None if shown.content is None else hex_hash(xxh3(shown.content))
        for path, shown in visible(str(root)).items()
    }


# -- processes ---------------------------------------------------------------------------------------------


class Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


def in_child(report: Path, work: Callable[[], dict[str, Any]]) -> int:
    """A forked process that works and leaves a report."""
    child = os.fork()
    if child:
        return child
    kept = Kept()
    logging.getLogger().addHandler(kept)
    found: dict[str, Any] = {}
    try:
        found = work()
    except BaseException:
        found = {"failure": traceback.format_exc()}
    report.write_text(json.dumps({"log": kept.lines, **found}))
    os._exit(0)


def work(folder: Path, seconds: float) -> None:
    """What runs in a process that has everything imported: all the others are its children."""
    root, index = folder / "store", folder / "index" / "index.sqlite"
    versions = Versions(folder / "versions")
    until = time.monotonic() + seconds

    def reader(seed: int) -> dict[str, Any]:
        fs = SkillFileSystem(root, index=index, skip_instance_cache=True)
        return Reader(fs, versions, seed).run(until)

    def watcher() -> dict[str, Any]:
        fs = SkillFileSystem(root, index=index, watch=True, skip_instance_cache=True)
        return follow(fs, root, until)

    reports = folder / "reports"
    children = [in_child(reports / "writer", lambda: write(root, versions, until))]
    children += [in_child(reports / f"watcher-{n}", watcher) for n in range(WATCHERS)]
    children += [in_child(reports / f"reader-{n}", functools.partial(reader, n)) for n in range(READERS)]
    for child in children:
        os.waitpid(child, 0)


def lay_out(root: Path) -> None:
    for slot in range(FOLDER):
        state = states(slot, 0)
        assert state is not None
        for path in (root / state.path, root / f"skill-{slot % SKILLS}/away/x"):
            path.parent.mkdir(parents=True, exist_ok=True)
        (root / state.path).write_text(state.text)
    for part in PARTS:
        path = root / folder(0) / part
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{part}\n")
    (root / "there").mkdir()


def run(tmp_path: Path, seconds: float) -> dict[str, dict[str, Any]]:
    lay_out(tmp_path / "store")
    (tmp_path / "reports").mkdir()
    (tmp_path / "versions").write_bytes(bytes(16 * SLOTS))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.test_readers_and_watchers", tmp_path, str(seconds)],
        cwd=ROOT, capture_output=True, text=True, timeout=seconds + 2 * PATIENCE,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    reports = {path.name: json.loads(path.read_text()) for path in (tmp_path / "reports").iterdir()}
    for name, report in sorted(reports.items()):
        print(name, {key: value for key, value in report.items() if key != "failure"})
    return reports


def judge(reports: dict[str, dict[str, Any]]) -> None:
    assert len(reports) == READERS + WATCHERS + 1
    for name, report in sorted(reports.items()):
        assert "failure" not in report, f"{name}:\n{report['failure']}"
        assert report["log"] == [], name
    calls: Counter[str] = Counter()
    for name, report in reports.items():
        calls.update(report.get("calls", {}))
        if name.startswith("watcher"):
            assert report["changes"]
    for call in ("get_content", "get_content by UUID", "cat_file", "entry", "find", "skill_tree", "skills"):
        assert calls[call], call
    assert calls["get_content: not_found"]
    assert reports["writer"]["written"] > 10


def test_readers_and_watchers(tmp_path: Path) -> None:
    judge(run(tmp_path, SECONDS))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_readers_and_watchers_for_a_minute(tmp_path: Path) -> None:
    judge(run(tmp_path, 60.0))


if __name__ == "__main__":
    work(Path(sys.argv[1]), float(sys.argv[2]))
