"""Subjects that answer by a script, and a result document with every part."""

import asyncio

import pytest

from bench.turns import Turn
from bench.workloads import Prompt


class Scripted:
    """Takes turns without a model: `ids` for every prompt, after `pause_s`."""

    def __init__(self, name, ids, pause_s=0.0):
        self.name = name
        self.pids = []
        self.asked = []
        self._ids = ids
        self._pause_s = pause_s

    async def turn(self, prompt, num_tokens):
        self.asked.append(prompt.name)
        await asyncio.sleep(self._pause_s)
        return Turn(prompt, tuple(self._ids[:num_tokens]), first_s=0.5, total_s=2.0, prompt_tokens=7)


@pytest.fixture
def scripted():
    return Scripted


@pytest.fixture
def prompts():
    return [Prompt(f"{workload}-{n}", workload, "?") for n in (1, 2) for workload in ("json", "prose")]


def spread(value):
    return {"median": value, "low": value * 0.9, "high": value * 1.1, "num": 5}


def _subject(to, **more):
    figures = {"tok_per_s": spread(10.0), "ttft_s": spread(0.4), "tpot_s": spread(0.1), "num_turns": 5}
    return {**figures, "to": {base: spread(value) for base, value in to.items()}, **more}


def _speedup():
    ours = {"tau": 3.0, "acceptance": 0.75, "missed_proposals": 0}
    subjects = {
        "plain": _subject({"hf-plain": 1.8, "hf-assisted": 1.4, "llama.cpp": 0.6}, tau=1.0, acceptance=None),
        "default": _subject(
            {"plain": 2.1, "hf-plain": 3.9, "hf-assisted": 3.0, "llama.cpp": 1.2},
            ttft_to_plain=spread(1.02),
            **ours,
        ),
        "model-4": _subject(
            {"plain": 2.5, "hf-plain": 4.4, "hf-assisted": 3.6, "llama.cpp": 1.6},
            ttft_to_plain=spread(1.2),
            **ours,
        ),
        "hf-plain": _subject({"plain": 0.55}),
    }
    return {
        "num_tokens": 48,
        "temperature": 0.0,
        "top_p": 1.0,
        "configurations": {name: {"layout": "drafted"} for name in ("plain", "default", "model-4")},
        "peers": {},
        "summary": {"json": subjects, "prose": subjects},
        "peak_memory_bytes": {"plain/validator": 1 << 30, "hugging-face": None},
        "turns": [],
    }


def _rounds():
    anatomy = {
        "slices": {
            "draft": 0.3,
            "draft hand-over": 0.05,
            "verify": 0.55,
            "verify hand-over": 0.05,
            "rest": 0.05,
        },
        "round_s": 0.2,
        "bytes_per_round": 420.0,
        "accepted_by_position": [9, 6],
        "drafted_by_position": [10, 10, 8],
        "num_rounds": 10,
    }
    return {
        "reference": "default",
        "traced_to_untraced": spread(0.98),
        "summary": {"json": {"default": anatomy, "plain": None}},
    }


def _concurrency():
    waits = {"ttft_p50_s": 0.2, "ttft_p95_s": 0.4, "tpot_p50_s": 0.05, "tpot_p95_s": None}
    levels = {
        str(level): {**waits, "tok_per_s": spread(20.0 * level**0.5), "to_one": spread(level**0.5)}
        for level in (1, 8)
    }
    levels["8"]["to_hf_batch"] = spread(1.1)
    return {
        "models": "smollm2",
        "num_tokens": 64,
        "summary": {"plain": levels},
        "hf_batch_tok_per_s": spread(50.0),
    }


@pytest.fixture
def document():
    arrivals = {
        "requests_per_s": 0.5,
        "tok_per_s": 20.0,
        "ttft_p50_s": 0.3,
        "ttft_p95_s": 0.9,
        "tpot_p50_s": 0.05,
        "tpot_p95_s": 0.08,
    }
    return {
        "parts": {
            "speedup": _speedup(),
            "sampled": _speedup(),
            "rounds": _rounds(),
            "engine": {
                "one_process_to_services": {"plain": spread(1.01), "k=8": spread(1.2)},
                "tok_per_s": {"plain": spread(10.0), "plain, one process": spread(10.1)},
                "sampling_share": spread(0.03),
            },
            "memory": {"beyond_bytes": 200_000_000, "peak_beyond_bytes": 350_000_000},
            "stored": {"summary": {"again / plain": {"median": 5.5, "low": 4.7, "high": 7.3, "num": 12}}},
            "concurrency": _concurrency(),
            "arrivals": {
                "models": "smollm2",
                "num_tokens": 32,
                "summary": {"plain": {"saturation_requests_per_s": 1.0, "rates": {"0.5": arrivals}}},
            },
        }
    }
