import json

import pytest

from outrider.text.tokenizer import Tokenizer
from outrider.text.vocabulary import InvalidTokenizer

TEXTS = ["The quick brown fox.", "def add(a, b):\n    return a + b", "小さな猫 😀 Mädchen"]


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_the_way_to_ids_and_back(files, text):
    for name in ("byte_level", "byte_fallback"):
        tokenizer = Tokenizer(files[name])
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text, name


def test_special_and_unknown_ids_have_no_text_and_added_words_do(files):
    tokenizer = Tokenizer(files["byte_level"])
    special, word = (
        tokenizer.encode("<s>", add_special_tokens=False),
        tokenizer.encode("<tool>", add_special_tokens=False),
    )
    assert [tokenizer.has_text(token_id) for token_id in (*special, *word, 10**6)] == [False, True, False]
    assert tokenizer.decode((*special, *word, 10**6)) == "<tool>"


def test_a_file_that_cuts_or_pads_does_not_cut_or_pad_a_prompt(files):
    from tokenizers import Tokenizer as Library

    library = Library.from_str(files["byte_level"].decode())
    library.enable_truncation(2)
    library.enable_padding(length=50)
    plain, cutting = Tokenizer(files["byte_level"]), Tokenizer(library.to_str().encode())
    assert cutting.encode(TEXTS[0], add_special_tokens=True) == plain.encode(
        TEXTS[0], add_special_tokens=True
    )


@pytest.mark.parametrize("broken", [b"{", json.dumps({"model": {"type": "Unheard", "vocab": {}}}).encode()])
def test_a_broken_file_is_refused(broken):
    with pytest.raises(InvalidTokenizer):
        Tokenizer(broken)


def test_only_byte_fallback_has_byte_tokens(files):
    def num_bytes(name):
        return sum(map(Tokenizer(files[name]).is_byte, range(1000)))

    assert (num_bytes("byte_fallback"), num_bytes("byte_level")) == (256, 0)
