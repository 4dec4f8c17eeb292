from __future__ import annotations

import atexit
import gc
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from skillfs import SkillFileSystem
from skillfs.core.digest import Namespace, id_of_uuid, xxh3
from skillfs.core.model import Place
from skillfs.core.textfacts import scan_text
from skillfs.errors import InvalidArgumentError, StoreUnavailableError
from skillfs.index.catalog import Catalog
from skillfs.index.identities import REMEMBERED_SECONDS
from skillfs.index.rows import ROOT, Row, RowKind, Visibility
from skillfs.stores.base import Store
from skillfs.stores.local import LocalFolder, LocalStore
from skillfs.sync import engine as engine_module
from skillfs.sync import learned as learned_module
from skillfs.sync import taking as taking_module
from skillfs.sync.engine import Engine
from skillfs.sync.gather import find_dirty
from skillfs.sync.marks import Marks
from tests.conftest import skill_md, write
from tests.sync.faulty import Faults, Keeper, wait_until_closed
from tests.sync.harness import (
    NAMESPACE,
    Follower,
    check,
    check_like_new,
    make_engine,
    problems,
    shown,
    states,
    uuid_at,
    uuids,
    with_coarse_stamps,
)

SKILL = {"pdf/SKILL.md": skill_md("pdf"), "pdf/refs/x.md": "x\n", "pdf/refs/y.md": "y\n"}


@pytest.fixture
def engine(root: Path) -> Engine:
    """Of a store with one skill, opened."""
    write(root, SKILL)
    made = make_engine(root)
    made.sync()
    return made


def synced(engine: Engine, root: Path) -> None:
    """Sync, and check everything that can be checked of a state."""
    engine.sync()
    check(engine, root)
    check_like_new(engine, root)


def settle(engine: Engine) -> None:
    """Let the stamps of what was just written become old enough to be trusted."""
    time.sleep(0.025)
    engine.sync()
    assert find_dirty(engine.store, engine.catalog) == set()


def kinds(engine: Engine, since: int) -> list[tuple[str, str]]:
    _, reset, items = engine.journal.since(since)
    assert not reset
    return sorted((item.kind, item.path) for item in items)


# -- identity ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("pdf/refs/x.md", "pdf/refs/z.md"),
        ("pdf/refs/x.md", "pdf/x.md"),
        ("pdf/refs", "pdf/references"),
        ("pdf", "pdfs"),
        ("pdf/SKILL.md", "pdf/OLD.md"),
    ],
)
def test_rename_keeps_uuids(engine: Engine, root: Path, old: str, new: str) -> None:
    before = uuids(engine)
    (root / old).rename(root / new)
    if old == "pdf/SKILL.md":
        write(root, {"pdf/SKILL.md": "another\n"})  # else nothing could be seen any more
    synced(engine, root)
    after = uuids(engine)
    if old == "pdf/SKILL.md":
        assert after["pdf/SKILL.md"] == before["pdf/SKILL.md"]  # the path that exists again keeps its entry
        assert after["pdf/OLD.md"] not in before.values()
        return
    assert after == {
        p.replace(old, new, 1) if f"{p}/".startswith(f"{old}/") else p: u for p, u in before.items()
    }


@pytest.mark.parametrize(
    "scope", ["", "pdf", "pdf/refs", "other", "pdf/refs/x.md", "nothing/at/all/of/this/kind/x"]
)
def test_move_between_skills_keeps_uuids_whatever_was_asked_for(root: Path, scope: str) -> None:
    write(root, SKILL | {"other/SKILL.md": skill_md("other")})
    engine = make_engine(root)
    engine.sync()
    before = uuids(engine)
    (root / "pdf/refs").rename(root / "other/refs")
    engine.sync(scope)
    engine.sync()
    check(engine, root)
    assert uuid_at(engine, "other/refs/x.md") == before["pdf/refs/x.md"]
    assert uuid_at(engine, "other/refs") == before["pdf/refs"]


def test_copy_is_new(engine: Engine, root: Path) -> None:
    before = uuids(engine)
    shutil.copytree(root / "pdf", root / "copy")
    synced(engine, root)
    after = uuids(engine)
    assert {p: after[p] for p in before} == before
    assert len(set(after.values())) == len(after)


def test_swapped_names_keep_their_paths(engine: Engine, root: Path) -> None:
    before = uuids(engine)
    refs = root / "pdf/refs"
    (refs / "x.md").rename(refs / "z")
    (refs / "y.md").rename(refs / "x.md")
    (refs / "z").rename(refs / "y.md")
    revision = engine.journal.revision()
    synced(engine, root)
    assert uuids(engine) == before
    assert kinds(engine, revision) == [("modified", "pdf/refs/x.md"), ("modified", "pdf/refs/y.md")]


def test_move_onto_another_file(engine: Engine, root: Path) -> None:
    before = uuids(engine)
    (root / "pdf/refs/x.md").replace(root / "pdf/refs/y.md")
    revision = engine.journal.revision()
    synced(engine, root)
    assert uuid_at(engine, "pdf/refs/y.md") == before["pdf/refs/y.md"]
    assert kinds(engine, revision) == [("modified", "pdf/refs/y.md"), ("removed", "pdf/refs/x.md")]


def test_moved_away_replaced_and_moved_back(engine: Engine, root: Path) -> None:
    first = uuid_at(engine, "pdf/refs/x.md")
    (root / "pdf/refs/x.md").rename(root / "pdf/away.md")
    synced(engine, root)
    write(root, {"pdf/refs/x.md": "new here\n"})
    synced(engine, root)
    second = uuid_at(engine, "pdf/refs/x.md")
    assert second == Namespace(NAMESPACE).uuid_of("pdf/refs/x.md", 2)
    (root / "pdf/refs/x.md").unlink()
    engine.sync()
    (root / "pdf/away.md").rename(root / "pdf/refs/x.md")
    synced(engine, root)
    assert uuid_at(engine, "pdf/refs/x.md") == first
    (root / "pdf/refs/x.md").rename(root / "pdf/again.md")
    engine.sync()
    write(root, {"pdf/refs/x.md": "third\n"})
    engine.sync()
    third = uuid_at(engine, "pdf/refs/x.md")
    assert third == Namespace(NAMESPACE).uuid_of("pdf/refs/x.md", 3)
    assert uuid_at(engine, "pdf/again.md") == first


