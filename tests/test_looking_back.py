"""A store as it was: the same answers as then, whatever became of it since."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest

from skillfs import SkillFileSystem
from skillfs.errors import (
    IntegrityError,
    InvalidArgumentError,
    NotFoundError,
    ReadOnlyError,
    SkillFSError,
)
from skillfs.objects.snapshots import SnapshotCatalog
from skillfs.objects.store import SnapshotStore
from tests.conftest import skill_md, write

FILES: dict[str, str | bytes] = {
    "a/SKILL.md": skill_md("a", "Reads tables."),
    "a/one.md": "# One\n\nzebra crossing\n",
    "a/copy.md": "# One\n\nzebra crossing\n",
    "a/run.sh": "#!/bin/sh\n",
    "a/sub/inner/SKILL.md": skill_md("inner"),
    "b/SKILL.md": skill_md("b"),
    "b/big.md": "é数😀a\n" * 5_000,
}

STORE_ID = "5f0c7c0e-6f0f-4b0e-9c58-2d1f0a0c9b1d"


def opened(store: Path | None, objects: Path, **options: Any) -> SkillFileSystem:
    return SkillFileSystem(
        store,
        **{"index": ":memory:", "objects": objects, "max_age": 0, "skip_instance_cache": True, **options},
    )


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
def live(root: Path, objects: Path) -> SkillFileSystem:
    """A store of which there is a snapshot, `v1`."""
    write(root, FILES)
    (root / "a/run.sh").chmod(0o755)
    (root / "a/empty").mkdir()
    (root / "a/link.md").symlink_to("one.md")
    (root / "b/other").symlink_to("../a/sub")
    fs = opened(root, objects)
    fs.snapshot("v1")
    return fs


def change_all(root: Path) -> None:
    """Leave nothing as it was."""
    shutil.rmtree(root / "b")
    (root / "a/one.md").rename(root / "a/moved.md")
    write(root, {"a/SKILL.md": skill_md("other"), "a/run.sh": "exit 1\n", "c/SKILL.md": skill_md("c")})
    (root / "a/run.sh").chmod(0o644)


def told(work: Callable[[], object]) -> object:
    try:
        return work()
    except SkillFSError as error:
        return type(error), error.message


def everything(fs: SkillFileSystem) -> dict[str, object]:
    """What a filesystem answers, but for times, and what is known of a file before it is read."""
    paths = fs.find("", withdirs=True)
    answers: dict[str, object] = {
        "tree": str(fs.skill_tree("/")),
        "skills": [(s.path, s.uuid, s.name, s.description, s.problems) for s in fs.skills()],
        "problems": fs.problems(),
        "prompt": fs.to_prompt(),
        "search": [hit.path for hit in fs.search("zebra crossing").hits],
        "lock": fs.lock(),
        "digests": [fs.digest(skill.path) for skill in fs.skills()],
        "paths": paths,
    }
    for path in paths:
        entry = fs.entry(path)
        answers[path] = (entry.id, entry.uuid, entry.kind, entry.size, entry.link, entry.skill_folder_uuid)
        answers[f"text {path}"] = told(lambda path=path: str(fs.get_content(path)))  # type: ignore[misc]
        answers[f"lines {path}"] = told(lambda path=path: fs.get_lines(path, 2, 3).text)  # type: ignore[misc]
        answers[f"outline {path}"] = told(lambda path=path: fs.outline(path))  # type: ignore[misc]
        if fs.isfile(path):
            data = fs.cat_file(path)
            answers[f"bytes {path}"] = data
            with fs.open(path) as file:
                assert file.read() == data
            digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
            answers[f"content {path}"] = [found.path for found in fs.find_content(digest)]
            answers[f"uuid {path}"] = fs.entry(entry.uuid).path
    return answers


def test_everything_is_as_it_was(live: SkillFileSystem, root: Path, objects: Path) -> None:
    live.index_all()
    then = everything(live)
    change_all(root)
    for options in (
        {"store": root},
        {"store": None},
        {"store": root, "at": live.snapshots.get("v1").digest},
        {"store": root, "at": live.snapshots.get("v1").record[:15]},
        {"store": None, "at": "latest"},
    ):
        store = options.pop("store")
        at = opened(store, objects, **{"at": "v1", **options})  # type: ignore[arg-type]
        at.sync()
        at.invalidate_cache()
        assert everything(at) == then
        assert at.changes(at.revision).items == ()
        assert at.status()["at"] == live.snapshots.get("v1").record


def test_every_sha256_is_known_at_once(live: SkillFileSystem, objects: Path) -> None:
    at = opened(None, objects, at="v1")
    digest = hashlib.sha256(str(FILES["b/big.md"]).encode()).hexdigest()
    assert [found.path for found in at.find_content(f"sha256:{digest}")] == ["b/big.md"]
    with pytest.raises(NotFoundError):
        at.find_content("sha256:" + "0" * 64)  # not: not indexed
    with pytest.raises(LookupError):
        at.find_content("md5:" + "0" * 32)
    assert at.index_all() == 7
    with pytest.raises(NotFoundError):
        at.find_content("md5:" + "0" * 32)


def test_it_is_only_for_reading(live: SkillFileSystem, root: Path, objects: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="not written to"):
        opened(root, objects, at="v1", writable=True)
    at = opened(root, objects, at="v1")
    with pytest.raises(ReadOnlyError):
        at.pipe_file("a/one.md", b"x")
    with pytest.raises(InvalidArgumentError, match="a snapshot already"):
        at.snapshot()
    assert at.snapshots.list() == live.snapshots.list()


def test_what_does_not_answer(live: SkillFileSystem, root: Path, tmp_path: Path, objects: Path) -> None:
    for at in ("v2", "sha256:" + "0" * 64, "sha256:00000000"):
        with pytest.raises(NotFoundError, match="snapshot list"):
            opened(root, objects, at=at)
    for at in ("", "sha256:12", "../v1", "a b", 7):
        with pytest.raises(InvalidArgumentError):
            opened(root, objects, at=at)
    with pytest.raises(NotFoundError, match="no object folder for this store"):
        opened(root, tmp_path / "none", at="v1")
    assert not (tmp_path / "none").exists()
    with pytest.raises(InvalidArgumentError, match="which store"):
        SkillFileSystem(at="v1")


def test_a_store_that_is_gone_can_be_had_back(root: Path, tmp_path: Path) -> None:
    """Where its snapshots lie follows from where it lay."""
    write(root, FILES)
    fs = SkillFileSystem(root, skip_instance_cache=True)
    fs.snapshot("v1")
    shutil.rmtree(root)
    at = SkillFileSystem(root, at="v1", skip_instance_cache=True)
    assert at.cat_file("a/run.sh") == b"#!/bin/sh\n"
    at.snapshots.restore("latest", root)
    assert (root / "a/run.sh").read_text() == "#!/bin/sh\n"


def test_the_store_beside_what_it_was(live: SkillFileSystem, root: Path, objects: Path) -> None:
    (root / "a/one.md").write_text("another\n")
    fs = SkillFileSystem(
        {"old": {"store": root, "at": "v1"}, "now": root, "bare": {"at": "v1", "objects": objects}},
        index=":memory:", objects=objects, watch=True, max_age=0, skip_instance_cache=True,
    )  # fmt: skip
    assert fs.cat_file("old/a/one.md") == fs.cat_file("bare/a/one.md") == b"# One\n\nzebra crossing\n"
    assert fs.cat_file("now/a/one.md") == b"another\n"
    assert fs.entry("old/a/one.md").uuid == fs.entry("now/a/one.md").uuid
    assert fs.entry(fs.entry("now/a/one.md").uuid).path == "old/a/one.md"  # the first mount has it
    packed = pickle.dumps(fs)
    live.snapshots.remove("v1")
    live.snapshot("v1")
    with pytest.raises(NotFoundError):
        pickle.loads(packed)  # that very snapshot is gone, whatever has its label
    live.snapshots.remove("v1")
    for arguments in ({"at": "v1"}, {"objects_options": {"x": 1}, "at": "v1"}):
        with pytest.raises(InvalidArgumentError):
            SkillFileSystem({"a": root}, index=":memory:", skip_instance_cache=True, **arguments)  # type: ignore[arg-type]


def test_watching_it_waits_for_nothing(live: SkillFileSystem, root: Path, objects: Path) -> None:
    at = opened(root, objects, at="v1", watch=True)
    with at.watch() as feed:
        (root / "a/one.md").write_text("another\n")
        assert feed.get(timeout=0.05) is None


def test_its_index_is_kept_until_it_is_removed(
    live: SkillFileSystem, root: Path, objects: Path, data_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def indexes() -> list[str]:
        return [path.name for path in (data_home / "skillfs/indexes").glob("snapshot-*")]

    at = opened(root, objects, at="v1", index=None)
    then = everything(at)
    assert indexes()
    del at
    # Who has an index needs no manifest.
    with monkeypatch.context() as patched:
        patched.setattr(SnapshotCatalog, "manifest", None)
        at = opened(root, objects, at="v1", index=None)
        assert at.cat_file("a/one.md") == FILES["a/one.md"].encode()  # type: ignore[union-attr]
        assert [skill.path for skill in at.skills()] == ["a", "a/sub/inner", "b"]
    assert everything(at) == then
    live.snapshots.remove("v1")
    assert not indexes()


def test_a_pickled_one_is_the_very_snapshot(live: SkillFileSystem, root: Path, objects: Path) -> None:
    at = opened(root, objects, at="latest")
    packed = pickle.dumps(at)
    (root / "a/one.md").write_text("another\n")
    live.snapshot("v2")
    assert pickle.loads(packed).cat_file("a/one.md") == b"# One\n\nzebra crossing\n"
    assert opened(root, objects, at="latest").cat_file("a/one.md") == b"another\n"
    assert pickle.loads(packed).fsid == at.fsid != opened(root, objects, at="v2").fsid != live.fsid


def test_a_forked_child_reads_it(live: SkillFileSystem, objects: Path) -> None:
    at = opened(None, objects, at="v1")
    then = everything(at)
    read, write_end = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            os.write(write_end, b"ok" if everything(at) == then else b"no")
        os._exit(0)
    os.close(write_end)
    assert os.read(read, 2) == b"ok"
    os.close(read)
    os.waitpid(child, 0)


def test_threads_read_it(live: SkillFileSystem, objects: Path) -> None:
    at = opened(None, objects, at="v1")
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda n: at.get_content("b/big.md", n, 5).text, range(200)):
            assert len(found) == 5


def test_executable_bits_are_those_of_then(live: SkillFileSystem, objects: Path) -> None:
    files = opened(None, objects, at="v1").lock().files()
    assert [path for path, file in files.items() if file.executable] == ["a/run.sh"]


@pytest.mark.parametrize("harm", ["removed", "damaged", "cut"])
@pytest.mark.parametrize("early", [True, False])
def test_damage_is_told_and_nothing_of_it_is_served(
    live: SkillFileSystem, objects: Path, harm: str, early: bool
) -> None:
    at = opened(None, objects, at="v1")
    for path in ("b/SKILL.md", "b/big.md"):
        digest = live.digest(path)[7:]
        blob = objects / "blobs" / digest[:2] / digest[2:]
        data = blob.read_bytes()
        if harm == "removed":
            blob.unlink()
        else:
            blob.write_bytes(data[:-1] if harm == "cut" else bytes([data[0] ^ 1]) + data[1:])
    if early:
        at = opened(None, objects, at="v1", ignore=["nothing"])  # an index of its own
        problems = [(problem.code, problem.path) for problem in at.problems()]
        assert problems == [("unreadable", "b/SKILL.md")]
        assert [skill.path for skill in at.skills()] == ["a", "a/sub/inner", "b"]
    for path in ("b/SKILL.md", "b/big.md"):
        for read in (at.get_content, at.cat_file, at.get_lines, lambda p: at.open(p).read()):
            with pytest.raises(IntegrityError) as raised:
                read(path)
            assert str(objects) not in str(raised.value)
    assert at.cat_file("a/one.md") == str(FILES["a/one.md"]).encode()


def test_what_comes_back_is_served_again(live: SkillFileSystem, objects: Path) -> None:
    """An index that met damage looks again when it is opened, and when somebody reads."""
    digest = live.digest("b/SKILL.md")[7:]
    blob = objects / "blobs" / digest[:2] / digest[2:]
    data = blob.read_bytes()
    blob.unlink()
    at = opened(None, objects, at="v1", index=None)
    assert [problem.code for problem in at.problems()] == ["unreadable"]
    assert at.skill("b").description == ""
    del at
    again = opened(None, objects, at="v1", index=None)
    assert [problem.code for problem in again.problems()] == ["unreadable"]
    blob.write_bytes(data)
    assert again.cat_file("b/SKILL.md") == data
    assert again.problems() == []
    assert again.skill("b").description == "Something to do."
    del again
    assert opened(None, objects, at="v1", index=None).problems() == []


def test_what_was_ignored_otherwise_is_there(root: Path, objects: Path) -> None:
    write(root, {"a/SKILL.md": skill_md("a"), "a/x.pyc": "x", "a/draft.txt": "y"})
    opened(root, objects, ignore=["!*.pyc"]).snapshot("v1")
    assert opened(root, objects, at="v1").cat_file("a/x.pyc") == b"x"
    at = opened(root, objects, at="v1", ignore=["draft.*"])
    assert not at.exists("a/draft.txt")


def test_a_confined_one_shows_what_lies_within(live: SkillFileSystem, root: Path, objects: Path) -> None:
    uuid = live.entry("a").uuid
    (root / "a").rename(root / "moved")
    for base in ("a", uuid, "name:a"):
        at = opened(root, objects, at="v1", base_paths=[base])
        assert [skill.path for skill in at.skills()] == ["a", "a/sub/inner"]
        with pytest.raises(NotFoundError):
            at.cat_file("b/SKILL.md")


def test_a_store_in_memory_keeps_its_snapshots_there() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/kept/here/a/SKILL.md", skill_md("a").encode())
    try:
        SkillFileSystem("memory://kept/here", skip_instance_cache=True).snapshot("v1")
        memory.pipe_file("/kept/here/a/SKILL.md", skill_md("b").encode())
        at = SkillFileSystem("memory://kept/here", at="v1", skip_instance_cache=True)
        assert at.skills()[0].name == "a"
        assert at.status()["index"] == ":memory:"
    finally:
        memory.rm("/kept", recursive=True)
        for folder in memory.ls("/", detail=False):
            if folder.startswith("/skillfs-objects-"):
                memory.rm(folder, recursive=True)


def test_a_link_in_place_of_a_skill_md_is_refused(live: SkillFileSystem, root: Path, objects: Path) -> None:
    """Nobody but skillfs writes manifests; one that says what no store can be is not believed."""
    from dataclasses import replace

    from skillfs.core.digest import sha256
    from skillfs.core.manifest import Manifest, ManifestSkill
    from skillfs.core.manifest_json import parse_top, written

    catalog = live.snapshots.catalog()
    manifest = live.snapshots.manifest("v1")
    skill = manifest.skills[0]
    wrong = ManifestSkill(skill.path, skill.digest, skill.files, (("x/SKILL.md", "a/one.md"),), ())
    text, parts = written(Manifest((wrong, *manifest.skills[1:])))
    catalog.blobs.put_manifests({**parts, sha256(text).digest(): text})
    top = parse_top(text)
    digest, record = catalog.resolve("v1")
    record = replace(
        record, manifest=sha256(text).digest(), parents=(digest,),
        skills=top.skills, files=top.files, size=top.size,
    )  # fmt: skip
    catalog.add(record, "wrong")
    with pytest.raises(IntegrityError, match="where a file belongs"):
        opened(root, objects, at="wrong")
    store = SnapshotStore(catalog, digest, record, "x")
    with pytest.raises(IntegrityError):
        store.look().exists(None)  # type: ignore[arg-type]
