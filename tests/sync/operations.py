"""Random things that people and programs do to a folder of skills."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import random
import shutil
import weakref
from collections.abc import Callable, Iterator
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

OFTEN = (
    "do_swap_folders",
    "do_swap_folders",
    "do_exchange",
    "do_exchange",
    "do_move_folder",
    "do_edit_linked",
)

AT_FDCWD = -100
RENAME_EXCHANGE = 2
_libc = ctypes.CDLL(None, use_errno=True)


def exchange(one: Path, two: Path) -> None:
    """Swap two names in one step.

    Raises:
        OSError: Also where the system or the filesystem cannot do that.
    """
    if not hasattr(_libc, "renameat2"):
        raise OSError(errno.ENOSYS, "names cannot be exchanged here")
    if _libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(two), RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _close_all(handles: list[int]) -> None:
    while handles:
        os.close(handles.pop())


class Operations:
    """Does random operations below a root, such as people and their programs do.

    Args:
        root: The store.
        outside: A folder beside it, into which links escape.
        seed: Of the random choices.

    Attributes:
        log: What was done.
        is_silent: Whether a file was changed by a name that is gone, of which the kernel tells nobody.
    """

    def __init__(self, root: Path, outside: Path, seed: int) -> None:
        self.root = root
        self.outside = outside
        self.random = random.Random(seed)
        self.log: list[str] = []
        self.is_silent = False
        self._recent: list[Path] = []
        self._handles: list[int] = []
        self.close = weakref.finalize(self, _close_all, self._handles)
        self._operations: list[Callable[[], str]] = [
            getattr(self, name) for name in (*sorted(dir(self)), *OFTEN) if name.startswith("do_")
        ]

    def run(self) -> None:
        operation = self.random.choice(self._operations)
        if self._handles and self.random.random() < 0.15:
            operation = self.random.choice((self.do_append_to_open, self.do_truncate_open, self.do_close))
        with contextlib.suppress(OSError, shutil.Error, IndexError):  # nothing there to do it to
            self.log.append(f"{operation.__name__[3:]} {operation()}")

    # -- choices -------------------------------------------------------------------------------------------

    def _entries(self, folder: str | Path) -> Iterator[os.DirEntry[str]]:
        with os.scandir(folder) as listing:
            entries = list(listing)
        for entry in entries:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from self._entries(entry.path)

    def _folders(self) -> list[Path]:
        inner = (entry.path for entry in self._entries(self.root) if entry.is_dir(follow_symlinks=False))
        return [self.root, *map(Path, sorted(inner))]

    def _folder(self) -> Path:
        return self._choice(self._folders())

    def _any(self) -> Path:
        return self._choice([Path(path) for path in sorted(entry.path for entry in self._entries(self.root))])

    def _files(self) -> list[Path]:
        files = (entry.path for entry in self._entries(self.root) if entry.is_file(follow_symlinks=False))
        return [Path(path) for path in sorted(files)]

    def _file(self) -> Path:
        return self._choice(self._files())

    def _inner(self) -> Path:
        return self._choice(self._folders()[1:])

    def _choice(self, paths: list[Path]) -> Path:
        """Half of the time something that was touched before, or lies in it or beside it."""
        if self._recent and self.random.random() < 0.5:
            near = self.random.choice(self._recent[-6:])
            paths = [p for p in paths if near in (p, p.parent, *p.parents) or p == near.parent] or paths
        return self.random.choice(paths)

    def _text(self) -> str:
        return self.random.choice((*TEXTS, f"unique {self.random.random()}\n"))

    def _new(self, names: tuple[str, ...]) -> Path:
        return self._folder() / self.random.choice(names)

    def _name(self, path: Path) -> str:
        self._recent.append(path)
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

    def do_swap_folders(self) -> str:
        one, two = self._inner(), self._inner()
        if one == two or one in two.parents or two in one.parents:
            return "not"
        beside = self.root / "swapping~"
        one.rename(beside)
        two.rename(one)
        beside.rename(two)
        return f"{self._name(one)} <-> {self._name(two)}"

    def do_exchange(self) -> str:
        choose = self.random.choice((self._any, self._inner))
        one, two = choose(), choose()
        if one == two or one in two.parents or two in one.parents:
            return "not"
        exchange(one, two)
        return f"{self._name(one)} <-> {self._name(two)}"

    def do_rename_there_and_back(self) -> str:
        path = self._any()
        beside = path.with_name("b" if path.is_dir() else "y.md")
        if beside.exists() or path.is_symlink():
            return "not"
        path.rename(beside)
        self._write(beside / "x.md" if beside.is_dir() else beside)
        beside.rename(path)
        return f"{self._name(path)} -> {self._name(beside)} -> {self._name(path)}"

    def do_rename_and_edit(self) -> str:
        path = self._any()
        to = self._new(FOLDERS if path.is_dir() else FILES)
        if path in to.parents or to.exists() or path.is_symlink():
            return "not"
        path.rename(to)
        self._write(to / "SKILL.md" if to.is_dir() else to)
        return f"{self._name(path)} -> {self._name(to)}"

    def do_rename_in_turn(self) -> str:
        paths = self._files()
        paths = self.random.sample(paths, min(3, len(paths)))
        beside = self.root / "turning~"
        for path, to in zip([*reversed(paths), beside], [beside, *reversed(paths)], strict=True):
            path.rename(to)
        return " -> ".join(map(self._name, paths))

    def do_move_out(self) -> str:
        path, to = self._any(), self._beside("moved")
        path.rename(to)
        return f"{self._name(path)} -> {to.name}"

    def do_move_in(self) -> str:
        path = self.random.choice(sorted(self.outside.glob("moved-*")))
        to = self._new(FOLDERS if path.is_dir() else FILES)
        if to.exists():
            return "not"
        path.rename(to)
        return f"{path.name} -> {self._name(to)}"

    def do_edit_outside(self) -> str:
        path = self.random.choice(sorted(p for p in self.outside.rglob("*") if p.is_file()))
        path.write_text(self._text())
        return path.relative_to(self.outside).as_posix()

    def do_hard_link_outside(self) -> str:
        path, to = self._file(), self._beside("hard")
        if self.random.random() < 0.7:
            return "not"  # of what follows little is told
        os.link(path, to)
        return f"{self._name(path)} = {to.name}"

    def do_edit_linked(self) -> str:
        paths = [path for path in self._files() if path.lstat().st_nlink > 1]
        path = self.random.choice([*paths, *sorted(self.outside.glob("hard-*"))])
        path.write_text(self._text())
        return os.path.relpath(path, self.root)

    def do_remove_hard_link_outside(self) -> str:
        path = self.random.choice(sorted(self.outside.glob("hard-*")))
        path.unlink()
        return path.name

    def _beside(self, kind: str) -> Path:
        """A path outside that was never taken."""
        return self.outside / f"{kind}-{self.random.randrange(1 << 32):08x}"

    def do_delete_and_recreate(self) -> str:
        path, saved = self._inner(), self._beside("saved")
        shutil.copytree(path, saved, symlinks=True)
        shutil.rmtree(path)
        shutil.copytree(saved, path, symlinks=True)
        if self.random.random() < 0.5:
            self._write(path / "x.md")
        shutil.rmtree(saved)
        return self._name(path)

    def do_replace_folder(self) -> str:
        path = self._inner()
        beside = path.with_name("replaced~")
        path.rename(beside)
        path.joinpath("docs").mkdir(parents=True)
        self._write(path / self.random.choice(FILES))
        self._write(path / "docs/x.md")
        shutil.rmtree(beside)
        return self._name(path)

    def do_make_deep(self) -> str:
        path = self._folder()
        at = path.joinpath(*self.random.choices(FOLDERS[:6], k=self.random.randrange(2, 6)))
        at.mkdir(parents=True, exist_ok=True)
        name = self._name(at)
        while at != path:
            self._write(at / self.random.choice(FILES))
            at = at.parent
        return name

    def do_chmod(self) -> str:
        path = self._any()
        if path.is_symlink():
            return "not"
        path.chmod(self.random.choice((0o700, 0o755) if path.is_dir() else (0o600, 0o644)))
        return self._name(path)

    def do_write_by_map(self) -> str:
        path = self._file()
        if not path.stat().st_size:
            return "not"
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[0] = 65 + self.random.randrange(26)
        return self._name(path)

    def do_open(self) -> str:
        path = self._file()
        self._handles.append(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
        return self._name(path)

    def do_append_to_open(self) -> str:
        number = self.random.randrange(len(self._handles) or 1)
        os.write(self._handles[number], b"more\n")
        return self._wrote(number)

    def do_truncate_open(self) -> str:
        number = self.random.randrange(len(self._handles) or 1)
        os.ftruncate(self._handles[number], 0)
        return self._wrote(number)

    def _wrote(self, number: int) -> str:
        name = os.readlink(f"/proc/self/fd/{self._handles[number]}")
        if name.endswith(" (deleted)") and os.fstat(self._handles[number]).st_nlink:
            self.is_silent = True
        return os.path.relpath(name, self.root)

    def do_close(self) -> str:
        number = self.random.randrange(len(self._handles) or 1)
        os.close(self._handles.pop(number))
        return str(number)

    def do_save_with_backup(self) -> str:
        path = self._file()
        backup = path.with_name(path.name + "~")
        path.replace(backup)
        path.write_text(self._text())
        if self.random.random() < 0.5:
            backup.unlink()
        return self._name(path)

    def do_save_in_place(self) -> str:
        path = self._file()
        shutil.copy2(path, path.with_name("saving~"))
        path.write_text(self._text())
        path.with_name("saving~").unlink()
        return self._name(path)

    def do_save_from_beside(self) -> str:
        path = self._file()
        beside = path.with_name("sedAb3dE")
        beside.write_text(self._text())
        os.replace(beside, path)
        return self._name(path)

    def do_turn_link(self) -> str:
        path = self.random.choice(sorted(p for p in self.root.rglob("*") if p.is_symlink()))
        beside = path.with_name("turning~")
        beside.symlink_to(os.path.relpath(self._any(), path.parent))
        os.replace(beside, path)
        return f"{self._name(path)} => {os.readlink(path)}"
