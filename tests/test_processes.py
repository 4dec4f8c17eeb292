"""One filesystem in many threads and processes, forked and spawned; and processes that end at any moment."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest

from skillfs import SkillFileSystem
from skillfs.errors import NotFoundError
from tests.benchmarks import corpus
from tests.benchmarks.bucket import BUCKET, LIBRARY, Bucket, put, steer, taken
from tests.conftest import skill_md

pytestmark = [
    pytest.mark.timeout(60),
    # That it may deadlock is what is tried here.
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]

ROOT = Path(__file__).parent.parent
SKILLS, FILES = 20, 5
CONTENT = corpus.objects(SKILLS, FILES, seed=20, small_files=True)
TEXTS = sorted(path for path, data in CONTENT.items() if path.endswith((".md", ".py")) and b"\0" not in data)
PATIENCE = 20


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with Bucket("library", skills=SKILLS, files=FILES, small_files=True) as bucket:
        yield bucket


@pytest.fixture(params=["local", "memory", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Arguments that open the same files in a store of every kind."""
    if request.param == "local":
        for path, data in CONTENT.items():
            file = tmp_path / "store" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        yield {"store": str(tmp_path / "store")}
    elif request.param == "memory":
        name = f"processes-{uuid4()}"
        memory = fsspec.filesystem("memory")
        memory.pipe({f"/{name}/{path}": data for path, data in CONTENT.items()})
        yield {"store": f"memory://{name}"}
        memory.rm(f"/{name}", recursive=True)
    else:
        yield on_s3(request.getfixturevalue("bucket"))


@pytest.fixture(params=["on disk", "in memory"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "index.sqlite") if request.param == "on disk" else ":memory:"


def on_s3(bucket: Bucket) -> dict[str, Any]:
    return {"store": bucket.url(LIBRARY), "target_options": bucket.target_options}


def use(fs: SkillFileSystem, seed: int, times: int = 10) -> None:
    """Read here and there, in every way; whatever is wrong is raised."""
    rng = random.Random(seed)
    for _ in range(times):
        path = rng.choice(TEXTS)
        data = CONTENT[path]
        text = data.decode("utf-8", "replace")
        start, length = rng.randrange(len(text) + 1), rng.randrange(200)
        kind = rng.randrange(5)
        if kind == 0 and "\ufffd" not in text:
            assert fs.get_content(path, start, length).text == text[start : start + length]
        elif kind == 1:
            assert fs.cat_file(path, start, start + length) == data[start : start + length]
        elif kind == 2:
            paths = rng.sample(TEXTS, 5)
            assert fs.cat_ranges(paths, [0] * 5, [50] * 5) == [CONTENT[path][:50] for path in paths]
        elif kind == 3:
            skill = path.split("/skills/")[0]
            below = {name for name in CONTENT if name.startswith(f"{skill}/")}
            assert set(fs.find(skill)) == below
            assert fs.skill_tree(skill, details=True, hidden=True, limit=None).total >= len(below)
        else:
            with fs.open(path) as file:
                assert file.read() == data


def in_threads(fs: SkillFileSystem, threads: int, times: int = 6) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(use, fs, number, times) for number in range(threads)]:
            done.result(PATIENCE)


