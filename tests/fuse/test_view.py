"""What the kernel is shown, without a kernel: nodes against the listings of the filesystem and the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillfs import SkillFileSystem
from skillfs.errors import IsFileError, NotFoundError, SkillFSError, StoreUnavailableError
from skillfs.fuse.view import KernelView, Node, NodeKind
from tests.conftest import skill_md, write

Opener = Callable[..., SkillFileSystem]


def view_of(fs: SkillFileSystem) -> KernelView:
    return KernelView([view.mount for view in fs._seen_by(None)], lambda: fs._at("").row)


def walk(view: KernelView, path: str = "/") -> Iterator[tuple[str, Node]]:
    for name, node in view.listing(path).nodes:
        at = f"{'' if path == '/' else path}/{name}"
        yield at, node
        if node.kind == NodeKind.FOLDER:
            yield from walk(view, at)


@pytest.fixture
def store(root: Path) -> Path:
    """Two skills, one nested, links of every kind, and what is out of sight."""
    write(
        root,
        {
            "pdf/SKILL.md": skill_md("pdf"),
            "pdf/refs/größe.md": "größe\n",
            "pdf/.hidden": "x",
            "pdf/run.sh": "#!/bin/sh\n",
            "pdf/deep/inner/SKILL.md": skill_md("inner"),
            "tools/web/SKILL.md": skill_md("web"),
            "tools/loose.txt": "out of sight",
            "nothing/loose.txt": "out of sight",
            "pdf/.env": "SECRET=1",
        },
    )
    (root / "pdf/run.sh").chmod(0o755)
    (root / "pdf/link.md").symlink_to("refs/größe.md")
    (root / "pdf/refs/up").symlink_to("../deep")
    (root / "tools/web/other").symlink_to("../../pdf/refs")
    (root / "pdf/escaping").symlink_to("/etc/hostname")
    (root / "pdf/dangling").symlink_to("no-such")
    (root / "pdf/loose").symlink_to("../tools/loose.txt")
    return root


def test_what_is_walked_is_what_find_tells(store: Path, open_fs: Opener) -> None:
    fs = open_fs()
    found = dict(walk(view_of(fs)))
    told = fs.find("", withdirs=True, detail=True)
    assert sorted(found) == sorted("/" + path for path in told)
    for path, info in told.items():
        node = found["/" + path]
        assert (node.kind == NodeKind.LINK) == info["islink"]
        if not info["islink"]:
            kind = NodeKind.FILE if info["type"] == "file" else NodeKind.FOLDER
            assert (node.number, node.kind, node.size) == (info["id"], kind, info["size"])


def test_a_node_is_told_alike_alone_and_in_a_listing(store: Path, open_fs: Opener) -> None:
    view = view_of(open_fs())
    for path, node in walk(view):
        assert view.node(path) == node
    listing = view.listing("/pdf/refs")
    assert (listing.own, listing.above) == (view.node("/pdf/refs"), view.node("/pdf"))
    top = view.listing("/")
    assert top.own == top.above == view.node("/")


def test_attributes_are_those_of_the_disk(store: Path, open_fs: Opener) -> None:
    for path, node in walk(view_of(open_fs())):
        there = os.lstat(store / path[1:])
        assert (node.modified, node.changed) == (there.st_mtime_ns, there.st_ctime_ns)
        if node.kind == NodeKind.FILE:
            assert (node.size, node.executable) == (there.st_size, bool(there.st_mode & 0o100))


def test_numbers_are_stable_and_unlike(store: Path, open_fs: Opener) -> None:
    first, again = (dict(walk(view_of(open_fs()))) for _ in range(2))
    numbers = [node.number for node in first.values()]
    assert len(set(numbers)) == len(numbers)
    assert {path: node.number for path, node in again.items()} == dict(zip(first, numbers, strict=True))
    assert all(0 < number < 2**53 for number in numbers)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/pdf/link.md", "refs/größe.md"),
        ("/pdf/refs/up", "../deep"),
        ("/tools/web/other", "../../pdf/refs"),
    ],
)
def test_links_lead_where_they_lead(store: Path, open_fs: Opener, path: str, target: str) -> None:
    node = view_of(open_fs()).node(path)
    assert (node.kind, node.target, node.size) == (NodeKind.LINK, target, len(target.encode()))


def test_a_link_to_the_root(root: Path, open_fs: Opener) -> None:
    write(root, {"SKILL.md": skill_md("a"), "below/a.md": "a"})
    (root / "below/top").symlink_to("..")
    assert view_of(open_fs()).node("/below/top").target == ".."


def test_a_link_that_becomes_a_file_and_back(store: Path, open_fs: Opener) -> None:
    view = view_of(open_fs())
    assert view.node("/pdf/link.md").kind == NodeKind.LINK
    (store / "pdf/link.md").unlink()
    (store / "pdf/link.md").write_text("now a file")
    assert view.node("/pdf/link.md") == view.node("/pdf/link.md")._replace(kind=NodeKind.FILE, size=10)
    (store / "pdf/link.md").unlink()
    (store / "pdf/link.md").symlink_to("/etc/hostname")
    with pytest.raises(NotFoundError):
        view.node("/pdf/link.md")


@pytest.mark.parametrize(
    "path",
    [
        "/pdf/escaping",
        "/pdf/dangling",
        "/pdf/loose",
        "/tools/loose.txt",
        "/nothing",
        "/pdf/.env",
        "/pdf/no-such",
        "/no-such/pdf",
        "/pdf/SKILL.md/x",
        "/pdf/\udcff",
        "/name:pdf",
        "/*",
        "/PDF",
        "/..",
    ],
)
def test_what_cannot_be_seen(store: Path, open_fs: Opener, path: str) -> None:
    view = view_of(open_fs())
    for ask in (view.node, view.listing, view.open, view.facts):
        with pytest.raises(FileNotFoundError):
            ask(path)


def test_paths_are_no_references(store: Path, open_fs: Opener) -> None:
    fs = open_fs()
    entry = fs.entry("pdf/SKILL.md")
    write(
        store, {f"pdf/{name}": name for name in (str(entry.id), entry.uuid, "name:pdf", "x~y", "%41", "a b ")}
    )
    view = view_of(open_fs())
    for name in (str(entry.id), entry.uuid, "name:pdf", "x~y", "%41", "a b "):
        file, _, _ = view.open(f"/pdf/{name}")
        with file:
            assert file.read() == name.encode()
    with pytest.raises(NotFoundError):
        view.node(f"{store}/pdf")  # the root's own path means nothing here


def test_files_and_links_are_no_folders(store: Path, open_fs: Opener) -> None:
    view = view_of(open_fs())
    for path in ("/pdf/SKILL.md", "/pdf/refs/up"):
        with pytest.raises(IsFileError):
            view.listing(path)


def test_base_paths_hold(store: Path, open_fs: Opener) -> None:
    view = view_of(open_fs(base_paths=["pdf/deep/inner"]))
    found = dict(walk(view))
    assert sorted(found) == ["/pdf", "/pdf/deep", "/pdf/deep/inner", "/pdf/deep/inner/SKILL.md"]
    for path in ("/pdf/SKILL.md", "/tools", "/pdf/link.md"):
        with pytest.raises(NotFoundError):
            view.node(path)
    assert view.facts("/pdf") == ["uuid"]
    assert view.totals() == (1, (store / "pdf/deep/inner/SKILL.md").stat().st_size)


def test_a_link_out_of_the_base_paths_is_not_there(store: Path, open_fs: Opener) -> None:
    view = view_of(open_fs(base_paths=["tools/web"]))
    assert [name for name, _ in view.listing("/tools/web").nodes] == ["SKILL.md"]
    with pytest.raises(NotFoundError):
        view.node("/tools/web/other")


def test_a_new_file_is_there_at_once(store: Path, open_fs: Opener) -> None:
    view = view_of(open_fs(max_age=3600))
    write(store, {"pdf/new.md": "new"})
    assert view.node("/pdf/new.md").size == 3
    (store / "pdf/new.md").unlink()
    with pytest.raises(NotFoundError):
        view.node("/pdf/new.md")


def test_an_open_file_tells_of_itself(store: Path, open_fs: Opener) -> None:
    view = view_of(open_fs())
    file, node, sized = view.open("/pdf/run.sh")
    with file:
        assert sized
        assert node == view.node("/pdf/run.sh")
        assert node.executable


def test_facts(store: Path, open_fs: Opener) -> None:
    fs = open_fs()
    view = view_of(fs)
    entry = fs.entry("pdf/refs/größe.md")
    path = "/pdf/refs/größe.md"
    assert view.facts(path) == ["uuid", "skill", "md5", "sha256"]
    assert view.fact(path, "uuid") == entry.uuid
    assert view.fact(path, "skill") == fs.entry("pdf").uuid
    assert view.fact(path, "md5") == fs.get_content("pdf/refs/größe.md").hash
    assert view.fact(path, "sha256") == fs.digest("pdf/refs/größe.md").removeprefix("sha256:")
    assert view.fact(path, "other") is None
    assert view.facts("/pdf") == ["uuid", "skill"]
    assert view.fact("/pdf", "md5") is None
    assert view.facts("/tools") == ["uuid"]
    assert view.fact("/tools", "skill") is None


# -- several stores ----------------------------------------------------------------------------------------


def test_several_stores(store: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", {"mail/SKILL.md": skill_md("mail")})
    fs = SkillFileSystem({"a": store, "b": other}, index=":memory:")
    view = view_of(fs)
    found = dict(walk(view))
    assert sorted(found) == sorted("/" + path for path in fs.find("", withdirs=True))
    assert found["/a/tools/web/other"].target == "../../pdf/refs"
    assert view.node("/") == view.listing("/").own
    assert view.listing("/a").above == view.node("/")
    assert view.node("/b/mail") == found["/b/mail"]
    assert view.fact("/b/mail", "uuid") == fs.entry("b/mail").uuid
    assert view.facts("/") == ["uuid"]
    for path in ("/c", "/mail", "/c/mail"):
        with pytest.raises(NotFoundError):
            view.node(path)
    with pytest.raises(SkillFSError) as refused:
        view.open("/")
    assert refused.value.code == "is_folder"


def test_a_store_that_goes_away_takes_no_other_with_it(store: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", {"mail/SKILL.md": skill_md("mail")})
    view = view_of(SkillFileSystem({"a": store, "b": other}, index=":memory:"))
    shutil.move(other, tmp_path / "away")
    with pytest.raises(StoreUnavailableError, match="mount"):
        view.node("/b/mail")
    assert [name for name, _ in view.listing("/").nodes] == ["a", "b"]
    assert view.node("/a/pdf").kind == NodeKind.FOLDER
    shutil.move(tmp_path / "away", other)
    assert view.node("/b/mail").kind == NodeKind.FOLDER
