"""A race to read against: another process swaps a folder and files for links that lead outside, by renames.

`Swapper` lays out two trees of equal shape, one below a root and one outside that holds `SECRET` in every
file. Whatever reads below the root meanwhile may fail or give the inner bytes; the secret it may never give.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

SECRET = "outside-secret-marker"
FILES = ("skill/SKILL.md", "skill/refs/a.md", "skill/refs/b.md")
SWAPPED = ("skill/refs", "skill/refs/b.md", "skill/SKILL.md", "skill")


class Swapper:
    """Builds both trees at once, swaps as long as the context lasts, and leaves the inner tree whole.

    `root` and `outside` must lie on one filesystem, `outside` not below `root`. What is swapped out waits
    below `outside`, so that nothing but the skill ever lies below `root`.

    Attributes:
        outside_ids: Device and inode of everything outside; no handle may ever be of one of these.
        swaps: After the context: how often each of `SWAPPED` was replaced by a link and put back.
    """

    def __init__(self, root: Path, outside: Path) -> None:
        self.root, self.outside = root, outside
        self.swaps: dict[str, int] = {}
        for top, word in ((root, "inside"), (outside, SECRET)):
            for name in FILES:
                (top / name).parent.mkdir(parents=True, exist_ok=True)
                head = (
                    f"---\nname: skill\ndescription: Of {word}.\n---\n" if name.endswith("SKILL.md") else ""
                )
                (top / name).write_text(head + f"{word} {name}\n" * 20, encoding="utf-8")
        self.outside_ids = frozenset(
            (found.st_dev, found.st_ino) for found in (path.stat() for path in [outside, *outside.rglob("*")])
        )

    def content(self, name: str) -> bytes:
        """The one right content of a file of `FILES`; to be asked before the context is entered."""
        return (self.root / name).read_bytes()

    def __enter__(self) -> Self:
        command = [sys.executable, __file__, str(self.root), str(self.outside)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"swapping\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        answer, _ = self._process.communicate(timeout=30)  # closes its standard input, which ends it
        if kind is None:
            assert self._process.returncode == 0
            self.swaps = json.loads(answer)


def _swap_until_input_ends(root: str, outside: str) -> dict[str, int]:
    waiting = os.path.join(outside, "waiting")
    os.mkdir(waiting)
    moves = []
    for number, name in enumerate(SWAPPED):
        place, target = os.path.join(root, name), os.path.join(outside, name)
        link, real = os.path.join(waiting, f"link{number}"), os.path.join(waiting, f"real{number}")
        # Absolute and relative links in turn; the relative ones are right once they are in place.
        os.symlink(target if number % 2 else os.path.relpath(target, os.path.dirname(place)), link)
        moves.append((name, place, link, real))
    swaps = dict.fromkeys(SWAPPED, 0)
    print("swapping", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        for name, place, link, real in moves:
            os.rename(place, real)
            os.rename(link, place)
            os.rename(place, link)
            os.rename(real, place)
            swaps[name] += 1
    return swaps


def main(arguments: Sequence[str]) -> None:
    """Swap below a root until standard input ends, then print how often."""
    print(json.dumps(_swap_until_input_ends(*arguments)))


if __name__ == "__main__":
    main(sys.argv[1:])
