"""The methods of `SkillFileSystem` about contents: digests, snapshots, differences, locks, versions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skillfs.core.lock import Lock, Verification
from skillfs.core.manifest import digest_text, parse_digest, skill_digest
from skillfs.core.model import Differences, FileDigest, Kind, Skill, Snapshot
from skillfs.digests import digest_of_file, manifest_of
from skillfs.errors import InvalidArgumentError, quoted
from skillfs.history.creating import create_snapshot
from skillfs.history.locking import lock_of, read_lock, renewed
from skillfs.history.snapshots import Snapshots, snapshot_of
from skillfs.history.verifying import verify
from skillfs.listing import kind_of
from skillfs.locked import LockedStore
from skillfs.lookup import Asked, list_of_bases
from skillfs.mounts import View, naming
from skillfs.objects.snapshots import SnapshotCatalog
from skillfs.reading import check_count, sequence_of

if TYPE_CHECKING:
    from skillfs.core.versions import SkillVersions
    from skillfs.history.diff import Comparison, Side

__all__ = ["HistoryFace"]


class HistoryFace:
    """Whoever derives from it says what a call may see, and where."""

    _objects: str | os.PathLike[str] | None = None
    _objects_options: Mapping[str, Any] | None = None
    _is_confined = False

    _kept_snapshots: Snapshots | None = None

    def _open_snapshots(self) -> Snapshots:
        """The snapshots of the store."""
        raise NotImplementedError

    def _seen_by(self, base_paths: Sequence[object] | None) -> list[View]:
        """What a call may see, of each store."""
        raise NotImplementedError

    def _asked_of(self, ref: object, base_paths: Sequence[object] | None) -> tuple[View, Asked]:
        """The store in which a reference is to be looked up, and the reference as its look-up takes it."""
        raise NotImplementedError

    def skill(self, ref_or_name: object, *, base_paths: Sequence[object] | None = None) -> Skill:
        """One skill, by its name or by any reference to it or to something in it."""
        raise NotImplementedError

    @property
    def roots(self) -> tuple[str, ...]:
        """How the root of the store may be spelled in front of a path."""
        raise NotImplementedError

    def lock(
        self,
        refs: Sequence[object] | None = None,
        *,
        renewing: Lock | None = None,
        base_paths: Sequence[object] | None = None,
    ) -> Lock:
        """What skills hold now, as a `skills.lock` says it: every file with size, SHA-256 and executable bit.

        Whatever was known of the store is held against it first. `write_lock` keeps a lock in a file,
        `verify` holds a store against it, and `SkillFileSystem(…, lock=…)` reads what it names, and nothing
        else. Of several stores the paths begin with the name of the mount. Where a store does not tell
        executable bits, no file has one in the lock.

        Args:
            refs: Skills, or folders with skills below them; skills nested in those are always included. None
                for all.
            renewing: With `refs`, a lock whose other skills stay as they are in it.
            base_paths: As in `get_content`.

        Raises:
            InvalidArgumentError: A reference is malformed, or there is no skill to lock.
            NotFoundError: Nothing visible answers to a reference.
            IsFileError: One names a file.
            UnreadableError: A file may not be read.
            ChangedError: Files come and go, or change, faster than they can be read.
            StoreUnavailableError: A store does not answer.
        """
        chosen = None if refs is None else self._folders_of(refs, base_paths)
        made = lock_of(self._seen_by(base_paths), chosen)
        return made if renewing is None or chosen is None else renewed(renewing, made, chosen)

    def _folders_of(
        self, refs: Sequence[object], base_paths: Sequence[object] | None
    ) -> dict[str, list[str]]:
        """Store paths of the folders that references name, by mount."""
        folders: dict[str, list[str]] = {}
        for ref in sequence_of(refs, "refs"):
            view, asked = self._asked_of(ref, base_paths)
            with naming(view.mount.name):
                row = view.mount.lookup.folder(asked, view.access)
            folders.setdefault(view.mount.name, []).append(row.path)
        return folders

    def verify(
        self,
        lock: str | os.PathLike[str] | Lock,
        *,
        base_paths: Sequence[object] | None = None,
        reread: bool = False,
        allow_unlocked: bool = False,
        check: bool = True,
    ) -> Verification:
        """Hold what the store has now against a lock, skill by skill and file by file.

        Every file is compared by its SHA-256, which is computed once for each version of it. Whoever may see
        only some skills is told of these alone, of the lock as of the store.

        Args:
            lock: Path of a `skills.lock`, or what `lock` has returned.
            base_paths: As in `get_content`.
            reread: Whether every file is read, whatever is known of the version that is there.
            allow_unlocked: Whether skills that the lock does not name are no fault; inside of a skill that it
                names they are one always.
            check: Whether the store is looked at first, whatever the age of the last check. Who has just
                opened it can spare that.

        Returns:
            How each skill and file stands to the lock; `ok` is False where anything is wrong, or where not
            one file could be compared.

        Raises:
            InvalidArgumentError: The path is none, or lies inside a skill.
            NotFoundError: There is no such lock.
            IntegrityError: It is no lock, or not as skillfs writes it.
            UnreadableError: A file, or the lock, may not be read.
            ChangedError: Files come and go, or change, faster than they can be read.
            StoreUnavailableError: A store does not answer.
        """
        for name, value in (("reread", reread), ("allow_unlocked", allow_unlocked), ("check", check)):
            if not isinstance(value, bool):
                raise InvalidArgumentError(f"{name} is {quoted(value)}; pass True or False")
        wanted = lock if isinstance(lock, Lock) else read_lock(lock)
        everything = base_paths is None and not self._is_confined
        views = self._seen_by(base_paths)
        return verify(
            views, wanted, everything=everything, reread=reread, allow_unlocked=allow_unlocked, check=check
        )

    def manifest(self, ref: object, *, base_paths: Sequence[object] | None = None) -> tuple[FileDigest, ...]:
        """The files of a skill with sizes and SHA-256 digests, sorted by path.

        Those of skills nested in it are among them, and links to files; links to folders are not. A digest
        is computed once for each version of a file and kept.

        Args:
            ref: The skill: its folder, or its name as `name:…`.
            base_paths: As in `get_content`.

        Raises:
            InvalidArgumentError: The reference is malformed, or names a folder that is no skill.
            NotFoundError: Nothing visible answers to it.
            IsFileError: It names a file.
            UnreadableError: A file may not be read.
            ChangedError: Files of it come and go, or change, faster than they can be read.
        """
        view, asked = self._asked_of(ref, base_paths)
        with naming(view.mount.name):
            return manifest_of(view, asked)

    def digest(self, ref: object, *, base_paths: Sequence[object] | None = None) -> str:
        """The SHA-256 of a file, or the digest of a skill, as `sha256:<64 hex>`.

        That of a skill is the SHA-256 of JSON (ASCII, no blanks) of the sorted list of `[path below the skill
        folder, size in bytes, "sha256:<hex of the bytes>"]`, one for each of its files, as `manifest` lists
        them: the content revision that `agentskills-core` computes. It is the same wherever the same files
        lie. It is of what is there at the moment of the call.

        Args:
            ref: A file or a skill.
            base_paths: As in `get_content`.

        Raises:
            InvalidArgumentError: The reference is malformed, or names a folder that is no skill.
            SkillFSError: As in `manifest`.
        """
        view, asked = self._asked_of(ref, base_paths)
        with naming(view.mount.name):
            return digest_text(_digest_of(view, asked))

    @property
    def snapshots(self) -> Snapshots:
        """The snapshots that were taken: to list, restore, export and remove them.

        They lie in the folder or URL that was given as `objects`, else beside the index.

        Raises:
            InvalidArgumentError: There are several stores, and no `objects` were given.
        """
        if self._kept_snapshots is None:
            self._kept_snapshots = self._open_snapshots()
            locks = [view.mount.lookup.locked for view in self._seen_by(None)]
            if any(locked is not None for locked in locks):
                # Which of several stores a snapshot is of, nobody knows: nothing of it is as it is locked.
                self._kept_snapshots.locked = locks[0] if len(locks) == 1 else LockedStore({})
        return self._kept_snapshots

    def snapshot(
        self,
        label: str | None = None,
        *,
        base_paths: Sequence[object] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Snapshot:
        """Keep what the store holds now: every file by its SHA-256, and what lies where.

        What is known and stored is neither read nor stored again. Where nothing has changed since the newest
        snapshot of the store, it is that one, which gets the label as well. Whatever interrupts it, there is
        a whole snapshot or none, and the next one goes on with what is stored. What was lost from a local
        object folder is stored anew; elsewhere what the newest snapshot needs is taken to be there, unless
        `fsck` found damage or nothing has changed.

        Example:
            >>> fs = SkillFileSystem("sample_skills", index=":memory:", objects="memory://snapshots")
            >>> taken = fs.snapshot("first")
            >>> then = SkillFileSystem(at="first", objects="memory://snapshots", index=":memory:")
            >>> [skill.name for skill in then.skills()] == [skill.name for skill in fs.skills()]
            True

        Args:
            label: A name for it: 1 to 100 letters, digits and `._+-` of ASCII, a letter or digit first.
            base_paths: As in `get_content`: only what lies in these is kept.
            on_progress: Called now and then with the number of files done and the number there are.

        Raises:
            InvalidArgumentError: The label is none, there are several stores, or this is a snapshot itself.
            AlreadyExistsError: The label is that of another snapshot.
            UnreadableError: A file may not be read, or the object folder not be written.
            ChangedError: The store changes faster than it can be read.
            StoreUnavailableError: The store does not answer, or the object folder is full, is being tidied,
                or does not answer.
            IntegrityError: There is a lock, and a file is not as it names it, which the message names.
        """
        catalog = self._catalog_to_write()
        (view,) = self._seen_by(base_paths)
        digest, record = create_snapshot(view, catalog, label, on_progress)
        return snapshot_of(digest, record, catalog.labels())

    def _catalog_to_write(self) -> SnapshotCatalog:
        return self.snapshots.catalog(create=True)

    # -- differences and versions --------------------------------------------------------------------------

    def diff(
        self,
        a: str | Snapshot | None,
        b: str | Snapshot | None = None,
        ref: object = None,
        *,
        base_paths: Sequence[object] | None = None,
    ) -> Differences:
        """What leads from one state of the store to another, told by content: skills, and what they hold.

        What is at a path in both is the same thing there, changed or not: `modified`, also where only the
        executable bit, the aim of a link or the enclosing skill is another. What went from one path and came
        at another has `moved`: within one store by its UUID, between two stores where its content went once
        and came once; what lies in a skill that moved, moved. Of two snapshots only what differs is read.

        Example:
            >>> fs = SkillFileSystem("sample_skills", index=":memory:", objects="memory://differences")
            >>> taken = fs.snapshot("before")
            >>> fs.diff("before").skills
            ()

        Args:
            a: The one state: a snapshot, by label, digest or as `latest`, or as `snapshot` returned it. None
                for what the store holds now.
            b: The other, likewise.
            ref: A file, or a folder with all below it, by its path, id or UUID in either state, or a list of
                these, to be told of that alone; None for everything.
            base_paths: As in `get_content`; a move across their bounds is told as `added` or `removed`. One
                given as a path stays that path, and need not be there; an id, UUID or name means where that
                lay in each of the states.

        Raises:
            InvalidArgumentError: What names a snapshot, or a reference, is malformed; a reference is a name
                or a content hash; or there are several stores.
            NotFoundError: No snapshot answers to it, or neither state holds what a reference names.
            IntegrityError: A snapshot is damaged.
            UnreadableError: A file may not be read.
            ChangedError: Files of the store come and go, or change, faster than they can be read.
            StoreUnavailableError: The store or the object folder does not answer.
        """
        return self.compare(a, b, ref, base_paths=base_paths).differences

    def diff_text(
        self,
        a: str | Snapshot | None,
        b: str | Snapshot | None = None,
        ref: object = None,
        *,
        context: int = 3,
        base_paths: Sequence[object] | None = None,
    ) -> str:
        """What differs in the texts of files, line by line, in the unified format that `patch` reads.

        A line before each file says what `diff` says of it. Of what is no text, or has over 8 MiB, the
        digests are told. Lines end at a line feed and nothing else.

        Args:
            a: As in `diff`.
            b: As in `diff`.
            ref: As in `diff`.
            context: Lines that are told around each change.
            base_paths: As in `diff`.

        Returns:
            Nothing where nothing differs.

        Raises:
            SkillFSError: As in `diff`; damage also where it is but the content of a file.
        """
        return "".join(self.compare(a, b, ref, base_paths=base_paths).texts(context))

    def compare(
        self,
        a: str | Snapshot | None,
        b: str | Snapshot | None = None,
        ref: object = None,
        *,
        base_paths: Sequence[object] | None = None,
    ) -> Comparison:
        """What `diff` and `diff_text` tell, from one comparison, and the texts one by one.

        Args:
            a: As in `diff`.
            b: As in `diff`.
            ref: As in `diff`.
            base_paths: As in `diff`.

        Raises:
            SkillFSError: As in `diff`.
        """
        from skillfs.history.diff import Comparison

        if base_paths is not None:
            base_paths = list_of_bases(base_paths)
        refs = None if ref is None else list(ref) if isinstance(ref, list | tuple) else [ref]
        return Comparison(self._side(a, base_paths), self._side(b, base_paths), refs, self.roots)

    def _side(self, which: object, base_paths: Sequence[object] | None) -> Side:
        from skillfs.history.diff import confined_now, side_of_snapshot, side_of_store

        if which is not None:
            return side_of_snapshot(self.snapshots, which, base_paths)
        return side_of_store(confined_now(self._seen_by, base_paths, self.roots))

    def versions(
        self,
        ref: object = None,
        *,
        least: float = 0.1,
        limit: int | None = 20,
        base_paths: Sequence[object] | None = None,
    ) -> list[SkillVersions]:
        """Versions of skills, inside a store and between stores: copies, edited copies, namesakes.

        By their `SKILL.md`: *word for word* where it is the same, byte for byte; *edited* where either of two
        holds enough of the other's phrases, which are five words that follow on each other; *own version*
        where only the name is the same. Words are compared without case and diacritics; of Chinese, Japanese
        and Korean each character is a word; a text of fewer than five words is one phrase. What is no text,
        or has over 1 MiB, is compared as a whole and by name; what cannot be read, or is not as a lock names
        it, by name alone.

        Args:
            ref: A skill, by any reference or by its name; None for all.
            least: Share of the phrases, 0 to 1, from which a version counts as edited.
            limit: How many versions are told of each skill; None for all. `total` says how many there are.
            base_paths: As in `get_content`.

        Returns:
            All skills that are asked for, by path, also those of which there is no other version.

        Raises:
            InvalidArgumentError: An argument is malformed.
            NotFoundError: Nothing visible answers to the reference.
            StoreUnavailableError: A store does not answer.
        """
        from fractions import Fraction

        from skillfs.history.versions import versions_of

        if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least <= 1:
            raise InvalidArgumentError(f"least is {quoted(least)}; pass a share, 0 to 1")
        if limit is not None:
            check_count("limit", limit, 0)
        chosen = None if ref is None else self.skill(ref, base_paths=base_paths).path
        # As it is written: 0.1 means a tenth, which no float is.
        return versions_of(self._seen_by(base_paths), chosen, Fraction(str(least)), limit)


def _digest_of(view: View, asked: Asked) -> bytes:
    row = view.mount.lookup.entry(asked, view.access)
    kind = kind_of(row.kind)
    if kind is Kind.FILE:
        return digest_of_file(view, asked)
    if kind is Kind.FOLDER:
        raise InvalidArgumentError(
            f"{quoted(asked.shown)} names a folder that is no skill; pass a skill or a file"
        )
    view.mount.engine.sync(row.path)  # a digest is of what is there, however old a listing may be
    files = manifest_of(view, asked)
    return skill_digest((file.path, file.size, parse_digest(file.digest)) for file in files)
