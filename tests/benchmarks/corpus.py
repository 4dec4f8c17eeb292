"""A store with the shape of real skills, made from a seed.

The proportions are those of some 18,000 public skills: files per skill with median 3 and 99th percentile 45;
`SKILL.md` with median 4.8 KB and 99th percentile 31 KB; 9.4 % without front matter, 7.5 % with broken YAML;
27 % named otherwise than their folder; 5 % nested in another skill; nearly every text with characters beyond
ASCII. 10,000 skills make some 117,000 files in 66,000 folders, 1.44 GB.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

VERSION = 1
"""Raised with every change of what is written, so that no older corpus is taken for this one."""

HUGE_BYTES = 200_000_000
PAGES = 500
PAGE_BYTES = 4096
_BLOCK_BYTES = 2_000_000
_LARGEST_FILE = 1_500_000
_FOLDERS_PER_FILE = 0.470  # new folders inside a skill for each file beside its SKILL.md
_SKILLS_PER_LIBRARY = 5.5
_PICKED = 40
_REMOTE_PAGES = 200

_VERBS = str.split(
    "analyze audit build convert debug deploy draft extract format lint map merge migrate plan query"
)
_NOUNS = str.split(
    "api brand chart contract css data docs email invoice kernel ledger model pdf report schema"
)
_FOLDERS = str.split(
    "references scripts assets templates examples api v2 guides data tests fixtures images locale"
)
_WORDS = str.split(
    "the a of to and in for with when use this file value returns each before after check then write read "
    "table column header request response error model agent skill step output input "
    "— → “quoted” café naïve façade "
    "größe señal 数据 分析 コード 설정 данные ✓ 🙂 never always should must may only first last"
)
_CODE = str.split(
    "def class return import from self.value = None for item in items: if not result: raise ValueError("
    ") print( json.loads( os.path.join( { } [ ] # größe const let function => await async true false"
)
_SUFFIXES = (
    *[(".md", 44), (".py", 16), (".json", 9), (".sh", 6), (".txt", 5), (".ts", 5), (".html", 4)],
    *[(".csv", 3), (".yaml", 3), (".png", 3), (".pdf", 1), (".xsd", 1)],
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What was written; also the stamp by which a finished corpus is known again.

    Attributes:
        version: Of this module.
        seed: Of all random choices.
        skills: Folders that hold a `SKILL.md`.
        small_files: Whether the files are but a line each, for look-ups alone.
        files: Files of the store.
        folders: Folders of the store, without its root.
        size: Bytes of the store.
        libraries: Folders whose children are skill folders, which peers want to be told.
        dozens: Skill folders of exactly twelve files, without nested skills.
        huge_characters: Characters of the 200 MB text in the store for reading; 0 without one.
    """

    version: int
    seed: int
    skills: int
    small_files: bool
    files: int
    folders: int
    size: int
    libraries: list[str]
    dozens: list[str]
    huge_characters: int


@dataclass(frozen=True, slots=True)
class Corpus:
    """A finished corpus on disk: two stores and a folder for what the benchmarks themselves keep."""

    folder: Path
    shape: Shape

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def reading(self) -> Path:
        """A store of one skill, `texts`, with `huge.txt` and `page-000.md` to `page-499.md`."""
        return self.folder / "reading"

    @property
    def state(self) -> Path:
        return self.folder / "state"


