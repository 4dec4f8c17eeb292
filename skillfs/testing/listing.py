"""Tests of listings, trees, skills and base paths."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest

from skillfs.errors import ReadOnlyError
from skillfs.testing.comparing import (
    Both,
    Work,
    drawing,
    pages_of,
    plain_data,
    plain_entry,
    plain_info,
    whole,
)
from skillfs.testing.specimen import INVISIBLE, SPECIMEN

__all__ = ["ListingTests"]


class ListingTests:
    """What is listed, in which order, and to whom."""

    # -- listings as fsspec makes them ---------------------------------------------------------------------

    @pytest.mark.parametrize(
        "path", ["", "pdf", "pdf/texts", "suite", "office", "names", "pdf/SKILL.md", "none"]
    )
    def test_listings(self, both: Both, path: str) -> None:
        """What `ls`, `find`, `walk`, `info` and `du` say, details too."""
        both.same(lambda fs: [plain_info(info) for info in fs.ls(path)])
        both.same(lambda fs: fs.ls(path, detail=False))
        both.same(lambda fs: plain_info(fs.info(path)))
        for depth in (None, 1, 2):
            found = both.same(
                lambda fs, depth=depth: [
                    (name, plain_info(info))
                    for name, info in fs.find(path, depth, withdirs=True, detail=True).items()
                ]
            )
            assert found == sorted(found, key=lambda item: item[0].split("/"))
            both.same(lambda fs, depth=depth: fs.find(path, depth))
            both.same(lambda fs, depth=depth: list(fs.walk(path, depth)))
        both.same(lambda fs: list(fs.walk(path, topdown=False)))
        both.same(lambda fs: [fs.du(path), fs.exists(path), fs.isdir(path), fs.isfile(path)])

    @pytest.mark.parametrize(
        "pattern",
        [
            *("*", "*/SKILL.md", "**/SKILL.md", "suite/**", "names/*.md", "names/[x].md", "names/[[]x].md"),
            *("pdf/*/*.txt", "pdf/texts/utf-*", "p?f", "{pdf,suite}/SKILL.md", "none/*", "README*", "pdf/.*"),
        ],
    )
    def test_globs_as_fsspec_has_them(self, both: Both, pattern: str) -> None:
        """Patterns find the same."""
        both.same(lambda fs: fs.glob(pattern))

    def test_times_are_aware(self, both: Both) -> None:
        """Times are in UTC, and the same wherever they are said."""
        for path in ("pdf/SKILL.md", "pdf/texts/big.md"):
            modified = both.fs.entry(path).modified
            assert modified.tzinfo is UTC
            assert both.fs.modified(path) == modified
            assert both.fs.info(path)["mtime"] == pytest.approx(modified.timestamp(), abs=1e-3)

    @pytest.mark.parametrize(
        "work",
        [
            lambda fs: fs.rm("pdf/SKILL.md"),
            lambda fs: fs.pipe_file("pdf/new.md", b"x"),
            lambda fs: fs.open("pdf/new.md", "wb"),
            lambda fs: fs.mv("pdf/SKILL.md", "pdf/other.md"),
            lambda fs: fs.mkdir("new"),
            lambda fs: fs.touch("pdf/SKILL.md"),
        ],
    )
    def test_writing_is_refused(self, both: Both, work: Work) -> None:
        """Unless it was asked for, a filesystem changes nothing."""
        assert both.code(work) == ReadOnlyError.code

    # -- trees ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "request_",
        [
            {},
            {"ref": "/"},
            *({"ref": ref} for ref in ("pdf", "suite", "name:word", "office", "names", "pdf/texts", "8004/")),
            *({"ref": "/", "depth": depth} for depth in (0, 1, 2, 3, -1)),
            {"depth": 1},
            {"ref": "/", "files": False},
            {"ref": "pdf", "hidden": True},
            {"ref": "/", "hidden": True, "limit": None},
            *(
                {"ref": "/", "include": pattern}
                for pattern in ("*.md", "**/texts/*", "suite/**", "none", "[")
            ),
            {"include": ["*.md", "*.txt"], "exclude": "big*"},
            {"ref": "/", "exclude": ["pdf", "*.md"]},
            {"ref": "/", "include": "{SKILL,guide}.md"},
            {"ref": "pdf", "details": True},
            {"ref": "names", "details": True, "limit": 5},
            {"ref": "pdf/SKILL.md"},
            {"ref": "none"},
            {"ref": "/", "limit": 0},
        ],
        ids=str,
    )
    def test_trees(self, both: Both, request_: dict[str, Any]) -> None:
        """As a drawing and as nested data."""
        both.same(lambda fs: drawing(fs.skill_tree(**request_)))
        both.same(lambda fs: plain_data(fs.skill_tree(**request_).to_dict()))

    @pytest.mark.parametrize("limit", [1, 7, 50])
    def test_pages_of_a_tree(self, both: Both, limit: int) -> None:
        """Pages hold the same entries in the same order."""
        both.answers(
            lambda fs: [plain_data(page) for page in pages_of(fs, "/" if limit > 1 else "suite", limit)]
        )

    # -- skills --------------------------------------------------------------------------------------------

    def test_skills(self, both: Both) -> None:
        """Front matter, good and broken, is read alike, and every skill is there."""
        skills = both.answers(lambda fs: fs.skills())
        assert [skill.location for skill in skills] == sorted(
            (path for path in SPECIMEN if path.endswith("/SKILL.md") and path not in INVISIBLE),
            key=lambda path: path.split("/"),
        )
        for skill in skills:
            for ref in (skill.name, skill.path, skill.uuid, skill.location):
                both.same(lambda fs, ref=ref: fs.skill(ref))

    def test_prompt(self, both: Both) -> None:
        """The block for a model is the same."""
        assert "<available_skills>" in both.answers(lambda fs: fs.to_prompt())

    def test_problems(self, both: Both) -> None:
        """Everything that is wrong is said in the same words."""
        problems = both.answers(lambda fs: fs.problems())
        assert {problem.code for problem in problems} >= {
            *("frontmatter-missing", "frontmatter-unclosed", "frontmatter-yaml", "frontmatter-duplicate-key"),
            *("name-invalid", "name-differs-from-folder", "description-missing", "description-too-long"),
            *("unknown-key", "wrong-type", "not-text", "too-large", "shadowed", "case-collision"),
            *("secret-file", "invisible-characters", "wrong-case-skill-md"),
        }

    def test_counts(self, both: Both) -> None:
        """Skills, folders, files and bytes are counted alike."""
        both.answers(
            lambda fs: {k: v for k, v in fs.status().items() if isinstance(v, int) and k != "revision"}
        )

    # -- bases ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "bases",
        [
            *([], ["/"], ["pdf"], ["suite"], ["suite/inner"], ["office", "8004/"], ["name:word"]),
            ["pdf", "pdf"],
            *([None], ["pdf/SKILL.md"], ["loose"], ["none"], [".."], "pdf", ["README.md"]),
        ],
        ids=str,
    )
    def test_bases(self, both: Both, bases: Any) -> None:
        """They confine everything, and are refused alike."""
        refs = (
            "/",
            "pdf",
            "pdf/SKILL.md",
            "suite/own.md",
            "suite/inner/deeper/still/data.md",
            "office",
            "name:word",
        )
        for ref in refs:
            both.same(lambda fs, ref=ref: plain_entry(fs.entry(ref, base_paths=bases)))
            both.same(lambda fs, ref=ref: whole(fs.get_content(ref, base_paths=bases)))
            both.same(lambda fs, ref=ref: drawing(fs.skill_tree(ref, base_paths=bases)))
        both.same(lambda fs: fs.skills(base_paths=bases))
        both.same(lambda fs: fs.problems(base_paths=bases))
        both.same(lambda fs: fs.to_prompt(base_paths=bases))
        both.same(lambda fs: fs.skill("word", base_paths=bases))
        both.same(lambda fs: drawing(fs.skill_tree(base_paths=bases)))
