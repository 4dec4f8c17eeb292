"""Mount points of the benchmarks: who serves one, and how it is taken away whatever becomes of the work.

Every server is a process of its own, and so is whoever works at a mount point: what waits for a server that
does not answer can only be killed. Standard library alone, for peers' environments run it too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import bucket
from tests.benchmarks.measure import MARK

_MOUNTING_SECONDS = 60.0
_WORKING_SECONDS = 400.0
_ENDING_SECONDS = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Served:
    """A store: a folder, or where there is an endpoint a prefix of the bucket."""

    store: str
    index: str
    endpoint: str

    @property
    def env(self) -> dict[str, str]:
        """What a server is to find in its environment."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        if not self.endpoint:
            return env
        return env | {
            "AWS_ACCESS_KEY_ID": "made-up",
            "AWS_SECRET_ACCESS_KEY": "made-up",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "RCLONE_CONFIG_B_TYPE": "s3",
            "RCLONE_CONFIG_B_PROVIDER": "Other",
            "RCLONE_CONFIG_B_ENV_AUTH": "true",
            "RCLONE_CONFIG_B_LIST_VERSION": "2",
            "RCLONE_CONFIG_B_ENDPOINT": self.endpoint,
        }

    def argv(self, server: str, folder: str) -> list[str]:
        """The command that serves it at a folder; all but that of skillfs stay until they are ended."""
        match server:
            case "bindfs":
                return ["bindfs", "-f", "-r", self.store, folder]
            case "rclone":
                source = f"b:{self.store}" if self.endpoint else self.store
                return ["rclone", "--config", "/dev/null", "mount", "--read-only", source, folder]
            case "fsspec":
                source = f"s3://{self.store}" if self.endpoint else f"file://{self.store}"
                return [sys.executable, "-m", "fsspec.fuse", source, self.store, folder]
            case _:
                return [*self.skillfs, "mount", folder, "--background", "--json"]

    @property
    def skillfs(self) -> list[str]:
        """The start of a command of skillfs about it."""
        store = f"s3://{self.store}" if self.endpoint else self.store
        return [sys.executable, "-m", "skillfs", "-s", store, "--index", self.index]

    def run(self, argv: list[str]) -> str:
        """What a command prints."""
        env, limit = self.env, _MOUNTING_SECONDS
        done = subprocess.run(argv, env=env, capture_output=True, timeout=limit, text=True, check=False)
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["it says nothing"])[-1])
        return done.stdout


@contextlib.contextmanager
def open_store(server: str, where: dict[str, str]) -> Iterator[Served]:
    """The store of some arguments; of one on S3, which has another address each time, the index is made."""
    if "store" in where:
        yield Served(where["store"], where["index"], "")
        return
    folder = tempfile.mkdtemp(prefix="mounting-")
    try:
        served = Served(f"{bucket.BUCKET}/{bucket.LIBRARY}", f"{folder}/index.sqlite", where["endpoint"])
        if server == "skillfs":
            served.run([*served.skillfs, "skills"])
        yield served
    finally:
        shutil.rmtree(folder)


@dataclass(frozen=True, slots=True)
class Mounted:
    """A mount point, or the store itself where nothing serves it."""

    path: str
    served: Served
    pid: int | None = None
    ready: float = 0.0

    def figures(self, function: str, **arguments: str) -> dict[str, float]:
        """Let a process of its own work at it; not longer than is bearable."""
        argv = [
            *("setpriv", "--pdeathsig", "KILL"),
            *(sys.executable, "-m", "tests.benchmarks.measure", "mounting", function, json.dumps(arguments)),
        ]
        endpoint = self.served.endpoint
        if endpoint:
            bucket.taken(endpoint)
        before = _cpu_of(self.pid)
        # What waits for a server that does not answer can only be killed; that is what `run` does.
        done = subprocess.run(argv, capture_output=True, timeout=_WORKING_SECONDS, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        line = next(line for line in done.stdout.splitlines() if line.startswith(MARK))
        figures: dict[str, float] = json.loads(line.removeprefix(MARK))
        if self.pid is not None:
            about = {"CPU": _cpu_of(self.pid) - before, "peak": _peak_of(self.pid), "ready": self.ready}
            figures |= about
        return figures | bucket.taken(endpoint) if endpoint else figures


@contextlib.contextmanager
def mounted(server: str, served: Served) -> Iterator[Mounted]:
    """Serve a store at a folder for the length of a block."""
    if server == "native":
        yield Mounted(served.store, served)
        return
    folder = os.path.realpath(tempfile.mkdtemp(prefix="mount-point-"))
    serving = _skillfs if server == "skillfs" else _foreground
    try:
        start = time.perf_counter()
        with serving(server, served, folder) as pid:
            yield Mounted(folder, served, pid, time.perf_counter() - start)
    finally:
        os.rmdir(folder)


@contextlib.contextmanager
def _foreground(server: str, served: Served, folder: str) -> Iterator[int]:
    """A server that stays until it is ended; it ends with this process, too, however that ends."""
    argv = ["setpriv", "--pdeathsig", "TERM", *served.argv(server, folder)]
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(argv, env=served.env, stdin=subprocess.DEVNULL, stdout=told, stderr=told)
        try:
            deadline = time.monotonic() + _MOUNTING_SECONDS
            while not _is_mounted(folder):
                if process.poll() is not None or time.monotonic() > deadline:
                    told.seek(0)
                    raise RuntimeError(f"{server} does not mount: {told.read()[-120:]!r}")
                time.sleep(0.005)
            yield process.pid
        finally:
            _unmount(folder)
            for end in (lambda: None, process.terminate, process.kill):
                end()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_ENDING_SECONDS)
                    break


@contextlib.contextmanager
def _skillfs(server: str, served: Served, folder: str) -> Iterator[int]:
    """`skillfs mount --background`, which returns when it has mounted, and `skillfs unmount`."""
    pid = 0
    try:
        pid = json.loads(served.run(served.argv(server, folder)))["pid"]
        yield pid
        served.run([sys.executable, "-m", "skillfs", "unmount", folder])
    finally:
        _unmount(folder)
        deadline = time.monotonic() + _ENDING_SECONDS
        while pid and _is_running(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                break
            time.sleep(0.01)


def _is_mounted(folder: str) -> bool:
    """Whether something is mounted there, without asking whoever serves it."""
    return any(line.split()[4] == folder for line in Path("/proc/self/mountinfo").read_text().splitlines())


def _unmount(folder: str) -> None:
    """Unmount what is mounted there, in the end whoever still uses it."""
    for options in (["-u"], ["-u", "-z"]):
        if _is_mounted(folder):
            argv = ["fusermount3", *options, folder]
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(argv, stderr=subprocess.DEVNULL, timeout=_ENDING_SECONDS, check=False)


def _fields_of(pid: int) -> list[str]:
    """What the kernel tells of a process, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _is_running(pid: int) -> bool:
    try:
        return _fields_of(pid)[0] != "Z"
    except OSError:
        return False


def _cpu_of(pid: int | None) -> float:
    """CPU seconds of a process and of its children that have ended."""
    return 0.0 if pid is None else sum(map(int, _fields_of(pid)[11:15])) / _TICKS


def _peak_of(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
