"""Tests of hashes, and of what happens behind a filesystem's back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from skillfs.core.model import Change
from skillfs.errors import SkillFSError
from skillfs.testing.comparing import (
    Both,
    Seed,
    digests,
    drawing,
    everything,
    opened,
    plain_entry,
    whole,
)
from skillfs.testing.specimen import SMALL, SPECIMEN, skill_md

__all__ = ["ChangingTests"]


class ChangingTests:
    """What is known once it was read, and what is noticed when."""

    hashes_at_scan: ClassVar[bool]
    has_empty_folders: ClassVar[bool]

    # -- contents ------------------------------------------------------------------------------------------

    def test_files_are_found_by_their_hashes(self, indexed: Both) -> None:
        """By MD5, SHA-256 and XXH3, each with every file that has the content."""
        visible = set(indexed.answers(lambda fs: fs.find("")))
        holders: dict[bytes, list[str]] = {}
        for path in sorted(visible, key=lambda path: path.split("/")):
            holders.setdefault(SPECIMEN[path], []).append(path)
        assert max(map(len, holders.values())) > 2
        for content, paths in holders.items():
            for digest in digests(content):
                found = indexed.answers(
                    lambda fs, digest=digest: [plain_entry(e) for e in fs.find_content(digest)]
                )
                assert [entry.path for entry in found] == paths
                assert indexed.fs.entry(digest).path == paths[0]
        for digest in digests(SPECIMEN["README.md"]):
            assert indexed.code(lambda fs, digest=digest: fs.find_content(digest)) == "not_found"
        for digest in digests(b"same\n"):
            indexed.same(
                lambda fs, digest=digest: [
                    plain_entry(e) for e in fs.find_content(digest, base_paths=["suite"])
                ]
            )

    def test_everything_is_known_once_it_is_indexed(self, indexed: Both) -> None:
        """Hashes and numbers of characters are those of the local files."""
        indexed.answers(
            lambda fs: [dataclasses.replace(fs.entry(f"/{p}"), modified=None) for p in everything(fs)]
        )
        indexed.answers(lambda fs: [fs.checksum(path) for path in fs.find("")])
        for info in indexed.fs.find("", detail=True).values():
            assert info["hash"] == digests(SPECIMEN[info["name"]])[2]

    def test_hashes_without_reading(self, seed: Seed) -> None:
        """Whether hashes are known at once is as the store says; they are once everything is indexed."""
        fs = opened(seed(SMALL))
        expected = digests(SMALL["a/one.md"])[2]
        assert fs.entry("a/one.md").hash == (expected if self.hashes_at_scan else None)
        fs.index_all()
        assert fs.entry("a/one.md").hash == expected

    # -- changes -------------------------------------------------------------------------------------------

    def test_changes_are_told_after_a_sync(
        self, small: Both, change: Callable[[str, bytes], object], remove: Callable[[str], object]
    ) -> None:
        """Files that came, changed and went, inside and outside of skills."""
        before = small.fs.revision, small.local.revision
        for path, content in {
            "a/one.md": b"other\n",
            "a/two.md": b"owt\n" * 2_000,
            "a/new/five.md": b"five\n",
            "c/SKILL.md": skill_md("c").encode(),
            "loose/six.md": b"six\n",
        }.items():
            change(path, content)
            small.write(path, content)
        remove("b/three.md")
        (small.folder / "b/three.md").unlink()
        small.fs.sync()
        small.local.sync()
        ours, theirs = small.fs.changes(before[0]), small.local.changes(before[1])
        assert not ours.reset
        assert self._changes(ours.items) == self._changes(theirs.items)
        assert {(item.kind, item.path) for item in ours.items} >= {
            ("modified", "a/one.md"),
            ("modified", "a/two.md"),
            ("added", "a/new/five.md"),
            ("added", "c/SKILL.md"),
            ("removed", "b/three.md"),
        }
        assert small.fs.revision > before[0]
        assert small.fs.changes(small.fs.revision).items == ()
        for bases in (["a"], ["b"], ["c"], []):
            assert self._changes(small.fs.changes(before[0], base_paths=bases).items) == self._changes(
                small.local.changes(before[1], base_paths=bases).items
            )
        small.answers(lambda fs: [plain_entry(fs.entry(path)) for path in everything(fs)])
        small.answers(lambda fs: [whole(fs.get_content(path)) for path in fs.find("")])

    def _changes(self, items: Sequence[Change]) -> list[Change]:
        if not self.hashes_at_scan:
            items = [dataclasses.replace(item, hash=None, old_hash=None) for item in items]
        return sorted(items, key=lambda item: (item.path, item.kind))

    def test_sync_without_a_change_tells_none(self, small: Both) -> None:
        """Looking again is no change."""
        small.fs.index_all()
        before = small.fs.revision
        small.fs.sync()
        assert small.fs.revision == before

    def test_content_is_true_at_once(self, small: Both, change: Callable[[str, bytes], object]) -> None:
        """A file that is indexed is read as it is now, without a sync; of the same size too."""
        for content in (b"one two three\n", b"one two tree!\n", "дві\n".encode(), b""):
            small.fs.get_content("a/one.md")
            change("a/one.md", content)
            small.write("a/one.md", content)
            small.answers(lambda fs: whole(fs.get_content("a/one.md")))
            assert small.fs.cat_file("a/one.md") == content
            assert small.fs.cat_file("a/one.md", 1, 4) == content[1:4]

    def test_pages_of_two_versions_are_not_mixed(
        self, small: Both, change: Callable[[str, bytes], object]
    ) -> None:
        """Who expects a version is told that it is gone."""
        first = small.fs.get_content("a/two.md", 0, 100)
        assert small.fs.get_content("a/two.md", 100, 100, expect_hash=first.hash).text
        change("a/two.md", b"TWO\n" * 2_000)
        for _ in range(2):
            with pytest.raises(SkillFSError) as caught:
                small.fs.get_content("a/two.md", 100, 100, expect_hash=first.hash)
            assert caught.value.code == "changed"
        assert small.fs.get_content("a/two.md", 100, 4).text == "TWO\n"

    def test_removed_file_is_not_found_at_once(self, small: Both, remove: Callable[[str], object]) -> None:
        """Reading what went away is no error of another kind, before a sync and after it."""
        remove("a/one.md")
        (small.folder / "a/one.md").unlink()
        for _ in range(2):
            assert small.code(lambda fs: fs.get_content("a/one.md")) == "not_found"
            assert small.code(lambda fs: fs.cat_file("a/one.md")) == "not_found"
            small.fs.sync()
        assert small.code(lambda fs: fs.entry("a/one.md")) == "not_found"

    def test_skills_come_change_and_go(
        self, small: Both, change: Callable[[str, bytes], object], remove: Callable[[str], object]
    ) -> None:
        """A `SKILL.md` decides what is visible, and is read anew when it changes."""
        for path, content in {
            "loose/SKILL.md": skill_md("loose").encode(),
            "a/SKILL.md": skill_md("a", "Something else.").encode(),
        }.items():
            change(path, content)
            small.write(path, content)
        remove("b/SKILL.md")
        (small.folder / "b/SKILL.md").unlink()
        small.fs.sync()
        small.local.sync()
        skills = small.answers(lambda fs: fs.skills())
        assert [(skill.name, skill.description) for skill in skills] == [
            ("a", "Something else."),
            ("loose", "Something to do."),
        ]
        assert small.answers(lambda fs: fs.get_content("loose/four.md").text) == "four\n"
        assert small.code(lambda fs: fs.get_content("b/three.md")) == "not_found"
        small.answers(lambda fs: drawing(fs.skill_tree("/")))

    def test_file_that_comes_back_is_the_same_entry(
        self, small: Both, change: Callable[[str, bytes], object], remove: Callable[[str], object]
    ) -> None:
        """A path keeps its identity."""
        uuid = small.fs.entry("a/one.md").uuid
        remove("a/one.md")
        small.fs.sync()
        change("a/one.md", b"back\n")
        small.fs.sync()
        assert small.fs.entry("a/one.md").uuid == uuid
        assert small.fs.get_content(uuid).text == "back\n"

    def test_folder_without_files(self, small: Both, remove: Callable[[str], object]) -> None:
        """It stays in a store that has folders, and is gone where there are only files."""
        remove("a/sub/only.md")
        small.fs.sync()
        assert small.fs.exists("a/sub") is self.has_empty_folders
        assert small.fs.isdir("a")

    def test_opened_again_everything_is_the_same(self, seed: Seed, tmp_path: Path) -> None:
        """An index in a file is taken up where it was left."""
        options = {**seed(SMALL), "index": tmp_path / "index.sqlite"}
        first = opened(options)
        first.get_content("a/one.md")
        told = [plain_entry(first.entry(path)) for path in everything(first)]
        revision = first.revision
        del first
        again = opened(options)
        assert [plain_entry(again.entry(path)) for path in everything(again)] == told
        assert again.revision == revision
