"""Looks at a store and says what is there.

A walk goes from the top down, so the enclosing skill of every file is known when the file is met, and only
files inside skills are read. Links are not followed here, but for two kinds that have no entry elsewhere in
the store to be an alias of: a `SKILL.md` that is a link, and a link into a followed folder.
"""

from __future__ import annotations

import errno
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import NamedTuple

from skillfs.core.digest import xxh3
from skillfs.core.frontmatter import HEAD_LIMIT
from skillfs.core.ignore import IgnoreRules
from skillfs.core.model import Place, Severity
from skillfs.core.wire import quote_name
from skillfs.errors import SkillFSError
from skillfs.index.rows import RowKind
from skillfs.stores.base import FileState, FolderHandle, KeyRefusedError, StaleFile, Store, unsettled
from skillfs.stores.workers import Workers

__all__ = ["PENDING", "SKILL_MD", "FolderSight", "ScanProblem", "Scanner", "Seen", "is_gone", "is_left_out"]

SKILL_MD = "SKILL.md"

PENDING = bytes(bytearray(b"not read yet"))
"""The head of a `SKILL.md` of a remote store until it is read; told by identity."""

MOST_WAITING = 128
"""How many heads are asked for before the first of them is taken: with 72 KiB each, under 10 MB."""

MOST_LINKS = 8
"""How many links into followed folders may lead on from one another."""


# What opening says when the thing that was listed has given way: to nothing, to a file, to a link, or to a
# socket or device.
_GONE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV))


def is_gone(error: OSError) -> bool:
    """Whether an error means that there is no such folder or file, rather than that it cannot be read."""
    return error.errno in _GONE


def is_left_out(store: Store, ignore: IgnoreRules, target: Place) -> bool:
    """Whether what a link leads to is left out by a name: no link brings it back."""
    return ignore.hides(target.path, is_folder=not store.is_regular(target))


class ScanProblem(NamedTuple):
    """Something wrong with a name in a folder, or with the folder itself where the name is empty."""

    folder: str
    name: str
    code: str
    severity: Severity
    message: str


class Seen(NamedTuple):
    """One thing that the store shows.

    Attributes:
        path: Store path.
        kind: Folder, skill, file or link.
        state: Signature, size and time.
        content: XXH3-128 of a file; None when it could not be read.
        lies: Where it lies, when that is not where its path says; None as a rule.
        skill: Path of the enclosing skill; None outside skills.
        head: The first bytes of a `SKILL.md`; empty when it could not be read, `PENDING` until it is.
    """

    path: str
    kind: RowKind
    state: FileState
    content: bytes | None
    lies: Place | None
    skill: str | None
    head: bytes | None = None


class FolderSight(NamedTuple):
    """A folder's own state and what it holds, ignored names left out."""

    state: FileState
    is_skill: bool
    folders: list[str]
    files: list[str]
    links: list[str]
    skill_md_place: Place | None


