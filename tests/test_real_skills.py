"""719 skills as people publish them: nothing is lost, everything reads back, the faults are counted."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from skillfs import SkillFileSystem
from skillfs.core.lock import parse_lock, render_lock
from skillfs.core.model import Kind
from skillfs.errors import NotTextError
from tests.test_tree import listed, nodes

PACKAGE = "ecc-universal@2.0.0"
FILES = 2_279
SKILLS = 719


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked package; fetched once with npm and kept in the user's cache folder."""
    archive = user_cache_path("skillfs-tests", appauthor=False) / f"{PACKAGE}.tgz"
    if not archive.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip(f"npm is needed to fetch {PACKAGE}")
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            try:
                done = subprocess.run(
                    [npm, "pack", PACKAGE],
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    timeout=90,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                pytest.skip(f"the registry did not give {PACKAGE} in time")
            packed = list(Path(folder).glob("*.tgz"))
            if done.returncode != 0 or len(packed) != 1:
                pytest.skip(f"{PACKAGE} cannot be fetched: {done.stderr.strip().splitlines()[-1:]}")
            os.replace(packed[0], archive)
    folder = tmp_path_factory.mktemp("real")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def fs(real: Path, tmp_path_factory: pytest.TempPathFactory) -> SkillFileSystem:
    index = tmp_path_factory.mktemp("index") / "index.sqlite"
    return SkillFileSystem(real, index=index, skip_instance_cache=True, max_age=3600)


def skill_folders(real: Path) -> list[str]:
    return sorted(
        (str(p.parent.relative_to(real)) for p in real.rglob("SKILL.md")), key=lambda path: path.split("/")
    )


def visible_files(real: Path) -> list[str]:
    folders = skill_folders(real)
    found = (str(p.relative_to(real)) for p in real.rglob("*") if p.is_file())
    return sorted(f for f in found if any(f.startswith(folder + "/") for folder in folders))


def test_the_package_is_what_it_was(real: Path) -> None:
    assert sum(p.is_file() for p in real.rglob("*")) == FILES
    assert len(skill_folders(real)) == SKILLS


def test_every_skill_is_found_and_none_lost(real: Path, fs: SkillFileSystem) -> None:
    skills = fs.skills()
    assert [s.path for s in skills] == skill_folders(real)
    assert len({s.uuid for s in skills}) == len({s.id for s in skills}) == SKILLS
    for skill in skills:
        assert fs.skill(skill.uuid) == skill
    by_name = Counter(s.name for s in skills)
    assert sum(s.shadowed_by is not None for s in skills) == SKILLS - len(by_name)
    assert len(by_name) == 248
    assert fs.to_prompt().count("<skill>") == len(by_name)


def test_faults_are_counted(fs: SkillFileSystem) -> None:
    found = Counter(p.code for p in fs.problems())
    assert found == {
        "frontmatter-missing": 5,
        "frontmatter-yaml": 17,
        "name-differs-from-folder": 10,
        "shadowed": 471,
        "unknown-key": 722,
        "wrong-type": 23,
    }
    assert sum(len(s.problems) for s in fs.skills()) == sum(
        p.skill_folder_uuid is not None for p in fs.problems()
    )


def test_every_file_is_listed_once(real: Path, fs: SkillFileSystem) -> None:
    tree = fs.skill_tree("/", limit=None, hidden=True)
    files = [n.path for n in nodes(tree) if n.kind == Kind.FILE]
    assert sorted(files) == visible_files(real)
    assert fs.status()["files"] == len(files)
    assert len(str(tree).splitlines()) == tree.total + 1
    pages, cursor = [], None
    while True:
        page = fs.skill_tree("/", limit=333, hidden=True, cursor=cursor)
        pages += listed(page)
        cursor = page.cursor
        if cursor is None:
            break
    assert pages == listed(tree)


def test_every_text_pages_back_to_its_bytes(real: Path, fs: SkillFileSystem) -> None:
    dice = random.Random(20_26)
    texts = 0
    for path in visible_files(real):
        data = (real / path).read_bytes()
        assert fs.cat_file(path) == data
        try:
            page = fs.get_content(path, length=dice.choice([1, 100, 5_000]))
        except NotTextError:
            with pytest.raises(UnicodeDecodeError):
                data.decode()
            continue
        texts += 1
        pieces = [page.text]
        while page.next_start is not None:
            page = fs.get_content(
                path, page.next_start, dice.choice([97, 1_000, 4_096, 20_000]), expect_hash=page.hash
            )
            pieces.append(page.text)
        assert "".join(pieces).encode() == data
    assert texts == 892


def test_nothing_changes_by_looking_again(real: Path, fs: SkillFileSystem) -> None:
    before = fs.revision
    fs.sync()
    fs.index_all()
    fs.sync()
    again = SkillFileSystem(real, index=fs._engine.database.path, skip_instance_cache=True)
    assert again.revision == fs.revision == before
    assert again.skills() == fs.skills()


def test_all_are_as_they_were_locked(fs: SkillFileSystem) -> None:
    lock = parse_lock(render_lock(fs.lock()))
    assert len(lock.skills) == SKILLS
    found = fs.verify(lock)
    assert found.ok
    assert found.counts["files.ok"] == sum(len(skill.files) for skill in lock.skills)
