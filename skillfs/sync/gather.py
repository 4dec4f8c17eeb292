"""Finds where a store differs from its index, and collects both sides of the difference.

`find_dirty` compares signatures: a folder's changes when a name in it comes, goes or is replaced, a file's when its
bytes may have changed. `gather` then lists the dirty folders and reads what is new or different. Everything that
neither side mentions stayed as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from skillfs.core.model import Place
from skillfs.index.catalog import ROOT, Catalog, NodeRow, Row, RowKind, Visibility, encode_place, paths_of
from skillfs.stores.base import FileState, Store
from skillfs.sync.reconcile import parent_of
from skillfs.sync.scan import SKILL_MD, Scanner, Seen

__all__ = ["Gathered", "Known", "find_dirty", "gather"]


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
    """

    known: dict[str, Known] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)
    listed: dict[str, tuple[Row, FileState]] = field(default_factory=dict)


def find_dirty(store: Store, catalog: Catalog, scope: Row | None = None) -> set[str]:
    """Paths of the folders that have to be listed again.

    Args:
        store: The store.
        catalog: What is known of it.
        scope: A folder, or None for the whole store.
    """
    if scope is None:
        return _find_dirty_everywhere(store, catalog)
    nodes = catalog.subtree(scope.key)
    places = {scope.key: (scope.path, scope.place)}
    folders: defaultdict[int, list[tuple[str, bytes]]] = defaultdict(list)
    files: defaultdict[int, list[tuple[str, bytes]]] = defaultdict(list)
    paths: dict[Place, str] = {scope.place: scope.path}
    dirty = set()
    folders[scope.place.root].append((scope.place.path, scope.signature))
    for node in nodes:
        above, place_above = places[node.parent]
        path = f"{above}/{node.name}" if above else node.name
        own = place_above.child(node.name)
        place = own
        if node.target is not None and node.kind != RowKind.LINK:
            resolved = store.resolve(own)
            if isinstance(resolved, str) or encode_place(resolved) != node.target:
                dirty.add(above)
                continue
            place = resolved
        if node.kind in (RowKind.FOLDER, RowKind.SKILL):
            places[node.key] = (path, place)
            paths[place] = path
            folders[place.root].append((place.path, node.signature))
        elif node.kind == RowKind.FILE:
            paths[place] = above
            files[place.root].append((place.path, node.signature))
        elif _link_differs(store, own, node.target):
            dirty.add(above)
    for by_root in (folders, files):
        for root, known in by_root.items():
            dirty.update(paths[Place(root, p)] for p in store.differing(root, known))
    return dirty


def _find_dirty_everywhere(store: Store, catalog: Catalog) -> set[str]:
    nodes: dict[int, tuple[int, str]] = {}
    signatures: list[tuple[int, bytes]] = []
    moved_places: dict[int, str] = {}
    for key, parent, name, _, signature, target in catalog.folders():
        nodes[key] = (parent, name)
        signatures.append((key, signature))
        if target is not None:
            moved_places[key] = target
    paths = paths_of(nodes)
    dirty: set[str] = set()
    if moved_places:
        # Folders behind links into followed folders lie elsewhere than their path says: the slow way for all.
        root = catalog.by_path(())
        assert root is not None
        return find_dirty(store, catalog, root)
    dirty.update(store.differing(0, ((paths[key], signature) for key, signature in signatures)))
    linked: list[tuple[int, str, bytes, str]] = []

    def files() -> Iterator[tuple[str, bytes]]:
        for parent, name, signature, target in catalog.files():
            if target is not None:
                linked.append((parent, name, signature, target))
                continue
            above = paths[parent]
            yield f"{above}/{name}" if above else name, signature

    dirty.update(parent_of(path) for path in store.differing(0, files()))
    for parent, name, signature, target in linked:
        resolved = store.resolve(Place(0, paths[parent]).child(name))
        state = store.state(resolved) if isinstance(resolved, Place) else None
        if state is None or state.signature != signature or encode_place(resolved) != target:  # type: ignore[arg-type]  # a state has a place
            dirty.add(paths[parent])
    for _, parent, name, _, target in catalog.links():
        if _link_differs(store, Place(0, paths[parent]).child(name), target):
            dirty.add(paths[parent])
    return dirty


