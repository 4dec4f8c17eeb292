"""Listings that are handed out before they are asked for: the same, once, and not for long."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from skillfs import SkillFileSystem
from skillfs.fuse import foreseen, view
from skillfs.fuse.foreseen import SECONDS, Foreseen
from skillfs.fuse.view import KernelView, Listing, NodeKind
from tests.conftest import skill_md, write

Opener = Callable[..., SkillFileSystem]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_listing_is_handed_out_once() -> None:
    kept: Foreseen[str] = Foreseen(Clock())
    kept.add(kept.moment(), {"/a/b": "b", "/a/c": "c"})
    assert [kept.take(path) for path in ("/a/b", "/a/b", "/a/c", "/a")] == ["b", None, "c", None]


def test_a_listing_is_not_kept_longer_than_the_kernel_keeps_what_it_was_told() -> None:
    clock = Clock()
    kept: Foreseen[str] = Foreseen(clock)
    for later, found in ((SECONDS - 0.001, "b"), (SECONDS + 0.001, None)):
        kept.add(kept.moment(), {"/a/b": "b"})
        clock.now += later
        assert kept.take("/a/b") == found


def test_what_nobody_asks_for_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreseen, "MOST", 10)
    kept: Foreseen[int] = Foreseen(Clock())
    for number in range(100):
        kept.add(kept.moment(), {f"/{number}/a": 1, f"/{number}/b": 2})
    found = [kept.take(f"/{number}/{name}") for number in range(100) for name in "ab"]
    assert 0 < sum(one is not None for one in found) <= 10
    kept.add(kept.moment(), {f"/{number}": 3 for number in range(11)})
    assert kept.take("/5") is None


def walk(seen: KernelView, path: str = "/") -> dict[str, Listing]:
    found = {path: seen.listing(path)}
    for name, node in found[path].nodes:
        if node.kind == NodeKind.FOLDER:
            found |= walk(seen, f"{'' if path == '/' else path}/{name}")
    return found


def view_of(fs: SkillFileSystem) -> KernelView:
    return KernelView([each.mount for each in fs._seen_by(None)], lambda: fs._at("").row)


@pytest.fixture
def store(root: Path) -> Path:
    """Skills, one nested below folders of another, with links and what is left out."""
    write(
        root,
        {
            "tools/pdf/SKILL.md": skill_md("pdf"),
            "tools/pdf/refs/deep/a.md": "a",
            "tools/pdf/refs/größe/b.md": "b",
            "tools/pdf/refs/inner/SKILL.md": skill_md("inner"),
            "tools/pdf/refs/inner/scripts/run.py": "1",
            "tools/pdf/refs-2/c.md": "c",
            "tools/pdf/.git/config": "left out",
            "web/SKILL.md": skill_md("web"),
        },
    )
    (root / "tools/pdf/empty").mkdir()
    (root / "tools/pdf/link").symlink_to("refs/deep")
    (root / "web/other").symlink_to("../tools/pdf/refs")
    return root


@pytest.mark.parametrize("base_paths", [None, ["tools/pdf/refs/inner"]])
def test_what_is_foreseen_is_what_is_found(
    store: Path, open_fs: Opener, monkeypatch: pytest.MonkeyPatch, base_paths: list[str] | None
) -> None:
    fs = open_fs(max_age=600, base_paths=base_paths)
    found = walk(view_of(fs))
    assert "/tools/pdf/refs/inner/scripts" in found
    monkeypatch.setattr(view, "_MOST_AT_ONCE", 0)
    assert found == walk(view_of(fs))


def test_only_the_folders_of_a_skill_that_is_not_large_are_foreseen(
    store: Path, open_fs: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = view_of(open_fs(max_age=600))
    taken: list[str] = []
    take = seen._foreseen.take

    def noted(path: str) -> Listing | None:
        if (listing := take(path)) is not None:
            taken.append(path)
        return listing

    monkeypatch.setattr(seen._foreseen, "take", noted)
    # However slow this machine is.
    monkeypatch.setattr(foreseen, "SECONDS", 60.0)
    walk(seen)
    below = ["empty", "refs", "refs/deep", "refs/größe", "refs/inner", "refs/inner/scripts", "refs-2"]
    assert sorted(taken) == sorted(f"/tools/pdf/{path}" for path in below)
    taken.clear()
    monkeypatch.setattr(view, "_MOST_AT_ONCE", 12)  # pdf holds more
    walk(seen)
    assert taken == ["/tools/pdf/refs/inner/scripts"]


def test_a_skill_at_the_root(root: Path, open_fs: Opener) -> None:
    write(root, {"SKILL.md": skill_md("store"), "refs/deep/a.md": "a"})
    seen = view_of(open_fs(max_age=600))
    seen.listing("/")
    assert sorted(seen._foreseen._kept) == ["/refs", "/refs/deep"]


def test_a_folder_that_has_changed_is_listed_as_it_is_now(store: Path, open_fs: Opener) -> None:
    fs = open_fs(max_age=SECONDS)
    seen = view_of(fs)
    seen.listing("/tools/pdf")
    write(store, {"tools/pdf/refs/new.md": "new"})
    time.sleep(2 * SECONDS)
    deadline = time.monotonic() + 10
    while "new.md" not in [name for name, _ in seen.listing("/tools/pdf/refs").nodes]:
        assert time.monotonic() < deadline
        time.sleep(SECONDS)


def test_nothing_is_foreseen_where_every_listing_is_to_be_checked(store: Path, open_fs: Opener) -> None:
    seen = view_of(open_fs(max_age=0))
    seen.listing("/tools/pdf")
    write(store, {"tools/pdf/refs/new.md": "new"})
    assert "new.md" in [name for name, _ in seen.listing("/tools/pdf/refs").nodes]
