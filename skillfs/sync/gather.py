"""Finds where a store differs from its index, and collects both sides of the difference.

`find_dirty` compares signatures: a folder's changes when a name in it comes, goes or is replaced, a file's
when its bytes may have changed. `gather` then lists the dirty folders and reads what is new or different.
Everything that neither side mentions stayed as it is.
"""

from __future__ import annotations

import errno
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

from skillfs.core.model import Place
from skillfs.index.catalog import Catalog
from skillfs.index.rows import NodeRow, Row, RowKind, Visibility, decode_place, encode_place, paths_of
from skillfs.stores.base import FileState, FolderHandle, Store, unsettled
from skillfs.sync.reconcile import parent_of
from skillfs.sync.scan import SKILL_MD, Scanner, Seen, is_gone

__all__ = ["Gathered", "Known", "find_dirty", "gather", "link_differs"]


_FOLDERS = (RowKind.FOLDER, RowKind.SKILL)


class Known(NamedTuple):
    """An entry as the index has it, with the path of its enclosing skill."""

    node: NodeRow
    path: str
    skill: str | None


@dataclass(slots=True)
class Gathered:
    """Both sides of the difference.

    Attributes:
        known: Path to what the index has, where something may have happened.
        seen: Path to what the store shows there.
        listed: Path to row and new state of the folders that were listed and stay as they are.
        unreadable: Rows of the folders that stay as they are because they could not be listed.
    """

    known: dict[str, Known] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)
    listed: dict[str, tuple[Row, FileState]] = field(default_factory=dict)
    unreadable: list[Row] = field(default_factory=list)


def find_dirty(store: Store, catalog: Catalog, scope: Row | None = None) -> set[str]:
    """Paths of the folders that have to be listed again.

    Args:
        store: The store.
        catalog: What is known of it.
        scope: A folder, or None for the whole store.
    """
    database = catalog.database
    # An index in memory has one writer, who is waiting for the answer; its readers need not be held up.
    with nullcontext() if database.in_memory else database.snapshot():
        if scope is None:
            return _find_dirty_everywhere(store, catalog)
        return _find_dirty_below(store, catalog, scope)


def _find_dirty_below(store: Store, catalog: Catalog, scope: Row) -> set[str]:
    places = {scope.key: (scope.path, scope.place)}
    dirty: set[str] = set()
    folders: defaultdict[int, list[tuple[str, bytes]]] = defaultdict(list)
    files: defaultdict[int, list[tuple[str, bytes]]] = defaultdict(list)
    # One place may be shown at several paths: by links into a followed folder, or as a linked SKILL.md.
    listed_at: defaultdict[Place, list[str]] = defaultdict(list)
    closed = _closed_folders(catalog)
    faults = catalog.link_faults()
    folders[scope.place.root].append((scope.place.path, scope.signature))
    listed_at[scope.place].append(scope.path)
    for node in catalog.subtree(scope.key):
        if node.parent not in places:
            continue  # below a link that leads elsewhere now, which is dirty already
        above, place_above = places[node.parent]
        place = place_above.child(node.name)
        if node.kind == RowKind.LINK:
            if link_differs(store, place, node.target, faults.get((node.parent, node.name))):
                dirty.add(above)
            continue
        if node.target is not None:
            resolved = store.resolve(place)
            if isinstance(resolved, str) or encode_place(resolved) != node.target:
                dirty.add(above)
                continue
            place = resolved
        if node.kind == RowKind.FILE:
            closed_file = node.content is None and not store.remote
            if closed_file and _stays_closed(store, place, node.signature, store.open):
                continue
            listed_at[place].append(above)
            files[place.root].append((place.path, node.signature))
        else:
            path = f"{above}/{node.name}" if above else node.name
            places[node.key] = (path, place)
            if node.key in closed and _stays_closed(store, place, node.signature, store.folder):
                continue
            listed_at[place].append(path)
            folders[place.root].append((place.path, node.signature))
    for by_root in (folders, files):
        for root, known in by_root.items():
            for path in store.differing(root, known):
                dirty.update(listed_at[Place(root, path)])
    return dirty


