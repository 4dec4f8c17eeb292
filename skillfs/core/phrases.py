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

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, count, zip_longest
from math import ceil
from typing import NamedTuple

from skillfs.core.digest import sha256
from skillfs.core.words import is_cjk, pieces_of

__all__ = [
    "PHRASE_WORDS",
    "Alike",
    "Likeness",
    "Phrasebook",
    "Weights",
    "least_shared",
    "phrases_of",
    "positions",
]

PHRASE_WORDS = 5
"""Words of a phrase."""

_FEW = 24  # texts of a phrase up to which counting them is cheaper than adding a row of bits
_NEIGHBOURLY = 4  # groups by which texts are brought into an order
_LONG_KEY = 64  # bytes of a list of texts from which its digest stands for it
_MOST_GROUPS = 1_000_000  # that are remembered, so that more phrases are found to belong to them
_AT_ONCE = 200_000  # phrases that are looked at in one turn
_MOST_ROW_BYTES = 64 << 20  # of rows of bits that are kept

_NOT_NULL = re.compile(rb"[^\0]")


def phrases_of(text: str) -> array[int]:
    """The different phrases of a text as sorted hashes of 64 bits.

    They are the interpreter's own, salted anew for each process: they are good for comparing there, and no
    text can be made to share a hash with another.
    """
    words = _words(text)
    if len(words) < PHRASE_WORDS:
        return array("q", [hash(tuple(words))] if words else [])
    behind = (words[at:] for at in range(PHRASE_WORDS))
    # A dict keeps the hashes as they lie in memory, which halves the time that sorting a set of them takes.
    return array("q", sorted(dict.fromkeys(map(hash, zip(*behind, strict=False)))))


def _words(text: str) -> list[str]:
    words = pieces_of(text).split()
    if text.isascii():
        return words
    apart = {word: " ".join(word) for word in set(words) if not word.isascii() and is_cjk(word)}
    return " ".join([apart.get(word, word) for word in words]).split() if apart else words


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
            _row((t for t, n in enumerate(self._least) if n >> digit & 1), self._count) for digit in digits
        ]
        self._below = [self._all ^ row for row in across]

    def _gather(self, texts: Sequence[array[int]]) -> None:
        """Find the phrases that several texts have, those that the same texts have together.

        Phrases are looked at some at a time, by ranges of their hashes: so memory is that of the hashes.
        """
        groups: dict[bytes, int] = {}
        turns = sum(map(len, texts)) // _AT_ONCE + 1
        begins = [0] * len(texts)
        for turn in range(1, turns + 1):
            bound = (turn << 64) // turns - (1 << 63)
            parts = []
            for number, own in enumerate(texts):
                end = bisect_left(own, bound, begins[number])
                parts.append(own[begins[number] : end])
                begins[number] = end
            counts = Counter(chain.from_iterable(parts))
            having: dict[int, list[int]] = {phrase: [] for phrase, count in counts.items() if count > 1}
            for number, part in enumerate(parts):
                for phrase in filter(having.__contains__, part):
                    having[phrase].append(number)
            for numbers in having.values():
                members = array("I", numbers)
                key = members.tobytes()
                if len(key) > _LONG_KEY:
                    key = sha256(key).digest()
                group = groups.get(key)
                if group is not None:
                    self._weights[group] += 1
                    continue
                if len(groups) >= _MOST_GROUPS:
                    groups.clear()  # what follows is grouped among itself, which counts as right
                groups[key] = len(self._weights)
                self._weights.append(1)
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
            found = [Alike(one, _number_at(digits, one)) for one in positions(_most(digits, like, limit))]
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
            row = _row((other for other, count in counts.items() if count >> digit & 1), self._count)
            _count_in(rows, row, 1 << digit)
        return _sums(rows)

    def _of_many(self, groups: set[int]) -> list[int]:
        """The same for groups that many texts have, from what was found for a text like it before."""
        before, digits = self._last
        new, gone = groups - before, before - groups
        if len(new) + len(gone) >= len(groups):
            digits, new, gone = [], groups, set()
        digits = _difference(self._added_up(digits, new), self._added_up([], gone))
        self._last = groups, digits
        return digits

    def _added_up(self, digits: list[int], groups: set[int]) -> list[int]:
        rows = [[digit] for digit in digits]
        for group in groups:
            _count_in(rows, self._rows.get(group) or self._made_row(group), self._weights[group])
        return _sums(rows)

    def _made_row(self, group: int) -> int:
        if len(self._rows) >= self._most_rows:
            self._rows.clear()
        row = _row(self._having[self._starts[group] : self._starts[group + 1]], self._count)
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


