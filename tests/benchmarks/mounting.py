"""What the kernel's view of a store costs: bindfs, rclone, `fsspec.fuse` and skillfs at a mount point.

A turn mounts anew, so that neither the kernel nor the server has kept anything of what is looked at; the
index of skillfs is there. A process of its own then walks or reads. What that takes is bounded, and whatever
becomes of it the mount point is unmounted and its server ended, by its number. Figures are wall time, of a
store on S3 also that at a server which answers 15 ms later.

Beside its figures each tells how much it found, the CPU seconds and the peak memory of the server while it
was asked, and how long it took to mount.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from tests.benchmarks import bucket, peers
from tests.benchmarks.harness import Arguments, Contender, Limit, Row
from tests.benchmarks.mount_points import mounted, open_store

BLOCKS = 61
"""Of the text that is read from S3: 64 MB."""

_OWNER = "owner-00000"
_OWNERS_FILES = 500
_FAR = 0.015
_CHUNK = 128 * 1024
_KEY = re.compile(rb"<Key>([^<]*)</Key>").findall
_NEXT = re.compile(rb"<NextContinuationToken>([^<]*)<").search

# -- the rows ----------------------------------------------------------------------------------------------


def rows(store: str, state: str, reading: str, environments: Path | None) -> list[Row]:
    """The rows on a store on disk, and on the store with a huge text and pages of 4 KB."""
    library = {"store": store, "index": f"{state}/index.sqlite"}
    texts = {"store": reading, "index": f"{state}/reading.sqlite"}

    def contenders(function: str, where: Arguments) -> tuple[Contender, ...]:
        native = Contender("no mount point", "floor", "mounting", function, {"server": "native", **where})
        return (native, *_servers(function, where, environments))

    return [
        Row(
            "mount-walk",
            "walk and stat an entry at a mount point",
            "µs",
            contenders("walk", library),
            (Limit(83.3, figure="cold"),),  # 12,000 a second
            ("cold", "again"),
        ),
        Row(
            "mount-read",
            "read at a mount point",
            "µs",
            contenders("read", texts),
            (),
            ("a MB of 200 MB", "a file of 4 KB"),
        ),
    ]


def remote_rows(endpoint: str, endless: str, environments: Path | None) -> list[Row]:
    """The rows on stores on S3: a library, and at `endless` a skill with a text of 64 MB."""
    library: Arguments = {"endpoint": endpoint}
    text: Arguments = {"endpoint": endless}

    def contenders(function: str, plain: str, where: Arguments) -> tuple[Contender, ...]:
        floor = Contender(plain.replace("_", " "), "floor", "mounting", plain, where)
        return (floor, *_servers(function, where, environments))

    return [
        Row(
            "mount-walk-s3",
            "walk and stat an entry at a mount point, S3",
            "µs",
            contenders("walk", "list_pages", library),
            (Limit(100, figure="cold"), Limit(0, figure="HEAD"), Limit(0, figure="GET")),
            ("cold", "again", "15 ms away"),
        ),
        Row(
            "mount-read-s3",
            "read a MB of 64 MB at a mount point, S3",
            "µs",
            contenders("read_remote", "get_whole", text),
            (Limit(0, figure="HEAD"),),
            ("", "15 ms away"),
        ),
        Row(
            "mount-grep-s3",
            "grep a file at a mount point, S3",
            "µs",
            contenders("grep_remote", "get_each", library),
            # A file that is larger than most takes a second one.
            (Limit(1.02 * _OWNERS_FILES, figure="GET"), Limit(0, figure="HEAD")),
            ("", "15 ms away"),
        ),
    ]


def _servers(function: str, where: Arguments, environments: Path | None) -> tuple[Contender, ...]:
    """The contenders that serve a mount point; those of one turn take minutes."""

    def one(label: str, server: str, python: str | None, once: bool = False) -> Contender:
        return Contender(label, "peer", "mounting", function, {"server": server, **where}, python, once)

    remote = "endpoint" in where
    bindfs = sys.executable if peers.installed("bindfs") else None
    rclone = sys.executable if peers.installed("rclone") else None
    fusepy = peers.python_of(environments, "fusepy")
    return (
        *(() if remote else (one("bindfs", "bindfs", bindfs),)),
        one("rclone mount", "rclone", rclone, remote),
        one("fsspec.fuse", "fsspec", fusepy, True),
        Contender("skillfs", "skillfs", "mounting", function, {"server": "skillfs", **where}),
    )


# -- what is timed at a mount point ------------------------------------------------------------------------


def walk(server: str, **where: str) -> dict[str, float]:
    """Walk all of it, each entry with its attributes, and once more; far away only some skills."""
    with open_store(server, where) as served:
        with mounted(server, served) as point:
            figures = point.figures("walked", top=point.path)
        if not served.endpoint:
            return figures
        with mounted(server, served) as point, _far(served.endpoint):
            return figures | {"15 ms away": point.figures("walked", top=f"{point.path}/{_OWNER}")["cold"]}


def read(server: str, **where: str) -> dict[str, float]:
    """Read the huge text from start to end, and every page."""
    with open_store(server, where) as served, mounted(server, served) as point:
        return point.figures("files_read", top=f"{point.path}/texts")


def read_remote(server: str, **where: str) -> dict[str, float]:
    """Read the text of 64 MB from start to end."""
    return _near_and_far(server, where, "text_read", "texts")


def grep_remote(server: str, **where: str) -> dict[str, float]:
    """`grep -r` over some skills."""
    return _near_and_far(server, where, "grepped", _OWNER)


def _near_and_far(server: str, where: dict[str, str], work: str, below: str) -> dict[str, float]:
    """Figures at a server next door, and its wall time at one that answers later, each mounted anew."""
    with open_store(server, where) as served:
        with mounted(server, served) as point:
            figures = point.figures(work, top=f"{point.path}/{below}")
        with mounted(server, served) as point, _far(served.endpoint):
            return figures | {"15 ms away": point.figures(work, top=f"{point.path}/{below}")[""]}


@contextlib.contextmanager
def _far(endpoint: str) -> Iterator[None]:
    bucket.steer(endpoint, f"/-/delay/{_FAR}")
    try:
        yield
    finally:
        bucket.steer(endpoint, "/-/delay/0")


def walked(top: str) -> dict[str, float]:
    """The work of `walk`, in a process of its own, as of those that follow."""
    found, cold = _walked(top)
    again = _walked(top)[1]
    return {
        "cold": 1e6 * cold / found,
        "again": 1e6 * again / found,
        "found": found,
        "entries/s": found / cold,
    }


def _walked(top: str) -> tuple[int, float]:
    found, folders = 0, [top]
    start = time.perf_counter()
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                found += 1
                if stat.S_ISDIR(entry.stat(follow_symlinks=False).st_mode):
                    folders.append(entry.path)
    return found, time.perf_counter() - start


def files_read(top: str) -> dict[str, float]:
    names = [name for name in sorted(os.listdir(top)) if name.startswith("page-")]
    start = time.perf_counter()
    for name in names:
        _read(f"{top}/{name}")
    pages = time.perf_counter() - start
    start = time.perf_counter()
    size = _read(f"{top}/huge.txt")
    huge = time.perf_counter() - start
    return {
        "a MB of 200 MB": 1e12 * huge / size,
        "a file of 4 KB": 1e6 * pages / len(names),
        "MB/s": size / huge / 1e6,
        "files/s": len(names) / pages,
    }


def text_read(top: str) -> dict[str, float]:
    start = time.perf_counter()
    size = _read(f"{top}/huge.txt")
    seconds = time.perf_counter() - start
    return {"": 1e12 * seconds / size, "MB/s": size / seconds / 1e6}


def _read(path: str) -> int:
    """How many bytes could be read of a file, in pieces as `cat` asks for them."""
    size, handle = 0, os.open(path, os.O_RDONLY)
    try:
        while data := os.read(handle, _CHUNK):
            size += len(data)
    finally:
        os.close(handle)
    return size


def grepped(top: str) -> dict[str, float]:
    argv = ["grep", "-r", "--count", "", top]
    start = time.perf_counter()
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    seconds = time.perf_counter() - start
    found = done.stdout.count(b"\n")
    return {"": 1e6 * seconds / found, "found": found, "files/s": found / seconds}


# -- the plainest program on S3 ----------------------------------------------------------------------------


def list_pages(endpoint: str) -> dict[str, float]:
    """Ask for the pages of the listing, on one connection."""
    figures = _plainly(endpoint, lambda get: len(_keys(get, bucket.LIBRARY)))
    return figures | {"cold": figures[""], "again": figures[""]}


def get_whole(endpoint: str) -> dict[str, float]:
    """Ask for the text of 64 MB."""
    return _plainly(endpoint, lambda get: len(get(f"{bucket.LIBRARY}/texts/huge.txt")) / 1e6)


def get_each(endpoint: str) -> dict[str, float]:
    """Ask for the files of some skills, one after the other on one connection."""
    with _connected(endpoint) as get:
        keys = _keys(get, f"{bucket.LIBRARY}/{_OWNER}")
    return _plainly(endpoint, lambda get: sum(1 for key in keys if get(key)))


Get = Callable[[str], bytes]


def _plainly(endpoint: str, work: Callable[[Get], float]) -> dict[str, float]:
    def timed() -> tuple[float, float]:
        start = time.perf_counter()
        with _connected(endpoint) as get:
            found = work(get)
        return 1e6 * (time.perf_counter() - start) / found, found

    bucket.taken(endpoint)
    each, found = timed()
    figures = {"": each, "found": found} | bucket.taken(endpoint)
    with _far(endpoint):
        return figures | {"15 ms away": timed()[0]}


@contextlib.contextmanager
def _connected(endpoint: str) -> Iterator[Get]:
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"))

    def get(target: str) -> bytes:
        connection.request("GET", f"/{bucket.BUCKET}/{quote(target, safe='/?=&')}")
        return connection.getresponse().read()

    try:
        yield get
    finally:
        connection.close()


def _keys(get: Get, prefix: str) -> list[str]:
    found: list[str] = []
    after = ""
    while True:
        page = get(f"?list-type=2&prefix={prefix}/{after}")
        found += [key.decode() for key in _KEY(page)]
        more = _NEXT(page)
        if more is None:
            return found
        after = f"&continuation-token={more[1].decode()}"
