import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.text.detokenize import Detokenizer
from outrider.text.stops import StopFinder
from outrider.text.tokenizer import Tokenizer

ALPHABET = st.text(st.sampled_from("ab猫"), max_size=4)


def search(pieces, stops):
    """(text, number of pieces read, stop)."""
    finder, text = StopFinder(stops), ""
    for index, piece in enumerate(pieces):
        found = finder.push(piece)
        text += found.text
        if found.stop is not None:
            return text, index + 1, found.stop
    return text + finder.flush(), len(pieces), None


def expected(pieces, stops):
    """The same by the definition: look at the whole text after each token."""
    text = ""
    for index, piece in enumerate(pieces):
        text += piece
        hits = [(text.find(stop), -len(stop), stop) for stop in stops if stop in text]
        if hits:
            start, _, stop = min(hits)
            return text[:start], index + 1, stop
    return text, len(pieces), None


@given(
    pieces=st.lists(ALPHABET, max_size=12),
    stops=st.lists(ALPHABET.filter(bool), max_size=4),
)
def test_c10_the_search_equals_a_look_at_the_whole_text_after_each_token(pieces, stops):
    assert search(pieces, stops) == expected(pieces, stops)


@given(pieces=st.lists(ALPHABET, max_size=12), stops=st.lists(ALPHABET.filter(bool), max_size=4))
def test_nothing_that_was_shown_is_taken_back(pieces, stops):
    finder, shown = StopFinder(stops), ""
    final = expected(pieces, stops)[0]
    for piece in pieces:
        found = finder.push(piece)
        shown += found.text
        assert final.startswith(shown)
        if found.stop is not None:
            break


@pytest.mark.parametrize(
    ("pieces", "stops", "result"),
    [
        (["one", " two", " three"], ["o t"], ("one tw", 3, "o t")),
        (["abc"], ["c", "b", "bc"], ("a", 1, "bc")),
        (["ab", "c", "d"], ["abcd", "bc"], ("a", 2, "bc")),
        (["aa", "ab"], ["aab"], ("a", 2, "aab")),
        (["x", "EN", "E"], ["END"], ("xENE", 3, None)),
    ],
)
def test_c10_worked_examples(pieces, stops, result):
    assert search(pieces, stops) == result


@pytest.mark.parametrize("family", ["byte_level", "byte_fallback"])
@pytest.mark.parametrize(("text", "stop"), [("a 鷲 b", "鷲"), ("ab 😀鷲 in", "😀鷲"), ("in 鷲in", " 鷲i")])
def test_c10_the_last_byte_of_a_character_completes_the_match(files, family, text, stop):
    tokenizer = Tokenizer(files[family])
    ids = tokenizer.encode(text, add_special_tokens=False)
    first = next(n for n in range(len(ids) + 1) if stop in tokenizer.decode(ids[:n]))
    detokenizer, finder = Detokenizer(tokenizer), StopFinder([stop])
    steps = [finder.push(detokenizer.push(token_id), detokenizer.pending) for token_id in ids[:first]]
    assert [found.stop for found in steps] == [None] * (first - 1) + [stop]
    assert "".join(found.text for found in steps) == text[: text.index(stop)]


def test_a_match_that_a_later_byte_would_spoil_is_not_lost_before_it():
    finder = StopFinder(["鷲b"])
    assert finder.push("a", "鷲") == ("a", None)
    # The run turned out to be broken.
    assert finder.push("\N{REPLACEMENT CHARACTER}" * 4 + "b") == ("\N{REPLACEMENT CHARACTER}" * 4 + "b", None)