def _find_dirty_everywhere(store: Store, catalog: Catalog) -> set[str]:
    nodes: dict[int, tuple[int, str]] = {}
    signatures: list[tuple[int, bytes]] = []
    for key, parent, name, _, signature, target in catalog.folders():
        if target is not None:
            # Folders behind links into followed folders lie elsewhere than their path says: the slow way.
            root = catalog.by_path(())
            assert root is not None
            return _find_dirty_below(store, catalog, root)
        nodes[key] = (parent, name)
        signatures.append((key, signature))
    paths = paths_of(nodes)
    closed_folders, closed = _closed_folders(catalog), _closed_files(store, catalog)
    if closed_folders:
        signatures = [
            (key, signature)
            for key, signature in signatures
            if key not in closed_folders
            or not _stays_closed(store, Place(0, paths[key]), signature, store.folder)
        ]
    dirty = set(store.differing(0, ((paths[key], signature) for key, signature in signatures)))
    linked: list[tuple[str, str, bytes, str]] = []

    def files() -> Iterator[tuple[str, bytes]]:
        for parent, name, signature, target in catalog.files():
            above = paths[parent]
            if target is not None:
                linked.append((above, name, signature, target))
                continue
            if (
                closed
                and (parent, name) in closed
                and _stays_closed(store, Place(0, above).child(name), signature, store.open)
            ):
                continue
            yield f"{above}/{name}" if above else name, signature

    dirty.update(parent_of(path) for path in store.differing(0, files()))
    for above, name, signature, target in linked:
        resolved = store.resolve(Place(0, above).child(name))
        if isinstance(resolved, str) or encode_place(resolved) != target:
            dirty.add(above)
            continue
        state = store.state(resolved)
        if state is None or state.signature != signature:
            dirty.add(above)
    links = catalog.links()
    faults = catalog.link_faults() if links else {}
    for _, parent, name, _, target in links:
        if link_differs(store, Place(0, paths[parent]).child(name), target, faults.get((parent, name))):
            dirty.add(paths[parent])
    return dirty


def _closed_files(store: Store, catalog: Catalog) -> set[tuple[int, str]]:
    """Folder and name of the files that could not be read."""
    if store.remote:
        return set()  # most have not been read so far; whether one can be is asked by reading it
    return set(catalog.read("SELECT parent, name FROM entry WHERE kind=2 AND content IS NULL"))


def _closed_folders(catalog: Catalog) -> set[int]:
    """Keys of the folders that could not be listed."""
    rows = catalog.read("SELECT DISTINCT folder FROM problem WHERE code='unreadable' AND name=''")
    return {key for (key,) in rows}


def _stays_closed(
    store: Store,
    place: Place,
    signature: bytes,
    opens: Callable[[Place], AbstractContextManager[object]],
) -> bool:
    """Whether what could not be read is the same and still cannot be.

    Its signature never counts as settled: what kept it from being read need not be in it.
    """
    state = store.state(place)
    if state is None or unsettled(state).signature != signature:
        return False
    try:
        with opens(place):
            return False
    except OSError as error:
        return not is_gone(error) and error.errno != errno.EXDEV


def link_differs(store: Store, place: Place, target: str | None, fault: str | None) -> bool:
    """Whether a link leads elsewhere than it did.

    Args:
        store: The store.
        place: Where the link lies.
        target: The path of the store that it led to; None where to none.
        fault: Problem code that says why to none.
    """
    resolved = store.resolve(place)
    if isinstance(resolved, str):
        return target is not None or resolved != fault
    if resolved.root == 0:
        return resolved.path != target
    # Into a followed folder, from which it led on in a circle, or where there was nothing.
    return target is not None or fault != "link-loop"


def gather(store: Store, catalog: Catalog, scanner: Scanner, dirty: Iterable[str]) -> Gathered:
    """List the dirty folders again and collect what is known and what is seen of all that may have changed.

    A folder that cannot be listed keeps everything below it, and says so as a problem.

    Args:
        store: The store.
        catalog: What is known of it.
        scanner: Reads what is new; its `known_content` is asked before a file is read.
        dirty: Paths of folders.
    """
    return _Gathering(store, catalog, scanner).run(dirty)


