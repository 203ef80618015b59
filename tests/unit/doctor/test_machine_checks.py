"""GPUs, versions, RDMA, EFA and limits, on trees of files and answers of the driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.clock import FakeClock
from ray_sentinel.doctor.check import Here
from ray_sentinel.doctor.checks.dstate import DStateCheck
from ray_sentinel.doctor.checks.efa import EfaCheck
from ray_sentinel.doctor.checks.gpu_errors import GpuErrorsCheck
from ray_sentinel.doctor.checks.gpu_errors import GpuErrorsFacts as Errors
from ray_sentinel.doctor.checks.gpus import GpuCard, GpusCheck
from ray_sentinel.doctor.checks.gpus import GpusFacts as Cards
from ray_sentinel.doctor.checks.limits import LimitsCheck
from ray_sentinel.doctor.checks.limits import LimitsFacts as Limit
from ray_sentinel.doctor.checks.nodes import NodesCheck
from ray_sentinel.doctor.checks.nodes import NodesFacts as Answered
from ray_sentinel.doctor.checks.object_store import ObjectStoreCheck, StoreReading
from ray_sentinel.doctor.checks.object_store import ObjectStoreFacts as Places
from ray_sentinel.doctor.checks.rdma import RdmaCheck
from ray_sentinel.doctor.checks.shared_memory import SharedMemoryCheck
from ray_sentinel.doctor.checks.shared_memory import SharedMemoryFacts as Shm
from ray_sentinel.doctor.checks.tracing import TracingCheck
from ray_sentinel.doctor.checks.tracing import TracingFacts as Tracer
from ray_sentinel.doctor.checks.versions import VersionsCheck
from ray_sentinel.doctor.checks.versions import VersionsFacts as Software
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.errors import InputError
from ray_sentinel.evidence.node import nvidia_smi

XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
 <timestamp>Mon Nov 16 10:00:00 2026</timestamp>
 <driver_version>570.124.06</driver_version>
 <cuda_version>12.8</cuda_version>
 <attached_gpus>2</attached_gpus>
 <gpu id="00000000:18:00.0">
  <product_name>NVIDIA H100 80GB HBM3</product_name>
  <uuid>GPU-11111111-1111-1111-1111-111111111111</uuid>
  <fb_memory_usage>
   <total>81559 MiB</total><reserved>551 MiB</reserved><used>4 MiB</used>
  </fb_memory_usage>
  <bar1_memory_usage><total>131072 MiB</total><used>9 MiB</used></bar1_memory_usage>
  <ecc_errors>
   <volatile>
    <sram_correctable>3</sram_correctable>
    <sram_uncorrectable_parity>0</sram_uncorrectable_parity>
    <sram_uncorrectable_secded>1</sram_uncorrectable_secded>
    <dram_correctable>7</dram_correctable>
    <dram_uncorrectable>2</dram_uncorrectable>
   </volatile>
   <aggregate><dram_uncorrectable>9</dram_uncorrectable></aggregate>
  </ecc_errors>
  <retired_pages><pending_retirement>N/A</pending_retirement></retired_pages>
  <remapped_rows>
   <remapped_row_pending>Yes</remapped_row_pending>
   <remapped_row_failure>No</remapped_row_failure>
  </remapped_rows>
  <processes></processes>
 </gpu>
 <gpu id="00000000:2A:00.0">
  <product_name>NVIDIA H100 80GB HBM3</product_name>
  <uuid>GPU-22222222-2222-2222-2222-222222222222</uuid>
  <fb_memory_usage><total>81559 MiB</total><used>70000 MiB</used></fb_memory_usage>
  <ecc_errors><volatile><dram_uncorrectable>N/A</dram_uncorrectable></volatile></ecc_errors>
  <gpu_recovery_action>Reset</gpu_recovery_action>
  <processes>
   <process_info>
    <pid>4711</pid><type>C</type><process_name>python train.py</process_name>
   </process_info>
   <process_info><pid>99</pid><type>G</type><process_name>Xorg</process_name></process_info>
  </processes>
 </gpu>
</nvidia_smi_log>
"""


def test_what_the_driver_says() -> None:
    answer = nvidia_smi.parse(XML)
    first, second = answer.gpus
    assert (answer.driver, answer.cuda) == ("570.124.06", "12.8")
    assert (first.state.memory_used_bytes, first.ecc_uncorrected) == (4 << 20, 3)
    assert first.remap_pending
    assert not first.processes
    assert second.ecc_uncorrected is None
    assert [(one.gpu, one.pid, one.name) for one in second.processes] == [
        ("1", 4711, "python train.py")
    ]
    assert second.recovery == "Reset"


@pytest.mark.parametrize("text", ["", "NVIDIA-SMI has failed", "<nvidia_smi_log><gpu>", "<a/>" * 2])
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(InputError, match="nvidia-smi"):
        nvidia_smi.parse(text)


