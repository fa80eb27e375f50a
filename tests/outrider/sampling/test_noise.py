"""The noise: published vectors, independence of its arguments, uniformity."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.sampling import gumbel, noise_key, uniform_bits
from outrider.sampling.noise import vocabulary_bits
from tests.outrider.sampling import reference
from tests.outrider.sampling.reference import STEADY

VECTORS = json.loads(resources.files("outrider.sampling").joinpath("noise_vectors.json").read_text())
SEEDS = st.integers(0, 2**64 - 1)
SMALL = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("vector", VECTORS["vectors"])
def test_published_vectors_hold(vector):
    key = noise_key(int(vector["seed"]), vector["choice"], vector["purpose"], vector["position"])
    bits = uniform_bits(key, vector["ids"])
    assert f"{key:016x}" == vector["key"]
    assert [f"{int(word):016x}" for word in bits] == vector["bits"]
    np.testing.assert_allclose(gumbel(bits), vector["gumbel"], rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("vector", VECTORS["vectors"])
def test_published_vectors_follow_from_plain_integers(vector):
    key = reference.noise_key(int(vector["seed"]), vector["choice"], vector["purpose"], vector["position"])
    assert f"{key:016x}" == vector["key"]
    assert [f"{reference.noise_bits(key, token):016x}" for token in vector["ids"]] == vector["bits"]
    noise = [reference.gumbel(int(word, 16)) for word in vector["bits"]]
    np.testing.assert_allclose(noise, vector["gumbel"], rtol=1e-14, atol=1e-15)


def test_the_documented_vectors_hold():
    page = (Path(__file__).parents[3] / "docs" / "noise.md").read_text()
    rows = re.findall(
        r"^\| (\d+) \| (\d+) \| (\d+) \| `(\w{16})` \| (\d+) \| `(\w{16})` \| (\S+) \|$", page, re.MULTILINE
    )
    assert len(rows) >= 6
    for seed, choice, position, key, token, bits, noise in rows:
        own_key = reference.noise_key(int(seed), int(choice), "token", int(position))
        own_bits = reference.noise_bits(own_key, int(token))
        assert (f"{own_key:016x}", f"{own_bits:016x}") == (key, bits)
        assert f"{reference.gumbel(own_bits):.12f}" == noise


@pytest.mark.parametrize("extreme", VECTORS["gumbel_of_bits"])
def test_noise_of_extreme_bits_is_finite(extreme):
    noise = gumbel(np.array([int(extreme["bits"], 16)], dtype=np.uint64))
    np.testing.assert_allclose(noise, [extreme["gumbel"]], rtol=1e-14)
    assert -3.63 < noise[0] < 36.74


@settings(**STEADY)
@given(SEEDS, SMALL, st.text(st.characters(max_codepoint=127), min_size=1, max_size=20), SMALL)
def test_key_equals_the_reference(seed, choice, purpose, position):
    arguments = (seed, choice, purpose, position)
    assert noise_key(*arguments) == reference.noise_key(*arguments)


@settings(**STEADY)
@given(SEEDS, st.lists(st.integers(0, 2**63 - 1), max_size=20))
def test_bits_equal_the_reference(key, ids):
    assert uniform_bits(key, ids).tolist() == [reference.noise_bits(key, token) for token in ids]


def test_one_id_gives_one_number_without_a_warning():
    bits = uniform_bits(2**64 - 1, 2**40)
    assert bits.shape == ()
    assert int(bits) == reference.noise_bits(2**64 - 1, 2**40)


@pytest.mark.parametrize(
    "arguments",
    [(-1, 0, "token", 0), (2**64, 0, "token", 0), (0, 2**32, "token", 0), (0, 0, "token", -1)],
)
def test_a_number_out_of_range_is_refused(arguments):
    with pytest.raises(ValueError, match="must be from 0"):
        noise_key(*arguments)


@pytest.mark.parametrize("purpose", ["", "é", "x" * 256])
def test_a_purpose_that_has_no_bytes_is_refused(purpose):
    with pytest.raises(ValueError, match="purpose"):
        noise_key(0, 0, purpose, 0)


@pytest.mark.parametrize("vocab_size", [1, 7, 32_768, 32_769, 151_936])
def test_c39_noise_does_not_depend_on_the_width(vocab_size):
    key = noise_key(5, 0, "token", 9)
    wide = vocabulary_bits(key, 152_064)
    narrow = vocabulary_bits(key, vocab_size)
    assert np.array_equal(narrow, wide[:vocab_size])
    assert np.array_equal(narrow, uniform_bits(key, np.arange(vocab_size)))
    # The floating part too: an id's noise has the same bits alone, in a few, and in all.
    some = np.arange(0, vocab_size, 1 + vocab_size // 997)
    assert np.array_equal(gumbel(narrow)[some], gumbel(wide[some]))
    assert gumbel(narrow[-1:])[0] == gumbel(wide)[vocab_size - 1]


def test_c28_noise_is_a_pure_function_of_its_arguments():
    def draw():
        return uniform_bits(noise_key(11, 2, "token", 300), [4, 9])

    before = draw()
    np.random.default_rng(0).random(10)
    uniform_bits(noise_key(12, 2, "token", 300), [4, 9])
    assert np.array_equal(draw(), before)
    others = [(12, 2, "token", 300), (11, 3, "token", 300), (11, 2, "other", 300), (11, 2, "token", 301)]
    assert all(not (uniform_bits(noise_key(*other), [4, 9]) == before).any() for other in others)


def _grid(along: str, size: int) -> np.ndarray:
    """Uniform numbers [size, 64 ids] with one argument counted up: where structure would show."""
    rows = []
    for i in range(size):
        seed, choice, position = (i if along == name else 0 for name in ("seed", "choice", "position"))
        rows.append(uniform_bits(noise_key(seed, choice, "token", position), np.arange(64)))
    return np.array(rows)


@pytest.mark.parametrize("along", ["seed", "choice", "position"])
def test_noise_is_uniform_and_independent_of_its_neighbours(along):
    bits = _grid(along, 2000)
    u = (bits >> np.uint64(11)) * 2.0**-53
    # Kolmogorov-Smirnov: sqrt(n) times the largest gap is above 1.95 once in a thousand.
    ordered = np.sort(u.ravel())
    gap = np.abs(ordered - (np.arange(ordered.size) + 0.5) / ordered.size).max()
    assert gap * np.sqrt(ordered.size) < 1.95
    # Each byte of the hash, high and low, takes its 256 values evenly.
    for shift in range(0, 64, 8):
        counts = np.bincount((bits.ravel() >> np.uint64(shift)).astype(np.uint8), minlength=256)
        assert reference.chi_square_z(counts, np.full(256, 1 / 256)) < 4
    # Neighbours along the counted argument and along the ids do not correlate, nor share bits.
    for first, second in ((u[:-1], u[1:]), (u[:, :-1], u[:, 1:])):
        correlation = np.corrcoef(first.ravel(), second.ravel())[0, 1]
        assert abs(correlation) * np.sqrt(first.size) < 4
    for first, second in ((bits[:-1], bits[1:]), (bits[:, :-1], bits[:, 1:])):
        flipped = np.unpackbits((first ^ second).ravel().view(np.uint8)).mean()
        assert abs(flipped - 0.5) * 2 * np.sqrt(first.size * 64) < 4


@pytest.mark.parametrize("along", ["seed", "choice", "position"])
def test_pairs_of_neighbours_fill_the_square_evenly(along):
    bins = (_grid(along, 2000) >> np.uint64(61)).astype(np.int64)
    for pairs in (bins[:-1] * 8 + bins[1:], bins[:, :-1] * 8 + bins[:, 1:]):
        counts = np.bincount(pairs.ravel(), minlength=64)
        assert reference.chi_square_z(counts, np.full(64, 1 / 64)) < 4


def test_noise_has_the_moments_of_a_gumbel():
    noise = gumbel(vocabulary_bits(noise_key(1, 0, "token", 1), 200_000))
    assert abs(noise.mean() - 0.5772156649) < 4 * 1.2825 / np.sqrt(noise.size)
    assert abs(noise.var() - np.pi**2 / 6) < 0.05