def ensure(
    folder: Path, skills: int, *, seed: int = 20, small_files: bool = False, reading: bool = True
) -> Corpus:
    """The corpus in `folder`, made anew unless the one there is finished and the same."""
    stamp = folder / "stamp.json"
    if stamp.exists():
        shape = Shape(**json.loads(stamp.read_text()))
        wanted = (VERSION, seed, skills, small_files, reading)
        if (shape.version, shape.seed, shape.skills, shape.small_files, shape.huge_characters > 0) == wanted:
            return Corpus(folder, shape)
        shutil.rmtree(folder)
    elif folder.exists() and any(folder.iterdir()) and not (folder / "store").is_dir():
        raise SystemExit("the folder given with --corpus holds something else; name an empty or a new one")
    shutil.rmtree(folder, ignore_errors=True)
    store = folder / "store"
    store.mkdir(parents=True)
    # An index is refused where others can read it.
    (folder / "state").mkdir(mode=0o700)
    shape = write_store(store, skills, seed=seed, small_files=small_files)
    if reading:
        characters = write_reading_store(folder / "reading", seed)
        shape = Shape(**asdict(shape) | {"huge_characters": characters})
    stamp.write_text(json.dumps(asdict(shape)))
    return Corpus(folder, shape)


def write_store(root: Path, skills: int, *, seed: int, small_files: bool = False) -> Shape:
    """Write the skills below the existing, empty folder `root`."""
    return _Writer(root, seed, small_files).write(skills)


def objects(skills: int, files: int, *, seed: int, small_files: bool = False) -> dict[str, bytes]:
    """Skills of so many files each, held by nobody but the caller: what a bucket is filled with."""
    writer = _Held(seed, small_files)
    for number in range(skills):
        path = f"owner-{number // 50:05d}/repo-{number // 5:05d}/skills/skill-{number:05d}"
        writer.skill(path, number, files)
    return writer.files_held