@pytest.mark.parametrize(
    ("later", "births"), [(0.0, 1), (REMEMBERED_SECONDS - 60, 1), (REMEMBERED_SECONDS + 60, 2)]
)
def test_deleted_and_written_again(
    engine: Engine, root: Path, monkeypatch: pytest.MonkeyPatch, later: float, births: int
) -> None:
    (root / "pdf/refs/x.md").unlink()
    engine.sync()
    assert uuid_at(engine, "pdf/refs/x.md") is None
    now = time.time() + later
    monkeypatch.setattr("skillfs.sync.engine.time.time", lambda: now)
    write(root, {"pdf/refs/x.md": "again\n"})
    engine.sync()
    born = uuid_at(engine, "pdf/refs/x.md")
    assert born == Namespace(NAMESPACE).uuid_of("pdf/refs/x.md", births)
    assert born is not None
    row = engine.catalog.by_uuid(born, id_of_uuid(born))
    assert row is not None
    assert row.path == "pdf/refs/x.md"


def test_atomic_save_and_edit_keep_the_uuid(engine: Engine, root: Path) -> None:
    before = uuids(engine)
    write(root, {"pdf/refs/x.md~": "saved\n"})
    os.replace(root / "pdf/refs/x.md~", root / "pdf/refs/x.md")
    synced(engine, root)
    write(root, {"pdf/refs/x.md": "edited\n"})
    synced(engine, root)
    assert uuids(engine) == before


@pytest.mark.parametrize("coarse", [False, True])
def test_edit_of_equal_size_within_one_tick_with_its_time_restored(
    engine: Engine, root: Path, monkeypatch: pytest.MonkeyPatch, coarse: bool
) -> None:
    if coarse:
        with_coarse_stamps(monkeypatch)
    path = root / "pdf/refs/x.md"
    stamp = path.stat().st_mtime_ns
    for n in range(50):
        path.write_text(f"{n:02}")
        os.utime(path, ns=(stamp, stamp))
        engine.sync()
        row = engine.catalog.by_path(("pdf", "refs", "x.md"))
        assert row is not None
        assert row.content == xxh3(b"%02d" % n)
    (root / "pdf").rename(root / "other")  # what moves along is not read again unless it has to be
    (root / "other/refs/x.md").write_text("zz")
    os.utime(root / "other/refs/x.md", ns=(stamp, stamp))
    synced(engine, root)


def test_touch_is_no_change(engine: Engine, root: Path) -> None:
    revision = engine.journal.revision()
    for path in [root, *root.rglob("*")]:
        os.utime(path)
    synced(engine, root)
    assert engine.journal.revision() == revision


@pytest.mark.parametrize("moved", [False, True])
def test_rebuilt_facts_keep_identities(root: Path, tmp_path: Path, moved: bool) -> None:
    write(root, SKILL)
    index = tmp_path / "index.sqlite"
    engine = make_engine(root, index)
    engine.sync()
    if moved:
        (root / "pdf").rename(root / "docs")
        engine.sync()
        write(root, {"pdf/SKILL.md": "another\n"})
        engine.sync()
    before = uuids(engine)
    engine.database.close()
    for file in tmp_path.glob("index.sqlite*"):
        if "identity" not in file.name:
            file.unlink()
    again = make_engine(root, index)
    again.sync()
    assert uuids(again) == before
    check(again, root)
    engine.sync()  # the one that is still open notices
    assert uuids(engine) == before


# -- skills ------------------------------------------------------------------------------------------------


def test_nested_skill_comes_and_goes(engine: Engine, root: Path) -> None:
    before = uuids(engine)
    revision = engine.journal.revision()
    follower = Follower(engine)
    write(root, {"pdf/refs/SKILL.md": skill_md("refs")})
    synced(engine, root)
    assert kinds(engine, revision) == [
        ("added", "pdf/refs/SKILL.md"),
        ("modified", "pdf/refs"),
        ("modified", "pdf/refs/x.md"),
        ("modified", "pdf/refs/y.md"),
    ]
    assert {p: u for p, u in uuids(engine).items() if p in before} == before
    row = engine.catalog.by_path(("pdf", "refs", "x.md"))
    assert row is not None
    assert row.skill is not None
    assert row.skill.path == "pdf/refs"
    revision = engine.journal.revision()
    (root / "pdf/refs/SKILL.md").unlink()
    synced(engine, root)
    assert ("removed", "pdf/refs/SKILL.md") in kinds(engine, revision)
    assert uuids(engine) == before
    follower.catch_up()
    assert follower.states == Follower(engine).states


def test_without_its_skill_md_nothing_is_seen(engine: Engine, root: Path) -> None:
    before = uuids(engine)
    follower = Follower(engine)
    (root / "pdf/SKILL.md").unlink()
    synced(engine, root)
    assert shown(engine).keys() == {""}
    follower.catch_up()
    assert follower.states.keys() == {before[""]}
    write(root, {"pdf/SKILL.md": skill_md("pdf")})
    synced(engine, root)
    assert uuids(engine) == before
    follower.catch_up()
    assert follower.states == Follower(engine).states


def test_root_is_a_skill(engine: Engine, root: Path) -> None:
    before = uuids(engine)
    write(root, {"SKILL.md": "at the top\n", "loose.md": "loose\n", "empty/x": "x"})
    synced(engine, root)
    row = engine.catalog.by_path(("loose.md",))
    assert row is not None
    assert row.skill is not None
    assert (row.skill.path, row.skill.key) == ("", ROOT)
    assert engine.catalog.skill_row(ROOT) is not None
    (root / "SKILL.md").unlink()
    synced(engine, root)
    assert uuids(engine) == before


def test_folder_moved_out_of_a_skill_onto_the_way(root: Path) -> None:
    write(root, {"a/SKILL.md": "a\n", "a/b/c/SKILL.md": "c\n", "d/SKILL.md": "d\n"})
    engine = make_engine(root)
    engine.sync()
    before, follower, revision = uuids(engine), Follower(engine), engine.journal.revision()
    (root / "a/b").rename(root / "e")
    synced(engine, root)
    assert uuid_at(engine, "e") == before["a/b"]
    assert kinds(engine, revision) == [("moved", "e"), ("moved", "e/c"), ("moved", "e/c/SKILL.md")]
    follower.catch_up()
    (root / "e").rename(root / "a/b")
    synced(engine, root)
    assert uuids(engine) == before
    follower.catch_up()
    assert follower.states == Follower(engine).states


