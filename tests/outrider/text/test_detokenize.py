import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.text.detokenize import Detokenizer
from outrider.text.tokenizer import Tokenizer

FAMILIES = ["byte_level", "byte_fallback", "unigram", "word_piece"]
_LOADED: dict[bytes, Tokenizer] = {}


@pytest.fixture(params=FAMILIES, scope="module")
def tokenizer(request, files):
    return Tokenizer(files[request.param])


def pieces_of(tokenizer, ids):
    detokenizer = Detokenizer(tokenizer)
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.flush()]


# Ids of every kind: bytes and broken runs of them, words, special ones, and ids that no tokenizer knows.
ANY_IDS = st.lists(st.integers(0, 450), max_size=40)


@given(ids=ANY_IDS)
def test_the_pieces_of_any_ids_join_to_the_decoding_of_the_whole(tokenizer, ids):
    assert "".join(pieces_of(tokenizer, ids)) == tokenizer.decode(ids)


@given(text=st.text(st.sampled_from("aé猫ね😀👩\u200d👧\N{REPLACEMENT CHARACTER} \n.'"), max_size=20))
@example("😀😀 👩‍👩‍👧")
@example("  two  spaces")
def test_characters_arrive_whole_and_in_full(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces = pieces_of(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids)
    assert (
        all("\N{REPLACEMENT CHARACTER}" not in piece for piece in pieces)
        or "\N{REPLACEMENT CHARACTER}" in text
    )


def test_a_character_is_held_back_until_its_last_byte(files):
    tokenizer = Tokenizer(files["byte_level"])
    # 鷲 is in no merge: three tokens of a byte each.
    ids = tokenizer.encode("鷲", add_special_tokens=False)
    assert len(ids) == 3
    assert pieces_of(tokenizer, ids) == ["", "", "鷲", ""]
    assert pieces_of(tokenizer, ids[:2]) == ["", "", "\N{REPLACEMENT CHARACTER}"]


def test_a_run_of_byte_tokens_is_pending_until_it_ends(files):
    tokenizer = Tokenizer(files["byte_fallback"])
    *run, letter = tokenizer.encode("鷲a", add_special_tokens=False)[1:]
    detokenizer = Detokenizer(tokenizer)
    assert [(detokenizer.push(token_id), detokenizer.pending) for token_id in run] == [
        ("", ""),
        ("", ""),
        ("", "鷲"),
    ]
    assert (detokenizer.push(letter), detokenizer.pending) == ("鷲a", "")


def test_one_bad_byte_spoils_the_run_as_it_does_in_the_whole(files):
    tokenizer = Tokenizer(files["byte_fallback"])
    run = tokenizer.encode("鷲", add_special_tokens=False)[1:]
    ids = [*run, run[0]]
    assert "".join(pieces_of(tokenizer, ids)) == tokenizer.decode(ids) == "\N{REPLACEMENT CHARACTER}" * 4


def test_the_window_stays_short(files):
    tokenizer = Tokenizer(files["byte_level"])
    detokenizer = Detokenizer(tokenizer)
    for token_id in tokenizer.encode("The quick brown fox. " * 50, add_special_tokens=False):
        detokenizer.push(token_id)
        assert len(detokenizer._window) <= 3
