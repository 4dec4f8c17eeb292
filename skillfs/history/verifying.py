"""Holds what a store has now against a lock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from skillfs.core.digest import sha256, uuid_text
from skillfs.core.lock import Lock, LockedFile, LockedSkill, Verification, VerifiedFile, VerifiedSkill
from skillfs.core.refs import below_mount, is_below
from skillfs.core.text import HOLD_LIMIT
from skillfs.errors import ChangedError, IsFolderError, NotFoundError
from skillfs.history.locking import nodes_of
from skillfs.history.present import ATTEMPTS, Present, digests_of, present
from skillfs.index.rows import NodeRow, Row
from skillfs.mounts import View, naming
from skillfs.stores.base import Handle

__all__ = ["verify"]


def verify(
    views: Sequence[View], lock: Lock, *, everything: bool, reread: bool, allow_unlocked: bool, check: bool
) -> Verification:
    """See `HistoryFace.verify`.

    Args:
        views: The stores, and what may be seen of each.
        lock: The lock.
        everything: Whether skills of the lock are told that no store of these can have.
        reread: Whether every file is read, whatever is known of it.
        allow_unlocked: Whether skills that the lock does not name are no fault.
        check: Whether the stores are looked at first.
    """
    found: list[VerifiedSkill] = []
    told: set[str] = set()
    for view in views:
        name = view.mount.name
        inside = [(skill, _below_mount(skill.path, name)) for skill in lock.skills]
        ours = {below: skill for skill, below in inside if below is not None and view.access.allows(below)}
        told.update(skill.path for skill in ours.values())
        with naming(name):
            found += _verified(view, ours, reread=reread, check=check)
    if everything:
        found += (_missing(skill, skill.path) for skill in lock.skills if skill.path not in told)
    return Verification(tuple(sorted(found, key=lambda skill: skill.path)), allow_unlocked)


def _below_mount(path: str, mount: str) -> str | None:
    if not mount:
        return path
    return path[len(mount) + 1 :] if is_below(path, mount) else None


def _missing(skill: LockedSkill, path: str) -> VerifiedSkill:
    return VerifiedSkill(path, "missing", tuple(VerifiedFile(file.path, "missing") for file in skill.files))


def _verified(
    view: View, locked: Mapping[str, LockedSkill], *, reread: bool, check: bool
) -> list[VerifiedSkill]:
    for attempt in range(ATTEMPTS):
        if check or attempt:
            view.mount.engine.sync()  # what is known of a file holds for the version that is there now
        found = present(view)
        found.uuids.clear()  # of no use here, and large
        try:
            return _held_against(found, locked, reread=reread)
        except ChangedError:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _held_against(found: Present, locked: Mapping[str, LockedSkill], *, reread: bool) -> list[VerifiedSkill]:
    mount = found.view.mount
    here = {skill.path: skill for skill in found.skills}
    files = {path: dict(nodes_of(here[path])) for path in locked if path in here}
    # What has another size has other bytes.
    same_size = [
        node
        for path, nodes in files.items()
        for file in locked[path].files
        if (node := nodes.get(file.path)) is not None and node.size in (None, file.size)
    ]
    digests = digests_of(found, list({node.key: node for node in same_size}.values()), reread=reread)
    ignored = _ignored(found, files)
    skills = []
    for path in sorted({*here, *locked}):
        whole = below_mount(mount.name, path)
        if path not in here:
            skills.append(_missing(locked[path], whole))
        elif path not in locked:
            inside = any(above in locked for above in _above(path))
            skills.append(VerifiedSkill(whole, "extra" if inside else "unlocked"))
        else:
            told = [VerifiedFile(name, "ignored") for name in ignored.get(path, ())]
            told += _files(found.view, locked[path].files, files[path], digests)
            is_ok = all(file.status in ("ok", "ignored") for file in told)
            told.sort(key=lambda file: file.path)
            skills.append(VerifiedSkill(whole, "ok" if is_ok else "modified", tuple(told)))
    return skills


def _above(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition("/")[0]
        yield path


def _files(
    view: View,
    locked: Iterable[LockedFile],
    now: Mapping[str, NodeRow],
    digests: Mapping[int, tuple[int, bytes]],
) -> Iterator[VerifiedFile]:
    executable = view.mount.engine.store.executable
    named = set()
    for file in locked:
        named.add(file.path)
        node = now.get(file.path)
        if node is None:
            yield VerifiedFile(file.path, "missing")
        elif digests.get(node.key) != (file.size, file.digest):
            yield VerifiedFile(file.path, "modified", _differs_in_line_endings(view, node, file))
        else:
            is_executable = executable(node.signature)
            is_other = is_executable is not None and is_executable != file.executable
            yield VerifiedFile(file.path, "mode" if is_other else "ok")
    yield from (VerifiedFile(path, "extra") for path in now if path not in named)


def _differs_in_line_endings(view: View, node: NodeRow, file: LockedFile) -> bool:
    """Whether a file has the locked bytes but for its line ends, all CRLF in one and all LF in the other.

    They have two sizes then; of one that is too large to be held it is not said.
    """
    if node.size == file.size or file.size > HOLD_LIMIT:
        return False

    def turned(row: Row, handle: Handle) -> bytes | None:
        size = handle.state.size
        if size > HOLD_LIMIT:
            return None
        data = handle.read(0, size).replace(b"\r\n", b"\n")
        return data if file.size <= size else data.replace(b"\n", b"\r\n")

    asked = view.mount.lookup.ask(uuid_text(node.uuid or b""))
    try:
        data = view.mount.reader.with_handle(asked, view.access, turned, enforced=False)
    except (NotFoundError, IsFolderError, ChangedError):
        return False  # it goes on changing: what it was is no more
    return data is not None and len(data) == file.size and sha256(data).digest() == file.digest


def _ignored(found: Present, skills: Collection[str]) -> dict[str, list[str]]:
    """What lies in skills and is left out by name: paths below the skill, those of folders with a slash.

    No index holds them: the folders are listed.
    """
    engine = found.view.mount.engine
    here = {skill.path for skill in found.skills}
    ignore = engine.ignore
    store = engine.store.look() if len(here) == len(skills) else engine.store.look(skills)
    nearest: dict[str, str | None] = {}
    ignored: dict[str, list[str]] = {}
    places = engine.query(lambda: [(path, place) for path, place, _ in engine.catalog.folder_places()])
    for path, place in sorted(places):
        skill = path if path in here else nearest.get(path.rpartition("/")[0]) if path else None
        nearest[path] = skill
        if skill not in skills or skill is None:
            continue
        try:
            with store.folder(place) as folder:
                listed = folder.entries()
        except OSError:
            continue  # gone, or shut: what is known of what it holds is told all the same
        names = list(filter(ignore.reason, (*listed.files, *listed.links, *listed.special)))
        names += (f"{name}/" for name in listed.folders if ignore.ignores_folder(name))
        if names:
            below = path[len(skill) + 1 :] if skill else path
            ignored.setdefault(skill, []).extend(f"{below}/{name}" if below else name for name in names)
    return ignored
