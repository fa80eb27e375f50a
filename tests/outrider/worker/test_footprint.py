import os
import sys

import pytest
import torch

from outrider.worker.footprint import Footprint, Usage

STATUS = "Name:\tpython\nVmHWM:\t  900 kB\nVmRSS:\t  700 kB\n"
MEMINFO = "MemTotal:       4000 kB\nMemFree:        1000 kB\n"


def machine(root, files):
    for path, text in {"proc/self/status": STATUS, "proc/meminfo": MEMINFO, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="ascii")
    return Footprint("cpu", root=root).read()


@pytest.mark.parametrize(
    ("files", "limit_kib"),
    [
        ({}, 4000),
        # The second version: this group's limit, an ancestor's, none, and more than there is.
        (
            {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": f"{1000 * 1024}\n"},
            1000,
        ),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/memory.max": f"{2000 * 1024}\n",
            },
            2000,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 4000),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{9000 * 1024}\n"}, 4000),
        # A container whose group looks like the root from inside.
        ({"proc/self/cgroup": "0::/../x\n", "sys/fs/cgroup/memory.max": f"{1500 * 1024}\n"}, 1500),
        # The first version.
        (
            {
                "proc/self/cgroup": "4:cpu,memory:/a\n5:pids:/b\n0::/\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{1200 * 1024}\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            1200,
        ),
    ],
)
def test_resident_memory_against_the_smallest_limit(tmp_path, files, limit_kib):
    assert machine(tmp_path, files) == Usage(700 * 1024, limit_kib * 1024)


def test_elsewhere_nothing_is_known(tmp_path):
    assert Footprint("cpu", root=tmp_path).read() == Usage(0, 0)


def test_it_is_read_at_most_once_a_second(tmp_path):
    now = [0]
    machine(tmp_path, {})
    footprint = Footprint("cpu", root=tmp_path, clock_ns=lambda: now[0])
    assert footprint.read().used_bytes == 700 * 1024
    (tmp_path / "proc/self/status").write_text(STATUS.replace("700", "800"), encoding="ascii")
    now[0] = 999_999_999
    assert footprint.read().used_bytes == 700 * 1024
    now[0] = 1_000_000_000
    assert footprint.read().used_bytes == 800 * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_of_this_process():
    usage = Footprint("cpu").read()
    assert 1 << 20 < usage.used_bytes < usage.limit_bytes
    assert usage.limit_bytes <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_of_a_device():
    usage = Footprint("cuda:0").read()
    held = torch.ones(1 << 26, device="cuda:0")
    after = Footprint("cuda:0").read()
    assert after.used_bytes >= usage.used_bytes + held.nbytes // 2
    assert after.used_bytes < after.limit_bytes == torch.cuda.get_device_properties(0).total_memory
