"""What lists, finds and removes snapshots, and what a confined filesystem sees of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from skillfs import SkillFileSystem
from skillfs.access import Access
from skillfs.errors import IntegrityError, InvalidArgumentError, NotFoundError
from skillfs.history.describing import within
from skillfs.history.snapshots import find_snapshots
from tests.conftest import skill_md, write
from tests.history.test_restoring import opened
from tests.history.trees import on_disk


@pytest.fixture
def store(root: Path) -> Path:
    write(
        root,
        {
            "a/SKILL.md": skill_md("a"),
            "a/x.md": "x\n",
            "a/in/SKILL.md": skill_md("in"),
            "b/SKILL.md": skill_md("b"),
            "b/y.md": "y\n",
        },
    )
    (root / "a/to-b").symlink_to("../b/y.md")
    (root / "b/to-b").symlink_to("y.md")
    (root / "top").symlink_to("b")
    return root


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    return tmp_path / "objects"


def test_they_are_listed_and_found(store: Path, objects: Path) -> None:
    fs = opened(store, objects)
    assert fs.snapshots.list() == []
    assert not objects.exists()
    first = fs.snapshot("v1")
    write(store, {"a/x.md": "another\n"})
    second = fs.snapshot()
    assert fs.snapshots.list() == [second, first]
    for ref in ("v1", first.digest, first.record, first.digest[:15], first.record[:15].upper(), first):
        assert fs.snapshots.get(ref) == first
    assert fs.snapshots.get("latest") == second
    for ref in (None, 7, ["v1"]):
        with pytest.raises(InvalidArgumentError):
            fs.snapshots.get(ref)
    assert [skill.path for skill in fs.snapshots.manifest("v1").skills] == ["a", "a/in", "b"]
    assert fs.snapshots.remove("v1") == first
    assert fs.snapshots.list() == [second]
    with pytest.raises(NotFoundError):
        fs.snapshots.get("v1")


def test_what_only_a_removed_one_needed_goes(store: Path, objects: Path) -> None:
    fs = opened(store, objects)
    fs.snapshot("v1")
    write(store, {"a/x.md": "another\n"})
    fs.snapshot("v2")
    assert fs.snapshots.gc().objects == 0
    assert fs.snapshots.fsck() == []
    fs.snapshots.remove("v1")
    assert fs.snapshots.gc().objects >= 2  # the file, and at least the top of the manifest
    assert fs.snapshots.fsck() == []
    assert opened(store, objects, at="v2").cat_file("a/x.md") == b"another\n"


def test_a_damaged_record_is_given_up_by_its_digest(store: Path, objects: Path) -> None:
    fs = opened(store, objects)
    fs.snapshot("v1")
    write(store, {"a/x.md": "another\n"})
    second = fs.snapshot("v2")
    blobs = {path.name for path in (objects / "blobs").rglob("*")}
    (record,) = (objects / "snapshots").glob(f"*{second.record[7:]}")
    record.chmod(0o600)
    record.write_text("{}")
    fs = opened(store, objects)
    for step in ("in its place", "set aside"):
        with pytest.raises(IntegrityError, match="nothing was removed"):
            fs.snapshots.gc()
        assert {path.name for path in (objects / "blobs").rglob("*")} == blobs, step
        fs.snapshots.fsck()
    assert fs.snapshots.remove(second.record[:20]) is None
    with pytest.raises(NotFoundError):
        fs.snapshots.remove(second.record)
    assert fs.snapshots.gc().objects
    assert fs.snapshots.fsck() == []
    assert opened(store, objects, at="v1").cat_file("a/x.md") == b"x\n"


def test_a_lock_holds_for_what_is_kept_and_written(store: Path, objects: Path, tmp_path: Path) -> None:
    fs = opened(store, objects)
    fs.snapshot("v1")
    lock = fs.lock()
    write(store, {"b/y.md": "another\n", "c/SKILL.md": skill_md("c")})
    fs.snapshot("v2")
    locked = opened(store, objects, lock=lock)
    for _ in range(2):
        with pytest.raises(IntegrityError, match=r'"a/to-b" is not as the lock names it'):
            locked.snapshot("v3")
        with pytest.raises(IntegrityError, match=r'"a/to-b" is not as the lock names it'):
            locked.snapshots.restore("v2", tmp_path / "restored")
    with pytest.raises(IntegrityError, match=r'does not name "c/SKILL\.md"'):
        locked.snapshots.export("v2", tmp_path / "out", skill="c")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "restored").exists()
    assert [one.labels for one in fs.snapshots.list()] == [("v2",), ("v1",)]
    locked.snapshots.restore("v1", tmp_path / "restored")
    assert locked.snapshots.export("v2", tmp_path / "in.zip", skill="a/in").skills == 1
    write(store, {"b/y.md": "y\n"})
    (store / "c/SKILL.md").unlink()
    assert locked.snapshot("v3").digest == fs.snapshots.get("v1").digest
    both = SkillFileSystem({"one": store}, index=":memory:", objects=objects, lock=lock)
    with pytest.raises(IntegrityError, match="lock"):
        both.snapshots.restore("v1", tmp_path / "of both")


def test_without_an_object_folder_there_is_nothing(store: Path, objects: Path, tmp_path: Path) -> None:
    fs = opened(store, objects)
    assert fs.snapshots.gc() == (0, 0)
    assert fs.snapshots.fsck() == []
    for work in (
        lambda: fs.snapshots.get("v1"),
        lambda: fs.snapshots.manifest("latest"),
        lambda: fs.snapshots.remove("v1"),
        lambda: fs.snapshots.restore("v1", tmp_path / "out"),
        lambda: fs.snapshots.export("v1", tmp_path / "out"),
    ):
        with pytest.raises(NotFoundError, match="snapshot list"):
            work()
    assert not objects.exists()


def test_they_lie_beside_the_index(store: Path, tmp_path: Path, data_home: Path) -> None:
    SkillFileSystem(store, index=tmp_path / "x.sqlite", skip_instance_cache=True).snapshot()
    assert (tmp_path / "x.sqlite.objects/snapshots").is_dir()
    taken = SkillFileSystem(store, skip_instance_cache=True).snapshot()
    (found,) = (data_home / "skillfs/indexes").glob("*.objects")
    assert oct(found.stat().st_mode)[-3:] == "700"
    # The same folder, however the store is looked at.
    for options in ({"index": ":memory:"}, {"ignore": ["*.txt"]}, {"follow": [tmp_path]}):
        other = SkillFileSystem(store, skip_instance_cache=True, **options)  # type: ignore[arg-type]
        assert other.snapshots.list() == [taken]
    assert find_snapshots(store).list() == find_snapshots(None, objects=found).list() == [taken]


# -- base paths --------------------------------------------------------------------------------------------


def by_path(fs: SkillFileSystem) -> object:
    return "a"


def by_uuid(fs: SkillFileSystem) -> object:
    return fs.entry("a").uuid


def by_name(fs: SkillFileSystem) -> object:
    return "name:a"


@pytest.mark.parametrize("base", [by_path, by_uuid, by_name])
def test_a_confined_filesystem_sees_what_lies_within(
    store: Path, objects: Path, tmp_path: Path, base: Callable[[SkillFileSystem], object]
) -> None:
    fs = opened(store, objects)
    whole = fs.snapshot("v1")
    confined = opened(store, objects, base_paths=[base(fs)])
    (seen,) = confined.snapshots.list()
    assert (seen.record, seen.labels, seen.skills, seen.files) == (whole.record, ("v1",), 2, 3)
    assert seen.size < whole.size
    assert seen.digest != whole.digest
    # What lies outside bears on nothing that is told.
    write(store, {"b/y.md": "secret\n"})
    fs.snapshot("v2")
    assert confined.snapshots.get("v2").digest == seen.digest
    assert confined.snapshots.get("latest").labels == ("v2",)
    confined.snapshots.restore("v1", tmp_path / "out")
    restored = on_disk(tmp_path / "out")
    assert sorted(restored) == ["a", "a/SKILL.md", "a/in", "a/in/SKILL.md", "a/x.md"]
    with pytest.raises(NotFoundError):
        confined.snapshots.export("v1", tmp_path / "b", skill="b")
    confined.snapshots.export("v1", tmp_path / "exported")
    assert "secret" not in (tmp_path / "exported/skills.lock").read_text()
    for work in (lambda: confined.snapshots.remove("v1"), confined.snapshots.gc, confined.snapshots.fsck):
        with pytest.raises(InvalidArgumentError, match="base_paths"):
            work()
    # One that holds nothing within is not there.
    nothing = opened(store, objects, base_paths=[])
    assert nothing.snapshots.list() == []
    with pytest.raises(NotFoundError):
        nothing.snapshots.get("v1")
    with pytest.raises(NotFoundError):
        nothing.snapshots.get("latest")


def test_a_confined_snapshot_holds_no_more(store: Path, objects: Path) -> None:
    fs = opened(store, objects)
    whole = fs.snapshot("whole")
    part = fs.snapshot("part", base_paths=["a"])
    assert (part.skills, part.parents) == (2, (whole.record,))
    assert opened(store, objects, base_paths=["a"]).snapshot("same").digest == part.digest
    manifest = fs.snapshots.manifest("part")
    assert manifest == within(fs.snapshots.manifest("whole"), Access(["a"]))
    assert within(manifest, Access()) is manifest
    at = opened(None, objects, at="part")  # type: ignore[arg-type]
    assert [skill.path for skill in at.skills()] == ["a", "a/in"]


def test_what_of_a_manifest_may_be_seen(store: Path, objects: Path) -> None:
    """The same as who is confined sees of the store itself."""
    fs = opened(store, objects)
    fs.snapshot("whole")
    manifest = fs.snapshots.manifest("whole")
    for number, bases in enumerate((["a"], ["b"], ["a/in"], ["/"], ["a", "b"], [])):
        fs.snapshot(f"part{number}", base_paths=bases)
        paths = ["" if base == "/" else base for base in bases]
        assert within(manifest, Access(paths)) == fs.snapshots.manifest(f"part{number}"), bases