class Scanner:
    """Scans one store.

    Args:
        store: The store.
        ignore: Names that are left out.

    Attributes:
        known_content: Gives the content of a file whose signature is known already, so that it is not read.
        on_progress: Called now and then with the number of folders met.
        on_folder: Called with every folder that was opened, before it is listed, the path of the folder that
            shows what is in it, and the place of the first where that is another.
        is_watched: Tells of a path and a signature whether that folder has been passed to `on_folder`.
        problems: What is wrong with what was met.
        unreadable: Paths of the folders that could not be listed.
        vanished: Paths of the folders from which something went away meanwhile.
    """

    def __init__(self, store: Store, ignore: IgnoreRules) -> None:
        self._store = store
        self.ignore = ignore
        self.known_content: Callable[[bytes], bytes | None] | None = None
        self.on_progress: Callable[[int], None] | None = None
        self.on_folder: Callable[[FolderHandle, str, Place | None], None] | None = None
        self.is_watched: Callable[[str, bytes], bool] | None = None
        self.problems: list[ScanProblem] = []
        self.unreadable: set[str] = set()
        self.vanished: set[str] = set()

    def walk(
        self,
        path: str,
        place: Place,
        skill: str | None,
        *,
        linked: bool = False,
        chain: tuple[Place, ...] = (),
    ) -> Iterator[Seen]:
        """Everything at and below a folder, folders before what they hold.

        Args:
            path: Store path of the folder.
            place: Where it lies.
            skill: Path of the skill above it, if there is one.
            linked: Whether it is itself a link into a followed folder.
            chain: Where the links above it lead.
        """
        stack: list[tuple[str, Place, str | None, bool, tuple[Place, ...]]] = [
            (path, place, skill, linked, (*chain, place) if linked else chain)
        ]
        met = 0
        while stack:
            path, place, skill, linked, chain = stack.pop()
            met += 1
            if self.on_progress is not None and met % 256 == 0:
                self.on_progress(met)
            try:
                with self._store.folder(place) as folder:
                    sight = self.look(folder, path, place, skill is not None)
                    if sight.is_skill:
                        skill = path
                    kind = RowKind.SKILL if sight.is_skill else RowKind.FOLDER
                    yield Seen(path, kind, sight.state, None, place if linked else None, skill)
                    if skill is not None:
                        yield from self.files(folder, path, place, sight, skill)
            except OSError as error:
                if is_gone(error):
                    self.vanished.add(path)
                elif error.errno == errno.EXDEV:
                    yield self.mount_point(path, place, linked)
                else:
                    yield self.unreadable_folder(path, place, skill, linked, error)
                continue
            prefix = path + "/" if path else ""
            for name in sight.links:
                target = self.into_followed(place.child(name), chain)
                if target is None:
                    yield from self.link(prefix + name, place.child(name), skill)
                elif self._is_folder(target):
                    stack.append((prefix + name, target, skill, True, (*chain, target)))
                elif skill is not None:
                    seen = self.linked_file(prefix + name, target, skill)
                    if seen is not None:
                        yield seen
            stack.extend((prefix + name, place.child(name), skill, False, chain) for name in sight.folders)

    def look(self, folder: FolderHandle, path: str, place: Place, in_skill: bool) -> FolderSight:
        """Sort what an open folder holds, and note what is wrong with its names."""
        if self.on_folder is not None:
            self.on_folder(folder, path, None)
        reason = self.ignore.reason
        listed = folder.entries()
        folders = [name for name in listed.folders if not self.ignore.ignores_folder(name)]
        files = [name for name in listed.files if reason(name) is None]
        links = [name for name in listed.links if reason(name) is None]
        odd = [name for name in listed.special if reason(name) is None]
        secrets: list[str] = []
        if len(files) < len(listed.files) or len(links) < len(listed.links):
            secrets = [name for name in (*listed.files, *listed.links) if reason(name) == "secret"]
        for code, name, message in listed.unfit:
            severity: Severity = "info" if code == "directory-marker" else "warning"
            self.problems.append(ScanProblem(path, name, code, severity, message))
        is_skill = SKILL_MD in files
        skill_md_place = None
        if SKILL_MD in links:
            target = self._resolve(place.child(SKILL_MD))
            if target is not None and self._store.is_regular(target):
                skill_md_place = target
                is_skill = True
                links.remove(SKILL_MD)
        in_skill = in_skill or is_skill
        names = folders + files
        together = "".join(names)
        lowered = {name.lower() for name in names}
        if (
            secrets
            or odd
            or listed.undecodable
            or (not is_skill and "skill.md" in lowered)
            or not together.isascii()
            or not together.isprintable()
            or len(lowered) < len(names)
        ):
            self._judge_names(path, listed.undecodable, in_skill, is_skill, names, files, odd, secrets)
        return FolderSight(folder.state, is_skill, folders, files, links, skill_md_place)

    def files(
        self, folder: FolderHandle, path: str, place: Place, sight: FolderSight, skill: str
    ) -> Iterator[Seen]:
        """The files of an open folder that lies in a skill."""
        for name in sight.files:
            seen = self.file(folder, path, place, name, skill)
            if seen is not None:
                yield seen
        if sight.skill_md_place is not None:
            seen = self.linked_file(f"{path}/{SKILL_MD}" if path else SKILL_MD, sight.skill_md_place, skill)
            if seen is not None:
                yield seen

    def file(self, folder: FolderHandle, path: str, place: Place, name: str, skill: str) -> Seen | None:
        """One file of an open folder; None when it is no more."""
        full = f"{path}/{name}" if path else name
        head = HEAD_LIMIT if name == SKILL_MD else 0
        if self._store.remote:
            state, _ = folder.stat(name)
            return Seen(full, RowKind.FILE, state, None, None, skill, PENDING if head else None)
        try:
            if head == 0 and self.known_content is not None:
                state, names = folder.stat(name)
                known = self.known_content(state.signature)
                if known is not None:
                    self.note_names(path, name, names)
                    return Seen(full, RowKind.FILE, state, known, None, skill)
            state, content, start, names = folder.hash(name, head=head)
        except OSError as error:
            if is_gone(error):
                self.vanished.add(path)
                return None
            self.unreadable_file(path, name, error)
            state = self._unknown(place.child(name))
            return Seen(full, RowKind.FILE, state, None, None, skill, b"" if head else None)
        if names > 1:
            self.note_names(path, name, names)
        return Seen(full, RowKind.FILE, state, content, None, skill, start if head else None)

    def with_heads(self, met: Iterable[Seen]) -> Iterator[Seen]:
        """The same, with the heads of all `SKILL.md` read; those of a remote store several at a time.

        Raises:
            StaleFile: One is gone since the look that showed it.
            StoreUnavailableError: The store does not answer.
        """
        if not self._store.remote:
            yield from met
            return
        with Workers() as workers:
            window: deque[tuple[Seen, Future[Seen] | None]] = deque()
            waiting = 0
            for seen in met:
                job = workers.submit(self._with_head, seen) if seen.head is PENDING else None
                waiting += job is not None
                window.append((seen, job))
                while window and (waiting >= MOST_WAITING or window[0][1] is None):
                    waiting -= window[0][1] is not None
                    yield _result(*window.popleft())
            while window:
                yield _result(*window.popleft())

    def _with_head(self, seen: Seen) -> Seen:
        if seen.state.size == 0:
            return seen._replace(head=b"", content=xxh3(b""))
        place = Place(0, seen.path)
        try:
            with self._store.open(place) as handle:
                head = handle.read(0, HEAD_LIMIT)
                content = xxh3(head) if len(head) == handle.state.size else None
                return seen._replace(state=handle.settled(), head=head, content=content)
        except FileNotFoundError:
            raise StaleFile from None
        except KeyRefusedError as error:
            return self._headless(seen, error)
        except SkillFSError:
            raise
        except OSError as error:
            return self._headless(seen, error)

    def _headless(self, seen: Seen, error: OSError) -> Seen:
        above, _, name = seen.path.rpartition("/")
        self.unreadable_file(above, name, error)
        return seen._replace(state=unsettled(seen.state), head=b"")

    def note_names(self, path: str, name: str, names: int) -> None:
        """Note a file that has more than one name."""
        if names > 1:
            message = "has other names (hard links): an edit through one of them changes this file too"
            self.problems.append(ScanProblem(path, name, "hard-link", "info", message))

    def linked_file(self, path: str, target: Place, skill: str) -> Seen | None:
        """A file that lies where a link leads, and has no other entry."""
        above, _, name = target.path.rpartition("/")
        shown_in, _, shown_as = path.rpartition("/")
        head = HEAD_LIMIT if shown_as == SKILL_MD else 0
        try:
            with self._store.folder(lies := Place(target.root, above)) as folder:
                if self.on_folder is not None:
                    self.on_folder(folder, shown_in, lies)
                state, content, start, _ = folder.hash(name, head=head)
        except OSError as error:
            if is_gone(error):
                self.vanished.add(shown_in)
                return None
            self.unreadable_file(shown_in, shown_as, error)
            return Seen(path, RowKind.FILE, self._unknown(target), None, target, skill, b"" if head else None)
        return Seen(path, RowKind.FILE, state, content, target, skill, start if head else None)

    def link(self, path: str, place: Place, skill: str | None) -> Iterator[Seen]:
        """A link, unresolved: where it leads is decided when everything has been seen."""
        state = self._store.state(place)
        if state is not None:
            yield Seen(path, RowKind.LINK, state, None, None, skill)

    def into_followed(self, place: Place, chain: tuple[Place, ...]) -> Place | None:
        """Where a link leads, when that is a followed folder and no cycle."""
        if len(chain) >= MOST_LINKS:
            return None
        target = self._resolve(place)
        if target is None or target.root == 0:
            return None
        top = target.path + "/" if target.path else ""
        if any(above.root == target.root and (above.path + "/").startswith(top) for above in (*chain, place)):
            return None
        return target

    def _resolve(self, link: Place) -> Place | None:
        """Where a link leads, unless that is nowhere, out of bounds or left out."""
        target = self._store.resolve(link)
        if not isinstance(target, Place) or is_left_out(self._store, self.ignore, target):
            return None
        return target

    def _is_folder(self, place: Place) -> bool:
        return not self._store.is_regular(place)

    def _judge_names(
        self,
        path: str,
        undecodable: list[bytes],
        in_skill: bool,
        is_skill: bool,
        names: list[str],
        files: list[str],
        odd: list[str],
        secrets: list[str],
    ) -> None:
        def add(name: str, code: str, severity: Severity, message: str) -> None:
            self.problems.append(ScanProblem(path, name, code, severity, message))

        for raw in undecodable:
            shown = raw.decode("utf-8", "backslashreplace")
            message = f"the name {quote_name(shown)} is not UTF-8 and is left out; rename it"
            add("", "name-not-utf8", "warning", message)
        if not is_skill:
            for name in files:
                if name.lower() == "skill.md":
                    message = "only a file named exactly SKILL.md makes a skill; rename it"
                    # Outside skills a whole skill is lost by it; inside one it may well be just a file.
                    add(name, "wrong-case-skill-md", "info" if in_skill else "error", message)
        if not in_skill:
            return
        for name in odd:
            add(name, "special-file", "warning", "is a pipe, socket or device and is left out; remove it")
        for name in secrets:
            message = "looks like a secret and is not served; keep it outside the skill"
            add(name, "secret-file", "warning", message)
        folded = Counter(name.casefold() for name in names)
        if len(folded) < len(names):
            for name in names:
                if folded[name.casefold()] > 1:
                    message = "differs from a neighbour in case alone; many systems keep only one"
                    add(name, "case-collision", "warning", message)
        for name in names:
            if not name.isprintable() or (not name.isascii() and quote_name(name) != name):
                message = "has characters in its name that cannot be seen; rename it"
                add(name, "invisible-characters", "warning", message)

    def mount_point(self, path: str, place: Place, linked: bool) -> Seen:
        """A folder on another device: hidden, but remembered, so that its unmounting is noticed."""
        above, _, name = path.rpartition("/")
        message = "lies on another device and is left out; name it as one to follow, to serve it"
        self.problems.append(ScanProblem(above, name, "mount-point", "warning", message))
        return Seen(path, RowKind.FOLDER, self._unknown(place), None, place if linked else None, None)

    def unreadable_folder(
        self, path: str, place: Place, skill: str | None, linked: bool, error: OSError
    ) -> Seen:
        """A folder that may not be listed: it is there, and what was known below it stays."""
        self.unreadable.add(path)
        message = f"cannot be listed ({_why(error)}); what was known below it is kept"
        self.problems.append(ScanProblem(path, "", "unreadable", "error", message))
        return Seen(path, RowKind.FOLDER, self._unknown(place), None, place if linked else None, skill)

    def unreadable_file(self, path: str, name: str, error: OSError) -> None:
        """Note a file that is there and may not be opened."""
        if error.errno == errno.EFBIG:
            message = "is too large to be read when the store is scanned; it is served without a hash"
            self.problems.append(ScanProblem(path, name, "too-large", "warning", message))
            return
        if isinstance(error, KeyRefusedError):
            message = f"cannot be opened: {error.message}"
        else:
            message = f"cannot be opened ({_why(error)}); mend its permissions"
        self.problems.append(ScanProblem(path, name, "unreadable", "error", message))

    def _unknown(self, place: Place) -> FileState:
        """The state of what could not be read: every later check looks again."""
        return unsettled(self._store.state(place) or FileState(b"", 0, 0))


def _result(seen: Seen, job: Future[Seen] | None) -> Seen:
    return seen if job is None else job.result()


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__
