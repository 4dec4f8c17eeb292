"""Moving from one store to another: all of it is copied, and then exactly what was copied is removed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from skillfs.core.model import Place
from skillfs.core.refs import PathRef
from skillfs.errors import ChangedError, InvalidArgumentError, quoted
from skillfs.index.rows import NodeRow, Row, RowKind
from skillfs.lookup import Asked
from skillfs.stores.base import FileState, StaleFile, Store
from skillfs.stores.local import LocalStore
from skillfs.sync.reconcile import name_of, parent_of
from skillfs.sync.scan import SKILL_MD
from skillfs.writing.pending import changed_error, failing, unmake
from skillfs.writing.placing import exists_error, link_error, path_of
from skillfs.writing.removal import Doomed
from skillfs.writing.writer import Batch

__all__ = ["move_across"]


class _Leaving(NamedTuple):
    """What is going to be moved.

    Attributes:
        row: The file, or the folder with all that can be seen in it.
        files: Store path and state of each file.
        folders: Store paths of the folders, those above first.
        skills: The enclosing skill of each.
    """

    row: Row
    files: dict[str, FileState]
    folders: list[str]
    skills: dict[str, str]


def move_across(here: Batch, source: Asked, there: Batch, asked: Asked) -> None:
    """Move a file, or a folder with all it holds, to another store; it makes new entries there.

    Everything is checked first, in both stores. What fails before anything was removed leaves no copy.

    Args:
        here: Changes of the store that it leaves.
        source: What to move.
        there: Changes of the store that it goes to.
        asked: Where to, as for a move within a store.

    Raises:
        InvalidArgumentError: One store lies in the other, or there are links in what is to be moved; or as
            for `Batch.move`.
        ChangedError: It changed meanwhile: either nothing was moved, or what changed stays.
    """
    if _is_one_store(here.store, path_of(source), there.store, path_of(asked)):
        raise InvalidArgumentError(
            f"{quoted(source.shown)} and {quoted(asked.shown)} lie in one store, which is mounted twice; "
            "move within one mount"
        )
    leaving = _leaving(here, source)
    is_file = leaving.row.kind == RowKind.FILE
    asked, target, is_new = there.destination(leaving.row, asked, elsewhere=True)
    if not is_new:
        raise exists_error(asked)
    to = {path: _at(asked, leaving, path) for path in (*leaving.files, *leaving.folders)}
    if not is_file:
        there.plan([to[path] for path in leaving.files], [to[path] for path in leaving.folders])
    copied: dict[str, bytes] = {}
    removed: list[str] = []
    try:
        for path in sorted(leaving.files, key=lambda path: name_of(path) != SKILL_MD):
            copied[path] = _copy(here, path, leaving, source, there, to[path])
        for path in leaving.folders:
            there.make_folder(to[path], exist_ok=True)
        if not _is_as_copied(here, source, copied, leaving):
            raise ChangedError(
                f"{quoted(source.shown)} changed while it was moved, and stays as it is; try again"
            )
        stays = _take_away(here, source, copied, leaving, removed)
    except BaseException:
        if not removed and target.lies == "nothing":
            _undo(there, target.path, [target.path + path[len(leaving.row.path) :] for path in copied])
        raise
    if stays:
        raise ChangedError(
            f"some of {quoted(source.shown)} changed while it was moved, and stays there; "
            f"the rest is at {quoted(asked.shown)}"
        )


def _leaving(here: Batch, source: Asked) -> _Leaving:
    """What is to be moved, of which it was checked that it may be removed."""
    if here.placing.link(source) is not None:
        raise link_error(source)
    doomed: dict[str, Doomed] = {}
    here.removal.doom(source, True, doomed)
    here.removal.check_left(doomed, source.mount)
    row = here.placing.own(source)
    skills = {path: item.skill for path, item in doomed.items()}
    if row.kind == RowKind.FILE:
        return _Leaving(row, {row.path: _state(row)}, [], skills)
    files, folders = {}, [row.path]
    for path, node, _ in here.removal.below(row):
        if path not in doomed:
            continue
        if node.kind == RowKind.LINK or node.target is not None:
            raise _carries_link(source, path)
        if node.kind == RowKind.FILE:
            files[path] = _state(node)
        else:
            folders.append(path)
    return _Leaving(row, files, folders, skills)


def _copy(here: Batch, path: str, leaving: _Leaving, source: Asked, there: Batch, asked: Asked) -> bytes:
    """Copy one file; returns its signature."""
    shown = _at(source, leaving, path)
    with failing(shown, reading=True), here.store.open(Place(0, path), leaving.files[path]) as handle:
        writing = there.begin(asked)
        try:
            for block in handle.blocks():
                writing.write(block)
            if not handle.unchanged():
                raise changed_error(shown)
            there.commit(writing)
        except StaleFile:
            raise changed_error(shown) from None
        finally:
            writing.discard()
        return handle.state.signature


def _is_as_copied(here: Batch, source: Asked, copied: dict[str, bytes], leaving: _Leaving) -> bool:
    """Whether all that there is has been copied, as it is."""
    row = leaving.row
    if row.kind == RowKind.FILE:
        state = here.store.look((parent_of(row.path),)).state(Place(0, row.path))
        return state is not None and _same(state.signature, copied[row.path])
    doomed: dict[str, Doomed] = {}
    here.removal.doom(source, True, doomed)
    row = here.placing.own(source)
    if doomed.keys() != {*copied, *leaving.folders}:
        return False
    nodes = {path: node for path, node, _ in here.removal.below(row)}
    return all(_same(nodes[path].signature, signature) for path, signature in copied.items())


def _take_away(
    here: Batch, source: Asked, copied: dict[str, bytes], leaving: _Leaving, removed: list[str]
) -> bool:
    """Remove what was copied, each `SKILL.md` after all else in its skill; returns whether something stays.

    What has come or changed since it was looked at stays, with the folders and the `SKILL.md` above it.
    """

    def order(path: str) -> tuple[int, str, int, int]:
        skill = leaving.skills[path]
        late = 2 if path == skill else int(path in copied and name_of(path) == SKILL_MD)
        return -_depth(skill), skill, late, -_depth(path)

    stays = False
    spared: set[str] = set()
    for path in sorted((*copied, *leaving.folders), key=order):
        place = Place(0, path)
        with failing(_at(source, leaving, path)):
            if path not in copied:
                stays |= not _remove_folder(here, path, spared)
            elif not here.store.remote and not here.store.in_step(place, copied[path].removesuffix(b"?")):
                stays = stays or here.store.exists(place)
                continue
            elif name_of(path) == SKILL_MD and _holds_more(here, parent_of(path), spared, but=SKILL_MD):
                stays = True
                continue
            else:
                here.store.remove(place)
        removed.append(path)
        here.changed([path])
    return stays


def _remove_folder(here: Batch, path: str, spared: set[str]) -> bool:
    """Remove a folder; false when it holds what can be seen. One that holds only what is left out stays."""
    if not here.store.holds_empty_folders:
        return True
    try:
        here.store.remove_folder(Place(0, path))
    except FileNotFoundError:
        return True
    except OSError:
        if _holds_more(here, path, spared):
            return False
        spared.add(path)
    return True


def _holds_more(here: Batch, folder: str, spared: set[str], but: str = "") -> bool:
    """Whether a folder holds what can be seen, other than one name; a remote one was looked at before."""
    if here.store.remote:
        return False
    with here.store.folder(Place(0, folder)) as handle:
        listed = handle.entries()
    ignore = here.engine.ignore
    names = (*listed.files, *listed.links, *listed.special)
    return any(name != but and ignore.reason(name) is None for name in names) or any(
        not ignore.ignores_folder(name) and Place(0, folder).child(name).path not in spared
        for name in listed.folders
    )


def _undo(there: Batch, top: str, files: list[str]) -> None:
    """Leave nothing of a copy that is not going to be complete."""
    for path in reversed(files):
        with contextlib.suppress(OSError):
            there.store.remove(Place(0, path))
    unmake(there.store, there.made)
    there.changed([top, *files, *there.made])


def _at(top: Asked, leaving: _Leaving, path: str) -> Asked:
    """The path of something that is moved, below a path that was asked for."""
    below = path[len(leaving.row.path) :].split("/")[1:]
    return Asked(PathRef((*path_of(top).parts, *below)), top.sent, top.mount)


def _state(row: Row | NodeRow) -> FileState:
    return FileState(row.signature, -1 if row.size is None else row.size, row.modified)


def _same(signature: bytes, other: bytes) -> bool:
    return signature.removesuffix(b"?") == other.removesuffix(b"?")


def _depth(path: str) -> int:
    return path.count("/") + 1 if path else 0


def _carries_link(source: Asked, path: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{quoted(source.shown)} holds the link {quoted(name_of(path))}, which cannot go to another store; "
        "remove it, or put what it leads to in its place"
    )


# -- whether two stores are one ----------------------------------------------------------------------------


def _is_one_store(one: Store, path: PathRef, other: Store, other_path: PathRef) -> bool:
    """Whether one of two ends lies in the store of the other as well."""
    if isinstance(one, LocalStore) and isinstance(other, LocalStore):
        # By what the folders are: a name can be another's through a link or a mount.
        own, others = _ways(one, path), _ways(other, other_path)
        return _identity(Path(one.root)) in others or _identity(Path(other.root)) in own
    urls = (one.url.rstrip("/") + "/", other.url.rstrip("/") + "/")
    return urls[0].startswith(urls[1]) or urls[1].startswith(urls[0])


def _ways(store: LocalStore, path: PathRef) -> set[tuple[int, int] | None]:
    place = Path(store.root, *path.parts)
    return {_identity(folder) for folder in (place, *place.parents)} - {None}


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        st = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return st.st_dev, st.st_ino
