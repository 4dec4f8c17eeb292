"""Search: which files a query matches, the best of them first.

The index of words says which files are likely to match best; of these the texts are read, as they are now,
and compared with the query. So what a hit shows is true at the moment of the call; which files there are, and
which of them match, is as of the last check, like all that is listed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import TIMEOUT_MAX
from typing import NamedTuple, TypeAlias, TypeVar

from skillfs.access import Access
from skillfs.core.digest import uuid_text
from skillfs.core.matching import Fields, Finder, Match, match_of, passages_of, telling, weight_of
from skillfs.core.model import Kind
from skillfs.core.refs import UuidRef
from skillfs.core.search import Passage, Query, SearchHit, SearchResults, Word, parse_query
from skillfs.errors import (
    InvalidArgumentError,
    NotTextError,
    SkillFSError,
    StoreUnavailableError,
    quoted,
)
from skillfs.index.rows import Row, RowKind
from skillfs.index.words import SearchFile, every, some
from skillfs.listing import in_order
from skillfs.lookup import Asked
from skillfs.mounts import View, naming
from skillfs.reading import check_count
from skillfs.stores.base import KeyRefusedError
from skillfs.sync.engine import Engine
from skillfs.wordindex import MOST_BYTES, fields_of, index_of, known_content, read_missing, take_changes

__all__ = ["search"]

T = TypeVar("T")

MOST_HITS = 100

MOST_COPIES = 20
"""Paths of copies that a hit tells."""

FEW = 10
"""Where fewer files have every telling word of a query, those that have any of its words match, too."""

MOST_READ = 30
"""Texts that are read for one answer beside as many as there are to be hits; copies of one count once."""

MOST_VERIFIED = 1_000
MOST_VERIFIED_REMOTE = 200
"""Texts that are read to see whether words follow one another as quoted."""

MOST_CHARACTERS = 8 << 20
MOST_CHARACTERS_VERIFIED = 32 << 20
"""Characters of the texts that are read for one answer; beyond, only as many as there are to be hits."""

MOST_COUNTED = 5_000
"""Files that have a word are counted up to here: beyond, it is common."""

MOST_TOGETHER = 128
"""Texts of a remote store that are asked for at a time."""

MOST_TURNS = 3

_Group: TypeAlias = list[tuple[int, str]]
"""Key and path of files that had the same content and name when they were searched, by path."""

_SKILLS_BELOW = """
WITH RECURSIVE down (key, uuid, kind) AS (SELECT key, uuid, kind FROM entry WHERE key=? UNION ALL
    SELECT c.key, c.uuid, c.kind FROM down CROSS JOIN entry c ON c.parent=down.key WHERE c.kind<2)
