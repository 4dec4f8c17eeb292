"""What a store on S3 costs: the plainest program, other tools, and skillfs, on the bucket of `bucket`.

Each function runs in a process of its own. Beside its costs it tells how often the server was asked for what
(`LIST`, `GET`, `HEAD`), and how many bytes it sent; of calls that are repeated, for each call.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.bucket import BUCKET, LIBRARY, READING, options, put, steer, taken
from tests.benchmarks.measure import Meter, microseconds

_HEAD = "bytes=0-73727"  # what skillfs reads of a SKILL.md: nearly always all of it
_THREADS = 32
_CHARACTERS = 1000
_LARGE = f"{READING}/texts/large.txt"
_FAR = 0.015


# -- the plainest program ----------------------------------------------------------------------------------


def _boto3(endpoint: str) -> Any:
    import boto3
    from botocore.config import Config

    config = Config(s3={"addressing_style": "path"}, max_pool_connections=_THREADS)
    credentials = {"aws_access_key_id": "made-up", "aws_secret_access_key": "made-up"}
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=config, **credentials)
    client.list_objects_v2(Bucket=BUCKET, Prefix="nothing")  # a connection is there
    return client


def _list(client: Any) -> list[str]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{LIBRARY}/")
    return [item["Key"] for page in pages for item in page["Contents"]]


def _get(client: Any, key: str, part: str) -> bytes:
    data: bytes = client.get_object(Bucket=BUCKET, Key=key, Range=part)["Body"].read()
    return data


def list_pages(endpoint: str) -> dict[str, float]:
    """Ask for the pages of the listing."""
    client = _boto3(endpoint)
    taken(endpoint)
    with Meter() as meter:
        found = _list(client)
    return meter.figures(len(found)) | taken(endpoint)


def list_and_get(endpoint: str, key: str) -> dict[str, float]:
    """Ask for the pages of the listing and for one object."""
    client = _boto3(endpoint)
    taken(endpoint)
    with Meter() as meter:
        _list(client)
        _get(client, key, _HEAD)
    return meter.figures() | taken(endpoint)


def list_and_heads(endpoint: str) -> dict[str, float]:
    """Ask for the pages of the listing, and in threads for the start of every `SKILL.md`."""
    client = _boto3(endpoint)

    def work() -> int:
        keys = [key for key in _list(client) if key.endswith("/SKILL.md")]
        with ThreadPoolExecutor(_THREADS) as pool:
            return len(list(pool.map(lambda key: _get(client, key, _HEAD), keys)))

    return _near_and_far(endpoint, work)


def _near_and_far(endpoint: str, work: Callable[[], int]) -> dict[str, float]:
    """Figures of some work at a server next door, and its wall time at one that answers 15 ms later."""
    taken(endpoint)
    with Meter() as near:
        found = work()
    figures = near.figures(found) | taken(endpoint)
    with _far(endpoint), Meter() as far:
        work()
    return figures | {"15 ms away": far.wall}


@contextmanager
def _far(endpoint: str) -> Iterator[None]:
    steer(endpoint, f"/-/delay/{_FAR}")
    try:
        yield
    finally:
        steer(endpoint, "/-/delay/0")


def get_part(endpoint: str, calls: int) -> dict[str, float]:
    """Ask for 4 KB from the middle of the large text, and decode them."""
    client = _boto3(endpoint)
    size = client.head_object(Bucket=BUCKET, Key=_LARGE)["ContentLength"]

    def read(start: int) -> str:
        data = _get(client, _LARGE, f"bytes={start}-{start + 4 * _CHARACTERS - 1}")
        return data.decode("utf-8", "ignore")[:_CHARACTERS]

    return _calls(endpoint, read, [(place,) for place in _middle(size, calls)])


def get_pages(endpoint: str, calls: int) -> dict[str, float]:
    """Ask for a file of 4 KB, and decode it."""
    client = _boto3(endpoint)

    def read(key: str) -> str:
        data: bytes = client.get_object(Bucket=BUCKET, Key=f"{READING}/{key}")["Body"].read()
        return data.decode()

    return _calls(endpoint, read, [(key,) for key in _pages(calls)])


def get_ranges(endpoint: str, ranges: int) -> dict[str, float]:
    """Ask for byte ranges in threads."""
    client = _boto3(endpoint)

    def work() -> int:
        with ThreadPoolExecutor(_THREADS) as pool:
            parts = [
                pool.submit(_get, client, f"{READING}/{key}", f"bytes={start}-{end - 1}")
                for key, start, end in _ranges(ranges)
            ]
            return sum(len(part.result()) for part in parts)

    return _near_and_far(endpoint, work)


def known_rows(endpoint: str, calls: int) -> dict[str, float]:
    """A row by its number, the rows of a skill, and one that is not there, from SQLite in memory."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE entry (path TEXT PRIMARY KEY, uuid BLOB, size INTEGER) STRICT")
    keys = _list(_boto3(endpoint))
    rows = [(key, uuid.uuid5(uuid.NAMESPACE_URL, key).bytes, 1) for key in keys]
    connection.executemany("INSERT INTO entry VALUES (?, ?, ?)", rows)
    connection.execute("CREATE INDEX entry_uuid ON entry (uuid)")
    skills = [key.removesuffix("/SKILL.md") for key in keys if key.endswith("/SKILL.md")]

    def ask(sql: str) -> Callable[..., list[Any]]:
        return lambda *parameters: connection.execute(sql, parameters).fetchall()

    taken(endpoint)
    figures = {
        "by UUID": microseconds(ask("SELECT * FROM entry WHERE uuid=?"), [(r[1],) for r in rows[:calls]]),
        "tree of a skill": microseconds(
            ask("SELECT * FROM entry WHERE path>? AND path<? ORDER BY path"),
            [(f"{skill}/", f"{skill}0") for skill in skills[:calls]],
        ),
        "missing path": microseconds(
            ask("SELECT * FROM entry WHERE path=?"), [(f"{skill}/nothing",) for skill in skills[:calls]]
        ),
    }
    return figures | taken(endpoint)


