"""How well a file matches a query, and which stretches of it show that.

A score is made of what a caller may see alone, so that nothing else shows in the order of hits: how many of
the words a text has, where, how often and how near to one another, the rarer ones counting more.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from skillfs.core.search import Passage, Phrase, Query, Word
from skillfs.core.words import (
    MOST_LENGTH,
    is_cjk,
    is_letter,
    pieces_of,
    runs_of,
    terms_of,
    terms_of_words,
    words_of,
)

__all__ = [
    "MOST_PASSAGES",
    "PASSAGE",
    "Fields",
    "Finder",
    "Found",
    "Match",
    "match_of",
    "passages_of",
    "telling",
    "weight_of",
]

PASSAGE = 240
"""Characters of a passage, more or less: it begins and ends between words, or at a line's end."""

MOST_PASSAGES = 3

_MOST_PLACES = 2_000  # of one word in one text that are looked at
_TYPICAL = 4_000.0  # characters of a text in which a word counts as usual

# What a word is worth where it stands in a name, beside 1 at most for standing in the text.
_IN_SKILL, _IN_ABOUT, _IN_NAME, _BELOW_SKILL = 3.0, 1.5, 4.0, 0.5
_MAIN = 1.15  # how much more a `SKILL.md` is worth than another file
_SATURATION = 1.2  # so often a word stands in a short text for half of what it can be worth there
_ENDLESS = 64_000  # characters from which on a longer text is worth no less

_FULL_LENGTH = (
    4  # characters from which on a word counts in full: most of the shorter ones hold others together
)
_TELLING = 0.6  # part of the greatest weight

# Words that hold English sentences together, and ask for something, count next to nothing beside others: how
# rare they are in a small or technical library does not show that. In other languages rarity has to do.
_HOLDING_WORDS = """
a about after all also am an and any are as at be been before being best but by can could did do
does doing else every find for from get give go good had has have help her here him his how i if in
into is it its just know let like look made make makes many may me might more most much must my need
needs no not now of off on one only or other our out over please should show so some such take tell
than that the their them then there these they thing things this those to too under up us use used
uses using very want was way we were what when where which while who whose why will with without
would you your
"""
_HOLDING = frozenset(terms_of_words(_HOLDING_WORDS.split()))
_HELD = 0.1  # what such a word counts of what it would

_BLANK = re.compile(r"\s+")

_Place: TypeAlias = tuple[int, int, Word]


class Fields(NamedTuple):
    """The names that belong to a file.

    Attributes:
        is_main: Whether it is a `SKILL.md`.
        name: Its own name, which says nothing in a `SKILL.md`.
        skill: Name of the enclosing skill.
        about: Description of the skill; empty unless it is a `SKILL.md`.
    """

    is_main: bool
    name: str
    skill: str
    about: str


class Found(NamedTuple):
    """What of a query stands in a text.

    Attributes:
        length: Characters of the text.
        counts: How often each word stands there.
        places: Start, end and word of where they stand, in order.
        phrases: The phrases that stand there.
    """

    length: int
    counts: Mapping[Word, int]
    places: Sequence[_Place]
    phrases: frozenset[Phrase]


class Finder:
    """Finds the words and phrases of a query in one text after the other.

    Args:
        query: The query.
    """

    def __init__(self, query: Query) -> None:
        self._query = query
        self._plain = {word.term: word for word in query.words if not word.begins}
        self._begun = {word.term: word for word in query.words if word.begins}
        # Most words of a text stood in one before it: a set operation for all of them, no look at each.
        self._others: set[str] = set()
        self._spellings: dict[str, list[tuple[str, Word, int]]] = {}

    def find(self, text: str) -> Found:
        """What of the query stands in a text."""
        raws = Counter(words_of(text))
        new = list(raws.keys() - self._others - self._spellings.keys())
        plain, begun = self._plain.keys(), self._begun
        for raw, terms in zip(new, terms_of_words(new), strict=True):
            if (
                terms in plain
                or (" " in terms and not plain.isdisjoint(terms.split()))
                or (begun and any(start in terms for start in begun))
            ) and (spellings := self._spelled(raw)):
                self._spellings[raw] = spellings
        self._others.update(new)
        counts: Counter[Word] = Counter()
        looked_for: dict[str, set[Word]] = {}
        for raw in raws.keys() & self._spellings.keys():
            for spelling, word, times in self._spellings[raw]:
                counts[word] += times * raws[raw]
                looked_for.setdefault(spelling, set()).add(word)
        spaced = text.replace("_", " ")
        places = [
            place for spelling, words in looked_for.items() for place in _places(spaced, spelling, words)
        ]
        return Found(len(text), counts, sorted(places), _phrases_in(text, self._query))

    def _spelled(self, raw: str) -> list[tuple[str, Word, int]]:
        """The words of the query in a word of a text, how to look for each, and how often it is in there."""
        found: Counter[tuple[str, Word]] = Counter()
        for run in runs_of(raw):
            terms = Counter(terms_of(run))
            for word in self._query.words:
                times = terms[word.term]
                if word.begins:
                    times = sum(count for term, count in terms.items() if term.startswith(word.term))
                if times:
                    found[word.term if is_cjk(run) else run, word] += times
        return [(*pair, times) for pair, times in found.items()]


def _places(text: str, spelling: str, words: Iterable[Word]) -> list[_Place]:
    """Where a word stands that is written in one way; whole words, but for Chinese, Japanese and Korean."""
    is_part = is_cjk(spelling)
    size = len(spelling)
    found: list[_Place] = []
    at = text.find(spelling)
    while at >= 0 and len(found) < _MOST_PLACES:
        if is_part or not (is_letter(text, at - 1) or is_letter(text, at + size)):
            found += [(at, at + min(size, MOST_LENGTH), word) for word in words]
        at = text.find(spelling, at + 1)
    return found


