"""Reading from the largest of files takes no more memory than from a small one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillfs import SkillFileSystem
from tests.benchmarks.bucket import LIBRARY, Bucket, Endless, options, taken

ROOT = Path(__file__).parent.parent
LENGTHS = (1, 1_000, 50_000)
ROOM = 64 << 20
MOST_BESIDE = 32 << 10

OPEN: list[SkillFileSystem] = []
"""What is learned is committed at the end of a process, by what is still open then."""


def memory(name: str) -> int:
    """Bytes of this process, now (`VmRSS`) or at most (`VmHWM`)."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(f"{name}:")) * 1024


def client(endpoint: str, index: str, stretches: list[list[int]]) -> None:
    """What the process does that is measured: open, learn where characters lie, read stretches."""
    fs = SkillFileSystem(f"s3://skills/{LIBRARY}", index=index, target_options=options(endpoint))
    OPEN.append(fs)
    told: dict[str, Any] = {"opened": memory("VmRSS")}
    taken(endpoint)
    told["size"] = fs.get_content("texts/huge.txt", 0, 10).size
    told["learning"] = taken(endpoint)
    told["read"] = []
    for start, length in stretches:
        text = fs.get_content("texts/huge.txt", start, length).text
        told["read"].append((text, taken(endpoint)))
    told["most"] = memory("VmHWM")
    print(json.dumps(told))


def run(endpoint: str, index: Path, stretches: list[tuple[int, int]]) -> dict[str, Any]:
    code = f"from tests.test_memory import client; client({endpoint!r}, {str(index)!r}, {stretches!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True, timeout=110
    )
    assert done.stderr == ""
    told: dict[str, Any] = json.loads(done.stdout)
    return told


BLOCKS = 1_000_000_000 // Endless.BLOCK + 1


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with Bucket("endless", blocks=BLOCKS) as bucket:
        yield bucket


def test_stretches_of_a_gigabyte(bucket: Bucket, tmp_path: Path) -> None:
    size = BLOCKS * Endless.CHARACTERS
    places = [0, 12, Endless.CHARACTERS - 500, size // 2, size - 60_000]
    stretches = [(start, length) for start in places for length in LENGTHS] + [(size - 5, 100), (size, 1)]
    index = tmp_path / "index.sqlite"
    told = run(bucket.endpoint, index, stretches)
    assert told["size"] == size
    assert told["learning"]["GET"] <= 2  # the whole file once, and what was asked for
    assert told["most"] - told["opened"] < ROOM
    for (start, length), (text, asked) in zip(stretches, told["read"], strict=True):
        expected = Endless.text(start, min(length, size - start))
        assert text == expected
        assert asked["GET"] == 1 or not expected
        assert asked["HEAD"] == asked["LIST"] == 0
        assert asked["sent"] <= len(expected.encode()) + MOST_BESIDE
    # Where characters lie is known to the next process, which never reads the whole of it.
    again = run(bucket.endpoint, index, stretches[-4:])
    assert again["size"] == size
    assert again["learning"]["sent"] <= MOST_BESIDE
    assert again["most"] - again["opened"] < ROOM
    assert [text for text, _ in again["read"]] == [text for text, _ in told["read"][-4:]]