def test_skill_md_in_wrong_case_makes_no_skill(root: Path) -> None:
    write(root, {"a/skill.md": "a\n", "b/SKILL.MD": "b\n", "c/SKILL.md/x": "folder\n"})
    engine = make_engine(root)
    synced(engine, root)
    assert shown(engine).keys() == {""}
    assert [(p, c) for p, c, _ in problems(engine)] == [
        ("a/skill.md", "wrong-case-skill-md"),
        ("b/SKILL.MD", "wrong-case-skill-md"),
    ]


def test_front_matter_follows_the_file(engine: Engine, root: Path) -> None:
    write(root, {"pdf/SKILL.md": skill_md("renamed")})
    synced(engine, root)
    (row,) = engine.catalog.skill_rows()
    assert row[3] == "renamed"
    os.remove(root / "pdf/SKILL.md")
    os.symlink("refs/x.md", root / "pdf/SKILL.md")
    synced(engine, root)
    (row,) = engine.catalog.skill_rows()
    assert row[3] == "pdf"


# -- links -------------------------------------------------------------------------------------------------


def test_links_are_aliases(engine: Engine, root: Path, tmp_path: Path) -> None:
    write(root, {"unseen/x.md": "x\n", "on/the/way/SKILL.md": "way\n"})
    outside = write(tmp_path / "outside", {"SKILL.md": "o\n"})
    links = {
        "pdf/file": "refs/x.md",
        "pdf/folder": root / "pdf/refs",
        "pdf/way": "../on",
        "pdf/loop": ".",
        "loop": ".",
        "again": "again",
        "alias": "pdf",
        "far/alias": "../pdf",
        "far/file": "../pdf/SKILL.md",
        "pdf/out": outside,
        "pdf/gone": "nowhere",
        "pdf/unseen": "../unseen/x.md",
        "to_alias": "far",
    }
    (root / "far").mkdir()
    for name, target in links.items():
        (root / name).symlink_to(target)
    synced(engine, root)
    targets = {p: s.leads_to for p, s in shown(engine).items() if s.kind == "link"}
    assert targets == {
        "pdf/file": "pdf/refs/x.md",
        "pdf/folder": "pdf/refs",
        "pdf/way": "on",
        "pdf/loop": "pdf",
        "loop": "",
        "alias": "pdf",
        "far/alias": "pdf",
        "to_alias": "far",
    }
    assert [(p, c) for p, c, _ in problems(engine)] == [
        ("again", "link-loop"),
        ("pdf/gone", "link-dangling"),
        ("pdf/out", "link-escapes"),
        ("pdf/unseen", "link-escapes"),
    ]
    row = engine.catalog.by_path(("far", "alias"))
    assert row is not None
    assert (row.kind, row.visible, row.uuid) == (RowKind.LINK, Visibility.ON_THE_WAY, None)
    assert engine.catalog.by_path(("pdf", "folder", "x.md")) is None  # the way does not lead through links


def test_link_appears_with_its_target_and_goes_with_it(engine: Engine, root: Path) -> None:
    (root / "alias").symlink_to("later")
    synced(engine, root)
    assert "alias" not in shown(engine)
    write(root, {"later/SKILL.md": "later\n"})
    synced(engine, root)
    assert shown(engine)["alias"].leads_to == "later"
    (root / "later").rename(root / "elsewhere")
    synced(engine, root)
    assert "alias" not in shown(engine)
    (root / "alias").unlink()
    (root / "alias").symlink_to("elsewhere")
    synced(engine, root)
    assert shown(engine)["alias"].leads_to == "elsewhere"


def test_skill_md_may_be_a_link_to_a_file_in_no_skill(engine: Engine, root: Path) -> None:
    write(root, {"shared/common.md": skill_md("shared"), "a/x.md": "x\n", "b/x.md": "x\n"})
    for skill in "ab":
        (root / skill / "SKILL.md").symlink_to("../shared/common.md")
    synced(engine, root)
    assert shown(engine)["a/SKILL.md"].content == xxh3(skill_md("shared").encode())
    assert "shared/common.md" not in shown(engine)
    row = engine.catalog.by_path(("a", "SKILL.md"))
    assert row is not None
    assert (row.kind, row.place) == (RowKind.FILE, Place(0, "shared/common.md"))
    for scope in ("", "a"):
        write(root, {"shared/common.md": skill_md("shared", f"For {scope!r}")})
        engine.sync(scope)
        synced(engine, root)
        assert {shown(engine)[f"{s}/SKILL.md"].content for s in "ab"} == {
            xxh3((root / "shared/common.md").read_bytes())
        }
    settle(engine)
    (root / "shared/common.md").unlink()
    synced(engine, root)
    assert "a/x.md" not in shown(engine)


