"""Random sequences of writes, against a model that knows nothing but two sets of paths."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from skillfs import SkillFileSystem
from skillfs.errors import SkillFSError
from tests.sync.harness import Follower, check, check_like_new
from tests.writable import open_writable

FOLDERS = ("a", "b", "docs", "deep")
FILES = ("SKILL.md", "SKILL.md", "x.md", "y.md", "z[1].md")


def above(path: str) -> list[str]:
    """The folders above a path, the nearest first, without the root."""
    found = []
    while "/" in path:
        path = path.rpartition("/")[0]
        found.append(path)
    return found


def below(path: str, folder: str) -> bool:
    return folder == "" or path.startswith(f"{folder}/")


def parent(path: str) -> str:
    return path.rpartition("/")[0]


class Refused(Exception):
    pass


class Model:
    """What lies in a store, as files with their bytes and folders."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.folders: set[str] = set()

    # -- what can be seen ----------------------------------------------------------------------------------

    def is_skill(self, folder: str) -> bool:
        return f"{folder}/SKILL.md".lstrip("/") in self.files

    def enclosed(self, folder: str, promised: frozenset[str] = frozenset()) -> bool:
        return any(self.is_skill(f) or f in promised for f in (folder, *above(folder), ""))

    def shown_files(self) -> dict[str, bytes]:
        return {p: data for p, data in self.files.items() if self.enclosed(parent(p))}

    def in_skills(self) -> set[str]:
        return {*self.shown_files(), *(f for f in self.folders if self.enclosed(f))}

    def shown_folders(self) -> set[str]:
        inside = {f for f in self.folders if self.enclosed(f)}
        return inside | {up for f in inside for up in above(f)}

    # -- what can be done ----------------------------------------------------------------------------------

    def need(self, right: object) -> None:
        if not right:
            raise Refused

    def may_hold(self, path: str) -> bool:
        return not any(up in self.files for up in above(path))

    def need_file(self, path: str, promised: frozenset[str] = frozenset()) -> None:
        self.need(path and path not in self.folders and self.may_hold(path))
        self.need_names(above(path))
        self.need(self.enclosed(parent(path), promised) or path.endswith("SKILL.md"))
        self.need(self.enclosed(parent(path)) or not path.endswith("SKILL.md") or self.clear(parent(path)))

    def need_names(self, folders: list[str]) -> None:
        """No folder is made with the name of the file that makes a skill."""
        self.need(all(f in self.folders or f.rpartition("/")[2] != "SKILL.md" for f in folders))

    def clear(self, folder: str) -> bool:
        """Whether nothing below a folder is out of sight."""
        seen = {*self.shown_files(), *self.shown_folders()}
        return all(p in seen for p in (*self.files, *self.folders) if below(p, folder))

    def put(self, path: str, data: bytes) -> None:
        self.files[path] = data
        self.folders.update(above(path))

    def write(self, path: str, data: bytes) -> None:
        self.need_file(path)
        self.put(path, data)

    def mkdir(self, path: str) -> None:
        self.need(path not in self.files and path not in self.folders)
        self.need(self.may_hold(path) and self.enclosed(parent(path)))
        self.need_names([path, *above(path)])
        self.folders.update((path, *above(path)))

    def remove(self, path: str) -> None:
        """With all that lies below; what stays must not lose its skill, but for the folder of a SKILL.md."""
        self.need(path in self.in_skills())
        doomed = {p for p in (*self.files, *self.folders) if p == path or below(p, path)}
        before = self.in_skills() - doomed
        left = Model()
        left.files = {p: data for p, data in self.files.items() if p not in doomed}
        left.folders = self.folders - doomed
        lost = before - left.in_skills()
        if path.endswith("SKILL.md"):
            # On the way to an inner skill a folder is seen all the same.
            lost -= {parent(path), *left.shown_folders()}
        self.need(not lost)
        self.files, self.folders = left.files, left.folders

    def rmdir(self, path: str) -> None:
        self.need(path in self.folders and self.enclosed(path))
        self.need(not any(below(p, path) for p in (*self.files, *self.folders)))
        self.folders.discard(path)

    def move(self, old: str, new: str) -> dict[str, str]:
        """Returns old to new path of everything that moved."""
        self.need(old in self.in_skills())
        into = new == "" or (new in self.shown_folders() and new != old)
        to = f"{new}/{old.rpartition('/')[2]}".lstrip("/") if into else new
        if old in self.files:
            self.need_file(to)
            self.need(not (into and to in self.files and to != old))
        else:
            self.need(self.may_hold(to) and to not in self.files)
            self.need(to == old or to.rpartition("/")[2] != "SKILL.md")
            self.need_names(above(to))
            if to != old:
                self.need(not below(to, old))
                self.need(self.enclosed(parent(to)) or self.is_skill(old))
                if to in self.folders:
                    self.need(not into or to not in self.shown_folders())
                    self.need(to not in self.shown_folders())
                    self.need(not any(below(p, to) for p in (*self.files, *self.folders)))
        if to == old:
            return {}
        after = Model()
        moved = {p: to + p[len(old) :] for p in (*self.files, *self.folders) if p == old or below(p, old)}
        after.folders = {moved.get(f, f) for f in self.folders} | set(above(to))
        after.files = {p: data for p, data in self.files.items() if p not in moved}
        after.files.update({moved[p]: data for p, data in self.files.items() if p in moved})
        if old in self.files:
            lost = {moved.get(p, p) for p in self.in_skills()} - after.in_skills()
            if old.endswith("SKILL.md"):
                lost -= {parent(old), *after.shown_folders()}
            self.need(not lost)
        self.files, self.folders = after.files, after.folders
        return moved

    def copy(self, old: str, new: str) -> None:
        files, folders = self.shown_files(), self.shown_folders()
        self.need(old in files or old in folders)
        to = f"{new}/{old.rpartition('/')[2]}".lstrip("/") if new == "" or new in folders else new
        if old in files:
            self.need(to != old)
            self.need_file(to)
            self.put(to, files[old])
            return
        self.need(to != old or not any(below(p, old) for p in files))
        targets = {to + p[len(old) :]: data for p, data in files.items() if below(p, old)}
        made = {to + f[len(old) :] for f in folders if f == old or below(f, old)}
        promised = frozenset(parent(p) for p in targets if p.endswith("SKILL.md"))
        for path in targets:
            self.need_file(path, promised)
        for folder in made:
            self.need(folder not in self.files and self.may_hold(folder))
            self.need_names([folder, *above(folder)])
            leads = any(p == folder or below(p, folder) for p in promised)
            self.need(folder in folders or self.enclosed(folder, promised) or leads)
        self.folders.update(made)
        for folder in made:
            self.folders.update(above(folder))
        for path, data in targets.items():
            self.put(path, data)


