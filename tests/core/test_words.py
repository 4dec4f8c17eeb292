"""How texts, names and queries are taken apart."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skillfs.core.words import MOST_LENGTH, OFTEN, index_terms, is_cjk, runs_of, terms_of, words_of

ODD = "aZ09_-é\u0301ßİ\u0131\u017f№½ﬁ㈱ｶﾞ가각数据库"
ODD += "がか\u3099\u200d\u200c🙂\ufeff\u0e01\u0e34\u0915\u093f \n\"*:()^'"
TEXTS = st.text(st.one_of(st.sampled_from(ODD), st.characters(exclude_categories=("Cs",))), max_size=60)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Commit Messages", ["commit", "message"]),
        ("fix_me, snake_case2", ["fix", "me", "snake", "case2"]),
        ("queries classes status bus its", ["query", "classe", "status", "bus", "its"]),
        ("Café CAFE\u0301 Größe STRASSE Straße", ["cafe", "cafe", "grosse", "strasse", "strasse"]),
        ("数据库", ["数据", "据库", "库"]),
        ("字", ["字"]),
        ("Python数据v2", ["python", "数据", "据", "v2"]),
        ("コードを書く", ["コー", "ード", "ドを", "を書", "書く", "く"]),
        ("한국어", ["한국", "국어", "어"]),
        (unicodedata.normalize("NFD", "한국어 がぎ"), ["한국", "국어", "어", "がぎ", "ぎ"]),
        ("İstanbul ŞIK", ["istanbul", "sik"]),
        ("½ ﬁne № 5", ["1", "2", "fine", "5"]),
        ("हिन्दी सीखें", ["हिनदी", "सीखें"]),
        ("\u0645\u06cc\u200c\u062e", ["\u0645\u06cc\u062e"]),
        ("🙂 — … \0 \ufeff", []),
        ("x" * 100, ["x" * MOST_LENGTH]),
    ],
)
def test_terms(text: str, terms: list[str]) -> None:
    assert terms_of(text) == terms


@given(TEXTS)
@example("½")
@example("㈱a")
@example("\u3099")
def test_terms_hold_nothing_that_the_index_could_take_for_something_else(text: str) -> None:
    for term in terms_of(text):
        assert term
        assert not set(term) & set("§\"'*^:()-_+{} \0\n")
        assert len(term) <= MOST_LENGTH
        assert not any(c.isascii() and not (c.islower() or c.isdigit()) for c in term)


@given(TEXTS)
def test_terms_are_terms_of_themselves(text: str) -> None:
    terms = [term for term in terms_of(text) if not is_cjk(term)]
    assert terms_of(" ".join(terms)) == terms


@given(TEXTS, TEXTS)
def test_a_text_has_the_terms_of_its_parts(one: str, other: str) -> None:
    assert terms_of(f"{one} {other}") == terms_of(one) + terms_of(other)


@given(TEXTS)
def test_case_does_not_matter(text: str) -> None:
    plain = "".join(c for c in text if c.isascii() or "\u4e00" <= c <= "\u9fff")
    assert terms_of(plain.upper()) == terms_of(plain.lower())


@given(TEXTS)
def test_words_are_parts_of_the_text_and_runs_are_parts_of_words(text: str) -> None:
    at = 0
    for word in words_of(text):
        at = text.replace("_", " ").index(word, at) + len(word)
        assert "".join(runs_of(word)) == word


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_what_is_indexed_are_the_terms(text: str, name: str, skill: str, about: str) -> None:
    terms = index_terms(text, name, skill, about).split()
    plain = {term for term in terms if not term.startswith("§")}
    assert plain == {t for part in (text, name, skill, about) for t in terms_of(part)}
    for mark, part in (("§1", skill), ("§2", about), ("§3", name)):
        assert {t.removeprefix(mark) for t in terms if t.startswith(mark)} == set(terms_of(part))


def test_words_that_a_text_uses_often_are_marked() -> None:
    text = "the lock waits. " * 20 + " ".join(f"word{n}" for n in range(500)) + " 数据库" * 5
    often = {t for t in index_terms(text, "", "", "").split() if t.startswith(OFTEN)}
    assert {f"{OFTEN}lock", f"{OFTEN}wait", f"{OFTEN}数据", f"{OFTEN}据库"} <= often
    assert f"{OFTEN}the" not in often
    assert len(often) <= 32
