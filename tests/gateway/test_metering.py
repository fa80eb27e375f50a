from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest

from gateway import metering
from gateway.metering import GatewayMeter
from outrider.sampling.acceptance import FinishReason
from outrider.telemetry import In, Metrics
from outrider.wire.generation import Counters
from outrider.wire.inference import Delta, Final
from outrider.wire.worker import Exactness
from tests.support.metrics import Scrape, parsed


def final(reason: FinishReason = FinishReason.LENGTH) -> Final:
    return Final(reason, 3, 5, 1, Counters(), "n", Exactness.BITWISE)


class House:
    """A gateway's metrics under a clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.metrics = Metrics(In.GATEWAY)
        self.gateway = GatewayMeter(self.metrics)

    @property
    def scrape(self) -> Scrape:
        return parsed(generate_latest(self.metrics.registry).decode())

    @property
    def requests(self) -> tuple[float, float]:
        """Waiting, running."""
        scrape = self.scrape
        return scrape.total("num_requests_waiting"), scrape.total("num_requests_running")


@pytest.fixture
def house(monkeypatch) -> House:
    house = House()
    monkeypatch.setattr(metering, "time", SimpleNamespace(monotonic=lambda: house.now_s))
    return house


def test_c77_a_chunk_of_n_tokens_is_n_tokens_and_its_gap_is_not_their_time(house):
    request = house.gateway.arrived("m")
    request.sent_on(3)
    for after_s, num_tokens in ((0.5, 1), (1.0, 4), (1.0, 3), (0.5, 0)):
        house.now_s += after_s
        request.delta(Delta("x", tuple(range(num_tokens))))
    request.ended(final())
    scrape = house.scrape
    assert scrape.total("generation_tokens_total") == 8
    assert scrape.total("prompt_tokens_total") == 3
    assert scrape.total("time_to_first_token_seconds_sum") == 0.5
    # Two seconds between the first and the last token, seven tokens in them, two gaps: not 1 s.
    assert scrape.total("inter_token_latency_seconds_count") == 1
    assert scrape.total("inter_token_latency_seconds_sum") == pytest.approx(2 / 7)
    assert scrape.total("e2e_request_latency_seconds_sum") == 3


def test_c77_one_token_has_no_time_per_token(house):
    request = house.gateway.arrived("m")
    request.delta(Delta("x", (1,)))
    request.ended(final())
    assert house.scrape.total("inter_token_latency_seconds_count") == 0
    assert house.scrape.total("e2e_request_latency_seconds_count") == 1


def test_a_request_waits_until_its_first_token(house):
    first, second = house.gateway.arrived("m"), house.gateway.arrived("m")
    assert house.requests == (2, 0)
    first.delta(Delta("x"))  # text without a token
    assert house.requests == (2, 0)
    first.delta(Delta("x", (1,)))
    assert house.requests == (1, 1)
    first.ended(final())
    second.failed("UNAVAILABLE")
    assert house.requests == (0, 0)


def test_each_request_ends_once(house):
    request = house.gateway.arrived("m")
    request.delta(Delta("x", (1,)))
    request.ended(final(FinishReason.STOP_STRING))
    request.cancelled()
    request.failed("INTERNAL")
    house.gateway.arrived("m").cancelled()
    house.gateway.arrived("m").failed("NOT_FOUND")
    scrape = house.scrape
    assert scrape.values("request_success_total", "finished_reason") == {"stop_string": 1, "cancelled": 1}
    assert scrape.values("request_errors_total", "reason") == {"NOT_FOUND": 1}
    assert house.requests == (0, 0)
