"""What differs between snapshots, and between one and the store."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillfs import SkillFileSystem
from skillfs.core.digest import sha256
from skillfs.core.manifest import Manifest, ManifestFile
from skillfs.core.manifest_json import parse_top, written
from skillfs.core.model import Difference, Differences, Kind
from skillfs.errors import (
    ChangedError,
    IntegrityError,
    InvalidArgumentError,
    IsFileError,
    NotFoundError,
    SkillFSError,
)
from skillfs.history import diff as diff_module
from skillfs.objects.folder import MANIFESTS
from tests.conftest import skill_md, write
from tests.history.test_restoring import IN_MEMORY, opened, visible
from tests.history.trees import Tree, lay, trees

Leaf = tuple[Any, ...]


def lines(found: tuple[Difference, ...]) -> list[str]:
    return [f"{d.kind} {d.old_path} -> {d.path}" if d.old_path else f"{d.kind} {d.path}" for d in found]


def leaves(root: Path) -> dict[tuple[str, bool], Leaf]:
    """What can be seen of a disk: contents, bits, links, and folders with nothing in them."""
    there = visible(root)
    found: dict[tuple[str, bool], Leaf] = {}
    for path, (kind, *values) in there.items():
        if kind == "file":
            found[path, False] = (f"sha256:{sha256(values[0]).hexdigest()}", len(values[0]), values[1], None)
        elif kind == "link":
            found[path, False] = (None, None, None, "" if values[0] == "." else values[0])
        elif not any(other.startswith(f"{path}/") for other in there):
            found[path, True] = (None, None, None, None)
    return found


def applied(old: dict[tuple[str, bool], Leaf], found: Differences) -> dict[tuple[str, bool], Leaf]:
    left = dict(old)
    for item in found.items:
        if item.kind != "added":
            was = left.pop((item.old_path or item.path, item.entry is Kind.FOLDER))
            assert was == (item.old_hash, item.old_size, item.old_executable, item.old_link)
    for item in found.items:
        if item.kind != "removed":
            key = item.path, item.entry is Kind.FOLDER
            assert key not in left
            left[key] = item.hash, item.size, item.executable, item.link
    return left


def edit(root: Path, draw: st.DataObject) -> None:
    """Remove, rename and add something, as people do."""
    for _ in range(draw.draw(st.integers(1, 3))):
        places = sorted(place for place in root.rglob("*"))
        if not places:
            break
        place = draw.draw(st.sampled_from(places))
        what = draw.draw(st.sampled_from(["remove", "rename", "bit", "text"]))
        if what == "remove":
            shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()
        elif what == "rename":
            target = root / draw.draw(st.sampled_from(["new", "a", "b", "new/in"]))
            free = not os.path.lexists(target) and (
                target.parent.is_dir() or not os.path.lexists(target.parent)
            )
            if free and place not in (target, *target.parents):
                target.parent.mkdir(exist_ok=True)
                place.rename(target)
        elif place.is_file() and not place.is_symlink():
            place.chmod(place.stat().st_mode ^ 0o100) if what == "bit" else place.write_bytes(b"edited")


def check_differences(tree: Tree, more: Tree, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as name:
        place = Path(name)
        store = lay(place / "store", tree)
        fs = opened(store, place / "objects")
        before = fs.snapshot()
        old = leaves(store)
        edit(store, data)
        with contextlib.suppress(NotADirectoryError):
            lay(store, more)
        live = fs.diff(before)
        new = leaves(store)
        assert applied(old, live) == new
        after = fs.snapshot()
        of_snapshots = fs.diff(before, after)
        assert (of_snapshots.items, of_snapshots.skills) == (live.items, live.skills)
        assert applied(new, fs.diff(after, before)) == old
        assert (fs.diff(after).items, fs.diff(None, after).items) == ((), ())
        digests = {skill.path: skill.digest for skill in fs.snapshots.manifest(after).skills}
        for skill in live.skills:
            assert skill.kind == "removed" or skill.hash == f"sha256:{digests[skill.path].hex()}"


@settings(max_examples=15, deadline=None)
@given(trees(), trees(), st.data())
def test_differences_make_the_one_state_of_the_other(tree: Tree, more: Tree, data: st.DataObject) -> None:
    check_differences(tree, more, data)


@pytest.mark.soak
@settings(max_examples=2_000, deadline=None)
@given(trees(), trees(), st.data())
def test_so_do_many(tree: Tree, more: Tree, data: st.DataObject) -> None:
    check_differences(tree, more, data)


@pytest.fixture
def store(root: Path) -> Path:
    return write(
        root,
        {
            "a/SKILL.md": skill_md("a"),
            "a/x.md": "one\ntwo\nthree\n",
            "a/in/SKILL.md": skill_md("in"),
            "b/SKILL.md": skill_md("b"),
            "b/y.md": "y\n",
        },
    )


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    return tmp_path / "objects"


# -- what is told --------------------------------------------------------------------------------------------


def test_what_came_went_moved_and_changed(store: Path, objects: Path) -> None:
    fs = opened(store, objects)
    uuids = {path: fs.entry(path).uuid for path in ("a", "a/in", "b/y.md")}
    fs.snapshot("v1")
    write(store, {"a/x.md": "another\n", "c/SKILL.md": skill_md("c")})
    (store / "b").rename(store / "d")
    (store / "a/in/SKILL.md").unlink()
    (store / "a/in").rmdir()
    found = fs.diff("v1")
    assert lines(found.skills) == ["modified a", "removed a/in", "added c", "moved b -> d"]
    assert lines(found.items) == [
        "removed a/in/SKILL.md", "modified a/x.md", "added c/SKILL.md",
        "moved b/SKILL.md -> d/SKILL.md", "moved b/y.md -> d/y.md",
    ]  # fmt: skip
    by_path = {one.path: one for one in (*found.skills, *found.items)}
    assert by_path["d/y.md"].uuid == uuids["b/y.md"] == fs.entry("d/y.md").uuid
    assert (by_path["a/in"].uuid, by_path["a/in"].entry) == (uuids["a/in"], Kind.SKILL)
    assert by_path["a/in/SKILL.md"].skill_folder_uuid == uuids["a/in"]
    assert (by_path["a"].hash, by_path["a/x.md"].hash) == (fs.digest("a"), fs.digest("a/x.md"))
    assert (by_path["a/x.md"].old_size, by_path["a/x.md"].size) == (14, 8)
    assert (found.revision, found.reset) == (fs.revision, False)
    fs.snapshot("v2")
    assert fs.diff("v1", "v2").revision == 0
    then = SkillFileSystem(at="v2", objects=objects, index=":memory:")
    assert then.diff("v1").items == found.items


def test_of_snapshots_only_what_differs_is_read(store: Path, objects: Path) -> None:
    write(store, {f"many/s{n:03}/SKILL.md": skill_md(f"s{n}") for n in range(300)})
    fs = opened(store, objects)
    fs.snapshot("v1")
    write(store, {"many/s007/more.md": "more\n", "many/s200/more.md": "more\n"})
    fs.snapshot("v2")
    again = opened(store, objects)
    folder = again.snapshots.catalog().folder
    read: list[str] = []
    get = folder.get
    folder.get = lambda name: (read.append(name), get(name))[1]  # type: ignore[method-assign]
    assert lines(again.diff("v1", "v2").skills) == ["modified many/s007", "modified many/s200"]
    of_manifests = [name for name in read if name.startswith(MANIFESTS)]
    assert len(of_manifests) == 2 + 2 * 2, "two tops, and of either the two parts that differ"


def test_between_stores_contents_tell_what_moved(store: Path, tmp_path: Path, objects: Path) -> None:
    opened(store, objects).snapshot("one")
    shutil.copytree(store, tmp_path / "other/deep")
    other = opened(tmp_path / "other", objects)
    found = other.diff("one")
    assert lines(found.skills) == ["moved a -> deep/a", "moved a/in -> deep/a/in", "moved b -> deep/b"]
    assert {one.kind for one in found.items} == {"moved"}


def test_a_store_that_knows_no_bits_differs_in_none(store: Path, tmp_path: Path, objects: Path) -> None:
    (store / "a/x.md").chmod(0o755)
    fs = opened(store, objects, store_id="f4c1c0de-0000-4000-8000-000000000001")
    fs.snapshot("v1")
    assert lines(fs.diff("v1").items) == []
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for path in sorted(p for p in store.rglob("*") if p.is_file()):
            archive.writestr(path.relative_to(store).as_posix(), path.read_bytes())
    zipped = SkillFileSystem(
        f"zip://::file://{tmp_path}/all.zip", index=":memory:", objects=objects,
        store_id="f4c1c0de-0000-4000-8000-000000000001", skip_instance_cache=True,
    )  # fmt: skip
    assert (zipped.diff("v1").skills, zipped.diff("v1").items) == ((), ())
    (store / "a/x.md").chmod(0o644)
    (changed,) = fs.diff("v1").items
    assert (changed.kind, changed.old_executable, changed.executable) == ("modified", True, False)


def test_what_is_no_snapshot_and_what_is_no_store(store: Path, objects: Path, tmp_path: Path) -> None:
    fs = opened(store, objects)
    for ref in ("v1", "latest"):
        with pytest.raises(NotFoundError, match="snapshot list"):
            fs.diff(ref)
    fs.snapshot()
    for ref in ("", "../v1", 7, ["v1"]):
        with pytest.raises(InvalidArgumentError):
            fs.diff(ref)  # type: ignore[arg-type]
    several = SkillFileSystem({"one": store, "two": write(tmp_path / "two", {"SKILL.md": skill_md()})})
    for call in (several.diff, several.diff_text):
        with pytest.raises(InvalidArgumentError, match="several"):
            call(None)


def test_damage_is_told(store: Path, objects: Path) -> None:
    fs = opened(store, objects)
    fs.snapshot("v1")
    write(store, {"a/x.md": "another\n"})
    fs.snapshot("v2")
    blob = next(path for path in objects.rglob("*") if path.is_file() and path.read_bytes() == b"another\n")
    os.chmod(blob, 0o600)
    blob.write_bytes(b"bnother\n")
    assert lines(fs.diff("v1", "v2").items) == ["modified a/x.md"]
    with pytest.raises(IntegrityError):
        fs.diff_text("v1", "v2")
    for part in (objects / "manifests").rglob("*"):
        if part.is_file() and b"manifest-part" in part.read_bytes():
            os.chmod(part, 0o600)
            part.write_bytes(part.read_bytes().replace(b'"a"', b'"A"'))
    with pytest.raises(IntegrityError):
        opened(store, objects).diff("v1", "v2")


@pytest.mark.parametrize("change", ["file below a file", "link where a file is", "file of a nested skill"])
def test_what_cannot_lie_in_one_tree_is_not_compared(store: Path, objects: Path, change: str) -> None:
    fs = opened(store, objects)
    fs.snapshot("v1")
    catalog = fs.snapshots.catalog()
    record, _ = fs.snapshots.find("v1")
    skills = {skill.path: skill for skill in catalog.manifest(record).skills}
    a = skills["a"]
    if change == "link where a file is":
        skills["a"] = replace(a, links=(("x.md", "b"),))
    else:
        path = "x.md/y" if change == "file below a file" else "in/y"
        skills["a"] = replace(a, files=tuple(sorted((*a.files, ManifestFile(path, 1, bytes(32), False)))))
        skills["a/in"] = replace(skills["a/in"], digest=bytes(32))
    top, parts = written(Manifest(tuple(skills[path] for path in sorted(skills))))
    catalog.blobs.put_manifests({**parts, sha256(top).digest(): top})
    counts = parse_top(top)
    catalog.add(
        replace(record, manifest=sha256(top).digest(), files=counts.files, size=counts.size, parents=()), "v2"
    )
    for sides in (("v1", "v2"), ("v2", "v1"), ("v2", None)):
        with pytest.raises(IntegrityError, match="the manifest "):
            fs.diff(*sides)


# -- who may see what ----------------------------------------------------------------------------------------


def test_moves_across_bounds_come_and_go(store: Path, objects: Path) -> None:
    fs = opened(store, objects)
    confined = {base: opened(store, objects, base_paths=[base]) for base in ("a", "b")}
    fs.snapshot("v1")
    write(store, {"in/c/SKILL.md": skill_md("c")})
    (store / "b").rename(store / "in/b")
    (store / "a/in").rename(store / "moved")
    fs.snapshot("v2")
    expected = {
        "in": ["added in/b", "added in/c"],
        "b": ["removed b"],
        "moved": ["added moved"],
        "a": ["modified a", "removed a/in"],
        "nowhere": [],
    }
    for base, told in expected.items():
        for sides in (("v1",), ("v1", "v2")):
            assert lines(fs.diff(*sides, base_paths=[base]).skills) == told, (base, sides)
    assert (
        lines(confined["a"].diff("v1", "v2").skills)
        == expected["a"]
        == lines(confined["a"].diff("v1").skills)
    )
    assert lines(confined["b"].diff("v1").skills) == expected["b"]
    with pytest.raises(NotFoundError):
        confined["b"].diff("v1", "v2")  # which holds nothing that it may see
    assert lines(fs.diff("v1", "v2", base_paths=["in", "b"]).skills) == ["moved b -> in/b", "added in/c"]
    uuid = fs.entry("in/b").uuid
    assert lines(fs.diff("v1", "v2", base_paths=[uuid]).skills) == ["moved b -> in/b"]
    assert lines(fs.diff("v1", base_paths=[uuid]).skills) == ["moved b -> in/b"]
    assert fs.diff("v1", base_paths=[]).skills == ()
    for bases in ("in", [".."], [None]):
        with pytest.raises(InvalidArgumentError):
            fs.diff("v1", base_paths=bases)  # type: ignore[arg-type]
    with pytest.raises(IsFileError):
        fs.diff("v1", base_paths=["a/x.md"])


def test_what_lies_outside_bears_on_nothing(store: Path, objects: Path) -> None:
    (store / "a/to-b").symlink_to("../b/y.md")
    fs = opened(store, objects)
    fs.snapshot("v1")
    write(store, {"b/y.md": "other\n"})
    fs.snapshot("v2")
    assert lines(fs.diff("v1", "v2").skills) == ["modified a", "modified b"]
    for confined in (opened(store, objects, base_paths=["a"]), fs):
        bases = None if confined is not fs else ["a"]
        for sides in (("v1",), ("v1", "v2")):
            found = confined.diff(*sides, base_paths=bases)
            assert (found.skills, found.items) == ((), ())
            assert confined.diff_text(*sides, base_paths=bases) == ""
    messages = set()
    for ref in ("b/y.md", "b/n.md"):
        with pytest.raises(NotFoundError) as error:
            fs.diff_text("v1", "v2", ref, base_paths=["a"])
        messages.add(str(error.value).replace(ref, "…"))
    assert len(messages) == 1


# -- texts ---------------------------------------------------------------------------------------------------


def test_texts_are_compared_line_by_line(store: Path, objects: Path) -> None:
    fs = opened(store, objects)
    fs.snapshot("v1")
    write(store, {"a/x.md": "one\n2\nthree\n", "a/new.md": "new"})
    (store / "b").rename(store / "d")
    write(store, {"d/y.md": "z\n"})
    shutil.rmtree(store / "a/in")
    text = fs.diff_text("v1")
    fs.snapshot("v2")
    assert fs.diff_text("v1", "v2") == text
    assert text == (
        "removed   a/in/SKILL.md\n--- a/a/in/SKILL.md\n+++ /dev/null\n@@ -1,5 +0,0 @@\n"
        + "".join(f"-{line}\n" for line in skill_md("in").splitlines())
        + "added     a/new.md\n--- /dev/null\n+++ b/a/new.md\n@@ -0,0 +1 @@\n+new\n"
        "\\ No newline at end of file\n"
        "modified  a/x.md\n--- a/a/x.md\n+++ b/a/x.md\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
        "moved     b/SKILL.md -> d/SKILL.md\n"
        "moved     b/y.md -> d/y.md\n--- a/b/y.md\n+++ b/d/y.md\n@@ -1 +1 @@\n-y\n+z\n"
    )
    one = fs.diff_text("v1", "v2", "a/x.md", context=0)
    assert one == "modified  a/x.md\n--- a/a/x.md\n+++ b/a/x.md\n@@ -2 +2 @@\n-two\n+2\n"
    entry = fs.entry("a/x.md")
    assert (
        fs.diff_text("v1", "v2", entry.uuid, context=0)
        == fs.diff_text("v1", None, entry.id, context=0)
        == one
    )
    for ref in ("b/y.md", "d/y.md", "b", "d/", fs.entry("d").uuid):
        assert "moved     b/y.md -> d/y.md\n" in fs.diff_text("v1", "v2", ref)
    assert fs.diff_text("v1", "v2", "a/SKILL.md") == "" == fs.diff_text("v2", None)
    for ref in ("a/no.md", "no", fs.entry("a").uuid[:-4] + "0000"):
        with pytest.raises(NotFoundError):
            fs.diff_text("v1", "v2", ref)
    for ref in ("name:a", entry.hash, "../x", 1.5, True):
        with pytest.raises(InvalidArgumentError):
            fs.diff_text("v1", "v2", ref)
    assert lines(fs.diff("v1", "v2", ["b", "a/x.md"]).items) == [
        "modified a/x.md", "moved b/SKILL.md -> d/SKILL.md", "moved b/y.md -> d/y.md"
    ]  # fmt: skip
    assert lines(fs.diff("v1", "v2", ["b", "a/x.md"]).skills) == ["moved b -> d"]
    assert fs.diff("v1", "v2", []).items == ()
    for context in (-1, True, "3", 1.0):
        with pytest.raises(InvalidArgumentError):
            fs.diff_text("v1", "v2", context=context)  # type: ignore[arg-type]


@pytest.mark.parametrize("tool", ["patch", "git"])
def test_patch_makes_the_new_files_of_the_old_ones(
    store: Path, objects: Path, tmp_path: Path, tool: str
) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"needs {tool}")
    fs = opened(store, objects)
    fs.snapshot("v1")
    shutil.copytree(store, tmp_path / "copy")
    write(store, {"a/x.md": "zero\none\ntwo\r\n", "a/n/new.md": "new", "a/ä b.md": "é\n", 'a/"\t\\': "q"})
    (store / "b/y.md").unlink()
    argv = ["patch", "-s", "-f", "-p1", "--binary"]
    if tool == "git":
        # It alone can put a folder where a file was in one go.
        write(store, {"b/y.md/was a file": "no more\n"})
        argv = ["git", "apply", "-p1", "--whitespace=nowarn"]
    fs.snapshot("v2")
    for before, after in (("v1", "v2"), ("v2", "v1")):
        # Not within a repository, of which git would take only what lies there.
        subprocess.run(
            argv,
            cwd=tmp_path / "copy",
            input=fs.diff_text(before, after).encode(),
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path)},
            check=True,
            timeout=20,
        )
        fs.snapshots.restore(after, tmp_path / after)
        assert leaves(tmp_path / "copy") == leaves(tmp_path / after)


def test_what_is_not_compared_line_by_line(
    store: Path, objects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, {"a/bin": b"\0\1", "a/big": "big\n" * 100, "a/enc": "grün\n", "a/link": "text\n"})
    fs = opened(store, objects)
    fs.snapshot("v1")
    old = {name: fs.digest(f"a/{name}") for name in ("bin", "big")}
    write(store, {"a/bin": b"\0\2", "a/big": "big\n" * 101, "a/enc": "grün\n".encode("utf-16")})
    (store / "a/link").unlink()
    (store / "a/link").symlink_to("x.md")
    (store / "a/x.md").chmod(0o755)
    (store / "a/e").mkdir()
    monkeypatch.setattr(diff_module, "MOST_COMPARED", 400)
    new = {name: fs.digest(f"a/{name}") for name in ("bin", "big")}
    assert fs.diff_text("v1") == (
        f"modified  a/big\nno text: {old['big']} -> {new['big']}\n"
        f"modified  a/bin\nno text: {old['bin']} -> {new['bin']}\n"
        "added     a/e\n"
        "modified  a/enc\nthe same text, in another encoding\n"
        "modified  a/link\nlink: none -> a/x.md\n"
        "--- a/a/link\n+++ /dev/null\n@@ -1 +0,0 @@\n-text\n"
        "modified  a/x.md\nexecutable: no -> yes\n"
    )


def test_where_links_lead_is_told_so_that_it_can_be_passed_back(store: Path, objects: Path) -> None:
    write(store, {"8004/SKILL.md": skill_md("8004")})
    fs = opened(store, objects)
    fs.snapshot("v1")
    (store / "a/number").symlink_to("../8004")
    (store / "a/root").symlink_to("..")
    assert fs.diff_text("v1") == (
        "added     a/number\nlink: none -> /8004\nadded     a/root\nlink: none -> /\n"
    )
    fs.snapshot("v2")
    (store / "a/root").unlink()
    assert fs.diff_text("v2") == "removed   a/root\nlink: / -> none\n"


def test_no_name_breaks_a_line(store: Path, objects: Path) -> None:
    fs = opened(store, objects)
    fs.snapshot("v1")
    write(store, {"a/x\n+++ b/y": "1\n", "a/\x1b[31m": "2\n"})
    text = fs.diff_text("v1")
    assert '+++ "b/a/x\\n+++ b/y"\n' in text
    assert "\x1b" not in text
    assert len(text.split("\n")) == 2 * 5 + 1


def test_a_file_that_changed_since_is_refused(store: Path, objects: Path) -> None:
    fs = opened(store, objects)
    fs.snapshot("v1")
    write(store, {"a/x.md": "two\n"})
    side = fs._side(None, None)
    comparison = diff_module.Comparison(fs._side("v1", None), side)
    write(store, {"a/x.md": "six\n"})
    with pytest.raises(ChangedError):
        list(comparison.texts(3))


def test_under_a_lock_no_text_is_told_that_it_does_not_name(store: Path, objects: Path) -> None:
    opened(store, objects).snapshot("v1")
    locked = opened(store, objects, lock=opened(store, objects).lock())
    write(store, {"a/x.md": "secret\n"})
    assert lines(locked.diff("v1").items) == ["modified a/x.md"]
    with pytest.raises(IntegrityError):
        locked.diff_text("v1")


def test_files_that_come_and_go_meanwhile(
    store: Path, objects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = opened(store, objects)
    fs.snapshot("v1")
    found: list[Callable[..., Any]] = []
    digests_of = diff_module.digests_of

    def once(*arguments: Any) -> Any:
        if not found:
            found.append(digests_of)
            raise ChangedError("gone")
        return digests_of(*arguments)

    monkeypatch.setattr(diff_module, "digests_of", once)
    assert fs.diff("v1").items == ()
    monkeypatch.setattr(diff_module, "digests_of", lambda *_: (_ for _ in ()).throw(ChangedError("gone")))
    with pytest.raises(SkillFSError, match="gone"):
        fs.diff("v1")


def test_the_store_is_told_as_it_is_now(tmp_path: Path) -> None:
    root = write(tmp_path / "store", {"pdf/SKILL.md": skill_md("pdf")})
    fs = SkillFileSystem(root, index=":memory:", objects=tmp_path / "objects", max_age=3600)
    fs.snapshot("before")
    write(root, {"pdf/new.md": "new"})
    assert [(item.kind, item.path) for item in fs.diff("before").items] == [("added", "pdf/new.md")]
