import sys
from array import array
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillfs.core import phrases
from skillfs.core.columns import Weights, positions
from skillfs.core.phrases import PHRASE_WORDS, Phrasebook, least_shared, phrases_of, shared_phrases
from skillfs.core.words import is_cjk, pieces_of, words_of

BLANKS = "".join(filter(str.isspace, map(chr, range(sys.maxunicode + 1))))

words = st.sampled_from(["a", "b", "c", "d", "e", "f"])
texts = st.lists(words, max_size=24).map(" ".join)
shares = st.fractions(0, 1, max_denominator=20)


def plainly(text: str) -> set[tuple[str, ...]]:
    """The phrases of a text of single letters, as they are defined."""
    split = text.split()
    if len(split) < PHRASE_WORDS:
        return {tuple(split)} if split else set()
    return {tuple(split[at : at + PHRASE_WORDS]) for at in range(len(split) - PHRASE_WORDS + 1)}


@settings(deadline=None)
@given(texts, texts)
def test_phrases_are_five_words_that_follow_on_each_other(one, other):
    ours, theirs = phrases_of(one), phrases_of(other)
    assert len(ours) == len(set(ours))
    assert len(ours) == len(plainly(one))
    shared = len(plainly(one) & plainly(other))
    assert len(set(ours) & set(theirs)) == shared
    assert shared_phrases(frozenset(ours), other) == (shared, len(theirs) if shared else 0)


blank_or_word = st.sampled_from("aB1ß_-.\u00bd\u0301\u200d数コ\uac00\uff66\u3099é" + BLANKS)


@settings(deadline=None)
@given(st.text(blank_or_word | st.characters(exclude_categories=["Cs"]), max_size=80))
def test_words_are_the_same_whether_texts_are_taken_apart_whole_or_between_blanks(text):
    whole = [
        part for word in pieces_of(text).split() for part in (word if is_cjk(word) else [word])
    ]  # fmt: skip
    assert phrases._words(text) == phrases._words(text) == [word.encode() for word in whole]


@pytest.mark.parametrize(("narrow", "wide"), [("ck", "正"), ("is", "獩")])
def test_words_that_lie_in_memory_as_the_same_bytes_are_different_words(narrow, wide):
    # Of a text the interpreter hashes the bytes that it is held in, which may be those of another text.
    assert hash(narrow) == hash(wide)
    ours, theirs = phrases_of(f"{narrow} a b c d"), phrases_of(f"{wide} a b c d")
    assert ours
    assert not set(ours) & set(theirs)


def test_no_word_has_a_blank_in_it():
    assert not any(words_of(blank) for blank in BLANKS)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The Größe of a FILE", "the größe, of a file!"),
        ("naive cafe is open today", "naïve café is open today"),
        ("one\ntwo\tthree - four_five", "one two three four five"),
        ("数据分析很重要", "数据 分析 很 重要"),
        ("use 数据分析 here", "use: 数 据 分 析 here"),
        ("コードを書く", "コード を 書く"),
    ],
)
def test_words_are_those_of_search_and_characters_where_there_are_no_blanks(one, other):
    assert phrases_of(one) == phrases_of(other) != array("q")


def test_a_changed_character_changes_the_phrases_that_hold_it():
    text = "数据分析和机器学习的方法"
    shared = set(phrases_of(text)) & set(phrases_of(text.replace("机", "计")))
    assert len(phrases_of(text)) == len(text) - 4
    assert len(shared) == len(text) - 4 - 5


@pytest.mark.parametrize("text", ["", " \n", "--- ###", "\ufeff"])
def test_what_holds_no_word_has_no_phrase(text):
    assert len(phrases_of(text)) == 0


def naive(found: list[str], least: Fraction) -> list[dict[int, int]]:
    """Which texts are like each, and what they share, pair by pair."""
    split = [plainly(text) for text in found]
    return [
        {
            other: shared
            for other, theirs in enumerate(split)
            if other != text
            and (shared := len(ours & theirs))
            and (shared >= least * len(ours) or shared >= least * len(theirs))
        }
        for text, ours in enumerate(split)
    ]


def check_likeness(found: list[str], least: Fraction, limit: int | None) -> None:
    expected = naive(found, least)
    seen = []
    for text, likeness in Phrasebook([phrases_of(text) for text in found], least).likenesses(limit):
        seen.append(text)
        assert set(positions(likeness.texts)) == expected[text].keys()
        nearest = sorted(expected[text].items(), key=lambda one: (-one[1], one[0]))
        assert [tuple(one) for one in likeness.nearest] == nearest[:limit]
    assert sorted(seen) == list(range(len(found)))


some = st.lists(texts, max_size=12)
limits = st.none() | st.integers(0, 4)


@settings(max_examples=60, deadline=None)
@given(some, shares, limits)
def test_likeness_is_what_comparing_pair_by_pair_gives(found, least, limit):
    check_likeness(found, least, limit)


@settings(max_examples=60, deadline=None)
@given(some, shares, limits, st.integers(0, 3), st.integers(1, 5), st.integers(1, 9))
def test_so_it_is_by_rows_of_bits_and_in_several_turns(found, least, limit, few, groups, at_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phrases, "_FEW", few)
        patch.setattr(phrases, "_MOST_GROUPS", groups)
        patch.setattr(phrases, "_AT_ONCE", at_once)
        patch.setattr(phrases, "_LONG_KEY", 4)
        patch.setattr(phrases, "_MOST_ROW_BYTES", 200)
        check_likeness(found, least, limit)


def test_of_many_copies_with_a_word_changed_each():
    base = [f"w{number}" for number in range(60)]
    found = []
    for number in range(120):
        changed = list(base)
        changed[number % 60] = f"x{number}"
        found.append(" ".join(changed))
    check_likeness(found, Fraction(9, 10), 5)


def test_a_share_is_reached_exactly():
    assert [least_shared(count, Fraction(1, 10)) for count in (0, 1, 10, 11, 20)] == [1, 1, 1, 2, 2]
    assert least_shared(7, Fraction(0)) == 1
    assert least_shared(7, Fraction(1)) == 7


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 40), st.integers(0, 9)), st.sets(st.integers(0, 40)))
def test_weights_add_up(weights, asked):
    found = Weights(weights, 41)
    bits = sum(1 << number for number in asked)
    assert found.total(bits) == sum(weights.get(number, 0) for number in asked)
    assert set(positions(found.texts)) == weights.keys()


@settings(deadline=None)
@given(st.sets(st.integers(0, 200)))
def test_positions_are_those_of_the_bits(numbers):
    assert list(positions(sum(1 << number for number in numbers))) == sorted(numbers)
