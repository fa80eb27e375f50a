from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from outrider.runtime.errors import ModelError
from outrider.runtime.weights import (
    CAREFUL,
    Int4Linear,
    Int8Linear,
    PackedLinear,
    RowCounts,
    TiledLinear,
    row_counts,
    store_linears,
)
from outrider.runtime.weights.int4 import GROUP, MIDDLE, quantize
from outrider.runtime.weights.tiled import obstacle_to_tiles

CPU = torch.device("cpu")


def linear(inputs: int = 64, outputs: int = 32, *, bias: bool = True, seed: int = 0) -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(inputs, outputs, bias=bias).to(torch.bfloat16)


def dequantized(levels: torch.Tensor, scales_and_zeros: torch.Tensor, group: int) -> torch.Tensor:
    scale, zero = scales_and_zeros.float().unbind(-1)
    groups = levels.view(len(levels), -1, group).float() - MIDDLE
    return (groups * scale.T[..., None] + zero.T[..., None]).flatten(1)


@given(st.integers(0, 1000), st.sampled_from([32, 64]))
def test_four_bits_are_off_by_half_a_level_at_most(seed, group):
    weight = linear(seed=seed).weight.detach()
    levels, scales_and_zeros = quantize(weight, group)
    assert (int(levels.min()), int(levels.max())) >= (0, 0)
    assert int(levels.max()) <= 15
    off = (dequantized(levels, scales_and_zeros, group) - weight.float()).abs()
    level = scales_and_zeros[..., 0].float().T[..., None].expand(-1, -1, group).flatten(1)
    # Scale and zero point are rounded to bfloat16 themselves, so that the last level may end a little short.
    assert bool((off <= level * 0.5 + weight.float().abs().max() * 2**-6).all())


def test_weights_that_are_four_bits_already_are_kept():
    drawn = torch.randint(0, 16, (32, 64), generator=torch.Generator().manual_seed(1)).float()
    # Each group uses its whole range, and a scale that bfloat16 holds.
    drawn.view(32, 2, 32)[..., 0], drawn.view(32, 2, 32)[..., 1] = 0, 15
    weight = (drawn - MIDDLE) * 0.03125
    levels, scales_and_zeros = quantize(weight, GROUP)
    assert torch.equal(dequantized(levels, scales_and_zeros, GROUP), weight)


@pytest.mark.parametrize("form", [Int8Linear, Int4Linear])
@pytest.mark.parametrize("bias", [True, False])
def test_a_quantized_layer_is_close_to_the_layer(form, bias):
    layer = linear(256, 128, bias=bias)
    rows = torch.randn(3, 256, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)
    with torch.inference_mode():
        found, exact = form(layer)(rows[None])[0].float(), layer(rows).float()
    assert found.shape == exact.shape
    error = (found - exact).norm() / exact.norm()
    assert error < (0.02 if form is Int8Linear else 0.15)


@pytest.mark.parametrize("form", [Int8Linear, Int4Linear])
def test_a_quantized_row_has_the_same_bits_for_any_number_of_rows(form):
    layer = form(linear(256, 128))
    rows = torch.randn(33, 256, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)
    with torch.inference_mode():
        together = layer(rows)
        assert all(torch.equal(layer(rows[: count + 1])[count], together[count]) for count in range(33))


def tiled(layer: nn.Linear) -> TiledLinear:
    if why := obstacle_to_tiles():
        pytest.skip(why)
    return TiledLinear(layer)


@pytest.mark.parametrize("outputs", [16, 32, 80])
@pytest.mark.parametrize("bias", [True, False])
def test_a_tiled_layer_is_the_layer_up_to_rounding(outputs, bias):
    layer = linear(130, outputs, bias=bias)
    rows = torch.randn(29, 130, generator=torch.Generator().manual_seed(4)).to(torch.bfloat16)
    with torch.inference_mode():
        found = tiled(layer)(rows[None])[0].float()
        exact = layer.float()(rows.float())
    assert found.shape == exact.shape
    assert bool(((found - exact).abs() <= exact.abs() * 2**-8 + 1e-5).all())


@given(st.integers(1, 60), st.integers(0, 100), st.integers(1, 3))
def test_a_tiled_row_has_the_same_bits_for_any_number_of_rows_and_threads(count, seed, threads):
    layer = tiled(linear(256, 80))
    rows = torch.randn(60, 256, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)
    before = torch.get_num_threads()
    with torch.inference_mode():
        together = layer(rows)
        try:
            torch.set_num_threads(threads)
            assert torch.equal(layer(rows[:count]), together[:count])
        finally:
            torch.set_num_threads(before)


def test_a_tiled_row_that_is_not_finite_spoils_no_other():
    layer = tiled(linear(64, 32))
    rows = torch.randn(15, 64, generator=torch.Generator().manual_seed(5)).to(torch.bfloat16)
    broken = rows.clone()
    broken[3, 7], broken[14, 0] = float("nan"), float("inf")
    with torch.inference_mode():
        found, sound = layer(broken), layer(rows)
    assert not bool(found[3].isfinite().any())
    assert not bool(found[14].isfinite().all())
    whole = [row for row in range(15) if row not in (3, 14)]
    assert torch.equal(found[whole], sound[whole])


def test_layers_become_what_was_asked_for():
    def stored(dtype: str, inputs: int = 64) -> nn.Module:
        model = nn.Sequential(linear(inputs))
        store_linears(model, dtype, CPU)
        return model[0]

    assert type(stored("int8")) is Int8Linear
    assert type(stored("int4")) is Int4Linear
    assert type(stored("bfloat16")) in (TiledLinear, PackedLinear, nn.Linear)
    # Shapes that the kernel does not take.
    assert type(stored("int4", inputs=40)) in (TiledLinear, PackedLinear, nn.Linear)


def test_float32_layers_stay():
    model = nn.Sequential(nn.Linear(8, 8))
    store_linears(model, "float32", CPU)
    assert type(model[0]) is nn.Linear


def test_rows_are_padded_for_those_layers_only_that_need_it():
    assert row_counts(nn.Sequential(Int4Linear(linear()), Int8Linear(linear()))) == RowCounts(1, 1, 1)
    assert row_counts(nn.Sequential(Int4Linear(linear()), PackedLinear(linear()))) == RowCounts(4, 1, 8)
    assert row_counts(nn.Sequential(PackedLinear(linear()), linear())) == CAREFUL
    assert row_counts(nn.Sequential(tiled(linear()), Int8Linear(linear()))) == RowCounts(2, 1, 1)


@pytest.mark.parametrize(
    ("counts", "padded"),
    [
        (RowCounts(1, 1, 1), [1, 2, 5, 16, 17]),
        (RowCounts(4, 1, 8), [4, 4, 5, 16, 24]),
        (RowCounts(4, 4, 8), [4, 4, 8, 16, 24]),
    ],
)
def test_rows_are_padded_to_the_next_count_that_will_do(counts, padded):
    assert [counts.padded(num_rows) for num_rows in (1, 2, 5, 16, 17)] == padded


def test_a_device_without_kernels_is_refused():
    with pytest.raises(ModelError, match="int4 has kernels for the CPU only; use bfloat16 on cuda:0"):
        store_linears(nn.Sequential(linear()), "int4", torch.device("cuda:0"))