def test_skill_md_link_that_leads_out_makes_no_skill(root: Path, tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", {"SKILL.md": "o\n"})
    (root / "a").mkdir()
    (root / "a/SKILL.md").symlink_to(outside / "SKILL.md")
    engine = make_engine(root)
    synced(engine, root)
    assert shown(engine).keys() == {""}
    assert [(p, c) for p, c, _ in problems(engine)] == [("a/SKILL.md", "link-escapes")]


@pytest.fixture
def followed(root: Path, tmp_path: Path) -> tuple[Engine, Path]:
    outside = write(
        tmp_path / "outside", {"one/SKILL.md": skill_md("one"), "one/x/y.md": "y\n", "two/SKILL.md": "2\n"}
    )
    write(root, SKILL)
    (root / "linked").symlink_to(outside / "one")
    (root / "pdf/inner").symlink_to(outside / "one")
    engine = make_engine(root, follow=[outside])
    engine.sync()
    return engine, outside


def check_followed(engine: Engine, root: Path, outside: Path, *, settled: bool = False) -> None:
    """Against a new engine: the model does not know what following is."""
    new = make_engine(root, follow=[outside])
    new.sync()
    assert shown(engine) == shown(new)
    assert problems(engine) == problems(new)
    if settled:
        assert find_dirty(engine.store, engine.catalog) == set()


def test_followed_folders_are_entries_of_their_own(followed: tuple[Engine, Path], root: Path) -> None:
    engine, outside = followed
    assert shown(engine)["linked/x/y.md"].skill == "linked"
    assert shown(engine)["pdf/inner/x/y.md"].skill == "pdf/inner"
    assert len(set(uuids(engine).values())) == len(uuids(engine))
    row = engine.catalog.by_path(("linked", "x", "y.md"))
    assert row is not None
    assert row.place == Place(1, "one/x/y.md")
    assert engine.catalog.by_key(row.key) == row
    settle(engine)
    for scope in ("", "linked", "pdf", "linked/x"):
        write(outside, {"one/x/y.md": f"for {scope!r}\n", f"one/x/{scope.replace('/', '-')}.md": "new\n"})
        engine.sync(scope)
        new = make_engine(root, follow=[outside])
        new.sync()
        found = shown(engine)
        for path, one in shown(new).items():
            if f"{path}/".startswith(f"{scope}/" if scope else ""):
                assert found[path] == one
        engine.sync()
        check_followed(engine, root, outside)
    settle(engine)


def test_link_into_a_followed_folder_turns(followed: tuple[Engine, Path], root: Path) -> None:
    engine, outside = followed
    follower = Follower(engine)
    (root / "linked").unlink()
    (root / "linked").symlink_to(outside / "two")
    engine.sync("linked")
    check_followed(engine, root, outside)
    (root / "linked").unlink()
    (root / "linked").symlink_to("pdf")
    engine.sync()
    check_followed(engine, root, outside)
    (root / "linked").unlink()
    (root / "linked").symlink_to(outside / "two/SKILL.md")
    (root / "pdf/inner").unlink()
    (root / "pdf/inner").symlink_to(outside / "two/SKILL.md")
    engine.sync()
    check_followed(engine, root, outside)
    assert shown(engine)["pdf/inner"].content == xxh3(b"2\n")
    (root / "pdf/inner").unlink()
    write(root, {"pdf/inner/x.md": "no link any more\n"})
    engine.sync()
    check_followed(engine, root, outside)
    follower.catch_up()
    assert follower.states == Follower(engine).states
    shutil.rmtree(outside / "two")
    os.utime(root)  # a link outside skills that leads to a file has no entry: it is judged where it is listed
    engine.sync()
    check_followed(engine, root, outside)


def test_a_followed_folder_of_which_something_is_told_after_its_link_has_turned(
    followed: tuple[Engine, Path], root: Path
) -> None:
    engine, outside = followed
    os.link(outside / "one/x/y.md", outside / "one/other.md")  # a problem in the folder that is left
    write(outside, {"one/new.md": "new\n"})
    for target in ("pdf/refs", outside / "two"):
        (root / "linked").unlink()
        (root / "linked").symlink_to(target)
        engine.written(["linked", "linked/new.md", "linked/other.md"])
        engine.sync()
        check_followed(engine, root, outside)


def test_links_between_followed_folders_end(followed: tuple[Engine, Path], root: Path) -> None:
    engine, outside = followed
    (outside / "one/to_two").symlink_to("../two")
    (outside / "two/to_one").symlink_to("../one")
    (outside / "one/x/up").symlink_to("..")
    (outside / "one/home").symlink_to(root)
    engine.sync()
    check_followed(engine, root, outside)
    size = len(shown(engine))
    for n in range(6):
        write(outside, {f"two/{n}": "new\n", f"one/x/{n}": "new\n"})
        engine.sync()
        check_followed(engine, root, outside)
    assert len(shown(engine)) < size + 100
    settle(engine)


# -- what cannot be read -----------------------------------------------------------------------------------


def as_nobody(code: str, *arguments: object) -> None:
    """Run code as a user without rights."""
    program = (
        "import os, sys\nfrom pathlib import Path\nimport skillfs.core.plainyaml\n"
        "from tests.sync.harness import *\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\nroot = Path(sys.argv[1])\n" + code
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *map(str, arguments)],
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def open_to_all(shared_folder: Path) -> Path:
    root = write(shared_folder / "store", SKILL)
    for path in [root, *root.rglob("*")]:
        os.chown(path, 65534, 65534)
    return root


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100])
@pytest.mark.parametrize("folder", ["pdf", "pdf/refs"])
def test_unreadable_folder_removes_nothing(open_to_all: Path, mode: int, folder: str) -> None:
    as_nobody(
        """
mode, folder = int(sys.argv[2]), sys.argv[3]
engine = make_engine(root)
engine.sync()
before, revision = shown(engine), engine.journal.revision()
(root / folder).chmod(mode)
for scope in ("", folder, "pdf/refs/x.md"):
    engine.sync(scope)
    assert shown(engine) == before, (scope, shown(engine))
    assert engine.journal.revision() == revision
    assert len(engine.catalog.problems()) == len(set(engine.catalog.problems()))
found = [code for _, code, _ in problems(engine)]
assert "unreadable" in found, found
(root / "pdf2").mkdir()
(root / "pdf2/SKILL.md").write_text("others are still served")
engine.sync()
assert shown(engine).keys() == before.keys() | {"pdf2", "pdf2/SKILL.md"}
(root / folder).chmod(0o755)
engine.sync()
check(engine, root)
check_like_new(engine, root)
assert problems(engine) == []
""",
        open_to_all,
        mode,
        folder,
    )


def test_unreadable_file_stays_listed(open_to_all: Path) -> None:
    as_nobody(
        """
engine = make_engine(root)
engine.sync()
before = shown(engine)
for name in ("pdf/refs/x.md", "pdf/SKILL.md"):
    (root / name).chmod(0)
engine.sync()
import time
from skillfs.sync.gather import find_dirty
time.sleep(0.025)
engine.sync()
stamp = engine.database.read("SELECT value FROM facts.meta WHERE name='stamp'")
for again in range(3):
    engine.sync()
    engine.look_again("pdf/refs")
    engine.look_again("pdf")
assert engine.database.read("SELECT value FROM facts.meta WHERE name='stamp'") == stamp
assert find_dirty(engine.store, engine.catalog) == set()
assert find_dirty(engine.store, engine.catalog, engine.catalog.by_path(("pdf",))) == set()
assert shown(engine).keys() == before.keys()
assert shown(engine)["pdf/refs/x.md"].content is None
found = {p: c for p, c, _ in problems(engine)}
assert found == dict.fromkeys(("pdf/SKILL.md", "pdf/refs/x.md"), "unreadable")
check_like_new(engine, root)
for name in ("pdf/refs/x.md", "pdf/SKILL.md"):
    (root / name).chmod(0o644)
engine.sync()
assert shown(engine) == before
assert problems(engine) == []
""",
        open_to_all,
    )