def test_gpu_errors_are_named_with_the_gpu(judged) -> None:
    results = judged(GpuErrorsCheck(), {"a": Errors(nvidia_smi.parse(XML).gpus)})
    assert sorted(r.outcome for r in results) == ["failure", "warning", "warning"]
    assert any("GPU-2222" in r.seen and "Reset" in r.seen for r in results)


def cards(count: int, **facts: object) -> Cards:
    return Cards(tuple(GpuCard(f"H100 GPU-{n}", **facts) for n in range(count)))  # type: ignore[arg-type]


def test_gpus_that_are_missing_uneven_and_busy(judged, cluster_of) -> None:
    cluster = cluster_of("a", "b", "c", gpus=8.0, free=24.0)
    well = {"a": cards(8), "b": cards(8), "c": cards(8)}
    assert [r.outcome for r in judged(GpusCheck(), well, RunPlan(gpus=24), cluster)] == ["ok"]
    results = judged(GpusCheck(), {**well, "c": cards(7)}, RunPlan(gpus=24), cluster)
    assert {r.host for r in results if r.outcome == "failure"} == {"", "c"}
    results = judged(GpusCheck(), {"a": cards(1, used_bytes=40 << 30, programs=("4711 python",))})
    assert "4711 python" in results[-1].seen
    results = judged(GpusCheck(), well, RunPlan(), cluster_of("a", "b", "c", gpus=8.0, free=4.0))
    assert "20 of 24 GPUs are reserved" in results[-1].seen


def test_no_gpus_are_well_unless_expected(judged) -> None:
    assert judged(GpusCheck(), {"a": Cards(())})[0].outcome == "skipped"
    assert judged(GpusCheck(), {"a": Cards(())}, RunPlan(gpus=8))[0].outcome == "failure"


def test_versions_that_differ(judged) -> None:
    usual = Software({"Python": "3.11.7", "torch": "2.6.0", "numpy": "2.0.0", "NCCL": "2.21.5"})
    other = Software({"Python": "3.11.7", "torch": "2.5.1", "numpy": "2.0.1", "NCCL": "2.21.5"})
    results = judged(VersionsCheck(), {"a": usual, "b": usual, "c": other})
    assert {(r.outcome, r.seen.split()[0]) for r in results} == {
        ("failure", "torch"),
        ("warning", "numpy"),
    }
    assert "2.5.1 on c" in next(r.seen for r in results if "torch" in r.seen)


def test_a_package_that_is_asked_for_and_missing(judged) -> None:
    [found] = judged(VersionsCheck(), {"a": Software({})}, RunPlan(packages=("flash-attn",)))
    assert found.remedy == "pip install flash-attn"


def test_nodes(judged, cluster_of) -> None:
    seen = {"a": Answered("a"), "b": Answered("b")}
    assert judged(NodesCheck(), seen, RunPlan(nodes=2), cluster_of("a", "b"))[0].outcome == "ok"
    assert (
        judged(NodesCheck(), seen, RunPlan(nodes=3), cluster_of("a", "b"))[0].outcome == "failure"
    )
    assert judged(NodesCheck(), seen, RunPlan(nodes=3), None)[0].outcome == "failure"
    dead = cluster_of("a", "b", dead=("10.0.0.9: missed heartbeats",))
    assert "10.0.0.9" in judged(NodesCheck(), seen, RunPlan(), dead)[1].seen


def port(
    root: Path, name: str, state: str = "4: ACTIVE", rate: str = "400 Gb/sec (4X NDR)"
) -> None:
    folder = root / "class/infiniband" / name / "ports/1"
    folder.mkdir(parents=True)
    (folder / "state").write_text(state + "\n")
    (folder / "phys_state").write_text("5: LinkUp\n")
    (folder / "rate").write_text(rate + "\n")