class Play:
    """Does the same things to a filesystem and to a model."""

    def __init__(self, fs: SkillFileSystem, seed: int) -> None:
        self.fs = fs
        self.model = Model()
        self.random = random.Random(seed)
        self.log: list[str] = []

    def path(self) -> str:
        depth = self.random.randrange(3)
        parts = [self.random.choice(FOLDERS) for _ in range(depth)]
        return "/".join((*parts, self.random.choice(self.random.choice((FILES, FILES, FOLDERS)))))

    def known(self) -> str:
        some = sorted({*self.model.files, *self.model.folders})
        return self.random.choice(some) if some and self.random.random() < 0.9 else self.path()

    def folder_or_path(self) -> str:
        some = sorted(self.model.folders)
        return self.random.choice(some) if some and self.random.random() < 0.4 else self.path()

    def step(self) -> dict[str, str]:
        """One operation; returns what it moved."""
        fs, model = self.fs, self.model
        kind = self.random.choice(("write", "write", "skill", "mkdir", "rmdir", "rm", "rm", "mv", "mv", "cp"))
        moved: dict[str, str] = {}
        before = dict(model.files), set(model.folders)
        if kind in ("write", "skill"):
            path = self.path() if kind == "write" else f"{self.folder_or_path()}/SKILL.md"
            data = self.random.choice((b"", b"same", b"%d" % self.random.getrandbits(40)))
            said, call, act = path, lambda: model.write(path, data), lambda: fs.pipe_file(path, data)
            if path == "SKILL.md":
                return {}  # then everything would be in a skill for good
        elif kind == "mkdir":
            path = self.folder_or_path()
            said, call, act = path, lambda: model.mkdir(path), lambda: fs.mkdir(path)
        elif kind == "rmdir":
            path = self.folder_or_path()
            said, call, act = path, lambda: model.rmdir(path), lambda: fs.rmdir(path)
        elif kind == "rm":
            path = self.known()
            said, call, act = path, lambda: model.remove(path), lambda: fs.rm(path, recursive=True)
        else:
            old, new = self.known(), self.random.choice((self.path(), self.folder_or_path(), ""))
            if (old.endswith("SKILL.md") and new == "") or new == "SKILL.md":
                return {}
            said = f"{old} -> {new}"
            if kind == "mv":
                call, act = lambda: moved.update(model.move(old, new)), lambda: fs.mv(old, new)
            else:
                call, act = lambda: model.copy(old, new), lambda: fs.cp(old, new, recursive=True)
        try:
            call()
            expected = "done"
        except Refused:
            model.files, model.folders = before
            expected = "refused"
        try:
            act()
            outcome = "done"
        except SkillFSError as error:
            outcome = f"refused ({error})"
        self.log.append(f"{kind} {said}: {outcome}")
        assert outcome.startswith(expected), f"expected {expected}: {self.log}"
        return moved if expected == "done" else {}


@pytest.mark.parametrize("seed", range(14))
def test_any_sequence_ends_as_the_model_says(root: Path, seed: int) -> None:
    fs = open_writable(root, max_age=1e9)
    play = Play(fs, seed)
    for path in ("a/SKILL.md", "a/docs/x.md", "b/deep/SKILL.md", "b/deep/y.md"):
        fs.pipe_file(path, path.encode())
        play.model.write(path, path.encode())
    follower = Follower(fs._engine)
    uuids: dict[str, str] = {}
    for _ in range(60):
        moved = play.step()
        model, log = play.model, play.log
        files = {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}
        assert files == set(model.files), log
        assert {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_dir()} == model.folders, log
        assert {p: fs.cat_file(p) for p in fs.find("")} == model.shown_files(), log
        found = fs.find("", withdirs=True, detail=True)
        assert {p for p, info in found.items() if info["type"] == "directory"} == model.shown_folders(), log
        now = {p: info["uuid"] for p, info in found.items()}
        assert len(set(now.values())) == len(now), log
        for path, uuid in uuids.items():
            to = moved.get(path, path)
            if to in now and (to in moved.values()) == (path in moved):
                assert now[to] == uuid, (path, to, log)
        uuids = now
        check(fs._engine, root)
        check_like_new(fs._engine, root)
        follower.catch_up()
    assert sum("done" in line for line in play.log) > 4
