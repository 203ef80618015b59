from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_sentinel.api import Context, NoData
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel_plugins._files import Files
from ray_sentinel_plugins._host import (
    cgroup,
    disks,
    dstate,
    identity,
    kernel,
    mounts,
    network,
    pressure,
)
from ray_sentinel_plugins.host import HostCollector

LOG = logging.getLogger("test")
Series = dict[str, float]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


# Network


def test_devices_with_odd_names() -> None:
    row = " ".join(str(number) for number in range(16))
    text = (
        f"Inter-|\n face |bytes\n  eth0:1:{row}\nib0: {row}\n bad: 1 2\n none\n x: {row[:-2]} -1\n"
    )
    assert parse_names(text) == ["eth0:1", "ib0"]


def parse_names(text: str) -> list[str]:
    return list(network.parse_dev(text))


def test_ten_thousand_devices_are_bounded(tmp_path: Path) -> None:
    row = "1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0"
    lines = [f"veth{number}: {row}" for number in range(10_000)] + [f"eth0: {row}", f'e"\\: {row}']
    write(tmp_path / "net/dev", "\n".join(lines) + "\n")
    samples = list(network.read(Files(LOG), tmp_path))
    assert len(samples) == network.MAX_DEVICES * len(network.DEVICE)
    assert samples[0].labels == (("device", 'e"\\'),)
    assert any(sample.labels == (("device", "eth0"),) for sample in samples)


def test_a_tree_whose_link_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "net").symlink_to("/nowhere")
    write(tmp_path / "self/net/dev", "eth0: 1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0\n")
    assert next(network.read(Files(LOG), tmp_path)).value == 1


def test_protocol_tables_need_their_header() -> None:
    assert network.parse_snmp("Tcp: 1 2 3\n") == {}
    assert network.parse_snmp("Tcp: A B C\nTcp: 1 -1 x\n") == {("Tcp", "A"): 1}
    assert network.parse_snmp("Tcp: A B\nUdp: 1 2\n") == {}


# CPU and memory


def test_old_kernels_have_fewer_modes() -> None:
    assert kernel.parse_cpu("cpu  1 2 3 4\ncpu0 1 2 3 4\n") == {
        "user": 1,
        "nice": 2,
        "system": 3,
        "idle": 4,
    }


@pytest.mark.parametrize(
    ("line", "load"), [("0.20 0.18 0.12 1/80 11206", 0.2), ("999", None), ("x 1 2", None)]
)
def test_load(line: str, load: float | None) -> None:
    assert kernel.parse_load(line) == load


# Disks


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("sda", True),
        ("sda1", False),
        ("sdaa", True),
        ("nvme0n1", True),
        ("nvme0n1p1", False),
        ("nvme0c0n1", False),
        ("mmcblk0", True),
        ("mmcblk0p2", False),
        ("xvda1", True),
        ("vdb", True),
        ("dm-3", False),
        ("md127", False),
        ("loop0", False),
        ("zram0", False),
        ("sr0", False),
        ("rbd0", True),
        ("rbd0p1", False),
        ("pmem0", True),
        ("cciss!c0d0", True),
        ("cciss!c0d0p1", False),
    ],
)
def test_whole_disks(name: str, whole: bool) -> None:
    present = {"sda", "sdaa", "nvme0n1", "mmcblk0", "vdb", "rbd0", "pmem0", "cciss!c0d0", name}
    assert disks.whole_disk(name, present) is whole


def test_old_partition_lines_have_seven_columns() -> None:
    assert disks.parse_diskstats("8 1 sda1 10 20 30 40\n8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n") == {
        "sda": disks.Disk(3 * 512, 7 * 512, 10)
    }


# Pressure


def test_pressure_out_of_range_is_left_out() -> None:
    text = "some avg10=120.00 avg60=x avg300=0.10 total=-5\nfull avg10=0.00 avg10\n"
    assert pressure.parse_pressure(text) == {("some", "avg300"): 0.1, ("full", "avg10"): 0.0}


# Identity


