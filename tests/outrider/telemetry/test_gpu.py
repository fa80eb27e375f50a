"""NVML is stood in for: where the tests run there is none."""

import sys
from types import SimpleNamespace

import pytest

from outrider.telemetry.gpu import gpu_readings


class NVMLError(Exception):
    pass


@pytest.fixture
def nvml(monkeypatch):
    module = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetHandleByUUID=lambda name: {"GPU-b": 1}[name],
        nvmlDeviceGetIndex=lambda handle: handle,
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=10 * handle),
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=handle, total=100),
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return module


@pytest.mark.parametrize(
    ("device", "visible", "index"),
    [("cuda", "", 0), ("cuda:3", "", 3), ("cuda:1", "6,7", 7), ("cuda:0", "GPU-b", 1)],
)
def test_it_reads_the_device_that_the_model_is_on(nvml, monkeypatch, device, visible, index):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    readings = gpu_readings(device)
    assert [(each.value, each.labels) for each in readings()] == [
        (index / 10, (str(index),)),
        (index, (str(index),)),
        (100, (str(index),)),
    ]


def test_a_cpu_has_nothing_to_read(nvml):
    assert gpu_readings("cpu") is None


def test_without_the_package_there_is_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_readings("cuda:0") is None


def test_without_a_driver_there_is_nothing(nvml):
    def fail():
        raise NVMLError

    nvml.nvmlInit = fail
    assert gpu_readings("cuda:0") is None


def test_a_gpu_that_is_lost_costs_its_own_series_only(nvml):
    readings = gpu_readings("cuda:0")

    def fail(handle):
        raise NVMLError

    nvml.nvmlDeviceGetUtilizationRates = fail
    assert readings() == []