def in_fork(fs: SkillFileSystem, threads: int = 4) -> int:
    """A child that uses a filesystem; its exit code is 0 where all is well."""
    child = os.fork()
    if child:
        return child
    code = 1
    faulthandler.dump_traceback_later(PATIENCE - 5, file=sys.__stderr__)
    try:
        in_threads(fs, threads)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def ended(child: int) -> int:
    """Exit code of a child, which is killed when it takes too long."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the child did not end")


def test_sixteen_threads(where: dict[str, Any], index: str) -> None:
    in_threads(SkillFileSystem(**where, index=index), 16)


def test_forks_of_a_process_that_goes_on(
    where: dict[str, Any], index: str, capfd: pytest.CaptureFixture[str]
) -> None:
    fs = SkillFileSystem(**where, index=index)
    stop = threading.Event()

    def go_on(seed: int) -> None:
        while not stop.is_set():
            use(fs, seed, 5)

    with ThreadPoolExecutor(4) as pool:
        busy = [pool.submit(go_on, seed) for seed in range(4)]
        try:
            for _ in range(2):
                children = [in_fork(fs) for _ in range(2)]
                assert [ended(child) for child in children] == [0, 0], capfd.readouterr().err
        finally:
            stop.set()
        for thread in busy:
            thread.result(PATIENCE)
    assert capfd.readouterr().err == ""


def test_a_fork_of_a_fork(where: dict[str, Any], index: str) -> None:
    fs = SkillFileSystem(**where, index=index)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            use(fs, 1, 5)
            code = ended(in_fork(fs))
            use(fs, 2, 5)
        finally:
            os._exit(code)
    use(fs, 3, 5)
    assert ended(child) == 0


def test_a_fork_during_a_background_check(bucket: Bucket, tmp_path: Path) -> None:
    fs = SkillFileSystem(**on_s3(bucket), index=str(tmp_path / "index.sqlite"), max_age=0.001)
    time.sleep(0.01)
    children = []
    for _ in range(4):
        fs.skills()  # begins a check
        children.append(in_fork(fs))
        use(fs, 1, 3)
    assert [ended(child) for child in children] == [0] * 4


def read_all(pickled: bytes) -> tuple[dict[str, str], bool]:
    """In a process of its own: identities of all files, and whether all bytes are right."""
    fs: SkillFileSystem = pickle.loads(pickled)
    in_threads(fs, 4)
    found = {path: fs.entry(f"/{path}").uuid for path in CONTENT}
    return found, all(fs.cat_file(path) == data for path, data in CONTENT.items())


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_pickled_to_other_processes(
    where: dict[str, Any], method: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if where["store"].startswith("memory:") and method != "fork":
        pytest.skip("what is in the memory of a process is in no other")
    fs = SkillFileSystem(**where, index=str(tmp_path / "index.sqlite"))
    uuids = {path: fs.entry(f"/{path}").uuid for path in CONTENT}
    pickled = pickle.dumps(fs)
    with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
        results = [pool.submit(read_all, pickled) for _ in range(3)]
        use(fs, 1)
        for result in results:
            assert result.result(PATIENCE) == (uuids, True)
    assert capfd.readouterr().err == ""


def test_memory_is_not_there_in_a_spawned_process() -> None:
    name = f"processes-{uuid4()}"
    fsspec.filesystem("memory").pipe(f"/{name}/a/SKILL.md", b"")
    pickled = pickle.dumps(SkillFileSystem(f"memory://{name}"))
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        result = pool.submit(read_all, pickled)
        with pytest.raises(NotFoundError):
            result.result(PATIENCE)
    fsspec.filesystem("memory").rm(f"/{name}", recursive=True)


def open_and_tell(arguments: Mapping[str, Any]) -> tuple[list[tuple[str, str]], int]:
    """In a process of its own: open, and tell skills and revision."""
    fs = SkillFileSystem(**arguments)
    use(fs, os.getpid())
    return sorted((skill.path, skill.uuid) for skill in fs.skills()), fs.revision


def test_processes_that_share_an_index(bucket: Bucket, tmp_path: Path) -> None:
    arguments = {**on_s3(bucket), "index": str(tmp_path / "index.sqlite")}
    with ProcessPoolExecutor(4, multiprocessing.get_context("spawn")) as pool:
        first = [result.result(PATIENCE) for result in [pool.submit(open_and_tell, arguments)] * 4]
        assert len({revision for _, revision in first}) == 1
        assert all(found == first[0] for found in first)
        assert len(first[0][0]) == SKILLS
        key = f"{LIBRARY}/new/SKILL.md"
        put(bucket.endpoint, key, skill_md("new").encode())
        later = [pool.submit(open_and_tell, arguments) for _ in range(4)]
        found = [result.result(PATIENCE) for result in later]
    steer(bucket.endpoint, f"/{BUCKET}/{key}", "DELETE")
    assert all(skills == found[0][0] for skills, _ in found)
    assert set(found[0][0]) > set(first[0][0])
    assert found[0][1] > first[0][1]


LEAVE = """
import sys, time
import skillfs.sync.engine
from skillfs import SkillFileSystem
from tests.benchmarks.bucket import options, put, steer
skillfs.sync.engine.CHECK_COST = 0.0
store, endpoint, index, silent, wait = sys.argv[1:]
fs = SkillFileSystem(store, target_options=options(endpoint), index=index, max_age=600)
before = len(fs.skills())
for number in range(40):
    put(endpoint, f"library/left/skill-{number}/SKILL.md", b"x" * number)
if silent != "no":
    steer(endpoint, "/-/delay/60/" + silent)
fs.max_age = 0.0001
time.sleep(0.001)
assert len(fs.skills()) == before  # as of the last check; the next begins
time.sleep(float(wait))
print("leaving", flush=True)
"""


@pytest.mark.parametrize(
    ("silent", "wait"),
    [("LIST", 0.0), ("LIST", 0.3), ("GET", 0.3), ("no", 0.0), ("no", 0.02), ("no", 0.05)],
)
def test_a_process_ends_while_the_store_is_checked(silent: str, wait: float, tmp_path: Path) -> None:
    with Bucket("library", skills=SKILLS, files=FILES, small_files=True) as bucket:
        argv = [bucket.url(LIBRARY), bucket.endpoint, str(tmp_path / "index.sqlite"), silent, str(wait)]
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", LEAVE, *argv],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        asked = taken(bucket.endpoint)
    assert (done.stdout, done.stderr, done.returncode) == ("leaving\n", "", 0)
    assert time.monotonic() - started < 10
    if silent != "no" and wait:
        assert asked[silent] > 0  # there was something to wait for