def test_identity_of_a_captured_tree(tmp_path: Path) -> None:
    write(tmp_path / "proc/version", "Linux version 5.15.0-91-generic (buildd@x) (gcc) #101\n")
    write(tmp_path / "sys/module/nvidia/version", "535.129.03\n")
    (sample,) = identity.read(Files(LOG, live=False), tmp_path / "proc", tmp_path / "sys")
    assert [value for _, value in sample.labels] == ["5.15.0-91-generic", "", "535.129.03", ""]


def test_os_release() -> None:
    assert identity.parse_os_release('NAME="x"\nPRETTY_NAME="Debian GNU/Linux 12"\n') == (
        "Debian GNU/Linux 12"
    )
    assert identity.parse_os_release("NAME=x\n") is None


# Cgroups

MOUNT = "30 23 0:26 {root} {point} rw,relatime shared:9 - {kind} {kind} {options}\n"
V2 = {"memory.current": "1000\n", "memory.max": "5000\n", "memory.events": "oom 3\noom_kill 2\n"}
V1 = {
    "memory.usage_in_bytes": "1000\n",
    "memory.limit_in_bytes": "5000\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
}
FOUND = {
    "hw_cgroup_mem_used_bytes": 1000,
    "hw_cgroup_mem_limit_bytes": 5000,
    "hw_cgroup_oom_kills_total": 2,
}
ID = "docker/0123456789abcdef"

# name → (own cgroup, mounts as (root, point, kind, options), where its files lie)
LAYOUTS = {
    "v2, a service on a host": (
        "0::/system.slice/ray.service\n",
        [("/", "/sys/fs/cgroup", "cgroup2", "rw,nsdelegate")],
        "fs/cgroup/system.slice/ray.service",
    ),
    "v2, a container with a namespace": (
        "0::/\n",
        [("/", "/sys/fs/cgroup", "cgroup2", "rw")],
        "fs/cgroup",
    ),
    "v2, a container without one": (
        f"0::/{ID}/job\n",
        [(f"/{ID}", "/sys/fs/cgroup", "cgroup2", "rw")],
        "fs/cgroup/job",
    ),
    "v2, no mountinfo": ("0::/job\n", [], "fs/cgroup/job"),
    "v1, docker without a namespace": (
        f"5:cpu,cpuacct:/{ID}\n4:memory:/{ID}\n",
        [(f"/{ID}", "/sys/fs/cgroup/memory", "cgroup", "rw,memory")],
        "fs/cgroup/memory",
    ),
    "v1, on a host": (
        "4:memory:/slurm/uid_1000/job_7\n",
        [
            ("/", "/sys/fs/cgroup/cpu", "cgroup", "rw,cpu"),
            ("/", "/sys/fs/cgroup/memory", "cgroup", "rw,memory"),
        ],
        "fs/cgroup/memory/slurm/uid_1000/job_7",
    ),
    "hybrid, memory in v1": (
        "4:memory:/job\n0::/other\n",
        [
            ("/", "/sys/fs/cgroup/memory", "cgroup", "rw,memory"),
            ("/", "/sys/fs/cgroup/unified", "cgroup2", "rw"),
        ],
        "fs/cgroup/memory/job",
    ),
    "hybrid, memory in v2": (
        "4:pids:/job\n1:name=systemd:/job\n0::/job\n",
        [("/", "/sys/fs/cgroup/unified", "cgroup2", "rw")],
        "fs/cgroup/unified/job",
    ),
    "v1, no mountinfo": ("4:memory:/job\n", [], "fs/cgroup/memory/job"),
    "v2, a container without one, no mountinfo": (f"0::/{ID}\n", [], "fs/cgroup"),
    "v1, a container without one, no mountinfo": (f"4:memory:/{ID}\n", [], "fs/cgroup/memory"),
    "a blank in the path": (
        "0::/my job\n",
        [("/", "/sys/fs/cgroup", "cgroup2", "rw")],
        "fs/cgroup/my job",
    ),
}


