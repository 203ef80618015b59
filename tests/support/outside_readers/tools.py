"""Readers of files, of tools' output, of /proc and of what is asked over HTTP."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from pathlib import Path

from ray_sentinel import kernel_files, text
from ray_sentinel.collect import exposition_text
from ray_sentinel.collect.discovery import sources_in
from ray_sentinel.doctor import netnames, yaml_text
from ray_sentinel.evidence import server_load
from ray_sentinel.evidence.checkpoints import FolderEntry, read_listing
from ray_sentinel.evidence.event_files import events, records
from ray_sentinel.evidence.node import nvidia_smi, ray_status
from ray_sentinel.http import server
from ray_sentinel.http.negotiation import accepts_gzip, wants_openmetrics
from ray_sentinel.kernel_files import parse_environ
from ray_sentinel.progress.discovery.environment import job_from, launch_variables, rank_from
from ray_sentinel.progress.discovery.live_environ import find_symbol
from ray_sentinel.progress.proc import cgroup as groups
from ray_sentinel.progress.proc import mounts, proc_stat
from ray_sentinel.store.event_files.config import parameters
from ray_sentinel.store.event_files.hparams import parse_hparams
from ray_sentinel.store.history.keys import parse_key
from ray_sentinel.store.windows import parse_time
from ray_sentinel.supervise import json_records
from ray_sentinel_plugins import _files, _pci, _raylets, nvml, rdma
from ray_sentinel_plugins._amdgpu import ras, sensors, table
from ray_sentinel_plugins._event_files.follow import parse_name
from ray_sentinel_plugins._host import disks, dstate, identity, network, pressure
from ray_sentinel_plugins._host import kernel as host_kernel
from ray_sentinel_plugins._kernel_log.meaning import KernelLogState, happenings
from ray_sentinel_plugins._kernel_log.records import parse_kmsg, parse_log
from tests.support.outside_readers.reader import Reader, of_text
from tests.support.outside_readers.samples import event_file, one_event
from tests.support.outside_readers.words import (
    EXPOSITION_WORDS,
    HTTP,
    KMSG_WORDS,
    YAML_WORDS,
)


def _event_file(data: bytes) -> object:
    found = records.scan(data)
    for record in found.records:
        with contextlib.suppress(events.MalformedEvent):
            events.parse_event(record)
    return found


def _listing(data: bytes) -> object:
    paths = data.decode("utf-8", "replace").split("\n")
    entries = [
        FolderEntry(path=path[:4096], size=number % 7, modified=float(number))
        for number, path in enumerate(paths)
    ]
    return read_listing(entries, {}, dict.fromkeys(paths[:1000], "100"), 1e9)


STAT = b"7 (python) S 1 7 7 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 100 1 1"
_PROC_READERS: tuple[tuple[str, Callable[[str], object], bytes], ...] = (
    ("network.parse_dev", network.parse_dev, b"eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"),
    ("network.parse_snmp", network.parse_snmp, b"Tcp: RetransSegs InErrs"),
    ("kernel.parse_cpu", host_kernel.parse_cpu, b"cpu  1 2 3 4 5 6 7 8 9 10"),
    ("kernel.parse_values", host_kernel.parse_values, b"MemTotal:  1 kB"),
    ("kernel.parse_load", host_kernel.parse_load, b"cpu  1 2 3 4 5 6 7 8 9 10"),
    ("kernel.parse_meminfo", host_kernel.parse_meminfo, b"MemTotal:  1 kB"),
    ("disks.parse_diskstats", disks.parse_diskstats, b" 259 0 nvme0n1 1 2 3 4 5 6 7 8 9 10 11"),
    (
        "pressure.parse_pressure",
        pressure.parse_pressure,
        b"some avg10=0.00 avg60=0.00 avg300=0.00 total=0",
    ),
    (
        "kernel_files.parse_mountinfo",
        kernel_files.parse_mountinfo,
        b"36 35 98:0 /m /mnt rw,noatime master:1 - cgroup2 /dev/root rw,freezer",
    ),
    ("identity.parse_version", identity.parse_version, b"Linux version 6.1.0-13-amd64 (gcc"),
    (
        "identity.parse_nvrm",
        identity.parse_nvrm,
        b"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1",
    ),
    ("identity.parse_os_release", identity.parse_os_release, b'PRETTY_NAME="Debian"'),
    ("dstate.parse_stack", dstate.parse_stack, b"[<0>] futex_wait_queue+0x60/0xa0"),
    ("rdma.parse_counter", rdma.parse_counter, b"cpu  1 2 3 4 5 6 7 8 9 10"),
    ("rdma.parse_state", rdma.parse_state, b"4: ACTIVE"),
    ("ras.parse_counts", ras.parse_counts, b"ue: 1"),
    ("ras.parse_pages", ras.parse_pages, b"0x1 : 0x2 : R"),
    ("ras.block_of", ras.block_of, b"umc_err_count"),
    ("sensors.parse_dpm", sensors.parse_dpm, b"1: 1300Mhz *"),
    ("_pci.parse_aer", lambda text: _pci.parse_aer(text, "TOTAL_ERR_COR"), b"TOTAL_ERR_COR 7"),
    ("_pci.sysfs_address", _pci.sysfs_address, b"0000:3b:00.0"),
    ("_files.clean", _files.clean, b"eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"),
    ("text.natural", text.natural, b" 259 0 nvme0n1 1 2 3 4 5 6 7 8 9 10 11"),
    ("_files.decimal", _files.decimal, b"cpu  1 2 3 4 5 6 7 8 9 10"),
    ("_files.pairs", _files.pairs, b"MemTotal:  1 kB"),
    ("tree.parse_information", nvml.parse_information, b"GPU UUID: \t GPU-1"),
    ("kernel_files.parse_cgroup", kernel_files.parse_cgroup, b"0::/a/b"),
    (
        "groups.cgroup_mounts",
        groups.cgroup_mounts,
        b"31 24 0:27 / /sys/fs/cgroup/freezer rw,relatime shared:9 - cgroup cgroup rw,freezer",
    ),
    (
        "mounts.kind_of",
        lambda text: mounts.kind_of("/mnt/a/b", text),
        b"36 35 98:0 /m /mnt rw,noatime master:1 - cgroup2 /dev/root rw,freezer",
    ),
)

_PROC_FIXTURES = {
    "network.parse_dev": "trees/*/proc/net/dev",
    "network.parse_snmp": "trees/*/proc/net/snmp",
    "kernel.parse_cpu": "trees/*/proc/stat",
    "kernel.parse_values": "trees/*/proc/vmstat",
    "kernel.parse_load": "trees/*/proc/loadavg",
    "kernel.parse_meminfo": "trees/*/proc/meminfo",
    "disks.parse_diskstats": "trees/*/proc/diskstats",
    "pressure.parse_pressure": "trees/*/proc/pressure/*",
    "kernel_files.parse_mountinfo": "trees/*/proc/self/mountinfo",
    "identity.parse_nvrm": "trees/*/proc/driver/nvidia/version",
    "ras.parse_counts": "trees/*/sys/devices/*/*/ras/umc_err_count",
    "ras.parse_pages": "trees/*/sys/devices/*/*/ras/gpu_vram_bad_pages",
    "_pci.parse_aer": "trees/*/sys/devices/*/*/aer_dev_*",
    "tree.parse_information": "trees/*/proc/driver/nvidia/gpus/*/information",
    "kernel_files.parse_cgroup": "trees/*/proc/self/cgroup",
    "rdma.parse_state": "trees/mlx5-roce/sys/class/infiniband/*/ports/*/state",
    "sensors.parse_dpm": "trees/*/sys/class/drm/*/device/pp_dpm_*",
}


TOOLS = (
    Reader(
        name="event files",
        made=event_file,
        read=_event_file,
        words=(b"\x18\x00\x00\x00\x00\x00\x00\x00",),
    ),
    Reader(
        name="event files: an event",
        made=one_event,
        read=events.parse_event,
        errors=(events.MalformedEvent,),
        front=b"\x09\x00\x00\x00\x00\x00\x00\xf0?",
        words=(b"\x2a\x02\x0a\x00", b"\x0a\x04loss", b"\x80"),
    ),
    Reader(
        name="event files: behind what is damaged",
        made=event_file,
        read=lambda data: records.next_good(data, 0),
        words=(b"\x18\x00\x00\x00\x00\x00\x00\x00",),
    ),
    Reader(
        name="event files: names",
        read=of_text(lambda text: [parse_name(name) for name in text.split("\n")]),
        words=(b"events.out.tfevents.1700000000.node-1.77.0",),
        most=32 << 10,
    ),
    Reader(
        name="event files: parameters",
        read=of_text(lambda text: parameters("args/text_summary", text)),
        front=b'{"a": ',
        words=(b'"b": 1,',),
    ),
    Reader(
        name="hparams.yaml",
        read=parse_hparams,
        words=YAML_WORDS,
        most=48 << 10,
        memory=900.0,
    ),
    Reader(
        name="checkpoints",
        read=_listing,
        words=(
            b"run/checkpoint-100/model.safetensors",
            b"run/iter_0000100/mp_rank_00/model.pt",
            b"run/global_step100/a.pt",
            b"run/100/_METADATA",
            b"run/latest",
        ),
        memory=200.0,
    ),
    Reader(
        name="exposition: of a plugin",
        read=of_text(exposition_text.parse),
        words=EXPOSITION_WORDS,
        fixtures=("exposition/*.prom",),
    ),
    Reader(
        name="exposition: of an engine",
        read=of_text(server_load.parse_load),
        front=b'sglang:num_running_reqs{a="',
        words=(b'sglang:num_running_reqs{a="b"} 1', b"vllm:num_requests_waiting{"),
    ),
    Reader(
        name="exposition: of Ray Serve",
        read=of_text(server_load.parse_serve),
        words=(
            b'ray_serve_deployment_request_counter_total{application="a",deployment="b"} 1',
            b'ray_serve_deployment_processing_latency_ms_bucket{deployment="b",le="5"} 1',
        ),
        fixtures=("servers/*.txt",),
    ),
    Reader(
        name="nvidia-smi: XML",
        read=of_text(nvidia_smi.parse),
        front=b"<nvidia_smi_log>",
        words=(b"<gpu>", b"<a b='c'>", b"&lt;", b"<!-- ", b"<![CDATA[", b"<processes>"),
        memory=200.0,
    ),
    Reader(
        name="ray status",
        read=of_text(ray_status.read_status),
        front=b" 2.0/8.0 GPU\nDemands:\n",
        words=(b"Active:", b" {'GPU': 8.0}: 1+ pending tasks/actors", b" 1 node_abc", b"Demands:"),
    ),
    Reader(
        name="ray job status",
        read=of_text(lambda text: ray_status.read_job_status(text, "a")),
        words=(b"Status for job 'b': RUNNING", b"Job 'b' succeeded"),
    ),
    Reader(
        name="kernel log",
        fixtures=(
            "trees/*/dev/kmsg",
            "trees/*/dev/dmesg",
        ),
        read=of_text(lambda text: list(happenings(parse_log(text, 1e9), KernelLogState()))),
        words=KMSG_WORDS,
        memory=150.0,
        seconds=6.0,
    ),
    Reader(
        name="kernel log: a record",
        read=of_text(parse_kmsg),
        front=b"6,1,2,-;",
        words=(b"\\x0a",),
        most=8192,
    ),
    *(
        Reader(
            name=name,
            read=of_text(read),
            words=(word,),
            fixtures=(_PROC_FIXTURES[name],) if name in _PROC_FIXTURES else (),
            most=256 << 10,
        )
        for name, read, word in _PROC_READERS
    ),
    Reader(
        name="proc: stat",
        fixtures=("trees/*/proc/[0-9]*/stat",),
        read=lambda data: proc_stat.parse_stat(data),
        errors=(ValueError, IndexError),
        words=(STAT,),
        most=64 << 10,
    ),
    Reader(
        name="proc: schedstat",
        read=lambda data: proc_stat.parse_schedstat(data),
        errors=(ValueError, IndexError),
        words=(b"1 2 3",),
        most=64 << 10,
    ),
    Reader(
        name="proc: task state",
        fixtures=("trees/*/proc/[0-9]*/stat",),
        read=dstate.task_state,
        words=(STAT,),
        most=64 << 10,
    ),
    Reader(
        name="proc: environ",
        read=lambda data: (rank_from(launch_variables(data)), job_from(parse_environ(data))),
        words=(b"RANK=3\x00WORLD_SIZE=8\x00", b"MASTER_ADDR=a\x00", b"=\x00"),
    ),
    Reader(
        name="proc: raylet's command",
        read=_raylets.parse_raylet,
        words=(b"raylet\x00--node_ip_address=1\x00", b"--"),
    ),
    Reader(
        name="proc: symbol",
        read=find_symbol,
        errors=(struct.error,),
        front=b"\x7fELF\x02\x01\x01",
        words=(b"environ\x00",),
    ),
    Reader(
        name="amdgpu: table",
        fixtures=("trees/*/sys/devices/*/*/gpu_metrics",),
        read=lambda data: table.parse(data, ""),
        words=(b"\x01\x02",),
        most=64 << 10,
    ),
    Reader(
        name="amdgpu: attributes",
        read=table.read_attributes,
        errors=(ValueError,),
        words=(b"\x08\x00\x01\x00",),
        most=64 << 10,
    ),
    Reader(
        name="web: a request",
        read=server.parse,
        front=HTTP,
        words=(b"a: b\r\n", b"\r\n", b"Connection: close", b" a:b\r\n"),
        errors=(server.BadRequestError,),
        most=server.MAX_REQUEST,
    ),
    Reader(
        name="web: Accept",
        read=of_text(lambda text: (wants_openmetrics(text), accepts_gzip(text))),
        words=(b"application/openmetrics-text;version=1.0.0;q=0.5,", b"gzip;q=0,"),
        most=server.MAX_REQUEST,
    ),
    Reader(
        name="configuration: YAML",
        read=of_text(yaml_text.read),
        words=YAML_WORDS,
        most=48 << 10,
        memory=900.0,
    ),
    Reader(
        name="configuration: networks",
        read=of_text(netnames.parse_interfaces),
        words=(b"^=eth0,", b"eth0,"),
    ),
    Reader(
        name="plugins: source",
        read=lambda data: list(sources_in(Path("a.py"), data)),
        words=(b"class A(Collector):\n    pass", b"-", b"x."),
        memory=1500.0,
        most=256 << 10,
        seconds=8.0,
    ),
    Reader(
        name="records on disk",
        read=lambda data: json_records.decode(data, dict),
        words=(b'{"a": 1},',),
        front=b"[",
    ),
    Reader(
        name="series keys",
        read=of_text(parse_key),
        errors=(ValueError,),
        front=b"x{",
        words=(b'a="b",', b'a="\\"'),
        most=64 << 10,
    ),
    Reader(
        name="times of a command",
        read=of_text(parse_time),
        errors=(ValueError,),
        words=(b"2025-01-02T10:00:00Z", b"-3h"),
        most=64 << 10,
    ),
)
