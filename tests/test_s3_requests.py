"""What a store on S3 costs, counted on the server."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any

import pytest

from skillfs import NotFoundError, SkillFileSystem
from tests.conftest import skill_md
from tests.servers.s3 import Bucket, Requests

SKILLS = 150
FILES = 10
KEYS = SKILLS * FILES


def opened(bucket: Bucket, **options: Any) -> SkillFileSystem:
    return SkillFileSystem(
        f"{bucket.url}/library",
        **{"index": ":memory:", "target_options": bucket.server.target_options, **options},
    )


@pytest.fixture
def library(bucket: Bucket) -> Bucket:
    """1,500 keys: 150 skills with ten files each."""
    objects: dict[str, bytes | str] = {}
    for number in range(SKILLS):
        folder = f"library/team-{number % 7}/skill-{number:03}"
        objects[f"{folder}/SKILL.md"] = skill_md(f"skill-{number:03}", body="Text. " * (number * 10))
        for file in range(FILES - 1):
            objects[f"{folder}/references/part-{file}.md"] = f"# Part {file} of {number}\n" * 20
    bucket.seed(objects)
    return bucket


def no_head(requests: Requests) -> bool:
    return not any(request.operation.startswith("Head") for request in requests)


def test_a_first_opening_is_the_listing_and_the_heads(library: Bucket) -> None:
    with library.server.recorded() as requests:
        fs = opened(library)
        assert len(fs.skills()) == SKILLS
    assert requests.counts == {"ListObjectsV2": 2, "GetObject": SKILLS}
    assert {r.key.rpartition("/")[2] for r in requests.of("GetObject")} == {"SKILL.md"}


def test_a_second_opening_is_the_listing_alone(library: Bucket, tmp_path: Path) -> None:
    index = tmp_path / "index.sqlite"
    first = opened(library, index=index)
    uuid = first.entry("team-0/skill-000").uuid
    del first
    gc.collect()
    with library.server.recorded() as requests:
        again = opened(library, index=index)
        assert len(again.skills()) == SKILLS
        assert again.entry(uuid).path == "team-0/skill-000"
    assert requests.counts == {"ListObjectsV2": 2}


def test_what_changed_costs_the_heads_that_changed(library: Bucket) -> None:
    fs = opened(library)
    library.put("library/team-0/skill-000/references/part-0.md", "another\n")
    with library.server.recorded() as requests:
        fs.sync()
    assert requests.counts == {"ListObjectsV2": 2}
    library.put("library/team-0/skill-007/SKILL.md", skill_md("skill-007", "Something else."))
    with library.server.recorded() as requests:
        fs.sync()
    assert requests.counts == {"ListObjectsV2": 2, "GetObject": 1}
    assert fs.skill("name:skill-007").description == "Something else."


def test_looking_costs_nothing(library: Bucket) -> None:
    fs = opened(library)
    file = fs.entry("team-0/skill-000/references/part-0.md")
    folder = fs.entry("team-0/skill-000")
    with library.server.recorded() as requests:
        assert str(fs.skill_tree()).count("[skill ") == SKILLS
        assert fs.skill_tree(folder.uuid).total == FILES + 1
        assert fs.entry(file.uuid) == fs.entry(file.id) == file
        assert fs.find("team-0/skill-000/references")
        assert fs.info(file.path)["size"] == file.size
        assert fs.modified(file.path) == file.modified
        assert fs.ukey(file.path)
        assert not fs.exists("team-0/skill-000/nothing")
        assert len(fs.glob("team-0/*/SKILL.md")) == len(range(0, SKILLS, 7))
        for missing in ("team-0/skill-000/nothing.md", "nothing", "other-bucket/x", "s3://elsewhere/x"):
            with pytest.raises(NotFoundError):
                fs.get_content(missing)
        fs.problems()
        fs.status()
    assert requests == []


def test_a_reading_is_one_request(library: Bucket) -> None:
    fs = opened(library)
    path = "team-0/skill-000/references/part-0.md"
    for start, length in ((0, None), (3, 5), (10_000, 1), (0, 0)):
        with library.server.recorded() as requests:
            fs.get_content(path, start, length)
        assert requests.counts == {"GetObject": 1}, (start, length)
        assert all(request.if_match for request in requests)
    for read in (
        lambda: fs.cat_file(path),
        lambda: fs.cat_file(path, 5, 9),
        lambda: fs.open(path).read(),
        lambda: fs.get_lines(path, 2, 3),
        lambda: fs.get_content("team-0/skill-000/SKILL.md"),
    ):
        with library.server.recorded() as requests:
            read()
        assert requests.counts == {"GetObject": 1}
        assert requests[0].if_match


@pytest.mark.parametrize("alphabet", ["plain ascii text\n", "ein paar Wörter: 统一用“你”\n", "😀 emoji 🎉\n"])
def test_a_stretch_of_a_large_text_is_one_small_request(bucket: Bucket, alphabet: str) -> None:
    text = alphabet * (6_000_000 // len(alphabet.encode()))
    bucket.seed({"library/a/SKILL.md": skill_md("a"), "library/a/large.txt": text})
    fs = opened(bucket)
    with bucket.server.recorded() as requests:
        assert fs.get_content("a/large.txt", 0, 10).text == text[:10]
    assert requests.sent < len(text.encode()) + 100_000  # read once, to learn where characters lie
    rng = random.Random(1)
    widest = max(len(c.encode()) for c in alphabet)
    for _ in range(10):
        start, length = rng.randrange(len(text)), rng.choice((1, 1_000, 50_000))
        with bucket.server.recorded() as requests:
            assert fs.get_content("a/large.txt", start, length).text == text[start : start + length]
        assert requests.counts == {"GetObject": 1}
        assert requests.sent <= length * widest + 32_768
        assert requests[0].range


def test_nothing_ever_asks_for_a_head_alone(library: Bucket) -> None:
    with library.server.recorded() as requests:
        fs = opened(library)
        fs.skill_tree("team-0", details=True)
        fs.index_all()
        fs.find_content(str(fs.entry("team-1/skill-001/SKILL.md").hash))
        library.put("library/team-0/skill-000/SKILL.md", skill_md("skill-000", "Changed."))
        fs.get_content("team-0/skill-000/SKILL.md")
        fs.sync()
        fs.open("team-1/skill-001/SKILL.md").read(3)
        fs.cat_ranges(["team-1/skill-001/SKILL.md"] * 3, [0, 1, 2], [1, 2, 3])
    assert no_head(requests)
