"""Search: which files a query matches, the best of them first.

The index of words says which files are likely to match best; of these the texts are read, as they are now,
and compared with the query. So what a hit shows is true at the moment of the call; which files there are, and
which of them match, is as of the last check, like all that is listed.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from skillfs.access import Access
from skillfs.core.digest import uuid_text
from skillfs.core.matching import Fields, Finder, Found, Match, match_of, passages_of
from skillfs.core.model import Kind
from skillfs.core.refs import UuidRef
from skillfs.core.search import Query, SearchHit, SearchResults, Word, parse_query
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
from skillfs.wordindex import MOST_BYTES, fields_of, index_of, read_missing, take_changes

__all__ = ["search"]

MOST_HITS = 100

FEW = 10
"""Where fewer files have every word of a query, those that have some of them match, too."""

MOST_READ = 30
"""Texts that are read for one answer, unless more hits are wanted; copies of one count once."""

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

_SKILLS_BELOW = """
WITH RECURSIVE down (key, kind) AS (SELECT key, kind FROM entry WHERE key=? UNION ALL
    SELECT c.key, c.kind FROM down CROSS JOIN entry c ON c.parent=down.key WHERE c.kind<2)
SELECT key FROM down WHERE kind=1
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
    deadline = None if seconds is None else time.monotonic() + seconds
    for _ in range(MOST_TURNS):
        try:
            searches = []
            for view in views:
                view.mount.ensure_fresh()
                with naming(view.mount.name):
                    searches.append(_Search(view, parsed, deadline))
            return _answer(searches, query, _widened(searches, parsed), limit)
        except _Lost:
            continue
    raise StoreUnavailableError("the index of words is removed again and again; try again")


class _Lost(Exception):
    """The index of words has been thrown away in the meantime."""


def _widened(searches: Sequence[_Search], parsed: Query) -> Query:
    """The query with words that stand in none of the stores standing for longer ones."""
    having = Counter[Word]()
    for one in searches:
        having.update(one.counts.having)
    widened = parsed.widened({word for word, count in having.items() if not count})
    if widened != parsed:
        for one in searches:
            with naming(one.view.mount.name):
                one.ask(widened)
    return widened


class _Counts(NamedTuple):
    """What there is in one store.

    Attributes:
        texts: Files that can be searched.
        searched: Those whose words are known.
        having: How many of them have each word, counted up to a limit.
        whole: How many have every word.
        partly: How many have any; not counted where enough have every word.
        needed: How many have the words of all phrases.
    """

    texts: int
    searched: int
    having: dict[Word, int]
    whole: int
    partly: int
    needed: int


class _Read(NamedTuple):
    """A file that was read: its MD5, its text, and what of the query stands there."""

    md5: str
    text: str
    found: Found


class _Hit(NamedTuple):
    """A file that matches.

    Attributes:
        search: Where it was found.
        row: The file.
        fields: The names that belong to it.
        match: How well it matches.
        read: What was read of it, or of a copy.
        is_own: Whether it was read itself.
    """

    search: _Search
    row: Row
    fields: Fields
    match: Match
    read: _Read
    is_own: bool

    @property
    def path(self) -> str:
        return self.search.view.mount.path(self.row.path)


class _Copies(NamedTuple):
    """Files with one and the same content and name.

    Attributes:
        size: How many there are.
        hits: Those of them that may be told, by path; none where it turned out that they do not match.
    """

    size: int
    hits: list[_Hit]

    @property
    def is_whole(self) -> bool:
        return bool(self.hits) and self.hits[0].match.is_whole


