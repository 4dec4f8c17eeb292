"""Words: how texts, names and queries are taken apart, all in the same way.

A word is a run of letters and digits, without case, without diacritics and without the `s` of an English
plural. Chinese, Japanese and Korean do without blanks between words: there every two characters that stand
together are a word, and every single one can be found. A term is a word as it is indexed.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator

__all__ = [
    "ABOUT",
    "FILE",
    "MOST_LENGTH",
    "OFTEN",
    "SKILL",
    "index_terms",
    "is_cjk",
    "is_letter",
    "pieces_of",
    "runs_of",
    "singular",
    "terms_of",
    "terms_of_words",
    "words_of",
]

MOST_LENGTH = 64
"""Characters of a word that count: what is longer is data."""

SKILL, ABOUT, FILE, OFTEN = "§1", "§2", "§3", "§4"
"""Stand before a term of a skill's name, of its description, of a file's name, and one that a text uses
often. There is no `§` in the terms themselves."""

_MOST_KEPT = 50_000  # distinct words of texts whose terms are remembered
_MOST_OFTEN = 32  # words of a text that are marked as those it uses most
_SHORT = 3  # characters up to which a word is hardly what a text is about, and loses no `s`

# Vowel signs and accents written as characters of their own belong to the word; `\w` leaves them out.
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc"
    "\u06df-\u06e8\u06ea-\u06ed\u0900-\u0963\u0971-\u0dff\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0f18-\u0f3f"
    "\u0f71-\u0fbc\u102b-\u103e\u17b4-\u17d3\u200c\u200d"
)
_CJK = (
    "\u1100-\u11ff\u3005-\u3007\u3031-\u3035\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3105-\u312f\u3131-\u318e\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c\uac00-\ud7fb\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff"
)
# Of `_`, which `\w` has in it, texts are freed beforehand: a union of classes is ten times slower.
_WORD = re.compile(rf"[\w{_MARKS}\u3099\u309a]+")
_RUN = re.compile(f"[{_CJK}]+|[^{_CJK}]+")
_CJK_LETTER = re.compile(f"[{_CJK}]")
_LETTER = re.compile(rf"(?![{_CJK}_])[\w{_MARKS}]")
_JOINERS = str.maketrans("", "", "\u200c\u200d")


def words_of(text: str) -> list[str]:
    """The words of a text as they stand there, those of several scripts in one."""
    return _WORD.findall(text.replace("_", " "))


def runs_of(word: str) -> list[str]:
    """A word, cut where Chinese, Japanese or Korean begins or ends."""
    return [word] if word.isascii() else _RUN.findall(word)


def is_cjk(run: str) -> bool:
    """Whether a run is Chinese, Japanese or Korean."""
    return _CJK_LETTER.match(run) is not None


def is_letter(text: str, at: int) -> bool:
    """Whether a character of a text belongs to a word that blanks end; false outside the text."""
    return 0 <= at < len(text) and _LETTER.match(text, at) is not None


def singular(word: str) -> str:
    """A folded word without the ending of an English plural."""
    if len(word) <= _SHORT or word[-1] != "s" or word[-2] in "sui":
        return word
    return word[:-3] + "y" if word.endswith("ies") and len(word) > _SHORT + 1 else word[:-1]


def _folded(word: str) -> str:
    """A word without case and diacritics."""
    if word.isascii():
        return word.lower()
    word = word.translate(_JOINERS).casefold()
    bare = "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))
    # Once more: only what was taken apart may show its capital letters.
    return unicodedata.normalize("NFC", bare).casefold()


class _Pieces(dict[str, str]):
    """Words, each taken apart once: folded, and cut into runs, with blanks in between."""

    def __missing__(self, word: str) -> str:
        pieces: list[str] = []
        for run in runs_of(word[:MOST_LENGTH] if word.isascii() else word):
            piece = unicodedata.normalize("NFC", run) if is_cjk(run) else _folded(run)[:MOST_LENGTH]
            # Folding can bring forth other characters than letters, as of the sign for one half.
            pieces += [piece] if piece.isascii() else (r for w in words_of(piece) for r in runs_of(w))
        return _kept(self, word, " ".join(pieces))


class _Terms(dict[str, str]):
    """Words, each taken apart once: its terms, with blanks in between."""

    def __missing__(self, word: str) -> str:
        terms: list[str] = []
        for piece in _pieces[word].split():
            if is_cjk(piece):
                # The last one alone: so every character begins a term, by which it can be found alone.
                terms += [piece[at : at + 2] for at in range(len(piece))]
            else:
                terms.append(singular(piece))
        return _kept(self, word, " ".join(terms))


def _kept(cache: dict[str, str], word: str, value: str) -> str:
    if len(cache) >= _MOST_KEPT:
        cache.clear()
    if len(word) <= MOST_LENGTH:
        cache[word] = value
    return value


_pieces = _Pieces()
_terms = _Terms()


def pieces_of(text: str) -> str:
    """The words of a text, folded, in their order, with blanks in between and at both ends."""
    return f" {' '.join(map(_pieces.__getitem__, words_of(text)))} "


def terms_of_words(words: Iterable[str]) -> Iterator[str]:
    """The terms of each of some words, with blanks in between."""
    return map(_terms.__getitem__, words)


def terms_of(text: str) -> list[str]:
    """The terms of a text or name, in their order, each as often as it stands there."""
    return " ".join(terms_of_words(words_of(text))).split()


def index_terms(text: str, name: str, skill: str, about: str) -> str:
    """What is indexed of one file: its terms, in no order, with blanks in between.

    Args:
        text: Its text; empty when it is none.
        name: Its name; empty for a `SKILL.md`, whose name says nothing.
        skill: Of a `SKILL.md`, the name of the skill.
        about: Of a `SKILL.md`, the description of the skill.
    """
    counts = Counter(words_of(text))
    terms = list(terms_of_words(counts))
    most = (term for word, _ in counts.most_common(2 * _MOST_OFTEN) for term in _terms[word].split())
    if not text.isascii() and _CJK_LETTER.search(text):
        by_term = Counter[str]()
        for of_word, count in zip(terms, counts.values(), strict=True):
            for term in of_word.split():
                by_term[term] += count
        most = (term for term, _ in by_term.most_common(2 * _MOST_OFTEN) if len(term) > 1)
    often = [term for term in dict.fromkeys(most) if len(term) > _SHORT or not term.isascii()]
    terms += [f"{OFTEN}{term}" for term in often[:_MOST_OFTEN]]
    for mark, field in ((FILE, name), (SKILL, skill), (ABOUT, about)):
        for term in dict.fromkeys(terms_of(field)):
            terms += (term, f"{mark}{term}")
    return " ".join(terms)