def test_unreadable_folder_in_what_is_no_skill_any_more(open_to_all: Path) -> None:
    as_nobody(
        """
engine = make_engine(root)
engine.sync()
(root / "pdf/SKILL.md").unlink()
(root / "pdf/refs").chmod(0)
engine.sync()
assert shown(engine).keys() == {""}
(root / "pdf/SKILL.md").write_text("again")
engine.sync()
(root / "pdf/refs").chmod(0o755)
engine.sync()
check(engine, root)
""",
        open_to_all,
    )


def test_pipes_sockets_and_strange_names(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, SKILL)
    os.mkfifo(root / "pdf/pipe.md")
    os.mkfifo(root / "pdf/refs/SKILL.md")
    monkeypatch.chdir(root / "pdf")  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        os.mkdir(os.fsencode(root / "pdf") + b"/caf\xe9")
        Path(os.fsdecode(os.fsencode(root) + b"/pdf/caf\xe9/x")).write_text("x")
        Path(os.fsdecode(os.fsencode(root) + b"/pdf/\xff.md")).write_text("x")
        write(
            root,
            {
                "pdf/new\nline.md": "n\n",
                "pdf/X.md": "",
                "pdf/x.md": "",
                "pdf/.env": "k=v",
                "pdf/r\u202etl": "",
            },
        )
        engine = make_engine(root)
        engine.sync()
    found = {(p, c) for p, c, _ in problems(engine)}
    assert found == {
        ("pdf/pipe.md", "special-file"),
        ("pdf/refs/SKILL.md", "special-file"),
        ("pdf/socket", "special-file"),
        ("pdf", "name-not-utf8"),
        ("pdf/new\nline.md", "invisible-characters"),
        ("pdf/r\u202etl", "invisible-characters"),
        ("pdf/x.md", "case-collision"),
        ("pdf/X.md", "case-collision"),
        ("pdf/.env", "secret-file"),
    }
    assert {"pdf/new\nline.md", "pdf/x.md", "pdf/X.md"} < shown(engine).keys()
    settle(engine)
    shutil.rmtree(root / "pdf")
    synced(engine, root)
    assert problems(engine) == []


def test_hard_links_are_a_problem_that_stays_and_goes(engine: Engine, root: Path, tmp_path: Path) -> None:
    os.link(root / "pdf/refs/x.md", tmp_path / "other_name")
    synced(engine, root)
    assert [(p, c) for p, c, _ in problems(engine)] == [("pdf/refs/x.md", "hard-link")]
    settle(engine)
    write(root, {"pdf/refs/new.md": "new\n"})
    synced(engine, root)
    assert [(p, c) for p, c, _ in problems(engine)] == [("pdf/refs/x.md", "hard-link")]
    with (tmp_path / "other_name").open("a") as file:
        file.write("through the other name\n")
    synced(engine, root)
    os.remove(tmp_path / "other_name")
    synced(engine, root)
    assert problems(engine) == []


def test_another_device_is_left_out(engine: Engine, root: Path, tmp_path: Path) -> None:
    there = root / "pdf/mounted"
    write(root, {"pdf/mounted/under.md": "under\n"})
    synced(engine, root)
    before = uuids(engine)
    done = subprocess.run(["mount", "-t", "tmpfs", "none", there], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("mounting is not permitted here")
    try:
        write(there, {"over.md": "over\n", "SKILL.md": "over\n"})
        for _ in range(2):
            engine.sync()
            assert not any(p.startswith("pdf/mounted") for p in shown(engine))
            assert [(p, c) for p, c, _ in problems(engine)] == [("pdf/mounted", "mount-point")]
            time.sleep(0.05)  # by now the folder above is old enough not to be looked at for its youth
        check_like_new(engine, root)
        (root / "link").symlink_to(there)
        following = make_engine(root, follow=[there])
        following.sync()
        assert "pdf/mounted/over.md" in shown(following)
        os.remove(root / "link")
    finally:
        subprocess.run(["umount", "--lazy", there], check=True)
    synced(engine, root)
    assert uuids(engine) == before
    assert problems(engine) == []


# -- what watches have marked ------------------------------------------------------------------------------


@pytest.fixture
def keeper(engine: Engine) -> Iterator[Keeper]:
    """Watches the folders, and looks only when it is told to."""
    made = Keeper(engine, Faults(), random.Random(0))
    made.begin()
    yield made
    made.end()
    wait_until_closed()


def look(keeper: Keeper) -> None:
    assert keeper.watches is not None
    assert keeper.watches.barrier(10)
    keeper.engine.take_marks()


@pytest.mark.parametrize("known", ["pdf/refs/y.md", "pdf/refs"])
def test_what_is_moved_to_a_known_path_is_what_lay_there(
    engine: Engine, root: Path, keeper: Keeper, known: str
) -> None:
    """An editor that writes for a while beside what it saves, and then moves that to its place."""
    before = uuids(engine)
    is_folder = (root / known).is_dir()
    write(root, {"pdf/beside/x.md" if is_folder else "pdf/beside": "saved\n"})
    look(keeper)
    if is_folder:
        shutil.rmtree(root / known)
    (root / "pdf/beside").replace(root / known)
    look(keeper)
    check(engine, root)
    after = uuids(engine)
    assert after == {path: before[path] for path in after}


def test_new_folders_are_looked_at_again_when_they_are_old_enough(
    engine: Engine, root: Path, keeper: Keeper
) -> None:
    (root / "pdf/new/inner").mkdir(parents=True)
    look(keeper)
    write(root, {"lib/notes.md": "in no skill\n"})
    engine.written(["lib/notes.md"])  # which has nobody look again
    look(keeper)
    time.sleep(0.03)
    assert keeper.watches is not None
    keeper.watches.mark(Marks(folders=keeper.young))
    look(keeper)
    assert find_dirty(engine.store, engine.catalog) == set()


def test_another_process_takes_in_a_folder_while_this_one_begins_to_watch_it(
    root: Path, tmp_path: Path
) -> None:
    write(root, SKILL)
    engine, other = (make_engine(root, tmp_path / "index.sqlite") for _ in range(2))
    engine.sync()
    other.sync()
    keeper = Keeper(engine, Faults(), random.Random(0))
    keeper.begin()
    assert keeper.watches is not None
    add = keeper.watches.add

    def and_later(handle: int, inode: bytes, path: str, beside: str = "") -> None:
        if path == "pdf/new" and not (root / "pdf/new/late.md").exists():
            other.check()
            write(root, {"pdf/new/late.md": "after that look, before this watch\n"})
        add(handle, inode, path, beside)

    keeper.watches.add = and_later  # type: ignore[method-assign]
    write(root, {"pdf/new/x.md": "new\n"})
    look(keeper)
    look(keeper)
    check(engine, root)
    keeper.end()
    wait_until_closed()


# -- a store that moves while it is looked at --------------------------------------------------------------


def test_folder_vanishes_during_the_scan(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, SKILL | {"z/SKILL.md": "z\n", "z/deep/er/x": "x"})
    entries = LocalFolder.entries

    def and_away(self: LocalFolder) -> object:
        found = entries(self)
        if "deep" in found.folders:
            shutil.rmtree(root / "z/deep")
        return found

    monkeypatch.setattr(LocalFolder, "entries", and_away)
    engine = make_engine(root)
    engine.sync()
    synced(engine, root)
    write(root, {"z/deep/er/x": "again"})
    engine.sync()
    synced(engine, root)


def while_listed(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[], object]) -> None:
    """Do something once, right after a folder that holds this name was listed."""
    entries = LocalFolder.entries
    pending = [change]

    def and_change(self: LocalFolder) -> object:
        found = entries(self)
        if pending and name in (*found.folders, *found.files):
            pending.pop()()
        return found

    monkeypatch.setattr(LocalFolder, "entries", and_change)


