"""Stores behind mount points: what is laid out, and where the kernel shows it."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from skillfs import SkillFileSystem
from tests.conftest import skill_md, write

if TYPE_CHECKING:
    from tests.servers.s3 import Bucket, S3Server

__all__ = [
    "EXECUTABLE", "HIDDEN", "KEPT", "SECRET", "SIZES", "TREE", "Shown", "blob", "local_shown", "mounted",
    "names", "opened", "python", "refused", "run", "s3_shown", "until", "whole",
]  # fmt: skip

SIZES = (0, 1, 4095, 4096, 4097, 131071, 131072, 131073, 300_001)
"""Around a page, and around what the kernel asks for at most without reading ahead."""

KEPT = 0.12
"""Seconds after which the kernel believes nothing any more of what it was told."""

SECRET = "secret-of-nobody"


def blob(size: int) -> bytes:
    """Bytes that follow from how many they are."""
    return random.Random(size).randbytes(size)


TREE: dict[str, str | bytes] = {
    "pdf/SKILL.md": skill_md("pdf", body="# PDF\n\nneedle in the skill\n"),
    "pdf/references/große Übersicht.md": "größe\nneedle: äöü\n" * 40,
    "pdf/references/- #%41 [x]*~$.txt": "needle\n",
    "pdf/references/deep/er/still/x.md": "x\n",
    "pdf/scripts/main.py": "import helper\nprint(helper.answer())\n",
    "pdf/scripts/helper.py": "from pathlib import Path\n\n\ndef answer():\n"
    "    return Path(__file__).with_name('number.txt').read_text()\n",
    "pdf/scripts/number.txt": "forty-two",
    "pdf/scripts/run.sh": "#!/bin/sh\necho ran $(cat \"$(dirname \"$0\")/number.txt\")\n",
    "pdf/.hidden/note.md": "needle, hidden\n",
    "office/word/SKILL.md": skill_md("word"),
    "office/word/nested/SKILL.md": skill_md("nested"),
    "office/word/nested/a.md": "a\n",
    "sizes/SKILL.md": skill_md("sizes"),
    **{f"sizes/{size:07}.bin": blob(size) for size in SIZES},
    "many/SKILL.md": skill_md("many"),
    **{f"many/{n:03}/{name}.md": f"{n} {name}\n" for n in range(12) for name in ("one", "two", "three")},
}  # fmt: skip
"""What is seen."""

HIDDEN: dict[str, str | bytes] = {
    "loose.md": f"needle {SECRET}\n",
    "office/loose.md": f"needle {SECRET}\n",
    "nothing/deeper/loose.md": f"needle {SECRET}\n",
    "pdf/.env": f"needle={SECRET}\n",
    "pdf/.git/config": f"needle {SECRET}\n",
    "pdf/scripts/__pycache__/main.pyc": f"needle {SECRET}\n",
    "pdf/scripts/node_modules/x/index.js": f"needle {SECRET}\n",
}
"""What lies between, and is not."""

ENVIRONMENT = {"LC_ALL": "C.UTF-8", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
"""Nothing of whoever runs the tests."""

EXECUTABLE = "pdf/scripts/run.sh"


@dataclass(frozen=True)
class Shown:
    """A store and the folder in which the kernel shows it.

    Attributes:
        kind: `local` or `s3`.
        at: The mount point.
        source: A folder that holds what is seen, and nothing else.
        fs: The same store, without a kernel.
        put: Replaces or makes a file of the store behind everybody's back.
        remove: Removes one.
        bucket: Where the store lies, if that is S3.
    """

    kind: str
    at: Path
    source: Path
    fs: SkillFileSystem
    put: Callable[[str, str | bytes], object]
    remove: Callable[[str], object]
    bucket: Bucket | None = None


@contextlib.contextmanager
def mounted(fs: SkillFileSystem, at: Path, **options: Any) -> Iterator[Path]:
    """Show a filesystem in a folder, which is made, for as long as the context lasts."""
    at.mkdir(parents=True, exist_ok=True)
    with fs.mount(at, **options):
        try:
            yield at
        finally:
            # Whatever a test that failed left open must not hold up the end.
            subprocess.run(["fusermount3", "-u", "-z", str(at)], check=False, capture_output=True)


@contextlib.contextmanager
def local_shown(
    folder: Path,
    tree: Mapping[str, str | bytes] = TREE,
    hidden: Mapping[str, str | bytes] = HIDDEN,
    **options: Any,
) -> Iterator[Shown]:
    """A local store at `folder/store`, shown at `folder/mount`."""
    store = write(folder / "store", {**tree, **hidden})
    source = write(folder / "source", tree)
    if EXECUTABLE in tree:
        for top in (store, source):
            (top / EXECUTABLE).chmod(0o755)
    for name in tree:
        for path in (store / name, source / name):
            os.utime(path, ns=(0, 1_600_000_000_123_456_789))

    def put(name: str, content: str | bytes) -> None:
        beside = folder / "beside"
        beside.write_bytes(content.encode() if isinstance(content, str) else content)
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        beside.rename(store / name)

    fs = SkillFileSystem(store, **{"index": ":memory:", "skip_instance_cache": True, **options})
    with mounted(fs, folder / "mount") as at:
        yield Shown("local", at, source, fs, put, lambda name: (store / name).unlink())


@contextlib.contextmanager
def s3_shown(
    folder: Path,
    server: S3Server,
    tree: Mapping[str, str | bytes] = TREE,
    hidden: Mapping[str, str | bytes] = HIDDEN,
    **options: Any,
) -> Iterator[Shown]:
    """The same in a bucket of its own, below the prefix `library/`."""
    bucket = server.new_bucket()
    try:
        bucket.seed({**tree, **hidden}, "library/")
        options = {"index": ":memory:", "target_options": server.target_options, **options}
        fs = SkillFileSystem(f"{bucket.url}/library", skip_instance_cache=True, **options)
        with mounted(fs, folder / "mount") as at:
            yield Shown(
                "s3", at, write(folder / "source", tree), fs,
                lambda name, content: bucket.put(f"library/{name}", content),
                lambda name: bucket.delete(f"library/{name}"),
                bucket,
            )  # fmt: skip
    finally:
        server.drop(bucket)


def run(*command: object, status: int = 0, cwd: Path | None = None) -> str:
    """What a program writes; it must end with this status and say nothing on standard error."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, timeout=60, check=False, cwd=cwd,
        env={**os.environ, **ENVIRONMENT},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (status, b""), (command, done)
    return done.stdout.decode(errors="surrogateescape")


def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until something holds; it is asked often, and fails in the end by itself."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    assert condition()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """A file that is open, as a number."""
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def whole(path: Path) -> str:
    """What is in a file, by as many readings as it takes."""
    with opened(path) as fd:
        parts = []
        while part := os.read(fd, 65_536):
            parts.append(part)
    return b"".join(parts).decode()


def names(folder: Path) -> list[str]:
    """What a folder holds."""
    return sorted(os.listdir(folder))


def refused(work: Callable[[], object]) -> int | None:
    """The number of the error that something ends with."""
    with pytest.raises(OSError) as caught:  # noqa: PT011  # its number is what counts
        work()
    return caught.value.errno


@contextlib.contextmanager
def python(code: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Another process of Python; it ends with the context at the latest."""
    command = [sys.executable, "-I", "-S", "-c", code, *(str(argument) for argument in arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
