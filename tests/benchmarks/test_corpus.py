"""The corpus of the benchmarks has the shape it declares, and is the same for the same seed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from statistics import median, quantiles

import pytest

from tests.benchmarks import corpus

SKILLS = 400


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, corpus.Shape]:
    root = tmp_path_factory.mktemp("corpus")
    return root, corpus.write_store(root, SKILLS, seed=20)


def _files(root: Path) -> list[Path]:
    return sorted(Path(folder) / name for folder, _, names in os.walk(root) for name in names)


def _digest(root: Path) -> str:
    total = hashlib.sha256()
    for path in _files(root):
        total.update(os.fsencode(path.relative_to(root)) + b"\0" + path.read_bytes())
    return total.hexdigest()


def test_counts_are_those_on_disk(made: tuple[Path, corpus.Shape]) -> None:
    root, shape = made
    files = _files(root)
    assert shape.files == len(files)
    assert shape.size == sum(path.stat().st_size for path in files)
    assert shape.folders == sum(len(folders) for _, folders, _ in os.walk(root))
    assert sum(path.name == "SKILL.md" for path in files) == shape.skills == SKILLS


def test_proportions_are_those_of_the_full_corpus(made: tuple[Path, corpus.Shape]) -> None:
    _, shape = made
    assert shape.files / SKILLS == pytest.approx(116_689 / 10_000, rel=0.15)
    assert shape.folders / SKILLS == pytest.approx(65_837 / 10_000, rel=0.15)
    assert shape.size / shape.files == pytest.approx(1.44e9 / 116_689, rel=0.25)


def test_files_per_skill_have_the_quantiles_of_real_skills() -> None:
    counts = [corpus.files_per_skill((i + 0.5) / 10_000) for i in range(10_000)]
    assert median(counts) == 3
    assert quantiles(counts, n=100)[98] == pytest.approx(45, abs=1)
    assert max(counts) <= 383


def test_skill_files_have_the_sizes_and_faults_of_real_ones(made: tuple[Path, corpus.Shape]) -> None:
    root, _ = made
    texts = [path.read_bytes() for path in _files(root) if path.name == "SKILL.md"]
    assert median(map(len, texts)) == pytest.approx(4800, rel=0.2)
    without = sum(not text.lstrip(b"\xef\xbb\xbf").startswith(b"---") for text in texts)
    assert 0.05 <= without / SKILLS <= 0.15
    assert sum(text.isascii() for text in texts) / SKILLS < 0.05


def test_what_peers_and_trees_are_told_is_there(made: tuple[Path, corpus.Shape]) -> None:
    root, shape = made
    skills = {path.parent for path in _files(root) if path.name == "SKILL.md"}
    below = {skill for library in shape.libraries for skill in (root / library).iterdir()}
    nested = {skill for skill in skills if skills & set(skill.parents)}
    assert skills - below == nested
    assert nested
    assert shape.dozens
    for dozen in shape.dozens:
        assert len(_files(root / dozen)) == 12
        assert root / dozen in skills


def test_the_same_seed_gives_the_same_bytes(made: tuple[Path, corpus.Shape], tmp_path: Path) -> None:
    root, shape = made
    assert corpus.write_store(tmp_path, SKILLS, seed=20) == shape
    assert _digest(tmp_path) == _digest(root)


def test_another_seed_gives_others(made: tuple[Path, corpus.Shape], tmp_path: Path) -> None:
    root, _ = made
    corpus.write_store(tmp_path, SKILLS, seed=21)
    assert _digest(tmp_path) != _digest(root)


def test_the_long_text_has_the_characters_it_declares(tmp_path: Path) -> None:
    characters = corpus.write_reading_store(tmp_path / "reading", 20, huge_bytes=2_500_000, pages=3)
    huge = (tmp_path / "reading" / "texts" / "huge.txt").read_bytes()
    assert len(huge) >= 2_500_000
    assert len(huge.decode()) == characters < len(huge)
    pages = sorted((tmp_path / "reading" / "texts").glob("page-*.md"))
    assert len(pages) == 3
    for page in pages:
        assert len(page.read_text().encode()) == pytest.approx(4096, abs=4)


def test_a_finished_corpus_is_used_again_and_another_replaces_it(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    first = corpus.ensure(folder, 30, small_files=True, reading=False)
    witness = first.state / "witness"
    witness.touch()
    assert corpus.ensure(folder, 30, small_files=True, reading=False) == first
    assert witness.exists()
    assert corpus.ensure(folder, 31, small_files=True, reading=False).shape.skills == 31
    assert not witness.exists()


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(SystemExit):
        corpus.ensure(tmp_path, 30, small_files=True, reading=False)
    assert (tmp_path / "mine.txt").exists()
