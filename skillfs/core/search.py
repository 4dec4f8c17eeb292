"""Search: what is asked, and what is answered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from skillfs.core.model import Kind
from skillfs.core.words import is_cjk, pieces_of, singular, terms_of
from skillfs.errors import InvalidArgumentError, quoted

__all__ = ["MOST_QUERY", "Passage", "Phrase", "Query", "SearchHit", "SearchResults", "Word", "parse_query"]

MOST_QUERY = 1_000
"""Characters of the longest query."""

MOST_WORDS = 48
"""How many words of a query count: the first."""

_LEAST_BEGINNING = 4  # characters of a word that stands for longer ones
_SURROGATE = re.compile("[\ud800-\udfff]")
_QUOTED = re.compile(r'"([^"]*)"')


# -- what callers get --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of a text in which words of a query stand.

    Attributes:
        start: Its first character, counted from 0 in the whole file: as `get_content` takes it.
        length: Its characters.
        text: These characters.
    """

    start: int
    length: int
    text: str


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A file that matches a query; a skill is found as its `SKILL.md`.

    Attributes:
        uuid: UUID of the file.
        id: Integer id of the file.
        path: Store path of the file.
        name: Last component of the path.
        kind: `skill` for a `SKILL.md`, which stands for its skill; else `file`.
        skill_folder_uuid: UUID of the enclosing skill folder.
        skill_path: Store path of that folder.
        skill_name: Name of that skill.
        description: Description of the skill, where the hit stands for it; else empty.
        hash: MD5 of the version that the passages belong to, for `expect_hash`.
        score: What hits are sorted by, the best first; comparable within one answer only.
        passages: The best passages, best first; none where only names match.
        copies: Store paths of other files that match and have the same text, which are no hits of their own:
            as of the last check of the store, by path, the first 20.
    """

    uuid: str
    id: int
    path: str
    name: str
    kind: Kind
    skill_folder_uuid: str
    skill_path: str
    skill_name: str
    description: str
    hash: str
    score: float
    passages: tuple[Passage, ...]
    copies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The answer to a search.

    Attributes:
        query: The query, as it was given.
        hits: The best hits, best first; of equal ones the first by path, and of files with one and the same
            text one alone.
        total: How many files match, copies among them, of those that were searched.
        texts: How many files there are to search for this caller; those that cannot be read do not count.
        searched: How many of them were searched.
    """

    query: str
    hits: tuple[SearchHit, ...]
    total: int
    texts: int
    searched: int

    @property
    def complete(self) -> bool:
        """Whether all was searched that there is."""
        return self.searched >= self.texts


# -- queries -----------------------------------------------------------------------------------------------


class Word(NamedTuple):
    """A word of a query.

    Attributes:
        term: As it is indexed.
        begins: Whether any term that begins so is meant: of a single character of Chinese, Japanese or
            Korean, and of a word that stands nowhere.
    """

    term: str
    begins: bool

    def is_in(self, terms: Iterable[str]) -> bool:
        """Whether it stands among some terms."""
        return any(t.startswith(self.term) for t in terms) if self.begins else self.term in terms


class Phrase(NamedTuple):
    """Words that must follow one another: as they are in the pieces of a text, with blanks between them."""

    needle: str
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """A query, taken apart.

    Attributes:
        words: Its words, those of phrases among them, each once.
        phrases: What was quoted.
    """

    words: tuple[Word, ...]
    phrases: tuple[Phrase, ...]

    def widened(self, missing: Set[Word]) -> Query:
        """The query with words that stand nowhere, other than in quotes, standing for longer ones."""
        longer = set(missing).difference(self.needed)
        words = (w._replace(begins=True) if w in longer and _is_long(w) else w for w in self.words)
        return replace(self, words=tuple(words))

    @property
    def needed(self) -> tuple[Word, ...]:
        """The words of phrases: without them nothing matches."""
        return tuple(dict.fromkeys(word for phrase in self.phrases for word in phrase.words))


def parse_query(query: object) -> Query:
    """Take a query apart: words, and `"words in quotes"` that must stand together; nothing else is special.

    Raises:
        InvalidArgumentError: It is no string, too long, holds an unpaired surrogate, or no word.
    """
    if not isinstance(query, str):
        raise InvalidArgumentError(f"query must be a string of words to search for, not {quoted(query)}")
    if len(query) > MOST_QUERY:
        raise InvalidArgumentError(
            f"query has {len(query):,} characters and may have {MOST_QUERY:,}; pass the words that matter"
        )
    if _SURROGATE.search(query):
        raise InvalidArgumentError(f"query {quoted(query)} holds an unpaired surrogate; leave it out")
    phrases = [_phrase(part) for part in _QUOTED.findall(query) if terms_of(part)]
    needed = (word for phrase in phrases for word in phrase.words)
    words = tuple(dict.fromkeys([*needed, *_query_words(query)]))[:MOST_WORDS]
    if not words:
        raise InvalidArgumentError(
            f"query {quoted(query)} holds no word; pass words that stand in names, descriptions or texts"
        )
    return Query(words, tuple(phrases))


def _phrase(text: str) -> Phrase:
    needle = pieces_of(text)
    pieces = needle.split()
    # What blanks do not end is found inside longer runs, too.
    if is_cjk(pieces[0]):
        needle = needle[1:]
    if is_cjk(pieces[-1]):
        needle = needle[:-1]
    return Phrase(needle, tuple(dict.fromkeys(_query_words(text)))[:MOST_WORDS])


def _is_long(word: Word) -> bool:
    return len(word.term) >= _LEAST_BEGINNING and not is_cjk(word.term)


def _query_words(text: str) -> list[Word]:
    words = []
    for piece in pieces_of(text).split():
        if not is_cjk(piece):
            words.append(Word(singular(piece), False))
        elif len(piece) == 1:
            words.append(Word(piece, True))
        else:
            words += [Word(piece[at : at + 2], False) for at in range(len(piece) - 1)]
    return words
