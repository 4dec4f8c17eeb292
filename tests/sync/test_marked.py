"""Looking where watches have left marks, driven by hand: no thread decides when."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillfs.sync.engine import Engine
from skillfs.sync.inotify import FolderWatches
from tests.conftest import skill_md, write
from tests.sync.harness import Follower, check, check_like_new, make_engine, states, uuid_at, uuids

FILES = {
    "pdf/SKILL.md": skill_md("pdf"),
    "pdf/refs/x.md": "x\n",
    "pdf/refs/y.md": "y\n",
    "lib/a/SKILL.md": "a",
}


def watched(root: Path, index: Path | None = None, follow: tuple[Path, ...] = ()) -> Engine:
    engine = make_engine(root, index, follow)
    engine.sync()
    engine.watches = FolderWatches(lambda: None)
    engine.taking.watch_all()
    engine.check()
    return engine


def stop(engine: Engine) -> None:
    watches, engine.watches = engine.watches, None
    assert watches is not None
    watches.close()


def catch_up(engine: Engine) -> None:
    """Look at what has happened until now, and nowhere else."""
    assert engine.watches is not None
    assert engine.watches.barrier(10)
    assert engine.take_marks()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    root.mkdir()
    write(root, FILES)
    return root


@pytest.fixture
def engine(root: Path) -> Iterator[Engine]:
    engine = watched(root)
    yield engine
    stop(engine)


@pytest.fixture
def two(root: Path, tmp_path: Path) -> Iterator[tuple[Engine, Engine]]:
    """Two engines with one index, as two processes have them."""
    both = watched(root, tmp_path / "index.sqlite"), watched(root, tmp_path / "index.sqlite")
    yield both
    for engine in both:
        stop(engine)


def is_right(engine: Engine, root: Path) -> None:
    check(engine, root)
    check_like_new(engine, root)
    revision = engine.journal.revision()
    engine.check()
    assert engine.journal.revision() == revision


def test_folders_that_another_process_took_in_are_watched(two: tuple[Engine, Engine], root: Path) -> None:
    first, second = two
    write(root, {"pdf/new/deep/er/x.md": "1", "lib/b/SKILL.md": "b", "lib/b/docs/y.md": "1"})
    catch_up(second)
    revision = second.journal.revision()
    catch_up(first)
    assert first.journal.revision() == revision
    stop(second)
    second.watches = FolderWatches(lambda: None)
    write(root, {"pdf/new/deep/er/x.md": "2", "lib/b/docs/z.md": "2", "pdf/new/deep/z.md": "3"})
    catch_up(first)
    is_right(first, root)


def test_folders_that_another_process_saw_moved_are_watched(two: tuple[Engine, Engine], root: Path) -> None:
    first, second = two
    os.rename(root / "pdf", root / "lib/pdf")
    (root / "pdf").mkdir()
    write(root, {"pdf/SKILL.md": "other", "pdf/refs/x.md": "other"})
    catch_up(second)
    catch_up(first)
    stop(second)
    second.watches = FolderWatches(lambda: None)
    write(root, {"lib/pdf/refs/x.md": "edited", "pdf/refs/x.md": "edited, too"})
    catch_up(first)
    is_right(first, root)


def test_folders_that_another_process_took_in_while_events_were_lost(
    two: tuple[Engine, Engine], root: Path
) -> None:
    first, second = two
    write(root, {"pdf/new/deep/x.md": "1"})
    catch_up(second)
    assert first.watches is not None
    assert first.watches.barrier(10)
    first.watches.take()  # lost
    first.watches.doubt("events were lost")
    first.take_marks()
    stop(second)
    second.watches = FolderWatches(lambda: None)
    write(root, {"pdf/new/deep/x.md": "2"})
    catch_up(first)
    is_right(first, root)


def test_nothing_is_written_where_another_process_was_faster(two: tuple[Engine, Engine], root: Path) -> None:
    first, second = two
    write(root, {"pdf/refs/new.md": "1"})
    catch_up(second)
    time.sleep(0.1)
    second.check()  # by now all is old enough for its signature to vouch for it
    with second.database.write() as connection:
        connection.execute("UPDATE facts.meta SET value=value WHERE name='revision'")  # nobody else can write
        catch_up(first)
    is_right(first, root)


def test_a_file_that_moves_while_its_folder_is_listed(engine: Engine, root: Path) -> None:
    follower = Follower(engine)
    before = uuid_at(engine, "pdf/refs/x.md")
    scanner = engine.taking.scanner
    turns = []

    def moving(look: object) -> object:
        made = scanner(look)  # type: ignore[arg-type]
        if not turns:
            # Between the marks that were taken and the listing of what they name.
            turns.append(1)
            os.rename(root / "pdf/refs/x.md", root / "lib/a/x.md")
        return made

    engine.taking.scanner = moving  # type: ignore[assignment,method-assign]
    write(root, {"pdf/refs/y.md": "edited"})
    catch_up(engine)
    assert uuid_at(engine, "lib/a/x.md") == before
    catch_up(engine)
    follower.catch_up()
    assert follower.states == states(engine)
    is_right(engine, root)


def test_a_move_with_an_edit_right_after_it(engine: Engine, root: Path) -> None:
    before = uuids(engine)
    os.rename(root / "pdf/refs/x.md", root / "pdf/moved.md")
    with (root / "pdf/moved.md").open("a") as file:
        file.write("edited")
    os.rename(root / "lib/a", root / "lib/b")
    write(root, {"lib/b/SKILL.md": "edited in place"})
    catch_up(engine)
    assert uuid_at(engine, "pdf/moved.md") == before["pdf/refs/x.md"]
    assert uuid_at(engine, "lib/b") == before["lib/a"]
    assert uuid_at(engine, "lib/b/SKILL.md") == before["lib/a/SKILL.md"]
    is_right(engine, root)


def test_a_folder_that_was_moved_and_moved_back(engine: Engine, root: Path) -> None:
    os.rename(root / "pdf", root / "e")
    os.rename(root / "e", root / "pdf")
    write(root, {"pdf/refs/x.md": "edited"})
    catch_up(engine)
    is_right(engine, root)


def test_what_is_in_a_folder_that_was_replaced(engine: Engine, root: Path) -> None:
    before = uuids(engine)
    shutil.copytree(root / "pdf", root / "copy")
    shutil.rmtree(root / "pdf")
    os.rename(root / "copy", root / "pdf")
    write(root, {"pdf/refs/x.md": "in the new one"})
    catch_up(engine)
    assert uuids(engine) == before
    write(root, {"pdf/refs/y.md": "and later"})
    catch_up(engine)
    is_right(engine, root)


def test_links_into_a_followed_folder_are_watched_at_their_targets(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(
        outside, {"tool/SKILL.md": "t", "tool/docs/x.md": "1", "single/notes.md": "1", "other/SKILL.md": "o"}
    )
    (root / "linked").symlink_to(outside / "tool")
    (root / "pdf/notes.md").symlink_to(outside / "single/notes.md")
    engine = watched(root, follow=(outside,))
    try:
        for text in ("2", "3"):
            write(outside, {"tool/docs/x.md": text, "tool/docs/new/y.md": text, "single/notes.md": text})
            catch_up(engine)
            like = make_engine(root, follow=(outside,))
            like.sync()
            assert states_by_path(engine) == states_by_path(like)
        os.rename(outside / "tool", outside / "gone")
        catch_up(engine)
        assert uuid_at(engine, "linked") is None
        os.rename(outside / "gone", outside / "tool")
        catch_up(engine)  # no folder that is watched has seen it come
        assert uuid_at(engine, "linked/docs/x.md") is not None
    finally:
        stop(engine)


def states_by_path(engine: Engine) -> dict[str, object]:
    return {state.path: state.content for state in states(engine).values()}


def test_an_edit_through_another_name_of_a_file(engine: Engine, root: Path, tmp_path: Path) -> None:
    os.link(root / "pdf/refs/x.md", root / "lib/a/x.md")
    os.link(root / "pdf/refs/y.md", tmp_path / "outside.md")
    write(root, {"pdf/refs/new.md": "so that the folder is listed"})
    catch_up(engine)
    is_right(engine, root)
    for path in (root / "lib/a/x.md", tmp_path / "outside.md"):
        with path.open("a") as file:
            file.write("edited")
        catch_up(engine)
        is_right(engine, root)
    (root / "lib/a/x.md").unlink()
    catch_up(engine)
    is_right(engine, root)


def test_an_error_leaves_the_marks(engine: Engine, root: Path) -> None:
    write(root, {"pdf/refs/new.md": "1"})
    assert engine.watches is not None
    assert engine.watches.barrier(10)
    os.rename(root, root.with_name("away"))
    with pytest.raises(OSError, match="root folder is not there"):
        engine.take_marks()
    os.rename(root.with_name("away"), root)
    assert uuid_at(engine, "pdf/refs/new.md") is None
    engine.take_marks()
    is_right(engine, root)


def test_an_answer_that_nobody_waits_for_any_more(engine: Engine, root: Path) -> None:
    """An overflow answers a question; the answer to it may come all the same, when the next one is asked."""
    watches = engine.watches
    assert watches is not None
    with watches._lock:  # nothing is handed on meanwhile
        write(root, {"pdf/refs/first.md": "1"})
        asking = threading.Thread(target=watches.barrier, args=(30,))
        asking.start()
        time.sleep(0.2)
        watches.on_queue_overflow()
        asking.join(10)
        assert not asking.is_alive()
        watches.take()
        for number in range(3000):
            (root / "lib/a" / f"{number}.md").touch()
        write(root, {"pdf/last.md": "1"})
        marked: list[set[str]] = []
        asking = threading.Thread(target=lambda: (watches.barrier(30), marked.append(watches.take().folders)))
        asking.start()
        time.sleep(0.2)
    asking.join(60)
    assert "pdf" in marked[0]
