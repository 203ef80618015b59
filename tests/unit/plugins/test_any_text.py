"""No parser ever raises, whatever it is given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_sentinel import kernel_files, text
from ray_sentinel_plugins import _files, _pci, rdma
from ray_sentinel_plugins._amdgpu import ras, sensors, table
from ray_sentinel_plugins._host import disks, dstate, identity, kernel, network, pressure
from ray_sentinel_plugins._kernel_log.meaning import KernelLogState, happenings
from ray_sentinel_plugins._kernel_log.records import parse_log

PARSERS: tuple[Callable[[str], object], ...] = (
    network.parse_dev,
    network.parse_snmp,
    kernel.parse_cpu,
    kernel.parse_values,
    kernel.parse_load,
    kernel.parse_meminfo,
    disks.parse_diskstats,
    pressure.parse_pressure,
    kernel_files.parse_cgroup,
    kernel_files.parse_mountinfo,
    identity.parse_version,
    identity.parse_nvrm,
    identity.parse_os_release,
    dstate.parse_stack,
    rdma.parse_counter,
    rdma.parse_state,
    ras.parse_counts,
    ras.parse_pages,
    ras.block_of,
    sensors.parse_dpm,
    lambda text: _pci.parse_aer(text, "TOTAL_ERR_COR"),
    _pci.sysfs_address,
    _files.clean,
    text.natural,
    _files.decimal,
    lambda text: list(happenings(parse_log(text, 1e9), KernelLogState())),
    lambda text: dstate.task_state(text.encode("utf-8", "surrogatepass")),
    lambda text: table.parse(text.encode("utf-8", "surrogatepass"), ""),
)
# Pieces that the formats are made of, so that their parts meet in ways that nobody thought of.
PIECES = st.sampled_from(
    [
        *(
            "cpu ",
            "Tcp: ",
            "eth0: ",
            "some ",
            "avg10=",
            "total=",
            "kB",
            ":",
            " - ",
            "0::/",
            "memory",
        ),
        *(
            "nvme0n1p",
            "sda",
            "D ",
            ") ",
            "ue: ",
            "ce: ",
            "0x0",
            " : R",
            "Mhz *",
            "[ 1.5] ",
            "4,1,2,-;",
        ),
        *(
            "NVRM: Xid (PCI:0000:3b:00): 79",
            "fallen off the bus",
            "{1}[Hardware Error]: ",
            "amdgpu ",
        ),
        *("Killed process 1 (x)", "oom-kill:constraint=C,pid=1,", "Link down", "Aug 30 11:11:22 "),
        *(
            "2024-08-30T11:11:22+0000 ",
            "[Aug30 11:11] ",
            "[  +0.5] ",
            " kernel: ",
            "\\x0a",
            "\\040",
            "-1",
        ),
        *("18446744073709551615", "9" * 50, "\n", "\n", " ", "٣", "\x00", "\udcff"),
    ]
)


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: getattr(parse, "__qualname__", ""))
@settings(max_examples=80, deadline=None, derandomize=True)
@given(text=st.one_of(st.text(), st.lists(PIECES, max_size=40).map("".join)))
def test_parsers(parse: Callable[[str], object], text: str) -> None:
    parse(text)
