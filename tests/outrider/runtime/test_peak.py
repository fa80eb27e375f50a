import pytest

from outrider.runtime.peak import measure_peak


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int4"])
def test_a_device_computes_and_reads(dtype):
    peak = measure_peak("cpu", dtype)
    # No machine is slower than a pocket calculator, or faster than a thousand of today's accelerators.
    assert 1e6 < peak.flops_per_s < 1e18
    assert 1e6 < peak.read_bytes_per_s < 1e16
