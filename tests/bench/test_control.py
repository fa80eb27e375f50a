"""Policies on recorded drafts: the margin that the documents state."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.control.traces import Trace, read, write
from bench.control.world import Costs, replay
from services.scheduler.control.adaptive import AdaptivePolicy
from services.scheduler.control.fixed import FixedPolicy

RECORDED = Path(__file__).parents[2] / "bench/results/2026-12-01-control/trace.json"
MARGIN = 1.2
NUM_REQUESTS = 30


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    return read(RECORDED)


def fixed(k: int):
    return lambda _, __: FixedPolicy(k, 0.0)


@pytest.mark.parametrize("load", [0.1, 0.5, 1.0, 2.0])
def test_c66_at_no_load_is_it_worse_than_the_better_of_none_and_the_best_depth(traces, load):
    costs = Costs()
    saturated = replay(traces, fixed(0), 1e6, NUM_REQUESTS, costs).throughput
    rate = load * saturated / (sum(len(trace.output) for trace in traces) / len(traces))

    def per_token_s(policy):
        found = [replay(traces, policy, rate, NUM_REQUESTS, costs, seed) for seed in range(2)]
        return sum(each.mean_per_token_s for each in found)

    best = min(per_token_s(fixed(k)) for k in (0, 1, 2, 4, 8))
    assert per_token_s(AdaptivePolicy) <= MARGIN * best


@pytest.mark.parametrize("workload", ["json", "code", "prose", ""])
def test_alone_it_keeps_up_with_the_best_depth_of_each_kind(traces, workload):
    members = [trace for trace in traces if workload in ("", trace.workload)]

    def speed(policy):
        return replay(members, policy, 1e-3, NUM_REQUESTS, Costs()).speed

    # On the mix no depth suits all.
    wanted = 1.0 if not workload else 0.95
    assert speed(AdaptivePolicy) >= wanted * max(speed(fixed(k)) for k in (0, 2, 4, 6, 8, 12, 16))


def test_no_policy_changes_how_many_tokens_there_are(traces):
    wanted = replay(traces, fixed(0), 1.0, 10, Costs()).tokens
    for policy in (fixed(8), AdaptivePolicy):
        assert replay(traces, policy, 1.0, 10, Costs()).tokens == wanted


def test_traces_are_read_as_they_were_written(traces, tmp_path):
    write(traces[:2], tmp_path / "trace.json")
    assert read(tmp_path / "trace.json") == traces[:2]
