"""Phrases: which texts hold stretches of each other, word for word.

A phrase is five words that follow on each other; a text of fewer words is one phrase, and one without words
has none. Words are those of search, without case and diacritics; of Chinese, Japanese and Korean, which do
without blanks, each character is a word. How much a text holds of another is the share of the other's
different phrases that are among its own.

Texts are not compared pair by pair. Each phrase that several texts have is numbered, with the texts that have
it. What one text shares with each of the others is then added up over its phrases: for phrases of few texts
by counting, for the others with numbers that are written across rows of bits, one row for a binary digit and
one column for a text, so that a phrase which ten thousand texts have costs some operations on 1,250 bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import chain, repeat
from math import ceil
from typing import NamedTuple

from skillfs.core.columns import count_in, difference, most, numbers_at, positions, row_of, sums
from skillfs.core.digest import sha256
from skillfs.core.words import MOST_LENGTH, is_cjk, pieces_of

__all__ = [
    "PHRASE_WORDS",
    "Alike",
    "Likeness",
    "Phrasebook",
    "least_shared",
    "phrases_of",
    "shared_phrases",
]

PHRASE_WORDS = 5
"""Words of a phrase."""

_FEW = 8  # texts of a phrase up to which counting them is cheaper than adding a row of bits
_NEIGHBOURLY = 4  # groups by which texts are brought into an order
_LONG_KEY = 64  # bytes of a list of texts from which its digest stands for it
_MOST_GROUPS = 1_000_000  # that are remembered, so that more phrases are found to belong to them
_AT_ONCE = 1_000_000  # different phrases that are looked at in one turn
_MOST_KEPT = 50_000  # stretches of texts whose words are remembered
_MOST_ROW_BYTES = 64 << 20  # of rows of bits that are kept

_LEAST_HASH = -(1 << 63)


def phrases_of(text: str) -> array[int]:
    """The different phrases of a text, in no order, as hashes of 64 bits.

    They are the interpreter's own of the words as UTF-8, salted anew for each process: they are good for
    comparing there, and no text can be made to share a hash with another.
    """
    return array("q", list(set(_phrases(_words(text)))))


def shared_phrases(own: frozenset[int], text: str) -> tuple[int, int]:
    """How many of some phrases a text has, and how many different ones it has; without the former, nought.

    Args:
        own: Phrases, as `phrases_of` gives them.
        text: The text.
    """
    words = _words(text)
    shared = len(own.intersection(_phrases(words)))
    return shared, len(set(_phrases(words))) if shared else 0


def _phrases(words: list[bytes]) -> Iterable[int]:
    if len(words) < PHRASE_WORDS:
        return [hash(tuple(words))] if words else []
    behind = (words[at:] for at in range(PHRASE_WORDS))
    return map(hash, zip(*behind, strict=False))


def _words(text: str) -> list[bytes]:
    return list(chain.from_iterable(map(_apart.__getitem__, text.split())))


class _Apart(dict[str, tuple[bytes, ...]]):
    """The words of what stands between blanks, taken apart once. No word has a blank in it.

    They are bytes, because the interpreter gives some texts one hash: those that are the same bytes in
    memory, where a text has one, two or four for each character, whichever its largest one needs.
    """

    def __missing__(self, between: str) -> tuple[bytes, ...]:
        words: list[str] = []
        for word in pieces_of(between).split():
            words += word if not word.isascii() and is_cjk(word) else (word,)
        found = tuple(word.encode() for word in words)
        if len(self) >= _MOST_KEPT:
            self.clear()
        if len(between) <= MOST_LENGTH:
            self[between] = found
        return found


_apart = _Apart()


class Alike(NamedTuple):
    """A text that is like another.

    Attributes:
        text: Its number.
        shared: How many phrases both have.
    """

    text: int
    shared: int


class Likeness(NamedTuple):
    """The texts that are like one text.

    Attributes:
        texts: Bits, that of a text's number set where it is like this one.
        nearest: Those with the most phrases in common, these first, then by number.
    """

    texts: int
    nearest: list[Alike]


def least_shared(phrases: int, least: Fraction) -> int:
    """How many phrases of a text another has to have to be like it: at least one.

    Args:
        phrases: How many the text has.
        least: The share of them.
    """
    return max(1, ceil(phrases * least))


class Phrasebook:
    """The phrases that at least two of some texts have.

    Args:
        texts: Phrases of each text, as `phrases_of` gives them.
        least: Share of the phrases of either of two texts from which the other is like it, 0 to 1.
    """

    def __init__(self, texts: Sequence[array[int]], least: Fraction) -> None:
        self._count = len(texts)
        self._all = (1 << self._count) - 1
        self._starts = array("Q", [0])  # of each group's stretch of the texts that have it
        self._having = array("I")
        self._weights: list[int] = []  # how many phrases a group is
        self._gather(texts)
        self._groups = [array("I") for _ in texts]  # those that a text has
        for group in range(len(self._weights)):
            for text in self._having[self._starts[group] : self._starts[group + 1]]:
                self._groups[text].append(group)
        self._last: tuple[set[int], list[int]] = set(), []  # groups, and what was added up for them
        self._rows: dict[int, int] = {}
        self._most_rows = max(1, _MOST_ROW_BYTES // (self._count // 8 + 64))
        self._least = [least_shared(len(own), least) for own in texts]
        # Written across rows, and each bit the other way round, as the comparison wants it.
        digits = range(max(self._least, default=0).bit_length())
        across = [
            row_of((t for t, n in enumerate(self._least) if n >> digit & 1), self._count) for digit in digits
        ]
        self._below = [self._all ^ row for row in across]

    def _gather(self, texts: Sequence[array[int]]) -> None:
        """Find the phrases that several texts have, those that the same texts have together.

        Text by text, the phrases that had been in the same texts so far are parted into those that are in
        this one as well, and those that are not. Where there are too many phrases to be held, they are looked
        at by ranges of their hashes, one after the other.
        """
        groups: dict[bytes, int] = {}
        # Texts that are like each other have their least phrase in common, mostly: one after the other, they
        # find their phrases in the cache of the processor, which makes it several times as fast.
        order = sorted(range(self._count), key=lambda text: min(texts[text], default=0))
        begin, width, parted = _LEAST_HASH, 1 << 64, texts
        while begin <= -1 - _LEAST_HASH:
            end = begin + width
            class_of: dict[int, int] = {}  # of phrases, with the texts that have them
            ancestors, last = array("I", [0]), array("I", [0])  # of a class: the last text, and those before
            for number in order:
                own = parted[number]
                if parted is not texts:
                    own = own[bisect_left(own, begin) : bisect_left(own, end)]
                phrases = own.tolist()
                before = list(map(class_of.get, phrases, repeat(0)))
                now = {}
                for one in set(before):
                    now[one] = len(last)
                    ancestors.append(one)
                    last.append(number)
                class_of.update(zip(phrases, map(now.__getitem__, before), strict=True))
                while len(class_of) > _AT_ONCE and width > 1:
                    if parted is texts:
                        parted = [array("q", sorted(text)) for text in texts]
                    width //= 2
                    end = begin + width
                    class_of = {phrase: one for phrase, one in class_of.items() if phrase < end}
            for one, weight in Counter(class_of.values()).items():
                if ancestors[one]:
                    self._add_group(groups, _up(ancestors, last, one), weight)
            begin = end

    def _add_group(self, groups: dict[bytes, int], members: array[int], weight: int) -> None:
        key = members.tobytes()
        if len(key) > _LONG_KEY:
            key = sha256(key).digest()
        group = groups.get(key)
        if group is not None:
            self._weights[group] += weight
            return
        if len(groups) >= _MOST_GROUPS:
            groups.clear()  # what follows is grouped among itself, which counts as right
        groups[key] = len(self._weights)
        self._weights.append(weight)
        self._having.extend(members)
        self._starts.append(len(self._having))

    def likenesses(self, limit: int | None = None) -> Iterator[tuple[int, Likeness]]:
        """Of each text, by its number, the texts that are like it: one of both holds enough of the other.

        They come in the order that costs least, in which those that have much in common are neighbours.

        Args:
            limit: How many are told as the nearest; None for all.
        """
        for text in sorted(range(self._count), key=lambda text: self._groups[text][:_NEIGHBOURLY]):
            digits = self._shared(text)
            own = self._least[text]
            like = self._at_least(digits, self._below)
            like |= self._at_least(
                digits, [0 if own >> d & 1 else self._all for d in range(own.bit_length())]
            )
            like &= ~(1 << text)
            nearest = positions(most(digits, like, limit))
            found = [Alike(one, shared) for one, shared in numbers_at(digits, nearest)]
            found.sort(key=lambda one: -one.shared)
            yield text, Likeness(like, found)

    def _shared(self, text: int) -> list[int]:
        """How many phrases of a text each text has, written across rows of bits; the lowest digit first."""
        starts, having = self._starts, self._having
        counts: dict[int, int] = {}
        many = set()
        for group in self._groups[text]:
            begin, end = starts[group], starts[group + 1]
            if end - begin > _FEW:
                many.add(group)
                continue
            weight = self._weights[group]
            for other in having[begin:end]:
                counts[other] = counts.get(other, 0) + weight
        rows = [[digit] for digit in self._of_many(many)]
        for digit in range(max(counts.values(), default=0).bit_length()):
            row = row_of((other for other, count in counts.items() if count >> digit & 1), self._count)
            count_in(rows, row, 1 << digit)
        return sums(rows)

    def _of_many(self, groups: set[int]) -> list[int]:
        """The same for groups that many texts have, from what was found for a text like it before."""
        before, digits = self._last
        new, gone = groups - before, before - groups
        if len(new) + len(gone) >= len(groups):
            digits, new, gone = [], groups, set()
        digits = difference(self._added_up(digits, new), self._added_up([], gone))
        self._last = groups, digits
        return digits

    def _added_up(self, digits: list[int], groups: set[int]) -> list[int]:
        rows = [[digit] for digit in digits]
        for group in groups:
            count_in(rows, self._rows.get(group) or self._made_row(group), self._weights[group])
        return sums(rows)

    def _made_row(self, group: int) -> int:
        if len(self._rows) >= self._most_rows:
            self._rows.clear()
        row = row_of(self._having[self._starts[group] : self._starts[group + 1]], self._count)
        self._rows[group] = row
        return row

    def _at_least(self, digits: list[int], below: list[int]) -> int:
        """The columns whose number is as large as another, the digits of which are given inverted."""
        found = self._all
        for place in range(max(len(digits), len(below))):
            digit = digits[place] if place < len(digits) else 0
            other = below[place] if place < len(below) else self._all
            found = (digit & other) | ((digit | other) & found)
        return found


def _up(ancestors: array[int], last: array[int], one: int) -> array[int]:
    """The texts of a class of phrases, rising."""
    members = []
    while one:
        members.append(last[one])
        one = ancestors[one]
    return array("I", sorted(members))