def test_folder_vanishes_after_the_one_above_was_listed(
    engine: Engine, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, {"pdf/new.md": "", "pdf/refs/new.md": ""})
    while_listed(monkeypatch, "refs", lambda: (root / "pdf/refs").rename(root / "elsewhere"))
    engine.sync()
    check(engine, root)
    check_like_new(engine, root)


@pytest.mark.parametrize("becomes", ["nothing", "a file", "a link"])
def test_folder_that_was_listed_is_another_when_the_one_above_is(
    engine: Engine, root: Path, monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    write(root, {"pdf/docs/x.md": "", "pdf/docs/sub/x.md": ""})
    engine.sync()

    def change() -> None:
        shutil.rmtree(root / "pdf/docs")
        if becomes == "a file":
            write(root, {"pdf/docs": "a file\n"})
        elif becomes == "a link":
            (root / "pdf/docs").symlink_to(".")

    write(root, {"pdf/docs/new.md": "new\n", "pdf/docs/new/new.md": "new\n", "pdf/docs/.env": "a secret"})
    shutil.rmtree(root / "pdf/refs")
    while_listed(monkeypatch, "sub", change)
    # The second is gone, so that the folder above is listed after the first.
    engine.taking.take({"pdf/docs", "pdf/refs"}, engine.store, sure=True)
    check(engine, root)
    synced(engine, root)


Differing = Callable[[LocalStore, int, Iterable[tuple[str, bytes]]], Iterator[str]]


def moving_once(differing: Differing, old: Path, new: Path, looked_at_late: str) -> Differing:
    """A check during which a file is moved, so that of the two folders only one is seen to differ."""

    def check(self: LocalStore, number: int, known: Iterable[tuple[str, bytes]]) -> Iterator[str]:
        if new.exists():
            return differing(self, number, known)
        old.rename(new)
        return iter([looked_at_late])

    return check


@pytest.mark.parametrize("to", ["a/x.md", "z/x.md"])
def test_file_is_moved_during_a_check(root: Path, monkeypatch: pytest.MonkeyPatch, to: str) -> None:
    """What moves between two looks may be seen nowhere, or twice; its identity stays all the same."""
    write(root, {"a/SKILL.md": "a\n", "m/SKILL.md": "m\n", "m/x.md": "moved\n", "z/SKILL.md": "z\n"})
    engine = make_engine(root)
    engine.sync()
    settle(engine)
    before = uuids(engine)
    differing = LocalStore.differing
    for looked_at_late in (to.partition("/")[0], "m"):
        with monkeypatch.context() as patched:
            patched.setattr(
                LocalStore, "differing", moving_once(differing, root / "m/x.md", root / to, looked_at_late)
            )
            engine.sync()
        assert uuid_at(engine, to) == before["m/x.md"]
        assert uuid_at(engine, "m/x.md") is None
        (root / to).rename(root / "m/x.md")
        engine.sync()
        assert uuids(engine) == before


def test_file_grows_during_the_scan(engine: Engine, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = root / "pdf/refs/x.md"
    pread = os.pread

    def and_grow(fd: int, length: int, offset: int) -> bytes:
        data = pread(fd, length, offset)
        if os.path.samestat(os.fstat(fd), path.stat()):
            with path.open("a") as file:
                file.write("more\n")
        return data

    write(root, {"pdf/refs/x.md": "edited\n"})
    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", and_grow)
        engine.sync()
    synced(engine, root)


def test_store_that_never_rests(root: Path) -> None:
    """Syncs beside a writer end, fail in no way, and the last one is right."""
    write(root, SKILL)
    engine = make_engine(root)
    stop = threading.Event()

    def churn() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            name = f"s{n % 7}"
            write(root, {f"{name}/SKILL.md": f"{n}\n", f"{name}/deep/{n % 5}.md": f"{n}\n"})
            (root / name).rename(root / f"moved{n % 3}{time.perf_counter_ns()}")
            for old in sorted(root.glob("moved*"))[:-3]:
                shutil.rmtree(old)

    writer = threading.Thread(target=churn)
    writer.start()
    try:
        follower = None
        until = time.monotonic() + 2
        while time.monotonic() < until:
            engine.sync()
            follower = follower or Follower(engine)
            follower.catch_up()
            assert follower.states == Follower(engine).states
    finally:
        stop.set()
        writer.join()
    synced(engine, root)


def test_root_away_is_not_empty(engine: Engine, root: Path, tmp_path: Path) -> None:
    before = shown(engine)
    root.rename(tmp_path / "away")
    with pytest.raises(StoreUnavailableError):
        engine.sync()
    assert shown(engine) == before
    shutil.copytree(tmp_path / "away", root)
    revision = engine.journal.revision()
    engine.sync()
    assert shown(engine) == before
    assert engine.journal.revision() == revision
    write(root, {"pdf/refs/new.md": "in the new root\n"})
    synced(engine, root)


# -- size and depth ----------------------------------------------------------------------------------------


def test_depth(root: Path) -> None:
    at = root
    at.joinpath("SKILL.md").write_text("deep\n")
    for _ in range(500):
        at = at / "d"
        at.mkdir()
    (at / "x.md").write_text("x\n")
    engine = make_engine(root)
    engine.sync()
    path = "d/" * 500 + "x.md"
    row = engine.catalog.by_path(path.split("/"))
    assert row is not None
    assert row.skill is not None
    assert (row.path, row.skill.path, row.visible) == (path, "", Visibility.IN_SKILL)
    assert engine.catalog.by_key(row.key) == row
    before = row.uuid
    (root / "d").rename(root / "e")
    engine.sync()
    assert uuid_at(engine, "e/" + path[2:]) == before
    settle(engine)


def test_path_longer_than_the_system_opens(root: Path) -> None:
    write(root, SKILL)
    fd = os.open(root / "pdf", os.O_RDONLY)
    for _ in range(20):
        os.mkdir("n" * 255, dir_fd=fd)
        below = os.open("n" * 255, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    try:
        engine = make_engine(root)
        for _ in range(3):
            engine.sync()
            assert sum(code == "unreadable" for _, code, _ in problems(engine)) == 1
        assert "pdf/refs/x.md" in shown(engine)
    finally:
        subprocess.run(["rm", "-rf", root], check=True)


# -- freshness ---------------------------------------------------------------------------------------------


def test_ensure_fresh_checks_only_what_is_old(engine: Engine, root: Path) -> None:
    write(root, {"pdf/refs/new.md": "new\n"})
    engine.ensure_fresh("pdf/refs", 3600)
    assert uuid_at(engine, "pdf/refs/new.md") is None
    engine._checked.clear()
    engine.ensure_fresh("pdf/refs", 3600)
    assert uuid_at(engine, "pdf/refs/new.md") is not None
    write(root, {"pdf/refs/newer.md": "new\n", "pdf/newer.md": "new\n"})
    engine.ensure_fresh("pdf/refs", 3600)
    engine.ensure_fresh("pdf", 3600)
    assert uuid_at(engine, "pdf/newer.md") is not None


def test_look_again_finds_what_is_new_in_a_folder(engine: Engine, root: Path) -> None:
    write(root, {"pdf/refs/new.md": "new\n", "new/SKILL.md": "new\n"})
    engine.look_again("pdf/refs")
    assert uuid_at(engine, "pdf/refs/new.md") is not None
    engine.look_again("new")
    synced(engine, root)


@pytest.mark.parametrize(
    "change",
    [lambda a: a | {"namespace": "other"}, lambda a: a | {"ignore": "y.md"}],
    ids=["store id", "ignore"],
)
def test_index_of_another_view_is_rebuilt(
    root: Path, tmp_path: Path, change: Callable[[dict[str, str]], dict[str, str]]
) -> None:
    from skillfs.core.ignore import IgnoreRules
    from skillfs.index.database import Database

    write(root, SKILL)
    first = make_engine(root, tmp_path / "index.sqlite")
    first.sync()
    wanted = change({})
    namespace = Namespace(NAMESPACE)
    if "namespace" in wanted:
        import uuid

        namespace = Namespace(uuid.uuid5(NAMESPACE, "other"))
    rules = IgnoreRules([wanted["ignore"]] if "ignore" in wanted else [])
    engine = Engine(LocalStore(root), Database(tmp_path / "index.sqlite"), namespace, rules, "store")
    engine.sync()
    assert ("pdf/refs/y.md" in shown(engine)) == ("ignore" not in wanted)
    for path, uuid_ in uuids(engine).items():
        assert uuid_ == namespace.uuid_of(path)
    # It has been taken over: who had it neither serves what another sees nor takes it back.
    for call in (
        first.sync,
        lambda: first.look_again("pdf"),
        lambda: first.taking.take({"pdf"}, first.store, sure=True),
        lambda: first.query(lambda: first.catalog.by_path(("pdf",))),
        lambda: first.query(lambda: first.catalog.subtree(ROOT)),
        lambda: first.query(first.journal.revision),
    ):
        with pytest.raises(InvalidArgumentError, match="own index"):
            call()
    engine.sync()
    engine.query(lambda: engine.catalog.by_path(("pdf",)))


# -- no more work than there is ----------------------------------------------------------------------------


def stamp_of(engine: Engine) -> int:
    return int(engine.database.read("SELECT value FROM facts.meta WHERE name='stamp'")[0][0])


def test_what_is_no_difference_is_not_written(engine: Engine, root: Path) -> None:
    (root / "pdf/alias.md").symlink_to("refs/x.md")
    (root / "pdf/lost.md").symlink_to("nothing")
    (root / "on/the/way").mkdir(parents=True)
    write(root, {"on/the/way/s/SKILL.md": skill_md("s")})
    engine.sync()
    settle(engine)
    stamp, revision = stamp_of(engine), engine.journal.revision()
    for folder in ("", "pdf", "pdf/refs", "on", "on/the/way"):
        engine.look_again(folder)
    engine.taking.take_everywhere({"", "pdf", "pdf/refs", "on"})
    assert (stamp_of(engine), engine.journal.revision()) == (stamp, revision)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "pdf/alias.md").symlink_to("refs/x.md"),
        lambda root: (root / "pdf/old.md").unlink(),
        lambda root: ((root / "pdf/old.md").unlink(), (root / "pdf/old.md").symlink_to("refs/x.md")),
        lambda root: (root / "pdf/refs/y.md").unlink(),
    ],
    ids=["new", "gone", "turned", "target gone"],
)
def test_links_raise_the_revision(engine: Engine, root: Path, change: Callable[[Path], object]) -> None:
    (root / "pdf/old.md").symlink_to("refs/y.md")
    engine.sync()
    settle(engine)
    before = engine.journal.revision()
    change(root)
    engine.sync()
    now, reset, items = engine.journal.since(before)
    assert now == before + 1
    assert not reset
    assert all(item.kind == "removed" and item.path == "pdf/refs/y.md" for item in items)
    check(engine, root)