def positions(row: int) -> Iterator[int]:
    """The numbers of the bits that are set, rising."""
    for match in _NOT_NULL.finditer(row.to_bytes((row.bit_length() + 7) // 8, "little")):
        byte, first = match[0][0], match.start() * 8
        for bit in range(8):
            if byte >> bit & 1:
                yield first + bit


def _row(numbers: Iterable[int], count: int) -> int:
    row = bytearray(count // 8 + 1)
    for number in numbers:
        row[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(row, "little")


def _count_in(rows: list[list[int]], row: int, weight: int) -> None:
    """Add a row, so often, to those that are to be summed up."""
    for digit in range(weight.bit_length()):
        if digit == len(rows):
            rows.append([])
        if weight >> digit & 1:
            rows[digit].append(row)


def _sums(rows: list[list[int]]) -> list[int]:
    """Adds up columns of bits.

    Args:
        rows: Rows by the digit in which each counts, the lowest first; they are used up.

    Returns:
        One row a digit.
    """
    digits: list[int] = []
    carried: list[int] = []
    for place in count():
        adding = carried + rows[place] if place < len(rows) else carried
        if not adding and place >= len(rows):
            return digits
        carried = []
        while len(adding) > 2:
            one, two, three = adding.pop(), adding.pop(), adding.pop()
            odd = one ^ two
            adding.append(odd ^ three)
            carried.append((one & two) | (odd & three))
        if len(adding) == 2:
            one, two = adding
            carried.append(one & two)
            adding = [one ^ two]
        digits.append(adding[0] if adding else 0)
    return digits


def _difference(digits: list[int], less: list[int]) -> list[int]:
    """Columns of numbers without others, none of which is larger."""
    if not less:
        return digits
    found = []
    borrowed = 0
    for digit, other in zip_longest(digits, less, fillvalue=0):
        found.append(digit ^ other ^ borrowed)
        borrowed = (~digit & (other | borrowed)) | (other & borrowed)
    while found and not found[-1]:
        found.pop()
    return found


def _number_at(digits: list[int], column: int) -> int:
    return sum((row >> column & 1) << digit for digit, row in enumerate(digits))


def _most(digits: list[int], among: int, limit: int | None) -> int:
    """Of some columns those with the largest numbers; of equal ones the first."""
    if limit is None or among.bit_count() <= limit:
        return among
    sure = 0
    for row in reversed(digits):
        larger = among & row
        if (sure | larger).bit_count() <= limit:
            sure |= larger
            among &= ~row
        else:
            among = larger
    rest = limit - sure.bit_count()
    for column in positions(among):
        if rest <= 0:
            break
        sure |= 1 << column
        rest -= 1
    return sure


class Weights:
    """How much each of some texts counts.

    Args:
        weights: By their numbers; others count nothing.
        count: How many texts there are.
    """

    def __init__(self, weights: Mapping[int, int], count: int) -> None:
        digits = range(max(weights.values(), default=0).bit_length())
        self._rows = [
            _row((text for text, weight in weights.items() if weight >> digit & 1), count) for digit in digits
        ]
        self.texts = _row(weights, count)
        """Bits, those of these texts set."""

    def total(self, texts: int) -> int:
        """What the texts count whose bits are set."""
        return sum((row & texts).bit_count() << digit for digit, row in enumerate(self._rows))
