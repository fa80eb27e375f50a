import os

from bench.machine import describe, in_words
from bench.processes import child_environment, cpu_s, machine_busy_s, memory_bytes


def test_a_process_has_memory_and_processor_time():
    pid = os.getpid()
    assert memory_bytes(pid) >= memory_bytes(pid, "VmRSS") > 1 << 20
    assert 0 < cpu_s([pid]) <= machine_busy_s()


def test_a_process_that_is_gone_has_none():
    gone = 2**22 + 1
    assert memory_bytes(gone) is None
    assert cpu_s([gone]) == 0


def test_what_bends_a_measurement_is_not_inherited(monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", "1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
    monkeypatch.setenv("OUTRIDER_CACHE_DIR", "/somewhere")
    found = child_environment({"OMP_WAIT_POLICY": "passive"})
    assert "GOMP_SPINCOUNT" not in found
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" not in found
    assert found["OUTRIDER_CACHE_DIR"] == "/somewhere"
    assert found["OMP_WAIT_POLICY"] == "passive"


def test_the_machine_is_described():
    found = describe()
    assert found["cores"] >= 1
    assert found["read_gb_per_s"] > 0
    assert "torch" in in_words(found)