def _answer(searches: Sequence[_Search], query: str, parsed: Query, limit: int) -> SearchResults:
    searched = sum(one.counts.searched for one in searches)
    weights = {
        word: math.log(1 + searched / max(1, sum(one.counts.having[word] for one in searches)))
        for word in parsed.words
    }
    total = sum(one.counts.whole for one in searches)
    are_whole = total >= FEW and not parsed.phrases
    if not are_whole:
        total = sum(one.counts.partly for one in searches)
    needed = parsed.words if are_whole else parsed.needed
    copies: list[_Copies] = []
    for one in searches:
        with naming(one.view.mount.name):
            candidates = one.candidates(weights, needed, max(limit, MOST_READ))
            read = one.copies(candidates, weights, limit)
        copies += read
        if parsed.phrases:  # whether they stand in the others has not been looked at
            searched -= max(0, one.counts.needed - sum(some.size for some in read))
    if parsed.phrases:
        are_whole = sum(some.size for some in copies if some.is_whole) >= FEW
        total = sum(some.size for some in copies)
    # Of what has changed since it was looked at, some does not match any more.
    kept = [some for some in copies if some.is_whole or (some.hits and not are_whole)]
    total -= sum(some.size for some in copies) - sum(some.size for some in kept)
    hits = sorted(
        (hit for some in kept for hit in some.hits), key=lambda hit: (-hit.match.score, in_order(hit.path))
    )
    told: list[SearchHit] = []
    for hit in hits:
        if len(told) == limit:
            break
        with naming(hit.search.view.mount.name):
            found = hit.search.told(hit, weights)
        if found is None:
            total -= 1
        else:
            told.append(found)
    told.sort(key=lambda hit: (-hit.score, in_order(hit.path)))  # what has changed scores otherwise
    texts = sum(one.counts.texts for one in searches)
    return SearchResults(query, tuple(told), total, texts, searched)