@pytest.fixture
def cgroup_tree(tmp_path: Path) -> Callable[..., Series]:
    def read(
        own: str, mounted: list[tuple[str, str, str, str]], where: str, **changed: str
    ) -> Series:
        write(tmp_path / "proc/self/cgroup", own)
        fields = ("root", "point", "kind", "options")
        lines = [MOUNT.format(**dict(zip(fields, mount, strict=True))) for mount in mounted]
        if lines:
            write(tmp_path / "proc/self/mountinfo", "".join(lines))
        if own.startswith("0::") and "unified" not in where:
            write(tmp_path / "sys/fs/cgroup/cgroup.controllers", "memory\n")
        contents = V1 if "cgroup/memory" in where else V2
        for name, text in {**contents, **changed}.items():
            write(tmp_path / "sys" / where / name, text)
        samples = cgroup.read(Files(LOG, live=False), tmp_path / "proc", tmp_path / "sys")
        return {sample.name: sample.value for sample in samples}

    return read


@pytest.mark.parametrize("name", LAYOUTS)
def test_cgroup_layouts(name: str, cgroup_tree: Callable[..., Series]) -> None:
    assert cgroup_tree(*LAYOUTS[name]) == FOUND


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        ("v2, a container with a namespace", "memory.max", "max\n"),
        ("v1, on a host", "memory.limit_in_bytes", "9223372036854771712\n"),
        ("v1, on a host", "memory.limit_in_bytes", "9223372036854710272\n"),
    ],
)
def test_no_limit_is_absent(
    name: str, file: str, text: str, cgroup_tree: Callable[..., Series]
) -> None:
    found = cgroup_tree(*LAYOUTS[name], **{file: text})
    assert found.keys() == FOUND.keys() - {"hw_cgroup_mem_limit_bytes"}


def test_a_cgroup_outside_the_namespace_is_not_guessed(cgroup_tree: Callable[..., Series]) -> None:
    mounted = [("/", "/sys/fs/cgroup", "cgroup2", "rw")]
    assert cgroup_tree("0::/../other\n", mounted, "fs/cgroup") == {}


# D state


def process(proc: Path, pid: int, state: str, wchan: str = "0", name: str = "python") -> Path:
    folder = proc / str(pid)
    write(folder / "stat", f"{pid} ({name}) {state} 1 {pid} {pid} 0 -1 4194304\n")
    write(folder / "wchan", wchan)
    return folder


def rank(pid: int) -> Rank:
    return Rank(id=RankId("j", 0, 0), process=ProcessId("h", pid), node="n")


def test_dstate_by_function(tmp_path: Path) -> None:
    process(tmp_path, 1, "S")
    process(tmp_path, 2, "D", "nfs_wait_bit_killable")
    process(tmp_path, 3, "D", "nfs_wait_bit_killable", name="a) R (b")
    write(process(tmp_path, 4, "D") / "stack", "[<0>] amdgpu_cper_ring_write+0x1/0x2 [amdgpu]\n")
    process(tmp_path, 5, "D")
    (tmp_path / "6").mkdir()
    (tmp_path / "net").mkdir()
    found = {s.labels[0][1]: s.value for s in dstate.read(Files(LOG), tmp_path, ())}
    assert found == {"nfs_wait_bit_killable": 2, "amdgpu_cper_ring_write": 1, "unknown": 1}


def test_threads_of_ranks_are_looked_at(tmp_path: Path) -> None:
    for pid in (10, 11):
        folder = process(tmp_path, pid, "S")
        process(folder / "task", pid, "S")
        process(folder / "task", pid + 100, "D", "io_schedule")
    found = [(s.labels[0][1], s.value) for s in dstate.read(Files(LOG), tmp_path, {11})]
    assert found == [("io_schedule", 1)]


def test_functions_are_bounded(tmp_path: Path) -> None:
    for pid in range(1, 200):
        process(tmp_path, pid, "D", f"function_{pid}")
    assert len(list(dstate.read(Files(LOG), tmp_path, ()))) == dstate.MAX_FUNCTIONS


# Mounts

