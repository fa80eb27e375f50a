"""Small real tokenizers, one of each family of decoders."""

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog. It doesn't stop; it never stops.",
    'def add(a, b):\n    return a + b\n\nprint(add(1, 2))  # {"sum": 3}',
    "小さな猫が庭で眠っている。Das Mädchen läuft über die Straße. 😀😀 👩‍👩‍👧",
] * 4
SPECIAL = ["<s>", "</s>", "<|user|>"]


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<tool>", special=False)])
    return tokenizer


def byte_fallback() -> Tokenizer:
    """As Llama 2: spaces are ▁, what is not in the vocabulary is spelled in byte tokens."""
    vocab = {token: index for index, token in enumerate(["<unk>", *SPECIAL])}
    vocab |= {f"<0x{byte:02X}>": len(vocab) + byte for byte in range(256)}
    letters = ["▁", *"abcdefghijklmnopqrstuvwxyzTDIh.,;'\n{}()"]
    pairs = [("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("i", "n"), ("▁", "a"), ("▁", "▁")]
    for token in [*letters, *("".join(pair) for pair in pairs)]:
        vocab.setdefault(token, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab, pairs, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=150, special_tokens=["<unk>", *SPECIAL], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=200, special_tokens=["<unk>", *SPECIAL], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


BUILDERS = {
    "byte_level": byte_level,
    "byte_fallback": byte_fallback,
    "unigram": unigram,
    "word_piece": word_piece,
}


@pytest.fixture(scope="session")
def files() -> dict[str, bytes]:
    """tokenizer.json of each family."""
    return {name: build().to_str().encode() for name, build in BUILDERS.items()}
