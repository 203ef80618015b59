"""What lines of the kernel log mean."""

from __future__ import annotations

import pytest

from ray_sentinel_plugins._kernel_log.meaning import Happening, KernelLogState, happenings
from ray_sentinel_plugins._kernel_log.records import parse_log


def read(text: str, memory: KernelLogState | None = None) -> list[Happening]:
    return list(happenings(parse_log(text), memory or KernelLogState()))


def kinds(text: str) -> list[str]:
    return [happening.fact.kind for happening in read(text)]


# (line, event kind, counted as, some attributes)
LINES: list[tuple[str, str, str, dict[str, str]]] = [
    (
        "NVRM: Xid (PCI:0000:cb:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008",
        "kernel.xid",
        "gpu",
        {"pci": "0000:cb:00", "xid": "109", "pid": "1797828", "comm": "pt_main_thread"},
    ),
    ("NVRM: Xid (0000:05:00): 31, Ch 00000014, engmask", "kernel.xid", "gpu", {"xid": "31"}),
    (
        "NVRM: Xid (PCI:0000:3b:00 GPU-I:03): 94, pid=7, name=python, Contained: SM (0x1).",
        "kernel.xid",
        "gpu",
        {"xid": "94", "pci": "0000:3b:00"},
    ),
    ("NVRM: Xid (PCI:00000009:01:00): 48, DBE", "kernel.xid", "gpu", {"pci": "0009:01:00"}),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:c3:00.0): 12028, Fatal, Link 58 egress",
        "kernel.sxid",
        "gpu",
        {"sxid": "12028", "device": "nvidia-nvswitch3"},
    ),
    (
        "NVRM: GPU 0000:65:00.0: RmInitAdapter failed! (0x24:0x65:1477)",
        "kernel.nvrm",
        "gpu",
        {"pci": "0000:65:00"},
    ),
    ("NVRM: API mismatch: the client has the version 535", "kernel.nvrm", "gpu", {}),
    ("NVRM: kgspHealthCheck_TU102: GSP failed", "kernel.nvrm", "gpu", {}),
    (
        "amdgpu 0000:68:00.0: amdgpu: 4 uncorrectable hardware errors detected in umc block",
        "kernel.amdgpu.ras",
        "gpu",
        {"pci": "0000:68:00"},
    ),
    (
        "amdgpu 0000:68:00.0: amdgpu: 12 correctable hardware errors detected in umc block",
        "kernel.amdgpu.ras",
        "gpu",
        {"count": "12", "block": "umc"},
    ),
    (
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, signaled seq=613206",
        "kernel.amdgpu.ring_timeout",
        "gpu",
        {"ring": "gfx_0.0.0"},
    ),
    (
        "amdgpu 0000:05:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:3)",
        "kernel.amdgpu.page_fault",
        "gpu",
        {"ring": "24", "vmid": "3"},
    ),
    ("amdgpu 0000:c3:00.0: amdgpu: GPU reset begin!", "kernel.amdgpu.reset", "gpu", {}),
    ("amdgpu 0000:c3:00.0: amdgpu: GPU reset(2) succeeded!", "kernel.amdgpu.recovered", "", {}),
    ("RIP: 0010:amdgpu_cper_ring_write+0x1f/0x2a0 [amdgpu]", "kernel.amdgpu.cper", "gpu", {}),
    ("amdgpu 0000:03:00.0: amdgpu: Failed to disable smu features.", "kernel.amdgpu", "gpu", {}),
    (
        "Out of memory: Killed process 4242 (python) total-vm:12345kB, anon-rss:777kB",
        "kernel.oom",
        "oom",
        {"pid": "4242", "comm": "python", "anon_rss_kb": "777"},
    ),
    (
        "Killed process 17, UID 500, (ray::IDLE (x)) total-vm:1kB, anon-rss:2kB, file-rss:3kB",
        "kernel.oom",
        "oom",
        {"pid": "17", "uid": "500"},
    ),
    (
        "INFO: task kworker/u128:3:1771 blocked for more than 122 seconds.",
        "kernel.hung_task",
        "hung_task",
        {"comm": "kworker/u128:3", "pid": "1771", "seconds": "122"},
    ),
    (
        "watchdog: BUG: soft lockup - CPU#31 stuck for 26s! [python:77]",
        "kernel.lockup",
        "",
        {"cpu": "31"},
    ),
    ("rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", "kernel.rcu_stall", "", {}),
    (
        "nvme nvme3: I/O tag 5 (1005) opcode 0x2 (I/O Cmd) QID 4 timeout, aborting req_op:READ(0)",
        "kernel.nvme",
        "nvme",
        {"device": "nvme3"},
    ),
    (
        "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff",
        "kernel.nvme",
        "nvme",
        {"device": "nvme0"},
    ),
    (
        "critical medium error, dev nvme0n1, sector 2048 op 0x0:(READ)",
        "kernel.nvme",
        "nvme",
        {"device": "nvme0n1", "sector": "2048"},
    ),
    (
        "blk_update_request: I/O error, dev sda, sector 5",
        "kernel.disk",
        "",
        {"device": "sda"},
    ),
    (
        "mlx5_core 0000:ab:00.0 ens1f0np0: Link down",
        "kernel.link_down",
        "net",
        {"device": "ens1f0np0"},
    ),
    (
        "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN",
        "kernel.link_down",
        "net",
        {"device": "mlx5_5", "port": "1"},
    ),
    ("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE", "kernel.link_up", "", {}),
    ("bnxt_en 0000:18:00.0 ens1: NIC Link is Down", "kernel.link_down", "net", {"device": "ens1"}),
    (
        "ixgbe 0000:01:00.0 eth0: NIC Link is Up 10 Gbps, Flow Control: RX/TX",
        "kernel.link_up",
        "",
        {"device": "eth0"},
    ),
    (
        "bond0: (slave eth1): link status definitely down, disabling slave",
        "kernel.link_down",
        "net",
        {"device": "eth1"},
    ),
    (
        "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out",
        "kernel.net_timeout",
        "net",
        {"device": "eth0", "queue": "3"},
    ),
    (
        "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        "kernel.aer",
        "",
        {"pci": "0000:3b:00", "error": "Uncorrected (Fatal)"},
    ),
    (
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0",
        "kernel.mce",
        "mce",
        {},
    ),
]