class _Search:
    """One query in one store.

    Args:
        view: The store, and what may be seen of it.
        query: The query.
        deadline: By the monotonic clock, how long to catch up with the store; None for as long as it takes.
    """

    def __init__(self, view: View, query: Query, deadline: float | None) -> None:
        self.view = view
        self.engine = view.mount.engine
        self._index = index_of(self.engine)
        self._skills: list[int] | None = None
        take_changes(self.engine, self._index)
        if view.access.restricted and "" not in view.access.tops:
            self._skills = self.engine.query(partial(_skills_of, self.engine, view.access))
        read_missing(self.engine, self._index, self._skills, deadline)
        self.ask(query)

    def ask(self, query: Query) -> None:
        """Count what there is of a query, which what follows is about."""
        self._query, self._finder = query, Finder(query)
        self.counts = self._index.run(self._count)

    def _confine(self, file: SearchFile) -> None:
        if file.revision() is None:
            raise _Lost
        file.only(self._skills)

    def _count(self, file: SearchFile) -> _Counts:
        self._confine(file)
        words = self._query.words
        whole = file.count(every(words))
        enough = whole >= FEW and not self._query.phrases
        return _Counts(
            *file.counts(),
            {word: file.count(every([word]), MOST_COUNTED) for word in words},
            whole,
            0 if enough else file.count(some(words)),
            file.count(every(self._query.needed)) if self._query.phrases else 0,
        )

    def candidates(
        self, weights: Mapping[Word, float], needed: Iterable[Word], most: int
    ) -> list[list[tuple[int, str]]]:
        """Key and path of the files that are likely to match best, copies together, the best first.

        Args:
            weights: What each word counts.
            needed: Words that all of them must have.
            most: How many, copies not counted.
        """
        expression = every(needed)
        if self._query.phrases:
            most = MOST_VERIFIED_REMOTE if self.engine.store.remote else MOST_VERIFIED
        common = {word for word, count in self.counts.having.items() if count >= MOST_COUNTED}

        def best(file: SearchFile) -> list[tuple[int, int]]:
            self._confine(file)
            found = file.best(self._query, weights, expression, common, most)
            if common and len({number for number, _ in found}) < most:
                found = file.best(self._query, weights, expression, (), most)
            return found

        found = self._index.run(best)
        paths = self.engine.query(lambda: self.engine.catalog.with_paths([key for _, key in found]))
        groups: dict[int, list[tuple[int, str]]] = {}
        for number, key in found:
            if key in paths:
                groups.setdefault(number, []).append((key, paths[key]))
        return [sorted(group, key=lambda pair: in_order(pair[1])) for group in groups.values()]

    def copies(
        self, candidates: Sequence[Sequence[tuple[int, str]]], weights: Mapping[Word, float], limit: int
    ) -> list[_Copies]:
        """Candidates as they are now, of each text as many as may be told; not all, where that is much."""
        found: list[_Copies] = []
        characters = files = 0
        enough = MOST_CHARACTERS_VERIFIED if self._query.phrases else MOST_CHARACTERS
        step = MOST_TOGETHER if self.engine.store.remote else 1
        for at in range(0, len(candidates), step):
            if characters > enough and files >= limit:
                break
            some = list(candidates[at : at + step])
            for group, (first, read) in zip(
                some, self.view.mount.reader.many(self._first, some), strict=True
            ):
                hits = []
                if read is not None:
                    characters += len(read.text)
                    rows = (self._row(key) for key, _ in group[first : first + limit])
                    hits = [
                        _Hit(self, row, fields, match, read, not number)
                        for number, row in enumerate(rows)
                        if row is not None
                        and (match := match_of(self._query, weights, fields := self._fields(row), read.found))
                    ]
                files += len(hits)
                found.append(_Copies(len(group), hits))
        return found

    def _first(self, group: Sequence[tuple[int, str]]) -> tuple[int, _Read | None]:
        """The first of some copies that can be read."""
        for number, (key, _) in enumerate(group[:MOST_TURNS]):
            row = self._row(key)
            if row is not None and (read := self._read(row)) is not None:
                return number, read
        return 0, None

    def told(self, hit: _Hit, weights: Mapping[Word, float]) -> SearchHit | None:
        """A hit as callers get it; None when it does not match any more."""
        row, read, match = hit.row, hit.read, hit.match
        if not hit.is_own:
            own = self._read(row)
            if own is None:
                return None
            if own.md5 != read.md5:
                again = match_of(self._query, weights, hit.fields, own.found)
                if again is None:
                    return None
                match = again
            read = own
        assert row.uuid is not None
        assert row.id is not None
        assert row.skill is not None
        mount = self.view.mount
        return SearchHit(
            uuid=uuid_text(row.uuid),
            id=row.id,
            path=mount.path(row.path),
            name=row.name,
            kind=Kind.SKILL if hit.fields.is_main else Kind.FILE,
            skill_folder_uuid=uuid_text(row.skill.uuid),
            skill_path=mount.path(row.skill.path),
            skill_name=hit.fields.skill,
            description=hit.fields.about,
            hash=read.md5,
            score=match.score,
            passages=passages_of(read.text, read.found, weights),
        )

    def _row(self, key: int) -> Row | None:
        row = self.engine.query(lambda: self.engine.catalog.by_key(key))
        if row is None or row.kind != RowKind.FILE or row.skill is None or not self.view.access.sees(row):
            return None
        return row

    def _fields(self, row: Row) -> Fields:
        return self.engine.query(lambda: fields_of(self.engine, row))

    def _read(self, row: Row) -> _Read | None:
        """What is in a file now; None when it is gone or cannot be read."""
        reader, access = self.view.mount.reader, self.view.access
        assert row.uuid is not None
        asked = Asked(UuidRef(row.uuid), uuid_text(row.uuid), self.view.mount.name)
        try:
            try:
                content = reader.content(asked, 0, MOST_BYTES, access, None, None)
                return _Read(content.hash, content.text, self._finder.find(content.text))
            except NotTextError:
                _, md5, _ = reader.details(asked, access)
                return _Read(md5, "", self._finder.find(""))
        except SkillFSError as error:
            if isinstance(error, StoreUnavailableError) and not isinstance(error, KeyRefusedError):
                raise
            return None


def _skills_of(engine: Engine, access: Access) -> list[int]:
    """Keys of the skills that may be seen."""
    found: set[int] = set()
    for base in access.tops:
        row = engine.catalog.by_path(base.split("/") if base else ())
        if row is not None:
            found.update(key for (key,) in engine.catalog.read(_SKILLS_BELOW, (row.key,)))
    return sorted(found)
