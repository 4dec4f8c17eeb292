"""Locks of stores: what is locked, how it is kept in a file, and how a store stands to it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillfs import (
    IntegrityError,
    InvalidArgumentError,
    IsFileError,
    IsFolderError,
    NotFoundError,
    NotIndexedError,
    SkillFileSystem,
    UnreadableError,
)
from skillfs.core.lock import Lock, Verification, parse_lock, render_lock
from skillfs.core.manifest import digest_text
from skillfs.history.locking import read_lock, write_lock
from tests.collisions import MD5_PAIR, XXH3_PAIR
from tests.conftest import skill_md, write
from tests.privileges import bound_by_permissions

if TYPE_CHECKING:
    from tests.servers.s3 import Bucket

FILES: dict[str, str | bytes] = {
    "pdf/SKILL.md": skill_md("pdf"),
    "pdf/b.bin": b"\0\xff" * 400,
    "pdf/.hidden": "seen all the same",
    "pdf/.env": "never",
    "pdf/lines.txt": "one\ntwo\n",
    "pdf/inner/SKILL.md": skill_md("inner"),
    "pdf/inner/empty": "",
    "pdf/a/Zürich 数据.md": "z",
    "other/SKILL.md": skill_md("other"),
    "loose/x.md": "x",
}

Opened = Callable[..., SkillFileSystem]


def told(found: Verification) -> dict[str, str]:
    """What is not as locked: path to status, those of skills with a slash at the end."""
    wrong = {f"{skill.path}/": str(skill.status) for skill in found.skills if skill.status != "ok"}
    for skill in found.skills:
        for file in skill.files:
            if file.status != "ok":
                status = "line endings" if file.line_endings else str(file.status)
                wrong[f"{skill.path}/{file.path}"] = status
    return wrong


def paths_of(lock: Lock) -> dict[str, list[str]]:
    return {skill.path: [file.path for file in skill.files] for skill in lock.skills}


# -- locking -------------------------------------------------------------------------------------------------


def test_all_skills_and_those_that_are_named(root: Path, open_fs: Opened) -> None:
    write(root, FILES)
    (root / "other/run.sh").write_text("#!/bin/sh\n")
    (root / "other/run.sh").chmod(0o755)
    (root / "other/alias.md").symlink_to("../pdf/lines.txt")
    (root / "other/folder").symlink_to("../pdf/a")
    fs = open_fs()
    lock = fs.lock()
    assert paths_of(lock) == {
        "other": ["SKILL.md", "alias.md", "run.sh"],
        "pdf": [".hidden", "SKILL.md", "a/Zürich 数据.md", "b.bin", "lines.txt"],
        "pdf/inner": ["SKILL.md", "empty"],
    }
    for skill in lock.skills:
        assert digest_text(skill.digest) == fs.digest(skill.path)
        for file in skill.files:
            data = (root / skill.path / file.path).read_bytes()
            assert (file.size, file.digest) == (len(data), hashlib.sha256(data).digest())
    assert [file.path for skill in lock.skills for file in skill.files if file.executable] == ["run.sh"]
    assert list(paths_of(fs.lock(["name:pdf"]))) == ["pdf", "pdf/inner"]
    assert list(paths_of(fs.lock(["pdf/inner", "other/"]))) == ["other", "pdf/inner"]
    assert list(paths_of(fs.lock(["/"]))) == ["other", "pdf", "pdf/inner"]
    assert list(paths_of(fs.lock(base_paths=["pdf/inner"]))) == ["pdf/inner"]
    confined = open_fs(base_paths=["other"])
    assert paths_of(confined.lock()) == {
        "other": ["SKILL.md", "run.sh"]
    }  # where the link leads is out of sight
    assert parse_lock(render_lock(lock)) == lock


def test_what_cannot_be_locked(root: Path, open_fs: Opened) -> None:
    fs = open_fs()
    with pytest.raises(InvalidArgumentError, match="no skill to lock"):
        fs.lock()
    write(root, FILES)
    fs.sync()
    with pytest.raises(InvalidArgumentError, match="no skill to lock"):
        fs.lock([])
    with pytest.raises(InvalidArgumentError, match="no skill to lock"):
        fs.lock(["pdf/a"])
    with pytest.raises(IsFileError):
        fs.lock(["pdf/lines.txt"])
    for ref in ("loose", "nowhere"):
        with pytest.raises(NotFoundError):
            fs.lock([ref])
    with pytest.raises(NotFoundError):
        fs.lock(["pdf"], base_paths=["other"])
    with pytest.raises(InvalidArgumentError, match="list"):
        fs.lock("pdf")
    (root / "pdf/b.bin").chmod(0)
    with bound_by_permissions(), pytest.raises(UnreadableError):
        fs.lock()


def test_it_is_of_what_is_there_now(root: Path, open_fs: Opened) -> None:
    write(root, FILES)
    fs = open_fs(max_age=3600)
    first = fs.lock()
    (root / "pdf/lines.txt").write_text("two\none\n")
    second = fs.lock()
    assert first != second
    assert told(fs.verify(first)) == {"pdf/": "modified", "pdf/lines.txt": "modified", "pdf/.env": "ignored"}
    assert fs.verify(second).ok


def test_the_root_as_a_skill_and_several_stores(root: Path, open_fs: Opened, tmp_path: Path) -> None:
    write(root, {"SKILL.md": skill_md("store"), "x/SKILL.md": skill_md("x")})
    fs = open_fs()
    lock = fs.lock()
    assert paths_of(lock) == {"": ["SKILL.md"], "x": ["SKILL.md"]}
    assert digest_text(lock.skills[0].digest) == fs.digest("/")
    assert fs.verify(parse_lock(render_lock(lock))).ok
    both = SkillFileSystem({"b": root, "a": write(tmp_path / "two", FILES)}, index=":memory:")
    lock = both.lock()
    assert list(paths_of(lock)) == ["a/other", "a/pdf", "a/pdf/inner", "b", "b/x"]
    assert both.verify(lock).ok
    assert list(paths_of(both.lock(["b/x", "name:other"]))) == ["a/other", "b/x"]
    (root / "x/SKILL.md").write_text("other")
    assert told(both.verify(lock)) == {
        "a/pdf/.env": "ignored",
        "b/x/": "modified",
        "b/x/SKILL.md": "modified",
    }
    assert told(both.verify(lock, base_paths=["b/x"])) == {"b/x/": "modified", "b/x/SKILL.md": "modified"}
    confined = SkillFileSystem({"b": root, "a": tmp_path / "two"}, index=":memory:", base_paths=["b"])
    assert [skill.path for skill in confined.verify(lock).skills] == ["b", "b/x"]


# -- files ---------------------------------------------------------------------------------------------------


def test_a_lock_is_written_once(root: Path, open_fs: Opened, tmp_path: Path) -> None:
    write(root, FILES)
    fs = open_fs()
    file = tmp_path / "skills.lock"
    assert write_lock(file, fs.lock())
    file.chmod(0o640)
    before = file.stat()
    assert not write_lock(file, fs.lock())
    assert file.stat() == before
    assert read_lock(file) == fs.lock()
    write(root, {"pdf/new": "x"})
    assert write_lock(file, fs.lock())
    assert fs.verify(file).ok
    assert file.stat().st_mode == before.st_mode
    link = tmp_path / "link.lock"
    link.symlink_to(file)
    write(root, {"pdf/new": "y"})
    assert write_lock(link, fs.lock())
    assert link.is_symlink()
    assert fs.verify(str(file)).ok
    assert sorted(os.listdir(tmp_path)) == ["link.lock", "skills.lock", "store"]


def test_what_a_killed_process_left_goes_away(root: Path, open_fs: Opened, tmp_path: Path) -> None:
    write(root, FILES)
    for name in (
        ".skills.lock-0123456789abcdef~",
        ".skills.lock-fedcba9876543210~",
        ".other-0123456789abcdef~",
    ):
        (tmp_path / name).touch()
    os.utime(tmp_path / ".skills.lock-0123456789abcdef~", (1, 1))
    os.utime(tmp_path / ".other-0123456789abcdef~", (1, 1))
    write_lock(tmp_path / "skills.lock", open_fs().lock())
    assert sorted(os.listdir(tmp_path)) == [
        ".other-0123456789abcdef~", ".skills.lock-fedcba9876543210~", "skills.lock", "store",
    ]  # fmt: skip


def test_no_lock_lies_inside_a_skill(root: Path, open_fs: Opened, tmp_path: Path) -> None:
    write(root, FILES)
    fs = open_fs()
    lock = fs.lock()
    outside = write(tmp_path / "project", {"SKILL.md": "a skill that is in no store", "sub/x": ""})
    (tmp_path / "way").symlink_to(root / "pdf/a")
    kept = tmp_path / "kept.lock"
    write_lock(kept, lock)
    ways = (root / "pdf", root / "pdf/a", outside / "sub", tmp_path / "way")
    for file in (way / "skills.lock" for way in ways):
        with pytest.raises(InvalidArgumentError, match="inside a skill") as error:
            write_lock(file, lock)
        assert str(tmp_path) not in str(error.value)
        assert not file.exists()
        shutil.copy(kept, file)
        for use in (read_lock, fs.verify, lambda path: open_fs(lock=path)):
            with pytest.raises(InvalidArgumentError, match="inside a skill"):
                use(file)  # type: ignore[operator]
        file.unlink()
    (tmp_path / "into").symlink_to(root / "pdf/lines.txt")
    (root / "pdf/out").symlink_to(kept)
    for file in (tmp_path / "into", root / "pdf/out"):
        with pytest.raises(InvalidArgumentError, match="inside a skill"):
            read_lock(file)
    assert write_lock(root / "skills.lock", lock)  # beside the skills is fine
    write(tmp_path, {"SKILL.md/SKILL.md": "a folder of this name makes no skill"})
    assert not write_lock(root / "skills.lock", lock)


def test_what_is_no_file_to_read_or_write(root: Path, open_fs: Opened, tmp_path: Path) -> None:
    write(root, FILES)
    fs = open_fs()
    lock = fs.lock()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "garbage").write_bytes(b"\0")
    shut = tmp_path / "shut"
    write_lock(shut, lock)
    shut.chmod(0)
    cases: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: read_lock(tmp_path / "none"), NotFoundError, "skillfs lock"),
        (lambda: read_lock(tmp_path / "none/x"), NotFoundError, "skillfs lock"),
        (lambda: read_lock(tmp_path / "folder"), IsFolderError, "folder"),
        (lambda: read_lock(tmp_path / "pipe"), IntegrityError, "no regular file"),
        (lambda: read_lock(tmp_path / "garbage"), IntegrityError, "no JSON"),
        (lambda: read_lock(shut), UnreadableError, "permissions"),
        (lambda: write_lock(tmp_path / "folder", lock), IsFolderError, "folder"),
        (lambda: write_lock(tmp_path / "none/x", lock), NotFoundError, "make it first"),
        (lambda: write_lock(tmp_path / "pipe", lock), InvalidArgumentError, "no regular file"),
        (lambda: write_lock("/dev/null", lock), InvalidArgumentError, "no regular file"),
        (lambda: write_lock(f"{tmp_path}/new/", lock), InvalidArgumentError, "last slash"),
        (lambda: write_lock(tmp_path / ("x" * 300), lock), InvalidArgumentError, "no name"),
    ]
    cases += [
        (lambda path=path: fs.verify(path), InvalidArgumentError, "names no lock")  # type: ignore[misc]
        for path in ("", "a\0b", 7, None, b"x")
    ]
    with bound_by_permissions():
        for work, kind, message in cases:
            with pytest.raises(kind, match=message) as error:
                work()
            assert str(tmp_path) not in str(error.value)


# -- verifying -----------------------------------------------------------------------------------------------


def test_every_way_to_differ(root: Path, open_fs: Opened) -> None:
    write(root, FILES)
    fs = open_fs()
    lock = fs.lock()
    assert told(fs.verify(lock)) == {"pdf/.env": "ignored"}
    stat = (root / "pdf/b.bin").stat()
    write(root, {
        "pdf/b.bin": b"\0\xfe" + b"\0\xff" * 399, "pdf/lines.txt": "one\r\ntwo\r\n", "pdf/a/x.pyc": "",
        "pdf/node_modules/m/x.js": "", "pdf/a/new.md": "", "third/SKILL.md": "3", "pdf/more/SKILL.md": "m",
    })  # fmt: skip
    os.utime(root / "pdf/b.bin", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (root / "pdf/.hidden").unlink()
    (root / "pdf/SKILL.md").chmod(0o755)
    (root / "pdf/inner/SKILL.md").unlink()
    wrong = {
        "pdf/": "modified",
        "pdf/.env": "ignored",
        "pdf/.hidden": "missing",
        "pdf/SKILL.md": "mode",
        "pdf/a/new.md": "extra",
        "pdf/a/x.pyc": "ignored",
        "pdf/b.bin": "modified",
        "pdf/inner/": "missing",
        "pdf/inner/SKILL.md": "missing",
        "pdf/inner/empty": "extra",  # it is in the outer skill now
        "pdf/lines.txt": "line endings",
        "pdf/more/": "extra",
        "pdf/node_modules/": "ignored",
        "third/": "unlocked",
    }
    found = fs.verify(lock)
    both = {skill.path: {file.path: file.status for file in skill.files} for skill in found.skills}
    assert both["pdf/inner"] == {"SKILL.md": "missing", "empty": "missing"}
    assert both["pdf"]["inner/empty"] == "extra"
    assert told(found) == {**wrong, "pdf/inner/empty": told(found)["pdf/inner/empty"]}
    assert not found.ok
    assert told(fs.verify(lock, base_paths=["other", "third"])) == {"third/": "unlocked"}
    assert fs.verify(lock, base_paths=["other", "third"], allow_unlocked=True).ok
    assert not fs.verify(lock, base_paths=["third"], allow_unlocked=True).ok  # nothing was compared
    assert not fs.verify(lock, base_paths=[]).ok
    shutil.rmtree(root / "other")
    assert told(fs.verify(lock, base_paths=["/"]))["other/"] == "missing"
    for argument in ("reread", "allow_unlocked"):
        with pytest.raises(InvalidArgumentError, match=argument):
            fs.verify(lock, **{argument: 1})


def test_who_has_just_opened_a_store_can_spare_the_check(root: Path, open_fs: Opened) -> None:
    write(root, FILES)
    lock = open_fs().lock()
    write(root, {"pdf/lines.txt": "one\ntwo\nthree\n"})
    assert told(open_fs().verify(lock, check=False))["pdf/lines.txt"] == "modified"
    fs = open_fs(max_age=1_000)
    write(root, FILES)
    assert not fs.verify(lock, check=False).ok
    assert fs.verify(lock).ok
    with pytest.raises(InvalidArgumentError, match="check"):
        fs.verify(lock, check=None)  # type: ignore[arg-type]


def test_a_skill_that_joins_a_locked_one_is_never_allowed(root: Path, open_fs: Opened) -> None:
    write(root, FILES)
    fs = open_fs()
    lock = fs.lock()
    write(root, {"pdf/inner/deep/SKILL.md": "x"})
    found = fs.verify(lock, allow_unlocked=True)
    assert told(found) == {"pdf/.env": "ignored", "pdf/inner/deep/": "extra"}
    assert not found.ok


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_only_line_endings(root: Path, open_fs: Opened, ends: str) -> None:
    write(root, {"a/SKILL.md": ends.join(["---", "name: a", "---", ""]), "a/x": f"1{ends}2{ends}"})
    fs = open_fs()
    lock = fs.lock()
    other = "\r\n" if ends == "\n" else "\n"
    write(root, {"a/x": f"1{other}2{ends}"})
    assert told(fs.verify(lock))["a/x"] == "line endings"
    write(root, {"a/x": f"1{other}3{ends}"})
    assert told(fs.verify(lock))["a/x"] == "modified"
    write(root, {"a/x": f"1{ends}2{ends}{ends}"})
    assert told(fs.verify(lock))["a/x"] == "modified"


def test_everything_is_read_again_when_asked(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, FILES)
    for path in root.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    fs = SkillFileSystem(root, index=tmp_path / "index")
    lock = fs.lock()
    opened: list[str] = []
    true_open = fs._engine.store.open

    def counted(place, known=None):  # type: ignore[no-untyped-def]
        opened.append(place.path)
        return true_open(place, known)

    monkeypatch.setattr(fs._engine.store, "open", counted)
    assert fs.verify(lock).ok
    assert opened == []
    assert fs.verify(lock, reread=True).ok
    # A set: what is young is looked at once more.
    assert len(set(opened)) == sum(len(skill.files) for skill in lock.skills)


NAMES = ("SKILL.md", "a.txt", "sub/b.txt", "run.sh", "c.pyc")
SKILLS = ("one", "one/in", "two")
CONTENTS = ("", "x", "x\n", "x\r\n", "y\n")
EDITS = st.lists(
    st.tuples(
        st.sampled_from(SKILLS),
        st.sampled_from(NAMES),
        st.sampled_from((*CONTENTS, None, "+x", "-x", "same")),
    ),
    max_size=6,
)


def model(root: Path) -> dict[str, tuple[bytes, bool]]:
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            found[path.relative_to(root).as_posix()] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
    return found


def expected(before: dict[str, tuple[bytes, bool]], now: dict[str, tuple[bytes, bool]]) -> dict[str, str]:
    """What verifying tells, thought out anew from the files alone."""

    def skills(files: dict[str, tuple[bytes, bool]]) -> dict[str, list[str]]:
        tops = {p.rpartition("/")[0] for p in files if p.endswith("/SKILL.md")}
        own: dict[str, list[str]] = {top: [] for top in tops}
        for path in files:
            above = [top for top in tops if path.startswith(f"{top}/")]
            if above:
                own[max(above, key=len)].append(path)
        return own

    locked, present = skills(before), skills(now)
    wrong = {}
    for top in {*locked, *present}:
        if top not in present:
            wrong[f"{top}/"] = "missing"
            wrong.update({path: "missing" for path in locked[top] if not path.endswith(".pyc")})
            continue
        if top not in locked:
            wrong[f"{top}/"] = "extra" if any(top.startswith(f"{other}/") for other in locked) else "unlocked"
            continue
        mine = {}
        for path in {*locked[top], *present[top]}:
            if path.endswith(".pyc"):
                if path in present[top]:
                    wrong[path] = "ignored"
            elif path not in present[top]:
                mine[path] = "missing"
            elif path not in locked[top]:
                mine[path] = "extra"
            elif now[path][0] != before[path][0]:
                one, two = (data.replace(b"\r\n", b"\n") for data in (now[path][0], before[path][0]))
                mine[path] = "line endings" if one == two else "modified"
            elif now[path][1] != before[path][1]:
                mine[path] = "mode"
        if mine:
            wrong[f"{top}/"] = "modified"
        # A file that went from one skill to another is missing in one and extra in the other.
        wrong.update({path: status for path, status in mine.items() if wrong.get(path) != "missing"})
    return wrong


@settings(max_examples=60, deadline=None)
@given(EDITS, EDITS)
def test_a_random_edit_is_told_exactly(
    begin: list[tuple[str, str, str]], edits: list[tuple[str, str, str]]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write(root, {f"{skill}/{file}": "x\n" for skill in SKILLS for file in NAMES})

        def apply(some: list[tuple[str, str, str]]) -> None:
            for skill, file, edit in some:
                path = root / skill / file
                if edit is None:
                    path.unlink(missing_ok=True)
                elif edit in CONTENTS:
                    write(root, {f"{skill}/{file}": edit})
                elif path.exists() and edit != "same":
                    path.chmod(0o755 if edit == "+x" else 0o644)

        apply(begin)
        fs = SkillFileSystem(root, index=":memory:", skip_instance_cache=True)
        before = model(root)
        if not fs.skills():
            return
        lock = parse_lock(render_lock(fs.lock()))
        assert fs.verify(lock).ok == any(skill.files for skill in lock.skills)
        apply(edits)
        wrong = expected(before, model(root))
        found = fs.verify(lock)
        assert {p: s for p, s in told(found).items() if s != "missing" or p in wrong} == wrong
        assert found.ok == all(status == "ignored" for status in wrong.values())


@pytest.mark.parametrize("pair", [XXH3_PAIR, MD5_PAIR], ids=["xxh3", "md5"])
def test_contents_that_share_a_weak_hash_are_two(
    root: Path, tmp_path: Path, pair: tuple[bytes, bytes]
) -> None:
    one, two = pair
    write(root, {"a/SKILL.md": skill_md("a"), "a/x.bin": one, "a/both.bin": two})
    for path in (root / "a").iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    fs = SkillFileSystem(root, index=tmp_path / "index")
    lock = fs.lock()
    assert fs.verify(lock).ok
    assert len({file.digest for file in lock.skills[0].files}) == 3
    write(root, {"a/x.bin": two})
    os.utime(root / "a/x.bin", (1_700_000_000, 1_700_000_000))
    assert told(fs.verify(lock)) == {"a/": "modified", "a/x.bin": "modified"}
    with pytest.raises(IntegrityError):
        SkillFileSystem(root, index=tmp_path / "index", lock=lock).cat_file("a/x.bin")


# -- everywhere ----------------------------------------------------------------------------------------------


def test_the_same_digest_and_lock_everywhere(
    root: Path, open_fs: Opened, tmp_path: Path, bucket: Bucket
) -> None:
    write(root, FILES)
    served = {name: data.encode() if isinstance(data, str) else data for name, data in FILES.items()}
    memory = fsspec.filesystem("memory")
    packed = tmp_path / "skills.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in served.items():
            memory.pipe_file(f"/locking/{name}", data)
            archive.writestr(name, data)
    bucket.seed(served)
    options = bucket.server.target_options
    digest = digest_text(hashlib.sha256(served["pdf/lines.txt"]).digest())
    stores = [
        open_fs(),
        SkillFileSystem("memory://locking", index=":memory:", skip_instance_cache=True),
        SkillFileSystem(f"zip://::file://{packed}", index=":memory:", skip_instance_cache=True),
        SkillFileSystem(bucket.url, index=":memory:", target_options=options, skip_instance_cache=True),
    ]
    try:
        locks = [fs.lock() for fs in stores]
        assert all(lock == locks[0] for lock in locks)
        for fs in stores:
            assert fs.verify(locks[0]).ok
            assert [fs.digest(s.path) for s in fs.skills()] == [
                digest_text(s.digest) for s in locks[0].skills
            ]
            assert fs.digest("pdf/lines.txt") == digest
        (root / "pdf/b.bin").chmod(0o755)
        assert told(stores[0].verify(locks[1]))["pdf/b.bin"] == "mode"
        assert told(stores[1].verify(stores[0].lock())) == {"pdf/.env": "ignored"}  # which cannot know
    finally:
        memory.rm("/locking", recursive=True)


def test_content_hashes_on_a_bucket(bucket: Bucket) -> None:
    bucket.seed({"a/SKILL.md": b"one", "a/x": b"same", "b/SKILL.md": b"two", "b/y": b"same"})
    options = bucket.server.target_options
    fs = SkillFileSystem(bucket.url, index=":memory:", target_options=options, skip_instance_cache=True)
    digest = f"sha256:{hashlib.sha256(b'same').hexdigest()}"
    md5 = f"md5:{hashlib.md5(b'same').hexdigest()}"
    for ref in (digest, md5, "xxh3:" + "0" * 32):
        with pytest.raises(NotIndexedError):
            fs.find_content(ref)
        with pytest.raises(NotIndexedError):
            fs.entry(ref)
    fs.index_all()
    for ref in (digest, md5, str(fs.entry("b/y").hash)):
        assert [entry.path for entry in fs.find_content(ref)] == ["a/x", "b/y"]
        assert fs.entry(ref).path == "a/x"
        assert [entry.path for entry in fs.find_content(ref, base_paths=["b"])] == ["b/y"]
    for ref in ("sha256:" + "0" * 64, "md5:" + "0" * 32, "xxh3:" + "0" * 32):
        with pytest.raises(NotFoundError):
            fs.find_content(ref)


def test_a_lock_of_json_tools(root: Path, open_fs: Opened) -> None:
    """What another program makes of it is none any more, but it can read it."""
    write(root, FILES)
    text = render_lock(open_fs().lock())
    skills = json.load(io.BytesIO(text))["skills"]
    assert [skill["path"] for skill in skills] == ["other", "pdf", "pdf/inner"]
    with pytest.raises(IntegrityError, match="not written as skillfs writes it"):
        parse_lock(json.dumps(json.loads(text), indent=2).encode())
