"""`SkillFileSystem`: the one door to a store of skills, or to several."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from skillfs.access import Access
from skillfs.core.drawing import Tree
from skillfs.core.lock import Lock
from skillfs.core.manifest import digest_text
from skillfs.core.model import Entry, Problem, Skill
from skillfs.core.refs import PathRef
from skillfs.core.search import SearchResults
from skillfs.core.wire import Content, Lines
from skillfs.errors import (
    InvalidArgumentError,
    NotFoundError,
    not_found,
    quoted,
)
from skillfs.folding import folded
from skillfs.freshness import FreshnessFace
from skillfs.fsspec_face import FsspecFace
from skillfs.fuse.face import KernelFace
from skillfs.history.face import HistoryFace
from skillfs.history.locking import read_lock
from skillfs.history.snapshots import Snapshots
from skillfs.history.vouching import settle
from skillfs.index.rows import Row
from skillfs.listing import (
    all_problems,
    all_skills,
    entry_of,
    prompt_of,
    skill_of,
)
from skillfs.locked import locked_store
from skillfs.looking_back import place_of
from skillfs.lookup import Asked, Lookup, list_of_bases
from skillfs.mounted import MountedStores
from skillfs.mounting import max_age_of, open_mounts, open_one
from skillfs.mounts import Mount, MountTable, View
from skillfs.objects.snapshots import SnapshotCatalog
from skillfs.objects.store import SnapshotStore
from skillfs.reading import Reader
from skillfs.stores.local import LocalStore
from skillfs.stores.remote import RemoteStore
from skillfs.tree import Branch, KeptListings, TreeRequest, file_details, list_tree
from skillfs.writing.writer import Writer

if TYPE_CHECKING:
    from skillfs.core.outline import Outline

__all__ = ["SkillFileSystem"]


class SkillFileSystem(HistoryFace, FreshnessFace, FsspecFace, KernelFace):
    """A filesystem over the skill folders of a store, or of several; read-only unless told otherwise.

    A `ref` may be an integer id, a UUID, a content hash (`sha256:…`, `md5:…`, `xxh3:…`),
    `name:<skill name>`, a `skill://` URL or a path from the store root. The methods that fsspec defines take
    paths only.

    Example:
        >>> fs = SkillFileSystem("sample_skills", index=":memory:")
        >>> fs.get_content("commit-messages/SKILL.md", start=0, length=3).text
        '---'

    Of several stores, each mounted under a name, the first component of a path is the name, and the root
    lists the mounts. Ids, UUIDs, hashes and names are looked for in all of them; of a hash or a name the
    first mount that has it answers.

    Args:
        store: Folder that holds the skill folders, as a path or a URL of any filesystem that fsspec knows;
            `~` is expanded. Or a mapping of names to these, or to mappings of what belongs to one store:
            `store`, `fs`, `target_options`, `store_id`, `ignore`, `follow`, `index`, `max_age`, `at`,
            `objects`, `objects_options`.
        fo: The same, as fsspec passes it for a chained URL.
        fs: A filesystem of fsspec, in which `store` is a path.
        target_protocol: Protocol of `fo`.
        target_options: Options for the filesystem of a URL, as fsspec takes them; a local store takes none.
        index: Path of the index file, or `":memory:"`; by default a file in the user's data folder.
        store_id: UUID that names the store, so that entries have the same identities everywhere; by default
            the one in `.skillfs/store.json` at the root, else one derived from the store's URL.
        base_paths: Folders that every call is confined to; None for no restriction.
        ignore: Name patterns that are left out beside the built-in ones; `!pattern` takes one back.
        follow: Folders outside the store into which links may lead.
        writable: Whether the methods of fsspec that write do so; else they raise `ReadOnlyError`.
        max_age: Seconds that a check holds for listings; by default 2, and 60 where the store is remote.
        watch: Whether the index is kept in step by itself for as long as this filesystem is there: a local
            store is watched, so that listings are a quarter of a second old at most, and a remote one listed
            every `max_age` seconds. See `watch` and `status`.
        at: Label or digest of a snapshot, or `latest`, to have what the store held then in place of what it
            holds now: all of it, whatever is ignored now, and only for reading. It never changes, so there is
            nothing to watch.
        objects: Folder, or URL of any filesystem that fsspec knows, in which snapshots are kept; by default
            a folder beside the index. With `at` it suffices, and no store need be named.
        objects_options: Options for the filesystem of that URL, as fsspec takes them.
        lock: Path of a `skills.lock`, which is read now and not again, or a lock as `lock` returns it. Every
            reading of what it does not name exactly is refused, and of a skill whose `SKILL.md` it does not
            name so, nothing is told but that it is there.
        on_progress: Called with the number of folders read, now and then while a store is opened the first
            time.

    Raises:
        InvalidArgumentError: An argument is malformed or unknown.
        NotFoundError: The store, or a base path, is not there.
        IsFileError: The store, or a base path, is a file.
        UnreadableError: The store may not be read.
    """

    def __new__(cls, store: object = None, *args: object, **options: object) -> SkillFileSystem:
        """A filesystem of one store, or of several where `store` is a mapping."""
        several = isinstance(store, Mapping) and cls is SkillFileSystem
        made: SkillFileSystem = super().__new__(_Mounted if several else cls)
        return made

    def __init__(
        self,
        store: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        *,
        fo: str | None = None,
        fs: object = None,
        target_protocol: str | None = None,
        target_options: Mapping[str, object] | None = None,
        index: str | os.PathLike[str] | None = None,
        store_id: str | None = None,
        base_paths: Sequence[object] | None = None,
        ignore: Sequence[str] = (),
        follow: Sequence[str | os.PathLike[str]] = (),
        max_age: float | None = None,
        watch: bool = False,
        writable: bool = False,
        at: str | None = None,
        objects: str | os.PathLike[str] | None = None,
        objects_options: Mapping[str, object] | None = None,
        lock: str | os.PathLike[str] | Lock | None = None,
        on_progress: Callable[[int], None] | None = None,
        **options: Any,
    ) -> None:
        fsspec_options = {"skip_instance_cache", "use_listings_cache", "asynchronous", "loop", "batch_size"}
        unknown = sorted(set(options) - fsspec_options)
        if unknown:
            raise InvalidArgumentError(
                f"SkillFileSystem takes no argument {quoted(unknown[0])}; see its documentation"
            )
        super().__init__(**{k: v for k, v in options.items() if k in fsspec_options})
        if not isinstance(writable, bool):
            raise InvalidArgumentError(f"writable is {quoted(writable)}; pass True or False")
        if writable and at is not None:
            raise InvalidArgumentError("a snapshot is not written to; leave out writable, or at")
        self._writable = writable
        self._objects, self._objects_options = objects, objects_options
        self._bases = base_paths = None if base_paths is None else list_of_bases(base_paths)
        self._is_confined = base_paths is not None
        self._lock = lock if lock is None or isinstance(lock, Lock) else read_lock(lock)
        if not isinstance(watch, bool):
            raise InvalidArgumentError(f"watch is {quoted(watch)}; pass True or False")
        if isinstance(store, Mapping):
            ours = {"fo": fo, "fs": fs, "target_protocol": target_protocol, "target_options": target_options,
                    "store_id": store_id, "index": None if index == ":memory:" else index,
                    "at": at}  # fmt: skip
            for name, value in ours.items():
                if value is not None:
                    raise InvalidArgumentError(
                        f"{name} belongs to one store, and several are given; pass it with the store, as in "
                        f'{{"name": {{"store": …, {json.dumps(name)}: …}}}}'
                    )
            self._open_table(
                store, index is not None, base_paths, ignore, follow, max_age, on_progress,
                {"objects": objects, "objects_options": objects_options}, self._lock,
            )  # fmt: skip
            self._holds = self._hold_all() if watch else []
            return
        self._index = index
        self._engine, look, self._place = open_one(
            store,
            fo=fo,
            target_protocol=target_protocol,
            fs=fs,
            target_options=target_options,
            index=index,
            store_id=store_id,
            ignore=ignore,
            follow=follow,
            at=at,
            objects=objects,
            objects_options=objects_options,
            on_progress=on_progress,
        )
        self.max_age = max_age_of(self._engine, max_age)
        self._engine.sync(on_progress=on_progress, look=look)
        locked = None if self._lock is None else locked_store(self._lock)
        self._lookup = Lookup(self._engine, base_paths, self.max_age, locked=locked)
        self._reader = Reader(self._lookup)
        self._listings = KeptListings()
        self._strip_roots()
        if writable:
            self._own_writer = Writer(self._lookup)
        self._holds = self._hold_all() if watch else []

    def __reduce__(self) -> tuple[Any, ...]:
        made, (kind, args, options) = super().__reduce__()
        if options.get("at") is not None and isinstance(self._engine.store, SnapshotStore):
            # The very snapshot, whatever its label, or `latest`, has become by then.
            options = {**options, "at": digest_text(self._engine.store.digest)}
        if self._lock is not None:
            options = {**options, "lock": self._lock}  # whatever its file has become by then
        return made, (kind, args, options)

    def _writer(self, path: object) -> tuple[Writer, Asked]:
        return self._own_writer, self._lookup.ask_path(path)

    def _open_table(self, *arguments: Any) -> None:
        raise InvalidArgumentError("a class derived from SkillFileSystem takes one store, not several")

    # -- reading -------------------------------------------------------------------------------------------

    def get_content(
        self,
        ref: object,
        start: int = 0,
        length: int | None = None,
        *,
        base_paths: Sequence[object] | None = None,
        encoding: str | None = None,
        expect_hash: str | None = None,
    ) -> Content:
        """Read a stretch of a text file.

        Args:
            ref: Any reference.
            start: First character, from 0; at or past the end the reading is empty.
            length: Characters; None for the rest.
            base_paths: Folders; the enclosing skill must be one or lie below one. None: no restriction.
            encoding: Decode as this instead of what the file shows itself to be.
            expect_hash: MD5 of an earlier page; another version of the file is refused.

        Raises:
            InvalidArgumentError: An argument is malformed.
            NotFoundError: Nothing visible answers to the reference, or a base path is not there.
            IsFolderError: It names a folder.
            NotTextError: The file is not text, or not in that encoding.
            TooLargeError: It would have to be held whole and is over 64 MiB.
            ChangedError: It is not the version of `expect_hash`, or changes faster than it can be read.
            UnreadableError: The system refuses to open it.
            IntegrityError: There is a lock, which does not name the file as it is.
        """
        return self._reader.content(
            self._lookup.ask(ref), start, length, self._lookup.access(base_paths), encoding, expect_hash
        )

    def get_lines(
        self,
        ref: object,
        offset: int = 1,
        limit: int | None = None,
        *,
        base_paths: Sequence[object] | None = None,
        encoding: str | None = None,
        expect_hash: str | None = None,
        most_characters: int | None = None,
    ) -> Lines:
        r"""Read some lines of a text file; they end at `\n` and nothing else.

        Args:
            ref: Any reference.
            offset: First line, from 1; past the last the reading is empty.
            limit: Lines; None for the rest.
            base_paths: As in `get_content`.
            encoding: As in `get_content`.
            expect_hash: As in `get_content`.
            most_characters: Characters of the text at most: whole lines as many as fit; of a first line that
                alone is longer, the beginning, which `cut_at` tells. Memory is bounded by it as well, however
                large the file is. None: no bound.

        Raises:
            SkillFSError: As in `get_content`.
        """
        asked, access = self._lookup.ask(ref), self._lookup.access(base_paths)
        return self._reader.lines(asked, offset, limit, access, encoding, expect_hash, most_characters)

    def outline(
        self, ref: object, *, base_paths: Sequence[object] | None = None, encoding: str | None = None
    ) -> Outline:
        """The headings of a Markdown file, with the stretch of text that each stands over.

        The sections follow on each other without a gap: what `get_content` reads by their `start` and
        `length`, joined, is the text exactly. What is no Markdown by its name (`.md`, `.markdown`, `.mdown`,
        `.mkd`, `.mdx`) is one section.

        Args:
            ref: Any reference.
            base_paths: As in `get_content`.
            encoding: As in `get_content`.

        Raises:
            TooLargeError: The file is over 64 MiB, or Markdown of more than a million lines.
            SkillFSError: As in `get_content`.
        """
        from skillfs.core.outline import outlined

        return outlined(self._whole_text(ref, base_paths, encoding))

    def _whole_text(self, ref: object, base_paths: Sequence[object] | None, encoding: str | None) -> Content:
        asked, access = self._lookup.ask(ref), self._lookup.access(base_paths)
        return self._reader.content(asked, 0, None, access, encoding, None, held_for="an outline")

    def entry(self, ref: object, *, base_paths: Sequence[object] | None = None) -> Entry:
        """Look an entry up.

        Raises:
            InvalidArgumentError: The reference is malformed.
            NotFoundError: Nothing visible answers to it.
            NotIndexedError: It is a hash that is not known for every file yet.
        """
        asked = self._lookup.ask(ref)
        self._engine.learned.flush()  # what a reading has just learned is to be seen
        row = self._lookup.entry(asked, self._lookup.access(base_paths))
        return entry_of(row, link=row.path if asked.linked(row) else None)

    def find_content(self, content_hash: str, *, base_paths: Sequence[object] | None = None) -> list[Entry]:
        """Every file with a content, sorted by path.

        Args:
            content_hash: `sha256:<64 hex>`, `md5:<32 hex>` or `xxh3:<32 hex>`.
            base_paths: As in `get_content`.

        Raises:
            InvalidArgumentError: It is no content hash.
            NotFoundError: No visible file has this content.
            NotIndexedError: None is known to have it, and the hash is not known for every file yet.
        """
        asked = self._lookup.ask(content_hash)
        return [entry_of(row) for row in self._lookup.contents(asked, self._lookup.access(base_paths))]

    # -- listing -------------------------------------------------------------------------------------------

    def skill_tree(
        self,
        ref: object = None,
        *,
        depth: int | None = None,
        files: bool = True,
        hidden: bool = False,
        include: str | list[str] | tuple[str, ...] | None = None,
        exclude: str | list[str] | tuple[str, ...] | None = None,
        details: bool = False,
        limit: int | None = 500,
        cursor: str | None = None,
        base_paths: Sequence[object] | None = None,
    ) -> Tree:
        """List a folder or skill with all below it; without a reference, every skill of the store.

        Args:
            ref: A folder or skill. None lists skills and the folders that lead to them, not what the skills
                hold, unless `include` asks for files; `"/"` lists the whole store with its files.
            depth: Levels; None for all.
            files: Whether files are listed.
            hidden: Whether names inside skills that start with a dot are listed.
            include: Patterns that choose what is listed; folders that lead to a match are always shown.
            exclude: Patterns for what is left out; they win.
            details: With sizes, characters, times and MD5; reads the files of the page not read before.
            limit: Entries on a page; None for all.
            cursor: Of an earlier page, to go on after it.
            base_paths: As in `get_content`.

        Raises:
            InvalidArgumentError: An argument is malformed.
            NotFoundError: Nothing visible answers to the reference.
            IsFileError: It names a file.
        """
        access = self._lookup.access(base_paths)
        row = self._folder(ref, access)
        overview = ref is None and include is None
        request = TreeRequest(depth, files, hidden, include, exclude, details, limit, cursor, overview)
        engine = self._engine
        details_of = partial(file_details, self._reader, self._lookup)
        settle([self._view(access)])
        branch = Branch(engine.catalog, engine.query, row, access, details_of, locked=self._lookup.locked)
        return list_tree([branch], request, engine.title, self.roots, self._listings)

    def skills(self, *, fold: bool = False, base_paths: Sequence[object] | None = None) -> list[Skill]:
        """Every skill, sorted by path.

        Args:
            fold: Whether skills that hold the same files, byte for byte, are told once: as the first of them,
                whose `places` are the paths of all. It reads what has not been read before, of skills that
                may be the same by the paths and sizes of their files.
            base_paths: As in `get_content`.
        """
        access = self._lookup.access(base_paths)
        self._engine.ensure_fresh("", self.max_age)
        view, locked = self._view(access), self._lookup.locked
        settle([view])
        found = self._engine.query(lambda: all_skills(self._engine.catalog, access, locked=locked))
        if not fold:
            return found
        return folded((view, skill) for skill in found)

    def skill(self, ref_or_name: object, *, base_paths: Sequence[object] | None = None) -> Skill:
        """One skill, by its name or by any reference to it or to something in it.

        What has the form of an id, a UUID, a hash or a URL, or holds a `/`, is a reference and no name. Of
        anything else the name counts first, then the path; of several skills of a name the first by path.

        Raises:
            NotFoundError: No visible skill answers to it.
            InvalidArgumentError: The reference is malformed.
        """
        access = self._lookup.access(base_paths)
        asked = self._lookup.ask(ref_or_name)
        row = None
        if isinstance(asked.ref, PathRef) and isinstance(ref_or_name, str) and "/" not in ref_or_name:
            with contextlib.suppress(NotFoundError, InvalidArgumentError):
                row = self._lookup.entry(self._lookup.ask(f"name:{ref_or_name}"), access)
        if row is None:
            row = self._lookup.entry(asked, access)
        if (above := row.skill) is None:
            raise not_found(asked.shown)
        locked = self._lookup.locked
        settle([self._view(access)])
        found = self._engine.query(lambda: skill_of(self._engine.catalog, above.key, access, locked=locked))
        if found is None:
            raise not_found(asked.shown)
        return found

    def to_prompt(self, *, base_paths: Sequence[object] | None = None) -> str:
        """The `<available_skills>` block that tells a model which skills there are.

        In the XML of the Agent Skills client guide, with name, description and location (the path of the
        `SKILL.md`, which can be passed back) of every skill that is not shadowed, and not other than a lock
        names it; empty when there is none.
        """
        skills = self.skills(base_paths=base_paths)
        return prompt_of((skill for skill in skills if skill.shadowed_by is None), self.roots)

    def problems(self, *, base_paths: Sequence[object] | None = None) -> list[Problem]:
        """Everything that is wrong with skills, and what belongs to no skill, sorted by path."""
        access = self._lookup.access(base_paths)
        self._engine.ensure_fresh("", self.max_age)
        locked = self._lookup.locked
        settle([self._view(access)])
        return self._engine.query(lambda: all_problems(self._engine.catalog, access, locked=locked))

    @property
    def roots(self) -> tuple[str, ...]:
        """How the root of the store, or of any of several, may be spelled in front of a path."""
        return self._engine.store.spellings

    # -- search --------------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        base_paths: Sequence[object] | None = None,
        seconds: float | None = None,
    ) -> SearchResults:
        """Files that match a query, the best first: by names of skills and files, descriptions and text.

        A file matches when it has every word of the query that tells much beside the others: short ones such
        as `how` tell little, and what stands in most files. Where fewer than ten files do, those that have
        some of the words follow. Case, diacritics and the `s` of an English plural make no difference; of
        Chinese, Japanese and Korean any two characters that stand together are a word. `"words in quotes"`
        must stand together as they are written, with nothing but blanks and punctuation between them;
        nothing else is special. A skill is found as its `SKILL.md`. Of files with the same text the best is
        the hit and tells of the others. Links are not searched, as what they lead to is found where it is.

        The first search reads the first 4 MiB of every file, and makes an index of words beside the one of
        the store; later ones read what is new. What is not text is found by its name alone. Quoted words are
        looked for in the 1,000 texts that are likely to match best, of a remote store in 200; those that are
        not looked at do not count as searched, and further words choose better ones.

        Example:
            >>> found = SkillFileSystem("sample_skills", index=":memory:").search("write a commit message")
            >>> found.hits[0].path
            'commit-messages/SKILL.md'

        Args:
            query: Words, in at most 1,000 characters; of more than 48 words the first count.
            limit: Hits, 1 to 100.
            base_paths: As in `get_content`; what lies outside bears on nothing, not on the order either.
            seconds: How long to read what is new: then the answer is about what was read so far, and
                says so by `complete`. None for as long as it takes.

        Raises:
            InvalidArgumentError: An argument is malformed, or the query holds no word.
            NotFoundError: A base path is not there.
            IsFileError: A base path is a file.
            StoreUnavailableError: The store does not answer.
        """
        from skillfs.searching import search

        views = [self._view(self._lookup.access(base_paths))]
        settle(views, fresh=True)
        return search(views, query, limit, seconds)

    # -- inner ---------------------------------------------------------------------------------------------

    @property
    def fsid(self) -> str:
        """Identity of the store, and of the snapshot of it that this is."""
        store = self._engine.store
        own = f"_{store.digest.hex()}" if isinstance(store, SnapshotStore) else ""
        return f"skill_{self._engine.namespace.uuid}{own}"

    def _open_snapshots(self) -> Snapshots:
        store = self._engine.store
        place = self._place
        if place is None:
            assert isinstance(store, LocalStore | RemoteStore)
            place = place_of(
                store, index=self._index, objects=self._objects, objects_options=self._objects_options
            )
        return Snapshots(place, self._engine.namespace.uuid, self._bases, self.roots)

    def _catalog_to_write(self) -> SnapshotCatalog:
        if isinstance(self._engine.store, SnapshotStore):
            raise InvalidArgumentError("this is a snapshot already; take one of the store, without at")
        return super()._catalog_to_write()

    def _seen_by(self, base_paths: Sequence[object] | None) -> list[View]:
        return [self._view(self._lookup.access(base_paths))]

    def _asked_of(self, ref: object, base_paths: Sequence[object] | None) -> tuple[View, Asked]:
        return self._view(self._lookup.access(base_paths)), self._lookup.ask(ref)

    def _view(self, access: Access) -> View:
        """The store as the one mount of a table, as a call may see it."""
        return View(Mount("", self._engine, self._lookup, self._reader, self.max_age), access)

    def _folder(self, ref: object, access: Access) -> Row:
        if ref is None:
            self._engine.ensure_fresh("", self.max_age)
            root = self._engine.query(lambda: self._engine.catalog.by_path(()))
            assert root is not None
            return root
        asked = self._lookup.ask(ref)
        row = self._lookup.folder(asked, access)
        self._engine.ensure_fresh(row.path, self.max_age)
        return self._lookup.folder(asked, access)


class _Mounted(MountedStores, SkillFileSystem):
    """Several stores in one; what `SkillFileSystem` makes of a mapping."""

    def _open_table(
        self,
        store: Mapping[Any, object],
        in_memory: bool,
        base_paths: Sequence[object] | None,
        ignore: Sequence[str],
        follow: Sequence[Any],
        max_age: float | None,
        on_progress: Callable[[int], None] | None,
        objects: Mapping[str, Any],
        lock: Lock | None,
    ) -> None:
        mounts = open_mounts(
            store,
            in_memory=in_memory,
            ignore=ignore,
            follow=follow,
            max_age=max_age,
            on_progress=on_progress,
            objects=objects,
            lock=lock,
        )
        table = MountTable(mounts)
        self._use(table if base_paths is None else table.confined(base_paths))

    def __reduce__(self) -> tuple[Any, ...]:
        made, (kind, args, options) = super().__reduce__()
        stores = args[0] if args else options["store"]
        pinned = dict(stores)
        for mount in self._table.mounts:
            store = mount.engine.store
            if isinstance(store, SnapshotStore):
                pinned[mount.name] = {**stores[mount.name], "at": digest_text(store.digest)}
        if args:
            return made, (kind, (pinned, *args[1:]), options)
        return made, (kind, args, {**options, "store": pinned})

    def _open_snapshots(self) -> Snapshots:
        if self._objects is None or self._bases is not None:
            raise InvalidArgumentError(
                "snapshots are of one store, and there are several; open that one by itself"
            )
        place = place_of(None, index=None, objects=self._objects, objects_options=self._objects_options)
        return Snapshots(place, None, None, ())

    def _catalog_to_write(self) -> SnapshotCatalog:
        raise InvalidArgumentError("a snapshot is of one store, and there are several; open each by itself")
