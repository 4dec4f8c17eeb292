"""Random things that people and programs do to a folder of skills."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

FOLDERS = ("a", "b", "B", "docs", "scripts", "pdf", ".hidden", ".git", "node_modules")
FILES = (
    "SKILL.md",
    "SKILL.md",
    "skill.md",
    "x.md",
    "X.md",
    "é.md",
    ".dot",
    "run.py",
    "run.pyc",
    ".env",
    "y.md~",
)
TEXTS = ("", "one\n", "two\n", "---\nname: pdf\ndescription: d\n---\n", "same size A", "same size B")


class Operations:
    """Does random operations below a root, such as people and their programs do.

    Args:
        root: The store.
        outside: A folder beside it, into which links escape.
        seed: Of the random choices.
    """

    def __init__(self, root: Path, outside: Path, seed: int) -> None:
        self.root = root
        self.outside = outside
        self.random = random.Random(seed)
        self.log: list[str] = []
        self._operations: list[Callable[[], str]] = [
            getattr(self, name) for name in sorted(dir(self)) if name.startswith("do_")
        ]

    def run(self) -> None:
        operation = self.random.choice(self._operations)
        with contextlib.suppress(OSError, shutil.Error, IndexError):  # nothing there to do it to
            self.log.append(f"{operation.__name__[3:]} {operation()}")

    # -- choices -------------------------------------------------------------------------------------------

    def _folders(self) -> list[Path]:
        return [self.root, *sorted(p for p in self.root.rglob("*") if p.is_dir() and not p.is_symlink())]

    def _folder(self) -> Path:
        return self.random.choice(self._folders())

    def _any(self) -> Path:
        return self.random.choice(sorted(self.root.rglob("*")))

    def _file(self) -> Path:
        return self.random.choice(
            sorted(p for p in self.root.rglob("*") if p.is_file() and not p.is_symlink())
        )

    def _inner(self) -> Path:
        return self.random.choice(self._folders()[1:])

    def _text(self) -> str:
        return self.random.choice((*TEXTS, f"unique {self.random.random()}\n"))

    def _new(self, names: tuple[str, ...]) -> Path:
        return self._folder() / self.random.choice(names)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _write(self, path: Path) -> str:
        if path.is_fifo():
            return "not"  # it would wait for a reader
        path.write_text(self._text())
        return self._name(path)

    # -- operations ----------------------------------------------------------------------------------------

    def do_write(self) -> str:
        return self._write(self._new(FILES))

    def do_write_skill(self) -> str:
        return self._write(self._folder() / "SKILL.md")

    def do_write_again(self) -> str:
        return self.do_write()

    def do_edit_with_old_time(self) -> str:
        path = self._file()
        before = path.stat()
        data = bytearray(path.read_bytes() or b"x")
        data[self.random.randrange(len(data))] = 65 + self.random.randrange(26)
        path.write_bytes(bytes(data))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return self._name(path)

    def do_append(self) -> str:
        path = self._file()
        with path.open("a") as file:
            file.write("more\n")
        return self._name(path)

    def do_save_atomically(self) -> str:
        path = self._file()
        beside = path.with_name("saving~")
        beside.write_text(self._text())
        os.replace(beside, path)
        return self._name(path)

    def do_touch(self) -> str:
        path = self._any()
        os.utime(path, follow_symlinks=False)
        return self._name(path)

    def do_make_folder(self) -> str:
        path = self._new(FOLDERS)
        path.mkdir()
        return self._name(path)

    def do_make_skill(self) -> str:
        path = self._new(FOLDERS)
        path.mkdir(exist_ok=True)
        return self._write(path / "SKILL.md")

    def do_remove_skill_md(self) -> str:
        path = self.random.choice(sorted(self.root.rglob("SKILL.md")))
        path.unlink()
        return self._name(path)

    def do_delete(self) -> str:
        path = self._any()
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return self._name(path)

    def do_rename(self) -> str:
        path = self._any()
        to = path.with_name(self.random.choice(FOLDERS if path.is_dir() else FILES))
        os.replace(path, to)
        return f"{self._name(path)} -> {self._name(to)}"

    def do_rename_case(self) -> str:
        path = self._any()
        to = path.with_name(path.name.swapcase())
        if to.exists():
            return "not"
        path.rename(to)
        return f"{self._name(path)} -> {self._name(to)}"

    def do_move(self) -> str:
        path = self._any()
        to = self._folder() / path.name
        if path not in to.parents and not to.exists():
            path.rename(to)
        return f"{self._name(path)} -> {self._name(to)}"

    def do_move_folder(self) -> str:
        path = self._inner()
        to = self._new(FOLDERS)
        if path not in to.parents and not to.exists():
            path.rename(to)
        return f"{self._name(path)} -> {self._name(to)}"

    def do_swap(self) -> str:
        one, two = self._any(), self._any()
        if one == two or one in two.parents or two in one.parents:
            return "not"
        beside = self.root / "swapping~"
        one.rename(beside)
        two.rename(one)
        beside.rename(two)
        return f"{self._name(one)} <-> {self._name(two)}"

    def do_copy(self) -> str:
        path = self._inner()
        to = self._new(FOLDERS)
        if path not in to.parents and not to.exists():
            shutil.copytree(path, to, symlinks=True)
        return f"{self._name(path)} -> {self._name(to)}"

    def do_check_out_elsewhere(self) -> str:
        path = self._inner()
        to = self._new(FOLDERS)
        if path in to.parents or to.exists():
            return "not"
        shutil.copytree(path, to, symlinks=True)
        shutil.rmtree(path)
        return f"{self._name(path)} -> {self._name(to)}"

    def do_turn_file_into_folder(self) -> str:
        path = self._file()
        path.unlink()
        path.mkdir()
        (path / "x.md").write_text(self._text())
        return self._name(path)

    def do_turn_folder_into_file(self) -> str:
        path = self._inner()
        shutil.rmtree(path)
        path.write_text(self._text())
        return self._name(path)

    def do_hard_link(self) -> str:
        path, to = self._file(), self._new(FILES)
        os.link(path, to)
        return f"{self._name(path)} = {self._name(to)}"

    def do_link(self) -> str:
        path = self._new((*FOLDERS, *FILES, "link"))
        target = self.random.choice(
            [self._any(), self._any(), Path("."), Path(".."), Path("nowhere"), self.outside, path, self.root]
        )
        if self.random.random() < 0.5 and target.is_absolute():
            target = Path(os.path.relpath(target, path.parent))
        path.symlink_to(target)
        return f"{self._name(path)} => {target}"

    def do_turn_folder_into_link(self) -> str:
        path, to = self._inner(), self._new(FOLDERS)
        if path in to.parents or to.exists():
            return "not"
        path.rename(to)
        path.symlink_to(to)
        return f"{self._name(path)} => {self._name(to)}"

    def do_pipe(self) -> str:
        path = self._new(FILES)
        os.mkfifo(path)
        return self._name(path)
