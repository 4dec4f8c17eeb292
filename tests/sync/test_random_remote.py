"""Random operations on a bucket: after each sync the index shows what the naive model shows."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest

from skillfs import SkillFileSystem, SkillFSError
from tests.servers.s3 import Bucket
from tests.sync.model import visible

NAMES = ("a", "b", "c", "SKILL.md", "SKILL.md", "x.md", "y.txt", ".env", "node_modules", "ä")
SYNCS = 6
SEQUENCES = 6


class Run:
    """One sequence, with its own filesystem, model and log."""

    def __init__(self, bucket: Bucket, folder: Path, seed: int) -> None:
        self.bucket, self.folder, self.prefix = bucket, folder, f"s{seed}/"
        self.chance = random.Random(seed)
        self.objects: dict[str, bytes] = {}
        self.log: list[str] = []
        for _ in range(self.chance.randrange(15)):
            self.operate()
        index = folder.with_suffix(".sqlite") if seed % 3 == 0 else ":memory:"
        self.fs = SkillFileSystem(
            f"{bucket.url}/{self.prefix}",
            target_options=bucket.server.target_options,
            index=index,
            max_age=1e6,
        )
        self.known = self.listed()
        self.revision = self.fs.revision

    def operate(self) -> None:
        chance = self.chance
        what = chance.choice(("put", "put", "put", "delete", "delete tree", "copy tree", "swap"))
        some = sorted(self.objects)
        if what == "put" or not some:
            key = "/".join(chance.choice(NAMES) for _ in range(chance.randrange(1, 5)))
            self.put(key, chance.choice((b"", b"one\n", b"two\n", f"{chance.random()}\n".encode())))
            return
        key = chance.choice(some)
        top = "/".join(key.split("/")[: chance.randrange(1, key.count("/") + 2)])
        below = [k for k in some if k == top or k.startswith(f"{top}/")]
        if what == "delete":
            self.delete(key)
        elif what == "delete tree":
            for each in below:
                self.delete(each)
        elif what == "copy tree":
            to = chance.choice(("a", "b", "new", "c/d"))
            for each in below:
                self.put(to + each[len(top) :], self.objects[each])
        else:
            other = chance.choice(some)
            one, two = self.objects[key], self.objects[other]
            self.put(key, two)
            self.put(other, one)

    def put(self, key: str, content: bytes) -> None:
        if any(k.startswith(f"{key}/") or key.startswith(f"{k}/") for k in self.objects):
            return  # no tree of a disk could hold both
        self.log.append(f"put {key} {content!r}")
        self.objects[key] = content
        self.bucket.seed({self.prefix + key: content})

    def delete(self, key: str) -> None:
        self.log.append(f"delete {key}")
        del self.objects[key]
        self.bucket.delete(self.prefix + key)

    def listed(self) -> dict[str, dict[str, object]]:
        found = self.fs.find("", withdirs=True, detail=True)
        return {path: dict(info) for path, info in (*found.items(), ("", self.fs.info("")))}

    def step(self) -> None:
        chance = self.chance
        for _ in range(chance.choice((0, 1, 1, 2, 5))):
            self.operate()
        if chance.random() < 0.4:
            path = chance.choice([*self.known, "nothing"])
            self.log.append(f"-- read {path}")
            try:
                data = self.fs.cat_file(path)
            except SkillFSError:
                pass
            else:
                assert data == self.objects[path]
        if chance.random() < 0.3:
            path = chance.choice([*self.known, ""])
            self.log.append(f"-- sync {path}")
            self.fs._engine.sync(path)
        self.fs.sync()
        self.log.append("-- sync")
        self.check()

    def check(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        for key, content in self.objects.items():
            path = self.folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        shown = visible(str(self.folder))
        now = self.listed()
        assert {p: i["kind"] for p, i in now.items()} == {p: s.kind for p, s in shown.items()}
        assert len({info["uuid"] for info in now.values()}) == len(now)
        for path, what in shown.items():
            if what.content is not None:
                assert self.fs.cat_file(path) == what.content
        for path in now.keys() & self.known.keys():
            if (now[path]["type"]) == self.known[path]["type"]:
                assert now[path]["uuid"] == self.known[path]["uuid"]
        changes = self.fs.changes(self.revision)
        assert not changes.reset
        places = {info["uuid"]: path for path, info in self.known.items()}
        for change in changes.items:
            if change.kind == "removed":
                del places[change.uuid]
            elif change.kind == "added":
                assert change.uuid not in places
                places[change.uuid] = change.path
            else:
                assert change.kind == "modified"
                assert places[change.uuid] == change.path
        assert places == {info["uuid"]: path for path, info in now.items()}
        self.revision = self.fs.revision
        self.fs.sync()
        assert self.fs.revision == self.revision
        self.known = now

    def go(self) -> None:
        try:
            for _ in range(SYNCS):
                self.step()
        except BaseException:
            print(*self.log, sep="\n  ")
            raise


@pytest.mark.parametrize("start", range(0, 10 * SEQUENCES, SEQUENCES))
def test_random_operations_on_a_bucket(bucket: Bucket, tmp_path: Path, start: int) -> None:
    for seed in range(start, start + SEQUENCES):
        print(f"seed {seed}")
        Run(bucket, tmp_path / str(seed), seed).go()


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_random_operations_on_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    start = random.SystemRandom().randrange(1 << 40)
    until = time.monotonic() + 120
    while time.monotonic() < until:
        Run(bucket, tmp_path / str(start), start).go()
        start += 1
