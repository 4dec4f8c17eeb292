"""The clockwork inside a measured process; standard library alone, since peers' environments run it too.

`python -m tests.benchmarks.measure MODULE FUNCTION JSON` calls one function of `floors`, `peers` or `rows`
with keyword arguments and prints the figures it returns as one line of JSON.
"""

from __future__ import annotations

import importlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

MARK = "figures: "


def cpu_seconds() -> float:
    """User and system time of this process, with all threads, and of the children that have ended."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def peak_mb() -> float:
    """Peak resident memory of this process, or of its largest child if that is more, in MB of 10^6 bytes."""
    # ru_maxrss of this process would start at the size of the process that started it; VmHWM starts anew.
    with open("/proc/self/status") as status:
        own = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    return max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) * 1024 / 1e6


class Meter:
    """Takes the CPU seconds and the wall seconds of a `with` block."""

    def __enter__(self) -> Meter:
        self.wall = time.perf_counter()
        self.cpu = cpu_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu = cpu_seconds() - self.cpu
        self.wall = time.perf_counter() - self.wall

    def figures(self, found: int | None = None) -> dict[str, float]:
        """What a row of CPU seconds wants; `found` says how much of the work was done."""
        figures = {"": self.cpu, "wall": self.wall, "peak": peak_mb()}
        return figures if found is None else figures | {"found": found}


def command(
    argv: Sequence[str], env: Mapping[str, str] | None = None, cwd: str | None = None
) -> dict[str, float]:
    """Cost of one command, its output discarded."""
    with Meter() as meter:
        done = subprocess.run(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    if done.returncode:
        raise RuntimeError(f"{argv[0]} ended with {done.returncode}: {done.stderr[-300:]!r}")
    return meter.figures()


def microseconds(call: Callable[..., object], arguments: Iterable[tuple[object, ...]]) -> float:
    """Median wall time of `call`, in µs, over one call for each tuple of arguments."""
    clock, taken = time.perf_counter_ns, []
    for each in arguments:
        start = clock()
        call(*each)
        taken.append(clock() - start)
    return median(taken) / 1000


def main(module: str, function: str, arguments: str) -> None:
    work = getattr(importlib.import_module(f"{__package__}.{module}"), function)
    figures = work(**json.loads(arguments))
    print(MARK + json.dumps(figures), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