def test_hidden_links_raise_nothing(engine: Engine, root: Path) -> None:
    before = engine.journal.revision()
    (root / "pdf/lost.md").symlink_to("nothing")
    engine.sync()
    assert engine.journal.revision() == before
    check(engine, root)


def checks_of(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The scopes of all looks for differences, None for the whole store."""
    scopes: list[object] = []

    def noted(store: Store, catalog: Catalog, scope: Row | None = None) -> set[str]:
        scopes.append(None if scope is None else scope.path)
        return find_dirty(store, catalog, scope)

    for module in (engine_module, taking_module):
        monkeypatch.setattr(module, "find_dirty", noted)
    return scopes


def test_copies_and_links_need_no_look_at_the_whole_store(
    engine: Engine, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, {"pdf/refs/empty.md": ""})
    engine.sync()
    settle(engine)
    scopes = checks_of(monkeypatch)
    write(root, {"pdf/new/copy.md": "x\n", "pdf/new/empty.md": "", "pdf/copy.md": "y\n"})
    (root / "pdf/alias.md").symlink_to("copy.md")
    (root / "pdf/empty/folder").mkdir(parents=True)
    engine.look_again("pdf")
    assert scopes == []
    check(engine, root)
    (root / "pdf/alias.md").unlink()
    engine.look_again("pdf")
    assert scopes == []
    check(engine, root)


@pytest.mark.parametrize("content", ["x\n", ""], ids=["unique", "empty"])
def test_a_file_that_moved_into_a_folder_keeps_its_uuid_beside_copies(
    engine: Engine, root: Path, content: str
) -> None:
    write(root, {"other/SKILL.md": skill_md("other"), "other/was.md": content, "other/like.md": content})
    engine.sync()
    settle(engine)
    before = uuid_at(engine, "other/was.md")
    (root / "other/was.md").rename(root / "pdf/is.md")
    engine.look_again("pdf")
    assert uuid_at(engine, "pdf/is.md") == before
    synced(engine, root)


def test_an_empty_folder_that_moved_keeps_its_uuid(engine: Engine, root: Path) -> None:
    write(root, {"other/SKILL.md": skill_md("other")})
    (root / "other/was/in").mkdir(parents=True)
    engine.sync()
    settle(engine)
    before = uuid_at(engine, "other/was/in")
    (root / "other/was").rename(root / "pdf/is")
    engine.look_again("pdf")
    assert uuid_at(engine, "pdf/is/in") == before
    synced(engine, root)


def test_bytes_of_files_move_no_sight(engine: Engine, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skillfs.sync import apply as apply_module

    settle(engine)
    monkeypatch.setattr(apply_module, "refresh_sight", lambda *_: pytest.fail("not needed"))
    write(root, {"pdf/refs/x.md": "edited\n", "pdf/refs/new.md": "new\n"})
    engine.look_again("pdf/refs")
    check(engine, root)
    assert uuid_at(engine, "pdf/refs/new.md") is not None


@pytest.mark.parametrize(
    "query",
    [
        "SELECT key FROM entry WHERE visible=2 AND kind=0",
        "SELECT key, parent, name, visible, target FROM entry WHERE kind = 3",
        "SELECT parent FROM entry WHERE kind=1",
        "SELECT parent, name FROM entry WHERE kind=2 AND content IS NULL",
    ],
)
def test_no_pass_over_all_entries(engine: Engine, query: str) -> None:
    plan = [row[3] for row in engine.database.read(f"EXPLAIN QUERY PLAN {query}")]
    assert plan
    assert all("USING" in step and "INDEX entry_" in step for step in plan)


def test_listings_that_wait_for_one_check_do_not_check_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(engine)
    engine._checked.clear()
    scopes = checks_of(monkeypatch)
    threads = [threading.Thread(target=engine.ensure_fresh, args=("", 3600)) for _ in range(6)]
    with engine._lock:
        for thread in threads:
            thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    assert scopes == [None]


def test_building_is_no_measure_of_a_check(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, SKILL)
    made = make_engine(root)
    build = made.taking.build
    monkeypatch.setattr(
        made.taking, "build", lambda look, progress: (time.sleep(0.3), build(look, progress))[1]
    )
    made.sync()
    write(root, {"new/SKILL.md": skill_md("new")})
    made.ensure_fresh("", 0.1)
    assert uuid_at(made, "new") is not None


def test_an_error_of_the_program_is_no_damage(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.database, "recovering", lambda *_: pytest.fail("taken for damage"))
    with pytest.raises(KeyError):
        engine.query(lambda: {}["key"])


def test_engines_leave_nothing_behind(root: Path, tmp_path: Path) -> None:
    write(root, SKILL)
    before = len(engine_module._engines)
    made = make_engine(root, tmp_path / "index.sqlite")
    made.sync()
    assert len(engine_module._engines) == before + 1
    row = made.catalog.by_path(("pdf", "SKILL.md"))
    assert row is not None
    made.learned.keep(row, b"x" * 16, b"m" * 16, scan_text(b"text"))
    learned_module._flush_all()
    again = made.catalog.by_path(("pdf", "SKILL.md"))
    assert again is not None
    assert again.text is not None
    calls = atexit._ncallbacks()
    more = [make_engine(root) for _ in range(5)]
    assert atexit._ncallbacks() == calls
    del made, more
    gc.collect()
    assert len(engine_module._engines) <= before


def test_changes_below_more_folders_than_a_statement_has_terms(root: Path, engine: Engine) -> None:
    for number in range(700):
        write(root, {f"owner-{number}/s/SKILL.md": skill_md(f"s{number}")})
    engine.sync()
    follower = Follower(engine)
    write(root, {"owner-new/s/SKILL.md": skill_md("new"), "owner-3/s/docs/x.md": "x"})
    engine.sync()
    follower.catch_up()
    check(engine, root)
    assert follower.states == states(engine)


def test_base_paths_with_more_skills_than_a_statement_has_terms(tmp_path: Path) -> None:
    for number in range(700):
        write(tmp_path, {f"lib/s-{number}/SKILL.md": skill_md(f"s-{number}")})
    write(tmp_path, {"other/SKILL.md": skill_md("other")})
    fs = SkillFileSystem(tmp_path, index=":memory:", base_paths=["lib"])
    assert fs.status()["skills"] == 700
    assert len(fs.find("")) == 700