SELECT uuid FROM down WHERE kind=1
"""


def search(views: Sequence[View], query: str, limit: int, seconds: float | None) -> SearchResults:
    """See `SkillFileSystem.search`.

    Args:
        views: The stores, and what may be seen of each.
        query: The query.
        limit: How many hits.
        seconds: How long to catch up with the stores; None for as long as it takes.
    """
    parsed = parse_query(query)
    check_count("limit", limit, 1)
    if limit > MOST_HITS:
        raise InvalidArgumentError(f"limit must be {MOST_HITS} or less; ask a narrower query instead")
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and not (is_number and seconds >= 0):
        raise InvalidArgumentError(f"seconds is {quoted(seconds)}; pass a number, 0 or more, or None")
    deadline = None if seconds is None else time.monotonic() + min(seconds, TIMEOUT_MAX)
    for turn in range(MOST_TURNS):
        try:
            searches = [_Search(view, deadline) for view in views]
            with contextlib.ExitStack() as moments:
                for one in searches:
                    with naming(one.view.mount.name):
                        moments.enter_context(one.index.moment())
                chosen = _choose(searches, parsed, limit)
        except _Lost:
            continue
        # In the meantime there may have come more, or another may have thrown the dead away, with all else.
        if not turn and chosen.searched < chosen.texts and (deadline is None or time.monotonic() < deadline):
            continue
        return _answer(chosen, query, limit)
    raise StoreUnavailableError("the index of words is removed again and again; try again")


class _Lost(Exception):
    """The index of words has been thrown away in the meantime."""


class _Search:
    """A search in one store, which has caught up with it.

    Args:
        view: The store, and what may be seen of it.
        deadline: By the monotonic clock, how long to catch up; None for as long as it takes.
    """

    def __init__(self, view: View, deadline: float | None) -> None:
        self.view = view
        self.engine = view.mount.engine
        self.locked = view.mount.lookup.locked
        self._skills: list[bytes] | None = None
        view.mount.ensure_fresh()
        with naming(view.mount.name):
            self.index = index_of(self.engine)
            take_changes(self.engine, self.index)
            if view.access.restricted and "" not in view.access.tops:
                self._skills = self.engine.query(partial(_skills_of, self.engine, view.access))
            read_missing(self.engine, self.index, self._skills, deadline)

    def ask(self, work: Callable[[SearchFile], T]) -> T:
        """Ask the index of words about what may be seen."""

        def confined(file: SearchFile) -> T:
            if file.revision() is None:
                raise _Lost
            file.only(self._skills)
            return work(file)

        with naming(self.view.mount.name):
            return self.index.run(confined)

    def candidates(self, work: Callable[[SearchFile], list[tuple[int, int]]]) -> list[_Group]:
        """Files that the index of words gives, those with one document together, the best first."""
        found = self.ask(work)
        with naming(self.view.mount.name):
            paths = self.engine.query(lambda: self.engine.catalog.with_paths([key for _, key in found]))
        groups: dict[int, _Group] = {}
        for number, key in found:
            groups.setdefault(number, []).append((key, paths.get(key, "")))
        return [sorted(group, key=lambda pair: in_order(pair[1])) for group in groups.values()]

    def row(self, key: int) -> Row | None:
        """A file, when it is still there and may be seen."""
        row = self.engine.query(lambda: self.engine.catalog.by_key(key))
        if row is None or row.kind != RowKind.FILE or row.skill is None or not self.view.access.sees(row):
            return None
        return row

    def fields(self, row: Row) -> Fields:
        """The names that belong to a file; of a skill that a lock does not vouch for, that of its folder."""
        return self.engine.query(lambda: self._fields(row))

    def _fields(self, row: Row) -> Fields:
        with self.engine.catalog.database.snapshot():
            found = fields_of(self.engine, row)
            assert row.skill is not None
            key = row.skill.key
            if self.locked is None or key in self.locked.vouched(self.engine.catalog, [key]):
                return found
        return found._replace(skill=row.skill.path.rpartition("/")[2] or "skill", about="")

    def read(self, row: Row) -> tuple[str, str] | None:
        """MD5 and text of a file as it is now; None when it is gone or cannot be read."""
        reader, access = self.view.mount.reader, self.view.access
        assert row.uuid is not None
        asked = Asked(UuidRef(row.uuid), uuid_text(row.uuid), self.view.mount.name)
        try:
            try:
                content = reader.content(asked, 0, MOST_BYTES, access, None, None)
                return content.hash, content.text
            except NotTextError:
                return reader.details(asked, access)[1], ""
        except SkillFSError as error:
            if isinstance(error, StoreUnavailableError) and not isinstance(error, KeyRefusedError):
                raise
            return None


def _skills_of(engine: Engine, access: Access) -> list[bytes]:
    """UUIDs of the skills that may be seen."""
    found: set[bytes] = set()
    for base in access.tops:
        row = engine.catalog.by_path(base.split("/") if base else ())
        if row is not None:
            found.update(uuid for (uuid,) in engine.catalog.read(_SKILLS_BELOW, (row.key,)))
    return sorted(found)


# -- which files are looked at -----------------------------------------------------------------------------


class _Chosen(NamedTuple):
    """What the index of words says of a query.

    Attributes:
        query: The query, its words widened.
        weights: What each word counts.
        is_whole: Whether only files with every telling word match.
        total: How many files match, as far as it can say.
        texts: Files that can be searched.
        searched: Those whose words are known.
        candidates: What is likely to match best, by store.
    """

    query: Query
    weights: dict[Word, float]
    is_whole: bool
    total: int
    texts: int
    searched: int
    candidates: list[tuple[_Search, list[_Group]]]


def _choose(searches: Sequence[_Search], query: Query, limit: int) -> _Chosen:
    having = _having(searches, query.words)
    widened = query.widened({word for word in query.words if not sum(one[word] for one in having)})
    if widened != query:
        query, having = widened, _having(searches, widened.words)
    counts = [one.ask(SearchFile.counts) for one in searches]
    texts, searched = (sum(count[at] for count in counts) for at in (0, 1))
    weights = {word: weight_of(word, searched, sum(one[word] for one in having)) for word in query.words}
    needed = every(query.needed) if query.phrases else every(telling(weights))
    total = _count(searches, needed)
    is_whole = total >= FEW and not query.phrases
    if not is_whole and not query.phrases:
        needed = some(query.words)
        total = _count(searches, needed)
    candidates = []
    for one, known in zip(searches, having, strict=True):
        most = limit + MOST_READ
        if query.phrases:
            most = MOST_VERIFIED_REMOTE if one.engine.store.remote else MOST_VERIFIED
        common = {word for word, count in known.items() if count >= MOST_COUNTED}
        candidates.append((one, one.candidates(partial(_best, query, weights, needed, common, most))))
    return _Chosen(query, weights, is_whole, total, texts, searched, candidates)


def _having(searches: Sequence[_Search], words: Sequence[Word]) -> list[dict[Word, int]]:
    """How many files of each store have each word, counted up to a limit."""

    def count(file: SearchFile) -> dict[Word, int]:
        return {word: file.count(every([word]), MOST_COUNTED) for word in words}

    return [one.ask(count) for one in searches]


def _count(searches: Sequence[_Search], expression: str) -> int:
    return sum(one.ask(lambda file: file.count(expression)) for one in searches)


def _best(
    query: Query,
    weights: Mapping[Word, float],
    needed: str,
    common: Iterable[Word],
    most: int,
    file: SearchFile,
) -> list[tuple[int, int]]:
    found = file.best(query, weights, needed, common, most)
    if common and len({number for number, _ in found}) < most:
        found = file.best(query, weights, needed, (), most)
    return found


# -- what is in them ---------------------------------------------------------------------------------------


class _Hit(NamedTuple):
    """A file that matches, with its copies.

    Attributes:
        search: Where it was found.
        row: The file.
        fields: The names that belong to it.
        match: How well it matches.
        md5: Of what was read of it.
        passages: The best of it.
        size: How many files it stands for: itself, and those that were found with it as its copies.
        copies: Store paths of the first of these.
    """

    search: _Search
    row: Row
    fields: Fields
    match: Match
    md5: str
    passages: tuple[Passage, ...]
    size: int
    copies: list[str]

    @property
    def path(self) -> str:
        return self.search.view.mount.path(self.row.path)

    def with_copy(self, other: _Hit) -> _Hit:
        """It, standing for another with the same text and its copies as well."""
        copies = sorted([*self.copies, other.path, *other.copies], key=in_order)[:MOST_COPIES]
        return self._replace(copies=copies)

    def told(self) -> SearchHit:
        """It as callers get it."""
        row, mount = self.row, self.search.view.mount
        assert row.uuid is not None
        assert row.id is not None
        assert row.skill is not None
        return SearchHit(
            uuid=uuid_text(row.uuid),
            id=row.id,
            path=self.path,
            name=row.name,
            kind=Kind.SKILL if self.fields.is_main else Kind.FILE,
            skill_folder_uuid=uuid_text(row.skill.uuid),
            skill_path=mount.path(row.skill.path),
            skill_name=self.fields.skill,
            description=self.fields.about,
            hash=self.md5,
            score=self.match.score,
            passages=self.passages,
            copies=tuple(self.copies),
        )


def _answer(chosen: _Chosen, query: str, limit: int) -> SearchResults:
    finder = Finder(chosen.query)
    total, searched = chosen.total, chosen.searched
    hits: list[_Hit] = []
    looked_at = 0
    for one, groups in chosen.candidates:
        with naming(one.view.mount.name):
            read = _looked_at(one, groups, chosen, finder, limit)
        hits += (hit for found in read for hit in found)
        looked_at += sum(map(len, groups[: len(read)]))
    is_whole = chosen.is_whole
    if chosen.query.phrases:
        searched -= max(0, total - looked_at)  # whether they stand in the others has not been looked at
        is_whole = sum(hit.size for hit in hits if hit.match.is_whole) >= FEW
        looked_at = total
    hits = [hit for hit in hits if hit.match.is_whole or not is_whole]
    # Of what has changed since it was searched, some does not match any more.
    total -= looked_at - sum(hit.size for hit in hits)
    hits.sort(key=lambda hit: (-hit.match.score, in_order(hit.path)))
    by_text: dict[str, _Hit] = {}
    for hit in hits:
        first = by_text.get(hit.md5)
        by_text[hit.md5] = hit if first is None else first.with_copy(hit)
    best = list(by_text.values())[:limit]
    return SearchResults(query, tuple(hit.told() for hit in best), total, chosen.texts, searched)


def _looked_at(
    search: _Search, groups: Sequence[_Group], chosen: _Chosen, finder: Finder, limit: int
) -> list[list[_Hit]]:
    """What of each group matches now; not of all groups, where that is much to read."""
    found: list[list[_Hit]] = []
    characters = hits = 0
    enough = MOST_CHARACTERS_VERIFIED if chosen.query.phrases else MOST_CHARACTERS
    step = MOST_TOGETHER if search.engine.store.remote else 1
    for at in range(0, len(groups), step):
        if characters > enough and hits >= limit:
            break
        some = list(groups[at : at + step])
        for length, of_group in search.view.mount.reader.many(
            partial(_look_at, search, chosen, finder), some
        ):
            characters += length
            hits += len(of_group)
            found.append(of_group)
    return found


def _look_at(search: _Search, chosen: _Chosen, finder: Finder, group: _Group) -> tuple[int, list[_Hit]]:
    """What of a group matches now, and how many characters were read for that.

    The first of a group is read, and stands for all. Where it has changed since it was searched, it stands
    for itself alone, and the next one is read.
    """
    hits: list[_Hit] = []
    characters = 0
    if search.locked is not None:
        group = [pair for pair in group if pair[1] in search.locked.files]
    for number, (key, _) in enumerate(group[:MOST_TURNS]):
        row = search.row(key)
        read = None if row is None else search.read(row)
        if row is None or read is None:
            continue
        md5, text = read
        characters += len(text)
        fields, found = search.fields(row), finder.find(text)
        match = match_of(chosen.query, chosen.weights, fields, found)
        has_changed = _has_changed(search, row, search.row(key))
        if match is not None:
            rest = [] if has_changed else group[number + 1 :]
            rows = [copy for other, _ in rest[:MOST_COPIES] if (copy := search.row(other)) is not None]
            copies = [search.view.mount.path(copy.path) for copy in rows]
            passages = passages_of(text, found, chosen.weights)
            hits.append(_Hit(search, row, fields, match, md5, passages, 1 + len(rest), copies))
        if not has_changed:
            break
    return characters, hits


def _has_changed(search: _Search, before: Row, after: Row | None) -> bool:
    """Whether a reading has found another content than was known."""
    if after is None:
        return True
    known, now = (known_content(search.engine, row.content, row.signature) for row in (before, after))
    return known is not None and known != now
