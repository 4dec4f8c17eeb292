"""A filesystem with a lock: what it does not name exactly is neither read nor told."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from mcp.shared.exceptions import MCPError

from skillfs import (
    ChangedError,
    IntegrityError,
    InvalidArgumentError,
    NotFoundError,
    SkillFileSystem,
    SkillFSError,
)
from skillfs.core.lock import Lock
from skillfs.faces.mcp.listed import Listed
from skillfs.faces.mcp.resources import Resources
from skillfs.faces.mcp.skills import SKIPPED, Skills
from skillfs.faces.mcp.uris import uri_of
from skillfs.history.locking import write_lock
from skillfs.tools import call
from tests.conftest import skill_md, write

if TYPE_CHECKING:
    from tests.servers.s3 import Bucket

Opened = Callable[..., SkillFileSystem]

EVIL = "evilmarker"
FILES = {
    "a/SKILL.md": skill_md("a", "About a."),
    "a/x.md": "# One\nsome words\n",
    "b/SKILL.md": skill_md("b", "About b."),
    "b/x.md": "# Two\nsome words\n",
    "c/SKILL.md": skill_md("c", "About c."),
}
WRONG = {
    "b/SKILL.md": f"---\nname: {EVIL}\ndescription: {EVIL} words.\nlicense: {EVIL}\n{EVIL}: 1\n---\n{EVIL}\n",
    "a/new.md": f"some words {EVIL}\n",
    "a/x.md": f"# One\nsome words {EVIL}\n",
    f"new/{EVIL}.md": "some words",
    "new/SKILL.md": f"---\nname: {EVIL}2\ndescription: {EVIL} words.\n---\n",
}
UNREADABLE = ("b/SKILL.md", "a/new.md", "a/x.md", "new/SKILL.md")


def answered(answer: Any) -> None:
    """Raise what the answer of a tool tells of an error."""
    if not answer["success"]:
        assert answer["output"] == ""
        error = {"integrity": IntegrityError, "not_found": NotFoundError}[answer["error"]["code"]]
        raise error(answer["error"]["message"])


READINGS: dict[str, Callable[[SkillFileSystem, str], object]] = {
    "get_content": lambda fs, path: fs.get_content(path),
    "nothing of it": lambda fs, path: fs.get_content(path, length=0),
    "behind its end": lambda fs, path: fs.get_content(path, start=10**9),
    "encoding": lambda fs, path: fs.get_content(path, encoding="latin-1"),
    "by uuid": lambda fs, path: fs.get_content(fs.entry(path).uuid),
    "by id": lambda fs, path: fs.get_lines(fs.entry(path).id, 1, 1),
    "get_lines": lambda fs, path: fs.get_lines(path),
    "some lines": lambda fs, path: fs.get_lines(path, 1, 1, most_characters=1),
    "outline": lambda fs, path: fs.outline(path),
    "cat_file": lambda fs, path: fs.cat_file(path),
    "range": lambda fs, path: fs.cat_file(path, 1, 2),
    "empty range": lambda fs, path: fs.cat_file(path, 2, 2),
    "head": lambda fs, path: fs.head(path, 1),
    "tail": lambda fs, path: fs.tail(path, 1),
    "open": lambda fs, path: fs.open(path),
    "read_text": lambda fs, path: fs.read_text(path),
    "cat_ranges": lambda fs, path: fs.cat_ranges([path], 0, 1, on_error="raise"),
    "checksum": lambda fs, path: fs.checksum(path),
    "read_file": lambda fs, path: answered(call(fs, "read_file", {"path": path})),
    "skill_get_content": lambda fs, path: call(fs, "skill_get_content", {"id": path}),
    "skill_outline": lambda fs, path: call(fs, "skill_outline", {"id": path}),
    "resource": lambda fs, path: Resources(fs, Listed(fs)).read(uri_of(path)),
}


@pytest.fixture
def lock(root: Path, open_fs: Opened) -> Lock:
    """Of what is at `root` before it goes wrong."""
    write(root, FILES)
    lock = open_fs().lock()
    write(root, WRONG)
    return lock


def everything(fs: SkillFileSystem, prefix: str = "") -> str:
    """All that listings and searches tell."""
    told: list[object] = [
        *(fs.skills(), fs.skills(fold=True), fs.problems(), fs.to_prompt(), str(fs.skill_tree())),
        *(str(fs.skill_tree("/", details=True, hidden=True)), fs.skill_tree(details=True).to_dict()),
        [fs.skill(f"{prefix}{name}") for name in ("a", "b", "c", "new")],
        [fs.search(words, limit=100) for words in ("some words", "about", "nothing else")],
        call(fs, "skill_tree", {}),
        call(fs, "skill_search", {"query": "some words"}),
    ]
    return "\n".join(map(repr, told)).replace(f"{EVIL}.md", "")


@pytest.mark.parametrize("way", READINGS)
@pytest.mark.parametrize("several", [False, True])
def test_every_reading_is_refused(root: Path, open_fs: Opened, lock: Lock, way: str, several: bool) -> None:
    fs, prefix = open_fs(lock=lock), ""
    if several:
        whole = SkillFileSystem({"m": write(root.parent / "fresh", FILES)}, index=":memory:").lock()
        fs, prefix = SkillFileSystem({"m": root}, index=":memory:", lock=whole), "m/"
    for path in UNREADABLE:
        with pytest.raises(IntegrityError) as error:
            READINGS[way](fs, prefix + path)
        assert "whoever keeps the lock has to" in str(error.value)
        assert EVIL not in str(error.value)
    for path in ("a/SKILL.md", "b/x.md", "c/SKILL.md"):
        READINGS[way](fs, prefix + path)
    with pytest.raises((NotFoundError, MCPError)):
        READINGS[way](fs, f"{prefix}nowhere.md")


@pytest.mark.parametrize("kind", ["one", "several", "memory"])
def test_nothing_is_told_of_what_is_not_locked(
    root: Path, open_fs: Opened, lock: Lock, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = ""
    if kind == "one":
        fs = open_fs(lock=lock)
    elif kind == "several":
        whole = SkillFileSystem({"m": write(root.parent / "fresh", FILES)}, index=":memory:").lock()
        fs, prefix = SkillFileSystem({"m": root}, index=":memory:", lock=whole), "m/"
    else:
        memory = fsspec.filesystem("memory")
        for path, text in {**FILES, **WRONG}.items():
            memory.pipe_file(f"/enforced/{path}", text.encode())
        fs = SkillFileSystem("memory://enforced", index=":memory:", lock=lock, skip_instance_cache=True)
    try:
        assert EVIL not in everything(fs, prefix)
        told = {skill.path: (skill.name, skill.description) for skill in fs.skills()}
        assert told == {
            f"{prefix}a": ("a", "About a."),
            f"{prefix}b": ("b", ""),
            f"{prefix}c": ("c", "About c."),
            f"{prefix}new": ("new", ""),
        }
        wrong = [problem.path for problem in fs.problems() if problem.code == "lock-mismatch"]
        assert wrong == [f"{prefix}b/SKILL.md", f"{prefix}new/SKILL.md"]
        for name in (EVIL, f"{EVIL}2"):
            with pytest.raises(NotFoundError):
                fs.skill(name)
            with pytest.raises(NotFoundError):
                fs.entry(f"name:{name}")
        assert fs.entry("name:b").path == f"{prefix}b"
        assert [hit.path for hit in fs.search("some words").hits] == [f"{prefix}b/x.md"]
        assert fs.search("some words").hits[0].skill_name == "b"
        prompt = fs.to_prompt()
        assert "<name>a</name>" in prompt
        assert "<name>b</name>" not in prompt
        if kind != "several":
            page = Skills(fs, Listed(fs)).page(None)
            assert [skill["frontmatter"]["name"] for skill in page["skills"]] == ["a", "c"]
            assert [skipped["uri"] for skipped in page["_meta"][SKIPPED]] == [
                uri_of("b/SKILL.md"), uri_of("new/SKILL.md"),
            ]  # fmt: skip
            assert EVIL not in json.dumps(page).replace(f"{EVIL}.md", "")
    finally:
        if kind == "memory":
            memory.rm("/enforced", recursive=True)


def test_what_is_mended_is_told_again(root: Path, open_fs: Opened, lock: Lock) -> None:
    fs = open_fs(lock=lock, max_age=0)
    assert fs.skill("b").description == ""
    write(root, FILES)
    assert fs.skill("b").description == "About b."
    assert fs.get_content("a/x.md").text == FILES["a/x.md"]
    assert f"{EVIL}2" not in everything(fs)
    write(root, WRONG)
    assert EVIL not in everything(fs)


def test_an_unlocked_skill_takes_no_name_from_a_locked_one(root: Path, open_fs: Opened) -> None:
    write(root, FILES)
    lock = open_fs().lock()
    write(root, {"0/SKILL.md": skill_md("a", "Another a."), "0/a/SKILL.md": "named a by its folder"})
    assert open_fs().skill("a").path == "0"
    fs = open_fs(lock=lock)
    assert fs.skill("a").path == "a"
    assert fs.skill("a").shadowed_by is None
    assert "<location>a/SKILL.md</location>" in fs.to_prompt()


def test_a_content_is_read_where_it_is_locked(root: Path, open_fs: Opened) -> None:
    write(root, FILES)
    lock = open_fs().lock()
    write(root, {"a/copy.md": FILES["b/x.md"]})
    fs = open_fs(lock=lock)
    content = str(fs.entry("b/x.md").hash)
    assert [entry.path for entry in fs.find_content(content)] == ["a/copy.md", "b/x.md"]
    assert fs.get_content(content).path == "b/x.md"
    assert open_fs().get_content(content).path == "a/copy.md"


def test_of_contents_only_one_that_is_locked_answers(root: Path, open_fs: Opened) -> None:
    """A file that is named, but took on the content of another, does not stand in its way."""
    write(root, FILES)
    lock = open_fs().lock()
    write(root, {"a/x.md": FILES["b/x.md"]})
    fs = open_fs(lock=lock)
    content = fs.digest("b/x.md")
    assert fs.digest("a/x.md") == content
    assert fs.get_content(content).path == "b/x.md"


def test_what_was_learned_of_a_version_is_not_believed(root: Path, tmp_path: Path) -> None:
    """What a file held when it was looked at need not be what was hashed, though its signature is the same.

    So it is where bytes change behind a mapping of the file into memory, or share the ETag of a bucket.
    """
    write(root, FILES)
    fs = SkillFileSystem(root, index=tmp_path / "index")
    lock = fs.lock()
    write(root, WRONG)
    fs.sync()
    assert fs.skill("b").description == f"{EVIL} words."
    locked = SkillFileSystem(root, index=tmp_path / "index", lock=lock, max_age=1_000)
    catalog = locked._engine.catalog
    rows = {path: catalog.by_path(tuple(path.split("/"))) for path in ("b/SKILL.md", "a/x.md")}
    keys = {row.key: lock.files()[path] for path, row in rows.items() if row is not None}
    with locked._engine.database.write() as connection:
        for key, file in keys.items():
            connection.execute("INSERT OR REPLACE INTO sha256 VALUES (?, ?)", (key, file.digest))
            connection.execute("UPDATE entry SET size=? WHERE key=?", (file.size, key))
    assert EVIL not in repr(
        [locked.skills(), locked.to_prompt(), str(locked.skill_tree()), locked.skill("b")]
    )
    assert EVIL not in repr(locked.search("some words", limit=100))
    assert catalog.sha256s(list(keys)) == {key: file.digest for key, file in keys.items()}


def test_facts_are_of_the_bytes_that_are_locked(root: Path, tmp_path: Path) -> None:
    write(root, FILES)
    fs = SkillFileSystem(root, index=tmp_path / "index")
    lock = fs.lock()
    fs.index_all()
    true = fs.get_lines("a/x.md")
    locked = SkillFileSystem(root, index=tmp_path / "index", lock=lock, max_age=1_000)
    with locked._engine.database.write() as connection:
        connection.execute("UPDATE text SET md5=zeroblob(16), characters=3, lines=1")
    assert locked.get_lines("a/x.md") == true
    assert locked.get_content("a/x.md").text == FILES["a/x.md"]


def test_a_large_main_file(root: Path, tmp_path: Path) -> None:
    """What is known of it comes from its beginning, and all of it counts."""
    large = skill_md("a", "About a.") + "x" * 80_000
    write(root, {**FILES, "a/SKILL.md": large})
    fs = SkillFileSystem(root, index=tmp_path / "index")
    lock = fs.lock()
    locked = SkillFileSystem(root, index=tmp_path / "index", lock=lock)
    assert locked.skill("a").description == "About a."
    assert [skill.description for skill in locked.skills()] == ["About a.", "About b.", "About c."]
    write(root, {"a/SKILL.md": f"{large[:-1]}y"})
    locked.sync()
    assert [skill.description for skill in locked.skills()] == ["", "About b.", "About c."]
    write(root, {"a/SKILL.md": large})
    locked.sync()
    assert locked.skill("a").description == "About a."
    fresh = SkillFileSystem(root, index=tmp_path / "index", lock=lock, max_age=1_000)
    assert fresh.skill("a").description == "About a."
    with fresh._engine.database.write() as connection:  # the same version, and another beginning
        connection.execute("UPDATE skill SET head=zeroblob(32)")
    assert {skill.description for skill in fresh.skills()} == {""}


def test_no_text_that_was_kept_comes_out_of_a_difference(root: Path, tmp_path: Path) -> None:
    write(root, FILES)
    options: dict[str, Any] = {"index": tmp_path / "index", "objects": tmp_path / "objects"}
    fs = SkillFileSystem(root, **options)
    lock = fs.lock()
    good = fs.snapshot("good")
    write(root, {"a/x.md": WRONG["a/x.md"]})
    fs.snapshot("evil")
    write(root, {"a/x.md": "else\n"})
    fs.snapshot("else")
    assert EVIL in fs.diff_text("good", "evil")
    write(root, FILES)
    fs.sync()
    locked = SkillFileSystem(root, lock=lock, **options)
    for one, other in (("evil", "good"), ("good", "evil"), ("evil", None), (None, "evil"), ("evil", "else")):
        for bases in (None, ["a"]):
            with pytest.raises(IntegrityError, match="not as the lock names it"):
                locked.diff_text(one, other, base_paths=bases)
        assert [item.path for item in locked.diff(one, other).items] == ["a/x.md"]
    assert locked.diff_text(good) == ""
    other = SkillFileSystem(root, lock=fs.lock(["b"]), **options)
    several = SkillFileSystem({"m": root}, lock=lock, index=":memory:", objects=options["objects"])
    for one in (other, several):
        with pytest.raises(IntegrityError):
            one.diff_text("evil", "else")


def test_of_a_snapshot(root: Path, tmp_path: Path) -> None:
    write(root, FILES)
    (root / "a/x.md").chmod(0o755)
    objects = tmp_path / "objects"
    fs = SkillFileSystem(root, index=":memory:", objects=objects)
    lock = fs.lock()
    fs.snapshot("v1")
    write(root, WRONG)
    fs.snapshot("v2")
    then = SkillFileSystem(at="v1", objects=objects, index=":memory:", lock=lock)
    assert then.lock() == lock
    assert then.verify(lock).ok
    assert then.get_content("a/x.md").text == FILES["a/x.md"]
    assert then.skill("b").description == "About b."
    later = SkillFileSystem(at="v2", objects=objects, index=":memory:", lock=lock)
    assert not later.verify(lock).ok
    with pytest.raises(IntegrityError, match="lock"):
        later.get_content("a/x.md")
    assert EVIL not in everything(later)


def test_links(root: Path, open_fs: Opened) -> None:
    write(root, {**FILES, "out/SKILL.md": skill_md("out"), "out/t.md": "target", "out/u.md": "other"})
    (root / "a/link.md").symlink_to("../out/t.md")
    (root / "a/folder").symlink_to("../out")
    whole = open_fs().lock()
    only_a = open_fs().lock(["a"])
    for lock in (whole, only_a):
        assert open_fs(lock=lock).cat_file("a/link.md") == b"target"
    assert open_fs(lock=whole).cat_file("a/folder/u.md") == b"other"
    with pytest.raises(IntegrityError, match="does not name"):
        open_fs(lock=only_a).cat_file("a/folder/u.md")
    with pytest.raises(IntegrityError, match="does not name"):
        open_fs(lock=only_a).cat_file("out/t.md")
    (root / "a/link.md").unlink()
    (root / "a/link.md").symlink_to("../out/u.md")  # locked by itself, but not as what this link leads to
    with pytest.raises(IntegrityError, match="not as the lock names it"):
        open_fs(lock=whole).cat_file("a/link.md")


def test_a_lock_is_read_once_and_goes_along(root: Path, open_fs: Opened, lock: Lock, tmp_path: Path) -> None:
    file = tmp_path / "skills.lock"
    write_lock(file, lock)
    fs = SkillFileSystem(root, index=tmp_path / "index", lock=file, base_paths=["a", "c"])
    write_lock(file, open_fs().lock())
    for one in (fs, pickle.loads(pickle.dumps(fs))):
        with pytest.raises(IntegrityError):
            one.get_content("a/x.md")
        assert one.get_content("c/SKILL.md").text == FILES["c/SKILL.md"]
        assert one.skill("c").description == "About c."
        assert EVIL not in repr(one.skills())
    child = os.fork()
    if child == 0:
        try:
            fs.get_content("a/x.md")
        except IntegrityError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert (
        SkillFileSystem(root, index=":memory:", lock=str(file)).get_content("a/x.md").text == WRONG["a/x.md"]
    )
    for path, kind in (
        (tmp_path / "none", NotFoundError),
        (7, InvalidArgumentError),
        (b"x", InvalidArgumentError),
    ):
        with pytest.raises(kind):
            SkillFileSystem(root, index=":memory:", lock=path)  # type: ignore[arg-type]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(IntegrityError):
        SkillFileSystem(root, index=":memory:", lock=file)


def test_confined_mounts_keep_the_lock(root: Path, lock: Lock) -> None:
    whole = SkillFileSystem({"m": write(root.parent / "fresh", FILES)}, index=":memory:").lock()
    fs = SkillFileSystem({"m": root}, index=":memory:", lock=whole, base_paths=["m/a", "m/b"])
    for path in ("m/a/x.md", "m/b/SKILL.md"):
        with pytest.raises(IntegrityError):
            fs.cat_file(path)
        with pytest.raises(IntegrityError):
            fs.get_content(path, base_paths=["m"])
    with pytest.raises(NotFoundError):
        fs.cat_file("m/c/SKILL.md")
    assert EVIL not in repr(fs.skills(base_paths=["m/b"]))


def test_what_is_written_is_not_read_before_it_is_locked(root: Path, open_fs: Opened) -> None:
    write(root, FILES)
    fs = open_fs(lock=open_fs().lock(), writable=True)
    fs.pipe_file("a/x.md", b"mine")
    with pytest.raises(IntegrityError):
        fs.cat_file("a/x.md")
    assert fs.verify(open_fs().lock()).ok
    assert open_fs(lock=fs.lock()).cat_file("a/x.md") == b"mine"


def test_large_files(root: Path, open_fs: Opened, tmp_path: Path) -> None:
    """Of them a part is read, and the whole is what counts."""
    line = "0123456789" * 12 + "\n"
    write(root, {**FILES, "a/large.md": line * 30_000})
    lock = open_fs().lock()
    fs = SkillFileSystem(root, index=tmp_path / "index", lock=lock)
    for _ in range(2):
        assert fs.get_content("a/large.md", 121 * 20_000, 121).text == line
        assert fs.cat_file("a/large.md", -121) == line.encode()
        assert fs.open("a/large.md").read() == (line * 30_000).encode()
    opened = fs.open("a/large.md")
    with open(root / "a/large.md", "r+b") as file:
        file.seek(5)
        file.write(b"X")
    for work in (
        lambda: fs.get_content("a/large.md", 121 * 20_000, 121),
        lambda: fs.get_content("a/large.md", length=0),
        lambda: fs.cat_file("a/large.md", -121),
        lambda: fs.open("a/large.md"),
    ):
        with pytest.raises(IntegrityError):
            work()
    with pytest.raises(SkillFSError) as error:
        opened.read()
    assert error.value.code in ("integrity", "changed")


def test_on_a_bucket(bucket: Bucket) -> None:
    bucket.seed({path: text.encode() for path, text in FILES.items()})
    options: dict[str, Any] = {
        "target_options": bucket.server.target_options, "index": ":memory:", "skip_instance_cache": True,
    }  # fmt: skip
    lock = SkillFileSystem(bucket.url, **options).lock()
    fs = SkillFileSystem(bucket.url, lock=lock, **options)
    assert fs.get_content("a/x.md").text == FILES["a/x.md"]
    assert [skill.description for skill in fs.skills()] == ["About a.", "About b.", "About c."]
    bucket.seed({path: text.encode() for path, text in WRONG.items()})
    with pytest.raises(IntegrityError):
        fs.get_content("a/x.md")
    fs.sync()
    assert EVIL not in everything(fs)
    bucket.seed({path: text.encode() for path, text in FILES.items()})
    assert fs.get_content("a/x.md").text == FILES["a/x.md"]  # what a listing said is not what counts


CHANGER = """
import os, random, sys, time
path, good = sys.argv[1], open(sys.argv[1], "rb").read()
bad = [b"EVIL" + good[4:], good + b"EVIL", good[: len(good) // 2], b"", good[:-4] + b"EVIL"]
print("ready", flush=True)
while True:
    what = random.choice(bad)
    way = random.randrange(4)
    if way == 0:
        with open(path + ".new", "wb") as file:
            file.write(what)
        os.replace(path + ".new", path)
    elif way == 1:
        with open(path, "r+b") as file:
            file.write(what)
            file.truncate(len(what))
    elif way == 2:
        with open(path, "ab") as file:
            file.write(b"EVIL")
    else:
        os.truncate(path, random.randrange(len(good)))
    with open(path + ".good", "wb") as file:
        file.write(good)
    os.replace(path + ".good", path)
    time.sleep(random.random() * 0.01)
"""


def read_against_a_changer(root: Path, open_fs: Opened, size: int, readings: int) -> None:
    """Some readings are refused; all others give the locked bytes."""
    chooser = random.Random(7)
    good = bytes(chooser.choices(b"abcdefgh\n", k=size))
    write(root, {"a/SKILL.md": skill_md("a"), "a/x.md": good})
    fs = open_fs(lock=open_fs().lock(), max_age=0)
    given = refused = 0
    with subprocess.Popen(
        [sys.executable, "-c", CHANGER, str(root / "a/x.md")], stdout=subprocess.PIPE
    ) as changer:
        try:
            assert changer.stdout is not None
            changer.stdout.readline()
            number = 0
            until = time.monotonic() + 60
            while number < readings or ((given < 5 or not refused) and time.monotonic() < until):
                number += 1
                start = chooser.randrange(size)
                try:
                    if number % 4 == 0:
                        found, wanted = fs.cat_file("a/x.md"), good
                    elif number % 4 == 1:
                        found, wanted = fs.cat_file("a/x.md", start, start + 99), good[start : start + 99]
                    elif number % 4 == 2:
                        text = fs.get_content("a/x.md", start, 50).text
                        found, wanted = text.encode(), good[start : start + 50]
                    else:
                        with fs.open("a/x.md") as file:
                            file.seek(start)
                            found, wanted = file.read(70), good[start : start + 70]
                except (IntegrityError, ChangedError, NotFoundError):
                    refused += 1
                    continue
                assert found == wanted
                given += 1
        finally:
            changer.kill()
    assert given
    assert refused


@pytest.mark.parametrize("size", [3_000, 1_200_000])
def test_only_locked_bytes_come_out_while_a_file_changes(root: Path, open_fs: Opened, size: int) -> None:
    read_against_a_changer(root, open_fs, size, 300 if size < 1 << 20 else 60)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("size", [1, 3_000, 300_000, 2_000_000])
def test_only_locked_bytes_come_out_of_thousands_of_readings(root: Path, open_fs: Opened, size: int) -> None:
    read_against_a_changer(root, open_fs, size, 20_000 if size < 1 << 20 else 3_000)
