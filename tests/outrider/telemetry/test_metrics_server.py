import socket
import urllib.error
import urllib.request

import pytest

from outrider.telemetry import In, Metrics, MetricsServer
from outrider.telemetry import metric_names as names
from tests.support.metrics import scrape_address


def test_it_answers_while_it_is_entered():
    metrics = Metrics(In.GATEWAY)
    metrics.counter(names.PROMPT_TOKENS, "m").inc(3)
    with MetricsServer(metrics, "127.0.0.1", 0) as server:
        address = metrics.address
        assert address == f"127.0.0.1:{server.port}"
        assert scrape_address(address).total("prompt_tokens_total") == 3
        metrics.counter(names.PROMPT_TOKENS, "m").inc()
        assert scrape_address(address).total("prompt_tokens_total") == 4
    assert metrics.address == ""
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://{address}/metrics", timeout=5)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_it_speaks_ipv6():
    metrics = Metrics(In.GATEWAY)
    try:
        server = MetricsServer(metrics, "::1", 0)
    except OSError:
        pytest.skip("no IPv6 loopback here")
    with server:
        assert metrics.address == f"[::1]:{server.port}"
        assert "process_open_fds" in scrape_address(metrics.address).families


def test_a_port_in_use_is_an_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            MetricsServer(Metrics(In.GATEWAY), "127.0.0.1", taken.getsockname()[1])
