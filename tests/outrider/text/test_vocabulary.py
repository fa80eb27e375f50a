import json

import pytest

from outrider.text.vocabulary import InvalidTokenizer, fingerprint, first_difference, vocabulary


def test_c39_ids_and_tokens_of_every_family_match_the_library(files):
    from tokenizers import Tokenizer

    for name, file in files.items():
        library = Tokenizer.from_str(file.decode())
        expected = {token_id: token for token, token_id in library.get_vocab(with_added_tokens=True).items()}
        assert vocabulary(file) == expected, name


@pytest.mark.parametrize(
    "file", [b"", b"\xff", b"[]", b"{}", b'{"model": {"vocab": 3}}', b'{"model": {"vocab": [[]]}}']
)
def test_what_is_no_tokenizer_is_refused_by_name(file):
    with pytest.raises(InvalidTokenizer, match=r"tokenizer\.json"):
        vocabulary(file)


def test_an_added_token_wins_over_the_models_own():
    file = json.dumps({"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": [{"id": 1, "content": "<end>"}]})
    assert vocabulary(file.encode()) == {0: "a", 1: "<end>"}


def test_the_fingerprint_is_of_the_pairs_and_not_of_their_order():
    assert fingerprint({0: "a", 1: "b"}) == fingerprint({1: "b", 0: "a"})
    assert len({fingerprint(v) for v in ({0: "a", 1: "b"}, {0: "b", 1: "a"}, {0: "a"}, {0: 'a",1:"b'})}) == 4


def test_c39_a_wider_vocabulary_fits_when_the_shared_ids_agree():
    assert first_difference({0: "a", 1: "b"}, {0: "a", 1: "b", 2: "[PAD2]", 3: "[PAD3]"}) is None
    assert first_difference({}, {0: "a"}) is None


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ({0: "a", 1: "b"}, {0: "a", 1: "c"}, (1, "b", "c")),
        ({0: "a", 2: "c"}, {0: "a", 1: "b", 2: "c"}, (1, None, "b")),
        ({0: "a", 1: "b", 2: "c"}, {1: "b", 2: "c"}, (0, "a", None)),
    ],
)
def test_c41_a_mismatch_names_the_first_id_and_both_tokens(left, right, expected):
    assert first_difference(left, right) == expected
