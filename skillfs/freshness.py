"""The methods of `SkillFileSystem` about what changes: checks, revisions, watching, the index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from skillfs.core.model import Changes
from skillfs.errors import InvalidArgumentError, quoted
from skillfs.feed import ChangeFeed, Followed
from skillfs.following import access_from_now, steps_of
from skillfs.listing import changes_of, check_since
from skillfs.lookup import Lookup
from skillfs.mounts import status_of
from skillfs.sync.engine import Engine
from skillfs.sync.watcher import Hold, watch

__all__ = ["FreshnessFace"]


class FreshnessFace:
    """Of one store; whoever derives from it sets the attributes.

    Attributes:
        max_age: Seconds that a check of the store holds for listings.
    """

    max_age: float
    _engine: Engine
    _lookup: Lookup

    def sync(self) -> None:
        """Check the whole store: when this returns, everything written before the call is in the index.

        Raises:
            StoreUnavailableError: The store is not there.
        """
        self._engine.sync()
        self._engine.learned.flush()

    @property
    def checking(self) -> bool:
        """Whether a check of the store is under way in another thread.

        Until it is over, a reading of what is new or changed waits; what is known is read at once.
        """
        return self._engine.is_checking

    @property
    def revision(self) -> int:
        """A number that grows with every change of the store, as far as it has been noticed."""
        return self._engine.query(self._engine.journal.revision)

    def changes(self, since: int, *, base_paths: Sequence[object] | None = None) -> Changes:
        """What changed since a revision.

        Args:
            since: A value of `revision`; 0 asks for everything and is answered with a reset.
            base_paths: As in `get_content`.

        Raises:
            InvalidArgumentError: `since` is no integer of 0 or more.
        """
        check_since(since)
        access = self._lookup.access(base_paths)
        self._engine.ensure_fresh("", self.max_age)
        revision, reset, rows = self._engine.query(lambda: self._engine.journal.since(since))
        return Changes(revision, reset, changes_of(rows, access))

    def watch(
        self,
        callback: Callable[[Changes], object] | None = None,
        *,
        since: int | None = None,
        base_paths: Sequence[object] | None = None,
    ) -> ChangeFeed:
        """What changes from now on, as it comes: every revision, in order, once.

        While it is open the index is kept in step by itself: a local store is watched, a remote one listed
        every `max_age` seconds, once a second at most; so is what another process takes in. `status` says
        how, and why a store is not watched.

        A `Changes` is one revision: without items where what changed shows nowhere, with `reset` where what
        follows on a revision is not known any more. Of several stores it is all that was new at once. Who may
        see only some skills is told of these alone, and takes everything as new when a base that is given by
        id, UUID or name is moved.

        Example:
            >>> with SkillFileSystem("sample_skills", index=":memory:").watch() as feed:
            ...     feed.get(timeout=0)

        Args:
            callback: Called with each `Changes`, from a thread of its own; what it raises is logged. Without
                one, iterate over what is returned.
            since: A value of `revision`, to begin with what followed on it; by default the present one.
            base_paths: As in `get_content`.

        Returns:
            An iterator that waits for the next changes; a context manager whose end closes it. With a
            callback it goes on until it is closed, else until nobody refers to it.

        Raises:
            InvalidArgumentError: An argument is malformed, or `SKILLFS_WATCH` is neither `poll` nor `auto`.
            NotFoundError: A base path is not there.
            IsFileError: A base path is a file.
        """
        if callback is not None and not callable(callback):
            raise InvalidArgumentError(f"callback is {quoted(callback)}; pass a function of one argument")
        if since is not None:
            check_since(since)
        return self._feed(callback, since, base_paths)

    def _feed(
        self,
        callback: Callable[[Changes], object] | None,
        since: int | None,
        base_paths: Sequence[object] | None,
    ) -> ChangeFeed:
        engine = self._engine
        accesses = access_from_now(self._lookup, base_paths, self.max_age)
        pull = steps_of(engine, accesses)
        start = self.revision if since is None else since
        stores = [Followed("", engine, hold, not accesses().restricted) for hold in self._hold_all()]
        return ChangeFeed(pull, start, stores, callback)

    def _hold_all(self) -> list[Hold]:
        """Have the store, or all of several, kept in step for as long as these are referred to."""
        return [watch(self._engine, self.max_age)]

    def index_all(self, *, on_progress: Callable[[int, int], None] | None = None) -> int:
        """Compute everything that is otherwise computed at a file's first reading: text facts, MD5, SHA-256.

        Afterwards `md5:` and `sha256:` references find every file that can be read. Several hundred megabytes
        are shared with a second process.

        Args:
            on_progress: Called now and then with the number of files done and the number there are.

        Returns:
            How many files have them now; those that cannot be read, or are being written, have not.

        Raises:
            StoreUnavailableError: The store is not there.
        """
        from skillfs.indexing import index_all

        self.sync()
        return index_all(self._engine, self._lookup.access(), on_progress)

    def status(self) -> dict[str, Any]:
        """Identity, revision, where the index is kept, and counts of skills, folders, files and bytes.

        Of a remote store also `tells`, what its listings tell of a version of a file (`version`, its `time`
        only, or `nothing`), `checked`, how many seconds ago all of it was looked at, and `check_error`, what
        a check in the background failed with since, or None: it is tried again by itself.

        `watch` says whether the index is kept in step by itself: `off`, `starting`, `watching`, `polling`
        (looked at now and then), or `unavailable` where the root of a local store is not there;
        `watch_reason` why it is not watched, and `watched_folders` how many folders are, or None to who may
        see only some skills.

        Of a snapshot `at` is the digest of its record.

        Of several stores: revision and counts of all together, and under `mounts` a list of this of each,
        with its name.
        """
        return status_of(self._engine, self._lookup.access())
