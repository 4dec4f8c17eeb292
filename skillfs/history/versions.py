"""Finds versions of skills: copies word for word, edited ones, and those that but share a name."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import chain, groupby, islice
from typing import NamedTuple, TypeVar

from skillfs.core.columns import Weights
from skillfs.core.digest import sha256
from skillfs.core.model import Skill
from skillfs.core.phrases import Phrasebook, least_shared, phrases_of, shared_phrases
from skillfs.core.refs import PathRef
from skillfs.core.textfacts import scan_text
from skillfs.core.versions import SkillVersions, Version
from skillfs.errors import SkillFSError, StoreUnavailableError
from skillfs.folding import folded
from skillfs.history.vouching import settle
from skillfs.index.rows import Row
from skillfs.listing import all_skills, in_order
from skillfs.lookup import Asked
from skillfs.mounts import View, naming
from skillfs.stores.base import Handle, KeyRefusedError

__all__ = ["versions_of"]

MOST_COMPARED = 1 << 20
"""Bytes of a `SKILL.md` up to which it is compared by its phrases."""

_NO_PHRASES: array[int] = array("q")


class _Found(NamedTuple):
    """A skill, and what may be seen where it lies."""

    view: View
    skill: Skill


T = TypeVar("T")


def versions_of(
    views: Sequence[View], chosen: str | None, least: Fraction, limit: int | None
) -> list[SkillVersions]:
    """The versions of skills among all that can be seen.

    Args:
        views: The stores, and what may be seen there.
        chosen: Path of the one skill that is asked for, with the name of its mount; None for all.
        least: Share of the phrases of a `SKILL.md` from which one that holds them counts as edited.
        limit: How many versions are told of a skill; None for all.

    Returns:
        One for each skill that is asked for, by path; none for one that has just gone.

    Raises:
        StoreUnavailableError: A store does not answer.
    """
    found = _all_skills(views)
    if chosen is None:
        return _of_all(found, least, limit)
    at = next((number for number, one in enumerate(found) if one.skill.path == chosen), None)
    return [] if at is None else [_of_one(found, at, least, limit)]


def _all_skills(views: Sequence[View]) -> list[_Found]:
    found: list[_Found] = []
    for view in views:
        with naming(view.mount.name):
            view.mount.ensure_fresh()
            settle([view])
            found.extend(_Found(view, skill) for skill in _skills_of(view))
    return sorted(found, key=lambda one: in_order(one.skill.path))


def _skills_of(view: View) -> list[Skill]:
    (mount, access), engine = view, view.mount.engine
    locked = mount.lookup.locked
    return engine.query(lambda: all_skills(engine.catalog, access, mount.name, locked=locked))


def _read_all(found: list[_Found], work: Callable[[bytes, bytes | None], T]) -> list[T | None]:
    """Read the `SKILL.md` of some skills.

    Args:
        found: The skills.
        work: Called with the SHA-256 of each and all that it holds; with None where that is too much.

    Returns:
        What it returned; None where the file cannot be read, or is not as a lock names it.
    """

    def read(row: Row, handle: Handle) -> T:
        if handle.state.size <= MOST_COMPARED:
            data = handle.read(0, handle.state.size)
            return work(sha256(data).digest(), data)
        hasher = sha256()
        for block in handle.blocks():
            hasher.update(block)
        return work(hasher.digest(), None)

    def read_one(one: _Found) -> T | None:
        mount, access = one.view
        path = one.skill.location.removeprefix(f"{mount.name}/" if mount.name else "")
        try:
            with naming(mount.name):
                return mount.reader.with_handle(Asked(PathRef(tuple(path.split("/"))), path), access, read)
        except SkillFSError as error:
            if isinstance(error, StoreUnavailableError) and not isinstance(error, KeyRefusedError):
                raise
            return None

    results: list[T | None] = []
    for reader, some in groupby(found, lambda one: one.view.mount.reader):
        results += reader.many(read_one, list(some))
    return results


def _text(data: bytes | None) -> str:
    """What is compared by its phrases; empty for what is too much, or no text."""
    encoding = None if data is None else scan_text(data).encoding
    return "" if data is None or encoding is None else data.decode(encoding)


# -- all skills ----------------------------------------------------------------------------------------------


def _of_all(found: list[_Found], least: Fraction, limit: int | None) -> list[SkillVersions]:
    phrases, text_of = _texts(found)
    skills_of: list[list[int]] = [[] for _ in phrases]
    named: dict[str, list[int]] = {}
    for number, one in enumerate(found):
        skills_of[text_of[number]].append(number)
        named.setdefault(one.skill.name, []).append(number)
    weights = Weights({text: len(numbers) for text, numbers in enumerate(skills_of)}, len(phrases))
    of_name = {
        name: Weights(Counter(text_of[number] for number in numbers), len(phrases))
        for name, numbers in named.items()
        if len(numbers) > 1
    }
    copies = _Copies(found, chain.from_iterable(numbers for numbers in skills_of if len(numbers) > 1))
    results: dict[int, SkillVersions] = {}
    for text, likeness in Phrasebook(phrases, least).likenesses(limit):
        edited = sorted(
            (
                (number, one.shared, len(phrases[one.text]))
                for one in likeness.nearest
                for number in skills_of[one.text]
            ),
            key=lambda one: (-one[1], one[0]),
        )
        for number in skills_of[text]:
            name = found[number].skill.name
            same = (other for other in skills_of[text] if other != number)
            total = len(skills_of[text]) - 1 + weights.total(likeness.texts)
            own: Iterator[int] = iter(())
            if name in of_name:
                others = of_name[name].texts & ~(likeness.texts | 1 << text)
                if others:
                    total += of_name[name].total(others)
                    own = (n for n in named[name] if others >> text_of[n] & 1)
            told = _told(found, number, same, len(phrases[text]), edited, own, copies)
            results[number] = _versions(found[number], total, islice(told, limit))
    return [results[number] for number in range(len(found))]


def _texts(found: list[_Found]) -> tuple[list[array[int]], list[int]]:
    """The phrases of each different `SKILL.md`, and which of them each skill has."""
    known: set[bytes] = set()

    def work(digest: bytes, data: bytes | None) -> tuple[bytes, array[int] | None]:
        if digest in known:
            return digest, None
        phrases = phrases_of(_text(data))
        known.add(digest)
        return digest, phrases

    read = _read_all(found, work)
    made = {one[0]: one[1] for one in read if one is not None and one[1] is not None}
    phrases: list[array[int]] = []
    text_of: list[int] = []
    numbers: dict[bytes, int] = {}
    for one in read:
        number = len(phrases) if one is None else numbers.setdefault(one[0], len(phrases))
        if number == len(phrases):
            phrases.append(_NO_PHRASES if one is None else made[one[0]])
        text_of.append(number)
    return phrases, text_of


# -- one skill -----------------------------------------------------------------------------------------------


def _of_one(found: list[_Found], at: int, least: Fraction, limit: int | None) -> SkillVersions:
    (own,) = _read_all([found[at]], lambda digest, data: (digest, phrases_of(_text(data))))
    digest, phrases = (None, _NO_PHRASES) if own is None else own
    distinct = frozenset(phrases)

    def work(other: bytes, data: bytes | None) -> tuple[bool, int, int]:
        if other == digest:
            return True, 0, 0
        return False, *(shared_phrases(distinct, _text(data)) if distinct else (0, 0))

    same: list[int] = []
    edited: list[tuple[int, int, int]] = []
    named: list[int] = []
    for number, compared in enumerate(_read_all(found, work)):
        if number == at:
            continue
        is_same, shared, count = (False, 0, 0) if compared is None else compared
        if is_same:
            same.append(number)
        elif shared and (shared >= least_shared(len(phrases), least) or shared >= least_shared(count, least)):
            edited.append((number, shared, count))
        elif found[number].skill.name == found[at].skill.name:
            named.append(number)
    edited.sort(key=lambda one: -one[1])
    copies = _Copies(found, [at, *same] if same else [])
    told = _told(found, at, same, len(phrases), edited, named, copies)
    return _versions(found[at], len(same) + len(edited) + len(named), islice(told, limit))


# -- telling -------------------------------------------------------------------------------------------------


class _Copies:
    """Tells of skills with the same `SKILL.md` which of them hold the same files."""

    def __init__(self, found: list[_Found], numbers: Iterable[int]) -> None:
        self._first: dict[str, str] = {}
        for skill in folded((found[number].view, found[number].skill) for number in sorted(numbers)):
            self._first.update(dict.fromkeys(skill.places, skill.path))

    def are_same(self, one: Skill, other: Skill) -> bool:
        return self._first[one.path] == self._first[other.path]


def _told(
    found: list[_Found],
    number: int,
    same: Iterable[int],
    count: int,
    edited: Iterable[tuple[int, int, int]],
    own: Iterable[int],
    copies: _Copies,
) -> Iterator[Version]:
    """The versions of a skill, in the order in which they are told.

    Args:
        found: All skills.
        number: Which of them it is.
        same: Numbers of those with the same `SKILL.md`.
        count: Phrases of its `SKILL.md`.
        edited: Numbers of edited ones, how many phrases they share with it, and how many they have.
        own: Numbers of those with the same name.
        copies: Tells which copies hold the same files.
    """
    alike = [(copies.are_same(found[number].skill, found[other].skill), other) for other in same]
    for files, other in sorted(alike, key=lambda one: not one[0]):
        skill = found[other].skill
        yield Version("word for word", skill.path, skill.uuid, skill.name, 1.0, 1.0, files)
    for other, shared, theirs in edited:
        skill = found[other].skill
        yield Version("edited", skill.path, skill.uuid, skill.name, shared / count, shared / theirs)
    for other in own:
        skill = found[other].skill
        yield Version("own version", skill.path, skill.uuid, skill.name)


def _versions(one: _Found, total: int, versions: Iterable[Version]) -> SkillVersions:
    return SkillVersions(one.skill.path, one.skill.uuid, one.skill.name, total, tuple(versions))