class _Gathering:
    def __init__(self, store: Store, catalog: Catalog, scanner: Scanner) -> None:
        self._store = store
        self._catalog = catalog
        self._scanner = scanner
        self._result = Gathered()
        self._walks: list[tuple[str, Place, str | None, bool]] = []
        self._unwatched: list[str] = []

    def run(self, dirty: Iterable[str]) -> Gathered:
        pending = sorted(set(dirty), key=lambda p: (p.count("/") if p else -1, p), reverse=True)
        done: set[str] = set()
        while pending:
            path = pending.pop()
            # What lies in a folder that is another, or gone, is looked at with that one.
            if path in done or path in self._result.known:
                continue
            done.add(path)
            if not self._list(path) and path:
                above = parent_of(path)
                if above in done:
                    self._scanner.vanished.add(above)  # it was still there when that was listed
                pending.append(above)
            pending += self._unwatched
            self._unwatched.clear()
        self._drop_overtaken()
        contents = {
            k.node.signature: k.node.content
            for k in self._result.known.values()
            if k.node.content is not None and not k.node.signature.endswith(b"?")
        }
        self._scanner.known_content = contents.get
        for path, place, skill, linked in self._walks:
            chain = self._chain(parent_of(path))
            for seen in self._scanner.walk(path, place, skill, linked=linked, chain=chain):
                self._result.seen[seen.path] = seen
        if self._store.remote:
            self._read_heads()
        if self._scanner.unreadable:
            self._keep_unreadable()
        self._drop_orphans()
        return self._result

    def _read_heads(self) -> None:
        """Read the heads that are new, and keep what was learned of files that are the same."""
        known, result = self._result.known, self._result.seen
        for seen in self._scanner.with_heads(list(result.values())):
            was = known.get(seen.path)
            if was is not None and seen.content is None and was.node.signature == seen.state.signature:
                seen = seen._replace(content=was.node.content)
            result[seen.path] = seen

    def _drop_overtaken(self) -> None:
        """Forget what was listed in a folder before the one above showed that it is another, or gone."""
        result, scanner = self._result, self._scanner
        overtaken = {path for path in (*result.listed, *scanner.unreadable) if path in result.known}
        if not overtaken:
            return
        for path in overtaken:
            result.listed.pop(path, None)
        for path in [path for path in result.seen if parent_of(path) in overtaken]:
            del result.seen[path]
        result.unreadable[:] = [row for row in result.unreadable if row.path not in overtaken]
        self._walks[:] = [walk for walk in self._walks if parent_of(walk[0]) not in overtaken]
        scanner.unreadable -= overtaken
        scanner.problems[:] = [p for p in scanner.problems if p.folder not in overtaken]

    def _drop_orphans(self) -> None:
        """Leave to the next check what was seen in a folder that was gone when the one above was listed."""
        result, dropped = self._result, set()
        for path in sorted(result.seen):
            above = parent_of(path)
            holder = result.seen.get(above)
            gone = above in result.known if holder is None else holder.kind not in _FOLDERS
            if path and (gone or above in dropped):
                dropped.add(path)
                del result.seen[path]
        if dropped:
            problems = self._scanner.problems
            problems[:] = [p for p in problems if p.folder in result.listed or p.folder in result.seen]

    def _list(self, path: str) -> bool:
        """List one folder; False when it is gone, so that the folder above has to be listed."""
        parts = tuple(path.split("/")) if path else ()
        row = self._catalog.by_path(parts)
        if row is None or row.kind not in _FOLDERS:
            return False
        above = self._catalog.by_path(parts[:-1]) if parts else None
        skill_above = above.skill.path if above is not None and above.skill is not None else None
        try:
            with self._store.folder(row.place) as folder:
                sight = self._scanner.look(folder, path, row.place, skill_above is not None)
                skill = path if sight.is_skill else skill_above
                is_visible = row.visible == Visibility.IN_SKILL
                if sight.is_skill != (row.kind == RowKind.SKILL) or is_visible != (skill is not None):
                    self._forget(row, skill_above)
                    self._walks.append((path, row.place, skill_above, row.target is not None))
                    return True
                children = {node.name: node for node in self._catalog.children(row.key)}
                self._result.listed[path] = (row, sight.state)
                if skill is not None:
                    for name in sight.files:
                        self._compare_file(folder, row, path, name, children.pop(name, None), skill)
                    if sight.skill_md_place is not None:
                        self._add_known(row, path, children.pop(SKILL_MD, None), skill)
                        full = f"{path}/{SKILL_MD}" if path else SKILL_MD
                        seen = self._scanner.linked_file(full, sight.skill_md_place, skill)
                        if seen is not None:
                            self._result.seen[full] = seen
        except OSError as error:
            if is_gone(error):
                return False
            if error.errno == errno.EXDEV and path:
                self._forget(row, skill_above)
                self._result.seen[path] = self._scanner.mount_point(path, row.place, row.target is not None)
            else:
                self._scanner.unreadable_folder(path, row.place, skill_above, row.target is not None, error)
                self._result.unreadable.append(row)
            return True
        for name in sight.folders:
            node = children.pop(name, None)
            if node is None or node.target is not None or node.kind not in _FOLDERS:
                self._add_known(row, path, node, skill)
                self._walks.append((f"{path}/{name}" if path else name, row.place.child(name), skill, False))
            else:
                self._see_to_watch(path, node)
        for name in sight.links:
            self._compare_link(row, path, name, children.pop(name, None), skill)
        for node in children.values():
            self._add_known(row, path, node, skill)
        return True

    def _forget(self, row: Row, skill_above: str | None) -> None:
        """Look at all of a folder as if for the first time.

        It became a skill or ceased to be one, so what can be seen below it, and in which skill, is another.
        """
        node = NodeRow(
            row.key, 0, row.name, row.kind, row.visible, row.id, row.uuid, row.signature, row.size,
            row.modified, row.content, row.target,
        )  # fmt: skip
        skill = row.path if row.kind == RowKind.SKILL else skill_above
        self._result.known[row.path] = Known(node, row.path, skill)
        self._add_below(row.key, row.path, skill)

    def _compare_file(
        self, folder: FolderHandle, row: Row, path: str, name: str, node: NodeRow | None, skill: str
    ) -> None:
        if node is not None and node.kind == RowKind.FILE and node.target is None:
            try:
                state, names = folder.stat(name)
            except OSError as error:
                if is_gone(error):
                    self._add_known(row, path, node, skill)
                else:
                    self._scanner.unreadable_file(path, name, error)
                return
            settled = not state.signature.endswith(b"?")
            is_known = node.content is not None or self._store.remote
            if settled and state.signature == node.signature and is_known:
                self._scanner.note_names(path, name, names)
                return
        self._add_known(row, path, node, skill)
        seen = self._scanner.file(folder, path, row.place, name, skill)
        if seen is not None:
            self._result.seen[seen.path] = seen

    def _compare_link(self, row: Row, path: str, name: str, node: NodeRow | None, skill: str | None) -> None:
        full = f"{path}/{name}" if path else name
        place = row.place.child(name)
        target = self._scanner.into_followed(place, self._chain(path))
        if target is None:
            self._add_known(row, path, node, skill)
            for seen in self._scanner.link(full, place, skill):
                self._result.seen[full] = seen
        elif self._store.is_regular(target):
            self._add_known(row, path, node, skill)
            found = self._scanner.linked_file(full, target, skill) if skill is not None else None
            if found is not None:
                self._result.seen[full] = found
        elif node is None or node.kind not in _FOLDERS or node.target != encode_place(target):
            self._add_known(row, path, node, skill)
            self._walks.append((full, target, skill, True))
        else:
            self._see_to_watch(path, node)

    def _see_to_watch(self, path: str, node: NodeRow) -> None:
        """List a known folder, too, if this process does not watch it: another one has taken it in."""
        is_watched = self._scanner.is_watched
        full = f"{path}/{node.name}" if path else node.name
        if is_watched is not None and not is_watched(full, node.signature):
            self._unwatched.append(full)

    def _chain(self, path: str) -> tuple[Place, ...]:
        """Where the links into followed folders lead that a path goes through."""
        chain: list[Place] = []
        parts = path.split("/") if path and self._store.followed else []
        for depth in range(1, len(parts) + 1):
            row = self._catalog.by_path(parts[:depth])
            if row is not None and row.target is not None and row.kind != RowKind.LINK:
                chain.append(row.place)
        return tuple(chain)

    def _add_known(self, row: Row, path: str, node: NodeRow | None, skill: str | None) -> None:
        if node is None:
            return
        full = f"{path}/{node.name}" if path else node.name
        if node.kind == RowKind.SKILL:
            skill = full
        self._result.known[full] = Known(node, full, skill)
        if node.kind in _FOLDERS:
            self._add_below(node.key, full, skill)

    def _add_below(self, key: int, path: str, skill: str | None) -> None:
        at: dict[int, tuple[str, str | None]] = {key: (path, skill)}
        for node in self._catalog.subtree(key):
            above, enclosing = at[node.parent]
            full = f"{above}/{node.name}" if above else node.name
            if node.kind == RowKind.SKILL:
                enclosing = full
            at[node.key] = (full, enclosing)
            self._result.known[full] = Known(node, full, enclosing)

    def _keep_unreadable(self) -> None:
        """What could not be listed removes nothing: below it, what was known counts as seen."""
        known = self._result.known
        for path in sorted(known):
            folder = path
            while folder not in self._scanner.unreadable and folder:
                folder = parent_of(folder)
            if folder not in self._scanner.unreadable:
                continue
            if path == folder or path not in self._result.seen:
                met = self._result.seen.get(folder)
                skill_there = met.skill if met is not None else None
                self._result.seen[path] = _as_seen(known[path], folder, skill_there)


def _as_seen(known: Known, folder: str, skill_there: str | None) -> Seen:
    """What was known below a folder that cannot be listed, as if it had been seen.

    Args:
        known: The entry.
        folder: The folder that cannot be listed.
        skill_there: The skill that this folder lies in now.
    """
    node = known.node
    state = FileState(node.signature, node.size or 0, node.modified)
    inner = known.skill is not None and (known.skill + "/").startswith(folder + "/" if folder else "")
    lies = None if node.target is None or node.kind == RowKind.LINK else decode_place(node.target)
    return Seen(known.path, node.kind, state, node.content, lies, known.skill if inner else skill_there)