def _link_differs(store: Store, place: Place, target: str | None) -> bool:
    resolved = store.resolve(place)
    now = resolved.path if isinstance(resolved, Place) and resolved.root == 0 else None
    return now != target


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
        self._anew: set[str] = set()

    def run(self, dirty: Iterable[str]) -> Gathered:
        pending = sorted(set(dirty), key=lambda p: (p.count("/") if p else -1, p))
        done: set[str] = set()
        while pending:
            path = pending.pop(0)
            if path in done or self._is_covered(path):
                continue
            done.add(path)
            if not self._list(path) and path:
                pending.insert(0, parent_of(path))
        contents = {
            k.node.signature: k.node.content
            for k in self._result.known.values()
            if k.node.kind == RowKind.FILE and k.node.content is not None
        }
        self._scanner.known_content = contents.get
        for path, place, skill, linked in self._walks:
            for seen in self._scanner.walk(path, place, skill, linked=linked):
                self._result.seen[seen.path] = seen
        self._keep_unreadable()
        return self._result

    def _is_covered(self, path: str) -> bool:
        while True:
            if path in self._anew:
                return True
            if not path:
                return False
            path = parent_of(path)

    def _list(self, path: str) -> bool:
        """List one folder; False when it is gone, so that the folder above has to be listed."""
        parts = tuple(path.split("/")) if path else ()
        row = self._catalog.by_path(parts)
        if row is None or row.kind not in (RowKind.FOLDER, RowKind.SKILL):
            return False
        above = self._catalog.by_path(parts[:-1]) if parts else None
        skill_above = above.skill.path if above is not None and above.skill is not None else None
        try:
            with self._store.folder(row.place) as folder:
                sight = self._scanner.look(folder, path, row.place, skill_above is not None)
                if sight.is_skill != (row.kind == RowKind.SKILL):
                    self._judge_anew(row, skill_above)
                    return True
                skill = path if sight.is_skill else skill_above
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
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            self._scanner.unreadable_folder(path, row.place, skill_above, row.target is not None, error)
            return True
        for name in sight.folders:
            node = children.pop(name, None)
            if node is None or node.target is not None or node.kind not in (RowKind.FOLDER, RowKind.SKILL):
                self._add_known(row, path, node, skill)
                self._walks.append((f"{path}/{name}" if path else name, row.place.child(name), skill, False))
        for name in sight.links:
            self._compare_link(row, path, name, children.pop(name, None), skill)
        for node in children.values():
            self._add_known(row, path, node, skill)
        return True

    def _judge_anew(self, row: Row, skill_above: str | None) -> None:
        """A folder became a skill or ceased to be one: what can be seen below it, and in which skill, is another."""
        self._anew.add(row.path)
        node = NodeRow(
            row.key, 0, row.name, row.kind, row.visible, row.id, row.uuid, row.signature, row.size, row.modified,
            row.content, None if row.place == Place(0, row.path) else encode_place(row.place),
        )  # fmt: skip
        skill = row.path if row.kind == RowKind.SKILL else skill_above
        self._result.known[row.path] = Known(node, row.path, skill)
        self._add_below(row.key, row.path, skill)
        linked = row.key != ROOT and row.target is not None
        self._walks.append((row.path, row.place, skill_above, linked))

    def _compare_file(self, folder, row: Row, path: str, name: str, node: NodeRow | None, skill: str) -> None:  # type: ignore[no-untyped-def]
        if node is not None and node.kind == RowKind.FILE and node.target is None:
            try:
                if folder.stat(name).signature == node.signature and node.content is not None:
                    return
            except OSError:
                self._add_known(row, path, node, skill)
                return
        self._add_known(row, path, node, skill)
        seen = self._scanner.file(folder, path, row.place, name, skill)
        if seen is not None:
            self._result.seen[seen.path] = seen

    def _compare_link(self, row: Row, path: str, name: str, node: NodeRow | None, skill: str | None) -> None:
        full = f"{path}/{name}" if path else name
        place = row.place.child(name)
        target = self._scanner.into_followed(place, ())
        if target is None:
            self._add_known(row, path, node, skill)
            for seen in self._scanner.link(full, place, skill):
                self._result.seen[full] = seen
            return
        is_folder = not self._store.is_regular(target)
        if is_folder:
            if node is not None and node.target == encode_place(target) and node.kind in (RowKind.FOLDER, RowKind.SKILL):
                return
            self._add_known(row, path, node, skill)
            self._walks.append((full, target, skill, True))
        else:
            self._add_known(row, path, node, skill)
            found = self._scanner.linked_file(full, target, skill) if skill is not None else None
            if found is not None:
                self._result.seen[full] = found

    def _add_known(self, row: Row, path: str, node: NodeRow | None, skill: str | None) -> None:
        if node is None:
            return
        full = f"{path}/{node.name}" if path else node.name
        if row.kind == RowKind.SKILL:
            skill = path
        elif skill == path:
            # The folder was no skill when the index saw it.
            skill = row.skill.path if row.skill is not None else None
        if node.kind == RowKind.SKILL:
            skill = full
        self._result.known[full] = Known(node, full, skill)
        if node.kind in (RowKind.FOLDER, RowKind.SKILL):
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
        for folder in self._scanner.unreadable:
            prefix = folder + "/" if folder else ""
            for path, known in self._result.known.items():
                if (path.startswith(prefix) or path == folder) and (path == folder or path not in self._result.seen):
                    self._result.seen[path] = _as_seen(known)


def _as_seen(known: Known) -> Seen:
    node = known.node
    lies = None if node.target is None else Place(*_split(node.target))
    state = FileState(node.signature, node.size or 0, node.modified)
    visible = node.visible == Visibility.IN_SKILL
    return Seen(known.path, node.kind, state, node.content, lies, known.skill if visible else None)


def _split(target: str) -> tuple[int, str]:
    root, _, path = target.partition(":")
    return int(root), path