MOUNTINFO = """\
22 27 0:21 / /proc rw - proc proc rw
27 1 254:0 / / rw - ext4 /dev/vda rw
28 27 254:0 /etc/hosts /etc/hosts rw - ext4 /dev/vda rw
29 27 0:50 / /mnt/nfs rw - nfs4 server:/x rw
30 27 0:51 / /dev/shm rw - tmpfs tmpfs rw
31 27 0:52 / /run rw - tmpfs tmpfs rw
32 27 0:53 / /mnt/my\\040data rw - lustre mds:/y rw
33 27 0:54 / /snap/x ro - squashfs /dev/loop0 ro
34 27 0:55 / /mnt/old rw - xfs /dev/vdb rw
35 27 0:56 / /mnt/old rw - autofs none rw
"""


def test_watched_mounts() -> None:
    found = mounts.watched(cgroup.parse_mountinfo(MOUNTINFO))
    assert found == ("/", "/dev/shm", "/mnt/my data", "/mnt/nfs")


def test_a_dead_mount_does_not_hold_up_the_others(
    tmp_path: Path, hanging: Callable[..., threading.Event]
) -> None:
    write(tmp_path / "self/mountinfo", MOUNTINFO)
    gate = hanging("/mnt/nfs")
    real = os.statvfs("/")
    asked: list[str] = []

    def ask(point: str) -> os.statvfs_result:
        asked.append(point)
        if point == "/mnt/nfs":
            gate.wait(30)
        return real

    watch = mounts.Mounts()
    for _ in range(3):
        samples = list(watch.read(Files(LOG), tmp_path, ask))
        assert {sample.labels[0][1] for sample in samples} == {"/", "/dev/shm", "/mnt/my data"}
    assert asked.count("/mnt/nfs") == 1


def test_a_captured_tree_has_no_space(tmp_path: Path) -> None:
    write(tmp_path / "self/mountinfo", MOUNTINFO)
    assert not list(mounts.Mounts().read(Files(LOG, live=False), tmp_path))


# All together


def test_this_machine() -> None:
    names = {sample.name for sample in HostCollector(Context()).collect()}
    assert {"hw_cpu_seconds_total", "hw_mem_total_bytes", "hw_load1", "hw_host_info"} <= names
    assert "hw_disk_total_bytes" in names
    assert names <= {metric.name for metric in HostCollector.metrics}


def test_an_empty_tree(tmp_path: Path, context: Callable[..., Context]) -> None:
    with pytest.raises(NoData):
        list(HostCollector(context(tmp_path)).collect())


def test_ranks_come_from_the_context(tmp_path: Path, context: Callable[..., Context]) -> None:
    process(tmp_path / "proc", 7, "D", "io_schedule")
    found = HostCollector(context(tmp_path, ranks=(rank(7),))).collect()
    assert [sample.value for sample in found] == [1]


def test_a_containers_tree_without_its_membership(
    tmp_path: Path, context: Callable[[Path], Context], series: Callable[..., dict[str, float]]
) -> None:
    top = tmp_path / "sys/fs/cgroup"
    top.mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    for name, value in (("current", "500"), ("max", "1000"), ("events", "oom_kill 2")):
        (top / f"memory.{name}").write_text(f"{value}\n")
    assert series(HostCollector(context(tmp_path)).collect()) == {
        "hw_cgroup_mem_used_bytes": 500,
        "hw_cgroup_mem_limit_bytes": 1000,
        "hw_cgroup_oom_kills_total": 2,
    }


def test_a_copied_tree_whose_self_leads_nowhere(
    tmp_path: Path, context: Callable[[Path], Context], series: Callable[..., dict[str, float]]
) -> None:
    (tmp_path / "proc/1/net").mkdir(parents=True)
    (tmp_path / "proc/self").symlink_to("4711")
    (tmp_path / "proc/net").symlink_to("self/net")
    row = " ".join(str(column) for column in range(1, 17))
    (tmp_path / "proc/1/net/dev").write_text(f" bond0: {row}\n")
    found = series(HostCollector(context(tmp_path)).collect())
    assert found['hw_net_tx_bytes_total{device="bond0"}'] == 9