def reading_objects(seed: int, large_bytes: int) -> dict[str, bytes]:
    """One skill with a large text and some pages of 4 KB."""
    rng = random.Random(f"{seed}/reading")
    block = _words(rng, _WORDS, 1_000_000)
    held = {"texts/SKILL.md": b"---\nname: texts\ndescription: A long text and short ones.\n---\n"}
    for number in range(_REMOTE_PAGES):
        start = rng.randrange(len(block) - 2 * PAGE_BYTES)
        held[f"texts/page-{number:03d}.md"] = _cut(block, start, PAGE_BYTES)
    held["texts/large.txt"] = block * -(-large_bytes // len(block))
    return held


def write_reading_store(root: Path, seed: int, huge_bytes: int = HUGE_BYTES, pages: int = PAGES) -> int:
    """Write a store of one skill, a huge text and many pages of 4 KB; returns the huge one's characters."""
    rng = random.Random(f"{seed}/reading")
    block = _words(rng, _WORDS, 1_000_000)
    skill = root / "texts"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(
        "---\nname: texts\ndescription: Long and short texts — to be read.\n---\n\n# Texts\n"
    )
    for number in range(pages):
        text = _cut(block, rng.randrange(len(block) - 2 * PAGE_BYTES), PAGE_BYTES)
        (skill / f"page-{number:03d}.md").write_bytes(text)
    per_block = len(block.decode())
    characters = written = number = 0
    with open(skill / "huge.txt", "wb") as huge:
        while written < huge_bytes:
            line = f"\n\n{number:06d} — part\n\n".encode()
            huge.write(line)
            huge.write(block)
            written += len(line) + len(block)
            characters += len(line.decode()) + per_block
            number += 1
    return characters


def _words(rng: random.Random, words: list[str], size: int) -> bytes:
    lines: list[str] = []
    total = 0
    while total < size:
        line = " ".join(rng.choices(words, k=rng.randrange(3, 24)))
        lines.append(line)
        total += len(line) + 1
    return ("\n".join(lines) + "\n").encode()


def _cut(block: bytes, start: int, size: int) -> bytes:
    """Some `size` bytes of UTF-8 from about `start`, cut between characters."""
    while block[start] & 0xC0 == 0x80:
        start += 1
    end = min(start + size, len(block))
    while end > start and end < len(block) and block[end] & 0xC0 == 0x80:
        end -= 1
    return block[start:end]


def files_per_skill(share: float) -> int:
    """The quantile function of files per skill: `share` of all skills have fewer files than this."""
    if share < 0.55:
        return 1 if share < 0.12 else 2 if share < 0.32 else 3
    if share < 0.99:
        return 4 + int(41.99 * ((share - 0.55) / 0.44) ** 1.54)
    return int(46 * (383 / 46) ** ((share - 0.99) / 0.01))


class _Writer:
    def __init__(self, root: Path, seed: int, small_files: bool) -> None:
        self.seed = seed
        self.rng = random.Random(f"{seed}/store")
        self.root = str(root)
        self.small = small_files
        self.files = self.folders = self.size = 0
        size = 20_000 if small_files else _BLOCK_BYTES
        self.prose = _words(self.rng, _WORDS, size)
        self.code = _words(self.rng, _CODE, size)
        self.binary = self.rng.randbytes(size)
        names, weights = zip(*_SUFFIXES, strict=True)
        self.suffixes = self.rng.choices(names, weights, k=4096)

    def write(self, skills: int) -> Shape:
        # Stratified, so that a small corpus has the tail of a large one.
        counts = [files_per_skill((i + 0.5) / skills) for i in range(skills)]
        self.rng.shuffle(counts)
        libraries: list[str] = []
        dozens: list[str] = []
        used: list[str] = []
        places = self._places(skills, libraries)
        previous = ""
        for number, count in enumerate(counts):
            library = next(places)
            nested = previous and self.rng.random() < 0.05
            if number > 20 and self.rng.random() < 0.025:
                name = used[self.rng.randrange(number)]
            else:
                name = f"{self.rng.choice(_VERBS)}-{self.rng.choice(_NOUNS)}-{number:05d}"
            used.append(name)
            path = f"{previous if nested else library}/{name}"
            if not self._mkdir(path):
                path += f"-{number}"
                self._mkdir(path)
            if nested and dozens and dozens[-1] == previous:
                dozens.pop()
            self._skill(path, number, count)
            if count == 12 and not nested:
                dozens.append(path)
            if number % 43 == 7:
                self._mkdir(f"{library}/old-{name}")
                self._file(f"{library}/old-{name}/skill.md", self._text(self.prose, 900))
            previous = path
        return Shape(
            *(VERSION, self.seed, skills, self.small, self.files, self.folders, self.size),
            libraries=libraries,
            dozens=dozens[:_PICKED],
            huge_characters=0,
        )

    def _places(self, skills: int, libraries: list[str]) -> Iterator[str]:
        """The library for each skill: `owner/repo/skills`, as in a crawl of repositories.

        None lies below a hidden folder, for some peers skip those and would have less to do.
        """
        owner = ""
        while True:
            number = len(libraries)
            if not owner or self.rng.random() < 0.8:
                owner = f"owner-{number:05d}"
                self._mkdir(owner)
            path = f"{owner}/repo-{number:05d}"
            self._mkdir(path)
            kind = self.rng.random()
            steps = ["skills"] if kind < 0.7 else ["plugins", "core", "skills"] if kind < 0.9 else []
            for step in steps:
                path += f"/{step}"
                self._mkdir(path)
            libraries.append(path)
            for _ in range(min(skills, 1 + int(self.rng.expovariate(1 / (_SKILLS_PER_LIBRARY - 0.5))))):
                yield path

    def _mkdir(self, path: str) -> bool:
        try:
            os.mkdir(f"{self.root}/{path}")
        except FileExistsError:
            return False
        self.folders += 1
        return True

    def _file(self, path: str, content: bytes) -> None:
        handle = os.open(f"{self.root}/{path}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(handle, content)
        os.close(handle)
        self.files += 1
        self.size += len(content)

    def _text(self, block: bytes, size: int) -> bytes:
        if self.small:
            size = min(size, 60)
        return _cut(block, self.rng.randrange(len(block) - size - 8), size)

    def _size(self, typical: float, spread: float) -> int:
        return min(_LARGEST_FILE, int(self.rng.lognormvariate(math.log(typical), spread)))

    def _skill(self, path: str, number: int, count: int) -> None:
        rng = self.rng
        self._file(f"{path}/SKILL.md", self._skill_md(path.rsplit("/", 1)[1], number))
        folders = [path]
        for index in range(1, count):
            parent = folders[int(rng.random() * len(folders))]
            if rng.random() < _FOLDERS_PER_FILE:
                name = rng.choice(_FOLDERS)
                while not self._mkdir(f"{parent}/{name}"):
                    name = f"{rng.choice(_FOLDERS)}-{index}"
                parent = f"{parent}/{name}"
                if parent.count("/") - path.count("/") < 6:
                    folders.append(parent)
            suffix = self.suffixes[(number * 31 + index) % 4096]
            stem = (
                f"数据-参考-{index}" if index == 1 and number % 41 == 0 else f"{rng.choice(_NOUNS)}-{index}"
            )
            size = self._size(3450, 1.62)
            tag = f"# {number}.{index} — \n".encode()
            if suffix in (".png", ".pdf"):
                size = min(size, 60) if self.small else size
                start = rng.randrange(len(self.binary) - size)
                content = b"\x89\0" + tag + self.binary[start : start + size]
            elif suffix in (".md", ".txt", ".html", ".csv"):
                content = tag + self._text(self.prose, size)
            else:
                content = tag + self._text(self.code, size)
            self._file(f"{parent}/{stem}{suffix}", content)
            if number % 449 == 5 and index == 2:
                self._file(f"{parent}/{stem}{suffix.upper()}", content + b"\n")

    def _skill_md(self, folder: str, number: int) -> bytes:
        """A `SKILL.md` with the faults of real ones in their proportions."""
        rng = self.rng
        if number % 2047 == 1024:
            return b""
        size = min(177_000, self._size(4800, 0.80))
        name = folder
        fault = rng.random()
        if fault < 0.27:
            name = f"{rng.choice(_NOUNS)}-{folder}"
        elif fault < 0.346:
            name = f"{folder.title()} Skill"
        description = " ".join(rng.choices(_WORDS, k=rng.randrange(10, 90)))
        lines = [f"name: {name}", f"description: {description} ({number})"]
        if number % 3 == 0:
            lines.append("license: MIT")
        if number % 7 == 0:
            lines += ["metadata:", "  author: someone", '  version: "1.0"']
        if number % 11 == 0:
            lines.append("allowed-tools: Read Grep Bash(git:*)")
        kind = rng.random()
        if kind < 0.075:
            lines[1] = (
                f"description: Use it when: {description}" if kind < 0.05 else 'description: [unclosed, "list'
            )
        closing = "" if 0.075 < kind < 0.082 else "---\n"
        head = "---\n" + "\n".join(lines) + f"\n{closing}\n"
        if 0.1 < kind < 0.194:
            head = ""
        body = f"# {folder}\n\n".encode() + self._text(self.prose, max(40, size - len(head)))
        content = head.encode() + body
        if rng.random() < 0.008:
            content = content.replace(b"\n", b"\r\n")
        if number % 1841 == 3:
            content = b"\xef\xbb\xbf" + content
        if number % 9001 == 4:
            content += b"\xff\xfe\xe9"
        return content


class _Held(_Writer):
    """Keeps what it would write."""

    def __init__(self, seed: int, small_files: bool) -> None:
        super().__init__(Path(), seed, small_files)
        self.files_held: dict[str, bytes] = {}
        self._names: set[str] = set()
        self._left = 0

    def skill(self, path: str, number: int, files: int) -> None:
        self._left = files
        self._skill(path, number, files)

    def _mkdir(self, path: str) -> bool:
        if path in self._names:
            return False
        self._names.add(path)
        return True

    def _file(self, path: str, content: bytes) -> None:
        # Now and then there is one more, whose name differs in case alone.
        if self._left > 0:
            self.files_held[path] = content
        self._left -= 1
