"""Queries, scores and passages."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skillfs.core.matching import (
    MOST_PASSAGES,
    PASSAGE,
    Fields,
    Finder,
    match_of,
    passages_of,
    telling,
    weight_of,
)
from skillfs.core.search import Query, SearchResults, Word, parse_query
from skillfs.core.words import is_cjk, terms_of
from skillfs.errors import InvalidArgumentError
from tests.core.test_words import TEXTS

PLAIN = Fields(False, "", "", "")


def weights(query: Query) -> dict[Word, float]:
    return dict.fromkeys(query.words, 1.0)


def score(query: str, text: str, fields: Fields = PLAIN) -> float:
    parsed = parse_query(query)
    match = match_of(parsed, weights(parsed), fields, Finder(parsed).find(text))
    return 0.0 if match is None else match.score


def found(query: str, text: str) -> list[str]:
    """The passages that are shown of a text."""
    parsed = parse_query(query)
    return [p.text for p in passages_of(text, Finder(parsed).find(text), weights(parsed))]


# -- queries -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("Commit messages", ["commit", "message"]),
        ("commit commits COMMIT", ["commit"]),
        ("数据库 字", ["数据", "据库", "字"]),
        ('NEAR(a b) AND c* -d e:f "g', ["near", "a", "b", "and", "c", "d", "e", "f", "g"]),
        ("'; DROP TABLE words; --", ["drop", "table", "word"]),
        ("a\0b", ["a", "b"]),
        ("{x y} : ^z + \\ 🙂", ["x", "y", "z"]),
    ],
)
def test_a_query_is_words(query: str, terms: list[str]) -> None:
    assert [word.term for word in parse_query(query).words] == terms
    assert not parse_query(query).phrases


def test_only_a_single_character_of_cjk_stands_for_more() -> None:
    assert [word.begins for word in parse_query("字 数据 x").words] == [True, False, False]


def test_a_word_that_stands_nowhere_stands_for_longer_ones() -> None:
    query = parse_query('postgres abc 数据 "quoted"')
    begins = {word.term: word.begins for word in query.widened(set(query.words)).words}
    assert begins == {"postgre": True, "abc": False, "数据": False, "quoted": False}
    assert query.widened(set()) == query


@pytest.mark.parametrize("query", ["", " ", "***", "\0", "🙂 — …", '""', "a" * 1_001, "x\ud800", "\udfff"])
def test_what_is_no_query_is_refused(query: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_query(query)
    assert len(caught.value.message) < 400
    caught.value.message.encode()


@pytest.mark.parametrize("query", [None, 7, b"x", ["x"], True])
def test_a_query_is_a_string(query: object) -> None:
    with pytest.raises(InvalidArgumentError, match="string"):
        parse_query(query)


def test_words_beyond_the_most_do_not_count() -> None:
    assert len(parse_query(" ".join(f"w{n}" for n in range(200))).words) == 48


@given(st.one_of(TEXTS, st.text(max_size=200), TEXTS.map(lambda text: f'a "{text}"')))
@example('"\u200c"')  # a joiner alone is a word as it stands there, and nothing when it is folded
def test_any_text_is_a_query_or_refused_as_none(query: str) -> None:
    try:
        parsed = parse_query(query)
    except InvalidArgumentError:
        assert not terms_of(query) or any("\ud800" <= c <= "\udfff" for c in query)
        return
    assert {w.term for w in parsed.words} <= set(terms_of(query))


# -- what is found -----------------------------------------------------------------------------------------


@given(TEXTS, TEXTS)
def test_a_text_has_the_words_of_a_query_that_are_among_its_terms(text: str, words: str) -> None:
    if not terms_of(words.replace('"', " ")):
        return
    query = parse_query(words.replace('"', " "))
    has = Finder(query).find(text)
    terms = terms_of(text)
    for word in query.words:
        assert (word in has.counts) == word.is_in(terms), word
    for start, end, word in has.places:
        assert 0 <= start < end <= len(text)
        assert word in has.counts


@given(st.lists(TEXTS, max_size=4), TEXTS)
def test_a_finder_remembers_nothing_of_a_text_but_its_words(texts: list[str], words: str) -> None:
    if not terms_of(words.replace('"', " ")):
        return
    query = parse_query(words.replace('"', " "))
    finder = Finder(query)
    for text in [*texts, words, *texts]:
        assert finder.find(text) == Finder(query).find(text)


@pytest.mark.parametrize(
    ("query", "text", "is_there"),
    [
        ('"lock timeout"', "The lock_timeout is set.", True),
        ('"lock timeout"', "Lock  —\n timeout", True),
        ('"lock timeout"', "timeout, lock", False),
        ('"lock timeout"', "lock the timeout", False),
        ('"lock timeout"', "a lock timeouts", False),
        ('"lock timeout"', "wedlock timeout", False),
        ('"lock timeouts"', "lock timeout", False),
        ('"messages"', "message", False),
        ('"Größe"', "die GROSSE", True),
        ('"数据库"', "大数据库管理", True),
        ('"数据库"', "数据\uff0c据库", False),
        ('"数据 v2"', "大数据 v2!", True),
        ('"数据 v2"', "大数据 v22", False),
        ('"字"', "汉字", True),
        ('"a b" "c d"', "c d, a b", True),
        ('"a b" "c d"', "a b c", False),
    ],
)
def test_quoted_words_stand_together(query: str, text: str, is_there: bool) -> None:
    assert (score(query, text) > 0) is is_there


def test_a_phrase_may_stand_in_a_name_instead() -> None:
    assert score('"commit messages"', "", Fields(True, "", "commit-messages", "")) > 0
    assert score('"commit messages"', "commit, then messages", Fields(True, "", "x", "Commit messages.")) > 0
    assert score('"commit messages"', "", Fields(False, "commit-messages.md", "", "")) > 0
    assert score('"commit messages"', "commit x messages", Fields(False, "a.md", "commit-messages", "")) == 0


# -- scores ------------------------------------------------------------------------------------------------


def test_what_a_person_would_put_first_scores_more() -> None:
    text = "a lock " + "and other words " * 40 + "timeout"
    assert score("lock timeout", "a lock timeout " + "and other words " * 40) > score("lock timeout", text)
    assert score("lock timeout", text) > score("lock timeout", text.replace("timeout", ""))
    assert score("lock", "lock lock lock " + "word " * 50) > score("lock", "lock " + "word " * 52)
    assert score("lock", "lock " + "word " * 50) > score("lock", "lock " + "word " * 5_000)
    named, described = Fields(True, "", "lock", ""), Fields(True, "", "x", "On a lock.")
    assert score("lock", "lock", named) > score("lock", "lock", described) > score("lock", "lock lock")
    assert score("lock", "", named) > score("lock", "", Fields(True, "", "lock-and-key", ""))
    assert score("lock", "", Fields(False, "lock.md", "", "")) > score("lock", "lock " * 100)
    inside = Fields(False, "a.md", "lock", "")
    assert score("lock", "lock", inside) > score("lock", "lock")
    assert score("lock", "", inside) == 0


def test_a_rare_word_counts_more() -> None:
    query = parse_query("common rare")
    worth = {word: 5.0 if word.term == "rare" else 0.1 for word in query.words}
    finder = Finder(query)
    one, other = (match_of(query, worth, PLAIN, finder.find(text)) for text in ("rare x", "common x"))
    assert one is not None
    assert other is not None
    assert one.score > other.score
    assert one.is_whole
    assert not other.is_whole


def test_small_words_tell_nothing() -> None:
    query = parse_query("how do I write a csv file 数据")
    worth = {word: weight_of(word, 24, 8) for word in query.words}
    assert [word.term for word in telling(worth)] == ["write", "file", "数据"]
    by_term = {word.term: weight for word, weight in worth.items()}
    assert by_term["a"] < by_term["do"] < by_term["csv"] < by_term["file"] == by_term["数据"]
    held = parse_query("which docker about").words
    assert [word.term for word in telling({word: weight_of(word, 24, 8) for word in held})] == ["docker"]
    (only,) = parse_query("I").words
    assert telling({only: weight_of(only, 5, 5)}) == (only,)
    assert weight_of(only, 0, 0) == 0
    assert weight_of(query.words[3], 10, 1) > weight_of(query.words[3], 10, 2) > 0


# -- passages ----------------------------------------------------------------------------------------------


@given(
    st.lists(st.one_of(TEXTS, st.sampled_from(["lock ", "timeout\r\n", "数据库", "😀", "\n"])), max_size=80)
)
def test_passages_are_stretches_of_the_text(parts: list[str]) -> None:
    text = "".join(parts)
    query = parse_query("lock timeout 数据 字 a")
    shown = passages_of(text, Finder(query).find(text), weights(query))
    assert len(shown) <= MOST_PASSAGES
    for passage in shown:
        assert text[passage.start : passage.start + passage.length] == passage.text
        assert 0 < passage.length <= 2 * PASSAGE
        assert passage.text == passage.text.strip()
        assert any(word.is_in(terms_of(passage.text)) for word in query.words)
    ends = sorted((p.start, p.start + p.length) for p in shown)
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))


def test_the_best_passage_has_the_most_words() -> None:
    filler = "Nothing of the kind stands here. " * 30
    text = f"{filler}A lock.\n{filler}\nThe lock has a timeout.\n{filler}Another timeout."
    assert found("lock timeout", text)[0].startswith("The lock has a timeout.")
    assert len(found("lock timeout", text)) == 3


def test_a_passage_begins_with_its_line_and_ends_between_words() -> None:
    text = "first line\n# The heading with a lock in it\n" + "words and words " * 40
    (shown,) = found("lock", text)
    assert shown.startswith("# The heading")
    assert shown.endswith(("words", "and"))
    assert PASSAGE / 2 < len(shown) <= PASSAGE


def test_a_word_without_end_is_shown_in_part() -> None:
    assert len(found("x" * 100, "x" * 10_000)[0]) <= 2 * PASSAGE
    (shown, *_) = found("数据", "数据" * 5_000)
    assert len(shown) <= PASSAGE
    assert is_cjk(shown)


def test_results_say_whether_all_was_searched() -> None:
    assert SearchResults("x", (), 0, 3, 3).complete
    assert not SearchResults("x", (), 0, 3, 2).complete