@pytest.mark.parametrize(("line", "kind", "counted", "attributes"), LINES, ids=lambda value: "")
def test_single_lines(line: str, kind: str, counted: str, attributes: dict[str, str]) -> None:
    (happening,) = read(f"[ 100.5] {line}\n")
    assert (happening.fact.kind, happening.fact.counted) == (kind, counted)
    assert attributes.items() <= happening.fact.attributes.items()


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build",
        "NVRM: GPU at PCI:0000:91:00: GPU-b6c3b2be-c55b-d076-fa0e-d464e4c7e08b",
        "NVRM: GPU Board Serial Number: 1653723052734",
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 510",
        "nvidia 0000:3b:00.0: enabling device (0140 -> 0142)",
        "amdgpu 0000:c3:00.0: amdgpu: no vmid pasid mapping supported",
        "amdgpu 0000:c3:00.0: amdgpu: SMU is resumed successfully!",
        "amdgpu 0000:12:00.0: [drm] Registered 4 planes with drm panic",
        "amdgpu 0000:68:00.0: amdgpu: 0 correctable hardware errors detected in umc block",
        "amdgpu 0000:68:00.0: amdgpu: 0 new uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:68:00.0: amdgpu: socket: 0, die: 0, 0 uncorrectable hardware errors detected",
        "amdgpu: WALKER_ERROR: 0x0 MAPPING_ERROR: 0x1 PERMISSION_FAULTS: 0x3",
        "[drm] amdgpu kernel modesetting enabled.",
        "Out of memory: Kill process 1234 (python) score 900 or sacrifice child",
        "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "oom_reaper: reaped process 4242 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
        "nvme nvme0: Shutdown timeout set to 8 seconds",
        "nvme nvme0: 32/0/0 default/read/poll queues",
        "ata1: SATA link down (SStatus 0 SControl 300)",
        "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
        "pcieport 0000:00:1c.0: pciehp: Slot(1): Link Down",
        "NET: Registered PF_NETLINK/PF_ROUTE protocol family",
        "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link INIT",
        "mce: CPU0: Thermal monitoring enabled (TM1)"[5:],
        "EDAC MC: Ver: 3.0.0",
        "rcu: Hierarchical RCU implementation.",
        "Hardware name: Supermicro",
        # What cuda-gdb causes whenever it attaches (driver 580).
        "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) "
        "returned from _memdescAllocInternal(pMemDesc) @ mem_desc.c:1359",
        "NVRM: nvAssertFailedNoLog: Assertion failed: pEvent != NULL @ event.c:71",
    ],
)
def test_what_is_no_error(line: str) -> None:
    assert kinds(f"[ 100.5] {line}\n") == []


def test_the_level_decides_where_it_is_known() -> None:
    line = "amdgpu 0000:03:00.0: amdgpu: Failed to load ucode, using another"
    assert kinds(f"3,1,1,-;{line}\n") == ["kernel.amdgpu"]
    assert kinds(f"6,1,1,-;{line}\n") == []