def _phrases_in(text: str, query: Query) -> frozenset[Phrase]:
    if not query.phrases:
        return frozenset()
    pieces = pieces_of(text)
    return frozenset(phrase for phrase in query.phrases if phrase.needle in pieces)


def weight_of(word: Word, texts: int, having: int) -> float:
    """What a word of a query counts.

    Args:
        word: The word.
        texts: How many texts there are.
        having: How many of them have it.
    """
    rarity = math.log(1 + texts / max(1, having))
    if word.term in _HOLDING:
        rarity *= _HELD
    return rarity if is_cjk(word.term) else rarity * min(1.0, len(word.term) / _FULL_LENGTH) ** 2.5


def telling(weights: Mapping[Word, float]) -> tuple[Word, ...]:
    """The words of a query that say what it is about, in their order: not `how`, `do` and the like."""
    least = _TELLING * max(weights.values())
    return tuple(word for word, weight in weights.items() if weight >= least)


class Match(NamedTuple):
    """How well a file matches.

    Attributes:
        score: The more the better.
        is_whole: Whether it has every telling word of the query.
    """

    score: float
    is_whole: bool


def match_of(query: Query, weights: Mapping[Word, float], fields: Fields, found: Found) -> Match | None:
    """How well a file matches a query; None when it has none of the words, or lacks a phrase.

    Args:
        query: The query.
        weights: What each word of the query counts, in their order.
        fields: The names that belong to the file.
        found: What of the query stands in its text.
    """
    skill, about, name = (terms_of(text) for text in (fields.skill, fields.about, fields.name))
    lacking = set(query.phrases) - found.phrases
    if lacking:
        own = (fields.skill, fields.about) if fields.is_main else (fields.name,)
        if lacking.difference(*(_phrases_in(text, query) for text in own)):
            return None
    in_skill = {word for word in query.words if word.is_in(skill)}
    in_name = {word for word in query.words if word.is_in(name)}
    stem = terms_of(fields.name.rpartition(".")[0] or fields.name)
    short = _SATURATION * (0.3 + 0.7 * min(found.length, _ENDLESS) / _TYPICAL)
    total = sum(weights.values())
    covered = points = 0.0
    left = set(telling(weights))
    for word, weight in weights.items():
        count = found.counts.get(word, 0)
        worth = count / (count + short)
        if fields.is_main:
            worth += _IN_SKILL * _share(in_skill, skill) if word in in_skill else 0.0
            worth += _IN_ABOUT if word.is_in(about) else 0.0
        elif word in in_name:
            worth += _IN_NAME * _share(in_name, stem)
        if not worth:
            continue
        left.discard(word)
        if not fields.is_main and word in in_skill:
            worth += _BELOW_SKILL
        covered += weight
        points += weight * worth
    if not covered:
        return None
    near = max((value for value, _, _ in _windows(found.places, weights)), default=0.0)
    score = (points + near) / total * (covered / total) ** 2
    return Match(round(score * _MAIN if fields.is_main else score, 6), not left)


def _share(words: Collection[Word], name: Sequence[str]) -> float:
    """What a word in a name is worth: the more, the more of the name is asked for."""
    return 0.5 + 0.5 * min(1.0, len(words) / max(1, len(set(name))))


def passages_of(text: str, found: Found, weights: Mapping[Word, float]) -> tuple[Passage, ...]:
    """The stretches of a text in which most of the words of a query stand together, best first."""
    passages: list[Passage] = []
    windows = sorted(_windows(found.places, weights), key=lambda window: (-window[0], window[1]))
    for value, start, end in windows:
        if len(passages) == MOST_PASSAGES or value < windows[0][0] / 2:
            break
        start, end = _widened(text, start, end)
        if all(end <= p.start or p.start + p.length <= start for p in passages):
            passages.append(Passage(start, end - start, text[start:end]))
    return tuple(passages)


def _windows(places: Sequence[_Place], weights: Mapping[Word, float]) -> Iterator[tuple[float, int, int]]:
    """For each place a stretch of a passage's length that begins there: what its words weigh, start, end."""
    inside: Counter[Word] = Counter()
    value = 0.0
    last = 0
    for start, _, word in places:
        while last < len(places) and places[last][1] <= start + PASSAGE:
            entering = places[last][2]
            value += weights[entering] if not inside[entering] else 0.0
            inside[entering] += 1
            last += 1
        yield value, start, places[last - 1][1]
        inside[word] -= 1
        value -= weights[word] if not inside[word] else 0.0


def _widened(text: str, start: int, end: int) -> tuple[int, int]:
    """A stretch with what stands around it, from the line's start or a blank up to a blank."""
    spare = max(0, PASSAGE - (end - start))
    first = max(0, start - spare // 3)
    line = text.rfind("\n", first, start) + 1
    if line:
        first = line
    elif first and (blank := _BLANK.search(text, first, start)):
        first = blank.end()
    elif first:
        first = start
    last = min(len(text), first + max(PASSAGE, end - first))
    if last < len(text):
        blanks = [blank.start() for blank in _BLANK.finditer(text, end, last)]
        last = blanks[-1] if blanks else last if is_cjk(text[last]) else end
    while first < start and text[first].isspace():
        first += 1
    while last > end and text[last - 1].isspace():
        last -= 1
    return first, last
