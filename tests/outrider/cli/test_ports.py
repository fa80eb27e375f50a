import socket

import pytest

from outrider.cli.plan import Numbers, Pair, PlanError, plan, with_metrics
from outrider.cli.ports import metrics_ports_of, ports_of

PAIR = Pair("target", "T", "draft", "D")


def test_automatic_ports_are_free_and_different():
    ports = ports_of("auto", 6)
    assert len(set(ports)) == 6
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_a_row_of_ports_stops_at_one_in_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PlanError, match=rf"cannot use 127.0.0.1:{port}: .*choose --ports auto"):
            ports_of(str(port), 1)


def test_the_default_metrics_ports_are_those_of_the_services(monkeypatch):
    monkeypatch.setattr("outrider.cli.ports._check_free", lambda *_: None)
    ports = list(range(50050, 50055))
    children = with_metrics(
        plan(PAIR, ports, Numbers(validators=2), dtype=None),
        ports,
        metrics_ports_of("default", ports),
    )
    assert {child.name: child.metrics_port for child in children} == {
        "gateway": 9464,
        "scheduler": 9465,
        "validator-1": 9466,
        "draft": 9467,
        "validator-2": 9468,
    }
    assert children[0].metrics_address == "127.0.0.1:9466"


def test_metrics_can_be_off():
    ports = ports_of("auto", 4)
    children = with_metrics(
        plan(PAIR, ports, Numbers(validators=1), dtype=None), ports, metrics_ports_of("off", ports)
    )
    assert {child.metrics_address for child in children} == {""}


def test_automatic_metrics_ports_are_not_those_of_the_processes():
    ports = ports_of("auto", 20)
    scraped = metrics_ports_of("auto", ports)
    assert len({*ports, *scraped}) == 40


def test_a_port_can_not_be_both():
    first = ports_of("auto", 1)[0]
    with pytest.raises(PlanError, match=rf"both want port {first}; choose --metrics-ports auto"):
        metrics_ports_of(str(first), [first])


def test_a_metrics_port_in_use_names_its_own_flag():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PlanError, match="choose --metrics-ports auto"):
            metrics_ports_of(str(taken.getsockname()[1]), [1])
