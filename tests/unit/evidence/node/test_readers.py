"""What nvidia-smi, ray status and NCCL print is read."""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.node.gpu_table import read_gpus, read_processes
from ray_sentinel.evidence.node.ray_status import read_job_status, read_status
from ray_sentinel.evidence.node.transport import judge_transport, read_transport
from ray_sentinel.model.health import DeviceTraffic, TransportLines
from ray_sentinel.model.triage import LogLine

STATUS = """
======== Autoscaler status: 2026-05-01 10:00:00.000000 ========
Node status
---------------------------------------------------------------
Active:
 1 node_0123456789abcdef
 1 node_fedcba9876543210
Pending:
 (no pending nodes)
Recent failures:
 (no failures)

Resources
---------------------------------------------------------------
Total Usage:
 2.0/16.0 CPU (1.0 used of 2.0 reserved in placement groups)
 8.0/16.0 GPU (8.0 used of 8.0 reserved in placement groups)
 0B/1.2TiB memory

Total Demands:
 {'GPU': 8.0}: 1+ pending tasks/actors
 {'CPU': 1.0, 'GPU': 4.0} * 4 (STRICT_PACK): 1+ pending placement groups
"""


def lines(*texts: str) -> list[LogLine]:
    return [LogLine(file="f", line=None, text=text) for text in texts]


def test_gpus() -> None:
    text = (
        "0, GPU-aa, NVIDIA H100 80GB HBM3, 97, 71000, 81559, 640.12, 61\n"
        "1, GPU-bb, NVIDIA H100 80GB HBM3, [N/A], 0, 81559, [Unknown Error], 40\n"
        "No devices were found\n"
    )
    first, second = read_gpus(text)
    assert first.utilization_percent == 97
    assert first.memory_used_bytes == 71000 << 20
    assert second.utilization_percent is None
    assert second.power_watts is None
    told = read_processes("GPU-bb, 4711, python -c a, b, 1024\n", {"GPU-bb": "1"})
    assert [(p.gpu, p.pid, p.name, p.memory_bytes) for p in told] == [
        ("1", 4711, "python -c a, b", 1 << 30)
    ]


def test_ray_status() -> None:
    told = read_status(STATUS)
    assert told is not None
    assert (told.gpus_total, told.gpus_allotted) == (16, 8)
    assert (told.cpus_total, told.cpus_allotted) == (16, 2)
    assert len(told.demands) == 2
    assert told.nodes == 2
    assert read_status("no cluster") is None


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("Status for job 'raysubmit_a': RUNNING", "RUNNING"),
        ("Job 'raysubmit_a' succeeded", "SUCCEEDED"),
        ("Status for job 'raysubmit_a': FAILED\nStatus message: x", "FAILED"),
        ("Status for job 'raysubmit_b': RUNNING", "UNKNOWN"),
        ("Status for job 'raysubmit_a': SUSPENDED", "UNKNOWN"),
        ("Job raysubmit_a does not exist", "UNKNOWN"),
    ],
)
def test_job_status(text: str, state: str) -> None:
    assert read_job_status(text, "raysubmit_a") == state


@pytest.mark.parametrize(
    ("texts", "used"),
    [
        (("h:1:2 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)",), "efa"),
        (("h:1:2 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa",), "efa"),
        (("h:1:2 [0] NCCL INFO Using network AWS Libfabric",), "efa"),
        (
            (
                "h:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>",
                "h:1:2 [0] NCCL INFO Using network IB",
            ),
            "infiniband",
        ),
        (
            (
                "h:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
                "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA",
            ),
            "roce",
        ),
        (
            (
                "h:1:2 [0] NCCL INFO NET/IB : No device found.",
                "h:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>",
                "h:1:2 [0] NCCL INFO Using network Socket",
            ),
            "socket",
        ),
        # What was found is not what is used.
        (
            (
                "h:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB; OOB eth0:10.0.0.1<0>",
                "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0",
            ),
            "socket",
        ),
        (("nothing about it",), ""),
    ],
)
def test_transport(texts: tuple[str, ...], used: str) -> None:
    assert read_transport(lines(*texts)).used == used


def test_a_device_that_is_there_is_no_device_in_use() -> None:
    idle = DeviceTraffic(device="efa0", port="1", kind="efa", active=True, bytes_per_second=10.0)
    told = judge_transport([("n", TransportLines(), (idle,))])
    assert told is not None
    assert told.used == ""
    assert not told.efa_active
    busy = DeviceTraffic(device="efa0", port="1", kind="efa", active=True, bytes_per_second=1e9)
    told = judge_transport([("n", TransportLines(), (busy,))])
    assert told is not None
    assert (told.used, told.by) == ("efa", "counters")
    assert judge_transport([("n", TransportLines(), ())]) is None