def test_rdma_ports(judged, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for name in ("mlx5_0", "mlx5_1"):
        port(good, name)
    port(bad, "mlx5_0", rate="200 Gb/sec (4X HDR)")
    port(bad, "mlx5_1", state="1: DOWN")
    look = {
        "a": RdmaCheck().look(RunPlan(), Here(host="a", sys=good)),
        "b": RdmaCheck().look(RunPlan(), Here(host="b", sys=good)),
    }
    assert [r.outcome for r in judged(RdmaCheck(), look)] == ["ok"]
    look["b"] = RdmaCheck().look(RunPlan(), Here(host="b", sys=bad))
    results = judged(RdmaCheck(), look)
    assert [(r.outcome, r.host) for r in results] == [("failure", "b"), ("warning", "b")]
    assert "mlx5_1/1 is 1: DOWN" in results[0].seen


def test_efa_that_nccl_would_not_use(judged, tmp_path: Path) -> None:
    (tmp_path / "class/infiniband/efa_0").mkdir(parents=True)
    plugin = tmp_path / "lib"
    plugin.mkdir()

    def outcome(**environ: str) -> tuple[str, str]:
        facts = EfaCheck().look(RunPlan(), Here(host="a", sys=tmp_path, environ=environ))
        [found] = judged(EfaCheck(), {"a": facts})
        return found.outcome, found.seen

    assert outcome()[0] == "failure"
    (plugin / "libnccl-net-ofi.so").touch()
    assert outcome(LD_LIBRARY_PATH=str(plugin))[0] == "warning"
    assert outcome(LD_LIBRARY_PATH=str(plugin), NCCL_NET="Socket")[0] == "failure"
    assert outcome(LD_LIBRARY_PATH=str(plugin), NCCL_NET="ofi")[0] == "ok"


def test_limits_that_are_too_low(judged) -> None:
    low = Limit(files=1024, processes=4096, locked_bytes=64 << 10, rdma=True, pids_left=50)
    results = judged(LimitsCheck(), {"a": low})
    assert [r.outcome for r in results] == ["failure", "warning", "failure", "warning"]
    high = Limit(files=None, processes=None, locked_bytes=None, rdma=True, pids_left=None)
    assert judged(LimitsCheck(), {"a": high})[0].outcome == "ok"


def test_stacks_that_could_not_be_taken(judged) -> None:
    well = Tracer(py_spy="/bin/py-spy", allowed=True, yama=0, cuda_gdb=True, gpus=True)
    assert [r.outcome for r in judged(TracingCheck(), {"a": well})] == ["ok"]
    bare = Tracer(py_spy="", allowed=False, yama=2, cuda_gdb=False, gpus=True)
    results = judged(TracingCheck(), {"a": well, "b": bare})
    assert [(r.outcome, r.host) for r in results] == [("warning", "b")] * 3
    said = " ".join(f"{r.seen} {r.remedy}" for r in results)
    for word in ("pip install py-spy", "ptrace_scope is 2", "SYS_PTRACE", "nvidia-cuda-gdb"):
        assert word in said
    no_gpus = Tracer(py_spy="/bin/py-spy", allowed=None, yama=None, cuda_gdb=False, gpus=False)
    assert [r.outcome for r in judged(TracingCheck(), {"a": no_gpus})] == ["ok"]


def test_shared_memory_that_is_missing_full_and_well(judged) -> None:
    assert [r.outcome for r in judged(SharedMemoryCheck(), {"a": Shm(64 << 30, 60 << 30)})] == [
        "ok"
    ]
    [gone] = judged(SharedMemoryCheck(), {"a": Shm(None, None)})
    assert (gone.outcome, gone.seen) == ("failure", "there is no /dev/shm")
    [full] = judged(SharedMemoryCheck(), {"a": Shm(64 << 30, 1 << 20)})
    assert "old runs left" in full.remedy
    [small] = judged(SharedMemoryCheck(), {"a": Shm(64 << 20, 64 << 20)})
    assert (small.outcome, "--shm-size" in small.remedy) == ("failure", True)


def test_a_store_without_a_client(judged) -> None:
    place = StoreReading(url="gs://b/run")
    [found] = judged(ObjectStoreCheck(), {"a": Places((place,))})
    assert (found.outcome, found.remedy) == ("warning", "install gcloud or gsutil")


def process(proc: Path, pid: int, state: str, flags: int = 1) -> None:
    folder = proc / str(pid) / "task" / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stat").write_text(f"{pid} (nvidia-smi) {state} 1 1 1 1 1 {flags} 1 1\n")
    (folder / "wchan").write_text("rpc_wait_bit_killable")


def test_only_who_hangs_at_every_look_is_named(judged, tmp_path: Path) -> None:
    process(tmp_path, 10, "D")
    process(tmp_path, 11, "D")
    process(tmp_path, 12, "S")
    process(tmp_path, 13, "D", 0x00200000)  # a thread of the kernel's, which idles so

    class Turning(FakeClock):
        def sleep(self, seconds: float) -> None:
            process(tmp_path, 11, "R")

    facts = DStateCheck().look(RunPlan(), Here(host="a", proc=tmp_path, clock=Turning()))
    [found] = judged(DStateCheck(), {"a": facts})
    assert "pid 10 (nvidia-smi)" in found.seen
    assert "rpc_wait_bit_killable" in found.seen


def test_the_pids_that_a_control_group_above_ours_leaves(tmp_path: Path) -> None:
    """Version 1, in a scope below a slice that is nearly used up."""
    files = {
        "proc/self/mountinfo": "9 1 0:9 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n",
        "proc/self/cgroup": "4:pids:/slice/step\n",
        "sys/fs/cgroup/pids/slice/pids.max": "100\n",
        "sys/fs/cgroup/pids/slice/pids.current": "90\n",
        "sys/fs/cgroup/pids/slice/step/pids.max": "max\n",
        "sys/fs/cgroup/pids/slice/step/pids.current": "7\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    here = Here(host="a", proc=tmp_path / "proc", sys=tmp_path / "sys")
    assert LimitsCheck().look(RunPlan(), here).pids_left == 10
