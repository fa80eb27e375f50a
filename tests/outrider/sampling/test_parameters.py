"""Ranges of the sampling parameters, and the words of a refusal."""

from __future__ import annotations

import math

import pytest

from outrider.sampling import InvalidParameter, SamplingParameters


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"temperature": 0.0},
        {"temperature": 100.0},
        {"top_k": 40, "top_p": 0.9, "min_p": 0.05},
        {"min_p": 1.0},
        {"repetition_penalty": 1e-3},
        {"presence_penalty": -2.0, "frequency_penalty": 2.0},
        {"logit_bias": ((0, -100.0), (7, 100.0))},
        {"min_tokens": 5, "max_tokens": 5},
        {"stop_ids": (0, 3)},
        {"logprobs": 0},
        {"logprobs": 20},
    ],
)
def test_values_within_range_pass(changes):
    SamplingParameters(**changes).validate()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 100.5),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", -1.0),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("logit_bias", ((1, 101.0),)),
        ("logit_bias", ((-1, 1.0),)),
        ("logit_bias", ((1, math.nan),)),
        ("logit_bias", ((1, 1.0), (1, 2.0))),
        ("min_tokens", -1),
        ("min_tokens", 257),
        ("max_tokens", 0),
        ("stop_ids", (-1,)),
        ("logprobs", -1),
        ("logprobs", 21),
        ("max_tokens", True),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field, value):
    with pytest.raises(InvalidParameter) as refusal:
        SamplingParameters(**{field: value}).validate()
    assert refusal.value.field == field
    assert refusal.value.message.startswith(field)
    assert str(refusal.value) == refusal.value.message


@pytest.mark.parametrize(
    "field",
    ["temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"],
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(field, value):
    with pytest.raises(InvalidParameter, match=field):
        SamplingParameters(**{field: value}).validate()


def test_a_refusal_names_value_and_fix():
    with pytest.raises(InvalidParameter) as refusal:
        SamplingParameters(top_p=1.5).validate()
    assert refusal.value.message == "top_p is 1.5; give a number above 0 and at most 1"


@pytest.mark.parametrize("field", ["logit_bias", "stop_ids"])
def test_an_id_past_the_vocabulary_is_refused_by_name(field):
    parameters = SamplingParameters(**{field: ((10, 1.0),) if field == "logit_bias" else (10,)})
    parameters.validate_ids(11)
    with pytest.raises(InvalidParameter, match="last id is 9") as refusal:
        parameters.validate_ids(10)
    assert refusal.value.field == field


def test_derived_properties_follow_the_fields():
    assert SamplingParameters(temperature=9e-6).greedy
    assert not SamplingParameters(temperature=1e-5).greedy
    assert SamplingParameters().unfiltered
    for changes in ({"top_k": 1}, {"top_p": 0.9}, {"min_p": 0.1}):
        assert not SamplingParameters(**changes).unfiltered
    assert not SamplingParameters(logit_bias=((1, 1.0),)).needs_counts
    for changes in ({"repetition_penalty": 1.1}, {"presence_penalty": 0.1}, {"frequency_penalty": -0.1}):
        assert SamplingParameters(**changes).needs_counts
