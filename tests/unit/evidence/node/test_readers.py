"""What nvidia-smi, ray status and NCCL print is read."""

from __future__ import annotations

import pytest

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.node.nvidia_smi import parse
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


def smi(*gpus: str) -> str:
    return f"<nvidia_smi_log>{''.join(f'<gpu>{gpu}</gpu>' for gpu in gpus)}</nvidia_smi_log>"


def test_gpus() -> None:
    text = smi(
        "<product_name>NVIDIA H100 80GB HBM3</product_name><uuid>GPU-aa</uuid>"
        "<fb_memory_usage><total>81559 MiB</total><used>71000 MiB</used></fb_memory_usage>"
        "<utilization><gpu_util>97 %</gpu_util></utilization>"
        "<temperature><gpu_temp>61 C</gpu_temp></temperature>"
        "<gpu_power_readings><average_power_draw>600.0 W</average_power_draw>"
        "<instant_power_draw>640.12 W</instant_power_draw></gpu_power_readings>",
        "<uuid>GPU-bb</uuid><utilization><gpu_util>N/A</gpu_util></utilization>"
        "<gpu_power_readings><power_draw>[Unknown Error]</power_draw></gpu_power_readings>"
        "<processes><process_info><pid>4711</pid><type>C</type>"
        "<process_name>python -c a, b</process_name><used_memory>1024 MiB</used_memory>"
        "</process_info><process_info><pid>7</pid><type>G</type></process_info>"
        "<process_info><pid>-</pid><type>C</type></process_info></processes>",
    )
    answer = parse(f"a warning of the driver\n{text}\nand what stands on the other stream")
    first, second = answer.states
    assert (first.index, first.uuid, first.name) == ("0", "GPU-aa", "NVIDIA H100 80GB HBM3")
    assert (first.utilization_percent, first.temperature_celsius) == (97, 61)
    assert (first.memory_used_bytes, first.memory_total_bytes) == (71000 << 20, 81559 << 20)
    assert first.power_watts == 640.12
    assert (second.index, second.name) == ("1", "")
    assert second.utilization_percent is None
    assert second.power_watts is None
    assert second.memory_used_bytes is None
    assert [(p.gpu, p.pid, p.name, p.memory_bytes) for p in answer.processes] == [
        ("1", 4711, "python -c a, b", 1 << 30)
    ]


@pytest.mark.parametrize(
    "power",
    [
        "<power_readings><power_draw>75.5 W</power_draw></power_readings>",
        "<gpu_power_readings><power_draw>75.5 W</power_draw></gpu_power_readings>",
        "<gpu_power_readings><average_power_draw>75.5 W</average_power_draw>"
        "<instant_power_draw>N/A</instant_power_draw></gpu_power_readings>",
    ],
)
def test_the_power_of_every_driver(power: str) -> None:
    assert parse(smi(power)).states[0].power_watts == 75.5


def test_a_process_whose_name_is_no_xml_hides_no_gpu() -> None:
    name = "<processes><process_info><pid>7</pid><type>C</type><process_name>a & <b"
    odd = f"<uuid>GPU-1</uuid>{name}</process_name></process_info></processes>"
    answer = parse(smi(odd, "<uuid>GPU-2</uuid>"))
    assert [gpu.uuid for gpu in answer.states] == ["GPU-1", "GPU-2"]
    assert answer.processes == ()


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


@pytest.mark.parametrize("count", ["²", "9" * 5000])
def test_a_count_of_errors_that_is_no_number_is_left_out(count: str) -> None:
    errors = f"<uncorrectable>{count}</uncorrectable><sram_uncorrectable>3</sram_uncorrectable>"
    answer = parse(smi(f"<ecc_errors><volatile>{errors}</volatile></ecc_errors>"))
    assert answer.gpus[0].ecc_uncorrected == 3


FORGED = (
    "x</process_name></process_info></processes><remapped_rows><remapped_row_failure>Yes"
    "</remapped_row_failure></remapped_rows><processes><process_info><process_name>y"
)
ANOTHER = (
    "x</process_name></process_info></processes></gpu><gpu><uuid>GPU-forged</uuid><temperature>"
    "<gpu_temp>120 C</gpu_temp></temperature><processes><process_info><process_name>y"
)


def named(name: str) -> str:
    """The answer of a machine with one GPU, on which a process of that name computes."""
    gpu = (
        "<gpu><uuid>GPU-1</uuid><temperature><gpu_temp>41 C</gpu_temp></temperature><processes>"
        f"<process_info><pid>7</pid><type>C</type><process_name>{name}</process_name>"
        "</process_info></processes></gpu>"
    )
    return f"<nvidia_smi_log><attached_gpus>1</attached_gpus>{gpu}</nvidia_smi_log>"


def test_a_process_name_says_nothing_of_a_gpu() -> None:
    assert [one.name for one in parse(named("python")).processes] == ["python"]
    (gpu,) = parse(named(FORGED)).gpus
    assert not gpu.remap_failed
    (gpu,) = parse(named("</")).gpus
    assert (gpu.state.uuid, gpu.state.temperature_celsius) == ("GPU-1", 41.0)


@pytest.mark.parametrize("name", [ANOTHER, "</gpu><!-- -->"])
def test_a_process_name_that_forges_a_gpu_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"forges XML|no XML"):
        parse(named(name))