FALL_XID = (
    "NVRM: Xid (PCI:0000:91:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)
FALL_WORDS = "NVRM: GPU 0000:91:00.0: GPU has fallen off the bus."
FALL_LINES = (
    "NVRM: The NVIDIA GPU 0000:91:00.0",
    "NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)


@pytest.mark.parametrize(
    "lines",
    [
        [FALL_XID],
        [FALL_WORDS],
        [*FALL_LINES],
        [FALL_XID, FALL_WORDS],
        [FALL_WORDS, FALL_XID],
        [FALL_WORDS, FALL_XID, FALL_WORDS],
        [*FALL_LINES, FALL_XID, FALL_WORDS],
        [FALL_WORDS, FALL_WORDS],
    ],
    ids=lambda lines: f"{len(lines)} lines",
)
def test_a_gpu_falls_once(lines: list[str]) -> None:
    text = "".join(f"[ {100 + number}.0] {line}\n" for number, line in enumerate(lines))
    (happening,) = read(text)
    assert happening.fact.kind == "kernel.xid"
    assert happening.fact.severity == "critical"
    assert happening.fact.attributes["xid"] == "79"
    assert happening.fact.attributes["pci"] == "0000:91:00"


def test_a_fall_told_in_two_batches_is_one() -> None:
    memory = KernelLogState()
    assert len(read(f"[ 1.0] {FALL_WORDS}\n", memory)) == 1
    assert len(read(f"[ 2.0] {FALL_XID}\n", memory)) == 0


def test_two_gpus_and_two_falls() -> None:
    other = FALL_XID.replace("91", "92")
    assert len(read(f"[ 1.0] {FALL_XID}\n[ 1.1] {other}\n")) == 2
    assert len(read(f"[ 1.0] {FALL_XID}\n[ 2.0] {FALL_XID}\n")) == 2, "the driver's own Xids count"
    assert len(read(f"[ 1.0] {FALL_WORDS}\n[ 9000.0] {FALL_WORDS}\n")) == 2


def test_one_message_of_several_lines() -> None:
    (happening,) = read("3,1,5000000,-;" + "\\x0a".join(FALL_LINES) + "\n")
    assert happening.fact.attributes["pci"] == "0000:91:00"


OOM = """\
[10.0] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c1,mems_allowed=0-1,\
oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c2,task=python,pid=4242,uid=0
[10.1] Memory cgroup out of memory: Killed process {pid} (python) total-vm:1kB, anon-rss:7kB
"""


def test_an_oom_kill_knows_its_cgroup() -> None:
    (happening,) = read(OOM.format(pid=4242))
    assert happening.fact.attributes["cgroup"] == "/kubepods/pod1/c2"
    assert happening.fact.attributes["limited_cgroup"] == "/kubepods/pod1"
    assert happening.fact.attributes["constraint"] == "CONSTRAINT_MEMCG"


def test_not_that_of_another_process() -> None:
    (happening,) = read(OOM.format(pid=7))
    assert "cgroup" not in happening.fact.attributes


GHES = """\
[50.0] {{{n}}}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 5
[50.0] {{{n}}}[Hardware Error]: event severity: {severity}
[50.0] {{{n}}}[Hardware Error]:  Error 0, type: {severity}
[50.0] {{{n}}}[Hardware Error]:   section_type: PCIe error
[50.0] {{{n}}}[Hardware Error]:   device_id: 0000:b3:00.0
"""


def test_a_firmware_report_is_one_error() -> None:
    first, second = read(
        GHES.format(n=1, severity="fatal") + GHES.format(n=2, severity="corrected")
    )
    assert first.fact.counted == second.fact.counted == "mce"
    assert first.fact.severity == "critical"
    assert second.fact.severity == "warning"
    assert first.fact.attributes == {
        "severity": "fatal",
        "section": "PCIe error",
        "pci": "0000:b3:00",
    }
    assert first.text.count("\n") == 4


def test_a_report_cut_by_the_end_of_a_batch_is_counted_once() -> None:
    memory = KernelLogState()
    lines = GHES.format(n=1, severity="fatal").splitlines(keepends=True)
    assert len(read("".join(lines[:2]), memory)) == 1
    assert len(read("".join(lines[2:]), memory)) == 0


def test_machine_checks() -> None:
    text = """\
[18.0] mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000001010090
[18.0] mce: [Hardware Error]: TSC 0 ADDR 1234
[18.0] mce: [Hardware Error]: PROCESSOR 0:50657 TIME 1600000000 SOCKET 0 APIC 6
[99.0] mce: [Hardware Error]: Machine check events logged
"""
    first, second = read(text)
    assert first.fact.severity == "critical"
    assert second.fact.counted == "mce"


def test_long_lines_do_not_take_long() -> None:
    nasty = "amdgpu 0000:03:00.0: " * 5000
    assert len(read(f"[1.0] {nasty}\n[2.0] NVRM: {'0000:' * 10000} fallen off\n")) <= 2
