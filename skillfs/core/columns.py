"""Numbers written across rows of bits: one row for a binary digit, one column for each number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, zip_longest

__all__ = ["Weights", "count_in", "difference", "most", "numbers_at", "positions", "row_of", "sums"]

_NOT_NULL = re.compile(rb"[^\0]")


def positions(row: int) -> Iterator[int]:
    """The numbers of the bits that are set, rising."""
    for match in _NOT_NULL.finditer(row.to_bytes((row.bit_length() + 7) // 8, "little")):
        byte, first = match[0][0], match.start() * 8
        for bit in range(8):
            if byte >> bit & 1:
                yield first + bit


def row_of(numbers: Iterable[int], count: int) -> int:
    """The row with the bits of some numbers set.

    Args:
        numbers: These.
        count: How many columns there are.
    """
    row = bytearray(count // 8 + 1)
    for number in numbers:
        row[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(row, "little")


def count_in(rows: list[list[int]], row: int, weight: int) -> None:
    """Add a row, so often, to those that are to be summed up."""
    for digit in range(weight.bit_length()):
        if digit == len(rows):
            rows.append([])
        if weight >> digit & 1:
            rows[digit].append(row)


def sums(rows: list[list[int]]) -> list[int]:
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


def difference(digits: list[int], less: list[int]) -> list[int]:
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


def numbers_at(digits: list[int], columns: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Some columns, and the number of each."""
    rows = [row.to_bytes((row.bit_length() + 7) // 8, "little") for row in digits]
    for column in columns:
        at, bit = column >> 3, column & 7
        number = 0
        for digit, row in enumerate(rows):
            if at < len(row):
                number |= (row[at] >> bit & 1) << digit
        yield column, number


def most(digits: list[int], among: int, limit: int | None) -> int:
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
            row_of((text for text, weight in weights.items() if weight >> digit & 1), count)
            for digit in digits
        ]
        self.texts = row_of(weights, count)
        """Bits, those of these texts set."""

    def total(self, texts: int) -> int:
        """What the texts count whose bits are set."""
        return sum((row & texts).bit_count() << digit for digit, row in enumerate(self._rows))