def _calls(
    endpoint: str, call: Callable[..., object], arguments: list[tuple[object, ...]]
) -> dict[str, float]:
    call(*arguments[0])
    taken(endpoint)
    with Meter() as meter:
        median = microseconds(call, arguments)
    asked = {name: count / len(arguments) for name, count in taken(endpoint).items()}
    return {"": median, "CPU": 1e6 * meter.cpu / len(arguments)} | asked


def _middle(size: int, calls: int) -> list[int]:
    rng = random.Random(1)
    return [int(size * rng.uniform(0.4, 0.6)) for _ in range(calls)]


def _pages(calls: int) -> list[str]:
    return [f"texts/page-{number % 200:03d}.md" for number in range(calls)]


def _ranges(count: int) -> list[tuple[str, int, int]]:
    rng = random.Random(1)
    return [(key, start, start + 500) for key in _pages(count) if (start := rng.randrange(3000)) >= 0]


# -- other tools -------------------------------------------------------------------------------------------


def rclone(endpoint: str, arguments: list[str]) -> dict[str, float]:
    """A command of rclone over the library; next door only, for it asks for 10,000 heads one by one."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | {
        "RCLONE_CONFIG": "/dev/null",
        "RCLONE_CONFIG_B_TYPE": "s3",
        "RCLONE_CONFIG_B_PROVIDER": "Other",
        "RCLONE_CONFIG_B_LIST_VERSION": "2",
        "RCLONE_CONFIG_B_ENDPOINT": endpoint,
        "RCLONE_CONFIG_B_ACCESS_KEY_ID": "made-up",
        "RCLONE_CONFIG_B_SECRET_ACCESS_KEY": "made-up",
    }

    taken(endpoint)
    argv = ["rclone", *arguments, f"b:{BUCKET}/{LIBRARY}"]
    with Meter() as meter:
        found = subprocess.run(argv, env=env, check=True, capture_output=True).stdout.count(b"\n")
    if found < 10_000:
        raise RuntimeError("rclone did not find what is there")
    return meter.figures(found) | taken(endpoint)


def _s3fs(endpoint: str) -> Any:
    import s3fs

    fs = s3fs.S3FileSystem(**options(endpoint), skip_instance_cache=True)
    fs.connect()
    return fs


def s3fs_find(endpoint: str) -> dict[str, float]:
    """`find` of s3fs, with details."""
    fs = _s3fs(endpoint)
    taken(endpoint)
    with Meter() as meter:
        found = fs.find(f"{BUCKET}/{LIBRARY}", detail=True)
    return meter.figures(len(found)) | taken(endpoint)


def s3fs_find_and_cat(endpoint: str) -> dict[str, float]:
    """`find` of s3fs, and `cat` of every `SKILL.md`."""
    fs = _s3fs(endpoint)

    def work() -> int:
        fs.invalidate_cache()
        found = fs.find(f"{BUCKET}/{LIBRARY}")
        return len(fs.cat([path for path in found if path.endswith("/SKILL.md")]))

    return _near_and_far(endpoint, work)


def s3fs_read_large(endpoint: str, calls: int) -> dict[str, float]:
    """`cat_file` of s3fs, and the characters cut out of the decoded text."""
    fs = _s3fs(endpoint)

    def read(start: int) -> str:
        text: str = fs.cat_file(f"{BUCKET}/{_LARGE}").decode()
        return text[start : start + _CHARACTERS]

    size = fs.size(f"{BUCKET}/{_LARGE}")
    return _calls(endpoint, read, [(place,) for place in _middle(size // 2, calls)])


def s3fs_read_pages(endpoint: str, calls: int) -> dict[str, float]:
    """`read_text` of s3fs."""
    fs = _s3fs(endpoint)
    return _calls(endpoint, fs.read_text, [(f"{BUCKET}/{READING}/{key}",) for key in _pages(calls)])


def s3fs_ranges(endpoint: str, ranges: int) -> dict[str, float]:
    """`cat_ranges` of s3fs."""
    fs = _s3fs(endpoint)
    paths, starts, ends = zip(*_ranges(ranges), strict=True)
    whole = [f"{BUCKET}/{READING}/{path}" for path in paths]
    return _near_and_far(endpoint, lambda: len(fs.cat_ranges(whole, list(starts), list(ends))))


# -- skillfs -----------------------------------------------------------------------------------------------


def _open(endpoint: str, folder: str, index: str, **more: Any) -> Any:
    from skillfs import SkillFileSystem

    return SkillFileSystem(f"s3://{BUCKET}/{folder}", index=index, target_options=options(endpoint), **more)


def _load() -> None:
    """Import what opening a store on S3 imports."""
    import s3fs  # noqa: F401

    import skillfs.stores.s3
    import skillfs.stores.targets  # noqa: F401


def prepare(endpoint: str, state: str) -> dict[str, float]:
    """Make the indexes that are opened again; not timed."""
    for folder in (LIBRARY, READING):
        for path in Path(state).glob(f"{folder}.sqlite*"):
            path.unlink()
        fs = _open(endpoint, folder, _index(state, folder))
        if folder == READING:
            for key in ["texts/large.txt", *_pages(200)]:
                fs.get_content(key, 0, 1)
            fs.sync()
    return {}


def _index(state: str, folder: str) -> str:
    return os.path.join(state, f"{folder}.sqlite")


def first_opening(endpoint: str, state: str) -> dict[str, float]:
    """Open a store the first time."""
    _load()
    made: list[str] = []

    def work() -> int:
        folder = tempfile.mkdtemp(prefix="fresh-", dir=state)
        made.append(folder)
        return len(_open(endpoint, LIBRARY, _index(folder, LIBRARY)).skills())

    try:
        return _near_and_far(endpoint, work)
    finally:
        for folder in made:
            shutil.rmtree(folder)


def opening_again(endpoint: str, state: str) -> dict[str, float]:
    """Open a store of which nothing has changed, in a new process."""
    _load()
    taken(endpoint)
    with Meter() as meter:
        fs = _open(endpoint, LIBRARY, _index(state, LIBRARY))
    return meter.figures() | taken(endpoint) | {"found": len(fs.skills())}


def changed(endpoint: str, state: str, skill: bool) -> dict[str, float]:
    """`sync()` after one `SKILL.md` was replaced, or one other file."""
    fs = _open(endpoint, LIBRARY, _index(state, LIBRARY))
    before = fs.revision
    files = fs.find(fs.skills()[0].path)
    key = next(f"{LIBRARY}/{path}" for path in files if path.endswith("/SKILL.md") is skill)
    text = f"---\nname: changed\ndescription: At {time.time_ns()}.\n---\n"
    put(endpoint, key, text.encode())
    with Meter() as meter:
        fs.sync()
    if fs.revision == before:
        raise RuntimeError("the change was not noticed")
    return meter.figures() | taken(endpoint)


def read_large(endpoint: str, state: str, calls: int) -> dict[str, float]:
    """1,000 characters from the middle of the large text."""
    fs = _open(endpoint, READING, _index(state, READING))
    entry = fs.entry("texts/large.txt")
    size = fs.get_content(entry.id, 0, 0).size
    if len(fs.get_content(entry.id, size // 2, _CHARACTERS).text) != _CHARACTERS:
        raise RuntimeError("a reading is shorter than it should be")
    places = _middle(size, calls)
    return _calls(endpoint, fs.get_content, [(entry.id, place, _CHARACTERS) for place in places])


def read_pages(endpoint: str, state: str, calls: int) -> dict[str, float]:
    """A file of 4 KB."""
    fs = _open(endpoint, READING, _index(state, READING))
    uuids = [fs.entry(f"/{key}").uuid for key in _pages(calls)]
    return _calls(endpoint, fs.get_content, [(each,) for each in uuids])


def looking(endpoint: str, state: str, calls: int) -> dict[str, float]:
    """What the index answers."""
    from skillfs import NotFoundError

    fs = _open(endpoint, LIBRARY, _index(state, LIBRARY), max_age=600)
    skills = fs.skills()[:calls]
    entries = [fs.entry(f"/{skill.path}/SKILL.md") for skill in skills]

    def missing(path: str) -> None:
        try:
            fs.entry(path)
        except NotFoundError:
            return
        raise RuntimeError("what is not there was found")

    taken(endpoint)
    figures = {
        "by UUID": microseconds(fs.entry, [(entry.uuid,) for entry in entries]),
        "tree of a skill": microseconds(fs.skill_tree, [(skill.uuid,) for skill in skills]),
        "missing path": microseconds(missing, [(f"/{skill.path}/nothing",) for skill in skills]),
    }
    return figures | taken(endpoint)


def ranges(endpoint: str, state: str, ranges: int) -> dict[str, float]:
    """Byte ranges of many files."""
    fs = _open(endpoint, READING, _index(state, READING))
    paths, starts, ends = zip(*_ranges(ranges), strict=True)

    def work() -> int:
        found = fs.cat_ranges(list(paths), list(starts), list(ends), on_error="raise")
        return sum(map(len, found))

    return _near_and_far(endpoint, work)
