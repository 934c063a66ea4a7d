"""Which words a text is indexed under, and that a query asks for no others."""

from __future__ import annotations

import time

import pytest
from astrbot_plugin_compact.summary.archive_index import (
    fold,
    fold_offset,
    parse_query,
    words_of,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.archives import any_text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("预算表", {"预算", "算表", "表"}),
        ("表", {"表"}),
        ("用AI写", {"用", "ai", "写"}),
        ("好的，再见", {"好的", "的", "再见", "见"}),
        ("Hello World", {"hello", "world"}),
        ("ABC-1234", {"abc", "1234", "abc_1234"}),
        ("getUserName", {"getusername", "get", "user", "name", "getuser", "username"}),
        ("HTTPServer", {"httpserver", "http", "server"}),
        ("utf8Decode", {"utf8decode", "utf", "8", "decode", "utf8", "8decode"}),
        ("max_tokens", {"max", "tokens", "max_tokens"}),
        ("src/app/main.py", {"src", "app", "main", "py", "src_app", "app_main", "main_py"}),
        ("C:\\tmp\\a.txt", {"c", "tmp", "a", "txt", "c_tmp", "tmp_a", "a_txt"}),
        ("a8f3c2d9", {"a8f3c2d9"}),
        ("ＡＢＣ１２", {"abc12"}),
        ("Café", {"cafe"}),
        ("Cafe\u0301", {"cafe"}),
        ("Straße", {"strasse"}),
        ("привет Мир", {"привет", "мир"}),
        ("데이터를", {"데이", "이터", "터를", "를"}),
        ("🎉🎉", {"🎉🎉", "🎉"}),
        ("€120 ⭐", {"€", "120", "⭐"}),
        ("", set()),
        (" \n\x00 ,.!? — …", set()),
        ("x" * 100, {"x" * 64}),
    ],
)
def test_a_text_has_these_words(text: str, words: set[str]) -> None:
    assert words_of(text) == words


@given(any_text)
def test_words_hold_nothing_that_the_index_would_split_or_read_as_syntax(text: str) -> None:
    for word in words_of(text):
        assert all(char.isalnum() or char == "_" or ord(char) > 127 for char in word)
        assert word


texts = st.text(st.characters(categories=["L", "N", "P", "Z", "S", "M"]), max_size=60)


@given(before=texts, middle=texts, after=texts)
def test_every_word_a_query_asks_for_is_a_word_of_a_text_that_is_it(
    before: str, middle: str, after: str
) -> None:
    text = f"{before} {middle} {after}"
    words = words_of(text)
    for term in parse_query(middle).terms:
        assert all(
            word in words or any(w.startswith(word) for w in words if len(word) == 1)
            for word in term.words
        )
        assert term.find(fold(text))


@given(any_text)
def test_any_query_can_be_parsed(text: str) -> None:
    for term in parse_query(text).terms:
        assert term.words
        assert term.exact


def test_a_word_across_the_border_of_two_slices_is_whole() -> None:
    for shift in range(-20, 20):
        text = "啊 " * ((1 << 15) + shift) + "getUserName 预算报表 src/app/main.py" + " 啊" * 50
        assert words_of("getUserName 预算报表 src/app/main.py") <= words_of(text)


@pytest.mark.parametrize("unit", ["长", "a", "a-", "a ", "aB", "A", "é", "/", "🎉", "长a"])
def test_a_text_of_two_million_characters_is_indexed_in_linear_time(unit: str) -> None:
    def seconds(chars: int) -> float:
        text = unit * (chars // len(unit))
        started = time.thread_time()
        words_of(text)
        return time.thread_time() - started

    seconds(100_000)
    assert seconds(2_000_000) < 40 * max(seconds(200_000), 0.005)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("前面ẞ后面目标", "目标"),
        ("ß" * 9000 + "目标", "目标"),
        ("ﬃ① 目标", "目标"),
        ("e\u0301e\u0301 目标", "目标"),
    ],
)
def test_a_place_in_the_folded_text_is_found_in_the_text(text: str, word: str) -> None:
    folded = fold(text)
    assert len(folded) != len(text)
    assert text[fold_offset(text, folded, folded.index(word)) :] == word


def test_a_long_query_is_cut_and_stays_small() -> None:
    query = parse_query(" ".join(f"word{n}" for n in range(10_000)))
    assert len(query.terms) <= 24
    assert len(query.phrase) <= 400


def test_a_word_of_its_own_is_preferred_to_one_inside_another() -> None:
    (term,) = parse_query("art").terms
    assert term.find("start art") == (6, 9, True)
    assert term.find("start") == (2, 5, False)
    assert term.find("strat") is None
