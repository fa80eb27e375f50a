"""Drafts of a known quality: each proposes by what the target is known to answer."""

from __future__ import annotations

import random
from collections.abc import Sequence

from outrider.sampling.tree import DraftTree
from tests.support.divergence import Asked
from tests.support.scripted_workers import Proposer, Wish
from tests.support.truth import Truth

KINDS = ("absent", "oracle", "wrong at 0", "wrong at 2", "random")


def known_draft(kind: str, truth: Truth) -> Proposer:
    """One of KINDS, or "wrong at N". Where more candidates are asked for, wrong ones come first."""
    name, _, index = kind.partition(" at ")
    noise = random.Random(kind)
    vocab_size = truth.info.vocab_size

    def chain(wish: Wish) -> list[int]:
        right = _rest(wish, truth)
        match name:
            case "absent":
                return []
            case "oracle":
                return right
            case "wrong":
                return _spoilt(right, int(index), vocab_size)
            case "random":
                return [noise.randrange(-3, vocab_size + 20) for _ in range(wish.k)]
            case _:
                raise ValueError(f"{kind!r} is no kind of draft")

    def propose(wish: Wish) -> DraftTree:
        best = chain(wish)
        others = [
            _spoilt(best, place % max(1, len(best)), vocab_size, 1 + place) for place in range(wish.w - 1)
        ]
        return DraftTree.from_candidates([*others, best] if best else [])

    return propose


def _rest(wish: Wish, truth: Truth) -> list[int]:
    asked = wish.generation
    prompt = wish.tokens[: asked.prompt_length]
    answer = truth.answer(Asked(prompt, asked.sampling, asked.seed, asked.choice))
    done = len(wish.tokens) - asked.prompt_length
    return answer.ids[done : done + wish.k]


def _spoilt(chain: Sequence[int], index: int, vocab_size: int, shift: int = 1) -> list[int]:
    return [(token + shift) % vocab_size if place == index else token for place, token in enumerate(chain)]
