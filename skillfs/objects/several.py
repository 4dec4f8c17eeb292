"""Does something with each of many objects; where that costs requests, with several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from skillfs.objects.folder import ObjectFolder
from skillfs.stores.workers import Workers

__all__ = ["each"]

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE = 256
"""Objects that are handed to threads at a time."""


def each(folder: ObjectFolder, work: Callable[[T], R], items: Iterable[T]) -> Iterator[tuple[T, R]]:
    """Each item and what has become of it, in their order.

    Args:
        folder: Where the objects lie.
        work: What is done with an item; what it raises ends it all.
        items: The items.
    """
    if not folder.remote:
        for item in items:
            yield item, work(item)
        return
    left = iter(items)
    while some := list(islice(left, AT_ONCE)):
        with Workers() as workers:
            yield from zip(some, workers.map(work, some), strict=True)
